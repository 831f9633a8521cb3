// SPDX-License-Identifier: Apache-2.0
// `mm-trainer JOB.toml`: trains, or plans, or shows a batch.
#pragma once

#include "trainer/comm/comm.h"
#include "trainer/loop/setup.h"

namespace mm::loop {

// Collective. Returns the exit status.
int train(const TrainOptions& options, comm::Comm& comm);

}  // namespace mm::loop
