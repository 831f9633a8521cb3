// SPDX-License-Identifier: Apache-2.0
#include "trainer/tensor/profile.h"

#include <algorithm>

namespace mm::tensor {
namespace {

thread_local Profile* kept = nullptr;

}  // namespace

void Profile::add(std::string_view name, double seconds, double flops) {
  auto at = std::ranges::find(entries, name, &Entry::name);
  if (at == entries.end()) at = entries.insert(at, Entry{name});
  ++at->calls;
  at->seconds += seconds;
  at->flops += flops;
}

void set_profile(Profile* profile) {
  kept = profile;
}

Timed::Timed(std::string_view name, double flops) : profile_(kept), name_(name), flops_(flops) {
  if (profile_) begin_ = std::chrono::steady_clock::now();
}

Timed::~Timed() {
  if (profile_) profile_->add(name_, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(), flops_);
}

}  // namespace mm::tensor
