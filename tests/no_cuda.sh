#!/bin/sh
# no_cuda.sh PROGRAM SOURCE [MODULE...]: the program needs no CUDA library, nothing outside core/device/cuda and the
# plugins' modules includes a CUDA header, and nothing there takes managed memory, host memory that a GPU sees (but for
# a step's inputs and results and pages that are handed over, never for weights), or device memory past the regions of
# memory.c. MODULE: built ones.
set -eu
program=$1 source=$2
shift 2
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
rooms="worker serve http core sdk/include/worker"
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
    grep -v /test_)
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

# Managed memory may lie anywhere; of mapped host memory there are the rings of inputs and ids, a tap's scores, and
# what pages are copied through that another worker gets.
managed='MallocManaged|cuMemAllocManaged|cuMemAdvise|cuMemPrefetch|cudaMemAdvise|cudaMemPrefetch|__managed__'
mapped='HostAllocMapped|HostRegisterMapped|HostGetDevicePointer|MEMHOST[A-Z]*_DEVICEMAP'
where_mapped='^core/device/cuda/(memory|step|pages)\.c:'
# shellcheck disable=SC2086 # a list of words on purpose
found=$(grep -nE "$managed" $product /dev/null || true)
[ -z "$found" ] || { echo "$found"; echo "managed memory: weights would not be where they are said to be"; exit 1; }
# shellcheck disable=SC2086
found=$(grep -nE "$mapped" $product || true)
echo "$found" | grep -qE "$where_mapped" || { echo "the search finds no mapped memory where it must"; exit 1; }
if echo "$found" | grep -vE "$where_mapped"; then
    echo "host memory that a GPU sees is for inputs and results of steps and for pages alone: cuda_memory_pinned"
    exit 1
fi
if grep -rn "cuda_memory_pinned(" core/device/cuda --include='*.c' |
    grep -vE '^core/device/cuda/(memory|open|asks|pages|test_[a-z_]*)\.c:'; then
    echo "cuda_memory_pinned is for the rings that open.c, asks.c and pages.c make, never for weights"
    exit 1
fi
for module in "$@"; do
    symbols=$(nm -D --undefined-only "$module")
    if echo "$symbols" | grep -E "$managed"; then
        echo "$module: imports the symbols above"
        exit 1
    fi
    case $module in
    */device-cuda.so) ;;
    *)
        if echo "$symbols" | grep -E 'cudaHost|cuMemHost'; then
            echo "$module: a plugin's module takes host memory"
            exit 1
        fi
        ;;
    esac
done
