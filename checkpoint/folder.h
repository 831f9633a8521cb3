// SPDX-License-Identifier: Apache-2.0
// Names in RUN/checkpoints: step-0001200 is committed; .step-0001200.WRITER is private to a save under way, .trash-... on its
// way out; epoch-0000007 is a writer's claim (checkpoint/epochs.h); LATEST names the newest step for people and scripts, and
// nothing trusts it. In a step, a file .bad says why a load would not have it, and .pinned that it is never removed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace mm::checkpoint {

std::string step_name(int64_t step);
std::optional<int64_t> step_of_name(const std::string& name);  // nullopt: not the name of a committed step
std::string private_name(int64_t step, const std::string& writer);
std::string new_writer();  // 16 random hexadecimal digits
// 16 hexadecimal digits that stand for a run where copies of several are kept in one place.
std::string run_key(const std::string& run);

std::vector<StepInfo> list_steps(const std::string& checkpoints);  // newest first
// Marks the step; what the mark itself meets is returned, and empty where it went well.
std::string mark_bad(const StepInfo& step, const std::string& reason);
// Throws io::Failure.
void set_pinned(const StepInfo& step, bool pinned);
// Moves it out of the committed names first, so that a removal that is cut short leaves no half step.
void remove_step(const std::string& checkpoints, const StepInfo& step);
// What dead writers and removals that were cut short left. A writer that is alive after all loses its folder, and its save
// fails. What cannot be removed now stays for the next time.
void remove_leftovers(const std::string& checkpoints);

}  // namespace mm::checkpoint
