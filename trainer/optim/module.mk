# SPDX-License-Identifier: Apache-2.0
$(call library,trainer_optim,$(wildcard trainer/optim/*.cc),fmt)
$(BUILD)/obj/trainer/optim/%.o: CXXFLAGS += -O3 -march=$(ARCH) -fno-math-errno
