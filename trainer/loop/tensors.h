// SPDX-License-Identifier: Apache-2.0
// A rank's parts of parameters as boxes of the whole tensors, as checkpoints know them.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "trainer/comm/comm.h"
#include "trainer/model/param.h"

namespace mm::loop {

template <class T>
constexpr checkpoint::DType dtype_of = sizeof(T) == 8 ? checkpoint::DType::float64 : checkpoint::DType::float32;

// Adds views of elements `part` of a run, whose first lies at `data`; View or ConstView.
template <class ViewType, class T, class Data>
void add_views(const model::ParamStore<T>& store, const model::Run& run, comm::Range part, const std::string& role, Data* data,
               std::vector<ViewType>& views) {
  for (size_t i : run.params) {
    const model::ParamSpec& spec = store.specs()[i];
    const model::LocalParam& local = store.local()[i];
    const int64_t first = local.value_at - run.value_at;
    const int64_t begin = std::max(part.begin, first), end = std::min(part.end, first + local.size);
    if (begin >= end) continue;
    int64_t at = begin;
    for (checkpoint::Box box : checkpoint::boxes_of_range(local.shape, begin - first, end - first)) {
      for (size_t d = 0; d < box.offset.size(); ++d) box.offset[d] += local.offset[d];
      const int64_t elements = checkpoint::elements(box.shape);
      ViewType view{spec.name, role, dtype_of<T>, spec.shape, std::move(box), data + (at - part.begin)};
      if constexpr (requires { view.cut_axis; }) view.cut_axis = spec.cut.axis;
      views.push_back(std::move(view));
      at += elements;
    }
  }
}

}  // namespace mm::loop
