// SPDX-License-Identifier: Apache-2.0
// What simulate says: a table for people, a line of JSON for each of its rows, a picture.
#pragma once

#include <string>
#include <vector>

#include "agent/simulate/simulation.h"

namespace mm::simulate {

struct Row {
  int gpus = 0;
  Machine machine;
  Way way = Way::ours;
  std::vector<Outcome> outcomes;  // one a seed

  double median(double Outcome::*of) const;
  int64_t sum(int64_t Outcome::*of) const;
};

std::string assumptions(const std::string& failures, const Costs& costs, double days, size_t seeds);
std::string table(const std::vector<Row>& rows, double days);
std::string json_lines(const std::vector<Row>& rows, double days);
// SVG: the part of the time that is training, by GPUs, a line for each way.
std::string plot(const std::vector<Row>& rows, const std::string& title);

}  // namespace mm::simulate
