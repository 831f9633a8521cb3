# SPDX-License-Identifier: Apache-2.0
$(call unit_test,trainer_comm_test,$(wildcard tests/trainer/comm/*.cc),trainer_comm common)
