/* llama4.c: Llama 4 Scout and Maverick (Meta 2025), text.
 *
 * Llama's layers. Three of four rotate neighbours, norm heads of q and k without weights, and see the chunk of
 * positions that they are in; the fourth knows no positions, sees everything, and its queries grow with the logarithm
 * of theirs. Every layer, or every second one, has experts: of each token's few the sigmoid of the router's logit
 * multiplies what the expert reads, not what it gives; one expert is there for every token. */
#include <math.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum {
    CHUNK = WK_DECODER_KEYS,
    TEMPERATURE,
    TEMPERATURE_LENGTH,
    MOE_STEP,
    EXPERTS,
    EXPERTS_USED,
    EXPERT_FEED_FORWARD,
    ROPE_TYPE
};
enum { PATTERN = 4 /* layers, of which the last knows no positions; no key says so */ };
enum { WITHOUT_NORMS = 128 /* experts of the model whose q and k are not normed; no key says so */ };

/* Defaults: what the published models have, and no key of their files says. What stands neither here nor in
 * ignored_keys refuses the file. */
static const struct wk_key keys[] = {
    WK_KEYS_DECODER,
    [CHUNK] = { "attention.sliding_window", WK_KEY_U32, 0, 0, WK_DECODER_MAX_CONTEXT, 8192 }, /* 0: all layers alike */
    [TEMPERATURE] = { "attention.temperature_scale", WK_KEY_F32, 0, 0, 100, 0.1 },
    [TEMPERATURE_LENGTH] = { "attention.temperature_length", WK_KEY_U32, 0, 1, WK_DECODER_MAX_CONTEXT, 8192 },
    [MOE_STEP] = { "interleave_moe_layer_step", WK_KEY_U32, WK_KEY_REQUIRED, 1, WK_DECODER_MAX_LAYERS, 0 },
    [EXPERTS] = { "expert_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1024, 0 },
    [EXPERTS_USED] = { "expert_used_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 64, 0 },
    [EXPERT_FEED_FORWARD] = { "expert_feed_forward_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 20, 0 },
    [ROPE_TYPE] = { "rope.scaling.type", WK_KEY_TEXT, 0, 0, 0, 0 },
    /* Of these one value changes nothing. */
    { "attention.causal", WK_KEY_BOOL, 0, 1, 1, 1 },
    { "expert_gating_func", WK_KEY_U32, 0, 2, 2, 2 },
    { "expert_weights_scale", WK_KEY_F32, 0, 1, 1, 1 },
    WK_KEYS_PLAIN_DECODER,
    WK_KEYS_NO_SOFTCAPS,
    WK_KEYS_NO_EXPERT_GROUPS,
    { "rope.scaling.factor", WK_KEY_F32, 0, 1, 1, 1 },
};
/* The embedding's rows are the vocabulary; no norm here has a mean. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_epsilon" };
static const char *const names[] = { "llama4" };

/* ---- the models ---------------------------------------------------------------------------------------- */

struct llama4 {
    struct wk_decoder d;
    uint32_t chunk;              /* positions; 0: all layers rotate and see everything */
    uint32_t moe_step, X, K, Fx; /* every so many layers have experts, of which K a token; their feed-forward */
    double temperature;          /* of queries without positions; 0: none */
    uint32_t temperature_length; /* in positions */
};

/* ---- open ---------------------------------------------------------------------------------------------- */

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct llama4 *m = model;
    wk_status status = wk_rope_unscaled_open(meta, ROPE_TYPE, err);
    if (status == WK_OK) status = wk_decoder_open(meta, &m->d, err);
    if (status != WK_OK) return status;
    m->chunk = wk_meta_u32(meta, CHUNK);
    m->temperature = wk_meta_number(meta, TEMPERATURE);
    m->temperature_length = wk_meta_u32(meta, TEMPERATURE_LENGTH);
    m->moe_step = wk_meta_u32(meta, MOE_STEP);
    m->X = wk_meta_u32(meta, EXPERTS);
    m->K = wk_meta_u32(meta, EXPERTS_USED);
    m->Fx = wk_meta_u32(meta, EXPERT_FEED_FORWARD);
    if (2 * m->d.pairs != m->d.D)
        return wk_fail(err, WK_UNSUPPORTED, "rope.dimension_count is %u, must be all %u values of a head",
                       (unsigned)(2 * m->d.pairs), (unsigned)m->d.D);
    if (m->chunk % 32)
        return wk_fail(err, WK_UNSUPPORTED, "attention.sliding_window is %u, must be a multiple of 32: it is a chunk's",
                       (unsigned)m->chunk);
    if (m->K > m->X)
        return wk_fail(err, WK_INVALID, "expert_used_count is %u, must be at most expert_count, %u", (unsigned)m->K,
                       (unsigned)m->X);
    return WK_OK;
}

static wk_status llama4_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct llama4), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

/* The norm has no weights, so it may stand before the rotation, which changes no head's length. */
static wk_value turned(const struct wk_builder *b, wk_value x, const struct llama4 *m, const struct wk_rope_freqs *rope)
{
    if (m->X != WITHOUT_NORMS) x = wk_norm(b, x, NULL, WK_NORM_RMS, m->d.D, m->d.eps, WK_NONE);
    return wk_rope(b, x, m->d.D, rope);
}

/* rope: of layers with positions; warm: what grows queries in the others. */
static wk_value attention(const struct wk_builder *b, wk_value h, const struct llama4 *m, uint32_t positions,
                          const struct wk_rope_freqs *rope, const struct wk_rope_freqs *warm)
{
    const struct wk_decoder *d = &m->d;
    const struct wk_op_attention att = {
        .heads = d->H, .kv_heads = d->G, .scale = 1 / sqrtf((float)d->D), .chunk = positions ? m->chunk : 0
    };
    wk_value q = wk_linear(b, h, "attn_q", d->H * d->D, WK_NONE);
    wk_value k = wk_linear(b, h, "attn_k", d->G * d->D, WK_NONE);
    wk_value v = wk_linear(b, h, "attn_v", d->G * d->Dv, WK_NONE);
    if (positions) {
        q = turned(b, q, m, rope);
        k = turned(b, k, m, rope);
    } else if (m->temperature > 0) {
        q = wk_rope(b, q, d->D, warm);
    }
    return wk_linear(b, wk_attention(b, q, k, v, NULL, &att), "attn_output", d->E, WK_NONE);
}

/* A network of width F for every token, of the tensors of these names. */
static wk_value gated(const struct wk_builder *b, wk_value h, const struct llama4 *m, uint32_t F,
                      const char *const names_of[3])
{
    wk_value g = wk_linear(b, h, names_of[0], F, WK_NONE), u = wk_linear(b, h, names_of[1], F, WK_NONE);
    return wk_linear(b, wk_glu(b, WK_GLU_SILU, g, u), names_of[2], m->d.E, WK_NONE);
}

static wk_value experts(const struct wk_builder *b, wk_value h, const struct llama4 *m)
{
    wk_value r = wk_linear(b, h, "ffn_gate_inp", m->X, WK_NONE);
    r = wk_route(b, r, m->K, WK_SCORE_SIGMOID, 0, 1);
    wk_value x = wk_mul(b, h, r); /* each chosen expert's own input */
    wk_value g = wk_expert(b, x, r, "ffn_gate_exps", m->X, m->Fx, WK_NONE);
    wk_value u = wk_expert(b, x, r, "ffn_up_exps", m->X, m->Fx, WK_NONE);
    wk_value y = wk_expert(b, wk_glu(b, WK_GLU_SILU, g, u), r, "ffn_down_exps", m->X, m->d.E, WK_NONE);
    return wk_combine(b, y, wk_none());
}

static void llama4_record(const struct wk_builder *b, const void *model)
{
    static const char *const dense[3] = { "ffn_gate", "ffn_up", "ffn_down" }, *const shared[3] = { "ffn_gate_shexp",
                                                                                                   "ffn_up_shexp",
                                                                                                   "ffn_down_shexp" };
    const struct llama4 *m = model;
    const struct wk_decoder *d = &m->d;
    double freq[WK_DECODER_MAX_HEAD / 2], still[WK_DECODER_MAX_HEAD / 2] = { 0 };
    float factor[WK_DECODER_MAX_HEAD / 2];
    wk_rope_frequencies(freq, d->pairs, d->rope_base);
    if (wk_read(b, "rope_freqs.weight", factor, d->pairs)) wk_rope_scale_factors(freq, d->pairs, factor);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, d->pairs, WK_ROPE_INTERLEAVED, 1);
    struct wk_rope_freqs warm = wk_rope_freqs_of(still, d->pairs, WK_ROPE_INTERLEAVED, 1);
    warm.temperature = m->temperature;
    warm.temperature_length = m->temperature_length;

    wk_value x = wk_embed(b, "token_embd", d->V, d->E); /* [E]                            */
    for (uint32_t l = 0; l < d->L; l++) {
        const uint32_t positions = !m->chunk || l % PATTERN != PATTERN - 1, mixture = (l + 1) % m->moe_step == 0;
        wk_layer(b, l); /* names now mean blk.<l>.<name>  */
        x = wk_add(b, x, attention(b, wk_rms_norm(b, x, "attn_norm", d->eps), m, positions, &rope, &warm));
        wk_value h = wk_rms_norm(b, x, "ffn_norm", d->eps);
        x = wk_add(b, x, mixture ? experts(b, h, m) : gated(b, h, m, d->F, dense));
        if (mixture) x = wk_add(b, x, gated(b, h, m, m->Fx, shared));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", d->eps), d->head, d->V, WK_NONE));
}

static const struct wk_arch llama4 = { .struct_size = sizeof llama4,
                                       WK_ARCH_NAMES(names),
                                       WK_ARCH_KEYS(keys),
                                       WK_ARCH_IGNORED_KEYS(ignored_keys),
                                       .open = llama4_open,
                                       .record = llama4_record,
                                       .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.llama4", "arch:llama4", .name = "llama4", .version = "1.0.0", .arch = &llama4);
