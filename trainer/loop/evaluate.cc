// SPDX-License-Identifier: Apache-2.0
#include "trainer/loop/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "common/error.h"
#include "common/log.h"
#include "trainer/data/stream.h"
#include "trainer/loop/labels.h"
#include "trainer/loop/setup.h"
#include "trainer/loop/trained_model.h"
#include "trainer/model/vlm.h"

namespace mm::loop {
namespace {

using Json = nlohmann::json;

struct Sums {
  double loss = 0;
  int64_t tokens = 0, samples = 0;
  double mean() const { return tokens > 0 ? loss / static_cast<double>(tokens) : 0; }
};

struct Result {
  Sums own, deranged;
  int64_t rejected = 0, left_out = 0;
};

// What the run's own checkpoint says of its data.
data::StreamOptions options_of(const TrainedModel& model, const EvalOptions& options) {
  const auto fact = [&](const char* name) {
    const auto found = model.facts.find(name);
    return found == model.facts.end() ? Json() : Json::parse(found->second, nullptr, false);
  };
  const Json data = fact("data");
  data::StreamOptions out;
  out.shards = options.shards;
  if (out.shards.empty() && data.is_object()) out.shards = data.value("shards", out.shards);
  if (out.shards.empty())
    throw usage_error(options.run + ": its checkpoint does not say which data it was trained on: give --shards");
  out.shuffle = false;
  out.rule = trained_rule(model, data.is_object() ? data.value("max_length", int64_t{0}) : 0);
  return out;
}

template <class T>
class Evaluation {
 public:
  Evaluation(const TrainedModel& model, model::ParamStore<T>& params, data::Stream& stream, const EvalOptions& options)
      : stream_(stream), batch_(options.batch), pool_(compute_threads(options.threads)), vlm_(model.config, params, pool_) {}

  Result run(bool derange) {
    Result result;
    std::map<size_t, std::vector<int64_t>> by_pictures;  // number of pictures -> samples that have so many
    for (int64_t at = 0; at < stream_.samples(); at += batch_) {
      std::vector<data::Sample> samples;
      int64_t index = at;
      for (data::Stream::Item& item : stream_.at(at, std::min(batch_, stream_.samples() - at))) {
        if (item.usable) {
          by_pictures[item.sample.images.size()].push_back(index);
          samples.push_back(std::move(item.sample));
        } else {
          ++result.rejected;
        }
        ++index;
      }
      add(samples, result.own);
    }
    if (!derange) return result;
    // Only samples with equally many pictures can swap them; those without a partner are taken out of both losses.
    for (const auto& [pictures, indices] : by_pictures) {
      if (pictures > 0 && indices.size() >= 2) {
        add_deranged(indices, result.deranged);
        continue;
      }
      result.left_out += static_cast<int64_t>(indices.size());
      Sums out;
      for (int64_t i : indices) add({take(i)}, out);
      result.own.loss -= out.loss;
      result.own.tokens -= out.tokens;
      result.own.samples -= out.samples;
    }
    return result;
  }

 private:
  data::Sample take(int64_t index) { return std::move(stream_.at(index, 1).at(0).sample); }

  void add(const std::vector<data::Sample>& samples, Sums& sums) {
    if (samples.empty()) return;
    sums.loss += vlm_.forward(samples);
    sums.samples += static_cast<int64_t>(samples.size());
    sums.tokens += trained_labels(samples);
  }

  void add_deranged(const std::vector<int64_t>& indices, Sums& sums) {
    const auto n = static_cast<int64_t>(indices.size());
    const std::vector<int64_t> other = derangement(n, 1);
    for (int64_t at = 0; at < n; at += batch_) {
      std::vector<data::Sample> samples;
      for (int64_t i = at; i < std::min(n, at + batch_); ++i) {
        samples.push_back(take(indices[static_cast<size_t>(i)]));
        samples.back().images = take(indices[static_cast<size_t>(other[static_cast<size_t>(i)])]).images;
      }
      add(samples, sums);
    }
  }

  data::Stream& stream_;
  int64_t batch_;
  tensor::ThreadPool pool_;
  model::Vlm<T> vlm_;
};

std::string text_of(const Result& r, const TrainedModel& model, bool derange) {
  std::string out =
      fmt::format("step {}: loss {:.6f} over {} labels of {} samples", model.step, r.own.mean(), r.own.tokens, r.own.samples);
  if (derange) out += fmt::format("; with another's picture {:.6f}", r.deranged.mean());
  if (r.left_out > 0) out += fmt::format("; {} samples without a partner are left out", r.left_out);
  if (r.rejected > 0) out += fmt::format("; {} samples could not be used", r.rejected);
  return out + "\n";
}

std::string json_of(const Result& r, const TrainedModel& model, bool derange) {
  std::string out = fmt::format("{{\"step\":{},\"loss\":{:.17g},", model.step, r.own.mean());
  if (derange) out += fmt::format("\"loss_deranged\":{:.17g},\"left_out\":{},", r.deranged.mean(), r.left_out);
  return out + fmt::format("\"tokens\":{},\"samples\":{},\"rejected\":{}}}\n", r.own.tokens, r.own.samples, r.rejected);
}

}  // namespace

std::vector<int64_t> derangement(int64_t n, uint64_t seed) {
  const auto distance = static_cast<int64_t>(1 + (seed * 0x9e3779b97f4a7c15 >> 11) % static_cast<uint64_t>(n - 1));
  std::vector<int64_t> to(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) to[static_cast<size_t>(i)] = (i + distance) % n;
  return to;
}

int evaluate(const EvalOptions& options) {
  const TrainedModel model = load_trained(options.run);
  data::Stream stream(options_of(model, options));
  const Result result = std::visit(
      [&]<class T>(const std::unique_ptr<model::ParamStore<T>>& params) {
        return Evaluation<T>(model, *params, stream, options).run(options.derange);
      },
      model.params);
  std::fputs((options.json ? json_of(result, model, options.derange) : text_of(result, model, options.derange)).c_str(),
             stdout);
  return exit_status::ok;
}

}  // namespace mm::loop
