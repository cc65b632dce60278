/* quant-q4k/cuda/q2_k.cuh: Q2_K on the device (contract: worker/cuda/format.cuh, worker/cuda/part/int8.cuh).
 *
 * A unit is one block of the 16 rows. A lane has a word for each of its 8 pieces: group 4 i + t of row g, then of row g
 * + 8, i from 0 on: of all lanes i 0 and 1, then 2 and 3. Then for each lane the scale bytes of its groups, four of row
 * g, four of row g + 8 (minimum above, scale below); then 8 x { d and dmin of row g, of row g + 8 }.
 *
 * A word is a group: four values in the same bits of its bytes, the first four in bits 0 and 1; of four values bytes 0,
 * 2, 1, 3, so that pairs stand in halves. */
#ifndef QUANT_Q4K_CUDA_Q2_K_CUH
#define QUANT_Q4K_CUDA_Q2_K_CUH

#include <worker/cuda/format.cuh>
#include <worker/cuda/part/int8.cuh>

struct q2_k : wk_read_in_pieces {
    static constexpr uint32_t type = 10, block = 256, block_bytes = 84, unit = 256, super = 1, group = 16, slot = 1344,
                              parts = 1, mins = 1;
    enum { SCALES_AT = 1024, D_AT = 1280 };
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)u * 1344; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 256) * 1344;
    }

    struct words {
        uint2 sc, dm;
    }; /* scale bytes, d and dmin: of row g, of row g + 8 */
    static __device__ __forceinline__ void load(words &w, const unsigned char *unit, uint32_t lane)
    {
        w.sc = reinterpret_cast<const uint2 *>(unit + SCALES_AT)[lane];
        w.dm = reinterpret_cast<const uint2 *>(unit + D_AT)[lane / 4];
    }

    /* ---- integers: bytes 4 q sc ---- */
    static constexpr bool int8_mins = true;
    static constexpr float int8_unscale = 0.25f;
    struct int8_block {
        words w;
        uint4 q[2];
    };
    static __device__ __forceinline__ void load(int8_block &s, const unsigned char *unit, uint32_t lane)
    {
        s.q[0] = reinterpret_cast<const uint4 *>(unit)[lane];
        s.q[1] = reinterpret_cast<const uint4 *>(unit)[32 + lane];
        load(s.w, unit, lane);
    }
    static __device__ __forceinline__ void int8_bytes(const int8_block &s, uint32_t i, uint32_t a[2][4])
    {
        const uint4 v = s.q[i / 2];
        const uint2 q = i % 2 ? make_uint2(v.z, v.w) : make_uint2(v.x, v.y);
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t w = h ? q.y : q.x, high = w >> 4,
                           sc = __byte_perm((h ? s.w.sc.y : s.w.sc.x) & 0x0f0f0f0fu, 0, 0x4440 + i), sc4 = sc * 4;
            a[0][h] = (w & 0x03030303u) * sc4;
            a[0][h + 2] = (w & 0x0c0c0c0cu) * sc;
            a[1][h] = (high & 0x03030303u) * sc4;
            a[1][h + 2] = (high & 0x0c0c0c0cu) * sc;
        }
    }
    static __device__ __forceinline__ void int8_min(const int8_block &s, uint32_t a[4])
    {
        a[0] = s.w.sc.x >> 4 & 0x0f0f0f0fu;
        a[1] = s.w.sc.y >> 4 & 0x0f0f0f0fu;
        a[2] = s.w.sc.x & 0xf0f0f0f0u;
        a[3] = s.w.sc.y & 0xf0f0f0f0u;
    }
    static __device__ __forceinline__ float int8_value(const int8_block &s, uint32_t h, int32_t sum, int32_t less)
    {
        const float2 d = wk_half2_float(h ? s.w.dm.y : s.w.dm.x);
        return __fmaf_rn((float)sum, d.x, -__fmul_rn((float)(4 * less), d.y));
    }

    /* ---- halves ---- */
    struct scales {
        uint32_t scale[4], less[4], far; /* of the lane's groups, rows g and g + 8: d sc 2^18, far: d sc 2; -dmin m /
                                            16; far: some |d| is 2^-6 or more */
    };
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        words w;
        load(w, unit, lane);
        const uint32_t d = __byte_perm(w.dm.x, w.dm.y, 0x5410),
                       down = wk_h2_mul(__byte_perm(w.dm.x, w.dm.y, 0x7632), 0xac00ac00u /* -2^-4 */);
        s.far = wk_h2_any(d, 0x2400);
        const uint32_t up = s.far ? wk_h2_mul(d, 0x40004000u /* 2 */)
                                  : wk_h2_mul(wk_h2_mul(d, 0x4c004c00u /* 16 */), 0x74007400u /* 2^14 */);
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t both = __byte_perm(w.sc.x, w.sc.y, 0x4400 + i * 0x1111); /* of row g, of row g + 8 */
            s.scale[i] = wk_h2_mul(wk_h2_add(wk_and_or(both, 0x000f000fu, 0x64006400u), 0xe400e400u /* -1024 */), up);
            s.less[i] = wk_h2_mul(wk_h2_add(wk_and_or(both >> 4, 0x000f000fu, 0x64006400u), 0xe400e400u), down);
        }
    }
    using wk_read_in_pieces::load;
    static constexpr float unscale = 16.0f;
    /* Fields are q 2^-22 and q 2^-20: times d sc 2^18, and a quarter of it, less dmin m / 16. FAR: both as q 2^-5,
     * times d sc 2. */
    template <bool FAR>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        const uint32_t i = b / 2, quarter = wk_h2_mul(s.scale[i], 0x34003400u);
        const uint2 v = *reinterpret_cast<const uint2 *>(q.unit + i / 2 * 512 + q.lane * 16 + i % 2 * 8);
#pragma unroll
        for (uint32_t j = 0; j < 4; j++) { /* rows g, g + 8 of the lower two of four values, then of the upper two */
            const uint32_t w = j % 2 ? v.y : v.x, from = b % 2 * 4 + j / 2 * 8, x = from < 2 ? w << 2 : w >> (from - 2);
#pragma unroll
            for (uint32_t h = 0; h < 2; h++) {
                uint32_t f = x & (h ? 0x00300030u : 0x000c000cu);
                if constexpr (FAR)
                    f = wk_h2_mul(wk_h2_mul(f, 0x70007000u /* 2^13 */), h ? 0x44004400u /* 4 */ : 0x4c004c00u /* 16 */);
                a[0][h][j] =
                    wk_h2_fma(f, wk_h2_both(h && !FAR ? quarter : s.scale[i], j % 2), wk_h2_both(s.less[i], j % 2));
            }
        }
    }

    /* ---- single values ---- */
    /* The word of group j of a row. */
    static __device__ __forceinline__ uint32_t word_at(uint32_t row, uint32_t j)
    {
        return (j / 8 * 512 + (row % 8 * 4 + j % 4) * 16 + j / 4 % 2 * 8 + row / 8 * 4) / 4;
    }
    static __device__ __forceinline__ uint32_t scale_at(uint32_t row, uint32_t j)
    {
        return SCALES_AT + (row % 8 * 4 + j % 4) * 8 + row / 8 * 4 + j / 4;
    }
    static __device__ __forceinline__ uint32_t d_at(uint32_t row) { return D_AT + row % 8 * 8 + row / 8 * 4; }
    /* Bit of value v of a group in its word. */
    static __device__ __forceinline__ uint32_t bit_at(uint32_t v) { return wk_int8_byte(v) * 8 + v / 4 * 2; }
    static __device__ __forceinline__ void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])
    {
        const unsigned char *const unit = tile + offset(i / 32);
        const uint32_t j = i % 32 / 2, w = reinterpret_cast<const uint32_t *>(unit)[word_at(row, j)] >> (i % 2 * 4),
                       sc = unit[scale_at(row, j)];
        const float2 d = wk_half2_float(*reinterpret_cast<const uint32_t *>(unit + d_at(row)));
        const float scale = __fmul_rn(d.x, (float)(sc & 15u)), min = __fmul_rn(d.y, (float)(sc >> 4));
#pragma unroll
        for (uint32_t n = 0; n < 8; n++) v[n] = __fsub_rn(__fmul_rn(scale, (float)(w >> bit_at(n) & 3u)), min);
    }

    /* Value v of the file's block: byte 16 + 32 (v / 128) + v % 32, bits 2 (v / 32 % 4). */
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t b, uint32_t word)
    {
        if (word >= D_AT / 4) {
            const uint32_t row = (word - D_AT / 4) / 2 + word % 2 * 8;
            return r.half<q2_k>(row, b, 80) | r.half<q2_k>(row, b, 82) << 16;
        }
        uint32_t x = 0;
        if (word >= SCALES_AT / 4) {
            const uint32_t lane = (word - SCALES_AT / 4) / 2;
            for (uint32_t i = 0; i < 4; i++) x |= r.byte<q2_k>(lane / 4 + word % 2 * 8, b, 4 * i + lane % 4) << (8 * i);
            return x;
        }
        const uint32_t lane = word % 128 / 4, j = (word / 128 * 2 + word / 2 % 2) * 4 + lane % 4;
        for (uint32_t n = 0; n < 16; n++) {
            const uint32_t v = j * 16 + n;
            x |= (r.byte<q2_k>(lane / 4 + word % 2 * 8, b, 16 + v / 128 * 32 + v % 32) >> (v / 32 % 4 * 2) & 3u)
                 << bit_at(n);
        }
        return x;
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        const uint32_t at = 2 * half;
        const unsigned char *const unit = tile + offset(b);
        if (at >= 80) return *reinterpret_cast<const uint16_t *>(unit + d_at(row) + at - 80);
        if (at < 16) return unit[scale_at(row, at)] | (uint32_t)unit[scale_at(row, at + 1)] << 8;
        uint32_t x = 0;
        for (uint32_t i = 0; i < 8; i++) { /* field i % 4 of either byte */
            const uint32_t v = (at - 16) / 32 * 128 + i % 4 * 32 + (at - 16 + i / 4) % 32;
            x |= (reinterpret_cast<const uint32_t *>(unit)[word_at(row, v / 16)] >> bit_at(v % 16) & 3u) << (2 * i);
        }
        return x;
    }
};

#endif
