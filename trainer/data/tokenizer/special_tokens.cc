// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenizer/special_tokens.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/error.h"
#include "common/files.h"
#include "trainer/data/text/utf8.h"

namespace mm::data {
namespace {

using Json = nlohmann::json;
using IdOf = std::function<std::optional<int32_t>(const std::string&)>;

class Search {
 public:
  explicit Search(const IdOf& id_of) : id_of_(id_of) {}

  // tokenizer_config.json or special_tokens_map.json: tokens by their text.
  void by_text(const std::string& path) {
    const Json json = read(path);
    if (const auto add = json.find("add_bos_token"); add != json.end() && add->is_boolean() && !add->get<bool>()) no_begin();
    take(path, json, "bos_token", begin_, begin_known_);
    take(path, json, "eos_token", end_, end_known_);
  }
  // config.json: tokens by number; an end that is a list gives its first.
  void by_number(const std::string& path) {
    const Json json = read(path);
    for (const Json* at : {&json, section(json, "text_config")}) {
      if (at == nullptr) continue;
      take_number(*at, "bos_token_id", begin_, begin_known_);
      take_number(*at, "eos_token_id", end_, end_known_);
    }
  }
  void own(const OwnEnds& own) {
    if (!begin_known_ && own.begin) begin_ = own.begin, begin_known_ = true;
    if (!end_known_ && own.end) end_ = own.end, end_known_ = true;
  }

  std::optional<int32_t> begin() const { return begin_; }
  std::optional<int32_t> end() const { return end_; }

 private:
  static Json read(const std::string& path) {
    if (!std::filesystem::exists(path)) return Json::object();
    const Json json = Json::parse(read_file(path), nullptr, false);
    if (!json.is_object()) throw usage_error(path + ": not a JSON object");
    return json;
  }
  static const Json* section(const Json& json, const char* name) {
    const auto at = json.find(name);
    return at != json.end() && at->is_object() ? &*at : nullptr;
  }
  void no_begin() {
    if (!begin_known_) begin_.reset(), begin_known_ = true;
  }
  void take(const std::string& path, const Json& json, const char* key, std::optional<int32_t>& id, bool& known) {
    const auto at = json.find(key);
    if (known || at == json.end()) return;
    if (at->is_null()) {
      if (&id == &begin_) no_begin();
      return;
    }
    const Json& text = at->is_object() && at->contains("content") ? (*at)["content"] : *at;
    if (!text.is_string()) throw usage_error(path + ": " + key + " is no token");
    id = id_of_(text.get<std::string>());
    if (!id) throw usage_error(path + ": " + key + " \"" + printable(text.get<std::string>()) + "\" is not in the vocabulary");
    known = true;
  }
  static void take_number(const Json& json, const char* key, std::optional<int32_t>& id, bool& known) {
    auto at = json.find(key);
    if (known || at == json.end()) return;
    const Json& number = at->is_array() && !at->empty() ? at->front() : *at;
    if (!number.is_number_integer()) return;
    const auto value = number.get<int64_t>();
    if (value < 0 || value > INT32_MAX) return;
    id = static_cast<int32_t>(value);
    known = true;
  }

  const IdOf& id_of_;
  std::optional<int32_t> begin_, end_;
  bool begin_known_ = false, end_known_ = false;
};

}  // namespace

Ends find_ends(const std::string& tokenizer_path, const std::string& model_folder, const IdOf& id_of, const OwnEnds& own) {
  const std::filesystem::path beside = std::filesystem::path(tokenizer_path).parent_path();
  std::vector<std::string> folders{beside.empty() ? "." : beside.string()};
  if (!model_folder.empty() && model_folder != folders.front()) folders.push_back(model_folder);
  Search search(id_of);
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"})
    for (const std::string& folder : folders) search.by_text(folder + "/" + name);
  search.own(own);
  for (const std::string& folder : folders) search.by_number(folder + "/config.json");
  if (!search.end())
    throw usage_error(tokenizer_path +
                      ": no end of a text is named: neither eos_token in tokenizer_config.json or special_tokens_map.json, nor by "
                      "the file itself, nor eos_token_id in config.json");
  return {search.begin(), *search.end()};
}

}  // namespace mm::data
