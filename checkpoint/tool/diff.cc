// SPDX-License-Identifier: Apache-2.0
// diff: two steps, tensor by tensor, whatever their layouts. Holds one tensor of each in memory at a time.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoint/box.h"
#include "checkpoint/tool/verbs.h"

namespace mm::checkpoint::tool {
namespace {

using nlohmann::json;

struct Difference {
  int64_t count = 0;                  // elements with other bits
  double absolute = 0, relative = 0;  // the largest; relative to the larger of the two
};

std::vector<char> read_whole(StepReader& step, const TensorKey& key, const TensorParts& t) {
  std::vector<char> out(static_cast<size_t>(elements(t.global_shape)) * size_of(t.dtype));
  step.read(
      {{key.first, key.second, t.dtype, t.global_shape, {Extents(t.global_shape.size(), 0), t.global_shape}, out.data()}});
  return out;
}

template <class T>
double element(const char* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return static_cast<double>(value);
}

double from_float16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double magnitude = exponent == 31  ? (fraction == 0 ? INFINITY : NAN)
                           : exponent == 0 ? std::ldexp(fraction, -24)
                                           : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

// 8-bit floats count by their bytes.
double value_at(DType dtype, const char* p) {
  switch (dtype) {
    case DType::float64:
      return element<double>(p);
    case DType::float32:
      return element<float>(p);
    case DType::bfloat16:
      return std::bit_cast<float>(static_cast<uint32_t>(static_cast<uint16_t>(element<uint16_t>(p))) << 16);
    case DType::float16:
      return from_float16(static_cast<uint16_t>(element<uint16_t>(p)));
    case DType::int64:
      return element<int64_t>(p);
    case DType::int32:
      return element<int32_t>(p);
    case DType::int16:
      return element<int16_t>(p);
    case DType::int8:
      return element<int8_t>(p);
    case DType::uint64:
      return element<uint64_t>(p);
    case DType::uint32:
      return element<uint32_t>(p);
    case DType::uint16:
      return element<uint16_t>(p);
    case DType::uint8:
    case DType::boolean:
    case DType::float8_e4m3:
    case DType::float8_e5m2:
      return element<uint8_t>(p);
  }
  return 0;
}

// A NaN wins: it must not be lost among numbers.
double larger(double a, double b) {
  return std::isnan(a) || a > b ? a : b;
}

Difference compare(DType dtype, const std::vector<char>& a, const std::vector<char>& b) {
  Difference d;
  const size_t width = size_of(dtype);
  for (size_t at = 0; at < a.size(); at += width) {
    if (std::memcmp(&a[at], &b[at], width) == 0) continue;
    ++d.count;
    const double x = value_at(dtype, &a[at]), y = value_at(dtype, &b[at]);
    const double absolute = std::abs(x - y), scale = std::max(std::abs(x), std::abs(y));
    d.absolute = larger(d.absolute, absolute);
    if (scale != 0) d.relative = larger(d.relative, absolute / scale);
  }
  return d;
}

class Report {
 public:
  explicit Report(bool as_json) : json_(as_json) {}
  void line(const TensorKey& key, const std::string& result, const std::string& detail, json more = json::object()) {
    if (result != "equal")
      ++different_;
    else
      ++equal_;
    if (json_) {
      more.update({{"name", key.first}, {"role", key.second}, {"result", result}});
      fmt::print("{}\n", more.dump(-1, ' ', false, json::error_handler_t::replace));
    } else if (result != "equal") {
      fmt::print("{} ({}): {}\n", key.first, key.second, detail);
    }
  }
  int finish() const {
    if (!json_) fmt::print("{} tensors equal, {} different\n", equal_, different_);
    return different_ == 0 ? exit_status::ok : exit_status::found;
  }

 private:
  bool json_;
  int64_t equal_ = 0, different_ = 0;
};

}  // namespace

int diff(const Target& first, const Target& second, bool as_json) {
  const StepInfo in_a = choose(first), in_b = choose(second);
  StepReader a(in_a.path, in_a.step), b(in_b.path, in_b.step);
  Report report(as_json);
  uint64_t total = a.manifest().payload();
  Progress progress("diff", total, as_json);
  for (const auto& [key, t] : a.tensors()) {
    const auto other = b.tensors().find(key);
    if (other == b.tensors().end()) {
      report.line(key, "only in first", fmt::format("only in {}", in_a.path));
      continue;
    }
    const TensorParts& u = other->second;
    if (t.dtype != u.dtype || t.global_shape != u.global_shape) {
      report.line(
          key, "other type",
          fmt::format("{} {} and {} {}", name_of(t.dtype), text_of(t.global_shape), name_of(u.dtype), text_of(u.global_shape)));
      continue;
    }
    const std::vector<char> x = read_whole(a, key, t), y = read_whole(b, key, u);
    progress.add(x.size());
    const Difference d = compare(t.dtype, x, y);
    const int64_t n = elements(t.global_shape);
    report.line(key, d.count == 0 ? "equal" : "differs",
                fmt::format("{} of {} elements differ, by at most {:.3g}, relative {:.3g}", d.count, n, d.absolute, d.relative),
                {{"elements", n}, {"different", d.count}, {"max_abs", d.absolute}, {"max_rel", d.relative}});
  }
  for (const auto& [key, t] : b.tensors()) {
    if (!a.tensors().contains(key)) report.line(key, "only in second", fmt::format("only in {}", in_b.path));
  }
  return report.finish();
}

}  // namespace mm::checkpoint::tool
