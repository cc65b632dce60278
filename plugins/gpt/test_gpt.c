/* test_gpt.c: what gpt.so records for GPT-2 and GPT-OSS, at toy sizes, at the published ones, and for real files. */
#include <stdlib.h>
#include <string.h>

#include "test_gpt_files.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "test_data.h"

/* ---- toy files ----------------------------------------------------------------------------------------- */

static void launches_a_layer(void **state)
{
    (void)state;
    for (int i = 0; i < GPT_FILES; i++) {
        struct arch_opened r = arch_record(&gpt_test, gpt_file((uint32_t)i));
        for (uint32_t l = 0; l < T_L; l++)
            assert_int_equal(test_launches_of_layer(r.p, l), i == GPT_OSS || i == GPTOSS ? 7 : 5);
        assert_int_equal(test_launches_of_layer(r.p, TAPE_NONE), 2);
        assert_true(r.p->n_vocab == T_V && r.p->n_layers == T_L && r.p->context == T_C);
        for (uint32_t k = 0; k < r.p->n_launches; k++) assert_string_equal(r.p->launches[k].alone, "");
        arch_close(&r);
    }
}

static void gpt2(void **state)
{
    (void)state;
    struct tape_capabilities c;
    struct arch_opened r = arch_record(&gpt_test, gpt_file(GPT2));
    const struct tape_op *q = arch_op(r.p, "blk.0.attn_qkv"), *k = arch_op(r.p, "blk.0.attn_qkv.2"),
                         *v = arch_op(r.p, "blk.0.attn_qkv.3");
    assert_true(q->u.linear.first == 0 && k->u.linear.first == T_E && v->u.linear.first == 2 * T_E);
    assert_true(q->u.linear.n == T_E && k->u.linear.n == T_E && v->u.linear.n == T_E);
    assert_string_equal(arch_bias(r.p, "blk.1.attn_qkv"), "blk.1.attn_qkv.bias");
    assert_string_equal(arch_bias(r.p, "blk.1.ffn_up"), "blk.1.ffn_up.bias");
    assert_int_equal(arch_op(r.p, "blk.2.attn_norm")->u.norm.kind, WK_NORM_LAYER);
    assert_string_equal(arch_bias(r.p, "blk.2.attn_norm"), "blk.2.attn_norm.bias");
    arch_near((double)arch_op(r.p, "blk.0.attention")->u.attn.scale, 1 / sqrt(T_D));
    assert_string_equal(arch_weight(r.p, "logits"), "token_embd.weight"); /* tied */
    tape_describe(r.p, &c);
    assert_string_equal(c.positional, "learned");
    assert_string_equal(c.attention, "mha");
    arch_close(&r);
    r = arch_record(&gpt_test, gpt_file(GPT2_UNTIED));
    assert_string_equal(arch_weight(r.p, "logits"), "output.weight");
    arch_close(&r);
}

static void gpt_oss(void **state)
{
    (void)state;
    struct tape_capabilities c;
    struct arch_opened r = arch_record(&gpt_test, gpt_file(GPT_OSS));
    for (uint32_t l = 0; l < T_L; l++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%u.attention", (unsigned)l);
        assert_int_equal(arch_op(r.p, name)->u.attn.window, l % 2 ? 0 : 40);
        assert_true(arch_op(r.p, name)->u.attn.heads == T_H && arch_op(r.p, name)->u.attn.kv_heads == T_G);
        arch_near((double)arch_op(r.p, name)->u.attn.scale, 1 / sqrt(T_D));
    }
    assert_string_equal(arch_weight(r.p, "blk.1.attention"), "blk.1.attn_sinks.weight");
    assert_string_equal(arch_bias(r.p, "blk.1.attn_k"), "blk.1.attn_k.bias");
    assert_string_equal(arch_bias(r.p, "blk.1.attn_output"), "blk.1.attn_output.bias");
    assert_string_equal(arch_bias(r.p, "blk.1.ffn_gate_inp"), "blk.1.ffn_gate_inp.bias");
    assert_string_equal(arch_bias(r.p, "blk.1.ffn_down_exps"), "blk.1.ffn_down_exps.bias");
    assert_true(arch_op(r.p, "blk.0.route")->u.route.k == T_K &&
                arch_op(r.p, "blk.0.route")->u.route.score == WK_SCORE_SOFTMAX_TOPK);
    assert_int_equal(arch_op(r.p, "blk.0.attn_q.rope")->u.rope.style, WK_ROPE_HALF);
    uint32_t clamps = 0;
    for (uint32_t i = 0; i < r.p->n_ops; i++) {
        if (r.p->ops[i].kind != WK_OP_GLU) continue;
        assert_int_equal(r.p->ops[i].u.glu.fn, WK_GLU_SILU_CLAMPED);
        arch_near((double)r.p->ops[i].u.glu.alpha, 1.702);
        arch_near((double)r.p->ops[i].u.glu.limit, 7);
        clamps++;
    }
    assert_int_equal(clamps, T_L);
    tape_describe(r.p, &c);
    assert_string_equal(c.positional, "yarn");
    assert_string_equal(c.attention, "gqa swa sinks");
    arch_close(&r);
}

/* ollama's file is the same model under other names. */
static void ollama(void **state)
{
    (void)state;
    struct arch_opened r = arch_record(&gpt_test, gpt_file(GPT_OSS)), s = arch_record(&gpt_test, gpt_file(GPTOSS));
    assert_string_equal(arch_weight(s.p, "blk.2.attention"), "blk.2.attn_sinks");
    assert_string_equal(arch_weight(s.p, "blk.2.attn_output"), "blk.2.attn_out.weight");
    assert_string_equal(arch_bias(s.p, "blk.2.attn_output"), "blk.2.attn_out.bias");
    assert_string_equal(arch_weight(s.p, "blk.2.post_attention_norm"), "blk.2.ffn_norm.weight");
    assert_int_equal(r.p->n_ops, s.p->n_ops);
    for (uint32_t i = 0; i < r.p->n_ops; i++) assert_int_equal(r.p->ops[i].kind, s.p->ops[i].kind);
    const struct tape_op *a = arch_op(r.p, "blk.0.attn_k.rope"), *b = arch_op(s.p, "blk.0.attn_k.rope");
    assert_memory_equal(a->u.rope.freq, b->u.rope.freq, T_D / 2 * sizeof(double));
    assert_true(a->u.rope.mscale == b->u.rope.mscale);
    arch_close(&r);
    arch_close(&s);
}

static void heads_and_experts_of_their_own_length(void **state)
{
    (void)state;
    static const struct arch_shape longer[] = {
        { "attn_q.weight", 64, T_E, 1 },      { "attn_q.bias", 1, 64, 1 },
        { "attn_k.weight", 32, T_E, 1 },      { "attn_k.bias", 1, 32, 1 },
        { "attn_v.weight", 16, T_E, 1 },      { "attn_v.bias", 1, 16, 1 },
        { "attn_output.weight", T_E, 32, 1 }, { "ffn_gate_exps.weight", 24, T_E, T_X },
        { "ffn_gate_exps.bias", T_X, 24, 1 }, { "ffn_up_exps.weight", 24, T_E, T_X },
        { "ffn_up_exps.bias", T_X, 24, 1 },   { "ffn_down_exps.weight", T_E, 24, T_X }
    };
    struct gguf_build *g = gpt_file(GPT_OSS); /* 4 heads of 16 in a row of 32, v of 8; experts of 24 */
    gguf_build_u32(g, "gpt-oss.attention.key_length", 16);
    gguf_build_u32(g, "gpt-oss.attention.value_length", 8);
    gguf_build_u32(g, "gpt-oss.rope.dimension_count", 10);
    gguf_build_u32(g, "gpt-oss.expert_feed_forward_length", 24);
    for (uint32_t l = 0; l < T_L; l++) arch_put_layer(g, l, longer, ARCH_COUNT(longer));
    struct arch_opened r = arch_record(&gpt_test, g);
    const struct tape_op *a = arch_op(r.p, "blk.1.attention");
    assert_true(a->u.attn.head_k == 16 && a->u.attn.head_v == 8);
    arch_near((double)a->u.attn.scale, 0.25);
    assert_int_equal(arch_op(r.p, "blk.1.attn_q.rope")->u.rope.n, 5);
    arch_close(&r);
}

/* ---- positions ----------------------------------------------------------------------------------------- */

/* Bounds of the published model: pairs 8.092779 and 17.398025 of 32; here a head has 4 pairs. */
static void yarn(void **state)
{
    (void)state;
    static const struct {
        int truncate;
        double low, high;
    } rows[] = { { -1, 8.092779 / 8, 17.398025 / 8 }, { 0, 8.092779 / 8, 17.398025 / 8 }, { 1, 1, 3 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct gguf_build *g = gpt_file(GPT_OSS);
        if (rows[i].truncate >= 0) gguf_build_bool(g, "gpt-oss.rope.scaling.yarn_truncate", rows[i].truncate);
        struct arch_opened r = arch_record(&gpt_test, g);
        const struct tape_op *o = arch_op(r.p, "blk.0.attn_q.rope");
        for (uint32_t k = 0; k < T_D / 2; k++) {
            const double plain = pow(150000, -(double)k / (T_D / 2)),
                         ramp = fmin(fmax((k - rows[i].low) / (rows[i].high - rows[i].low), 0), 1);
            arch_near(o->u.rope.freq[k], plain / 32 * ramp + plain * (1 - ramp));
        }
        arch_near(o->u.rope.mscale, 1.3465736);
        arch_close(&r);
    }
}

static void without_yarn(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) { /* switched off, or a factor of 1 */
        struct gguf_build *g = gpt_file(GPT_OSS);
        if (i)
            gguf_build_drop(g, "gpt-oss.rope.scaling.factor");
        else
            gguf_build_str(g, "gpt-oss.rope.scaling.type", "none");
        struct arch_opened r = arch_record(&gpt_test, g);
        const struct tape_op *o = arch_op(r.p, "blk.0.attn_q.rope");
        for (uint32_t k = 0; k < T_D / 2; k++) arch_near(o->u.rope.freq[k], pow(150000, -(double)k / (T_D / 2)));
        arch_near(o->u.rope.mscale, 1);
        arch_close(&r);
    }
}

/* ---- published sizes: names, shapes and types of the real files over memory that is never touched ------ */

enum {
    E = 2880,
    HEADS = 64,
    KV_HEADS = 8,
    HEAD = 64,
    VOCAB = 201088,
    F32 = 0,
    Q8_0 = 8,
    MXFP4 = 39,
    HEADER_BYTES = 1 << 20
};

static const struct wk_type_cpu *find_type_mxfp4(void *user, uint32_t ggml_type)
{
    static const struct wk_type_cpu mxfp4 = {
        .struct_size = sizeof(struct wk_type_cpu), .ggml_type = MXFP4, .block = 32, .block_bytes = 17, .name = "mxfp4"
    };
    return ggml_type == MXFP4 ? &mxfp4 : test_options().find_type(user, ggml_type);
}

struct published {
    struct gguf_build *build;
    uint64_t offset[1024], total;
    char name[1024][64];
    uint32_t n;
};
static void declare(struct published *f, const char *name, uint32_t type, uint32_t rows, uint32_t cols, uint32_t slabs)
{
    const uint64_t ne[3] = { cols, rows, slabs }, n = (uint64_t)rows * cols * slabs;
    const uint64_t bytes = type == F32 ? n * 4 : type == Q8_0 ? n / 32 * 34 : n / 32 * 17;
    assert_true(f->n < 1024);
    (void)snprintf(f->name[f->n], sizeof f->name[0], "%s", name);
    f->offset[f->n++] = f->total;
    f->total += (bytes + 31) / 32 * 32;
    gguf_build_dims(f->build, name, type, slabs > 1 ? 3 : rows > 1 ? 2 : 1, ne, 0);
}
static void declare_layer(struct published *f, unsigned l, uint32_t experts)
{
    const struct {
        const char *name;
        uint32_t type, rows, cols, slabs;
    } t[] = { { "attn_norm.weight", F32, 1, E, 1 },
              { "post_attention_norm.weight", F32, 1, E, 1 },
              { "attn_q.weight", Q8_0, HEADS * HEAD, E, 1 },
              { "attn_q.bias", F32, 1, HEADS * HEAD, 1 },
              { "attn_k.weight", Q8_0, KV_HEADS * HEAD, E, 1 },
              { "attn_k.bias", F32, 1, KV_HEADS * HEAD, 1 },
              { "attn_v.weight", Q8_0, KV_HEADS * HEAD, E, 1 },
              { "attn_v.bias", F32, 1, KV_HEADS * HEAD, 1 },
              { "attn_output.weight", Q8_0, E, HEADS * HEAD, 1 },
              { "attn_output.bias", F32, 1, E, 1 },
              { "attn_sinks.weight", F32, 1, HEADS, 1 },
              { "ffn_gate_inp.weight", F32, experts, E, 1 },
              { "ffn_gate_inp.bias", F32, 1, experts, 1 },
              { "ffn_gate_exps.weight", MXFP4, E, E, experts },
              { "ffn_gate_exps.bias", F32, experts, E, 1 },
              { "ffn_up_exps.weight", MXFP4, E, E, experts },
              { "ffn_up_exps.bias", F32, experts, E, 1 },
              { "ffn_down_exps.weight", MXFP4, E, E, experts },
              { "ffn_down_exps.bias", F32, experts, E, 1 } };
    for (size_t i = 0; i < sizeof t / sizeof t[0]; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%u.%s", l, t[i].name);
        declare(f, name, t[i].type, t[i].rows, t[i].cols, t[i].slabs);
    }
}
static void put_keys(struct gguf_build *g, uint32_t layers, uint32_t experts)
{
    const struct arch_key keys[] = { { "context_length", 131072, true },
                                     { "embedding_length", E, true },
                                     { "block_count", layers, true },
                                     { "feed_forward_length", E, true },
                                     { "expert_feed_forward_length", E, true },
                                     { "attention.head_count", HEADS, true },
                                     { "attention.head_count_kv", KV_HEADS, true },
                                     { "attention.key_length", HEAD, true },
                                     { "attention.value_length", HEAD, true },
                                     { "attention.sliding_window", 128, true },
                                     { "expert_count", experts, true },
                                     { "expert_used_count", 4, true },
                                     { "rope.scaling.original_context_length", 4096, true },
                                     { "attention.layer_norm_rms_epsilon", 1e-5, false },
                                     { "rope.freq_base", 150000, false },
                                     { "rope.scaling.factor", 32, false } };
    arch_put_keys(g, "gpt-oss", keys, ARCH_COUNT(keys));
    gguf_build_str(g, "gpt-oss.rope.scaling.type", "yarn");
}
/* The header as built, with the places that the tensors have in a whole file, in front of as much address space. */
static void *map_published(struct published *f, uint64_t *size)
{
    size_t n;
    const void *built = gguf_build_bytes(f->build, &n);
    assert_true(n <= HEADER_BYTES);
    *size = n + f->total;
    unsigned char *at = mmap(NULL, *size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(at != MAP_FAILED);
    assert_int_equal(mprotect(at, HEADER_BYTES, PROT_READ | PROT_WRITE), 0);
    memcpy(at, built, n);
    const unsigned char *from = at;
    for (uint32_t i = 0; i < f->n; i++) { /* name, n_dims, ne, type, offset, in the order of declaration */
        const size_t len = strlen(f->name[i]);
        unsigned char *t = memmem(from, n - (size_t)(from - at), f->name[i], len);
        uint32_t n_dims;
        assert_non_null(t);
        memcpy(&n_dims, t + len, sizeof n_dims);
        t += len + sizeof n_dims + n_dims * sizeof(uint64_t) + sizeof(uint32_t);
        memcpy(t, &f->offset[i], sizeof f->offset[i]);
        from = t + sizeof f->offset[i];
    }
    return at;
}

static void published_sizes(void **state)
{
    (void)state;
    static const struct {
        uint32_t layers, experts;
        uint64_t bytes;
    } rows[] = { { 24, 32, 12096558336 }, { 36, 128, 0 } }; /* 20B, 120B */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[8192] = "";
        const struct wk_err err = { text, sizeof text };
        struct tape_options o = test_options();
        struct published *f = calloc(1, sizeof *f);
        struct gguf *file;
        uint64_t size;
        assert_non_null(f);
        o.context = 4096;
        o.find_type = find_type_mxfp4;
        f->build = gguf_build_new("gpt-oss");
        put_keys(f->build, rows[i].layers, rows[i].experts);
        declare(f, "token_embd.weight", Q8_0, VOCAB, E, 1);
        declare(f, "output.weight", Q8_0, VOCAB, E, 1);
        declare(f, "output_norm.weight", F32, 1, E, 1);
        for (unsigned l = 0; l < rows[i].layers; l++) declare_layer(f, l, rows[i].experts);
        if (rows[i].bytes) assert_int_equal(f->total, rows[i].bytes);
        void *at = map_published(f, &size);
        if (gguf_open_memory(at, size, "published", &file, &err) != WK_OK) fail_msg("%s", text);
        struct tape_program *p = test_record(arch_of(&gpt_test), file, &o);
        test_check_program(p);
        assert_true(p->n_layers == rows[i].layers && p->n_vocab == VOCAB);
        for (uint32_t l = 0; l < p->n_layers; l++) assert_int_equal(test_launches_of_layer(p, l), 7);
        assert_int_equal(arch_op(p, "blk.2.attention")->u.attn.window, 128);
        assert_int_equal(arch_op(p, "blk.3.attention")->u.attn.window, 0);
        tape_free(p);
        gguf_close(file);
        assert_int_equal(munmap(at, size), 0);
        gguf_build_free(f->build);
        free(f);
    }
}

/* ---- whole files --------------------------------------------------------------------------------------- */

static void made_files(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t launches;
    } files[] = { { "gpt2.gguf", 5 }, { "gpt-oss.gguf", 7 }, { "gptoss.gguf", 7 }, { "gpt-oss-mxfp4.gguf", 7 } };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char path[DATA_PATH_MAX], text[400];
        const struct wk_err err = { text, sizeof text };
        struct gguf *file;
        if (gguf_open(golden_file(path, files[i].name), &file, &err) != WK_OK) fail_msg("%s", text);
        struct tape_options o = test_options();
        o.find_type = find_type_mxfp4;
        struct tape_program *p = test_record(arch_of(&gpt_test), file, &o);
        test_check_program(p);
        for (uint32_t l = 0; l < p->n_layers; l++) assert_int_equal(test_launches_of_layer(p, l), files[i].launches);
        tape_free(p);
        gguf_close(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_a_layer),
        cmocka_unit_test(gpt2),
        cmocka_unit_test(gpt_oss),
        cmocka_unit_test(ollama),
        cmocka_unit_test(heads_and_experts_of_their_own_length),
        cmocka_unit_test(yarn),
        cmocka_unit_test(without_yarn),
        cmocka_unit_test(published_sizes),
        cmocka_unit_test(made_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
