// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>
#include <cstring>

#include "trainer/data/tar.h"

namespace mm::data {
namespace {

using Header = std::array<char, 512>;

void put_octal(Header& header, size_t at, int digits, uint64_t value) {
  const std::string text = fmt::format("{:0{}o}", value, digits);
  std::memcpy(header.data() + at, text.data(), text.size());
}

void append_entry(std::string& archive, char type, std::string_view prefix, std::string_view name, std::string_view content) {
  Header header{};
  name.copy(header.data(), name.size());
  put_octal(header, 100, 7, 0644);
  put_octal(header, 108, 7, 0);
  put_octal(header, 116, 7, 0);
  put_octal(header, 124, 11, content.size());
  put_octal(header, 136, 11, 0);
  std::memset(header.data() + 148, ' ', 8);
  header[156] = type;
  std::memcpy(header.data() + 257, "ustar\00000", 8);
  prefix.copy(header.data() + 345, prefix.size());
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put_octal(header, 148, 6, sum);
  header[154] = '\0';
  archive.append(header.data(), header.size());
  archive.append(content);
  archive.append((512 - content.size() % 512) % 512, '\0');
}

std::string pax_record(std::string_view key, std::string_view value) {
  const size_t rest = key.size() + value.size() + 3;  // blank, equals sign, newline
  size_t length = rest + 1;
  while (length != rest + std::to_string(length).size()) ++length;
  return fmt::format("{} {}={}\n", length, key, value);
}

// Eleven octal digits; parts of samples are far smaller, so that only names need pax.
constexpr size_t longest_name = 100, longest_prefix = 155;

}  // namespace

void append_tar_member(std::string& archive, const std::string& name, std::string_view content) {
  if (name.size() <= longest_name) return append_entry(archive, '0', {}, name, content);
  // A name that can be cut at a slash fits the two fields of ustar.
  const size_t slash = name.find('/', name.size() - longest_name - 1);
  if (slash != std::string::npos && slash > 0 && slash <= longest_prefix && slash + 1 < name.size())
    return append_entry(archive, '0', std::string_view(name).substr(0, slash), std::string_view(name).substr(slash + 1),
                        content);
  append_entry(archive, 'x', {}, "pax", pax_record("path", name));
  append_entry(archive, '0', {}, std::string_view(name).substr(0, longest_name), content);
}

void append_tar_end(std::string& archive) {
  archive.append(1024, '\0');
}

}  // namespace mm::data
