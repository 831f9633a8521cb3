# SPDX-License-Identifier: Apache-2.0
# Each folder declares its own library; mm-data is in data/. A program comes after the libraries that it links.
include $(wildcard trainer/*/module.mk)
mm-trainer.libraries := trainer_loop trainer_parallel trainer_model trainer_ops trainer_optim trainer_tensor trainer_interop trainer_data trainer_comm \
  checkpoint plan common
$(call program,mm-trainer,trainer/cli/main.cc,$(mm-trainer.libraries),cli11)
