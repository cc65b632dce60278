/* quant-iq4/cuda/tiles_iq4.cu: IQ4_NL and IQ4_XS but for products. */
#include <worker/cuda/tiles.cuh>

#include "iq4_nl.cuh"
#include "iq4_xs.cuh"

WK_TYPE_CUDA(iq4_nl_cuda, iq4_nl);
WK_TYPE_CUDA(iq4_xs_cuda, iq4_xs);

extern "C" wk_status quant_iq4_image(int32_t device, const struct wk_err *err)
{
    return wk_check_image((const void *)wk_gather_rows<iq4_nl>, device, WK_CUDA_BUILT, err);
}
