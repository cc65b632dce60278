/* deepseek2.c: DeepSeek V2 and V3 (DeepSeek-AI 2024), V2-Lite, R1, and what others made in their form.
 *
 * Multi-head latent attention: keys and values of all heads are made of one latent row a token, beside which one key
 * that rotates is every head's. Converters split the matrix that makes them by heads; then queries and results go
 * through it instead, and the cache holds the latent rows alone. Files of before that have it whole (attn_kv_b), and
 * each head's keys and values are made and kept. Some experts are there for every token, the others are chosen, from
 * the best groups where the file has groups. open() checks how the numbers fit together; record() is the papers. */
#define WORKER_ABI_MINOR 1 /* wk_ignore */
#include <math.h>
#include <stdio.h>
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
    KEY_LENGTH_MLA,
    VALUE_LENGTH_MLA,
    KV_LORA,
    Q_LORA,
    EPS,
    DENSE_BLOCKS,
    EXPERTS,
    EXPERTS_USED,
    EXPERTS_SHARED,
    EXPERT_FEED_FORWARD,
    EXPERT_SCALE,
    EXPERT_NORM,
    GATING,
    GROUPS,
    GROUPS_USED,
    ROPE_DIM,
    ROPE_BASE,
    ROPE_TYPE,
    ROPE_FACTOR,
    ROPE_CONTEXT,
    YARN_LOG,
    YARN_FAST,
    YARN_SLOW,
    NEXTN
};
enum { MAX_HEAD = 1024, MAX_LATENT = 4096, MAX_CONTEXT = 1 << 27 };
enum { GATING_NONE = 0, GATING_SOFTMAX, GATING_SIGMOID }; /* values of expert_gating_func; none: softmax */

/* Ranges: several times what the published models have, small enough that every product below stays inside 32 bits.
 * What stands neither here nor in ignored_keys refuses the file. */
static const struct wk_key keys[] = {
    [CONTEXT] = { "context_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, MAX_CONTEXT, 0 },
    [EMBEDDING] = { "embedding_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 17, 0 },
    [BLOCKS] = { "block_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 512, 0 },
    [FEED_FORWARD] = { "feed_forward_length", WK_KEY_U32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER, 1, 1 << 20, 0 },
    [HEADS] = { "attention.head_count", WK_KEY_U32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER, 1, 1024, 0 },
    [KV_HEADS] = { "attention.head_count_kv", WK_KEY_U32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER, 1, 1024, 0 },
    [KEY_LENGTH] = { "attention.key_length", WK_KEY_U32, WK_KEY_REQUIRED, 2, MAX_LATENT + MAX_HEAD, 0 },
    [VALUE_LENGTH] = { "attention.value_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, MAX_LATENT, 0 },
    [KEY_LENGTH_MLA] = { "attention.key_length_mla", WK_KEY_U32, 0, 2, MAX_HEAD, 0 }, /* of a head; and the next */
    [VALUE_LENGTH_MLA] = { "attention.value_length_mla", WK_KEY_U32, 0, 1, MAX_HEAD, 0 },
    [KV_LORA] = { "attention.kv_lora_rank", WK_KEY_U32, WK_KEY_REQUIRED, 1, MAX_LATENT, 0 },
    [Q_LORA] = { "attention.q_lora_rank", WK_KEY_U32, 0, 0, 1 << 16, 0 }, /* 0: queries are made at once (V2-Lite) */
    [EPS] = { "attention.layer_norm_rms_epsilon", WK_KEY_F32, WK_KEY_REQUIRED, 1e-12, 0.1, 0 },
    [DENSE_BLOCKS] = { "leading_dense_block_count", WK_KEY_U32, 0, 0, 512, 0 },
    [EXPERTS] = { "expert_count", WK_KEY_U32, 0, 0, 1024, 0 },
    [EXPERTS_USED] = { "expert_used_count", WK_KEY_U32, 0, 0, 64, 0 },
    [EXPERTS_SHARED] = { "expert_shared_count", WK_KEY_U32, 0, 0, 64, 0 },
    [EXPERT_FEED_FORWARD] = { "expert_feed_forward_length", WK_KEY_U32, 0, 0, 1 << 16, 0 },
    [EXPERT_SCALE] = { "expert_weights_scale", WK_KEY_F32, 0, 0, 1000, 1 }, /* 0: 1 */
    [EXPERT_NORM] = { "expert_weights_norm", WK_KEY_BOOL, 0, 0, 1, 0 },
    [GATING] = { "expert_gating_func", WK_KEY_U32, 0, 0, 2, 0 },
    [GROUPS] = { "expert_group_count", WK_KEY_U32, 0, 0, 1024, 0 }, /* 0, 1: all experts may be chosen */
    [GROUPS_USED] = { "expert_group_used_count", WK_KEY_U32, 0, 0, 1024, 0 },
    [ROPE_DIM] = { "rope.dimension_count", WK_KEY_U32, WK_KEY_REQUIRED, 2, MAX_HEAD, 0 },
    [ROPE_BASE] = { "rope.freq_base", WK_KEY_F32, 0, 2, 1e12, 10000 },
    [ROPE_TYPE] = { "rope.scaling.type", WK_KEY_TEXT, 0, 0, 0, 0 },
    [ROPE_FACTOR] = { "rope.scaling.factor", WK_KEY_F32, 0, 1, 65536, 1 },
    [ROPE_CONTEXT] = { "rope.scaling.original_context_length", WK_KEY_U32, 0, 1, MAX_CONTEXT, 0 }, /* all of it */
    [YARN_LOG] = { "rope.scaling.yarn_log_multiplier", WK_KEY_F32, 0, 0, 10, 0 },
    [YARN_FAST] = { "rope.scaling.yarn_beta_fast", WK_KEY_F32, 0, 0.001, 1e6, 32 },
    [YARN_SLOW] = { "rope.scaling.yarn_beta_slow", WK_KEY_F32, 0, 0.001, 1e6, 1 },
    [NEXTN] = { "nextn_predict_layers", WK_KEY_U32, 0, 0, 16, 0 }, /* left out */
    /* Of these one value changes nothing. */
    WK_KEYS_PLAIN_ATTENTION,
    WK_KEYS_NEXTN_DECODER,
    { "attention.sliding_window", WK_KEY_U32, 0, 0, 0, 0 },
    { "rope.scaling.attn_factor", WK_KEY_F32, 0, 1, 1, 1 },
    { "rope.scaling.yarn_attn_factor", WK_KEY_F32, 0, 1, 1, 1 },
    { "rope.scaling.yarn_ext_factor", WK_KEY_F32, 0, 1, 1, 1 },
};
/* The embedding's rows are the vocabulary; no norm here has a mean; a scaling is computed the same whether the model
 * was trained with it or not. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_epsilon",
                                            "rope.scaling.finetuned" };
static const char *const names[] = { "deepseek2" };
static const struct wk_alias aliases[] = { { "exp_probs_b", "exp_probs_b.bias" } }; /* V3's first files */

/* ---- the models, in the letters of the papers ---------------------------------------------------------- */

struct rotation {
    uint32_t n; /* pairs */
    double base;
    uint32_t stretched; /* by YaRN */
    struct wk_yarn yarn;
};
struct deepseek2 {
    uint32_t L, E, F, V;        /* layers, embedding, feed-forward of dense layers, vocabulary */
    uint32_t nextn;             /* layers behind its own, which predict further tokens and are left out */
    uint32_t H, D, nope, R, Dv; /* heads; of one: values of q and k, those that do not rotate, those that do, of v */
    uint32_t latent, q_latent;  /* width of the latent rows; of queries, 0: none */
    uint32_t whole;             /* attn_kv_b instead of attn_k_b and attn_v_b */
    uint32_t dense, X, Fx, Fs;  /* leading dense layers; experts, their feed-forward, that of the shared ones */
    struct wk_op_route route;   /* what is set of it */
    const char *selection_bias; /* or NULL */
    float eps, scale;           /* of norms; of scores */
    const char *head;           /* "output" or, tied, "token_embd" */
    struct rotation rotation;
};

/* ---- open ---------------------------------------------------------------------------------------------- */

/* Of absorbed matrices key_length and value_length describe what is cached, and the keys with mla a head; of whole
 * ones they describe a head, and the others are not there. */
static wk_status open_heads(const struct wk_meta *meta, struct deepseek2 *m, const struct wk_err *err)
{
    const uint32_t kv_heads = wk_meta_u32(meta, KV_HEADS), key = wk_meta_u32(meta, KEY_LENGTH),
                   value = wk_meta_u32(meta, VALUE_LENGTH);
    m->H = wk_meta_u32(meta, HEADS);
    m->R = wk_meta_u32(meta, ROPE_DIM);
    m->latent = wk_meta_u32(meta, KV_LORA);
    m->q_latent = wk_meta_u32(meta, Q_LORA);
    m->whole = wk_meta_has_tensor(meta, "blk.0.attn_kv_b.weight");
    m->D = wk_meta_u32_or(meta, KEY_LENGTH_MLA, m->whole ? key : 0);
    m->Dv = wk_meta_u32_or(meta, VALUE_LENGTH_MLA, m->whole ? value : 0);
    if (!m->D || !m->Dv)
        return wk_fail(err, WK_INVALID, "deepseek2.%s is missing", keys[m->D ? VALUE_LENGTH_MLA : KEY_LENGTH_MLA].name);
    if (m->R % 2 || m->R >= m->D)
        return wk_fail(err, WK_INVALID,
                       "rope.dimension_count is %u, must be even and less than the %u values of a head", (unsigned)m->R,
                       (unsigned)m->D);
    m->nope = m->D - m->R;
    if (kv_heads != (m->whole ? m->H : 1))
        return wk_fail(err, WK_INVALID, "attention.head_count_kv is %u, must be %u, %s", (unsigned)kv_heads,
                       (unsigned)(m->whole ? m->H : 1),
                       m->whole ? "as many as heads where attn_kv_b is whole" : "the latent row's");
    if (!m->whole && (key != m->latent + m->R || value != m->latent))
        return wk_fail(err, WK_INVALID,
                       "attention.key_length and value_length are %u and %u, must be kv_lora_rank + "
                       "rope.dimension_count, %u, and kv_lora_rank, %u",
                       (unsigned)key, (unsigned)value, (unsigned)(m->latent + m->R), (unsigned)m->latent);
    if (m->whole && (key != m->D || value != m->Dv))
        return wk_fail(err, WK_INVALID,
                       "attention.key_length and value_length are %u and %u, must be a head's, %u and %u, where "
                       "attn_kv_b is whole",
                       (unsigned)key, (unsigned)value, (unsigned)m->D, (unsigned)m->Dv);
    return WK_OK;
}

/* YaRN grows the scores by m^2, m = 1 + yarn_log_multiplier ln(factor), and the rotated values by nothing. */
static wk_status open_rotation(const struct wk_meta *meta, struct deepseek2 *m, const struct wk_err *err)
{
    struct rotation *r = &m->rotation;
    const char *type = wk_meta_text(meta, ROPE_TYPE);
    r->n = m->R / 2;
    r->base = wk_meta_number(meta, ROPE_BASE);
    m->scale = 1 / sqrtf((float)m->D);
    if (!wk_meta_has(meta, ROPE_TYPE) && wk_meta_number(meta, ROPE_FACTOR) > 1)
        return wk_fail(err, WK_INVALID, "deepseek2.rope.scaling.type is missing: rope.scaling.factor is %g",
                       wk_meta_number(meta, ROPE_FACTOR));
    if (!wk_meta_has(meta, ROPE_TYPE) || strcmp(type, "none") == 0) return WK_OK;
    if (strcmp(type, "yarn") != 0)
        return wk_fail(err, WK_UNSUPPORTED, "rope.scaling.type is %.64s; none and yarn are served", type);
    if (!wk_meta_has(meta, YARN_LOG))
        return wk_fail(err, WK_INVALID, "deepseek2.rope.scaling.yarn_log_multiplier is missing: the type is yarn");
    r->stretched = 1;
    r->yarn = (struct wk_yarn){ .base = r->base,
                                .factor = wk_meta_number(meta, ROPE_FACTOR),
                                .original_context = wk_meta_u32_or(meta, ROPE_CONTEXT, wk_meta_u32(meta, CONTEXT)),
                                .beta_fast = wk_meta_number(meta, YARN_FAST),
                                .beta_slow = wk_meta_number(meta, YARN_SLOW),
                                .extrapolation = 1,
                                .rounded = 1 };
    if (r->yarn.beta_fast < r->yarn.beta_slow)
        return wk_fail(err, WK_INVALID, "rope.scaling.yarn_beta_fast is %g, must be at least yarn_beta_slow, %g",
                       r->yarn.beta_fast, r->yarn.beta_slow);
    const double stretch = 1 + wk_meta_number(meta, YARN_LOG) * log(r->yarn.factor);
    m->scale = (float)(stretch * stretch / sqrt((double)m->D));
    return WK_OK;
}

/* V2 takes the groups of the best experts, V3, whose weights are sigmoids, those of the best pairs. */
static wk_status open_groups(const struct wk_meta *meta, struct deepseek2 *m, const struct wk_err *err)
{
    const uint32_t n = wk_meta_u32(meta, GROUPS), used = wk_meta_u32(meta, GROUPS_USED);
    if (n <= 1) return WK_OK;
    if (m->X % n || m->X / n < 2)
        return wk_fail(err, WK_INVALID,
                       "expert_count is %u, must be a multiple of expert_group_count, %u, twice it at least",
                       (unsigned)m->X, (unsigned)n);
    if (!used || used > n || m->route.k > used * (m->X / n))
        return wk_fail(err, WK_INVALID,
                       "expert_group_used_count is %u, must be 1 to expert_group_count, %u, and have room for the %u "
                       "experts of a token",
                       (unsigned)used, (unsigned)n, (unsigned)m->route.k);
    m->route.groups = n;
    m->route.groups_used = used;
    m->route.group_score = m->route.score == WK_SCORE_SIGMOID ? WK_GROUP_TOP2 : WK_GROUP_MAX;
    return WK_OK;
}

static wk_status open_experts(const struct wk_meta *meta, struct deepseek2 *m, const struct wk_err *err)
{
    char bias[64], first[64]; /* as files call it now, and as V3's first called it */
    m->X = wk_meta_u32(meta, EXPERTS);
    m->dense = m->X ? wk_meta_u32(meta, DENSE_BLOCKS) : m->L;
    if (m->dense >= m->L) return WK_OK;
    m->Fx = wk_meta_u32(meta, EXPERT_FEED_FORWARD);
    m->Fs = m->Fx * wk_meta_u32(meta, EXPERTS_SHARED);
    m->route.k = wk_meta_u32(meta, EXPERTS_USED);
    m->route.score = wk_meta_u32(meta, GATING) == GATING_SIGMOID ? WK_SCORE_SIGMOID : WK_SCORE_SOFTMAX;
    m->route.flags = wk_meta_u32(meta, EXPERT_NORM) ? WK_ROUTE_NORMALIZE : 0;
    m->route.scale = wk_meta_number(meta, EXPERT_SCALE) > 0 ? (float)wk_meta_number(meta, EXPERT_SCALE) : 1;
    if (!m->Fx) return wk_fail(err, WK_INVALID, "expert_feed_forward_length is 0, must be at least 1");
    if (!m->route.k || m->route.k > m->X)
        return wk_fail(err, WK_INVALID, "expert_used_count is %u, must be 1 to expert_count, %u", (unsigned)m->route.k,
                       (unsigned)m->X);
    (void)snprintf(bias, sizeof bias, "blk.%u.exp_probs_b.bias", (unsigned)m->dense);
    (void)snprintf(first, sizeof first, "blk.%u.exp_probs_b", (unsigned)m->dense);
    m->selection_bias = wk_meta_has_tensor(meta, bias) || wk_meta_has_tensor(meta, first) ? "exp_probs_b.bias" : NULL;
    return open_groups(meta, m, err);
}

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct deepseek2 *m = model;
    m->L = wk_meta_u32(meta, BLOCKS);
    m->E = wk_meta_u32(meta, EMBEDDING);
    m->F = wk_meta_u32(meta, FEED_FORWARD);
    m->eps = (float)wk_meta_number(meta, EPS);
    wk_status status = wk_nextn_open(meta, NEXTN, &m->L, &m->nextn, err);
    if (status == WK_OK) status = open_heads(meta, m, err);
    if (status == WK_OK) status = open_rotation(meta, m, err);
    if (status == WK_OK) status = open_experts(meta, m, err);
    if (status != WK_OK) return status;
    return wk_vocabulary_open(meta, &m->V, &m->head, err);
}

static wk_status deepseek2_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct deepseek2), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

/* Each head's part that does not rotate, then the one that does. */
static wk_value queries(const struct wk_builder *b, wk_value h, const struct deepseek2 *m)
{
    if (!m->q_latent) return wk_linear(b, h, "attn_q", m->H * m->D, WK_NONE);
    wk_value a = wk_rms_norm(b, wk_linear(b, h, "attn_q_a", m->q_latent, WK_NONE), "attn_q_a_norm", m->eps);
    return wk_linear(b, a, "attn_q_b", m->H * m->D, WK_NONE);
}

static wk_value attention(const struct wk_builder *b, wk_value h, const struct deepseek2 *m,
                          const struct wk_rope_freqs *rope)
{
    const uint32_t H = m->H;
    struct wk_op_attention att = { .heads = H, .kv_heads = m->whole ? H : 1, .scale = m->scale };
    wk_value q = queries(b, h, m);
    wk_value q_nope = wk_slice_groups(b, q, H, 0, m->nope);
    wk_value q_rope = wk_rope(b, wk_slice_groups(b, q, H, m->nope, m->R), m->R, rope);
    wk_value kv = wk_linear(b, h, "attn_kv_a_mqa", m->latent + m->R, WK_NONE); /* latent row, then the shared key */
    wk_value c = wk_rms_norm(b, wk_slice(b, kv, 0, m->latent), "attn_kv_a_norm", m->eps);
    wk_value k_rope = wk_rope(b, wk_slice(b, kv, m->latent, m->R), m->R, rope);
    if (m->whole) {
        wk_value made = wk_linear(b, c, "attn_kv_b", H * (m->nope + m->Dv), WK_NONE); /* each head's key, then value */
        wk_value k = wk_concat_groups(b, wk_slice_groups(b, made, H, 0, m->nope), k_rope, H, 1u << 1);
        wk_value v = wk_slice_groups(b, made, H, m->nope, m->Dv);
        return wk_attention(b, wk_concat_groups(b, q_nope, q_rope, H, 0), k, v, NULL, &att);
    }
    /* q (W c) = (q W) c: queries meet the latent rows, of which values are the same numbers */
    att.value_in_key = m->latent;
    q = wk_concat_groups(b, wk_linear_heads(b, q_nope, "attn_k_b", H, m->latent), q_rope, H, 0);
    wk_value a = wk_attention(b, q, wk_concat(b, c, k_rope), wk_none(), NULL, &att);
    return wk_linear_heads(b, a, "attn_v_b", H, m->Dv);
}

static wk_value feed_forward(const struct wk_builder *b, wk_value h, const struct deepseek2 *m)
{
    wk_value g = wk_linear(b, h, "ffn_gate", m->F, WK_NONE), u = wk_linear(b, h, "ffn_up", m->F, WK_NONE);
    return wk_linear(b, wk_glu(b, WK_GLU_SILU, g, u), "ffn_down", m->E, WK_NONE);
}
static wk_value shared(const struct wk_builder *b, wk_value h, const struct deepseek2 *m)
{
    wk_value g = wk_linear(b, h, "ffn_gate_shexp", m->Fs, WK_NONE), u = wk_linear(b, h, "ffn_up_shexp", m->Fs, WK_NONE);
    return wk_linear(b, wk_glu(b, WK_GLU_SILU, g, u), "ffn_down_shexp", m->E, WK_NONE);
}
static wk_value experts(const struct wk_builder *b, wk_value h, const struct deepseek2 *m)
{
    wk_value r = wk_route_op(b, wk_linear(b, h, "ffn_gate_inp", m->X, WK_NONE), m->selection_bias, &m->route);
    wk_value g = wk_expert(b, h, r, "ffn_gate_exps", m->X, m->Fx, WK_NONE);
    wk_value u = wk_expert(b, h, r, "ffn_up_exps", m->X, m->Fx, WK_NONE);
    return wk_combine(b, wk_expert(b, wk_glu(b, WK_GLU_SILU, g, u), r, "ffn_down_exps", m->X, m->E, WK_NONE), r);
}

static void deepseek2_record(const struct wk_builder *b, const void *model)
{
    const struct deepseek2 *m = model;
    double freq[MAX_HEAD / 2];
    wk_rope_frequencies(freq, m->rotation.n, m->rotation.base);
    if (m->rotation.stretched) wk_rope_yarn(freq, m->rotation.n, &m->rotation.yarn);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, m->rotation.n, WK_ROPE_INTERLEAVED, 1);
    wk_value x = wk_embed(b, "token_embd", m->V, m->E);
    for (uint32_t l = 0; l < m->L; l++) {
        wk_layer(b, l);
        wk_value a = attention(b, wk_rms_norm(b, x, "attn_norm", m->eps), m, &rope);
        x = wk_add(b, x, wk_linear(b, a, "attn_output", m->E, WK_NONE));
        wk_value h = wk_rms_norm(b, x, "ffn_norm", m->eps);
        if (l < m->dense) {
            x = wk_add(b, x, feed_forward(b, h, m));
            continue;
        }
        x = wk_add(b, x, experts(b, h, m));
        if (m->Fs) x = wk_add(b, x, shared(b, h, m));
    }
    wk_end_layers(b);
    wk_nextn_ignore(b, m->L, m->nextn);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", m->eps), m->head, m->V, WK_NONE));
}

static const struct wk_arch deepseek2 = { .struct_size = sizeof deepseek2,
                                          WK_ARCH_NAMES(names),
                                          WK_ARCH_KEYS(keys),
                                          WK_ARCH_IGNORED_KEYS(ignored_keys),
                                          WK_ARCH_ALIASES(aliases),
                                          .open = deepseek2_open,
                                          .record = deepseek2_record,
                                          .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.deepseek2", "arch:deepseek2", .name = "deepseek2", .version = "1.0.0",
              .arch = &deepseek2);
