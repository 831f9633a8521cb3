# SPDX-License-Identifier: Apache-2.0
$(call library,trainer_ops,$(wildcard trainer/ops/*.cc))
# Never -ffast-math: sums are written in the order in which they are taken.
$(BUILD)/obj/trainer/ops/%.o: CXXFLAGS += -O3 -march=$(ARCH) -ffp-contract=fast -fno-math-errno -fno-trapping-math
