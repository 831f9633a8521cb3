// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process, so that layouts can be tested, also under ThreadSanitizer, without a launcher; and the rank
// that is alone.
//
// A send posts the address of its buffer to the receiver's box; the receiver copies, or reads in place, and marks the post as
// done. Short messages are copied into the post, and the sender need not wait. Everything but the copying is under one mutex.
#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>

#include "common/error.h"
#include "trainer/comm/transport.h"

namespace mm::comm {
namespace {

constexpr size_t copied_bytes = 8192;  // at most, of a message that its post holds

struct Post {
  enum class State : uint8_t { posted, taken, done };
  int from = 0, to = 0;
  Tag tag;
  const void* data = nullptr;
  size_t bytes = 0;
  std::vector<std::byte> copy;
  State state = State::posted;
};

struct Box {
  std::condition_variable changed;
  uint64_t changes = 0;
  std::deque<std::shared_ptr<Post>> posts;
};

struct Mail {
  explicit Mail(int ranks) : boxes(static_cast<size_t>(ranks)) {}
  // Both with the mutex held.
  void change(int rank) {
    Box& box = boxes[static_cast<size_t>(rank)];
    ++box.changes;
    box.changed.notify_all();
  }
  void finish(Post& post) {
    post.state = Post::State::done;
    change(post.from);
  }
  std::mutex mutex;
  std::vector<Box> boxes;
};

class ThreadBatch : public Batch {
 public:
  ThreadBatch(std::shared_ptr<Mail> mail, int rank) : mail_(std::move(mail)), rank_(rank) {}
  ~ThreadBatch() override { withdraw(); }

  void clear() override {
    outgoing_.clear();
    sends_.clear();
    receives_.clear();
    borrowed_.clear();
    to_receive_ = to_send_ = 0;
  }

  void send(int peer, const Tag& tag, const void* data, size_t bytes) override {
    auto post = std::make_shared<Post>(Post{rank_, peer, tag, data, bytes, {}, Post::State::posted});
    if (bytes <= copied_bytes) {
      const auto* from = static_cast<const std::byte*>(data);
      post->copy.assign(from, from + bytes);
      post->data = post->copy.data();
    } else {
      sends_.push_back(post);
      ++to_send_;
    }
    outgoing_.push_back(std::move(post));
  }
  void receive(int peer, const Tag& tag, void* data, size_t bytes) override {
    receives_.push_back({peer, tag, data, bytes, nullptr});
    ++to_receive_;
  }
  void borrow(int peer, const Tag& tag, void*, size_t bytes) override {
    borrowed_.push_back(receives_.size());
    receive(peer, tag, nullptr, bytes);
  }
  const void* view(size_t kth) const override { return receives_[borrowed_[kth]].post->data; }
  void give_back() override {
    if (borrowed_.empty()) return;
    const std::lock_guard lock(mail_->mutex);
    for (size_t k : borrowed_) mail_->finish(*receives_[k].post);
    borrowed_.clear();
  }

  bool poll() override {
    const size_t before = to_receive_ + to_send_;
    if (before == 0 && outgoing_.empty()) return false;
    std::unique_lock lock(mail_->mutex);
    for (std::shared_ptr<Post>& post : outgoing_) {
      const int to = post->to;
      mail_->boxes[static_cast<size_t>(to)].posts.push_back(std::move(post));
      mail_->change(to);
    }
    outgoing_.clear();
    arrived_.clear();
    auto& posts = mail_->boxes[static_cast<size_t>(rank_)].posts;
    for (Incoming& in : receives_) {
      if (in.post) continue;
      const auto at =
          std::find_if(posts.begin(), posts.end(), [&](const auto& p) { return p->from == in.peer && p->tag == in.tag; });
      if (at == posts.end()) continue;
      in.post = std::move(*at);
      in.post->state = Post::State::taken;
      posts.erase(at);
      arrived_.push_back(&in);
    }
    to_send_ = static_cast<size_t>(
        std::count_if(sends_.begin(), sends_.end(), [](const auto& p) { return p->state != Post::State::done; }));
    if (arrived_.empty()) return to_receive_ + to_send_ != before;
    lock.unlock();
    for (const Incoming* in : arrived_) {
      if (in->post->bytes != in->bytes)
        throw Error(exit_status::peer_lost, "rank " + std::to_string(in->peer) + " sent " + std::to_string(in->post->bytes) +
                                                " bytes in place of " + std::to_string(in->bytes));
      if (in->data != nullptr) std::memcpy(in->data, in->post->data, in->bytes);
    }
    lock.lock();
    for (const Incoming* in : arrived_)
      if (in->data != nullptr) mail_->finish(*in->post);
    to_receive_ -= arrived_.size();
    return true;
  }
  bool received() const override { return to_receive_ == 0; }
  bool sent() const override { return to_send_ == 0; }

  std::vector<int> late() const override {
    std::vector<int> peers;
    for (const Incoming& in : receives_)
      if (!in.post) peers.push_back(in.peer);
    const std::lock_guard lock(mail_->mutex);
    for (const auto& post : sends_)
      if (post->state != Post::State::done) peers.push_back(post->to);
    return peers;
  }

  // A peer that reads a buffer is waited for: it reads without waiting for others.
  void withdraw() override {
    std::unique_lock lock(mail_->mutex);
    for (Incoming& in : receives_)
      if (in.post && in.post->state == Post::State::taken) mail_->finish(*in.post);
    for (const auto& post : sends_) {
      std::erase(mail_->boxes[static_cast<size_t>(post->to)].posts, post);
      mail_->boxes[static_cast<size_t>(rank_)].changed.wait(lock, [&] { return post->state != Post::State::taken; });
    }
    lock.unlock();
    clear();
  }

 private:
  struct Incoming {
    int peer;
    Tag tag;
    void* data;  // null: is read in place
    size_t bytes;
    std::shared_ptr<Post> post;
  };
  std::shared_ptr<Mail> mail_;
  const int rank_;
  std::vector<std::shared_ptr<Post>> outgoing_;  // the next poll posts them, all at once
  std::vector<std::shared_ptr<Post>> sends_;
  std::vector<Incoming> receives_;
  std::vector<size_t> borrowed_;  // which of receives_
  std::vector<const Incoming*> arrived_;
  size_t to_receive_ = 0, to_send_ = 0;
};

class ThreadTransport : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Mail> mail, int rank) : mail_(std::move(mail)), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(mail_->boxes.size()); }
  std::unique_ptr<Batch> batch() override { return std::make_unique<ThreadBatch>(mail_, rank_); }
  uint64_t tags() const override { return uint64_t{1} << 31; }
  bool in_place() const override { return true; }

  void look() override {
    const std::lock_guard lock(mail_->mutex);
    seen_ = box().changes;
  }
  void idle(std::chrono::steady_clock::time_point deadline) override {
    std::unique_lock lock(mail_->mutex);
    box().changed.wait_until(lock, deadline, [&] { return box().changes != seen_; });
  }

 private:
  Box& box() { return mail_->boxes[static_cast<size_t>(rank_)]; }
  std::shared_ptr<Mail> mail_;
  const int rank_;
  uint64_t seen_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Comm>> thread_comms(int ranks) {
  const auto mail = std::make_shared<Mail>(ranks);
  std::vector<std::unique_ptr<Comm>> comms;
  for (int r = 0; r < ranks; ++r) comms.push_back(comm_on_this_node(std::make_unique<ThreadTransport>(mail, r)));
  return comms;
}

std::unique_ptr<Comm> self_comm() {
  return std::move(thread_comms(1).front());
}

}  // namespace mm::comm
