# SPDX-License-Identifier: Apache-2.0
$(call library,checkpoint,$(wildcard checkpoint/*.cc),fmt hdf5 xxhash json)
$(call program,mm-ckpt,$(wildcard checkpoint/tool/*.cc),checkpoint common,cli11)
