// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "checkpoint/export.h"
#include "checkpoint/tool/verbs.h"

namespace mm::checkpoint::tool {

int export_to(const Target& target, const std::string& folder, uint64_t shard_bytes, bool json) {
  const StepInfo s = choose(target);
  StepReader reader(s.path, s.step);
  uint64_t total = 0;
  for (const auto& [key, t] : reader.tensors()) {
    if (key.second == "param") total += static_cast<uint64_t>(elements(t.global_shape)) * size_of(t.dtype);
  }
  Exported done;
  {
    Progress progress("export", total, json);
    done = export_safetensors(reader, folder, shard_bytes, [&](uint64_t n) { progress.add(n); });
  }
  if (!done.config) fmt::print(stderr, "mm-ckpt: {}: it has no fact model_config, so no config.json is written\n", s.path);
  if (json) {
    const nlohmann::json j = {{"step", s.step},      {"folder", folder},    {"tensors", done.tensors},
                              {"files", done.files}, {"bytes", done.bytes}, {"config", done.config}};
    fmt::print("{}\n", j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    fmt::print("step {}: {} tensors, {} in {} of {}\n", s.step, done.tensors, text_of_bytes(done.bytes),
               done.files == 1 ? "model.safetensors" : fmt::format("{} shards", done.files), folder);
  }
  return exit_status::ok;
}

}  // namespace mm::checkpoint::tool
