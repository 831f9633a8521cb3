# SPDX-License-Identifier: Apache-2.0
$(call unit_test,trainer_tensor_test,$(wildcard tests/trainer/tensor/*_test.cc),trainer_tensor)
