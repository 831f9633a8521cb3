# SPDX-License-Identifier: Apache-2.0
$(call unit_test,trainer_ops_test,$(wildcard tests/trainer/ops/*_test.cc),trainer_ops trainer_tensor)
