// SPDX-License-Identifier: Apache-2.0
// Goes through the messages of one netlink datagram and the attributes of a message. The kernel's own macros do the same with C casts.
#pragma once

#include <linux/netlink.h>
#include <linux/rtnetlink.h>

#include <cstddef>

namespace mm::agent {

constexpr size_t netlink_aligned(size_t size) { return (size + 3) & ~size_t{3}; }

// visit(const nlmsghdr&, const char* payload, size_t payload_size); a length that does not fit ends the walk.
template <typename Visit>
void for_each_message(const char* data, size_t size, Visit visit) {
  while (size >= sizeof(nlmsghdr)) {
    const auto& header = *reinterpret_cast<const nlmsghdr*>(data);
    if (header.nlmsg_len < sizeof(nlmsghdr) || header.nlmsg_len > size) return;
    visit(header, data + sizeof(nlmsghdr), header.nlmsg_len - sizeof(nlmsghdr));
    const size_t step = netlink_aligned(header.nlmsg_len);
    if (step >= size) return;
    data += step;
    size -= step;
  }
}

// visit(type, const char* value, size_t size)
template <typename Visit>
void for_each_attribute(const char* data, size_t size, Visit visit) {
  while (size >= sizeof(rtattr)) {
    const auto& attribute = *reinterpret_cast<const rtattr*>(data);
    if (attribute.rta_len < sizeof(rtattr) || attribute.rta_len > size) return;
    visit(attribute.rta_type, data + sizeof(rtattr), attribute.rta_len - sizeof(rtattr));
    const size_t step = netlink_aligned(attribute.rta_len);
    if (step >= size) return;
    data += step;
    size -= step;
  }
}

}  // namespace mm::agent
