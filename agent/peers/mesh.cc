// SPDX-License-Identifier: Apache-2.0
#include "agent/peers/mesh.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "common/error.h"
#include "common/log.h"

namespace mm::agent {
namespace {

constexpr size_t most_waiting = 4096;   // datagrams in front of munge, each way
constexpr size_t most_handled = 4096;
constexpr size_t largest_datagram = 60000;
constexpr milliseconds longest_pause{500};
constexpr std::string_view credential_mark = "MUNGE:";

std::string random_number() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

}  // namespace

Mesh::Mesh(Loop& loop, std::string node, Handlers handlers) : loop_(loop), node_(std::move(node)), run_(random_number()), handlers_(std::move(handlers)) {}

void Mesh::open(AddressBook book, const std::string& munge_socket) {
  const auto self = book.find(node_);
  if (self == book.end()) throw usage_error(fmt::format("agent: node {} is not known to Slurm: use --node", node_));
  munge_socket_ = munge_socket;
  const NodeAddress& own = self->second;
  const bool moved = !socket_ || !book_.contains(node_) || book_.at(node_).slurmd_port != own.slurmd_port || book_.at(node_).address != own.address;
  if (moved) {
    if (own.agent_size == 0) throw Error(exit_status::internal, fmt::format("agent: own address {} does not resolve", own.address));
    watch_ = FdWatch();
    socket_ = UniqueFd(::socket(own.agent.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket_) throw system_error("agent: UDP socket", errno);
    const int space = 4 << 20;
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVBUF, &space, sizeof space);
    sockaddr_storage address = own.agent;
    int failed = ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), own.agent_size);
    if (failed != 0 && errno == EADDRNOTAVAIL) {
      // The address is translated on the way (NAT): any of ours will do.
      if (address.ss_family == AF_INET) reinterpret_cast<sockaddr_in*>(&address)->sin_addr = {};
      else reinterpret_cast<sockaddr_in6*>(&address)->sin6_addr = {};
      failed = ::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), own.agent_size);
    }
    if (failed != 0) {
      const int reason = errno;
      socket_.reset();
      throw system_error(fmt::format("agent: bind UDP {} port of slurmd {} + offset", own.address, own.slurmd_port), reason);
    }
    watch_ = FdWatch(loop_, socket_.get(), [this] { receive(); });
  }
  book_ = std::move(book);
}

void Mesh::tell(const std::string& to, KeyValues message) {
  message["kind"] = "tell";
  send(to, std::move(message));
}

void Mesh::ask(const std::string& to, KeyValues message, milliseconds deadline, Answer answer) {
  const std::string id = std::to_string(next_id_++);
  message["kind"] = "ask";
  message["id"] = id;
  Question& q = questions_[id];
  q.to = to;
  q.message = std::move(message);
  q.answer = std::move(answer);
  q.end = Clock::now() + deadline;
  q.timer = std::make_unique<Timer>(loop_);
  transmit(id);
}

void Mesh::transmit(const std::string& id) {
  Question& q = questions_.at(id);
  const auto left = std::chrono::duration_cast<milliseconds>(q.end - Clock::now());
  if (left.count() <= 0) return settle(id, std::nullopt);
  send(q.to, q.message);
  const milliseconds pause = std::min(q.pause, left);
  q.pause = std::min(q.pause * 2, longest_pause);
  q.timer->start(std::max(pause, milliseconds(1)), [this, id] { transmit(id); });
}

void Mesh::settle(const std::string& id, const std::optional<KeyValues>& answer) {
  const auto at = questions_.find(id);
  if (at == questions_.end()) return;
  const Answer then = std::move(at->second.answer);
  questions_.erase(at);
  then(answer);
}

void Mesh::send(const std::string& to, KeyValues message) {
  const auto at = book_.find(to);
  if (!socket_ || at == book_.end() || at->second.agent_size == 0 || loop_.waiting(Loop::Pool::encode) > most_waiting) {
    ++counts_.dropped;
    return;
  }
  message["from"] = node_;
  message["to"] = to;
  message["run"] = run_;
  message["count"] = std::to_string(++count_);
  loop_.work(Loop::Pool::encode, [this, payload = format_key_values(message), address = at->second, munge = munge_socket_]() -> Loop::Action {
    std::string credential;
    try {
      credential = encode_credential(payload, munge, ::geteuid());
    } catch (const Error& e) {
      return [this, why = std::string(e.what())] {
        ++counts_.dropped;
        if (Clock::now() - complained_ < std::chrono::seconds(10)) return;
        complained_ = Clock::now();
        log::warn("{}", why);
      };
    }
    return [this, credential = std::move(credential), address] {
      if (!socket_ || credential.size() > largest_datagram) {
        ++counts_.dropped;
        return;
      }
      const ssize_t n = ::sendto(socket_.get(), credential.data(), credential.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                                 reinterpret_cast<const sockaddr*>(&address.agent), address.agent_size);
      n < 0 ? ++counts_.dropped : ++counts_.sent;
    };
  });
}

void Mesh::receive() {
  std::string buffer(largest_datagram + 1, '\0');
  for (int i = 0; i < 64; ++i) {
    const ssize_t n = ::recv(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) continue;  // an ICMP error of an earlier send
    const std::string_view text(buffer.data(), static_cast<size_t>(n));
    // What is no credential costs nothing more.
    if (text.size() > largest_datagram || !text.starts_with(credential_mark)) {
      ++counts_.refused;
      continue;
    }
    if (loop_.waiting(Loop::Pool::decode) > most_waiting) {
      ++counts_.dropped;
      continue;
    }
    loop_.work(Loop::Pool::decode, [this, credential = std::string(text), munge = munge_socket_]() -> Loop::Action {
      try {
        return [this, decoded = decode_credential(credential, munge)] { take(decoded); };
      } catch (const Error&) {
        return [this] { ++counts_.refused; };
      }
    });
  }
}

void Mesh::take(const Credential& credential) {
  const KeyValues message = parse_key_values(credential.payload);
  const std::string from = get(message, "from");
  if (!trusted_.contains(credential.uid) || get(message, "to") != node_ || from == node_ || !book_.contains(from) ||
      !windows_[from].accept(get(message, "run"), static_cast<uint64_t>(get_int(message, "count", 0)), credential.encoded_at)) {
    ++counts_.refused;
    return;
  }
  ++counts_.received;
  handle(from, message);
}

void Mesh::handle(const std::string& from, const KeyValues& message) {
  const std::string kind = get(message, "kind"), id = get(message, "id");
  if (kind == "tell") return handlers_.told(from, message);
  if (kind == "answer") {
    const auto at = questions_.find(id);
    // Only who was asked may answer; the number of our run is in the id's place of the answer.
    if (at != questions_.end() && at->second.to == from && get(message, "of") == run_) settle(id, message);
    return;
  }
  if (kind != "ask" || id.empty()) return;
  const std::string run = get(message, "run"), key = from + "/" + run + "/" + id;
  const auto answer_with = [this, from, run, id](KeyValues answer) {
    answer["kind"] = "answer";
    answer["id"] = id;
    answer["of"] = run;
    send(from, std::move(answer));
  };
  const auto known = handled_.find(key);
  if (known != handled_.end()) {
    if (known->second) answer_with(*known->second);
    return;
  }
  handled_[key] = std::nullopt;
  handled_order_.push_back(key);
  if (handled_order_.size() > most_handled) {
    handled_.erase(handled_order_.front());
    handled_order_.pop_front();
  }
  handlers_.asked(from, message, [this, key, answer_with](const KeyValues& answer) {
    if (const auto at = handled_.find(key); at != handled_.end()) at->second = answer;
    answer_with(answer);
  });
}

}  // namespace mm::agent
