// SPDX-License-Identifier: Apache-2.0
// Foretells the end of a fan, a pump or a paste: a GPU that becomes hotter than its peers of the same node, at the same power, than it used to be.
//
// What is followed is the distance of a GPU's temperature from the median of the others', as a device has its own place in the air: a mean over a day
// is what is usual, and one over five minutes what is now. A drift is a difference of 8 degrees and more between them for five minutes. A GPU
// whose power differs from its peers' by a quarter, or that has fewer than two peers, is not compared. While a drift lasts the
// usual distance is not learnt from.
#pragma once

#include <map>
#include <string>

#include "agent/probes/gpu.h"

namespace mm::agent {

class TemperatureDrift {
 public:
  struct Drift {
    double degrees = 0;  // above what is usual
    double usual = 0;    // distance from the peers
  };
  // A look after `seconds`; returns the GPUs that drift.
  std::map<std::string, Drift> look(const GpuStates& gpus, double seconds);

 private:
  struct Series {
    double usual = 0, recent = 0, seen = 0, above = 0;  // the last two in seconds
  };
  std::map<std::string, Series> series_;
};

}  // namespace mm::agent
