// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process: a mailbox for each pair, so that layouts can be tested, also under ThreadSanitizer, without
// a launcher.
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "trainer/comm/transport.h"

namespace mm::comm {
namespace {

struct Mail {
  std::mutex mutex;
  std::condition_variable arrived;
  std::map<std::tuple<int, int, uint64_t>, std::string> boxes;  // from, to, tag
};

class ThreadTransport : public Transport {
 public:
  ThreadTransport(std::shared_ptr<Mail> mail, int rank, int size) : mail_(std::move(mail)), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Outcome exchange(std::span<const Outgoing> out, std::span<const Incoming> in, uint64_t tag,
                   std::chrono::steady_clock::time_point deadline) override {
    std::unique_lock lock(mail_->mutex);
    for (const Outgoing& o : out) mail_->boxes[{rank_, o.peer, tag}].assign(static_cast<const char*>(o.data), o.bytes);
    mail_->arrived.notify_all();
    Outcome outcome;
    for (const Incoming& i : in) {
      const std::tuple key(i.peer, rank_, tag);
      if (!mail_->arrived.wait_until(lock, deadline, [&] { return mail_->boxes.contains(key); })) {
        outcome.late.push_back(i.peer);
        continue;
      }
      const std::string& text = mail_->boxes[key];
      if (text.size() != i.bytes)
        outcome.error = "rank " + std::to_string(i.peer) + " sent " + std::to_string(text.size()) + " bytes in place of " +
                        std::to_string(i.bytes);
      else
        std::memcpy(i.data, text.data(), i.bytes);
      mail_->boxes.erase(key);
    }
    return outcome;
  }

 private:
  std::shared_ptr<Mail> mail_;
  int rank_, size_;
};

}  // namespace

std::vector<std::unique_ptr<Comm>> thread_comms(int ranks) {
  auto mail = std::make_shared<Mail>();
  std::vector<std::unique_ptr<Comm>> comms(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;  // making one is a collective call
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back(
        [&, r] { comms[static_cast<size_t>(r)] = comm_over(std::make_unique<ThreadTransport>(mail, r, ranks)); });
  for (std::thread& t : threads) t.join();
  return comms;
}

}  // namespace mm::comm
