// SPDX-License-Identifier: Apache-2.0
// What a run keeps in its checkpoints: tensors with the roles param, m and v, each rank its own part of the flat block, and the
// facts that a restart must agree with.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "trainer/comm/comm.h"
#include "trainer/loop/setup.h"
#include "trainer/optim/adamw.h"

namespace mm::loop {

class CommGroup : public checkpoint::Group {
 public:
  explicit CommGroup(comm::Comm& comm) : comm_(comm) {}
  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }
  std::vector<std::string> all_gather(const std::string& mine) override { return comm_.all_gather(mine); }

 private:
  comm::Comm& comm_;
};

template <class T>
constexpr checkpoint::DType dtype_of = sizeof(T) == 8 ? checkpoint::DType::float64 : checkpoint::DType::float32;

// Views of elements `range` of the flat block, whose first element is at `data`; View or ConstView.
template <class ViewType, class T>
std::vector<ViewType> views_of_range(const std::vector<model::ParamSpec>& specs, comm::Range range, const std::string& role,
                                     T* data) {
  std::vector<ViewType> views;
  int64_t offset = 0;
  for (const model::ParamSpec& spec : specs) {
    const int64_t begin = std::max(range.begin, offset), end = std::min(range.end, offset + spec.size());
    int64_t at = begin;
    if (begin < end)
      for (const checkpoint::Box& box : checkpoint::boxes_of_range(spec.shape, begin - offset, end - offset)) {
        views.push_back({spec.name, role, dtype_of<T>, spec.shape, box, data + (at - range.begin)});
        at += checkpoint::elements(box.shape);
      }
    offset += spec.size();
  }
  return views;
}

// `stream` is the fingerprint of the data that is read.
checkpoint::Facts facts_of(const Setup& setup, const std::string& stream, int64_t step);
// Throws a usage Error where a run cannot be continued from these facts: another model or dtype, or, unless
// `allow_data_change`, other data. The message names what differs.
void check_facts(const checkpoint::Facts& facts, const Setup& setup, const std::string& stream, bool allow_data_change);

}  // namespace mm::loop
