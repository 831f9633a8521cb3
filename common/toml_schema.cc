// SPDX-License-Identifier: Apache-2.0
#include "common/toml_schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <numeric>
#include <sstream>

#include "common/error.h"

namespace mm {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

std::string written(const toml::node& node) {
  std::ostringstream out;
  node.visit([&](const auto& n) { out << n; });
  return out.str();
}

void check_number(const TomlKey& key, double value, const std::string& where) {
  if ((key.least != 0 || key.most != 0) && !(value >= key.least && value <= key.most))
    throw usage_error(fmt::format("{}: {} = {} is outside {} to {}", where, key.name, value, key.least, key.most));
}

void check_string(const TomlKey& key, const std::string& value, const std::string& where) {
  if (!key.one_of.empty() && std::find(key.one_of.begin(), key.one_of.end(), value) == key.one_of.end())
    throw usage_error(fmt::format("{}: {} = \"{}\" is none of: {}", where, key.name, value, fmt::join(key.one_of, ", ")));
}

struct Assign {
  const TomlKey& key;
  const toml::node& node;
  const std::string& where;

  Error wrong(const char* wanted) const {
    return usage_error(fmt::format("{}: {} must be {}, not {}", where, key.name, wanted, written(node)));
  }
  void operator()(int64_t* target) const {
    const auto value = node.value_exact<int64_t>();
    if (!value) throw wrong("a whole number");
    check_number(key, static_cast<double>(*value), where);
    *target = *value;
  }
  void operator()(int* target) const {
    int64_t wide = 0;
    (*this)(&wide);
    if (wide < INT32_MIN || wide > INT32_MAX) throw wrong("a smaller number");
    *target = static_cast<int>(wide);
  }
  void operator()(double* target) const {
    if (!node.is_number()) throw wrong("a number");
    const double value = *node.value<double>();
    check_number(key, value, where);
    *target = value;
  }
  void operator()(bool* target) const {
    const auto value = node.value_exact<bool>();
    if (!value) throw wrong("true or false");
    *target = *value;
  }
  void operator()(std::string* target) const {
    if (node.is_number()) *target = written(node);
    else if (const auto value = node.value_exact<std::string>()) *target = *value;
    else throw wrong("a string");
    check_string(key, *target, where);
  }
  void operator()(std::vector<std::string>* target) const {
    target->clear();
    if (const auto one = node.value_exact<std::string>()) {
      target->push_back(*one);
      return;
    }
    if (!node.is_array()) throw wrong("a string or a list of strings");
    for (const toml::node& item : *node.as_array()) {
      const auto value = item.value_exact<std::string>();
      if (!value) throw wrong("a list of strings");
      check_string(key, *value, where);
      target->push_back(*value);
    }
  }
  void operator()(std::vector<double>* target) const {
    if (const auto word = node.value_exact<std::string>(); word && !key.one_of.empty()) {
      check_string(key, *word, where);
      return target->clear();
    }
    if (!node.is_array()) throw wrong("a list of numbers");
    target->clear();
    for (const toml::node& item : *node.as_array()) {
      if (!item.is_number()) throw wrong("a list of numbers");
      target->push_back(*item.value<double>());
      check_number(key, target->back(), where);
    }
  }
  void operator()(std::map<std::string, double>* target) const {
    if (!node.is_table()) throw wrong("a table of numbers");
    target->clear();
    for (const auto& [name, item] : *node.as_table()) {
      if (!item.is_number()) throw wrong("a table of numbers");
      const double value = *item.value<double>();
      check_number(key, value, where);
      (*target)[std::string(name.str())] = value;
    }
  }
  void operator()(const std::function<void(const std::string&)>& target) const {
    std::string value;
    (*this)(&value);
    target(value);
  }
  void operator()(std::monostate) const { throw usage_error(fmt::format("{}: {}: this version does not support it", where, key.name)); }
};

void assign(const std::string& name, const toml::node& node, const std::string& file, const std::vector<TomlKey>& keys) {
  const std::string where = node.source().begin.line > 0 ? fmt::format("{}:{}", file, node.source().begin.line) : file;
  for (const TomlKey& key : keys)
    if (key.name == name) return std::visit(Assign{key, node, where}, key.target);
  std::vector<std::string> known;
  for (const TomlKey& key : keys) known.push_back(key.name);
  throw usage_error(fmt::format("{}: unknown key {}; the nearest known one is {}", where, name, nearest_name(name, known)));
}

bool takes_table(const std::string& name, const std::vector<TomlKey>& keys) {
  return std::ranges::any_of(keys, [&](const TomlKey& key) {
    return key.name == name && (std::holds_alternative<std::map<std::string, double>*>(key.target) || std::holds_alternative<std::monostate>(key.target));
  });
}

void walk(const toml::node& node, const std::string& name, const std::string& file, const std::vector<TomlKey>& keys) {
  if (!node.is_table() || takes_table(name, keys)) return assign(name, node, file, keys);
  for (const auto& [key, inner] : *node.as_table())
    walk(inner, name.empty() ? std::string(key.str()) : name + "." + std::string(key.str()), file, keys);
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& known) {
  const std::string* best = nullptr;
  size_t least = SIZE_MAX;
  for (const std::string& k : known) {
    // A bare key is near to its name in any section.
    const size_t dot = k.find('.');
    const size_t d = std::min(edit_distance(name, k), dot == std::string::npos ? SIZE_MAX : edit_distance(name, k.substr(dot + 1)) + 1);
    if (d < least) least = d, best = &k;
  }
  return best == nullptr ? std::string() : *best;
}

void read_toml(std::string_view text, const std::string& name, const std::vector<TomlKey>& keys) {
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& e) {
    throw usage_error(fmt::format("{}:{}: {}", name, e.source().begin.line, e.description()));
  }
  walk(table, "", name, keys);
}

void set_toml_key(const std::string& assignment, const std::vector<TomlKey>& keys) {
  const size_t equals = assignment.find('=');
  if (equals == std::string::npos || equals == 0) throw usage_error(fmt::format("'{}' is not of the form section.key=value", assignment));
  const std::string name = assignment.substr(0, equals), value = assignment.substr(equals + 1);
  toml::table table;
  try {
    table = toml::parse("value = " + value);
  } catch (const toml::parse_error&) {
    table.insert("value", value);
  }
  if (table.size() != 1) throw usage_error(fmt::format("{}: more than one value", assignment));
  // A bare word that TOML reads as something else (a date, say) still suits a string key.
  walk(*table.get("value"), name, assignment, keys);
}

}  // namespace mm
