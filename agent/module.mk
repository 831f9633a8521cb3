# SPDX-License-Identifier: Apache-2.0
$(call library,agent_core,$(wildcard agent/loop.cc agent/daemon/*.cc agent/local/*.cc agent/registry/*.cc agent/probes/*.cc \
  agent/peers/*.cc agent/slurm/*.cc agent/incidents/*.cc agent/http/*.cc),fmt boost json munge openssl sqlite dl)
$(call library,agent_klog,$(wildcard agent/klog/*.cc),fmt)
$(call program,mm-agentd,agent/agentd.cc,agent_core agent_klog common,cli11)
$(call program,mm-agent,$(wildcard agent/cli/*.cc),agent_klog common,fmt json cli11)
include $(wildcard agent/*/module.mk)
