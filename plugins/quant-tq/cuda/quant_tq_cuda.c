/* quant_tq_cuda.c: what quant-tq-cuda.so exports. */
#include <worker/cuda/product.h>
#include <worker/plugin_cuda.h>

extern const struct wk_type_cuda tq1_0_cuda, tq2_0_cuda;
static const struct wk_type_cuda *const types[] = { &tq1_0_cuda, &tq2_0_cuda };

extern const struct wk_product_family quant_tq1_0, quant_tq2_0;
static const struct wk_product_family *const families[] = { &quant_tq1_0, &quant_tq2_0 };
WK_FAMILIES(families)

wk_status quant_tq_image(int32_t device, const struct wk_err *err);

static wk_status open(int32_t device, const struct wk_err *err)
{
    const wk_status status = quant_tq_image(device, err);
    return status ? status : wk_families_open(families, N_FAMILIES, device, err);
}

WORKER_PLUGIN_CUDA("org.worker.quant-tq", "ggml:34,35", .n_types = sizeof types / sizeof *types, .types = types,
                   .open = open, WK_FAMILIES_CALLS);
