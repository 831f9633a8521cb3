// SPDX-License-Identifier: Apache-2.0
// What the checkpoint tests share: ranks as threads, a folder that goes away, and a random state with random layouts. Bytes of
// a box are taken out of a whole tensor here by a loop over single elements, so that the library's own geometry is not its own
// judge.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"

namespace mm::checkpoint::test {

// Runs `body` on `size` ranks, each on a thread of its own; rethrows the first exception. A collective call that not all ranks
// make within a minute throws.
void run_ranks(int size, const std::function<void(Group&)>& body);

// In memory where the machine has a place for that (an fsync is free there), or on the disk of temporary files.
class TemporaryFolder {
 public:
  enum class On { memory, disk };
  explicit TemporaryFolder(On on = On::memory);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

struct Tensor {
  std::string name, role;
  DType dtype = DType::float32;
  Extents shape;
  std::vector<char> bytes;
};
using State = std::vector<Tensor>;
using Random = std::mt19937_64;

// Tensors of all types, 0 to 4 dimensions, some empty, with random bytes; at most about `most` elements each.
State random_state(Random& random, int tensors, int64_t most);
// The same tensors with other bytes.
State other_values(State state, uint64_t seed);

// A way to spread a state over ranks: for each rank the boxes of each tensor.
struct Placed {
  size_t tensor = 0;
  Box box;
};
using Layout = std::vector<std::vector<Placed>>;
Layout random_layout(Random& random, const State& state, int ranks);

std::vector<char> bytes_of(const Tensor& tensor, const Box& box);

// A rank's share in buffers of its own.
struct Share {
  std::vector<Placed> placed;
  std::vector<std::vector<char>> buffers;
};
Share share_of(const State& state, const std::vector<Placed>& placed);
Share empty_share(const State& state, const std::vector<Placed>& placed);
std::vector<ConstView> const_views(const State& state, const Share& share);
std::vector<View> views(const State& state, Share& share);

// Saves from all ranks; all of them must agree in the result.
SaveResult save(const std::string& run, const State& state, const Layout& layout, int64_t step, const Facts& facts = {});
// Loads on all ranks and checks that each byte is as in `states(step)`; the step, or -1 where there is none.
int64_t load_and_compare(const std::string& run, const std::function<const State&(int64_t)>& states, const Layout& layout,
                         std::vector<std::string>* skipped = nullptr);

struct Ran {
  int status = -1;
  std::string out, err;
};
// A command with its arguments, without a shell.
Ran run_command(const std::vector<std::string>& command);
std::string mm_ckpt();  // the program that was built with this test

}  // namespace mm::checkpoint::test
