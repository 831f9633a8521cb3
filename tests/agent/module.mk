# SPDX-License-Identifier: Apache-2.0
$(call unit_test,agent_test,$(wildcard tests/agent/*_test.cc),agent_core agent_klog common,json)
$(BUILD)/tests/agent_test: | $(BUILD)/tests/libnvidia-ml.so.1
