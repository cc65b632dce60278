#!/bin/sh
# checkpoints.sh WORKER PYTHON [MODEL]: every checkpoint of the forward pass of a model, or else of five tiny random
# ones, against the float64 reference.
set -eu
worker=$1 python=$2
here=$(dirname "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
if [ $# -gt 2 ]; then
    # the reference reads F32: the values that the file's types stand for, a little more of them than a window of 64
    "$worker" quantize "$3" "$dir/model.gguf" F32
    ids=$(head -c 400 "$here/../../models/haiku/heldout.txt" | "$worker" tokenize --model "$3" --file - |
        cut -d ' ' -f 1-72)
    "$worker" debug tap --model "$3" --exact --tap all --out "$dir/taps" --ids "$ids" >/dev/null
    "$python" "$here/reference.py" compare "$dir/model.gguf" "$dir/taps"
    exit
fi
"$python" "$here/reference.py" make "$dir/models"
for arch in llama qwen2 qwen3 phi3 gpt-oss; do
    echo "$arch"
    # 20 positions: past phi3's original context of 16, so --context chooses its long factors
    "$worker" debug tap --model "$dir/models/$arch.gguf" --exact --tap all --out "$dir/$arch" \
        --ids "1 2 3 4 5 6 7 9 11 20 21 22 23 24 25 26 27 28 29 30" >/dev/null
    "$python" "$here/reference.py" compare "$dir/models/$arch.gguf" "$dir/$arch"
done
