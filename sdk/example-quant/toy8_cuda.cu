/* toy8_cuda.cu: every kernel of toy8, from its device header. */
#include <worker/cuda/product.cuh>
#include <worker/cuda/tiles.cuh>

#include "toy8.cuh"

WK_TYPE_CUDA(toy8_type, toy8);
WK_PRODUCT_FAMILY(toy8_family, toy8);

extern "C" wk_status toy8_image(int32_t device, const struct wk_err *err)
{
    return wk_check_image((const void *)wk_gather_rows<toy8>, device, WK_CUDA_BUILT, err);
}
