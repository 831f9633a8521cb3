// SPDX-License-Identifier: Apache-2.0
// The collectives, once for every transport. All are direct: each rank exchanges with every other one, so that a rank that is
// late is seen, and named, by all of them, and never hides behind a neighbour that waits for it.
//
// Large vectors go in rounds. In round k every rank sends, to each peer, elements [k C, (k + 1) C) of the part that concerns
// the peer; C bounds the memory for what is received and has no influence on results.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "common/error.h"
#include "common/site.h"
#include "trainer/comm/transport.h"

namespace mm::comm {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t round_bytes = 64 << 20;   // received in a round, from all peers together
constexpr size_t message_bytes = 4 << 20;  // of one message, at most
constexpr int64_t block = 4096;            // elements that are summed at a time, so that they stay in the cache

class Collectives : public Comm {
 public:
  explicit Collectives(std::unique_ptr<Transport> transport)
      : transport_(std::move(transport)),
        rank_(transport_->rank()),
        size_(transport_->size()),
        nodes_(static_cast<size_t>(size_), "?") {
    nodes_ = all_gather(this_node());
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const std::string& node(int of_rank) const override { return nodes_.at(static_cast<size_t>(of_rank)); }

  void reduce_scatter(double* data, int64_t n) override { reduce_scatter_of(data, n); }
  void reduce_scatter(float* data, int64_t n) override { reduce_scatter_of(data, n); }
  void all_gather_parts(double* data, int64_t n) override { all_gather_parts_of(data, n); }
  void all_gather_parts(float* data, int64_t n) override { all_gather_parts_of(data, n); }

  std::vector<double> all_reduce(const std::vector<double>& mine) override {
    const std::vector<double> all = all_gather_equal("all_reduce", mine);
    std::vector<double> sum(all.begin(), all.begin() + static_cast<ptrdiff_t>(mine.size()));
    for (size_t r = 1; r < static_cast<size_t>(size_); ++r)
      for (size_t i = 0; i < mine.size(); ++i) sum[i] += all[r * mine.size() + i];
    return sum;
  }

  std::vector<std::string> all_gather(const std::string& mine) override {
    const std::vector<uint64_t> sizes = all_gather_equal("all_gather", std::vector<uint64_t>{mine.size()});
    std::vector<std::string> all(static_cast<size_t>(size_));
    for (size_t r = 0; r < all.size(); ++r) all[r].resize(sizes[r]);
    all[static_cast<size_t>(rank_)] = mine;
    const uint64_t longest = *std::max_element(sizes.begin(), sizes.end());
    for (uint64_t at = 0; at < longest; at += message_bytes) {
      const auto bytes = [&](int r) {
        return std::clamp<uint64_t>(sizes[static_cast<size_t>(r)], at, at + message_bytes) - at;
      };
      each_peer([&](int peer) {
        send(peer, mine.data() + at, bytes(rank_));
        receive(peer, all[static_cast<size_t>(peer)].data() + at, bytes(peer));
      });
      exchange("all_gather");
    }
    return all;
  }

  void barrier() override { all_gather_equal("barrier", std::vector<uint8_t>{0}); }

 private:
  template <class F>
  void each_peer(F&& body) {
    // Every rank starts with another peer, so that they do not all load the same one.
    for (int k = 1; k < size_; ++k) body((rank_ + k) % size_);
  }
  void send(int peer, const void* data, size_t bytes) {
    if (bytes > 0) out_.push_back({peer, data, bytes});
  }
  void receive(int peer, void* data, size_t bytes) {
    if (bytes > 0) in_.push_back({peer, data, bytes});
  }

  void exchange(const char* collective) {
    const Clock::time_point begin = Clock::now();
    const Outcome outcome = transport_->exchange(out_, in_, tag_++, begin + deadline_);
    wait_seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
    for (const Outgoing& o : out_) bytes_sent_ += o.bytes;
    out_.clear();
    in_.clear();
    if (!outcome.error.empty())
      throw Error(exit_status::peer_lost,
                  fmt::format("comm: {} on rank {}, phase {}: {}", collective, rank_, phase_, outcome.error));
    if (outcome.late.empty()) return;
    std::string who;
    for (int r : outcome.late) who += fmt::format("{}{} on {}", who.empty() ? "" : ", ", r, node(r));
    throw Error(exit_status::peer_lost,
                fmt::format("comm: {} on rank {}, phase {}: no answer within {} s from rank {}", collective, rank_, phase_,
                            std::chrono::duration<double>(deadline_).count(), who));
  }

  template <class V>
  std::vector<V> all_gather_equal(const char* collective, const std::vector<V>& mine) {
    const size_t n = mine.size();
    std::vector<V> all(n * static_cast<size_t>(size_));
    std::copy(mine.begin(), mine.end(), all.begin() + static_cast<ptrdiff_t>(n * static_cast<size_t>(rank_)));
    each_peer([&](int peer) {
      send(peer, mine.data(), n * sizeof(V));
      receive(peer, all.data() + n * static_cast<size_t>(peer), n * sizeof(V));
    });
    if (size_ > 1) exchange(collective);
    return all;
  }

  template <class T>
  int64_t elements_in_round() const {
    const size_t bytes = std::clamp<size_t>(round_bytes / static_cast<size_t>(size_), 4096, message_bytes);
    return static_cast<int64_t>(bytes / sizeof(T));
  }

  template <class T>
  void reduce_scatter_of(T* data, int64_t n) {
    if (size_ == 1) return;
    const Range own = part_of(n, rank_, size_);
    const int64_t most = elements_in_round<T>();
    std::vector<T> received(static_cast<size_t>(size_) * static_cast<size_t>(std::min(most, part_of(n, 0, size_).size())));
    for (int64_t at = 0; at < part_of(n, 0, size_).size(); at += most) {
      const Range mine = round_of(own, at, most);
      each_peer([&](int peer) {
        const Range theirs = round_of(part_of(n, peer, size_), at, most);
        send(peer, data + theirs.begin, static_cast<size_t>(theirs.size()) * sizeof(T));
        receive(peer, received.data() + peer * mine.size(), static_cast<size_t>(mine.size()) * sizeof(T));
      });
      exchange("reduce_scatter");
      sum_in_rank_order(data + mine.begin, mine.size(), received.data());
    }
  }

  // data[i] = x_0[i] + x_1[i] + ..., where x_rank is data itself and the others lie in `received`.
  template <class T>
  void sum_in_rank_order(T* data, int64_t n, const T* received) const {
    T sum[block];
    for (int64_t at = 0; at < n; at += block) {
      const int64_t m = std::min(block, n - at);
      for (int r = 0; r < size_; ++r) {
        const T* x = (r == rank_ ? data : received + r * n) + at;
        if (r == 0)
          std::copy(x, x + m, sum);
        else
          for (int64_t i = 0; i < m; ++i) sum[i] += x[i];
      }
      std::copy(sum, sum + m, data + at);
    }
  }

  template <class T>
  void all_gather_parts_of(T* data, int64_t n) {
    const int64_t most = elements_in_round<T>();
    for (int64_t at = 0; size_ > 1 && at < part_of(n, 0, size_).size(); at += most) {
      const Range mine = round_of(part_of(n, rank_, size_), at, most);
      each_peer([&](int peer) {
        const Range theirs = round_of(part_of(n, peer, size_), at, most);
        send(peer, data + mine.begin, static_cast<size_t>(mine.size()) * sizeof(T));
        receive(peer, data + theirs.begin, static_cast<size_t>(theirs.size()) * sizeof(T));
      });
      exchange("all_gather");
    }
  }

  static Range round_of(Range part, int64_t at, int64_t most) {
    return {std::min(part.end, part.begin + at), std::min(part.end, part.begin + at + most)};
  }

  std::unique_ptr<Transport> transport_;
  const int rank_, size_;
  std::vector<std::string> nodes_;
  uint64_t tag_ = 0;
  std::vector<Outgoing> out_;
  std::vector<Incoming> in_;
};

class SelfTransport : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Outcome exchange(std::span<const Outgoing>, std::span<const Incoming>, uint64_t, Clock::time_point) override { return {}; }
};

}  // namespace

Range part_of(int64_t n, int rank, int ranks) {
  const int64_t each = n / ranks, longer = n % ranks;
  const int64_t begin = rank * each + std::min<int64_t>(rank, longer);
  return {begin, begin + each + (rank < longer ? 1 : 0)};
}

std::unique_ptr<Comm> comm_over(std::unique_ptr<Transport> transport) {
  return std::make_unique<Collectives>(std::move(transport));
}

std::unique_ptr<Comm> self_comm() {
  return comm_over(std::make_unique<SelfTransport>());
}

}  // namespace mm::comm
