/* test_zoo_record.c: the models' recordings. */
#include "test_zoo_record.h"

#include <worker/rope.h>

static struct wk_rows range(const char *name, uint32_t total, uint32_t first, uint32_t n)
{
    return (struct wk_rows){ name, total, first, n, 0 };
}

static wk_value gated(const struct wk_builder *b, wk_value h, uint32_t fn)
{
    return wk_linear(b, wk_glu(b, fn, wk_linear(b, h, "ffn_gate", F, 0), wk_linear(b, h, "ffn_up", F, 0)), "ffn_down",
                     E, 0);
}

/* A rotation of heads. */
struct turn {
    uint32_t head, pairs, style;
    double base, mscale;
};
static wk_value turned(const struct wk_builder *b, wk_value x, const struct turn *t)
{
    double freq[16];
    wk_rope_frequencies(freq, t->pairs, t->base);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, t->pairs, t->style, t->mscale);
    return wk_rope(b, x, t->head, &rope);
}

/* Attention whose q and k are turned, up to its output. bias: of the four products. */
static wk_value turned_attention(const struct wk_builder *b, wk_value h, const struct turn *t, const char *sinks,
                                 const struct wk_op_attention *att, uint32_t bias)
{
    const uint32_t width = att->kv_heads * t->head;
    wk_value q = turned(b, wk_linear(b, h, "attn_q", att->heads * t->head, bias), t),
             k = turned(b, wk_linear(b, h, "attn_k", width, bias), t), v = wk_linear(b, h, "attn_v", width, bias);
    return wk_linear(b, wk_attention(b, q, k, v, sinks, att), "attn_output", E, bias);
}

static void dense_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    enum { H = 6, G = 2, D = 20, QKV = (H + 2 * G) * D };
    static const struct turn turn = { D, 8, WK_ROPE_HALF, 10000, 1.1 };
    struct wk_op_attention att = { .heads = H, .kv_heads = G, .scale = 0.3f, .softcap = 20.0f };
    wk_value x = wk_scale(b, wk_embed(b, "token_embd", V, E), 1.5f);
    for (uint32_t l = 0; l < L; l++) {
        wk_layer(b, l);
        att.window = l ? 0 : 40;
        wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-5f);
        wk_value q = wk_linear_rows(b, h, range("attn_qkv", QKV, 0, H * D), WK_REQUIRED),
                 k = wk_linear_rows(b, h, range("attn_qkv", QKV, H * D, G * D), WK_REQUIRED);
        wk_value v = wk_linear_rows(b, h, range("attn_qkv", QKV, (H + G) * D, G * D), WK_REQUIRED);
        q = turned(b, wk_head_norm(b, q, "attn_q_norm", D, 1e-6f), &turn);
        k = turned(b, wk_head_norm(b, k, "attn_k_norm", D, 1e-6f), &turn);
        x = wk_add(b, x,
                   wk_rms_norm(b, wk_linear(b, wk_attention(b, q, k, v, NULL, &att), "attn_output", E, WK_REQUIRED),
                               "post_norm", 1e-5f));
        x = wk_add(b, x, gated(b, wk_rms_norm(b, x, "ffn_norm", 1e-5f), l ? WK_GLU_GELU_TANH : WK_GLU_SILU));
    }
    wk_end_layers(b);
    wk_logits(b, wk_softcap(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", 1e-5f), "token_embd", V, 0), 5.0f));
}

static uint32_t swirl_width(const uint32_t *in_width, uint32_t n_in)
{
    return n_in == 2 && in_width[0] == in_width[1] ? in_width[0] : 0;
}
static void swirl(const struct wk_custom_call *c)
{
    const float *p = c->params;
    for (uint32_t r = 0; r < c->n_rows; r++)
        for (uint32_t i = 0; i < c->out_width; i++)
            c->out[r * c->out_width + i] = c->in[0][r * c->in_width[0] + i] * p[0] +
                                           c->in[1][r * c->in_width[1] + i] * (1.0f / (1.0f + (float)c->position[r])) +
                                           c->tensor[0][i] * c->tensor[1][0];
}
static const struct wk_custom_def swirl_def = { sizeof swirl_def, WK_SPLIT_COLUMNS, "swirl", swirl_width, swirl };
static const struct wk_custom_tensor swirl_tensors[] = { { "swirl.shift", 1, E / 2 }, { "swirl.factor", 1, 1 } };

/* custom: whether the two halves meet in the plugin's own operation or in a sum. */
static void record_learned(const struct wk_builder *b, bool custom)
{
    enum { H = 4, G = 4, DK = 16, DV = 24 };
    const float half = 0.5f;
    const struct wk_op_attention att = { .heads = H, .kv_heads = G, .scale = 0.25f };
    wk_value x = wk_add(b, wk_embed(b, "token_embd", V, E), wk_embed_pos(b, "position_embd", ZOO_CONTEXT, E, 0));
    for (uint32_t l = 0; l < L; l++) {
        wk_layer(b, l);
        wk_value h = wk_layer_norm(b, x, "attn_norm", 1e-5f);
        wk_value q = wk_linear(b, h, "attn_q", H * DK, WK_REQUIRED), k = wk_linear(b, h, "attn_k", G * DK, WK_NONE),
                 v = wk_linear(b, h, "attn_v", G * DV, WK_REQUIRED);
        x = wk_add(b, x, wk_linear(b, wk_attention(b, q, k, v, NULL, &att), "attn_output", E, WK_REQUIRED));
        h = wk_layer_norm(b, x, "ffn_norm", 1e-5f);
        wk_value u = wk_linear(b, h, "ffn_up", F, WK_REQUIRED);
        u = wk_unary(b, wk_unary(b, u, l ? WK_UNARY_GELU_ERF : WK_UNARY_GELU_TANH, 0), WK_UNARY_SOFTCAP, 3.0f);
        x = wk_add(b, x, wk_linear(b, u, "ffn_down", E, WK_REQUIRED));
        /* A gate of one column, halves of a row, and each of the other maps. */
        wk_value gate = wk_unary(b, wk_linear(b, h, "gate", 1, WK_REQUIRED), WK_UNARY_SIGMOID, 0);
        wk_value low = wk_unary(b, wk_slice(b, h, 0, E / 2), WK_UNARY_TANH, 0),
                 high = wk_unary(b, wk_slice(b, h, E / 2, E / 2), WK_UNARY_SILU, 0);
        wk_value in[2] = { wk_mul(b, low, gate), wk_unary(b, wk_mul(b, high, low), WK_UNARY_RELU, 0) };
        wk_value joined =
            custom ? wk_custom(b, &swirl_def, in, 2, swirl_tensors, 2, &half, sizeof half) : wk_add(b, in[0], in[1]);
        x = wk_add(b, x, wk_linear(b, joined, "mix", E, WK_NONE));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_layer_norm(b, x, "output_norm", 1e-5f), "output", V, WK_REQUIRED));
}

static void learned_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    record_learned(b, true);
}

static void maps_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    record_learned(b, false);
}

static void experts_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    enum { H = 8, G = 2, D = 32 };
    static const struct turn turn = { D, D / 2, WK_ROPE_INTERLEAVED, 5000, 1 };
    struct wk_op_attention att = { .heads = H, .kv_heads = G, .scale = 0.18f };
    static const uint32_t scores[3] = { WK_SCORE_SOFTMAX_TOPK, WK_SCORE_SOFTMAX, WK_SCORE_SOFTMAX },
                          flags[3] = { 0, 0, WK_ROUTE_NORMALIZE };
    wk_value x = wk_embed(b, "token_embd", V, E);
    for (uint32_t l = 0; l < 3; l++) {
        wk_layer(b, l);
        att.window = l == 1 ? 70 : 0;
        wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-5f);
        x = wk_add(b, x, turned_attention(b, h, &turn, "attn_sinks", &att, WK_REQUIRED));
        h = wk_rms_norm(b, x, "ffn_norm", 1e-5f);
        wk_value r =
            wk_route(b, wk_linear(b, h, "ffn_gate_inp", X, WK_REQUIRED), K, scores[l], flags[l], l ? 1.5f : 1.0f);
        wk_value g = wk_expert(b, h, r, "ffn_gate_exps", X, F, l == 0 ? WK_REQUIRED : WK_NONE),
                 u = wk_expert(b, h, r, "ffn_up_exps", X, F, l == 0 ? WK_REQUIRED : WK_NONE);
        wk_value f = l == 0 ? wk_glu_op(b, WK_GLU_SILU_CLAMPED, g, u, 1.702f, 2.0f) : wk_glu(b, WK_GLU_GELU_ERF, g, u);
        x = wk_add(b, x, wk_combine(b, wk_expert(b, f, r, "ffn_down_exps", X, E, l == 0 ? WK_REQUIRED : WK_NONE), r));
        if (l == 2) {
            wk_value gate = wk_unary(b, wk_linear(b, h, "shared_gate", 1, WK_NONE), WK_UNARY_SIGMOID, 0);
            x = wk_add(b, x, wk_mul(b, gated(b, h, WK_GLU_SILU), gate));
        }
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", 1e-5f), "output", V, 0));
}

/* classes: two products and a function behind pool, instead of a length of 1. */
static void record_pooled(const struct wk_builder *b, bool classes)
{
    enum { H = 4, G = 2, D = 32 };
    static const struct turn turn = { D, D / 2, WK_ROPE_HALF, 5000, 1 };
    const struct wk_op_attention att = { .heads = H, .kv_heads = G, .scale = 0.18f };
    wk_value x = wk_embed(b, "token_embd", V, E);
    wk_layer(b, 0);
    wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-5f);
    x = wk_add(b, x, turned_attention(b, h, &turn, NULL, &att, 0));
    wk_end_layers(b);
    x = wk_rms_norm(b, x, "output_norm", 1e-5f);
    wk_value p = wk_pool(b, x, WK_POOL_MEAN);
    if (classes) {
        p = wk_unary(b, wk_linear(b, p, "cls", E, WK_REQUIRED), WK_UNARY_TANH, 0);
        p = wk_linear(b, p, "cls_out", 3, WK_REQUIRED);
    }
    wk_embedding(b, p, classes ? 0 : WK_OUTPUT_L2_NORM);
    wk_logits(b, wk_linear(b, x, "output", V, 0));
}
static void embedding_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    record_pooled(b, false);
}
static void classes_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    record_pooled(b, true);
}

static void wide_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    enum { H = 11, D = 32 };
    const struct wk_op_attention att = { .heads = H, .kv_heads = 1, .scale = 0.18f };
    wk_value x = wk_embed(b, "token_embd", V, E);
    wk_layer(b, 0);
    wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-5f);
    wk_value a = wk_attention(b, wk_linear(b, h, "attn_q", H * D, 0), wk_linear(b, h, "attn_k", D, 0),
                              wk_linear(b, h, "attn_v", D, 0), NULL, &att);
    x = wk_add(b, x, wk_linear(b, a, "attn_output", E, 0));
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", 1e-5f), "output", V, 0));
}

static void windows_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    static const uint32_t widths[] = { 1, 33, 64, 200 };
    enum { H = 4, G = 2, D = 32 };
    static const struct turn turn = { D, D / 2, WK_ROPE_HALF, 500, 1 };
    struct wk_op_attention att = { .heads = H, .kv_heads = G, .scale = 0.2f };
    wk_value x = wk_embed(b, "token_embd", V, E);
    for (uint32_t l = 0; l < WINDOWS; l++) {
        wk_layer(b, l);
        att.window = widths[l];
        wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-5f);
        x = wk_add(b, x, turned_attention(b, h, &turn, NULL, &att, 0));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", 1e-5f), "output", V, 0));
}

static const struct wk_op_route zoo_routes[ROUTES] = {
    { .score = WK_SCORE_SIGMOID, .groups = 4, .groups_used = 2, .group_score = WK_GROUP_TOP2, .flags = 1, .scale = 2 },
    { .score = WK_SCORE_SOFTMAX, .groups = 2, .groups_used = 1, .group_score = WK_GROUP_MAX, .scale = 3 },
    { .score = WK_SCORE_SOFTMAX, .groups = 4, .groups_used = 3, .group_score = WK_GROUP_TOP2, .flags = 1, .scale = 1 },
    { .score = WK_SCORE_SOFTMAX, .flags = 1, .scale = 1 },
    { .score = WK_SCORE_SIGMOID, .scale = 0.5f },
    { .score = WK_SCORE_SIGMOID, .groups = 4, .groups_used = 2, .group_score = WK_GROUP_MAX, .scale = 1 },
    { .score = WK_SCORE_SOFTMAX_TOPK, .flags = 1, .scale = 0.5f },
};
bool zoo_biased(uint32_t layer) { return layer == 0 || layer == 3 || layer == 5; }

/* Heads of a part that turns and a part that does not; the keys' turning part is one for all. */
static wk_value parted_attention(const struct wk_builder *b, wk_value x, wk_value h)
{
    enum { H = 4, G = 2, N = 16, R = 16, DV = 24 };
    const struct wk_op_attention att = { .heads = H, .kv_heads = G, .scale = 0.2f };
    static const struct turn turn = { R, R / 2, WK_ROPE_HALF, 5000, 1 };
    wk_value q = wk_linear(b, h, "attn_q", H * (N + R), 0), kv = wk_linear(b, h, "attn_kv", R + G * (N + DV), 0);
    q = wk_concat_groups(b, wk_slice_groups(b, q, H, 0, N), turned(b, wk_slice_groups(b, q, H, N, R), &turn), H, 0);
    wk_value parts = wk_slice(b, kv, R, G * (N + DV)), common = turned(b, wk_slice(b, kv, 0, R), &turn);
    wk_value k = wk_concat_groups(b, wk_slice_groups(b, parts, G, 0, N), common, G, 2);
    wk_value a = wk_attention(b, q, k, wk_slice_groups(b, parts, G, N, DV), NULL, &att);
    wk_value gate = wk_unary(b, wk_linear(b, x, "head_gate", H, 0), WK_UNARY_SIGMOID, 0);
    return wk_linear(b, wk_mul(b, wk_mul(b, a, gate), wk_vector(b, "head_gain", H, 1)), "attn_output", E, 0);
}

/* The last three layers give an expert's weight to its input, to its result, to the sum. */
static wk_value routed(const struct wk_builder *b, wk_value h, uint32_t layer)
{
    struct wk_op_route route = zoo_routes[layer];
    route.k = K;
    wk_value r =
        wk_route_op(b, wk_linear(b, h, "ffn_gate_inp", RX, 0), zoo_biased(layer) ? "exp_probs_b.bias" : NULL, &route);
    wk_value gu = wk_expert(b, layer == 4 ? wk_mul(b, h, r) : h, r, "ffn_gate_up_exps", RX, 2 * RF, 0);
    wk_value f =
        wk_glu(b, WK_GLU_SILU, wk_slice_groups(b, gu, 4, 0, RF / 4), wk_slice_groups(b, gu, 4, RF / 4, RF / 4));
    if (layer == 1) f = wk_concat(b, wk_slice(b, f, 32, 32), wk_slice(b, f, 0, 32));
    if (layer == 2) f = wk_mul(b, f, wk_vector(b, "expert_gain", 1, RF));
    wk_value y = wk_expert(b, f, r, "ffn_down_exps", RX, E, 0);
    if (layer == 5) y = wk_mul(b, y, r);
    return wk_combine(b, y, layer == 4 || layer == 5 ? wk_none() : r);
}

/* [h's first half, gate, some of the second half] in each of two groups */
static wk_value three_parts(const struct wk_builder *b, wk_value h)
{
    struct wk_op_concat c = { .o = wk_op_head(sizeof c, WK_OP_CONCAT), .groups = 2, .repeated = 2 };
    c.o.in[0] = wk_slice(b, h, 0, E / 2).id;
    c.o.in[1] = wk_linear(b, h, "mix_gate", 4, 0).id;
    c.o.in[2] = wk_slice(b, h, E / 2, 56).id;
    return wk_append(b, &c.o);
}

static void routes_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    wk_value x = wk_add(b, wk_embed(b, "token_embd", V, E), wk_embed_pos(b, "position_embd", ZOO_CONTEXT, E, 0));
    x = wk_add(b, x, wk_embed_row(b, "type_embd", 3, E, 1));
    x = wk_add(b, x, wk_embed_token_type(b, "type_embd", 3, E));
    x = wk_add(b, x, wk_mul(b, x, wk_embed_row(b, "type_embd", 3, E, 2)));
    for (uint32_t l = 0; l < ROUTES; l++) {
        wk_layer(b, l);
        x = wk_add(b, x, parted_attention(b, x, wk_rms_norm(b, x, "attn_norm", 1e-5f)));
        x = wk_add(b, x, wk_vector(b, "layer_bias", 1, E));
        wk_value h = wk_rms_norm(b, x, "ffn_norm", 1e-5f);
        x = wk_add(b, x, routed(b, h, l));
        if (l == 0) x = wk_add(b, x, wk_linear(b, three_parts(b, h), "mix", E, 0));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", 1e-5f), "output", V, 0));
}

/* The second layer's parts are no multiples of anything, and neither are its rows. */
static void heads_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    wk_value x = wk_embed(b, "token_embd", V, E);
    for (uint32_t l = 0; l < L; l++) {
        const uint32_t H = l ? 3 : 4, D = l ? 40 : 64, PART = l ? 25 : 32;
        const struct wk_op_attention att = { .heads = H, .kv_heads = 1, .scale = 0.2f };
        wk_layer(b, l);
        wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-5f);
        wk_value q = wk_linear_heads(b, wk_linear(b, h, "attn_q", H * PART, 0), "attn_k_b", H, D);
        wk_value a = wk_attention(b, q, wk_linear(b, h, "attn_k", D, 0), wk_linear(b, h, "attn_v", D, 0), NULL, &att);
        x = wk_add(b, x, wk_linear(b, wk_linear_heads(b, a, "attn_v_b", H, PART), "attn_output", E, 0));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", 1e-5f), "output", V, 0));
}

/* The last layer's states give their results for the logits rows alone. */
static void states_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    enum { H = 6, G = 2, DK = 18, DV = 20, LONG = 40 };
    wk_value x = wk_embed(b, "token_embd", V, E);
    for (uint32_t l = 0; l < L; l++) {
        wk_layer(b, l);
        wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-5f);
        wk_value in = wk_conv(b, wk_linear(b, h, "ssm_in", H * DV + G * DK, 0), "ssm_conv1d", 4, WK_REQUIRED);
        in = wk_unary(b, in, WK_UNARY_SILU, 0);
        wk_value v = wk_slice(b, in, 0, H * DV), q = wk_slice(b, in, H * DV, G * DK),
                 k = wk_conv(b, wk_linear(b, h, "ssm_k", G * DK, 0), "conv_long", LONG, WK_NONE);
        wk_value decay = wk_scale(b, wk_unary(b, wk_linear(b, h, "ssm_dt", H, WK_REQUIRED), WK_UNARY_SOFTPLUS, 0),
                                  l ? -0.02f : -0.5f);
        wk_value y;
        if (l) {
            /* Keys no longer than 1, or the rule would not settle. */
            k = wk_scale(b, wk_head_norm(b, k, "k_norm", DK, 1e-6f), 0.2f);
            y = wk_delta(b, q, k, v, decay, wk_unary(b, wk_linear(b, h, "ssm_beta", H, 0), WK_UNARY_SIGMOID, 0), H, G);
        } else {
            y = wk_scan(b, q, wk_head_norm(b, k, "k_norm", DK, 1e-6f), v, decay, H, G);
            y = wk_mul(b, y, wk_linear(b, h, "ssm_beta_wide", H * DV, 0));
        }
        x = wk_add(b, x, wk_linear(b, y, "ssm_out", E, 0));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", 1e-5f), "output", V, 0));
}

static void hybrid_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    enum { H = 4, G = 2, D = 32 };
    static const struct turn turn = { D, D / 2, WK_ROPE_HALF, 5000, 1 };
    struct wk_op_attention att = { .heads = H, .kv_heads = G, .scale = 0.18f };
    wk_value x = wk_embed(b, "token_embd", V, E);
    for (uint32_t l = 0; l < 3; l++) {
        wk_layer(b, l);
        att.window = l ? 0 : 40;
        wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-5f);
        wk_value q = wk_linear(b, h, "attn_q", H * D, 0), k = wk_linear(b, h, "attn_k", G * D, 0),
                 v = wk_linear(b, h, "attn_v", G * D, 0), y;
        if (l == 1) {
            const wk_value wide = wk_conv(b, q, "conv_one", 1, WK_NONE),
                           decay = wk_scale(b, wk_unary(b, wk_slice(b, v, 0, H), WK_UNARY_EXP, 0), -0.3f);
            q = wk_slice(b, v, D, D);
            k = wk_unary(b, wk_slice(b, k, 0, D), WK_UNARY_SIGMOID, 0);
            y = wk_scan(b, q, k, wide, decay, H, 1);
        } else {
            y = wk_attention(b, turned(b, q, &turn), turned(b, k, &turn), v, NULL, &att);
        }
        x = wk_add(b, x, wk_linear(b, y, "attn_output", E, 0));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", 1e-5f), "output", V, 0));
}

static void record_attend(const struct wk_builder *b, const struct attend_layers *layers, bool pooled)
{
    static const float slopes[] = { 0.25f, 0.0625f, 0.4f, 0.0f, 0.03f, 0.1f, 0.5f, 0.007f };
    wk_value x = wk_embed(b, "token_embd", V, E), seen[8] = { { 0 } };
    if (pooled) x = wk_add(b, x, wk_embed_token_type(b, "type_embd", 2, E));
    for (uint32_t l = 0; l < layers->n; l++) {
        const struct attend_layer *a = &layers->layer[l];
        const struct wk_op_attention att = { .heads = a->heads,
                                             .kv_heads = a->kv_heads,
                                             .scale = 0.18f,
                                             .softcap = a->softcap,
                                             .window = a->window,
                                             .flags = a->flags,
                                             .chunk = a->chunk,
                                             .value_in_key = a->value_in_key,
                                             .slopes = a->slopes ? slopes : NULL };
        const struct turn turn = { a->head, 8, WK_ROPE_HALF, 5000, 1 };
        const char *sinks = a->sinks ? "attn_sinks" : NULL;
        wk_layer(b, l);
        wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-5f);
        wk_value q = turned(b, wk_linear(b, h, "attn_q", a->heads * a->head, 0), &turn);
        if (a->reuse) {
            seen[l] = wk_attention_reuse(b, q, seen[a->source], sinks, &att);
        } else {
            wk_value k = turned(b, wk_linear(b, h, "attn_k", a->kv_heads * a->head, 0), &turn);
            wk_value v = a->value_in_key ? wk_none() : wk_linear(b, h, "attn_v", a->kv_heads * a->head, 0);
            seen[l] = wk_attention(b, q, k, v, sinks, &att);
        }
        x = wk_add(b, x, wk_linear(b, seen[l], "attn_output", E, 0));
    }
    wk_end_layers(b);
    x = wk_rms_norm(b, x, "output_norm", 1e-5f);
    if (pooled) wk_embedding(b, wk_pool(b, x, WK_POOL_MEAN), WK_OUTPUT_L2_NORM);
    wk_logits(b, wk_linear(b, x, "output", V, 0));
}

static const struct attend_layer chunk_layers[] = {
    { .heads = 6, .kv_heads = 2, .head = 20, .chunk = 96, .sinks = true },
    { .heads = 8, .kv_heads = 2, .head = 20, .chunk = 96, .reuse = true, .source = 0 },
    { .heads = 6, .kv_heads = 2, .head = 32, .window = 40, .softcap = 4.0f, .slopes = true },
    { .heads = 8, .kv_heads = 1, .head = 32, .slopes = true },
    { .heads = 4, .kv_heads = 2, .head = 32, .window = 40, .reuse = true, .source = 2 },
};
static const struct attend_layer latent_layers[] = {
    { .heads = 11, .kv_heads = 1, .head = 40, .value_in_key = 32 },
    { .heads = 6, .kv_heads = 2, .head = 36, .value_in_key = 36, .window = 70, .softcap = 4.0f },
    { .heads = 22, .kv_heads = 1, .head = 40, .value_in_key = 32, .reuse = true, .source = 0 },
    { .heads = 8, .kv_heads = 1, .head = 40, .value_in_key = 20, .chunk = 64, .slopes = true, .sinks = true },
};
static const struct attend_layer both_layers[] = {
    { .heads = 8, .kv_heads = 2, .head = 32, .flags = WK_ATTENTION_BIDIRECTIONAL, .slopes = true },
    { .heads = 4, .kv_heads = 4, .head = 20, .flags = WK_ATTENTION_BIDIRECTIONAL, .window = 40, .sinks = true },
    { .heads = 8,
      .kv_heads = 2,
      .head = 32,
      .flags = WK_ATTENTION_BIDIRECTIONAL,
      .softcap = 4.0f,
      .reuse = true,
      .source = 0 },
};
#define LAYERS(l) { l, sizeof(l) / sizeof *(l) }
const struct attend_layers zoo_chunks = LAYERS(chunk_layers), zoo_latent = LAYERS(latent_layers),
                           zoo_both = LAYERS(both_layers);

static void chunks_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    record_attend(b, &zoo_chunks, false);
}
static void latent_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    record_attend(b, &zoo_latent, false);
}
static void both_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    record_attend(b, &zoo_both, true);
}

static wk_status open_nothing(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    (void)meta;
    (void)err;
    *model = NULL;
    return WK_OK;
}
static void close_nothing(void *model) { (void)model; }

static const char *const arch_names[] = { "zoo" };
#define ZOO_ARCH(r)                          \
    { .struct_size = sizeof(struct wk_arch), \
      .n_names = 1,                          \
      .names = arch_names,                   \
      .open = open_nothing,                  \
      .record = r,                           \
      .close = close_nothing }
const struct wk_arch zoo_archs[ZOO_KINDS] = {
    ZOO_ARCH(dense_record),  ZOO_ARCH(learned_record), ZOO_ARCH(experts_record), ZOO_ARCH(embedding_record),
    ZOO_ARCH(wide_record),   ZOO_ARCH(maps_record),    ZOO_ARCH(windows_record), ZOO_ARCH(routes_record),
    ZOO_ARCH(heads_record),  ZOO_ARCH(classes_record), ZOO_ARCH(states_record),  ZOO_ARCH(hybrid_record),
    ZOO_ARCH(chunks_record), ZOO_ARCH(latent_record),  ZOO_ARCH(both_record)
};
