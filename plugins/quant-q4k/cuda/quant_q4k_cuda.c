/* quant_q4k_cuda.c: what quant-q4k-cuda.so exports. */
#include <worker/cuda/product.h>
#include <worker/plugin_cuda.h>

extern const struct wk_type_cuda q2_k_cuda, q3_k_cuda, q4_k_cuda, q5_k_cuda, q6_k_cuda;
static const struct wk_type_cuda *const types[] = { &q2_k_cuda, &q3_k_cuda, &q4_k_cuda, &q5_k_cuda, &q6_k_cuda };

extern const struct wk_product_family quant_q4k_k, quant_q4k_k23;
static const struct wk_product_family *const families[] = { &quant_q4k_k, &quant_q4k_k23 };
WK_FAMILIES(families)
extern const struct wk_large_family quant_q4k_large;

wk_status quant_q4k_image(int32_t device, const struct wk_err *err);

static wk_status open(int32_t device, const struct wk_err *err)
{
    wk_status status = quant_q4k_image(device, err);
    if (!status) status = wk_families_open(families, N_FAMILIES, device, err);
    return status ? status : quant_q4k_large.open(device, err);
}
static uint32_t panels(uint32_t ggml_type) { return quant_q4k_large.panels(ggml_type); }
static wk_status large(const struct wk_cuda_product *p, void *stream, const struct wk_err *err)
{
    return wk_large_run(&quant_q4k_large, p, stream, err);
}

WORKER_PLUGIN_CUDA("org.worker.quant-q4k", "ggml:10,11,12,13,14", .n_types = sizeof types / sizeof *types,
                   .types = types, .open = open, .panels = panels, .large = large, WK_FAMILIES_CALLS);
