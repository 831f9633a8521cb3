# SPDX-License-Identifier: Apache-2.0
# Tests mirror the tree: each folder declares its own.
include $(wildcard tests/*/module.mk tests/*/*/module.mk)
