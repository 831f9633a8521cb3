# SPDX-License-Identifier: Apache-2.0
# A program of its own: it replaces operator new. Its harness is the model's.
$(call unit_test,trainer_allocations_test,tests/trainer/allocations/allocations_test.cc tests/trainer/model/harness.cc,fixture trainer_optim trainer_model trainer_ops trainer_tensor trainer_comm common,json)
