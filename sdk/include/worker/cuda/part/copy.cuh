/* worker/cuda/part/copy.cuh: copies from global to shared memory: asynchronous ones of a lane, and bulk copies. */
#ifndef WORKER_CUDA_PART_COPY_CUH
#define WORKER_CUDA_PART_COPY_CUH

#include <stdint.h>

#include <worker/cuda/image.cuh>
#include <worker/cuda/part/barrier.cuh>

/* 16 bytes from global to shared memory, past L1; the part past `bytes` (0 or 16) is zeros. */
__device__ __forceinline__ void wk_copy16(uint32_t shared, const void *global)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
}
__device__ __forceinline__ void wk_copy16_part(uint32_t shared, const void *global, uint32_t bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
}
__device__ __forceinline__ void wk_copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N> __device__ __forceinline__ void wk_copy_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* The groups of copies that a lane has committed have arrived, but for the last `n` of them, at most 4. */
__device__ __forceinline__ void wk_copy_wait_but(uint32_t n)
{
    if (n == 0)
        wk_copy_wait<0>();
    else if (n == 1)
        wk_copy_wait<1>();
    else if (n == 2)
        wk_copy_wait<2>();
    else if (n == 3)
        wk_copy_wait<3>();
    else
        wk_copy_wait<4>();
}

/* `bytes` bytes from `from`, then zeros up to `all`, both multiples of 16, by a whole warp. */
__device__ __forceinline__ void wk_copy_run_part(uint32_t to, const unsigned char *from, uint32_t bytes, uint32_t all,
                                                 uint32_t lane)
{
    uint32_t j = lane * 16;
#pragma unroll 1
    for (; j + 3 * 512 < bytes; j += 4 * 512)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) wk_copy16(to + j + i * 512, from + j + i * 512);
#pragma unroll 1
    for (; j < bytes; j += 512) wk_copy16(to + j, from + j);
#pragma unroll 1
    for (; j < all; j += 512) wk_copy16_part(to + j, from, 0);
}

/* The policy for what is read once a step: it makes room in L2 first, not code and what every layer reads again. */
__device__ __forceinline__ uint64_t wk_fetch_once()
{
    uint64_t once = 0;
#if WK_HAS_BULK_COPIES
    asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(once));
#endif
    return once;
}
__device__ __forceinline__ void wk_fetch(uint32_t to, const unsigned char *from, uint32_t bytes, uint32_t bar,
                                         uint64_t policy)
{
#if WK_HAS_BULK_COPIES
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
            "r"(to),
        "l"(from), "r"(bytes), "r"(bar), "l"(policy)
        : "memory");
#endif
}

/* The same of what others read, too. */
__device__ __forceinline__ void wk_fetch(uint32_t to, const unsigned char *from, uint32_t bytes, uint32_t bar)
{
#if WK_HAS_BULK_COPIES
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(bar)
                 : "memory");
#endif
}

/* One lane of a whole warp, and the compiler knows that it is one: what is the same in all lanes stays in the registers
 * that a copy reads, where `lane == 0` makes every copy a loop over lanes. */
__device__ __forceinline__ bool wk_elected()
{
    uint32_t is = 0;
#if WK_HAS_BULK_COPIES
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(is));
#endif
    return is;
}

/* Eight chunks from `from` + at, `apart` from each other, to `to` one after the other; what lies past `there` as zeros
 * if it lies before `end`. By a whole warp. */
__device__ __forceinline__ void wk_stage_copy8(uint32_t to, const unsigned char *from, uint32_t at, uint32_t chunk,
                                               uint32_t apart, uint32_t there, uint32_t end, uint32_t bar,
                                               uint32_t lane)
{
    auto length = [&](uint32_t i) { return at + i * apart < there ? min(chunk, there - (at + i * apart)) : 0u; };
    auto wanted = [&](uint32_t i) { return min(chunk, end - (at + i * apart)); };
#if WK_HAS_BULK_COPIES
    const bool whole = at + 7 * apart + chunk <= there;
    if (wk_elected()) {
        if (!whole && there < end) { /* near the end of a tile that is cut short */
#pragma unroll 1
            for (uint32_t i = 0; i < 8 && at + i * apart < end; i++)
#pragma unroll 1
                for (uint32_t j = length(i); j < wanted(i); j += 16)
                    asm volatile("st.shared.v4.u32 [%0], {%1,%1,%1,%1};" ::"r"(to + i * chunk + j), "r"(0) : "memory");
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
        const uint64_t once = wk_fetch_once();
        auto copy = [&](uint32_t t, uint32_t f, uint32_t bytes) { wk_fetch(t, from + f, bytes, bar, once); };
        if (chunk == apart) {
            const uint32_t bytes = min(8 * chunk, there - at);
            wk_bar_expect(bar, bytes);
            copy(to, at, bytes);
        } else if (whole) {
            wk_bar_expect(bar, 8 * chunk);
#pragma unroll
            for (uint32_t i = 0; i < 8; i++) copy(to + i * chunk, at + i * apart, chunk);
        } else {
            uint32_t bytes = 0;
            for (uint32_t i = 0; i < 8; i++) bytes += length(i);
            wk_bar_expect(bar, bytes);
#pragma unroll 1
            for (uint32_t i = 0; i < 8; i++)
                if (length(i)) copy(to + i * chunk, at + i * apart, length(i));
        }
    }
#else
    if (chunk == apart) {
        wk_copy_run_part(to, from + at, min(8 * chunk, there - at), min(8 * chunk, end - at), lane);
    } else if (at + 7 * apart + chunk <= there) {
#pragma unroll 1
        for (uint32_t j = lane * 16; j < chunk; j += 512)
#pragma unroll
            for (uint32_t i = 0; i < 8; i++) wk_copy16(to + i * chunk + j, from + (at + i * apart + j));
    } else {
#pragma unroll 1
        for (uint32_t i = 0; i < 8 && at + i * apart < end; i++)
            wk_copy_run_part(to + i * chunk, from + (at + i * apart), length(i), wanted(i), lane);
    }
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(bar) : "memory");
#endif
}

/* Ordinary stores to shared memory become visible to tensor cores and bulk copies; before the barrier that follows. */
__device__ __forceinline__ void wk_publish()
{
#if WK_HAS_BULK_COPIES
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

#endif
