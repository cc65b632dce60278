/* gemma2.c: Gemma 2 (Gemma Team 2024; 2B, 9B and 27B).
 *
 * A pre-norm transformer with a second norm behind each branch. Embeddings grow by the root of their width, scores and
 * logits are bent by a soft-cap, and every other layer, from the first on, sees a window. Files hold the norms' weights
 * with the 1 that is added to them, and no tensor of the output: it is the embedding's. */
#include <math.h>

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
    ATTENTION_CAP,
    LOGIT_CAP,
    ATTENTION_SCALE,
    ROPE_DIM,
    ROPE_BASE
};
enum { MAX_HEAD = 1024, MAX_CONTEXT = 1 << 27, LAYERS_OF_27B = 46 };

/* Ranges: several times what the published models have, small enough that every product below stays inside 32 bits.
 * Window and caps have defaults: the first files were written before converters knew these keys, and all published
 * models have these values. What stands neither here nor in ignored_keys refuses the file. */
static const struct wk_key keys[] = {
    [CONTEXT] = { "context_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, MAX_CONTEXT, 0 },
    [EMBEDDING] = { "embedding_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 17, 0 },
    [BLOCKS] = { "block_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 512, 0 },
    [FEED_FORWARD] = { "feed_forward_length", WK_KEY_U32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER, 1, 1 << 20, 0 },
    [HEADS] = { "attention.head_count", WK_KEY_U32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER, 1, 1024, 0 },
    [KV_HEADS] = { "attention.head_count_kv", WK_KEY_U32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER, 1, 1024, 0 },
    [KEY_LENGTH] = { "attention.key_length", WK_KEY_U32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER, 2, MAX_HEAD, 0 },
    [VALUE_LENGTH] = { "attention.value_length", WK_KEY_U32, WK_KEY_PER_LAYER, 1, MAX_HEAD,
                       0 }, /* default: key_length */
    [EPS] = { "attention.layer_norm_rms_epsilon", WK_KEY_F32, WK_KEY_REQUIRED, 1e-12, 0.1, 0 },
    [WINDOW] = { "attention.sliding_window", WK_KEY_U32, WK_KEY_PER_LAYER, 1, MAX_CONTEXT, 4096 },
    [ATTENTION_CAP] = { "attn_logit_softcapping", WK_KEY_F32, 0, 0, 1e6, 50 }, /* 0: none */
    [LOGIT_CAP] = { "final_logit_softcapping", WK_KEY_F32, 0, 0, 1e6, 30 },    /* 0: none */
    [ATTENTION_SCALE] = { "attention.scale", WK_KEY_F32, 0, 0, 100, 0 },       /* default, and 0: see query_scale */
    [ROPE_DIM] = { "rope.dimension_count", WK_KEY_U32, WK_KEY_PER_LAYER, 2, MAX_HEAD, 0 }, /* default: the whole head */
    [ROPE_BASE] = { "rope.freq_base", WK_KEY_F32, WK_KEY_PER_LAYER, 2, 1e12, 10000 },
    /* Of these one value changes nothing. */
    WK_KEYS_PLAIN_ATTENTION,
    WK_KEYS_PLAIN_DECODER,
    { "expert_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_used_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "rope.scaling.factor", WK_KEY_F32, 0, 1, 1, 1 },
};
/* The embedding's rows are the vocabulary; no norm here has a mean. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_epsilon" };
static const char *const names[] = { "gemma2" };

/* ---- the model, in the letters of the papers ----------------------------------------------------------- */

struct gemma2 {
    uint32_t L, E, F, V;     /* layers, embedding, feed-forward, vocabulary */
    uint32_t H, G, D, Dv;    /* heads, heads of k and v, values a head of q and k, of v */
    uint32_t window, n_rope; /* of even layers; pairs that rotate in a head */
    float eps, scale, attention_cap, logit_cap;
    double rope_base;
    const char *head; /* "token_embd"; "output" where a file unties it */
};

/* ---- open ---------------------------------------------------------------------------------------------- */

/* Scores are scaled by 1 / sqrt(key_length), but for the 27B model, where it is 1 / sqrt(width / heads): files have no
 * key for it, its number of layers tells. */
static float query_scale(const struct wk_meta *meta, const struct gemma2 *m)
{
    if (wk_meta_number(meta, ATTENTION_SCALE) > 0) return (float)wk_meta_number(meta, ATTENTION_SCALE);
    return 1 / sqrtf(m->L == LAYERS_OF_27B ? (float)m->E / (float)m->H : (float)m->D);
}

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct gemma2 *m = model;
    m->L = wk_meta_u32(meta, BLOCKS);
    m->E = wk_meta_u32(meta, EMBEDDING);
    m->F = wk_meta_u32(meta, FEED_FORWARD);
    static const struct wk_head_keys head_keys = { EMBEDDING, HEADS, KV_HEADS, KEY_LENGTH, VALUE_LENGTH, MAX_HEAD };
    struct wk_heads h;
    wk_status status = wk_heads_open(meta, &head_keys, &h, err);
    if (status != WK_OK) return status;
    m->H = h.heads;
    m->G = h.kv_heads;
    m->D = h.key;
    m->Dv = h.value;
    m->window = wk_meta_u32(meta, WINDOW);
    m->eps = (float)wk_meta_number(meta, EPS);
    m->attention_cap = (float)wk_meta_number(meta, ATTENTION_CAP);
    m->logit_cap = (float)wk_meta_number(meta, LOGIT_CAP);
    m->scale = query_scale(meta, m);
    m->rope_base = wk_meta_number(meta, ROPE_BASE);
    status = wk_rope_pairs_open(meta, ROPE_DIM, m->D, &m->n_rope, err);
    if (status != WK_OK) return status;
    return wk_vocabulary_open(meta, &m->V, &m->head, err);
}

static wk_status gemma2_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct gemma2), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

static void gemma2_record(const struct wk_builder *b, const void *model)
{
    const struct gemma2 *m = model;
    struct wk_op_attention att = { .heads = m->H, .kv_heads = m->G, .scale = m->scale, .softcap = m->attention_cap };
    double freq[MAX_HEAD / 2];
    wk_rope_frequencies(freq, m->n_rope, m->rope_base);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, m->n_rope, WK_ROPE_HALF, 1);

    wk_value x = wk_scale(b, wk_embed(b, "token_embd", m->V, m->E), sqrtf((float)m->E)); /* [E] */
    for (uint32_t l = 0; l < m->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name>          */
        att.window = l % 2 ? 0 : m->window;
        wk_value h = wk_rms_norm(b, x, "attn_norm", m->eps);
        wk_value q = wk_rope(b, wk_linear(b, h, "attn_q", m->H * m->D, WK_NONE), m->D, &rope);
        wk_value k = wk_rope(b, wk_linear(b, h, "attn_k", m->G * m->D, WK_NONE), m->D, &rope);
        wk_value v = wk_linear(b, h, "attn_v", m->G * m->Dv, WK_NONE);
        wk_value a = wk_attention(b, q, k, v, NULL, &att); /* softmax(cap tanh(q k scale / cap)) v [H*Dv] */
        a = wk_linear(b, a, "attn_output", m->E, WK_NONE);
        x = wk_add(b, x, wk_rms_norm(b, a, "post_attention_norm", m->eps));
        h = wk_rms_norm(b, x, "ffn_norm", m->eps);
        wk_value f = wk_glu(b, WK_GLU_GELU_TANH, wk_linear(b, h, "ffn_gate", m->F, WK_NONE),
                            wk_linear(b, h, "ffn_up", m->F, WK_NONE));
        f = wk_linear(b, f, "ffn_down", m->E, WK_NONE);
        x = wk_add(b, x, wk_rms_norm(b, f, "post_ffw_norm", m->eps));
    }
    wk_end_layers(b);
    wk_value logits = wk_linear(b, wk_rms_norm(b, x, "output_norm", m->eps), m->head, m->V, WK_NONE);
    wk_logits(b, m->logit_cap > 0 ? wk_softcap(b, logits, m->logit_cap) : logits);
}

static const struct wk_arch gemma2 = { .struct_size = sizeof gemma2,
                                       WK_ARCH_NAMES(names),
                                       WK_ARCH_KEYS(keys),
                                       WK_ARCH_IGNORED_KEYS(ignored_keys),
                                       .open = gemma2_open,
                                       .record = gemma2_record,
                                       .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.gemma2", "arch:gemma2", .name = "gemma2", .version = "1.0.0", .arch = &gemma2);
