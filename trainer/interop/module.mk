# SPDX-License-Identifier: Apache-2.0
$(call library,trainer_interop,$(wildcard trainer/interop/*.cc),json fmt)
