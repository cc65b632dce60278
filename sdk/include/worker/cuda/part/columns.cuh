/* worker/cuda/part/columns.cuh: activations in shared memory as the tensor cores' B operand reads them. */
#ifndef WORKER_CUDA_PART_COLUMNS_CUH
#define WORKER_CUDA_PART_COLUMNS_CUH

#include <cuda_fp16.h>
#include <stdint.h>

#include <worker/cuda/part/weights.cuh>

/* B of the same 32 values: four words of the lane's column x, f16 from the unit's first k on, where it reads them
 * (format.cuh). */
template <class F>
__device__ __forceinline__ void wk_column_words(uint32_t x4[4], const __half *x, uint32_t b, uint32_t t)
{
    if constexpr (F::group == 32 || wk_is_int8<F>::yes) {
        const uint4 v =
            *reinterpret_cast<const uint4 *>(x + (F::group == 16 ? b / 2 * 64 + t * 16 + b % 2 * 8 : b * 32 + t * 8));
        x4[0] = v.x, x4[1] = v.y, x4[2] = v.z, x4[3] = v.w;
    } else {
        const uint2 low = *reinterpret_cast<const uint2 *>(x + b * 32 + t * 4),
                    high = *reinterpret_cast<const uint2 *>(x + b * 32 + 16 + t * 4);
        x4[0] = low.x, x4[1] = low.y, x4[2] = high.x, x4[3] = high.y;
    }
}
/* Halves that stand between two columns, so that lanes which load together meet no other's banks. */
template <class F> __host__ __device__ constexpr uint32_t wk_column_pad()
{
    return F::group == 32 ? 32 : wk_is_int8<F>::yes ? 8 : 16;
}

/* Where chunk `lane` of a run's 32 (8 columns' 64 bytes) stands: groups of 32 as lanes read them; groups of 16, of
 * which a lane reads two halves of chunks, so that no banks collide. */
__device__ __forceinline__ uint32_t wk_run_place(uint32_t group, uint32_t lane)
{
    return (group == 32 ? lane : lane ^ (lane >> 2 & 2u)) * 16;
}
/* A lane's words of column tile n of run i. */
template <class T, int NT> struct wk_run_words {
    const unsigned char *at;
    int32_t other; /* groups of 16: from the first half to the second */
    __device__ __forceinline__ wk_run_words(const unsigned char *x, uint32_t lane)
        : at(x +
             (T::group == 32 ? lane * 16 : lane / 4 * 64 + ((lane / 2 & 1u) ^ (lane >> 2 & 2u)) * 16 + lane % 2 * 8)),
          other(lane & 8u ? -32 : 32)
    {
    }
    __device__ __forceinline__ wk_run_words(const unsigned char *from, int32_t apart) : at(from), other(apart) {}
    __device__ __forceinline__ uint4 read(uint32_t i, uint32_t n) const
    {
        const unsigned char *const v = at + (i * NT + n) * 512;
        if (T::group == 32) return *reinterpret_cast<const uint4 *>(v);
        const uint2 low = *reinterpret_cast<const uint2 *>(v), high = *reinterpret_cast<const uint2 *>(v + other);
        return make_uint4(low.x, low.y, high.x, high.y);
    }
    __device__ __forceinline__ wk_run_words runs(uint32_t i) const { return wk_run_words(at + i * NT * 512, other); }
};
/* A lane's words of a run of 32 values. */
__device__ __forceinline__ uint4 wk_read_run(const __half *from, uint32_t group)
{
    if (group == 32) return __ldcg(reinterpret_cast<const uint4 *>(from));
    const uint2 low = __ldcg(reinterpret_cast<const uint2 *>(from)),
                high = __ldcg(reinterpret_cast<const uint2 *>(from + 16));
    return make_uint4(low.x, low.y, high.x, high.y);
}
/* What lane (c, t) has of a run of 32 values of column c of eight: chunk p of 16 bytes, the p-th pair of all lanes t,
 * goes where lane 8 p + c says. */
__device__ __forceinline__ void wk_store_run(uint32_t to, const uint4 &v)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(v.x), "r"(v.y),
                 "r"(v.z), "r"(v.w)
                 : "memory");
}

#endif
