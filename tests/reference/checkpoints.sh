#!/bin/sh
# checkpoints.sh WORKER PYTHON: every checkpoint of the forward pass of four tiny random models against the float64 reference.
set -eu
worker=$1 python=$2
here=$(dirname "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
"$python" "$here/reference.py" make "$dir/models"
for arch in llama qwen2 qwen3 phi3; do
    echo "$arch"
    # 20 positions: past phi3's original context of 16, so --context chooses its long factors
    "$worker" debug tap --model "$dir/models/$arch.gguf" --exact --tap all --out "$dir/$arch" --ids "1 2 3 4 5 6 7 9 11 20 21 22 23 24 25 26 27 28 29 30" >/dev/null
    "$python" "$here/reference.py" compare "$dir/models/$arch.gguf" "$dir/$arch"
done
