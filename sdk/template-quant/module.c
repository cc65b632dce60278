/* module.c: what the second shared object, myquant-cuda.so, exports: the kernels of kernels.cu. */
#include <worker/cuda/product.h>
#include <worker/plugin_cuda.h>

extern const struct wk_type_cuda format_type;
extern const struct wk_product_family format_family;
wk_status format_image(int32_t device, const struct wk_err *err);

static const struct wk_type_cuda *const types[] = { &format_type };
static const struct wk_product_family *const families[] = { &format_family };

static wk_status open_device(int32_t device, const struct wk_err *err)
{
    const wk_status status = format_image(device, err);
    return status ? status : wk_families_open(families, 1, device, err);
}
static int32_t serves(const uint32_t *ggml_types, uint32_t n)
{
    return wk_family_of(families, 1, ggml_types, n) != NULL;
}
static wk_status product(const struct wk_cuda_product *p, void *stream, const struct wk_err *err)
{
    return wk_families_product(families, 1, p, stream, err);
}
static uint32_t norm_rows(const struct wk_cuda_product *p) { return wk_families_norm_rows(families, 1, p); }
static struct wk_cuda_layout layout(const struct wk_cuda_product *p) { return wk_families_layout(families, 1, p); }

/* The same id as the plugin's, and of its types those that have kernels. */
WORKER_PLUGIN_CUDA("org.example.myquant", "ggml:23226", .n_types = 1, .types = types, .open = open_device,
                   .serves = serves, .product = product, .norm_rows = norm_rows, .layout = layout);
