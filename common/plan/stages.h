// SPDX-License-Identifier: Apache-2.0
// Pipeline stages on nodes of different speed: how many decoder layers each gets.
//
// A stage is as fast as its slowest node. Work on text goes at the node's speed for text (memory bandwidth), work on pictures
// at that for pictures (operations). Stages of one speed have layers as evenly as it goes, whatever else they do.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "common/plan/plan.h"

namespace mm::plan {

// Relative to the other stages.
struct StageSpeed {
  double pictures = 1, text = 1;
  bool operator==(const StageSpeed&) const = default;
};

// "1:1,0.5:0.8", a stage each, as the plugin tells ranks in MM_STAGE_SPEEDS. Nothing where the text is malformed.
std::string format_stage_speeds(const std::vector<StageSpeed>& speeds);
std::vector<StageSpeed> parse_stage_speeds(std::string_view text);

// What stages do besides layers, counted in layers: the vision tower and its projector on the first stage (or on each of the
// encoder's own ranks), and on the last one the head, less what its last layer saves.
struct ExtraWork {
  double pictures = 0, head = 0;
};
ExtraWork extra_work(const Model& model, const Batch& batch, const Parallelism& parallelism);

// Layers of each of the stages that have `speeds`; none where all are alike, so that they are dealt evenly. At least `chunks`
// of each. Throws a usage Error where there are fewer layers than that.
std::vector<int> sized_stages(int layers, const ExtraWork& extra, const std::vector<StageSpeed>& speeds, bool tower_on_first,
                              int chunks = 1);

// Layers of each stage so that the slowest is done as early as can be: `speed` of each, `extra` work of it in layers.
std::vector<int> layers_of_stages(int layers, const std::vector<double>& speed, const std::vector<double>& extra, int least = 1);

}  // namespace mm::plan
