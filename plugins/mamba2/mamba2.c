/* mamba2.c: Mamba-2 (Dao and Gu 2024), also as Codestral Mamba has it.
 *
 * No attention: each layer is the paper's mixer (worker/ssm.h). */

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/ssm.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum { CONTEXT, EMBEDDING, BLOCKS, EPS, SSM };

/* What stands neither here nor in ignored_keys refuses the file. */
static const struct wk_key keys[] = {
    [CONTEXT] = { "context_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 27, 0 }, /* a filler: no row sees so far */
    [EMBEDDING] = { "embedding_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 17, 0 },
    [BLOCKS] = { "block_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 512, 0 },
    [EPS] = { "attention.layer_norm_rms_epsilon", WK_KEY_F32, WK_KEY_REQUIRED, 1e-12, 0.1, 0 },
    WK_KEYS_SSM(WK_KEY_REQUIRED),
    /* Of these one value changes nothing. */
    { "attention.causal", WK_KEY_BOOL, 0, 1, 1, 1 },
    { "attention.head_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "attention.head_count_kv", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "expert_used_count", WK_KEY_U32, 0, 0, 0, 0 },
    { "feed_forward_length", WK_KEY_U32, 0, 0, 0, 0 },
    { "pooling_type", WK_KEY_U32, 0, 0, 0, 0 },
    { "ssm.dt_b_c_rms", WK_KEY_BOOL, 0, 0, 0, 0 },
};
/* The embedding's rows are the vocabulary; no norm here has a mean; nothing rotates. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_epsilon",
                                            "rope.dimension_count", "rope.freq_base" };
static const char *const names[] = { "mamba2" };

/* ---- the model ----------------------------------------------------------------------------------------- */

struct mamba2 {
    uint32_t L, E, V; /* layers, embedding, vocabulary */
    struct wk_ssm ssm;
    float eps;
    const char *head; /* "output" or, tied, "token_embd" */
};

/* ---- open ---------------------------------------------------------------------------------------------- */

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct mamba2 *m = model;
    m->L = wk_meta_u32(meta, BLOCKS);
    m->E = wk_meta_u32(meta, EMBEDDING);
    m->eps = (float)wk_meta_number(meta, EPS);
    const wk_status status = wk_ssm_open(meta, SSM, &m->ssm, err);
    if (status != WK_OK) return status;
    return wk_vocabulary_open(meta, &m->V, &m->head, err);
}

static wk_status mamba2_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct mamba2), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

static void mamba2_record(const struct wk_builder *b, const void *model)
{
    const struct mamba2 *m = model;
    wk_value x = wk_embed(b, "token_embd", m->V, m->E);
    for (uint32_t l = 0; l < m->L; l++) {
        wk_layer(b, l);
        x = wk_add(b, x, wk_ssm_mixer(b, wk_rms_norm(b, x, "attn_norm", m->eps), &m->ssm, m->E, m->eps));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", m->eps), m->head, m->V, WK_NONE));
}

static const struct wk_arch mamba2 = { .struct_size = sizeof mamba2,
                                       WK_ARCH_NAMES(names),
                                       WK_ARCH_KEYS(keys),
                                       WK_ARCH_IGNORED_KEYS(ignored_keys),
                                       .open = mamba2_open,
                                       .record = mamba2_record,
                                       .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.mamba2", "arch:mamba2", .name = "mamba2", .version = "1.0.0", .arch = &mamba2);
