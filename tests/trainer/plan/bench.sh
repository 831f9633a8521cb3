#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The step time of mm-trainer on 1 and 2 ranks, one thread each, beside what the plan's model makes of measured rates of products, memory and
# messages: a decoder of 6 layers of 512 with a tower of 6 of 256, float32, 16 samples a step. The peer is the model; the ratio is measured time
# over modelled. Memory is the peak of a rank's resident size, with the copy that a save makes; the model knows nothing of code and libraries.
set -eu -o pipefail
cd "$(dirname "$0")/../../.."
BUILD=${BUILD:-build} STEPS=${STEPS:-9}
folder=$(mktemp -d /tmp/mm-bench-plan-XXXXXX)
trap 'rm -rf "$folder"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1

"$BUILD/tests/make-fixture" "$folder" --samples 64 --image-size 96
mkdir "$folder/small"
cat >"$folder/small/config.json" <<'END'
{"model_type": "llava", "image_token_index": 3, "vision_feature_layer": -1, "vision_feature_select_strategy": "full",
 "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 6,
   "num_attention_heads": 4, "image_size": 96, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh", "vision_use_head": false},
 "text_config": {"model_type": "llama", "vocab_size": 264, "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 6,
   "num_attention_heads": 8, "num_key_value_heads": 4, "rms_norm_eps": 1e-6}}
END
cat >"$folder/job.toml" <<END
[run]
dir = "$folder/run"
steps = $STEPS
[model]
path = "$folder/small"
init = "random"
[data]
shards = "$folder/data/*.tar"
global_batch = 16
[parallel]
threads = 1
END

# Runs a rank and writes down its largest resident size, in KiB.
cat >"$folder/rank.py" <<'END'
import os, resource, subprocess, sys
status = subprocess.call(sys.argv[2:])
with open(sys.argv[1] + "." + os.environ.get("OMPI_COMM_WORLD_RANK", "0"), "w") as f:
    f.write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(status)
END

echo "layout                     measured s   modelled s      ratio   error %   peak MiB   modelled MiB"
for layout in "1" "1 recompute=full" "1 micro_batch=4" "2" "2 zero=0" "2 zero=3" "2 tp=2" "2 cp=2" "2 pp=2 micro_batch=4" "2 pp=2 micro_batch=4 virtual=2"; do
  read -r ranks keys <<<"$layout"
  sets=()
  for key in $keys; do sets+=(--set "parallel.$key"); done
  rm -rf "$folder/run"
  mpirun -n "$ranks" python3 "$folder/rank.py" "$folder/peak" "$BUILD/mm-trainer" "$folder/job.toml" "${sets[@]}" >"$folder/log" 2>&1 ||
    { cat "$folder/log"; exit 1; }
  read -r step labels < <(python3 - "$folder/run/metrics.jsonl" <<'END'
import json, statistics, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
print(statistics.median(l["step_s"] - l["data_wait_s"] for l in lines[2:]), statistics.mean(l["tokens"] for l in lines) / 16)
END
)
  mpirun -n "$ranks" "$BUILD/tests/plan-machine" "$folder/job.toml" --labels "$labels" "${sets[@]}" >"$folder/plan.json"
  python3 - "$folder" "$layout" "$step" <<'END'
import glob, json, sys
folder, layout, step = sys.argv[1], sys.argv[2], float(sys.argv[3])
plan = json.load(open(folder + "/plan.json"))
peak = max(int(open(p).read()) for p in glob.glob(folder + "/peak.*")) / 1024
print("%-26s %10.4f %12.4f %10.2f %9.1f %10.0f %14.0f" % (layout, step, plan["step_s"], step / plan["step_s"],
      100 * (plan["step_s"] / step - 1), peak, plan["memory_mib"]))
if layout in ("1", "2"):
    print("  limits: products %(gflops).1f GFLOP/s at half_width %(half_width).0f, memory %(memory_gbs).1f GB/s, messages %(message_us).1f us, "
          "%(message_gbs).2f GB/s" % plan)
END
  rm -f "$folder"/peak.*
done
