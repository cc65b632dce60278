/* quant-basic/cuda/plain.cuh: F16, BF16 and F32 on the device (contract: worker/cuda/format.cuh): single values, in the
 * order of the fragments.
 *
 * 32 values of the 16 rows: for rows g, then g + 8, chunks of 16 bytes of all lanes: lane (g, t) has values 8t .. 8t +
 * 7. k that is no multiple of 32 is filled up with zeros.
 *
 * Tensor cores read f16. BF16 and F32 have a wider range, so each row's 32 values are multiplied by a power of two that
 * brings the largest below 2^15, and the group's scale is its inverse; one byte a row, behind the values, holds that
 * scale's exponent. A BF16 value is then exact unless it is 2^31 times smaller than the largest of its 32 (and never
 * off by more than 2^-39 of that one). F32 is the sum of two halves, 22 bits and a sign, down to 2^-28 of the largest.
 * The tile holds the bits of the file in any case: unpack and gather are exact. */
#ifndef QUANT_BASIC_CUDA_PLAIN_CUH
#define QUANT_BASIC_CUDA_PLAIN_CUH

#include <worker/cuda/format.cuh>

/* Where value k of a row lies; values of BYTES bytes, 32 of the 16 rows every `stride` bytes. */
template <uint32_t BYTES> __device__ __forceinline__ uint64_t plain_at(uint32_t row, uint32_t k, uint32_t stride)
{
    const uint32_t chunk = row / 8 * (BYTES / 2) + k % 8 * BYTES / 16;
    return (uint64_t)(k / 32) * stride + (chunk * 32 + row % 8 * 4 + k % 32 / 8) * 16 + k * BYTES % 16;
}

/* Word w of the 32 values from `first` on. */
template <class F> __device__ __forceinline__ uint32_t plain_word(const wk_tile_rows &r, uint32_t first, uint32_t w)
{
    constexpr uint32_t bytes = F::block_bytes;
    const uint32_t chunk = w / 128, lane = w / 4 % 32, row = lane / 4 + chunk / (bytes / 2) * 8,
                   k = first + lane % 4 * 8 + chunk % (bytes / 2) * (16 / bytes) + w % 4 * 4 / bytes;
    return bytes == 2 ? r.half<F>(row, k, 0) | r.half<F>(row, k + 1, 0) << 16
                      : r.half<F>(row, k, 0) | r.half<F>(row, k, bytes - 2) << 16;
}

/* The byte behind the values: exponent of the scale 2^(s - 127) of 32 values of a row, whose upper 16 bits have the
 * exponent at bit 7: the largest value times 2^(127 - s) is below 2^15. */
template <class F> __device__ __forceinline__ uint32_t plain_scale(const wk_tile_rows &r, uint32_t row, uint32_t first)
{
    uint32_t e = 15;
    for (uint32_t i = 0; i < 32; i++) e = max(e, r.half<F>(row, first + i, F::block_bytes - 2) >> 7 & 255u);
    return min(e, 254u) - 14;
}
template <class F>
__device__ __forceinline__ uint32_t plain_scales(const wk_tile_rows &r, uint32_t first,
                                                 uint32_t w) /* rows 2w, 2w + 8, 2w + 1, 2w + 9 */
{
    return plain_scale<F>(r, 2 * w, first) | plain_scale<F>(r, 2 * w + 8, first) << 8 |
           plain_scale<F>(r, 2 * w + 1, first) << 16 | plain_scale<F>(r, 2 * w + 9, first) << 24;
}
__device__ __forceinline__ float plain_power(uint32_t s) { return __uint_as_float(s << 23); }
__device__ __forceinline__ uint32_t plain_halves(float a, float b)
{
    const __half2 h = __floats2half2_rn(a, b);
    return *reinterpret_cast<const uint32_t *>(&h);
}

struct f16 {
    static constexpr uint32_t type = 1, block = 1, block_bytes = 2, unit = 64, super = 1, group = 32, slot = 2048,
                              parts = 1, mins = 0;
    static constexpr float bias0 = 0.0f, bias1 = 0.0f;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)u * 2048; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)((k + 31) / 32) * 1024;
    }

    struct scales {
    };
    struct quants {
        uint4 q[2][2];
    };
    static __device__ __forceinline__ void load(scales &, const unsigned char *, uint32_t, uint32_t) {}
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t, uint32_t lane)
    {
#pragma unroll
        for (int i = 0; i < 4; i++) q.q[i / 2][i % 2] = reinterpret_cast<const uint4 *>(unit)[i * 32 + lane];
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4])
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint4 v = q.q[b][h];
            a[0][0][h] = v.x;
            a[0][0][h + 2] = v.y;
            a[0][1][h] = v.z;
            a[0][1][h + 2] = v.w;
        }
    }
    static constexpr float unscale = 1.0f;
    template <bool>
    static __device__ __forceinline__ void halves(const quants &q, const scales &, uint32_t, uint32_t b,
                                                  uint32_t a[1][2][4])
    {
        fragments(q, b, a);
    }
    static __device__ __forceinline__ float2 scale(const scales &, uint32_t) { return make_float2(1.0f, 1.0f); }
    static __device__ __forceinline__ void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])
    {
        const uint4 q = *reinterpret_cast<const uint4 *>(tile + plain_at<2>(row, 8 * i, 1024));
        const uint32_t w[4] = { q.x, q.y, q.z, q.w };
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const float2 f = wk_half2_float(w[j]);
            v[2 * j] = f.x;
            v[2 * j + 1] = f.y;
        }
    }

    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        return plain_word<f16>(r, u * 64 + word / 256 * 32, word % 256);
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t k, uint32_t)
    {
        return *reinterpret_cast<const uint16_t *>(tile + plain_at<2>(row, k, 1024));
    }
};

struct bf16 : wk_read_in_pieces {
    static constexpr bool exact = true;
    static constexpr uint32_t type = 30, block = 1, block_bytes = 2, unit = 64, super = 1, group = 32, slot = 2080,
                              parts = 1, mins = 0;
    static constexpr float bias0 = 0.0f, bias1 = 0.0f;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)u * 2080; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)((k + 31) / 32) * 1040;
    }

    struct scales {
        uint32_t s[2];
    };
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t, uint32_t lane)
    {
#pragma unroll
        for (int b = 0; b < 2; b++) s.s[b] = *reinterpret_cast<const uint16_t *>(unit + b * 1040 + 1024 + lane / 4 * 2);
    }
    using wk_read_in_pieces::load;
    static __device__ __forceinline__ uint32_t halves(uint32_t w, float f)
    {
        return plain_halves(__fmul_rn(__uint_as_float(w << 16), f), __fmul_rn(__uint_as_float(w & 0xffff0000u), f));
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4])
    {
        const unsigned char *at = q.unit + b * 1040;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const uint4 v = reinterpret_cast<const uint4 *>(at)[h * 32 + q.lane];
            const float f = plain_power(254 - at[1024 + q.lane / 4 * 2 + h]);
            a[0][0][h] = halves(v.x, f);
            a[0][0][h + 2] = halves(v.y, f);
            a[0][1][h] = halves(v.z, f);
            a[0][1][h + 2] = halves(v.w, f);
        }
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i)
    {
        return make_float2(plain_power(s.s[i] & 255u), plain_power(s.s[i] >> 8));
    }
    static __device__ __forceinline__ void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])
    {
        const uint4 q = *reinterpret_cast<const uint4 *>(tile + plain_at<2>(row, 8 * i, 1040));
        const uint32_t w[4] = { q.x, q.y, q.z, q.w };
#pragma unroll
        for (int j = 0; j < 4; j++) {
            v[2 * j] = __uint_as_float(w[j] << 16);
            v[2 * j + 1] = __uint_as_float(w[j] & 0xffff0000u);
        }
    }

    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t first = u * 64 + word / 260 * 32, w = word % 260;
        return w < 256 ? plain_word<bf16>(r, first, w) : plain_scales<bf16>(r, first, w - 256);
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t k, uint32_t)
    {
        return *reinterpret_cast<const uint16_t *>(tile + plain_at<2>(row, k, 1040));
    }
};

struct f32 : wk_read_in_pieces {
    static constexpr bool exact = true;
    static constexpr uint32_t type = 0, block = 1, block_bytes = 4, unit = 64, super = 1, group = 32, slot = 4128,
                              parts = 2, mins = 0;
    static constexpr float bias0 = 0.0f, bias1 = 0.0f;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)u * 4128; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)((k + 31) / 32) * 2064;
    }
    static __device__ __forceinline__ float part_scale(uint32_t part) { return part ? 1.0f / 2048 : 1.0f; }

    struct scales {
        uint32_t s[2];
    };
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t, uint32_t lane)
    {
#pragma unroll
        for (int b = 0; b < 2; b++) s.s[b] = *reinterpret_cast<const uint16_t *>(unit + b * 2064 + 2048 + lane / 4 * 2);
    }
    using wk_read_in_pieces::load;
    /* x = high + low / 2048 */
    static __device__ __forceinline__ void split(float x, float y, uint32_t &high, uint32_t &low)
    {
        high = plain_halves(x, y);
        const float2 h = wk_half2_float(high);
        low = plain_halves(__fmul_rn(__fsub_rn(x, h.x), 2048.0f), __fmul_rn(__fsub_rn(y, h.y), 2048.0f));
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[2][2][4])
    {
        const unsigned char *at = q.unit + b * 2064;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float f = plain_power(254 - at[2048 + q.lane / 4 * 2 + h]);
#pragma unroll
            for (int i = 0; i < 2; i++) {
                const float4 v = reinterpret_cast<const float4 *>(at)[(2 * h + i) * 32 + q.lane];
                split(__fmul_rn(v.x, f), __fmul_rn(v.y, f), a[0][i][h], a[1][i][h]);
                split(__fmul_rn(v.z, f), __fmul_rn(v.w, f), a[0][i][h + 2], a[1][i][h + 2]);
            }
        }
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t i)
    {
        return make_float2(plain_power(s.s[i] & 255u), plain_power(s.s[i] >> 8));
    }
    static __device__ __forceinline__ void eight(const unsigned char *tile, uint32_t row, uint32_t i, float v[8])
    {
#pragma unroll
        for (int c = 0; c < 2; c++) {
            const float4 q = *reinterpret_cast<const float4 *>(tile + plain_at<4>(row, 8 * i + 4 * c, 2064));
            v[4 * c] = q.x;
            v[4 * c + 1] = q.y;
            v[4 * c + 2] = q.z;
            v[4 * c + 3] = q.w;
        }
    }

    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t first = u * 64 + word / 516 * 32, w = word % 516;
        return w < 512 ? plain_word<f32>(r, first, w) : plain_scales<f32>(r, first, w - 512);
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t k,
                                                      uint32_t half)
    {
        return *reinterpret_cast<const uint16_t *>(tile + plain_at<4>(row, k, 2064) + 2 * half);
    }
};

#endif
