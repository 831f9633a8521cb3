# SPDX-License-Identifier: Apache-2.0
$(call unit_test,trainer_comm_test,$(filter-out %/bench_comm.cc,$(wildcard tests/trainer/comm/*.cc)),trainer_comm trainer_tensor common)
$(call test_tool,bench-comm,tests/trainer/comm/bench_comm.cc,trainer_comm trainer_tensor common,mpi)
$(BUILD)/obj/tests/trainer/comm/bench_comm.o: CXXFLAGS += -O3 -march=$(ARCH)

.PHONY: bench-comm
bench-comm: $(BUILD)/tests/bench-comm
	@mpirun -n 2 --oversubscribe --allow-run-as-root $<
