// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/mpi_transport.h"

#include <fmt/format.h>
#define OMPI_SKIP_MPICXX 1  // the C++ bindings of MPI 2 would add their own library
#include <mpi.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "common/error.h"
#include "common/log.h"

namespace mm::comm {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return fmt::format("MPI error {}", code);
  return std::string(text, static_cast<size_t>(length));
}

void check(int code, const char* call) {
  if (code != MPI_SUCCESS) throw Error(exit_status::peer_lost, fmt::format("comm: {}: {}", call, text_of(code)));
}

// Ends the process unless it is destroyed in time.
class Watchdog {
 public:
  Watchdog(std::chrono::seconds patience, std::string message, int status)
      : thread_([this, patience, message = std::move(message), status] {
          std::unique_lock lock(mutex_);
          if (done_.wait_for(lock, patience, [this] { return over_; })) return;
          log::error("{}", message);
          std::fflush(nullptr);
          ::_exit(status);
        }) {}
  ~Watchdog() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    done_.notify_all();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  bool over_ = false;
  std::thread thread_;
};

// Sleeps between two looks: messages of a running step come within microseconds, so first it only looks again; a peer that
// computes or writes a checkpoint takes long, so the naps grow. MPI's own waits spin and would take the core from the rank that is
// waited for; and one that yields comes back only after the time slices of all others, where one that sleeps is woken.
class Patience {
 public:
  void rest() {
    if (looks_ < 8) {
      ++looks_;
      return;
    }
    std::this_thread::sleep_for(nap_);
    nap_ = std::min<std::chrono::microseconds>(nap_ * 2, Clock::now() - begin_ < 20ms ? 100us : 1000us);
  }

 private:
  int looks_ = 0;
  std::chrono::microseconds nap_ = 4us;
  Clock::time_point begin_ = Clock::now();
};

// MPI knows a message by one number: the group's context, whether it is of a collective, whether it says that another was read,
// then its own number.
struct Numbering {
  static constexpr int contexts = 128;
  uint64_t each = 32767 / (4 * contexts);  // the standard promises 32767

  int of(const Tag& tag, bool was_read = false) const {
    if (tag.context >= contexts) throw Error(exit_status::internal, fmt::format("more than {} groups were split", contexts));
    const uint64_t kind = (tag.collective ? 1U : 0U) + (was_read ? 2U : 0U);
    return static_cast<int>((static_cast<uint64_t>(tag.context) * 4 + kind) * each + tag.number % each);
  }
};

// A large message from memory that the peer has mapped is replaced by its place there, which is known by its length; the
// receiver reads it and then says so by an empty message. All messages are asynchronous and looked after by poll().
class MpiBatch : public Batch {
 public:
  MpiBatch(const Numbering& numbering, const NodeMemory& memory, bool& moved)
      : numbering_(numbering), memory_(memory), moved_(moved) {}

  void clear() override {
    requests_.clear();
    messages_.clear();
    places_.clear();
    borrowed_.clear();
    to_receive_ = to_send_ = 0;
  }
  void send(int peer, const Tag& tag, const void* data, size_t bytes) override {
    if (bytes >= read_bytes)
      if (const std::optional<Place> place = memory_.place(peer, data, bytes)) {
        places_.push_back(*place);
        begin_send({peer, tag, sizeof(Place), nullptr, Kind::out}, &places_.back());
        begin_receive({peer, tag, 0, nullptr, Kind::was_read}, nullptr);
        return;
      }
    begin_send({peer, tag, bytes, nullptr, Kind::out}, data);
  }
  void receive(int peer, const Tag& tag, void* data, size_t bytes) override {
    begin_receive({peer, tag, bytes, data, Kind::in}, data);
  }
  void borrow(int peer, const Tag& tag, void* data, size_t bytes) override {
    borrowed_.push_back(messages_.size());
    begin_receive({peer, tag, bytes, data, Kind::borrowed}, data);
  }
  const void* view(size_t kth) const override { return messages_[borrowed_[kth]].data; }
  void give_back() override {
    for (size_t at : borrowed_)
      if (messages_[at].in_place) say_read(messages_[at]);
    borrowed_.clear();
  }

  bool poll() override {
    if (received() && sent()) return false;
    which_.resize(requests_.size());
    states_.resize(requests_.size());
    int done = 0;
    const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &done, which_.data(), states_.data());
    if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) throw Error(exit_status::peer_lost, text_of(code));
    for (int k = 0; k < done; ++k) {
      const size_t at = static_cast<size_t>(which_[static_cast<size_t>(k)]);
      const MPI_Status& state = states_[static_cast<size_t>(k)];
      if (code == MPI_ERR_IN_STATUS) check(state.MPI_ERROR, messages_[at].peer);
      finish(at, state);
    }
    if (done > 0) moved_ = true;
    return done > 0;
  }
  bool received() const override { return to_receive_ == 0; }
  bool sent() const override { return to_send_ == 0; }

  std::vector<int> late() const override {
    std::vector<int> peers;
    for (size_t i = 0; i < requests_.size(); ++i)
      if (requests_[i] != MPI_REQUEST_NULL) peers.push_back(messages_[i].peer);
    return peers;
  }
  // A message that was sent cannot be called back: after a failure the process ends soon, and its buffers live until then.
  void withdraw() override {
    for (size_t i = 0; i < requests_.size(); ++i)
      if (messages_[i].kind != Kind::out && requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
  }

 private:
  static constexpr size_t read_bytes = 16384;  // at least, of a message that is read in place

  enum class Kind : uint8_t { out, was_read, in, borrowed };
  struct Message {
    int peer;
    Tag tag;
    size_t bytes;
    const void* data;  // where what was received lies
    Kind kind;
    bool in_place = false;
  };

  static void check(int code, int peer) {
    if (code != MPI_SUCCESS) throw Error(exit_status::peer_lost, fmt::format("rank {}: {}", peer, text_of(code)));
  }
  bool incoming(Kind kind) const { return kind == Kind::in || kind == Kind::borrowed; }

  MPI_Request* begin(const Message& message) {
    ++(incoming(message.kind) ? to_receive_ : to_send_);
    messages_.push_back(message);
    return &requests_.emplace_back(MPI_REQUEST_NULL);
  }
  void begin_send(const Message& m, const void* data, bool was_read = false) {
    const int number = numbering_.of(m.tag, was_read);
    check(MPI_Isend(data, static_cast<int>(m.bytes), MPI_BYTE, m.peer, number, MPI_COMM_WORLD, begin(m)), m.peer);
  }
  void begin_receive(const Message& m, void* data) {
    const int number = numbering_.of(m.tag, m.kind == Kind::was_read);
    check(MPI_Irecv(data, static_cast<int>(m.bytes), MPI_BYTE, m.peer, number, MPI_COMM_WORLD, begin(m)), m.peer);
  }
  void say_read(const Message& m) { begin_send({m.peer, m.tag, 0, nullptr, Kind::out}, nullptr, true); }

  void finish(size_t at, const MPI_Status& state) {
    Message& m = messages_[at];
    --(incoming(m.kind) ? to_receive_ : to_send_);
    if (!incoming(m.kind)) return;
    int bytes = 0;
    check(MPI_Get_count(&state, MPI_BYTE, &bytes), m.peer);
    if (static_cast<size_t>(bytes) == m.bytes) return;
    if (m.bytes < read_bytes || static_cast<size_t>(bytes) != sizeof(Place)) wrong_length(m, static_cast<size_t>(bytes));
    Place place;
    std::memcpy(&place, m.data, sizeof place);
    if (place.bytes != m.bytes) wrong_length(m, place.bytes);
    const void* const there = memory_.find(m.peer, place);
    if (m.kind == Kind::borrowed) {
      m.data = there;
      m.in_place = true;
    } else {
      std::memcpy(const_cast<void*>(m.data), there, m.bytes);
      say_read(Message(m));
    }
  }
  [[noreturn]] static void wrong_length(const Message& m, size_t bytes) {
    throw Error(exit_status::peer_lost, fmt::format("rank {} sent {} bytes in place of {}", m.peer, bytes, m.bytes));
  }

  const Numbering& numbering_;
  const NodeMemory& memory_;
  bool& moved_;
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;
  std::deque<Place> places_;      // that are being sent
  std::vector<size_t> borrowed_;  // which of messages_
  std::vector<int> which_;
  std::vector<MPI_Status> states_;
  size_t to_receive_ = 0, to_send_ = 0;
};

class MpiTransport : public Transport {
 public:
  MpiTransport() {
    // MPI_Init itself spins while it waits for the other ranks; so it at least yields.
    ::setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
    int provided = 0;
    {
      const Watchdog watchdog(120s, "comm: MPI_Init: the other ranks have not come within 120 s", exit_status::peer_lost);
      check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    }
    ::prctl(PR_SET_TIMERSLACK, 1000UL);  // ns: naps of microseconds would last 50 more
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
    void* limit = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found), "MPI_Comm_get_attr");
    if (found != 0) numbering_.each = static_cast<uint64_t>(*static_cast<int*>(limit)) / (4 * Numbering::contexts);
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::unique_ptr<Batch> batch() override { return std::make_unique<MpiBatch>(numbering_, memory_, moved_); }
  uint64_t tags() const override { return numbering_.each; }
  NodeMemory* node_memory() override { return &memory_; }
  bool in_place() const override { return false; }
  void look() override {}
  void idle(Clock::time_point) override {
    if (moved_) patience_ = Patience();
    moved_ = false;
    patience_.rest();
  }

 private:
  int rank_ = 0, size_ = 1;
  Numbering numbering_;
  NodeMemory memory_;
  bool moved_ = false;  // since it was last idle
  Patience patience_;
};

}  // namespace

std::unique_ptr<Transport> mpi_transport() {
  return std::make_unique<MpiTransport>();
}

void finalize_mpi(int status) {
  int started = 0, ended = 0;
  if (MPI_Initialized(&started) != MPI_SUCCESS || started == 0) return;
  if (MPI_Finalized(&ended) != MPI_SUCCESS || ended != 0) return;
  const Watchdog watchdog(30s, "comm: MPI_Finalize: the other ranks have not come within 30 s", status);
  MPI_Finalize();
}

}  // namespace mm::comm
