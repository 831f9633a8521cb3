# SPDX-License-Identifier: Apache-2.0
$(call unit_test,trainer_parallel_test,$(addprefix tests/trainer/parallel/,schedule_test.cc mesh_test.cc share_batch_test.cc),\
  trainer_parallel trainer_comm common)
