#!/bin/bash
# Measures the worker on this machine's GPU with models of real shapes, and prints one table beside the goals.
#
#   bench/gpu/run.sh WORKER SHAPE_MODELS.py [FOLDER]
#
# WORKER: the built program, its plugins found as usual (WORKER_PLUGIN_PATH). SHAPE_MODELS.py: bench/shapes.py, or what
# is called as it is: NAME FILE writes a GGUF file with the shapes and types of the model NAME and random weights.
# FOLDER: where these files go, and stay for the next run. MODELS, REPEATS: what to measure, how often.
set -euo pipefail
if [ $# -lt 2 ]; then
  echo "usage: $0 WORKER SHAPE_MODELS.py [FOLDER]" >&2
  exit 2
fi
worker=$1
maker=$2
folder=${3:-/tmp/worker-shapes}
models=${MODELS:-qwen2.5-0.5b phi-3-mini llama-2-7b gpt-oss-20b gpt2-124m}
repeats=${REPEATS:-3}
here=$(cd "$(dirname "$0")" && pwd)
results=$(mktemp)
trap 'python3 "$here/table.py" "$results"; rm -f "$results"' EXIT # also of what there is when stopped
trap 'exit 124' TERM INT
mkdir -p "$folder"

measure() { # NAME OPTION...
  local name=$1 line
  shift
  if line=$("$worker" bench --device cuda --model "$folder/$name.gguf" --json --repeat "$repeats" "$@" |
    tr -d '\n'); then
    printf '%s\t%s\n' "$name" "$line" >>"$results"
  else
    echo "$name: bench $* failed" >&2
  fi
}

for name in $models; do
  if [ ! -f "$folder/$name.gguf" ]; then
    python3 "$maker" "$name" "$folder/$name.part"
    mv "$folder/$name.part" "$folder/$name.gguf"
  fi
  cat "$folder/$name.gguf" >/dev/null # into the page cache
  measure "$name" -p 512 -n 128 --depth 128 --temperature 0
  measure "$name" -p 512 -n 128 --depth 128 --temperature 1
  [ "$name" = gpt2-124m ] || measure "$name" -p 2048 -n 128 --depth 3840 --temperature 0 # gpt2 has 1024 positions
  for sequences in 8 32 64; do
    measure "$name" -p 512 -n 128 --sequences $sequences --temperature 1
  done
done
