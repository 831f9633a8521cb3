// SPDX-License-Identifier: Apache-2.0
// The steps of a tokenizer.json around its model: the normalizer (text to text), the pre-tokenizer (text to words) and the
// decoder (tokens to text). Each is read once; a type or value that is not here is a usage Error that names it.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace mm::data {

// NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Sequence; null is nothing.
using Normalizer = std::function<std::string(std::string)>;
Normalizer read_normalizer(const nlohmann::json& json, const std::string& where);

// ByteLevel, Split (Isolated, or Removed), Digits, Sequence; null leaves the text whole. No word is empty.
using PreTokenizer = std::function<std::vector<std::string>(std::vector<std::string>)>;
PreTokenizer read_pre_tokenizer(const nlohmann::json& json, const std::string& where);

// ByteLevel, Replace, ByteFallback, Fuse, Strip, Sequence; null puts spaces between tokens.
using TokenDecoder = std::function<std::vector<std::string>(std::vector<std::string>)>;
TokenDecoder read_decoder(const nlohmann::json& json, const std::string& where);

// A JSON object's member with its type checked; for these and their callers.
const nlohmann::json& member(const nlohmann::json& json, const char* name, const std::string& where);
std::string text_member(const nlohmann::json& json, const char* name, const std::string& where);
bool flag_member(const nlohmann::json& json, const char* name, bool otherwise, const std::string& where);

}  // namespace mm::data
