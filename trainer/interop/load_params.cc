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
void load_params(const std::string& folder, model::ParamStore<T>& store) {
  const ModelFolder files(folder);
  const std::vector<model::ParamSpec>& specs = store.specs();
  for (size_t i = 0; i < specs.size(); ++i) {
    const std::string& name = specs[i].name;
    const auto found = files.tensors().find(name);
    if (found == files.tensors().end()) throw usage_error(fmt::format("{}: tensor {} is missing", folder, name));
    const Safetensors& file = *found->second;
    const std::vector<int64_t>& shape = file.tensors().at(name).shape;
    if (shape != specs[i].shape)
      throw usage_error(
          fmt::format("{}: tensor {} has shape {} and config.json asks for {}", file.path(), name, shape, specs[i].shape));
    file.read(name, store.value(i));
  }
  for (const auto& [name, file] : files.tensors()) {
    if (!std::ranges::binary_search(specs, name, {}, &model::ParamSpec::name) && !is_buffer(name))
      throw usage_error(fmt::format("{}: tensor {} is none of the model that config.json describes", file->path(), name));
  }
}

template void load_params<float>(const std::string&, model::ParamStore<float>&);
template void load_params<double>(const std::string&, model::ParamStore<double>&);

}  // namespace mm::interop
