/* quant_q4k_cuda.c: what quant-q4k-cuda.so exports. */
#include <worker/cuda/product.h>
#include <worker/plugin_cuda.h>

extern const struct wk_type_cuda q2_k_cuda, q3_k_cuda, q4_k_cuda, q5_k_cuda, q6_k_cuda;
static const struct wk_type_cuda *const types[] = { &q2_k_cuda, &q3_k_cuda, &q4_k_cuda, &q5_k_cuda, &q6_k_cuda };

extern const struct wk_product_family quant_q4k_k, quant_q4k_k23;
static const struct wk_product_family *const families[] = { &quant_q4k_k, &quant_q4k_k23 };
WK_FAMILIES(families)

wk_status quant_q4k_image(int32_t device, const struct wk_err *err);

static wk_status open(int32_t device, const struct wk_err *err)
{
    const wk_status status = quant_q4k_image(device, err);
    return status ? status : wk_families_open(families, N_FAMILIES, device, err);
}

WORKER_PLUGIN_CUDA("org.worker.quant-q4k", "ggml:10,11,12,13,14", .n_types = sizeof types / sizeof *types,
                   .types = types, .open = open, WK_FAMILIES_CALLS);
