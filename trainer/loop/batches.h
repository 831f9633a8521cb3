// SPDX-License-Identifier: Apache-2.0
// The micro-batches of a step on every rank of a replica. One rank of it, the reader, reads and decodes; the others are handed
// what they need: tokens all of them, pixels those on which the vision tower runs. Where these are apart they have the pictures of
// every replica: micro-batch b of replica d is their number b * dp + d.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/plan/model.h"
#include "trainer/data/stream.h"
#include "trainer/loop/setup.h"
#include "trainer/model/micro_batch.h"
#include "trainer/parallel/mesh.h"

namespace mm::loop {

class Batches {
 public:
  // Collective over all ranks: the readers open and index the data. Errors are agreed on (loop/agree.h).
  Batches(const Setup& setup, parallel::Mesh& mesh);
  // On the reader: reads and packs the share of a step. Makes no collective call.
  void read(int64_t step);
  // Of the share that was read, 0 on ranks that do not read.
  struct Share {
    int64_t tokens = 0;  // what the loss is divided by: trained labels, or pairs
    int64_t images = 0, rejected = 0;
    double flops = 0;  // of forward and backward, as MFU counts them
  };
  const Share& share() const { return share_; }
  // Of the stream, 0 on ranks that do not read: waits since the last read, all else as it is.
  const data::StreamCounters& loader() const { return loader_; }
  // Collective over the replica, and the ranks of an encoder: gives every rank the micro-batches, ceil(share / micro_batch) of
  // them, the same number in every replica. Once for each read.
  void hand_out();
  std::span<const model::MicroBatch> micro_batches() const { return batches_; }

  // The node is short of memory or CPUs: data::Stream::shrink.
  void shrink(int level) {
    if (stream_) stream_->shrink(level);
  }

  int64_t samples() const { return samples_; }  // of the data set
  const std::string& fingerprint() const { return fingerprint_; }

 private:
  data::DealOptions deal_options() const;
  void tell_imbalance() const;

  const Setup& setup_;
  parallel::Mesh& mesh_;
  std::optional<data::Stream> stream_;  // on the reader
  Share share_;
  data::StreamCounters loader_;
  double read_wait_ = 0, decode_wait_ = 0;  // up to the last read
  std::vector<model::MicroBatch> batches_;
  const plan::Model work_;
  int pieces_ = 1;  // of a rank's share
  int64_t samples_ = 0;
  std::string fingerprint_;
};

}  // namespace mm::loop
