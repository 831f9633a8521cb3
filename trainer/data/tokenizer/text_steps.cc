// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenizer/text_steps.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_map>

#include "common/error.h"
#include "trainer/data/text/utf8.h"
#include "trainer/data/tokenizer/regex.h"
#include "trainer/data/tokenizer/unicode.h"

namespace mm::data {
namespace {

using Json = nlohmann::json;
using Words = std::vector<std::string>;

constexpr int deepest_sequence = 8;
constexpr std::string_view byte_level_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

[[noreturn]] void refuse(const std::string& where, const std::string& what) {
  throw usage_error(where + ": " + what);
}
[[noreturn]] void unsupported(const std::string& where, const std::string& what) {
  refuse(where, printable(what) + " is not supported by this version");
}

std::string type_of(const Json& json, const std::string& where) {
  return text_member(json, "type", where);
}

// Reads the members of a Sequence.
template <class Step, class Read>
std::vector<Step> read_all(const Json& json, const char* name, const std::string& where, const Read& read) {
  const Json& list = member(json, name, where);
  if (!list.is_array()) refuse(where, std::string(name) + " is no list");
  std::vector<Step> steps;
  for (size_t i = 0; i < list.size(); ++i) steps.push_back(read(list[i], fmt::format("{}.{}[{}]", where, name, i)));
  return steps;
}

// {"String": ...} or {"Regex": ...}, to a function that finds the next match.
using Find = std::function<std::optional<std::pair<size_t, size_t>>(std::string_view, size_t)>;
Find read_pattern(const Json& json, const std::string& where) {
  const Json& pattern = member(json, "pattern", where);
  if (pattern.is_object() && pattern.contains("String")) {
    const std::string text = text_member(pattern, "String", where + ".pattern");
    if (text.empty()) refuse(where, "an empty pattern");
    return [text](std::string_view in, size_t from) -> std::optional<std::pair<size_t, size_t>> {
      const size_t at = in.find(text, from);
      if (at == std::string_view::npos) return std::nullopt;
      return std::pair{at, at + text.size()};
    };
  }
  if (pattern.is_object() && pattern.contains("Regex")) {
    const Regex regex(text_member(pattern, "Regex", where + ".pattern"), where);
    return [regex](std::string_view in, size_t from) { return regex.find(in, from); };
  }
  refuse(where, "the pattern is neither String nor Regex");
}

std::string replace_all(std::string_view text, const Find& find, const std::string& content) {
  std::string out;
  size_t done = 0;
  while (const auto match = find(text, done)) {
    out += text.substr(done, match->first - done);
    out += content;
    done = match->second;
  }
  out += text.substr(done);
  return out;
}

// The matches and what lies between them, in order; only those of `keep`.
enum class Keep { all, matches, between };
void split_into(std::string_view text, const Find& find, Keep keep, Words& words) {
  const auto add = [&](size_t from, size_t to, bool match) {
    if (from < to && (keep == Keep::all || match == (keep == Keep::matches))) words.emplace_back(text.substr(from, to - from));
  };
  size_t done = 0;
  while (const auto match = find(text, done)) {
    add(done, match->first, false);
    add(match->first, match->second, true);
    done = match->second;
  }
  add(done, text.size(), false);
}

// GPT-2's alphabet: a printable character for every byte.
struct ByteAlphabet {
  std::array<std::string, 256> character;
  std::unordered_map<int32_t, uint8_t> byte;

  ByteAlphabet() {
    int32_t next = 256;
    for (int b = 0; b < 256; ++b) {
      const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      const int32_t code = itself ? b : next++;
      append_utf8(character[static_cast<size_t>(b)], code);
      byte[code] = static_cast<uint8_t>(b);
    }
  }
};
const ByteAlphabet& alphabet() {
  static const ByteAlphabet bytes;
  return bytes;
}

Normalizer read_normalizer_at(const Json& json, const std::string& where, int depth) {
  if (json.is_null()) return [](std::string text) { return text; };
  const std::string type = type_of(json, where);
  constexpr std::pair<std::string_view, Form> forms[] = {
      {"NFC", Form::nfc}, {"NFD", Form::nfd}, {"NFKC", Form::nfkc}, {"NFKD", Form::nfkd}};
  for (const auto& [name, form] : forms)
    if (type == name) return [form = form](std::string text) { return unicode_form(text, form); };
  if (type == "Lowercase") return [](std::string text) { return lower_case(text); };
  if (type == "Prepend")
    return [prefix = text_member(json, "prepend", where)](std::string text) { return text.empty() ? text : prefix + text; };
  if (type == "Replace")
    return [find = read_pattern(json, where), content = text_member(json, "content", where)](std::string text) {
      return replace_all(text, find, content);
    };
  if (type == "Sequence" && depth < deepest_sequence)
    return [steps = read_all<Normalizer>(json, "normalizers", where,
                                         [&](const Json& j, const std::string& w) { return read_normalizer_at(j, w, depth + 1); })](
               std::string text) {
      for (const Normalizer& step : steps) text = step(std::move(text));
      return text;
    };
  unsupported(where, "normalizer " + type);
}

PreTokenizer byte_level(bool add_prefix_space, std::optional<Regex> regex) {
  return [=](const Words& texts) {
    Words words;
    for (const std::string& text : texts) {
      const std::string spaced = (add_prefix_space && !text.starts_with(' ') ? " " : "") + text;
      if (regex)
        split_into(spaced, [&](std::string_view in, size_t from) { return regex->find(in, from); }, Keep::all, words);
      else
        words.push_back(spaced);
    }
    for (std::string& word : words) {
      std::string letters;
      for (const char c : word) letters += alphabet().character[static_cast<unsigned char>(c)];
      word = std::move(letters);
    }
    return words;
  };
}

PreTokenizer read_split(const Json& json, const std::string& where) {
  const std::string behavior = text_member(json, "behavior", where);
  const bool invert = flag_member(json, "invert", false, where);
  if (behavior != "Isolated" && behavior != "Removed") unsupported(where, "Split with the behavior " + behavior);
  const Keep keep = behavior == "Isolated" ? Keep::all : invert ? Keep::matches : Keep::between;
  return [find = read_pattern(json, where), keep](const Words& texts) {
    Words words;
    for (const std::string& text : texts) split_into(text, find, keep, words);
    return words;
  };
}

PreTokenizer read_pre_tokenizer_at(const Json& json, const std::string& where, int depth) {
  if (json.is_null()) return [](Words words) { return words; };
  const std::string type = type_of(json, where);
  if (type == "ByteLevel") {
    std::optional<Regex> regex;
    if (flag_member(json, "use_regex", true, where)) regex.emplace(byte_level_pattern, where);
    return byte_level(flag_member(json, "add_prefix_space", true, where), regex);
  }
  if (type == "Split") return read_split(json, where);
  if (type == "Digits") {
    const Regex regex(flag_member(json, "individual_digits", false, where) ? "\\p{N}" : "\\p{N}+", where);
    return [regex](const Words& texts) {
      Words words;
      for (const std::string& text : texts)
        split_into(text, [&](std::string_view in, size_t from) { return regex.find(in, from); }, Keep::all, words);
      return words;
    };
  }
  if (type == "Sequence" && depth < deepest_sequence)
    return [steps = read_all<PreTokenizer>(json, "pretokenizers", where, [&](const Json& j, const std::string& w) {
              return read_pre_tokenizer_at(j, w, depth + 1);
            })](Words words) {
      for (const PreTokenizer& step : steps) words = step(std::move(words));
      return words;
    };
  unsupported(where, "pre_tokenizer " + type);
}

Words bytes_of_letters(const Words& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) {
    std::string of_token;
    bool all = true;
    for (size_t at = 0; at < token.size() && all;) {
      const Character c = character_at(token, at);
      const auto found = alphabet().byte.find(c.code);
      all = found != alphabet().byte.end();
      if (all) of_token += static_cast<char>(found->second);
      at += c.bytes;
    }
    bytes += all ? of_token : token;
  }
  bool repaired = false;
  return {repair_utf8(bytes, repaired)};
}

std::optional<char> fallback_byte(const std::string& token) {
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; };
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  const int high = digit(token[3]), low = digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

// Runs of byte tokens that are no UTF-8 give one mark for each byte.
Words join_bytes(const Words& tokens) {
  Words out;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    bool repaired = false;
    std::string text = repair_utf8(run, repaired);
    if (repaired) {
      text.clear();
      for (size_t i = 0; i < run.size(); ++i) text += "\xEF\xBF\xBD";
    }
    out.push_back(text);
    run.clear();
  };
  for (const std::string& token : tokens) {
    if (const auto byte = fallback_byte(token)) {
      run += *byte;
      continue;
    }
    flush();
    out.push_back(token);
  }
  flush();
  return out;
}

int64_t count_member(const Json& json, const char* name, const std::string& where) {
  const Json& value = member(json, name, where);
  if (!value.is_number_integer() || value.get<int64_t>() < 0) refuse(where, std::string(name) + " is no count");
  return value.get<int64_t>();
}

TokenDecoder read_strip(const Json& json, const std::string& where) {
  const std::string content = text_member(json, "content", where);
  const int64_t start = count_member(json, "start", where), stop = count_member(json, "stop", where);
  if (content.empty() || character_at(content, 0).bytes != content.size()) refuse(where, "content is not one character");
  return [=](Words tokens) {
    for (std::string& token : tokens) {
      for (int64_t i = 0; i < start && token.starts_with(content); ++i) token.erase(0, content.size());
      for (int64_t i = 0; i < stop && token.ends_with(content); ++i) token.resize(token.size() - content.size());
    }
    return tokens;
  };
}

TokenDecoder read_decoder_at(const Json& json, const std::string& where, int depth) {
  if (json.is_null())
    return [](const Words& tokens) {
      Words out;
      for (const std::string& token : tokens) out.push_back((out.empty() ? "" : " ") + token);
      return out;
    };
  const std::string type = type_of(json, where);
  if (type == "ByteLevel") return bytes_of_letters;
  if (type == "ByteFallback") return join_bytes;
  if (type == "Fuse")
    return [](const Words& tokens) {
      std::string all;
      for (const std::string& token : tokens) all += token;
      return Words{all};
    };
  if (type == "Replace")
    return [find = read_pattern(json, where), content = text_member(json, "content", where)](Words tokens) {
      for (std::string& token : tokens) token = replace_all(token, find, content);
      return tokens;
    };
  if (type == "Strip") return read_strip(json, where);
  if (type == "Sequence" && depth < deepest_sequence)
    return [steps = read_all<TokenDecoder>(json, "decoders", where,
                                           [&](const Json& j, const std::string& w) { return read_decoder_at(j, w, depth + 1); })](
               Words tokens) {
      for (const TokenDecoder& step : steps) tokens = step(std::move(tokens));
      return tokens;
    };
  unsupported(where, "decoder " + type);
}

}  // namespace

const Json& member(const Json& json, const char* name, const std::string& where) {
  if (!json.is_object()) refuse(where, "not an object");
  const auto found = json.find(name);
  if (found == json.end()) refuse(where, std::string(name) + " is missing");
  return *found;
}

std::string text_member(const Json& json, const char* name, const std::string& where) {
  const Json& value = member(json, name, where);
  if (!value.is_string()) refuse(where, std::string(name) + " is no text");
  return value.get<std::string>();
}

bool flag_member(const Json& json, const char* name, bool otherwise, const std::string& where) {
  if (!json.is_object()) refuse(where, "not an object");
  const auto found = json.find(name);
  if (found == json.end() || found->is_null()) return otherwise;
  if (!found->is_boolean()) refuse(where, std::string(name) + " is neither true nor false");
  return found->get<bool>();
}

Normalizer read_normalizer(const Json& json, const std::string& where) {
  return read_normalizer_at(json, where, 0);
}
PreTokenizer read_pre_tokenizer(const Json& json, const std::string& where) {
  return read_pre_tokenizer_at(json, where, 0);
}
TokenDecoder read_decoder(const Json& json, const std::string& where) {
  return read_decoder_at(json, where, 0);
}

}  // namespace mm::data
