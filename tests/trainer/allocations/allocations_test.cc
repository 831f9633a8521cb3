// SPDX-License-Identifier: Apache-2.0
// A training step takes no memory once a batch as large has been seen. Every form of operator new of this program counts.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "tests/trainer/make_fixture.h"
#include "tests/trainer/model/harness.h"
#include "trainer/comm/comm.h"
#include "trainer/model/micro_batch.h"
#include "trainer/model/partition.h"
#include "trainer/model/stage.h"
#include "trainer/optim/sharded.h"

namespace {

std::atomic<int64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = alignment ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                          : std::malloc(bytes ? bytes : 1))
    return p;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t n) {
  return counted(n, 0);
}
void* operator new[](std::size_t n) {
  return counted(n, 0);
}
void* operator new(std::size_t n, std::align_val_t a) {
  return counted(n, static_cast<std::size_t>(a));
}
void* operator new[](std::size_t n, std::align_val_t a) {
  return counted(n, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::size_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}

namespace mm {
namespace {

class Allocations : public testing::TestWithParam<std::string> {};  // preset

TEST_P(Allocations, NoneOnceABatchAsLargeHasBeenSeen) {
  const model::VlmConfig config = test::config_of(fixture::config_json(GetParam()));
  auto specs = model::param_specs(config);
  tensor::ThreadPool pool(1);  // which tiles a thread meets, and so when its own scratch grows, would be chance with more
  model::ParamStore<float> params(specs);
  const auto alone = comm::self_comm();
  optim::Sharded<float> sharded(params, [&](model::Holders) -> comm::Comm& { return *alone; }, 0, {});
  model::Stage<float> stage(config, model::chunks_of(config.text.layers, 0, 1, 1), params, pool);
  fixture::fill(params);
  sharded.take_values();

  const auto samples = fixture::samples(config, 0, 8);
  model::MicroBatch batch;
  int64_t of_step = 0;
  for (int step = 0; step < 3; ++step) {
    const int64_t before = allocations;
    sharded.begin_step();
    for (size_t at = 0; at < samples.size(); at += 4) {
      model::pack(config, std::span(samples).subspan(at, 4), batch);
      sharded.set_last_micro_batch(at + 4 == samples.size());
      stage.forward(0, 0, batch, nullptr, nullptr);
      stage.backward(0, 0, batch, 1.0 / 100, nullptr, nullptr);
    }
    sharded.finish_gradients();
    sharded.sum_of_squares(pool);
    sharded.update(step + 1, 1e-3, 1.0, pool);
    of_step = allocations - before;
    if (step == 0) {
      EXPECT_GT(of_step, 0);  // they are counted
    }
  }
  EXPECT_EQ(of_step, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Allocations, testing::Values("tiny", "clip"));

}  // namespace
}  // namespace mm
