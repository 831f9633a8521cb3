// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/row_plan.h"

#include <algorithm>
#include <tuple>

#include "trainer/comm/comm.h"

namespace mm::model {

int64_t held_rows(int64_t rows, const GridPlace& place) {
  const int64_t mine = comm::part_of(rows, place.cp_rank, 2 * place.cp).size() +
                       comm::part_of(rows, 2 * place.cp - 1 - place.cp_rank, 2 * place.cp).size();
  return comm::part_of(mine, place.tp_rank, place.tp).size();
}

RowPlan::Runs RowPlan::runs_of(int64_t all, int cp_rank) const {
  const comm::Range low = comm::part_of(all, cp_rank, 2 * place_.cp);
  const comm::Range high = comm::part_of(all, 2 * place_.cp - 1 - cp_rank, 2 * place_.cp);
  if (low.end == high.begin) return {{Run{low.begin, high.end, 0}, Run{}}, 1};
  return {{Run{low.begin, low.end, 0}, Run{high.begin, high.end, low.size()}}, 2};
}

void RowPlan::make(const MicroBatch& batch, const GridPlace& place) {
  place_ = place;
  rows_of_.clear();
  for (int r = 0; r < place.cp; ++r) {
    int64_t rows = 0;
    for (const Run& run : runs_of(batch.rows(), r)) rows += run.end - run.begin;
    rows_of_.push_back(rows);
  }
  number_rows(batch);
  number_labels(batch);
  place_features(batch);
  find_queries(batch);
  blocks_.resize(static_cast<size_t>(place.cp));
  for (int step = 0; step < place.cp; ++step) {
    Block& block = blocks_[static_cast<size_t>(step)];
    block.cp_rank = (place.cp_rank - step + place.cp) % place.cp;
    find_segments(batch, block.cp_rank, queries_, block.all);
    find_segments(batch, block.cp_rank, label_queries_, block.labelled);
  }
}

void RowPlan::number_rows(const MicroBatch& batch) {
  packed_.clear();
  ids_.clear();
  for (const Run& run : runs_of(batch.rows(), place_.cp_rank)) {
    for (int64_t row = run.begin; row < run.end; ++row) packed_.push_back(row);
    ids_.insert(ids_.end(), batch.ids.begin() + run.begin, batch.ids.begin() + run.end);
  }
  bounds_.assign(1, 0);
  for (int t = 0; t < place_.tp; ++t) bounds_.push_back(comm::part_of(rows(), t, place_.tp).end);
}

void RowPlan::number_labels(const MicroBatch& batch) {
  label_rows_.clear();
  labels_.clear();
  for (const Run& run : runs_of(batch.rows(), place_.cp_rank)) {
    const auto first = std::lower_bound(batch.label_rows.begin(), batch.label_rows.end(), run.begin);
    for (auto at = first; at != batch.label_rows.end() && *at < run.end; ++at) {
      label_rows_.push_back(static_cast<int32_t>(run.at + *at - run.begin));
      labels_.push_back(batch.labels[static_cast<size_t>(at - batch.label_rows.begin())]);
    }
  }
  label_bounds_.clear();
  for (int64_t bound : bounds_)
    label_bounds_.push_back(std::lower_bound(label_rows_.begin(), label_rows_.end(), bound) - label_rows_.begin());
  held_label_rows_.clear();
  const auto rank = static_cast<size_t>(place_.tp_rank);
  for (int64_t i = label_bounds_[rank]; i < label_bounds_[rank + 1]; ++i)
    held_label_rows_.push_back(label_rows_[static_cast<size_t>(i)] - bounds_[rank]);
}

void RowPlan::place_features(const MicroBatch& batch) {
  features_.clear();
  feature_rows_.clear();
  const int64_t begin = bounds_[static_cast<size_t>(place_.tp_rank)], end = bounds_[static_cast<size_t>(place_.tp_rank) + 1];
  for (const Run& run : runs_of(batch.rows(), place_.cp_rank)) {
    const auto first = std::lower_bound(batch.image_rows.begin(), batch.image_rows.end(), run.begin);
    for (auto at = first; at != batch.image_rows.end() && *at < run.end; ++at) {
      const int64_t row = run.at + *at - run.begin;
      if (row < begin || row >= end) continue;
      features_.push_back(at - batch.image_rows.begin());
      feature_rows_.push_back(row - begin);
    }
  }
}

void RowPlan::find_queries(const MicroBatch& batch) {
  queries_.clear();
  label_queries_.clear();
  positions_.clear();
  label_positions_.clear();
  const std::vector<int64_t>& starts = batch.starts;
  for (const Run& run : runs_of(batch.rows(), place_.cp_rank)) {
    int64_t row = run.begin;
    while (row < run.end) {
      const int64_t sequence = std::upper_bound(starts.begin(), starts.end(), row) - starts.begin() - 1;
      const int64_t begin = starts[static_cast<size_t>(sequence)];
      const int64_t end = std::min(run.end, starts[static_cast<size_t>(sequence) + 1]);
      queries_.push_back({run.at + row - run.begin, row, end - row, sequence});
      for (; row < end; ++row) positions_.push_back(row - begin);
    }
  }
  auto of = queries_.begin();  // the queries that a row with a label is one of
  for (size_t i = 0; i < label_rows_.size(); ++i) {
    const int64_t row = label_rows_[i], packed = packed_[static_cast<size_t>(row)];
    while (row >= of->first + of->count) ++of;
    label_positions_.push_back(positions_[static_cast<size_t>(row)]);
    Queries* last = label_queries_.empty() ? nullptr : &label_queries_.back();
    if (last && last->packed + last->count == packed && last->sequence == of->sequence)
      ++last->count;
    else
      label_queries_.push_back({static_cast<int64_t>(i), packed, 1, of->sequence});
  }
}

// A query sees the keys of its sequence up to itself. Queries and keys are cut at the same rows, so that the first key of a
// segment never comes after its first query.
void RowPlan::find_segments(const MicroBatch& batch, int cp_rank, const std::vector<Queries>& queries,
                            std::vector<ops::Segment>& to) const {
  to.clear();
  for (const Queries& q : queries) {
    for (const Run& keys : runs_of(batch.rows(), cp_rank)) {
      const int64_t begin = std::max(keys.begin, batch.starts[static_cast<size_t>(q.sequence)]);
      const int64_t end = std::min(keys.end, q.packed + q.count);
      if (begin >= end) continue;
      to.push_back({.sequence = q.sequence,
                    .q_begin = q.first,
                    .q_rows = q.count,
                    .k_begin = keys.at + begin - keys.begin,
                    .k_rows = end - begin,
                    .ahead = q.packed - begin});
    }
  }
  std::sort(to.begin(), to.end(), [](const ops::Segment& a, const ops::Segment& b) {
    return std::tie(a.sequence, a.q_begin, a.k_begin) < std::tie(b.sequence, b.q_begin, b.k_begin);
  });
}

}  // namespace mm::model
