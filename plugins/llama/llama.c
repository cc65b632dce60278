/* llama.c: the Llama family: Llama 2 and 3, TinyLlama, Mistral, Mixtral, Qwen2 and 2.5, Qwen3 (dense and mixture of
 * experts).
 *
 * One pre-norm transformer with rotary positions and a gated feed-forward network; what tells the members apart is one
 * row in the table of flavours: how pairs rotate, where biases stand, whether heads are normed. open() checks how the
 * numbers of the file fit together; record() is the paper. */
#include <math.h>
#include <string.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum {
    CONTEXT,
    EMBEDDING,
    BLOCKS,
    FEED_FORWARD,
    HEADS,
    KV_HEADS,
    KEY_LENGTH,
    VALUE_LENGTH,
    EPS,
    WINDOW,
    EXPERTS,
    EXPERTS_USED,
    EXPERT_FEED_FORWARD,
    ROPE_DIM,
    ROPE_BASE,
    ROPE_TYPE,
    ROPE_FACTOR,
    ROPE_FACTOR_OLD,
    ROPE_CONTEXT,
    ROPE_MSCALE,
    YARN_EXT,
    YARN_MSCALE,
    YARN_FAST,
    YARN_SLOW,
    ATTENTION_SCALE,
    EXPERT_SCALE,
    EXPERT_NORM
};
enum { MAX_HEAD = 1024, MAX_CONTEXT = 1 << 27 };

/* Ranges: several times what any published model has, small enough that every product below stays inside 32 bits.
 *
 * This table and ignored_keys know every key that the converter of llama.cpp has (package gguf 0.19.0, constants.py)
 * and that can stand in a file of these models. Whatever else the file says below the architecture's name refuses it:
 * it is about parts that are not computed here. */
static const struct wk_key keys[] = {
    [CONTEXT] = { "context_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, MAX_CONTEXT, 0 },
    [EMBEDDING] = { "embedding_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 17, 0 },
    [BLOCKS] = { "block_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 512, 0 },
    [FEED_FORWARD] = { "feed_forward_length", WK_KEY_U32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER, 0, 1 << 20, 0 },
    [HEADS] = { "attention.head_count", WK_KEY_U32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER, 1, 1024, 0 },
    [KV_HEADS] = { "attention.head_count_kv", WK_KEY_U32, WK_KEY_PER_LAYER, 1, 1024,
                   0 }, /* default: as many as heads */
    [KEY_LENGTH] = { "attention.key_length", WK_KEY_U32, WK_KEY_PER_LAYER, 2, MAX_HEAD,
                     0 }, /* default: embedding / heads */
    [VALUE_LENGTH] = { "attention.value_length", WK_KEY_U32, WK_KEY_PER_LAYER, 1, MAX_HEAD,
                       0 }, /* default: key_length */
    [EPS] = { "attention.layer_norm_rms_epsilon", WK_KEY_F32, WK_KEY_REQUIRED, 1e-12, 0.1, 0 },
    [WINDOW] = { "attention.sliding_window", WK_KEY_U32, WK_KEY_PER_LAYER, 0, MAX_CONTEXT, 0 },
    [EXPERTS] = { "expert_count", WK_KEY_U32, 0, 0, 1024, 0 },
    [EXPERTS_USED] = { "expert_used_count", WK_KEY_U32, 0, 0, 64, 0 },
    [EXPERT_FEED_FORWARD] = { "expert_feed_forward_length", WK_KEY_U32, WK_KEY_PER_LAYER, 0, 1 << 20, 0 },
    [ROPE_DIM] = { "rope.dimension_count", WK_KEY_U32, WK_KEY_PER_LAYER, 2, MAX_HEAD, 0 }, /* default: the whole head */
    [ROPE_BASE] = { "rope.freq_base", WK_KEY_F32, WK_KEY_PER_LAYER, 2, 1e12, 10000 },
    [ROPE_TYPE] = { "rope.scaling.type", WK_KEY_TEXT, 0, 0, 0, 0 },
    [ROPE_FACTOR] = { "rope.scaling.factor", WK_KEY_F32, 0, 0, 65536, 0 },
    [ROPE_FACTOR_OLD] = { "rope.scale_linear", WK_KEY_F32, 0, 0, 65536, 0 },
    [ROPE_CONTEXT] = { "rope.scaling.original_context_length", WK_KEY_U32, 0, 1, MAX_CONTEXT,
                       0 }, /* default: context_length */
    [ROPE_MSCALE] = { "rope.scaling.attn_factor", WK_KEY_F32, 0, 0.01, 100, 1 },
    [YARN_EXT] = { "rope.scaling.yarn_ext_factor", WK_KEY_F32, 0, 0, 1, 1 },
    [YARN_MSCALE] = { "rope.scaling.yarn_attn_factor", WK_KEY_F32, 0, 0.01, 100, 0 }, /* see wk_yarn_mscale_open */
    [YARN_FAST] = { "rope.scaling.yarn_beta_fast", WK_KEY_F32, 0, 0.001, 1e6, 32 },
    [YARN_SLOW] = { "rope.scaling.yarn_beta_slow", WK_KEY_F32, 0, 0.001, 1e6, 1 },
    [ATTENTION_SCALE] = { "attention.scale", WK_KEY_F32, 0, 0, 100, 0 },    /* default, and 0: 1 / sqrt(head) */
    [EXPERT_SCALE] = { "expert_weights_scale", WK_KEY_F32, 0, 0, 1000, 1 }, /* 0: 1 */
    [EXPERT_NORM] = { "expert_weights_norm", WK_KEY_BOOL, 0, 0, 1, 1 },     /* weights of the chosen add up to 1 */
    /* Of these one value changes nothing. */
    WK_KEYS_PLAIN_ATTENTION,
    WK_KEYS_NO_SOFTCAPS,
    WK_KEYS_NO_SCALES,
    WK_KEYS_NO_EXPERT_GROUPS,
    WK_KEYS_NO_SHARED_EXPERTS,
    WK_KEYS_PLAIN_DECODER,
    { "expert_gating_func", WK_KEY_U32, 0, 1, 1, 1 }, /* softmax */
    { "n_deepstack_layers", WK_KEY_U32, 0, 0, 0, 0 },
    { "rope.scaling.yarn_log_multiplier", WK_KEY_F32, 0, 0, 0, 0 },
};
enum { N_KEYS = sizeof keys / sizeof keys[0] };

/* The embedding's rows are the vocabulary; q and k lie as the architecture says; no norm here has a mean; a scaling is
 * computed the same whether the model was trained with it or not. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_epsilon",
                                            "rope.scaling.finetuned" };

/* Mixtral's older files have a tensor for each expert. */
static const struct wk_alias aliases[] = { { "ffn_gate.#", "ffn_gate_exps" },
                                           { "ffn_up.#", "ffn_up_exps" },
                                           { "ffn_down.#", "ffn_down_exps" } };

struct flavour {
    const char *name;
    uint32_t rope; /* WK_ROPE_* */
    uint32_t qkv_bias;
    uint32_t head_norm; /* norms q and k over each head, before they rotate */
    uint32_t window;    /* honours sliding_window */
    uint32_t experts;   /* 0: never, 1: if the file has any, 2: always */
};
/* Windows. llama: Mistral 7B v0.1 was trained with one; files that name it are computed with it. Qwen's configurations
 * name windows that are switched off. */
static const struct flavour flavours[] = {
    { "llama", WK_ROPE_INTERLEAVED, WK_OPTIONAL, 0, 1, 1 },
    { "qwen2", WK_ROPE_HALF, WK_REQUIRED, 0, 0, 0 },
    { "qwen3", WK_ROPE_HALF, WK_OPTIONAL, 1, 0, 0 },
    { "qwen3moe", WK_ROPE_HALF, WK_OPTIONAL, 1, 0, 2 },
};
static const char *const names[] = { "llama", "qwen2", "qwen3", "qwen3moe" };

/* ---- the model, in the letters of the papers ----------------------------------------------------------- */

enum scaling { UNSCALED, LINEAR, YARN };
struct rotation {
    enum scaling scaling;
    uint32_t n; /* pairs that rotate in a head */
    uint32_t original_context;
    double base, factor, mscale;
    double ext, beta_fast, beta_slow; /* YaRN */
};
struct llama {
    const struct flavour *is;
    uint32_t L, E, F, V;  /* layers, embedding, feed-forward, vocabulary */
    uint32_t H, G, D, Dv; /* heads, heads of k and v, values a head of q and k, of v */
    uint32_t X, K;        /* experts, experts a token; X 0: dense */
    uint32_t window;
    float eps, scale;      /* of norms; of scores */
    float expert_scale;    /* of the chosen experts' weights */
    uint32_t expert_flags; /* WK_ROUTE_* */
    const char *head;      /* "output" or, tied, "token_embd" */
    uint32_t head_bias;    /* WK_OPTIONAL, or WK_NONE: rows of the embedding have none */
    struct rotation rotation;
};

/* ---- open ---------------------------------------------------------------------------------------------- */

static wk_status open_rotation(const struct wk_meta *meta, struct llama *m, const struct wk_err *err)
{
    struct rotation *r = &m->rotation;
    const wk_status status = wk_rope_pairs_open(meta, ROPE_DIM, m->D, &r->n, err);
    if (status != WK_OK) return status;
    r->base = wk_meta_number(meta, ROPE_BASE);
    r->factor = wk_meta_number(meta, ROPE_FACTOR) > 0       ? wk_meta_number(meta, ROPE_FACTOR)
                : wk_meta_number(meta, ROPE_FACTOR_OLD) > 0 ? wk_meta_number(meta, ROPE_FACTOR_OLD)
                                                            : 1;
    r->mscale = wk_meta_number(meta, ROPE_MSCALE);
    r->original_context = wk_meta_u32_or(meta, ROPE_CONTEXT, wk_meta_u32(meta, CONTEXT));
    if (r->factor < 1)
        return wk_fail(err, WK_INVALID, "rope.scaling.factor is %g, must be 0 (none) or at least 1", r->factor);
    static const struct {
        const char *name;
        enum scaling scaling;
    } types[] = { { "none", UNSCALED }, { "", LINEAR }, { "linear", LINEAR }, { "yarn", YARN } };
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        if (strcmp(wk_meta_text(meta, ROPE_TYPE), types[i].name) != 0) continue;
        r->scaling = types[i].scaling;
        r->ext = wk_meta_number(meta, YARN_EXT);
        r->beta_fast = wk_meta_number(meta, YARN_FAST);
        r->beta_slow = wk_meta_number(meta, YARN_SLOW);
        if (r->scaling != YARN) return WK_OK;
        double own;
        const wk_status said = wk_yarn_mscale_open(meta, YARN_MSCALE, r->factor, &own, err);
        if (said != WK_OK) return said;
        r->mscale *= own;
        if (r->beta_fast < r->beta_slow)
            return wk_fail(err, WK_INVALID, "rope.scaling.yarn_beta_fast is %g, must be at least yarn_beta_slow, %g",
                           r->beta_fast, r->beta_slow);
        return WK_OK;
    }
    return wk_fail(err, WK_UNSUPPORTED, "rope.scaling.type is %.64s; none, linear and yarn are served",
                   wk_meta_text(meta, ROPE_TYPE));
}

static wk_status open_heads(const struct wk_meta *meta, struct llama *m, const struct wk_err *err)
{
    static const struct wk_head_keys head_keys = { EMBEDDING, HEADS, KV_HEADS, KEY_LENGTH, VALUE_LENGTH, MAX_HEAD };
    struct wk_heads h;
    const wk_status status = wk_heads_open(meta, &head_keys, &h, err);
    if (status != WK_OK) return status;
    m->H = h.heads;
    m->G = h.kv_heads;
    m->D = h.key;
    m->Dv = h.value;
    const double scale = wk_meta_number(meta, ATTENTION_SCALE);
    m->scale = scale > 0 ? (float)scale : 1 / sqrtf((float)m->D);
    return WK_OK;
}

static wk_status open_feed_forward(const struct wk_meta *meta, struct llama *m, const struct wk_err *err)
{
    m->X = wk_meta_u32(meta, EXPERTS);
    m->K = wk_meta_u32(meta, EXPERTS_USED);
    m->F = m->X && wk_meta_u32(meta, EXPERT_FEED_FORWARD) ? wk_meta_u32(meta, EXPERT_FEED_FORWARD)
                                                          : wk_meta_u32(meta, FEED_FORWARD);
    if (!m->F) return wk_fail(err, WK_INVALID, "feed_forward_length is 0, must be at least 1");
    if (m->X && !m->is->experts)
        return wk_fail(err, WK_UNSUPPORTED, "expert_count is %u; %s is served without experts", (unsigned)m->X,
                       m->is->name);
    if (!m->X && m->is->experts == 2) return wk_fail(err, WK_INVALID, "expert_count is 0; %s has experts", m->is->name);
    m->expert_flags = wk_meta_u32(meta, EXPERT_NORM) ? WK_ROUTE_NORMALIZE : 0;
    m->expert_scale = wk_meta_number(meta, EXPERT_SCALE) > 0 ? (float)wk_meta_number(meta, EXPERT_SCALE) : 1;
    if (m->X && (!m->K || m->K > m->X))
        return wk_fail(err, WK_INVALID, "expert_used_count is %u, must be 1 to expert_count, %u", (unsigned)m->K,
                       (unsigned)m->X);
    return WK_OK;
}

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct llama *m = model;
    for (size_t i = 0; i < sizeof flavours / sizeof flavours[0]; i++)
        if (strcmp(meta->architecture, flavours[i].name) == 0) m->is = &flavours[i];
    if (!m->is)
        return wk_fail(err, WK_UNSUPPORTED, "architecture %.64s is not one of this plugin's", meta->architecture);
    m->L = wk_meta_u32(meta, BLOCKS);
    m->E = wk_meta_u32(meta, EMBEDDING);
    m->eps = (float)wk_meta_number(meta, EPS);
    m->window = m->is->window ? wk_meta_u32(meta, WINDOW) : 0;
    wk_status status = open_heads(meta, m, err);
    if (status == WK_OK) status = open_feed_forward(meta, m, err);
    if (status == WK_OK) status = open_rotation(meta, m, err);
    if (status != WK_OK) return status;
    m->head_bias = wk_meta_has_tensor(meta, "output.weight") ? WK_OPTIONAL : WK_NONE;
    return wk_vocabulary_open(meta, &m->V, &m->head, err);
}

static wk_status llama_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct llama), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

static struct wk_rope_freqs rotate(const struct wk_builder *b, const struct llama *m, double *freq)
{
    const struct rotation *r = &m->rotation;
    float factors[MAX_HEAD / 2]; /* which Llama 3.1 and later have */
    wk_rope_frequencies(freq, r->n, r->base);
    if (wk_read(b, "rope_freqs.weight", factors, r->n)) wk_rope_scale_factors(freq, r->n, factors);
    if (r->scaling == LINEAR) wk_rope_scale_linear(freq, r->n, r->factor);
    if (r->scaling == YARN) {
        const struct wk_yarn y = { .base = r->base,
                                   .factor = r->factor,
                                   .original_context = r->original_context,
                                   .beta_fast = r->beta_fast,
                                   .beta_slow = r->beta_slow,
                                   .extrapolation = r->ext };
        wk_rope_yarn(freq, r->n, &y);
    }
    return wk_rope_freqs_of(freq, r->n, m->is->rope, r->mscale);
}

static wk_value feed_forward(const struct wk_builder *b, wk_value h, const struct llama *m)
{
    wk_value g = wk_linear(b, h, "ffn_gate", m->F, WK_OPTIONAL), u = wk_linear(b, h, "ffn_up", m->F, WK_OPTIONAL);
    return wk_linear(b, wk_glu(b, WK_GLU_SILU, g, u), "ffn_down", m->E, WK_OPTIONAL);
}
static wk_value experts(const struct wk_builder *b, wk_value h, const struct llama *m)
{
    wk_value r = wk_route(b, wk_linear(b, h, "ffn_gate_inp", m->X, WK_OPTIONAL), m->K, WK_SCORE_SOFTMAX,
                          m->expert_flags, m->expert_scale);
    wk_value g = wk_expert(b, h, r, "ffn_gate_exps", m->X, m->F, WK_OPTIONAL);
    wk_value u = wk_expert(b, h, r, "ffn_up_exps", m->X, m->F, WK_OPTIONAL);
    return wk_combine(b, wk_expert(b, wk_glu(b, WK_GLU_SILU, g, u), r, "ffn_down_exps", m->X, m->E, WK_OPTIONAL), r);
}

static void llama_record(const struct wk_builder *b, const void *model)
{
    const struct llama *m = model;
    const struct wk_op_attention att = { .heads = m->H, .kv_heads = m->G, .scale = m->scale, .window = m->window };
    double freq[MAX_HEAD / 2];
    const struct wk_rope_freqs rope = rotate(b, m, freq);

    wk_value x = wk_embed(b, "token_embd", m->V, m->E); /* x = the token's row              [E]   */
    for (uint32_t l = 0; l < m->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name>          */
        wk_value h = wk_rms_norm(b, x, "attn_norm", m->eps);
        wk_value q = wk_linear(b, h, "attn_q", m->H * m->D, m->is->qkv_bias); /* q = Wq h (+ bq)       [H*D] */
        wk_value k = wk_linear(b, h, "attn_k", m->G * m->D, m->is->qkv_bias);
        wk_value v = wk_linear(b, h, "attn_v", m->G * m->Dv, m->is->qkv_bias);
        if (m->is->head_norm) {
            q = wk_head_norm(b, q, "attn_q_norm", m->D, m->eps);
            k = wk_head_norm(b, k, "attn_k_norm", m->D, m->eps);
        }
        q = wk_rope(b, q, m->D, &rope);
        k = wk_rope(b, k, m->D, &rope);
        wk_value a = wk_attention(b, q, k, v, NULL, &att); /* softmax(q k / sqrt D) v          [H*D] */
        x = wk_add(b, x, wk_linear(b, a, "attn_output", m->E, WK_OPTIONAL));
        h = wk_rms_norm(b, x, "ffn_norm", m->eps);
        x = wk_add(b, x, m->X ? experts(b, h, m) : feed_forward(b, h, m));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", m->eps), m->head, m->V, m->head_bias));
}

static const struct wk_arch llama = { .struct_size = sizeof llama,
                                      WK_ARCH_NAMES(names),
                                      WK_ARCH_KEYS(keys),
                                      WK_ARCH_ALIASES(aliases),
                                      WK_ARCH_IGNORED_KEYS(ignored_keys),
                                      .open = llama_open,
                                      .record = llama_record,
                                      .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.llama", "arch:llama,qwen2,qwen3,qwen3moe", .name = "llama", .version = "1.0.0",
              .arch = &llama);
