#!/bin/sh
# test.sh WORKER PYTHON: bringup.py on small files of the same forms, on the CPU; and every form of ../shapes.py runs.
set -eu
here=$(dirname "$0")
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for name in small-qwen2 small-phi-3 small-gpt-oss; do
    "$2" "$here/../shapes.py" $name "$dir/$name.gguf"
done
"$2" "$here/bringup.py" --worker "$1" --device cpu --context 512 "$dir/small-qwen2.gguf" "$dir/small-phi-3.gguf" \
    "$dir/small-gpt-oss.gguf=19.2"
# a bound that is too small is a failure
if "$2" "$here/bringup.py" --worker "$1" --device cpu --context 512 "$dir/small-qwen2.gguf=0.0001"; then
    echo "a bound that is too small was not seen"
    exit 1
fi
for name in small-llama small-gpt2 small-deepseek2 small-gemma3 small-bert; do
    "$2" "$here/../shapes.py" $name "$dir/$name.gguf"
    "$1" bench --device cpu --model "$dir/$name.gguf" -p 40 -r 1
done
