// SPDX-License-Identifier: Apache-2.0
// The training loop of a rank. A step, in collectives:
//
//   1. all_reduce   counts: trained labels and pictures of the global batch; whether a rank was asked to stop, wants a
//   checkpoint by the
//                   clock, or has met an error (then all end together). What must happen at a step boundary happens here, on
//                   all ranks.
//   2. forward and backward of the rank's share, in micro-batches; the loss is divided by the labels of the global batch.
//   3. reduce_scatter of the gradients: each rank holds the sum of its part of the flat block
//   4. all_reduce   loss, squares of the gradients
//   5. zero = 1: each rank updates its part, all_gather of the parameters; zero = 0: all_gather of the gradients, each updates
//   everything
//
// All ranks make the same calls in the same order, whatever their data.
#pragma once

#include "checkpoint/checkpoint.h"
#include "trainer/comm/comm.h"
#include "trainer/data/stream.h"
#include "trainer/loop/metrics.h"
#include "trainer/loop/progress.h"
#include "trainer/loop/setup.h"
#include "trainer/model/vlm.h"
#include "trainer/optim/adamw.h"

namespace mm::loop {

template <class T>
class Trainer {
 public:
  // Collective, as are the others: opens the data and loads the newest checkpoint, or else the model.
  Trainer(const Setup& setup, const TrainOptions& options, comm::Comm& comm);
  ~Trainer();
  // Trains to the end. Returns the exit status; throws AgreedError where all ranks end with an error, Error where peers are
  // lost.
  int run();
  // Writes the gradients of the next step to a safetensors file.
  void dump_gradients(const std::string& path);

 private:
  struct Counts {
    double tokens = 0, images = 0, stop = 0, save = 0, failed = 0, rejected = 0;
  };
  void load_state();
  Counts count(const std::vector<data::Sample>& share, const std::string& failure);
  std::vector<data::Sample> next_share(int64_t step, std::string& failure);
  double accumulate(const std::vector<data::Sample>& share, double tokens);
  void reduce_gradients();
  void check_finite(int64_t step, const std::vector<data::Sample>& share, const Counts& counts, double loss, double squares);
  void update(int64_t step, double lr, double norm);
  StepMetrics train_step(int64_t step, const std::vector<data::Sample>& share, const Counts& counts);
  void report(const StepMetrics& metrics);
  void warn(const std::string& message);
  bool save_due(int64_t done) const;
  bool save_due_by_clock() const;
  void save(int64_t done);

  const Setup& setup_;
  const TrainOptions& options_;
  comm::Comm& comm_;
  AgentReporter agent_;
  tensor::ThreadPool pool_;
  data::Stream stream_;
  model::ParamStore<T> params_;
  model::Vlm<T> model_;
  const comm::Range part_;  // of the flat block: what this rank reduces and saves
  optim::AdamW<T> optimizer_;
  const std::vector<optim::Tile> tiles_;  // trained elements of part_
  checkpoint::RunFolder folder_;
  int64_t first_step_ = 0, saved_step_ = 0;
  std::chrono::steady_clock::time_point saved_at_ = std::chrono::steady_clock::now();
  double save_seconds_ = 0;
  std::chrono::milliseconds step_deadline_ = std::chrono::minutes(5);  // how late a peer may be in a step; the first one's
  int64_t failed_saves_ = 0;
  std::optional<MetricsFile> metrics_;  // on rank 0
  std::optional<Console> console_;
  bool metrics_behind_ = false;
};

extern template class Trainer<float>;
extern template class Trainer<double>;

}  // namespace mm::loop
