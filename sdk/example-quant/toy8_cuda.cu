/* toy8_cuda.cu: toy8's tiles on the device. */
#include <worker/cuda/tiles.cuh>

#include "toy8.cuh"

WK_TYPE_CUDA(toy8_type, toy8);

extern "C" wk_status toy8_image(int32_t device, const struct wk_err *err)
{
    return wk_check_image((const void *)wk_gather_rows<toy8>, device, WK_CUDA_BUILT, err);
}
