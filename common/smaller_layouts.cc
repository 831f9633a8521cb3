// SPDX-License-Identifier: Apache-2.0
#include "common/smaller_layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "common/error.h"

namespace mm {
namespace {

bool read_item(const std::string& item, SmallerLayout& layout) {
  int* const value = item.starts_with("tp=") ? &layout.tp : item.starts_with("cp=") ? &layout.cp : item.starts_with("pp=") ? &layout.pp : nullptr;
  if (value == nullptr) return false;
  const char* const last = item.data() + item.size();
  const auto [end, error] = std::from_chars(item.data() + 3, last, *value);
  return error == std::errc() && end == last && *value >= 1 && *value <= 65536;
}

}  // namespace

std::vector<SmallerLayout> smaller_layouts(const Job& job) {
  std::vector<SmallerLayout> out;
  for (const std::string& text : job.recovery.layouts) {
    SmallerLayout layout;
    layout.same = text == "same";
    for (size_t begin = 0; !layout.same && begin <= text.size();) {
      const size_t comma = std::min(text.find(',', begin), text.size());
      if (!read_item(text.substr(begin, comma - begin), layout))
        throw usage_error(fmt::format("{}: recovery.layouts: \"{}\" is neither \"same\" nor a layout such as \"tp=2,cp=1,pp=2\"", job.file, text));
      begin = comma + 1;
    }
    out.push_back(layout);
  }
  return out;
}

}  // namespace mm
