/* quant_basic_cuda.c: what quant-basic-cuda.so exports. */
#include <worker/cuda/product.h>
#include <worker/plugin_cuda.h>

extern const struct wk_type_cuda f32_cuda, f16_cuda, bf16_cuda, q8_0_cuda, q4_0_cuda, q4_1_cuda, q5_0_cuda, q5_1_cuda;
static const struct wk_type_cuda *const types[] = { &f32_cuda,  &f16_cuda,  &bf16_cuda, &q8_0_cuda,
                                                    &q4_0_cuda, &q4_1_cuda, &q5_0_cuda, &q5_1_cuda };

extern const struct wk_product_family quant_basic_q8, quant_basic_q41, quant_basic_f16, quant_basic_bf16,
    quant_basic_f32;
static const struct wk_product_family *const families[] = { &quant_basic_q8, &quant_basic_q41, &quant_basic_f16,
                                                            &quant_basic_bf16, &quant_basic_f32 };
WK_FAMILIES(families)

wk_status quant_basic_image(int32_t device, const struct wk_err *err);

static wk_status open(int32_t device, const struct wk_err *err)
{
    const wk_status status = quant_basic_image(device, err);
    return status ? status : wk_families_open(families, N_FAMILIES, device, err);
}

WORKER_PLUGIN_CUDA("org.worker.quant-basic", "ggml:0,1,2,3,6,7,8,30", .n_types = sizeof types / sizeof *types,
                   .types = types, .open = open, WK_FAMILIES_CALLS);
