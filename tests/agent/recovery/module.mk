# SPDX-License-Identifier: Apache-2.0
$(call unit_test,recovery_test,$(wildcard tests/agent/recovery/*_test.cc),agent_recovery common)

# `make chaos`: hundreds of faults at random (CHAOS="FAULTS SEED KIND..."). `make bench-recovery`: from a fault to the next step, part by part.
.PHONY: chaos bench-recovery
chaos bench-recovery: $(addprefix $(BUILD)/,mm-run mm-agentd mm-agent mm-ckpt mm-trainer spank_mm_train.so) $(BUILD)/tests/make-fixture $(BUILD)/tests/fake_clock.so
chaos:
	@BUILD=$(abspath $(BUILD)) tests/cluster/chaos $(CHAOS)
bench-recovery:
	@BUILD=$(abspath $(BUILD)) tests/cluster/bench_recovery.sh $(FAULTS)
