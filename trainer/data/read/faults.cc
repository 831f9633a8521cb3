// SPDX-License-Identifier: Apache-2.0
#include "trainer/data/read/faults.h"

#include <utility>

namespace mm::data {
namespace {

FaultHook the_hook;

}  // namespace

void set_fault_hook(FaultHook hook) {
  the_hook = std::move(hook);
}

Fault ask_fault(const Operation& operation) {
  return the_hook ? the_hook(operation) : Fault{};
}

}  // namespace mm::data
