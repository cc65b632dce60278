/* quant_mxfp4_cuda.c: what quant-mxfp4-cuda.so exports. */
#include <worker/cuda/product.h>
#include <worker/plugin_cuda.h>

extern const struct wk_type_cuda mxfp4_cuda, nvfp4_cuda;
static const struct wk_type_cuda *const types[] = { &mxfp4_cuda, &nvfp4_cuda };

extern const struct wk_product_family quant_mxfp4, quant_nvfp4;
static const struct wk_product_family *const families[] = { &quant_mxfp4, &quant_nvfp4 };
WK_FAMILIES(families)

wk_status quant_mxfp4_image(int32_t device, const struct wk_err *err);

static wk_status open(int32_t device, const struct wk_err *err)
{
    const wk_status status = quant_mxfp4_image(device, err);
    return status ? status : wk_families_open(families, N_FAMILIES, device, err);
}

WORKER_PLUGIN_CUDA("org.worker.quant-mxfp4", "ggml:39,40", .n_types = sizeof types / sizeof *types, .types = types,
                   .open = open, WK_FAMILIES_CALLS);
