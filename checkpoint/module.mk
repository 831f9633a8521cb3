# SPDX-License-Identifier: Apache-2.0
$(call library,checkpoint,$(wildcard checkpoint/*.cc),fmt hdf5 xxhash json)
