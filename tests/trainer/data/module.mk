# SPDX-License-Identifier: Apache-2.0
$(call unit_test,trainer_data_test,$(wildcard tests/trainer/data/*.cc),data_pack trainer_data common,jpeg png webp)
$(call unit_test,data_index_test,tests/trainer/data/support.cc $(wildcard tests/trainer/data/index/*.cc tests/trainer/data/order/*.cc),trainer_data common,jpeg png webp xxhash json)
$(call unit_test,data_tokenizer_test,tests/trainer/data/support.cc $(wildcard tests/trainer/data/tokenizer/*.cc),trainer_data common,jpeg png webp json sentencepiece)
$(call unit_test,data_read_test,tests/trainer/data/support.cc $(wildcard tests/trainer/data/read/*.cc tests/trainer/data/cache/*.cc),trainer_data common,jpeg png webp)
$(call unit_test,data_decode_test,tests/trainer/data/support.cc $(wildcard tests/trainer/data/image/*.cc tests/trainer/data/audio/*.cc tests/trainer/data/pack/*.cc),data_pack trainer_data common,jpeg png webp json flac)

# `make bench-data`: parts of the data pipeline beside peers and limits.
$(call test_tool,bench-data-index,tests/trainer/data/bench/bench_index.cc tests/trainer/data/support.cc,trainer_data common,gtest jpeg png webp)
.PHONY: bench-data bench-data-index
bench-data: bench-data-index
bench-data-index: $(BUILD)/tests/bench-data-index
	@$<
$(call test_tool,bench-data-decode,tests/trainer/data/bench/bench_decode.cc tests/trainer/data/support.cc,trainer_data common,gtest jpeg png webp)
.PHONY: bench-data-decode
bench-data: bench-data-decode
bench-data-decode: $(BUILD)/tests/bench-data-decode
	@$<
$(call test_tool,bench-data-read,tests/trainer/data/bench/bench_read.cc tests/trainer/data/support.cc,trainer_data common,gtest jpeg png webp)
.PHONY: bench-data-read
bench-data: bench-data-read
bench-data-read: $(BUILD)/tests/bench-data-read
	@$<
.PHONY: bench-data-step
bench-data: bench-data-step
bench-data-step: $(BUILD)/tests/make-fixture $(BUILD)/mm-trainer
	@BUILD=$(BUILD) tests/trainer/data/bench/bench_step.sh
