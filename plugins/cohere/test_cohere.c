/* test_cohere.c: what cohere.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

enum { COMMAND_R, COMMAND_R_PLUS, COHERE2, UNTIED, FILES }; /* UNTIED: cohere2 with an output of its own */
enum { WINDOW = 40 };

static const char *architecture_of(uint32_t file) { return file < COHERE2 ? "command-r" : "cohere2"; }

static void put_layer(struct gguf_build *g, uint32_t l, uint32_t file)
{
    static const struct arch_shape all[] = { { "attn_norm.weight", 1, T_E, 1 },
                                             { "attn_q.weight", T_H * T_D, T_E, 1 },
                                             { "attn_k.weight", T_G * T_D, T_E, 1 },
                                             { "attn_v.weight", T_G * T_D, T_E, 1 },
                                             { "attn_output.weight", T_E, T_H * T_D, 1 },
                                             { "ffn_gate.weight", T_F, T_E, 1 },
                                             { "ffn_up.weight", T_F, T_E, 1 },
                                             { "ffn_down.weight", T_E, T_F, 1 } },
                                   plus[] = { { "attn_q_norm.weight", T_H, T_D, 1 },
                                              { "attn_k_norm.weight", T_G, T_D, 1 } };
    arch_put_layer(g, l, all, ARCH_COUNT(all));
    if (file == COMMAND_R_PLUS) arch_put_layer(g, l, plus, ARCH_COUNT(plus));
}

static struct gguf_build *make(uint32_t file)
{
    static const struct arch_key keys[] = { { "context_length", T_C, true },
                                            { "embedding_length", T_E, true },
                                            { "block_count", T_L, true },
                                            { "feed_forward_length", T_F, true },
                                            { "attention.head_count", T_H, true },
                                            { "attention.head_count_kv", T_G, true },
                                            { "attention.layer_norm_epsilon", 1e-5, false },
                                            { "rope.freq_base", 50000, false },
                                            { "logit_scale", 0.0625, false } },
                                 window[] = { { "attention.sliding_window", WINDOW, true },
                                              { "rope.dimension_count", T_D, true } };
    static const struct arch_shape outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "output_norm.weight", 1, T_E, 1 } };
    const char *a = architecture_of(file);
    char type[64];
    struct gguf_build *g = gguf_build_new(a);
    arch_put_keys(g, a, keys, ARCH_COUNT(keys));
    if (file >= COHERE2) arch_put_keys(g, a, window, ARCH_COUNT(window));
    (void)snprintf(type, sizeof type, "%s.rope.scaling.type", a);
    gguf_build_str(g, type, "none");
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    if (file == UNTIED) gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL);
    for (uint32_t l = 0; l < T_L; l++) put_layer(g, l, file);
    return g;
}

/* The first layer tells whether heads are normed. */
static const char *without(uint32_t file, const char *tensor)
{
    (void)file;
    if (strcmp(tensor, "output.weight") == 0) return NULL;
    if (strcmp(tensor, "blk.0.attn_q_norm.weight") == 0)
        return "blk.0.attn_k_norm.weight is in the file, nothing reads it";
    return tensor;
}
/* The embedding says itself how many tokens there are: a row more is one that the head lacks, or, tied, one token
 * more. */
static const char *longer(uint32_t file, const char *tensor)
{
    if (strcmp(tensor, "token_embd.weight") != 0) return tensor;
    return file == UNTIED ? "output.weight" : NULL;
}

static const struct arch_test test = { "cohere", FILES, architecture_of, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

/* Both branches read one norm. */
static void parallel_branches(void **state)
{
    (void)state;
    struct arch_opened r = arch_record(&test, make(COMMAND_R));
    const uint32_t norm = tape_find_value(r.p, "blk.1.attn_norm");
    assert_int_not_equal(norm, TAPE_NONE);
    assert_int_equal(arch_op(r.p, "blk.1.attn_norm")->u.norm.kind, WK_NORM_LAYER);
    static const char *const readers[] = { "blk.1.attn_q", "blk.1.attn_k", "blk.1.attn_v", "blk.1.ffn_gate",
                                           "blk.1.ffn_up" };
    for (size_t i = 0; i < ARCH_COUNT(readers); i++) assert_int_equal(arch_op(r.p, readers[i])->in[0], norm);
    assert_int_equal(arch_op(r.p, "blk.1.attn_q.rope")->u.rope.style, WK_ROPE_INTERLEAVED);
    arch_near((double)arch_op(r.p, "blk.1.attention")->u.attn.scale, 1 / sqrt(T_D));
    assert_int_equal(arch_op(r.p, "blk.1.glu")->u.glu.fn, WK_GLU_SILU);
    const struct tape_op *scale = arch_op(r.p, "logits");
    assert_int_equal(scale->u.unary.fn, WK_UNARY_SCALE);
    arch_near((double)scale->u.unary.p, 0.0625); /* it multiplies */
    arch_close(&r);
}

/* Command R+'s have weights for each head. */
static void head_norms(void **state)
{
    (void)state;
    struct arch_opened r = arch_record(&test, make(COMMAND_R_PLUS));
    uint32_t norms = 0;
    for (uint32_t i = 0; i < r.p->n_ops; i++) {
        const struct tape_op *o = &r.p->ops[i];
        if (o->kind != WK_OP_NORM || !o->u.norm.group) continue;
        assert_true(o->u.norm.kind == WK_NORM_LAYER && o->u.norm.group == T_D && o->t[0] == TAPE_NONE);
        norms++;
    }
    assert_int_equal(norms, 2 * T_L);
    arch_close(&r);
    r = arch_record(&test, make(COMMAND_R));
    for (uint32_t i = 0; i < r.p->n_ops; i++) assert_false(r.p->ops[i].kind == WK_OP_NORM && r.p->ops[i].u.norm.group);
    arch_close(&r);
}

/* Of four layers three rotate and see a window; the fourth does neither. */
static void pattern(void **state)
{
    (void)state;
    enum { LAYERS = 8 };
    struct gguf_build *g = make(COHERE2);
    gguf_build_u32(g, "cohere2.block_count", LAYERS);
    for (uint32_t l = T_L; l < LAYERS; l++) put_layer(g, l, COHERE2);
    struct arch_opened r = arch_record(&test, g);
    struct tape_capabilities c;
    for (uint32_t l = 0; l < LAYERS; l++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%u.attention", (unsigned)l);
        assert_int_equal(arch_op(r.p, name)->u.attn.window, l % 4 == 3 ? 0 : WINDOW);
        (void)snprintf(name, sizeof name, "blk.%u.attn_q.rope", (unsigned)l);
        assert_int_equal(tape_find_value(r.p, name) == TAPE_NONE, l % 4 == 3);
    }
    tape_describe(r.p, &c);
    assert_string_equal(c.attention, "gqa swa");
    arch_close(&r);
    g = make(COMMAND_R); /* has no pattern */
    gguf_build_u32(g, "command-r.block_count", LAYERS);
    for (uint32_t l = T_L; l < LAYERS; l++) put_layer(g, l, COMMAND_R);
    r = arch_record(&test, g);
    assert_int_not_equal(tape_find_value(r.p, "blk.3.attn_q.rope"), TAPE_NONE);
    assert_int_equal(arch_op(r.p, "blk.0.attention")->u.attn.window, 0);
    tape_describe(r.p, &c);
    assert_string_equal(c.attention, "gqa");
    assert_string_equal(c.positional, "rope_llama");
    arch_close(&r);
}

/* ---- hostile files ------------------------------------------------------------------------------------- */

static void arrays(void **state)
{
    (void)state;
    arch_arrays(&test, COMMAND_R);
}

static void relations(void **state)
{
    (void)state;
    static const struct arch_relation rows[] = {
        { COMMAND_R,
          { "attention.head_count_kv", 3, true },
          "attention.head_count is 4, must be a multiple of head_count_kv, 3" },
        { COMMAND_R,
          { "attention.head_count", 8, true },
          "blk.0.attn_k.weight: the file has 16 rows x 32 columns, the plugin asks for 8 x 32" },
        { COMMAND_R, { "attention.key_length", 7, true }, "rope.dimension_count is 7, must be even" },
        { COHERE2, { "rope.dimension_count", 10, true }, "at most the 8 values of a head" },
        { COMMAND_R, { "rope.scaling.factor", 4, false }, "command-r.rope.scaling.factor" },
        { COMMAND_R, { "attention.sliding_window", WINDOW, true }, "command-r.attention.sliding_window" },
        { COHERE2, { "attention.sliding_window", 0, true }, "cohere2.attention.sliding_window: 0, must be 1 to" },
        { COHERE2, { "attention.sliding_window_pattern", 4, true }, "cohere2.attention.sliding_window_pattern" },
        { COHERE2, { "logit_scale", 0, false }, "cohere2.logit_scale" },
        { COHERE2, { "block_count", 4, true }, "blk.3.attn_norm.weight: missing in the file" },
        { COHERE2, { "block_count", 2, true }, "blk.2.attn_norm.weight is in the file, nothing reads it" },
        { COHERE2, { "expert_count", 8, true }, "cohere2.expert_count" },
    };
    arch_relations(&test, rows, ARCH_COUNT(rows));
    arch_rope_scaling(&test, COMMAND_R, "yarn");
    struct gguf_build *g = make(COHERE2);
    gguf_build_drop(g, "cohere2.attention.sliding_window");
    arch_must_refuse(&test, g, "cohere2.attention.sliding_window is missing");
    gguf_build_drop(g, "cohere2.rope.scaling.type");
    gguf_build_u32(g, "cohere2.attention.sliding_window", WINDOW);
    assert_int_equal(arch_attempt(&test, g, NULL), WK_OK);
    gguf_build_free(g);
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = {
        { COMMAND_R, "blk.0.attn_q.bias" },
        { COMMAND_R, "blk.0.ffn_norm.weight" },
        { COMMAND_R, "blk.1.attn_q_norm.weight" },
        { COMMAND_R, "blk.0.attn_norm.bias" },
        { COHERE2, "blk.3.attn_q.weight" },
        { COHERE2, "output_norm.bias" },
        { UNTIED, "output.bias" },
        { COHERE2, "rope_freqs.weight" },
    };
    arch_surplus_tensors(&test, rows, ARCH_COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parallel_branches),
        cmocka_unit_test(head_norms),
        cmocka_unit_test(pattern),
        ARCH_EVERY_PLUGIN(test),
        cmocka_unit_test(arrays),
        cmocka_unit_test(relations),
        cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
