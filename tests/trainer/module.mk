# SPDX-License-Identifier: Apache-2.0
# make-fixture writes the model folder and the shards that the trainer's tests share. A test links fixture.a, or calls the program; it is
# not installed.
$(call library,fixture,tests/trainer/make_fixture_model.cc tests/trainer/make_fixture_data.cc,png)

$(call test_tool,make-fixture,tests/trainer/make_fixture_main.cc,fixture trainer_model trainer_tensor common,)
