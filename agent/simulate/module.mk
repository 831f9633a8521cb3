# SPDX-License-Identifier: Apache-2.0
$(call library,agent_simulate,$(wildcard agent/simulate/*.cc),fmt json cli11)
