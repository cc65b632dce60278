/* quant-basic/cuda/tiles_plain.cu: F32, F16 and BF16 but for products. */
#include <worker/cuda/tiles.cuh>

#include "plain.cuh"

WK_TYPE_CUDA(f32_cuda, f32);
WK_TYPE_CUDA(f16_cuda, f16);
WK_TYPE_CUDA(bf16_cuda, bf16);

extern "C" wk_status quant_basic_image(int32_t device, const struct wk_err *err)
{
    return wk_check_image((const void *)wk_gather_rows<f32>, device, WK_CUDA_BUILT, err);
}
