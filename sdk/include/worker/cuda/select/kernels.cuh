/* worker/cuda/select/kernels.cuh: the kernels of a family of formats as pointers, by their rows of the table: the one
 * place where kernels are instantiated, those of one set in a compilation (kernel_set.cuh). */
#ifndef WORKER_CUDA_SELECT_KERNELS_CUH
#define WORKER_CUDA_SELECT_KERNELS_CUH

#include <worker/cuda/kernel_set.cuh>
#include <worker/cuda/select/launch.cuh>
#include <worker/cuda/select/table.cuh>

/* The set that a kernel is of, by what it needs. */
constexpr uint32_t wk_kernel_set_of(uint32_t kernel)
{
    const uint32_t needs = wk_kernels[kernel].needs;
    if (needs & WK_NEEDS_8X) return WK_KERNEL_SET_8X;
    return needs & WK_CUDA_CAN_WGMMA ? WK_KERNEL_SET_WGMMA : needs ? WK_KERNEL_SET_CLUSTERS : WK_KERNEL_SET_BASE;
}
/* Is there a kernel in row KERNEL for launches with formats F? Kernels of integer products take at most four records of
 * several formats: there are no registers for more. */
template <uint32_t KERNEL, class... F> constexpr bool wk_kernel_exists()
{
    constexpr wk_kernel_row row = wk_kernels[KERNEL];
    constexpr uint32_t traits = wk_launch_traits<F...>();
    if (row.products == WK_PRODUCTS_EXPERTS && traits & WK_TRAIT_SEVERAL) return false;
    return !(row.formats.only & ~traits) && !(row.formats.not_with & traits);
}
/* NULL: there is none. */
template <uint32_t KERNEL, class... F> static const void *wk_kernel_pointer()
{
    constexpr int tiles = (int)wk_kernels[KERNEL].tiles;
    if constexpr (!wk_kernel_exists<KERNEL, F...>())
        return NULL;
    else if constexpr (KERNEL == WK_KERNEL_MOE_ONE)
        return (const void *)wk_product_moe_one<F...>;
    else if constexpr (KERNEL == WK_KERNEL_MOE_DECODE)
        return (const void *)wk_product_moe_decode<1, F...>;
    else if constexpr (KERNEL <= WK_KERNEL_MOE_SEVERAL8)
        return (const void *)wk_product_moe_several<8 * tiles, F...>;
    else if constexpr (KERNEL <= WK_KERNEL_INT8_8)
        return (const void *)wk_product_int8<tiles, F...>;
    else if constexpr (KERNEL <= WK_KERNEL_SPLIT_K64)
        return (const void *)wk_product_split_k<tiles, F...>;
    else if constexpr (KERNEL <= WK_KERNEL_RESIDENT_CLUSTER16)
        return (const void *)wk_product_resident_cluster<tiles, F...>;
    else if constexpr (KERNEL <= WK_KERNEL_RESIDENT16)
        return (const void *)wk_product_resident<tiles, F...>;
    else if constexpr (KERNEL <= WK_KERNEL_LM_HEAD_WGMMA64)
        return (const void *)wk_product_lm_head_wgmma<tiles, F...>;
    else if constexpr (KERNEL == WK_KERNEL_LM_HEAD32)
        return (const void *)wk_product_lm_head<tiles, F...>;
    else if constexpr (KERNEL <= WK_KERNEL_STREAM32)
        return (const void *)wk_product_stream<tiles, F...>;
    else if constexpr (KERNEL <= WK_KERNEL_STREAM_WGMMA32)
        return (const void *)wk_product_stream_wgmma<tiles, F...>;
    else if constexpr (KERNEL <= WK_KERNEL_MULTISTAGE8)
        return (const void *)wk_product_multistage<tiles, F...>;
    else if constexpr (KERNEL == WK_KERNEL_GEMV_TALL)
        return (const void *)wk_product_gemv_tall<F...>;
    else if constexpr (KERNEL == WK_KERNEL_GEMV1)
        return (const void *)wk_product_gemv<1, F...>;
    else
        return (const void *)wk_product_gemv<8, F...>;
}

struct wk_kernel_pointers {
    const void *of[WK_KERNELS][WK_TYPES_MAX + 1]; /* by kernel and format (n_formats: several side by side) */
    const void *int8_rows; /* what makes integers of activations before a kernel of integer products; NULL: none */
};
/* Those of a set; the others stay as they are. */
template <uint32_t SET, uint32_t KERNEL, class First, class... Rest>
static void wk_kernel_pointers_of(wk_kernel_pointers *p)
{
    if constexpr (KERNEL == WK_KERNELS) {
        if constexpr (SET == WK_KERNEL_SET_BASE && wk_is_int8<First>::yes)
            p->int8_rows = (const void *)wk_int8_rows<First>;
    } else if constexpr (wk_kernel_set_of(KERNEL) != SET) {
        wk_kernel_pointers_of<SET, KERNEL + 1, First, Rest...>(p);
    } else {
        const void *const row[] = { wk_kernel_pointer<KERNEL, First>(), wk_kernel_pointer<KERNEL, Rest>()...,
                                    sizeof...(Rest) ? wk_kernel_pointer<KERNEL, First, Rest...>() : NULL };
        for (uint32_t i = 0; i < sizeof row / sizeof *row; i++) p->of[KERNEL][i] = row[i];
        wk_kernel_pointers_of<SET, KERNEL + 1, First, Rest...>(p);
    }
}

/* Clusters of 1, 2, 4, 8 blocks that the device holds at once, of all blocks a multiprocessor that the kernel is meant
 * to have, with all memory that these may have. k: NULL: by rule. */
static inline void wk_kernel_clusters(const void *k, uint32_t kernel, uint32_t format, wk_target *t)
{
    const wk_kernel_row &row = wk_kernels[kernel];
    for (uint32_t log_blocks = 0; 1u << log_blocks <= row.launch.cluster; log_blocks++) {
        const uint32_t blocks = 1u << log_blocks, together = row.launch.together;
        int n = (int)(together * t->device.processors);
        if (blocks > 1 && t->device.can & WK_CUDA_CAN_CLUSTERS) {
            if (!k) {
                n = (int)wk_clusters_by_rule(&t->device, blocks, together);
            } else {
                wk_launch launch(row.launch.threads, wk_room(t->device, together), blocks);
                if (cudaOccupancyMaxActiveClusters(&n, k, &launch.config) != cudaSuccess) n = 0;
                (void)cudaGetLastError();
            }
        }
        t->clusters[kernel][format][log_blocks] = n > 0 ? (uint32_t)n : 0;
    }
}
/* Once a device: kernels are made ready, and the driver is asked for the clusters that it holds at once. */
static inline wk_status wk_kernels_open(const wk_kernel_pointers &kernels, wk_target *t, const struct wk_err *err)
{
    for (uint32_t kernel = 0; kernel < WK_KERNELS; kernel++)
        for (uint32_t format = 0; format <= t->family->n_formats; format++) {
            const void *const k = kernels.of[kernel][format];
            if (!k || wk_row_lacks(wk_kernels[kernel], t->device)) continue;
            const wk_status status = wk_product_prepare(k, t->device.block_bytes, err);
            if (status) return status;
            wk_kernel_clusters(k, kernel, format, t);
        }
    return kernels.int8_rows ? wk_product_prepare(kernels.int8_rows, t->device.block_bytes, err) : WK_OK;
}

#endif
