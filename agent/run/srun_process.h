// SPDX-License-Identifier: Apache-2.0
// One srun: started with /dev/null as standard input, our own standard output, and a pipe for its standard error. Its end is a
// readable descriptor.
//
// Only srun itself is ever signalled, not its process group: the process that it leaves behind is the one that tells slurmctld,
// after srun's death, to end the step.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/files.h"

namespace mm::run {

class SrunProcess {
 public:
  // Throws where it cannot be started. `error_pipe` becomes its standard error; the descriptors of `inherited` keep their
  // numbers.
  SrunProcess(const std::vector<std::string>& argv, const std::vector<std::string>& environment, int error_pipe,
              const std::vector<int>& inherited);
  SrunProcess(const SrunProcess&) = delete;
  ~SrunProcess();  // kills and reaps it where it still runs

  int fd() const { return pidfd_.get(); }
  void signal(int number) const;
  // SIGKILL. What is returned are its children, as process descriptors: one of them tells slurmctld to end the step, and tries for as long as
  // that does not answer.
  std::vector<UniqueFd> kill() const;
  // The status as from wait(2), once fd() is readable.
  int reap();

 private:
  UniqueFd pidfd_;
  pid_t pid_ = -1;
};

struct Pipe {
  UniqueFd read, write;  // read does not block
};
Pipe make_pipe();
UniqueFd memory_file(const std::string& content);  // read position at the start

// Cuts a stream of bytes into lines, without their newline. A line longer than 64 KiB comes in pieces.
class LineCutter {
 public:
  std::vector<std::string> add(std::string_view bytes);

 private:
  std::string rest_;
};

}  // namespace mm::run
