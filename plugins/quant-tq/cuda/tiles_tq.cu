/* quant-tq/cuda/tiles_tq.cu: TQ1_0 and TQ2_0 but for products. */
#include <worker/cuda/tiles.cuh>

#include "tq1_0.cuh"
#include "tq2_0.cuh"

WK_TYPE_CUDA(tq1_0_cuda, tq1_0);
WK_TYPE_CUDA(tq2_0_cuda, tq2_0);

extern "C" wk_status quant_tq_image(int32_t device, const struct wk_err *err)
{
    return wk_check_image((const void *)wk_gather_rows<tq2_0>, device, WK_CUDA_BUILT, err);
}
