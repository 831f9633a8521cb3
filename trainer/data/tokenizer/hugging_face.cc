// SPDX-License-Identifier: Apache-2.0
// A tokenizer.json with a byte pair encoding. Text goes through added tokens, normalizer, added tokens again, pre-tokenizer and
// model, as the tokenizers library does it; its own truncation, padding and template are not used, as sequences are made here.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/files.h"
#include "trainer/data/text/utf8.h"
#include "trainer/data/tokenizer/added_tokens.h"
#include "trainer/data/tokenizer/bpe.h"
#include "trainer/data/tokenizer/special_tokens.h"
#include "trainer/data/tokenizer/text_steps.h"

namespace mm::data {
namespace {

using Json = nlohmann::json;

constexpr int64_t most_tokens = 1 << 24;

const Json& member_or_null(const Json& json, const char* name) {
  static const Json null;
  const auto found = json.find(name);
  return found == json.end() ? null : *found;
}

int32_t id_of_number(const Json& json, const std::string& where) {
  if (!json.is_number_integer() || json.get<int64_t>() < 0 || json.get<int64_t>() >= most_tokens)
    throw usage_error(fmt::format("{}: {} is no token id", where, printable(json.dump(-1, ' ', true, Json::error_handler_t::replace))));
  return static_cast<int32_t>(json.get<int64_t>());
}

std::vector<std::pair<std::string, std::string>> read_merges(const Json& list, const std::string& where) {
  if (!list.is_array()) throw usage_error(where + ": merges is no list");
  std::vector<std::pair<std::string, std::string>> merges;
  for (const Json& merge : list) {
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
      continue;
    }
    const std::string text = merge.is_string() ? merge.get<std::string>() : "";
    const size_t space = text.find(' ');
    if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
      throw usage_error(fmt::format("{}: merge {} is not two tokens", where, merges.size()));
    merges.emplace_back(text.substr(0, space), text.substr(space + 1));
  }
  return merges;
}

Bpe read_model(const Json& json, const std::string& where) {
  const std::string type = json.is_object() && !json.contains("type") && json.contains("merges") ? "BPE" : text_member(json, "type", where);
  if (type != "BPE") throw usage_error(fmt::format("{}: type {} is not supported by this version, which has BPE", where, printable(type)));
  const Json& dropout = member_or_null(json, "dropout");
  if (!dropout.is_null() && dropout != 0) throw usage_error(where + ": dropout is not supported by this version");
  const auto text_or_nothing = [&](const char* name) {
    const Json& value = member_or_null(json, name);
    return value.is_null() ? std::optional<std::string>() : text_member(json, name, where);
  };
  const Json& words = member(json, "vocab", where);
  if (!words.is_object()) throw usage_error(where + ": vocab is no object");
  Vocabulary vocabulary;
  vocabulary.reserve(words.size());
  for (const auto& [token, id] : words.items()) vocabulary[token] = id_of_number(id, where + ".vocab");
  BpeOptions options;
  options.unknown = text_or_nothing("unk_token");
  options.prefix = text_or_nothing("continuing_subword_prefix").value_or("");
  options.suffix = text_or_nothing("end_of_word_suffix").value_or("");
  options.fuse_unknown = flag_member(json, "fuse_unk", false, where);
  options.byte_fallback = flag_member(json, "byte_fallback", false, where);
  options.ignore_merges = flag_member(json, "ignore_merges", false, where);
  return Bpe(std::move(vocabulary), read_merges(member(json, "merges", where), where), std::move(options), where);
}

// The special tokens that the post-processor puts around a text.
OwnEnds read_template(const Json& json, const std::string& where, int depth = 0) {
  if (json.is_null()) return {};
  const std::string type = text_member(json, "type", where);
  const auto id_in_pair = [&](const char* name) {
    const Json& pair = member(json, name, where);
    if (!pair.is_array() || pair.size() != 2) throw usage_error(where + ": " + name + " is not a token and its id");
    return id_of_number(pair[1], where);
  };
  if (type == "RobertaProcessing" || type == "BertProcessing") return {id_in_pair("cls"), id_in_pair("sep")};
  if (type == "ByteLevel") return {};
  OwnEnds ends;
  if (type == "Sequence" && depth < 8) {
    const Json& list = member(json, "processors", where);
    if (!list.is_array()) throw usage_error(where + ": processors is no list");
    for (const Json& part : list) {
      const OwnEnds own = read_template(part, where, depth + 1);
      if (own.begin) ends.begin = own.begin;
      if (own.end) ends.end = own.end;
    }
    return ends;
  }
  if (type != "TemplateProcessing")
    throw usage_error(fmt::format("{}: post_processor {} is not supported by this version", where, printable(type)));
  const Json &single = member(json, "single", where), &specials = member(json, "special_tokens", where);
  if (!single.is_array()) throw usage_error(where + ": single is no list");
  bool text_seen = false;
  for (const Json& part : single) {
    if (part.is_object() && part.contains("Sequence")) {
      text_seen = true;
      continue;
    }
    const std::string name = text_member(member(part, "SpecialToken", where), "id", where);
    const Json& ids = member(member(specials, name.c_str(), where), "ids", where);
    if (!ids.is_array() || ids.size() != 1) throw usage_error(where + ": " + printable(name) + " is not one token");
    (text_seen ? ends.end : ends.begin) = id_of_number(ids[0], where);
  }
  return ends;
}

class HuggingFaceTokenizer final : public Tokenizer {
 public:
  HuggingFaceTokenizer(const Json& json, const std::string& path, const std::string& model_folder)
      : normalizer_(read_normalizer(member_or_null(json, "normalizer"), path + ": normalizer")),
        pre_tokenizer_(read_pre_tokenizer(member_or_null(json, "pre_tokenizer"), path + ": pre_tokenizer")),
        model_(read_model(member(json, "model", path), path + ": model")),
        decoder_(read_decoder(member_or_null(json, "decoder"), path + ": decoder")),
        raw_({}),
        normalized_({}) {
    for (const auto& [token, id] : model_.vocabulary()) name(token, id);
    read_added(member_or_null(json, "added_tokens"), path + ": added_tokens");
    ends_ = find_ends(
        path, model_folder, [&](const std::string& token) { return id_of(token); },
        read_template(member_or_null(json, "post_processor"), path + ": post_processor"));
    for (const int32_t id : {ends_.begin.value_or(ends_.end), ends_.end})
      if (id >= vocabulary()) throw usage_error(fmt::format("{}: begin or end is token {} of {}", path, id, vocabulary()));
  }

  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    for (const AddedTokens::Piece& raw : raw_.split(text)) {
      if (raw.id >= 0) {
        ids.push_back(raw.id);
        continue;
      }
      const std::string piece = normalizer_(std::string(raw.text));
      for (const AddedTokens::Piece& normal : normalized_.split(piece)) {
        if (normal.id >= 0) {
          ids.push_back(normal.id);
          continue;
        }
        for (const std::string& word : pre_tokenizer_({std::string(normal.text)})) model_.encode(word, ids);
      }
    }
  }

  std::string decode(std::span<const int32_t> ids) const override {
    const std::string& suffix = model_.options().suffix;
    std::vector<std::string> tokens;
    for (const int32_t id : ids)
      if (is_text(id)) tokens.push_back(tokens_[static_cast<size_t>(id)].text);
    std::string text;
    for (const std::string& part : decoder_(std::move(tokens))) text += part;
    if (suffix.empty()) return text;
    // CLIP's marks of word ends are its spaces.
    for (size_t at = 0; (at = text.find(suffix, at)) != std::string::npos; ++at) text.replace(at, suffix.size(), " ");
    while (text.ends_with(' ')) text.pop_back();
    return text;
  }

  int64_t vocabulary() const override { return static_cast<int64_t>(tokens_.size()); }
  bool is_text(int32_t id) const override {
    if (id < 0 || id >= vocabulary() || id == ends_.end || id == ends_.begin) return false;
    const Token& token = tokens_[static_cast<size_t>(id)];
    return token.there && !token.special;
  }
  bool is_added(int32_t id) const override {
    return id >= 0 && id < vocabulary() && tokens_[static_cast<size_t>(id)].added;
  }
  Ends ends() const override { return ends_; }

 private:
  struct Token {
    std::string text;
    bool there = false, special = false, added = false;
  };

  Token& name(const std::string& text, int32_t id) {
    if (static_cast<size_t>(id) >= tokens_.size()) tokens_.resize(static_cast<size_t>(id) + 1);
    Token& token = tokens_[static_cast<size_t>(id)];
    token.text = text;
    token.there = true;
    return token;
  }

  std::optional<int32_t> id_of(const std::string& token) const {
    if (const auto added = added_.find(token); added != added_.end()) return added->second;
    if (const auto found = model_.vocabulary().find(token); found != model_.vocabulary().end()) return found->second;
    return std::nullopt;
  }

  void read_added(const Json& list, const std::string& where) {
    if (list.is_null()) return;
    if (!list.is_array()) throw usage_error(where + ": not a list");
    std::vector<AddedToken> raw, normalized;
    for (size_t i = 0; i < list.size(); ++i) {
      const std::string at = fmt::format("{}[{}]", where, i);
      AddedToken token;
      token.content = text_member(list[i], "content", at);
      token.id = id_of_number(member(list[i], "id", at), at);
      token.single_word = flag_member(list[i], "single_word", false, at);
      token.lstrip = flag_member(list[i], "lstrip", false, at);
      token.rstrip = flag_member(list[i], "rstrip", false, at);
      const bool special = flag_member(list[i], "special", false, at);
      if (const auto known = model_.vocabulary().find(token.content);
          known != model_.vocabulary().end() && known->second != token.id)
        throw usage_error(fmt::format("{}: \"{}\" is {} here and {} in the vocabulary", at, printable(token.content), token.id,
                                      known->second));
      added_[token.content] = token.id;
      Token& named = name(token.content, token.id);
      named.special = special;
      named.added = true;
      if (flag_member(list[i], "normalized", !special, at)) {
        token.content = normalizer_(token.content);
        normalized.push_back(std::move(token));
      } else {
        raw.push_back(std::move(token));
      }
    }
    raw_ = AddedTokens(std::move(raw));
    normalized_ = AddedTokens(std::move(normalized));
  }

  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  Bpe model_;
  TokenDecoder decoder_;
  AddedTokens raw_, normalized_;
  std::vector<Token> tokens_;
  Vocabulary added_;
  Ends ends_;
};

}  // namespace

std::shared_ptr<const Tokenizer> read_hugging_face(const std::string& path, const std::string& model_folder) {
  const Json json = Json::parse(read_file(path), nullptr, false);
  if (!json.is_object()) throw usage_error(path + ": not a JSON object");
  return std::make_shared<HuggingFaceTokenizer>(json, path, model_folder);
}

}  // namespace mm::data
