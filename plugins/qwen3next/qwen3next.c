/* qwen3next.c: Qwen3-Next (Qwen 2025, 80B with 3B active).
 *
 * Three of four layers are gated delta nets (Yang et al. 2024): a short convolution, then a state a head that decays,
 * and takes up what it did not foretell. The fourth has attention whose result a gate of its own multiplies. Every
 * layer has experts and a shared one with a gate. Norms are stored with the 1 that the paper adds. */
#define WORKER_ABI_MINOR 1 /* wk_ignore */
#include <math.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>
#include <worker/ssm.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum {
    ROPE_TYPE = WK_DECODER_KEYS,
    NEXTN,
    RECURRENT,
    INTERVAL,
    EXPERTS,
    EXPERTS_USED,
    EXPERT_FEED_FORWARD,
    SHARED_FEED_FORWARD,
    SSM
};

/* Of Mamba-2's keys, groups are heads of keys, and heads those of values. What stands neither here nor in ignored_keys
 * refuses the file. */
static const struct wk_key keys[] = {
    WK_KEYS_DECODER,
    [ROPE_TYPE] = { "rope.scaling.type", WK_KEY_TEXT, 0, 0, 0, 0 },
    [NEXTN] = { "nextn_predict_layers", WK_KEY_U32, 0, 0, 16, 0 }, /* left out */
    [RECURRENT] = { "attention.recurrent_layers", WK_KEY_U32, WK_KEY_PER_LAYER | WK_KEY_VARIES, 0, 1, 0 },
    [INTERVAL] = { "full_attention_interval", WK_KEY_U32, 0, 1, WK_DECODER_MAX_LAYERS, 4 },
    [EXPERTS] = { "expert_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1024, 0 },
    [EXPERTS_USED] = { "expert_used_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 64, 0 },
    [EXPERT_FEED_FORWARD] = { "expert_feed_forward_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 16, 0 },
    [SHARED_FEED_FORWARD] = { "expert_shared_feed_forward_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 20, 0 },
    WK_KEYS_SSM(WK_KEY_REQUIRED),
    /* Of these one value changes nothing. */
    WK_KEYS_PLAIN_ATTENTION,
    WK_KEYS_NEXTN_DECODER,
    { "attention.sliding_window", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_gating_func", WK_KEY_U32, 0, 1, 1, 1 },
    { "rope.scaling.factor", WK_KEY_F32, 0, 1, 1, 1 },
};
/* The embedding's rows are the vocabulary; no norm here has a mean. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_epsilon" };
static const char *const names[] = { "qwen3next" };

/* ---- the models ---------------------------------------------------------------------------------------- */

struct qwen3next {
    struct wk_decoder d;
    struct wk_ssm ssm;     /* D values of all heads, H heads of values, G of keys, N values a key */
    uint32_t nextn;        /* layers behind its own, which predict further tokens and are left out */
    uint32_t X, K, Fx, Fs; /* experts, of which K a token; their feed-forward, that of the shared one */
    uint8_t recurrent[WK_DECODER_MAX_LAYERS];
};

/* ---- open ---------------------------------------------------------------------------------------------- */

/* Older files say the interval of layers with attention, or nothing. */
static void open_layers(const struct wk_meta *meta, struct qwen3next *m)
{
    uint32_t n;
    const double *of = wk_meta_numbers(meta, RECURRENT, &n);
    for (uint32_t l = 0; l < m->d.L; l++)
        if (wk_meta_has(meta, RECURRENT))
            m->recurrent[l] = (n ? of[l] : wk_meta_number(meta, RECURRENT)) > 0;
        else
            m->recurrent[l] = (l + 1) % wk_meta_u32(meta, INTERVAL) != 0;
}

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct qwen3next *m = model;
    wk_status status = wk_rope_unscaled_open(meta, ROPE_TYPE, err);
    if (status == WK_OK) status = wk_decoder_open(meta, &m->d, err);
    if (status == WK_OK) status = wk_nextn_open(meta, NEXTN, &m->d.L, &m->nextn, err);
    if (status == WK_OK) status = wk_ssm_open(meta, SSM, &m->ssm, err);
    if (status != WK_OK) return status;
    open_layers(meta, m);
    m->X = wk_meta_u32(meta, EXPERTS);
    m->K = wk_meta_u32(meta, EXPERTS_USED);
    m->Fx = wk_meta_u32(meta, EXPERT_FEED_FORWARD);
    m->Fs = wk_meta_u32(meta, SHARED_FEED_FORWARD);
    if (m->K > m->X)
        return wk_fail(err, WK_INVALID, "expert_used_count is %u, must be at most expert_count, %u", (unsigned)m->K,
                       (unsigned)m->X);
    return WK_OK;
}

static wk_status qwen3next_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct qwen3next), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

/* Each head's query stands before its gate. */
static wk_value attention(const struct wk_builder *b, wk_value h, const struct wk_decoder *d,
                          const struct wk_rope_freqs *rope)
{
    const struct wk_op_attention att = { .heads = d->H, .kv_heads = d->G, .scale = 1 / sqrtf((float)d->D) };
    wk_value both = wk_linear(b, h, "attn_q", d->H * 2 * d->D, WK_NONE);
    wk_value q = wk_slice_groups(b, both, d->H, 0, d->D), gate = wk_slice_groups(b, both, d->H, d->D, d->D);
    wk_value k = wk_linear(b, h, "attn_k", d->G * d->D, WK_NONE);
    wk_value v = wk_linear(b, h, "attn_v", d->G * d->Dv, WK_NONE);
    q = wk_rope(b, wk_head_norm(b, q, "attn_q_norm", d->D, d->eps), d->D, rope);
    k = wk_rope(b, wk_head_norm(b, k, "attn_k_norm", d->D, d->eps), d->D, rope);
    gate = wk_unary(b, gate, WK_UNARY_SIGMOID, 0);
    wk_value a = wk_attention(b, q, k, v, NULL, &att);
    return wk_linear(b, wk_mul(b, a, gate), "attn_output", d->E, WK_NONE);
}

/* Heads of `head` values of length 1, times `scale`: an RMS norm gives them the length sqrt(head). */
static wk_value unit(const struct wk_builder *b, wk_value x, uint32_t head, float eps, float scale)
{
    const float n = (float)head;
    return wk_scale(b, wk_norm(b, x, NULL, WK_NORM_RMS, head, eps / n, WK_NONE), scale / sqrtf(n));
}

static wk_value delta_net(const struct wk_builder *b, wk_value h, const struct qwen3next *m)
{
    const struct wk_ssm *s = &m->ssm;
    const uint32_t keys_width = s->G * s->N, share = s->H / s->G; /* heads of values a head of keys */
    wk_value z = wk_linear(b, h, "attn_gate", s->D, WK_NONE);
    wk_value ba = wk_linear(b, h, "ssm_ba", 2 * s->H, WK_NONE); /* per head of keys: beta of its values', then a */
    wk_value qkv = wk_linear(b, h, "attn_qkv", 2 * keys_width + s->D, WK_NONE);
    qkv = wk_unary(b, wk_conv(b, qkv, "ssm_conv1d", s->kernel, WK_NONE), WK_UNARY_SILU, 0);
    wk_value q = unit(b, wk_slice(b, qkv, 0, keys_width), s->N, m->d.eps, 1 / sqrtf((float)s->N));
    wk_value k = unit(b, wk_slice(b, qkv, keys_width, keys_width), s->N, m->d.eps, 1);
    wk_value v = wk_slice(b, qkv, 2 * keys_width, s->D);
    wk_value beta = wk_unary(b, wk_slice_groups(b, ba, s->G, 0, share), WK_UNARY_SIGMOID, 0);
    wk_value dt = wk_slice_groups(b, ba, s->G, share, share);
    dt = wk_unary(b, wk_add(b, dt, wk_vector(b, "ssm_dt.bias", 1, s->H)), WK_UNARY_SOFTPLUS, 0);
    wk_value decay = wk_mul(b, dt, wk_vector(b, "ssm_a", 1, s->H)); /* the file's a is -exp(A_log) */
    wk_value y = wk_delta(b, q, k, v, decay, beta, s->H, s->G);
    y = wk_glu(b, WK_GLU_SILU, z, wk_head_norm(b, y, "ssm_norm", s->D / s->H, m->d.eps));
    return wk_linear(b, y, "ssm_out", m->d.E, WK_NONE);
}

static wk_value experts(const struct wk_builder *b, wk_value h, const struct qwen3next *m)
{
    wk_value r = wk_linear(b, h, "ffn_gate_inp", m->X, WK_NONE);
    r = wk_route(b, r, m->K, WK_SCORE_SOFTMAX_TOPK, 0, 1);
    wk_value g = wk_expert(b, h, r, "ffn_gate_exps", m->X, m->Fx, WK_NONE);
    wk_value u = wk_expert(b, h, r, "ffn_up_exps", m->X, m->Fx, WK_NONE);
    return wk_combine(b, wk_expert(b, wk_glu(b, WK_GLU_SILU, g, u), r, "ffn_down_exps", m->X, m->d.E, WK_NONE), r);
}

/* For every token, as far as its gate lets it. */
static wk_value shared(const struct wk_builder *b, wk_value h, const struct qwen3next *m)
{
    wk_value g = wk_linear(b, h, "ffn_gate_shexp", m->Fs, WK_NONE), u = wk_linear(b, h, "ffn_up_shexp", m->Fs, WK_NONE);
    wk_value y = wk_linear(b, wk_glu(b, WK_GLU_SILU, g, u), "ffn_down_shexp", m->d.E, WK_NONE);
    return wk_mul(b, y, wk_unary(b, wk_linear(b, h, "ffn_gate_inp_shexp", 1, WK_NONE), WK_UNARY_SIGMOID, 0));
}

static void qwen3next_record(const struct wk_builder *b, const void *model)
{
    const struct qwen3next *m = model;
    const struct wk_decoder *d = &m->d;
    double freq[WK_DECODER_MAX_HEAD / 2];
    wk_rope_frequencies(freq, d->pairs, d->rope_base);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, d->pairs, WK_ROPE_HALF, 1);

    wk_value x = wk_embed(b, "token_embd", d->V, d->E); /* [E]                              */
    for (uint32_t l = 0; l < d->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name>    */
        wk_value h = wk_rms_norm(b, x, "attn_norm", d->eps);
        x = wk_add(b, x, m->recurrent[l] ? delta_net(b, h, m) : attention(b, h, d, &rope));
        h = wk_rms_norm(b, x, "post_attention_norm", d->eps); /* the norm before the next branch  */
        x = wk_add(b, x, experts(b, h, m));
        x = wk_add(b, x, shared(b, h, m));
    }
    wk_end_layers(b);
    wk_nextn_ignore(b, d->L, m->nextn);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", d->eps), d->head, d->V, WK_NONE));
}

static const struct wk_arch qwen3next = { .struct_size = sizeof qwen3next,
                                          WK_ARCH_NAMES(names),
                                          WK_ARCH_KEYS(keys),
                                          WK_ARCH_IGNORED_KEYS(ignored_keys),
                                          .open = qwen3next_open,
                                          .record = qwen3next_record,
                                          .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.qwen3next", "arch:qwen3next", .name = "qwen3next", .version = "1.0.0",
              .arch = &qwen3next);
