/* bert.c: BERT (Devlin et al. 2019) as an encoder of texts: sentence-transformers' models of it, BGE, E5, RoBERTa
 * and XLM-R in the same form; rerankers made of them. And Nomic's BERT, whose positions rotate and whose feed-forward
 * network is gated; and ModernBERT (Warner et al. 2024), which besides has its norms before the branches, and windows
 * in two of three layers.
 *
 * Every token sees all others, or those up to half a window away on either side, norms stand behind the additions, and
 * there are no logits: the result is one row of a text, pooled as the file says and brought to length 1, or a
 * reranker's scores. */
#define WORKER_ABI_MINOR 1 /* wk_embed_token_type */

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
    EPS,
    POOLING,
    KEY_LENGTH,
    VALUE_LENGTH,
    ROPE_BASE,
    ROPE_DIM,
    WINDOW,
    PATTERN,
    ROPE_BASE_WINDOW,
    ROPE_TYPE,
    ACTIVATION,
    CLASSIFIER_POOLING
};
enum { BERT, NOMIC, MODERN }; /* places in names */
enum { MAX_CONTEXT = 1 << 20, MAX_HEAD = 1024 };
enum { POOL_MEAN = 1, POOL_FIRST, POOL_LAST, POOL_RANK }; /* values of pooling_type; 0: rows as they are, not served */
#define MODERN_ALONE (WK_KEY_NOT_FOR(BERT) | WK_KEY_NOT_FOR(NOMIC))

/* Ranges: several times what published models have, small enough that every product below stays inside 32 bits. What
 * stands neither here nor in ignored_keys refuses the file. */
static const struct wk_key keys[] = {
    [CONTEXT] = { "context_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, MAX_CONTEXT, 0 },
    [EMBEDDING] = { "embedding_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 17, 0 },
    [BLOCKS] = { "block_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 512, 0 },
    [FEED_FORWARD] = { "feed_forward_length", WK_KEY_U32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER, 1, 1 << 20, 0 },
    [HEADS] = { "attention.head_count", WK_KEY_U32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER, 1, 1024, 0 },
    [KV_HEADS] = { "attention.head_count_kv", WK_KEY_U32, WK_KEY_PER_LAYER, 1, 1024,
                   0 }, /* default: as many as heads */
    [EPS] = { "attention.layer_norm_epsilon", WK_KEY_F32, WK_KEY_REQUIRED, 1e-15, 0.1, 0 },
    [POOLING] = { "pooling_type", WK_KEY_U32, 0, 0, 4, 0 },
    [KEY_LENGTH] = { "attention.key_length", WK_KEY_U32, 0, 1, MAX_HEAD, 0 },
    [VALUE_LENGTH] = { "attention.value_length", WK_KEY_U32, 0, 1, MAX_HEAD, 0 },
    [ROPE_BASE] = { "rope.freq_base", WK_KEY_F32, 0, 2, 1e12, 1000 },
    [ROPE_DIM] = { "rope.dimension_count", WK_KEY_U32, 0, 1, MAX_HEAD, 0 },
    [WINDOW] = { "attention.sliding_window", WK_KEY_U32, MODERN_ALONE, 0, MAX_CONTEXT, 0 },  /* whole; 0: none */
    [PATTERN] = { "attention.sliding_window_pattern", WK_KEY_U32, MODERN_ALONE, 1, 512, 3 }, /* one has none, of so
                                                                                                many layers */
    [ROPE_BASE_WINDOW] = { "rope.freq_base_swa", WK_KEY_F32, MODERN_ALONE, 2, 1e12, 0 }, /* default: rope.freq_base */
    [ROPE_TYPE] = { "rope.scaling.type", WK_KEY_TEXT, MODERN_ALONE, 0, 0, 0 },
    [ACTIVATION] = { "hidden_activation", WK_KEY_TEXT, MODERN_ALONE, 0, 0, 0 },
    [CLASSIFIER_POOLING] = { "classifier.pooling_type", WK_KEY_U32, MODERN_ALONE, POOL_MEAN, POOL_FIRST, POOL_MEAN },
    /* Of these one value changes nothing. */
    { "attention.causal", WK_KEY_BOOL, 0, 0, 0, 0 },
    { "attention.clamp_kqv", WK_KEY_F32, 0, 0, 0, 0 },
    { "attention.max_alibi_bias", WK_KEY_F32, 0, 0, 0, 0 },
    { "expert_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_used_count", WK_KEY_U32, 0, 0, 0, 0 },
};
/* The embedding's rows are the vocabulary, a reranker's the labels; of BERT itself nothing rotates. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_rms_epsilon",
                                            "classifier.output_labels" };
static const char *const names[] = { [BERT] = "bert", [NOMIC] = "nomic-bert", [MODERN] = "modern-bert" };

/* ---- the model ----------------------------------------------------------------------------------------- */

struct bert {
    uint32_t L, E, F, H, V, C; /* layers, width, feed-forward, heads, vocabulary, positions */
    uint32_t types, labels;    /* rows of token_types; scores of a reranker */
    uint32_t pooling;
    uint32_t dense, cls_norm, cls_pooling; /* a reranker's layer before its scores, its norm; POOL_* before it */
    uint32_t
        kind; /* BERT; NOMIC: positions rotate, q|k|v is one tensor, a gate, biases are left out; MODERN: so, too */
    uint32_t window, pattern; /* |i - j| <= window / 2 sees, but in every pattern-th layer from the first on; 0: all */
    uint32_t gate;            /* WK_GLU_* */
    double base, window_base;
    float eps;
};

/* ---- open ---------------------------------------------------------------------------------------------- */

/* Converters write no pooling_type into rerankers made of encoders: what makes scores tells. */
static wk_status open_pooling(const struct wk_meta *meta, struct bert *m, const struct wk_err *err)
{
    const uint32_t ranks = meta->tensor(meta->self, "cls.output.weight", &m->labels, NULL, NULL);
    m->pooling = wk_meta_u32_or(meta, POOLING, ranks ? POOL_RANK : 0);
    if (!m->pooling && !wk_meta_has(meta, POOLING))
        return wk_fail(err, WK_INVALID,
                       "pooling_type is missing, and there is no cls.output.weight as a reranker has it: the file does "
                       "not say how rows of tokens become one");
    if (!m->pooling)
        return wk_fail(err, WK_UNSUPPORTED,
                       "pooling_type is 0, rows as they are; 1 (mean), 2 (first), 3 (last) and 4 (a reranker's scores) "
                       "are served");
    if (m->pooling != POOL_RANK) return WK_OK;
    if (!ranks) return wk_fail(err, WK_INVALID, "cls.output.weight is missing: pooling_type is 4, a reranker's scores");
    m->dense = wk_meta_has_tensor(meta, "cls.weight");
    m->cls_norm = m->kind == MODERN && m->dense && wk_meta_has_tensor(meta, "cls.norm.weight");
    m->cls_pooling = m->kind == MODERN ? wk_meta_u32(meta, CLASSIFIER_POOLING) : POOL_FIRST;
    return WK_OK;
}

/* Heads are equal parts of a row. */
static wk_status open_heads(const struct wk_meta *meta, const struct bert *m, const struct wk_err *err)
{
    static const struct {
        uint32_t key;
        const char *name;
    } lengths[] = { { KEY_LENGTH, "attention.key_length" },
                    { VALUE_LENGTH, "attention.value_length" },
                    { ROPE_DIM, "rope.dimension_count" } };
    if (m->E % m->H)
        return wk_fail(err, WK_INVALID, "embedding_length is %u, must be a multiple of attention.head_count, %u",
                       (unsigned)m->E, (unsigned)m->H);
    if (wk_meta_has(meta, KV_HEADS) && wk_meta_u32(meta, KV_HEADS) != m->H)
        return wk_fail(err, WK_UNSUPPORTED, "attention.head_count_kv is %u; as many as heads, %u, are served",
                       (unsigned)wk_meta_u32(meta, KV_HEADS), (unsigned)m->H);
    for (int i = 0; i < (m->kind == BERT ? 2 : 3); i++)
        if (wk_meta_u32_or(meta, lengths[i].key, m->E / m->H) != m->E / m->H)
            return wk_fail(err, WK_UNSUPPORTED, "%s is %u; the row's width by heads, %u, is served", lengths[i].name,
                           (unsigned)wk_meta_u32(meta, lengths[i].key), (unsigned)(m->E / m->H));
    if (m->kind != BERT && (m->E / m->H > MAX_HEAD || m->E / m->H % 2))
        return wk_fail(err, WK_UNSUPPORTED, "a head of %u values, of which pairs rotate: even numbers to %d are served",
                       (unsigned)(m->E / m->H), MAX_HEAD);
    return WK_OK;
}

static wk_status open_modern(const struct wk_meta *meta, struct bert *m, const struct wk_err *err)
{
    const char *activation = wk_meta_has(meta, ACTIVATION) ? wk_meta_text(meta, ACTIVATION) : "gelu";
    if (!wk_meta_has(meta, ROPE_BASE)) return wk_fail(err, WK_INVALID, "modern-bert.rope.freq_base is missing");
    m->window = wk_meta_u32(meta, WINDOW);
    m->pattern = wk_meta_u32(meta, PATTERN);
    m->window_base = wk_meta_has(meta, ROPE_BASE_WINDOW) ? wk_meta_number(meta, ROPE_BASE_WINDOW) : m->base;
    m->gate = strcmp(activation, "gelu") == 0 ? WK_GLU_GELU_ERF : WK_GLU_SILU;
    if (m->gate == WK_GLU_SILU && strcmp(activation, "silu") != 0)
        return wk_fail(err, WK_UNSUPPORTED, "hidden_activation is %.64s; gelu and silu are served", activation);
    return wk_rope_unscaled_open(meta, ROPE_TYPE, err);
}

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct bert *m = model;
    while (strcmp(meta->architecture, names[m->kind]) != 0) m->kind++;
    m->gate = WK_GLU_SILU;
    m->base = wk_meta_number(meta, ROPE_BASE);
    m->L = wk_meta_u32(meta, BLOCKS);
    m->E = wk_meta_u32(meta, EMBEDDING);
    m->F = wk_meta_u32(meta, FEED_FORWARD);
    m->H = wk_meta_u32(meta, HEADS);
    m->C = wk_meta_u32(meta, CONTEXT);
    m->eps = (float)wk_meta_number(meta, EPS);
    wk_status status = open_heads(meta, m, err);
    if (status == WK_OK) status = wk_vocabulary_open(meta, &m->V, NULL, err);
    if (status == WK_OK && m->kind == MODERN) status = open_modern(meta, m, err);
    if (status != WK_OK) return status;
    if (m->kind != MODERN && !meta->tensor(meta->self, "token_types.weight", &m->types, NULL, NULL))
        return wk_fail(err, WK_INVALID, "token_types.weight is missing");
    return open_pooling(meta, m, err);
}

static wk_status bert_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct bert), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

static const uint32_t pools[] = {
    [POOL_MEAN] = WK_POOL_MEAN, [POOL_FIRST] = WK_POOL_FIRST, [POOL_LAST] = WK_POOL_LAST
};

static wk_value bare_norm(const struct wk_builder *b, wk_value x, const char *name, const struct bert *m)
{
    return wk_norm(b, x, name, WK_NORM_LAYER, 0, m->eps, WK_NONE);
}

/* A text's row; a reranker's goes through a layer where there is one, and becomes a score for each label. */
static void pool(const struct wk_builder *b, wk_value x, const struct bert *m)
{
    if (m->pooling != POOL_RANK) {
        wk_embedding(b, wk_pool(b, x, pools[m->pooling]), WK_OUTPUT_L2_NORM);
        return;
    }
    x = wk_pool(b, x, pools[m->cls_pooling]);
    if (m->dense)
        x = wk_unary(b, wk_linear(b, x, "cls", m->E, WK_OPTIONAL),
                     m->kind == MODERN ? WK_UNARY_GELU_ERF : WK_UNARY_TANH, 0);
    if (m->cls_norm) x = bare_norm(b, x, "cls.norm", m);
    wk_embedding(b, wk_linear(b, x, "cls.output", m->labels, WK_OPTIONAL), 0);
}

/* window: 0: all tokens are seen. */
static wk_value attention(const struct wk_builder *b, wk_value x, const struct bert *m,
                          const struct wk_rope_freqs *rope, uint32_t window)
{
    const struct wk_op_attention att = { .heads = m->H,
                                         .kv_heads = m->H,
                                         .scale = 1 / sqrtf((float)(m->E / m->H)),
                                         .window = window ? window / 2 + 1 : 0,
                                         .flags = WK_ATTENTION_BIDIRECTIONAL };
    if (m->kind == BERT) {
        wk_value q = wk_linear(b, x, "attn_q", m->E, WK_REQUIRED), k = wk_linear(b, x, "attn_k", m->E, WK_REQUIRED),
                 v = wk_linear(b, x, "attn_v", m->E, WK_REQUIRED);
        return wk_linear(b, wk_attention(b, q, k, v, NULL, &att), "attn_output", m->E, WK_REQUIRED);
    }
    wk_value part[3];
    for (uint32_t i = 0; i < 3; i++) {
        const struct wk_rows rows = { .name = "attn_qkv", .total = 3 * m->E, .first = i * m->E, .n = m->E };
        part[i] = wk_linear_rows(b, x, rows, WK_OPTIONAL);
        if (i < 2) part[i] = wk_rope(b, part[i], m->E / m->H, rope);
    }
    return wk_linear(b, wk_attention(b, part[0], part[1], part[2], NULL, &att), "attn_output", m->E, WK_OPTIONAL);
}

static wk_value feed_forward(const struct wk_builder *b, wk_value x, const struct bert *m)
{
    if (m->kind == BERT)
        return wk_linear(b, wk_unary(b, wk_linear(b, x, "ffn_up", m->F, WK_REQUIRED), WK_UNARY_GELU_ERF, 0), "ffn_down",
                         m->E, WK_REQUIRED);
    wk_value part[2];
    for (uint32_t i = 0; i < 2; i++) { /* the activated one first */
        const struct wk_rows rows = { .name = "ffn_up", .total = 2 * m->F, .first = i * m->F, .n = m->F };
        part[i] = m->kind == MODERN ? wk_linear_rows(b, x, rows, WK_OPTIONAL)
                                    : wk_linear(b, x, i ? "ffn_up" : "ffn_gate", m->F, WK_OPTIONAL);
    }
    return wk_linear(b, wk_glu(b, m->gate, part[0], part[1]), "ffn_down", m->E, WK_OPTIONAL);
}

static wk_value record_layers(const struct wk_builder *b, const struct bert *m, const struct wk_rope_freqs *rope)
{
    wk_value x = wk_embed(b, "token_embd", m->V, m->E);
    x = wk_add(b, x,
               m->types > 1 ? wk_embed_token_type(b, "token_types", m->types, m->E)
                            : wk_embed_row(b, "token_types", m->types, m->E, 0));
    if (m->kind == BERT) x = wk_add(b, x, wk_embed_pos(b, "position_embd", m->C, m->E, 0));
    x = wk_layer_norm(b, x, "token_embd_norm", m->eps);
    for (uint32_t l = 0; l < m->L; l++) {
        wk_layer(b, l);
        x = wk_layer_norm(b, wk_add(b, x, attention(b, x, m, rope, 0)), "attn_output_norm", m->eps);
        x = wk_layer_norm(b, wk_add(b, x, feed_forward(b, x, m)), "layer_output_norm", m->eps);
    }
    wk_end_layers(b);
    return x;
}

/* The first layer has no norm before attention: the embedding has one. near: rotations where there are windows. */
static wk_value record_modern_layers(const struct wk_builder *b, const struct bert *m, const struct wk_rope_freqs *far,
                                     const struct wk_rope_freqs *near)
{
    wk_value x = bare_norm(b, wk_embed(b, "token_embd", m->V, m->E), "token_embd_norm", m);
    for (uint32_t l = 0; l < m->L; l++) {
        const uint32_t window = l % m->pattern ? m->window : 0;
        wk_layer(b, l);
        x = wk_add(b, x, attention(b, l ? bare_norm(b, x, "attn_norm", m) : x, m, window ? near : far, window));
        x = wk_add(b, x, feed_forward(b, bare_norm(b, x, "ffn_norm", m), m));
    }
    wk_end_layers(b);
    return bare_norm(b, x, "output_norm", m);
}

static void bert_record(const struct wk_builder *b, const void *model)
{
    const struct bert *m = model;
    double far[MAX_HEAD / 2], near[MAX_HEAD / 2];
    const uint32_t pairs = m->kind == BERT ? 0 : m->E / m->H / 2;
    wk_rope_frequencies(far, pairs, m->base);
    wk_rope_frequencies(near, pairs, m->kind == MODERN ? m->window_base : m->base);
    const struct wk_rope_freqs rope_far = wk_rope_freqs_of(far, pairs, WK_ROPE_HALF, 1),
                               rope_near = wk_rope_freqs_of(near, pairs, WK_ROPE_HALF, 1);
    pool(b, m->kind == MODERN ? record_modern_layers(b, m, &rope_far, &rope_near) : record_layers(b, m, &rope_far), m);
}

static const struct wk_arch bert = { .struct_size = sizeof bert,
                                     WK_ARCH_NAMES(names),
                                     WK_ARCH_KEYS(keys),
                                     WK_ARCH_IGNORED_KEYS(ignored_keys),
                                     .open = bert_open,
                                     .record = bert_record,
                                     .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.bert", "arch:bert,nomic-bert,modern-bert", .name = "bert", .version = "1.2.0",
              .arch = &bert);
