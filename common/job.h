// SPDX-License-Identifier: Apache-2.0
// The job file (TOML) as values, checked as far as the file alone allows. Paths are relative to the working directory.
// See mm-train.toml(5) for every key, its unit and its default.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "common/layout.h"

namespace mm {

struct Job {
  std::string file;  // where it was read, for messages

  struct {
    std::string dir = "runs/run";
    int64_t steps = 1000;
    int64_t seed = 1;
  } run;
  struct {
    std::string path;
    std::string init = "load";         // load | random
    std::vector<std::string> freeze;  // glob patterns of tensor names
  } model;
  struct {
    std::vector<std::string> shards;    // glob patterns
    std::map<std::string, double> mix;  // in their place: glob patterns with weights
    std::string index;                  // the folder of the index; empty: the shards'
    std::string version;                // of the indexed data; empty: what is there
    int64_t shuffle_window = 262144;    // samples that are shuffled together; 0: all
    double max_bad_percent = 10;        // samples that cannot be used
    std::string tokenizer = "bytes";
    bool shuffle = true;
    bool pack = true;  // always
    bool balance = false;
    int64_t global_batch = 64;
    int threads = 0;         // 0: decided by the loader
    int64_t max_length = 0;  // counts image positions; 0: the model's limit
    std::vector<double> background = {255, 255, 255};  // red, green, blue, under transparent parts
    std::string jpeg = "exact";                        // exact | fast
    struct {                                           // random changes of pictures, see mm-train.toml(5)
      std::vector<double> crop, ratio = {3. / 4, 4. / 3};
      double flip = 0, brightness = 0, contrast = 0, saturation = 0, hue = 0;
    } augment;
    struct {
      double memory = 0, disk = 0;  // GB, of each rank that reads and of each node
      std::string folder;           // on the node's own disk; empty: the one that the node's agent gives
      bool encrypt = false;
    } cache;
  } data;
  struct {
    int tp = 1, pp = 1, cp = 1, zero = 1;
    int64_t micro_batch = 0;             // 0: the rank's whole share
    std::string schedule = "auto";       // auto | 1f1b | interleaved | gpipe; see pipeline()
    int virtual_stages = 0;              // key virtual: chunks of layers of a rank; 0: as the schedule says
    int encoder_tp = 0, encoder_dp = 0;  // key encoder: the encoder's own ranks; 0 and 0: colocated with the first stage
    std::vector<double> stages;          // decoder layers of each pipeline stage; empty ("auto"): by the nodes' speeds
    std::string recompute = "none";      // none | full: keep a layer's input alone
    std::string backend = "auto";
    std::string dtype = "float32";  // float64 | float32
    int threads = 0;                // compute threads of a rank; 0: the CPUs that it may use
  } parallel;
  struct {
    double lr = 1e-3, min_lr_ratio = 0.1;
    int64_t warmup = 4;
    double weight_decay = 0.1;
    std::vector<double> betas = {0.9, 0.95};
    double eps = 1e-8;
    double clip = 1.0;  // 0: none
    double z_loss = 0, label_smoothing = 0;
    std::map<std::string, double> lr_scale;  // glob pattern of tensor names -> factor; those that match multiply
    bool skip_nonfinite = false;             // go on without the update of a step whose loss or gradient is not finite
  } optim;
  struct {
    std::string every = "100";  // steps, "2 epochs", "10 min", "auto"
    int keep = 2;
    std::vector<std::string> tiers;  // memory, node, peer: copies besides those on the shared file system
    int64_t shared_every = 1;        // each so many saves goes to the shared file system, too; 0: the last one only
    std::string compress = "off";    // auto | on: large tensors, without loss
    std::string node_folder;         // of the tier node; empty: the one that the node's agent gives
    double node_mtbf = 0;            // hours between failures of a node, for "auto"; 0: as published
  } checkpoint;
  struct {
    int spares = 0;
    int max_restarts = 10;
    std::string hang_timeout = "auto";  // seconds
    std::string requeue = "auto";       // auto | off
    std::vector<std::string> layouts;   // to go on with on fewer nodes, see common/smaller_layouts.h
  } recovery;
  struct {
    int64_t every = 1;
    bool tensorboard = true;  // RUN/tensorboard
  } log;
};

// How often checkpoints are made: exactly one of the three is positive, or it is automatic.
struct SaveEvery {
  int64_t steps = 0;
  double epochs = 0;
  double minutes = 0;
  bool automatic = false;  // by what a save costs and how often the job fails
};
SaveEvery save_every(const Job& job);
bool has_tier(const Job& job, std::string_view tier);
// 0 where it is "auto".
double hang_timeout_seconds(const Job& job);

// The pipeline's schedule: 1f1b, interleaved where a rank has several chunks, or gpipe. Without a pipeline it is 1f1b with one chunk.
struct Pipeline {
  std::string schedule;
  int chunks = 1;
};
Pipeline pipeline(const Job& job);
// parallel.stages in whole numbers.
std::vector<int> stage_layers(const Job& job);
// The ranks that run nothing but the encoder, tp x dp of them; they come after those of the layout. None where it is colocated.
Layout encoder_layout(const Job& job);
int encoder_ranks(const Job& job);

// Reads and checks the file, then applies the assignments ("section.key=value") in order. Throws a usage Error.
Job load_job(const std::string& path, const std::vector<std::string>& assignments = {});
// Throws a usage Error that names the first value which can be planned for, but which this version does not train with.
void refuse_untrainable(const Job& job);
// What `--mm-train=SPEC` means. A job file, or "key=value,..." with keys of [parallel], of [recovery] or "section.key", or "auto", or "off".
struct Spec {
  enum class Kind { off, automatic, values, file } kind = Kind::automatic;
  Job job;  // defaults where there is no file
};
Spec parse_spec(const std::string& spec);

// The layout of `tasks` ranks, less the encoder's own. Throws a usage Error with the numbers where they do not fit, also where dp does not
// divide the global batch of a job that has a file.
Layout job_layout(const Job& job, int tasks);

}  // namespace mm
