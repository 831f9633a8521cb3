// SPDX-License-Identifier: Apache-2.0
// A sentencepiece model through its own library.
#include <sentencepiece_processor.h>

#include "common/error.h"
#include "common/files.h"
#include "trainer/data/tokenizer/special_tokens.h"

namespace mm::data {
namespace {

class SentencepieceTokenizer final : public Tokenizer {
 public:
  SentencepieceTokenizer(const std::string& path, const std::string& model_folder) {
    const auto status = processor_.LoadFromSerializedProto(read_file(path));
    if (!status.ok()) throw usage_error(path + ": not a sentencepiece model: " + status.error_message());
    OwnEnds own;
    if (processor_.bos_id() >= 0) own.begin = processor_.bos_id();
    if (processor_.eos_id() >= 0) own.end = processor_.eos_id();
    ends_ = find_ends(
        path, model_folder,
        [&](const std::string& token) {
          const int id = processor_.PieceToId(token);
          return id < 0 || processor_.IdToPiece(id) != token ? std::optional<int32_t>() : id;
        },
        own);
    for (const int32_t id : {ends_.begin.value_or(ends_.end), ends_.end})
      if (id >= vocabulary()) throw usage_error(path + ": begin or end is not in the vocabulary");
  }

  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::vector<int> found;
    const auto status = processor_.Encode(text, &found);
    if (!status.ok()) throw data_error(std::string("text: ") + status.error_message());
    ids.insert(ids.end(), found.begin(), found.end());
  }

  std::string decode(std::span<const int32_t> ids) const override {
    std::vector<int> kept;
    for (const int32_t id : ids)
      if (is_text(id)) kept.push_back(id);
    std::string text;
    const auto status = processor_.Decode(kept, &text);
    if (!status.ok()) throw data_error(std::string("text: ") + status.error_message());
    return text;
  }

  int64_t vocabulary() const override { return processor_.GetPieceSize(); }
  bool is_text(int32_t id) const override {
    return id >= 0 && id < vocabulary() && id != ends_.end && id != ends_.begin && !processor_.IsControl(id) &&
           !processor_.IsUnknown(id) && !processor_.IsUnused(id);
  }
  Ends ends() const override { return ends_; }

 private:
  sentencepiece::SentencePieceProcessor processor_;
  Ends ends_;
};

}  // namespace

std::shared_ptr<const Tokenizer> read_sentencepiece(const std::string& path, const std::string& model_folder) {
  return std::make_shared<SentencepieceTokenizer>(path, model_folder);
}

}  // namespace mm::data
