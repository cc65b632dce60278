/* worker/open.h: what the open functions of most architectures check and read, once for all of them.
 *
 * Each helper takes the indices of the keys in the plugin's own table, and answers a file that does not fit with a text
 * that names the key as it stands in the file. Code that a plugin compiles in: the worker does not know of it. */
#ifndef WORKER_OPEN_H
#define WORKER_OPEN_H

#include <math.h>
#include <stdlib.h>

#include <worker/arch.h>
#include <worker/rope.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rows of a table of keys, for what an architecture does not compute: each key may stand in a file with the one value
 * that changes nothing; any other value refuses the file by name. Take those that record() has no part for, and write
 * the others yourself. */
/* clang-format off */
#define WK_KEYS_PLAIN_ATTENTION                                      \
    { "attention.causal", WK_KEY_BOOL, 0, 1, 1, 1 },                 \
    { "attention.clamp_kqv", WK_KEY_F32, 0, 0, 0, 0 },               \
    { "attention.max_alibi_bias", WK_KEY_F32, 0, 0, 0, 0 },          \
    { "attention.output_scale", WK_KEY_F32, 0, 1, 1, 1 },            \
    { "attention.shared_kv_layers", WK_KEY_U32, 0, 0, 0, 0 },        \
    { "attention.temperature_length", WK_KEY_U32, 0, 0, 0, 0 },      \
    { "attention.temperature_scale", WK_KEY_F32, 0, 0, 0, 0 }
#define WK_KEYS_NO_SOFTCAPS                                          \
    { "attn_logit_softcapping", WK_KEY_F32, 0, 0, 0, 0 },            \
    { "final_logit_softcapping", WK_KEY_F32, 0, 0, 0, 0 },           \
    { "router_logit_softcapping", WK_KEY_F32, 0, 0, 0, 0 }
#define WK_KEYS_NO_SCALES                                            \
    { "embedding_scale", WK_KEY_F32, 0, 1, 1, 1 },                   \
    { "logit_scale", WK_KEY_F32, 0, 1, 1, 1 },                       \
    { "residual_scale", WK_KEY_F32, 0, 1, 1, 1 }
#define WK_KEYS_NO_EXPERT_GROUPS                                     \
    { "expert_group_count", WK_KEY_U32, 0, 0, 0, 0 },                \
    { "expert_group_used_count", WK_KEY_U32, 0, 0, 0, 0 }
#define WK_KEYS_NO_SHARED_EXPERTS                                    \
    { "expert_shared_count", WK_KEY_U32, 0, 0, 0, 0 },               \
    { "expert_shared_feed_forward_length", WK_KEY_U32, 0, 0, 0, 0 }, \
    { "leading_dense_block_count", WK_KEY_U32, 0, 0, 0, 0 }
#define WK_KEYS_PLAIN_DECODER                                        \
    { "nextn_predict_layers", WK_KEY_U32, 0, 0, 0, 0 },              \
    WK_KEYS_NEXTN_DECODER
#define WK_KEYS_NEXTN_DECODER /* the same for who takes them: wk_nextn_open */ \
    { "pooling_type", WK_KEY_U32, 0, 0, 0, 0 },                      \
    { "swin_norm", WK_KEY_BOOL, 0, 0, 0, 0 },                        \
    { "use_parallel_residual", WK_KEY_BOOL, 0, 0, 0, 0 }
/* clang-format on */

/* Checks how the keys fit together and fills `model`, which has zeros. */
typedef wk_status (*wk_model_fill)(const struct wk_meta *meta, void *model, const struct wk_err *err);

/* Allocates a struct of `bytes` zeros, lets `fill` check the file and write it, and gives it to *model, which
 * wk_model_close() frees. */
static inline wk_status wk_model_open(size_t bytes, wk_model_fill fill, const struct wk_meta *meta, void **model,
                                      const struct wk_err *err)
{
    void *m = calloc(1, bytes);
    if (!m) return wk_fail(err, WK_NO_MEMORY, "out of memory");
    const wk_status status = fill(meta, m, err);
    if (status == WK_OK)
        *model = m;
    else
        free(m);
    return status;
}
static inline void wk_model_close(void *model) { free(model); }

/* The key's value; `other` where the file does not have it. */
static inline uint32_t wk_meta_u32_or(const struct wk_meta *meta, uint32_t key, uint32_t other)
{
    return wk_meta_has(meta, key) ? wk_meta_u32(meta, key) : other;
}

/* 1 if the file has the tensor, by its full name ("output.weight"). */
static inline uint32_t wk_meta_has_tensor(const struct wk_meta *meta, const char *name)
{
    return meta->tensor(meta->self, name, NULL, NULL, NULL);
}

/* The rows of the embedding, which are the vocabulary, and the tensor that makes logits: *head is "output", or, where
 * the file ties it to the embedding, "token_embd". head: NULL of a model without logits. */
static inline wk_status wk_vocabulary_open(const struct wk_meta *meta, uint32_t *rows, const char **head,
                                           const struct wk_err *err)
{
    if (!meta->tensor(meta->self, "token_embd.weight", rows, NULL, NULL))
        return wk_fail(err, WK_INVALID, "token_embd.weight is missing");
    if (head) *head = wk_meta_has_tensor(meta, "output.weight") ? "output" : "token_embd";
    return WK_OK;
}

/* The heads of attention. */
struct wk_heads {
    uint32_t heads, kv_heads; /* of queries; of keys and values, a divisor of `heads` */
    uint32_t key, value;      /* values of a head of q and k, and of v */
};
/* Indices of the keys that say so. Absent in the file: as many kv_heads as heads; key_length is embedding / heads,
 * value_length is key_length. */
struct wk_head_keys {
    uint32_t embedding, heads, kv_heads, key_length, value_length;
    uint32_t max_key; /* most values of a head of q and k */
};
static inline wk_status wk_heads_open(const struct wk_meta *meta, const struct wk_head_keys *keys, struct wk_heads *h,
                                      const struct wk_err *err)
{
    const uint32_t embedding = wk_meta_u32(meta, keys->embedding);
    h->heads = wk_meta_u32(meta, keys->heads);
    h->kv_heads = wk_meta_u32_or(meta, keys->kv_heads, h->heads);
    h->key = wk_meta_u32_or(meta, keys->key_length, embedding / h->heads);
    h->value = wk_meta_u32_or(meta, keys->value_length, h->key);
    if (h->heads % h->kv_heads)
        return wk_fail(err, WK_INVALID, "attention.head_count is %u, must be a multiple of head_count_kv, %u",
                       (unsigned)h->heads, (unsigned)h->kv_heads);
    if (!wk_meta_has(meta, keys->key_length) && embedding % h->heads)
        return wk_fail(
            err, WK_INVALID,
            "embedding_length is %u, must be a multiple of attention.head_count, %u, where no key_length is given",
            (unsigned)embedding, (unsigned)h->heads);
    if (h->key < 2 || h->key > keys->max_key)
        return wk_fail(err, WK_INVALID, "a head of %u values (embedding_length / head_count), must be 2 to %u",
                       (unsigned)h->key, (unsigned)keys->max_key);
    return WK_OK;
}

/* Pairs of values that rotate in a head of `key` values: half of rope.dimension_count, which is the whole head where
 * the file does not say it. */
static inline wk_status wk_rope_pairs_open(const struct wk_meta *meta, uint32_t dimension_key, uint32_t key,
                                           uint32_t *pairs, const struct wk_err *err)
{
    const uint32_t dim = wk_meta_u32_or(meta, dimension_key, key);
    *pairs = dim / 2;
    if (dim % 2 || dim > key)
        return wk_fail(err, WK_INVALID, "rope.dimension_count is %u, must be even and at most the %u values of a head",
                       (unsigned)dim, (unsigned)key);
    return WK_OK;
}

/* What YaRN multiplies rotated values by, by rope.scaling.factor: 1 + 0.1 ln(factor). Files may say it; of another
 * number the programs that read them make different models, so it is refused. */
static inline wk_status wk_yarn_mscale_open(const struct wk_meta *meta, uint32_t mscale_key, double factor,
                                            double *mscale, const struct wk_err *err)
{
    const double said = wk_meta_number(meta, mscale_key);
    *mscale = wk_yarn_mscale(factor);
    if (!wk_meta_has(meta, mscale_key) || fabs(said - *mscale) <= 1e-5 * *mscale) return WK_OK;
    return wk_fail(err, WK_UNSUPPORTED,
                   "rope.scaling.yarn_attn_factor is %g; 1 + 0.1 ln(rope.scaling.factor), %g, is served", said,
                   *mscale);
}

/* ---- decoders: rotary positions, one shape for all layers ------------------------------------------------- */

/* What every such file says, as the first rows of a plugin's table: WK_KEYS_DECODER, of layer norms
 * WK_KEYS_LAYER_NORM_DECODER, stands before all others, and these are its indices; the plugin's own begin at
 * WK_DECODER_KEYS. Ranges: several times what published models have, small enough that every product of two of them
 * stays inside 32 bits. */
enum {
    WK_DECODER_CONTEXT,
    WK_DECODER_EMBEDDING,
    WK_DECODER_BLOCKS,
    WK_DECODER_FEED_FORWARD,
    WK_DECODER_HEADS,
    WK_DECODER_KV_HEADS,
    WK_DECODER_KEY_LENGTH,
    WK_DECODER_VALUE_LENGTH,
    WK_DECODER_EPS,
    WK_DECODER_ROPE_DIM,
    WK_DECODER_ROPE_BASE,
    WK_DECODER_KEYS
};
enum { WK_DECODER_MAX_HEAD = 1024, WK_DECODER_MAX_CONTEXT = 1 << 27, WK_DECODER_MAX_LAYERS = 512 };
/* Absent: as many heads of k and v as of q; key_length as wk_heads_open has it; the whole head rotates, by base 10000.
 */
/* clang-format off */
#define WK_KEYS_DECODER_OF(epsilon) WK_KEYS_DECODER_SHAPED(epsilon, 0)
/* kv_flags: flags more of head_count_kv, where it is another row for some of the plugin's architectures. */
#define WK_KEYS_DECODER_SHAPED(epsilon, kv_flags)                                                                  \
    { "context_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, WK_DECODER_MAX_CONTEXT, 0 },                               \
    { "embedding_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 17, 0 },                                            \
    { "block_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, WK_DECODER_MAX_LAYERS, 0 },                                   \
    { "feed_forward_length", WK_KEY_U32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER, 1, 1 << 20, 0 },                      \
    { "attention.head_count", WK_KEY_U32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER, 1, 1024, 0 },                        \
    { "attention.head_count_kv", WK_KEY_U32, WK_KEY_PER_LAYER | (kv_flags), 1, 1024, 0 },                          \
    { "attention.key_length", WK_KEY_U32, WK_KEY_PER_LAYER, 2, WK_DECODER_MAX_HEAD, 0 },                           \
    { "attention.value_length", WK_KEY_U32, WK_KEY_PER_LAYER, 1, WK_DECODER_MAX_HEAD, 0 },                         \
    { epsilon, WK_KEY_F32, WK_KEY_REQUIRED, 1e-12, 0.1, 0 },                                                       \
    { "rope.dimension_count", WK_KEY_U32, WK_KEY_PER_LAYER, 2, WK_DECODER_MAX_HEAD, 0 },                           \
    { "rope.freq_base", WK_KEY_F32, WK_KEY_PER_LAYER, 2, 1e12, 10000 }
/* clang-format on */
#define WK_KEYS_DECODER WK_KEYS_DECODER_OF("attention.layer_norm_rms_epsilon")
#define WK_KEYS_LAYER_NORM_DECODER WK_KEYS_DECODER_OF("attention.layer_norm_epsilon")

struct wk_decoder {
    uint32_t L, E, F, V;  /* layers, embedding, feed-forward, vocabulary */
    uint32_t H, G, D, Dv; /* heads, heads of k and v, values a head of q and k, of v */
    uint32_t pairs;       /* that rotate in a head */
    float eps;            /* of norms */
    double rope_base;
    const char *head; /* the tensor that makes logits; see wk_vocabulary_open */
};
/* Fills d from a table that begins with one of these. */
static inline wk_status wk_decoder_open(const struct wk_meta *meta, struct wk_decoder *d, const struct wk_err *err)
{
    const struct wk_head_keys keys = { WK_DECODER_EMBEDDING,  WK_DECODER_HEADS,        WK_DECODER_KV_HEADS,
                                       WK_DECODER_KEY_LENGTH, WK_DECODER_VALUE_LENGTH, WK_DECODER_MAX_HEAD };
    struct wk_heads h;
    wk_status status = wk_heads_open(meta, &keys, &h, err);
    if (status != WK_OK) return status;
    d->L = wk_meta_u32(meta, WK_DECODER_BLOCKS);
    d->E = wk_meta_u32(meta, WK_DECODER_EMBEDDING);
    d->F = wk_meta_u32(meta, WK_DECODER_FEED_FORWARD);
    d->H = h.heads;
    d->G = h.kv_heads;
    d->D = h.key;
    d->Dv = h.value;
    d->eps = (float)wk_meta_number(meta, WK_DECODER_EPS);
    d->rope_base = wk_meta_number(meta, WK_DECODER_ROPE_BASE);
    status = wk_rope_pairs_open(meta, WK_DECODER_ROPE_DIM, d->D, &d->pairs, err);
    if (status != WK_OK) return status;
    return wk_vocabulary_open(meta, &d->V, &d->head, err);
}

/* Layers behind the model's own that predict tokens further ahead: nextn_predict_layers, a U32 key, says how many of
 * block_count, *layers, they are. For a plugin that does without them: *layers are the model's own, *nextn those. */
static inline wk_status wk_nextn_open(const struct wk_meta *meta, uint32_t key, uint32_t *layers, uint32_t *nextn,
                                      const struct wk_err *err)
{
    *nextn = wk_meta_u32(meta, key);
    if (*nextn >= *layers)
        return wk_fail(err, WK_INVALID, "nextn_predict_layers is %u, must be less than block_count, %u",
                       (unsigned)*nextn, (unsigned)*layers);
    *layers -= *nextn;
    return WK_OK;
}
#if WORKER_ABI_MINOR >= 1
/* Nothing reads their tensors. */
static inline void wk_nextn_ignore(const struct wk_builder *b, uint32_t layers, uint32_t nextn)
{
    char name[32];
    for (uint32_t l = layers; l < layers + nextn; l++) {
        (void)snprintf(name, sizeof name, "blk.%u.*", (unsigned)l);
        wk_ignore(b, name);
    }
}
#endif

/* For a plugin whose positions nothing scales: rope.scaling.type, a TEXT key, is "none" or not there. */
static inline wk_status wk_rope_unscaled_open(const struct wk_meta *meta, uint32_t type_key, const struct wk_err *err)
{
    if (!wk_meta_has(meta, type_key) || strcmp(wk_meta_text(meta, type_key), "none") == 0) return WK_OK;
    return wk_fail(err, WK_UNSUPPORTED, "rope.scaling.type is %.64s; none alone is served",
                   wk_meta_text(meta, type_key));
}

#ifdef __cplusplus
}
#endif

#endif
