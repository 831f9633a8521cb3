// SPDX-License-Identifier: Apache-2.0
#include "trainer/model/contrastive_loss.h"

#include <algorithm>
#include <cmath>

#include "trainer/ops/cross_entropy.h"
#include "trainer/ops/lanes.h"
#include "trainer/ops/rows.h"
#include "trainer/ops/tiles.h"

namespace mm::model {

template <class T>
ContrastiveLoss<T>::ContrastiveLoss(const Context<T>& context, comm::Comm* data, bool sigmoid, int64_t size)
    : context_(context),
      data_(data),
      sigmoid_(sigmoid),
      size_(size),
      scale_(context.value("logit_scale")),
      dscale_(context.gradient("logit_scale")) {
  if (!sigmoid) return;
  bias_ = context.value("logit_bias");
  dbias_ = context.gradient("logit_bias");
}

// logit = factor * y . x: the gradient of the dot product is that of the logit times the factor, and that of the factor's
// logarithm the sum of gradient * logit, which is the sum over the rows of y . dy.
template <class T>
void ContrastiveLoss<T>::spread(const T* rows, const T* all, T* drows, T* dall) {
  tensor::ThreadPool& pool = context_.pool;
  const T factor = std::exp(*scale_);
  ops::scale(pool, factor, logits_.get(), own_rows_ * all_);
  T* gradient = drows_.need(own_rows_ * size_);
  ops::linear_grad_input(pool, logits_.get(), all, gradient, own_rows_, size_, all_, false);
  ops::linear_grad_weight(pool, logits_.get(), rows, dall, own_rows_, size_, all_);
  if (dscale_)
    for (int64_t r = 0; r < own_rows_; ++r)
      *dscale_ += ops::sum<T>(size_, [&](int64_t j) { return rows[r * size_ + j] * gradient[r * size_ + j]; });
  for (int64_t i = 0; i < own_rows_ * size_; ++i) drows[i] += gradient[i];
}

template <class T>
double ContrastiveLoss<T>::infonce_rows(const T* rows, const T* all, T* drows, T* dall, double scale) {
  tensor::ThreadPool& pool = context_.pool;
  T* logits = logits_.need(own_rows_ * all_);
  ops::linear<T>(pool, rows, all, nullptr, nullptr, logits, own_rows_, size_, all_);
  ops::scale(pool, static_cast<T>(std::exp(*scale_)), logits, own_rows_ * all_);
  double* losses = losses_.need(own_rows_);
  ops::cross_entropy(pool, logits, labels_.data(), losses, own_rows_, all_);
  ops::scale(pool, static_cast<T>(scale / 2), logits, own_rows_ * all_);
  spread(rows, all, drows, dall);
  double total = 0;
  for (int64_t r = 0; r < own_rows_; ++r) total += losses[r] / 2;
  return total;
}

// -log sigmoid(u) = log(1 + e^-u), computed as max(0, -u) + log(1 + e^-|u|); its derivative is -sigmoid(-u).
template <class T>
double ContrastiveLoss<T>::sigmoid_rows(const T* rows, const T* all, T* drows, T* dall, double scale) {
  tensor::ThreadPool& pool = context_.pool;
  T* logits = logits_.need(own_rows_ * all_);
  ops::linear<T>(pool, rows, all, nullptr, nullptr, logits, own_rows_, size_, all_);
  const T factor = std::exp(*scale_), bias = *bias_;
  double* losses = losses_.need(own_rows_);
  pool.parallel_for(own_rows_, [&](int64_t r) {
    double sum = 0;
    for (int64_t j = 0; j < all_; ++j) {
      T& logit = logits[r * all_ + j];
      const T z = j == labels_[static_cast<size_t>(r)] ? T(1) : T(-1), u = z * (factor * logit + bias);
      sum += static_cast<double>(std::max(T(0), -u) + std::log1p(std::exp(-std::abs(u))));
      logit = -z * ops::sigmoid(-u) * static_cast<T>(scale);
    }
    losses[r] = sum;
  });
  if (dbias_)
    for (int64_t r = 0; r < own_rows_; ++r) *dbias_ += ops::sum<T>(all_, [&](int64_t j) { return logits[r * all_ + j]; });
  spread(rows, all, drows, dall);
  double total = 0;
  for (int64_t r = 0; r < own_rows_; ++r) total += losses[r];
  return total;
}

template <class T>
void ContrastiveLoss<T>::gather(const T* own, T* all) {
  const auto rank = static_cast<size_t>(data_ ? data_->rank() : 0);
  std::copy_n(own, (bounds_[rank + 1] - bounds_[rank]) * size_, all + bounds_[rank] * size_);
  if (!data_) return;
  std::vector<int64_t> elements = bounds_;
  for (int64_t& bound : elements) bound *= size_;
  data_->all_gather(all, std::span<const int64_t>(elements));
}

template <class T>
double ContrastiveLoss<T>::run(T* pictures, T* texts, int64_t pairs, double scale) {
  const auto rank = static_cast<size_t>(data_ ? data_->rank() : 0);
  std::vector<double> counts(data_ ? static_cast<size_t>(data_->size()) : 1, 0.0);
  counts[rank] = static_cast<double>(pairs);
  if (data_) counts = data_->all_reduce(counts);
  bounds_.assign(1, 0);
  for (double count : counts) bounds_.push_back(bounds_.back() + static_cast<int64_t>(count));
  all_ = bounds_.back();
  const comm::Range mine = context_.tp ? comm::part_of(pairs, context_.tp->rank(), context_.tp->size()) : comm::Range{0, pairs};
  own_rows_ = mine.size();
  first_ = bounds_[rank] + mine.begin;
  labels_.clear();
  for (int64_t r = 0; r < own_rows_; ++r) labels_.push_back(static_cast<int32_t>(first_ + r));

  const int64_t values = all_ * size_;
  T *all_pictures = all_pictures_.need(values), *all_texts = all_texts_.need(values);
  T *dpictures = dpictures_.need(values), *dtexts = dtexts_.need(values);
  gather(pictures, all_pictures);
  gather(texts, all_texts);
  std::fill_n(dpictures, values, T(0));
  std::fill_n(dtexts, values, T(0));
  UnitHooks& hooks = context_.params.hooks();
  hooks.acquire("pairs");
  const int64_t at = first_ * size_;
  double total = 0;
  if (sigmoid_)
    total = sigmoid_rows(all_texts + at, all_pictures, dtexts + at, dpictures, scale);
  else
    total = infonce_rows(all_texts + at, all_pictures, dtexts + at, dpictures, scale) +
            infonce_rows(all_pictures + at, all_texts, dpictures + at, dtexts, scale);
  hooks.release("pairs");
  std::vector<int64_t> elements = bounds_;
  for (int64_t& bound : elements) bound *= size_;
  for (auto [all, own] : {std::pair(dpictures, pictures), std::pair(dtexts, texts)}) {
    if (data_) data_->reduce_scatter(all, std::span<const int64_t>(elements));
    std::copy_n(all + elements[rank], pairs * size_, own);
  }
  return total;
}

template class ContrastiveLoss<float>;
template class ContrastiveLoss<double>;

}  // namespace mm::model
