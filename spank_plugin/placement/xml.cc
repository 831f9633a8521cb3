// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/placement/xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "common/error.h"

namespace mm::placement {
namespace {

constexpr size_t most_bytes = 64u << 20, most_elements = 1u << 20, most_depth = 200, most_attributes = 256;

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.' ||
         c == ':' || static_cast<unsigned char>(c) >= 0x80;
}

class Parser {
 public:
  Parser(std::string_view text, const std::string& name) : text_(text), name_(name) {}

  XmlElement document() {
    if (text_.size() > most_bytes)
      throw usage_error(fmt::format("{}: {} bytes are more than the {} of a topology", name_, text_.size(), most_bytes));
    if (starts("\xef\xbb\xbf")) at_ += 3;
    skip_misc();
    if (at_ >= text_.size()) fail("there is no element");
    XmlElement root = element(0);
    skip_misc();
    if (at_ < text_.size()) fail("text after the end of the root element");
    return root;
  }

 private:
  [[noreturn]] void fail(const std::string& reason) const {
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(std::min(at_, text_.size())), '\n');
    throw usage_error(fmt::format("{}:{}: {}", name_, line, reason));
  }
  bool starts(std::string_view what) const { return text_.substr(at_, what.size()) == what; }
  void skip_past(std::string_view end, const char* what) {
    const size_t found = text_.find(end, at_);
    if (found == std::string_view::npos) fail(fmt::format("{} does not end", what));
    at_ = found + end.size();
  }
  void skip_blanks() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
  }
  // Blanks, comments, processing instructions and a DOCTYPE without a subset of its own.
  void skip_misc() {
    while (true) {
      skip_blanks();
      if (starts("<!--")) {
        at_ += 4;
        skip_past("-->", "a comment");
      } else if (starts("<?")) {
        skip_past("?>", "a processing instruction");
      } else if (starts("<!DOCTYPE")) {
        const size_t end = text_.find_first_of("[>", at_);
        if (end == std::string_view::npos) fail("the DOCTYPE does not end");
        if (text_[end] == '[') fail("a DOCTYPE with declarations is not accepted");
        at_ = end + 1;
      } else {
        return;
      }
    }
  }
  std::string_view take_name(const char* what) {
    const size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    if (at_ == begin) fail(fmt::format("expected {}", what));
    return text_.substr(begin, at_ - begin);
  }
  void take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) fail(fmt::format("expected '{}'", c));
    ++at_;
  }

  void append_character(std::string_view number, std::string& out) const {
    const bool hexadecimal = !number.empty() && (number[0] == 'x' || number[0] == 'X');
    if (hexadecimal) number.remove_prefix(1);
    uint32_t code = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), code, hexadecimal ? 16 : 10);
    if (error != std::errc() || end != number.data() + number.size() || code == 0 || code > 0x10ffff)
      fail("a character number is wrong");
    if (code < 0x80) {
      out += static_cast<char>(code);
    } else {
      const int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
      out += static_cast<char>((0xff00 >> (more + 1) & 0xff) | code >> (6 * more));
      for (int k = more - 1; k >= 0; --k) out += static_cast<char>(0x80 | (code >> (6 * k) & 0x3f));
    }
  }
  // Text up to `end`, with references resolved.
  std::string decode(size_t end) {
    std::string out;
    while (at_ < end) {
      const char c = text_[at_++];
      if (c == '\0') fail("a NUL byte");
      if (c != '&') {
        out += c;
        continue;
      }
      const size_t semicolon = text_.find(';', at_);
      if (semicolon == std::string_view::npos || semicolon >= end) fail("'&' without ';'");
      const std::string_view reference = text_.substr(at_, semicolon - at_);
      if (reference == "lt")
        out += '<';
      else if (reference == "gt")
        out += '>';
      else if (reference == "amp")
        out += '&';
      else if (reference == "quot")
        out += '"';
      else if (reference == "apos")
        out += '\'';
      else if (!reference.empty() && reference[0] == '#')
        append_character(reference.substr(1), out);
      else
        fail(fmt::format("unknown entity '{}'", reference.substr(0, 32)));
      at_ = semicolon + 1;
    }
    return out;
  }

  void attributes(XmlElement& e) {
    while (true) {
      const size_t before = at_;
      skip_blanks();
      if (at_ >= text_.size()) fail(fmt::format("<{}> does not end", e.name));
      if (text_[at_] == '>' || text_[at_] == '/') return;
      if (before == at_) fail("expected a blank");
      if (e.attributes.size() >= most_attributes)
        fail(fmt::format("<{}> has more than {} attributes", e.name, most_attributes));
      const std::string_view key = take_name("the name of an attribute");
      skip_blanks();
      take('=');
      skip_blanks();
      if (at_ >= text_.size() || (text_[at_] != '"' && text_[at_] != '\'')) fail("expected a quoted value");
      const char quote = text_[at_++];
      const size_t end = text_.find(quote, at_);
      if (end == std::string_view::npos) fail("a quoted value does not end");
      std::string value = decode(end);
      at_ = end + 1;
      for (const auto& [known, ignored] : e.attributes)
        if (known == key) fail(fmt::format("attribute '{}' is there twice", key));
      e.attributes.emplace_back(key, std::move(value));
    }
  }

  XmlElement element(size_t depth) {
    if (depth > most_depth) fail(fmt::format("elements are nested more than {} deep", most_depth));
    if (++elements_ > most_elements) fail(fmt::format("more than {} elements", most_elements));
    take('<');
    XmlElement e;
    e.name = take_name("the name of an element");
    attributes(e);
    if (text_[at_] == '/') {
      ++at_;
      take('>');
      return e;
    }
    take('>');
    while (true) {
      const size_t mark = text_.find('<', at_);
      if (mark == std::string_view::npos) fail(fmt::format("<{}> has no end", e.name));
      e.text += decode(mark);
      if (starts("<!--")) {
        at_ += 4;
        skip_past("-->", "a comment");
      } else if (starts("<?")) {
        skip_past("?>", "a processing instruction");
      } else if (starts("<![CDATA[")) {
        const size_t begin = at_ + 9;
        skip_past("]]>", "a CDATA section");
        e.text += text_.substr(begin, at_ - 3 - begin);
      } else if (starts("</")) {
        at_ += 2;
        const std::string_view closing = take_name("the name of an element");
        if (closing != e.name) fail(fmt::format("</{}> ends <{}>", closing, e.name));
        skip_blanks();
        take('>');
        if (std::all_of(e.text.begin(), e.text.end(), is_blank)) e.text.clear();
        return e;
      } else {
        e.children.push_back(element(depth + 1));
      }
    }
  }

  std::string_view text_;
  const std::string& name_;
  size_t at_ = 0, elements_ = 0;
};

void escape(std::string_view text, std::string& out) {
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
}

void format(const XmlElement& e, std::string& out) {
  out += '<';
  out += e.name;
  for (const auto& [key, value] : e.attributes) {
    out += ' ';
    out += key;
    out += "=\"";
    escape(value, out);
    out += '"';
  }
  if (e.children.empty() && e.text.empty()) {
    out += "/>";
    return;
  }
  out += '>';
  escape(e.text, out);
  for (const XmlElement& child : e.children) format(child, out);
  out += "</" + e.name + ">";
}

}  // namespace

std::string_view XmlElement::get(std::string_view attribute, std::string_view otherwise) const {
  for (const auto& [key, value] : attributes)
    if (key == attribute) return value;
  return otherwise;
}

XmlElement parse_xml(std::string_view text, const std::string& name) {
  return Parser(text, name).document();
}

std::string format_xml(const XmlElement& root) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  format(root, out);
  return out + '\n';
}

}  // namespace mm::placement
