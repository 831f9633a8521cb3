// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/usable.h"

#include <fmt/format.h>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/make_sample.h"
#include "trainer/data/text/utf8.h"

namespace mm::data {
namespace {

constexpr int64_t most_in_a_row = 100;  // rejected neighbours

}  // namespace

Sample UsableSamples::make(int64_t first, const SampleTurn& turn) {
  int64_t tried = 0;
  for (int64_t sample = first; tried < most_in_a_row && (tried == 0 || sample != first); sample = order_.replacement(first, tried)) {
    if (std::optional<Sample> made = try_make(sample, turn)) return std::move(*made);
    ++tried;
  }
  const std::lock_guard lock(mutex_);
  throw data_error(
      fmt::format("data: {} samples in a row from {} cannot be used; the last reason: {}", tried, place(first), last_reason_));
}

std::optional<Sample> UsableSamples::try_make(int64_t sample, const std::optional<SampleTurn>& turn) {
  {
    const std::lock_guard lock(mutex_);
    if (rejected_.contains(sample)) return std::nullopt;
  }
  try {
    MadeSample made = make_sample(dataset_, sample, rule_, turn);
    if (made.repaired_text) {
      const std::lock_guard lock(mutex_);
      repaired_.insert(sample);
    }
    return std::move(made.sample);
  } catch (const Unusable& reason) {
    reject(sample, reason.what());
    return std::nullopt;
  }
}

void UsableSamples::reject(int64_t sample, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!rejected_.insert(sample).second) return;
  last_reason_ = fmt::format("{}: {}", place(sample), reason);
  quarantine_.add(dataset_, sample, reason);
  log::warn("data: {}; the next sample takes its place", last_reason_);
  const auto count = static_cast<int64_t>(rejected_.size());
  if (count > most_in_a_row && static_cast<double>(count) * 100 > static_cast<double>(dataset_.samples()) * max_percent_)
    throw data_error(
        fmt::format("data: {} of {} samples cannot be used; the last reason: {}", count, dataset_.samples(), last_reason_));
}

std::string UsableSamples::place(int64_t sample) const {
  return fmt::format("{}: sample {}", dataset_.shard_of(sample).path, printable(dataset_.key(sample)));
}

int64_t UsableSamples::rejected() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(rejected_.size());
}

int64_t UsableSamples::repaired() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int64_t>(repaired_.size());
}

}  // namespace mm::data
