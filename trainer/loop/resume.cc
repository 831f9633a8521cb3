// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/resume.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/files.h"
#include "common/version.h"

namespace mm::loop {
namespace {

using Json = nlohmann::json;

std::string fact(const checkpoint::Facts& facts, const std::string& name) {
  const auto found = facts.find(name);
  return found == facts.end() ? "absent" : found->second;
}

// JSON text in a form that does not depend on blanks and the order of keys.
std::string canonical(const std::string& text) {
  const Json value = Json::parse(text, nullptr, false);
  return value.is_discarded() ? text : value.dump();
}

// Of the tokenizer's file; empty where it has none, or has gone.
std::string tokenizer_hash(const Job& job) {
  if (job.data.tokenizer == "bytes" || !std::filesystem::is_regular_file(job.data.tokenizer)) return "";
  const std::string bytes = read_file(job.data.tokenizer);
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

// How pictures are read and changed; empty: as by default.
std::string picture_text(const Job& job) {
  const auto text = [](const auto& data) {
    const auto& a = data.augment;
    return Json({data.background, data.jpeg, a.crop, a.ratio, {a.flip, a.brightness, a.contrast, a.saturation, a.hue}}).dump();
  };
  const std::string now = text(job.data);
  return now == text(Job().data) ? "" : now;
}

// The last bits of sums may differ from one type to another.
std::string cpu_type() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

checkpoint::Facts facts_of(const Setup& setup, const std::string& stream, int64_t step) {
  const Job& job = setup.job;
  checkpoint::Facts facts = {
      {"step", Json(step).dump()},
      {"position", Json(step * job.data.global_batch).dump()},
      {"seed", Json(job.run.seed).dump()},
      {"stream", Json(stream).dump()},
      {"data", Json({{"shards", job.data.shards},
                     {"mix", job.data.mix},
                     {"shuffle", job.data.shuffle},
                     {"shuffle_window", job.data.shuffle_window},
                     {"global_batch", job.data.global_batch},
                     {"max_length", job.data.max_length},
                     {"pictures", picture_text(job)}})
                   .dump()},
      {"tokenizer", Json(job.data.tokenizer).dump()},
      {"tokenizer_hash", Json(tokenizer_hash(job)).dump()},
      {"model_path", Json(job.model.path).dump()},
      {"layout", Json({{"tp", setup.layout.tp},
                       {"cp", setup.layout.cp},
                       {"dp", setup.layout.dp},
                       {"pp", setup.layout.pp},
                       {"encoder_tp", setup.encoder.tp},
                       {"encoder_dp", setup.encoder.dp},
                       {"zero", job.parallel.zero}})
                     .dump()},
      {"dtype", Json(job.parallel.dtype).dump()},
      {"model_config", setup.config_text},
      {"optim", Json({{"lr", job.optim.lr},
                      {"min_lr_ratio", job.optim.min_lr_ratio},
                      {"warmup", job.optim.warmup},
                      {"weight_decay", job.optim.weight_decay},
                      {"betas", job.optim.betas},
                      {"eps", job.optim.eps},
                      {"clip", job.optim.clip},
                      {"z_loss", job.optim.z_loss},
                      {"label_smoothing", job.optim.label_smoothing},
                      {"lr_scale", job.optim.lr_scale}})
                    .dump()},
      {"freeze", Json(job.model.freeze).dump()},
      {"steps", Json(job.run.steps).dump()},
      {"cpu", Json(cpu_type()).dump()},
      {"version", Json(version()).dump()},
  };
  if (!setup.preprocessor_text.empty()) facts["preprocessor_config"] = setup.preprocessor_text;
  return facts;
}

void check_facts(const checkpoint::Facts& facts, const Setup& setup, const std::string& stream, bool allow_data_change) {
  const checkpoint::Facts now = facts_of(setup, stream, 0);
  const std::string& run = setup.job.run.dir;
  if (fact(facts, "dtype") != now.at("dtype"))
    throw usage_error(
        fmt::format("{}: its checkpoint has dtype {} and the job asks for {}", run, fact(facts, "dtype"), now.at("dtype")));
  for (const char* name : {"model_config", "preprocessor_config"})
    if (canonical(fact(facts, name)) != canonical(fact(now, name)))
      throw usage_error(
          fmt::format("{}: its checkpoint is of another model: {} differs from that in {}", run, name, setup.job.model.path));
  if (allow_data_change) return;
  const auto changed = [&](const std::string& what, const std::string& before, const std::string& after) {
    throw usage_error(
        fmt::format("{}: {} was {} when its checkpoint was made and is {} now; --allow-data-change continues all the same", run,
                    what, before, after));
  };
  const Json before = Json::parse(fact(facts, "data"), nullptr, false), after = Json::parse(now.at("data"));
  for (const char* key : {"mix", "shuffle", "shuffle_window", "global_batch", "max_length"}) {
    if (before.is_object() && !before.contains(key)) continue;  // made before there was a choice
    const std::string was = before.is_object() && before.contains(key) ? before[key].dump() : "absent";
    if (was != after[key].dump()) changed(fmt::format("data.{}", key), was, after[key].dump());
  }
  if (before.is_object() && before.value("pictures", "") != after["pictures"])
    changed("the reading of pictures", before.value("pictures", ""), after["pictures"].get<std::string>());
  for (const char* name : {"seed", "tokenizer", "stream"})
    if (fact(facts, name) != now.at(name))
      changed(name == std::string("stream") ? "the data set" : name, fact(facts, name), now.at(name));
  if (const std::string was = fact(facts, "tokenizer_hash"); was != "absent" && was != now.at("tokenizer_hash"))
    changed("the content of " + setup.job.data.tokenizer, was, now.at("tokenizer_hash"));
}

std::vector<std::string> differences(const checkpoint::Facts& facts, const Setup& setup) {
  const checkpoint::Facts now = facts_of(setup, "", 0);
  std::vector<std::string> out;
  for (const char* name : {"layout", "optim", "freeze", "steps", "cpu", "version"}) {
    const auto before = facts.find(name);
    if (before == facts.end() || before->second == now.at(name)) continue;
    const Json was = Json::parse(before->second, nullptr, false), is = Json::parse(now.at(name));
    if (!was.is_object()) {
      out.push_back(fmt::format("{} was {} and is {} now", name, before->second, now.at(name)));
      continue;
    }
    for (const auto& [key, value] : is.items()) {
      const Json old = was.contains(key) ? was[key] : Json();
      if (old != value) out.push_back(fmt::format("{}.{} was {} and is {} now", name, key, old.dump(), value.dump()));
    }
  }
  return out;
}

}  // namespace mm::loop
