// SPDX-License-Identifier: Apache-2.0
// The parameters of a model: one record each, the single truth that initialisation, gradients, norm, ZeRO, optimizer,
// checkpoint and Hugging Face names use. Records know nothing of a layout; a Placement says which of them a rank holds, and
// tensor parallelism cuts some of these into slices.
//
// A rank's store is a list of runs: the parameters of one unit (a layer, an embedding) that have the same holders lie one after
// another, values in one block and gradients in another of the same order. The holders of a run are the ranks that have the
// same slices; the gradient of a parameter is the sum over its holders.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/tensor/region.h"

namespace mm::model {

// How tensor parallelism cuts a parameter. `parts` things (heads, vocabulary, intermediate width) along `axis` are dealt out to
// the tp ranks as evenly as it goes; `group` of them share one slice, as query heads share a key head. Where a slice would have
// to go to two ranks the parameter is not cut.
struct Cut {
  int axis = -1;  // -1: every tp rank holds the whole
  int64_t parts = 1, group = 1;
};

struct ParamSpec {
  std::string name;            // as on disk in a Hugging Face folder
  std::vector<int64_t> shape;  // empty for a scalar
  bool reached = true;         // false: the loss does not depend on it; it gets no update, no decay, no part in the norm
  bool frozen = false;         // the same, by the user's choice
  enum class Init { normal, ones, zeros, value } init = Init::normal;  // normal: standard deviation 1 / sqrt(fan in)
  std::string unit = "all";                                          // what is gathered, reduced and released together
  Cut cut{};
  double init_value = 0;
  double lr_scale = 1;  // of the learning rate

  int64_t size() const;
  bool decays() const { return shape.size() >= 2; }
  bool trained() const { return reached && !frozen; }
};

// The bounds of the tp + 1 slices along cut.axis; empty where every rank holds the whole.
std::vector<int64_t> slice_bounds(const ParamSpec& spec, int tp);

enum class Holders {
  data,   // the ranks of one tp and one pp coordinate: slices
  stage,  // all ranks of a pipeline stage: what tensor parallelism does not cut
  tied    // `data` of the first and of the last stage together: an embedding that is the head too
};

// What a rank holds of the model.
struct Placement {
  struct Unit {
    bool held = true;
    bool cut = true;  // false: tensor parallelism leaves it whole
    bool tied = false;
  };
  int tp = 1, tp_rank = 0;
  std::function<Unit(const std::string& unit)> of = [](const std::string&) { return Unit{}; };
};

// The part of a parameter that a rank holds: a box of the whole, row-major.
struct LocalParam {
  std::vector<int64_t> offset, shape;
  int64_t size = 0;
  int64_t value_at = 0, gradient_at = -1;  // first element in the blocks; -1: no gradient, because it is not trained
};

struct Run {
  std::string unit;
  Holders holders = Holders::data;
  bool trained = false;
  std::vector<size_t> params;              // indices into specs()
  int64_t size = 0;                        // elements
  int64_t value_at = 0, gradient_at = -1;  // the runs of the blocks begin at whole pages
};

// What a layer tells whoever shards its unit. Every holder of a unit makes the same calls in the same order.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;
  virtual void acquire(std::string_view) {}         // before its forward or backward: values (and gradients) are needed
  virtual void release(std::string_view) {}         // after it: not needed for a while
  virtual void gradient_ready(std::string_view) {}  // a micro-batch has made its last contribution to the gradients
};

template <class T>
class ParamStore {
 public:
  explicit ParamStore(std::vector<ParamSpec> specs, const Placement& placement = {});
  const std::vector<ParamSpec>& specs() const { return specs_; }  // of the parameters that are held, by name
  const std::vector<LocalParam>& local() const { return local_; }
  const std::vector<Run>& runs() const { return runs_; }
  bool has(std::string_view name) const;
  size_t index(std::string_view name) const;  // throws where there is none

  // Addresses are good for the life of the store.
  T* value(size_t i) { return values() + local_[i].value_at; }
  T* gradient(size_t i) { return local_[i].gradient_at < 0 ? nullptr : gradients() + local_[i].gradient_at; }
  T* values() { return static_cast<T*>(value_block_.data()); }
  T* gradients() { return static_cast<T*>(gradient_block_.data()); }
  // Of the blocks, with the zeros between runs.
  int64_t value_elements() const { return static_cast<int64_t>(value_block_.bytes() / sizeof(T)); }
  int64_t gradient_elements() const { return static_cast<int64_t>(gradient_block_.bytes() / sizeof(T)); }
  void zero_gradients();
  // Gives the pages back to the system; they read as zeros.
  void release_values(const Run& run);
  void release_gradients(const Run& run);

  UnitHooks& hooks() { return *hooks_; }
  void set_hooks(UnitHooks* hooks) { hooks_ = hooks ? hooks : &no_hooks_; }

 private:
  std::vector<ParamSpec> specs_;
  std::vector<LocalParam> local_;
  std::vector<Run> runs_;
  tensor::Region value_block_, gradient_block_;
  UnitHooks no_hooks_;
  UnitHooks* hooks_ = &no_hooks_;
};

// Marks parameters whose name matches one of the glob patterns as frozen. Throws a usage Error for a pattern that matches none.
void freeze(std::vector<ParamSpec>& specs, const std::vector<std::string>& patterns);
// Multiplies the learning rate of what a pattern matches; patterns that match the same multiply. Throws as freeze does.
void scale_learning_rates(std::vector<ParamSpec>& specs, const std::map<std::string, double>& factors);
// Copies the box of `local` out of the whole tensor.
template <class T>
void take_slice(const ParamSpec& spec, const LocalParam& local, const T* whole, T* slice);
// Values that depend on nothing but (seed, name, index in the whole), so that every layout starts the same.
template <class T>
void initialise(ParamStore<T>& store, uint64_t seed);

extern template class ParamStore<float>;
extern template class ParamStore<double>;

}  // namespace mm::model
