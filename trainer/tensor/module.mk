# SPDX-License-Identifier: Apache-2.0
$(call library,trainer_tensor,$(wildcard trainer/tensor/*.cc))
