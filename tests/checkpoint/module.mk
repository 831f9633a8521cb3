# SPDX-License-Identifier: Apache-2.0
$(call unit_test,checkpoint_test,$(filter-out %/bench.cc,$(wildcard tests/checkpoint/*.cc)),checkpoint common,json)
$(BUILD)/tests/checkpoint_test: $(BUILD)/mm-ckpt

# Ratios against limits and peers, on the disk that BENCH_FOLDER is on; the numbers of the manual are of 2 GiB.
BENCH_FOLDER ?= $(BUILD)/bench
BENCH_MIB ?= 2048
$(call test_tool,checkpoint-bench,tests/checkpoint/bench.cc tests/checkpoint/support.cc,checkpoint common,gtest)
.PHONY: bench-checkpoint
bench-checkpoint: $(BUILD)/tests/checkpoint-bench
	@$< $(BENCH_FOLDER) $(BENCH_MIB)
	@python3 tests/checkpoint/bench_peers.py $(BENCH_FOLDER) $(BENCH_MIB)
