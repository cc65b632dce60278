/* test_plan_cuda.c: planning for CUDA needs no GPU: bytes by kind, what they depend on, and refusals by name.
 *
 * Stands on a module of its own making, whose tiles have known sizes and whose kernels are never called. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <stdio.h>
#include <string.h>

#include "test_zoo.h"
#include "device/cuda/executor.h"
#include "device/cuda/module.h"

#include <cmocka.h>

static struct plugin_registry *plugins;
static char text[2048];
static const struct wk_err err = { text, sizeof text };

/* ---- a module ------------------------------------------------------------------------------------------ */

/* Tiles of the formats that the models have: rows in whole multiples of 16 bytes. */
static uint64_t tile(uint64_t row_bytes) { return 16 * ((row_bytes + 15) & ~15ull); }
static uint64_t tile_f32(uint32_t k) { return tile(4ull * k); }
static uint64_t tile_f16(uint32_t k) { return tile(2ull * k); }
static uint64_t tile_q5_0(uint32_t k) { return tile(k / 32 * 22ull); }
static uint64_t tile_q8_0(uint32_t k) { return tile(k / 32 * 34ull); }
static uint64_t tile_q4_k(uint32_t k) { return tile(k / 256 * 144ull); }
static uint64_t tile_q6_k(uint32_t k) { return tile(k / 256 * 210ull); }
static uint64_t tile_wide(uint32_t k) { return tile(24ull * k); }
static uint64_t no_tile(uint32_t k) { return k; }
static uint64_t (*tile_of(uint32_t type))(uint32_t)
{
    switch (type) {
    case 0: return tile_f32;
    case 1:
    case 30: return tile_f16;
    case 6: return tile_q5_0;
    case 8: return tile_q8_0;
    case 12: return tile_q4_k;
    case 14: return tile_q6_k;
    default: return no_tile;
    }
}
static int32_t serves(const uint32_t *types, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        if (types[i] != types[0]) return 0;
    return 1;
}
static struct wk_type_cuda types[32];
static const struct wk_type_cuda *list[32];
static const struct wk_quant_cuda module = {
    .struct_size = sizeof module, .n_types = 32, .id = "test", .types = list, .serves = serves
};

static wk_status find_cuda(void *user, uint32_t type, const struct wk_quant_cuda **out, const struct wk_err *e)
{
    if (user && *(const uint32_t *)user == type) return wk_fail(e, WK_UNSUPPORTED, "type %u has no kernels", type);
    *out = &module;
    return WK_OK;
}

static struct device_options options(void)
{
    return (struct device_options){ .kv_type = KV_F16,
                                    .context = ZOO_CONTEXT,
                                    .max_sequences = 3,
                                    .max_rows = 100,
                                    .max_logits_rows = 40,
                                    .find_cuda = find_cuda };
}

static struct memory_plan plan(enum zoo_kind kind, const struct device_options *o)
{
    struct zoo z;
    struct memory_plan p;
    zoo_open(&z, kind, plugins, FUSE_ALL, NULL, 0);
    if (cuda_device_ops.plan(z.program, o, &p, &err)) fail_msg("%s: %s", zoo_name(kind), text);
    zoo_close(&z);
    return p;
}

static void refuse(enum zoo_kind kind, const struct device_options *o, wk_status status, const char *word)
{
    struct zoo z;
    struct memory_plan p;
    zoo_open(&z, kind, plugins, FUSE_ALL, NULL, 0);
    assert_int_equal(cuda_device_ops.plan(z.program, o, &p, &err), status);
    if (!strstr(text, word)) fail_msg("\"%s\" does not name %s", text, word);
    zoo_close(&z);
}

/* ---- tests --------------------------------------------------------------------------------------------- */

static uint64_t rounded(uint64_t n) { return (n + 255) & ~255ull; }

/* Weights: every used row range once, tables and heads that share a tensor once, vectors as F32. */
static void test_weights(void **state)
{
    (void)state;
    for (uint32_t kind = 0; kind < ZOO_KINDS; kind++) {
        if (kind == ZOO_LEARNED) continue;
        struct zoo z;
        struct memory_plan p;
        const struct device_options o = options();
        zoo_open(&z, (enum zoo_kind)kind, plugins, FUSE_ALL, NULL, 0);
        assert_int_equal(cuda_device_ops.plan(z.program, &o, &p, &err), WK_OK);
        uint64_t bytes = 0;
        for (uint32_t t = 0; t < z.program->n_tensors; t++) {
            const struct tape_tensor *x = &z.program->tensors[t];
            uint64_t cuts[8][2];
            uint32_t n = 0;
            bool vector = false;
            for (uint32_t i = 0; i < z.program->n_ops; i++) {
                const struct tape_op *op = &z.program->ops[i];
                for (uint32_t s = 0; s < 4; s++) {
                    if (op->t[s] != t) continue;
                    const bool product =
                        (op->kind == WK_OP_LINEAR || op->kind == WK_OP_EXPERT || op->kind == WK_OP_LINEAR_HEADS) &&
                        s == 0 && x->role != ROLE_ROUTER; /* a router is kept as a vector */
                    if (!product && op->kind != WK_OP_EMBED) {
                        vector = true;
                        continue;
                    }
                    const uint64_t first = product ? op->u.linear.first : 0, rows = product ? op->u.linear.n : x->rows;
                    uint32_t c = 0;
                    while (c < n && (cuts[c][0] != first || cuts[c][1] != rows)) c++;
                    if (c < n) continue;
                    cuts[n][0] = first;
                    cuts[n++][1] = rows;
                    bytes += rounded((rows + 15) / 16 * tile_of(x->type->ggml_type)(x->cols) * x->slabs);
                }
            }
            if (vector) bytes += rounded((uint64_t)x->rows * x->cols * x->slabs * 4) + rounded(cuda_vector_raw(x));
        }
        assert_int_equal(p.bytes[MEMORY_WEIGHTS], bytes);
        zoo_close(&z);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    struct device_options o = options();
    const struct memory_plan base = plan(ZOO_DENSE, &o);
    uint64_t total = 0, kv = 0;
    for (uint32_t i = 0; i < MEMORY_KINDS; i++) {
        assert_true(base.bytes[i] > 0);
        total += base.bytes[i];
    }
    assert_int_equal(base.total, total);
    /* Group 0: what 40 positions touch, for each sequence, and a step's rows; group 1: no window, a page for every 32
     * positions. */
    assert_int_equal(base.kv_pages[0], 3 * 3 + 4);
    assert_int_equal(base.kv_pages[1], 3 * ZOO_CONTEXT / KV_PAGE);
    for (uint32_t g = 0; g < 2; g++) kv += base.kv_pages[g] * cuda_attend_page_bytes(2, 20, 20);
    assert_int_equal(base.bytes[MEMORY_KV], kv);
    for (uint32_t g = 0; g < 2; g++) assert_int_equal(base.kv_page_bytes[g], cuda_attend_page_bytes(2, 20, 20));
    o.max_sequences = 6;
    const struct memory_plan more = plan(ZOO_DENSE, &o);
    assert_int_equal(more.bytes[MEMORY_KV],
                     2 * kv - 4 * cuda_attend_page_bytes(2, 20, 20)); /* one step's rows, whoever's they are */
    assert_int_equal(more.bytes[MEMORY_WEIGHTS], base.bytes[MEMORY_WEIGHTS]);
    assert_true(more.bytes[MEMORY_GRAPHS] > base.bytes[MEMORY_GRAPHS]);
    o.kv_bytes = kv; /* the cache no longer follows the sequences */
    assert_int_equal(plan(ZOO_DENSE, &o).bytes[MEMORY_KV], kv);
    o.kv_bytes = 2 * kv / 3; /* what is short is short for the group without a window */
    const struct memory_plan part = plan(ZOO_DENSE, &o);
    assert_int_equal(part.kv_pages[0], more.kv_pages[0]);
    assert_int_equal(part.kv_pages[1], kv * 2 / 3 / cuda_attend_page_bytes(2, 20, 20) - more.kv_pages[0]);
    o.kv_bytes = 0, o.kv_sequences = 3; /* more slots than sequences that have pages */
    assert_int_equal(plan(ZOO_DENSE, &o).bytes[MEMORY_KV], kv);
    o.kv_sequences = 0;
    o.context = 32; /* a window that is wider hides nothing */
    const struct memory_plan narrow = plan(ZOO_DENSE, &o);
    for (uint32_t g = 0; g < 2; g++) assert_int_equal(narrow.kv_pages[g], 6);
    o.kv_bytes = 1, refuse(ZOO_DENSE, &o, WK_INVALID, "holds no page");
    o = options();
    o.max_rows = 2000;
    assert_true(plan(ZOO_DENSE, &o).bytes[MEMORY_ACTIVATIONS] > base.bytes[MEMORY_ACTIVATIONS]);
    o = options();
    o.max_rows = o.max_logits_rows = 1;
    assert_true(plan(ZOO_DENSE, &o).total < base.total);
}

static void test_refusals(void **state)
{
    (void)state;
    struct device_options o = options();
    refuse(ZOO_LEARNED, &o, WK_UNSUPPORTED, "swirl");
    o.exact = true, refuse(ZOO_DENSE, &o, WK_UNSUPPORTED, "--exact");
    o = options(), o.kv_type = KV_F32, refuse(ZOO_DENSE, &o, WK_UNSUPPORTED, "F32 cache");
    o = options(), o.context = ZOO_CONTEXT + 1, refuse(ZOO_DENSE, &o, WK_INVALID, "context");
    o = options(), o.context = 0, refuse(ZOO_DENSE, &o, WK_INVALID, "context");
    o = options(), o.max_sequences = 0, refuse(ZOO_DENSE, &o, WK_INVALID, "sequences");
    o = options(), o.max_rows = 1 << 20, refuse(ZOO_DENSE, &o, WK_INVALID, "rows");
    o = options(), o.max_logits_rows = 101, refuse(ZOO_DENSE, &o, WK_INVALID, "logits row");
    o = options(), o.find_cuda = NULL, refuse(ZOO_DENSE, &o, WK_INTERNAL, "kernels");
    uint32_t missing = 14; /* Q6_K */
    o = options(), o.find_user = &missing, refuse(ZOO_DENSE, &o, WK_UNSUPPORTED, "type 14");
    types[14].tile_bytes = no_tile; /* a module that promises too little */
    o = options(), refuse(ZOO_DENSE, &o, WK_INVALID, "of type 14 is");
    types[14].tile_bytes = tile_wide; /* and too much */
    o = options(), refuse(ZOO_DENSE, &o, WK_INVALID, "of type 14 is");
    types[14].tile_bytes = tile_of(14);
}

int main(void)
{
    for (uint32_t i = 0; i < 32; i++) {
        types[i] = (struct wk_type_cuda){ .struct_size = sizeof types[i], .ggml_type = i, .tile_bytes = tile_of(i) };
        list[i] = &types[i];
    }
    const struct plugin_options o = { .dirs = NULL };
    if (plugin_registry_open(&o, &plugins, &err)) {
        printf("%s\n", text);
        return 1;
    }
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_weights), cmocka_unit_test(test_sizes),
                                        cmocka_unit_test(test_refusals) };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    zoo_free();
    plugin_registry_close(plugins);
    return failed;
}
