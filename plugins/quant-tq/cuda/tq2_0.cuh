/* quant-tq/cuda/tq2_0.cuh: TQ2_0 on the device (contract: worker/cuda/format.cuh, worker/cuda/part/int8.cuh).
 *
 * A unit is one block of the 16 rows. A lane has a word for each of its 8 pieces: group 4 i + t of row g, then of row g
 * + 8, i from 0 on: of all lanes i 0 and 1, then 2 and 3. Then 8 x { d of row g, d of row g + 8 }.
 *
 * A word is a group: four values in the same bits of its bytes, the first four in bits 0 and 1; of four values bytes 0,
 * 2, 1, 3, so that pairs stand in halves. A quant is its weight + 1. */
#ifndef QUANT_TQ_CUDA_TQ2_0_CUH
#define QUANT_TQ_CUDA_TQ2_0_CUH

#include "tq.cuh"

struct tq2_0 : tq_tiles<35, 66> {
    /* ---- integers ---- */
    struct int8_block {
        uint4 q[2];
        uint32_t d;
    };
    using tq_tiles::load;
    static __device__ __forceinline__ void load(int8_block &s, const unsigned char *unit, uint32_t lane)
    {
        s.q[0] = reinterpret_cast<const uint4 *>(unit)[lane];
        s.q[1] = reinterpret_cast<const uint4 *>(unit)[32 + lane];
        s.d = ds(unit, lane);
    }
    static __device__ __forceinline__ void int8_bytes(const int8_block &s, uint32_t i, uint32_t a[2][4])
    {
        const uint4 v = s.q[i / 2];
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t w = i % 2 ? (h ? v.w : v.z) : h ? v.y : v.x;
#pragma unroll
            for (uint32_t n = 0; n < 4; n++) a[n / 2][h + n % 2 * 2] = w >> 2 * n & 0x03030303u;
        }
    }

    /* ---- halves: under the exponent of 1024 two bits are 1024 + q ---- */
    template <bool>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        const uint2 v = *reinterpret_cast<const uint2 *>(q.unit + b / 4 * 512 + q.lane * 16 + b / 2 % 2 * 8);
        uint32_t c;
        asm("mov.b32 %0, 0x64006400;" : "=r"(c)); /* from a register, or the mask and it are two instructions */
#pragma unroll
        for (uint32_t h = 0; h < 2; h++)
#pragma unroll
            for (uint32_t j = 0; j < 4; j++) { /* rows g, g + 8 of the lower two of four values, then of the upper */
                const uint32_t w = (j % 2 ? v.y : v.x) >> (b % 2 * 4 + h * 2 + j / 2 * 8);
                a[0][h][j] =
                    wk_h2_mul(wk_h2_add(wk_and_or(w, 0x00030003u, c), 0xe401e401u /* -1025 */), wk_h2_both(s.d, j % 2));
            }
    }

    /* ---- single values ---- */
    /* The word of group j of a row; bit of value v of a group in it. */
    static __device__ __forceinline__ uint32_t word_at(uint32_t row, uint32_t j)
    {
        return (j / 8 * 512 + (row % 8 * 4 + j % 4) * 16 + j / 4 % 2 * 8 + row / 8 * 4) / 4;
    }
    static __device__ __forceinline__ uint32_t bit_at(uint32_t v) { return wk_int8_byte(v) * 8 + v / 4 * 2; }
    static __device__ __forceinline__ uint32_t quant(const unsigned char *unit, uint32_t row, uint32_t v)
    {
        return reinterpret_cast<const uint32_t *>(unit)[word_at(row, v / 16)] >> bit_at(v % 16) & 3u;
    }
    static __device__ __forceinline__ void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])
    {
        const unsigned char *const unit = tile + offset(i / 32);
        const float d = wk_half2_float(d_of(unit, row)).x;
        const uint32_t w = reinterpret_cast<const uint32_t *>(unit)[word_at(row, i % 32 / 2)] >> (i % 2 * 4);
#pragma unroll
        for (uint32_t n = 0; n < 8; n++) v[n] = __fmul_rn(d, (float)(int)(w >> bit_at(n) & 3u) - 1.0f);
    }

    /* Value v of the file's block: byte 32 (v / 128) + v % 32, bits 2 (v / 32 % 4). */
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t b, uint32_t word)
    {
        if (word >= d_at / 4) return d_word<tq2_0>(r, b, word - d_at / 4);
        const uint32_t lane = word % 128 / 4, j = (word / 128 * 2 + word / 2 % 2) * 4 + lane % 4;
        uint32_t x = 0;
        for (uint32_t n = 0; n < 16; n++) {
            const uint32_t v = j * 16 + n;
            x |= (r.byte<tq2_0>(lane / 4 + word % 2 * 8, b, v / 128 * 32 + v % 32) >> (v / 32 % 4 * 2) & 3u)
                 << bit_at(n);
        }
        return x;
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        const unsigned char *const unit = tile + offset(b);
        if (half == 32) return d_of(unit, row);
        uint32_t x = 0;
        for (uint32_t i = 0; i < 8; i++) { /* field i % 4 of either byte */
            const uint32_t at = 2 * half + i / 4;
            x |= quant(unit, row, at / 32 * 128 + i % 4 * 32 + at % 32) << (2 * i);
        }
        return x;
    }
};

#endif
