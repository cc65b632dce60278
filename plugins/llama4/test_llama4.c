/* test_llama4.c: what llama4.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

/* SCOUT: experts in every layer, a table of factors; MAVERICK: in every second layer, and 128 of them, tied. */
enum { SCOUT, MAVERICK, FILES };
enum { FX = 20 };

static uint32_t n_experts(uint32_t file) { return file == MAVERICK ? 128 : T_X; }

static void put_layer(struct gguf_build *g, uint32_t l, uint32_t file)
{
    const uint32_t X = n_experts(file);
    const struct arch_shape
        all[] = { { "attn_norm.weight", 1, T_E, 1 },           { "attn_q.weight", T_H * T_D, T_E, 1 },
                  { "attn_k.weight", T_G * T_D, T_E, 1 },      { "attn_v.weight", T_G * T_D, T_E, 1 },
                  { "attn_output.weight", T_E, T_H * T_D, 1 }, { "ffn_norm.weight", 1, T_E, 1 } },
        dense[] = { { "ffn_gate.weight", T_F, T_E, 1 },
                    { "ffn_up.weight", T_F, T_E, 1 },
                    { "ffn_down.weight", T_E, T_F, 1 } },
        experts[] = { { "ffn_gate_inp.weight", X, T_E, 1 },    { "ffn_gate_exps.weight", FX, T_E, X },
                      { "ffn_up_exps.weight", FX, T_E, X },    { "ffn_down_exps.weight", T_E, FX, X },
                      { "ffn_gate_shexp.weight", FX, T_E, 1 }, { "ffn_up_shexp.weight", FX, T_E, 1 },
                      { "ffn_down_shexp.weight", T_E, FX, 1 } };
    arch_put_layer(g, l, all, ARCH_COUNT(all));
    if (file == MAVERICK && l % 2 == 0)
        arch_put_layer(g, l, dense, ARCH_COUNT(dense));
    else
        arch_put_layer(g, l, experts, ARCH_COUNT(experts));
}

static struct gguf_build *make_of(uint32_t file, uint32_t layers)
{
    const struct arch_key keys[] = { { "context_length", T_C, true },
                                     { "embedding_length", T_E, true },
                                     { "block_count", layers, true },
                                     { "feed_forward_length", T_F, true },
                                     { "attention.head_count", T_H, true },
                                     { "attention.head_count_kv", T_G, true },
                                     { "attention.key_length", T_D, true },
                                     { "attention.value_length", T_D, true },
                                     { "attention.layer_norm_rms_epsilon", 1e-5, false },
                                     { "rope.dimension_count", T_D, true },
                                     { "rope.freq_base", 500000, false },
                                     { "interleave_moe_layer_step", file == MAVERICK ? 2 : 1, true },
                                     { "expert_count", n_experts(file), true },
                                     { "expert_used_count", 1, true },
                                     { "expert_feed_forward_length", FX, true } };
    static const struct arch_shape outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "output_norm.weight", 1, T_E, 1 } };
    static const float factors[T_D / 2] = { 1, 1, 2, 8 };
    struct gguf_build *g = gguf_build_new("llama4");
    arch_put_keys(g, "llama4", keys, ARCH_COUNT(keys));
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    if (file == SCOUT) {
        gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL);
        gguf_build_floats(g, "rope_freqs.weight", 1, T_D / 2, 1, factors);
    }
    for (uint32_t l = 0; l < layers; l++) put_layer(g, l, file);
    return g;
}
static struct gguf_build *make(uint32_t file) { return make_of(file, T_L); }

static const char *without(uint32_t file, const char *tensor)
{
    (void)file;
    return strcmp(tensor, "output.weight") == 0 || strcmp(tensor, "rope_freqs.weight") == 0 ? NULL : tensor;
}
/* The embedding says itself how many tokens there are. */
static const char *longer(uint32_t file, const char *tensor)
{
    if (strcmp(tensor, "token_embd.weight") != 0) return tensor;
    return file == SCOUT ? "output.weight" : NULL;
}

static const struct arch_test test = { "llama4", FILES, NULL, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

static const struct tape_op *made_of(const struct tape_program *p, const struct tape_op *o, uint32_t input)
{
    return &p->ops[p->values[o->in[input]].op];
}

static const struct tape_op *attention_of(const struct tape_program *p, uint32_t layer)
{
    char name[64];
    (void)snprintf(name, sizeof name, "blk.%u.attention", (unsigned)layer);
    return arch_op(p, name);
}

/* The fourth layer and the eighth: everything is seen, q grows with the position, k is as it was made. */
static void check_still(const struct tape_program *p, uint32_t layer)
{
    const struct tape_op *a = attention_of(p, layer), *q = made_of(p, a, 0);
    assert_true(a->u.attn.chunk == 0 && q->kind == WK_OP_ROPE && q->u.rope.n == T_D / 2);
    for (uint32_t i = 0; i < T_D / 2; i++) assert_true(q->u.rope.freq[i] == 0);
    arch_near(q->u.rope.temperature, 0.1);
    assert_int_equal(q->u.rope.temperature_length, 8192);
    assert_int_equal(made_of(p, q, 0)->kind, WK_OP_LINEAR);
    assert_int_equal(made_of(p, a, 1)->kind, WK_OP_LINEAR);
}

static void check_turning(const struct tape_program *p, uint32_t layer, uint32_t file, uint32_t chunk)
{
    const struct tape_op *a = attention_of(p, layer);
    assert_int_equal(a->u.attn.chunk, chunk);
    arch_near((double)a->u.attn.scale, 1 / sqrt(T_D));
    for (uint32_t i = 0; i < 2; i++) { /* q, k */
        const struct tape_op *rope = made_of(p, a, i), *norm = made_of(p, rope, 0);
        assert_true(rope->kind == WK_OP_ROPE && rope->u.rope.style == WK_ROPE_INTERLEAVED &&
                    !rope->u.rope.temperature_length);
        arch_near(rope->u.rope.freq[3], pow(500000, -0.75) / (file == SCOUT ? 8 : 1));
        if (file == MAVERICK) {
            assert_int_equal(norm->kind, WK_OP_LINEAR);
            continue;
        }
        assert_true(norm->kind == WK_OP_NORM && norm->u.norm.group == T_D && norm->t[0] == TAPE_NONE);
    }
}

static void layers(void **state)
{
    (void)state;
    enum { LAYERS = 9 };
    for (uint32_t file = 0; file < FILES; file++) {
        struct tape_capabilities c;
        struct arch_opened r = arch_record(&test, make_of(file, LAYERS));
        for (uint32_t l = 0; l < LAYERS; l++)
            if (l == 3 || l == 7)
                check_still(r.p, l);
            else
                check_turning(r.p, l, file, 8192);
        for (uint32_t k = 0; k < r.p->n_launches; k++) /* a norm whose rows are multiplied for the experts, too */
            if (r.p->launches[k].alone[0]) assert_non_null(strstr(r.p->launches[k].alone, ".mul1"));
        tape_describe(r.p, &c);
        assert_string_equal(c.positional, "rope_llama");
        assert_string_equal(c.attention, "gqa chunked");
        arch_close(&r);
    }
}

/* What no published file says: lengths of chunks and the growth, and none of all that. */
static void keys_of_positions(void **state)
{
    (void)state;
    struct gguf_build *g = make_of(SCOUT, 4);
    gguf_build_u32(g, "llama4.attention.sliding_window", 64);
    gguf_build_u32(g, "llama4.attention.temperature_length", 100);
    gguf_build_f32(g, "llama4.attention.temperature_scale", 0.25f);
    struct arch_opened r = arch_record(&test, g);
    check_turning(r.p, 0, SCOUT, 64);
    const struct tape_op *q = made_of(r.p, attention_of(r.p, 3), 0);
    assert_int_equal(q->u.rope.temperature_length, 100);
    arch_near(q->u.rope.temperature, 0.25);
    arch_close(&r);
    g = make_of(SCOUT, 4);
    gguf_build_f32(g, "llama4.attention.temperature_scale", 0);
    r = arch_record(&test, g);
    assert_int_equal(made_of(r.p, attention_of(r.p, 3), 0)->kind, WK_OP_LINEAR);
    arch_close(&r);
    g = make_of(SCOUT, 4);
    gguf_build_u32(g, "llama4.attention.sliding_window", 0);
    r = arch_record(&test, g);
    for (uint32_t l = 0; l < 4; l++) check_turning(r.p, l, SCOUT, 0);
    arch_close(&r);
}

/* The weights multiply what experts read, and not what they give. */
static void experts(void **state)
{
    (void)state;
    struct arch_opened r = arch_record(&test, make(SCOUT));
    const struct tape_op *route = arch_op(r.p, "blk.1.route"), *up = arch_op(r.p, "blk.1.ffn_up_exps"),
                         *combine = arch_op(r.p, "blk.1.combine"), *x = made_of(r.p, up, 0);
    assert_true(route->u.route.k == 1 && route->u.route.score == WK_SCORE_SIGMOID && !route->u.route.flags);
    assert_true(x->kind == WK_OP_MUL && x->in[1] == route->out);
    assert_ptr_equal(made_of(r.p, x, 0), made_of(r.p, arch_op(r.p, "blk.1.ffn_up_shexp"), 0));
    assert_int_equal(combine->in[1], TAPE_NONE);
    arch_close(&r);
    r = arch_record(&test, make(MAVERICK));
    assert_int_equal(tape_find_value(r.p, "blk.0.route"), TAPE_NONE);
    assert_int_not_equal(tape_find_value(r.p, "blk.1.route"), TAPE_NONE);
    assert_string_equal(arch_weight(r.p, "blk.2.ffn_down"), "blk.2.ffn_down.weight");
    assert_string_equal(arch_weight(r.p, "logits"), "token_embd.weight"); /* tied */
    arch_close(&r);
}

/* ---- hostile files ------------------------------------------------------------------------------------- */

static void arrays(void **state)
{
    (void)state;
    arch_arrays(&test, SCOUT);
}

static void relations(void **state)
{
    (void)state;
    static const struct arch_relation rows[] = {
        { SCOUT,
          { "attention.head_count_kv", 3, true },
          "attention.head_count is 4, must be a multiple of head_count_kv, 3" },
        { SCOUT, { "rope.dimension_count", 4, true }, "rope.dimension_count is 4, must be all 8 values of a head" },
        { SCOUT, { "attention.sliding_window", 40, true }, "attention.sliding_window is 40, must be a multiple of 32" },
        { SCOUT, { "rope.scaling.factor", 4, false }, "llama4.rope.scaling.factor" },
        { SCOUT, { "expert_used_count", 9, true }, "expert_used_count is 9, must be at most expert_count, 8" },
        { SCOUT, { "expert_count", 7, true }, "blk.0.ffn_gate_inp.weight: the file has 8 rows" },
        { SCOUT, { "expert_gating_func", 1, true }, "llama4.expert_gating_func" },
        { SCOUT, { "expert_weights_scale", 2, false }, "llama4.expert_weights_scale" },
        { SCOUT, { "interleave_moe_layer_step", 2, true }, "blk.0.ffn_gate.weight: missing in the file" },
        { MAVERICK, { "interleave_moe_layer_step", 1, true }, "blk.0.ffn_gate_inp.weight: missing in the file" },
        { SCOUT, { "nextn_predict_layers", 1, true }, "llama4.nextn_predict_layers" },
        { SCOUT, { "block_count", 4, true }, "blk.3.attn_norm.weight: missing in the file" },
        { SCOUT, { "block_count", 2, true }, "blk.2.attn_norm.weight is in the file, nothing reads it" },
    };
    arch_relations(&test, rows, ARCH_COUNT(rows));
    arch_rope_scaling(&test, SCOUT, "yarn");
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = {
        { SCOUT, "blk.0.ffn_gate.weight" },
        { SCOUT, "blk.0.attn_q_norm.weight" },
        { SCOUT, "blk.0.attn_q.bias" },
        { SCOUT, "blk.1.exp_probs_b.bias" },
        { MAVERICK, "blk.0.ffn_up_shexp.weight" },
        { MAVERICK, "output_norm.bias" },
    };
    arch_surplus_tensors(&test, rows, ARCH_COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers),          cmocka_unit_test(keys_of_positions),
        cmocka_unit_test(experts),         ARCH_EVERY_PLUGIN(test),
        cmocka_unit_test(arrays),          cmocka_unit_test(relations),
        cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
