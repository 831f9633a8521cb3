// SPDX-License-Identifier: Apache-2.0
// Byte pair encoding: a word starts as its characters, and again and again the neighbours whose pair stands first in the list of
// merges become one (the left one of equals), until no pair is in the list.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace mm::data {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
using Vocabulary = std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>>;

struct BpeOptions {
  std::optional<std::string> unknown;  // the token of a character that has none; without it, such a character is left out
  std::string prefix, suffix;          // of every character but a word's first; of its last
  bool fuse_unknown = false;           // neighbours without a token become one unknown
  bool byte_fallback = false;          // a character without a token becomes its bytes, "<0xE2>"
  bool ignore_merges = false;          // a word that is a token is that token
};

class Bpe {
 public:
  // Throws a usage Error that starts with `where`: a merge of tokens, or an unknown token, that the vocabulary does not have.
  Bpe(Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges, BpeOptions options,
      const std::string& where);
  // Appends the ids of one word of valid UTF-8.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  const BpeOptions& options() const { return options_; }

 private:
  struct Merge {
    uint32_t rank;
    int32_t into;
  };
  const Merge* merge_of(int32_t left, int32_t right) const;
  std::vector<int32_t> characters(std::string_view word) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  std::unordered_map<uint64_t, Merge> merges_;
  std::vector<std::optional<int32_t>> bytes_;  // ids of <0x00> to <0xFF>
  int32_t unknown_ = -1;
};

}  // namespace mm::data
