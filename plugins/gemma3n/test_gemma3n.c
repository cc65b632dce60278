/* test_gemma3n.c: what gemma3n.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

/* PLAIN: sliding, global and sliding, the last without keys of its own; UNTIED: with an output of its own, and keys and
 * values in all layers. */
enum { PLAIN, UNTIED, FILES };
enum { PARTS = 4, RANK = 6, P = 12 /* of a layer's own embedding */ };

static void put_keys_and_values(struct gguf_build *g, uint32_t l)
{
    static const struct arch_shape own[] = { { "attn_k.weight", T_G * T_D, T_E, 1 },
                                             { "attn_v.weight", T_G * T_D, T_E, 1 },
                                             { "attn_k_norm.weight", 1, T_D, 1 } };
    arch_put_layer(g, l, own, ARCH_COUNT(own));
}

static void put_layer(struct gguf_build *g, uint32_t l)
{
    static const struct arch_shape layer[] = {
        { "attn_norm.weight", 1, T_E, 1 },
        { "attn_q.weight", T_H * T_D, T_E, 1 },
        { "attn_q_norm.weight", 1, T_D, 1 },
        { "attn_output.weight", T_E, T_H * T_D, 1 },
        { "post_attention_norm.weight", 1, T_E, 1 },
        { "ffn_norm.weight", 1, T_E, 1 },
        { "ffn_gate.weight", T_F, T_E, 1 },
        { "ffn_up.weight", T_F, T_E, 1 },
        { "ffn_down.weight", T_E, T_F, 1 },
        { "post_ffw_norm.weight", 1, T_E, 1 },
        { "laurel_l.weight", RANK, T_E, 1 },
        { "laurel_r.weight", T_E, RANK, 1 },
        { "laurel_post_norm.weight", 1, T_E, 1 },
        { "altup_router.weight", PARTS, T_E, 1 },
        { "altup_router_norm.weight", 1, T_E, 1 },
        { "altup_predict_coef.weight", PARTS * PARTS, PARTS, 1 },
        { "altup_correct_coef.weight", PARTS, PARTS, 1 },
        { "altup_correct_scale.weight", 1, T_E, 1 },
        { "inp_gate.weight", P, T_E, 1 },
        { "proj.weight", T_E, P, 1 },
        { "post_norm.weight", 1, T_E, 1 },
    };
    arch_put_layer(g, l, layer, ARCH_COUNT(layer));
}

static struct gguf_build *make(uint32_t file)
{
    static const struct arch_key keys[] = { { "context_length", T_C, true },
                                            { "embedding_length", T_E, true },
                                            { "block_count", T_L, true },
                                            { "feed_forward_length", T_F, true },
                                            { "attention.head_count", T_H, true },
                                            { "attention.head_count_kv", T_G, true },
                                            { "attention.key_length", T_D, true },
                                            { "attention.value_length", T_D, true },
                                            { "attention.sliding_window", 40, true },
                                            { "attention.layer_norm_rms_epsilon", 1e-6, false },
                                            { "rope.freq_base", 1e6, false },
                                            { "rope.freq_base_swa", 5000, false },
                                            { "altup.active_idx", 0, true },
                                            { "altup.num_inputs", PARTS, true },
                                            { "embedding_length_per_layer_input", P, true } };
    static const struct arch_shape outside[] = {
        { "token_embd.weight", T_V, T_E, 1 },
        { "output_norm.weight", 1, T_E, 1 },
        { "per_layer_token_embd.weight", T_V, T_L * P, 1 },
        { "per_layer_model_proj.weight", T_L * P, T_E, 1 },
        { "per_layer_proj_norm.weight", 1, P, 1 },
        { "altup_proj.weight", T_E, T_E, PARTS - 1 },
        { "altup_unembd_proj.weight", T_E, T_E, PARTS - 1 },
    };
    static const uint8_t sliding[T_L] = { 1, 0, 1 };
    const float sparsity[T_L] = { 1.5f, -INFINITY, -INFINITY };
    struct gguf_build *g = gguf_build_new("gemma3n");
    arch_put_keys(g, "gemma3n", keys, ARCH_COUNT(keys));
    gguf_build_u32(g, "gemma3n.attention.shared_kv_layers", file == PLAIN);
    gguf_build_array(g, "gemma3n.attention.sliding_window_pattern", GGUF_BOOL, T_L, sliding);
    gguf_build_array(g, "gemma3n.activation_sparsity_scale", GGUF_F32, T_L, sparsity);
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    if (file == UNTIED) {
        gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL);
        gguf_build_f32(g, "gemma3n.final_logit_softcapping", 50);
    }
    for (uint32_t l = 0; l < T_L; l++) {
        put_layer(g, l);
        if (file == UNTIED || l < 2) put_keys_and_values(g, l);
    }
    return g;
}

static const char *without(uint32_t file, const char *tensor)
{
    (void)file;
    return strcmp(tensor, "output.weight") == 0 ? NULL : tensor;
}
/* The embedding says itself how many tokens there are, and the first layer's how wide the product of low rank is. */
static const char *longer(uint32_t file, const char *tensor)
{
    (void)file;
    if (strcmp(tensor, "token_embd.weight") == 0) return "per_layer_token_embd.weight";
    if (strcmp(tensor, "blk.0.laurel_l.weight") == 0) return "blk.0.laurel_r.weight";
    return tensor;
}

static const struct arch_test test = { "gemma3n", FILES, NULL, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

static const struct tape_op *op_of(const struct tape_program *p, uint32_t layer, const char *value)
{
    char name[64];
    (void)snprintf(name, sizeof name, "blk.%u.%s", (unsigned)layer, value);
    return arch_op(p, name);
}
static const struct tape_op *made_of(const struct tape_program *p, const struct tape_op *o, uint32_t input)
{
    return &p->ops[p->values[o->in[input]].op];
}
static bool has_value(const struct tape_program *p, const char *name) { return tape_find_value(p, name) != TAPE_NONE; }

static void attention_of_layers(void **state)
{
    (void)state;
    struct tape_capabilities c;
    for (uint32_t file = 0; file < FILES; file++) {
        struct arch_opened r = arch_record(&test, make(file));
        for (uint32_t l = 0; l < T_L; l++) {
            const struct tape_op *a = op_of(r.p, l, "attention"), *q = made_of(r.p, a, 0);
            const bool shared = file == PLAIN && l == 2;
            assert_int_equal(a->u.attn.window, l == 1 ? 0 : 40);
            arch_near((double)a->u.attn.scale, 1);
            assert_int_equal(a->u.attn.kv_layer, shared ? 0 : l); /* the last one that is sliding, too */
            assert_int_equal(a->in[1] == TAPE_NONE, shared);
            assert_true(q->kind == WK_OP_ROPE && q->u.rope.style == WK_ROPE_HALF);
            arch_near(q->u.rope.freq[1], pow(l == 1 ? 1e6 : 5000, -0.25));
            if (shared) continue;
            const struct tape_op *v = made_of(r.p, a, 2);
            assert_true(v->kind == WK_OP_NORM && v->u.norm.group == T_D && v->t[0] == TAPE_NONE);
            assert_ptr_equal(made_of(r.p, a, 1)->u.rope.freq, q->u.rope.freq);
        }
        assert_int_equal(r.p->n_kv_layers, file == PLAIN ? 2 : 3);
        tape_describe(r.p, &c);
        assert_string_equal(c.positional, "rope_neox");
        assert_string_equal(c.attention, "gqa swa");
        arch_close(&r);
    }
}

static void parts(void **state)
{
    (void)state;
    struct arch_opened r = arch_record(&test, make(PLAIN));
    for (uint32_t l = 0; l < T_L; l++) {
        const struct tape_op *before = op_of(r.p, l, "predict"), *after = op_of(r.p, l, "correct");
        assert_true(before->kind == WK_OP_CUSTOM && after->kind == WK_OP_CUSTOM);
        assert_int_equal(r.p->values[after->out].width, PARTS * T_E);
        assert_int_equal(before->in[2] == TAPE_NONE, l == 0); /* nothing stands before the first layer */
        assert_int_equal(after->in[0], before->out);
        const struct tape_op *tanh_of = made_of(r.p, made_of(r.p, before, 1), 0), *scale = made_of(r.p, tanh_of, 0);
        assert_true(tanh_of->u.unary.fn == WK_UNARY_TANH && scale->u.unary.fn == WK_UNARY_SCALE);
        arch_near((double)scale->u.unary.p, 1.0 / T_E);
        char name[32];
        (void)snprintf(name, sizeof name, "blk.%u.above", (unsigned)l);
        assert_int_equal(has_value(r.p, name), l == 0);
    }
    float factor;
    memcpy(&factor, arch_op(r.p, "blk.0.above")->u.custom.params, sizeof factor);
    assert_true(factor == 1.5f);
    const struct tape_op *own = made_of(r.p, op_of(r.p, 1, "glu.2"), 1); /* the second layer's own embedding */
    assert_true(own->kind == WK_OP_SLICE && own->u.slice.first == P && own->u.slice.n == P);
    assert_int_equal(arch_op(r.p, "altup_proj")->u.linear.slabs, PARTS - 1);
    arch_near((double)arch_op(r.p, "token_embd.scale")->u.unary.p, sqrt(T_E));
    arch_near((double)arch_op(r.p, "per_layer_token_embd.scale")->u.unary.p, sqrt(P));
    arch_close(&r);
}

static void heads(void **state)
{
    (void)state;
    struct arch_opened r = arch_record(&test, make(PLAIN));
    assert_string_equal(arch_weight(r.p, "token_embd.2"), "token_embd.weight"); /* tied */
    arch_near((double)arch_op(r.p, "logits")->u.unary.p, 30);                   /* as nothing says another cap */
    arch_close(&r);
    r = arch_record(&test, make(UNTIED));
    assert_string_equal(arch_weight(r.p, "output"), "output.weight");
    assert_int_equal(arch_op(r.p, "logits")->u.unary.fn, WK_UNARY_SOFTCAP);
    arch_near((double)arch_op(r.p, "logits")->u.unary.p, 50);
    arch_close(&r);
}

/* Older programs' files have no base of sliding layers; one value of a list is every layer's. */
static void absent_keys(void **state)
{
    (void)state;
    struct gguf_build *g = make(UNTIED);
    gguf_build_drop(g, "gemma3n.rope.freq_base_swa");
    gguf_build_u32(g, "gemma3n.attention.sliding_window_pattern", 1);
    gguf_build_f32(g, "gemma3n.activation_sparsity_scale", 0);
    struct arch_opened r = arch_record(&test, g);
    for (uint32_t l = 0; l < T_L; l++) {
        assert_int_equal(op_of(r.p, l, "attention")->u.attn.window, 40);
        arch_near(made_of(r.p, op_of(r.p, l, "attention"), 0)->u.rope.freq[1], 0.1);
        assert_int_equal(op_of(r.p, l, "above")->kind, WK_OP_CUSTOM);
    }
    arch_close(&r);
}

/* ---- the plugin's own operations ------------------------------------------------------------------------ */

static void run(const struct tape_program *p, const char *value, const float *const *in, uint32_t n_rows, float *out)
{
    const struct tape_op *o = arch_op(p, value);
    uint32_t width[3] = { 0 }, n = 0;
    for (; n < 3 && o->in[n] != TAPE_NONE; n++) width[n] = p->values[o->in[n]].width;
    const struct wk_custom_call call = { .struct_size = sizeof call,
                                         .n_rows = n_rows,
                                         .n_in = n,
                                         .out_width = p->values[o->out].width,
                                         .in = in,
                                         .in_width = width,
                                         .params = o->u.custom.params,
                                         .out = out };
    o->u.custom.def->cpu(&call);
}

/* Of rows that are 0 but for a few values: no NaN where a part has no length, and rows do not touch each other. */
static void operations(void **state)
{
    (void)state;
    enum { ROWS = 2, WIDE = PARTS * T_E };
    static float rows[ROWS * WIDE], c[ROWS * PARTS * PARTS], more[ROWS * T_E], y[ROWS * WIDE], gate[ROWS * T_F];
    struct arch_opened r = arch_record(&test, make(PLAIN));
    rows[WIDE] = 2, rows[WIDE + T_E] = 3; /* of the second row: its first and its second part */
    c[PARTS * PARTS + 2 * PARTS] = 0.5f, c[PARTS * PARTS + 2 * PARTS + 1] = 0.25f;
    more[T_E] = 1;
    run(r.p, "blk.1.predict", (const float *const[]){ rows, c, more }, ROWS, y);
    for (uint32_t i = 0; i < WIDE; i++) assert_true(y[i] == 0);
    assert_true(y[WIDE] == 2 && y[WIDE + T_E] == 4 && y[WIDE + 3 * T_E] == 1);
    assert_true(y[WIDE + 2 * T_E] == 1 + 0.5f * 2 + 0.25f * 4);
    memset(c, 0, sizeof c);
    c[PARTS + 1] = -1, c[PARTS + 2] = 0.5f;
    run(r.p, "blk.1.correct", (const float *const[]){ rows, c, more }, ROWS, y);
    assert_true(y[WIDE] == 1 && y[WIDE + T_E] == 3 && y[WIDE + 2 * T_E] == -1.5f && y[WIDE + 3 * T_E] == -1);
    run(r.p, "as_long", (const float *const[]){ rows + T_E, rows + WIDE }, 1, y); /* of parts of zeros */
    for (uint32_t i = 0; i < 3 * T_E; i++) assert_true(y[i] == 0);
    run(r.p, "as_long", (const float *const[]){ rows + WIDE + T_E, rows + WIDE }, 1, y);
    assert_true(y[0] == 2 && y[T_E] == 0);
    for (uint32_t i = 0; i < T_F; i++) gate[i] = 7, gate[T_F + i] = i % 2 ? 1.0f : -1.0f;
    gate[T_F] = 9;
    run(r.p, "blk.0.above", (const float *const[]){ gate }, ROWS, y);
    for (uint32_t i = 0; i < T_F; i++) assert_true(y[i] == 0 && (y[T_F + i] == 0) == (i != 0));
    const double mean = 10.0 / T_F, least = mean + 1.5 * sqrt((81.0 + T_F - 1) / T_F - mean * mean);
    arch_near((double)y[T_F], 9 - least);
    arch_close(&r);
}

/* ---- hostile files ------------------------------------------------------------------------------------- */

static void arrays(void **state)
{
    (void)state;
    arch_arrays(&test, PLAIN);
}

static void lists_of_layers(void **state)
{
    (void)state;
    static const uint32_t large[T_L] = { 1, 2, 1 };
    const float wide[T_L] = { 1, 1, 101 }, none[T_L] = { 1, 1, NAN }, all[T_L] = { 1, INFINITY, 1 };
    const char *pattern = "gemma3n.attention.sliding_window_pattern", *sparsity = "gemma3n.activation_sparsity_scale";
    const float *const wrong[] = { wide, none, all };
    struct gguf_build *g = make(PLAIN);
    for (size_t i = 0; i < ARCH_COUNT(wrong); i++) {
        gguf_build_array(g, sparsity, GGUF_F32, T_L, wrong[i]);
        arch_must_refuse(&test, g, sparsity);
    }
    gguf_build_array(g, sparsity, GGUF_F32, 2, wide);
    arch_must_refuse(&test, g, sparsity);
    gguf_build_drop(g, sparsity);
    arch_must_refuse(&test, g, sparsity);
    gguf_build_free(g);
    g = make(PLAIN);
    gguf_build_array(g, pattern, GGUF_U32, T_L, large);
    arch_must_refuse(&test, g, pattern);
    gguf_build_drop(g, pattern);
    arch_must_refuse(&test, g, pattern);
    gguf_build_free(g);
}

static void relations(void **state)
{
    (void)state;
    static const struct arch_relation rows[] = {
        { PLAIN,
          { "attention.head_count_kv", 3, true },
          "attention.head_count is 4, must be a multiple of head_count_kv, 3" },
        { PLAIN,
          { "attention.shared_kv_layers", 3, true },
          "attention.shared_kv_layers is 3, must be less than block_count, 3" },
        { PLAIN,
          { "attention.shared_kv_layers", 2, true },
          "attention.shared_kv_layers is 2: none of the first 1 layers is global, as layer 1 is" },
        { PLAIN, { "altup.num_inputs", 3, true }, "gemma3n.altup.num_inputs" },
        { PLAIN, { "altup.active_idx", 1, true }, "gemma3n.altup.active_idx" },
        { PLAIN,
          { "embedding_length_per_layer_input", 13, true },
          "per_layer_token_embd.weight: the file has 48 rows x 36 columns, the plugin asks for 48 x 39" },
        { PLAIN, { "attn_logit_softcapping", 50, false }, "gemma3n.attn_logit_softcapping" },
        { PLAIN, { "rope.scaling.factor", 8, false }, "gemma3n.rope.scaling.factor" },
        { PLAIN, { "vision.block_count", 27, true }, "gemma3n.vision.block_count" },
        { PLAIN, { "rope.dimension_count", 10, true }, "at most the 8 values of a head" },
    };
    arch_relations(&test, rows, ARCH_COUNT(rows));
    arch_rope_scaling(&test, PLAIN, "linear");
}

/* Files may have keys and values of layers that read those of others. */
static void unread_tensors(void **state)
{
    (void)state;
    struct gguf_build *g = make(PLAIN);
    put_keys_and_values(g, 2);
    struct arch_opened r = arch_record(&test, g);
    assert_int_equal(r.p->n_kv_layers, 2);
    arch_close(&r);
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = {
        { PLAIN, "blk.0.attn_q.bias" },        { PLAIN, "blk.3.attn_k.weight" },
        { PLAIN, "output_norm.bias" },         { UNTIED, "output.bias" },
        { PLAIN, "rope_freqs.weight" },        { PLAIN, "blk.2.attn_k.bias" },
        { PLAIN, "blk.2.attn_v_norm.weight" }, { PLAIN, "v.patch_embd.weight" },
    };
    arch_surplus_tensors(&test, rows, ARCH_COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_of_layers),
        cmocka_unit_test(parts),
        cmocka_unit_test(heads),
        cmocka_unit_test(absent_keys),
        cmocka_unit_test(operations),
        ARCH_EVERY_PLUGIN(test),
        cmocka_unit_test(arrays),
        cmocka_unit_test(lists_of_layers),
        cmocka_unit_test(relations),
        cmocka_unit_test(unread_tensors),
        cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
