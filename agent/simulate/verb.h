// SPDX-License-Identifier: Apache-2.0
// `mm-run simulate`.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace mm::simulate {

// Adds the verb and its options; what is returned runs it once they are parsed, and gives the exit status.
std::function<int()> add_verb(CLI::App& app);

}  // namespace mm::simulate
