// SPDX-License-Identifier: Apache-2.0
// Which tokens stand at a sequence's ends, from the files that come with a tokenizer; see open_tokenizer for their order.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "trainer/data/tokenizer/tokenizer.h"

namespace mm::data {

struct OwnEnds {  // what the tokenizer's own file says
  std::optional<int32_t> begin, end;
};

// `id_of` gives a token's id, or nothing. Throws a usage Error where a file names a token that is not there, or none names the
// end.
Ends find_ends(const std::string& tokenizer_path, const std::string& model_folder,
               const std::function<std::optional<int32_t>(const std::string&)>& id_of, const OwnEnds& own);

}  // namespace mm::data
