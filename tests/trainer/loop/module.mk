# SPDX-License-Identifier: Apache-2.0
$(call unit_test,trainer_loop_test,$(wildcard tests/trainer/loop/*.cc),fixture $(mm-trainer.libraries),json png)
# It starts the program itself.
$(BUILD)/tests/trainer_loop_test: | $(BUILD)/mm-trainer
