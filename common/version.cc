// SPDX-License-Identifier: Apache-2.0
#include "common/version.h"

namespace mm {

std::string version() { return MM_VERSION; }
std::string version_line(const std::string& program) { return program + " " + version(); }

}  // namespace mm
