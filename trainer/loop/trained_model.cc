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

data::SequenceRule trained_rule(const TrainedModel& model, int64_t max_length) {
  using Json = nlohmann::json;
  const auto fact = [&](const char* name) {
    const auto found = model.facts.find(name);
    return found == model.facts.end() ? Json() : Json::parse(found->second, nullptr, false);
  };
  const auto text = [](const Json& json, const char* otherwise) { return json.is_string() ? json.get<std::string>() : otherwise; };
  data::SequenceRule rule = model.config.sequence_rule(max_length);
  rule.tokenizer = data::open_tokenizer(text(fact("tokenizer"), "bytes"), text(fact("model_path"), ""));
  const Json data = fact("data");
  if (const std::string pictures = data.is_object() ? data.value("pictures", "") : ""; !pictures.empty()) {
    const Json list = Json::parse(pictures);  // as picture_text in resume.cc writes it
    for (size_t k = 0; k < 3; ++k) rule.background[k] = static_cast<uint8_t>(list.at(0).at(k).get<double>());
    rule.fast_jpeg = list.at(1) == "fast";
  }
  return rule;
}

}  // namespace mm::loop
