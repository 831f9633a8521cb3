// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/vocabulary.h"

#include <algorithm>
#include <cmath>

#include "trainer/ops/lanes.h"
#include "trainer/ops/rows.h"
#include "trainer/ops/tiles.h"

namespace mm::model {
namespace {

const std::string embed_unit = "embed", head_unit = "head", embed_name = "language_model.model.embed_tokens";

// Logits less the largest of their row become exponentials.
template <class T>
void exponentials(T* row, int64_t n, T top) {
  for (int64_t j = 0; j < n; ++j) row[j] = ops::exponential(row[j] - top);
}

}  // namespace

template <class T>
Embedding<T>::Embedding(const Context<T>& context, const TextConfig& config)
    : context_(context),
      w_(context.value(embed_name + ".weight")),
      dw_(context.gradient(embed_name + ".weight")),
      hidden_(config.hidden) {
  const LocalParam& local = context.params.local()[context.params.index(embed_name + ".weight")];
  first_ = local.offset[0];
  count_ = local.shape[0];
}

template <class T>
std::span<const int32_t> Embedding<T>::own(std::span<const int32_t> ids) {
  if (!context_.tp) return ids;
  own_.clear();
  for (int32_t id : ids) own_.push_back(id < first_ || id >= first_ + count_ ? -1 : static_cast<int32_t>(id - first_));
  return own_;
}

template <class T>
void Embedding<T>::forward(const RowPlan& plan, T* x) {
  UnitHooks& hooks = context_.params.hooks();
  hooks.acquire(embed_unit);
  if (!context_.tp) {
    ops::gather_rows<int32_t, T>(context_.pool, w_, plan.ids(), x, hidden_);
  } else {
    const SequenceParallel<T> split(context_.tp, plan.bounds());
    T* partial = partial_.need(plan.rows() * hidden_);
    std::fill_n(partial, plan.rows() * hidden_, T(0));
    ops::gather_rows<int32_t, T>(context_.pool, w_, own(plan.ids()), partial, hidden_);
    std::copy_n(split.reduce(partial, hidden_), split.held() * hidden_, x);
  }
  hooks.release(embed_unit);
}

template <class T>
void Embedding<T>::backward(const RowPlan& plan, const T* gradient) {
  if (!dw_) return;
  UnitHooks& hooks = context_.params.hooks();
  hooks.acquire(embed_unit);
  const T* all = SequenceParallel<T>(context_.tp, plan.bounds()).gather(gradient, hidden_, gathered_);
  ops::add_to_rows<T>(context_.pool, all, own(plan.ids()), dw_, hidden_);
  hooks.gradient_ready(embed_unit);
  hooks.release(embed_unit);
}

template <class T>
Head<T>::Head(const Context<T>& context, const TextConfig& config, const LossOptions& options, bool embeds)
    : context_(context),
      tied_(config.tied),
      embeds_(embeds),
      options_(options),
      vocabulary_(config.vocabulary),
      norm_(context, "language_model.model.norm", config.hidden, config.eps),
      head_(context, tied_ ? embed_name : "language_model.lm_head") {
  first_ = context.params.local()[context.params.index((tied_ ? embed_name : "language_model.lm_head") + ".weight")].offset[0];
}

template <class T>
void Head<T>::acquire() {
  context_.params.hooks().acquire(head_unit);
  if (tied_) context_.params.hooks().acquire(embed_unit);
}

template <class T>
void Head<T>::release() {
  if (tied_) context_.params.hooks().release(embed_unit);
  context_.params.hooks().release(head_unit);
}

template <class T>
const T* Head<T>::logits(const RowPlan& plan, const T* x, Saved& saved) {
  const SequenceParallel<T> split(context_.tp, plan.label_bounds());
  const int64_t rows = split.all(), held = split.held();
  acquire();
  norm_.forward(context_.pool, x, saved.normed.need(held * norm_.size), saved.statistics.need(held), held);
  const T* normed = split.gather(saved.normed.get(), norm_.size, gathered_);
  head_.forward(context_.pool, normed, nullptr, saved.logits.need(rows * head_.out), rows);
  release();
  return saved.logits.get();
}

// With top the largest logit of a row, Z the sum of exp(logit - top) and m the mean of logit - top over the vocabulary, the
// loss of a label is log Z - (1 - s) (its logit - top) - s m + z (log Z + top)^2. Each rank has a part of the vocabulary: the
// largest, and then the sums, are taken over the ranks.
template <class T>
double Head<T>::loss(const RowPlan& plan, Saved& saved) {
  const int64_t rows = static_cast<int64_t>(plan.labels().size()), width = head_.out;
  const T smoothing = static_cast<T>(options_.label_smoothing), even = smoothing / static_cast<T>(vocabulary_);
  T *logits = saved.logits.get(), *tops = tops_.need(rows), *sums = sums_.need(3 * rows);
  ops::for_parts(context_.pool, rows, ops::rows_per_tile(width), [&](int64_t r0, int64_t r1) {
    for (int64_t r = r0; r < r1; ++r) tops[r] = ops::largest(logits + r * width, width);
  });
  if (context_.tp) context_.tp->all_reduce_max(tops, rows);
  const auto own_label = [&](int64_t r) {
    const int64_t label = plan.labels()[static_cast<size_t>(r)] - first_;
    return label >= 0 && label < width ? label : -1;
  };
  ops::for_parts(context_.pool, rows, ops::rows_per_tile(width), [&](int64_t r0, int64_t r1) {
    for (int64_t r = r0; r < r1; ++r) {
      T* row = logits + r * width;
      const int64_t label = own_label(r);
      sums[3 * r + 1] = label < 0 ? T(0) : row[label] - tops[r];
      sums[3 * r + 2] = smoothing == 0 ? T(0) : ops::sum<T>(width, [&](int64_t j) { return row[j] - tops[r]; });
      exponentials(row, width, tops[r]);
      sums[3 * r] = ops::sum<T>(width, [&](int64_t j) { return row[j]; });
    }
  });
  if (context_.tp) context_.tp->all_reduce(sums, 3 * rows);
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const double log_sum = std::log(static_cast<double>(sums[3 * r])), log_z = log_sum + static_cast<double>(tops[r]);
    total += log_sum - (1 - options_.label_smoothing) * static_cast<double>(sums[3 * r + 1]) -
             options_.label_smoothing * static_cast<double>(sums[3 * r + 2]) / static_cast<double>(vocabulary_) +
             options_.z_loss * log_z * log_z;
  }
  ops::for_parts(context_.pool, rows, ops::rows_per_tile(width), [&](int64_t r0, int64_t r1) {
    for (int64_t r = r0; r < r1; ++r) {
      T* row = logits + r * width;
      const double log_z = std::log(static_cast<double>(sums[3 * r])) + static_cast<double>(tops[r]);
      const T factor = static_cast<T>(1 + 2 * options_.z_loss * log_z) / sums[3 * r];
      for (int64_t j = 0; j < width; ++j) row[j] = row[j] * factor - even;
      if (const int64_t label = own_label(r); label >= 0) row[label] -= 1 - smoothing;
    }
  });
  return context_.tp && context_.tp->rank() > 0 ? 0 : total;
}

template <class T>
void Head<T>::backward(const RowPlan& plan, double scale, const T* x, Saved& saved, T* dx) {
  const SequenceParallel<T> split(context_.tp, plan.label_bounds());
  const int64_t rows = split.all();
  acquire();
  ops::scale(context_.pool, static_cast<T>(scale), saved.logits.get(), rows * head_.out);
  const T* normed = split.gather(saved.normed.get(), norm_.size, gathered_);
  T* dnormed = dnormed_.need(rows * norm_.size);
  head_.backward(context_.pool, normed, saved.logits.get(), dnormed, rows, false);
  norm_.backward(context_.pool, x, saved.statistics.get(), split.reduce(dnormed, norm_.size), dx, split.held(), false);
  context_.params.hooks().gradient_ready(head_unit);
  if (tied_ && !embeds_) context_.params.hooks().gradient_ready(embed_unit);
  release();
}

template class Embedding<float>;
template class Embedding<double>;
template class Head<float>;
template class Head<double>;

}  // namespace mm::model
