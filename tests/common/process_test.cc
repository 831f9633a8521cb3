// SPDX-License-Identifier: Apache-2.0
#include "common/process.h"

#include <gtest/gtest.h>

#include "common/error.h"
#include "common/key_values.h"

namespace mm {
namespace {

using namespace std::chrono_literals;

TEST(Process, ReturnsStatusAndOutput) {
  const CommandResult r = run_command({"sh", "-c", "echo out; echo $X >&2; exit 3"}, 10s, {"X=err"});
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_EQ(r.out, "out\n");
  EXPECT_EQ(r.err, "err\n");
  EXPECT_EQ(run_command({"sh", "-c", "kill -9 $$"}, 10s).exit_code, 128 + 9);
  EXPECT_THROW(run_command({"/no/such/program"}, 1s), Error);
}

TEST(Process, DeadlineEndsTheWholeGroup) {
  const auto begin = std::chrono::steady_clock::now();
  const CommandResult r = run_command({"sh", "-c", "sleep 100 & sleep 100"}, 100ms);
  EXPECT_TRUE(r.timed_out);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 20s);
}

TEST(KeyValues, SurviveTheWayThereAndBack) {
  const KeyValues values = {{"A", "1"}, {"TEXT", "two\nlines \\ and = signs"}, {"EMPTY", ""}};
  EXPECT_EQ(parse_key_values(format_key_values(values)), values);
  EXPECT_EQ(get_int(parse_key_values("STEP=12\nnonsense\n=x\n"), "STEP", -1), 12);
  EXPECT_EQ(get_int(values, "TEXT", -1), -1);
}

}  // namespace
}  // namespace mm
