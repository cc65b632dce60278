/* test_zoo.c: the models. Types of tensors follow from their columns, so that every model mixes several. */
#include "test_zoo.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <worker/rope.h>

#include "plugin/format.h"
#include "device/kv_pages.h"
#include "gguf_build.h"

#include <cmocka.h>

enum { E = 256, V = ZOO_VOCAB, F = 320, X = 6, K = 3, L = 2, WINDOWS = 4, ROUTES = 7, RX = 8, RF = 64 };

const char *zoo_name(enum zoo_kind kind)
{
    static const char *const names[ZOO_KINDS] = { "dense",  "learned", "experts", "embedding", "wide",
                                                  "maps",   "windows", "routes",  "heads",     "classes",
                                                  "states", "hybrid",  "chunks",  "latent",    "both" };
    return names[kind];
}

/* ---- recordings ---------------------------------------------------------------------------------------- */

static struct wk_rows range(const char *name, uint32_t total, uint32_t first, uint32_t n)
{
    return (struct wk_rows){ name, total, first, n, 0 };
}

static wk_value gated(const struct wk_builder *b, wk_value h, uint32_t fn)
{
    return wk_linear(b, wk_glu(b, fn, wk_linear(b, h, "ffn_gate", F, 0), wk_linear(b, h, "ffn_up", F, 0)), "ffn_down",
                     E, 0);
}

static void dense_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    enum { H = 6, G = 2, D = 20, QKV = (H + 2 * G) * D };
    double freq[8];
    wk_rope_frequencies(freq, 8, 10000);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, 8, WK_ROPE_HALF, 1.1);
    struct wk_op_attention att = { .heads = H, .kv_heads = G, .scale = 0.3f, .softcap = 20.0f };
    wk_value x = wk_scale(b, wk_embed(b, "token_embd", V, E), 1.5f);
    for (uint32_t l = 0; l < L; l++) {
        wk_layer(b, l);
        att.window = l ? 0 : 40;
        wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-5f);
        wk_value q = wk_linear_rows(b, h, range("attn_qkv", QKV, 0, H * D), WK_REQUIRED),
                 k = wk_linear_rows(b, h, range("attn_qkv", QKV, H * D, G * D), WK_REQUIRED);
        wk_value v = wk_linear_rows(b, h, range("attn_qkv", QKV, (H + G) * D, G * D), WK_REQUIRED);
        q = wk_rope(b, wk_head_norm(b, q, "attn_q_norm", D, 1e-6f), D, &rope);
        k = wk_rope(b, wk_head_norm(b, k, "attn_k_norm", D, 1e-6f), D, &rope);
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
    double freq[D / 2];
    wk_rope_frequencies(freq, D / 2, 5000);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, D / 2, WK_ROPE_INTERLEAVED, 1);
    struct wk_op_attention att = { .heads = H, .kv_heads = G, .scale = 0.18f };
    static const uint32_t scores[3] = { WK_SCORE_SOFTMAX_TOPK, WK_SCORE_SOFTMAX, WK_SCORE_SOFTMAX },
                          flags[3] = { 0, 0, WK_ROUTE_NORMALIZE };
    wk_value x = wk_embed(b, "token_embd", V, E);
    for (uint32_t l = 0; l < 3; l++) {
        wk_layer(b, l);
        att.window = l == 1 ? 70 : 0;
        wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-5f);
        wk_value q = wk_rope(b, wk_linear(b, h, "attn_q", H * D, WK_REQUIRED), D, &rope),
                 k = wk_rope(b, wk_linear(b, h, "attn_k", G * D, WK_REQUIRED), D, &rope);
        wk_value a = wk_attention(b, q, k, wk_linear(b, h, "attn_v", G * D, WK_REQUIRED), "attn_sinks", &att);
        x = wk_add(b, x, wk_linear(b, a, "attn_output", E, WK_REQUIRED));
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
    double freq[D / 2];
    wk_rope_frequencies(freq, D / 2, 5000);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, D / 2, WK_ROPE_HALF, 1);
    const struct wk_op_attention att = { .heads = H, .kv_heads = G, .scale = 0.18f };
    wk_value x = wk_embed(b, "token_embd", V, E);
    wk_layer(b, 0);
    wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-5f);
    wk_value q = wk_rope(b, wk_linear(b, h, "attn_q", H * D, 0), D, &rope),
             k = wk_rope(b, wk_linear(b, h, "attn_k", G * D, 0), D, &rope);
    x = wk_add(
        b, x,
        wk_linear(b, wk_attention(b, q, k, wk_linear(b, h, "attn_v", G * D, 0), NULL, &att), "attn_output", E, 0));
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
    double freq[16];
    wk_rope_frequencies(freq, 16, 500);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, 16, WK_ROPE_HALF, 1);
    struct wk_op_attention att = { .heads = H, .kv_heads = G, .scale = 0.2f };
    wk_value x = wk_embed(b, "token_embd", V, E);
    for (uint32_t l = 0; l < WINDOWS; l++) {
        wk_layer(b, l);
        att.window = widths[l];
        wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-5f);
        wk_value q = wk_rope(b, wk_linear(b, h, "attn_q", H * D, 0), D, &rope),
                 k = wk_rope(b, wk_linear(b, h, "attn_k", G * D, 0), D, &rope);
        x = wk_add(
            b, x,
            wk_linear(b, wk_attention(b, q, k, wk_linear(b, h, "attn_v", G * D, 0), NULL, &att), "attn_output", E, 0));
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
static bool zoo_biased(uint32_t layer) { return layer == 0 || layer == 3 || layer == 5; }

/* Heads of a part that turns and a part that does not; the keys' turning part is one for all. */
static wk_value parted_attention(const struct wk_builder *b, wk_value x, wk_value h)
{
    enum { H = 4, G = 2, N = 16, R = 16, DV = 24 };
    const struct wk_op_attention att = { .heads = H, .kv_heads = G, .scale = 0.2f };
    double freq[R / 2];
    wk_rope_frequencies(freq, R / 2, 5000);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, R / 2, WK_ROPE_HALF, 1);
    wk_value q = wk_linear(b, h, "attn_q", H * (N + R), 0), kv = wk_linear(b, h, "attn_kv", R + G * (N + DV), 0);
    q = wk_concat_groups(b, wk_slice_groups(b, q, H, 0, N), wk_rope(b, wk_slice_groups(b, q, H, N, R), R, &rope), H, 0);
    wk_value parts = wk_slice(b, kv, R, G * (N + DV)), turned = wk_rope(b, wk_slice(b, kv, 0, R), R, &rope);
    wk_value k = wk_concat_groups(b, wk_slice_groups(b, parts, G, 0, N), turned, G, 2);
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

static void heads_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    enum { H = 4, D = 64, PART = 32 };
    const struct wk_op_attention att = { .heads = H, .kv_heads = 1, .scale = 0.2f };
    wk_value x = wk_embed(b, "token_embd", V, E);
    for (uint32_t l = 0; l < L; l++) {
        wk_layer(b, l);
        wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-5f);
        wk_value q = wk_linear_heads(b, wk_linear(b, h, "attn_q", H * PART, 0), "attn_k_b", H, D);
        wk_value a = wk_attention(b, q, wk_linear(b, h, "attn_k", D, 0), wk_linear(b, h, "attn_v", D, 0), NULL, &att);
        x = wk_add(b, x, wk_linear(b, wk_linear_heads(b, a, "attn_v_b", H, PART), "attn_output", E, 0));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", 1e-5f), "output", V, 0));
}

/* The last layer's states give their results for the wanted rows alone. */
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
    double freq[D / 2];
    wk_rope_frequencies(freq, D / 2, 5000);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, D / 2, WK_ROPE_HALF, 1);
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
            y = wk_attention(b, wk_rope(b, q, D, &rope), wk_rope(b, k, D, &rope), v, NULL, &att);
        }
        x = wk_add(b, x, wk_linear(b, y, "attn_output", E, 0));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", 1e-5f), "output", V, 0));
}

/* A layer of heads with their own names: what of it is there, its shapes say. reuse: keys and values are those that
 * made `source`. */
struct attend_layer {
    uint32_t heads, kv_heads, head, window, chunk, flags, value_in_key;
    float softcap;
    bool slopes, sinks, reuse;
    uint32_t source;
};

static void record_attend(const struct wk_builder *b, const struct attend_layer *layers, uint32_t n, bool pooled)
{
    static const float slopes[] = { 0.25f, 0.0625f, 0.4f, 0.0f, 0.03f, 0.1f, 0.5f, 0.007f };
    double freq[8];
    wk_rope_frequencies(freq, 8, 5000);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, 8, WK_ROPE_HALF, 1);
    wk_value x = wk_embed(b, "token_embd", V, E), seen[8] = { { 0 } };
    for (uint32_t l = 0; l < n; l++) {
        const struct attend_layer *a = &layers[l];
        const struct wk_op_attention att = { .heads = a->heads,
                                             .kv_heads = a->kv_heads,
                                             .scale = 0.18f,
                                             .softcap = a->softcap,
                                             .window = a->window,
                                             .flags = a->flags,
                                             .chunk = a->chunk,
                                             .value_in_key = a->value_in_key,
                                             .slopes = a->slopes ? slopes : NULL };
        const char *sinks = a->sinks ? "attn_sinks" : NULL;
        wk_layer(b, l);
        wk_value h = wk_rms_norm(b, x, "attn_norm", 1e-5f);
        wk_value q = wk_rope(b, wk_linear(b, h, "attn_q", a->heads * a->head, 0), a->head, &rope);
        if (a->reuse) {
            seen[l] = wk_attention_reuse(b, q, seen[a->source], sinks, &att);
        } else {
            wk_value k = wk_rope(b, wk_linear(b, h, "attn_k", a->kv_heads * a->head, 0), a->head, &rope);
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
#define LAYERS(l) l, (uint32_t)(sizeof(l) / sizeof *(l))

static void chunks_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    record_attend(b, LAYERS(chunk_layers), false);
}
static void latent_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    record_attend(b, LAYERS(latent_layers), false);
}
static void both_record(const struct wk_builder *b, const void *model)
{
    (void)model;
    record_attend(b, LAYERS(both_layers), true);
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
static const struct wk_arch archs[ZOO_KINDS] = {
    ZOO_ARCH(dense_record),  ZOO_ARCH(learned_record), ZOO_ARCH(experts_record), ZOO_ARCH(embedding_record),
    ZOO_ARCH(wide_record),   ZOO_ARCH(maps_record),    ZOO_ARCH(windows_record), ZOO_ARCH(routes_record),
    ZOO_ARCH(heads_record),  ZOO_ARCH(classes_record), ZOO_ARCH(states_record),  ZOO_ARCH(hybrid_record),
    ZOO_ARCH(chunks_record), ZOO_ARCH(latent_record),  ZOO_ARCH(both_record)
};

/* ---- files --------------------------------------------------------------------------------------------- */

static uint64_t seed;
static double uniform(void)
{
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(seed >> 11) / (double)(1ull << 53);
}
static float noise(void) { return (float)((uniform() + uniform() + uniform() + uniform() - 2.0) * 1.73); }

/* rows x cols x slabs of deviation `scale` around `mean`, in a type that the columns allow. */
static void put(struct gguf_build *g, const struct plugin_registry *plugins, const char *name, uint32_t rows,
                uint32_t cols, uint32_t slabs, float mean, float scale, bool plain)
{
    enum { TYPE_F32 = 0, TYPE_F16 = 1, TYPE_Q5_0 = 6, TYPE_Q8_0 = 8, TYPE_Q4_K = 12, TYPE_Q6_K = 14 };
    static uint32_t turn;
    const size_t n = (size_t)rows * cols * slabs;
    float *v = malloc(n * sizeof *v);
    assert_non_null(v);
    for (size_t i = 0; i < n; i++) v[i] = mean + scale * noise();
    if (!strcmp(name, "token_embd.weight") && plain && rows > ZOO_BAD_TOKEN)
        for (uint32_t i = 0; i < cols; i++) v[(size_t)ZOO_BAD_TOKEN * cols + i] = INFINITY;
    turn++;
    const uint32_t type = plain             ? TYPE_F32
                          : cols % 256 == 0 ? (turn % 2 ? TYPE_Q4_K : TYPE_Q6_K)
                          : cols % 32 == 0  ? (turn % 2 ? TYPE_Q5_0 : TYPE_Q8_0)
                                            : TYPE_F16;
    const struct wk_type_cpu *t = plugin_find_type(plugins, type, NULL);
    if (!t) fail_msg("no plugin serves type %u", type);
    const size_t bytes = n / t->block * t->block_bytes;
    void *blocks = malloc(bytes);
    assert_non_null(blocks);
    if (type == TYPE_F32)
        memcpy(blocks, v, bytes);
    else
        assert_int_equal(format_quantize(t, blocks, v, n, NULL), WK_OK);
    gguf_build_tensor(g, name, type, rows, cols, slabs, blocks, bytes);
    free(blocks);
    free(v);
}

struct shape {
    const char *name;
    uint32_t rows, cols, slabs;
};

static void put_all(struct gguf_build *g, const struct plugin_registry *plugins, enum zoo_kind kind,
                    const struct shape *s, uint32_t n, uint32_t layers)
{
    for (uint32_t l = 0; l < layers; l++)
        for (uint32_t i = 0; i < n; i++) {
            char name[64];
            const bool weight = s[i].rows > 1 && strstr(s[i].name, "bias") == NULL,
                       norm = strstr(s[i].name, "norm.weight") != NULL;
            if (strncmp(s[i].name, "blk.", 4)) {
                if (l) continue;
                (void)snprintf(name, sizeof name, "%s", s[i].name);
            } else
                (void)snprintf(name, sizeof name, "blk.%u.%s", l, s[i].name + 4);
            /* The router is F32 as in real files; so are tables that are no head too. */
            const bool plain =
                !weight || strstr(name, "gate_inp") || (strstr(name, "_embd.weight") && kind != ZOO_DENSE);
            const float scale = !weight                 ? (norm ? 0.2f : 0.3f)
                                : strstr(name, "_embd") ? 1.0f
                                                        : 1.0f / sqrtf((float)s[i].cols);
            put(g, plugins, name, s[i].rows, s[i].cols, s[i].slabs, norm ? 1.0f : 0.0f, scale, plain);
        }
}

static const struct shape dense_shapes[] = {
    { "token_embd.weight", V, E, 1 },       { "output_norm.weight", 1, E, 1 },
    { "blk.attn_norm.weight", 1, E, 1 },    { "blk.attn_qkv.weight", 200, E, 1 },
    { "blk.attn_qkv.bias", 1, 200, 1 },     { "blk.attn_q_norm.weight", 1, 20, 1 },
    { "blk.attn_k_norm.weight", 1, 20, 1 }, { "blk.attn_output.weight", E, 120, 1 },
    { "blk.attn_output.bias", 1, E, 1 },    { "blk.post_norm.weight", 1, E, 1 },
    { "blk.ffn_norm.weight", 1, E, 1 },     { "blk.ffn_gate.weight", F, E, 1 },
    { "blk.ffn_up.weight", F, E, 1 },       { "blk.ffn_down.weight", E, F, 1 },
};
static const struct shape learned_shapes[] = {
    { "token_embd.weight", V, E, 1 },    { "position_embd.weight", ZOO_CONTEXT, E, 1 },
    { "output_norm.weight", 1, E, 1 },   { "output_norm.bias", 1, E, 1 },
    { "output.weight", V, E, 1 },        { "output.bias", 1, V, 1 },
    { "blk.attn_norm.weight", 1, E, 1 }, { "blk.attn_norm.bias", 1, E, 1 },
    { "blk.attn_q.weight", 64, E, 1 },   { "blk.attn_q.bias", 1, 64, 1 },
    { "blk.attn_k.weight", 64, E, 1 },   { "blk.attn_v.weight", 96, E, 1 },
    { "blk.attn_v.bias", 1, 96, 1 },     { "blk.attn_output.weight", E, 96, 1 },
    { "blk.attn_output.bias", 1, E, 1 }, { "blk.ffn_norm.weight", 1, E, 1 },
    { "blk.ffn_norm.bias", 1, E, 1 },    { "blk.ffn_up.weight", F, E, 1 },
    { "blk.ffn_up.bias", 1, F, 1 },      { "blk.ffn_down.weight", E, F, 1 },
    { "blk.ffn_down.bias", 1, E, 1 },    { "blk.gate.weight", 1, E, 1 },
    { "blk.gate.bias", 1, 1, 1 },        { "blk.mix.weight", E, E / 2, 1 },
};
static const struct shape experts_shapes[] = {
    { "token_embd.weight", V, E, 1 },
    { "output_norm.weight", 1, E, 1 },
    { "output.weight", V, E, 1 },
    { "blk.attn_norm.weight", 1, E, 1 },
    { "blk.attn_q.weight", 256, E, 1 },
    { "blk.attn_q.bias", 1, 256, 1 },
    { "blk.attn_k.weight", 64, E, 1 },
    { "blk.attn_k.bias", 1, 64, 1 },
    { "blk.attn_v.weight", 64, E, 1 },
    { "blk.attn_v.bias", 1, 64, 1 },
    { "blk.attn_sinks.weight", 1, 8, 1 },
    { "blk.attn_output.weight", E, 256, 1 },
    { "blk.attn_output.bias", 1, E, 1 },
    { "blk.ffn_norm.weight", 1, E, 1 },
    { "blk.ffn_gate_inp.weight", X, E, 1 },
    { "blk.ffn_gate_inp.bias", 1, X, 1 },
    { "blk.ffn_gate_exps.weight", F, E, X },
    { "blk.ffn_up_exps.weight", F, E, X },
    { "blk.ffn_down_exps.weight", E, F, X },
};
static const struct shape embedding_shapes[] = {
    { "token_embd.weight", V, E, 1 },    { "output_norm.weight", 1, E, 1 },       { "output.weight", V, E, 1 },
    { "blk.attn_norm.weight", 1, E, 1 }, { "blk.attn_q.weight", 128, E, 1 },      { "blk.attn_k.weight", 64, E, 1 },
    { "blk.attn_v.weight", 64, E, 1 },   { "blk.attn_output.weight", E, 128, 1 },
};
static const struct shape wide_shapes[] = {
    { "token_embd.weight", V, E, 1 },    { "output_norm.weight", 1, E, 1 },       { "output.weight", V, E, 1 },
    { "blk.attn_norm.weight", 1, E, 1 }, { "blk.attn_q.weight", 352, E, 1 },      { "blk.attn_k.weight", 32, E, 1 },
    { "blk.attn_v.weight", 32, E, 1 },   { "blk.attn_output.weight", E, 352, 1 },
};

static const struct shape routes_shapes[] = {
    { "token_embd.weight", V, E, 1 },
    { "position_embd.weight", ZOO_CONTEXT, E, 1 },
    { "type_embd.weight", 3, E, 1 },
    { "output_norm.weight", 1, E, 1 },
    { "output.weight", V, E, 1 },
    { "blk.attn_norm.weight", 1, E, 1 },
    { "blk.attn_q.weight", 128, E, 1 },
    { "blk.attn_kv.weight", 96, E, 1 },
    { "blk.head_gate.weight", 4, E, 1 },
    { "blk.attn_output.weight", E, 96, 1 },
    { "blk.ffn_norm.weight", 1, E, 1 },
    { "blk.ffn_gate_inp.weight", RX, E, 1 },
    { "blk.ffn_gate_up_exps.weight", 2 * RF, E, RX },
    { "blk.ffn_down_exps.weight", E, RF, RX },
};

/* What is no matrix, and what one layer has. */
static void put_routes(struct gguf_build *g, const struct plugin_registry *plugins)
{
    put_all(g, plugins, ZOO_ROUTES, routes_shapes, sizeof routes_shapes / sizeof *routes_shapes, ROUTES);
    for (uint32_t l = 0; l < ROUTES; l++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%u.head_gain", l);
        put(g, plugins, name, 4, 1, 1, 1, 0.2f, true);
        (void)snprintf(name, sizeof name, "blk.%u.layer_bias", l);
        put(g, plugins, name, 1, E, 1, 0, 0.3f, true);
        (void)snprintf(name, sizeof name, "blk.%u.exp_probs_b.bias", l);
        if (zoo_biased(l)) put(g, plugins, name, 1, RX, 1, 0, 0.2f, true);
    }
    put(g, plugins, "blk.0.mix.weight", E, 192, 1, 0, 0.07f, false);
    put(g, plugins, "blk.0.mix_gate.weight", 4, E, 1, 0, 0.06f, false);
    put(g, plugins, "blk.2.expert_gain", 1, RF, 1, 1, 0.2f, true);
}

static const struct shape heads_shapes[] = {
    { "token_embd.weight", V, E, 1 },        { "output_norm.weight", 1, E, 1 },  { "output.weight", V, E, 1 },
    { "blk.attn_norm.weight", 1, E, 1 },     { "blk.attn_q.weight", 128, E, 1 }, { "blk.attn_k_b.weight", 64, 32, 4 },
    { "blk.attn_k.weight", 64, E, 1 },       { "blk.attn_v.weight", 64, E, 1 },  { "blk.attn_v_b.weight", 32, 64, 4 },
    { "blk.attn_output.weight", E, 128, 1 },
};

static const struct shape states_shapes[] = {
    { "token_embd.weight", V, E, 1 },     { "output_norm.weight", 1, E, 1 },  { "output.weight", V, E, 1 },
    { "blk.attn_norm.weight", 1, E, 1 },  { "blk.ssm_in.weight", 156, E, 1 }, { "blk.ssm_conv1d.weight", 156, 4, 1 },
    { "blk.ssm_conv1d.bias", 1, 156, 1 }, { "blk.ssm_k.weight", 36, E, 1 },   { "blk.conv_long.weight", 36, 40, 1 },
    { "blk.ssm_dt.weight", 6, E, 1 },     { "blk.ssm_dt.bias", 1, 6, 1 },     { "blk.k_norm.weight", 1, 18, 1 },
    { "blk.ssm_out.weight", E, 120, 1 },
};

static void put_layers(struct gguf_build *g, const struct plugin_registry *plugins, const struct attend_layer *layers,
                       uint32_t n)
{
    put(g, plugins, "token_embd.weight", V, E, 1, 0, 1.0f, true);
    put(g, plugins, "output_norm.weight", 1, E, 1, 1.0f, 0.2f, true);
    put(g, plugins, "output.weight", V, E, 1, 0, 0.06f, false);
    for (uint32_t l = 0; l < n; l++) {
        const struct attend_layer *a = &layers[l];
        const uint32_t kv = a->reuse ? 0 : a->kv_heads * a->head,
                       out = a->heads * (a->value_in_key ? a->value_in_key : a->head);
        const struct {
            const char *name;
            uint32_t rows, cols;
            float mean, scale;
        } tensors[] = { { "attn_norm", 1, E, 1.0f, 0.2f },
                        { "attn_q", a->heads * a->head, E, 0, 0.06f },
                        { "attn_k", kv, E, 0, 0.06f },
                        { "attn_v", a->value_in_key ? 0 : kv, E, 0, 0.06f },
                        { "attn_sinks", a->sinks, a->heads, 0, 0.3f },
                        { "attn_output", E, out, 0, 1.0f / sqrtf((float)out) } };
        for (uint32_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
            char name[64];
            (void)snprintf(name, sizeof name, "blk.%u.%s.weight", l, tensors[i].name);
            if (tensors[i].rows)
                put(g, plugins, name, tensors[i].rows, tensors[i].cols, 1, tensors[i].mean, tensors[i].scale,
                    tensors[i].rows == 1);
        }
    }
}

static struct gguf_build *build_file(enum zoo_kind kind, const struct plugin_registry *plugins)
{
#define SHAPES(s) s, sizeof s / sizeof *s
    struct gguf_build *g = gguf_build_new("zoo");
    seed = 77 + (uint64_t)kind;
    switch (kind) {
    case ZOO_DENSE: put_all(g, plugins, kind, SHAPES(dense_shapes), L); break;
    case ZOO_LEARNED:
        put_all(g, plugins, kind, SHAPES(learned_shapes), L);
        for (uint32_t l = 0; l < L; l++) {
            put(g, plugins, l ? "blk.1.swirl.shift" : "blk.0.swirl.shift", 1, E / 2, 1, 0, 0.3f, true);
            put(g, plugins, l ? "blk.1.swirl.factor" : "blk.0.swirl.factor", 1, 1, 1, 0.5f, 0.1f, true);
        }
        break;
    case ZOO_MAPS: put_all(g, plugins, kind, SHAPES(learned_shapes), L); break;
    case ZOO_HEADS: put_all(g, plugins, kind, SHAPES(heads_shapes), L); break;
    case ZOO_EXPERTS:
        put_all(g, plugins, kind, SHAPES(experts_shapes), 3);
        put(g, plugins, "blk.0.ffn_gate_exps.bias", X, F, 1, 0, 0.3f, true);
        put(g, plugins, "blk.0.ffn_up_exps.bias", X, F, 1, 0, 0.3f, true);
        put(g, plugins, "blk.0.ffn_down_exps.bias", X, E, 1, 0, 0.3f, true);
        put(g, plugins, "blk.2.shared_gate.weight", 1, E, 1, 0, 0.06f, true);
        put(g, plugins, "blk.2.ffn_gate.weight", F, E, 1, 0, 0.06f, false);
        put(g, plugins, "blk.2.ffn_up.weight", F, E, 1, 0, 0.06f, false);
        put(g, plugins, "blk.2.ffn_down.weight", E, F, 1, 0, 0.06f, false);
        break;
    case ZOO_CLASSES:
        put(g, plugins, "cls.weight", E, E, 1, 0, 0.06f, false);
        put(g, plugins, "cls.bias", 1, E, 1, 0, 0.3f, true);
        put(g, plugins, "cls_out.weight", 3, E, 1, 0, 0.06f, false);
        put(g, plugins, "cls_out.bias", 1, 3, 1, 0, 0.3f, true);
        put_all(g, plugins, kind, SHAPES(embedding_shapes), 1);
        break;
    case ZOO_STATES:
        put_all(g, plugins, kind, SHAPES(states_shapes), L);
        put(g, plugins, "blk.0.ssm_beta_wide.weight", 120, E, 1, 0, 0.06f, false);
        put(g, plugins, "blk.1.ssm_beta.weight", 6, E, 1, 0, 0.06f, false);
        break;
    case ZOO_HYBRID:
        put_all(g, plugins, kind, SHAPES(embedding_shapes), 3);
        put(g, plugins, "blk.1.conv_one.weight", 128, 1, 1, 1, 0.3f, true);
        break;
    case ZOO_EMBEDDING: put_all(g, plugins, kind, SHAPES(embedding_shapes), 1); break;
    case ZOO_ROUTES: put_routes(g, plugins); break;
    case ZOO_WINDOWS: put_all(g, plugins, kind, SHAPES(embedding_shapes), WINDOWS); break;
    case ZOO_CHUNKS: put_layers(g, plugins, LAYERS(chunk_layers)); break;
    case ZOO_LATENT: put_layers(g, plugins, LAYERS(latent_layers)); break;
    case ZOO_BOTH: put_layers(g, plugins, LAYERS(both_layers)); break;
    default: put_all(g, plugins, kind, SHAPES(wide_shapes), 1); break;
    }
    return g;
}

static const struct wk_type_cpu *find_type(void *user, uint32_t type) { return plugin_find_type(user, type, NULL); }
static void describe_types(void *user, char *text, size_t cap)
{
    (void)plugin_describe(user, WK_KIND_QUANT, text, cap);
}

struct tape_program *zoo_record(const struct gguf *file, enum zoo_kind kind, const struct plugin_registry *plugins,
                                uint32_t fuse, const char *const *taps, uint32_t n_taps)
{
    static char text[4096];
    const struct wk_err err = { text, sizeof text };
    struct tape_program *p;
    const struct tape_options o = { .context = ZOO_CONTEXT,
                                    .fuse = fuse,
                                    .taps = taps,
                                    .n_taps = n_taps,
                                    .find_type = find_type,
                                    .describe_types = describe_types,
                                    .user = (void *)(uintptr_t)plugins };
    if (tape_record(&archs[kind], file, &o, &p, &err)) fail_msg("%s: %s", zoo_name(kind), text);
    return p;
}

/* Each kind's file, made when first asked for: quantizing takes longer than the tests. */
static struct {
    struct gguf_build *build;
    struct gguf *file;
    const void *bytes;
    size_t size;
} files[ZOO_KINDS];

void zoo_open(struct zoo *z, enum zoo_kind kind, const struct plugin_registry *plugins, uint32_t fuse,
              const char *const *taps, uint32_t n_taps)
{
    if (!files[kind].build) {
        files[kind].build = build_file(kind, plugins);
        files[kind].bytes = gguf_build_bytes(files[kind].build, &files[kind].size);
        if (gguf_open_memory(files[kind].bytes, files[kind].size, zoo_name(kind), &files[kind].file, NULL))
            fail_msg("%s: cannot open what was built", zoo_name(kind));
    }
    z->file = files[kind].file;
    z->program = zoo_record(z->file, kind, plugins, fuse, taps, n_taps);
}

void zoo_close(struct zoo *z) { tape_free(z->program); }

void zoo_free(void)
{
    for (uint32_t k = 0; k < ZOO_KINDS; k++) {
        gguf_close(files[k].file);
        gguf_build_free(files[k].build);
    }
}

void zoo_save(enum zoo_kind kind, const char *path)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(files[kind].bytes, 1, files[kind].size, f), files[kind].size);
    assert_int_equal(fclose(f), 0);
}

/* ---- pages --------------------------------------------------------------------------------------------- */

enum { BLOCKS = ZOO_CONTEXT / KV_PAGE };

void zoo_pages_open(struct zoo_pages *p, const struct tape_program *program, const struct memory_plan *plan,
                    uint32_t order)
{
    *p = (struct zoo_pages){ .program = program };
    for (uint32_t g = 0; g < program->n_groups; g++) {
        const uint32_t n = p->n_free[g] = plan->kv_pages[g];
        uint32_t *ids = p->free[g] = calloc(n, sizeof *ids);
        assert_non_null(ids);
        for (uint32_t i = 0; i < n; i++) ids[i] = n - 1 - i;
        for (uint32_t i = n - 1; order && i > 0; i--) {
            order = order * 1664525u + 1013904223u;
            const uint32_t j = (order >> 8) % (i + 1), id = ids[i];
            ids[i] = ids[j];
            ids[j] = id;
        }
    }
}

void zoo_pages_close(struct zoo_pages *p)
{
    for (uint32_t g = 0; g < TAPE_MAX_GROUPS; g++) free(p->free[g]);
}

void zoo_tables_open(struct zoo_tables *t, uint32_t n_groups)
{
    *t = (struct zoo_tables){ 0 };
    for (uint32_t g = 0; g < n_groups; g++) {
        t->tables[g] = t->pages[g] = malloc(BLOCKS * sizeof **t->pages);
        assert_non_null(t->pages[g]);
        memset(t->pages[g], 0xff, BLOCKS * sizeof **t->pages);
    }
}

void zoo_tables_close(struct zoo_tables *t)
{
    for (uint32_t g = 0; g < TAPE_MAX_GROUPS; g++) free(t->pages[g]);
}

/* Does rows [position, position + n) need a page of this block of states? Beside the one that they begin from and the
 * last it may be there, and be kept then, or not. */
static bool holds_state(uint32_t block, uint32_t position, uint32_t n)
{
    const uint32_t last = n ? (position + n - 1) / KV_PAGE : 0;
    return block * KV_PAGE < position || block == last || (last - block) % 3 == 1;
}

void zoo_hold(struct zoo_pages *p, struct zoo_tables *t, uint32_t position, uint32_t n, uint32_t back)
{
    for (uint32_t g = 0; g < p->program->n_groups; g++) {
        const bool state = p->program->groups[g].state;
        const struct kv_span span = kv_span(&p->program->groups[g], ZOO_CONTEXT);
        const uint32_t from = kv_first(span, position > back ? position - back : 0) / KV_PAGE,
                       end = (uint32_t)kv_pages_of(position + n);
        for (uint32_t i = 0; i < BLOCKS; i++) {
            if ((i >= from && i < end) || t->pages[g][i] == KV_NO_PAGE) continue;
            p->free[g][p->n_free[g]++] = t->pages[g][i];
            t->pages[g][i] = KV_NO_PAGE;
        }
        for (uint32_t i = from; i < end; i++) {
            if (t->pages[g][i] != KV_NO_PAGE || (state && !holds_state(i, position, n))) continue;
            if (!p->n_free[g]) fail_msg("group %u has too few pages for %u rows at %u", g, n, position);
            t->pages[g][i] = p->free[g][--p->n_free[g]];
        }
    }
}
