// SPDX-License-Identifier: Apache-2.0
#include "agent/loop.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <thread>

#include "common/files.h"

namespace mm::agent {
namespace {

TEST(Loop, AHandlerThatThrowsLosesNothingElse) {
  Loop loop;
  int ran = 0;
  loop.post([] { throw std::runtime_error("a handler's fault"); });
  loop.post([&] { ++ran; });
  loop.work(Loop::Pool::disk, []() -> Loop::Action { throw std::runtime_error("a job's fault"); });
  loop.work(Loop::Pool::disk, [&]() -> Loop::Action { return [&] { ++ran, loop.stop(); }; });
  loop.run();
  EXPECT_EQ(ran, 2);
}

TEST(Loop, JobsOfOnePoolOfOneThreadKeepTheirOrder) {
  Loop loop;
  std::string order;
  for (char c = 'a'; c <= 'z'; ++c) loop.work(Loop::Pool::encode, [&, c]() -> Loop::Action { return [&, c] { order += c; }; });
  loop.work(Loop::Pool::encode, [&]() -> Loop::Action { return [&] { loop.stop(); }; });
  loop.run();
  EXPECT_EQ(order, "abcdefghijklmnopqrstuvwxyz");
}

TEST(Loop, ReadableIsSeenAgainAfterAPartialRead) {
  Loop loop;
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  const UniqueFd in(fds[0]), out(fds[1]);
  std::string got;
  FdWatch watch(loop, in.get(), [&] {
    char c;
    if (::read(in.get(), &c, 1) == 1) got += c;  // one byte a turn
    if (got.size() == 3) {
      watch = FdWatch();  // from within its own handler
      loop.post([&] { loop.stop(); });
    }
  });
  ASSERT_EQ(::write(out.get(), "xyz!", 4), 4);
  loop.run();
  EXPECT_EQ(got, "xyz");
}

TEST(Loop, ATimerCanReplaceAndEndItself) {
  Loop loop;
  int turns = 0, wrong = 0;
  Timer timer(loop), cancelled(loop);
  cancelled.start(milliseconds(1), [&] { ++wrong; });
  cancelled.cancel();
  timer.repeat(milliseconds(1), [&] {
    if (++turns < 3) return;
    timer.start(milliseconds(1), [&] { loop.stop(); });
  });
  loop.run();
  EXPECT_EQ(turns, 3);
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace mm::agent
