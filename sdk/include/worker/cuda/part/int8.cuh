/* worker/cuda/part/int8.cuh: integer products, of formats whose blocks of 256 values are small integers with
 * an integer scale for each 16 and one factor for all.
 *
 * Few bits a weight leave few instructions a weight: to make an f16 of each pair costs more than memory takes to bring
 * it. Here four weights become four unsigned bytes, quant times scale, by a mask and one multiplication of a word, and
 * the tensor cores add a block's 256 of them exactly; what remains to be done in F32 is once a block.
 *
 * Activations are integers, too, of 16 bits, with a factor for each 256 values. From the act's f16 values x, m the
 * largest |x|:
 *     inv = f16(127 / m), at most 65504
 *     h = rint(x inv)     l = rint(f16(x inv - h) 254)     x = (254 h + l) / (254 inv),
 * h and l signed bytes, so that it is off by no more than m / 64000, which of the length of a row is less than
 * the rounding of an f16 is. They are two columns of B: four rows of activations are a tile of eight. A NaN makes the
 * block's factor a NaN.
 *
 * Order. K slice s of 8 has the blocks s, s + 8, ... of a row; y of a block is F::int8_value of exact integer sums,
 * each operation rounded, and the K slice adds y times the activations' factor by fma, one block after the other, from
 * 0 on. K slices are added as by part/weights.cuh. So no bit depends on what an integer sum was cut into: 1 and 64 rows
 * have the same.
 *
 * Formats whose integers are too large to be multiplied into bytes: part/int8_grid.cuh.
 *
 * A format of this kind (format.cuh) has unit 256, super 1, block 256 and group 16. Lane (g, t) holds, of rows g and g
 * + 8, groups t, 4 + t, 8 + t and 12 + t, all of their values: pieces 0 to 3. Fours of a group are in the order 0, 2,
 * 1, 3, as a word of B has them. Formats without scales of groups may say with int8_at that lanes hold other fours.
 * Beside what format.cuh asks it says:
 *
 *   float int8_unscale                  a constant: what all sums are multiplied by in the end. Formats that have it
 *                                        are multiplied so
 *   bool int8_mins                      minima are subtracted
 *   struct int8_block;  void load(int8_block &s, const unsigned char *unit, uint32_t lane)
 *   void int8_bytes(const int8_block &s, uint32_t i, uint32_t a[2][4])
 *                                        piece i: A of two m16n8k32, unsigned bytes: of the groups' first eight
 *                                        values, of the others
 *   void int8_min(const int8_block &s, uint32_t a[4])
 *                                        int8_mins: A of one m16n8k32: the lane's four minima of row g, of row g + 8,
 *                                        sixteen times those: a group's sum is its sixteenth and what is left
 *   float int8_value(const int8_block &s, uint32_t h, int32_t sum, int32_t more)
 *                                        of row g (h 0) or g + 8. sum: of bytes times activations; more: int8_mins:
 *                                        of minima times activations; else the sum of the activations
 *   uint32_t int8_at(uint32_t four)      if it likes, without int8_mins, the same for all formats of a family: where
 *                                        four number `four` of a block's 64 stands: 64 piece + 16 t + 4 place; with it
 *   bool int8_in_order                   the bytes of a four are in its order */
#ifndef WORKER_CUDA_PART_INT8_CUH
#define WORKER_CUDA_PART_INT8_CUH

#include <worker/cuda/format.cuh>
#include <worker/cuda/part/act.cuh>
#include <worker/cuda/part/mma.cuh>

/* Byte of value v of four in a word. */
__host__ __device__ __forceinline__ constexpr uint32_t wk_int8_byte(uint32_t v) { return (v & 1u) * 2 + (v >> 1 & 1u); }

enum {
    WK_INT8_BLOCK = 256,
    WK_INT8_BYTES = 2 * WK_INT8_BLOCK, /* of a row's block: for each piece 64 bytes h, 64 bytes l */
    WK_INT8_SUMS = 64, /* of its groups' sums: of h, then of l, for each t of its groups t, 4 + t, .. what is left of a
                           sixteenth, then the sixteenth */
    WK_INT8_RECORD_ROWS = 4,                               /* rows of activations that are eight columns of B */
    WK_INT8_MORE_AT = WK_INT8_RECORD_ROWS * WK_INT8_BYTES, /* a record, of a tile's block: for each piece 128 bytes of
                                                          each row, `more` of each row, sums of each row */
    WK_INT8_SUMS_AT = WK_INT8_MORE_AT + WK_INT8_RECORD_ROWS * 8,
    WK_INT8_RECORD = WK_INT8_SUMS_AT + WK_INT8_RECORD_ROWS * WK_INT8_SUMS,
    WK_INT8_LOW = 254
};
struct wk_int8_more {
    float factor;
    int32_t sum; /* of 254 h + l */
};

/* h of four values as f16 pairs and what is left of them; a: the first two, b: the others; h, l: four bytes, in the
 * order 0, 2, 1, 3 or, with IN_ORDER, as they are. 1536 is where an f16's last bit is 1. */
template <bool IN_ORDER>
__device__ __forceinline__ void wk_int8_four(uint32_t a, uint32_t b, uint32_t inv, uint32_t *h, uint32_t *l)
{
    constexpr uint32_t order = IN_ORDER ? 0x6420 : 0x6240;
    const uint32_t in = 0x66006600u /* 1536 */, out = 0xe600e600u, low = 0x5bf05bf0u /* 254 */;
    const uint32_t ha = wk_h2_fma(a, inv, in), hb = wk_h2_fma(b, inv, in);
    const uint32_t ra = wk_h2_fma(a, inv, wk_h2_add(ha, out) ^ 0x80008000u),
                   rb = wk_h2_fma(b, inv, wk_h2_add(hb, out) ^ 0x80008000u);
    *h = __byte_perm(ha, hb, order);
    *l = __byte_perm(wk_h2_fma(ra, low, in), wk_h2_fma(rb, low, in), order);
}

/* Where a format has the fours of a block: one after the other, unless it says something else. */
template <class F, class = void> struct wk_int8_order {
    static constexpr bool own = false, in_order = false;
    static __device__ __forceinline__ uint32_t at(uint32_t four) { return 4 * four; }
};
template <class F> struct wk_int8_order<F, decltype(static_cast<void>(F::int8_at(0u)))> {
    static_assert(!F::int8_mins, "sums of groups are of sixteen neighbours");
    static constexpr bool own = true, in_order = F::int8_in_order;
    static __device__ __forceinline__ uint32_t at(uint32_t four) { return F::int8_at(four); }
};

/* A row's block of 256 f16 values becomes bytes, by a whole warp, of which a lane has eight values v, in the order of
 * format F. Pieces are `apart` bytes from each other; the bytes may go where the values lay. */
template <class F>
__device__ __forceinline__ void wk_int8_block(const uint4 &v, unsigned char *to, uint32_t apart, wk_int8_more *more,
                                              unsigned char *sums, uint32_t lane)
{
    const uint32_t sign = 0x7fff7fffu,
                   two = __vmaxu2(__vmaxu2(v.x & sign, v.y & sign), __vmaxu2(v.z & sign, v.w & sign));
    const uint32_t most =
        __reduce_max_sync(0xffffffffu, max(two & 0xffffu, two >> 16)); /* as integers: a NaN is larger than all */
    const __half2 inv2 = wk_act_half2(__fdiv_rn(127.0f, wk_half2_float(most).x), 0.0f);
    const float inv = __low2float(inv2);
    uint2 h, l;
    const uint32_t twice = wk_h2_twice(*reinterpret_cast<const uint32_t *>(&inv2) & 0xffffu);
    wk_int8_four<wk_int8_order<F>::in_order>(v.x, v.y, twice, &h.x, &l.x);
    wk_int8_four<wk_int8_order<F>::in_order>(v.z, v.w, twice, &h.y, &l.y);
    const int32_t ones = 0x01010101;
    int32_t sum_h = __dp4a((int32_t)h.x, ones, __dp4a((int32_t)h.y, ones, 0)),
            sum_l = __dp4a((int32_t)l.x, ones, __dp4a((int32_t)l.y, ones, 0));
    const int32_t sum = __reduce_add_sync(0xffffffffu, WK_INT8_LOW * sum_h + sum_l); /* and all lanes have read */
    sum_h += __shfl_xor_sync(0xffffffffu, sum_h, 1);                                 /* two lanes are a group */
    sum_l += __shfl_xor_sync(0xffffffffu, sum_l, 1);
    if constexpr (wk_int8_order<F>::own) {
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t at = wk_int8_order<F>::at(2 * lane + i);
            uint32_t *const four = reinterpret_cast<uint32_t *>(to + at / 64 * apart + at % 64);
            four[0] = i ? h.y : h.x;
            four[16] = i ? l.y : l.x;
        }
    } else {
        to += lane / 8 * apart + lane % 8 * 8;
        *reinterpret_cast<uint2 *>(to) = h;
        *reinterpret_cast<uint2 *>(to + 64) = l;
    }
    const int32_t group = lane % 2 ? sum_l : sum_h;
    sums += lane % 2 * 32 + lane / 2 % 4 * 8 + lane / 8;
    sums[0] = (unsigned char)(group & 15);
    sums[4] = (unsigned char)(group >> 4);
    if (lane == 0) *more = { __frcp_rn(__fmul_rn((float)WK_INT8_LOW, inv)), sum };
}

/* y[h] += a block's value of row g + 8 h. */
template <class F>
__device__ __forceinline__ void wk_int8_add(float y[2], const typename F::int8_block &s, const int32_t sum[4],
                                            const int32_t less[4], const wk_int8_more &more)
{
#pragma unroll
    for (uint32_t h = 0; h < 2; h++) {
        const int32_t other = F::int8_mins ? WK_INT8_LOW * less[2 * h] + less[2 * h + 1] : more.sum;
        y[h] = __fmaf_rn(F::int8_value(s, h, WK_INT8_LOW * sum[2 * h] + sum[2 * h + 1], other), more.factor, y[h]);
    }
}

/* A tile's block times that of a single row, which all columns of B have; x: its bytes, pieces side by side. */
template <class F>
__device__ __forceinline__ void wk_int8_one(float y[2], const unsigned char *at, const unsigned char *x,
                                            const wk_int8_more *more, const unsigned char *sums, uint32_t lane)
{
    typename F::int8_block s;
    int32_t sum[4] = {}, less[4] = {};
    F::load(s, at, lane);
    if constexpr (F::int8_mins) {
        uint32_t a[4];
        const uint2 b = *reinterpret_cast<const uint2 *>(sums + lane / 4 % 2 * 32 + lane % 4 * 8);
        F::int8_min(s, a);
        wk_mma_bytes(less, a, b.x, b.y);
    }
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) {
        uint32_t a[2][4];
        const uint4 b = *reinterpret_cast<const uint4 *>(x + i * 128 + lane / 4 % 2 * 64 + lane % 4 * 16);
        F::int8_bytes(s, i, a);
        wk_mma_bytes(sum, a[0], b.x, b.y);
        wk_mma_bytes(sum, a[1], b.z, b.w);
    }
    wk_int8_add<F>(y, s, sum, less, *more);
}
/* The same times the first `records` of NT, weights made once: y[c] += , of row t of record c. Two records at a time
 * and two accumulators each, since the products of an accumulator wait for each other. */
template <class F, int NT>
__device__ __forceinline__ void wk_int8_several(float y[NT][2], const unsigned char *at,
                                                const unsigned char *records_at, uint32_t records, uint32_t lane)
{
    constexpr uint32_t together = NT > 1 ? 2 : 1;
    typename F::int8_block s;
    uint32_t a[4][2][4], min[4];
    F::load(s, at, lane);
    if constexpr (F::int8_mins) F::int8_min(s, min);
#pragma unroll
    for (uint32_t i = 0; i < 4; i++) F::int8_bytes(s, i, a[i]);
#pragma unroll
    for (uint32_t first = 0; first < NT; first += together) {
        if (first && first >= records) break;
        const unsigned char *const x = records_at + first * WK_INT8_RECORD;
        int32_t sum[together][2][4] = {}, less[together][4] = {};
        if constexpr (F::int8_mins) {
#pragma unroll
            for (uint32_t c = 0; c < together; c++) {
                const uint2 b = *reinterpret_cast<const uint2 *>(x + c * WK_INT8_RECORD + WK_INT8_SUMS_AT + lane * 8);
                wk_mma_bytes(less[c], min, b.x, b.y);
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
#pragma unroll
            for (uint32_t c = 0; c < together; c++) {
                const uint4 b = *reinterpret_cast<const uint4 *>(x + c * WK_INT8_RECORD +
                                                                 i * (WK_INT8_RECORD_ROWS * 128) + lane * 16);
                wk_mma_bytes(sum[c][0], a[i][0], b.x, b.y);
                wk_mma_bytes(sum[c][1], a[i][1], b.z, b.w);
            }
#pragma unroll
        for (uint32_t c = 0; c < together; c++) {
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) sum[c][0][i] += sum[c][1][i];
            wk_int8_add<F>(y[first + c], s, sum[c][0], less[c],
                           reinterpret_cast<const wk_int8_more *>(x + c * WK_INT8_RECORD + WK_INT8_MORE_AT)[lane % 4]);
        }
    }
}

#endif
