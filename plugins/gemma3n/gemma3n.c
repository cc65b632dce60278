/* gemma3n.c: Gemma 3n (Gemma Team 2025), text: E2B, E4B.
 *
 * Gemma 3's layers, four sliding ones before each global one, inside of AltUp (Baykal et al. 2023): a row has four
 * parts, each embedding_length wide. A layer predicts all parts from all of them, computes the first one only, and
 * corrects the others by what its prediction of the first lacked. Beside attention a product of low rank is added
 * (LAuReL), and every layer has an embedding of its own for each token. The last layers have no keys and values: they
 * read those of the last layer of their kind that has. The first ones keep of their gates what is far above the mean.
 * Heads of values are normed without weights, scores are not scaled. Files hold weights of norms as they are. */
#define WORKER_ABI_MINOR 1 /* wk_ignore */
#include <math.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>

/* ---- what the file may say ----------------------------------------------------------------------------- */

enum { WINDOW = WK_DECODER_KEYS, SLIDING, SHARED, PER_LAYER, SPARSITY, LOGIT_CAP, ROPE_BASE_WINDOW, ROPE_TYPE };
enum { PARTS = 4 /* of a row, each embedding_length wide: AltUp's */ };

/* SPARSITY: gates of a layer open so many standard deviations above their mean; minus infinity: they are ordinary ones.
 * What stands neither here nor in ignored_keys refuses the file. */
static const struct wk_key keys[] = {
    WK_KEYS_DECODER,
    [WINDOW] = { "attention.sliding_window", WK_KEY_U32, WK_KEY_REQUIRED, 1, WK_DECODER_MAX_CONTEXT, 0 },
    [SLIDING] = { "attention.sliding_window_pattern", WK_KEY_U32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER | WK_KEY_VARIES, 0,
                  1, 0 },
    [SHARED] = { "attention.shared_kv_layers", WK_KEY_U32, WK_KEY_REQUIRED, 0, WK_DECODER_MAX_LAYERS, 0 },
    [PER_LAYER] = { "embedding_length_per_layer_input", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 14, 0 },
    [SPARSITY] = { "activation_sparsity_scale", WK_KEY_F32, WK_KEY_REQUIRED | WK_KEY_PER_LAYER | WK_KEY_VARIES,
                   -INFINITY, 100, 0 },
    [LOGIT_CAP] = { "final_logit_softcapping", WK_KEY_F32, 0, 1e-3, 1e6, 30 },
    [ROPE_BASE_WINDOW] = { "rope.freq_base_swa", WK_KEY_F32, 0, 2, 1e12, 10000 },
    [ROPE_TYPE] = { "rope.scaling.type", WK_KEY_TEXT, 0, 0, 0, 0 },
    /* Of these one value changes nothing. */
    { "altup.active_idx", WK_KEY_U32, 0, 0, 0, 0 },
    { "altup.num_inputs", WK_KEY_U32, 0, PARTS, PARTS, PARTS },
    { "attention.causal", WK_KEY_BOOL, 0, 1, 1, 1 },
    { "rope.scaling.factor", WK_KEY_F32, 0, 1, 1, 1 },
    WK_KEYS_PLAIN_DECODER,
};
/* The embedding's rows are the vocabulary; no norm here has a mean. */
static const char *const ignored_keys[] = { "vocab_size", "tensor_data_layout", "attention.layer_norm_epsilon" };
static const char *const names[] = { "gemma3n" };

/* ---- the model ----------------------------------------------------------------------------------------- */

struct gemma3n {
    struct wk_decoder d; /* its rope_base is that of global layers */
    uint32_t window;     /* of sliding ones */
    uint32_t own;        /* layers that have keys and values */
    uint32_t P, rank;    /* width of a layer's own embedding; of LAuReL */
    float logit_cap;
    double window_base;
    uint8_t sliding[WK_DECODER_MAX_LAYERS];
    float sparsity[WK_DECODER_MAX_LAYERS];
};

/* ---- open ---------------------------------------------------------------------------------------------- */

/* A key with an element for each layer, or one value for all. */
static double of_layer(const struct wk_meta *meta, uint32_t key, uint32_t l)
{
    uint32_t n;
    const double *each = wk_meta_numbers(meta, key, &n);
    return n ? each[l] : wk_meta_number(meta, key);
}

/* The layer whose keys and values layer l reads: the last of its kind that has some, or L: none does. */
static uint32_t source_of(const struct gemma3n *m, uint32_t l)
{
    if (l < m->own) return l;
    for (uint32_t s = m->own; s-- > 0;)
        if (m->sliding[s] == m->sliding[l]) return s;
    return m->d.L;
}

static wk_status open_layers(const struct wk_meta *meta, struct gemma3n *m, const struct wk_err *err)
{
    const uint32_t L = m->d.L, shared = wk_meta_u32(meta, SHARED);
    if (shared >= L)
        return wk_fail(err, WK_INVALID, "attention.shared_kv_layers is %u, must be less than block_count, %u",
                       (unsigned)shared, (unsigned)L);
    m->own = L - shared;
    for (uint32_t l = 0; l < L; l++) {
        m->sliding[l] = of_layer(meta, SLIDING, l) > 0;
        m->sparsity[l] = (float)of_layer(meta, SPARSITY, l);
    }
    for (uint32_t l = m->own; l < L; l++)
        if (source_of(m, l) == L)
            return wk_fail(err, WK_INVALID,
                           "attention.shared_kv_layers is %u: none of the first %u layers is %s, as layer %u is, whose "
                           "keys it would read",
                           (unsigned)shared, (unsigned)m->own, m->sliding[l] ? "sliding" : "global", (unsigned)l);
    return WK_OK;
}

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct gemma3n *m = model;
    wk_status status = wk_rope_unscaled_open(meta, ROPE_TYPE, err);
    if (status == WK_OK) status = wk_decoder_open(meta, &m->d, err);
    if (status == WK_OK) status = open_layers(meta, m, err);
    if (status != WK_OK) return status;
    m->window = wk_meta_u32(meta, WINDOW);
    m->P = wk_meta_u32(meta, PER_LAYER);
    m->logit_cap = (float)wk_meta_number(meta, LOGIT_CAP);
    m->window_base = wk_meta_number(meta, ROPE_BASE_WINDOW);
    if (!meta->tensor(meta->self, "blk.0.laurel_l.weight", &m->rank, NULL, NULL))
        return wk_fail(err, WK_INVALID, "blk.0.laurel_l.weight is missing");
    return WK_OK;
}

static wk_status gemma3n_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct gemma3n), fill, meta, model, err);
}

/* ---- operations of its own ------------------------------------------------------------------------------ */

/* On CUDA cuda/parts.cu has them, by these names. A row's result is as wide as its first input. */
static uint32_t as_first(const uint32_t *in_width, uint32_t n_in) { return n_in ? in_width[0] : 0; }

/* y += c (x + more); more NULL: none. */
static void add_part(float *y, const float *x, const float *more, float c, size_t n)
{
    for (size_t e = 0; e < n; e++) y[e] += c * (more ? x[e] + more[e] : x[e]);
}

/* x [PARTS * E], c [PARTS * PARTS], later [E] or not -> [PARTS * E]: with later added to all parts of x but the first,
 * y[q] = x[q] + sum over p of c[q][p] x[p]. */
static void predict(const struct wk_custom_call *call)
{
    const size_t E = call->out_width / PARTS;
    for (size_t r = 0; r < call->n_rows; r++) {
        const float *x = call->in[0] + r * PARTS * E, *c = call->in[1] + r * PARTS * PARTS;
        const float *later = call->n_in > 2 ? call->in[2] + r * E : NULL;
        for (size_t q = 0; q < PARTS; q++) {
            float *y = call->out + (r * PARTS + q) * E;
            memset(y, 0, E * sizeof *y);
            for (size_t p = 0; p < PARTS; p++) add_part(y, x + p * E, p ? later : NULL, c[q * PARTS + p], E);
            add_part(y, x + q * E, q ? later : NULL, 1, E);
        }
    }
}

/* x [PARTS * E], c [PARTS], active [E] -> [PARTS * E]: y[q] = x[q] + (1 + c[q]) (active - x[0]). */
static void correct(const struct wk_custom_call *call)
{
    const size_t E = call->out_width / PARTS;
    for (size_t i = 0; i < call->n_rows * PARTS; i++) {
        const float *x = call->in[0] + i * E, *first = call->in[0] + i / PARTS * PARTS * E;
        const float *active = call->in[2] + i / PARTS * E;
        for (size_t e = 0; e < E; e++) call->out[i * E + e] = x[e] + (1 + call->in[1][i]) * (active[e] - first[e]);
    }
}

/* Mean of (x - middle)^2. */
static double mean_square(const float *x, size_t n, double middle)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((double)x[i] - middle) * ((double)x[i] - middle);
    return sum / (double)n;
}

/* y [n * E], x [E] -> [n * E]: each part times rms(x) / rms(part); a part's mean square counts as 1e-5 at least. */
static void as_long(const struct wk_custom_call *call)
{
    const size_t E = call->in_width[1], n = call->out_width / E;
    for (size_t i = 0; i < call->n_rows * n; i++) {
        const float *part = call->in[0] + i * E;
        const double wanted = mean_square(call->in[1] + i / n * E, E, 0), is = mean_square(part, E, 0);
        const float factor = (float)sqrt(wanted / fmax(is, 1e-5));
        for (size_t e = 0; e < E; e++) call->out[i * E + e] = part[e] * factor;
    }
}

/* x [n] -> [n]: max(x - (mean + factor * standard deviation), 0), both of the row; the factor is its parameter. */
static void above(const struct wk_custom_call *call)
{
    const size_t n = call->out_width;
    float factor;
    memcpy(&factor, call->params, sizeof factor);
    for (size_t r = 0; r < call->n_rows; r++) {
        const float *x = call->in[0] + r * n;
        double sum = 0;
        for (size_t i = 0; i < n; i++) sum += (double)x[i];
        const double mean = sum / (double)n, least = mean + (double)factor * sqrt(mean_square(x, n, mean));
        for (size_t i = 0; i < n; i++) call->out[r * n + i] = (double)x[i] <= least ? 0 : (float)((double)x[i] - least);
    }
}

#define OWN(function) { sizeof(struct wk_custom_def), WK_SPLIT_NONE, #function, as_first, function }
static const struct wk_custom_def own_predict = OWN(predict), own_correct = OWN(correct), own_as_long = OWN(as_long),
                                  own_above = OWN(above);

/* ---- record -------------------------------------------------------------------------------------------- */

/* n times x, one behind the other. */
static wk_value repeated(const struct wk_builder *b, wk_value x, uint32_t n)
{
    return wk_concat_groups(b, x, wk_none(), n, 1);
}

/* Every part of y, made as long as x is. */
static wk_value as_long_as(const struct wk_builder *b, wk_value y, wk_value x)
{
    const wk_value in[] = { y, x };
    return wk_custom(b, &own_as_long, in, 2, NULL, 0, NULL, 0);
}

/* What AltUp's coefficients are made of -> [PARTS]. */
static wk_value modalities(const struct wk_builder *b, wk_value x, const struct gemma3n *m)
{
    wk_value r = wk_linear(b, wk_rms_norm(b, x, "altup_router_norm", m->d.eps), "altup_router", PARTS, WK_NONE);
    return wk_unary(b, wk_scale(b, r, 1 / (float)m->d.E), WK_UNARY_TANH, 0);
}

/* first: that part of the rows; later: what the layer before adds to all others; none: there is no such layer. */
static wk_value predicted(const struct wk_builder *b, wk_value rows, wk_value first, wk_value later,
                          const struct gemma3n *m)
{
    wk_value c = modalities(b, first, m);
    const wk_value in[] = { rows, wk_linear(b, c, "altup_predict_coef", PARTS * PARTS, WK_NONE), later };
    return wk_custom(b, &own_predict, in, later.id ? 3 : 2, NULL, 0, NULL, 0);
}

static wk_value corrected(const struct wk_builder *b, wk_value rows, wk_value active, const struct gemma3n *m)
{
    wk_value c = wk_linear(b, modalities(b, active, m), "altup_correct_coef", PARTS, WK_NONE);
    const wk_value in[] = { rows, c, active };
    return wk_custom(b, &own_correct, in, 3, NULL, 0, NULL, 0);
}

/* kept: results of the last attention with keys of its own, of global and of sliding layers. */
static wk_value attention(const struct wk_builder *b, wk_value h, const struct gemma3n *m, uint32_t l, wk_value kept[2],
                          const struct wk_rope_freqs *rope)
{
    static const char *const unread[] = { "attn_k.weight", "attn_v.weight", "attn_k_norm.weight" };
    const struct wk_decoder *d = &m->d;
    const struct wk_op_attention att = {
        .heads = d->H, .kv_heads = d->G, .scale = 1, .window = m->sliding[l] ? m->window : 0
    };
    wk_value q = wk_head_norm(b, wk_linear(b, h, "attn_q", d->H * d->D, WK_NONE), "attn_q_norm", d->D, d->eps);
    q = wk_rope(b, q, d->D, rope);
    if (l >= m->own) {
        for (uint32_t i = 0; i < WK_COUNT_OF(unread); i++) {
            char name[64];
            (void)snprintf(name, sizeof name, "blk.%u.%s", (unsigned)l, unread[i]);
            wk_ignore(b, name);
        }
        return wk_attention_reuse(b, q, kept[m->sliding[l]], NULL, &att);
    }
    wk_value k = wk_head_norm(b, wk_linear(b, h, "attn_k", d->G * d->D, WK_NONE), "attn_k_norm", d->D, d->eps);
    wk_value v =
        wk_norm(b, wk_linear(b, h, "attn_v", d->G * d->Dv, WK_NONE), NULL, WK_NORM_RMS, d->Dv, d->eps, WK_NONE);
    return kept[m->sliding[l]] = wk_attention(b, q, wk_rope(b, k, d->D, rope), v, NULL, &att);
}

static wk_value net(const struct wk_builder *b, wk_value h, const struct gemma3n *m, uint32_t l)
{
    wk_value g = wk_linear(b, h, "ffn_gate", m->d.F, WK_NONE), u = wk_linear(b, h, "ffn_up", m->d.F, WK_NONE);
    if (isfinite(m->sparsity[l])) g = wk_custom(b, &own_above, &g, 1, NULL, 0, &m->sparsity[l], sizeof(float));
    return wk_linear(b, wk_glu(b, WK_GLU_GELU_TANH, g, u), "ffn_down", m->d.E, WK_NONE);
}

/* The first part behind attention and the network; x: as it was predicted. */
static wk_value activated(const struct wk_builder *b, wk_value x, const struct gemma3n *m, uint32_t l, wk_value kept[2],
                          const struct wk_rope_freqs *rope)
{
    const struct wk_decoder *d = &m->d;
    wk_value h = wk_rms_norm(b, x, "attn_norm", d->eps);
    wk_value low = wk_linear(b, wk_linear(b, h, "laurel_l", m->rank, WK_NONE), "laurel_r", d->E, WK_NONE);
    low = wk_add(b, h, wk_rms_norm(b, low, "laurel_post_norm", d->eps));
    wk_value a = wk_linear(b, attention(b, h, m, l, kept, rope), "attn_output", d->E, WK_NONE);
    x = wk_add(b, x, wk_rms_norm(b, a, "post_attention_norm", d->eps));
    x = wk_scale(b, wk_add(b, x, low), sqrtf(0.5f));
    wk_value f = net(b, wk_rms_norm(b, x, "ffn_norm", d->eps), m, l);
    return wk_add(b, x, wk_rms_norm(b, f, "post_ffw_norm", d->eps));
}

/* What the layer's own embedding adds to all parts but the first; own: of all layers [L * P]. */
static wk_value layer_input(const struct wk_builder *b, wk_value first, wk_value own, const struct gemma3n *m,
                            uint32_t l)
{
    wk_value x = wk_mul(b, first, wk_vector(b, "altup_correct_scale.weight", 1, m->d.E));
    x = wk_linear(b, x, "inp_gate", m->P, WK_NONE);
    x = wk_glu(b, WK_GLU_GELU_TANH, x, wk_slice(b, own, l * m->P, m->P));
    return wk_rms_norm(b, wk_linear(b, x, "proj", m->d.E, WK_NONE), "post_norm", m->d.eps);
}

/* The mean of the parts, of which all but the first, x, are turned back -> [E]. */
static wk_value merged(const struct wk_builder *b, wk_value rows, wk_value x, wk_value later, const struct gemma3n *m)
{
    const uint32_t E = m->d.E, more = PARTS - 1;
    wk_value added = repeated(b, later, more);
    wk_value rest = wk_add(b, wk_slice(b, rows, E, more * E), added);
    rest = as_long_as(b, wk_linear_heads(b, rest, "altup_unembd_proj", more, E), x);
    for (uint32_t i = 0; i < more; i++) x = wk_add(b, x, wk_slice(b, rest, i * E, E));
    return wk_scale(b, x, 1.0f / PARTS);
}

static void gemma3n_record(const struct wk_builder *b, const void *model)
{
    const struct gemma3n *m = model;
    const struct wk_decoder *d = &m->d;
    const uint32_t E = d->E, all = d->L * m->P, more = PARTS - 1;
    double far[WK_DECODER_MAX_HEAD / 2], near[WK_DECODER_MAX_HEAD / 2];
    wk_rope_frequencies(far, d->pairs, d->rope_base);
    wk_rope_frequencies(near, d->pairs, m->window_base);
    const struct wk_rope_freqs rope[2] = { wk_rope_freqs_of(far, d->pairs, WK_ROPE_HALF, 1),
                                           wk_rope_freqs_of(near, d->pairs, WK_ROPE_HALF, 1) };

    wk_value x = wk_scale(b, wk_embed(b, "token_embd", d->V, E), sqrtf((float)E));
    wk_value own = wk_scale(b, wk_embed(b, "per_layer_token_embd", d->V, all), sqrtf((float)m->P));
    wk_value seen = wk_scale(b, wk_linear(b, x, "per_layer_model_proj", all, WK_NONE), 1 / sqrtf((float)E));
    seen = wk_head_norm(b, seen, "per_layer_proj_norm", m->P, d->eps);
    own = wk_scale(b, wk_add(b, seen, own), sqrtf(0.5f)); /* of every layer [L * P] */
    wk_value rows = wk_linear_heads(b, repeated(b, x, more), "altup_proj", more, E);
    rows = wk_concat(b, x, as_long_as(b, rows, x)); /* [PARTS * E] */

    wk_value kept[2] = { { 0 }, { 0 } }, later = wk_none();
    for (uint32_t l = 0; l < d->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name>          */
        rows = predicted(b, rows, x, later, m);
        x = activated(b, wk_slice(b, rows, 0, E), m, l, kept, &rope[m->sliding[l]]);
        rows = corrected(b, rows, x, m);
        x = wk_slice(b, rows, 0, E);
        later = layer_input(b, x, own, m, l);
    }
    wk_end_layers(b);
    wk_value h = wk_rms_norm(b, merged(b, rows, x, later, m), "output_norm", d->eps);
    wk_logits(b, wk_softcap(b, wk_linear(b, h, d->head, d->V, WK_NONE), m->logit_cap));
}

static const struct wk_arch gemma3n = { .struct_size = sizeof gemma3n,
                                        WK_ARCH_NAMES(names),
                                        WK_ARCH_KEYS(keys),
                                        WK_ARCH_IGNORED_KEYS(ignored_keys),
                                        .open = gemma3n_open,
                                        .record = gemma3n_record,
                                        .close = wk_model_close };

WORKER_PLUGIN(WK_KIND_ARCH, "org.worker.gemma3n", "arch:gemma3n", .name = "gemma3n", .version = "1.0.0",
              .arch = &gemma3n);
