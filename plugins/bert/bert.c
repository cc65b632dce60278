/* bert.c: BERT (Devlin et al. 2019) as an encoder of texts: sentence-transformers' models of it, BGE, E5, RoBERTa
 * and XLM-R in the same form; rerankers made of them.
 *
 * Every token sees all others, norms stand behind the additions, and there are no logits: the result is one row of a
 * text, pooled as the file says and brought to length 1, or a reranker's scores. */
#include <math.h>

#include <worker/open.h>
#include <worker/plugin.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum { CONTEXT, EMBEDDING, BLOCKS, FEED_FORWARD, HEADS, KV_HEADS, EPS, POOLING };
enum { MAX_CONTEXT = 1 << 20 };
enum { POOL_MEAN = 1, POOL_FIRST, POOL_LAST, POOL_RANK }; /* values of pooling_type; 0: rows as they are, not served */

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
    [POOLING] = { "pooling_type", WK_KEY_U32, WK_KEY_REQUIRED, 0, 4, 0 },
    /* Of these one value changes nothing. */
    { "attention.causal", WK_KEY_BOOL, 0, 0, 0, 0 },
    { "attention.clamp_kqv", WK_KEY_F32, 0, 0, 0, 0 },
    { "attention.max_alibi_bias", WK_KEY_F32, 0, 0, 0, 0 },
    { "expert_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_used_count", WK_KEY_U32, 0, 0, 0, 0 },
};
/* The embedding's rows are the vocabulary, a reranker's the labels; nothing rotates. */
static const char *const ignored_keys[] = {
    "vocab_size",           "tensor_data_layout", "attention.layer_norm_rms_epsilon", "classifier.output_labels",
    "rope.dimension_count", "rope.freq_base"
};
static const char *const names[] = { "bert" };

/* ---- the model ----------------------------------------------------------------------------------------- */

struct bert {
    uint32_t L, E, F, H, V, C; /* layers, width, feed-forward, heads, vocabulary, positions */
    uint32_t types, labels;    /* rows of token_types; scores of a reranker */
    uint32_t pooling, dense;   /* dense: a reranker with a layer before its scores */
    float eps;
};

/* ---- open ---------------------------------------------------------------------------------------------- */

static wk_status open_pooling(const struct wk_meta *meta, struct bert *m, const struct wk_err *err)
{
    m->pooling = wk_meta_u32(meta, POOLING);
    if (!m->pooling)
        return wk_fail(err, WK_UNSUPPORTED,
                       "pooling_type is 0, rows as they are; 1 (mean), 2 (first), 3 (last) and 4 (a reranker's scores) "
                       "are served");
    if (m->pooling != POOL_RANK) return WK_OK;
    m->dense = wk_meta_has_tensor(meta, "cls.weight");
    if (!meta->tensor(meta->self, "cls.output.weight", &m->labels, NULL, NULL))
        return wk_fail(err, WK_INVALID, "cls.output.weight is missing: pooling_type is 4, a reranker's scores");
    return WK_OK;
}

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct bert *m = model;
    m->L = wk_meta_u32(meta, BLOCKS);
    m->E = wk_meta_u32(meta, EMBEDDING);
    m->F = wk_meta_u32(meta, FEED_FORWARD);
    m->H = wk_meta_u32(meta, HEADS);
    m->C = wk_meta_u32(meta, CONTEXT);
    m->eps = (float)wk_meta_number(meta, EPS);
    if (m->E % m->H)
        return wk_fail(err, WK_INVALID, "embedding_length is %u, must be a multiple of attention.head_count, %u",
                       (unsigned)m->E, (unsigned)m->H);
    if (wk_meta_has(meta, KV_HEADS) && wk_meta_u32(meta, KV_HEADS) != m->H)
        return wk_fail(err, WK_UNSUPPORTED, "attention.head_count_kv is %u; as many as heads, %u, are served",
                       (unsigned)wk_meta_u32(meta, KV_HEADS), (unsigned)m->H);
    const wk_status status = wk_vocabulary_open(meta, &m->V, NULL, err);
    if (status != WK_OK) return status;
    if (!meta->tensor(meta->self, "token_types.weight", &m->types, NULL, NULL))
        return wk_fail(err, WK_INVALID, "token_types.weight is missing");
    return open_pooling(meta, m, err);
}

static wk_status bert_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct bert), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

/* The first token's row, through a layer where there is one: a score for each label. */
static void rank(const struct wk_builder *b, wk_value x, const struct bert *m)
{
    x = wk_pool(b, x, WK_POOL_FIRST);
    if (m->dense) x = wk_unary(b, wk_linear(b, x, "cls", m->E, WK_OPTIONAL), WK_UNARY_TANH, 0);
    wk_embedding(b, wk_linear(b, x, "cls.output", m->labels, WK_OPTIONAL), 0);
}

static void bert_record(const struct wk_builder *b, const void *model)
{
    static const uint32_t pools[] = {
        [POOL_MEAN] = WK_POOL_MEAN, [POOL_FIRST] = WK_POOL_FIRST, [POOL_LAST] = WK_POOL_LAST
    };
    const struct bert *m = model;
    const struct wk_op_attention att = {
        .heads = m->H, .kv_heads = m->H, .scale = 1 / sqrtf((float)(m->E / m->H)), .flags = WK_ATTENTION_BIDIRECTIONAL
    };
    wk_value x = wk_embed(b, "token_embd", m->V, m->E);
    x = wk_add(b, x, wk_embed_row(b, "token_types", m->types, m->E, 0)); /* all tokens are the first text's */
    x = wk_add(b, x, wk_embed_pos(b, "position_embd", m->C, m->E, 0));
    x = wk_layer_norm(b, x, "token_embd_norm", m->eps);
    for (uint32_t l = 0; l < m->L; l++) {
        wk_layer(b, l);
        wk_value q = wk_linear(b, x, "attn_q", m->E, WK_REQUIRED), k = wk_linear(b, x, "attn_k", m->E, WK_REQUIRED),
                 v = wk_linear(b, x, "attn_v", m->E, WK_REQUIRED);
        wk_value a = wk_linear(b, wk_attention(b, q, k, v, NULL, &att), "attn_output", m->E, WK_REQUIRED);
        x = wk_layer_norm(b, wk_add(b, x, a), "attn_output_norm", m->eps);
        wk_value f = wk_unary(b, wk_linear(b, x, "ffn_up", m->F, WK_REQUIRED), WK_UNARY_GELU_ERF, 0);
        f = wk_linear(b, f, "ffn_down", m->E, WK_REQUIRED);
        x = wk_layer_norm(b, wk_add(b, x, f), "layer_output_norm", m->eps);
    }
    wk_end_layers(b);
    if (m->pooling == POOL_RANK)
        rank(b, x, m);
    else
        wk_embedding(b, wk_pool(b, x, pools[m->pooling]), WK_OUTPUT_L2_NORM);
}

static const struct wk_arch bert = { .struct_size = sizeof bert,
                                     WK_ARCH_NAMES(names),
                                     WK_ARCH_KEYS(keys),
                                     WK_ARCH_IGNORED_KEYS(ignored_keys),
                                     .open = bert_open,
                                     .record = bert_record,
                                     .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.bert", "arch:bert", .name = "bert", .version = "1.0.0", .arch = &bert);
