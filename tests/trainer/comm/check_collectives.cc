// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "common/error.h"
#include "tests/trainer/comm/checks.h"
#include "tests/trainer/comm/harness.h"
#include "trainer/tensor/region.h"

namespace mm::comm {
namespace {

// Uneven parts: some are empty, and the first does not begin at 0.
std::vector<int64_t> uneven_bounds(int64_t n, int ranks) {
  std::vector<int64_t> bounds{n / 7};
  for (int r = 0; r < ranks; ++r)
    bounds.push_back(r % 3 == 1 ? bounds.back() : r == ranks - 1 ? n : bounds.back() + (n - bounds.back()) / 2);
  return bounds;
}

template <class T>
void expect_equal(const Comm& comm, const char* what, const std::vector<T>& found, const std::vector<T>& expected) {
  const auto [f, e] = std::mismatch(found.begin(), found.end(), expected.begin(), expected.end());
  EXPECT_TRUE(f == found.end() && e == expected.end())
      << what << ", rank " << comm.rank() << ": element " << f - found.begin() << " of " << expected.size();
}

template <class T>
void check_parts(Comm& comm, int64_t n) {
  const std::vector<int64_t> bounds = uneven_bounds(n, comm.size());
  std::vector<T> data = values<T>(comm.rank(), n);
  comm.reduce_scatter(data.data(), std::span<const int64_t>(bounds));
  comm.all_gather(data.data(), std::span<const int64_t>(bounds));
  std::vector<T> expected = values<T>(comm.rank(), n);
  for (int64_t i = bounds.front(); i < bounds.back(); ++i) expected[static_cast<size_t>(i)] = sum_of_values<T>(comm.size(), i);
  expect_equal(comm, "parts", data, expected);
}

template <class T>
void check_whole(Comm& comm, int64_t n) {
  std::vector<T> sum = values<T>(comm.rank(), n), all = sum, largest = sum;
  comm.reduce_scatter(sum.data(), n);
  comm.all_gather_parts(sum.data(), n);
  comm.all_reduce(all.data(), n);
  comm.all_reduce_max(largest.data(), n);
  const int last = comm.size() - 1;
  std::vector<T> told = values<T>(comm.rank() == last ? 17 : 0, n);
  comm.broadcast(told.data(), n, last);
  std::vector<T> expected_sum(static_cast<size_t>(n)), expected_largest = values<T>(0, n);
  for (int64_t i = 0; i < n; ++i) {
    T& top = expected_largest[static_cast<size_t>(i)];
    for (int r = 1; r < comm.size(); ++r) top = std::max(top, value<T>(r, i));
    expected_sum[static_cast<size_t>(i)] = sum_of_values<T>(comm.size(), i);
  }
  expect_equal(comm, "reduce_scatter and all_gather", sum, expected_sum);
  expect_equal(comm, "all_reduce", all, expected_sum);
  expect_equal(comm, "all_reduce_max", largest, expected_largest);
  expect_equal(comm, "broadcast", told, values<T>(17, n));
}

void check_all(Comm& comm, int64_t large) {
  // Fewer elements than ranks, and parts of unequal length.
  for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{4099}}) {
    check_whole<double>(comm, n);
    check_parts<double>(comm, n);
  }
  check_whole<float>(comm, large);
  check_parts<float>(comm, large);
  check_whole<int32_t>(comm, 5003);
  check_whole<uint8_t>(comm, 5003);
  check_parts<uint8_t>(comm, 100'003);
  const double nan = std::nan("");
  std::vector<double> with_nan{comm.rank() == comm.size() - 1 ? nan : 1.0, comm.rank() == 0 ? nan : 2.0};
  comm.all_reduce_max(with_nan.data(), 2);
  EXPECT_TRUE(std::isnan(with_nan[0]) && std::isnan(with_nan[1]));
  const auto text_of = [large](int rank) {
    return std::string(static_cast<size_t>(rank * large), static_cast<char>('a' + rank));
  };
  const std::vector<std::string> texts = comm.all_gather(text_of(comm.rank()));
  ASSERT_EQ(texts.size(), static_cast<size_t>(comm.size()));
  for (int r = 0; r < comm.size(); ++r) EXPECT_TRUE(texts[static_cast<size_t>(r)] == text_of(r)) << r;
  EXPECT_EQ(comm.all_reduce({}).size(), 0U);
  comm.barrier();
}

void check_split(Comm& comm) {
  const uint64_t before = comm.bytes_sent();
  // Odd and even ranks, without the last; then each of these again, by itself.
  const bool out = comm.size() > 1 && comm.rank() == comm.size() - 1;
  const std::unique_ptr<Comm> half = comm.split(out ? -1 : comm.rank() % 2, "half");
  ASSERT_EQ(half == nullptr, out);
  if (half) {
    EXPECT_EQ(half->name(), "half");
    EXPECT_EQ(half->rank(), comm.rank() / 2);
    for (int r = 0; r < half->size(); ++r) EXPECT_EQ(half->world_rank(r), comm.world_rank(comm.rank() % 2 + 2 * r));
    check_whole<double>(*half, 10'001);
    check_parts<float>(*half, 10'001);
    const std::unique_ptr<Comm> one = half->split(half->rank(), "one");
    ASSERT_EQ(one->size(), 1);
    EXPECT_EQ(one->world_rank(0), comm.world_rank(comm.rank()));
    check_whole<double>(*one, 11);
    EXPECT_EQ(one->bytes_sent(), 0U);
    EXPECT_EQ(comm.bytes_sent() - before >= half->bytes_sent(), true);
    EXPECT_EQ(half->bytes_sent() > 0, half->size() > 1);
  }
  check_whole<double>(comm, 77);
}

// Every rank sends to the next and to the one after it before it receives anything.
void check_messages(Comm& comm) {
  const int n = comm.size(), me = comm.rank();
  if (n < 3) return;
  const std::vector<double> large = values<double>(me, 70'001), small = values<double>(me, 5);
  std::vector<double> from_last(70'001), from_one_before(5);
  std::vector<Pending> pending;
  pending.push_back(comm.begin_send((me + 1) % n, large.data(), 70'001, 1000));
  pending.push_back(comm.begin_send((me + 2) % n, small.data(), 5, 7));
  pending.push_back(comm.begin_send((me + 2) % n, small.data(), 0, 8));
  pending.push_back(comm.begin_receive((me + n - 2) % n, from_one_before.data(), 5, 7));
  pending.push_back(comm.begin_receive((me + n - 2) % n, from_one_before.data(), 0, 8));
  pending.push_back(comm.begin_receive((me + n - 1) % n, from_last.data(), 70'001, 1000));
  for (Pending& p : pending) p.wait();
  EXPECT_TRUE(from_last == values<double>((me + n - 1) % n, 70'001));
  EXPECT_TRUE(from_one_before == values<double>((me + n - 2) % n, 5));
  EXPECT_THROW(comm.begin_send(me, small.data(), 5, 1), Error);
}

// Memory that ranks of one node read in place: the same results, before, while and after it is shared, and after its pages were
// given back.
void check_shared(Comm& comm, int64_t n) {
  const tensor::Region region(static_cast<size_t>(n) * sizeof(float));
  float* const data = static_cast<float*>(region.data());
  const std::vector<int64_t> bounds = uneven_bounds(n, comm.size());
  const auto check = [&] {
    for (int64_t i = 0; i < n; ++i) data[i] = value<float>(comm.rank(), i);
    comm.reduce_scatter(data, std::span<const int64_t>(bounds));
    comm.all_gather(data, std::span<const int64_t>(bounds));
    for (int64_t i = bounds.front(); i < bounds.back(); ++i)
      ASSERT_EQ(data[i], sum_of_values<float>(comm.size(), i)) << "element " << i << " on rank " << comm.rank();
    const int next = (comm.rank() + 1) % comm.size(), last = (comm.rank() + comm.size() - 1) % comm.size();
    if (comm.size() == 1) return;
    // What the peer sees is what lies there until it has taken it.
    std::vector<float> received(static_cast<size_t>(n));
    Pending receive = comm.begin_receive(last, received.data(), n, 4);
    comm.begin_send(next, data, n, 4).wait();
    std::fill(data, data + n, -1.0F);
    receive.wait();
    EXPECT_EQ(received[static_cast<size_t>(n / 2)], sum_of_values<float>(comm.size(), n / 2));
    EXPECT_EQ(received[static_cast<size_t>(bounds.back() - 1)], sum_of_values<float>(comm.size(), bounds.back() - 1));
  };
  check();
  data[5] = 17;
  std::unique_ptr<Shared> shared = comm.share(data, region.bytes());
  EXPECT_EQ(data[5], 17);
  check();
  comm.barrier();
  region.release(0, region.bytes());
  EXPECT_EQ(data[5], 0);
  check();
  shared.reset();
  check();
}

}  // namespace

void check_collectives(Comm& comm, int64_t large) {
  check_all(comm, large);
  check_split(comm);
  check_messages(comm);
  check_shared(comm, large);
}

}  // namespace mm::comm
