// SPDX-License-Identifier: Apache-2.0
#include "common/plan/stages.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "common/error.h"
#include "common/plan/load.h"

namespace mm::plan {
namespace {

constexpr size_t most_stages = 4096;
constexpr double slowest = 1e-6, fastest = 1e6;

// A positive number of sane size from the beginning of `text`, and the separator after it.
bool take_speed(std::string_view& text, char separator, double& out) {
  const size_t end = std::min(text.find(separator), text.size());
  const auto [at, error] = std::from_chars(text.data(), text.data() + end, out);
  const bool good = error == std::errc() && at == text.data() + end && out >= slowest && out <= fastest;
  text.remove_prefix(std::min(end + 1, text.size()));
  return good;
}

}  // namespace

std::string format_stage_speeds(const std::vector<StageSpeed>& speeds) {
  std::string out;
  for (const StageSpeed& s : speeds) out += fmt::format("{}{:g}:{:g}", out.empty() ? "" : ",", s.pictures, s.text);
  return out;
}

std::vector<StageSpeed> parse_stage_speeds(std::string_view text) {
  std::vector<StageSpeed> out;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    std::string_view item = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    StageSpeed s;
    if (!take_speed(item, ':', s.pictures) || !take_speed(item, ':', s.text) || !item.empty() || out.size() == most_stages) return {};
    out.push_back(s);
  }
  return out;
}

ExtraWork extra_work(const Model& m, const Batch& batch, const Parallelism& p) {
  Load middle = load_of(m, batch, p, 0);
  middle.first = middle.last = middle.tower = false;
  middle.layers = 1;
  const double layer = stage_work(m, p, middle).total();
  if (layer <= 0) return {};
  ExtraWork out;
  if (m.has_vision()) {
    Load tower = load_of(m, batch, p, p.encoder_ranks() > 0 ? p.mesh.pp : 0);
    tower.last = false;
    tower.layers = 0;
    out.pictures = stage_work(m, p, tower).total() / layer;
  }
  Load last = middle;
  last.last = true;
  out.head = stage_work(m, p, last).total() / layer - 1;
  return out;
}

std::vector<int> sized_stages(int layers, const ExtraWork& extra, const std::vector<StageSpeed>& speeds, bool tower_on_first, int chunks) {
  if (std::all_of(speeds.begin(), speeds.end(), [&](const StageSpeed& s) { return s == speeds.front(); })) return {};
  std::vector<double> speed, more(speeds.size(), 0);
  for (const StageSpeed& s : speeds) speed.push_back(s.text);
  if (tower_on_first) more.front() = extra.pictures * speeds.front().text / speeds.front().pictures;
  more.back() += extra.head;
  return layers_of_stages(layers, speed, more, chunks);
}

std::vector<int> layers_of_stages(int layers, const std::vector<double>& speed, const std::vector<double>& extra, int least) {
  const size_t stages = speed.size();
  if (stages == 0 || layers < static_cast<int>(stages) * least)
    throw usage_error(fmt::format("{} layers for {} pipeline stages of {} or more", layers, stages, least));
  std::vector<int> out(stages, least);
  // The next layer goes where the stage is done first with it.
  for (int left = layers - static_cast<int>(stages) * least; left > 0; --left) {
    size_t best = 0;
    const auto seconds = [&](size_t s) { return (out[s] + 1 + (s < extra.size() ? extra[s] : 0)) / speed[s]; };
    for (size_t s = 1; s < stages; ++s)
      if (seconds(s) < seconds(best) * (1 - 1e-12)) best = s;
    ++out[best];
  }
  return out;
}

}  // namespace mm::plan
