/* worker/cuda/select/launch.cuh: how a chosen kernel is launched. */
#ifndef WORKER_CUDA_SELECT_LAUNCH_CUH
#define WORKER_CUDA_SELECT_LAUNCH_CUH

#include <cuda_runtime.h>
#include <stdint.h>

/* A launch of a grid of one cluster until the caller says more. Not to be copied: config points at attributes. */
struct wk_launch {
    cudaLaunchConfig_t config;
    cudaLaunchAttribute attributes[2];

    /* cluster: blocks of a cluster; 0: launched without clusters, which older devices do not know. */
    wk_launch(uint32_t threads, uint32_t shared, uint32_t cluster) : config(), attributes()
    {
        config.gridDim = dim3(cluster);
        config.blockDim = dim3(threads);
        config.dynamicSmemBytes = shared;
        config.attrs = attributes;
        if (!cluster) return;
        attributes[0].id = cudaLaunchAttributeClusterDimension;
        attributes[0].val.clusterDim = { cluster, 1, 1 };
        config.numAttrs = 1;
    }
    wk_launch(const wk_launch &) = delete;
    /* It may begin before what precedes it in the stream has ended. */
    void pdl()
    {
        cudaLaunchAttribute &a = attributes[config.numAttrs++];
        a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        a.val.programmaticStreamSerializationAllowed = 1;
    }
};

#endif
