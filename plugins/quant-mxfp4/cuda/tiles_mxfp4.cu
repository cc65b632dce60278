/* quant-mxfp4/cuda/tiles_mxfp4.cu: MXFP4 and NVFP4 but for products. */
#include <worker/cuda/tiles.cuh>

#include "mxfp4.cuh"
#include "nvfp4.cuh"

WK_TYPE_CUDA(mxfp4_cuda, mxfp4);
WK_TYPE_CUDA(nvfp4_cuda, nvfp4);

extern "C" wk_status quant_mxfp4_image(int32_t device, const struct wk_err *err)
{
    return wk_check_image((const void *)wk_gather_rows<mxfp4>, device, WK_CUDA_BUILT, err);
}
