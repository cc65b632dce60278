/* glm4moe.c: GLM-4.5, 4.5-Air, 4.6 and 4.7 (Z.ai), and what others made in their form.
 *
 * Llama's layers, of which the first are dense and the others have experts: some for every token, the others chosen by
 * sigmoids and a bias, which counts in no weight. A part of a head rotates; q, k and v have biases in some sizes, heads
 * of q and k are normed in others. The layer behind the last predicts further tokens and is left out. */
#define WORKER_ABI_MINOR 1 /* wk_ignore */
#include <math.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum {
    NEXTN = WK_DECODER_KEYS,
    DENSE_BLOCKS,
    EXPERTS,
    EXPERTS_USED,
    EXPERTS_SHARED,
    EXPERT_FEED_FORWARD,
    EXPERT_SCALE,
    EXPERT_NORM,
    ROPE_TYPE
};

/* What stands neither here nor in ignored_keys refuses the file. */
static const struct wk_key keys[] = {
    WK_KEYS_DECODER,
    [NEXTN] = { "nextn_predict_layers", WK_KEY_U32, 0, 0, 16, 0 },
    [DENSE_BLOCKS] = { "leading_dense_block_count", WK_KEY_U32, 0, 0, WK_DECODER_MAX_LAYERS, 0 },
    [EXPERTS] = { "expert_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1024, 0 },
    [EXPERTS_USED] = { "expert_used_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 64, 0 },
    [EXPERTS_SHARED] = { "expert_shared_count", WK_KEY_U32, 0, 0, 64, 0 },
    [EXPERT_FEED_FORWARD] = { "expert_feed_forward_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 16, 0 },
    [EXPERT_SCALE] = { "expert_weights_scale", WK_KEY_F32, 0, 0, 1000, 1 }, /* 0: 1 */
    [EXPERT_NORM] = { "expert_weights_norm", WK_KEY_BOOL, 0, 0, 1, 0 },
    [ROPE_TYPE] = { "rope.scaling.type", WK_KEY_TEXT, 0, 0, 0, 0 },
    /* Of these one value changes nothing: weights are sigmoids, and any expert may be chosen. */
    { "expert_gating_func", WK_KEY_U32, 0, 2, 2, 2 },
    { "expert_group_count", WK_KEY_U32, 0, 1, 1, 1 },
    { "expert_group_used_count", WK_KEY_U32, 0, 1, 1, 1 },
    WK_KEYS_PLAIN_ATTENTION,
    WK_KEYS_NEXTN_DECODER,
    { "attention.sliding_window", WK_KEY_U32, 0, 0, 0, 0 },
    { "rope.scaling.factor", WK_KEY_F32, 0, 1, 1, 1 },
};
/* The embedding's rows are the vocabulary; no norm here has a mean. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_epsilon" };
static const char *const names[] = { "glm4moe" };

/* ---- the models ---------------------------------------------------------------------------------------- */

struct glm4moe {
    struct wk_decoder d;
    uint32_t nextn;            /* layers behind its own, which predict further tokens and are left out */
    uint32_t dense, X, Fx, Fs; /* leading dense layers; experts, their feed-forward, that of the shared ones */
    uint32_t head_norms;       /* of q and k: the largest has them */
    struct wk_op_route route;  /* what is set of it */
};

/* ---- open ---------------------------------------------------------------------------------------------- */

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct glm4moe *m = model;
    wk_status status = wk_rope_unscaled_open(meta, ROPE_TYPE, err);
    if (status == WK_OK) status = wk_decoder_open(meta, &m->d, err);
    if (status == WK_OK) status = wk_nextn_open(meta, NEXTN, &m->d.L, &m->nextn, err);
    if (status != WK_OK) return status;
    m->dense = wk_meta_u32(meta, DENSE_BLOCKS);
    m->X = wk_meta_u32(meta, EXPERTS);
    m->Fx = wk_meta_u32(meta, EXPERT_FEED_FORWARD);
    m->Fs = m->Fx * wk_meta_u32(meta, EXPERTS_SHARED);
    m->head_norms = wk_meta_has_tensor(meta, "blk.0.attn_q_norm.weight");
    m->route.k = wk_meta_u32(meta, EXPERTS_USED);
    m->route.score = WK_SCORE_SIGMOID;
    m->route.flags = wk_meta_u32(meta, EXPERT_NORM) ? WK_ROUTE_NORMALIZE : 0;
    m->route.scale = wk_meta_number(meta, EXPERT_SCALE) > 0 ? (float)wk_meta_number(meta, EXPERT_SCALE) : 1;
    if (m->route.k > m->X)
        return wk_fail(err, WK_INVALID, "expert_used_count is %u, must be at most expert_count, %u",
                       (unsigned)m->route.k, (unsigned)m->X);
    return WK_OK;
}

static wk_status glm4moe_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct glm4moe), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

/* Queries or keys: each head is normed, where the file says so, and rotated. */
static wk_value heads(const struct wk_builder *b, wk_value x, const char *norm, const struct glm4moe *m,
                      const struct wk_rope_freqs *rope)
{
    if (m->head_norms) x = wk_head_norm(b, x, norm, m->d.D, m->d.eps);
    return wk_rope(b, x, m->d.D, rope);
}

static wk_value attention(const struct wk_builder *b, wk_value h, const struct glm4moe *m,
                          const struct wk_rope_freqs *rope)
{
    const struct wk_decoder *d = &m->d;
    const struct wk_op_attention att = { .heads = d->H, .kv_heads = d->G, .scale = 1 / sqrtf((float)d->D) };
    wk_value q = heads(b, wk_linear(b, h, "attn_q", d->H * d->D, WK_OPTIONAL), "attn_q_norm", m, rope);
    wk_value k = heads(b, wk_linear(b, h, "attn_k", d->G * d->D, WK_OPTIONAL), "attn_k_norm", m, rope);
    wk_value v = wk_linear(b, h, "attn_v", d->G * d->Dv, WK_OPTIONAL);
    return wk_linear(b, wk_attention(b, q, k, v, NULL, &att), "attn_output", d->E, WK_NONE);
}

/* A network of width F for every token, of the tensors of these names. */
static wk_value gated(const struct wk_builder *b, wk_value h, const struct glm4moe *m, uint32_t F,
                      const char *const names_of[3])
{
    wk_value g = wk_linear(b, h, names_of[0], F, WK_NONE), u = wk_linear(b, h, names_of[1], F, WK_NONE);
    return wk_linear(b, wk_glu(b, WK_GLU_SILU, g, u), names_of[2], m->d.E, WK_NONE);
}

static wk_value experts(const struct wk_builder *b, wk_value h, const struct glm4moe *m)
{
    wk_value r = wk_linear(b, h, "ffn_gate_inp", m->X, WK_NONE);
    r = wk_route_op(b, r, "exp_probs_b.bias", &m->route);
    wk_value g = wk_expert(b, h, r, "ffn_gate_exps", m->X, m->Fx, WK_NONE);
    wk_value u = wk_expert(b, h, r, "ffn_up_exps", m->X, m->Fx, WK_NONE);
    return wk_combine(b, wk_expert(b, wk_glu(b, WK_GLU_SILU, g, u), r, "ffn_down_exps", m->X, m->d.E, WK_NONE), r);
}

static void glm4moe_record(const struct wk_builder *b, const void *model)
{
    static const char *const dense[3] = { "ffn_gate", "ffn_up", "ffn_down" }, *const shared[3] = { "ffn_gate_shexp",
                                                                                                   "ffn_up_shexp",
                                                                                                   "ffn_down_shexp" };
    const struct glm4moe *m = model;
    const struct wk_decoder *d = &m->d;
    double freq[WK_DECODER_MAX_HEAD / 2];
    wk_rope_frequencies(freq, d->pairs, d->rope_base);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, d->pairs, WK_ROPE_HALF, 1);

    wk_value x = wk_embed(b, "token_embd", d->V, d->E); /* [E]                              */
    for (uint32_t l = 0; l < d->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name>    */
        x = wk_add(b, x, attention(b, wk_rms_norm(b, x, "attn_norm", d->eps), m, &rope));
        wk_value h = wk_rms_norm(b, x, "post_attention_norm", d->eps); /* the norm before the next branch  */
        x = wk_add(b, x, l < m->dense ? gated(b, h, m, d->F, dense) : experts(b, h, m));
        if (l >= m->dense && m->Fs) x = wk_add(b, x, gated(b, h, m, m->Fs, shared));
    }
    wk_end_layers(b);
    wk_nextn_ignore(b, d->L, m->nextn);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", d->eps), d->head, d->V, WK_NONE));
}

static const struct wk_arch glm4moe = { .struct_size = sizeof glm4moe,
                                        WK_ARCH_NAMES(names),
                                        WK_ARCH_KEYS(keys),
                                        WK_ARCH_IGNORED_KEYS(ignored_keys),
                                        .open = glm4moe_open,
                                        .record = glm4moe_record,
                                        .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.glm4moe", "arch:glm4moe", .name = "glm4moe", .version = "1.0.0",
              .arch = &glm4moe);
