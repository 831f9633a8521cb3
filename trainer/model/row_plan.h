// SPDX-License-Identifier: Apache-2.0
// Which rows of a micro-batch a rank works on.
//
// The rows of the packed run are cut into 2 cp chunks by part_of; context-parallel rank c has chunks c and 2 cp - 1 - c, so
// that each has as much of the causal work as the others. These are its rows, numbered from 0 in packed order; of them
// tensor-parallel rank t holds the activations between layers of part_of(rows, t, tp). In the last layer only rows with a label
// are left: they too are numbered from 0, and stay with the tensor-parallel rank that holds their row.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "trainer/model/micro_batch.h"
#include "trainer/ops/attention.h"

namespace mm::model {

// Where a rank stands in the grid of tensor and context parallelism.
struct GridPlace {
  int tp = 1, tp_rank = 0, cp = 1, cp_rank = 0;
};

// How many of a packed run's rows the rank holds between layers.
int64_t held_rows(int64_t rows, const GridPlace& place);

class RowPlan {
 public:
  void make(const MicroBatch& batch, const GridPlace& place);  // memory is used again

  int64_t rows() const { return static_cast<int64_t>(packed_.size()); }
  int64_t rows_of(int cp_rank) const { return rows_of_[static_cast<size_t>(cp_rank)]; }
  std::span<const int64_t> packed() const { return packed_; }                    // of each row, its packed row
  std::span<const int64_t> positions() const { return positions_; }              // of each row, its position in its sequence
  std::span<const int64_t> bounds() const { return bounds_; }                    // [tp + 1], of the rows
  std::span<const int32_t> ids() const { return ids_; }                          // of each row; -1 where image features stand
  std::span<const int32_t> label_rows() const { return label_rows_; }            // the rows with a label, ascending
  std::span<const int64_t> held_label_rows() const { return held_label_rows_; }  // those held, numbered from the first held row
  std::span<const int64_t> label_positions() const { return label_positions_; }
  std::span<const int64_t> label_bounds() const { return label_bounds_; }  // [tp + 1], of these
  std::span<const int32_t> labels() const { return labels_; }
  // Image features that go to rows which this tensor-parallel rank holds: feature feature(i) to held row feature_row(i).
  std::span<const int64_t> features() const { return features_; }
  std::span<const int64_t> feature_rows() const { return feature_rows_; }
  // Causal attention of this rank's queries (all rows, or those with a label) to the keys of rank `cp_rank`.
  struct Block {
    int cp_rank = 0;
    std::vector<ops::Segment> all, labelled;
  };
  std::span<const Block> blocks() const { return blocks_; }  // in the order in which keys come round; own ones first

 private:
  // Packed rows of one or two chunks.
  struct Run {
    int64_t begin = 0, end = 0;
    int64_t at = 0;  // number of the first on its rank
  };
  struct Runs {
    std::array<Run, 2> run;
    int count = 0;
    const Run* begin() const { return run.data(); }
    const Run* end() const { return run.data() + count; }
  };
  // Query rows of one sequence, consecutive in the packed run.
  struct Queries {
    int64_t first, packed, count, sequence;
  };
  Runs runs_of(int64_t all, int cp_rank) const;
  void number_rows(const MicroBatch& batch);
  void number_labels(const MicroBatch& batch);
  void place_features(const MicroBatch& batch);
  void find_queries(const MicroBatch& batch);
  void find_segments(const MicroBatch& batch, int cp_rank, const std::vector<Queries>& queries,
                     std::vector<ops::Segment>& to) const;

  GridPlace place_;
  std::vector<int64_t> rows_of_, packed_, positions_, bounds_, held_label_rows_, label_positions_, label_bounds_, features_,
      feature_rows_;
  std::vector<int32_t> ids_, label_rows_, labels_;
  std::vector<Queries> queries_, label_queries_;
  std::vector<Block> blocks_;
};

}  // namespace mm::model
