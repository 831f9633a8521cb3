# SPDX-License-Identifier: Apache-2.0
$(call library,common,$(wildcard common/*.cc),fmt spdlog toml)
$(call library,plan,$(wildcard common/plan/*.cc),fmt json)
