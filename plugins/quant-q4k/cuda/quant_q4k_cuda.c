/* quant_q4k_cuda.c: what quant-q4k-cuda.so exports. */
#include <worker/cuda/product.h>
#include <worker/plugin_cuda.h>

extern const struct wk_type_cuda q2_k_cuda, q3_k_cuda, q4_k_cuda, q5_k_cuda, q6_k_cuda;
static const struct wk_type_cuda *const types[] = { &q2_k_cuda, &q3_k_cuda, &q4_k_cuda, &q5_k_cuda, &q6_k_cuda };

extern const struct wk_product_family quant_q4k_k, quant_q4k_k23;
static const struct wk_product_family *const families[] = { &quant_q4k_k, &quant_q4k_k23 };
enum { N_FAMILIES = sizeof families / sizeof *families };
extern const struct wk_large_family quant_q4k_large;

wk_status quant_q4k_image(int32_t device, const struct wk_err *err);

static wk_status open(int32_t device, const struct wk_err *err)
{
    wk_status status = quant_q4k_image(device, err);
    if (!status) status = wk_families_open(families, N_FAMILIES, device, err);
    return status ? status : quant_q4k_large.open(device, err);
}
static int32_t serves(const uint32_t *ggml_types, uint32_t n)
{
    return wk_family_of(families, N_FAMILIES, ggml_types, n) != NULL;
}
static wk_status product(const struct wk_cuda_product *p, void *stream, const struct wk_err *err)
{
    return wk_families_product(families, N_FAMILIES, p, stream, err);
}
static uint32_t panels(uint32_t ggml_type) { return quant_q4k_large.panels(ggml_type); }
static wk_status large(const struct wk_cuda_product *p, void *stream, const struct wk_err *err)
{
    return wk_large_run(&quant_q4k_large, p, stream, err);
}
static uint32_t norm_rows(const struct wk_cuda_product *p) { return wk_families_norm_rows(families, N_FAMILIES, p); }
static struct wk_cuda_layout layout(const struct wk_cuda_product *p)
{
    return wk_families_layout(families, N_FAMILIES, p);
}
static uint64_t workspace(uint32_t ggml_type, uint32_t k, uint32_t rows)
{
    return wk_families_workspace(families, N_FAMILIES, ggml_type, k, rows);
}

WORKER_PLUGIN_CUDA("org.worker.quant-q4k", "ggml:10,11,12,13,14", .n_types = sizeof types / sizeof *types,
                   .types = types, .open = open, .serves = serves, .product = product, .panels = panels, .large = large,
                   .norm_rows = norm_rows, .layout = layout, .workspace = workspace);
