// SPDX-License-Identifier: Apache-2.0
// Characters of valid UTF-8, and the two classes that tokenizers cut at, as Unicode defines them (White_Space; the word
// characters of UTS #18: letters, marks, decimal and letter numbers, connectors, joiners).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace mm::data {

// The character that starts at `at`, and its bytes. Bytes that are no UTF-8 count as one each.
struct Character {
  int32_t code = 0;
  size_t bytes = 1;
};
Character character_at(std::string_view text, size_t at);
// The character that ends before `end`, which is not 0.
Character character_before(std::string_view text, size_t end);

bool is_space(int32_t code);
bool is_word(int32_t code);
// White_Space as the inside of a class of a regular expression.
inline constexpr std::string_view space_class =
    R"(\x{09}-\x{0D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

void append_utf8(std::string& text, int32_t code);
// Each character by itself (no final sigma), with the one that becomes two.
std::string lower_case(std::string_view text);

enum class Form { nfc, nfd, nfkc, nfkd };
std::string unicode_form(std::string_view text, Form form);

}  // namespace mm::data
