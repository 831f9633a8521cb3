// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/text/sequence.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "trainer/data/text/utf8.h"

namespace mm::data {
namespace {

using Json = nlohmann::json;

constexpr std::string_view image_mark = "<image>";

class Builder {
 public:
  explicit Builder(const SequenceRule& rule) : rule_(rule), tokenizer_(tokenizer_of(rule)), ends_(tokenizer_.ends()) {
    if (ends_.begin) add(*ends_.begin, false);
  }

  void text(std::string_view utf8, bool trained) {
    const auto before = static_cast<std::ptrdiff_t>(ids_.size());
    try {
      tokenizer_.encode(utf8, ids_);
    } catch (const Error& error) {
      throw Unusable(error.what());
    }
    if (std::find(ids_.begin() + before, ids_.end(), rule_.image_token) != ids_.end())
      throw Unusable("the text holds the model's image token");
    trained_.resize(ids_.size(), trained);
  }
  void image() {
    ids_.insert(ids_.end(), static_cast<size_t>(rule_.positions_per_image), rule_.image_token);
    trained_.resize(ids_.size(), false);
    image_end_ = ids_.size();
    ++images_;
  }
  void end(bool trained) { add(ends_.end, trained); }
  // Text in which marks stand for images.
  void marked_text(std::string_view text_with_marks, bool trained) {
    for (size_t at; (at = text_with_marks.find(image_mark)) != std::string_view::npos;
         text_with_marks.remove_prefix(at + image_mark.size())) {
      text(text_with_marks.substr(0, at), trained);
      image();
    }
    text(text_with_marks, trained);
  }
  int images() const { return images_; }

  Sequence finish(bool repaired) {
    const auto most = static_cast<size_t>(rule_.max_length);
    if (rule_.max_length > 0 && ids_.size() > most) {
      if (image_end_ + 1 > most)
        throw Unusable(fmt::format("{} do not fit: their last position is {}, the limit is {}",
                                   images_ == 1 ? "the image and eos" : "the images and eos", image_end_, rule_.max_length));
      const bool trained = trained_[most - 1];
      ids_.resize(most - 1);
      trained_.resize(most - 1);
      end(trained);
    }
    Sequence sequence;
    sequence.repaired = repaired;
    sequence.labels.assign(ids_.size(), no_label);
    for (size_t i = 0; i + 1 < ids_.size(); ++i)
      if (trained_[i + 1]) sequence.labels[i] = ids_[i + 1];
    sequence.ids = std::move(ids_);
    return sequence;
  }

 private:
  void add(int32_t id, bool trained) {
    ids_.push_back(id);
    trained_.push_back(trained);
  }

  const SequenceRule& rule_;
  const Tokenizer& tokenizer_;
  const Ends ends_;
  std::vector<int32_t> ids_;
  std::vector<bool> trained_;
  size_t image_end_ = 0;  // one past the last image position
  int images_ = 0;
};

// Appends one message's content.
void add_content(Builder& builder, const Json& content, bool trained) {
  if (content.is_string()) return builder.marked_text(content.get_ref<const std::string&>(), trained);
  if (!content.is_array()) throw Unusable("json: a message's content is neither text nor a list");
  for (const Json& item : content) {
    const std::string type =
        item.is_object() && item.contains("type") && item["type"].is_string() ? item["type"].get<std::string>() : "";
    if (type == "image")
      builder.image();
    else if (type == "text" && item.contains("text") && item["text"].is_string())
      builder.text(item["text"].get_ref<const std::string&>(), trained);
    else
      throw Unusable("json: a message's content holds something that is neither text nor image");
  }
}

void add_messages(Builder& builder, const Json& messages) {
  if (!messages.is_array() || messages.empty()) throw Unusable("json: \"messages\" is not a list of messages");
  bool answered = false, assistant = false;
  for (const Json& message : messages) {
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string() || !message.contains("content"))
      throw Unusable("json: a message without role or content");
    const std::string& role = message["role"].get_ref<const std::string&>();
    assistant = role == "assistant";
    if (assistant)
      builder.text("ASSISTANT: ", false);
    else if (role == "user")
      builder.text("USER: ", false);
    else if (role != "system")
      throw Unusable("json: unknown role \"" + printable(role) + "\"");
    add_content(builder, message["content"], assistant);
    if (assistant)
      builder.end(true);
    else
      builder.text("\n", false);
    answered = answered || assistant;
  }
  if (!answered) throw Unusable("json: no message of the assistant: nothing to learn");
  if (!assistant) builder.end(false);
}

}  // namespace

const Tokenizer& tokenizer_of(const SequenceRule& rule) {
  return rule.tokenizer ? *rule.tokenizer : bytes_tokenizer();
}

void check_rule(const SequenceRule& rule) {
  if (rule.image_size < 1 || rule.positions_per_image < 0)
    throw usage_error(fmt::format("data: images of {} pixels and {} positions", rule.image_size, rule.positions_per_image));
  const Tokenizer& tokenizer = tokenizer_of(rule);
  if (tokenizer.is_text(rule.image_token) && !tokenizer.is_added(rule.image_token))
    throw usage_error(fmt::format("data: the model's image token {} stands for text in the tokenizer", rule.image_token));
  const int64_t least = std::max<int64_t>(tokenizer.vocabulary(), rule.image_token + 1);
  if (rule.vocabulary > 0 && rule.vocabulary < least)
    throw usage_error(
        fmt::format("data: the tokenizer and the image token need a vocabulary of {}, the model has {}", least, rule.vocabulary));
}

Sequence caption_sequence(std::string_view caption, int images, const SequenceRule& rule) {
  bool repaired = false;
  const std::string text = repair_utf8(caption, repaired);
  Builder builder(rule);
  for (int i = 0; i < images; ++i) builder.image();
  builder.text(text, true);
  builder.end(true);
  return builder.finish(repaired);
}

Sequence json_sequence(std::string_view bytes, int images, const SequenceRule& rule) {
  bool repaired = false;
  const Json json = Json::parse(repair_utf8(bytes, repaired), nullptr, false);
  if (json.is_discarded() || !json.is_object()) throw Unusable("json: not a JSON object");
  Builder builder(rule);
  if (json.contains("messages")) {
    add_messages(builder, json["messages"]);
  } else if (json.contains("text") && json["text"].is_string()) {
    const std::string& text = json["text"].get_ref<const std::string&>();
    if (text.find(image_mark) == std::string::npos)
      for (int i = 0; i < images; ++i) builder.image();
    builder.marked_text(text, true);
    builder.end(true);
  } else {
    throw Unusable("json: neither \"text\" nor \"messages\"");
  }
  if (builder.images() != images)
    throw Unusable(fmt::format("json: {} images are named, {} are there", builder.images(), images));
  return builder.finish(repaired);
}

}  // namespace mm::data
