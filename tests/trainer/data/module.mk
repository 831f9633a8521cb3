# SPDX-License-Identifier: Apache-2.0
$(call unit_test,trainer_data_test,$(wildcard tests/trainer/data/*.cc),data_pack trainer_data common,jpeg png webp)
