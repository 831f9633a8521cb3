# SPDX-License-Identifier: Apache-2.0
$(call unit_test,trainer_data_test,$(wildcard tests/trainer/data/*.cc),data_pack trainer_data common,jpeg png webp)
$(call unit_test,data_index_test,tests/trainer/data/support.cc $(wildcard tests/trainer/data/index/*.cc tests/trainer/data/order/*.cc),trainer_data common,jpeg png webp xxhash json)
$(call unit_test,data_tokenizer_test,tests/trainer/data/support.cc $(wildcard tests/trainer/data/tokenizer/*.cc),trainer_data common,jpeg png webp json sentencepiece)
$(call unit_test,data_read_test,tests/trainer/data/support.cc $(wildcard tests/trainer/data/read/*.cc tests/trainer/data/cache/*.cc),trainer_data common,jpeg png webp)
$(call unit_test,data_decode_test,tests/trainer/data/support.cc $(wildcard tests/trainer/data/image/*.cc tests/trainer/data/audio/*.cc),trainer_data common,jpeg png webp json flac)
