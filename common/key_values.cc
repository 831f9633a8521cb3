// SPDX-License-Identifier: Apache-2.0
#include "common/key_values.h"

#include <charconv>

namespace mm {

std::string format_key_values(const KeyValues& values) {
  std::string out;
  for (const auto& [key, value] : values) {
    out += key;
    out += '=';
    for (const char c : value) {
      if (c == '\n') out += "\\n";
      else if (c == '\\') out += "\\\\";
      else out += c;
    }
    out += '\n';
  }
  return out;
}

KeyValues parse_key_values(std::string_view text) {
  KeyValues out;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    std::string value;
    for (size_t i = equals + 1; i < line.size(); ++i) {
      if (line[i] == '\\' && i + 1 < line.size()) value += line[++i] == 'n' ? '\n' : line[i];
      else value += line[i];
    }
    out[std::string(line.substr(0, equals))] = std::move(value);
  }
  return out;
}

std::string get(const KeyValues& values, std::string_view key, std::string_view otherwise) {
  const auto at = values.find(key);
  return at == values.end() ? std::string(otherwise) : at->second;
}

int64_t get_int(const KeyValues& values, std::string_view key, int64_t otherwise) {
  const auto at = values.find(key);
  if (at == values.end()) return otherwise;
  int64_t out = 0;
  const std::string& text = at->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() ? out : otherwise;
}

}  // namespace mm
