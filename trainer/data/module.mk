# SPDX-License-Identifier: Apache-2.0
trainer_data.other := trainer/data/mm_data.cc trainer/data/pack/% trainer/data/verbs/%
$(call library,trainer_data,$(filter-out $(trainer_data.other),$(wildcard trainer/data/*.cc trainer/data/*/*.cc)),jpeg png webp gif zimg flac pcre2 utf8proc sentencepiece uring sodium xxhash json fmt)
$(BUILD)/obj/trainer/data/image/resize.o: CXXFLAGS += -O3 -march=$(ARCH)
$(call library,data_pack,$(wildcard trainer/data/pack/*.cc),png xxhash fmt)
$(call program,mm-data,trainer/data/mm_data.cc $(wildcard trainer/data/verbs/*.cc),data_pack trainer_data common,cli11 fmt spdlog)
