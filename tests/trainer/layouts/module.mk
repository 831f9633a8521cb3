# SPDX-License-Identifier: Apache-2.0
$(call unit_test,trainer_layouts_test,$(wildcard tests/trainer/layouts/*.cc),fixture $(filter-out common,$(mm-trainer.libraries)) common,json fmt)
