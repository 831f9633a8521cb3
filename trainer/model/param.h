// SPDX-License-Identifier: Apache-2.0
// The parameters of a model: one record each, the single truth that initialisation, gradients, norm, optimizer, checkpoint and
// Hugging Face names use. Values lie in one contiguous block in the order of names, gradients in another of the same shape, so
// that a flat range [begin, end) of elements means the same on every rank.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mm::model {

struct ParamSpec {
  std::string name;            // as on disk in a Hugging Face folder
  std::vector<int64_t> shape;  // empty for a scalar
  bool reached = true;         // false: the loss does not depend on it; it gets no update, no decay, no part in the norm
  bool frozen = false;         // the same, by the user's choice
  enum class Init { normal, ones, zeros } init = Init::normal;  // normal: standard deviation 1 / sqrt(fan in)

  int64_t size() const;
  bool decays() const { return shape.size() >= 2; }
  bool trained() const { return reached && !frozen; }
};

template <class T>
class ParamStore {
 public:
  explicit ParamStore(std::vector<ParamSpec> specs);  // sorts by name
  const std::vector<ParamSpec>& specs() const { return specs_; }
  int64_t size() const { return offsets_.back(); }        // elements in all
  int64_t offset(size_t i) const { return offsets_[i]; }  // of parameter i in the blocks; offset(specs().size()) is size()
  size_t index(std::string_view name) const;              // throws where there is none
  T* values() { return values_.data(); }
  T* gradients() { return gradients_.data(); }
  T* value(size_t i) { return values_.data() + offsets_[i]; }
  T* gradient(size_t i) { return gradients_.data() + offsets_[i]; }
  void zero_gradients();

 private:
  std::vector<ParamSpec> specs_;
  std::vector<int64_t> offsets_;
  std::vector<T> values_, gradients_;
};

// Marks parameters whose name matches one of the glob patterns as frozen. Throws a usage Error for a pattern that matches none.
void freeze(std::vector<ParamSpec>& specs, const std::vector<std::string>& patterns);
// Values that depend on nothing but (seed, name, index), so that every layout starts the same.
template <class T>
void initialise(ParamStore<T>& store, uint64_t seed);

extern template class ParamStore<float>;
extern template class ParamStore<double>;

}  // namespace mm::model
