// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/record.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

#include "common/key_values.h"

namespace mm::spank {
namespace {

// Blanks, '%' and what a shell or a line-wise reader of an environment would trip over become %XX.
std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || std::string_view("._,/:+-[]=").find(c) != std::string_view::npos)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  return out;
}

std::string unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(text.data() + i + 1, text.data() + i + 3, value, 16).ptr == text.data() + i + 3) {
      out += static_cast<char>(value);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

std::string format_record(const Record& r) {
  std::string text =
      fmt::format("value={} spec={} tp={} pp={} cp={} spares={} hang={:.17g} requeue={} tasks={}", escape(r.value),
                  escape(r.spec), r.tp, r.pp, r.cp, r.spares, r.hang_timeout, r.requeue ? 1 : 0, r.tasks);
  if (!r.order.empty()) text += fmt::format(" order={}", escape(r.order));
  if (!r.master.empty()) text += fmt::format(" master={}", escape(r.master));
  if (r.ordered) text += " ordered=1";
  if (r.refused) text += " refused=1";
  return text;
}

std::optional<Record> parse_record(std::string_view text) {
  KeyValues values;
  while (!text.empty()) {
    const size_t end = text.find(' ');
    const std::string_view item = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    const size_t equals = item.find('=');
    if (equals == std::string_view::npos) continue;
    values[std::string(item.substr(0, equals))] = unescape(item.substr(equals + 1));
  }
  Record r;
  r.value = get(values, "value");
  if (r.value.empty()) return {};
  r.spec = get(values, "spec");
  r.order = get(values, "order");
  r.master = get(values, "master");
  r.ordered = get(values, "ordered") == "1";
  r.refused = get(values, "refused") == "1";
  r.requeue = get(values, "requeue", "1") != "0";
  bool fits = true;
  const auto number = [&](const char* key, int64_t least, int64_t otherwise) {
    const int64_t n = get_int(values, key, otherwise);
    fits = fits && n >= least && n <= 1 << 24;
    return static_cast<int>(n);
  };
  r.tp = number("tp", 1, 1);
  r.pp = number("pp", 1, 1);
  r.cp = number("cp", 1, 1);
  r.spares = number("spares", 0, 0);
  r.tasks = number("tasks", 0, 0);
  const std::string hang = get(values, "hang", "0");
  const auto [end, error] = std::from_chars(hang.data(), hang.data() + hang.size(), r.hang_timeout);
  fits = fits && error == std::errc() && end == hang.data() + hang.size() && r.hang_timeout >= 0 && r.hang_timeout <= 1e9;
  if (!fits || int64_t{r.tp} * r.pp > 1 << 24 || int64_t{r.tp} * r.pp * r.cp > 1 << 24) return {};
  return r;
}

}  // namespace mm::spank
