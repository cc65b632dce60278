/* wgmma.cuh: tensor products of a warpgroup on sm_90a, operands in shared memory in blocks of 8 x 8 halves (128 bytes, no swizzle).
 *
 * Fragments of the four warps are those of mma.cuh, warp w having rows 16 w ..; the accumulator of n columns is n / 8 C fragments. Other
 * architectures compile to a trap: nobody launches these kernels there. */
#ifndef CORE_DEVICE_CUDA_WGMMA_CUH
#define CORE_DEVICE_CUDA_WGMMA_CUH

#include <stdint.h>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HAS_WGMMA 1
#else
#define HAS_WGMMA 0
#endif

/* What the hardware reads: start, the distance from block to block along k, and along rows (straight) or columns; for a transposed operand the
 * distances change places. Bytes, multiples of 16. */
__device__ __forceinline__ uint64_t wgmma_operand(uint32_t address, uint32_t lead, uint32_t stride)
{
    return (uint64_t)((address & 0x3ffffu) >> 4) | (uint64_t)(lead >> 4) << 16 | (uint64_t)(stride >> 4) << 32;
}

__device__ __forceinline__ void wgmma_begin()
{
#if HAS_WGMMA
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
/* What was written by ordinary stores and copies becomes visible to the tensor cores; before the barrier that follows. */
__device__ __forceinline__ void wgmma_publish()
{
#if HAS_WGMMA
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
__device__ __forceinline__ void wgmma_commit()
{
#if HAS_WGMMA
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
template <int N> __device__ __forceinline__ void wgmma_wait()
{
#if HAS_WGMMA
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#endif
}

#define ACC4(c, i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define ACC16(c, i) ACC4(c, i), ACC4(c, i + 1), ACC4(c, i + 2), ACC4(c, i + 3)
#define REGISTERS32 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define REGISTERS48 REGISTERS32 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define REGISTERS64 REGISTERS48 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

/* c (=, with `more`: +=) A B^T, 64 x 64, both straight in shared memory. */
__device__ __forceinline__ void wgmma_64(float (&c)[8][4], uint64_t a, uint64_t b, bool more)
{
#if HAS_WGMMA
    asm volatile("{.reg .pred p; setp.ne.b32 p,%34,0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" REGISTERS32 "},%32,%33,p,1,1,0,0;}"
                 : ACC16(c, 0), ACC16(c, 4)
                 : "l"(a), "l"(b), "r"((int)more));
#else
    asm volatile("trap;");
    (void)c, (void)a, (void)b, (void)more;
#endif
}

/* c += A B, A in registers, B transposed in shared memory. */
__device__ __forceinline__ void wgmma_add(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b)
{
#if HAS_WGMMA
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" REGISTERS32 "},{%32,%33,%34,%35},%36,1,1,1,1;"
                 : ACC16(c, 0), ACC16(c, 4)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#else
    (void)c, (void)a, (void)b;
#endif
}
__device__ __forceinline__ void wgmma_add(float (&c)[12][4], const uint32_t (&a)[4], uint64_t b)
{
#if HAS_WGMMA
    asm volatile("wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 {" REGISTERS48 "},{%48,%49,%50,%51},%52,1,1,1,1;"
                 : ACC16(c, 0), ACC16(c, 4), ACC16(c, 8)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#else
    (void)c, (void)a, (void)b;
#endif
}
__device__ __forceinline__ void wgmma_add(float (&c)[16][4], const uint32_t (&a)[4], uint64_t b)
{
#if HAS_WGMMA
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" REGISTERS64 "},{%64,%65,%66,%67},%68,1,1,1,1;"
                 : ACC16(c, 0), ACC16(c, 4), ACC16(c, 8), ACC16(c, 12)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#else
    (void)c, (void)a, (void)b;
#endif
}

#endif
