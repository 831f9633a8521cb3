# SPDX-License-Identifier: Apache-2.0
$(call library,agent_recovery,$(wildcard agent/recovery/*.cc),fmt)
