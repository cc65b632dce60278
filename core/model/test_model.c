/* test_model.c: opening in phases, defaults, refusals, and sessions: slots, chunks, limits. */
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "gguf_build.h"

#include <cmocka.h>

enum { E = 64, F = 96, V = 50, H = 4, CONTEXT = 200 };

static struct plugin_registry *registry;
static char text[2048];
static const struct wk_err err = { text, sizeof text };

/* ---- a small llama ------------------------------------------------------------------------------------- */

static void put(struct gguf_build *g, const char *name, uint32_t rows, uint32_t cols)
{
    static uint32_t seed = 3;
    float *v = calloc((size_t)rows * cols, sizeof *v);
    assert_non_null(v);
    for (uint32_t i = 0; i < rows * cols; i++) {
        seed = seed * 1664525u + 1013904223u;
        v[i] = rows == 1 ? 1.0f : ((float)(seed >> 8) / 8388608.0f - 1.0f) * 0.2f;
    }
    gguf_build_floats(g, name, rows, cols, 1, v);
    free(v);
}

static struct gguf_build *build(const char *architecture)
{
    struct gguf_build *g = gguf_build_new(architecture);
    gguf_build_u32(g, "llama.context_length", CONTEXT);
    gguf_build_u32(g, "llama.embedding_length", E);
    gguf_build_u32(g, "llama.block_count", 1);
    gguf_build_u32(g, "llama.feed_forward_length", F);
    gguf_build_u32(g, "llama.attention.head_count", H);
    gguf_build_f32(g, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    static const struct {
        const char *name;
        uint32_t rows, cols;
    } tensors[] = {
        { "token_embd.weight", V, E },      { "output_norm.weight", 1, E },       { "output.weight", V, E },
        { "blk.0.attn_norm.weight", 1, E }, { "blk.0.attn_q.weight", E, E },      { "blk.0.attn_k.weight", E, E },
        { "blk.0.attn_v.weight", E, E },    { "blk.0.attn_output.weight", E, E }, { "blk.0.ffn_norm.weight", 1, E },
        { "blk.0.ffn_gate.weight", F, E },  { "blk.0.ffn_up.weight", F, E },      { "blk.0.ffn_down.weight", E, F },
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        put(g, tensors[i].name, tensors[i].rows, tensors[i].cols);
    return g;
}

static struct model_options options(void)
{
    return (struct model_options){ .device = device_cpu(),
                                   .fuse = FUSE_ALL,
                                   .dev = { .threads = 2, .isa = WK_ISA_AVX512 } };
}

static struct model *load(struct gguf_build *g, const struct model_options *o)
{
    struct model *m;
    if (model_plan(gguf_build_open(g), registry, o, &m, &err) || model_load(m, &err)) fail_msg("%s", text);
    return m;
}

/* ---- opening ------------------------------------------------------------------------------------------- */

static void test_defaults(void **state)
{
    (void)state;
    struct gguf_build *g = build("llama");
    struct model_options o = options();
    struct model *m = load(g, &o);
    assert_int_equal(m->dev.context, CONTEXT); /* the file's, below the default */
    assert_int_equal(m->dev.max_sequences, 1);
    assert_int_equal(m->dev.max_rows, DEFAULT_ROWS);
    assert_int_equal(m->dev.max_logits_rows, DEFAULT_ROWS);
    assert_int_equal(m->program->n_vocab, V);
    assert_null(m->tokenizer);
    model_close(m);
    gguf_build_u32(g, "llama.context_length", 1 << 20);
    gguf_build_str(g, "general.name", "a small model");
    assert_int_equal(model_plan(gguf_build_open(g), registry, &o, &m, &err), WK_OK);
    assert_int_equal(m->dev.context, DEFAULT_CONTEXT);
    assert_string_equal(m->name, "a small model");
    assert_null(m->executor);
    assert_true(m->plan.total > 0);
    model_close(m);
    gguf_build_free(g);
}

/* The digest is that of the tensors' bytes, in the order of the file, whatever order the pass uses them in. */
static void test_digest(void **state)
{
    (void)state;
    struct gguf_build *g = build("llama");
    char expected[65], digest[65];
    struct gguf *file = gguf_build_open(g);
    struct sha256 *sha = sha256_begin();
    for (uint64_t i = 0; i < gguf_tensor_count(file); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(file, i);
        sha256_update(sha, gguf_tensor_data(file, t), t->ne[0] * t->ne[1] * sizeof(float));
    }
    assert_true(sha256_end(sha, expected));
    gguf_close(file);

    struct model_options o = options();
    atomic_bool stop = true;
    o.identify = true;
    struct model *m = load(g, &o);
    assert_int_equal(model_digest(m, NULL, digest, &err), WK_OK);
    assert_string_equal(digest, expected);
    assert_string_equal(m->digest, ""); /* nobody demanded it */
    assert_int_equal(strlen(m->identity), 64);
    assert_int_equal(model_digest(m, &stop, digest, &err), WK_CANCELLED);
    assert_string_equal(digest, "");
    model_close(m);

    o.dev.digest = expected;
    m = load(g, &o);
    assert_string_equal(m->digest, expected);
    model_close(m);
    expected[63] = expected[63] == '0' ? '1' : '0';
    assert_int_equal(model_plan(gguf_build_open(g), registry, &o, &m, &err), WK_OK);
    assert_int_equal(model_load(m, &err), WK_INVALID);
    assert_non_null(strstr(text, "was demanded: another model, or a damaged file"));
    assert_null(m->executor);
    model_close(m);
    gguf_build_free(g);
}

/* The identity tells apart what differs in a header, in size, or in its weights. */
static void test_identity(void **state)
{
    (void)state;
    struct model_options o = options();
    o.identify = true;
    enum { PLAIN, HEADER, WEIGHTS, AGAIN, CASES };
    char given[CASES][65];
    struct gguf_build *g = build("llama");
    for (int i = 0; i < CASES; i++) {
        gguf_build_u32(g, "llama.context_length", i == HEADER ? CONTEXT + 1 : CONTEXT);
        gguf_build_drop(g, "blk.0.ffn_down.weight");
        gguf_build_noise(g, i == WEIGHTS ? 77 : 78, "blk.0.ffn_down.weight", E, F, 0.2f);
        struct model *m = load(g, &o);
        memcpy(given[i], m->identity, sizeof given[i]);
        model_close(m);
    }
    assert_string_equal(given[PLAIN], given[AGAIN]);
    assert_string_not_equal(given[PLAIN], given[HEADER]);
    assert_string_not_equal(given[PLAIN], given[WEIGHTS]);
    gguf_build_free(g);
}

/* Whoever shows a name or puts it into a document gets text. */
static void test_names(void **state)
{
    (void)state;
    char longest[MODEL_NAME + 8];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = 0;
    memcpy(longest + MODEL_NAME - 3, "\xe4\xbd\xa0", 3); /* one byte too long: a character goes whole or not at all */
    const struct {
        const char *given;
        const char *shown;
        size_t n;
    } names[] = {
        { "caf\xc3\xa9 \xf0\x9f\x8c\x8d", "caf\xc3\xa9 \xf0\x9f\x8c\x8d", 10 },
        { "a\x1b[2J\nb\x7f\xc2\x9b",
          "a\xef\xbf\xbd[2J\xef\xbf\xbd"
          "b\xef\xbf\xbd\xef\xbf\xbd",
          17 },
        { "\xff\xc3", "\xef\xbf\xbd\xef\xbf\xbd", 6 },
        { longest, longest, MODEL_NAME - 3 },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct gguf_build *g = build("llama");
        char name[MODEL_NAME];
        gguf_build_str(g, "general.name", names[i].given);
        struct gguf *file = gguf_build_open(g);
        model_name(file, name);
        assert_int_equal(strlen(name), names[i].n);
        assert_memory_equal(name, names[i].shown, names[i].n);
        gguf_close(file);
        gguf_build_free(g);
    }
}

static void refused(struct gguf_build *g, const struct model_options *o, wk_status status, const char *word)
{
    struct model *m;
    assert_int_equal(model_plan(gguf_build_open(g), registry, o, &m, &err), status);
    assert_null(m);
    if (!strstr(text, word)) fail_msg("\"%s\" does not name %s", text, word);
    gguf_build_free(g);
}

static void test_refusals(void **state)
{
    (void)state;
    const struct model_options o = options();
    refused(build(NULL), &o, WK_INVALID, "general.architecture");
    refused(build("nonesuch"), &o, WK_UNSUPPORTED, "nonesuch");
    struct gguf_build *g = build("llama");
    gguf_build_drop(g, "blk.0.ffn_up.weight");
    refused(g, &o, WK_INVALID, "ffn_up");
    g = build("llama");
    gguf_build_str(g, "tokenizer.ggml.model", "unheard-of");
    refused(g, &o, WK_UNSUPPORTED, "unheard-of");
    g = build("llama");
    gguf_build_u32(g, "llama.context_length", 0);
    refused(g, &o, WK_INVALID, "context_length");
    g = build("llama");
    gguf_build_str(g, "tokenizer.ggml.model", "no_vocab");
    struct model *m = load(g, &o);
    assert_null(m->tokenizer);
    model_close(m);
    gguf_build_free(g);
    model_close(NULL);
}

/* ---- sessions ------------------------------------------------------------------------------------------ */

static void tokens_of(uint32_t *tokens, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) tokens[i] = (i * 7 + 3) % V;
}

/* However long the chunks and however few rows a step gives: the same logits. */
static void test_chunks(void **state)
{
    (void)state;
    struct gguf_build *g = build("llama");
    static float whole[CONTEXT * V], parts[CONTEXT * V];
    uint32_t tokens[CONTEXT];
    tokens_of(tokens, CONTEXT);
    for (uint32_t run = 0; run < 2; run++) {
        struct model_options o = options();
        struct session *s;
        if (run) o.dev.max_rows = 48, o.dev.max_logits_rows = 5;
        struct model *m = load(g, &o);
        float *y = run ? parts : whole;
        assert_int_equal(session_open(m, &s, &err), WK_OK);
        assert_int_equal(session_feed(s, tokens, 100, ROW_PROMPT, 37, y + (size_t)63 * V, &err), WK_OK);
        assert_int_equal(session_feed(s, tokens + 100, 20, ROW_PROMPT, 0, NULL, &err), WK_OK);
        assert_int_equal(session_feed(s, tokens + 120, 1, ROW_GENERATED, 1, y + (size_t)120 * V, &err), WK_OK);
        assert_int_equal(session_length(s), 121);
        session_close(s);
        model_close(m);
    }
    assert_memory_equal(whole, parts, sizeof whole);
    assert_true(whole[100 * V - 1] != 0.0f && whole[121 * V - 1] != 0.0f);
    gguf_build_free(g);
}

/* Logits behind a prompt. */
static void logits_of(struct gguf_build *g, float y[V])
{
    const struct model_options o = options();
    struct model *m = load(g, &o);
    struct session *s;
    uint32_t tokens[CONTEXT];
    tokens_of(tokens, CONTEXT);
    assert_int_equal(session_open(m, &s, &err), WK_OK);
    if (session_feed(s, tokens, 40, ROW_PROMPT, 1, y, &err)) fail_msg("%s", text);
    session_close(s);
    model_close(m);
}

/* Biases of a feed-forward network: zeros change nothing, others what they are added to. */
static void test_biases(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t n;
    } biases[] = { { "blk.0.ffn_gate.bias", F },
                   { "blk.0.ffn_up.bias", F },
                   { "blk.0.ffn_down.bias", E },
                   { "blk.0.attn_q.bias", E },
                   { "blk.0.attn_output.bias", E } };
    float plain[V], zero[V], biased[V];
    struct gguf_build *g = build("llama");
    logits_of(g, plain);
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++)
        gguf_build_floats(g, biases[i].name, 1, biases[i].n, 1, NULL);
    logits_of(g, zero);
    assert_memory_equal(plain, zero, sizeof plain);
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++) {
        gguf_build_noise(g, 5, biases[i].name, 2, biases[i].n / 2, 0.5f); /* two rows: noise, not a constant */
        float noise[F];
        struct gguf *file = gguf_build_open(g);
        memcpy(noise, gguf_tensor_data(file, gguf_tensor_find(file, biases[i].name, strlen(biases[i].name))),
               biases[i].n * sizeof *noise);
        gguf_close(file);
        gguf_build_floats(g, biases[i].name, 1, biases[i].n, 1, noise);
        logits_of(g, biased);
        if (memcmp(plain, biased, sizeof plain) == 0) fail_msg("%s changes nothing", biases[i].name);
        gguf_build_floats(g, biases[i].name, 1, biases[i].n, 1, NULL);
    }
    gguf_build_free(g);
}

/* Experts of one tensor, and of a tensor each: the same bits. */
static void test_experts_one_by_one(void **state)
{
    (void)state;
    enum { X = 4, MATRIX = E * F };
    static const struct {
        const char *name;
        uint32_t rows, cols;
    } parts[] = { { "ffn_gate", F, E }, { "ffn_up", F, E }, { "ffn_down", E, F } };
    enum { PARTS = sizeof parts / sizeof parts[0] };
    static float values[PARTS][X * MATRIX];
    float whole[V], split[V];
    struct gguf_build *g = build("llama");
    char name[64];
    gguf_build_u32(g, "llama.expert_count", X);
    gguf_build_u32(g, "llama.expert_used_count", 2);
    put(g, "blk.0.ffn_gate_inp.weight", X, E);
    for (uint32_t i = 0; i < PARTS; i++) {
        (void)snprintf(name, sizeof name, "blk.0.%s.weight", parts[i].name);
        gguf_build_drop(g, name);
        for (uint32_t k = 0; k < X * MATRIX; k++) values[i][k] = (float)((k * 37 + i * 11) % 101) / 250.0f - 0.2f;
        (void)snprintf(name, sizeof name, "blk.0.%s_exps.weight", parts[i].name);
        gguf_build_floats(g, name, parts[i].rows, parts[i].cols, X, values[i]);
    }
    logits_of(g, whole);
    for (uint32_t i = 0; i < PARTS; i++) {
        (void)snprintf(name, sizeof name, "blk.0.%s_exps.weight", parts[i].name);
        gguf_build_drop(g, name);
        for (uint32_t e = X; e-- > 0;) { /* in the file the last comes first */
            (void)snprintf(name, sizeof name, "blk.0.%s.%u.weight", parts[i].name, (unsigned)e);
            gguf_build_floats(g, name, parts[i].rows, parts[i].cols, 1, values[i] + (size_t)e * MATRIX);
        }
    }
    logits_of(g, split);
    assert_memory_equal(whole, split, sizeof whole);
    gguf_build_free(g);
}

static void test_slots(void **state)
{
    (void)state;
    struct gguf_build *g = build("llama");
    struct model_options o = options();
    o.dev.max_sequences = 2;
    struct model *m = load(g, &o);
    struct session *a, *b, *c;
    uint32_t tokens[CONTEXT];
    float alone[V], y[V];
    tokens_of(tokens, CONTEXT);
    assert_int_equal(session_open(m, &a, &err), WK_OK);
    assert_int_equal(session_feed(a, tokens, 40, ROW_PROMPT, 1, alone, &err), WK_OK);
    /* Another sequence in between does not touch its pages. */
    session_reset(a);
    assert_int_equal(session_length(a), 0);
    assert_int_equal(session_open(m, &b, &err), WK_OK);
    assert_int_equal(session_feed(a, tokens, 39, ROW_PROMPT, 0, NULL, &err), WK_OK);
    assert_int_equal(session_feed(b, tokens + 5, 64, ROW_PROMPT, 0, NULL, &err), WK_OK);
    assert_int_equal(session_feed(a, tokens + 39, 1, ROW_GENERATED, 1, y, &err), WK_OK);
    assert_memory_equal(alone, y, sizeof y);
    assert_int_equal(session_open(m, &c, &err), WK_NO_MEMORY);
    session_close(b);
    assert_int_equal(session_open(m, &c, &err), WK_OK);
    /* The context ends at its last position. */
    assert_int_equal(session_feed(c, tokens, CONTEXT, ROW_PROMPT, 1, y, &err), WK_OK);
    assert_int_equal(session_feed(c, tokens, 1, ROW_GENERATED, 1, y, &err), WK_INVALID);
    assert_non_null(strstr(text, "context"));
    tokens[0] = V;
    session_reset(c);
    assert_int_equal(session_feed(c, tokens, 1, ROW_PROMPT, 1, y, &err), WK_INVALID);
    assert_int_equal(session_length(c), 0);
    session_close(a);
    session_close(c);
    model_close(m);
    gguf_build_free(g);
}

int main(void)
{
    const struct plugin_options o = { .dirs = NULL };
    if (plugin_registry_open(&o, &registry, &err)) {
        printf("%s\n", text);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_names),    cmocka_unit_test(test_digest),
        cmocka_unit_test(test_identity), cmocka_unit_test(test_refusals), cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_slots),    cmocka_unit_test(test_biases),   cmocka_unit_test(test_experts_one_by_one)
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    plugin_registry_close(registry);
    return failed;
}
