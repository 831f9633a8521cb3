// SPDX-License-Identifier: Apache-2.0
// import and reshard: a step of tensors that come from elsewhere.
#include "checkpoint/repack.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/tool/verbs.h"

namespace mm::checkpoint::tool {
namespace {

void report(int64_t step, const std::string& run, const Repacked& done, bool json) {
  if (json) {
    const nlohmann::json j = {
        {"step", step}, {"run", run}, {"tensors", done.tensors}, {"bytes", done.bytes}, {"stored", done.stored}, {"files", done.files}};
    fmt::print("{}\n", j.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  } else {
    const std::string compressed = done.stored == done.bytes ? "" : fmt::format(", compressed to {}", text_of_bytes(done.stored));
    fmt::print("step {}: {} tensors, {}{} in {} files of {}\n", step, done.tensors, text_of_bytes(done.bytes), compressed, done.files, run);
  }
}

}  // namespace

int import_from(const std::string& folder, const std::string& run, int64_t step, const Packing& packing, bool json) {
  Repacked done;
  {
    Progress progress("import", 0, json);
    done = import_safetensors(folder, run, step, packing, [&](uint64_t n) { progress.add(n); });
  }
  report(step, run, done, json);
  return exit_status::ok;
}

int reshard_to(const Target& target, const std::string& run, const Packing& packing, bool json) {
  const StepInfo s = choose(target);
  StepReader reader(s.path, s.step);
  Repacked done;
  {
    Progress progress("reshard", reader.manifest().payload(), json);
    done = reshard(reader, run, packing, [&](uint64_t n) { progress.add(n); });
  }
  report(s.step, run, done, json);
  return exit_status::ok;
}

}  // namespace mm::checkpoint::tool
