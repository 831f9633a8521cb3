// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/order/deal.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

namespace mm::data {
namespace {

double work_of(const std::vector<int32_t>& part, std::span<const double> work) {
  double sum = 0;
  for (const int32_t i : part) sum += work[static_cast<size_t>(i)];
  return sum;
}

struct Load {
  double rank = 0, part = 0, all = 0;  // of the heaviest rank, of the heaviest part, and the sum
};

Load load_of(const Deal& deal, std::span<const double> work, int ranks) {
  const size_t pieces = deal.size() / static_cast<size_t>(ranks);
  Load load;
  for (size_t rank = 0; rank < static_cast<size_t>(ranks); ++rank) {
    double sum = 0;
    for (size_t piece = 0; piece < pieces; ++piece) {
      const double part = work_of(deal[rank * pieces + piece], work);
      load.part = std::max(load.part, part);
      sum += part;
    }
    load.rank = std::max(load.rank, sum);
    load.all += sum;
  }
  return load;
}

// `samples` from the heaviest on; each part gets `least` of them or more.
Deal longest_first(std::span<const int32_t> samples, std::span<const double> work, int parts, size_t least) {
  using Part = std::pair<double, size_t>;  // work so far, number
  std::priority_queue<Part, std::vector<Part>, std::greater<>> lightest;
  for (size_t i = 0; i < static_cast<size_t>(parts); ++i) lightest.emplace(0, i);
  Deal deal(static_cast<size_t>(parts));
  size_t left = samples.size(), lacking = least * deal.size();
  for (const int32_t i : samples) {
    // Once what is left is just what parts lack, those that lack nothing are passed over, for good.
    while (left == lacking && deal[lightest.top().second].size() >= least) lightest.pop();
    const auto [load, part] = lightest.top();
    lightest.pop();
    if (deal[part].size() < least) --lacking;
    --left;
    deal[part].push_back(i);
    lightest.emplace(load + work[static_cast<size_t>(i)], part);
  }
  return deal;
}

}  // namespace

Deal deal_in_order(int64_t samples, int ranks, int pieces) {
  Deal deal(static_cast<size_t>(ranks) * static_cast<size_t>(pieces));
  const int64_t share = samples / ranks, least = share / pieces, longer = share % pieces;  // the first `longer` have one more
  int32_t at = 0;
  for (int rank = 0; rank < ranks; ++rank)
    for (int piece = 0; piece < pieces; ++piece) {
      std::vector<int32_t>& part = deal[static_cast<size_t>(rank) * static_cast<size_t>(pieces) + static_cast<size_t>(piece)];
      part.resize(static_cast<size_t>(least + (piece < longer ? 1 : 0)));
      std::iota(part.begin(), part.end(), at);
      at += static_cast<int32_t>(part.size());
    }
  return deal;
}

Deal deal_by_work(std::span<const double> work, int ranks, int pieces) {
  Deal in_order = deal_in_order(static_cast<int64_t>(work.size()), ranks, pieces);
  std::vector<int32_t> by_work(work.size());
  std::iota(by_work.begin(), by_work.end(), 0);
  std::stable_sort(by_work.begin(), by_work.end(),
                   [&](int32_t a, int32_t b) { return work[static_cast<size_t>(a)] > work[static_cast<size_t>(b)]; });
  Deal deal;
  for (const std::vector<int32_t>& share : longest_first(by_work, work, ranks, static_cast<size_t>(pieces))) {
    for (std::vector<int32_t>& part : longest_first(share, work, pieces, 1)) {
      std::sort(part.begin(), part.end());
      deal.push_back(std::move(part));
    }
  }
  const Load dealt = load_of(deal, work, ranks), before = load_of(in_order, work, ranks);
  return dealt.rank <= before.rank && dealt.part <= before.part ? std::move(deal) : std::move(in_order);
}

double imbalance(const Deal& deal, std::span<const double> work, int ranks) {
  const Load load = load_of(deal, work, ranks);
  return load.all > 0 ? load.rank * ranks / load.all : 1;
}

}  // namespace mm::data
