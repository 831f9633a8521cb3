// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <queue>

#include "common/error.h"
#include "trainer/data/text/utf8.h"
#include "trainer/data/tokenizer/unicode.h"

namespace mm::data {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

struct Symbol {
  int32_t id;
  int previous, next;  // -1: none
  bool merged_away = false;
};

struct Candidate {
  uint32_t rank;
  int at;  // the left of the two
  int32_t into;
  bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
};

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, const std::vector<std::pair<std::string, std::string>>& merges, BpeOptions options,
         const std::string& where)
    : vocabulary_(std::move(vocabulary)), options_(std::move(options)) {
  const auto id_of = [&](const std::string& token, size_t merge) {
    const auto found = vocabulary_.find(token);
    if (found == vocabulary_.end())
      throw usage_error(fmt::format("{}: merge {}: \"{}\" is not in the vocabulary", where, merge, printable(token)));
    return found->second;
  };
  merges_.reserve(merges.size());
  for (size_t i = 0; i < merges.size(); ++i) {
    const auto& [left, right] = merges[i];
    const int32_t a = id_of(left, i), b = id_of(right, i);
    if (right.size() < options_.prefix.size())
      throw usage_error(fmt::format("{}: merge {}: \"{}\" is shorter than the prefix", where, i, printable(right)));
    merges_[pair_key(a, b)] = {static_cast<uint32_t>(i), id_of(left + right.substr(options_.prefix.size()), i)};
  }
  if (options_.unknown) {
    const auto found = vocabulary_.find(*options_.unknown);
    if (found == vocabulary_.end())
      throw usage_error(fmt::format("{}: unk_token \"{}\" is not in the vocabulary", where, printable(*options_.unknown)));
    unknown_ = found->second;
  }
  if (options_.byte_fallback)
    for (int byte = 0; byte < 256; ++byte) {
      const auto found = vocabulary_.find(fmt::format("<0x{:02X}>", byte));
      bytes_.push_back(found == vocabulary_.end() ? std::nullopt : std::optional(found->second));
    }
}

const Bpe::Merge* Bpe::merge_of(int32_t left, int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::vector<int32_t> Bpe::characters(std::string_view word) const {
  std::vector<int32_t> ids;
  bool unknown_waits = false;
  const auto flush = [&] {
    if (unknown_waits) ids.push_back(unknown_);
    unknown_waits = false;
  };
  std::string text;
  for (size_t at = 0; at < word.size();) {
    const size_t length = character_at(word, at).bytes;
    text.clear();
    if (at > 0) text += options_.prefix;
    text += word.substr(at, length);
    if (at + length == word.size()) text += options_.suffix;
    at += length;
    if (const auto found = vocabulary_.find(text); found != vocabulary_.end()) {
      flush();
      ids.push_back(found->second);
      continue;
    }
    const auto byte_id = [&](char c) { return bytes_[static_cast<unsigned char>(c)]; };
    if (options_.byte_fallback && std::ranges::all_of(text, [&](char c) { return byte_id(c).has_value(); })) {
      for (const char c : text) ids.push_back(*byte_id(c));
    } else if (unknown_ >= 0) {
      if (!options_.fuse_unknown) flush();
      unknown_waits = true;
    }
  }
  flush();
  return ids;
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (options_.ignore_merges)
    if (const auto whole = vocabulary_.find(word); whole != vocabulary_.end()) return ids.push_back(whole->second);
  const std::vector<int32_t> start = characters(word);
  const int count = static_cast<int>(start.size());
  std::vector<Symbol> symbols;
  for (int i = 0; i < count; ++i) symbols.push_back({start[static_cast<size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1});
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto symbol = [&](int at) -> Symbol& { return symbols[static_cast<size_t>(at)]; };
  const auto consider = [&](int at) {
    if (at < 0 || symbol(at).next < 0) return;
    if (const Merge* merge = merge_of(symbol(at).id, symbol(symbol(at).next).id)) queue.push({merge->rank, at, merge->into});
  };
  for (int i = 0; i + 1 < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbol(best.at);
    if (left.merged_away || left.next < 0) continue;
    Symbol& right = symbol(left.next);
    const Merge* merge = merge_of(left.id, right.id);  // one of the two may have changed since
    if (merge == nullptr || merge->into != best.into) continue;
    left.id = merge->into;
    left.next = right.next;
    right.merged_away = true;
    if (left.next >= 0) symbol(left.next).previous = best.at;
    consider(left.previous);
    consider(best.at);
  }
  for (const Symbol& s : symbols)
    if (!s.merged_away) ids.push_back(s.id);
}

}  // namespace mm::data
