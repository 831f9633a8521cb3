# SPDX-License-Identifier: Apache-2.0
$(call unit_test,spank_plugin_test,$(wildcard tests/spank_plugin/*_test.cc),spank_logic placement plan common)
