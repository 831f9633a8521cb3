// SPDX-License-Identifier: Apache-2.0
// One committed step, opened for reading: its manifest, the indexes of its rank files, and its tensors in boxes of any layout.
// Everything that comes out has been checked against its hash. Throws BadStep for wrong content, io::Failure for what cannot be
// read now, a usage Error for a tensor that is not in the step as it is asked for.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/rank_file.h"

namespace mm::checkpoint {

struct TensorParts {
  DType dtype = DType::float32;
  Extents global_shape;
  std::vector<std::pair<size_t, size_t>> parts;  // file, entry of it
};
using TensorKey = std::pair<std::string, std::string>;  // name, role

class StepReader {
 public:
  // Checks the manifest, the sizes and indexes of all files, and that the boxes of each tensor tile it.
  StepReader(const std::string& folder, int64_t step) : StepReader(folder, read_manifest(folder, step)) {}
  // Of a folder whose manifest is not written yet.
  StepReader(const std::string& folder, Manifest manifest);
  // Of files that lie elsewhere: for each rank its copies, nearest first. `name` is for messages.
  StepReader(const std::string& name, Manifest manifest, const std::function<std::vector<Place>(int rank)>& places);

  const Manifest& manifest() const { return manifest_; }
  const std::map<TensorKey, TensorParts>& tensors() const { return tensors_; }
  size_t files() const { return files_.size(); }
  const Entry& entry(size_t file, size_t number) const { return files_.at(file)->entries().at(number); }

  void check_structure(size_t file);
  // `progress` gets the bytes of each block that was checked; one call at a time.
  void check_payload(size_t file, const std::function<void(uint64_t)>& progress);
  // Fills the views; reads the blocks that hold them, each once, and no others.
  void read(const std::vector<View>& views);
  // Threads that read and hash.
  void set_threads(int threads) { threads_ = threads; }

 private:
  // A block of an entry, and the runs of it that are wanted.
  struct Block {
    size_t file = 0, entry = 0;
    uint64_t number = 0;
    std::vector<Run> runs;
  };
  void check_tiling() const;
  void read_blocks(const std::vector<Block>& blocks, const std::function<void(uint64_t)>& progress);

  std::string folder_;
  Manifest manifest_;
  std::vector<std::unique_ptr<RankFile>> files_;
  std::map<TensorKey, TensorParts> tensors_;
  int threads_ = 2;
};

// What is wrong with a step, a line for each file that does not verify; empty where all holds. `quick`: all but the payload.
std::vector<std::string> verify_step(const std::string& folder, int64_t step, bool quick,
                                     const std::function<void(uint64_t)>& progress);

}  // namespace mm::checkpoint
