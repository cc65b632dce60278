/* mma.cuh: the few instructions that attention is made of: f16 tensor products, fragment loads, asynchronous copies,
 * 2^x. sm_80 and later.
 *
 * Fragments of m16n8k16, lane = 4 g + t: A (row-major): a0 = (row g, k 2t 2t+1), a1 = (g + 8, 2t), a2 = (g, 2t + 8), a3
 * = (g + 8, 2t + 8); B: b0 = (k 2t 2t+1, column g), b1 = (k 2t+8 2t+9, column g); C: c0 c1 = (row g, columns 2t 2t+1),
 * c2 c3 = (row g + 8, the same columns). */
#ifndef CORE_DEVICE_CUDA_MMA_CUH
#define CORE_DEVICE_CUDA_MMA_CUH

#include <cuda_fp16.h>
#include <stdint.h>

#include <worker/cuda/image.cuh>
#include <worker/cuda/part/barrier.cuh>
#include <worker/cuda/part/copy.cuh>

__device__ __forceinline__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void mma_f16(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                                        uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* Four 8x8 matrices of f16; lanes 8 i .. 8 i + 7 give the addresses of matrix i's rows of 16 bytes. r[i] = (row g,
 * columns 2t 2t+1) of matrix i. */
__device__ __forceinline__ void load_matrices(uint32_t r[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
/* Two; lanes 0 .. 15 give addresses. */
__device__ __forceinline__ void load_matrices_2(uint32_t &r0, uint32_t &r1, uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1},[%2];"
                 : "=r"(r0), "=r"(r1)
                 : "r"(address)
                 : "memory");
}
/* load_matrices with r[i] = (rows 2t 2t+1, column g). */
__device__ __forceinline__ void load_matrices_turned(uint32_t r[4], uint32_t address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}
/* A matrix held as (row g, columns 2t 2t+1) becomes its transpose. */
__device__ __forceinline__ uint32_t turn_matrix(uint32_t x)
{
    uint32_t y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0,%1;" : "=r"(y) : "r"(x));
    return y;
}

__device__ __forceinline__ void copy16(uint32_t shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0],[%1],16;" ::"r"(shared), "l"(global) : "memory");
}
/* Nothing is read and zeros are written when !valid. */
__device__ __forceinline__ void copy16_or_zero(uint32_t shared, const void *global, bool valid)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0],[%1],16,%2;" ::"r"(shared), "l"(global), "r"(valid ? 16 : 0)
                 : "memory");
}
__device__ __forceinline__ void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* ---- copies of whole runs, and the barrier in shared memory at which they arrive ----------------------- */

/* For the copies of `warps` warps a phase; wk_stage_wait waits for one. Before others use it: a
 * barrier of the block. */
__device__ __forceinline__ void begin_barrier(uint32_t bar, uint32_t warps)
{
    wk_bar_init(bar, WK_BAR_COPIES * warps);
    wk_bar_init_done();
}
/* Between a lane's begin_barrier and its own use of it, for compute-sanitizer's racecheck alone (WK_RACECHECK): the
 * instruction that makes a barrier is a uniform one, which the tool books on another lane. */
__device__ __forceinline__ void begun_barriers()
{
#ifdef WK_RACECHECK
    __syncwarp();
#endif
}

#if !WK_HAS_BULK_COPIES
__device__ __forceinline__ void ask_lines(uint32_t shared, const void *global, uint32_t bytes)
{
    for (uint32_t i = (threadIdx.x & 31u) * 16; i < bytes; i += 512)
        copy16(shared + i, static_cast<const char *>(global) + i);
}
__device__ __forceinline__ void arrive_with_lines(uint32_t bar)
{
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
}
#endif

/* `bytes` (a multiple of 16, or 0) of global to shared memory, both 16-byte aligned, and an arrival;
 * by a whole warp. */
__device__ __forceinline__ void copy_run(uint32_t shared, const void *global, uint32_t bytes, uint32_t bar)
{
#if WK_HAS_BULK_COPIES
    if (threadIdx.x & 31u) return;
    wk_bar_expect(bar, bytes);
    if (bytes) /* what is read once a step makes room in L2 first, not what every layer reads again */
        asm volatile("{ .reg .b64 once; createpolicy.fractional.L2::evict_first.b64 once; "
                     "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                     "[%3], once; }" ::"r"(shared),
                     "l"(global), "r"(bytes), "r"(bar)
                     : "memory");
#else
    ask_lines(shared, global, bytes);
    arrive_with_lines(bar);
#endif
}
/* The same of two runs that lie behind each other in global memory. */
__device__ __forceinline__ void copy_two_runs(uint32_t first, uint32_t second, const void *global, uint32_t bytes,
                                              uint32_t bar)
{
    const unsigned char *const from = static_cast<const unsigned char *>(global);
#if WK_HAS_BULK_COPIES
    if (threadIdx.x & 31u) return;
    wk_bar_expect(bar, 2 * bytes);
    if (!bytes) return;
    wk_fetch(first, from, bytes, bar);
    wk_fetch(second, from + bytes, bytes, bar);
#else
    ask_lines(first, from, bytes);
    ask_lines(second, from + bytes, bytes);
    arrive_with_lines(bar);
#endif
}

/* 2^x: within 2 ulp, 2^0 = 1, 2^-inf = 0. */
__device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ uint32_t pack_half(float low, float high)
{
    const __half2 h = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t *>(&h);
}
__device__ __forceinline__ uint32_t half_bits(__half2 h) { return *reinterpret_cast<const uint32_t *>(&h); }

#endif
