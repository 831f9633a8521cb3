# SPDX-License-Identifier: Apache-2.0
$(call library,agent_core,$(wildcard agent/loop.cc agent/daemon/*.cc agent/local/*.cc agent/registry/*.cc agent/probes/*.cc \
  agent/peers/*.cc agent/slurm/*.cc agent/incidents/*.cc),fmt boost json munge)
$(call program,mm-agentd,agent/agentd.cc,agent_core common,cli11)
$(call program,mm-agent,agent/cli/main.cc,common,fmt json cli11)
include $(wildcard agent/*/module.mk)
