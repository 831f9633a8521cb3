# SPDX-License-Identifier: Apache-2.0
$(call library,trainer_ops,$(wildcard trainer/ops/*.cc),openblas)
# Never -ffast-math: sums are written in the order in which they are taken.
$(BUILD)/obj/trainer/ops/%.o: CXXFLAGS += -O3 -march=$(ARCH) -fno-math-errno -fno-trapping-math
