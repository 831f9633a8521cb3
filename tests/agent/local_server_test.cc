// SPDX-License-Identifier: Apache-2.0
#include "agent/local/server.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "common/agent_client.h"
#include "common/error.h"

namespace mm::agent {
namespace {

using namespace std::chrono_literals;

class LocalServerTest : public ::testing::Test {
 protected:
  LocalServerTest() {
    char name[] = "/tmp/mm-local-XXXXXX";
    folder_ = ::mkdtemp(name);
    path_ = folder_ + "/agent.sock";
  }
  ~LocalServerTest() override { std::filesystem::remove_all(folder_); }
  std::string folder_, path_;
};

TEST_F(LocalServerTest, ManyClientsEachGetTheirOwnAnswer) {
  Loop loop;
  LocalServer server(loop, path_,
                     {[&](ClientId id, const Peer& peer, std::string_view text) {
                        EXPECT_EQ(peer.uid, ::geteuid());
                        EXPECT_EQ(peer.pid, ::getpid());
                        server.send(id, format_key_values({{"ECHO", get(parse_key_values(text), "N")}}));
                      },
                      [](ClientId) {}});
  std::thread clients([&] {
    std::vector<AgentClient> all;
    for (int i = 0; i < 200; ++i) all.emplace_back(path_);
    for (int i = 0; i < 200; ++i) all[static_cast<size_t>(i)].send({{"N", std::to_string(i)}}, 5s);
    for (int i = 199; i >= 0; --i) EXPECT_EQ(get(all[static_cast<size_t>(i)].receive(5s), "ECHO"), std::to_string(i));
    all.clear();
    loop.post([&] { loop.stop(); });
  });
  loop.run();
  clients.join();
}

TEST_F(LocalServerTest, AClientThatDoesNotReadIsClosedAndOthersGoOn) {
  Loop loop;
  size_t closed = 0;
  const std::string big(100000, 'x');
  LocalServer server(loop, path_, {[&](ClientId id, const Peer&, std::string_view text) {
                                     if (parse_key_values(text).contains("FLOOD"))
                                       for (int i = 0; i < 200; ++i) server.send(id, "X=" + big + "\n");
                                     else server.send(id, "OK=1\n");
                                   },
                                   [&](ClientId) { ++closed; }});
  std::thread clients([&] {
    AgentClient lazy(path_), other(path_);
    lazy.send({{"FLOOD", "1"}}, 5s);
    EXPECT_EQ(get(other.request({{"A", "1"}}, 5s), "OK"), "1");
    // What was in the socket can still be read; then comes the end.
    EXPECT_THROW(
        {
          for (int i = 0; i < 200; ++i) lazy.receive(5s);
        },
        Error);
    loop.post([&] { loop.stop(); });
  });
  loop.run();
  clients.join();
  EXPECT_GE(closed, 1u);
}

TEST_F(LocalServerTest, OneAgentPerNode) {
  Loop loop;
  const LocalServer::Handlers none = {[](ClientId, const Peer&, std::string_view) {}, [](ClientId) {}};
  {
    LocalServer server(loop, path_, none);
    EXPECT_THROW(LocalServer(loop, path_, none), Error);
    EXPECT_TRUE(std::filesystem::exists(path_)) << "the refused one took the socket away";
  }
  LocalServer again(loop, path_, none);
}

TEST(Peer, WhoMayActForWhom) {
  const uid_t me = ::geteuid(), other = me + 1234;
  EXPECT_TRUE((Peer{1, 0}).may_act_for(other));
  EXPECT_TRUE((Peer{1, me}).may_act_for(other)) << "who runs the agent is its root";
  EXPECT_TRUE((Peer{1, other}).may_act_for(other));
  EXPECT_FALSE((Peer{1, other}).may_act_for(other + 1));
  EXPECT_FALSE((Peer{1, other}).is_root());
}

}  // namespace
}  // namespace mm::agent
