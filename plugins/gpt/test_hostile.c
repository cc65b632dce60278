/* test_hostile.c: files with wrong hyper-parameters and wrong tensors. Every one is refused with a text, or, where the
 * numbers happen to make sense, recorded into a program that passes the checker; nothing divides by zero, overflows or
 * takes long. */
#include <stdlib.h>
#include <string.h>

#include "gpt_files.h" /* before cmocka.h, whose macro fail() would change the SDK */

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
    wk_status status = tape_record(gpt_arch(), file, &o, &p, &err);
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

static void put_number(struct gguf_build *g, const struct wk_key *k, const char *key, double x)
{
    if (k->type == WK_KEY_U32 && isfinite(x))
        gguf_build_i64(g, key, (int64_t)x);
    else
        gguf_build_f32(g, key, (float)x);
}

static void try_number(enum gpt_file which, const struct wk_key *k, const char *key, double x)
{
    struct gguf_build *g = gpt_file(which);
    put_number(g, k, key, x);
    const double stored = k->type == WK_KEY_F32 ? (double)(float)x : x;
    if (!isfinite(stored) || stored < k->min || stored > k->max)
        must_refuse(g, key);
    else
        (void)attempt(g);
    gguf_build_free(g);
}

static void try_other_types(enum gpt_file which, const struct wk_key *k, const char *key)
{
    const uint32_t unequal[3] = { 4, 4, 2 };
    const float unequal_floats[3] = { 1.0f, 1.0f, 0.5f };
    struct gguf_build *g = gpt_file(which);
    if (k->type == WK_KEY_TEXT)
        gguf_build_u32(g, key, 1);
    else
        gguf_build_str(g, key, "4");
    must_refuse(g, key);
    if (k->type == WK_KEY_BOOL) {
        gguf_build_u32(g, key, 1);
        must_refuse(g, key);
    }
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

static void try_absent(enum gpt_file which, const struct wk_key *k, const char *key)
{
    struct gguf_build *g = gpt_file(which);
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
    const struct wk_arch *arch = gpt_arch();
    for (int f = 0; f < GPT_FILES; f++) {
        const enum gpt_file which = (enum gpt_file)f;
        for (uint32_t i = 0; i < arch->n_keys; i++) {
            const struct wk_key *k = &arch->keys[i];
            char key[128];
            (void)snprintf(key, sizeof key, "%s.%s", gpt_file_architecture(which), k->name);
            if (k->flags & WK_KEY_VARIES) continue;                     /* window_patterns */
            if (k->type != WK_KEY_TEXT && !(k->min < k->max)) continue; /* converter_keys_are_known */
            try_absent(which, k, key);
            try_other_types(which, k, key);
            if (k->type == WK_KEY_TEXT || k->type == WK_KEY_BOOL) continue;
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

/* Which layers are behind the window: a list, or a number. */
static void window_patterns(void **state)
{
    (void)state;
    static const char key[] = "gpt-oss.attention.sliding_window_pattern";
    static const struct {
        int number; /* -1: the list */
        uint8_t list[T_L];
        bool behind[T_L];
    } rows[] = { { -1, { 1, 0, 1 }, { true, false, true } }, { -1, { 0, 0, 1 }, { false, false, true } },
                 { 2, { 0 }, { true, false, true } },        { 0, { 0 }, { true, true, true } },
                 { 1, { 0 }, { false, false, false } },      { 3, { 0 }, { true, true, false } } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct gguf_build *g = gpt_file(GPT_OSS);
        if (rows[i].number < 0)
            gguf_build_array(g, key, GGUF_BOOL, T_L, rows[i].list);
        else
            gguf_build_u32(g, key, (uint32_t)rows[i].number);
        struct gguf *file = gguf_build_open(g);
        struct tape_options o = test_options();
        struct tape_program *p;
        assert_int_equal(tape_record(gpt_arch(), file, &o, &p, NULL), WK_OK);
        assert_int_equal(p->n_kv_layers, T_L);
        for (uint32_t l = 0; l < T_L; l++)
            assert_int_equal(p->ops[p->kv_layers[l].op].u.attn.window != 0, rows[i].behind[l]);
        tape_free(p);
        gguf_close(file);
        gguf_build_array(g, key, GGUF_BOOL, T_L - 1, rows[i].list);
        must_refuse(g, key);
        gguf_build_free(g);
    }
}

static struct gguf_build *make_file(uint32_t i) { return gpt_file((enum gpt_file)i); }

static void arrays(void **state)
{
    (void)state;
    test_arrays_of_layers("gpt-oss", make_file, GPT_OSS, attempt_with, text);
}

static void converter_keys_are_known(void **state)
{
    (void)state;
    const struct wk_arch *arch = gpt_arch();
    for (uint32_t f = 0; f < GPT_FILES; f++) {
        uint32_t which = 0;
        while (strcmp(arch->names[which], gpt_file_architecture((enum gpt_file)f)) != 0) which++;
        test_every_converter_key(arch, which, make_file, f, attempt_with, text);
    }
}

static void equal_elements_count_as_one(void **state)
{
    (void)state;
    const uint32_t heads[3] = { T_H, T_H, T_H };
    struct gguf_build *g = gpt_file(GPT2);
    gguf_build_array(g, "gpt2.attention.head_count", GGUF_U32, 3, heads);
    assert_int_equal(attempt(g), WK_OK);
    gguf_build_free(g);
}

/* What one of the two architectures needs and the other does not know: nothing is made up for it. */
static void missing_keys(void **state)
{
    (void)state;
    static const struct {
        enum gpt_file which;
        const char *key;
    } rows[] = {
        { GPT2, "gpt2.attention.layer_norm_epsilon" },   { GPT_OSS, "gpt-oss.attention.layer_norm_rms_epsilon" },
        { GPT_OSS, "gpt-oss.attention.sliding_window" }, { GPT_OSS, "gpt-oss.expert_count" },
        { GPT_OSS, "gpt-oss.expert_used_count" },        { GPT_OSS, "gpt-oss.rope.freq_base" },
        { GPTOSS, "gptoss.attention.sliding_window" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char about[128];
        struct gguf_build *g = gpt_file(rows[i].which);
        (void)snprintf(about, sizeof about, "%s is missing", rows[i].key);
        gguf_build_drop(g, rows[i].key);
        must_refuse(g, about);
        gguf_build_free(g);
    }
}

/* ---- numbers that are right alone and wrong together --------------------------------------------------- */

static void relations(void **state)
{
    (void)state;
    static const struct {
        enum gpt_file which;
        const char *key;
        double value;
        const char *about;
    } rows[] = {
        { GPT2, "gpt2.attention.head_count", 6,
          "embedding_length is 32, must be a multiple of attention.head_count, 6" },
        { GPT2, "gpt2.attention.head_count", 32, "a head of 1 values" },
        { GPT2, "gpt2.attention.head_count_kv", 2, "gpt2 is served with equal heads that fill the row" },
        { GPT2, "gpt2.attention.key_length", 16, "gpt2 is served with equal heads that fill the row" },
        { GPT2, "gpt2.attention.value_length", 4, "gpt2 is served with equal heads that fill the row" },
        { GPT2, "gpt2.expert_count", 8, "gpt2.expert_count: nothing reads this key" },
        { GPT2, "gpt2.context_length", 2 * T_C,
          "position_embd.weight: the file has 128 rows x 32 columns, the plugin asks for 256 x 32" },
        { GPT2, "gpt2.block_count", 4, "blk.3.attn_norm.weight: missing in the file" },
        { GPT_OSS, "gpt-oss.attention.head_count_kv", 3,
          "attention.head_count is 4, must be a multiple of head_count_kv, 3" },
        { GPT_OSS, "gpt-oss.rope.dimension_count", 7, "rope.dimension_count is 7, must be even" },
        { GPT_OSS, "gpt-oss.rope.dimension_count", 10, "at most the 8 values of a head" },
        { GPT_OSS, "gpt-oss.rope.freq_base_swa", 10000,
          "rope.freq_base_swa is 10000; 150000, as rope.freq_base, is served" },
        { GPT_OSS, "gpt-oss.rope.scaling.yarn_beta_fast", 0.5,
          "rope.scaling.yarn_beta_fast is 0.5, must be at least yarn_beta_slow, 1" },
        { GPT_OSS, "gpt-oss.expert_used_count", 9, "expert_used_count is 9, must be 1 to expert_count, 8" },
        { GPT_OSS, "gpt-oss.expert_used_count", 0, "gpt-oss.expert_used_count: 0, must be 1 to 64" },
        { GPT_OSS, "gpt-oss.expert_used_count", 65, "gpt-oss.expert_used_count: 65, must be 1 to 64" },
        { GPT_OSS, "gpt-oss.expert_count", 0, "gpt-oss.expert_count: 0, must be 1 to 1024" },
        { GPT_OSS, "gpt-oss.expert_count", 16,
          "blk.0.ffn_gate_inp.weight: the file has 8 rows x 32 columns, the plugin asks for 16 x 32" },
        { GPT_OSS, "gpt-oss.expert_feed_forward_length", 32,
          "blk.0.ffn_gate_exps.weight: the file has 64 rows x 32 columns x 8 slabs, the plugin asks for 32 x 32 x 8" },
        { GPT_OSS, "gpt-oss.attention.sliding_window", 0, "gpt-oss.attention.sliding_window: 0, must be 1 to" },
        { GPT_OSS, "gpt-oss.attention.sliding_window", 134217729,
          "gpt-oss.attention.sliding_window: 134217729, must be 1 to 134217728" },
        { GPT_OSS, "gpt-oss.attention.sliding_window", -128, "gpt-oss.attention.sliding_window: -128, must be 1 to" },
        { GPT_OSS, "gpt-oss.block_count", 2, "blk.2.attn_norm.weight is in the file, nothing reads it" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct gguf_build *g = gpt_file(rows[i].which);
        const double whole = floor(rows[i].value);
        if (strstr(rows[i].key, "rope.freq_base") || whole != rows[i].value)
            gguf_build_f32(g, rows[i].key, (float)rows[i].value);
        else
            gguf_build_i64(g, rows[i].key, (int64_t)whole);
        must_refuse(g, rows[i].about);
        gguf_build_free(g);
    }
    struct gguf_build *g = gpt_file(GPT_OSS);
    gguf_build_str(g, "gpt-oss.rope.scaling.type", "linear");
    must_refuse(g, "rope.scaling.type is linear; none and yarn are served");
    gguf_build_free(g);
}

/* A window of one position, and one that no context reaches. */
static void extreme_windows(void **state)
{
    (void)state;
    static const uint32_t windows[] = { 1, T_C, T_C + 1, 134217728 };
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        struct gguf_build *g = gpt_file(GPT_OSS);
        gguf_build_u32(g, "gpt-oss.attention.sliding_window", windows[i]);
        assert_int_equal(attempt(g), WK_OK);
        gguf_build_free(g);
    }
}

static void architectures(void **state)
{
    (void)state;
    struct gguf_build *g = gpt_file(GPT2);
    gguf_build_str(g, "general.architecture", "gpt3");
    must_refuse(g, "general.architecture is gpt3, which this plugin does not serve");
    gguf_build_u32(g, "general.architecture", 4);
    must_refuse(g, "general.architecture");
    gguf_build_drop(g, "general.architecture");
    must_refuse(g, "general.architecture is missing");
    gguf_build_free(g);
}

/* ---- one tensor at a time: missing, transposed, one more of each dimension, another type, cut off ------ */

/* A missing tensor is asked for by the plugin's name. */
static const char *missing_name(const char *name)
{
    static char asked[80];
    static const char *const of_ollama[][2] = { { "attn_out.", "attn_output." },
                                                { "ffn_norm.", "post_attention_norm." } };
    for (size_t i = 0; i < sizeof of_ollama / sizeof of_ollama[0]; i++) {
        const char *at = strstr(name, of_ollama[i][0]);
        if (!at) continue;
        (void)snprintf(asked, sizeof asked, "%.*s%s%s: missing", (int)(at - name), name, of_ollama[i][1],
                       at + strlen(of_ollama[i][0]));
        return asked;
    }
    return name;
}

static void break_tensor(enum gpt_file which, const struct gguf_tensor *t)
{
    char name[80];
    (void)snprintf(name, sizeof name, "%.*s", (int)t->name.len, t->name.data);
    const uint32_t cols = (uint32_t)t->ne[0], rows = (uint32_t)t->ne[1], slabs = (uint32_t)t->ne[2];
    struct gguf_build *g = gpt_file(which);
    gguf_build_drop(g, name);
    if (strcmp(name, "output.weight") == 0)
        assert_int_equal(attempt(g), WK_OK); /* tied */
    else
        must_refuse(g, which == GPTOSS ? missing_name(name) : name);

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
    else if (which != GPT2)
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
    for (int f = 0; f < GPT_FILES; f++) {
        struct gguf_build *g = gpt_file((enum gpt_file)f);
        struct gguf *file = gguf_build_open(g);
        for (uint64_t i = 0; i < gguf_tensor_count(file); i++) break_tensor((enum gpt_file)f, gguf_tensor_at(file, i));
        gguf_close(file);
        gguf_build_free(g);
    }
    print_message("%u cases, %u refused\n", n_cases, n_refused);
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct {
        enum gpt_file which;
        const char *name;
    } rows[] = {
        { GPT2, "blk.0.attn_qkv.biases" },    { GPT2, "blk.0.attn_sinks.weight" },  { GPT2, "blk.0.ffn_gate.weight" },
        { GPT_OSS, "blk.3.attn_q.weight" },   { GPT_OSS, "position_embd.weight" },  { GPT_OSS, "output_norm.bias" },
        { GPT_OSS, "blk.0.ffn_norm.weight" }, { GPT_OSS, "blk.1.attn_out.weight" }, { GPT_OSS, "blk.2.attn_sinks" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct gguf_build *g = gpt_file(rows[i].which);
        gguf_build_floats(g, rows[i].name, 1, T_E, 1, NULL);
        must_refuse(g, rows[i].name);
        gguf_build_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key),
        cmocka_unit_test(arrays),
        cmocka_unit_test(window_patterns),
        cmocka_unit_test(converter_keys_are_known),
        cmocka_unit_test(equal_elements_count_as_one),
        cmocka_unit_test(missing_keys),
        cmocka_unit_test(relations),
        cmocka_unit_test(extreme_windows),
        cmocka_unit_test(architectures),
        cmocka_unit_test(every_tensor),
        cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
