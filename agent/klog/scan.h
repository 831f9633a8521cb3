// SPDX-License-Identifier: Apache-2.0
// A reader that goes through a line from left to right. It never leaves the line; a step that does not fit leaves it where it was.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mm::agent {

constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }
constexpr bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
constexpr bool is_word(char c) { return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-'; }

class Scan {
 public:
  explicit Scan(std::string_view text) : rest_(text) {}

  std::string_view rest() const { return rest_; }
  bool done() const { return rest_.empty(); }
  bool take(std::string_view literal) {
    if (!rest_.starts_with(literal)) return false;
    rest_.remove_prefix(literal.size());
    return true;
  }
  // Goes behind the next occurrence.
  bool skip_past(std::string_view literal) {
    const size_t at = rest_.find(literal);
    if (at == std::string_view::npos) return false;
    rest_.remove_prefix(at + literal.size());
    return true;
  }
  void spaces() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t')) rest_.remove_prefix(1);
  }
  template <typename Test>
  std::string_view while_is(Test test) {
    size_t n = 0;
    while (n < rest_.size() && test(rest_[n])) ++n;
    const std::string_view out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return out;
  }
  // Up to, and without, any of the characters; the whole rest where there is none.
  std::string_view until(std::string_view ends) {
    const std::string_view out = rest_.substr(0, std::min(rest_.find_first_of(ends), rest_.size()));
    rest_.remove_prefix(out.size());
    return out;
  }
  std::string_view word() { return until(" \t"); }
  std::optional<int64_t> number(int base = 10) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value, base);
    if (error != std::errc()) return std::nullopt;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return value;
  }

 private:
  std::string_view rest_;
};

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }
inline std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r' || text.back() == '\n')) text.remove_suffix(1);
  return text;
}

// "00000000:01:00", "PCI:0000:01:00", "01:00.0" -> "0000:01:00.0"; empty where it is no PCI address.
std::string pci_address(std::string_view text);
// The first PCI address with a domain, anywhere in the text, in the same form; empty where there is none.
std::string find_pci_address(std::string_view text);

}  // namespace mm::agent
