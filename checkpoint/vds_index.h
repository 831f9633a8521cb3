// SPDX-License-Identifier: Apache-2.0
// index.h5 of a step: an HDF5 file in which every tensor is whole, /ROLE/NAME, as a virtual dataset over the rank files beside
// it. For people and their tools; no load reads it. A virtual dataset shows fill values where a rank file is missing or cut
// short, and says nothing, so it is made only of a step that has just been verified, and its floats are filled with NaN.
#pragma once

#include <string>

#include "checkpoint/step_reader.h"

namespace mm::checkpoint {

// Writes FOLDER/index.h5; replaces one that is there. Throws Error.
void write_vds_index(const StepReader& step, const std::string& folder);

}  // namespace mm::checkpoint
