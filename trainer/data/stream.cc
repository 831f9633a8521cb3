// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/stream.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>

#include "common/error.h"
#include "trainer/data/dataset.h"
#include "trainer/data/make_sample.h"
#include "trainer/data/order/order.h"
#include "trainer/data/read/memory_budget.h"
#include "trainer/data/read/read_ahead.h"
#include "trainer/data/text/sequence.h"
#include "trainer/data/usable.h"

namespace mm::data {
namespace {

int thread_count(int asked) {
  if (asked > 0) return asked;
  cpu_set_t set;
  CPU_ZERO(&set);
  const int cpus = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  return cpus >= 4 ? 2 : 1;
}

void check(const StreamOptions& o) {
  if (o.ranks < 1 || o.rank < 0 || o.rank >= o.ranks) throw usage_error(fmt::format("data: rank {} of {}", o.rank, o.ranks));
  if (o.global_batch < 1 || o.global_batch % o.ranks != 0)
    throw usage_error(fmt::format("data: a global batch of {} does not divide among {} ranks", o.global_batch, o.ranks));
  check_rule(o.rule);
}

// The parts of a sample that training reads.
std::vector<Range> ranges_of(const Dataset& dataset, int64_t sample) {
  std::vector<Range> ranges;
  const uint32_t shard = dataset.shard_id_of(sample);
  for (const Part& part : dataset.parts(sample)) {
    const std::string& name = dataset.part_name(part);
    const bool image = is_image_part(name);
    if ((image || name == "txt" || name == "json") && part.size <= (image ? largest_image_file : largest_text))
      ranges.push_back({shard, part.offset, part.size});
  }
  return ranges;
}

}  // namespace

struct Stream::State {
  explicit State(StreamOptions o)
      : options((check(o), std::move(o))),
        dataset(DatasetOptions{options.shards, options.mix, options.index, options.version}),
        order(dataset.sources(), options.shuffle, options.seed, options.shuffle_window),
        cache(open_cache()),
        read_ahead(std::make_shared<ReadAhead>(cache ? cache : dataset.source())),
        usable(dataset, order, options.rule, options.bad),
        shares(dataset, order, options.rule, {options.global_batch, options.rank, options.ranks}, options.deal),
        pipeline(size(), work()) {}

  PipelineSize size() const {
    PipelineSize size;
    size.rank = options.rank;
    size.threads = thread_count(options.threads);
    size.budget = options.budget > 0 ? options.budget : loader_budget(available_memory(), options.node_ranks);
    return size;
  }

  std::shared_ptr<BlockCache> open_cache() const {
    if (!options.cache.on()) return {};
    const int around = options.rank / options.node_ranks * options.node_ranks;  // ranks of a node follow each other
    const NodeShare share{options.global_batch, options.ranks, around, std::min(options.node_ranks, options.ranks - around)};
    return std::make_shared<BlockCache>(std::make_shared<const BlockUse>(dataset, order, share), options.cache, dataset.source());
  }

  PipelineWork work() {
    dataset.set_source(read_ahead);
    PipelineWork work;
    work.positions = [this](int64_t batch) { return shares.positions(batch); };
    work.plan = [this](int64_t position) {
      PlannedSample planned{position, order(position), 0, 0};
      for (const Range& range : ranges_of(dataset, planned.sample)) planned.stored_bytes += range.size;
      planned.made_bytes = estimated_bytes(dataset, planned.sample, options.rule);
      return planned;
    };
    work.read = [this](std::span<const PlannedSample> planned) {
      if (cache && !planned.empty()) cache->at(planned.front().position);
      std::vector<std::vector<Range>> ranges;
      for (const PlannedSample& p : planned) ranges.push_back(ranges_of(dataset, p.sample));
      return read_ahead->fetch(ranges);  // which throws nothing, as plan has had the same samples
    };
    work.make = [this](const PlannedSample& p) { return usable.make(p.sample, SampleTurn{options.seed, p.position}); };
    work.name = [this](const PlannedSample& p) { return usable.place(p.sample); };
    return work;
  }

  const StreamOptions options;
  Dataset dataset;
  const Order order;
  const std::shared_ptr<BlockCache> cache;  // none: the files are read
  const std::shared_ptr<ReadAhead> read_ahead;
  UsableSamples usable;
  Shares shares;
  Pipeline pipeline;  // last: its threads use the others
};

Stream::Stream(StreamOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Stream::~Stream() = default;

int64_t Stream::samples() const {
  return state_->dataset.samples();
}
std::string Stream::fingerprint() const {
  return state_->dataset.fingerprint();
}
std::vector<Sample> Stream::next(int64_t batch) {
  return state_->pipeline.next(batch);
}
std::vector<int64_t> Stream::pieces(int64_t batch) {
  return state_->shares.pieces(batch);
}
Shares::Imbalance Stream::imbalance(int64_t first, int64_t batches) const {
  return state_->shares.imbalance(first, batches);
}
void Stream::shrink(int level) {
  state_->pipeline.shrink(level);
}

std::vector<Stream::Item> Stream::at(int64_t first, int64_t count) {
  std::vector<Item> items;
  for (int64_t i = first; i < std::min(first + count, samples()); ++i) {
    std::optional<Sample> sample = state_->usable.try_make(i);
    Item item;
    item.usable = sample.has_value();
    if (sample)
      item.sample = std::move(*sample);
    else
      item.sample.key = state_->dataset.key(i);
    items.push_back(std::move(item));
  }
  return items;
}

StreamCounters Stream::counters() const {
  StreamCounters counters;
  counters.rejected = state_->usable.rejected();
  counters.invalid_utf8 = state_->usable.repaired();
  counters.stages = state_->pipeline.counters();
  counters.wait_seconds = counters.stages.batch_wait;
  if (state_->cache) counters.cache = state_->cache->counters();
  return counters;
}

}  // namespace mm::data
