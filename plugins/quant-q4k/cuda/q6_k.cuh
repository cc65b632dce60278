/* quant-q4k/cuda/q6_k.cuh: Q6_K on the device (contract: worker/cuda/format.cuh).
 *
 * A super-unit is one block of the 16 rows, in two units of eight groups of 16. A unit: in the even one d of rows 0..15; then the scales [16 rows][8 groups], a byte
 * each, plus 128; then the quants: per lane and 32 values 16 quants of 6 bits in 3 words (wk_sixes), pair 4 h' + 2 h + i: group h', row g + 8 h, values 4t + 2i and
 * 4t + 2i + 1; the 12 words of a unit as 3 chunks of 16 bytes of all lanes. */
#ifndef QUANT_Q4K_CUDA_Q6_K_CUH
#define QUANT_Q4K_CUDA_Q6_K_CUH

#include <worker/cuda/format.cuh>

struct q6_k {
    static constexpr uint32_t type = 14, block = 256, block_bytes = 210, unit = 128, super = 2, group = 16, slot = 1696, parts = 1, mins = 0;
    static constexpr float bias0 = WK_SIXES_BIAS + 32, bias1 = WK_SIXES_BIAS + 32;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)(u / 2) * 3360 + u % 2 * 1696; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k) { return (uint64_t)(k / 256) * 3360; }

    struct scales {
        float2 d, less; /* of rows g and g + 8; less: minus d (2^15 + 128) */
        uint2 sc[2];    /* of row g, g + 8: eight scales + 128 */
    };
    struct quants { uint32_t w[12]; };
    static __device__ __forceinline__ const unsigned char *plane(const unsigned char *unit, uint32_t u) { return unit + (u % 2 ? 0 : 32); }
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        if (u % 2 == 0) {
            const __half *d = reinterpret_cast<const __half *>(unit) + lane / 4;
            s.d = make_float2(__half2float(d[0]), __half2float(d[8]));
            s.less = make_float2(__fmul_rn(s.d.x, -32896.0f), __fmul_rn(s.d.y, -32896.0f));
        }
#pragma unroll
        for (int h = 0; h < 2; h++) s.sc[h] = reinterpret_cast<const uint2 *>(plane(unit, u))[lane / 4 + 8 * h];
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
#pragma unroll
        for (int c = 0; c < 3; c++) {
            const uint4 v = *reinterpret_cast<const uint4 *>(plane(unit, u) + 128 + (c * 32 + lane) * 16);
            q.w[4 * c] = v.x, q.w[4 * c + 1] = v.y, q.w[4 * c + 2] = v.z, q.w[4 * c + 3] = v.w;
        }
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4])
    {
        uint32_t o[8];
        wk_sixes(q.w + 3 * b, o);
#pragma unroll
        for (int h = 0; h < 2; h++) {
            a[0][h][0] = o[4 * h];
            a[0][h][1] = o[4 * h + 2];
            a[0][h][2] = o[4 * h + 1];
            a[0][h][3] = o[4 * h + 3];
        }
    }
        static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i)
    {
        return make_float2(__fmaf_rn(s.d.x, wk_byte_float(i < 4 ? s.sc[0].x : s.sc[0].y, i % 4), s.less.x), __fmaf_rn(s.d.y, wk_byte_float(i < 4 ? s.sc[1].x : s.sc[1].y, i % 4), s.less.y));
    }

    /* Value v of the file's block: 4 bits of ql[64 (v / 128) + v % 64], lower for v % 128 < 64; 2 bits of qh[32 (v / 128) + v % 32] at 2 (v / 32 % 4). */
    static __device__ __forceinline__ uint32_t quant(const wk_tile_rows &r, uint32_t row, uint32_t b, uint32_t v)
    {
        return (r.byte<q6_k>(row, b, v / 128 * 64 + v % 64) >> (v % 128 / 64 * 4) & 15u) | (r.byte<q6_k>(row, b, 128 + v / 128 * 32 + v % 32) >> (v / 32 % 4 * 2) & 3u) << 4;
    }
    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t b = u / 2;
        if (u % 2 == 0) {
            if (word < 8) return r.half<q6_k>(2 * word, b, 208) | r.half<q6_k>(2 * word + 1, b, 208) << 16;
            word -= 8;
        }
        if (word < 32) {
            const uint32_t at = 192 + u % 2 * 8 + word % 2 * 4;
            return (r.half<q6_k>(word / 2, b, at) | r.half<q6_k>(word / 2, b, at + 2) << 16) ^ 0x80808080u;
        }
        word -= 32;
        const uint32_t lane = word / 4 % 32, n = word / 128 * 4 + word % 4, w = n % 3; /* word n of 12 of the lane */
        uint32_t v = 0;
        for (uint32_t p = 0; p < 8; p++)
            for (uint32_t i = 0; i < 2; i++) {
                if (p < 6 ? p / 2 != w : w < 2 && p != 6 + w) continue;
                const uint32_t q = quant(r, lane / 4 + p / 2 % 2 * 8, b, u % 2 * 128 + n / 3 * 32 + p / 4 * 16 + lane % 4 * 4 + p % 2 * 2 + i);
                if (p < 6) v |= q << (4 + 6 * (p % 2) + 16 * i);
                else if (w < 2) v |= q >> 2 << (16 * i);
                else v |= (q & 3u) << (2 * (p - 6) + 16 * i);
            }
        return v;
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t half)
    {
        const unsigned char *even = tile + offset(2 * b);
        if (half == 104) return reinterpret_cast<const uint16_t *>(even)[row];
        if (half >= 96) {
            const uint32_t i = 2 * (half - 96), u = i / 8;
            return *reinterpret_cast<const uint16_t *>(plane(tile + offset(2 * b + u), u) + row * 8 + i % 8) ^ 0x8080u;
        }
        auto bit = [&](uint32_t v, uint32_t n) { /* bit n of quant v */
            const uint32_t u = v / 128, lane = row % 8 * 4 + v % 16 / 4;
            uint32_t w, at;
            wk_six_at(v / 16 % 2 * 4 + row / 8 * 2 + v % 4 / 2, v % 2, n, &w, &at);
            w += v % 128 / 32 * 3;
            return *reinterpret_cast<const uint32_t *>(plane(tile + offset(2 * b + u), u) + 128 + (w / 4 * 32 + lane) * 16 + w % 4 * 4) >> at & 1u;
        };
        uint32_t x = 0;
        for (uint32_t i = 0; i < 16; i++) {
            const uint32_t at = 2 * half + i / 8;
            x |= (at < 128 ? bit(at / 64 * 128 + at % 64 + i % 8 / 4 * 64, i % 4) : bit((at - 128) / 32 * 128 + (at - 128) % 32 + i % 8 / 2 * 32, 4 + i % 2)) << i;
        }
        return x;
    }
};

#endif
