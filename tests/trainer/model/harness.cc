// SPDX-License-Identifier: Apache-2.0
#include "tests/trainer/model/harness.h"

#include <unistd.h>

#include <fstream>

namespace mm::test {

ScratchFolder::ScratchFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "mm-model-test-XXXXXX").string();
  if (!mkdtemp(pattern.data())) throw std::runtime_error("mkdtemp " + pattern);
  path_ = pattern;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

model::VlmConfig config_of(const std::string& config_json) {
  ScratchFolder folder;
  std::ofstream(folder.path() + "/config.json") << config_json;
  return model::load_config(folder.path());
}

}  // namespace mm::test
