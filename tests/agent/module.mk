# SPDX-License-Identifier: Apache-2.0
$(call unit_test,agent_test,$(wildcard tests/agent/*_test.cc),agent_core agent_klog common,json)
$(BUILD)/tests/agent_test: | $(BUILD)/tests/libnvidia-ml.so.1
# `make bench-agent`: latencies and costs beside their targets.
.PHONY: bench-agent
bench-agent: $(BUILD)/mm-agent $(BUILD)/mm-agentd $(BUILD)/spank_mm_train.so
	@BUILD=$(abspath $(BUILD)) tests/cluster/bench_agent.sh
