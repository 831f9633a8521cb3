# SPDX-License-Identifier: Apache-2.0
$(call library,trainer_loop,$(wildcard trainer/loop/*.cc),json fmt xxhash)
