// SPDX-License-Identifier: Apache-2.0
// Whole tensors on rank 0 from the boxes that ranks hold of them.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "trainer/comm/comm.h"

namespace mm::loop {

template <class T>
struct GatheredTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<T> values;
};

// Collective. The boxes of all ranks cover each tensor once; tensors come in the order of names, on rank 0 alone.
template <class T>
std::vector<GatheredTensor<T>> gather_tensors(comm::Comm& world, const std::vector<checkpoint::ConstView>& mine);

extern template std::vector<GatheredTensor<float>> gather_tensors(comm::Comm&, const std::vector<checkpoint::ConstView>&);
extern template std::vector<GatheredTensor<double>> gather_tensors(comm::Comm&, const std::vector<checkpoint::ConstView>&);

}  // namespace mm::loop
