// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/peer.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>

#include "checkpoint/hash.h"
#include "checkpoint/io.h"
#include "checkpoint/node_store.h"
#include "checkpoint/rank_file.h"

namespace mm::checkpoint {
namespace {

using wire::Clock;
using namespace std::chrono_literals;

constexpr auto message_deadline = 60s;     // for one message of at most 4 MiB, and for an answer
constexpr auto idle_deadline = 24h * 365;  // a connection may stay without a request
constexpr uint64_t most_read_bytes = 2 * block_bytes;

class RemoteSource : public Source {
 public:
  RemoteSource(UniqueFd fd, std::string whom, size_t number, uint64_t size)
      : fd_(std::move(fd)), whom_(std::move(whom)), number_(number), size_(size) {}
  uint64_t size() const override { return size_; }
  void read(void* data, size_t bytes, uint64_t offset) override {
    const std::lock_guard lock(mutex_);
    char* to = static_cast<char*>(data);
    try {
      for (size_t at = 0; at < bytes;) {
        const size_t n = std::min<size_t>(bytes - at, most_read_bytes);
        const auto until = Clock::now() + message_deadline;
        wire::send_message(fd_.get(),
                           wire::pack({"read", std::to_string(number_), std::to_string(offset + at), std::to_string(n)}), until,
                           whom_);
        const std::string answer = wire::receive_message(fd_.get(), until, whom_);
        if (answer.size() != n + 1 || answer[0] != '+')
          throw Error(exit_status::data, answer.empty() ? whom_ + ": no answer" : answer.substr(1));
        std::copy(answer.begin() + 1, answer.end(), to + at);
        at += n;
      }
    } catch (const io::Failure&) {
      throw;
    } catch (const Error& e) {
      throw io::Failure(std::string("read from ") + whom_ + " (" + e.what() + ")", EREMOTEIO);
    }
  }

 private:
  std::mutex mutex_;
  UniqueFd fd_;
  std::string whom_;
  size_t number_;
  uint64_t size_;
};

}  // namespace

PeerServer::PeerServer(const NodeStore* store) : store_(store) {
  std::tie(listener_, door_) = wire::open_door(1024);
  acceptor_ = std::jthread([this](const std::stop_token& stop) { accept_all(stop); });
}

PeerServer::~PeerServer() {
  acceptor_.request_stop();
  ::shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const Connection& c : connections_) {
      if (c.fd) ::shutdown(c.fd.get(), SHUT_RDWR);
    }
  }
  connections_.clear();
}

void PeerServer::offer(std::vector<Place> copies) {
  const std::lock_guard lock(mutex_);
  offered_ = std::move(copies);
  open_.clear();
}

void PeerServer::accept_all(const std::stop_token& stop) {
  while (!stop.stop_requested() && wire::wait_readable(listener_.get(), Clock::now() + idle_deadline)) {
    auto one = wire::accept_one(listener_.get(), door_);
    if (!one) continue;
    const std::lock_guard lock(mutex_);
    connections_.remove_if([](const Connection& c) { return !c.fd; });
    Connection& c = connections_.emplace_back();
    c.fd = std::move(one->second);
    c.server = std::jthread([this, &c] { serve(c); });
  }
}

// A connection stays until the other side closes it.
void PeerServer::serve(Connection& connection) {
  const int fd = connection.fd.get();
  try {
    for (;;) {
      const auto request = wire::unpack(wire::receive_message(fd, Clock::now() + idle_deadline, "a rank"));
      wire::send_message(fd, answer(fd, request), Clock::now() + message_deadline, "a rank");
    }
  } catch (const std::exception&) {
    // It has gone; what it began to give stays private.
  }
  const std::lock_guard lock(mutex_);
  connection.fd.reset();
}

std::string PeerServer::answer(int fd, const std::vector<std::string>& request) {
  try {
    if (request.size() == 7 && request[0] == "give") return keep(fd, request);
    if (request.size() == 4 && request[0] == "read") return read(request);
    return "-not understood";
  } catch (const io::Failure& e) {
    return std::string("-") + e.what();
  } catch (const BadStep& e) {
    return std::string("-") + e.what();
  }
}

std::string PeerServer::keep(int fd, const std::vector<std::string>& request) {
  const int64_t step = std::stoll(request[1]);
  const Identity identity{request[2], step, std::stoi(request[3]), std::stoi(request[4])};
  const FileRecord record = parse_file_record(request[5]);
  const bool named_well =
      !identity.writer.empty() && identity.writer.find_first_not_of("0123456789abcdef") == std::string::npos;
  std::string problem = store_ == nullptr ? "-this rank keeps no copies" : !named_well ? "-a name that is none" : "";
  std::optional<io::File> file;
  std::string path;
  if (problem.empty()) {
    try {
      path = store_->private_folder(step, identity.writer) + "/" + rank_file_name(identity.rank);
      file = io::File::create(path);
      file->allocate(record.size);
    } catch (const io::Failure& e) {
      problem = std::string("-") + e.what();
    }
  }
  // What comes is taken in any case, so that the connection stays in step.
  for (uint64_t at = 0; at < record.size;) {
    const std::string piece = wire::receive_message(fd, Clock::now() + message_deadline, "a rank");
    if (piece.empty() || piece.size() > record.size - at) throw Error(exit_status::data, "checkpoint: a copy of another size");
    try {
      if (problem.empty()) file->write(piece.data(), piece.size(), at);
    } catch (const io::Failure& e) {
      problem = std::string("-") + e.what();
    }
    at += piece.size();
  }
  if (!problem.empty()) return problem;
  file->sync();
  file->close();
  check_rank_file(path, record, identity);
  return "+";
}

std::string PeerServer::read(const std::vector<std::string>& request) {
  const size_t number = std::stoul(request[1]), bytes = std::stoul(request[3]);
  const uint64_t offset = std::stoull(request[2]);
  std::shared_ptr<Source> source;
  {
    const std::lock_guard lock(mutex_);
    if (number >= offered_.size() || bytes > most_read_bytes) return "-no such copy";
    if (!open_[number]) open_[number] = offered_[number].open();
    source = open_[number];
  }
  std::string out(bytes + 1, '+');
  source->read(out.data() + 1, bytes, offset);
  return out;
}

void give_copy(const wire::Door& door, const std::string& whom, const std::string& path, int64_t step, const std::string& name,
               int rank, int ranks, const FileRecord& record) {
  const UniqueFd fd = wire::connect_to(door, rank, whom);
  const auto until = [] { return Clock::now() + message_deadline; };
  wire::send_message(fd.get(),
                     wire::pack({"give", std::to_string(step), name, std::to_string(rank), std::to_string(ranks),
                                 text_of(record), std::to_string(record.size)}),
                     until(), whom);
  const io::File file = io::File::open(path);
  std::string piece;
  for (uint64_t at = 0; at < record.size; at += piece.size()) {
    piece.resize(std::min(block_bytes, record.size - at));
    file.read(piece.data(), piece.size(), at);
    wire::send_message(fd.get(), piece, until(), whom);
  }
  // It reads and hashes all of it before it answers.
  const std::string answer = wire::receive_message(fd.get(), until() + std::chrono::seconds(record.size / (10 << 20)), whom);
  if (answer != "+")
    throw Error(exit_status::data, "checkpoint: " + whom + ": " + (answer.empty() ? "no answer" : answer.substr(1)));
}

Place remote_place(const wire::Door& door, const std::string& whom, size_t number, uint64_t size) {
  const std::string name = fmt::format("copy {} of {}", number, whom);
  return {name, [=] {
            try {
              return std::make_unique<RemoteSource>(wire::connect_to(door, 0, whom), whom, number, size);
            } catch (const Error& e) {
              throw io::Failure("open " + name + " (" + e.what() + ")", EREMOTEIO);
            }
          }};
}

}  // namespace mm::checkpoint
