# SPDX-License-Identifier: Apache-2.0
$(call library,trainer_model,$(wildcard trainer/model/*.cc),json fmt)
