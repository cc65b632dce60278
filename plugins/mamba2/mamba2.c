/* mamba2.c: Mamba-2 (Dao and Gu 2024), also as Codestral Mamba has it.
 *
 * No attention: a layer mixes a few neighbouring rows by a short convolution, then keeps a state a head that decays by
 * a factor of the row's own and takes up the outer product of x and B; C reads it. open() checks how the sizes fit
 * together; record() is the paper, sections 5 to 7. */

#include <worker/open.h>
#include <worker/plugin.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum { CONTEXT, EMBEDDING, BLOCKS, EPS, KERNEL, STATE, GROUPS, INNER, HEADS };
enum { MAX_CONTEXT = 1 << 27, MAX_INNER = 1 << 17, MAX_HEADS = 4096, MAX_STATE = 1024 };

/* Ranges: several times what the published models have, small enough that every product below stays inside 32 bits.
 * What stands neither here nor in ignored_keys refuses the file. */
static const struct wk_key keys[] = {
    [CONTEXT] = { "context_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, MAX_CONTEXT, 0 }, /* a filler: no row sees so far */
    [EMBEDDING] = { "embedding_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 17, 0 },
    [BLOCKS] = { "block_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 512, 0 },
    [EPS] = { "attention.layer_norm_rms_epsilon", WK_KEY_F32, WK_KEY_REQUIRED, 1e-12, 0.1, 0 },
    [KERNEL] = { "ssm.conv_kernel", WK_KEY_U32, WK_KEY_REQUIRED, 2, 16, 0 },
    [STATE] = { "ssm.state_size", WK_KEY_U32, WK_KEY_REQUIRED, 1, MAX_STATE, 0 },
    [GROUPS] = { "ssm.group_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1024, 0 },
    [INNER] = { "ssm.inner_size", WK_KEY_U32, WK_KEY_REQUIRED, 1, MAX_INNER, 0 },
    [HEADS] = { "ssm.time_step_rank", WK_KEY_U32, WK_KEY_REQUIRED, 1, MAX_HEADS, 0 }, /* Mamba-1's name of the key */
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

/* ---- the model, in the letters of the paper ------------------------------------------------------------ */

struct mamba2 {
    uint32_t L, E, V;    /* layers, embedding, vocabulary */
    uint32_t D, H, G, N; /* inner width, heads, groups of B and C, values of a state's row */
    uint32_t kernel;     /* rows that the convolution sees */
    float eps;
    const char *head; /* "output" or, tied, "token_embd" */
};

/* ---- open ---------------------------------------------------------------------------------------------- */

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct mamba2 *m = model;
    m->L = wk_meta_u32(meta, BLOCKS);
    m->E = wk_meta_u32(meta, EMBEDDING);
    m->D = wk_meta_u32(meta, INNER);
    m->H = wk_meta_u32(meta, HEADS);
    m->G = wk_meta_u32(meta, GROUPS);
    m->N = wk_meta_u32(meta, STATE);
    m->kernel = wk_meta_u32(meta, KERNEL);
    m->eps = (float)wk_meta_number(meta, EPS);
    if (m->D % m->H)
        return wk_fail(err, WK_INVALID, "ssm.inner_size is %u, must be a multiple of ssm.time_step_rank, %u heads",
                       (unsigned)m->D, (unsigned)m->H);
    if (m->H % m->G)
        return wk_fail(err, WK_INVALID, "ssm.time_step_rank is %u heads, must be a multiple of ssm.group_count, %u",
                       (unsigned)m->H, (unsigned)m->G);
    return wk_vocabulary_open(meta, &m->V, &m->head, err);
}

static wk_status mamba2_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct mamba2), fill, meta, model, err);
}

/* ---- record -------------------------------------------------------------------------------------------- */

/* Over each group's values, with weights for each. One group's norm melts into the product behind it. */
static wk_value group_norm(const struct wk_builder *b, wk_value y, const struct mamba2 *m)
{
    if (m->G == 1) return wk_rms_norm(b, y, "ssm_norm", m->eps);
    wk_value n = wk_norm(b, y, NULL, WK_NORM_RMS, m->D / m->G, m->eps, WK_NONE);
    return wk_mul(b, n, wk_vector(b, "ssm_norm.weight", m->G, m->D / m->G));
}

static wk_value mixer(const struct wk_builder *b, wk_value h, const struct mamba2 *m)
{
    const uint32_t D = m->D, BC = m->G * m->N, total = 2 * D + 2 * BC + m->H; /* z | x B C | dt */
    const struct wk_rows wz = { .name = "ssm_in", .total = total, .first = 0, .n = D },
                         wx = { .name = "ssm_in", .total = total, .first = D, .n = D + 2 * BC },
                         wt = { .name = "ssm_in", .total = total, .first = 2 * D + 2 * BC, .n = m->H };
    wk_value z = wk_linear_rows(b, h, wz, WK_NONE);
    wk_value xbc = wk_linear_rows(b, h, wx, WK_NONE);
    wk_value dt = wk_add(b, wk_linear_rows(b, h, wt, WK_NONE), wk_vector(b, "ssm_dt.bias", 1, m->H));
    dt = wk_unary(b, dt, WK_UNARY_SOFTPLUS, 0);
    xbc = wk_unary(b, wk_conv(b, xbc, "ssm_conv1d", m->kernel, WK_REQUIRED), WK_UNARY_SILU, 0);
    wk_value x = wk_slice(b, xbc, 0, D), B = wk_slice(b, xbc, D, BC), C = wk_slice(b, xbc, D + BC, BC);
    wk_value decay = wk_mul(b, dt, wk_vector(b, "ssm_a", m->H, 1)); /* the file's a is -exp(A_log) */
    wk_value y = wk_scan(b, C, B, wk_mul(b, x, dt), decay, m->H, m->G);
    y = wk_add(b, y, wk_mul(b, x, wk_vector(b, "ssm_d", m->H, 1)));
    return wk_linear(b, group_norm(b, wk_glu(b, WK_GLU_SILU, z, y), m), "ssm_out", m->E, WK_NONE);
}

static void mamba2_record(const struct wk_builder *b, const void *model)
{
    const struct mamba2 *m = model;
    wk_value x = wk_embed(b, "token_embd", m->V, m->E);
    for (uint32_t l = 0; l < m->L; l++) {
        wk_layer(b, l);
        x = wk_add(b, x, mixer(b, wk_rms_norm(b, x, "attn_norm", m->eps), m));
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
