// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <arpa/inet.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <random>

#include "agent/probes/nic.h"
#include "agent/probes/port.h"

namespace mm::agent {
namespace {

std::string link_message(uint16_t type, const std::string& name, unsigned flags) {
  const size_t attribute = sizeof(rtattr) + name.size() + 1, total = sizeof(nlmsghdr) + sizeof(ifinfomsg) + attribute;
  std::string out((total + 3) & ~size_t{3}, '\0');
  nlmsghdr header = {};
  header.nlmsg_len = static_cast<uint32_t>(total);
  header.nlmsg_type = type;
  ifinfomsg info = {};
  info.ifi_flags = flags;
  rtattr a = {};
  a.rta_len = static_cast<unsigned short>(attribute);
  a.rta_type = IFLA_IFNAME;
  std::memcpy(out.data(), &header, sizeof header);
  std::memcpy(out.data() + sizeof header, &info, sizeof info);
  std::memcpy(out.data() + sizeof header + sizeof info, &a, sizeof a);
  std::memcpy(out.data() + sizeof header + sizeof info + sizeof a, name.c_str(), name.size() + 1);
  return out;
}

TEST(Nic, ReadsStates) {
  constexpr unsigned lower_up = 1u << 16;
  const std::string data = link_message(RTM_NEWLINK, "eth0", IFF_UP | lower_up) + link_message(RTM_NEWLINK, "eth1", IFF_UP) +
                           link_message(RTM_NEWLINK, "ib0", 0) + link_message(RTM_DELLINK, "ib1", IFF_UP | lower_up);
  const auto states = parse_link_messages(data.data(), data.size());
  ASSERT_EQ(states.size(), 4u);
  EXPECT_TRUE(states.at("eth0").fine());
  EXPECT_EQ(states.at("eth1").describe(), "carrier lost");
  EXPECT_EQ(states.at("ib0").describe(), "set down");
  EXPECT_EQ(states.at("ib1").describe(), "removed");
}

TEST(Nic, DamagedMessagesStayWithinTheirBytes) {
  std::mt19937 random(11);
  const std::string whole = link_message(RTM_NEWLINK, "eth0", IFF_UP) + link_message(RTM_NEWLINK, "eth1", IFF_UP);
  for (int i = 0; i < 20000; ++i) {
    std::string data = whole.substr(0, random() % (whole.size() + 1));
    for (int k = 0; k < 3 && !data.empty(); ++k) data[random() % data.size()] = static_cast<char>(random());
    // In a block of its own, so that a read past the end is seen by a sanitizer.
    const std::vector<char> exact(data.begin(), data.end());
    parse_link_messages(exact.data(), exact.size());
  }
}

TEST(Nic, KnowsTheLoopback) {
  Loop loop;
  const NicProbe probe(loop, [](const std::string&, const NicState&, const NicState&) {});
  EXPECT_TRUE(probe.state("lo").present);
  EXPECT_FALSE(probe.state("no-such-nic").present);
  EXPECT_EQ(interface_of_address("127.0.0.1"), probe.state("lo").up ? "lo" : "");
}

TEST(Port, ListeningOrNotWithoutAConnection) {
  const UniqueFd fd(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  socklen_t size = sizeof address;
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const uint16_t port = ntohs(address.sin_port);
  const auto before = port_is_listening(port);
  if (!before) GTEST_SKIP() << "this kernel has no sock_diag";
  EXPECT_FALSE(*before);
  EXPECT_EQ(connect_to_port("127.0.0.1", port, milliseconds(300)), PortAnswer::closed);
  ASSERT_EQ(::listen(fd.get(), 1), 0);
  EXPECT_EQ(port_is_listening(port), true);
  EXPECT_EQ(connect_to_port("127.0.0.1", port, milliseconds(300)), PortAnswer::open);
}

}  // namespace
}  // namespace mm::agent
