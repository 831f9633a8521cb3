// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenizer/tokenizer.h"

#include <filesystem>

#include "common/error.h"
#include "trainer/data/text/utf8.h"

namespace mm::data {
namespace {

constexpr int32_t begin_token = 1, end_token = 2, first_byte = 4;

class BytesTokenizer final : public Tokenizer {
 public:
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    for (const char c : text) ids.push_back(first_byte + static_cast<unsigned char>(c));
  }
  std::string decode(std::span<const int32_t> ids) const override {
    std::string bytes;
    for (const int32_t id : ids)
      if (is_text(id)) bytes += static_cast<char>(id - first_byte);
    bool repaired = false;
    return repair_utf8(bytes, repaired);
  }
  int64_t vocabulary() const override { return bytes_vocabulary; }
  bool is_text(int32_t id) const override { return id >= first_byte && id < bytes_vocabulary; }
  Ends ends() const override { return {begin_token, end_token}; }
};

}  // namespace

const Tokenizer& bytes_tokenizer() {
  static const BytesTokenizer bytes;
  return bytes;
}

std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& name, const std::string& model_folder) {
  if (name == "bytes") return std::make_shared<BytesTokenizer>();
  if (!std::filesystem::is_regular_file(name)) throw usage_error("tokenizer \"" + name + "\": neither \"bytes\" nor a file");
  if (name.ends_with(".json")) return read_hugging_face(name, model_folder);
  if (name.ends_with(".model")) return read_sentencepiece(name, model_folder);
  throw usage_error("tokenizer \"" + name + "\": neither a tokenizer.json (*.json) nor a sentencepiece model (*.model) by its name");
}

}  // namespace mm::data
