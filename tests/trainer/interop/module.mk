# SPDX-License-Identifier: Apache-2.0
$(call unit_test,trainer_interop_test,$(wildcard tests/trainer/interop/*_test.cc),trainer_interop trainer_model trainer_tensor trainer_comm common)
