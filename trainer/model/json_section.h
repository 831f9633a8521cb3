// SPDX-License-Identifier: Apache-2.0
// One JSON object of a configuration file; every message names the file, the key with its path, and the value.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "trainer/model/config.h"

namespace mm::model {

nlohmann::json parse_json_file(const std::string& path);  // an object, or a usage Error

class JsonSection {
 public:
  JsonSection(const nlohmann::json& object, std::string file, std::string path)
      : object_(object), file_(std::move(file)), path_(std::move(path)) {}

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;
  bool has(const std::string& key) const { return object_.contains(key) && !object_.at(key).is_null(); }
  JsonSection section(const std::string& key) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  int64_t integer(const std::string& key, int64_t otherwise) const;
  int count(const std::string& key, int otherwise) const;
  double number(const std::string& key, double otherwise) const;
  double positive(const std::string& key, double otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  void only(const std::string& key, const std::string& supported, const std::string& otherwise) const;
  void only(const std::string& key, bool supported) const;
  void absent(const std::string& key) const;
  std::array<double, 3> channels(const std::string& key) const;

 private:
  const nlohmann::json& object_;
  std::string file_, path_;
};

Activation read_activation(const JsonSection& section, const std::string& otherwise);
VisionConfig read_vision(const JsonSection& section);
// Mean and deviation of preprocessor_config.json, where the folder has one.
void read_preprocessor(const std::string& folder, VisionConfig& vision);

}  // namespace mm::model
