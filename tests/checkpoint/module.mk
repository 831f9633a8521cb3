# SPDX-License-Identifier: Apache-2.0
$(call unit_test,checkpoint_test,$(wildcard tests/checkpoint/*.cc),checkpoint common,json)
$(BUILD)/tests/checkpoint_test: $(BUILD)/mm-ckpt
