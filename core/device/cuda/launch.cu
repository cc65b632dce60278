/* launch.cu: the text of a failed launch; what this module's code for the device has. */
#include "device/cuda/launch.cuh"

#include "device/cuda/memory.h"

wk_status cuda_status(cudaError_t code, const char *what, const struct wk_err *err)
{
    if (code == cudaSuccess) return WK_OK;
    (void)cudaGetLastError(); /* what is not sticky is not to show up at the next call */
    return wk_fail(err, code == cudaErrorMemoryAllocation ? WK_NO_MEMORY : WK_INTERNAL, "%s: %s: %s", what,
                   cudaGetErrorName(code), cudaGetErrorString(code));
}

wk_status cuda_image(struct wk_image *image, const struct wk_err *err)
{
    return cuda_status(wk_image_read(image), "the kernels' image", err);
}

wk_status cuda_image_ptx(uint32_t *compute, const struct wk_err *err)
{
    struct wk_image image;
    const wk_status s = cuda_image(&image, err);
    *compute = image.ptx ? image.compute : 0;
    return s;
}
