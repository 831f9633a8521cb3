# SPDX-License-Identifier: Apache-2.0
$(call library,agent_run,$(filter-out agent/run/main.cc,$(wildcard agent/run/*.cc)),fmt json)
$(call program,mm-run,agent/run/main.cc,agent_run agent_simulate agent_recovery checkpoint_interval common,cli11)
