# SPDX-License-Identifier: Apache-2.0
$(call unit_test,simulate_test,$(wildcard tests/agent/simulate/*_test.cc),agent_simulate agent_recovery checkpoint_interval common)
