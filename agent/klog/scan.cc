// SPDX-License-Identifier: Apache-2.0
#include "agent/klog/scan.h"

#include <fmt/format.h>

namespace mm::agent {
namespace {

struct Digits {
  int64_t value = 0;
  size_t count = 0;
};

std::optional<Digits> hex_digits(Scan& scan, size_t least, size_t most) {
  Scan ahead = scan;
  const std::string_view text = ahead.while_is(is_hex);
  if (text.size() < least || text.size() > most) return std::nullopt;
  const auto value = Scan(text).number(16);
  if (!value) return std::nullopt;
  scan = ahead;
  return Digits{*value, text.size()};
}

// [DOMAIN:]BUS:DEVICE[.FUNCTION] at the start of the text.
std::string address_at(std::string_view text, bool needs_domain) {
  Scan scan(text);
  auto first = hex_digits(scan, 2, 8);
  if (!first || !scan.take(":")) return "";
  const auto second = hex_digits(scan, 2, 2);
  if (!second) return "";
  int64_t domain = 0, bus = first->value, device = second->value;
  if (Scan ahead = scan; ahead.take(":")) {
    const auto third = hex_digits(ahead, 2, 2);
    if (!third || first->count < 4) return "";
    domain = first->value, bus = second->value, device = third->value;
    scan = ahead;
  } else if (needs_domain || first->count != 2) {
    return "";
  }
  int64_t function = 0;
  if (Scan ahead = scan; ahead.take(".")) {
    const auto digit = hex_digits(ahead, 1, 1);
    if (digit && digit->value < 8) function = digit->value;
  }
  if (device > 0x1f || bus > 0xff) return "";
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

}  // namespace

std::string pci_address(std::string_view text) {
  Scan scan(trimmed(text));
  scan.take("PCI:");
  return address_at(scan.rest(), false);
}

std::string find_pci_address(std::string_view text) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (!is_hex(text[at]) || (at > 0 && (is_word(text[at - 1]) || text[at - 1] == ':'))) continue;
    if (std::string found = address_at(text.substr(at), true); !found.empty()) return found;
  }
  return "";
}

}  // namespace mm::agent
