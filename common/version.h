// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace mm {

std::string version();                               // "0.1.0"
std::string version_line(const std::string& program);  // what `PROGRAM --version` prints: "mm-run 0.1.0"

}  // namespace mm
