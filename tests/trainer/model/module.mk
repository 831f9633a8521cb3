# SPDX-License-Identifier: Apache-2.0
$(call unit_test,trainer_model_test,$(wildcard tests/trainer/model/*.cc),fixture trainer_parallel trainer_model trainer_ops trainer_tensor trainer_comm common,json)
