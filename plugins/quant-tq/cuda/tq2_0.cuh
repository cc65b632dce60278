/* quant-tq/cuda/tq2_0.cuh: TQ2_0 on the device (contract: worker/cuda/format.cuh).
 *
 * A super-unit is one block of the 16 rows, in two units of four 32s. The even one begins with 8 x { d of row g, d of
 * row g + 8 }. Quants of a unit, of each lane: two words of row g, two of row g + 8; pair p of 8 of a word at bits 2 p
 * and 2 p + 16: four pairs of a 32, then of the next. Under the exponent of 1024 two bits are 1024 + q. */
#ifndef QUANT_TQ_CUDA_TQ2_0_CUH
#define QUANT_TQ_CUDA_TQ2_0_CUH

#include <worker/cuda/format.cuh>

struct tq2_0 {
    static constexpr uint32_t type = 35, block = 256, block_bytes = 66, unit = 128, super = 2, group = 32, slot = 544,
                              parts = 1, mins = 0, head = 32;
    static constexpr float bias0 = 1025.0f, bias1 = 1025.0f;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u)
    {
        return (uint64_t)(u / 2) * 1056 + u % 2 * 544;
    }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 256) * 1056;
    }

    struct scales {
        uint32_t d;
    };
    struct quants {
        uint4 w;
    };
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        if (u % 2 == 0) s.d = reinterpret_cast<const uint32_t *>(unit)[lane / 4];
    }
    static __device__ __forceinline__ void load(quants &q, const unsigned char *unit, uint32_t u, uint32_t lane)
    {
        q.w = reinterpret_cast<const uint4 *>(unit + (u % 2 ? 0 : head))[lane];
    }
    static __device__ __forceinline__ void fragments(const quants &q, uint32_t b, uint32_t a[1][2][4])
    {
        uint32_t x[4], y[4], c;
        asm("mov.b32 %0, 0x64006400;" : "=r"(c)); /* from a register, or the mask and it are two instructions */
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t bit = b % 2 * 8 + 2 * i;
            x[i] = wk_and_or((b < 2 ? q.w.x : q.w.y) >> bit, 0x00030003u, c);
            y[i] = wk_and_or((b < 2 ? q.w.z : q.w.w) >> bit, 0x00030003u, c);
        }
        wk_rows_fragments(x, y, a[0]);
    }
    static __device__ __forceinline__ float2 scale(const scales &s, uint32_t) { return wk_half2_float(s.d); }

    static __device__ __forceinline__ uint32_t pack(const wk_tile_rows &r, uint32_t u, uint32_t word)
    {
        const uint32_t b = u / 2;
        if (u % 2 == 0 && word < head / 4) return r.half<tq2_0>(word, b, 64) | r.half<tq2_0>(word + 8, b, 64) << 16;
        if (u % 2 == 0) word -= head / 4;
        const uint32_t lane = word / 4, row = lane / 4 + word / 2 % 2 * 8;
        uint32_t v = 0;
        for (uint32_t p = 0; p < 16; p++) { /* value p % 8 of 32 number 2 (word % 2) + p / 8 */
            const uint32_t byte = r.byte<tq2_0>(row, b, u % 2 * 32 + lane % 4 * 8 + p % 8);
            v |= (byte >> (word % 2 * 4 + p / 8 * 2) & 3u) << (p / 2 * 2 + p % 2 * 16);
        }
        return v;
    }
    static __device__ __forceinline__ uint32_t byte_of(const unsigned char *tile, uint32_t row, uint32_t b, uint32_t i)
    {
        const uint32_t u = i / 32, lane = row % 8 * 4 + i % 32 / 8, j = i % 8;
        const uint32_t *w =
            reinterpret_cast<const uint32_t *>(tile + offset(2 * b + u) + (u ? 0 : head)) + lane * 4 + row / 8 * 2;
        uint32_t v = 0;
        for (uint32_t n = 0; n < 4; n++) v |= (w[n / 2] >> (n % 2 * 8 + j / 2 * 2 + j % 2 * 16) & 3u) << 2 * n;
        return v;
    }
    static __device__ __forceinline__ uint32_t unpack(const unsigned char *tile, uint32_t row, uint32_t b,
                                                      uint32_t half)
    {
        if (half == 32) return reinterpret_cast<const uint16_t *>(tile + offset(2 * b))[row % 8 * 2 + row / 8];
        return byte_of(tile, row, b, 2 * half) | byte_of(tile, row, b, 2 * half + 1) << 8;
    }
};

#endif
