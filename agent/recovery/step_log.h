// SPDX-License-Identifier: Apache-2.0
// What the last lines of a failed step's standard error say of its end: a user's mistake, hardware, or only that another rank was gone. Of several
// lines the most telling one counts, of equal ones the first: a fault of hardware, then a mistake, then what a lost peer leaves behind.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mm::recovery {

struct LogExplanation {
  std::string klass;  // app, gpu, nic, memory, storage, slurm, peer
  std::string code;
  std::string line;
  int weight = 0;
  // "a user's mistake", "hardware", "a lost peer", ...
  const char* kind() const;
};

// Of one line; nothing where it tells nothing. A Python traceback needs more than a line, see StepLog.
std::optional<LogExplanation> explain_line(std::string_view line);

class StepLog {
 public:
  void clear();
  void add(std::string_view line);
  std::optional<LogExplanation> explain() const { return best_; }

 private:
  bool in_traceback_ = false;
  std::optional<LogExplanation> best_;
};

}  // namespace mm::recovery
