/* worker/cuda/part/panels.cuh: activations as the large fused products read them ("panels"), and how the items of a
 * mixture of experts are laid out in them.
 *
 * f16 x[ceil(k / 64)][places] of rows of 128 bytes: panel i has values 64 i .. 64 i + 63 of every place, so the places
 * of a chunk are one run of bytes, and one bulk copy brings them. In its row of 128 bytes a value lies where the tensor
 * cores look for it (128-byte swizzle by the place), k in the order of the format's fragments (format.cuh: group 32 or
 * 16), which is why panels are made for one such order. Values past k are 0.
 *
 * Places: the items of the used experts one after the other, each expert's first at a multiple of 8; what lies between
 * is never looked at. How many there are is wk_cuda_panel_places. An expert's items are cut into chunks of at most
 * WK_CHUNK places, as equal as multiples of 16 allow. */
#ifndef WORKER_CUDA_PART_PANELS_CUH
#define WORKER_CUDA_PART_PANELS_CUH

#include <worker/quant_cuda.h>

enum { WK_PANEL_K = 64, WK_PANEL_ROW = 128, WK_CHUNK = 128 };

/* Byte of value k in the row of place p; pairs of neighbouring k, the first even, stay together. */
__host__ __device__ __forceinline__ uint32_t wk_panel_at(uint32_t group, uint32_t p, uint32_t k)
{
    const uint32_t word = group == 32 ? k % 8 / 2 * 4 + k % 32 / 8
                                      : k % 32 / 16 * 8 + k % 4 / 2 * 4 + k % 16 / 4; /* of 16: those of 32 values */
    const uint32_t chunk = k % 64 / 32 * 4 + word / 4;
    return (chunk ^ (p & 7u)) * 16 + word % 4 * 4 + k % 2 * 2;
}

/* Acts by runs (quant_cuda.h): where value k of row r lies, in halves; k32: of a row, a multiple of 32. */
__host__ __device__ __forceinline__ uint64_t wk_run_at(uint32_t k32, uint32_t r, uint32_t k)
{
    return ((uint64_t)(r / 32 * (k32 / 32) + k / 32) * 32 + r % 32) * 32 + k % 32;
}

__host__ __device__ __forceinline__ uint32_t wk_chunks(uint32_t items) { return (items + WK_CHUNK - 1) / WK_CHUNK; }
/* Places of a chunk of an expert with `items` items, a multiple of 16. */
__host__ __device__ __forceinline__ uint32_t wk_chunk_places(uint32_t items, uint32_t chunks)
{
    return ((items + chunks - 1) / chunks + 15) & ~15u;
}

/* Per used expert, and behind the last: first item, first place, first chunk. */
struct wk_group_tables {
    uint32_t item[WK_CUDA_LARGE_EXPERTS + 1], place[WK_CUDA_LARGE_EXPERTS + 1], chunk[WK_CUDA_LARGE_EXPERTS + 1];
};

/* By one warp; first: [experts + 1], of the groups. */
__device__ __forceinline__ void wk_make_group_tables(wk_group_tables &t, const uint32_t *first, uint32_t experts)
{
    const uint32_t lane = threadIdx.x & 31u;
    uint32_t place = 0, chunk = 0;
    for (uint32_t e0 = 0; e0 < experts; e0 += 32) {
        const uint32_t e = e0 + lane, in = e < experts;
        const uint32_t a = in ? __ldcg(first + e) : 0, n = in ? __ldcg(first + e + 1) - a : 0;
        uint32_t places = (n + 7) & ~7u, chunks = wk_chunks(n);
        for (uint32_t d = 1; d < 32; d <<= 1) { /* sums of this lane's and those before */
            const uint32_t p = __shfl_up_sync(0xffffffffu, places, d), c = __shfl_up_sync(0xffffffffu, chunks, d);
            if (lane >= d) places += p, chunks += c;
        }
        if (in) {
            if (e == 0) t.item[0] = a, t.place[0] = 0, t.chunk[0] = 0;
            t.item[e + 1] = a + n;
            t.place[e + 1] = place + places;
            t.chunk[e + 1] = chunk + chunks;
        }
        place += __shfl_sync(0xffffffffu, places, 31);
        chunk += __shfl_sync(0xffffffffu, chunks, 31);
    }
}
/* Which group: table[e] <= i < table[e + 1]; i below the last entry. */
__device__ __forceinline__ uint32_t wk_group_of(const uint32_t *table, uint32_t experts, uint32_t i)
{
    uint32_t low = 0, high = experts;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (table[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

#endif
