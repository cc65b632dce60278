/* quant-iq/cuda/tiles_iq.cu: the types of grids but for products. */
#include <worker/cuda/tiles.cuh>

#include "iq1.cuh"
#include "iq2.cuh"
#include "iq3.cuh"

WK_TYPE_CUDA(iq2_xxs_cuda, iq2_xxs);
WK_TYPE_CUDA(iq2_xs_cuda, iq2_xs);
WK_TYPE_CUDA(iq3_xxs_cuda, iq3_xxs);
WK_TYPE_CUDA(iq1_s_cuda, iq1_s);
WK_TYPE_CUDA(iq3_s_cuda, iq3_s);
WK_TYPE_CUDA(iq2_s_cuda, iq2_s);
WK_TYPE_CUDA(iq1_m_cuda, iq1_m);

extern "C" wk_status quant_iq_image(int32_t device, const struct wk_err *err)
{
    return wk_check_image((const void *)wk_gather_rows<iq2_xxs>, device, WK_CUDA_BUILT, err);
}
