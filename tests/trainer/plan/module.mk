# SPDX-License-Identifier: Apache-2.0
$(call unit_test,trainer_plan_test,tests/trainer/plan/plan_test.cc,fixture $(mm-trainer.libraries),json png)

# `make bench-plan`: the time and memory that the plan's model gives against training on 1 and 2 ranks of this machine.
$(call test_tool,plan-machine,tests/trainer/plan/machine.cc,plan trainer_ops trainer_tensor trainer_comm common,cli11 json mpi)
.PHONY: bench-plan
bench-plan: $(BUILD)/tests/plan-machine $(BUILD)/tests/make-fixture $(BUILD)/mm-trainer
	@BUILD=$(BUILD) tests/trainer/plan/bench.sh
