// SPDX-License-Identifier: Apache-2.0
#include "agent/simulate/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace mm::simulate {
namespace {

constexpr int width = 760, height = 420, left = 60, right = 150, top = 50, bottom = 50;

const char* colour_of(Way way) {
  return way == Way::ours ? "#1a6faf" : way == Way::scripted ? "#c98a1b" : "#b03a3a";
}

}  // namespace

double Row::median(double Outcome::*of) const {
  std::vector<double> values;
  for (const Outcome& o : outcomes) values.push_back(o.*of);
  std::ranges::sort(values);
  return values[values.size() / 2];
}

int64_t Row::sum(int64_t Outcome::*of) const {
  int64_t sum = 0;
  for (const Outcome& o : outcomes) sum += o.*of;
  return sum;
}

std::string assumptions(const std::string& failures, const Costs& c, double days, size_t seeds) {
  std::string mix;
  double all = 0;
  for (const Cause& cause : causes()) all += cause.weight;
  for (const Cause& cause : causes())
    mix += fmt::format("{}{} {:.0f} %", mix.empty() ? "" : ", ", cause.name, 100 * cause.weight / all);
  return fmt::format(
      "failures       {}\n"
      "causes         {}\n"
      "every way      launch {:g} s, load {:g} s, first step {:g} s; saves by Daly's interval; nodes that fail do so "
      "independently; no wait in a queue\n"
      "requeue        Slurm alone: noticed after {:g} s, requeued jobs held for {:g} s, saves that stop training for {:g} s\n"
      "scripted       a script that sleeps {:g} s and runs srun again in the allocation, with asynchronous saves as below; "
      "spares never run out\n"
      "mm-train       the recovery policy itself; saves stop training for {:g} s and count {:g} s later; hardware told after "
      "{:g} s, a\n"
      "               silent node after {:g} s, a dead rank after {:g} s, a hang after {:g} s; requeue in {:g} s where no "
      "spare is left\n"
      "hangs          without mm-train end after {:g} s (the collective library's timeout)\n"
      "time           {:g} days, {} seeds, median\n",
      failures, mix, c.launch, c.load, c.first_step, c.health_check, c.hold, c.blocking_save, c.sleep, c.stall, c.flush,
      c.carrier, c.silence, c.death, c.hang, c.requeue, c.collective_timeout, days, seeds);
}

std::string table(const std::vector<Row>& rows, double days) {
  std::string out = fmt::format("{:>8} {:<9} {:>9} {:>10} {:>9} {:>9} {:>8} {:>8} {:>8} {:>11}\n", "GPUs", "way", "trains",
                                "faults/day", "recovery", "99 %", "saving", "again", "down", "interval");
  for (const Row& row : rows)
    out += fmt::format("{:>8} {:<9} {:>9.4f} {:>10.2f} {:>7.0f} s {:>7.0f} s {:>6.2f} % {:>6.2f} % {:>6.2f} % {:>9.0f} s\n",
                       row.gpus, name_of(row.way), row.median(&Outcome::trained),
                       static_cast<double>(row.sum(&Outcome::faults)) / days / static_cast<double>(row.outcomes.size()),
                       row.median(&Outcome::recovery_median), row.median(&Outcome::recovery_p99),
                       100 * row.median(&Outcome::saving), 100 * row.median(&Outcome::again), 100 * row.median(&Outcome::down),
                       row.median(&Outcome::interval));
  return out;
}

std::string json_lines(const std::vector<Row>& rows, double days) {
  std::string out;
  for (const Row& row : rows) {
    const nlohmann::json line = {{"gpus", row.gpus},
                                 {"nodes", row.machine.nodes},
                                 {"spares", row.machine.spares},
                                 {"way", name_of(row.way)},
                                 {"days", days},
                                 {"trained", row.median(&Outcome::trained)},
                                 {"saving", row.median(&Outcome::saving)},
                                 {"again", row.median(&Outcome::again)},
                                 {"down", row.median(&Outcome::down)},
                                 {"recovery_s", row.median(&Outcome::recovery_median)},
                                 {"recovery_p99_s", row.median(&Outcome::recovery_p99)},
                                 {"interval_s", row.median(&Outcome::interval)},
                                 {"faults", row.sum(&Outcome::faults)},
                                 {"unattended", row.sum(&Outcome::unattended)},
                                 {"requeues", row.sum(&Outcome::requeues)}};
    out += line.dump() + "\n";
  }
  return out;
}

std::string plot(const std::vector<Row>& rows, const std::string& title) {
  int least = rows.front().gpus, most = least;
  for (const Row& row : rows) least = std::min(least, row.gpus), most = std::max(most, row.gpus);
  const double span = std::max(1e-9, std::log2(static_cast<double>(most) / least));
  const auto x = [&](int gpus) { return left + (width - left - right) * std::log2(static_cast<double>(gpus) / least) / span; };
  const auto y = [&](double part) { return height - bottom - (height - top - bottom) * part; };
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{2}\" y=\"24\" "
      "font-size=\"15\">{3}</text>\n",
      width, height, left, title);
  for (int tenth = 0; tenth <= 10; tenth += 2)
    out += fmt::format(
        "<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#ddd\"/><text x=\"{3}\" y=\"{4:.1f}\" "
        "text-anchor=\"end\">{5:.1f}</text>\n",
        left, width - right, y(tenth / 10.0), left - 8, y(tenth / 10.0) + 4, tenth / 10.0);
  for (const Way way : {Way::ours, Way::scripted, Way::requeue}) {
    std::string points;
    double last = 0;
    for (const Row& row : rows) {
      if (row.way != way) continue;
      last = row.median(&Outcome::trained);
      points += fmt::format("{:.1f},{:.1f} ", x(row.gpus), y(last));
      if (way == Way::ours)
        out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x(row.gpus), height - bottom + 18,
                           row.gpus);
    }
    out += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", points, colour_of(way));
    out += fmt::format("<text x=\"{}\" y=\"{:.1f}\" fill=\"{}\">{} {:.2f}</text>\n", width - right + 8, y(last) + 4,
                       colour_of(way), name_of(way), last);
  }
  out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">GPUs</text>\n</svg>\n", (left + width - right) / 2,
                     height - 10);
  return out;
}

}  // namespace mm::simulate
