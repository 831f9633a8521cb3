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
	@/usr/bin/python3 tests/checkpoint/bench_peers.py $(BENCH_FOLDER) $(BENCH_MIB)

# libFuzzer with AddressSanitizer on every reader of foreign bytes; FUZZ_SECONDS of it.
FUZZ_SECONDS ?= 60
FUZZ_SOURCES := $(addprefix checkpoint/,box.cc dtype.cc hash.cc hash_avx2.cc index.cc manifest.cc io.cc) common/safetensors/header.cc \
  common/error.cc common/files.cc tests/checkpoint/fuzz/fuzz.cc
.PHONY: fuzz-checkpoint
fuzz-checkpoint:
	@mkdir -p $(BUILD)/fuzz/corpus
	@clang++ -std=c++20 -O1 -g1 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -D_GNU_SOURCE -I. $(FUZZ_SOURCES) -lfmt -lxxhash -o $(BUILD)/fuzz/checkpoint
	@$(BUILD)/fuzz/checkpoint -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -rss_limit_mb=1024 -print_final_stats=1 $(BUILD)/fuzz/corpus
