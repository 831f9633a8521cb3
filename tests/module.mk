# SPDX-License-Identifier: Apache-2.0
# Tests mirror the tree: each folder's module.mk declares its own.
include $(wildcard tests/*/module.mk)
