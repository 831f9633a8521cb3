// SPDX-License-Identifier: Apache-2.0
#include "trainer/comm/mpi_transport.h"

#include <fmt/format.h>
#define OMPI_SKIP_MPICXX 1  // the C++ bindings of MPI 2 would add their own library
#include <mpi.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
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

// Sleeps between two looks: messages of a running step come within microseconds, so first it only yields; a peer that computes
// or writes a checkpoint takes long, so the naps grow. MPI's own waits spin and would take the core from the rank that is
// waited for.
class Patience {
 public:
  void rest() {
    if (yields_ < 16) {
      ++yields_;
      ::sched_yield();
      return;
    }
    std::this_thread::sleep_for(nap_);
    nap_ = std::min<std::chrono::microseconds>(nap_ * 2, Clock::now() - begin_ < 20ms ? 200us : 1000us);
  }

 private:
  int yields_ = 0;
  std::chrono::microseconds nap_ = 20us;
  Clock::time_point begin_ = Clock::now();
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
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
    void* limit = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &limit, &found), "MPI_Comm_get_attr");
    if (found != 0) tags_ = static_cast<uint64_t>(*static_cast<int*>(limit));
  }
  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Outcome exchange(std::span<const Outgoing> out, std::span<const Incoming> in, uint64_t tag,
                   Clock::time_point deadline) override {
    const int mpi_tag = static_cast<int>(tag % tags_);
    std::vector<MPI_Request> requests;
    std::vector<int> peers;
    std::vector<size_t> expected;
    for (const Incoming& i : in) {
      requests.push_back(MPI_REQUEST_NULL);
      peers.push_back(i.peer);
      expected.push_back(i.bytes);
      const int code =
          MPI_Irecv(i.data, static_cast<int>(i.bytes), MPI_BYTE, i.peer, mpi_tag, MPI_COMM_WORLD, &requests.back());
      if (code != MPI_SUCCESS) return broken(i.peer, code);
    }
    for (const Outgoing& o : out) {
      requests.push_back(MPI_REQUEST_NULL);
      peers.push_back(o.peer);
      const int code =
          MPI_Isend(o.data, static_cast<int>(o.bytes), MPI_BYTE, o.peer, mpi_tag, MPI_COMM_WORLD, &requests.back());
      if (code != MPI_SUCCESS) return broken(o.peer, code);
    }

    const int n = static_cast<int>(requests.size());
    std::vector<int> which(requests.size());
    std::vector<MPI_Status> states(requests.size());
    Patience patience;
    for (int left = n; left > 0;) {
      int done = 0;
      const int code = MPI_Testsome(n, requests.data(), &done, which.data(), states.data());
      if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return broken(-1, code);
      for (int k = 0; k < done; ++k) {
        const size_t at = static_cast<size_t>(which[static_cast<size_t>(k)]);
        const MPI_Status& state = states[static_cast<size_t>(k)];
        if (code == MPI_ERR_IN_STATUS && state.MPI_ERROR != MPI_SUCCESS) return broken(peers[at], state.MPI_ERROR);
        int bytes = 0;
        if (at < expected.size() &&
            (MPI_Get_count(&state, MPI_BYTE, &bytes) != MPI_SUCCESS || static_cast<size_t>(bytes) != expected[at]))
          return {{}, fmt::format("rank {} sent {} bytes in place of {}", peers[at], bytes, expected[at])};
      }
      left -= std::max(done, 0);
      if (done > 0)
        patience = Patience();
      else if (Clock::now() >= deadline)
        return late(requests, peers);
      else
        patience.rest();
    }
    return {};
  }

 private:
  static Outcome broken(int peer, int code) {
    return {{}, peer < 0 ? text_of(code) : fmt::format("rank {}: {}", peer, text_of(code))};
  }
  static Outcome late(const std::vector<MPI_Request>& requests, const std::vector<int>& peers) {
    Outcome outcome;
    for (size_t i = 0; i < requests.size(); ++i)
      if (requests[i] != MPI_REQUEST_NULL) outcome.late.push_back(peers[i]);
    std::sort(outcome.late.begin(), outcome.late.end());
    outcome.late.erase(std::unique(outcome.late.begin(), outcome.late.end()), outcome.late.end());
    return outcome;
  }

  int rank_ = 0, size_ = 1;
  uint64_t tags_ = 32767;  // what the standard promises
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
