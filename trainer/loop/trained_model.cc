// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/trained_model.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/files.h"
#include "common/log.h"
#include "trainer/data/tokenizer/tokenizer.h"
#include "trainer/loop/tensors.h"
#include "trainer/model/vlm.h"

namespace mm::loop {
namespace {

template <class T>
std::vector<checkpoint::View> param_views(TrainedModel& model) {
  auto& store = model.params.emplace<std::unique_ptr<model::ParamStore<T>>>(
      std::make_unique<model::ParamStore<T>>(model::param_specs(model.config)));
  std::vector<checkpoint::View> views;
  for (const model::Run& run : store->runs()) add_views(*store, run, {0, run.size}, "param", store->values() + run.value_at, views);
  return views;
}

void check_config(const std::string& run, const checkpoint::Facts& facts) {
  const std::string path = run + "/config.json";
  const auto saved = facts.find("model_config");
  using Json = nlohmann::json;
  if (saved == facts.end() || Json::parse(saved->second, nullptr, false) != Json::parse(read_file(path), nullptr, false))
    throw usage_error(path + ": not the model of the run's checkpoint");
}

}  // namespace

TrainedModel load_trained(const std::string& run) {
  TrainedModel model;
  checkpoint::RunFolder folder(run, false);
  checkpoint::SelfGroup self;
  const auto loaded = folder.load_newest(self, [&](int64_t, const checkpoint::Facts& facts) {
    check_config(run, facts);
    model.config = model::load_config(run);
    const auto dtype = facts.find("dtype");
    return dtype != facts.end() && dtype->second == "\"float64\"" ? param_views<double>(model) : param_views<float>(model);
  });
  if (!loaded) throw usage_error(run + ": there is no checkpoint");
  for (const std::string& skipped : loaded->skipped) log::warn("checkpoint not used: {}", skipped);
  model.step = loaded->step;
  model.facts = loaded->facts;
  return model;
}

std::shared_ptr<const data::Tokenizer> trained_tokenizer(const TrainedModel& model) {
  const auto fact = [&](const char* name, const std::string& otherwise) {
    const auto found = model.facts.find(name);
    const auto json = found == model.facts.end() ? nlohmann::json() : nlohmann::json::parse(found->second, nullptr, false);
    return json.is_string() ? json.get<std::string>() : otherwise;
  };
  return data::open_tokenizer(fact("tokenizer", "bytes"), fact("model_path", ""));
}

}  // namespace mm::loop
