# SPDX-License-Identifier: Apache-2.0
$(call library,trainer_parallel,$(wildcard trainer/parallel/*.cc),fmt)
