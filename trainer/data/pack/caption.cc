// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/pack/caption.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/error.h"
#include "common/files.h"

namespace mm::data {
namespace {

bool is_lower(unsigned char c) {
  return c >= 'a' && c <= 'z';
}
bool is_upper(unsigned char c) {
  return c >= 'A' && c <= 'Z';
}
// Bytes of characters beyond ASCII count as letters.
bool is_letter(unsigned char c) {
  return is_lower(c) || is_upper(c) || c >= 0x80;
}

}  // namespace

std::string caption_of_path(std::string_view path) {
  const size_t slash = path.rfind('/'), base = slash == std::string_view::npos ? 0 : slash + 1, dot = path.rfind('.');
  if (dot != std::string_view::npos && dot > base) path = path.substr(0, dot);
  std::vector<std::string> words;
  std::string word;
  const auto finish = [&] {
    if (word.size() > 1 && std::find(words.begin(), words.end(), word) == words.end()) words.push_back(word);
    word.clear();
  };
  unsigned char before = 0;
  for (const char character : path) {
    const auto c = static_cast<unsigned char>(character);
    if (!is_letter(c) || (is_lower(before) && is_upper(c))) finish();
    if (is_letter(c)) word += static_cast<char>(is_upper(c) ? c - 'A' + 'a' : c);
    before = c;
  }
  finish();
  if (words.empty()) return std::string(path.substr(std::min(base, path.size())));
  std::string caption = words[0];
  for (size_t i = 1; i < words.size(); ++i) caption += " " + words[i];
  return caption;
}

std::unordered_map<std::string, std::string> read_captions(const std::string& file) {
  std::unordered_map<std::string, std::string> captions;
  const std::string content = read_file(file);
  std::string_view rest = content;
  for (int line_number = 1; !rest.empty(); ++line_number) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t tab = line.find('\t');
    if (tab == std::string_view::npos || tab == 0)
      throw usage_error(fmt::format("{}: line {}: not PATH<tab>CAPTION", file, line_number));
    if (!captions.try_emplace(std::string(line.substr(0, tab)), line.substr(tab + 1)).second)
      throw usage_error(fmt::format("{}: line {}: {} has a caption already", file, line_number, line.substr(0, tab)));
  }
  return captions;
}

}  // namespace mm::data
