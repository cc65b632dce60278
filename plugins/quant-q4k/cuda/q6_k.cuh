/* quant-q4k/cuda/q6_k.cuh: Q6_K on the device (contract: worker/cuda/format.cuh).
 *
 * A super-unit is one block of the 16 rows, in two units of eight groups of 16. A unit: in the even one 8 x { d of rows
 * g, g + 8 }; then the scales, plus 128, a byte each: lane (g, t) has those of group t, of rows g and g + 8, and of
 * group t + 4 (and makes them for the group's four lanes); then the quants: per lane and 32 values 16 quants of 6 bits
 * in 3 words (wk_sixes), pair 4 h' + 2 h + i: group h', row g + 8 h, values 4t + 2i and 4t + 2i + 1; the 12 words of a
 * unit as 3 chunks of 16 bytes of all lanes. */
#ifndef QUANT_Q4K_CUDA_Q6_K_CUH
#define QUANT_Q4K_CUDA_Q6_K_CUH

#include <worker/cuda/format.cuh>

struct q6_k {
    static constexpr uint32_t type = 14, block = 256, block_bytes = 210, unit = 128, super = 2, group = 16, slot = 1696,
                              parts = 1, mins = 0;
    static constexpr float bias0 = WK_SIXES_BIAS + 32, bias1 = WK_SIXES_BIAS + 32;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u)
    {
        return (uint64_t)(u / 2) * 3360 + u % 2 * 1696;
    }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 256) * 3360;
    }

    struct scales {
        uint32_t scale[2], up, far; /* of groups t and t + 4 of the unit, rows g and g + 8: d sc 2^16, far: d sc 2; up:
                                       d 2^16; far: some |d| is 2^-7 or more */
        uint32_t d, sc; /* for scale(): d of both rows; sc + 128 of group t of both, of group t + 4 of both */
    };
    struct quants {
        uint32_t w[12];
    };
    static __device__ __forceinline__ const unsigned char *plane(const unsigned char *unit, uint32_t u)
    {
        return unit + (u % 2 ? 0 : 32);
    }
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        if (u % 2 == 0) {
            s.d = reinterpret_cast<const uint32_t *>(unit)[lane / 4];
            s.far = wk_h2_any(s.d, 0x2000);
            s.up = wk_h2_mul(wk_h2_mul(s.d, 0x40004000u /* 2 */), s.far ? 0x3c003c00u : 0x78007800u /* 2^15 */);
        }
        s.sc = reinterpret_cast<const uint32_t *>(plane(unit, u))[lane];
        s.scale[0] = wk_h2_mul(wk_h2_add(__byte_perm(s.sc, 0x64646464u, 0x4140), 0xe480e480u /* -1152 */), s.up);
        s.scale[1] = wk_h2_mul(wk_h2_add(__byte_perm(s.sc, 0x64646464u, 0x4342), 0xe480e480u), s.up);
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
#pragma unroll
        for (int c = 0; c < 3; c++) {
            const uint4 v = *reinterpret_cast<const uint4 *>(plane(unit, u) + 128 + (c * 32 + lane) * 16);
            q.w[4 * c] = v.x, q.w[4 * c + 1] = v.y, q.w[4 * c + 2] = v.z, q.w[4 * c + 3] = v.w;
        }
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4],
                                                     uint32_t c = 0x54005400u)
    {
        uint32_t o[8];
        wk_sixes(q.w + 3 * b, o, c);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            a[0][h][0] = o[4 * h];
            a[0][h][1] = o[4 * h + 2];
            a[0][h][2] = o[4 * h + 1];
            a[0][h][3] = o[4 * h + 3];
        }
    }
    static constexpr float unscale = 16.0f;
    /* q 2^-20 times d sc 2^16, less 2 d sc. */
    template <bool FAR>
    static __device__ __forceinline__ void halves(const quants &q, const scales &s, uint32_t, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        fragments(q, b, a, 0);
        if constexpr (FAR) wk_h2_lift(a[0]);
#pragma unroll
        for (uint32_t h = 0; h < 2; h++) {
            const uint32_t i = 2 * b + h, scale = __shfl_sync(0xffffffffu, s.scale[i / 4], (threadIdx.x & 28u) | i % 4),
                           less = wk_h2_mul(scale, FAR ? 0xbc00bc00u /* -1 */ : 0x82008200u /* -2^-15 */);
#pragma unroll
            for (uint32_t j = 0; j < 4; j++)
                a[0][h][j] = wk_h2_fma(a[0][h][j], wk_h2_both(scale, j % 2), wk_h2_both(less, j % 2));
        }
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i)
    {
        const uint32_t sc = __shfl_sync(0xffffffffu, s.sc, (threadIdx.x & 28u) | i % 4) >> (i < 4 ? 0 : 16);
        const float2 d = wk_half2_float(s.d);
        return make_float2(__fmul_rn(d.x, (float)((int)(sc & 255u) - 128)),
                           __fmul_rn(d.y, (float)((int)(sc >> 8 & 255u) - 128)));
    }

    /* Value v of the file's block: 4 bits of ql[64 (v / 128) + v % 64], lower for v % 128 < 64; 2 bits of qh[32 (v /
     * 128) + v % 32] at 2 (v / 32 % 4). */
    static __device__ __forceinline__ uint32_t quant(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t v)
    {
        return (r.byte<q6_k>(row, b, v / 128 * 64 + v % 64) >> (v % 128 / 64 * 4) & 15u) |
               (r.byte<q6_k>(row, b, 128 + v / 128 * 32 + v % 32) >> (v / 32 % 4 * 2) & 3u) << 4;
    }
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t b = u / 2;
        if (u % 2 == 0) {
            if (word < 8) return r.half<q6_k>(word, b, 208) | r.half<q6_k>(word + 8, b, 208) << 16;
            word -= 8;
        }
        if (word < 32) {
            const uint32_t row = word / 4, at = 192 + u % 2 * 8 + word % 4;
            return (r.byte<q6_k>(row, b, at) | r.byte<q6_k>(row + 8, b, at) << 8 | r.byte<q6_k>(row, b, at + 4) << 16 |
                    r.byte<q6_k>(row + 8, b, at + 4) << 24) ^
                   0x80808080u;
        }
        word -= 32;
        const uint32_t lane = word / 4 % 32, n = word / 128 * 4 + word % 4, w = n % 3; /* word n of 12 of the lane */
        uint32_t v = 0;
        for (uint32_t p = 0; p < 8; p++)
            for (uint32_t i = 0; i < 2; i++) {
                if (p < 6 ? p / 2 != w : w < 2 && p != 6 + w) continue;
                const uint32_t q = quant(r, lane / 4 + p / 2 % 2 * 8, b,
                                         u % 2 * 128 + n / 3 * 32 + p / 4 * 16 + lane % 4 * 4 + p % 2 * 2 + i);
                if (p < 6)
                    v |= q << (4 + 6 * (p % 2) + 16 * i);
                else if (w < 2)
                    v |= q >> 2 << (16 * i);
                else
                    v |= (q & 3u) << (2 * (p - 6) + 16 * i);
            }
        return v;
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        const unsigned char *even = tile + offset(2 * b);
        if (half == 104) return reinterpret_cast<const uint16_t *>(even)[row % 8 * 2 + row / 8];
        if (half >= 96) {
            const uint32_t i = 2 * (half - 96), u = i / 8; /* groups i, i + 1 of 16 */
            const unsigned char *const at =
                plane(tile + offset(2 * b + u), u) + row % 8 * 16 + row / 8 + i % 8 / 4 * 2 + i % 4 * 4;
            return (at[0] | at[4] << 8) ^ 0x8080u;
        }
        auto bit = [&](uint32_t v, uint32_t n) { /* bit n of quant v */
                                                 const uint32_t u = v / 128, lane = row % 8 * 4 + v % 16 / 4;
                                                 uint32_t w, at;
                                                 wk_six_at(v / 16 % 2 * 4 + row / 8 * 2 + v % 4 / 2, v % 2, n, &w, &at);
                                                 w += v % 128 / 32 * 3;
                                                 return *reinterpret_cast<const uint32_t *>(
                                                            plane(tile + offset(2 * b + u), u) + 128 +
                                                            (w / 4 * 32 + lane) * 16 + w % 4 * 4) >>
                                                            at &
                                                        1u;
        };
        uint32_t x = 0;
        for (uint32_t i = 0; i < 16; i++) {
            const uint32_t at = 2 * half + i / 8;
            x |= (at < 128 ? bit(at / 64 * 128 + at % 64 + i % 8 / 4 * 64, i % 4)
                           : bit((at - 128) / 32 * 128 + (at - 128) % 32 + i % 8 / 2 * 32, 4 + i % 2))
                 << i;
        }
        return x;
    }
};

#endif
