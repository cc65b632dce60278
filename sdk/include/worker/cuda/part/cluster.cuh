/* worker/cuda/part/cluster.cuh: the blocks of a cluster: they wait for each other, and write into each other's shared
 * memory. */
#ifndef WORKER_CUDA_PART_CLUSTER_CUH
#define WORKER_CUDA_PART_CLUSTER_CUH

#include <stdint.h>

#include <worker/cuda/image.cuh>
#include <worker/cuda/part/barrier.cuh>

/* 16 bytes into the shared memory of block `rank` of the cluster, at the place that has this address in one's own, and
 * counted by its barrier. */
__device__ __forceinline__ void wk_cluster_send(uint32_t at, uint32_t bar, uint32_t rank, const float (&v)[4])
{
#if WK_HAS_CLUSTERS
    asm volatile("{ .reg .b32 to, bar; mapa.shared::cluster.u32 to, %0, %2; mapa.shared::cluster.u32 bar, %1, %2; "
                 "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [to], {%3,%4,%5,%6}, [bar]; }" ::"r"(at),
                 "r"(bar), "r"(rank), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3])
                 : "memory");
#endif
}
__device__ __forceinline__ void wk_cluster_arrive_at(uint32_t bar, uint32_t rank)
{
#if WK_HAS_CLUSTERS
    asm volatile("{ .reg .b32 bar; mapa.shared::cluster.u32 bar, %0, %1; "
                 "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [bar]; }" ::"r"(bar),
                 "r"(rank)
                 : "memory");
#endif
}
/* The same by a warp, at each block's barrier. */
__device__ __forceinline__ void wk_cluster_arrive_warp(uint32_t bar, uint32_t blocks, uint32_t lane)
{
    if (WK_BAR_WARP == 1) {
        if (lane < blocks) wk_cluster_arrive_at(bar, lane);
    } else {
        for (uint32_t rank = 0; rank < blocks; rank++) wk_cluster_arrive_at(bar, rank);
    }
}
__device__ __forceinline__ void wk_cluster_arrive()
{
#if WK_HAS_CLUSTERS
    asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
#endif
}
__device__ __forceinline__ void wk_cluster_wait()
{
#if WK_HAS_CLUSTERS
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

#endif
