/* quant_mxfp4_cuda.c: what quant-mxfp4-cuda.so exports. */
#include <worker/cuda/product.h>
#include <worker/plugin_cuda.h>

extern const struct wk_type_cuda mxfp4_cuda;
static const struct wk_type_cuda *const types[] = { &mxfp4_cuda };

extern const struct wk_product_family quant_mxfp4;
static const struct wk_product_family *const families[] = { &quant_mxfp4 };
WK_FAMILIES(families)
extern const struct wk_large_family quant_mxfp4_large;

wk_status quant_mxfp4_image(int32_t device, const struct wk_err *err);

static wk_status open(int32_t device, const struct wk_err *err)
{
    wk_status status = quant_mxfp4_image(device, err);
    if (!status) status = wk_families_open(families, N_FAMILIES, device, err);
    return status ? status : quant_mxfp4_large.open(device, err);
}
static uint32_t panels(uint32_t ggml_type) { return quant_mxfp4_large.panels(ggml_type); }
static wk_status large(const struct wk_cuda_product *p, void *stream, const struct wk_err *err)
{
    return wk_large_run(&quant_mxfp4_large, p, stream, err);
}

WORKER_PLUGIN_CUDA("org.worker.quant-mxfp4", "ggml:39", .n_types = sizeof types / sizeof *types, .types = types,
                   .open = open, .panels = panels, .large = large, WK_FAMILIES_CALLS);
