// SPDX-License-Identifier: Apache-2.0
// The training loop of a rank. A step, in collectives of all ranks:
//
//   1. all_reduce   counts: trained labels and pictures of the global batch; whether a rank was asked to stop, wants a
//                   checkpoint by the clock, or has met an error (then all end together). What must happen at a step boundary
//                   happens here, on all ranks.
//   2. the reader of each replica hands its share to the replica's ranks, cut into micro-batches
//   3. forward and backward of the micro-batches, in the order of the pipeline's schedule; losses are divided by the labels of
//      the global batch. Gradients are summed over their holders as they become ready.
//   4. all_reduce   loss, squares of the gradients
//   5. each owner updates its part of the parameters, and the holders gather them (optim/sharded.h)
//
// All ranks of a group make the same calls in the same order, whatever their data.
#pragma once

#include "checkpoint/checkpoint.h"
#include "trainer/comm/comm.h"
#include "trainer/loop/batches.h"
#include "trainer/loop/metrics.h"
#include "trainer/loop/passes.h"
#include "trainer/loop/progress.h"
#include "trainer/loop/save_schedule.h"
#include "trainer/loop/setup.h"
#include "trainer/loop/tensorboard.h"
#include "trainer/loop/time_left.h"
#include "trainer/optim/sharded.h"
#include "trainer/parallel/mesh.h"

namespace mm::loop {

template <class T>
class Trainer {
 public:
  // Collective, as are the others: opens the data and loads the newest checkpoint, or else the model.
  Trainer(const Setup& setup, const TrainOptions& options, comm::Comm& world);
  ~Trainer();
  // Trains to the end. Returns the exit status; throws AgreedError where all ranks end with an error, Error where peers are
  // lost.
  int run();
  // Writes the gradients of the next step to a safetensors file.
  void dump_gradients(const std::string& path);

 private:
  // What this rank has of the model. Making it, which may fail, says nothing to other ranks.
  struct Part {
    Part(const Setup& setup, parallel::Mesh& mesh);
    tensor::ThreadPool pool;
    model::ParamStore<T> params;
    std::unique_ptr<comm::Shared> shared_values, shared_gradients;  // ranks of a node read them in place
    optim::Sharded<T> sharded;
    std::unique_ptr<Passes<T>> passes;
  };
  struct Counts {
    double tokens = 0, images = 0, stop = 0, time_up = 0, save = 0, failed = 0, rejected = 0, flops = 0;
  };
  struct Sums {
    double loss = 0, squares = 0;
    bool finite() const;
  };
  void load_state();
  Counts count(const std::string& failure);
  Sums accumulate(const Counts& counts);
  std::string bad_numbers(int64_t step, const Counts& counts);
  StepMetrics train_step(int64_t step, const Counts& counts);
  void report(const StepMetrics& metrics);
  void obey_agent();
  void warn(const std::string& message);
  std::vector<checkpoint::ConstView> views();
  void begin_save(int64_t done);
  void learn(const std::vector<checkpoint::SaveResult>& results);
  void last_save(int64_t done);
  void save_beside(int64_t done);

  const Setup& setup_;
  const TrainOptions& options_;
  comm::Comm& world_;
  AgentReporter agent_;
  parallel::Mesh mesh_;
  Batches batches_;
  std::unique_ptr<Part> part_;
  checkpoint::RunFolder folder_;
  std::optional<checkpoint::Saver> saver_;
  int64_t first_step_ = 0, begun_step_ = 0, saved_step_ = 0;
  std::optional<SaveSchedule> schedule_;
  double save_seconds_ = 0;
  double peak_ = 0;  // operations a second that all ranks' threads could do
  std::chrono::milliseconds step_deadline_ = std::chrono::minutes(5);  // how late a peer may be in a step; the first one's
  int64_t failed_saves_ = 0, skipped_steps_ = 0;
  std::optional<MetricsFile> metrics_;  // on rank 0
  std::optional<Console> console_;
  bool metrics_behind_ = false;
  std::optional<EventFile> events_;  // of rank 0, unless switched off or the disk took no more
  bool agent_asks_to_save_ = false;
  std::optional<TimeLeft> time_left_;
};

extern template class Trainer<float>;
extern template class Trainer<double>;

}  // namespace mm::loop
