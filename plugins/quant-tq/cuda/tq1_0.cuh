/* quant-tq/cuda/tq1_0.cuh: TQ1_0 on the device (contract: worker/cuda/format.cuh, worker/cuda/part/int8.cuh).
 *
 * A unit is one block of the 16 rows. For each lane (g, t) the bytes 8t .. 8t + 7 of the first 32 of row g, then of row
 * g + 8; for each lane four bytes of the next 16, 32 + 4t .., of row g and of row g + 8; for each g the last four bytes
 * of both rows; 8 x { d of row g, d of row g + 8 }.
 *
 * A byte b has digits n = 0 .. 4, the quants of 32, 16 or 4 neighbours: w(n) = b 3^n / 256, rounded down, is a number
 * of n of its digits, so that digit n is w(n + 1) - 3 w(n): four bytes by two products of a word each, of the byte's
 * halves, and one permutation. A lane has of integer products all digits of its own bytes, and of the last four bytes
 * digit t. A quant is its weight + 1. */
#ifndef QUANT_TQ_CUDA_TQ1_0_CUH
#define QUANT_TQ_CUDA_TQ1_0_CUH

#include "tq.cuh"

struct tq1_0 : tq_tiles<34, 54> {
    enum { NEXT_AT = 512, LAST_AT = 768 };
    /* 3^n. */
    static __host__ __device__ __forceinline__ constexpr uint32_t power(uint32_t n)
    {
        return n == 0 ? 1 : n == 1 ? 3 : n == 2 ? 9 : n == 3 ? 27 : n == 4 ? 81 : 243;
    }

    /* ---- integers ---- */
    struct int8_block {
        uint4 first;
        uint2 next, last;
        uint32_t d, power; /* power: of the lane's digit of the last bytes */
    };
    using tq_tiles::load;
    static __device__ __forceinline__ void load(int8_block &s, const unsigned char *unit, uint32_t lane)
    {
        s.first = reinterpret_cast<const uint4 *>(unit)[lane];
        s.next = reinterpret_cast<const uint2 *>(unit + NEXT_AT)[lane];
        s.last = reinterpret_cast<const uint2 *>(unit + LAST_AT)[lane / 4];
        s.d = ds(unit, lane);
        s.power = power(lane % 4);
    }
    static constexpr bool int8_in_order = false;
    /* Places of a lane: digits of both words of the first bytes, of the word of the next, of the last. */
    static __device__ __forceinline__ uint32_t int8_at(uint32_t four)
    {
        const uint32_t t = four < 40 ? four % 8 / 2 : four % 4, place = four < 40 ? four / 8 * 2 + four % 2 : four / 4;
        return place / 4 * 64 + t * 16 + place % 4 * 4;
    }
    /* w of four bytes, in the order 0, 2, 1, 3. */
    static __device__ __forceinline__ uint32_t whole(uint32_t bytes, uint32_t power)
    {
        return __byte_perm((bytes & 0x00ff00ffu) * power, __byte_perm(bytes, 0, 0x4341) * power, 0x7531);
    }
    /* Quants of four bytes: nothing passes from one to the next, since each is what it is. */
    static __device__ __forceinline__ uint32_t digits(uint32_t bytes, uint32_t power)
    {
        return whole(bytes, 3 * power) + whole(bytes, power) * 0xfffffffdu;
    }
    static __device__ __forceinline__ uint32_t place(const int8_block &s, uint32_t i, uint32_t h)
    {
        if (i == 15) return digits(h ? s.last.y : s.last.x, s.power);
        const uint32_t first = i % 2 ? (h ? s.first.w : s.first.y)
                               : h   ? s.first.z
                                     : s.first.x,
                       bytes = i < 10 ? first
                               : h    ? s.next.y
                                      : s.next.x,
                       n = i < 10 ? i / 2 : i - 10;
        return n ? digits(bytes, power(n)) : whole(bytes, 3); /* w(0) is 0 */
    }
    static __device__ __forceinline__ void int8_bytes(const int8_block &s, uint32_t i, uint32_t a[2][4])
    {
#pragma unroll
        for (uint32_t n = 0; n < 4; n++)
#pragma unroll
            for (uint32_t h = 0; h < 2; h++) a[n / 2][h + n % 2 * 2] = place(s, 4 * i + n, h);
    }

    /* ---- halves ---- */
    /* Digits of four bytes, less 1, as two pairs: b 3^n, less what is beyond 256, times 3 has digit n at its bits 8 and
     * 9: of an f16 of 4 that is 4 + digit. */
    static __device__ __forceinline__ void pairs(uint32_t bytes, uint32_t power, uint32_t pair[2])
    {
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t rest = __byte_perm(bytes, 0, i ? 0x4342 : 0x4140) * power & 0x00ff00ffu;
            pair[i] = wk_h2_add(wk_and_or(rest * 3, 0x03000300u, 0x44004400u), 0xc500c500u /* -5 */);
        }
    }
    /* Half b % 2 of group 4 (b / 2) + t: 0 to 9 are of the first bytes, to 14 of the next, the last of the last. */
    template <bool>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        const uint32_t row = q.lane / 4, half = b % 2, j = b / 2 * 4 + q.lane % 4;
        uint32_t first, then; /* powers of the first four, of the next */
        uint4 w;              /* first and next of row g, of row g + 8 */
        if (j < 10) {
            w = reinterpret_cast<const uint4 *>(q.unit)[row * 4 + j % 2 * 2 + half];
            first = then = power(j / 2);
        } else if (j < 15) {
            const uint4 v = reinterpret_cast<const uint4 *>(q.unit + NEXT_AT)[row * 2 + half];
            w = make_uint4(v.x, v.z, v.y, v.w);
            first = then = power(j - 10);
        } else {
            const uint2 v = reinterpret_cast<const uint2 *>(q.unit + LAST_AT)[row];
            w = make_uint4(v.x, v.x, v.y, v.y);
            first = power(2 * half);
            then = 3 * first;
        }
        uint32_t g[4], g8[4];
        pairs(w.x, first, g);
        pairs(w.y, then, g + 2);
        pairs(w.z, first, g8);
        pairs(w.w, then, g8 + 2);
        wk_rows_fragments(g, g8, a[0]);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) a[0][i / 4][i % 4] = wk_h2_mul(a[0][i / 4][i % 4], wk_h2_both(s.d, i % 2));
    }

    /* ---- single values ---- */
    /* Four bytes of the file from byte i on. */
    static __device__ __forceinline__ uint32_t four(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t i)
    {
        return r.half<tq1_0>(row, b, i) | r.half<tq1_0>(row, b, i + 2) << 16;
    }
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t b, uint32_t word)
    {
        if (word >= d_at / 4) return d_word<tq1_0>(r, b, word - d_at / 4);
        if (word >= LAST_AT / 4) return four(r, (word - LAST_AT / 4) / 2 + word % 2 * 8, b, 48);
        if (word >= NEXT_AT / 4) {
            const uint32_t lane = (word - NEXT_AT / 4) / 2;
            return four(r, lane / 4 + word % 2 * 8, b, 32 + lane % 4 * 4);
        }
        return four(r, word / 16 + word / 2 % 2 * 8, b, word / 4 % 4 * 8 + word % 2 * 4);
    }
    static __device__ __forceinline__ uint32_t byte_of(const unsigned char *unit, uint32_t row, uint32_t i)
    {
        const uint32_t g = row % 8, h = row / 8;
        return unit[i < 32   ? (g * 4 + i / 8) * 16 + h * 8 + i % 8
                    : i < 48 ? NEXT_AT + (g * 4 + (i - 32) / 4) * 8 + h * 4 + i % 4
                             : LAST_AT + g * 8 + h * 4 + i % 4];
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        const unsigned char *const unit = tile + offset(b);
        if (half == 26) return d_of(unit, row);
        return byte_of(unit, row, 2 * half) | byte_of(unit, row, 2 * half + 1) << 8;
    }
    static __device__ __forceinline__ void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])
    {
        const unsigned char *const unit = tile + offset(i / 32);
        const float d = wk_half2_float(d_of(unit, row)).x;
        for (uint32_t j = 0; j < 8; j++) {
            const uint32_t at = i % 32 * 8 + j;
            uint32_t rest = byte_of(unit, row, at < 160 ? at % 32 : at < 240 ? 32 + at % 16 : 48 + at % 4);
            for (uint32_t n = at < 160 ? at / 32 : at < 240 ? at / 16 - 10 : at / 4 - 60; n > 0; n--)
                rest = rest * 3 & 255u;
            v[j] = __fmul_rn(d, (float)(int)(rest * 3 >> 8) - 1.0f);
        }
    }
};

#endif
