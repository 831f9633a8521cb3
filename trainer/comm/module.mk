# SPDX-License-Identifier: Apache-2.0
$(call library,trainer_comm,$(wildcard trainer/comm/*.cc),mpi fmt)
$(BUILD)/obj/trainer/comm/combine.o: CXXFLAGS += -O3 -march=$(ARCH)
