// SPDX-License-Identifier: Apache-2.0
// The regular expressions of tokenizer.json files, which are written for Oniguruma, on PCRE2. The two agree on what is let
// through here: characters, classes of them without classes inside, \p{..}, \s, \S, \d, groups, look-around, repetition. \s is
// put as Unicode's White_Space, which PCRE2's own is not (it takes U+180E in). Anything else is refused by name.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace mm::data {

class Regex {
 public:
  // `where` starts the message of a refusal, a usage Error.
  Regex(std::string_view pattern, const std::string& where);
  // The first match at or after `from`: begin and end, never empty. Any thread. A data Error where the match takes too long.
  std::optional<std::pair<size_t, size_t>> find(std::string_view text, size_t from) const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

// What is compiled for `pattern`; for tests.
std::string for_pcre(std::string_view pattern, const std::string& where);

}  // namespace mm::data
