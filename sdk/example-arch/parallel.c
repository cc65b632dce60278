/* parallel.c: a complete architecture plugin, for a transformer whose attention and feed-forward run side by side on
 * one norm (as in GPT-J, Wang and Komatsuzaki 2021):  x = x + attention(h) + feed_forward(h),  h = norm(x). arch.md
 * lists the operations. */
#include <math.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>

/* ---- which keys of the file it reads: the host checks presence, type and range before open() runs ------ */

enum { CONTEXT, LAYERS, WIDTH, HIDDEN, HEADS, ROPE_BASE, EPS, N_KEYS };
enum { MAX_HEAD = 512 };

static const struct wk_key keys[N_KEYS] = {
    [CONTEXT] = { "context_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 20, 0 },
    [LAYERS] = { "block_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 256, 0 },
    [WIDTH] = { "embedding_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 16, 0 },
    [HIDDEN] = { "feed_forward_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 18, 0 },
    [HEADS] = { "attention.head_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 512, 0 },
    [ROPE_BASE] = { "rope.freq_base", WK_KEY_F32, 0, 2, 1e9, 10000 },
    [EPS] = { "attention.layer_norm_epsilon", WK_KEY_F32, 0, 1e-12, 0.1, 1e-5 },
};

struct model {
    uint32_t L, E, F, H, D, V; /* layers, width, hidden width, heads, values a head, vocabulary */
    float eps;
    double rope_base;
};

/* ---- open: relations between keys, which ranges cannot say --------------------------------------------- */

static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct model *m = (struct model *)model;
    m->L = wk_meta_u32(meta, LAYERS);
    m->E = wk_meta_u32(meta, WIDTH);
    m->F = wk_meta_u32(meta, HIDDEN);
    m->H = wk_meta_u32(meta, HEADS);
    m->D = m->E / m->H;
    m->eps = (float)wk_meta_number(meta, EPS);
    m->rope_base = wk_meta_number(meta, ROPE_BASE);
    if (m->E % m->H || m->D % 2 || m->D > MAX_HEAD)
        return wk_fail(err, WK_INVALID,
                       "embedding_length is %u: %u heads of an even number of values, at most %d, expected", m->E, m->H,
                       MAX_HEAD);
    return wk_vocabulary_open(meta, &m->V, NULL, err);
}

static wk_status parallel_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct model), fill, meta, model, err);
}

/* ---- record: the forward pass, once, as in the paper. Nothing is computed here, nothing needs to be checked ---- */

static void parallel_record(const struct wk_builder *b, const void *model)
{
    const struct model *m = (const struct model *)model;
    const struct wk_op_attention attn = { .heads = m->H, .kv_heads = m->H, .scale = 1.0f / sqrtf((float)m->D) };
    double freq[MAX_HEAD / 2];
    wk_rope_frequencies(freq, m->D / 2, m->rope_base);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, m->D / 2, WK_ROPE_INTERLEAVED, 1.0);

    wk_value x = wk_embed(b, "token_embd", m->V, m->E); /* [E] */
    for (uint32_t l = 0; l < m->L; l++) {
        wk_layer(b, l); /* names now mean blk.<l>.<name> */
        wk_value h = wk_layer_norm(b, x, "attn_norm", m->eps);
        wk_value q = wk_rope(b, wk_linear(b, h, "attn_q", m->E, WK_NONE), m->D, &rope); /* [H * D] */
        wk_value k = wk_rope(b, wk_linear(b, h, "attn_k", m->E, WK_NONE), m->D, &rope);
        wk_value v = wk_linear(b, h, "attn_v", m->E, WK_NONE);
        wk_value a = wk_linear(b, wk_attention(b, q, k, v, NULL, &attn), "attn_output", m->E, WK_NONE);
        wk_value f =
            wk_linear(b, wk_gelu_tanh(b, wk_linear(b, h, "ffn_up", m->F, WK_REQUIRED)), "ffn_down", m->E, WK_REQUIRED);
        x = wk_add(b, wk_add(b, x, a), f);
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_layer_norm(b, x, "output_norm", m->eps), "output", m->V, WK_OPTIONAL));
}

/* ---- what is exported ---------------------------------------------------------------------------------- */

static const char *const names[] = { "parallel" }; /* values of general.architecture */
static const struct wk_arch arch = {
    .struct_size = sizeof arch,
    WK_ARCH_NAMES(names),
    WK_ARCH_KEYS(keys),
    .open = parallel_open,
    .record = parallel_record,
    .close = wk_model_close,
};

WORKER_PLUGIN(WK_KIND_ARCH, "org.example.parallel", "arch:parallel", .name = "parallel transformer", .version = "1.0",
              .arch = &arch);
