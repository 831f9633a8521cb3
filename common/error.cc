// SPDX-License-Identifier: Apache-2.0
#include "common/error.h"

#include <system_error>

namespace mm {

Error system_error(const std::string& what, int errno_value, int status) {
  return Error(status, what + ": " + std::generic_category().message(errno_value));
}

}  // namespace mm
