// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/cpu_set.h"

#include <algorithm>
#include <bit>
#include <charconv>

namespace mm::placement {

void CpuSet::add(int cpu) {
  if (cpu < 0 || cpu >= most) return;
  const size_t word = static_cast<size_t>(cpu) / 64;
  if (word >= words_.size()) words_.resize(word + 1);
  words_[word] |= uint64_t{1} << (cpu % 64);
}

bool CpuSet::contains(int cpu) const {
  const size_t word = static_cast<size_t>(cpu) / 64;
  return cpu >= 0 && word < words_.size() && (words_[word] >> (cpu % 64) & 1) != 0;
}

bool CpuSet::empty() const {
  return std::all_of(words_.begin(), words_.end(), [](uint64_t w) { return w == 0; });
}

int CpuSet::count() const {
  int n = 0;
  for (const uint64_t w : words_) n += std::popcount(w);
  return n;
}

int CpuSet::first() const {
  for (size_t i = 0; i < words_.size(); ++i)
    if (words_[i] != 0) return static_cast<int>(i * 64) + std::countr_zero(words_[i]);
  return -1;
}

std::vector<int> CpuSet::members() const {
  std::vector<int> out;
  for (size_t i = 0; i < words_.size(); ++i)
    for (uint64_t w = words_[i]; w != 0; w &= w - 1) out.push_back(static_cast<int>(i * 64) + std::countr_zero(w));
  return out;
}

bool CpuSet::includes(const CpuSet& other) const {
  for (size_t i = 0; i < other.words_.size(); ++i)
    if ((other.words_[i] & ~(i < words_.size() ? words_[i] : 0)) != 0) return false;
  return true;
}

bool CpuSet::intersects(const CpuSet& other) const {
  for (size_t i = 0; i < std::min(words_.size(), other.words_.size()); ++i)
    if ((words_[i] & other.words_[i]) != 0) return true;
  return false;
}

CpuSet& CpuSet::operator|=(const CpuSet& other) {
  if (other.words_.size() > words_.size()) words_.resize(other.words_.size());
  for (size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
  return *this;
}

CpuSet& CpuSet::operator&=(const CpuSet& other) {
  if (words_.size() > other.words_.size()) words_.resize(other.words_.size());
  for (size_t i = 0; i < words_.size(); ++i) words_[i] &= other.words_[i];
  return *this;
}

CpuSet& CpuSet::operator-=(const CpuSet& other) {
  for (size_t i = 0; i < std::min(words_.size(), other.words_.size()); ++i) words_[i] &= ~other.words_[i];
  return *this;
}

std::string format_list(const CpuSet& set) {
  std::string out;
  const std::vector<int> all = set.members();
  for (size_t i = 0; i < all.size();) {
    size_t last = i;
    while (last + 1 < all.size() && all[last + 1] == all[last] + 1) ++last;
    if (!out.empty()) out += ',';
    out += std::to_string(all[i]);
    if (last > i) out += '-' + std::to_string(all[last]);
    i = last + 1;
  }
  return out;
}

std::optional<CpuSet> parse_list(std::string_view text) {
  CpuSet out;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
    const char* end = item.data() + item.size();
    int low = 0, high = 0;
    const auto a = std::from_chars(item.data(), end, low);
    if (a.ec != std::errc()) return {};
    high = low;
    if (a.ptr != end) {
      if (*a.ptr != '-') return {};
      const auto b = std::from_chars(a.ptr + 1, end, high);
      if (b.ec != std::errc() || b.ptr != end) return {};
    }
    if (low < 0 || high < low || high >= CpuSet::most) return {};
    for (int i = low; i <= high; ++i) out.add(i);
  }
  return out;
}

std::optional<CpuSet> parse_mask(std::string_view text) {
  if (text.rfind("0x", 0) == 0) text.remove_prefix(2);
  if (text.empty() || text.size() > CpuSet::most / 4) return {};
  CpuSet out;
  int bit = 0;
  for (size_t i = text.size(); i-- > 0;) {
    if (text[i] == ',') continue;
    unsigned digit = 0;
    if (std::from_chars(&text[i], &text[i] + 1, digit, 16).ec != std::errc()) return {};
    for (int k = 0; k < 4; ++k)
      if ((digit >> k & 1) != 0) out.add(bit + k);
    bit += 4;
  }
  return out;
}

}  // namespace mm::placement
