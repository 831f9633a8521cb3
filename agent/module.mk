# SPDX-License-Identifier: Apache-2.0
include $(wildcard agent/*/module.mk)
