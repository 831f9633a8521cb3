// SPDX-License-Identifier: Apache-2.0
// A desk without a cluster: nothing is drained, since nobody knows the nodes.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "agent/daemon/desk.h"

namespace mm::agent {

class DeskFixture : public testing::Test {
 protected:
  DeskFixture()
      : context_{loop_, Site(), "n1", Slurm("", true), {}, {}, Journal(loop_, folder_.path, "n1"), Mesh(loop_, "n1", {}), {}, {}, {}, [] {}},
        events_(context_, [](ClientId, const std::string&) {}),
        desk_(context_, events_) {}
  static Report report(const char* code, Severity severity, Action action, int64_t count = 1) {
    Report r;
    r.part = Part::gpu;
    r.code = code;
    r.device = "0000:1b:00.0";
    r.severity = severity;
    r.action = action;
    r.count = count;
    r.evidence = {"the line"};
    return r;
  }
  // Declared first: it goes when the loop's workers have ended.
  struct Folder {
    std::string path = testing::TempDir() + "desk-" + std::to_string(::getpid());
    ~Folder() { std::filesystem::remove_all(path); }
  } folder_;
  Loop loop_;
  Context context_;
  Events events_;
  Desk desk_;
};

}  // namespace mm::agent
