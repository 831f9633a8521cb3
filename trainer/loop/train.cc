// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/train.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "common/log.h"
#include "trainer/loop/agree.h"
#include "trainer/loop/labels.h"
#include "trainer/loop/plan.h"
#include "trainer/loop/stop.h"
#include "trainer/loop/trainer.h"

namespace mm::loop {
namespace {

using namespace std::chrono_literals;

void show_plan(const TrainOptions& options, comm::Comm& comm) {
  agree(comm, [&] {
    if (comm.rank() != 0) return;
    const PlanReport report = make_report(options, options.plan_ranks > 0 ? options.plan_ranks : comm.size());
    std::fputs((options.json ? plan_json(report) : plan_text(report)).c_str(), stdout);
    if (!report.fits()) throw usage_error(refusal(report));
  });
}

// What this replica would train on first, from its reader.
void show_batch(const Setup& setup, comm::Comm& comm) {
  std::string text;
  agree(comm, [&] {
    if (setup.encodes || setup.at.tp + setup.at.cp + setup.at.pp > 0) return;
    data::Stream stream(stream_options(setup));
    for (const data::Sample& s : stream.next(0)) {
      text += fmt::format("rank {}  {}  {} positions, {} trained, {} pictures", comm.rank(), s.key, s.ids.size(),
                          trained_labels({&s, 1}), s.images.size());
      if (!s.images.empty()) text += fmt::format(" of {} x {}", s.images[0].width, s.images[0].height);
      text += "\n";
    }
    if (comm.rank() != 0) return;
    text = fmt::format("{} samples in the data set\n", stream.samples()) + text;
    if (const int encoders = setup.encoder.world_size(); encoders > 0)
      text = fmt::format("ranks {} to {} are the encoder's: tp {} x dp {}\n", comm.size() - encoders, comm.size() - 1, setup.encoder.tp,
                         setup.encoder.dp) + text;
  });
  const std::vector<std::string> all = comm.all_gather(text);
  if (comm.rank() == 0)
    for (const std::string& t : all) std::fputs(t.c_str(), stdout);
}

template <class T>
int train_as(const Setup& setup, const TrainOptions& options, comm::Comm& comm) {
  agree(comm, [&] {
    if (comm.rank() == 0) checkpoint::RunFolder(setup.job.run.dir, true);
  });
  Trainer<T> trainer(setup, options, comm);
  if (options.dump_gradients.empty()) return trainer.run();
  trainer.dump_gradients(options.dump_gradients);
  return exit_status::ok;
}

}  // namespace

int train(const TrainOptions& options, comm::Comm& comm) {
  comm.set_phase("start", 10min);
  if (options.plan) {
    show_plan(options, comm);
    return exit_status::ok;
  }
  std::optional<Setup> setup;
  agree(comm, [&] { setup = prepare(options, comm.rank(), comm.size()); });
  if (options.dry_run) {
    show_batch(*setup, comm);
    return exit_status::ok;
  }
  watch_for_stop();
  return setup->job.parallel.dtype == "float64" ? train_as<double>(*setup, options, comm)
                                                : train_as<float>(*setup, options, comm);
}

}  // namespace mm::loop
