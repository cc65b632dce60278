/* granite.c: Granite 3 and 4 (IBM 2024, 2025): granite, dense, granitemoe, with experts and, in some, one more for
 * every token, and granitehybrid, of both kinds, most of whose layers have Mamba-2's mixer in the place of attention.
 *
 * Llama's layers with scales of the file's own: of the embedding, of the scores, of each branch before it is added, and
 * one that divides the logits. */
#include <math.h>
#include <string.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>
#include <worker/ssm.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum {
    EMBEDDING_SCALE = WK_DECODER_KEYS,
    ATTENTION_SCALE,
    RESIDUAL_SCALE,
    LOGIT_SCALE,
    EXPERTS,
    EXPERTS_USED,
    SHARED_FEED_FORWARD,
    KV_HEADS, /* by layer */
    ROTATES,
    SSM
};
static const char *const names[] = { "granite", "granitemoe", "granitehybrid" };
enum { NOT_HYBRID = WK_KEY_NOT_FOR(2), HYBRID_ALONE = WK_KEY_NOT_FOR(0) | WK_KEY_NOT_FOR(1) };

/* Scales: absent, and 0, of the scores 1 / sqrt(head), of the others 1. What stands neither here nor in ignored_keys
 * refuses the file. */
static const struct wk_key keys[] = {
    WK_KEYS_DECODER_SHAPED("attention.layer_norm_rms_epsilon", NOT_HYBRID),
    { "embedding_scale", WK_KEY_F32, 0, 0, 1e6, 0 },
    { "attention.scale", WK_KEY_F32, 0, 0, 100, 0 },
    { "residual_scale", WK_KEY_F32, 0, 0, 1e3, 0 },
    { "logit_scale", WK_KEY_F32, 0, 0, 1e6, 0 },
    { "expert_count", WK_KEY_U32, 0, 0, 1024, 0 },
    { "expert_used_count", WK_KEY_U32, 0, 0, 64, 0 },
    { "expert_shared_feed_forward_length", WK_KEY_U32, 0, 0, 1 << 20, 0 }, /* 0: no shared expert */
    { "attention.head_count_kv", WK_KEY_U32, HYBRID_ALONE | WK_KEY_REQUIRED | WK_KEY_PER_LAYER | WK_KEY_VARIES, 0, 1024,
      0 },                                                            /* 0: the layer has no attention */
    { "rope.scaling.finetuned", WK_KEY_BOOL, HYBRID_ALONE, 0, 1, 1 }, /* false: nothing rotates */
    WK_KEYS_SSM(HYBRID_ALONE | WK_KEY_REQUIRED),
    /* Of these one value changes nothing. */
    WK_KEYS_PLAIN_ATTENTION,
    WK_KEYS_NO_SOFTCAPS,
    WK_KEYS_PLAIN_DECODER,
    { "n_deepstack_layers", WK_KEY_U32, 0, 0, 0, 0 },
    { "rope.scaling.finetuned", WK_KEY_BOOL, NOT_HYBRID, 1, 1, 1 },
};
/* The embedding's rows are the vocabulary; no norm here has a mean. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_epsilon" };

/* ---- the models ---------------------------------------------------------------------------------------- */

struct granite {
    struct wk_decoder d; /* its feed-forward is that of an expert, where there are any */
    uint32_t X, K, Fs;   /* experts, of which K a token; 0: dense. Feed-forward of the shared expert; 0: none */
    float embedding, attention, residual, logits; /* scales; the last as a factor */
    uint32_t rotates;
    uint8_t mixes[WK_DECODER_MAX_LAYERS]; /* layers with the mixer in the place of attention */
    struct wk_ssm ssm;
};

/* ---- open ---------------------------------------------------------------------------------------------- */

static float scale_or(const struct wk_meta *meta, uint32_t key, float other)
{
    const double scale = wk_meta_number(meta, key);
    return scale > 0 ? (float)scale : other;
}

static wk_status open_experts(const struct wk_meta *meta, struct granite *m, const struct wk_err *err)
{
    const uint32_t dense = strcmp(meta->architecture, "granite") == 0,
                   mixture = strcmp(meta->architecture, "granitemoe") == 0;
    m->X = wk_meta_u32(meta, EXPERTS);
    m->K = wk_meta_u32(meta, EXPERTS_USED);
    m->Fs = wk_meta_u32(meta, SHARED_FEED_FORWARD);
    if (dense && (m->X || m->Fs))
        return wk_fail(err, WK_UNSUPPORTED,
                       "granite.expert_count is %u, granite.expert_shared_feed_forward_length is %u; granite is served "
                       "without experts, granitemoe with them",
                       (unsigned)m->X, (unsigned)m->Fs);
    if (mixture && !m->X) return wk_fail(err, WK_INVALID, "granitemoe.expert_count is 0, must be at least 1");
    if (!m->X) m->Fs = 0; /* of a dense hybrid it is the feed-forward network's length once more */
    if (m->X && (!m->K || m->K > m->X))
        return wk_fail(err, WK_INVALID, "expert_used_count is %u, must be 1 to expert_count, %u", (unsigned)m->K,
                       (unsigned)m->X);
    return WK_OK;
}

/* The layers of a hybrid: those with attention have one number of heads of k and v. */
static wk_status open_layers(const struct wk_meta *meta, struct granite *m, const struct wk_err *err)
{
    uint32_t n, attention = 0;
    const double *kv_heads = wk_meta_numbers(meta, KV_HEADS, &n);
    for (uint32_t l = 0; l < m->d.L; l++) {
        const uint32_t G = n ? (uint32_t)kv_heads[l] : wk_meta_u32(meta, KV_HEADS);
        m->mixes[l] = !G;
        if (G && attention && G != attention)
            return wk_fail(err, WK_UNSUPPORTED,
                           "granitehybrid.attention.head_count_kv is %u in layer %u, %u before; one number and 0 are "
                           "served",
                           (unsigned)G, (unsigned)l, (unsigned)attention);
        if (G) attention = G;
    }
    m->d.G = attention ? attention : m->d.H;
    if (m->d.H % m->d.G)
        return wk_fail(err, WK_INVALID, "attention.head_count is %u, must be a multiple of head_count_kv, %u",
                       (unsigned)m->d.H, (unsigned)m->d.G);
    return wk_ssm_open(meta, SSM, &m->ssm, err);
}

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct granite *m = model;
    wk_status status = wk_decoder_open(meta, &m->d, err);
    if (status == WK_OK && strcmp(meta->architecture, "granitehybrid") == 0) status = open_layers(meta, m, err);
    if (status != WK_OK) return status;
    m->rotates = wk_meta_u32(meta, ROTATES);
    m->embedding = scale_or(meta, EMBEDDING_SCALE, 1);
    m->attention = scale_or(meta, ATTENTION_SCALE, 1 / sqrtf((float)m->d.D));
    m->residual = scale_or(meta, RESIDUAL_SCALE, 1);
    m->logits = 1 / scale_or(meta, LOGIT_SCALE, 1);
    return open_experts(meta, m, err);
}

static wk_status granite_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct granite), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

/* A scale of 1 is none. */
static wk_value scaled(const struct wk_builder *b, wk_value x, float scale)
{
    return scale == 1 ? x : wk_scale(b, x, scale);
}

/* A feed-forward network of width F, of the tensors of these names: its branch. */
static wk_value gated(const struct wk_builder *b, wk_value h, const struct granite *m, uint32_t F,
                      const char *const names_of[3])
{
    wk_value g = wk_linear(b, h, names_of[0], F, WK_NONE), u = wk_linear(b, h, names_of[1], F, WK_NONE);
    return scaled(b, wk_linear(b, wk_glu(b, WK_GLU_SILU, g, u), names_of[2], m->d.E, WK_NONE), m->residual);
}

/* The branch of the chosen experts: its scale is one of their weights. */
static wk_value experts(const struct wk_builder *b, wk_value h, const struct granite *m)
{
    const struct wk_decoder *d = &m->d;
    wk_value r = wk_linear(b, h, "ffn_gate_inp", m->X, WK_NONE);
    r = wk_route(b, r, m->K, WK_SCORE_SOFTMAX_TOPK, 0, m->residual);
    wk_value g = wk_expert(b, h, r, "ffn_gate_exps", m->X, d->F, WK_NONE);
    wk_value u = wk_expert(b, h, r, "ffn_up_exps", m->X, d->F, WK_NONE);
    return wk_combine(b, wk_expert(b, wk_glu(b, WK_GLU_SILU, g, u), r, "ffn_down_exps", m->X, d->E, WK_NONE), r);
}

static wk_value attention(const struct wk_builder *b, wk_value h, const struct granite *m,
                          const struct wk_rope_freqs *rope)
{
    const struct wk_decoder *d = &m->d;
    const struct wk_op_attention att = { .heads = d->H, .kv_heads = d->G, .scale = m->attention };
    wk_value q = wk_linear(b, h, "attn_q", d->H * d->D, WK_NONE), k = wk_linear(b, h, "attn_k", d->G * d->D, WK_NONE);
    wk_value v = wk_linear(b, h, "attn_v", d->G * d->Dv, WK_NONE);
    if (m->rotates) {
        q = wk_rope(b, q, d->D, rope);
        k = wk_rope(b, k, d->D, rope);
    }
    return wk_linear(b, wk_attention(b, q, k, v, NULL, &att), "attn_output", d->E, WK_NONE);
}

static void granite_record(const struct wk_builder *b, const void *model)
{
    static const char *const dense[3] = { "ffn_gate", "ffn_up", "ffn_down" }, *const shared[3] = { "ffn_gate_shexp",
                                                                                                   "ffn_up_shexp",
                                                                                                   "ffn_down_shexp" };
    const struct granite *m = model;
    const struct wk_decoder *d = &m->d;
    double freq[WK_DECODER_MAX_HEAD / 2];
    wk_rope_frequencies(freq, d->pairs, d->rope_base);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, d->pairs, WK_ROPE_INTERLEAVED, 1);

    wk_value x = scaled(b, wk_embed(b, "token_embd", d->V, d->E), m->embedding); /* [E] */
    for (uint32_t l = 0; l < d->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name>          */
        wk_value h = wk_rms_norm(b, x, "attn_norm", d->eps);
        wk_value a = m->mixes[l] ? wk_ssm_mixer(b, h, &m->ssm, d->E, d->eps) : attention(b, h, m, &rope);
        x = wk_add(b, x, scaled(b, a, m->residual));
        h = wk_rms_norm(b, x, "ffn_norm", d->eps);
        x = wk_add(b, x, m->X ? experts(b, h, m) : gated(b, h, m, d->F, dense));
        if (m->Fs) x = wk_add(b, x, gated(b, h, m, m->Fs, shared));
    }
    wk_end_layers(b);
    wk_value logits = wk_linear(b, wk_rms_norm(b, x, "output_norm", d->eps), d->head, d->V, WK_NONE);
    wk_logits(b, scaled(b, logits, m->logits));
}

static const struct wk_arch granite = { .struct_size = sizeof granite,
                                        WK_ARCH_NAMES(names),
                                        WK_ARCH_KEYS(keys),
                                        WK_ARCH_IGNORED_KEYS(ignored_keys),
                                        .open = granite_open,
                                        .record = granite_record,
                                        .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.granite", "arch:granite,granitemoe,granitehybrid", .name = "granite",
              .version = "1.0.0", .arch = &granite);
