// SPDX-License-Identifier: Apache-2.0
// Who keeps, sums and updates what (ZeRO; Rajbhandari et al., arXiv 1910.02054). Each run of a store is cut into one part for
// each of its holders (comm::part_of: uneven, never left out). A part's owner ends up with the sum of its gradients.
//
//   zero  gradients                               values                        moments
//   0     summed, all kept by all                 kept by all                   kept by all, all update everything
//   1     kept by all until the step's last       kept by all                   of the owned part
//         micro-batch, then each its part
//   2     its part, summed at each micro-batch    kept by all                   of the owned part
//   3     as 2                                    its part, whole while a       of the owned part
//                                                 layer is at work
//
// A tied embedding whose holders span two pipeline stages is treated as under zero 1 at most: stages come to it at different
// times. As each element has one owner, the norm of the gradients counts it once, and a checkpoint holds it once.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/comm/comm.h"
#include "trainer/model/param.h"
#include "trainer/optim/adamw.h"

namespace mm::optim {

template <class T>
class Sharded : public model::UnitHooks {
 public:
  using GroupOf = std::function<comm::Comm&(model::Holders)>;
  // Store and groups outlive the object, which becomes the store's hooks. `zero` is 0 to 3.
  Sharded(model::ParamStore<T>& store, const GroupOf& group_of, int zero, AdamWOptions options);
  ~Sharded() override;
  Sharded(const Sharded&) = delete;
  Sharded& operator=(const Sharded&) = delete;

  void acquire(std::string_view unit) override;
  void release(std::string_view unit) override;
  void gradient_ready(std::string_view unit) override;

  // Zeroes the gradients.
  void begin_step();
  // What follows is the last micro-batch that adds to the gradients of the units that are worked on.
  void set_last_micro_batch(bool last) { last_ = last; }
  // Waits for the sums; those that no gradient_ready came for are made now. Collective.
  void finish_gradients();
  // Of the gradients that this rank owns.
  double sum_of_squares(tensor::ThreadPool& pool);
  // Update number t (from 1); values are then whole where they are kept whole. Collective.
  void update(int64_t t, double lr, double gradient_scale, tensor::ThreadPool& pool);
  // Takes the store's values, which are whole, for its own.
  void take_values();
  // Makes what owners have loaded known to all holders that keep it. Collective.
  void share_loaded();

  // What this rank owns of a run: elements `part`; where these lie. m, v and gradient are null where the run is not trained.
  struct Owned {
    const model::Run* run = nullptr;
    comm::Range part;
    T *value = nullptr, *m = nullptr, *v = nullptr;
    const T* gradient = nullptr;  // good after finish_gradients
  };
  std::vector<Owned> owned();
  // While it inspects, gradients are looked at as they become ready, and neither summed nor kept.
  void set_inspecting(bool inspecting);
  // The first gradient that was not finite since then, as "NAME[flat index in the slice]".
  const std::optional<std::string>& first_bad() const { return first_bad_; }

 private:
  struct State;
  bool keeps_values_whole(const State& s) const { return zero_ < 3 || s.spans_stages; }
  bool reduces_at_once(const State& s) const { return zero_ >= 2 && !s.spans_stages; }
  T* owned_value(State& s);
  T* owned_gradient(State& s);
  void reduce(State& s);
  void finish(State& s);
  void inspect(State& s);
  void gather_values(bool all);  // or only of what is trained
  void wait_for_gathers();
  std::span<const Piece<T>> pieces(bool owned_only);

  model::ParamStore<T>& store_;
  const int zero_;
  const AdamWOptions options_;
  std::vector<State> states_;
  std::vector<comm::Pending> gathers_;  // this and the next keep their memory from step to step
  std::vector<Piece<T>> pieces_;
  bool last_ = true, inspecting_ = false;
  std::optional<std::string> first_bad_;
};

extern template class Sharded<float>;
extern template class Sharded<double>;

}  // namespace mm::optim
