# SPDX-License-Identifier: Apache-2.0
$(call unit_test,plan_test,$(wildcard tests/common/plan/*.cc),plan common)
