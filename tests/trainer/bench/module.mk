# SPDX-License-Identifier: Apache-2.0
# `make bench-trainer` prints numbers beside a peer's; `make check` runs none of it.
$(call test_tool,train-step,tests/trainer/bench/train_step.cc,trainer_interop trainer_optim trainer_model trainer_ops trainer_data trainer_comm trainer_tensor common,cli11 json)

.PHONY: bench-trainer
bench-trainer: $(BUILD)/tests/train-step $(BUILD)/tests/make-fixture $(BUILD)/mm-trainer
	@/usr/bin/python3 tests/trainer/bench/bench_trainer.py $(BUILD)
