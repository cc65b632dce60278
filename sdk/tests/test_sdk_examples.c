/* test_sdk_examples.c: what the host makes of the SDK's two examples: the toy architecture, recorded from a file in the
 * toy format. */
#include <stdlib.h>
#include <string.h>

#include "gguf_build.h"
#include "plugin/plugin.h"
#include "tape/tape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h> /* last: it takes words like "fail" for itself */

enum { LAYERS = 2, WIDTH = 64, HIDDEN = 128, HEADS = 4, VOCAB = 96, TOY8 = 1000 };

static void matrix(struct gguf_build *g, const char *name, uint32_t rows, uint32_t cols)
{
    gguf_build_tensor(g, name, TOY8, rows, cols, 1, NULL, (size_t)rows * cols / 32 * 36);
}

static struct gguf_build *build_file(void)
{
    static const struct {
        const char *name;
        uint32_t rows, cols;
    } matrices[] = {
        { "attn_q.weight", WIDTH, WIDTH },  { "attn_k.weight", WIDTH, WIDTH },
        { "attn_v.weight", WIDTH, WIDTH },  { "attn_output.weight", WIDTH, WIDTH },
        { "ffn_up.weight", HIDDEN, WIDTH }, { "ffn_down.weight", WIDTH, HIDDEN },
    };
    static const struct {
        const char *name;
        uint32_t n;
    } vectors[] = { { "attn_norm.weight", WIDTH },
                    { "attn_norm.bias", WIDTH },
                    { "ffn_up.bias", HIDDEN },
                    { "ffn_down.bias", WIDTH } };
    struct gguf_build *g = gguf_build_new("parallel");
    char name[64];
    gguf_build_str(g, "worker.type.1000", "org.example.toy8");
    gguf_build_u32(g, "parallel.context_length", 128);
    gguf_build_u32(g, "parallel.block_count", LAYERS);
    gguf_build_u32(g, "parallel.embedding_length", WIDTH);
    gguf_build_u32(g, "parallel.feed_forward_length", HIDDEN);
    gguf_build_u32(g, "parallel.attention.head_count", HEADS);
    matrix(g, "token_embd.weight", VOCAB, WIDTH);
    matrix(g, "output.weight", VOCAB, WIDTH);
    gguf_build_floats(g, "output_norm.weight", 1, WIDTH, 1, NULL);
    gguf_build_floats(g, "output_norm.bias", 1, WIDTH, 1, NULL);
    for (unsigned l = 0; l < LAYERS; l++) {
        for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++) {
            (void)snprintf(name, sizeof name, "blk.%u.%s", l, matrices[i].name);
            matrix(g, name, matrices[i].rows, matrices[i].cols);
        }
        for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
            (void)snprintf(name, sizeof name, "blk.%u.%s", l, vectors[i].name);
            gguf_build_floats(g, name, 1, vectors[i].n, 1, NULL);
        }
    }
    return g;
}

static const struct wk_type_cpu *find_type(void *user, uint32_t type) { return plugin_find_type(user, type, NULL); }
static const char *type_owner(void *user, uint32_t type) { return plugin_type_owner(user, type); }
static void describe_types(void *user, char *text, size_t cap)
{
    (void)plugin_describe(user, WK_KIND_QUANT, text, cap);
}

static struct plugin_registry *registry(
    void) /* the examples by WORKER_PLUGIN_PATH, F32 from the build tree's own plugins */
{
    char text[1024];
    struct plugin_registry *r = NULL;
    const struct plugin_options o = { .dirs = NULL };
    if (plugin_registry_open(&o, &r, &(struct wk_err){ text, sizeof text }) != WK_OK) fail_msg("%s", text);
    return r;
}

static wk_status record(struct plugin_registry *r, struct gguf_build *g, struct gguf **file, struct tape_program **p,
                        char text[2048])
{
    const struct tape_options o = {
        .fuse = FUSE_ALL, .find_type = find_type, .type_owner = type_owner, .describe_types = describe_types, .user = r
    };
    const struct wk_arch *arch = plugin_find_arch(r, "parallel", NULL);
    assert_non_null(arch);
    *file = gguf_build_open(g);
    text[0] = '\0';
    return tape_record(arch, *file, &o, p, &(struct wk_err){ text, 2048 });
}

static void test_recorded(void **state)
{
    (void)state;
    char text[2048];
    struct gguf *file;
    struct tape_program *p;
    struct plugin_registry *r = registry();
    struct gguf_build *g = build_file();
    if (record(r, g, &file, &p, text) != WK_OK) fail_msg("%s", text);
    assert_int_equal(p->n_layers, LAYERS);
    assert_int_equal(p->n_kv_layers, LAYERS);
    assert_int_equal(p->n_vocab, VOCAB);
    assert_int_equal(p->n_tensors, 4 + LAYERS * 10);
    uint32_t toy8 = 0;
    for (uint32_t i = 0; i < p->n_tensors; i++) toy8 += p->tensors[i].type == plugin_find_type(r, TOY8, NULL);
    assert_int_equal(toy8, 2 + LAYERS * 6);
    const uint32_t a = tape_find_value(p, "blk.1.attention");
    assert_int_not_equal(a, TAPE_NONE);
    assert_int_equal(p->values[a].width, WIDTH);
    tape_free(p);
    gguf_close(file);
    gguf_build_free(g);
    plugin_registry_close(r);
}

/* A number that is nobody's means what the file says. */
static void test_owner(void **state)
{
    (void)state;
    static const struct {
        const char *said, *words;
    } rows[] = { { "org.example.other", "a format of org.example.toy8 here, of org.example.other in the file" },
                 { "", "the file does not say whose it means; expected the text worker.type.1000" } };
    char text[2048];
    struct plugin_registry *r = registry();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct gguf *file;
        struct tape_program *p = NULL;
        struct gguf_build *g = build_file();
        gguf_build_str(g, "worker.type.1000", rows[i].said);
        assert_int_equal(record(r, g, &file, &p, text), WK_UNSUPPORTED);
        if (!strstr(text, rows[i].words)) fail_msg("expected \"%s\" in: %s", rows[i].words, text);
        gguf_close(file);
        gguf_build_free(g);
    }
    plugin_registry_close(r);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *words;
        uint32_t value;
    } rows[] = {
        { "parallel.attention.head_count", "64: 5 heads of an even number", 5 },
        { "parallel.block_count", "block_count", 0 },
        { "parallel.feed_forward_length", "ffn_up", 64 },
        { "parallel.block_count", "blk.2.attn_norm.weight", 3 },
    };
    char text[2048];
    struct plugin_registry *r = registry();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct gguf *file;
        struct tape_program *p = NULL;
        struct gguf_build *g = build_file();
        gguf_build_u32(g, rows[i].key, rows[i].value);
        assert_int_not_equal(record(r, g, &file, &p, text), WK_OK);
        assert_null(p);
        if (!strstr(text, rows[i].words)) fail_msg("expected \"%s\" in: %s", rows[i].words, text);
        gguf_close(file);
        gguf_build_free(g);
    }
    plugin_registry_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_recorded), cmocka_unit_test(test_owner),
                                        cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
