// SPDX-License-Identifier: Apache-2.0
// The parameters of a model from a Hugging Face folder, strictly: a tensor that is missing, that has another shape or that the
// model does not know is a usage Error that names it. Buffers that old versions of Hugging Face's classes saved (position_ids,
// inv_freq) are no parameters and are passed over.
#pragma once

#include <string>

#include "trainer/model/param.h"

namespace mm::interop {

// `specs` is the whole model, of which the store holds a part.
template <class T>
void load_params(const std::string& folder, const std::vector<model::ParamSpec>& specs, model::ParamStore<T>& store);

extern template void load_params<float>(const std::string&, const std::vector<model::ParamSpec>&, model::ParamStore<float>&);
extern template void load_params<double>(const std::string&, const std::vector<model::ParamSpec>&, model::ParamStore<double>&);

}  // namespace mm::interop
