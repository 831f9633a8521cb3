# SPDX-License-Identifier: Apache-2.0
$(call unit_test,run_test,$(wildcard tests/agent/run/*.cc),agent_run agent_recovery common,json)
