# SPDX-License-Identifier: Apache-2.0
$(call unit_test,recovery_test,$(wildcard tests/agent/recovery/*_test.cc),agent_recovery common)
