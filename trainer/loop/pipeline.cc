// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/pipeline.h"

#include <algorithm>
#include <utility>

namespace mm::loop {

using parallel::Pass;

template <class T>
Pipeline<T>::Pipeline(parallel::Mesh& mesh, model::Stage<T>& stage, optim::Sharded<T>& sharded, parallel::ScheduleKind kind,
                      int chunks)
    : mesh_(mesh), stage_(stage), sharded_(sharded), kind_(kind), chunks_(chunks), pieces_(mesh.layout.pp * chunks) {}

template <class T>
double Pipeline<T>::run(std::span<const model::MicroBatch> batches, double scale) {
  if (static_cast<int>(batches.size()) != micro_batches_) {
    micro_batches_ = static_cast<int>(batches.size());
    passes_ = parallel::generate(kind_, mesh_.layout.pp, chunks_, micro_batches_)[static_cast<size_t>(mesh_.at.pp)];
  }
  std::vector<int> backward_done(static_cast<size_t>(chunks_), 0);
  slots_.assign(static_cast<size_t>(chunks_), {});
  double loss = 0;
  if (!passes_.empty()) post(passes_.front(), batches);
  for (size_t i = 0; i < passes_.size(); ++i) {
    if (i + 1 < passes_.size()) post(passes_[i + 1], batches);
    const Pass& pass = passes_[i];
    const bool backward = pass.direction == Pass::Direction::backward;
    const int piece = piece_of(pass), next = backward ? piece - 1 : piece + 1;
    const model::MicroBatch& batch = batches[static_cast<size_t>(pass.micro_batch)];
    std::unique_ptr<Message> in, out;
    if (arrives(pass)) {
      in = std::move(arriving_.extract({piece, backward, pass.micro_batch}).mapped());
      in->pending.wait();
    }
    const int64_t elements = stage_.boundary_elements(batch);
    if (next >= 0 && next < pieces_) {
      out = take();
      out->buffer.need(elements);
    }
    const T* from = in ? in->buffer.get() : nullptr;
    T* to = out ? out->buffer.get() : nullptr;
    if (backward) {
      sharded_.set_last_micro_batch(++backward_done[static_cast<size_t>(pass.chunk)] == micro_batches_);
      stage_.backward(pass.chunk, slot_of(pass), batch, scale, from, to);
    } else {
      loss += stage_.forward(pass.chunk, slot_of(pass), batch, from, to);
    }
    if (in) free_.push_back(std::move(in));
    if (out) send({next, backward, pass.micro_batch}, std::move(out), elements);
  }
  for (std::unique_ptr<Message>& message : sending_) {
    message->pending.wait();
    free_.push_back(std::move(message));
  }
  sending_.clear();
  return loss;
}

template <class T>
bool Pipeline<T>::arrives(const Pass& pass) const {
  return pass.direction == Pass::Direction::forward ? piece_of(pass) > 0 : piece_of(pass) + 1 < pieces_;
}

template <class T>
void Pipeline<T>::post(const Pass& pass, std::span<const model::MicroBatch> batches) {
  if (!arrives(pass)) return;
  const bool backward = pass.direction == Pass::Direction::backward;
  const int piece = piece_of(pass), from = backward ? piece + 1 : piece - 1;
  const Key key(piece, backward, pass.micro_batch);
  std::unique_ptr<Message> message = take();
  const int64_t elements = stage_.boundary_elements(batches[static_cast<size_t>(pass.micro_batch)]);
  message->pending =
      mesh_.pp->begin_receive(from % mesh_.layout.pp, message->buffer.need(elements), elements, tag(key));
  arriving_.emplace(key, std::move(message));
}

template <class T>
std::unique_ptr<typename Pipeline<T>::Message> Pipeline<T>::take() {
  if (free_.empty())
    for (auto at = sending_.begin(); at != sending_.end();) {
      if (!(*at)->pending.test()) {
        ++at;
        continue;
      }
      free_.push_back(std::move(*at));
      at = sending_.erase(at);
    }
  if (free_.empty()) return std::make_unique<Message>();
  std::unique_ptr<Message> message = std::move(free_.back());
  free_.pop_back();
  return message;
}

template <class T>
void Pipeline<T>::send(const Key& key, std::unique_ptr<Message> message, int64_t elements) {
  message->pending =
      mesh_.pp->begin_send(std::get<0>(key) % mesh_.layout.pp, message->buffer.get(), elements, tag(key));
  sending_.push_back(std::move(message));
}

template <class T>
int Pipeline<T>::slot_of(const Pass& pass) {
  std::vector<int>& slots = slots_[static_cast<size_t>(pass.chunk)];
  const bool backward = pass.direction == Pass::Direction::backward;
  auto at = std::ranges::find(slots, backward ? pass.micro_batch : -1);
  if (at == slots.end()) at = slots.insert(slots.end(), -1);
  *at = backward ? -1 : pass.micro_batch;
  return static_cast<int>(at - slots.begin());
}

template <class T>
int Pipeline<T>::tag(const Key& key) const {
  const auto [piece, backward, micro_batch] = key;
  return (2 * piece + (backward ? 1 : 0)) * micro_batches_ + micro_batch;
}

template class Pipeline<float>;
template class Pipeline<double>;

}  // namespace mm::loop
