#!/bin/bash
# Runs compute-sanitizer over models on this machine's GPU: memcheck with leaks, and initcheck; prints one table, and
# exits 1 unless all of it is clean.
#
#   bench/gpu/sanitize.sh WORKER FOLDER
#
# WORKER: the built program, its plugins found as usual (WORKER_PLUGIN_PATH). FOLDER: *.gguf of few megabytes, since a
# kernel takes ten to a hundred times as long. The models inside the program come on top. Each model runs a short prompt
# with two sequences, and a prompt of more than 64 tokens, whose rows are of the other class.
set -euo pipefail
if [ $# -ne 2 ] || [ ! -d "$2" ]; then
  echo "usage: $0 WORKER FOLDER" >&2
  exit 2
fi
worker=$1
folder=$2
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
trap 'exit 124' TERM INT
unclean=0

check() { # MODEL TOOL BENCH-OPTION...
  local model=$1 tool=$2 status=0 errors leaked verdict=clean
  shift 2
  local options=(--tool "$tool" --error-exitcode 99)
  [ "$tool" != memcheck ] || options+=(--leak-check full)
  "$sanitizer" "${options[@]}" "$worker" bench --device cuda --model "$model" -r 1 -n 2 "$@" >"$log" 2>&1 || status=$?
  errors=$(sed -n 's/.*ERROR SUMMARY: \([0-9]*\) error.*/\1/p' "$log" | tail -n 1)
  leaked=$(sed -n 's/.*LEAK SUMMARY: \([0-9]*\) bytes leaked.*/\1/p' "$log" | tail -n 1)
  # Without a summary the tool did not follow the program to its end.
  if [ "$status" != 0 ] || [ "$errors" != 0 ] || [ "${leaked:-0}" != 0 ]; then
    verdict=NOT-CLEAN
    unclean=1
  fi
  printf '%-32s %-10s %-24s %6s %8s %6d  %s\n' "$(basename "$model")" "$tool" "$*" "${errors:--}" "${leaked:--}" \
    "$status" "$verdict"
  [ "$verdict" = clean ] || grep -E '^=========|error' "$log" | head -n 40 >&2
}

printf '%-32s %-10s %-24s %6s %8s %6s\n' MODEL TOOL BENCH ERRORS LEAKED STATUS
for model in embedded:haiku embedded:haiku-moe "$folder"/*.gguf; do
  for tool in memcheck initcheck; do
    check "$model" "$tool" -p 4 --sequences 2
    check "$model" "$tool" -p 80
  done
done
exit $unclean
