// SPDX-License-Identifier: Apache-2.0
// Checkpoints of a run: RUN/checkpoints/step-0001200/ with one HDF5 file for each rank and a manifest with hashes. Knows
// tensors and files, nothing of models or of MPI: what ranks must tell each other goes through Group.
//
// Invariants: a folder with a committed name is complete and every byte of it is covered by a hash; a load verifies every hash
// of what it reads before it returns; a failed save leaves the last good checkpoint as it was; candidates of which none loads
// are an error, never a silent start from step 0. The protocol is told in checkpoint/commit.cc.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mm::checkpoint {

enum class DType {
  float64,
  float32,
  bfloat16,
  int64,
  uint8,
  float16,
  int32,
  int16,
  int8,
  uint64,
  uint32,
  uint16,
  boolean,
  float8_e4m3,
  float8_e5m2
};
size_t size_of(DType);  // bytes
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
  // The axis along which other layouts cut the tensor (tensor parallelism). A large box is kept as up to eight boxes along it, so
  // that a load of one rank's part reads little else; along the first axis, 0, it needs no cut. -1: not known; large tensors of
  // two dimensions and more are then cut along the second axis, which serves parts along the first one as well.
  int cut_axis = -1;
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
  // What each rank gave, on rank 0; empty on the others.
  virtual std::vector<std::string> gather(const std::string& mine) {
    std::vector<std::string> all = all_gather(mine);
    if (rank() != 0) all.clear();
    return all;
  }
  // What rank 0 gave, on all.
  virtual std::string broadcast(const std::string& mine) { return all_gather(rank() == 0 ? mine : "")[0]; }
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
  int64_t step = 0;
  // Where all ranks have it: "memory", "node", "peer", "shared", a blank between two; and why it is not where it should be.
  std::string tiers;
  std::vector<std::string> problems;
};

struct StepInfo {
  int64_t step = 0;
  std::string path;
  bool bad = false;     // a load has marked it
  bool pinned = false;  // is never removed
};

// Which steps stay: the newest `last` that hold, every step that `every` divides (0: none), and pinned ones.
struct Keep {
  int last = 2;
  int64_t every = 0;
};

// Where copies of a step go besides the shared file system, nearest first. Each is optional. What is kept there are the newest
// two steps.
struct Tiers {
  std::string memory_socket;  // of the node's agent, which keeps sealed memory for `job`; counted in the job's memory
  std::string job;            // the Slurm job id
  std::string node_folder;    // on the node's own disk
  bool peer = false;          // also on the disk of another node, where node_folder is set on all ranks
  std::string node_name;      // ranks with the same name share a node; default: the host name
  int64_t shared_every = 1;   // each so many saves goes to the shared file system too; 0: none does
};

// Whether large tensors are kept compressed (Blosc with zstd, lossless, all other tools of HDF5 need its filter 32001 then):
// never, always, or where a rank expects that to be faster than writing them as they are (checkpoint/compression_choice.h).
enum class Compression { off, automatic, on };

struct Writer;     // checkpoint/commit.h
class NearCopies;  // checkpoint/tiers.h

// Not to be used by several threads at once.
class RunFolder {
 public:
  // Opens RUN, making RUN/checkpoints where `create`. Errors name the folder.
  RunFolder(std::string run, bool create);
  ~RunFolder();
  // Committed steps, newest first. Private and foreign names are ignored.
  std::vector<StepInfo> list() const;
  const std::string& path() const { return checkpoints_; }

  // Before anything is loaded, where there are tiers: a load then takes the newest step of all of them, of each file the
  // nearest copy that verifies. Collective. A tier that cannot be had is left out; returns why, of this rank.
  std::vector<std::string> use_tiers(Group& group, const Tiers& tiers);

  // Of the saves that follow; off by default.
  void compress(Compression mode);

  // Saves and commits step `step` ("this many steps are done") straight from the views. Collective; blocks until committed or
  // failed. Never throws for what a disk can do: the result says it, the same on all ranks. The first save claims the run for
  // this writer (checkpoint/epochs.h): where load_newest was called before, as one that continues from the step that it
  // returned.
  SaveResult save(Group& group, int64_t step, const std::vector<ConstView>& tensors, const Facts& facts);
  // Removes what `keep` does not name, and steps that a later writer gave up. Counted are committed steps that are not marked
  // bad and whose manifest, sizes and structure hold at this moment, so that the newest one that does is never removed.
  // Collective; rank 0 acts. Returns what went wrong, the same on all ranks; empty where all went well.
  std::string retain(Group& group, const Keep& keep);
  std::string retain(Group& group, int last) { return retain(group, Keep{last, 0}); }

  struct Loaded {
    int64_t step = 0;
    Facts facts;
    std::vector<std::string> skipped;  // newer steps that did not verify or that a later writer gave up, with the reason
  };
  // Loads the newest step that verifies on every rank into the views that `views_of` gives for its facts; marks the ones that
  // do not. Collective. nullopt: there is no committed step at all. Throws a data Error (exit 3) where there are some and none
  // loads; on all ranks what `views_of` threw on one, or a usage Error where a view names a tensor that the step has not or has
  // otherwise. After a throw the views' content is undefined.
  std::optional<Loaded> load_newest(Group& group, const std::function<std::vector<View>(int64_t step, const Facts&)>& views_of);

 private:
  friend class Saver;
  std::string checkpoints_;
  std::unique_ptr<Writer> writer_;
  std::unique_ptr<NearCopies> near_;
  Tiers tiers_;
};

// Saves beside the training: begin() copies the values into one of two buffers and returns; another thread writes, commits and
// removes old steps, at low priority, and needs no further call. A save that fails is a result, never an exception. Ranks talk
// to each other over TCP connections of their own, so that the caller's collectives are not disturbed.
class Saver {
 public:
  struct Options {
    int threads = 1;                         // that hash and write, on each rank
    double bytes_per_second = 0;             // at most, of each rank; 0: as fast as the disk
    std::chrono::seconds deadline{30 * 60};  // for the slowest rank; a later one is named and the save fails
    std::optional<Keep> keep = {};           // applied after each commit; none: nothing is removed
  };
  // Collective. Saves go to the tiers that `folder` uses, too, before the shared file system. `folder` must outlive it, and is
  // not saved to by others meanwhile.
  Saver(RunFolder& folder, Group& group, const Options& options);
  // Waits until all saves have ended.
  ~Saver();
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Makes both buffers so large now, so that the first saves do not pay for fresh memory.
  void reserve(uint64_t bytes);
  // Collective. What is saved are the values at the call, whatever is written to them afterwards. False: the save was skipped
  // on all ranks, because on one of them both buffers are busy.
  bool begin(Group& group, int64_t step, const std::vector<ConstView>& tensors, const Facts& facts);
  // Of the saves that have ended since the last call, in order. Not collective: ranks may learn of an end at other steps.
  std::vector<SaveResult> ended();
  // Waits for all saves, then as ended().
  std::vector<SaveResult> wait();
  int64_t skipped() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mm::checkpoint
