/* quant_iq4_cuda.c: what quant-iq4-cuda.so exports. */
#include <worker/cuda/product.h>
#include <worker/plugin_cuda.h>

extern const struct wk_type_cuda iq4_nl_cuda, iq4_xs_cuda;
static const struct wk_type_cuda *const types[] = { &iq4_nl_cuda, &iq4_xs_cuda };

extern const struct wk_product_family quant_iq4_nl, quant_iq4_xs;
static const struct wk_product_family *const families[] = { &quant_iq4_nl, &quant_iq4_xs };
enum { N_FAMILIES = sizeof families / sizeof *families };
extern const struct wk_large_family quant_iq4_large;

wk_status quant_iq4_image(int32_t device, const struct wk_err *err);

static wk_status open(int32_t device, const struct wk_err *err)
{
    wk_status status = quant_iq4_image(device, err);
    if (!status) status = wk_families_open(families, N_FAMILIES, device, err);
    return status ? status : quant_iq4_large.open(device, err);
}
static int32_t serves(const uint32_t *ggml_types, uint32_t n)
{
    return wk_family_of(families, N_FAMILIES, ggml_types, n) != NULL;
}
static wk_status product(const struct wk_cuda_product *p, void *stream, const struct wk_err *err)
{
    return wk_families_product(families, N_FAMILIES, p, stream, err);
}
static uint32_t panels(uint32_t ggml_type) { return quant_iq4_large.panels(ggml_type); }
static wk_status large(const struct wk_cuda_product *p, void *stream, const struct wk_err *err)
{
    return wk_large_run(&quant_iq4_large, p, stream, err);
}
static uint32_t norm_rows(const struct wk_cuda_product *p) { return wk_families_norm_rows(families, N_FAMILIES, p); }
static struct wk_cuda_layout layout(const struct wk_cuda_product *p)
{
    return wk_families_layout(families, N_FAMILIES, p);
}

WORKER_PLUGIN_CUDA("org.worker.quant-iq4", "ggml:20,23", .n_types = sizeof types / sizeof *types, .types = types,
                   .open = open, .serves = serves, .product = product, .panels = panels, .large = large,
                   .norm_rows = norm_rows, .layout = layout);
