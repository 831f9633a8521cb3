# SPDX-License-Identifier: Apache-2.0
$(call unit_test,trainer_optim_test,$(wildcard tests/trainer/optim/*_test.cc),trainer_optim trainer_model trainer_tensor trainer_comm common)
