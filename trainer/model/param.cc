// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/param.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <numbers>

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

template <class T>
ParamStore<T>::ParamStore(std::vector<ParamSpec> specs) : specs_(std::move(specs)) {
  std::sort(specs_.begin(), specs_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  offsets_.push_back(0);
  for (const ParamSpec& spec : specs_) offsets_.push_back(offsets_.back() + spec.size());
  values_.resize(static_cast<size_t>(size()));
  gradients_.resize(static_cast<size_t>(size()));
}

template <class T>
size_t ParamStore<T>::index(std::string_view name) const {
  const auto at =
      std::lower_bound(specs_.begin(), specs_.end(), name, [](const ParamSpec& s, std::string_view n) { return s.name < n; });
  if (at == specs_.end() || at->name != name) throw std::out_of_range("model: no parameter is named " + std::string(name));
  return static_cast<size_t>(at - specs_.begin());
}

template <class T>
void ParamStore<T>::zero_gradients() {
  std::fill(gradients_.begin(), gradients_.end(), T(0));
}

void freeze(std::vector<ParamSpec>& specs, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    bool matched = false;
    for (ParamSpec& spec : specs) {
      if (fnmatch(pattern.c_str(), spec.name.c_str(), 0) != 0) continue;
      spec.frozen = true;
      matched = true;
    }
    if (!matched) throw usage_error("model.freeze: " + pattern + ": matches no parameter of the model");
  }
}

template <class T>
void initialise(ParamStore<T>& store, uint64_t seed) {
  for (size_t i = 0; i < store.specs().size(); ++i) {
    const ParamSpec& spec = store.specs()[i];
    const uint64_t key = key_of(seed, spec.name);
    const double deviation = 1 / std::sqrt(static_cast<double>(fan_in(spec)));
    T* values = store.value(i);
    for (int64_t j = 0; j < spec.size(); ++j) {
      if (spec.init == ParamSpec::Init::normal) {
        values[j] = static_cast<T>(deviation * normal(key, static_cast<uint64_t>(j)));
      } else {
        values[j] = spec.init == ParamSpec::Init::ones ? T(1) : T(0);
      }
    }
  }
}

template class ParamStore<float>;
template class ParamStore<double>;
template void initialise(ParamStore<float>&, uint64_t);
template void initialise(ParamStore<double>&, uint64_t);

}  // namespace mm::model
