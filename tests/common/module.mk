# SPDX-License-Identifier: Apache-2.0
$(call unit_test,common_test,$(wildcard tests/common/*_test.cc),common)
