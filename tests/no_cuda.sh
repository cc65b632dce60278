#!/bin/sh
# no_cuda.sh PROGRAM SOURCE: the program needs no CUDA library, nothing outside core/device/cuda and the plugins'
# modules includes a CUDA header, and nothing there takes managed memory, or device memory past the regions of memory.c.
set -eu
program=$1 source=$2
needed=$(readelf -d "$program" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
[ -n "$needed" ] || { echo "$program: no list of libraries"; exit 1; }
if echo "$needed" | grep -Ei 'cuda|cublas|nvidia|nvrtc|nvml'; then
    echo "$program: needs the libraries above; only device-cuda.so and the plugins' modules may"
    exit 1
fi
# what the loader would look for at run time counts as well
if strings -a "$program" | grep -E '^lib(cuda|cudart|cublas[A-Za-z]*|nvidia-ml)\.so(\.[0-9]+)*$'; then
    echo "$program: names the libraries above"
    exit 1
fi
rooms="worker core sdk/include/worker"
[ ! -d "$source/http" ] || rooms="$rooms http"
cd "$source"
# shellcheck disable=SC2086 # a list of folders
found=$(grep -rnE '#[[:space:]]*include[[:space:]]*[<"](cuda|cublas|cudnn|nv[a-z]*\.h|device/cuda/)' $rooms |
    grep -vE '^(core/device/cuda|sdk/include/worker/cuda)/' || true)
if [ -n "$found" ]; then
    echo "$found"
    echo "CUDA headers belong to core/device/cuda and to the plugins' modules alone"
    exit 1
fi
[ -n "$(grep -rlE '#include <cuda' core/device/cuda)" ] || { echo "the search finds nothing where it must"; exit 1; }

product=$(find core/device/cuda plugins sdk/include -name '*.c' -o -name '*.cu' -o -name '*.cuh' -o -name '*.h' |
    grep -vE '/(test_|bench_)|/quant-test/')
# shellcheck disable=SC2086
of_runtime='cuda(Malloc[A-Za-z0-9]*|MallocManaged|MemAdvise|MemPrefetchAsync)[[:space:]]*\('
of_driver='cuMem(Alloc[A-Za-z]*|AllocManaged)[[:space:]]*\('
# shellcheck disable=SC2086 # a list of words on purpose
found=$(grep -nE "$of_runtime|$of_driver" $product || true)
if [ -n "$found" ]; then
    echo "$found"
    echo "device memory is taken by core/device/cuda/memory.c alone, in regions"
    exit 1
fi
