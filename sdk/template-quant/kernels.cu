/* kernels.cu: the format's tiles on the device: packed, unpacked, expanded, gathered; products.cu has its products. */
#include <worker/cuda/tiles.cuh>

#include "format.cuh"

WK_TYPE_CUDA(format_type, format);

extern "C" wk_status format_image(int32_t device, const struct wk_err *err)
{
    return wk_check_image((const void *)wk_gather_rows<format>, device, WK_CUDA_BUILT, err);
}
