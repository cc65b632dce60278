/* cuda.c: a format's kernels: the module NAME-cuda.so beside NAME.so. That it is vetted and mapped needs no GPU; what
 * its kernels do is looked at on the GPU by the device's own module (device_ops.check_format). */
#include <string.h>
#include <unistd.h>

#include "check/internal.h"
#include "device/device.h"

/* The module, mapped; NULL: there is none, or it was refused, which has been told: as `mine`, or as a reason to skip.
 */
static const struct wk_quant_cuda *open_module(struct check *c, bool mine)
{
    char text[CHECK_TEXT] = "";
    struct wk_quant_cuda *module = NULL;
    if (!check_start(c, NULL)) return NULL;
    const char *path = plugin_cuda_path(c->options->path);
    if (!path) check_leave(c);
    if (access(path, F_OK) != 0) {
        check_skip(c, "there is no %s beside it: its types have no kernels", strrchr(path, '/') + 1);
        return NULL;
    }
    if (plugin_try_cuda(path, c->entry.plugin, &module, &(struct wk_err){ text, sizeof text }) == WK_OK) return module;
    if (mine)
        check_fail(c, "%s is refused: %.500s", strrchr(path, '/') + 1, text);
    else
        check_skip(c, "%s is refused", strrchr(path, '/') + 1);
    return NULL;
}

static void run_module(struct check *c)
{
    const struct wk_quant_cuda *module = open_module(c, true);
    if (module && module->n_types < c->quant->n_types)
        check_note(c, "kernels for %u of %u types: the others are refused on CUDA", module->n_types, c->quant->n_types);
}

/* Every type that the module has kernels for, on the first GPU. */
static void run_on_device(struct check *c, enum device_check what)
{
    char text[CHECK_TEXT] = "";
    const struct wk_err err = { text, sizeof text };
    const struct device_ops *device = NULL;
    struct device_info info;
    const struct wk_quant_cuda *module = open_module(c, false);
    if (!module) return;
    wk_status status = device_cuda(&device, &err);
    if (status == WK_OK) status = device->probe(0, &info, &err);
    if (status != WK_OK || !device->check_format) {
        check_skip(c, "%.500s", text[0] ? text : "this device checks no kernels");
        return;
    }
    for (uint32_t i = 0; i < c->quant->n_types; i++) {
        text[0] = '\0';
        status = device->check_format(0, what, module, c->quant->types[i], &err);
        if (status == WK_UNSUPPORTED)
            check_note(c, "%.500s", text);
        else if (status != WK_OK)
            check_fail(c, "%.600s", text);
    }
}

static void run_tiles(struct check *c) { run_on_device(c, DEVICE_CHECK_TILES); }
static void run_product(struct check *c) { run_on_device(c, DEVICE_CHECK_PRODUCT); }
static void run_row(struct check *c) { run_on_device(c, DEVICE_CHECK_ROW); }
static void run_stream(struct check *c) { run_on_device(c, DEVICE_CHECK_STREAM); }

static const struct check_def checks[] = {
    { "cuda.module",
      "A CUDA module beside the plugin has its id, claims only types that it claims, and is one that the loader takes.",
      CHECK_OF_QUANT, false, NULL, run_module },
    { "cuda.tiles",
      "On the GPU, unpack(pack(rows)) is the rows; gather and expand are dequantize, in F32 and rounded to f16.",
      CHECK_OF_QUANT, false, "cuda.module", run_tiles },
    { "cuda.product",
      "On the GPU, a product is the sum of dequantize's values times the activations, within 1e-3 of the sum of the "
      "terms' magnitudes, 2e-6 where a block is one value.",
      CHECK_OF_QUANT, false, "cuda.module", run_product },
    { "cuda.row", "On the GPU, the bits of a row of a product depend on its own activations and the weights alone.",
      CHECK_OF_QUANT, false, "cuda.module", run_row },
    { "cuda.stream",
      "A product can be captured and run again; it takes no memory and enqueues kernels on its stream alone.",
      CHECK_OF_QUANT, false, "cuda.module", run_stream },
};
CHECK_LIST(checks_cuda, CHECK_CUDA, checks);
