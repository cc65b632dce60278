/* worker/cuda/format.cuh: what the device header of one format states, and the pieces such headers share.
 *
 * A tile is 16 rows of k values. It is cut along k into units (64 or 128 values), each a contiguous run of bytes that 32 lanes read with wide
 * loads and turn into operands of the tensor cores: A (weights, 16 x 16) of mma.m16n8k16, B the activations, one column a row of the batch.
 * Which k stands where inside one mma is free as long as A and B agree, so that
 *   group 32: lane (g, t) = (lane / 4, lane % 4) holds k = 8t .. 8t+7 of rows g and g+8 of each 32 values: two mmas; B is one 16-byte load
 *   group 16: lane (g, t) holds k = 4t .. 4t+3 of rows g and g+8 of each 16 values: one mma; B is an 8-byte load
 * Either way the lower pair of each four consecutive k is b0, the upper b1.
 *
 * A weight costs one instruction a pair: its bits are masked into the mantissa of an f16 constant, which makes q + bias exactly. What the bias adds to a
 * sum is known from the activations alone, so each group's accumulators start at minus that (wk_act sums: pairs of k % 4 in {0,1} and {2,3}). The
 * group's exact sum, in F32, is then multiplied by its scale:   y += scale * sum((q) x);  y -= min * sum(x).
 *
 * A format is a struct with these members, all static:
 *
 *   uint32_t type, block, block_bytes;   of the file
 *   uint32_t unit;                       values of k in a unit, a multiple of 32
 *   uint32_t super;                      units that belong together (scales of both in the first): 1 or 2
 *   uint32_t group;                      32 or 16: values that share a scale
 *   uint32_t slot;                       most bytes of a unit, a multiple of 16
 *   float bias0, bias1;                  fragments hold q + bias0 for k % 4 in {0,1}, q + bias1 for {2,3}; q: as in value() below
 *   uint32_t parts;                      1; more: the weight is the sum of parts fragments, each times part_scale(p) (a constant, power of two)
 *   uint32_t mins;                       0: none; WK_MINS_GROUP: min() of each group; WK_MINS_SUPER + n: n x 8 integers a super-unit, by min_fragment()
 *   uint64_t offset(u)                   byte of unit u in the tile, a multiple of 16; u may be the number of units
 *   uint64_t tile_bytes(k)               a multiple of 16. The last unit may be cut short: bytes past the tile's end are read as 0
 *   struct scales;  void load(scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)    registers of a lane; called for each unit of a super-unit in order:
 *                                        s carries over from one to the next. `unit` is 16-byte aligned, in shared or global memory, and whole
 *   struct quants;  void load(quants &q, const unsigned char *unit, uint32_t u, uint32_t lane)
 *   void fragments(const quants &q, uint32_t b, uint32_t a[parts][2][4])  32 values: A operands of k 8t..8t+3 and 8t+4..8t+7 (group 32) or of the two 16s
 *   float2 scale(const scales &s, uint32_t i)     group i of the unit: of rows g (.x) and g+8 (.y); finite for units cut short, too
 *   float2 min(const scales &s, uint32_t u, uint32_t i)   if mins: what value() subtracts in group i of unit u
 *   void min_fragment(const scales &s, uint32_t j, uint32_t lane, uint32_t a[4])   WK_MINS_SUPER: A (16 x 8) of mma.m16n8k8 tf32: the integers of groups 8j .. 8j+7
 *   float2 min_scale(const scales &s)             WK_MINS_SUPER: min() = min_scale * integer; both are called after load() of the last unit of a super-unit
 *   uint32_t pack(const struct wk_tile_rows &r, uint32_t u, uint32_t word)    word (4 bytes) of unit u from the file's rows
 *   uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t block, uint32_t half)  2 bytes of the file's block back
 *
 * so that W[r][k] = value = scale * q - min, each operation rounded (a scale is exact but for the sign of a
 * zero), which is what the CPU side dequantizes to. */
#ifndef WORKER_CUDA_FORMAT_CUH
#define WORKER_CUDA_FORMAT_CUH

#include <cuda_fp16.h>
#include <stdint.h>

enum { WK_MINS_GROUP = 1, WK_MINS_SUPER = 8 };

/* The 16 rows of a tile as in the file; what lies outside the matrix reads as 0. */
struct wk_tile_rows {
    const unsigned char *rows; /* of the tile */
    uint64_t row_bytes;
    uint32_t n_rows, k;        /* n_rows: of this tile, at most 16 */
    /* Byte i of block b of row r, F its format. */
    template <class F> __device__ __forceinline__ uint32_t byte(uint32_t r, uint32_t b, uint32_t i) const
    {
        return r < n_rows && b < k / F::block ? rows[r * row_bytes + (uint64_t)b * F::block_bytes + i] : 0u;
    }
    template <class F> __device__ __forceinline__ uint32_t half(uint32_t r, uint32_t b, uint32_t i) const { return byte<F>(r, b, i) | byte<F>(r, b, i + 1) << 8; }
};

/* (a & mask) | c in one instruction; c is kept in a register, or the compiler makes two of it. */
__device__ __forceinline__ uint32_t wk_and_or(uint32_t a, uint32_t mask, uint32_t c)
{
    uint32_t d;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(mask), "r"(c));
    return d;
}

/* Byte i of w as F32 in one instruction, plus 2^15: small enough that an f16 scale times that is exact, so fma(d, this, -d 2^15) is the exact product. */
__device__ __forceinline__ float wk_byte_float(uint32_t w, uint32_t i) 
{
    uint32_t c; /* in a register: an instruction has room for one constant, and the selector is that */
    asm("mov.b32 %0, 0x47000000;" : "=r"(c));
    return __uint_as_float(__byte_perm(w, c, 0x7505u | i << 4));
}

__device__ __forceinline__ float2 wk_half2_float(uint32_t w)
{
    const half2 h = *reinterpret_cast<const half2 *>(&w);
    return __half22float2(h);
}

/* ---- fields of 4 bits: 8 values of k, one row, a word -----------------------------------------------------------------
 * Value i at bit 4 (i / 2) + 16 (i % 2), the word then turned left by 2: pairs lie at bits 2..5 and 6..9 of each half, as they are and after one turn by 8. */
enum { WK_NIBBLE_BIAS0 = 256, WK_NIBBLE_BIAS1 = 16 };
__device__ __forceinline__ void wk_nibbles(uint32_t w, uint32_t o[4])
{
    const uint32_t v = __funnelshift_r(w, w, 8);
    o[0] = wk_and_or(w, 0x003c003cu, 0x5c005c00u);
    o[1] = wk_and_or(w, 0x03c003c0u, 0x4c004c00u);
    o[2] = wk_and_or(v, 0x003c003cu, 0x5c005c00u);
    o[3] = wk_and_or(v, 0x03c003c0u, 0x4c004c00u);
}
__host__ __device__ __forceinline__ uint32_t wk_nibble_at(uint32_t i) { return (2 + 4 * (i / 2) + 16 * (i % 2)) & 31u; } /* may wrap: use the two below */
__device__ __forceinline__ uint32_t wk_nibble_put(uint32_t q, uint32_t i) { return __funnelshift_l(q, q, wk_nibble_at(i)); }
__device__ __forceinline__ uint32_t wk_nibble_get(uint32_t w, uint32_t i) { return __funnelshift_r(w, w, wk_nibble_at(i)) & 15u; }

/* ---- fields of 5 bits: 32 values as 16 pairs in 5 words ------------------------------------------------------------------
 * Word i holds pairs 3i, 3i+1, 3i+2 at bits 5, 10, 0 of each half; pair 15 is made of bit 15 of each: its bit i from word i. */
enum { WK_FIVES_BIAS = 32 };
__device__ __forceinline__ void wk_fives(const uint32_t w[5], uint32_t o[16])
{
    const uint32_t c = 0x50005000u, m = 0x03e003e0u;
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
/* Bit `bit` of the lower (upper 0) or upper value of pair p: its word, and its bit there. */
__host__ __device__ __forceinline__ void wk_five_at(uint32_t p, uint32_t upper, uint32_t bit, uint32_t *word, uint32_t *at)
{
    *word = p < 15 ? p / 3 : bit;
    *at = (p == 15 ? 15 : (p % 3 == 0 ? 5 : p % 3 == 1 ? 10 : 0) + bit) + 16 * upper;
}

/* ---- fields of 6 bits: 16 values as 8 pairs in 3 words -------------------------------------------------------------------
 * Word i holds pairs 2i, 2i+1 at bits 4, 10 of each half; bits 0..3 of word 0 and 1: upper 4 bits of pair 6 and 7; bits 0,1 and 2,3 of word 2: their
 * lower 2. */
enum { WK_SIXES_BIAS = 64 };
__device__ __forceinline__ void wk_sixes(const uint32_t w[3], uint32_t o[8])
{
    const uint32_t c = 0x54005400u, m = 0x03f003f0u;
#pragma unroll
    for (int i = 0; i < 3; i++) {
        o[2 * i] = wk_and_or(w[i], m, c);
        o[2 * i + 1] = wk_and_or(w[i] >> 6, m, c);
    }
    o[6] = wk_and_or(w[2] << 4, 0x00300030u, wk_and_or(w[0] << 6, 0x03c003c0u, c));
    o[7] = wk_and_or(w[2] << 2, 0x00300030u, wk_and_or(w[1] << 6, 0x03c003c0u, c));
}
__host__ __device__ __forceinline__ void wk_six_at(uint32_t p, uint32_t upper, uint32_t bit, uint32_t *word, uint32_t *at)
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
