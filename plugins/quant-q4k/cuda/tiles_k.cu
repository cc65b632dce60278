/* quant-q4k/cuda/tiles_k.cu: Q4_K, Q5_K and Q6_K but for products. */
#include <worker/cuda/tiles.cuh>

#include "q4_k.cuh"
#include "q5_k.cuh"
#include "q6_k.cuh"

WK_TYPE_CUDA(q4_k_cuda, q4_k);
WK_TYPE_CUDA(q5_k_cuda, q5_k);
WK_TYPE_CUDA(q6_k_cuda, q6_k);

extern "C" wk_status quant_q4k_image(int32_t device, const struct wk_err *err)
{
    return wk_check_image((const void *)wk_gather_rows<q4_k>, device, WK_CUDA_BUILT, err);
}
