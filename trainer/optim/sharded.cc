// SPDX-License-Identifier: Apache-2.0
#include "trainer/optim/sharded.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace mm::optim {
namespace {

constexpr int64_t elements_of_piece = 1 << 14;

}  // namespace

template <class T>
struct Sharded<T>::State {
  const model::Run* run = nullptr;
  comm::Comm* group = nullptr;
  bool spans_stages = false;
  comm::Range part;
  comm::Range updated;       // what this rank updates: its part, or everything
  tensor::Region m, v;       // of `updated`
  tensor::Region gradients;  // of `part`, where it is summed at each micro-batch
  tensor::Region values;     // of `part`, where values are whole only for a while
  std::vector<int64_t> bounds;
  comm::Pending reduction;
  bool reducing = false, reduced = false;
  int users = 0;  // layers that have acquired it
};

template <class T>
Sharded<T>::Sharded(model::ParamStore<T>& store, const GroupOf& group_of, int zero, AdamWOptions options)
    : store_(store), zero_(zero), options_(options) {
  for (const model::Run& run : store.runs()) {
    State& s = states_.emplace_back();
    s.run = &run;
    s.group = &group_of(run.holders);
    s.spans_stages = run.holders == model::Holders::tied && s.group->size() > group_of(model::Holders::data).size();
    s.bounds = comm::bounds_of(run.size, s.group->size());
    s.part = comm::part_of(run.size, s.group->rank(), s.group->size());
    s.updated = zero >= 1 ? s.part : comm::Range{0, run.size};
    const auto bytes = [](comm::Range range) { return static_cast<size_t>(range.size()) * sizeof(T); };
    if (run.trained) {
      s.m = tensor::Region(bytes(s.updated));
      s.v = tensor::Region(bytes(s.updated));
      if (reduces_at_once(s)) s.gradients = tensor::Region(bytes(s.part));
    }
    if (!keeps_values_whole(s)) s.values = tensor::Region(bytes(s.part));
  }
  store.set_hooks(this);
}

template <class T>
Sharded<T>::~Sharded() {
  store_.set_hooks(nullptr);
}

template <class T>
T* Sharded<T>::owned_value(State& s) {
  return keeps_values_whole(s) ? store_.values() + s.run->value_at + s.part.begin : static_cast<T*>(s.values.data());
}

template <class T>
T* Sharded<T>::owned_gradient(State& s) {
  if (!s.run->trained) return nullptr;
  return reduces_at_once(s) ? static_cast<T*>(s.gradients.data()) : store_.gradients() + s.run->gradient_at + s.part.begin;
}

template <class T>
void Sharded<T>::acquire(std::string_view unit) {
  for (State& s : states_) {
    if (s.run->unit != unit) continue;
    if (reduces_at_once(s)) finish(s);  // its buffer is needed again
    if (keeps_values_whole(s) || s.users++ > 0) continue;
    T* values = store_.values() + s.run->value_at;
    std::copy_n(static_cast<const T*>(s.values.data()), s.part.size(), values + s.part.begin);
    s.group->all_gather(values, std::span<const int64_t>(s.bounds));
  }
}

template <class T>
void Sharded<T>::release(std::string_view unit) {
  for (State& s : states_)
    if (s.run->unit == unit && !keeps_values_whole(s) && --s.users == 0) store_.release_values(*s.run);
}

template <class T>
void Sharded<T>::gradient_ready(std::string_view unit) {
  for (State& s : states_) {
    s.reduction.test();
    if (s.run->unit != unit || !s.run->trained) continue;
    if (inspecting_)
      inspect(s);
    else if (last_ || reduces_at_once(s))
      reduce(s);
  }
}

template <class T>
void Sharded<T>::reduce(State& s) {
  s.reduction = s.group->begin_reduce_scatter(store_.gradients() + s.run->gradient_at, std::span<const int64_t>(s.bounds));
  s.reducing = s.reduced = true;
}

template <class T>
void Sharded<T>::finish(State& s) {
  if (!s.reducing) return;
  s.reduction.wait();
  s.reducing = false;
  if (!reduces_at_once(s)) return;
  const T* sum = store_.gradients() + s.run->gradient_at + s.part.begin;
  T* total = owned_gradient(s);
  for (int64_t i = 0; i < s.part.size(); ++i) total[i] += sum[i];
  store_.release_gradients(*s.run);
}

template <class T>
void Sharded<T>::begin_step() {
  store_.zero_gradients();
  for (State& s : states_) {
    s.reduced = false;
    if (s.run->trained && reduces_at_once(s)) std::fill_n(owned_gradient(s), s.part.size(), T(0));
  }
}

template <class T>
void Sharded<T>::finish_gradients() {
  for (State& s : states_)
    if (s.run->trained && !s.reduced) reduce(s);
  for (State& s : states_) finish(s);
  if (zero_ > 0) return;
  for (State& s : states_)
    if (s.run->trained)
      gathers_.push_back(
          s.group->begin_all_gather(store_.gradients() + s.run->gradient_at, std::span<const int64_t>(s.bounds)));
  wait_for_gathers();
}

template <class T>
void Sharded<T>::wait_for_gathers() {
  for (comm::Pending& p : gathers_) p.wait();
  gathers_.clear();
}

// Pieces of single parameters: the owned ones, or those that this rank updates. Good until the next call.
template <class T>
std::span<const Piece<T>> Sharded<T>::pieces(bool owned_only) {
  pieces_.clear();
  for (State& s : states_) {
    if (!s.run->trained) continue;
    const comm::Range range = owned_only ? s.part : s.updated;
    T* values = owned_value(s) - s.part.begin;
    const T* gradients = owned_gradient(s) - s.part.begin;
    T *m = static_cast<T*>(s.m.data()) - s.updated.begin, *v = static_cast<T*>(s.v.data()) - s.updated.begin;
    for (size_t i : s.run->params) {
      const int64_t first = store_.local()[i].value_at - s.run->value_at;
      const int64_t end = std::min(range.end, first + store_.local()[i].size);
      for (int64_t at = std::max(range.begin, first); at < end; at += elements_of_piece)
        pieces_.push_back({values + at, gradients + at, m + at, v + at, std::min(elements_of_piece, end - at),
                           store_.specs()[i].decays(), store_.specs()[i].lr_scale});
    }
  }
  return pieces_;
}

template <class T>
double Sharded<T>::sum_of_squares(tensor::ThreadPool& pool) {
  return optim::sum_of_squares<T>(pieces(true), pool);
}

template <class T>
void Sharded<T>::update(int64_t t, double lr, double gradient_scale, tensor::ThreadPool& pool) {
  adamw<T>(options_, t, lr, gradient_scale, pieces(false), pool);
  if (zero_ > 0) gather_values(false);
}

template <class T>
void Sharded<T>::take_values() {
  for (State& s : states_) {
    if (keeps_values_whole(s)) continue;
    std::copy_n(store_.values() + s.run->value_at + s.part.begin, s.part.size(), static_cast<T*>(s.values.data()));
    store_.release_values(*s.run);
  }
}

template <class T>
void Sharded<T>::gather_values(bool all) {
  for (State& s : states_)
    if (keeps_values_whole(s) && (all || s.run->trained))
      gathers_.push_back(s.group->begin_all_gather(store_.values() + s.run->value_at, std::span<const int64_t>(s.bounds)));
  wait_for_gathers();
}

template <class T>
void Sharded<T>::share_loaded() {
  gather_values(true);
  if (zero_ > 0) return;
  for (State& s : states_) {
    if (!s.run->trained) continue;
    s.group->all_gather(static_cast<T*>(s.m.data()), std::span<const int64_t>(s.bounds));
    s.group->all_gather(static_cast<T*>(s.v.data()), std::span<const int64_t>(s.bounds));
  }
}

template <class T>
std::vector<typename Sharded<T>::Owned> Sharded<T>::owned() {
  std::vector<Owned> out;
  for (State& s : states_) {
    Owned o{s.run, s.part, owned_value(s), nullptr, nullptr, owned_gradient(s)};
    if (s.run->trained) {
      o.m = static_cast<T*>(s.m.data()) + (s.part.begin - s.updated.begin);
      o.v = static_cast<T*>(s.v.data()) + (s.part.begin - s.updated.begin);
    }
    out.push_back(o);
  }
  return out;
}

template <class T>
void Sharded<T>::set_inspecting(bool inspecting) {
  inspecting_ = inspecting;
  if (inspecting) first_bad_.reset();
}

template <class T>
void Sharded<T>::inspect(State& s) {
  for (size_t p : s.run->params) {
    const T* gradient = store_.gradient(p);
    for (int64_t i = 0; !first_bad_ && i < store_.local()[p].size; ++i)
      if (!std::isfinite(gradient[i])) first_bad_ = fmt::format("{}[{}]", store_.specs()[p].name, i);
  }
  if (reduces_at_once(s)) store_.release_gradients(*s.run);
}

template class Sharded<float>;
template class Sharded<double>;

}  // namespace mm::optim
