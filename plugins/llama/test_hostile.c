/* test_hostile.c: files with wrong hyper-parameters and wrong tensors. Every one is refused with a text, or, where the
 * numbers happen to make sense, recorded into a program that passes the checker; nothing divides by zero, overflows or
 * takes long. */
#include <stdlib.h>
#include <string.h>

#include "llama_files.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tape/test_keys.h"

static char text[8192];
static unsigned n_cases, n_refused;

static wk_status attempt_with(struct gguf_build *g, struct gguf_accepted *accepted)
{
    const struct wk_err err = { text, sizeof text };
    struct tape_options o = test_options();
    o.accepted = accepted;
    struct gguf *file = gguf_build_open(g);
    struct tape_program *p;
    text[0] = '\0';
    wk_status status = tape_record(llama_arch(), file, &o, &p, &err);
    n_cases++;
    if (status == WK_OK) {
        test_check_program(p);
    } else {
        n_refused++;
        assert_null(p);
        assert_true(status == WK_INVALID || status == WK_UNSUPPORTED);
        assert_true(strlen(text) > 10);
    }
    tape_free(p);
    gguf_close(file);
    return status;
}
static wk_status attempt(struct gguf_build *g) { return attempt_with(g, NULL); }
static void must_refuse(struct gguf_build *g, const char *about)
{
    if (attempt(g) == WK_OK) fail_msg("accepted: %s", about);
    if (!strstr(text, about)) fail_msg("the text does not name %s: %s", about, text);
}

/* ---- one key at a time: {absent, 0, 1, min - 1, max + 1, 2^31, -1, NaN, Inf, another type, unequal and empty arrays}
 * ---- */

static const char *architecture_of(enum llama_file which)
{
    static const char *const names[LLAMA_FILES] = { "llama", "llama",    "llama", "qwen2",
                                                    "qwen3", "qwen3moe", "phi3",  "phi3" };
    return names[which];
}

static void put_number(struct gguf_build *g, const struct wk_key *k, const char *key, double x)
{
    if (k->type == WK_KEY_U32 && isfinite(x))
        gguf_build_i64(g, key, (int64_t)x);
    else
        gguf_build_f32(g, key, (float)x);
}

static void try_number(enum llama_file which, const struct wk_key *k, const char *key, double x)
{
    struct gguf_build *g = llama_file(which);
    put_number(g, k, key, x);
    const double stored = k->type == WK_KEY_F32 ? (double)(float)x : x;
    if (!isfinite(stored) || stored < k->min || stored > k->max)
        must_refuse(g, key);
    else
        (void)attempt(g);
    gguf_build_free(g);
}

static void try_other_types(enum llama_file which, const struct wk_key *k, const char *key)
{
    const uint32_t unequal[3] = { 4, 4, 2 };
    const float unequal_floats[3] = { 1.0f, 1.0f, 0.5f };
    struct gguf_build *g = llama_file(which);
    if (k->type == WK_KEY_TEXT)
        gguf_build_u32(g, key, 1);
    else
        gguf_build_str(g, key, "4");
    must_refuse(g, key);
    gguf_build_array(g, key, GGUF_U32, 0, unequal);
    must_refuse(g, key);
    if (k->type == WK_KEY_F32)
        gguf_build_array(g, key, GGUF_F32, 3, unequal_floats);
    else
        gguf_build_array(g, key, GGUF_U32, 3, unequal);
    must_refuse(g, key);
    if (k->type == WK_KEY_U32) {
        gguf_build_f32(g, key, 4.0f);
        must_refuse(g, key);
        gguf_build_bool(g, key, 1);
        must_refuse(g, key);
    }
    gguf_build_free(g);
}

static void try_absent(enum llama_file which, const struct wk_key *k, const char *key)
{
    struct gguf_build *g = llama_file(which);
    gguf_build_drop(g, key);
    if (k->flags & WK_KEY_REQUIRED) {
        must_refuse(g, key);
        assert_non_null(strstr(text, "is missing"));
    } else {
        (void)attempt(g);
    }
    gguf_build_free(g);
}

static void every_key(void **state)
{
    (void)state;
    const struct wk_arch *arch = llama_arch();
    for (int f = 0; f < LLAMA_FILES; f++) {
        const enum llama_file which = (enum llama_file)f;
        for (uint32_t i = 0; i < arch->n_keys; i++) {
            const struct wk_key *k = &arch->keys[i];
            char key[128];
            (void)snprintf(key, sizeof key, "%s.%s", architecture_of(which), k->name);
            if (k->type != WK_KEY_TEXT && !(k->min < k->max)) continue; /* converter_keys_are_known */
            try_absent(which, k, key);
            try_other_types(which, k, key);
            if (k->type == WK_KEY_TEXT) continue;
            const double step = k->type == WK_KEY_U32 ? 1 : 0.01;
            const double numbers[] = { 0,
                                       1,
                                       k->min - step,
                                       k->min,
                                       k->max,
                                       k->max * 1.001 + step,
                                       2147483648.0,
                                       -1,
                                       (double)NAN,
                                       (double)INFINITY,
                                       (double)-INFINITY,
                                       4294967296.0 };
            for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++) try_number(which, k, key, numbers[n]);
        }
    }
    print_message("%u cases, %u refused\n", n_cases, n_refused);
}

static struct gguf_build *make_file(uint32_t i) { return llama_file((enum llama_file)i); }

static void arrays(void **state)
{
    (void)state;
    test_arrays_of_layers("llama", make_file, LLAMA, attempt_with, text);
}

static void converter_keys_are_known(void **state)
{
    (void)state;
    const struct wk_arch *arch = llama_arch();
    for (uint32_t f = 0; f < LLAMA_FILES; f++) {
        uint32_t which = 0;
        while (strcmp(arch->names[which], architecture_of((enum llama_file)f)) != 0) which++;
        test_every_converter_key(arch, which, make_file, f, attempt_with, text);
    }
}

static void equal_elements_count_as_one(void **state)
{
    (void)state;
    const uint32_t heads[3] = { T_H, T_H, T_H };
    struct gguf_build *g = llama_file(LLAMA);
    gguf_build_array(g, "llama.attention.head_count", GGUF_U32, 3, heads);
    assert_int_equal(attempt(g), WK_OK);
    gguf_build_free(g);
}

/* ---- numbers that are right alone and wrong together --------------------------------------------------- */

static void relations(void **state)
{
    (void)state;
    static const struct {
        enum llama_file which;
        const char *key;
        double value;
        const char *about;
    } rows[] = {
        { LLAMA, "llama.attention.head_count_kv", 3,
          "attention.head_count is 4, must be a multiple of head_count_kv, 3" },
        { LLAMA, "llama.attention.head_count", 6,
          "embedding_length is 32, must be a multiple of attention.head_count, 6" },
        { LLAMA, "llama.attention.head_count", 32, "a head of 1 values" },
        { LLAMA, "llama.rope.dimension_count", 7, "rope.dimension_count is 7, must be even" },
        { LLAMA, "llama.rope.dimension_count", 10, "at most the 8 values of a head" },
        { LLAMA, "llama.feed_forward_length", 0, "feed_forward_length is 0" },
        { LLAMA, "llama.rope.scaling.factor", 0.5, "rope.scaling.factor is 0.5, must be 0 (none) or at least 1" },
        { MIXTRAL, "llama.expert_used_count", 9, "expert_used_count is 9, must be 1 to expert_count, 8" },
        { MIXTRAL, "llama.expert_used_count", 0, "expert_used_count is 0, must be 1 to expert_count, 8" },
        { MIXTRAL, "llama.expert_count", 16,
          "blk.0.ffn_gate_inp.weight: the file has 8 rows x 32 columns, the plugin asks for 16 x 32" },
        { MIXTRAL, "llama.expert_count", 0, "blk.0.ffn_gate.weight: missing in the file" },
        { QWEN2, "qwen2.expert_count", 4, "expert_count is 4; qwen2 is served without experts" },
        { QWEN3MOE, "qwen3moe.expert_count", 0, "expert_count is 0; qwen3moe has experts" },
        { LLAMA, "llama.block_count", 4, "blk.3.attn_norm.weight: missing in the file" },
        { LLAMA, "llama.block_count", 2, "blk.2.attn_norm.weight is in the file, nothing reads it" },
        { PHI3_LONG, "phi3.rope.dimension_count", 6,
          "rope_factors_long.weight: the file has 1 rows x 4 columns, the plugin asks for 1 x 3" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct gguf_build *g = llama_file(rows[i].which);
        const double whole = floor(rows[i].value);
        if (whole == rows[i].value)
            gguf_build_i64(g, rows[i].key, (int64_t)whole);
        else
            gguf_build_f32(g, rows[i].key, (float)rows[i].value);
        must_refuse(g, rows[i].about);
        gguf_build_free(g);
    }
}

static void rope_settings_that_do_not_fit(void **state)
{
    (void)state;
    struct gguf_build *g = llama_file(LLAMA);
    gguf_build_str(g, "llama.rope.scaling.type", "dynamic");
    must_refuse(g, "rope.scaling.type is dynamic; none, linear, yarn and longrope are served");
    gguf_build_str(g, "llama.rope.scaling.type", "longrope");
    must_refuse(
        g, "rope.scaling.type is longrope, but rope_factors_long.weight and rope_factors_short.weight are missing");
    gguf_build_str(g, "llama.rope.scaling.type", "yarn");
    gguf_build_f32(g, "llama.rope.scaling.yarn_beta_fast", 0.5f);
    must_refuse(g, "rope.scaling.yarn_beta_fast is 0.5, must be at least yarn_beta_slow, 1");
    gguf_build_free(g);

    g = llama_file(PHI3_LONG);
    gguf_build_drop(g, "rope_factors_short.weight");
    must_refuse(g, "the file has one without the other");
    gguf_build_free(g);

    const float factors[T_D / 2] = { 1, 0, NAN, 1 };
    g = llama_file(LLAMA);
    gguf_build_floats(g, "rope_freqs.weight", 1, T_D / 2, 1, factors);
    must_refuse(g, "blk.0.attn_q.rope: frequency 1 is not a finite number");
    gguf_build_free(g);
}

static void architectures(void **state)
{
    (void)state;
    struct gguf_build *g = llama_file(LLAMA);
    gguf_build_str(g, "general.architecture", "llama4");
    must_refuse(g, "general.architecture is llama4, which this plugin does not serve");
    gguf_build_u32(g, "general.architecture", 4);
    must_refuse(g, "general.architecture");
    gguf_build_drop(g, "general.architecture");
    must_refuse(g, "general.architecture is missing");
    gguf_build_free(g);
}

/* ---- one tensor at a time: missing, transposed, one more of each dimension, another type, cut off ------ */

static bool optional(enum llama_file which, const char *name)
{
    if (strcmp(name, "output.weight") == 0) return true;
    return which == LLAMA_BIASED && strstr(name, ".bias");
}

static void break_tensor(enum llama_file which, const struct gguf_tensor *t)
{
    char name[80];
    (void)snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
    const uint32_t cols = (uint32_t)t->ne[0], rows = (uint32_t)t->ne[1], slabs = (uint32_t)t->ne[2];
    struct gguf_build *g = llama_file(which);
    gguf_build_drop(g, name);
    if (which == LLAMA_BIASED && strcmp(name, "output.weight") == 0)
        must_refuse(g, "output.bias is in the file, nothing reads it");
    else if (optional(which, name))
        assert_int_equal(attempt(g), WK_OK);
    else if (strncmp(name, "rope_", 5) == 0)
        must_refuse(g, "rope_factors");
    else
        must_refuse(g, name);

    if (rows != cols) {
        gguf_build_floats(g, name, cols, rows, slabs, NULL);
        must_refuse(g, name);
    }
    /* The table of tokens says itself how many there are: a row more is one that the head lacks, or, tied, one token
     * more. */
    const bool vocabulary = strcmp(name, "token_embd.weight") == 0;
    gguf_build_floats(g, name, rows + 1, cols, slabs, NULL);
    if (!vocabulary)
        must_refuse(g, name);
    else if (which != QWEN3)
        must_refuse(g, "output.weight");
    else
        assert_int_equal(attempt(g), WK_OK);
    gguf_build_floats(g, name, rows, cols + 1, slabs, NULL);
    must_refuse(g, name);
    gguf_build_floats(g, name, rows, cols, slabs + 1, NULL);
    must_refuse(g, name);
    gguf_build_tensor(g, name, 77, rows, cols, slabs, NULL, 64);
    must_refuse(g, name);
    const size_t bytes = (size_t)rows * cols * slabs * sizeof(float);
    if (bytes >= 128) { /* half the bytes are not there */
        gguf_build_tensor(g, name, 0, rows, cols, slabs, NULL, bytes / 2);
        must_refuse(g, name);
    }
    gguf_build_free(g);
}

static void every_tensor(void **state)
{
    (void)state;
    n_cases = n_refused = 0;
    for (int f = 0; f < LLAMA_FILES; f++) {
        struct gguf_build *g = llama_file((enum llama_file)f);
        struct gguf *file = gguf_build_open(g);
        for (uint64_t i = 0; i < gguf_tensor_count(file); i++)
            break_tensor((enum llama_file)f, gguf_tensor_at(file, i));
        gguf_close(file);
        gguf_build_free(g);
    }
    print_message("%u cases, %u refused\n", n_cases, n_refused);
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const char *const names[] = { "blk.0.attn_q.biases", "blk.3.attn_q.weight", "blk.0.ffn_gate.bias",
                                         "rope_freq.weight", "v.blk.0.ln1.weight" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct gguf_build *g = llama_file(LLAMA);
        gguf_build_floats(g, names[i], 1, T_E, 1, NULL);
        must_refuse(g, names[i]);
        gguf_build_free(g);
    }
    struct gguf_build *g = llama_file(QWEN3); /* an arch without biases does not lose one in silence */
    gguf_build_floats(g, "blk.1.attn_norm.bias", 1, T_E, 1, NULL);
    must_refuse(g, "blk.1.attn_norm.bias is in the file, nothing reads it");
    gguf_build_free(g);
    g = llama_file(QWEN3); /* a tied head is rows of the embedding, which have no bias */
    gguf_build_floats(g, "output.bias", 1, T_V, 1, NULL);
    must_refuse(g, "output.bias is in the file, nothing reads it");
    gguf_build_free(g);
    g = llama_file(MIXTRAL); /* biases of experts are rows of one tensor */
    gguf_build_floats(g, "blk.0.ffn_gate.0.bias", 1, T_F, 1, NULL);
    must_refuse(g, "blk.0.ffn_gate.0.bias");
    gguf_build_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key),
        cmocka_unit_test(arrays),
        cmocka_unit_test(converter_keys_are_known),
        cmocka_unit_test(equal_elements_count_as_one),
        cmocka_unit_test(relations),
        cmocka_unit_test(rope_settings_that_do_not_fit),
        cmocka_unit_test(architectures),
        cmocka_unit_test(every_tensor),
        cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
