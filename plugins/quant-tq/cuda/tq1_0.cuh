/* quant-tq/cuda/tq1_0.cuh: TQ1_0 on the device (contract: worker/cuda/format.cuh).
 *
 * A super-unit is one block of the 16 rows, in two units of four 32s. The even one has 8 x { d of row g, d of row
 * g + 8 }, then for each lane (g, t) the bytes 8t .. 8t + 7 of the first 32 of rows g and g + 8, whose digits are the
 * lane's values in 32 number 0 to 4; the lane keeps them for the odd unit. That has for each g and t % 2 the bytes
 * 8 (t % 2) .. of the next 16 of both rows: their digits by twos are 32 number 5 and 6, for lanes t / 2 = 0 and 1, the
 * last digit is the first half of 32 number 7; and for each g the last four bytes of both rows, the second half of it.
 * Of four bytes the middle ones have changed places, so that the lower bytes of either half are neighbours.
 *
 * A byte times 3^n, less what is beyond 256, times 3 has digit n at its bits 8 and 9: of an f16 of 4 that is 4 + digit.
 */
#ifndef QUANT_TQ_CUDA_TQ1_0_CUH
#define QUANT_TQ_CUDA_TQ1_0_CUH

#include <worker/cuda/format.cuh>

struct tq1_0 {
    static constexpr uint32_t type = 34, block = 256, block_bytes = 54, unit = 128, super = 2, group = 32, slot = 544,
                              parts = 1, mins = 0, first_at = 32, last_at = 256;
    static constexpr float bias0 = 0.0f, bias1 = 0.0f, unscale = 1.0f;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u)
    {
        return (uint64_t)(u / 2) * 864 + u % 2 * 544;
    }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 256) * 864;
    }

    struct scales {
        uint32_t d;
        uint4 first;
    };
    struct quants {
        uint4 next;
        uint2 last;
    };
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        if (u % 2) return;
        s.d = reinterpret_cast<const uint32_t *>(unit)[lane / 4];
        s.first = reinterpret_cast<const uint4 *>(unit + first_at)[lane];
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        if (u % 2 == 0) return;
        q.next = reinterpret_cast<const uint4 *>(unit)[lane / 4 * 2 + lane % 2];
        q.last = reinterpret_cast<const uint2 *>(unit + last_at)[lane / 4];
    }
    /* Digits of four bytes, less 1, as two pairs; power: 3^n. */
    static __device__ __forceinline__ void pairs(uint32_t bytes, uint32_t power, uint32_t pair[2])
    {
#pragma unroll
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t rest = (bytes >> 8 * i & 0x00ff00ffu) * power & 0x00ff00ffu;
            pair[i] = wk_h2_add(wk_and_or(rest * 3, 0x03000300u, 0x44004400u), 0xc500c500u /* -5 */);
        }
    }
    template <bool>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t u, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        const uint32_t t = threadIdx.x % 4;
        uint4 w = s.first;
        uint32_t power = b == 0 ? 1u : b == 1 ? 3u : b == 2 ? 9u : 27u, then; /* of the first four, of the next */
        if (u % 2) {
            if (b > 0) w = q.next;
            power = b == 1 ? (t < 2 ? 1u : 3u) : b == 2 ? (t < 2 ? 9u : 27u) : 81u;
        }
        then = power;
        if (u % 2 && b == 3 && t >= 2) {
            w = make_uint4(q.last.x, q.last.x, q.last.y, q.last.y);
            power = t == 2 ? 1u : 9u;
            then = t == 2 ? 3u : 27u;
        }
        uint32_t g[4], g8[4];
        pairs(w.x, power, g);
        pairs(w.y, then, g + 2);
        pairs(w.z, power, g8);
        pairs(w.w, then, g8 + 2);
        wk_rows_fragments(g, g8, a[0]);
#pragma unroll
        for (uint32_t i = 0; i < 8; i++) a[0][i / 4][i % 4] = wk_h2_mul(a[0][i / 4][i % 4], wk_h2_both(s.d, i % 2));
    }

    /* Four bytes of the file from byte i on, the middle ones having changed places. */
    static __device__ __forceinline__ uint32_t four(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t i)
    {
        return r.byte<tq1_0>(row, b, i) | r.byte<tq1_0>(row, b, i + 2) << 8 | r.byte<tq1_0>(row, b, i + 1) << 16 |
               r.byte<tq1_0>(row, b, i + 3) << 24;
    }
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t b = u / 2, row = word / 2 % 2 * 8, i = word % 2 * 4; /* of 16 bytes: two words of either row */
        if (u % 2 == 0) {
            if (word < first_at / 4) return r.half<tq1_0>(word, b, 52) | r.half<tq1_0>(word + 8, b, 52) << 16;
            const uint32_t lane = (word - first_at / 4) / 4;
            return four(r, lane / 4 + row, b, lane % 4 * 8 + i);
        }
        if (word < last_at / 4) return four(r, word / 8 + row, b, 32 + word / 4 % 2 * 8 + i);
        return four(r, (word - last_at / 4) / 2 + word % 2 * 8, b, 48);
    }
    static __device__ __forceinline__ uint32_t byte_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t i)
    {
        const unsigned char *even = tile + offset(2 * b), *odd = tile + offset(2 * b + 1);
        const uint32_t place = i % 4 == 1 ? 2 : i % 4 == 2 ? 1 : i % 4, g = row % 8, in = row / 8 * 8 + i % 8 / 4 * 4;
        if (i < 32) return even[first_at + (g * 4 + i / 8) * 16 + in + place];
        if (i < 48) return odd[(g * 2 + (i - 32) / 8) * 16 + in + place];
        return odd[last_at + g * 8 + row / 8 * 4 + place];
    }
    static __device__ __forceinline__ uint32_t d_of(const unsigned char *tile, uint32_t row, uint32_t b)
    {
        return reinterpret_cast<const uint16_t *>(tile + offset(2 * b))[row % 8 * 2 + row / 8];
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        if (half == 26) return d_of(tile, row, b);
        return byte_of(tile, row, b, 2 * half) | byte_of(tile, row, b, 2 * half + 1) << 8;
    }
    static __device__ __forceinline__ void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])
    {
        const uint32_t b = i / 32;
        const float d = wk_half2_float(d_of(tile, row, b)).x;
        for (uint32_t j = 0; j < 8; j++) {
            const uint32_t at = i % 32 * 8 + j;
            uint32_t rest = byte_of(tile, row, b, at < 160 ? at % 32 : at < 240 ? 32 + at % 16 : 48 + at % 4);
            for (uint32_t n = at < 160 ? at / 32 : at < 240 ? at / 16 - 10 : at / 4 - 60; n > 0; n--)
                rest = rest * 3 & 255u;
            v[j] = __fmul_rn(d, (float)(int)(rest * 3 >> 8) - 1.0f);
        }
    }
};

#endif
