// SPDX-License-Identifier: Apache-2.0
#include "trainer/interop/load_params.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "common/error.h"
#include "trainer/interop/safetensors.h"

namespace mm::interop {
namespace {

bool is_buffer(const std::string& name) {
  return name.ends_with(".position_ids") || name.ends_with(".inv_freq");
}

}  // namespace

template <class T>
void load_params(const std::string& folder, const std::vector<model::ParamSpec>& specs, model::ParamStore<T>& store) {
  const ModelFolder files(folder);
  std::vector<T> whole;
  for (const model::ParamSpec& spec : specs) {
    const auto found = files.tensors().find(spec.name);
    if (found == files.tensors().end()) throw usage_error(fmt::format("{}: tensor {} is missing", folder, spec.name));
    const Safetensors& file = *found->second;
    const std::vector<int64_t>& shape = file.tensors().at(spec.name).shape;
    if (shape != spec.shape)
      throw usage_error(
          fmt::format("{}: tensor {} has shape {} and config.json asks for {}", file.path(), spec.name, shape, spec.shape));
    if (!store.has(spec.name)) continue;
    const size_t i = store.index(spec.name);
    if (store.local()[i].size == spec.size()) {
      file.read(spec.name, store.value(i));
    } else {
      whole.resize(static_cast<size_t>(spec.size()));
      file.read(spec.name, whole.data());
      model::take_slice(spec, store.local()[i], whole.data(), store.value(i));
    }
  }
  for (const auto& [name, file] : files.tensors()) {
    if (std::ranges::find(specs, name, &model::ParamSpec::name) == specs.end() && !is_buffer(name))
      throw usage_error(fmt::format("{}: tensor {} is none of the model that config.json describes", file->path(), name));
  }
}

template void load_params<float>(const std::string&, const std::vector<model::ParamSpec>&, model::ParamStore<float>&);
template void load_params<double>(const std::string&, const std::vector<model::ParamSpec>&, model::ParamStore<double>&);

}  // namespace mm::interop
