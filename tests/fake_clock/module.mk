# SPDX-License-Identifier: Apache-2.0
# A wall clock that is ahead by what a file says, for tests of clocks that jump.
$(call test_tool,fake_clock.so,tests/fake_clock/fake_clock.cc,,)
$(BUILD)/tests/fake_clock.so: LDFLAGS += -shared
