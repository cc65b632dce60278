/* worker/cuda/format.cuh: what the device header of one format states, and the pieces such headers share.
 *
 * A tile is 16 rows of k values. It is cut along k into units (64 to 256 values), each a contiguous run of bytes that
 * 32 lanes read with wide loads and turn into operands of the tensor cores: A (weights, 16 x 16) of mma.m16n8k16, B the
 * activations, one column a row of the batch. Which k stands where inside one mma is free as long as A and B agree, so
 * that
 *   group 32: lane (g, t) = (lane / 4, lane % 4) holds k = 8t .. 8t+7 of rows g and g+8 of each 32 values: two mmas;
 *       B is one 16-byte load
 *   group 16: lane (g, t) holds k = 4t .. 4t+3 of rows g and g+8 of each 16 values: one mma; B is an 8-byte load
 *   group 16 of formats of integer products (part/int8.cuh): lane (g, t) holds k = 16t .. 16t+15 of rows g and g+8 of
 * each 64 values: four mmas, 32 values in number b of a unit: 64 (b / 2) + 16t + 8 (b % 2) ..; B is one 16-byte load
 * Either way the lower pair of each four consecutive k is b0, the upper b1.
 *
 * A quant costs one instruction a pair: its bits are masked into the mantissa of an f16 constant, which makes q + bias
 * exactly. Products take weights that are scaled f16 (part/weights.cuh); a format that says no more than is below gets
 * them by one subtraction and one product or fma a pair, and may have a shorter way of its own.
 *
 * A format is a struct with these members, all static:
 *
 *   uint32_t type, block, block_bytes;   of the file
 *   uint32_t unit;                       values of k in a unit, a multiple of 32
 *   uint32_t super;                      units that belong together (scales of both in the first): 1 or 2
 *   uint32_t group;                      32 or 16: values that share a scale
 *   uint32_t slot;                       most bytes of a unit, a multiple of 16
 *   float bias0, bias1;                  fragments hold q + bias0 for k % 4 in {0,1}, q + bias1 for {2,3}; q: as in
 *                                        value() below
 *   uint32_t parts;                      1; more (exact): the weight is the sum of parts fragments, each times
 *                                        part_scale(p) (a constant, power of two)
 *   uint32_t mins;                       1: min() is to be subtracted; 0: there is none
 *   uint64_t offset(u)                   byte of unit u in the tile, a multiple of 16; u may be the number of units
 *   uint64_t tile_bytes(k)               a multiple of 16, at most 2^32 - 1. The last unit may be cut short: bytes
 *                                        past the tile's end are read as 0. The next tile begins wk_tile_stride bytes
 *                                        on
 *   struct scales;
 *   void load(scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)
 *                                        registers of a lane; called for each unit of a super-unit in order: s carries
 *                                        over from one to the next. `unit` is 16-byte aligned, in shared or global
 *                                        memory, and whole
 *   struct quants;
 *   void load(quants &q, const unsigned char *unit, uint32_t u, uint32_t lane)
 *   void fragments(const quants &q, uint32_t b, uint32_t a[parts][2][4])
 *                                        32 values: A operands of k 8t..8t+3 and 8t+4..8t+7 (group 32) or of the two
 *                                        16s
 *   float2 scale(const scales &s, uint32_t i)
 *                                        group i of the unit: of rows g (.x) and g+8 (.y); finite for units cut short,
 *                                        too
 *   float2 min(const scales &s, uint32_t u, uint32_t i)
 *                                        if mins: what value() subtracts in group i of unit u
 *   uint32_t pack(const struct wk_tile_rows &r, uint32_t u, uint32_t word)
 *                                        word (4 bytes) of unit u from the file's rows
 *   uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t block, uint32_t half)
 *                                        2 bytes of the file's block back
 *
 * and, if it likes, these:
 *
 *   float unscale;
 *   template <bool FAR> void halves(const quants &q, const scales &s, uint32_t u, uint32_t b, uint32_t a[1][2][4])
 *                                        products' weights, W / unscale as part/weights.cuh wants them, of 32 values:
 * number b of a unit at place u of its super-unit. By whole warps: lanes may ask each other scales.far not 0, the same
 * in all lanes, once load() has seen that halves<false> would be out of range here and halves<true> has to do it bool
 * exact                           values of a wider range than f16's: sums of 32 are multiplied by scale() in F32
 * (group 32, no minima, no bias) float unscale; float2 sum_scale(s, i) exact: what products multiply them by instead,
 * scale() / unscale
 *
 * so that W[r][k] = value = scale * q - min, each operation rounded (a scale is exact but for the sign of a
 * zero), which is what the CPU side dequantizes to. load(), scale() and min() may be called by whole warps alone. */
#ifndef WORKER_CUDA_FORMAT_CUH
#define WORKER_CUDA_FORMAT_CUH

#include <cuda_fp16.h>
#include <stdint.h>

/* Bytes from tile to tile: whole lines of 128. A bulk copy that begins inside a line asks for every line twice; where
 * memory is the limit that costs up to a fifth. */
template <class F> __host__ __device__ constexpr uint64_t wk_tile_stride(uint32_t k)
{
    return (F::tile_bytes(k) + 127) & ~(uint64_t)127;
}

/* The 16 rows of a tile as in the file; what lies outside the matrix reads as 0. */
struct wk_tile_rows {
    const unsigned char *rows; /* of the tile */
    uint64_t row_bytes;
    uint32_t n_rows, k; /* n_rows: of this tile, at most 16 */
    /* Byte i of block b of row r, F its format. */
    template <class F> __device__ __forceinline__ uint32_t byte(uint32_t r, uint32_t b, uint32_t i) const
    {
        return r < n_rows && b < k / F::block ? rows[r * row_bytes + (uint64_t)b * F::block_bytes + i] : 0u;
    }
    template <class F> __device__ __forceinline__ uint32_t half(uint32_t r, uint32_t b, uint32_t i) const
    {
        return byte<F>(r, b, i) | byte<F>(r, b, i + 1) << 8;
    }
};

/* (a & mask) | c in one instruction; c is kept in a register, or the compiler makes two of it. */
__device__ __forceinline__ uint32_t wk_and_or(uint32_t a, uint32_t mask, uint32_t c)
{
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(mask), "r"(c));
    return d;
}

/* ---- pairs of f16 in a word ---------------------------------------------------------------------------- */
__device__ __forceinline__ uint32_t wk_h2_add(uint32_t a, uint32_t b)
{
    uint32_t d;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
__device__ __forceinline__ uint32_t wk_h2_mul(uint32_t a, uint32_t b)
{
    uint32_t d;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
__device__ __forceinline__ uint32_t wk_h2_fma(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
__device__ __forceinline__ uint32_t wk_h2_round(float2 x) /* .x in the lower half */
{
    uint32_t d;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(x.y), "f"(x.x));
    return d;
}
/* Half h of a pair, twice. */
__device__ __forceinline__ uint32_t wk_h2_both(uint32_t x, uint32_t h)
{
    uint32_t d; /* so that it becomes part of the instruction that reads it */
    if (h)
        asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {h, h}; }" : "=r"(d) : "r"(x));
    else
        asm("{ .reg .b16 l, h; mov.b32 {l, h}, %1; mov.b32 %0, {l, l}; }" : "=r"(d) : "r"(x));
    return d;
}
__device__ __forceinline__ uint32_t wk_h2_twice(uint32_t half) { return half | half << 16; }
/* Does any lane of the warp have a half whose magnitude is at least the half `limit`, below infinity's? */
__device__ __forceinline__ uint32_t wk_h2_any(uint32_t x, uint32_t limit)
{
    return (uint32_t)__any_sync(0xffffffffu, (((x & 0x7fff7fffu) + wk_h2_twice(0x8000u - limit)) & 0x80008000u) != 0);
}
/* Fields of bits as subnormals are q 2^(bit - 24). Where a scale that makes up for that would be out of range, these
 * are first made 2^15 times larger, and the scale is 2^15 times smaller. */
__device__ __forceinline__ void wk_h2_lift(uint32_t a[2][4])
{
#pragma unroll
    for (uint32_t i = 0; i < 8; i++) a[i / 4][i % 4] = wk_h2_mul(a[i / 4][i % 4], 0x78007800u /* 2^15 */);
}

/* A of 32 values of a format with groups of 32: a lane's pairs in their order, of row g and of row g + 8. */
__device__ __forceinline__ void wk_rows_fragments(const uint32_t g[4], const uint32_t g8[4], uint32_t a[2][4])
{
#pragma unroll
    for (int i = 0; i < 8; i++) a[i / 4][i % 4] = (i % 2 ? g8 : g)[i / 4 * 2 + i % 4 / 2];
}

__device__ __forceinline__ float2 wk_half2_float(uint32_t w)
{
    const half2 h = *reinterpret_cast<const half2 *>(&w);
    return __half22float2(h);
}

/* ---- fields of 4 bits: 8 values of k, one row, a word
 * ----------------------------------------------------------------- Value i at bit 4 (i / 2) + 16 (i % 2), the word
 * then turned left by 2: pairs lie at bits 2..5 and 6..9 of each half, as they are and after one turn by 8. */
enum { WK_NIBBLE_BIAS0 = 256, WK_NIBBLE_BIAS1 = 16 };
__device__ __forceinline__ void wk_nibbles(uint32_t w, uint32_t o[4], uint32_t c0, uint32_t c1)
{
    const uint32_t v = __funnelshift_r(w, w, 8);
    o[0] = wk_and_or(w, 0x003c003cu, c0);
    o[1] = wk_and_or(w, 0x03c003c0u, c1);
    o[2] = wk_and_or(v, 0x003c003cu, c0);
    o[3] = wk_and_or(v, 0x03c003c0u, c1);
}
/* A of 32 values from the words of rows g and g + 8; halves: q 2^-18 times d 2^14 and q 2^-22 times 16 times that, plus
 * `add`: of formats with a scale d of f16 for 32 values and unscale 16. */
__device__ __forceinline__ void wk_nibbles_fragments(
    uint2 q, uint32_t a[1][2][4], uint32_t c0 = 0x5c005c00u,
    uint32_t c1 = 0x4c004c00u) /* 0, 0: as subnormals, q 2^-22 and q 2^-18 */
{
    uint32_t x[4], y[4];
    wk_nibbles(q.x, x, c0, c1);
    wk_nibbles(q.y, y, c0, c1);
    wk_rows_fragments(x, y, a[0]);
}
template <bool FAR>
__device__ __forceinline__ void wk_nibbles_halves(uint2 q, uint32_t d, uint32_t add, uint32_t a[1][2][4])
{
    wk_nibbles_fragments(q, a, 0, 0);
    if constexpr (FAR) wk_h2_lift(a[0]);
    const uint32_t scale = wk_h2_mul(d, FAR ? 0x38003800u /* 2^-1 */ : 0x74007400u /* 2^14 */),
                   more = wk_h2_mul(scale, 0x4c004c00u /* 16 */);
#pragma unroll
    for (uint32_t i = 0; i < 8; i++)
        a[0][i / 4][i % 4] =
            wk_h2_fma(a[0][i / 4][i % 4], wk_h2_both(i % 4 < 2 ? more : scale, i % 2), wk_h2_both(add, i % 2));
}
__host__ __device__ __forceinline__ uint32_t wk_nibble_at(uint32_t i)
{
    return (2 + 4 * (i / 2) + 16 * (i % 2)) & 31u;
} /* may wrap: use the two below */
__device__ __forceinline__ uint32_t wk_nibble_put(uint32_t q, uint32_t i)
{
    return __funnelshift_l(q, q, wk_nibble_at(i));
}
__device__ __forceinline__ uint32_t wk_nibble_get(uint32_t w, uint32_t i)
{
    return __funnelshift_r(w, w, wk_nibble_at(i)) & 15u;
}

/* A format whose units are too large for a lane's registers: its quants are read a piece at a time. Derive from it, and
 * say `using wk_read_in_pieces::load;` beside the loads of your own. */
struct wk_read_in_pieces {
    struct quants {
        const unsigned char *unit;
        uint32_t lane;
    };
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        q = { unit, lane };
    }
};

/* ---- fields of 5 bits: 32 values as 16 pairs in 5 words
 * ------------------------------------------------------------------ Word i holds pairs 3i, 3i+1, 3i+2 at bits 5, 10, 0
 * of each half; pair 15 is made of bit 15 of each: its bit i from word i. */
enum { WK_FIVES_BIAS = 32 };
__device__ __forceinline__ void wk_fives(const uint32_t w[5], uint32_t o[16],
                                         uint32_t c = 0x50005000u) /* c 0: as subnormals */
{
    const uint32_t m = 0x03e003e0u;
#pragma unroll
    for (int i = 0; i < 5; i++) {
        o[3 * i] = wk_and_or(w[i], m, c);
        o[3 * i + 1] = wk_and_or(w[i] >> 5, m, c);
        o[3 * i + 2] = wk_and_or(w[i] << 5, m, c);
    }
    uint32_t x = wk_and_or(w[0] >> 10, 0x00200020u, c);
    x = wk_and_or(w[1] >> 9, 0x00400040u, x);
    x = wk_and_or(w[2] >> 8, 0x00800080u, x);
    x = wk_and_or(w[3] >> 7, 0x01000100u, x);
    o[15] = wk_and_or(w[4] >> 6, 0x02000200u, x);
}
/* The same as subnormals, those of bits 0 .. 4 where they are: q 2^-24 for pairs of which wk_five_low says so, q 2^-19
 * for the others. */
__device__ __forceinline__ void wk_fives_low(const uint32_t w[5], uint32_t o[16])
{
    const uint32_t m = 0x03e003e0u;
#pragma unroll
    for (int i = 0; i < 5; i++) {
        o[3 * i] = w[i] & m;
        o[3 * i + 1] = w[i] >> 5 & m;
        o[3 * i + 2] = w[i] & 0x001f001fu;
    }
    uint32_t x = w[0] >> 10 & 0x00200020u;
    x = wk_and_or(w[1] >> 9, 0x00400040u, x);
    x = wk_and_or(w[2] >> 8, 0x00800080u, x);
    x = wk_and_or(w[3] >> 7, 0x01000100u, x);
    o[15] = wk_and_or(w[4] >> 6, 0x02000200u, x);
}
__host__ __device__ __forceinline__ constexpr bool wk_five_low(uint32_t p) { return p < 15 && p % 3 == 2; }
/* Bit `bit` of the lower (upper 0) or upper value of pair p: its word, and its bit there. */
__host__ __device__ __forceinline__ void wk_five_at(uint32_t p, uint32_t upper, uint32_t bit, uint32_t *word,
                                                    uint32_t *at)
{
    *word = p < 15 ? p / 3 : bit;
    *at = (p == 15 ? 15 : (p % 3 == 0 ? 5 : p % 3 == 1 ? 10 : 0) + bit) + 16 * upper;
}

/* ---- fields of 6 bits: 16 values as 8 pairs in 3 words
 * ------------------------------------------------------------------- Word i holds pairs 2i, 2i+1 at bits 4, 10 of each
 * half; bits 0..3 of word 0 and 1: upper 4 bits of pair 6 and 7; bits 0,1 and 2,3 of word 2: their lower 2. */
enum { WK_SIXES_BIAS = 64 };
__device__ __forceinline__ void wk_sixes(const uint32_t w[3], uint32_t o[8],
                                         uint32_t c = 0x54005400u) /* c 0: as subnormals */
{
    const uint32_t m = 0x03f003f0u;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        o[2 * i] = wk_and_or(w[i], m, c);
        o[2 * i + 1] = wk_and_or(w[i] >> 6, m, c);
    }
    o[6] = wk_and_or(w[2] << 4, 0x00300030u, wk_and_or(w[0] << 6, 0x03c003c0u, c));
    o[7] = wk_and_or(w[2] << 2, 0x00300030u, wk_and_or(w[1] << 6, 0x03c003c0u, c));
}
__host__ __device__ __forceinline__ void wk_six_at(uint32_t p, uint32_t upper, uint32_t bit, uint32_t *word,
                                                   uint32_t *at)
{
    if (p < 6) {
        *word = p / 2;
        *at = (p % 2 ? 10 : 4) + bit + 16 * upper;
    } else {
        *word = bit < 2 ? 2 : p - 6;
        *at = (bit < 2 ? 2 * (p - 6) + bit : bit - 2) + 16 * upper;
    }
}

#endif
