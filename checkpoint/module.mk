# SPDX-License-Identifier: Apache-2.0
$(call library,checkpoint,$(wildcard checkpoint/*.cc),fmt hdf5 xxhash blosc json)
# Pure, and wanted where HDF5 is not.
$(call library,checkpoint_interval,checkpoint/interval.cc,)
$(BUILD)/obj/checkpoint/hash_avx2.o: CXXFLAGS += $(if $(filter x86_64,$(shell uname -m)),-mavx2)
$(call program,mm-ckpt,$(wildcard checkpoint/tool/*.cc),checkpoint common,cli11)
