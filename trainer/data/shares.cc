// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/shares.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "trainer/data/make_sample.h"

namespace mm::data {
namespace {

constexpr size_t most_known = 16;        // batches
constexpr double bytes_of_a_token = 4;   // of a vocabulary of words; "bytes" has a token for each
constexpr int64_t first_and_last = 2;    // bos and eos

}  // namespace

Shares::Shares(const Dataset& dataset, const Order& order, SequenceRule rule, Place place, DealOptions options)
    : dataset_(dataset), order_(order), rule_(std::move(rule)), place_(place), options_(std::move(options)) {
  if (place_.ranks % group_size() != 0) throw std::invalid_argument("Shares: groups that do not divide the ranks");
}

double Shares::work_of(int64_t position) const {
  const int64_t sample = order_(position);
  int64_t images = 0, text = 0;
  for (const Part& part : dataset_.parts(sample)) {
    const std::string& name = dataset_.part_name(part);
    if (is_image_part(name))
      ++images;
    else if (name == "txt" || (name == "json" && text == 0))
      text = part.size;
  }
  if (rule_.tokenizer) text = static_cast<int64_t>(static_cast<double>(text) / bytes_of_a_token);
  int64_t positions = images * rule_.positions_per_image + text + first_and_last;
  if (rule_.max_length > 0) positions = std::min(positions, rule_.max_length);
  return options_.work(images, positions);
}

std::vector<double> Shares::work_of_group(int64_t batch, int group) const {
  const int64_t share = place_.global_batch / place_.ranks * group_size();
  std::vector<double> work(static_cast<size_t>(share));
  for (int64_t i = 0; i < share; ++i) work[static_cast<size_t>(i)] = work_of(batch * place_.global_batch + group * share + i);
  return work;
}

Deal Shares::deal(const std::vector<double>& work) const {
  return deal_by_work(work, group_size(), options_.pieces);
}

std::vector<std::vector<int64_t>> Shares::parts(int64_t batch) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto at = known_.find(batch); at != known_.end()) return at->second;
  }
  const int group = place_.rank / group_size(), rank = place_.rank % group_size();
  const int64_t share = place_.global_batch / place_.ranks * group_size();
  const Deal all = options_.work ? deal(work_of_group(batch, group)) : deal_in_order(share, group_size(), options_.pieces);
  const auto pieces = static_cast<size_t>(options_.pieces);
  std::vector<std::vector<int64_t>> parts(pieces);
  for (size_t k = 0; k < pieces; ++k)
    for (const int32_t i : all[static_cast<size_t>(rank) * pieces + k])
      parts[k].push_back(batch * place_.global_batch + group * share + i);
  const std::lock_guard lock(mutex_);
  while (known_.size() >= most_known) known_.erase(known_.begin()->first < batch ? known_.begin() : std::prev(known_.end()));
  known_[batch] = parts;
  return parts;
}

std::vector<int64_t> Shares::positions(int64_t batch) {
  std::vector<int64_t> positions;
  for (const std::vector<int64_t>& part : parts(batch)) positions.insert(positions.end(), part.begin(), part.end());
  return positions;
}

std::vector<int64_t> Shares::pieces(int64_t batch) {
  std::vector<int64_t> pieces;
  for (const std::vector<int64_t>& part : parts(batch)) pieces.push_back(static_cast<int64_t>(part.size()));
  return pieces;
}

Shares::Imbalance Shares::imbalance(int64_t first, int64_t batches) const {
  if (!options_.work || batches < 1) return {};
  Imbalance sum{0, 0};
  const Deal in_order = deal_in_order(place_.global_batch, place_.ranks, options_.pieces);
  for (int64_t batch = first; batch < first + batches; ++batch) {
    std::vector<double> work;
    Deal dealt;
    for (int group = 0; group < place_.ranks / group_size(); ++group) {
      const std::vector<double> of_group = work_of_group(batch, group);
      for (std::vector<int32_t>& part : deal(of_group)) {
        for (int32_t& i : part) i += static_cast<int32_t>(work.size());
        dealt.push_back(std::move(part));
      }
      work.insert(work.end(), of_group.begin(), of_group.end());
    }
    sum.in_order += data::imbalance(in_order, work, place_.ranks);
    sum.dealt += data::imbalance(dealt, work, place_.ranks);
  }
  return {sum.in_order / static_cast<double>(batches), sum.dealt / static_cast<double>(batches)};
}

}  // namespace mm::data
