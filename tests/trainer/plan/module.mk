# SPDX-License-Identifier: Apache-2.0
$(call unit_test,trainer_plan_test,$(wildcard tests/trainer/plan/*.cc),fixture $(mm-trainer.libraries),json png)
