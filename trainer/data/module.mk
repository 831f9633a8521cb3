# SPDX-License-Identifier: Apache-2.0
$(call library,trainer_data,$(filter-out trainer/data/mm_data.cc,$(wildcard trainer/data/*.cc)),jpeg png webp gif xxhash json fmt)
$(BUILD)/obj/trainer/data/resize.o: CXXFLAGS += -O3 -march=$(ARCH)
