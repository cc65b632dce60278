/* kernels.cu: every kernel of the format, from its device header. */
#include <worker/cuda/product.cuh>
#include <worker/cuda/tiles.cuh>

#include "format.cuh"

WK_TYPE_CUDA(format_type, format);
WK_PRODUCT_FAMILY(format_family, format);

extern "C" wk_status format_image(int32_t device, const struct wk_err *err)
{
    return wk_check_image((const void *)wk_gather_rows<format>, device, WK_CUDA_BUILT, err);
}
