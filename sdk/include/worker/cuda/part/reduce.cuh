/* worker/cuda/part/reduce.cuh: sums of K slices in shared memory, and how they are added: always by the tree of
 * part/order.cuh. */
#ifndef WORKER_CUDA_PART_REDUCE_CUH
#define WORKER_CUDA_PART_REDUCE_CUH

#include <stdint.h>

#include <worker/cuda/part/order.cuh>

enum {
    WK_ITEM_TILES = 8, /* of an item whose sums wait here */
    WK_CELL = 512      /* bytes of 16 rows x 8 columns of sums */
};

/* A cell: 16 bytes a lane (g, t), that of sums of rows g and g + 8 of columns 2t and 2t + 1, at such a place that no
 * banks collide: of lanes in a row when written, of equal t when read. */
__device__ __forceinline__ uint32_t wk_in_cell(uint32_t g, uint32_t t) { return (t * 8 + (g ^ 2 * t)) * 16; }
/* What the blocks have of N values of a cell, `stride` bytes apart, by the tree. turn: value r is at place r ^ turn. */
template <uint32_t N>
__device__ __forceinline__ void wk_tree_sum(float (&sum)[N], const unsigned char *at, uint32_t turn, uint32_t blocks,
                                            uint32_t stride)
{
    auto v = [&](uint32_t r, uint32_t i) {
        return *reinterpret_cast<const float *>(at + (r ^ turn) * 16 + i * stride);
    };
#pragma unroll
    for (uint32_t r = 0; r < N; r++) sum[r] = v(r, 0);
    if (blocks > 1) {
#pragma unroll
        for (uint32_t r = 0; r < N; r++) sum[r] = __fadd_rn(sum[r], v(r, 1));
    }
    if (blocks > 2) {
#pragma unroll
        for (uint32_t r = 0; r < N; r++) sum[r] = __fadd_rn(sum[r], __fadd_rn(v(r, 2), v(r, 3)));
    }
    if (blocks > 4) {
#pragma unroll
        for (uint32_t r = 0; r < N; r++)
            sum[r] = __fadd_rn(sum[r], __fadd_rn(__fadd_rn(v(r, 4), v(r, 5)), __fadd_rn(v(r, 6), v(r, 7))));
    }
}
/* Sums that wait in shared memory, 16 bytes a lane and column tile. */
template <int NT> __device__ __forceinline__ void wk_keep_sums(unsigned char *at, const float (&c)[NT][4])
{
#pragma unroll
    for (int n = 0; n < NT; n++)
        reinterpret_cast<float4 *>(at + n * WK_ITEM_TILES * WK_CELL)[threadIdx.x & 31u] =
            make_float4(c[n][0], c[n][1], c[n][2], c[n][3]);
}
template <int NT> __device__ __forceinline__ void wk_add_kept_sums(float (&c)[NT][4], const unsigned char *at)
{
#pragma unroll
    for (int n = 0; n < NT; n++) {
        const float4 v = reinterpret_cast<const float4 *>(at + n * WK_ITEM_TILES * WK_CELL)[threadIdx.x & 31u];
        c[n][0] = __fadd_rn(v.x, c[n][0]);
        c[n][1] = __fadd_rn(v.y, c[n][1]);
        c[n][2] = __fadd_rn(v.z, c[n][2]);
        c[n][3] = __fadd_rn(v.w, c[n][3]);
    }
}
/* What a tile's sums of K slices wait in, and how they are added. */
template <int NT>
__device__ __forceinline__ void wk_k_slice_done(float (&sum)[NT][4], const float (&c)[2][NT][4], uint32_t leaf,
                                                uint32_t leaves, unsigned char *two, unsigned char *four)
{
#pragma unroll
    for (int i = 0; i < 4 * NT; i++) {
        const float k_slices = __fadd_rn(c[0][i / 4][i % 4], c[1][i / 4][i % 4]);
        sum[i / 4][i % 4] = leaf & 1u ? __fadd_rn(sum[i / 4][i % 4], k_slices) : k_slices;
    }
    if (leaf % 4 == 1 && leaf + 1 < leaves) wk_keep_sums(two, sum);
    if (leaf % 4 == 3) {
        wk_add_kept_sums(sum, two);
        if (leaf == 3 && leaves == WK_K_SLICES) wk_keep_sums(four, sum);
        if (leaf == 7) wk_add_kept_sums(sum, four);
    }
}

#endif
