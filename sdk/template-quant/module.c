/* module.c: what the second shared object, myquant-cuda.so, exports: the kernels of kernels.cu and products.cu. */
#include <worker/cuda/product.h>
#include <worker/plugin_cuda.h>

extern const struct wk_type_cuda format_type;
extern const struct wk_product_family format_family;
wk_status format_image(int32_t device, const struct wk_err *err);

static const struct wk_type_cuda *const types[] = { &format_type };
static const struct wk_product_family *const families[] = { &format_family };
WK_FAMILIES(families)

static wk_status open_device(int32_t device, const struct wk_err *err)
{
    const wk_status status = format_image(device, err);
    return status ? status : wk_families_open(families, N_FAMILIES, device, err);
}

/* The same id as the plugin's, and of its types those that have kernels. */
WORKER_PLUGIN_CUDA("org.example.myquant", "ggml:23226", .n_types = 1, .types = types, .open = open_device,
                   WK_FAMILIES_CALLS);
