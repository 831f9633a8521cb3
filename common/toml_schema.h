// SPDX-License-Identifier: Apache-2.0
// Reads TOML tables into plain structs through a table of keys, so that every unknown key, wrong type and value out of range gives
// one error with file, line, key and the nearest known key.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace mm {

struct TomlKey {
  std::string name;  // "section.key"
  std::variant<int64_t*, int*, double*, bool*, std::string*, std::vector<std::string>*, std::vector<double>*, std::map<std::string, double>*,
               std::function<void(const std::string&)>, std::monostate>
      target;
  double least = 0, most = 0;            // numbers: allowed range, unless both are 0
  std::vector<std::string> one_of = {};  // strings: allowed values, unless empty
};
// A string or list target takes a single string, too; a string target takes a number, as written. A list of numbers takes a word of one_of,
// too, and is then empty. A map takes a table of numbers. A function is called with a string. A table that is no map's names keys below it:
// encoder = {tp = 2} is encoder.tp = 2. A monostate target is a key that the format has and this version does not support: naming it is an
// error that says so.

// Sets what `text` holds. `name` is the file's name, for messages.
void read_toml(std::string_view text, const std::string& name, const std::vector<TomlKey>& keys);
// One "section.key=value" with a TOML value; a value that is not TOML is taken as a string.
void set_toml_key(const std::string& assignment, const std::vector<TomlKey>& keys);
// The known name that is nearest by edit distance.
std::string nearest_name(std::string_view name, const std::vector<std::string>& known);

}  // namespace mm
