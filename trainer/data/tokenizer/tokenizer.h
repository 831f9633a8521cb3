// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back. What a tokenizer's file asks for and this reader does not have is refused by its name, never
// approximated: ids that differ from those a model was trained with are an error that nothing else would show.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mm::data {

// The token before every sequence, where there is one, and the token after it.
struct Ends {
  std::optional<int32_t> begin;
  int32_t end = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  // Appends the ids of `text`, which is valid UTF-8, without begin and end. Any thread. Throws a data Error where a text is out
  // of the ordinary (a pattern that backtracks without end).
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
  // Valid UTF-8; special tokens give nothing.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  virtual int64_t vocabulary() const = 0;  // every id is below it
  // Whether the id stands for text: not special, not unused, below vocabulary().
  virtual bool is_text(int32_t id) const = 0;
  // Whether it was added to the model's own tokens, so that text becomes it only where it stands there letter by letter.
  virtual bool is_added(int32_t) const { return false; }
  virtual Ends ends() const = 0;
};

// "bytes"; the path of a Hugging Face tokenizer.json (*.json); the path of a sentencepiece model (*.model).
//
// Begin and end of the files come from the first of these that names them: tokenizer_config.json (bos_token, eos_token; no begin
// where add_bos_token is false or bos_token null), special_tokens_map.json, the tokenizer's own file (its post-processor, or the
// model's bos and eos), config.json (bos_token_id, eos_token_id, also in text_config); each beside the tokenizer's file, then in
// `model_folder`. Throws a usage Error that names file, place and reason, also where no end is named.
std::shared_ptr<const Tokenizer> open_tokenizer(const std::string& name, const std::string& model_folder);

// 0 pad, 1 begin, 2 end, 3 image, 4 + byte. Always there.
const Tokenizer& bytes_tokenizer();
inline constexpr int64_t bytes_vocabulary = 260;

// The readers behind open_tokenizer.
std::shared_ptr<const Tokenizer> read_hugging_face(const std::string& path, const std::string& model_folder);
std::shared_ptr<const Tokenizer> read_sentencepiece(const std::string& path, const std::string& model_folder);

}  // namespace mm::data
