# SPDX-License-Identifier: Apache-2.0
$(call unit_test,trainer_parallel_schedule_test,tests/trainer/parallel/schedule_test.cc,trainer_parallel trainer_comm common)
