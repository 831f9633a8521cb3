// SPDX-License-Identifier: Apache-2.0
// Token sequences: the tokenizer's begin (bos), where it has one, text and image positions in their order, its end (eos). Each run of text
// between images, and each message, is encoded by itself. labels[i] is ids[i + 1] where that token is
// trained, else no_label. Longer than the rule's max_length, it loses text at its end and keeps an eos; images are never cut.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "trainer/data/sample.h"
#include "trainer/data/tokenizer/tokenizer.h"

namespace mm::data {

// Why a sample cannot be used. The stream counts it and takes another.
struct Unusable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Sequence {
  std::vector<int32_t> ids, labels;
  bool repaired = false;  // its text was not valid UTF-8
};

const Tokenizer& tokenizer_of(const SequenceRule& rule);
// Throws a usage Error where tokenizer, image token and the model's vocabulary do not go together.
void check_rule(const SequenceRule& rule);

// K.txt: the images come first, then the caption; its tokens and eos are trained.
Sequence caption_sequence(std::string_view caption, int images, const SequenceRule& rule);
// K.json: an object with
//   "text": a string in which each "<image>" stands for one image (without any mark the images come first); all of it is
//   trained; or "messages": a list of {"role": "system" | "user" | "assistant", "content": TEXT or a list of {"type": "text",
//   "text": TEXT} and
//   {"type": "image"}}, written as "USER: TEXT\nASSISTANT: TEXT" and eos, and so on; only what the assistant says, and its eos,
//   is trained.
// Throws Unusable where it is neither, or where the number of marks is not the number of images. Both throw it where the text
// itself holds the model's image token.
Sequence json_sequence(std::string_view json, int images, const SequenceRule& rule);

}  // namespace mm::data
