# SPDX-License-Identifier: Apache-2.0
$(call unit_test,placement_test,$(wildcard tests/spank_plugin/placement/*_test.cc),placement common,json)
