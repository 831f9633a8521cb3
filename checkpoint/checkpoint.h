// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a run: RUN/checkpoints/step-0001200/ with one HDF5 file for each rank and a manifest with hashes. Knows
// tensors and files, nothing of models or of MPI: what ranks must tell each other goes through Group.
//
// Invariants: a folder with a committed name is complete and every byte of it is covered by a hash; a load verifies every hash
// of what it reads before it returns; a failed save leaves the last good checkpoint as it was; candidates of which none loads
// are an error, never a silent start from step 0. The protocol is told in checkpoint/commit.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mm::checkpoint {

enum class DType { float64, float32, bfloat16, int64, uint8 };
size_t size_of(DType);
std::string name_of(DType);

using Extents = std::vector<int64_t>;

// A box of a tensor in memory: contiguous and row-major within the box. All of one name and role agree in dtype and global
// shape. At a save the boxes of all ranks together cover the tensor; two of them are the same box (a replica, which one of its
// ranks writes) or do not overlap. At a load they may be any. A 0-d tensor has empty extents and one element.
struct Box {
  Extents offset, shape;  // in elements; same rank as the global shape
};
int64_t elements(const Extents& shape);
// The boxes that make up elements [begin, end) of the flattened tensor, in order; at most 2 * rank - 1 of them. Of a tensor
// without elements it is the whole, empty as it is, so that a save records that the tensor exists.
std::vector<Box> boxes_of_range(const Extents& global_shape, int64_t begin, int64_t end);
// The same of a flattened slice: elements [begin, end) of what lies in `slice`, as boxes of the whole tensor. So a rank that
// keeps a flat part (ZeRO) of its rows or columns (tensor parallel) shows it with the slice's offset and shape.
std::vector<Box> boxes_of_slice_range(const Box& slice, int64_t begin, int64_t end);

struct ConstView {
  std::string name;  // any UTF-8, slashes too
  std::string role;  // "param", "m", "v", ...
  DType dtype = DType::float32;
  Extents global_shape;
  Box box;
  const void* data = nullptr;  // read during the call of save only
};
struct View {
  std::string name, role;
  DType dtype = DType::float32;
  Extents global_shape;
  Box box;
  void* data = nullptr;
};

// What the ranks of a run must tell each other. Every call is collective and in the same order on all ranks.
class Group {
 public:
  virtual ~Group() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::vector<std::string> all_gather(const std::string& mine) = 0;
};
// A group of one, for tools.
class SelfGroup : public Group {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::vector<std::string> all_gather(const std::string& mine) override { return {mine}; }
};

// Small facts that travel with a step, the same on all ranks: loader cursor, seed, layout, versions. Values are JSON texts.
using Facts = std::map<std::string, std::string>;

struct SaveResult {
  bool committed = false;
  std::string error;  // of the first rank that failed: object, place, reason
  double seconds = 0;
  uint64_t bytes = 0;  // payload of all ranks
};

struct StepInfo {
  int64_t step = 0;
  std::string path;
  bool bad = false;  // a load has marked it
};

class Owners;  // checkpoint/owners.h

class RunFolder {
 public:
  // Opens RUN, making RUN/checkpoints where `create`. Errors name the folder.
  RunFolder(std::string run, bool create);
  ~RunFolder();
  // Committed steps, newest first. Private and foreign names are ignored.
  std::vector<StepInfo> list() const;
  const std::string& path() const { return checkpoints_; }

  // Saves and commits step `step` ("this many steps are done"). Collective; blocks until committed or failed. Never throws for
  // what a disk can do: the result says it, the same on all ranks.
  SaveResult save(Group& group, int64_t step, const std::vector<ConstView>& tensors, const Facts& facts);
  // Removes what is older than the newest `keep` (at least 1) committed steps that are not marked bad and whose manifest, sizes
  // and structure hold at this moment; a step that does not hold is not counted, so that the newest one that does is never
  // removed. Collective; rank 0 acts. Returns what went wrong, the same on all ranks; empty where all went well.
  std::string retain(Group& group, int keep);

  struct Loaded {
    int64_t step = 0;
    Facts facts;
    std::vector<std::string> skipped;  // newer steps that did not verify, with the reason
  };
  // Loads the newest step that verifies on every rank into the views that `views_of` gives for its facts; marks the ones that
  // do not. Collective. nullopt: there is no committed step at all. Throws a data Error (exit 3) where there are some and none
  // loads; on all ranks what `views_of` threw on one, or a usage Error where a view names a tensor that the step has not or has
  // otherwise. After a throw the views' content is undefined.
  std::optional<Loaded> load_newest(Group& group, const std::function<std::vector<View>(int64_t step, const Facts&)>& views_of);

 private:
  std::string checkpoints_;
  std::unique_ptr<Owners> owners_;
};

}  // namespace mm::checkpoint
