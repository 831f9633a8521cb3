// SPDX-License-Identifier: Apache-2.0
// Datagrams between the agents of a cluster.
//
// A datagram is one MUNGE credential; its payload is KEY=VALUE lines. Keys of this layer are in lower case: from and to (node names),
// run and count (peers/replay.h), kind, id, of (the run that asked).
//   kind=tell    has no answer and may be lost: heartbeats, progress
//   kind=ask     is sent again (with a new count and the same id) until kind=answer with its id arrives or the deadline passes
//   kind=answer  to an ask. The receiver handles an ask once and keeps its answer for repeats, so that an ask acts at most once.
//
// A datagram counts only if its credential is from a trusted user (peers/trusted.h), is for this node, and was not seen before.
// munge is only called in workers: a dead munged delays messages and never the loop. What waits for munge is bounded; more is dropped.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "agent/loop.h"
#include "agent/peers/address_book.h"
#include "agent/peers/credential.h"
#include "agent/peers/replay.h"
#include "common/files.h"
#include "common/key_values.h"

namespace mm::agent {

class Mesh {
 public:
  using Reply = std::function<void(const KeyValues&)>;
  struct Handlers {
    std::function<void(const std::string& from, const KeyValues&)> told;
    std::function<void(const std::string& from, const KeyValues&, Reply)> asked;
  };
  // Nothing: no answer within the deadline, or no such node.
  using Answer = std::function<void(const std::optional<KeyValues>&)>;

  Mesh(Loop& loop, std::string node, Handlers handlers);

  // (Re)opens the socket at this node's own place in the book. Throws an Error where this node is not in it or the port is taken.
  void open(AddressBook book, const std::string& munge_socket);
  void trust(std::set<uid_t> users) { trusted_ = std::move(users); }
  bool is_open() const { return static_cast<bool>(socket_); }
  const AddressBook& book() const { return book_; }

  void tell(const std::string& to, KeyValues message);
  void ask(const std::string& to, KeyValues message, milliseconds deadline, Answer answer);

  struct Counts {
    uint64_t sent = 0, received = 0, refused = 0, dropped = 0;
  };
  const Counts& counts() const { return counts_; }

 private:
  struct Question {
    std::string to;
    KeyValues message;
    Answer answer;
    Clock::time_point end;
    milliseconds pause{80};
    std::unique_ptr<Timer> timer;
  };
  void send(const std::string& to, KeyValues message);
  void transmit(const std::string& id);
  void settle(const std::string& id, const std::optional<KeyValues>& answer);
  void receive();
  void take(const Credential& credential);
  void handle(const std::string& from, const KeyValues& message);

  Loop& loop_;
  std::string node_, run_, munge_socket_;
  Handlers handlers_;
  AddressBook book_;
  UniqueFd socket_;
  FdWatch watch_;
  uint64_t count_ = 0, next_id_ = 1;
  std::map<std::string, Question> questions_;
  // Asks that were handled, by sender, run and id: the answer, once there is one.
  std::map<std::string, std::optional<KeyValues>> handled_;
  std::deque<std::string> handled_order_;
  std::map<std::string, ReplayWindow> windows_;
  std::set<uid_t> trusted_;
  Counts counts_;
  Clock::time_point complained_;
};

}  // namespace mm::agent
