// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenizer/added_tokens.h"

#include <algorithm>

#include "trainer/data/tokenizer/unicode.h"

namespace mm::data {

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) {
  for (AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    none_ = false;
    by_first_byte_[static_cast<unsigned char>(token.content.front())].push_back(std::move(token));
  }
  for (auto& same : by_first_byte_)
    std::ranges::stable_sort(same, [](const AddedToken& a, const AddedToken& b) { return a.content.size() > b.content.size(); });
}

const AddedToken* AddedTokens::longest_at(std::string_view text, size_t at) const {
  for (const AddedToken& token : by_first_byte_[static_cast<unsigned char>(text[at])])
    if (text.substr(at).starts_with(token.content)) return &token;
  return nullptr;
}

std::vector<AddedTokens::Piece> AddedTokens::split(std::string_view text) const {
  std::vector<Piece> pieces;
  if (text.empty()) return pieces;
  if (none_) return {{text}};
  size_t done = 0;
  for (size_t at = 0; at < text.size();) {
    const AddedToken* token = longest_at(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;
    if (token->single_word && ((begin > 0 && is_word(character_before(text, begin).code)) ||
                               (end < text.size() && is_word(character_at(text, end).code))))
      continue;
    if (token->lstrip)
      while (begin > done) {
        const Character before = character_before(text, begin);
        if (!is_space(before.code)) break;
        begin = std::max(done, begin - before.bytes);
      }
    if (token->rstrip)
      while (end < text.size()) {
        const Character after = character_at(text, end);
        if (!is_space(after.code)) break;
        end += after.bytes;
      }
    if (done < begin) pieces.push_back({text.substr(done, begin - done)});
    pieces.push_back({{}, token->id});
    done = end;
  }
  if (done < text.size()) pieces.push_back({text.substr(done)});
  return pieces;
}

}  // namespace mm::data
