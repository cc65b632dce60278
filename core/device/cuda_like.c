/* cuda_like.c: GPUs by name. Sizes are those that the driver tells of the cards named here. */
#include "device/cuda_like.h"

#include <string.h>

#include <worker/quant_cuda.h>

enum { BULK = WK_CUDA_CAN_DEPENDENT | WK_CUDA_CAN_BULK | WK_CUDA_CAN_CLUSTERS };

const struct wk_cuda_device *cuda_like(const char *name)
{
    static const struct {
        const char *name;
        struct wk_cuda_device device;
    } known[] = {
        { "sm_80", { sizeof(struct wk_cuda_device), 108, 166912, 167936, 0, 0 } },                        /* A100 */
        { "sm_86", { sizeof(struct wk_cuda_device), 82, 101376, 102400, 0, 0 } },                         /* RTX 3090 */
        { "sm_89", { sizeof(struct wk_cuda_device), 128, 101376, 102400, 0, 0 } },                        /* RTX 4090 */
        { "sm_90", { sizeof(struct wk_cuda_device), 132, 232448, 233472, BULK | WK_CUDA_CAN_WGMMA, 0 } }, /* H200 */
        { "sm_100", { sizeof(struct wk_cuda_device), 148, 232448, 233472, BULK, 0 } },                    /* B200 */
        { "sm_120", { sizeof(struct wk_cuda_device), 170, 101376, 102400, BULK, 0 } },                    /* RTX 5090 */
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0) return &known[i].device;
    return NULL;
}
