# SPDX-License-Identifier: Apache-2.0
$(call library,common,$(wildcard common/*.cc common/safetensors/*.cc),fmt spdlog toml json)
$(call library,plan,$(wildcard common/plan/*.cc),fmt json)
