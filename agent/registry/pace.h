// SPDX-License-Identifier: Apache-2.0
// How long ranks work for a step of their own, without the time that they wait for each other, and who among them is slow. Ranks that do the same
// work (their GROUP= is the same) are compared: a straggler takes a fifth longer than the middle one of its group, and more than six
// robust standard deviations. A group of two cannot say which of them is slow.
#pragma once

#include <string>
#include <vector>

namespace mm::agent {

struct Pace {
  int rank = 0;
  std::string node, group;
  double seconds = 0;  // of the middle one of its last steps
};

struct Straggler {
  Pace pace;
  double usual = 0;  // of its group
};

std::vector<Straggler> find_stragglers(const std::vector<Pace>& paces);

}  // namespace mm::agent
