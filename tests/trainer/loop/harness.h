// SPDX-License-Identifier: Apache-2.0
// What the tests of the whole trainer share: a folder with the small model and its shards, mm-trainer as a process that can be
// watched, killed and started again, and the metrics that it leaves.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/files.h"
#include "common/process.h"

namespace mm::loop {

// The numbers of a JSON object, by key.
using Numbers = std::map<std::string, double>;
Numbers numbers_of(const std::string& json);
std::string text_of(const std::string& json, const std::string& key);

std::string trainer_program();
std::vector<std::string> mpirun(int ranks);  // the words in front of the program; none for one rank

struct Ended {
  int status = -1;  // 128 + signal where a signal ended it
  std::string err;
};

// A process whose standard output is read line by line. Killed, with what it started, when it goes out of scope.
class Child {
 public:
  Child(const std::vector<std::string>& argv, const std::string& err_file);
  ~Child();
  pid_t pid() const { return pid_; }
  // The next line, without its newline; nullopt at the end of the output. Fails the test at the deadline.
  std::optional<std::string> line(std::chrono::seconds deadline = std::chrono::seconds(120));
  // Reads lines of metrics until one is of `step` or a later one; false where the output ends before.
  bool wait_for_step(int64_t step);
  // Waits until the process has ended, at most so long; true where it has.
  bool wait_ended(std::chrono::milliseconds patience);
  Ended end(std::chrono::seconds deadline = std::chrono::seconds(120));
  // The ranks: the process itself, or what mpirun has started.
  std::vector<pid_t> ranks() const;

 private:
  pid_t pid_ = -1;
  UniqueFd out_, pidfd_;
  std::string err_file_, buffer_;
  std::optional<int> status_;
};

class TrainerTest : public testing::Test {
 protected:
  TrainerTest();
  ~TrainerTest() override;
  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  // model/ and data/, float64, batch 8, no shuffle, as the frozen reference. `more` is appended to the command line.
  std::vector<std::string> command(const std::string& run, const std::vector<std::string>& more = {}, int ranks = 1) const;
  CommandResult train(const std::string& run, const std::vector<std::string>& more = {}, int ranks = 1) const;
  CommandResult trainer(const std::vector<std::string>& arguments) const;
  std::vector<Numbers> metrics(const std::string& run) const;
  // step, loss, grad_norm, lr and tokens as they stand in the file: equal texts are equal bits.
  std::vector<std::string> numbers(const std::string& run) const;
  std::filesystem::path folder_;
};

// Largest relative difference of loss and grad_norm from the frozen reference; checks that steps, lr and tokens agree.
double distance_from_reference(const std::vector<Numbers>& metrics);
// Tensor name -> 2-norm of its gradient in the first step of the frozen reference.
Numbers reference_gradient_norms();

}  // namespace mm::loop
