# SPDX-License-Identifier: Apache-2.0
# Each folder declares its own library, and the two programs where their mains are.
include $(wildcard trainer/*/module.mk)
