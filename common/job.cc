// SPDX-License-Identifier: Apache-2.0
#include "common/job.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "common/error.h"
#include "common/files.h"
#include "common/smaller_layouts.h"
#include "common/toml_schema.h"

namespace mm {
namespace {

std::vector<TomlKey> keys_of(Job& job) {
  constexpr double many = 1e15;
  const std::monostate planned;
  return {
      {"run.dir", &job.run.dir},
      {"run.steps", &job.run.steps, 1, many},
      {"run.seed", &job.run.seed, -many, many},
      {"model.path", &job.model.path},
      {"model.init", &job.model.init, 0, 0, {"load", "random"}},
      {"model.freeze", &job.model.freeze},
      {"model.lora", planned},
      {"model.ema", planned},
      {"data.shards", &job.data.shards},
      {"data.tokenizer", &job.data.tokenizer},
      {"data.shuffle", &job.data.shuffle},
      {"data.global_batch", &job.data.global_batch, 1, 1 << 24},
      {"data.threads", &job.data.threads, 0, 1024},
      {"data.max_length", &job.data.max_length, 1, 1 << 24},
      {"data.pack", &job.data.pack},
      {"data.balance", &job.data.balance},
      {"data.background", &job.data.background, -0.0, 255},
      {"data.jpeg", &job.data.jpeg, 0, 0, {"exact", "fast"}},
      {"data.augment.crop", &job.data.augment.crop, 1e-6, 1},
      {"data.augment.ratio", &job.data.augment.ratio, 1e-3, 1e3},
      {"data.augment.flip", &job.data.augment.flip, -0.0, 1},
      {"data.augment.brightness", &job.data.augment.brightness, -0.0, 10},
      {"data.augment.contrast", &job.data.augment.contrast, -0.0, 10},
      {"data.augment.saturation", &job.data.augment.saturation, -0.0, 10},
      {"data.augment.hue", &job.data.augment.hue, -0.0, 0.5},
      {"data.mix", &job.data.mix, 0, 1e300},
      {"data.index", &job.data.index},
      {"data.version", &job.data.version},
      {"data.shuffle_window", &job.data.shuffle_window, 0, many},
      {"data.max_bad_percent", &job.data.max_bad_percent, 0, 100},
      {"data.cache.memory", &job.data.cache.memory, 0, 1e6},
      {"data.cache.disk", &job.data.cache.disk, 0, 1e6},
      {"data.cache.folder", &job.data.cache.folder},
      {"data.cache.encrypt", &job.data.cache.encrypt},
      {"parallel.tp", &job.parallel.tp, 1, 65536},
      {"parallel.pp", &job.parallel.pp, 1, 65536},
      {"parallel.cp", &job.parallel.cp, 1, 65536},
      {"parallel.zero", &job.parallel.zero, 0, 3},
      {"parallel.micro_batch", &job.parallel.micro_batch, 1, 1 << 24},
      {"parallel.backend", &job.parallel.backend, 0, 0, {"auto", "cpu", "cuda"}},
      {"parallel.dtype", &job.parallel.dtype, 0, 0, {"float64", "float32", "bfloat16"}},
      {"parallel.threads", &job.parallel.threads, 0, 1024},
      {"parallel.schedule", &job.parallel.schedule, 0, 0, {"auto", "1f1b", "interleaved", "gpipe"}},
      {"parallel.virtual", &job.parallel.virtual_stages, 1, 1024},
      {"parallel.encoder", [&job](const std::string&) { job.parallel.encoder_tp = job.parallel.encoder_dp = 0; }, 0, 0, {"colocated"}},
      {"parallel.encoder.tp", &job.parallel.encoder_tp, 1, 65536},
      {"parallel.encoder.dp", &job.parallel.encoder_dp, 1, 65536},
      {"parallel.stages", &job.parallel.stages, 1, 1 << 20, {"auto"}},
      {"parallel.recompute", &job.parallel.recompute, 0, 0, {"none", "full"}},
      {"optim.lr", &job.optim.lr, 1e-300, 1e6},
      {"optim.min_lr_ratio", &job.optim.min_lr_ratio, -0.0, 1},
      {"optim.warmup", &job.optim.warmup, 0, many},
      {"optim.weight_decay", &job.optim.weight_decay, 0, 1e6},
      {"optim.betas", &job.optim.betas, 0, 1},
      {"optim.eps", &job.optim.eps, 1e-300, 1},
      {"optim.clip", &job.optim.clip, 0, 1e300},
      {"optim.z_loss", &job.optim.z_loss, 0, 1e6},
      {"optim.label_smoothing", &job.optim.label_smoothing, 0, 1},
      {"optim.lr_scale", &job.optim.lr_scale, 0, 1e6},
      {"optim.skip_nonfinite", &job.optim.skip_nonfinite},
      {"checkpoint.every", &job.checkpoint.every},
      {"checkpoint.keep", &job.checkpoint.keep, 2, 1 << 20},
      {"checkpoint.tiers", &job.checkpoint.tiers, 0, 0, {"memory", "node", "peer", "shared"}},
      {"checkpoint.shared_every", &job.checkpoint.shared_every, 0, many},
      {"checkpoint.compress", &job.checkpoint.compress, 0, 0, {"off", "auto", "on"}},
      {"checkpoint.node_folder", &job.checkpoint.node_folder},
      {"checkpoint.node_mtbf", &job.checkpoint.node_mtbf, 1e-6, 1e9},
      {"recovery.spares", &job.recovery.spares, 0, 65536},
      {"recovery.max_restarts", &job.recovery.max_restarts, 0, 1 << 20},
      {"recovery.hang_timeout", &job.recovery.hang_timeout},
      {"recovery.requeue", &job.recovery.requeue, 0, 0, {"auto", "off"}},
      {"recovery.layouts", &job.recovery.layouts},
      {"log.every", &job.log.every, 1, many},
      {"log.tensorboard", &job.log.tensorboard},
  };
}

void check_tokenizer(const Job& job) {
  const std::string& name = job.data.tokenizer;
  if (name != "bytes" && !name.ends_with(".json") && !name.ends_with(".model"))
    throw usage_error(fmt::format("{}: data.tokenizer = \"{}\" is neither \"bytes\" nor a tokenizer.json (*.json) nor a sentencepiece "
                                  "model (*.model)", job.file, name));
}

void check_pictures(const Job& job) {
  const auto& data = job.data;
  const auto refuse = [&](const char* what) { throw usage_error(fmt::format("{}: data.{}", job.file, what)); };
  if (data.background.size() != 3) refuse("background must be three numbers: red, green, blue");
  for (const double v : data.background)
    if (v != std::floor(v)) refuse("background must be whole numbers");
  const auto range = [](const std::vector<double>& v) { return v.size() == 2 && v[0] <= v[1]; };
  if (!data.augment.crop.empty() && !range(data.augment.crop)) refuse("augment.crop must be the least and the most of the area");
  if (!range(data.augment.ratio)) refuse("augment.ratio must be the least and the most of width / height");
}

void check_tiers(const Job& job) {
  if (has_tier(job, "peer") && !has_tier(job, "node"))
    throw usage_error(job.file + ": checkpoint.tiers: \"peer\" needs \"node\", whose copies it sends");
}

void check_stages(const Job& job) {
  const Pipeline pipe = pipeline(job);
  const std::vector<double>& stages = job.parallel.stages;
  if (!stages.empty() && stages.size() != static_cast<size_t>(job.parallel.pp))
    throw usage_error(fmt::format("{}: parallel.stages has {} numbers for pp = {}", job.file, stages.size(), job.parallel.pp));
  for (const double layers : stages)
    if (layers != std::floor(layers) || layers < pipe.chunks)
      throw usage_error(fmt::format("{}: parallel.stages: {} is no whole number of layers for {} chunk{}", job.file, layers, pipe.chunks,
                                    pipe.chunks == 1 ? "" : "s"));
}

void check(Job& job) {
  // Of the encoder's two numbers one is enough.
  int &tp = job.parallel.encoder_tp, &dp = job.parallel.encoder_dp;
  if (tp + dp > 0) tp = std::max(tp, 1), dp = std::max(dp, 1);
  if (!job.data.pack) throw usage_error(job.file + ": data.pack = false: samples are always packed, and nothing is ever padded");
  save_every(job);
  check_tokenizer(job);
  check_pictures(job);
  check_tiers(job);
  hang_timeout_seconds(job);
  smaller_layouts(job);
  check_stages(job);
  if (job.optim.betas.size() != 2 || job.optim.betas[0] >= 1 || job.optim.betas[1] >= 1)
    throw usage_error(fmt::format("{}: optim.betas must be two numbers below 1", job.file));
  if (job.optim.label_smoothing >= 1) throw usage_error(job.file + ": optim.label_smoothing = 1 leaves nothing of the label");
}

// "12 min" -> 12 and "min"; throws where it does not start with a positive number.
std::pair<double, std::string_view> number_and_unit(const std::string& text, const std::string& where) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !(value > 0)) throw usage_error(fmt::format("{} = \"{}\" does not start with a positive number", where, text));
  std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  return {value, unit};
}

bool is_regular_file(const std::string& path) {
  struct stat s;
  return ::stat(path.c_str(), &s) == 0 && S_ISREG(s.st_mode);
}

}  // namespace

SaveEvery save_every(const Job& job) {
  const std::string where = job.file + ": checkpoint.every";
  SaveEvery every;
  every.automatic = job.checkpoint.every == "auto";
  if (every.automatic) return every;
  const auto [value, unit] = number_and_unit(job.checkpoint.every, where);
  if (unit.empty() || unit == "steps" || unit == "step") {
    if (value != static_cast<double>(static_cast<int64_t>(value))) throw usage_error(where + ": not a whole number of steps");
    every.steps = static_cast<int64_t>(value);
  } else if (unit == "epochs" || unit == "epoch") every.epochs = value;
  else if (unit == "min" || unit == "minutes") every.minutes = value;
  else throw usage_error(fmt::format("{}: unknown unit \"{}\"; known: steps, epochs, min", where, unit));
  return every;
}

bool has_tier(const Job& job, std::string_view tier) {
  const auto& tiers = job.checkpoint.tiers;
  return std::find(tiers.begin(), tiers.end(), tier) != tiers.end();
}

double hang_timeout_seconds(const Job& job) {
  if (job.recovery.hang_timeout == "auto") return 0;
  const std::string where = job.file + ": recovery.hang_timeout";
  const auto [value, unit] = number_and_unit(job.recovery.hang_timeout, where);
  if (!unit.empty() && unit != "s") throw usage_error(fmt::format("{}: unknown unit \"{}\"; it is in seconds", where, unit));
  return value;
}

Pipeline pipeline(const Job& job) {
  const auto& p = job.parallel;
  if (p.virtual_stages > 1 && p.schedule != "auto" && p.schedule != "interleaved")
    throw usage_error(fmt::format("{}: parallel.virtual = {} is for parallel.schedule = \"interleaved\", not \"{}\"", job.file,
                                  p.virtual_stages, p.schedule));
  if (p.pp == 1) return {"1f1b", 1};
  const bool interleaved = p.virtual_stages > 1 || (p.schedule == "interleaved" && p.virtual_stages == 0);
  if (interleaved) return {"interleaved", std::max(2, p.virtual_stages)};
  return {p.schedule == "gpipe" ? "gpipe" : "1f1b", 1};
}

std::vector<int> stage_layers(const Job& job) {
  return {job.parallel.stages.begin(), job.parallel.stages.end()};
}

Layout encoder_layout(const Job& job) {
  return {.tp = job.parallel.encoder_tp, .dp = job.parallel.encoder_dp};
}

int encoder_ranks(const Job& job) {
  return encoder_layout(job).world_size();
}

Job load_job(const std::string& path, const std::vector<std::string>& assignments) {
  Job job;
  job.file = path;
  const std::vector<TomlKey> keys = keys_of(job);
  read_toml(read_file(path), path, keys);
  for (const std::string& a : assignments) set_toml_key(a, keys);
  check(job);
  if (job.model.path.empty()) throw usage_error(path + ": model.path is missing");
  if (job.data.shards.empty() && job.data.mix.empty()) throw usage_error(path + ": data.shards is missing");
  if (!job.data.shards.empty() && !job.data.mix.empty()) throw usage_error(path + ": data.shards and data.mix: name the data in one of them");
  return job;
}

Spec parse_spec(const std::string& spec) {
  Spec out;
  out.job.file = "--mm-train";
  if (spec.empty() || spec == "(null)") throw usage_error("--mm-train needs a value: a job file, key=value,..., auto or off");
  if (spec == "off") {
    out.kind = Spec::Kind::off;
  } else if (spec == "auto") {
    out.kind = Spec::Kind::automatic;
  } else if (spec.find('=') != std::string::npos && !is_regular_file(spec)) {
    out.kind = Spec::Kind::values;
    const std::vector<TomlKey> keys = keys_of(out.job);
    for (size_t begin = 0; begin <= spec.size();) {
      size_t comma = begin;
      for (int depth = 0; comma < spec.size() && (depth > 0 || spec[comma] != ','); ++comma)
        depth += spec[comma] == '[' || spec[comma] == '{' ? 1 : spec[comma] == ']' || spec[comma] == '}' ? -1 : 0;
      const std::string item = spec.substr(begin, comma - begin);
      begin = comma + 1;
      const std::string name = item.substr(0, item.find('='));
      std::string full = item;
      if (name.find('.') == std::string::npos)
        for (const char* section : {"parallel.", "recovery."})
          for (const TomlKey& key : keys)
            if (key.name == section + name) full = section + item;
      set_toml_key(full, keys);
    }
    check(out.job);
  } else {
    out.kind = Spec::Kind::file;
    if (!is_regular_file(spec)) throw usage_error(fmt::format("--mm-train={}: no such job file (known words: auto, off)", spec));
    const std::string text = read_file(spec);
    if (text.rfind("#!", 0) == 0)
      throw usage_error(fmt::format("--mm-train={0}: that is a script, not a job file; did you mean --mm-train=auto {0} ?", spec));
    out.job = load_job(spec);
  }
  return out;
}

void refuse_untrainable(const Job& job) {
  const auto refuse = [&](const char* what) { throw usage_error(fmt::format("{}: this version does not support {}", job.file, what)); };
  if (job.parallel.backend == "cuda") refuse("parallel.backend = \"cuda\"");
  if (job.parallel.dtype == "bfloat16") refuse("parallel.dtype = \"bfloat16\"");
}

namespace {

Layout layout_beside(int encoder, const Job& job, int tasks) {
  try {
    return layout_for(job.parallel.tp, job.parallel.cp, job.parallel.pp, tasks - encoder);
  } catch (const Error& e) {
    if (encoder == 0) throw;
    throw usage_error(fmt::format("{}: parallel.encoder takes {} ranks of {}; the rest: {}", job.file, encoder, tasks, e.what()));
  }
}

}  // namespace

Layout job_layout(const Job& job, int tasks) {
  const int encoder = encoder_ranks(job);
  if (encoder >= tasks)
    throw usage_error(fmt::format("{}: parallel.encoder takes {} ranks of {}: none is left for the decoder", job.file, encoder, tasks));
  const Layout layout = layout_beside(encoder, job, tasks);
  if (!(job.data.shards.empty() && job.data.mix.empty()) && job.data.global_batch % layout.dp != 0)
    throw usage_error(fmt::format("{}: dp {} ({} tasks) does not divide data.global_batch {}", job.file, layout.dp, tasks, job.data.global_batch));
  return layout;
}

}  // namespace mm
