# SPDX-License-Identifier: Apache-2.0
$(call unit_test,placement_test,$(wildcard tests/spank_plugin/placement/*_test.cc),placement common,json)
$(call test_tool,bench-placement,tests/spank_plugin/placement/bench_placement.cc,placement common)

.PHONY: bench-placement
bench-placement: $(BUILD)/tests/bench-placement
	@$<
