// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/tokenizer/regex.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "common/error.h"
#include "trainer/data/text/utf8.h"
#include "trainer/data/tokenizer/unicode.h"

namespace mm::data {
namespace {

constexpr uint32_t most_backtracks = 100'000'000;

class Translation {
 public:
  Translation(std::string_view pattern, const std::string& where) : rest_(pattern), pattern_(pattern), where_(where) {}

  std::string run() {
    while (!rest_.empty()) {
      const char c = take();
      if (c == '\\')
        escape(false);
      else if (c == '[')
        character_class();
      else if (c == '(')
        group();
      else if (c == '{')
        counted();
      else if (c == '^' || c == '$')
        refuse(std::string("the anchor ") + c);
      else
        out_ += c;
    }
    return out_;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw usage_error(fmt::format("{}: the pattern \"{}\" holds {}, which this version does not support", where_,
                                  printable(pattern_), printable(what)));
  }
  char take() {
    if (rest_.empty()) refuse("an end in the middle of a construct");
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }

  void escape(bool in_class) {
    const char c = take();
    if (c == 's') {
      out_ += in_class ? std::string(space_class) : fmt::format("[{}]", space_class);
    } else if (c == 'S' && !in_class) {
      out_ += fmt::format("[^{}]", space_class);
    } else if (c == 'd') {
      out_ += "\\p{Nd}";
    } else if (c == 'p' || c == 'P') {
      const size_t end = rest_.find('}');
      if (!rest_.starts_with('{') || end == std::string_view::npos) refuse(fmt::format("\\{} without {{name}}", c));
      for (const char n : rest_.substr(1, end - 1))
        if ((n < 'a' || n > 'z') && (n < 'A' || n > 'Z') && n != '_') refuse("a property name with other characters than letters");
      out_ += fmt::format("\\{}{}", c, rest_.substr(0, end + 1));
      rest_.remove_prefix(end + 1);
    } else if (c == 'r' || c == 'n' || c == 't' || c == 'f') {
      out_ += '\\', out_ += c;
    } else if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      refuse(fmt::format("\\{}{}", c, in_class ? " in a class" : ""));
    } else {
      out_ += '\\', out_ += c;
    }
  }

  void character_class() {
    out_ += '[';
    if (rest_.starts_with('^')) out_ += take();
    if (rest_.starts_with(']')) refuse("a class that starts with ]");
    for (char c; (c = take()) != ']';) {
      if (c == '[') refuse("a class in a class");
      if (c == '&' && rest_.starts_with('&')) refuse("&& in a class");
      if (c == '\\')
        escape(true);
      else
        out_ += c;
    }
    out_ += ']';
  }

  void group() {
    out_ += '(';
    if (!rest_.starts_with('?')) return;
    for (const std::string_view kind : {"?:", "?=", "?!", "?i:", "?<=", "?<!"})
      if (rest_.starts_with(kind)) {
        out_ += kind;
        rest_.remove_prefix(kind.size());
        return;
      }
    refuse(fmt::format("({}", rest_.substr(0, 3)));
  }

  void counted() {
    const size_t end = rest_.find('}');
    if (end == std::string_view::npos || end == 0) refuse("{ without a count");
    for (const char c : rest_.substr(0, end))
      if ((c < '0' || c > '9') && c != ',') refuse("{ without a count");
    if (rest_.front() == ',') refuse("a count without its least");
    out_ += fmt::format("{{{}}}", rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    if (rest_.starts_with('+')) refuse("a count followed by +");
  }

  std::string_view rest_;
  const std::string_view pattern_;
  const std::string& where_;
  std::string out_;
};

struct Free {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_compile_context* p) const { pcre2_compile_context_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};

std::string message_of(int code) {
  PCRE2_UCHAR text[160];
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

std::string for_pcre(std::string_view pattern, const std::string& where) {
  return Translation(pattern, where).run();
}

struct Regex::Compiled {
  std::unique_ptr<pcre2_code, Free> code;
};

Regex::Regex(std::string_view pattern, const std::string& where) {
  const std::string translated = for_pcre(pattern, where);
  const std::unique_ptr<pcre2_compile_context, Free> context(pcre2_compile_context_create(nullptr));
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE at = 0;
  auto compiled = std::make_shared<Compiled>();
  compiled->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), PCRE2_UTF | PCRE2_UCP,
                                     &error, &at, context.get()));
  if (!compiled->code)
    throw usage_error(fmt::format("{}: the pattern \"{}\": {}", where, printable(pattern), message_of(error)));
  uint32_t empty = 0;
  pcre2_pattern_info(compiled->code.get(), PCRE2_INFO_MATCHEMPTY, &empty);
  if (empty != 0)
    throw usage_error(
        fmt::format("{}: the pattern \"{}\" can match nothing, which this version does not support", where, printable(pattern)));
  pcre2_jit_compile(compiled->code.get(), PCRE2_JIT_COMPLETE);  // where it fails, the interpreter matches
  compiled_ = std::move(compiled);
}

std::optional<std::pair<size_t, size_t>> Regex::find(std::string_view text, size_t from) const {
  // A stack of the machine code's own, as its default of 32 KiB is soon full, and one result, for each thread.
  struct Scratch {
    std::unique_ptr<pcre2_match_data, Free> data{pcre2_match_data_create(32, nullptr)};
    std::unique_ptr<pcre2_match_context, Free> context{pcre2_match_context_create(nullptr)};
    std::unique_ptr<pcre2_jit_stack, Free> stack{pcre2_jit_stack_create(32 * 1024, 8 * 1024 * 1024, nullptr)};
    Scratch() {
      if (!data || !context || !stack) throw std::bad_alloc();
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
      pcre2_set_match_limit(context.get(), most_backtracks);
    }
  };
  thread_local const Scratch scratch;
  const int result = pcre2_match(compiled_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                 from > 0 ? PCRE2_NO_UTF_CHECK : 0, scratch.data.get(), scratch.context.get());
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) throw data_error("text: its pattern: " + message_of(result));
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch.data.get());
  if (ends[1] <= ends[0]) throw data_error("text: its pattern matches nothing");
  return std::pair{size_t{ends[0]}, size_t{ends[1]}};
}

}  // namespace mm::data
