/* quant_iq4_cuda.c: what quant-iq4-cuda.so exports. */
#include <worker/cuda/product.h>
#include <worker/plugin_cuda.h>

extern const struct wk_type_cuda iq4_nl_cuda, iq4_xs_cuda;
static const struct wk_type_cuda *const types[] = { &iq4_nl_cuda, &iq4_xs_cuda };

extern const struct wk_product_family quant_iq4_nl, quant_iq4_xs;
static const struct wk_product_family *const families[] = { &quant_iq4_nl, &quant_iq4_xs };
WK_FAMILIES(families)

wk_status quant_iq4_image(int32_t device, const struct wk_err *err);

static wk_status open(int32_t device, const struct wk_err *err)
{
    const wk_status status = quant_iq4_image(device, err);
    return status ? status : wk_families_open(families, N_FAMILIES, device, err);
}

WORKER_PLUGIN_CUDA("org.worker.quant-iq4", "ggml:20,23", .n_types = sizeof types / sizeof *types, .types = types,
                   .open = open, WK_FAMILIES_CALLS);
