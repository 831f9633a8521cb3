// SPDX-License-Identifier: Apache-2.0
#include "common/hostlist.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>

#include "common/error.h"

namespace mm {
namespace {

constexpr size_t most_hosts = 65536, longest_name = 1024;

Error bad(std::string_view list, std::string_view why) { return usage_error(fmt::format("host list '{}': {}", list.substr(0, 256), why)); }

// The names between one pair of brackets: "01-03,7" -> 01 02 03 7.
std::vector<std::string> expand_range(std::string_view list, std::string_view range) {
  std::vector<std::string> out;
  while (true) {
    const size_t comma = range.find(',');
    const std::string_view item = range.substr(0, comma);
    const size_t dash = item.find('-');
    const std::string_view low = item.substr(0, dash), high = dash == std::string_view::npos ? low : item.substr(dash + 1);
    uint64_t from = 0, to = 0;
    const auto a = std::from_chars(low.data(), low.data() + low.size(), from);
    const auto b = std::from_chars(high.data(), high.data() + high.size(), to);
    if (low.empty() || high.empty() || a.ec != std::errc() || b.ec != std::errc() || a.ptr != low.data() + low.size() ||
        b.ptr != high.data() + high.size() || to < from)
      throw bad(list, fmt::format("'{}' is not a range of numbers", item));
    if (to - from >= most_hosts || out.size() + (to - from) >= most_hosts) throw bad(list, "too many hosts");
    for (uint64_t i = from; i <= to; ++i) out.push_back(fmt::format("{:0{}}", i, low.size()));
    if (comma == std::string_view::npos) return out;
    range.remove_prefix(comma + 1);
  }
}

// One element of the list, brackets included.
void expand_element(std::string_view list, std::string_view element, std::vector<std::string>& out) {
  std::vector<std::string> names = {""};
  while (!element.empty()) {
    const size_t open = element.find('[');
    if (element.substr(0, open).find(']') != std::string_view::npos) throw bad(list, "']' without '['");
    if (names.front().size() + element.substr(0, open).size() > longest_name) throw bad(list, "a name is too long");
    for (std::string& n : names) n += element.substr(0, open);
    if (open == std::string_view::npos) break;
    const size_t close = element.find(']', open);
    if (close == std::string_view::npos) throw bad(list, "'[' without ']'");
    const std::vector<std::string> numbers = expand_range(list, element.substr(open + 1, close - open - 1));
    if (names.size() * numbers.size() > most_hosts) throw bad(list, "too many hosts");
    element.remove_prefix(close + 1);
    // Slurm counts the last brackets fastest, then the first, the second and so on.
    std::vector<std::string> product;
    if (element.find('[') == std::string_view::npos) {
      for (const std::string& n : names)
        for (const std::string& k : numbers) product.push_back(n + k);
    } else {
      for (const std::string& k : numbers)
        for (const std::string& n : names) product.push_back(n + k);
    }
    names = std::move(product);
  }
  if (out.size() + names.size() > most_hosts) throw bad(list, "too many hosts");
  for (std::string& n : names) out.push_back(std::move(n));
}

}  // namespace

std::vector<std::string> expand_hostlist(std::string_view list) {
  std::vector<std::string> out;
  size_t begin = 0, depth = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') ++depth;
    if (i < list.size() && list[i] == ']' && depth > 0) --depth;
    if (i < list.size() && (std::string_view(", \t\n").find(list[i]) == std::string_view::npos || depth > 0)) continue;
    if (i > begin) expand_element(list, list.substr(begin, i - begin), out);
    begin = i + 1;
  }
  return out;
}

std::string compress_hostlist(const std::vector<std::string>& hosts) {
  struct Split {
    std::string prefix, digits;
  };
  const auto split = [](const std::string& host) {
    size_t at = host.size();
    while (at > 0 && host[at - 1] >= '0' && host[at - 1] <= '9' && host.size() - at < 18) --at;
    return Split{host.substr(0, at), host.substr(at)};
  };
  std::string out;
  for (size_t i = 0; i < hosts.size();) {
    const Split first = split(hosts[i]);
    std::vector<std::string> ranges;
    size_t count = 0;
    while (i < hosts.size()) {
      const Split low = split(hosts[i]);
      if (low.prefix != first.prefix || low.digits.empty()) break;
      size_t last = i;
      uint64_t number = std::stoull(low.digits);
      while (last + 1 < hosts.size() && hosts[last + 1] == fmt::format("{}{:0{}}", low.prefix, number + 1, low.digits.size())) ++number, ++last;
      ranges.push_back(last == i ? low.digits : low.digits + "-" + split(hosts[last]).digits);
      count += last - i + 1;
      i = last + 1;
    }
    if (!out.empty()) out += ',';
    if (count == 0) out += hosts[i++];
    else if (count == 1) out += first.prefix + ranges.front();
    else out += fmt::format("{}[{}]", first.prefix, fmt::join(ranges, ","));
  }
  return out;
}

}  // namespace mm
