// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/caption.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/files.h"
#include "common/log.h"
#include "trainer/data/image/resized.h"
#include "trainer/data/text/sequence.h"
#include "trainer/data/tokenizer/tokenizer.h"
#include "trainer/loop/setup.h"
#include "trainer/loop/trained_model.h"
#include "trainer/model/vlm.h"

namespace mm::loop {
namespace {

// The likeliest of the end and the tokens of text; of equals the end, then the lower one.
template <class T>
int32_t choose(const data::Tokenizer& tokenizer, int32_t image_token, const std::vector<T>& logits) {
  int32_t best = tokenizer.ends().end;
  for (int32_t id = 0; id < static_cast<int32_t>(logits.size()); ++id)
    if (tokenizer.is_text(id) && id != image_token && logits[static_cast<size_t>(id)] > logits[static_cast<size_t>(best)]) best = id;
  return best;
}

template <class T>
std::string caption(model::Vlm<T>& vlm, const data::SequenceRule& rule, const std::string& picture, int64_t max_tokens) {
  const data::Tokenizer& tokenizer = data::tokenizer_of(rule);
  data::Sample sample;
  if (const auto begin = tokenizer.ends().begin) sample.ids.push_back(*begin);
  sample.ids.insert(sample.ids.end(), static_cast<size_t>(rule.positions_per_image), rule.image_token);
  sample.images.push_back(data::decode_resized(picture, rule.image_size, rule.image_size, rule, nullptr));
  std::vector<int32_t> said;
  while (static_cast<int64_t>(said.size()) < max_tokens &&
         (rule.max_length == 0 || static_cast<int64_t>(sample.ids.size()) < rule.max_length)) {
    sample.labels.assign(sample.ids.size(), data::no_label);
    const int32_t next = choose(tokenizer, rule.image_token, vlm.next_token_logits(sample));
    if (next == tokenizer.ends().end) break;
    sample.ids.push_back(next);
    said.push_back(next);
  }
  return tokenizer.decode(said);
}

// A name may be no UTF-8, which JSON needs; such bytes become U+FFFD.
std::string json_line(const SampleOptions& options, const TrainedModel& model, const std::string& image,
                      const std::string& text) {
  const nlohmann::ordered_json line = {{"image", image}, {"caption", text}, {"step", model.step}, {"run", options.run}};
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

int sample(const SampleOptions& options) {
  const TrainedModel model = load_trained(options.run);
  const data::SequenceRule rule = trained_rule(model, 0);
  data::check_rule(rule);
  tensor::ThreadPool pool(compute_threads(options.threads));
  int status = exit_status::ok;
  std::visit(
      [&]<class T>(const std::unique_ptr<model::ParamStore<T>>& params) {
        model::Vlm<T> vlm(model.config, *params, pool);
        for (const std::string& image : options.images) {
          try {
            const std::string text = caption(vlm, rule, read_file(image), options.max_tokens);
            std::fputs(
                options.json ? json_line(options, model, image, text).c_str() : fmt::format("{}: {}\n", image, text).c_str(),
                stdout);
          } catch (const Error& e) {
            log::error(
                "{}", std::string(e.what()).find(image) == std::string::npos ? image + ": " + e.what() : std::string(e.what()));
            status = exit_status::data;
          }
        }
      },
      model.params);
  return status;
}

}  // namespace mm::loop
