# SPDX-License-Identifier: Apache-2.0
# libnvidia-ml.so.1 with devices that a file scripts, for tests through the same ABI.
$(call test_tool,libnvidia-ml.so.1,tests/fake_nvml/fake_nvml.cc,,)
$(BUILD)/tests/libnvidia-ml.so.1: LDFLAGS += -shared
