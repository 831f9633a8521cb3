// SPDX-License-Identifier: Apache-2.0
// The tokens that tokenizer.json adds to its model's: they are found in the text as they stand, before anything else is done
// with it (or, where `normalized`, after the normalizer), the longest of those that start first.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mm::data {

struct AddedToken {
  std::string content;  // of a normalized one, after the normalizer
  int32_t id = 0;
  bool single_word = false;           // only where no word character touches it
  bool lstrip = false, rstrip = false;  // with the white space before it, after it
};

class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens);
  struct Piece {
    std::string_view text;
    int32_t id = -1;  // of a token; -1: text
  };
  // The text in pieces; text pieces are not empty.
  std::vector<Piece> split(std::string_view text) const;

 private:
  const AddedToken* longest_at(std::string_view text, size_t at) const;

  std::array<std::vector<AddedToken>, 256> by_first_byte_;  // the longest first
  bool none_ = true;
};

}  // namespace mm::data
