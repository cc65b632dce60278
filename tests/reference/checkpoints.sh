#!/bin/sh
# checkpoints.sh WORKER PYTHON [MODEL]: every checkpoint of the forward pass of a model, or else of a tiny random one of
# each family, against the float64 reference.
set -eu
worker=$1 python=$2
here=$(dirname "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
if [ $# -gt 2 ]; then
    # a little more than a window of 64
    case $3 in
    embedded:*) "$worker" quantize "$3" "$dir/model.gguf" F32 ;;
    *) cp "$3" "$dir/model.gguf" ;;
    esac
    ids=$(head -c 400 "$here/../../models/haiku/heldout.txt" | "$worker" tokenize --model "$3" --file - |
        cut -d ' ' -f 1-72)
    "$worker" debug tap --model "$3" --exact --tap all --out "$dir/taps" --ids "$ids" >/dev/null
    "$python" "$here/reference.py" compare "$dir/model.gguf" "$dir/taps"
    exit
fi
"$python" "$here/reference.py" make "$dir/models"
for model in "$dir"/models/*.gguf; do
    name=$(basename "$model" .gguf)
    echo "$name"
    # 20 positions: past phi3's original context of 16, so --context chooses its long factors
    "$worker" debug tap --model "$model" --exact --tap all --out "$dir/$name" \
        --ids "1 2 3 4 5 6 7 9 11 20 21 22 23 24 25 26 27 28 29 30" >/dev/null
    "$python" "$here/reference.py" compare "$model" "$dir/$name"
done
