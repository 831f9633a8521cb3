// SPDX-License-Identifier: Apache-2.0
// Whole trainings with the ranks as threads of this process, in double, held against one rank.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace mm::loop {

struct Case {
  int dp = 1, tp = 1, cp = 1, pp = 1, zero = 1, chunks = 1;
  bool recompute = false;
  int encoder_tp = 0, encoder_dp = 0;  // the encoder's own ranks; 0: it is on the ranks of the first stage
  std::string stages = "";             // layers of the pipeline's stages, as [3,1]
  int ranks() const { return dp * tp * cp * pp + encoder_tp * encoder_dp; }
  std::string name() const;
  std::vector<std::string> settings() const;
};

struct Step {
  double loss, grad_norm, tokens;
  bool operator==(const Step&) const = default;
};
using Tensors = std::map<std::string, std::vector<double>>;
using Settings = std::vector<std::string>;  // "section.key=value"

class Layouts : public testing::Test {
 protected:
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  static std::string at(const std::string& name) { return (*folder_ / name).string(); }
  // A data set of one shard, and the limit that goes with it. A letter of `kinds` is a sample: p a picture with its caption; t text
  // that is trained, u text that is not, because the limit cuts it before the answer; 1 text with one trained token, m with 101.
  static Settings shard(const std::string& name, const std::string& kinds);

  // Runs a training with the ranks of `c` as threads. Fails where a rank ends with an error, or where the ranks of a group did
  // not begin the same collectives in the same order. Returns whether all is well so far.
  static bool run(const std::string& preset, const Case& c, const std::string& dir, const Settings& settings,
                  const std::string& gradients = "");
  static std::vector<Step> steps(const std::string& dir);
  static Tensors tensors_of(const std::string& file);
  // Tensors of the newest checkpoint: param, m or v.
  static Tensors trained(const std::string& preset, const std::string& dir, const std::string& role = "param");

  // |a - b| <= tolerance |a| + floor, in the 2-norm of each tensor. What a softmax does not see (biases of keys) has a gradient
  // of rounding alone.
  static void expect_close(const Tensors& a, const Tensors& b, double tolerance, double floor, const std::string& what);
  static void expect_close(const std::vector<Step>& a, const std::vector<Step>& b, const std::string& what);
  // Step-1 gradients, then loss, norm and tensors of `count` steps, against one rank. Returns what that one did.
  static std::vector<Step> expect_equals_one_rank(const std::string& preset, const std::vector<Case>& cases, int count,
                                                  const Settings& settings = {});

  static std::string job(const std::string& preset);  // a file

 private:
  static std::filesystem::path* folder_;
};

}  // namespace mm::loop
