// SPDX-License-Identifier: Apache-2.0
// The parameters of a model from a Hugging Face folder, strictly: a tensor that is missing, that has another shape or that the
// model does not know is a usage Error that names it. Buffers that old versions of Hugging Face's classes saved (position_ids,
// inv_freq) are no parameters and are passed over.
#pragma once

#include <string>

#include "trainer/model/param.h"

namespace mm::interop {

template <class T>
void load_params(const std::string& folder, model::ParamStore<T>& store);

extern template void load_params<float>(const std::string&, model::ParamStore<float>&);
extern template void load_params<double>(const std::string&, model::ParamStore<double>&);

}  // namespace mm::interop
