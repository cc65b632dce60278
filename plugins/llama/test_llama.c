/* test_llama.c: what llama.so records for each member of the family, and for real files. */
#include <stdlib.h>
#include <string.h>

#include "test_llama_files.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "test_data.h"

static void launches_a_layer(void **state)
{
    (void)state;
    for (int i = 0; i < LLAMA_FILES; i++) {
        struct arch_opened r = arch_record(&llama_test, llama_file((uint32_t)i));
        for (uint32_t l = 0; l < T_L; l++)
            assert_int_equal(test_launches_of_layer(r.p, l), i == MIXTRAL || i == QWEN3MOE ? 7 : 5);
        assert_int_equal(test_launches_of_layer(r.p, TAPE_NONE), 2);
        assert_true(r.p->n_vocab == T_V && r.p->n_layers == T_L && r.p->context == T_C);
        for (uint32_t k = 0; k < r.p->n_launches; k++) assert_string_equal(r.p->launches[k].alone, "");
        arch_close(&r);
    }
}

static void what_tells_members_apart(void **state)
{
    (void)state;
    struct arch_opened r = arch_record(&llama_test, llama_file(LLAMA));
    assert_int_equal(arch_op(r.p, "blk.0.attn_q.rope")->u.rope.style, WK_ROPE_INTERLEAVED);
    assert_int_equal(arch_op(r.p, "blk.0.attn_q")->t[1], TAPE_NONE);
    arch_close(&r);
    r = arch_record(&llama_test, llama_file(LLAMA_BIASED));
    assert_int_not_equal(arch_op(r.p, "blk.0.attn_q")->t[1], TAPE_NONE);
    assert_int_not_equal(arch_op(r.p, "blk.2.attn_output")->t[1], TAPE_NONE);
    static const char *const biased[] = { "blk.0.ffn_gate", "blk.1.ffn_up", "blk.2.ffn_down", "logits" };
    for (size_t i = 0; i < sizeof biased / sizeof *biased; i++)
        assert_int_not_equal(arch_op(r.p, biased[i])->t[1], TAPE_NONE);
    arch_close(&r);
    r = arch_record(&llama_test, llama_file(QWEN2));
    assert_int_equal(arch_op(r.p, "blk.0.attn_q.rope")->u.rope.style, WK_ROPE_HALF);
    assert_int_not_equal(arch_op(r.p, "blk.1.attn_v")->t[1], TAPE_NONE);
    arch_close(&r);
    r = arch_record(&llama_test, llama_file(QWEN3));
    assert_int_equal(arch_op(r.p, "blk.0.attn_k_norm")->u.norm.group, T_D);
    assert_string_equal(r.p->tensors[arch_op(r.p, "logits")->t[0]].name, "token_embd.weight"); /* tied */
    arch_close(&r);
    r = arch_record(&llama_test, llama_file(MIXTRAL));
    assert_true(arch_op(r.p, "blk.0.route")->u.route.k == T_K &&
                arch_op(r.p, "blk.0.route")->u.route.flags == WK_ROUTE_NORMALIZE);
    arch_close(&r);
    struct gguf_build *g = llama_file(QWEN3MOE);
    for (uint32_t l = 0; l < T_L; l++)
        arch_put_layer(g, l, &(struct arch_shape){ "ffn_down_exps.bias", T_X, T_E, 1 }, 1);
    r = arch_record(&llama_test, g);
    assert_int_not_equal(arch_op(r.p, "blk.1.ffn_down_exps")->t[1], TAPE_NONE);
    arch_close(&r);
}

static void heads_of_their_own_length(void **state)
{
    (void)state;
    static const struct arch_shape longer[] = {
        { "attn_q.weight", 64, T_E, 1 },      { "attn_k.weight", 32, T_E, 1 },    { "attn_v.weight", 16, T_E, 1 },
        { "attn_output.weight", T_E, 32, 1 }, { "attn_q_norm.weight", 1, 16, 1 }, { "attn_k_norm.weight", 1, 16, 1 }
    };
    struct gguf_build *g = llama_file(QWEN3); /* 4 heads of 16 in a row of 32, v of 8 */
    gguf_build_u32(g, "qwen3.attention.key_length", 16);
    gguf_build_u32(g, "qwen3.attention.value_length", 8);
    gguf_build_u32(g, "qwen3.rope.dimension_count", 10);
    for (uint32_t l = 0; l < T_L; l++) arch_put_layer(g, l, longer, ARCH_COUNT(longer));
    struct arch_opened r = arch_record(&llama_test, g);
    const struct tape_op *a = arch_op(r.p, "blk.1.attention");
    assert_true(a->u.attn.head_k == 16 && a->u.attn.head_v == 8);
    assert_int_equal(arch_op(r.p, "blk.1.attn_q_norm.rope")->u.rope.n, 5);
    arch_close(&r);
}

static const struct tape_op *rope_of(const struct arch_opened *r) { return arch_op(r->p, "blk.0.attn_q.rope"); }

static void linear_scaling(void **state)
{
    (void)state;
    static const struct {
        const char *type, *key;
        float factor;
        double expected;
    } rows[] = { { NULL, "llama.rope.scaling.factor", 4, 0.25 },
                 { "linear", "llama.rope.scaling.factor", 4, 0.25 },
                 { NULL, "llama.rope.scale_linear", 2, 0.5 },
                 { "none", "llama.rope.scaling.factor", 4, 1 },
                 { "linear", "llama.rope.scaling.factor", 0, 1 } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct gguf_build *g = llama_file(LLAMA);
        if (rows[i].type) gguf_build_str(g, "llama.rope.scaling.type", rows[i].type);
        gguf_build_f32(g, rows[i].key, rows[i].factor);
        gguf_build_f32(g, "llama.rope.freq_base", 500000);
        struct arch_opened r = arch_record(&llama_test, g);
        arch_near(rope_of(&r)->u.rope.freq[0], rows[i].expected);
        arch_near(rope_of(&r)->u.rope.freq[1], rows[i].expected * pow(500000, -0.25));
        arch_near(rope_of(&r)->u.rope.mscale, 1);
        arch_close(&r);
    }
}

static void llama3_scaling(void **state)
{
    (void)state;
    const float factors[T_D / 2] = { 1, 1, 3.5f, 8 };
    struct gguf_build *g = llama_file(LLAMA);
    gguf_build_floats(g, "rope_freqs.weight", 1, T_D / 2, 1, factors);
    struct arch_opened r = arch_record(&llama_test, g);
    for (uint32_t i = 0; i < T_D / 2; i++)
        arch_near(rope_of(&r)->u.rope.freq[i], pow(10000, -(double)i / 4) / (double)factors[i]);
    arch_close(&r);
}

static void yarn_scaling(void **state)
{
    (void)state;
    struct gguf_build *g = llama_file(LLAMA);
    gguf_build_str(g, "llama.rope.scaling.type", "yarn");
    gguf_build_f32(g, "llama.rope.scaling.factor", 32);
    gguf_build_u32(g, "llama.rope.scaling.original_context_length", 4096);
    gguf_build_f32(g, "llama.rope.freq_base", 150000);
    gguf_build_f32(g, "llama.rope.scaling.yarn_attn_factor", 1.3465736f); /* means the same as none */
    struct arch_opened r = arch_record(&llama_test, g);
    const double low = 8.092779 / 8, high = 17.398025 / 8; /* bounds count pairs: 4 here, 32 there */
    const double ramp = (2 - low) / (high - low), plain = pow(150000, -0.5);
    arch_near(rope_of(&r)->u.rope.freq[0], 1);
    arch_near(rope_of(&r)->u.rope.freq[1], pow(150000, -0.25));
    arch_near(rope_of(&r)->u.rope.freq[2], plain / 32 * ramp + plain * (1 - ramp));
    arch_near(rope_of(&r)->u.rope.freq[3], pow(150000, -0.75) / 32);
    arch_near(rope_of(&r)->u.rope.mscale, 1.3465736);
    struct tape_capabilities c;
    tape_describe(r.p, &c);
    assert_string_equal(c.positional, "yarn");
    arch_close(&r);
}

static void windows(void **state)
{
    (void)state;
    struct gguf_build *g = llama_file(LLAMA);
    gguf_build_u32(g, "llama.attention.sliding_window", 48);
    struct arch_opened r = arch_record(&llama_test, g);
    assert_int_equal(arch_op(r.p, "blk.0.attention")->u.attn.window, 48);
    arch_close(&r);
    g = llama_file(QWEN2); /* whose window is switched off */
    gguf_build_u32(g, "qwen2.attention.sliding_window", 48);
    r = arch_record(&llama_test, g);
    assert_int_equal(arch_op(r.p, "blk.0.attention")->u.attn.window, 0);
    arch_close(&r);
}

/* Mixtral's older files have a tensor for each expert: the same pass, of the same names. */
static struct gguf_build *split_experts(unsigned left_out)
{
    static const struct {
        const char *name;
        uint32_t rows, cols;
    } parts[] = { { "ffn_gate", T_F, T_E }, { "ffn_up", T_F, T_E }, { "ffn_down", T_E, T_F } };
    struct gguf_build *g = llama_file(MIXTRAL);
    char name[64];
    for (unsigned l = 0; l < T_L; l++)
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
            (void)snprintf(name, sizeof name, "blk.%u.%s_exps.weight", l, parts[i].name);
            gguf_build_drop(g, name);
            for (unsigned e = 0; e < T_X; e++) {
                (void)snprintf(name, sizeof name, "blk.%u.%s.%u.weight", l, parts[i].name, e);
                if (l != 1 || i != 1 || e != left_out)
                    gguf_build_floats(g, name, parts[i].rows, parts[i].cols, 1, NULL);
            }
        }
    return g;
}

static void experts_one_by_one(void **state)
{
    (void)state;
    struct arch_opened whole = arch_record(&llama_test, llama_file(MIXTRAL)),
                       parts = arch_record(&llama_test, split_experts(T_X));
    assert_int_equal(whole.p->n_launches, parts.p->n_launches);
    assert_int_equal(whole.p->n_tensors, parts.p->n_tensors);
    for (uint32_t i = 0; i < whole.p->n_tensors; i++) {
        const struct tape_tensor *a = &whole.p->tensors[i], *b = &parts.p->tensors[i];
        assert_true(a->rows == b->rows && a->cols == b->cols && a->slabs == b->slabs && a->bytes == b->bytes);
        assert_int_equal(b->slab_files != NULL, strstr(a->name, "_exps.") != NULL);
        if (!b->slab_files) continue;
        assert_ptr_equal(tape_slab_file(b, 0), b->file);
        for (uint32_t e = 0; e < T_X; e++) {
            const struct gguf_tensor *t = tape_slab_file(b, e);
            char end[24];
            (void)snprintf(end, sizeof end, ".%u.weight", (unsigned)e);
            assert_memory_equal(t->name.data + t->name.len - strlen(end), end, strlen(end));
            assert_int_equal(tape_slab_first(b, e), 0);
            assert_int_equal(tape_slab_first(a, e), a->bytes / T_X * e);
        }
    }
    arch_close(&whole);
    arch_close(&parts);
    for (unsigned out = 0; out < T_X; out++) {
        struct gguf_build *g = split_experts(out);
        assert_int_equal(arch_attempt(&llama_test, g, NULL), WK_INVALID);
        assert_non_null(strstr(arch_text, "blk.1.ffn_up"));
        assert_non_null(strstr(arch_text, "missing in the file"));
        gguf_build_free(g);
    }
    struct gguf_build *g = split_experts(T_X); /* one of another type */
    gguf_build_tensor(g, "blk.2.ffn_down.1.weight", 1, T_E, T_F, 1, NULL, (size_t)T_E * T_F * 2);
    assert_int_equal(arch_attempt(&llama_test, g, NULL), WK_INVALID);
    assert_non_null(strstr(arch_text, "another type or shape"));
    gguf_build_free(g);
}

/* ---- whole files --------------------------------------------------------------------------------------- */

static void made_files(void **state)
{
    (void)state;
    static const char *const names[] = { "llama.gguf", "mistral.gguf",    "qwen2.gguf",
                                         "qwen3.gguf", "llama-yarn.gguf", "llama-biases.gguf" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[DATA_PATH_MAX], text[400];
        const struct wk_err err = { text, sizeof text };
        struct gguf *file;
        if (gguf_open(golden_file(path, names[i]), &file, &err) != WK_OK) fail_msg("%s", text);
        const struct tape_options o = test_options();
        struct tape_program *p = test_record(arch_of(&llama_test), file, &o);
        test_check_program(p);
        for (uint32_t l = 0; l < p->n_layers; l++) assert_int_equal(test_launches_of_layer(p, l), 5);
        tape_free(p);
        gguf_close(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_a_layer),
        cmocka_unit_test(what_tells_members_apart),
        cmocka_unit_test(heads_of_their_own_length),
        cmocka_unit_test(linear_scaling),
        cmocka_unit_test(llama3_scaling),
        cmocka_unit_test(yarn_scaling),
        cmocka_unit_test(windows),
        cmocka_unit_test(experts_one_by_one),
        cmocka_unit_test(made_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
