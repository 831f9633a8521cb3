// SPDX-License-Identifier: Apache-2.0
// The model of a run's newest checkpoint that verifies, for what reads a run without training it.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "checkpoint/checkpoint.h"
#include "trainer/model/config.h"
#include "trainer/model/param.h"

namespace mm::loop {

struct TrainedModel {
  int64_t step = 0;
  checkpoint::Facts facts;
  model::VlmConfig config;
  std::variant<std::unique_ptr<model::ParamStore<float>>, std::unique_ptr<model::ParamStore<double>>> params;
};

// Throws a usage Error where RUN holds no checkpoint, or one whose model is not that of RUN/config.json; a data Error where
// none loads.
TrainedModel load_trained(const std::string& run);
// How its samples were made, by what its checkpoint says of tokenizer and pictures; nothing random.
data::SequenceRule trained_rule(const TrainedModel& model, int64_t max_length);

}  // namespace mm::loop
