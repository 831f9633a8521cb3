// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/record.h"

#include <gtest/gtest.h>

namespace mm::spank {
namespace {

TEST(Record, GoesThroughAnEnvironmentUnchanged) {
  Record r;
  r.value = "my job%=\n\"1\".toml";
  r.spec = "/home/a b/" + r.value;
  r.tp = 8;
  r.pp = 4;
  r.cp = 2;
  r.spares = 3;
  r.hang_timeout = 12.1;
  r.requeue = false;
  r.tasks = 1024;
  r.order = "n[3,1],rack[0-1]_b2";
  r.master = "fe80::1";
  r.ordered = true;
  r.encoder_tp = 2;
  r.encoder_dp = 3;
  r.verbose = r.user_cpus = r.user_memory = true;
  r.cpus = 7;
  r.bytes = {1.5e9, 0, 3};
  r.stage_speeds = "1:1,0.5:0.25";
  const std::string text = format_record(r);
  EXPECT_EQ(text.find_first_of("\n\"'$`\\"), std::string::npos) << text;
  const std::optional<Record> back = parse_record(text);
  ASSERT_TRUE(back);
  EXPECT_EQ(format_record(*back), text);
  EXPECT_EQ(back->value, r.value);
  EXPECT_EQ(back->spec, r.spec);
  EXPECT_EQ(back->order, r.order);
  EXPECT_EQ(back->hang_timeout, 12.1);
  EXPECT_FALSE(back->requeue);
  EXPECT_EQ(back->encoder_dp, 3);
  EXPECT_TRUE(back->verbose && back->user_cpus && back->user_memory);
  EXPECT_EQ(back->cpus, 7);
  EXPECT_EQ(back->bytes, r.bytes);
  EXPECT_EQ(back->stage_speeds, r.stage_speeds);
}

// It is the user's word, and slurmstepd reads it as root.
TEST(Record, RefusesWhatIsOutOfRange) {
  for (const char* text :
       {"", "=", "tp=2", "value=a tp=0", "value=a tp=-1", "value=a spares=-1", "value=a tasks=999999999999", "value=a hang=-1",
        "value=a hang=nan", "value=a hang=1e99", "value=a hang=1x", "value=a tp=16777216 pp=16777216 cp=16777216"})
    EXPECT_FALSE(parse_record(text)) << text;
  EXPECT_TRUE(parse_record("value=a"));
  EXPECT_EQ(parse_record("value=a%")->value, "a%");
  EXPECT_EQ(parse_record("value=%4")->value, "%4");
  EXPECT_EQ(parse_record("value=%zz")->value, "%zz");
}

TEST(Record, AnyBytes) {
  uint64_t seed = 2;
  const std::string good = format_record([] {
    Record r;
    r.value = "a";
    r.order = "n[1-4]";
    return r;
  }());
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (int k = 0; k < 4; ++k) {
      seed = seed * 6364136223846793005U + 1442695040888963407U;
      text[(seed >> 33) % text.size()] = static_cast<char>(seed >> 20);
    }
    if (const std::optional<Record> r = parse_record(text)) {
      EXPECT_GE(r->tp, 1);
      EXPECT_GE(r->spares, 0);
    }
  }
}

}  // namespace
}  // namespace mm::spank
