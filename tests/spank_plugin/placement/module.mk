# SPDX-License-Identifier: Apache-2.0
$(call unit_test,placement_test,$(wildcard tests/spank_plugin/placement/*_test.cc),placement plan common,json)
$(call test_tool,bench-placement,tests/spank_plugin/placement/bench_placement.cc,placement plan common)

.PHONY: bench-placement
bench-placement: $(BUILD)/tests/bench-placement $(BUILD)/tests/make-fixture $(addprefix $(BUILD)/,mm-agentd mm-place mm-trainer spank_mm_train.so)
	@$<
	@BUILD=$(BUILD) tests/cluster/placement_bench.sh
	@BUILD=$(BUILD) tests/cluster/placement_step_bench.sh

# libFuzzer with AddressSanitizer on every reader of text that others write; FUZZ_SECONDS of it. hwloc's own reader is no part of it:
# foreign files go through it in a child process.
FUZZ_SECONDS ?= 60
PLACEMENT_FUZZ_SOURCES := $(addprefix spank_plugin/placement/,binding.cc cpu_set.cc hardware.cc nccl_topology.cc node_map.cc switch_tree.cc xml.cc) \
  $(addprefix spank_plugin/,node_order.cc command_line.cc option_table.cc) common/error.cc common/hostlist.cc \
  tests/spank_plugin/placement/fuzz/fuzz.cc
.PHONY: fuzz-placement
fuzz-placement:
	@mkdir -p $(BUILD)/fuzz/placement-corpus
	@clang++ -std=c++20 -O1 -g1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -D_GNU_SOURCE -I. $(PLACEMENT_FUZZ_SOURCES) -lfmt -o $(BUILD)/fuzz/placement
	@$(BUILD)/fuzz/placement -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -rss_limit_mb=1024 -print_final_stats=1 $(BUILD)/fuzz/placement-corpus
