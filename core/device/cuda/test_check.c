/* test_check.c: what `worker plugin check` looks at on a GPU, with kernels that keep every promise and with ones that
 * break one each: of test_module.cu, wrapped. */
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/module.h"
#include "plugin/plugin.h"
#include "test_module.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static struct plugin_registry *registry;
static const struct wk_type_cpu *cpu[TEST_TYPES];
static const struct wk_quant_cuda *good;
static const struct wk_type_cuda *kernels; /* of the type at hand */
static char text[1024];
static const struct wk_err err = { text, sizeof text };

/* ---- what goes wrong ----------------------------------------------------------------------------------- */

static wk_status flip(void *p, cudaStream_t stream)
{
    unsigned char byte;
    if (cudaStreamSynchronize(stream) || cudaMemcpy(&byte, p, 1, cudaMemcpyDeviceToHost)) return WK_INTERNAL;
    byte ^= 0x40;
    return cudaMemcpy(p, &byte, 1, cudaMemcpyHostToDevice) ? WK_INTERNAL : WK_OK;
}
static wk_status bad_unpack(const struct wk_cuda_tiles *t, void *stream, const struct wk_err *e)
{
    const wk_status status = kernels->unpack(t, stream, e);
    return status ? status : flip(t->rows, stream);
}
static wk_status wide_unpack(const struct wk_cuda_tiles *t, void *stream, const struct wk_err *e)
{
    const wk_status status = kernels->unpack(t, stream, e);
    return status ? status : flip((char *)t->rows + t->n_rows * t->row_bytes, stream);
}
static wk_status bad_gather(const struct wk_cuda_gather *g, void *stream, const struct wk_err *e)
{
    const wk_status status = kernels->gather(g, stream, e);
    return status ? status : flip((char *)(g->y + g->y_stride) + 3, stream);
}
static wk_status bad_expand(const struct wk_cuda_expand *x, void *stream, const struct wk_err *e)
{
    const wk_status status = kernels->expand(x, stream, e);
    return status ? status : flip((char *)x->y + 1, stream);
}
static uint64_t bad_tile_bytes(uint32_t k) { return kernels->tile_bytes(k) + 8; }

static wk_status bad_product(const struct wk_cuda_product *p, void *stream, const struct wk_err *e)
{
    const wk_status status = good->product(p, stream, e);
    return status ? status : flip((char *)p->seg[0].out.y + 3, stream);
}
/* The last bit of a result of many rows. */
static wk_status row_product(const struct wk_cuda_product *p, void *stream, const struct wk_err *e)
{
    unsigned char byte;
    const wk_status status = good->product(p, stream, e);
    if (status || p->rows < 8) return status;
    if (cudaStreamSynchronize(stream) || cudaMemcpy(&byte, p->seg[0].out.y, 1, cudaMemcpyDeviceToHost))
        return WK_INTERNAL;
    byte ^= 1;
    return cudaMemcpy(p->seg[0].out.y, &byte, 1, cudaMemcpyHostToDevice) ? WK_INTERNAL : WK_OK;
}
static wk_status further_product(const struct wk_cuda_product *p, void *stream, const struct wk_err *e)
{
    const wk_status status = good->product(p, stream, e);
    if (status) return status;
    float *behind = (float *)p->seg[0].out.y + p->rows * p->seg[0].out.y_stride;
    return cudaMemsetAsync(behind, 0, sizeof *behind, stream) ? WK_INTERNAL : WK_OK;
}
static wk_status waiting_product(const struct wk_cuda_product *p, void *stream, const struct wk_err *e)
{
    const wk_status status = good->product(p, stream, e);
    (void)cudaStreamQuery(stream);
    return status;
}
static wk_status copying_product(const struct wk_cuda_product *p, void *stream, const struct wk_err *e)
{
    void *y = p->seg[0].out.y;
    const wk_status status = good->product(p, stream, e);
    if (status) return status;
    return cudaMemcpyAsync(y, y, 4, cudaMemcpyDeviceToDevice, stream) ? WK_INTERNAL : WK_OK;
}
static wk_status taking_product(const struct wk_cuda_product *p, void *stream, const struct wk_err *e)
{
    static int calls;
    void *some;
    if (++calls > 2 && cudaMalloc(&some, 1 << 20)) return WK_INTERNAL;
    return good->product(p, stream, e);
}
static wk_status silent_product(const struct wk_cuda_product *p, void *stream, const struct wk_err *e)
{
    (void)p, (void)stream, (void)e;
    return WK_INVALID;
}

/* ---- the tests ----------------------------------------------------------------------------------------- */

static wk_status check(enum device_check what, uint32_t type, const struct wk_type_cuda *t,
                       wk_status (*product)(const struct wk_cuda_product *, void *, const struct wk_err *))
{
    struct wk_quant_cuda module = *good;
    module.types = &t;
    module.n_types = 1;
    if (product) module.product = product;
    text[0] = '\0';
    return cuda_check_format(0, what, &module, cpu[type], &err);
}

static void choose(uint32_t type)
{
    for (uint32_t i = 0; i < good->n_types; i++)
        if (good->types[i]->ggml_type == type) kernels = good->types[i];
}

static void test_good(void **state)
{
    (void)state;
    static const uint32_t types[] = { 0, 8 };
    for (uint32_t i = 0; i < 2; i++)
        for (enum device_check what = 0; what < DEVICE_CHECKS; what++) {
            choose(types[i]);
            struct wk_type_cuda t = *kernels;
            if (types[i] == 0) t.expand = NULL; /* f16 would lose bits */
            if (check(what, types[i], &t, NULL) != WK_OK) fail_msg("check %d: %s", (int)what, text);
        }
    assert_int_equal(check(DEVICE_CHECK_TILES, 1, kernels, NULL), WK_UNSUPPORTED);
}

/* Real kernels, as the host maps them. */
static void test_shipped(void **state)
{
    (void)state;
    enum { MXFP4 = 39 };
    const struct wk_quant_cuda *module;
    if (plugin_find_cuda(registry, MXFP4, &module, &err) != WK_OK) fail_msg("%s", text);
    for (enum device_check what = 0; what < DEVICE_CHECKS; what++) {
        text[0] = '\0';
        if (cuda_check_format(0, what, module, cpu[MXFP4], &err) != WK_OK) fail_msg("check %d: %s", (int)what, text);
    }
}

static void test_broken_tiles(void **state)
{
    (void)state;
    choose(8);
    const struct wk_type_cuda bytes = *kernels;
    struct wk_type_cuda broken[5];
    static const char *const words[] = { "after pack and unpack", "written 0 bytes behind", "gather makes",
                                         "expected that of dequantize", "expected a multiple of 16" };
    for (uint32_t i = 0; i < 5; i++) broken[i] = bytes;
    broken[0].unpack = bad_unpack;
    broken[1].unpack = wide_unpack;
    broken[2].gather = bad_gather;
    broken[3].expand = bad_expand;
    broken[4].tile_bytes = bad_tile_bytes;
    for (uint32_t i = 0; i < 5; i++) {
        assert_int_equal(check(DEVICE_CHECK_TILES, 8, &broken[i], NULL), WK_INTERNAL);
        if (!strstr(text, words[i])) fail_msg("expected \"%s\" in: %s", words[i], text);
    }
}

static void test_broken_products(void **state)
{
    (void)state;
    static const struct {
        enum device_check what;
        wk_status (*product)(const struct wk_cuda_product *, void *, const struct wk_err *);
        const char *words;
    } rows[] = {
        { DEVICE_CHECK_PRODUCT, bad_product, "result 0 of row 0 is" },
        { DEVICE_CHECK_PRODUCT, further_product, "a product of 1 rows writes row 1" },
        { DEVICE_CHECK_PRODUCT, silent_product, "product fails with status 1 and no text" },
        { DEVICE_CHECK_ROW, row_product, "expected the same bits" },
        { DEVICE_CHECK_STREAM, waiting_product, "a product cannot be captured" },
        { DEVICE_CHECK_STREAM, copying_product, "enqueues a node of kind" },
        { DEVICE_CHECK_STREAM, taking_product, "less free on the device" },
    };
    choose(8);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_not_equal(check(rows[i].what, 8, kernels, rows[i].product), WK_OK);
        if (!strstr(text, rows[i].words)) fail_msg("expected \"%s\" in: %s", rows[i].words, text);
    }
}

static int setup(void **state)
{
    (void)state;
    const struct plugin_options none = { .dirs = NULL };
    if (plugin_registry_open(&none, &registry, &err)) return -1;
    for (uint32_t i = 0; i < TEST_TYPES; i++) cpu[i] = plugin_find_type(registry, i, NULL);
    good = test_module(cpu, 0);
    return cpu[0] && cpu[8] ? 0 : -1;
}

int main(void)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n < 1) return 77;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_good), cmocka_unit_test(test_shipped),
                                        cmocka_unit_test(test_broken_tiles), cmocka_unit_test(test_broken_products) };
    return cmocka_run_group_tests(tests, setup, NULL);
}
