// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/param.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <stdexcept>
#include <tuple>

#include "common/error.h"

namespace mm::model {
namespace {

uint64_t mix(uint64_t x) {  // the finaliser of SplitMix64 (Steele, Lea, Flood 2014)
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t key_of(uint64_t seed, const std::string& name) {
  uint64_t key = mix(seed);
  for (unsigned char c : name) key = mix(key ^ c);
  return key;
}

// Element `index` of a stream of standard normal numbers (Box and Muller).
double normal(uint64_t key, uint64_t index) {
  const double u = (static_cast<double>(mix(key + 2 * index) >> 11) + 1) * 0x1p-53;  // (0, 1]
  const double v = static_cast<double>(mix(key + 2 * index + 1) >> 11) * 0x1p-53;
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

int64_t fan_in(const ParamSpec& spec) {
  return spec.shape.size() > 1 ? spec.size() / spec.shape[0] : spec.size();
}

}  // namespace

int64_t ParamSpec::size() const {
  int64_t n = 1;
  for (int64_t extent : shape) n *= extent;
  return n;
}

std::vector<int64_t> slice_bounds(const ParamSpec& spec, int tp) {
  if (tp == 1 || spec.cut.axis < 0) return {};
  const int64_t each = spec.cut.parts / tp, longer = spec.cut.parts % tp;
  const int64_t grain = spec.shape[static_cast<size_t>(spec.cut.axis)] * spec.cut.group / spec.cut.parts;
  std::vector<int64_t> bounds;
  for (int64_t r = 0; r <= tp; ++r) {
    const int64_t part = r * each + std::min<int64_t>(r, longer);
    if (part % spec.cut.group != 0) return {};
    bounds.push_back(part / spec.cut.group * grain);
  }
  return bounds;
}

namespace {

LocalParam local_of(const ParamSpec& spec, const std::vector<int64_t>& bounds, int tp_rank) {
  LocalParam local;
  local.offset.assign(spec.shape.size(), 0);
  local.shape = spec.shape;
  if (!bounds.empty()) {
    const size_t axis = static_cast<size_t>(spec.cut.axis), r = static_cast<size_t>(tp_rank);
    local.offset[axis] = bounds[r];
    local.shape[axis] = bounds[r + 1] - bounds[r];
  }
  local.size = 1;
  for (int64_t extent : local.shape) local.size *= extent;
  return local;
}

template <class T>
int64_t whole_pages(int64_t elements) {
  constexpr auto per_page = static_cast<int64_t>(tensor::Region::page_bytes / sizeof(T));
  return (elements + per_page - 1) / per_page * per_page;
}

}  // namespace

template <class T>
ParamStore<T>::ParamStore(std::vector<ParamSpec> specs, const Placement& placement) {
  std::ranges::sort(specs, {}, &ParamSpec::name);
  std::map<std::tuple<std::string, Holders, bool>, Run> runs;
  for (ParamSpec& spec : specs) {
    const Placement::Unit unit = placement.of(spec.unit);
    if (!unit.held) continue;
    const std::vector<int64_t> bounds = unit.cut ? slice_bounds(spec, placement.tp) : std::vector<int64_t>();
    const bool sliced = !bounds.empty() || placement.tp == 1;
    const Holders holders = unit.tied ? Holders::tied : sliced ? Holders::data : Holders::stage;
    Run& run = runs[{spec.unit, holders, spec.trained()}];
    run.unit = spec.unit;
    run.holders = holders;
    run.trained = spec.trained();
    run.params.push_back(specs_.size());
    local_.push_back(local_of(spec, bounds, placement.tp_rank));
    run.size += local_.back().size;
    specs_.push_back(std::move(spec));
  }
  int64_t value_end = 0, gradient_end = 0;
  for (auto& [key, run] : runs) {
    run.value_at = value_end;
    value_end += whole_pages<T>(run.size);
    if (run.trained) {
      run.gradient_at = gradient_end;
      gradient_end += whole_pages<T>(run.size);
    }
    int64_t at = 0;
    for (size_t i : run.params) {
      local_[i].value_at = run.value_at + at;
      if (run.trained) local_[i].gradient_at = run.gradient_at + at;
      at += local_[i].size;
    }
    runs_.push_back(std::move(run));
  }
  value_block_ = tensor::Region(static_cast<size_t>(value_end) * sizeof(T));
  gradient_block_ = tensor::Region(static_cast<size_t>(gradient_end) * sizeof(T));
}

template <class T>
bool ParamStore<T>::has(std::string_view name) const {
  return std::ranges::binary_search(specs_, name, {}, &ParamSpec::name);
}

template <class T>
size_t ParamStore<T>::index(std::string_view name) const {
  const auto at = std::ranges::lower_bound(specs_, name, {}, &ParamSpec::name);
  if (at == specs_.end() || at->name != name) throw std::out_of_range("model: no parameter is named " + std::string(name));
  return static_cast<size_t>(at - specs_.begin());
}

template <class T>
void ParamStore<T>::zero_gradients() {
  std::fill_n(gradients(), gradient_elements(), T(0));
}

template <class T>
void ParamStore<T>::release_values(const Run& run) {
  const auto begin = static_cast<size_t>(run.value_at) * sizeof(T);
  value_block_.release(begin, begin + static_cast<size_t>(whole_pages<T>(run.size)) * sizeof(T));
}

template <class T>
void ParamStore<T>::release_gradients(const Run& run) {
  const auto begin = static_cast<size_t>(run.gradient_at) * sizeof(T);
  gradient_block_.release(begin, begin + static_cast<size_t>(whole_pages<T>(run.size)) * sizeof(T));
}

namespace {

// Calls change(spec) for those that the pattern matches; throws where it matches none.
template <class Change>
void for_matches(std::vector<ParamSpec>& specs, const std::string& key, const std::string& pattern, const Change& change) {
  bool matched = false;
  for (ParamSpec& spec : specs) {
    if (fnmatch(pattern.c_str(), spec.name.c_str(), 0) != 0) continue;
    change(spec);
    matched = true;
  }
  if (!matched) throw usage_error(key + ": " + pattern + ": matches no parameter of the model");
}

}  // namespace

void freeze(std::vector<ParamSpec>& specs, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns)
    for_matches(specs, "model.freeze", pattern, [](ParamSpec& spec) { spec.frozen = true; });
}

void scale_learning_rates(std::vector<ParamSpec>& specs, const std::map<std::string, double>& factors) {
  for (const auto& [pattern, factor] : factors)
    for_matches(specs, "optim.lr_scale", pattern, [factor = factor](ParamSpec& spec) { spec.lr_scale *= factor; });
}

namespace {

// visit(first element in the whole, first in the slice, elements) for pieces that are contiguous in both.
template <class Visit>
void for_slice(const ParamSpec& spec, const LocalParam& local, const Visit& visit) {
  size_t last = spec.shape.size();
  while (last > 0 && local.shape[last - 1] == spec.shape[last - 1]) --last;
  int64_t inner = 1;
  for (size_t d = last; d < spec.shape.size(); ++d) inner *= spec.shape[d];
  if (last == 0) return visit(int64_t{0}, int64_t{0}, spec.size());
  const int64_t width = local.shape[last - 1] * inner, pitch = spec.shape[last - 1] * inner;
  const int64_t lead = local.offset[last - 1] * inner;
  if (width == 0) return;
  for (int64_t row = 0; row < local.size / width; ++row) visit(row * pitch + lead, row * width, width);
}

}  // namespace

template <class T>
void take_slice(const ParamSpec& spec, const LocalParam& local, const T* whole, T* slice) {
  for_slice(spec, local, [&](int64_t from, int64_t to, int64_t n) { std::copy_n(whole + from, n, slice + to); });
}

template <class T>
void initialise(ParamStore<T>& store, uint64_t seed) {
  using Init = ParamSpec::Init;
  for (size_t i = 0; i < store.specs().size(); ++i) {
    const ParamSpec& spec = store.specs()[i];
    T* values = store.value(i);
    if (spec.init != Init::normal) {
      std::fill_n(values, store.local()[i].size,
                  static_cast<T>(spec.init == Init::value ? spec.init_value : spec.init == Init::ones ? 1.0 : 0.0));
      continue;
    }
    const uint64_t key = key_of(seed, spec.name);
    const double deviation = 1 / std::sqrt(static_cast<double>(fan_in(spec)));
    for_slice(spec, store.local()[i], [&](int64_t from, int64_t to, int64_t n) {
      for (int64_t j = 0; j < n; ++j) values[to + j] = static_cast<T>(deviation * normal(key, static_cast<uint64_t>(from + j)));
    });
  }
}

template class ParamStore<float>;
template class ParamStore<double>;
template void take_slice(const ParamSpec&, const LocalParam&, const float*, float*);
template void take_slice(const ParamSpec&, const LocalParam&, const double*, double*);
template void initialise(ParamStore<float>&, uint64_t);
template void initialise(ParamStore<double>&, uint64_t);

}  // namespace mm::model
