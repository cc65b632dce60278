/* quant-tq/cuda/tq.cuh: what TQ1_0 and TQ2_0 share on the device (contract: worker/cuda/format.cuh,
 * worker/cuda/part/int8.cuh): a unit is one block of the 16 rows and ends with 8 x { d of row g, d of row g + 8 }; a
 * quant is its weight + 1. */
#ifndef QUANT_TQ_CUDA_TQ_CUH
#define QUANT_TQ_CUDA_TQ_CUH

#include <worker/cuda/format.cuh>
#include <worker/cuda/part/int8.cuh>

template <uint32_t TYPE, uint32_t BYTES> struct tq_tiles : wk_read_in_pieces {
    static constexpr uint32_t type = TYPE, block = 256, block_bytes = BYTES, unit = 256, super = 1, group = 16,
                              slot = 16 * BYTES, parts = 1, mins = 0, d_at = slot - 32;
    static __host__ __device__ __forceinline__ constexpr uint64_t offset(uint32_t u) { return (uint64_t)u * slot; }
    static __host__ __device__ __forceinline__ constexpr uint64_t tile_bytes(uint32_t k)
    {
        return (uint64_t)(k / 256) * slot;
    }
    static __device__ __forceinline__ uint32_t ds(const unsigned char *unit, uint32_t lane)
    {
        return reinterpret_cast<const uint32_t *>(unit + d_at)[lane / 4];
    }
    /* Of a single row; the word of both in pack(). */
    static __device__ __forceinline__ uint32_t d_of(const unsigned char *unit, uint32_t row)
    {
        return reinterpret_cast<const uint16_t *>(unit + d_at)[row % 8 * 2 + row / 8];
    }
    template <class F> static __device__ __forceinline__ uint32_t d_word(const wk_tile_rows &r, uint32_t b, uint32_t g)
    {
        return r.half<F>(g, b, BYTES - 2) | r.half<F>(g + 8, b, BYTES - 2) << 16;
    }

    /* ---- integers: bytes that are the quants; S: an int8_block, whose d ds() is ---- */
    static constexpr bool int8_mins = false;
    static constexpr float int8_unscale = 1.0f;
    template <class S>
    static __device__ __forceinline__ float int8_value(const S &s, uint32_t h, int32_t sum, int32_t all)
    {
        const float2 d = wk_half2_float(s.d);
        return __fmul_rn((float)(sum - all), h ? d.y : d.x);
    }

    /* ---- halves ---- */
    struct scales {
        uint32_t d;
    };
    static __device__ __forceinline__ void load(scales &s, const unsigned char *unit, uint32_t, uint32_t lane)
    {
        s.d = ds(unit, lane);
    }
    using wk_read_in_pieces::load;
    static constexpr float unscale = 1.0f;
};

#endif
