/* toy8_cuda.c: what toy8-cuda.so exports. */
#include <worker/cuda/product.h>
#include <worker/plugin_cuda.h>

extern const struct wk_type_cuda toy8_type;
extern const struct wk_product_family toy8_family;
wk_status toy8_image(int32_t device, const struct wk_err *err);

static const struct wk_type_cuda *const types[] = { &toy8_type };
static const struct wk_product_family *const families[] = { &toy8_family };
WK_FAMILIES(families)

static wk_status open(int32_t device, const struct wk_err *err)
{
    const wk_status status = toy8_image(device, err);
    return status ? status : wk_families_open(families, N_FAMILIES, device, err);
}

WORKER_PLUGIN_CUDA("org.example.toy8", "ggml:1000", .n_types = 1, .types = types, .open = open, WK_FAMILIES_CALLS);
