// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/text/utf8.h"

#include <fmt/format.h>

#include <algorithm>

namespace mm::data {
namespace {

struct Scan {
  size_t length;  // bytes that belong together
  bool valid;
};

// The character at the start of `text`, or the longest beginning of one.
Scan scan(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {1, true};
  size_t length = 0;
  unsigned char least = 0x80, most = 0xBF;  // of the second byte: no overlong form, no surrogate, nothing above U+10FFFF
  if (lead >= 0xC2 && lead <= 0xDF)
    length = 2;
  else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) least = 0xA0;
    if (lead == 0xED) most = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) least = 0x90;
    if (lead == 0xF4) most = 0x8F;
  } else {
    return {1, false};
  }
  for (size_t i = 1; i < length; ++i) {
    if (i >= text.size() || byte(i) < least || byte(i) > most) return {i, false};
    least = 0x80, most = 0xBF;
  }
  return {length, true};
}

}  // namespace

std::string repair_utf8(std::string_view text, bool& repaired) {
  std::string out;
  out.reserve(text.size());
  repaired = false;
  while (!text.empty()) {
    const Scan one = scan(text);
    if (one.valid)
      out.append(text.substr(0, one.length));
    else
      out.append("\xEF\xBF\xBD"), repaired = true;
    text.remove_prefix(one.length);
  }
  return out;
}

std::string printable(std::string_view text) {
  bool repaired = false;
  std::string out;
  for (const char c : repair_utf8(text, repaired)) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out;
}

std::string json_string(std::string_view text) {
  bool repaired = false;
  std::string out = "\"";
  for (const char c : repair_utf8(text, repaired)) {
    if (c == '"' || c == '\\')
      out += '\\', out += c;
    else if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
    else
      out += c;
  }
  return out + '"';
}

}  // namespace mm::data
