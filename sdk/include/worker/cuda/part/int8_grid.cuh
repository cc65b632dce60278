/* worker/cuda/part/int8_grid.cuh: integer products of formats of grids: blocks of 256 values, a point of the grid for
 * four or eight of them, an odd integer for each 32 or 16 and one factor for all.
 *
 * Activations and order are those of part/int8.cuh. A level is a byte, but times its odd integer it is none. So a sum
 * of 32 values is made of bytes and then multiplied, as an integer, and the block's sum is exact all the same. Of one
 * row, which needs two of the eight columns of B, h and l, the columns 2 i and 2 i + 1 have the activations of 32
 * number i of a unit, and zeros for the others: lane (g, t) finds the sums of 32 number t alone, multiplies just these,
 * and knows its integers without asking.
 *
 * Where 16 values share an integer, the columns are those of the sixteens of two 32s of a unit, and there are two sets
 * of sums: in set i lane (g, t) has sixteen t % 2 of 32 number 2 i + t / 2.
 *
 * Levels come from a table in shared memory, where there is room for it: 256 lines of 256 bytes, so that an index byte
 * becomes an address by one permutation. A line has as many copies of its points as it holds, each for some of the
 * lanes: else they would meet in the same banks. Signs cost a mask of bytes and one operation of a word:
 *     sum of s v x = sum of v x - 2 sum of (v where s is negative) x.
 * Several rows make signed bytes once, and find levels in the grid itself.
 *
 * A format of this kind has unit 128, super 2, block 256, group 32, derives from wk_int8_grid and says, beside what
 * format.cuh and part/int8.cuh ask (int8_unscale):
 *
 *   uint32_t int8_ds(const unsigned char *super_unit, uint32_t lane)
 *                                        factors of rows g and g + 8, halves
 *   bool int8_sixteens                   16 values share an integer
 *   uint2 int8_odd(const quants &q, const unsigned char *unit, uint32_t u, uint32_t set, uint32_t lane)
 *                                        what the lane's sums of signed bytes are multiplied by: of row g, of g + 8
 *   void int8_signed(const quants &q, uint32_t b, uint32_t a[4])
 *                                        A of m16n8k32 of 32 number b, signed bytes
 *   uint4 int8_line(uint32_t line, uint32_t part)
 *                                        16 bytes of a line of the table
 *   template <bool TABLE> void int8_levels(const quants &q, const unsigned char *table, uint32_t lane, uint32_t b,
 *                                          uint32_t a[4], uint32_t less[4])
 *                                        two A, unsigned bytes, with levels from the table or from the grid, and
 *   void int8_factors(const quants &q, const unsigned char *unit, uint32_t u, uint32_t set, uint32_t lane,
 *                     uint2 *first, uint2 *second)
 *                                        what the sums of both are multiplied by, whose sum is that of int8_signed
 * times int8_odd
 */
#ifndef WORKER_CUDA_PART_INT8_GRID_CUH
#define WORKER_CUDA_PART_INT8_GRID_CUH

#include <type_traits>

#include <worker/cuda/part/int8.cuh>

enum { WK_INT8_TABLE = 256 * 256 };

struct wk_int8_grid {
    static constexpr bool int8_mins = false, int8_sixteens = false, int8_in_order = true;
    /* A lane's eight values of two 32s side by side. */
    static __device__ __forceinline__ uint32_t int8_at(uint32_t four)
    {
        return four / 16 * 64 + four % 8 / 2 * 16 + four % 16 / 8 * 8 + four % 2 * 4;
    }
};
template <class F> constexpr bool wk_is_int8_grid() { return std::is_base_of<wk_int8_grid, F>::value; }
template <class F> constexpr bool wk_is_sixteens()
{
    if constexpr (wk_is_int8_grid<F>())
        return F::int8_sixteens;
    else
        return false;
}

/* By 256 threads. */
template <class F> __device__ __forceinline__ void wk_int8_grid_fill(unsigned char *table, uint32_t thread)
{
#pragma unroll 4
    for (uint32_t i = thread; i < WK_INT8_TABLE / 16; i += 256)
        reinterpret_cast<uint4 *>(table)[i] = F::int8_line(i / 16, i % 16);
}

/* What a block's exact sums, of h and of l, are as F32. */
__device__ __forceinline__ float wk_int8_grid_value(int32_t h, int32_t l, float d)
{
    return __fmul_rn(__fmaf_rn((float)h, (float)WK_INT8_LOW, (float)l), d);
}

/* One for the 32s of a unit whose activations a lane has in its column, else zero. As factors, and not known to the
 * compiler: selections would take turns with masks and permutations, which products do not. */
template <bool SIXTEENS> struct wk_int8_grid_columns {
    uint32_t own[4];
    __device__ __forceinline__ explicit wk_int8_grid_columns(uint32_t lane)
    {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            own[i] = SIXTEENS ? lane / 16 == i % 2 && lane / 8 % 2 == lane / 2 % 2 : lane / 8 == i;
            asm("" : "+r"(own[i]));
        }
    }
    /* From a block's bytes to those of a lane, of a set. */
    static __device__ __forceinline__ uint32_t at(uint32_t set, uint32_t lane)
    {
        return (SIXTEENS ? set * 128 + lane / 16 * 8 : lane / 16 * 128 + lane / 8 % 2 * 8) + lane / 4 % 2 * 64 +
               lane % 4 * 16;
    }
};

/* A unit of a super-unit, and what a lane has of it. */
template <class F>
__device__ __forceinline__ const unsigned char *wk_int8_grid_unit(typename F::quants &q, const unsigned char *at,
                                                                  uint32_t u, uint32_t lane)
{
    F::load(q, at + F::offset(u), u, lane);
    return at + F::offset(u);
}

/* A tile's block times that of a single row; x: its bytes, pieces side by side. TABLE: levels are in `table`. */
template <class F, bool TABLE>
__device__ __forceinline__ void wk_int8_grid_one(float y[2], const unsigned char *at, const unsigned char *table,
                                                 const unsigned char *x, const wk_int8_more *more,
                                                 const wk_int8_grid_columns<F::int8_sixteens> &columns, uint32_t lane)
{
    constexpr uint32_t sets = F::int8_sixteens ? 2 : 1;
    const float2 d = wk_half2_float(F::int8_ds(at, lane));
    int32_t sum[4] = {};
#pragma unroll
    for (uint32_t u = 0; u < 2; u++) {
        typename F::quants q;
        const unsigned char *const unit = wk_int8_grid_unit<F>(q, at, u, lane);
#pragma unroll
        for (uint32_t set = 0; set < sets; set++) {
            const uint2 b = *reinterpret_cast<const uint2 *>(x + u * 256 + columns.at(set, lane));
            int32_t first[4] = {}, second[4] = {};
#pragma unroll
            for (uint32_t j = set * 4 / sets; j < (set + 1) * 4 / sets; j++) {
                const uint32_t b0 = b.x * columns.own[j], b1 = b.y * columns.own[j];
                uint32_t a[4], less[4];
                F::template int8_levels<TABLE>(q, table, lane, j, a, less);
                wk_mma_bytes(first, a, b0, b1);
                wk_mma_bytes(second, less, b0, b1);
            }
            uint2 f, s;
            F::int8_factors(q, unit, u, set, lane, &f, &s);
#pragma unroll
            for (uint32_t n = 0; n < 4; n++) {
                sum[n] += first[n] * (int32_t)(n < 2 ? f.x : f.y);
                sum[n] += second[n] * (int32_t)(n < 2 ? s.x : s.y);
            }
        }
    }
#pragma unroll
    for (uint32_t n = 0; n < 4; n++) {
        sum[n] += __shfl_xor_sync(0xffffffffu, sum[n], 1);
        sum[n] += __shfl_xor_sync(0xffffffffu, sum[n], 2);
    }
    y[0] = __fmaf_rn(wk_int8_grid_value(sum[0], sum[1], d.x), more->factor, y[0]);
    y[1] = __fmaf_rn(wk_int8_grid_value(sum[2], sum[3], d.y), more->factor, y[1]);
}

/* A block's signed bytes of a tile, and what their sums are multiplied by: of row g, above it of row g + 8; of 32s, or
 * of sixteens. */
template <class F> struct wk_int8_grid_bytes {
    static constexpr uint32_t halves = F::int8_sixteens ? 2 : 1;
    uint32_t a[8][4], odd[8][halves];
    float2 d;
    __device__ __forceinline__ wk_int8_grid_bytes(const unsigned char *at, uint32_t lane)
        : d(wk_half2_float(F::int8_ds(at, lane)))
    {
#pragma unroll
        for (uint32_t u = 0; u < 2; u++) {
            typename F::quants q;
            const unsigned char *const unit = wk_int8_grid_unit<F>(q, at, u, lane);
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) {
                F::int8_signed(q, j, a[4 * u + j]);
                const uint2 own = F::int8_odd(q, unit, u, halves == 2 ? j / 2 : 0, lane);
#pragma unroll
                for (uint32_t h = 0; h < halves; h++)
                    odd[4 * u + j][h] =
                        __shfl_sync(0xffffffffu, own.x | own.y << 16, (lane & 28u) | (halves == 2 ? j % 2 * 2 + h : j));
            }
        }
    }
    /* y += of the row whose record's bytes the lane reads from x on. */
    __device__ __forceinline__ void add(float y[2], const unsigned char *x, float factor, uint32_t lane) const
    {
        const uint32_t low = lane / 2 % 2 == 0;
        int32_t sum[4] = {};
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) {
            const uint4 b = *reinterpret_cast<const uint4 *>(x + i / 2 * (WK_INT8_RECORD_ROWS * 128) + lane * 16);
            const uint32_t b0 = i % 2 ? b.z : b.x, b1 = i % 2 ? b.w : b.y;
#pragma unroll
            for (uint32_t h = 0; h < halves; h++) {
                const uint32_t mine = halves == 1 ? 1 : h ? 1 - low : low;
                int32_t part[4] = {};
                wk_mma_signed(part, a[i], b0 * mine, b1 * mine);
#pragma unroll
                for (uint32_t n = 0; n < 4; n++)
                    sum[n] += part[n] * (int32_t)(n < 2 ? odd[i][h] & 0xffffu : odd[i][h] >> 16);
            }
        }
        y[0] = __fmaf_rn(wk_int8_grid_value(sum[0], sum[1], d.x), factor, y[0]);
        y[1] = __fmaf_rn(wk_int8_grid_value(sum[2], sum[3], d.y), factor, y[1]);
    }
};

/* The same times the first `records` of NT, weights made once: y[c] += , of row t of record c. */
template <class F, int NT>
__device__ __forceinline__ void wk_int8_grid_several(float y[NT][2], const unsigned char *at,
                                                     const unsigned char *records_at, uint32_t records, uint32_t lane)
{
    const wk_int8_grid_bytes<F> bytes(at, lane);
#pragma unroll
    for (uint32_t c = 0; c < NT; c++) {
        if (c && c >= records) break;
        const unsigned char *const x = records_at + c * WK_INT8_RECORD;
        bytes.add(y[c], x, reinterpret_cast<const wk_int8_more *>(x + WK_INT8_MORE_AT)[lane % 4].factor, lane);
    }
}

#endif
