# SPDX-License-Identifier: Apache-2.0
$(call unit_test,agent_klog_test,$(wildcard tests/agent/klog/*_test.cc),agent_klog common,fmt)
