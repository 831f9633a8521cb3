# SPDX-License-Identifier: Apache-2.0
$(call unit_test,checkpoint_memory_test,tests/checkpoint/memory/memory_test.cc tests/checkpoint/support.cc,agent_core checkpoint common,)
