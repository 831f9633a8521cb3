// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, and what collectives are held against.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "trainer/comm/comm.h"

namespace mm::comm {

// Runs the body once for every rank; an exception of any rank is thrown here, after all have ended.
inline void on_threads(int ranks, const std::function<void(Comm&)>& body) {
  std::vector<std::unique_ptr<Comm>> comms = thread_comms(ranks);
  std::vector<std::exception_ptr> failures(comms.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < comms.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        body(*comms[r]);
      } catch (...) {
        failures[r] = std::current_exception();
      }
    });
  for (std::thread& t : threads) t.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

// A number that has many bits, so that another order of summation shows.
template <class T>
T value(int rank, int64_t i) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(3 + 7 * rank + i % 29);
  else
    return static_cast<T>(1.0 / static_cast<double>(3 + 7 * rank + 11 * (i % 1013)) + static_cast<double>(i % 5) * 1e-3);
}
template <class T>
T sum_of_values(int ranks, int64_t i) {
  T sum = value<T>(0, i);
  for (int r = 1; r < ranks; ++r) sum = static_cast<T>(sum + value<T>(r, i));
  return sum;
}
template <class T>
std::vector<T> values(int rank, int64_t n) {
  std::vector<T> all(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) all[static_cast<size_t>(i)] = value<T>(rank, i);
  return all;
}

}  // namespace mm::comm
