/* quant_iq_cuda.c: what quant-iq-cuda.so exports. */
#include <worker/cuda/product.h>
#include <worker/plugin_cuda.h>

extern const struct wk_type_cuda iq2_xxs_cuda, iq2_xs_cuda, iq3_xxs_cuda, iq1_s_cuda, iq3_s_cuda, iq2_s_cuda,
    iq1_m_cuda;
static const struct wk_type_cuda *const types[] = { &iq2_xxs_cuda, &iq2_xs_cuda, &iq3_xxs_cuda, &iq1_s_cuda,
                                                    &iq3_s_cuda,   &iq2_s_cuda,  &iq1_m_cuda };

extern const struct wk_product_family quant_iq2_xxs, quant_iq2_xs, quant_iq3_xxs, quant_iq1_s, quant_iq3_s, quant_iq2_s,
    quant_iq1_m;
static const struct wk_product_family *const families[] = { &quant_iq2_xxs, &quant_iq2_xs, &quant_iq3_xxs, &quant_iq1_s,
                                                            &quant_iq3_s,   &quant_iq2_s,  &quant_iq1_m };
WK_FAMILIES(families)

wk_status quant_iq_image(int32_t device, const struct wk_err *err);

static wk_status open(int32_t device, const struct wk_err *err)
{
    const wk_status status = quant_iq_image(device, err);
    return status ? status : wk_families_open(families, N_FAMILIES, device, err);
}

WORKER_PLUGIN_CUDA("org.worker.quant-iq", "ggml:16,17,18,19,21,22,29", .n_types = sizeof types / sizeof *types,
                   .types = types, .open = open, WK_FAMILIES_CALLS);
