/* myarch.c: an architecture: a decoder of the usual kind (norm, attention, norm, gated feed-forward). Change it to
 * yours. Its three parts are the table of keys, open() and record(); arch.md of the SDK is the reference beside it.
 *
 * tiny_model.c makes a small model of it and has the same forward pass once more in plain C: change both, and the tests
 * tell when they differ. */
#include <math.h>

#include <worker/open.h>
#include <worker/plugin.h>
#include <worker/rope.h>

/* ---- keys: numbers of the file that the forward pass depends on ------------------------------------------------
 * Each stands in the file as "myarch.<name>". The host finds it, checks its type and range and only then calls open().
 * Ranges are yours to choose; let no product of two of these overflow 32 bits. A key of the file that is not listed
 * refuses the file, since it may ask for something that record() does not compute: list it here, or in ignored_keys if
 * it changes nothing. */
enum { CONTEXT, LAYERS, WIDTH, HIDDEN, HEADS, KV_HEADS, ROPE_BASE, EPS, N_KEYS };
enum { MAX_HEAD = 512 };

static const struct wk_key keys[N_KEYS] = {
    /* name, type, flags, smallest, largest, default if it is absent */
    [CONTEXT] = { "context_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 20, 0 }, /* read by the host alone */
    [LAYERS] = { "block_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 256, 0 },
    [WIDTH] = { "embedding_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 16, 0 },
    [HIDDEN] = { "feed_forward_length", WK_KEY_U32, WK_KEY_REQUIRED, 1, 1 << 18, 0 },
    [HEADS] = { "attention.head_count", WK_KEY_U32, WK_KEY_REQUIRED, 1, 512, 0 },
    [KV_HEADS] = { "attention.head_count_kv", WK_KEY_U32, 0, 1, 512, 0 }, /* absent: as many as heads */
    [ROPE_BASE] = { "rope.freq_base", WK_KEY_F32, 0, 2, 1e9, 10000 },
    [EPS] = { "attention.layer_norm_rms_epsilon", WK_KEY_F32, 0, 1e-12, 0.1, 1e-5 },
};

/* What record() needs, in the letters of the papers: layers, width, hidden width, heads, heads of keys and values,
 * values a head, vocabulary. */
struct model {
    uint32_t L, E, F, H, KV, D, V;
    float eps;
    double rope_base;
    const char *output; /* the tensor that makes logits */
};

/* ---- open: what ranges cannot say ------------------------------------------------------------------------------
 * Checks how the keys fit together and fills the struct. A file is refused with a text: what was expected, what was
 * found. Shapes of the file's tensors can be asked for, too. */
static wk_status fill(const struct wk_meta *meta, void *model, const struct wk_err *err)
{
    struct model *m = (struct model *)model;
    m->L = wk_meta_u32(meta, LAYERS);
    m->E = wk_meta_u32(meta, WIDTH);
    m->F = wk_meta_u32(meta, HIDDEN);
    m->H = wk_meta_u32(meta, HEADS);
    m->KV = wk_meta_u32_or(meta, KV_HEADS, m->H);
    m->D = m->E / m->H;
    m->eps = (float)wk_meta_number(meta, EPS);
    m->rope_base = wk_meta_number(meta, ROPE_BASE);
    if (m->E % m->H || m->D % 2 || m->D > MAX_HEAD)
        return wk_fail(err, WK_INVALID, "embedding_length is %u: %u heads of an even number of values, at most %d",
                       m->E, m->H, MAX_HEAD);
    if (m->H % m->KV)
        return wk_fail(err, WK_INVALID, "%u heads share %u heads of keys and values: a divisor of %u expected", m->H,
                       m->KV, m->H);
    return wk_vocabulary_open(meta, &m->V, &m->output, err);
}

static wk_status open_model(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    return wk_model_open(sizeof(struct model), fill, meta, model, err);
}

/* ---- record: the forward pass, once, as in the paper -----------------------------------------------------------
 * Nothing is computed here. Every call appends an operation, for a row of one token; the host makes batches, memory,
 * threads and kernels of the list. A call that names a tensor declares it: its shape follows from the operation, and
 * the host checks the file's. Errors need no code: the host reports them all, by name. */
static void record(const struct wk_builder *b, const void *model)
{
    const struct model *m = (const struct model *)model;
    const struct wk_op_attention attn = { .heads = m->H, .kv_heads = m->KV, .scale = 1.0f / sqrtf((float)m->D) };
    double freq[MAX_HEAD / 2];
    wk_rope_frequencies(freq, m->D / 2, m->rope_base);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, m->D / 2, WK_ROPE_HALF, 1.0);

    wk_value x = wk_embed(b, "token_embd", m->V, m->E); /* [E] */
    for (uint32_t l = 0; l < m->L; l++) {
        wk_layer(b, l); /* "attn_q" now means blk.<l>.attn_q.weight */
        wk_value h = wk_rms_norm(b, x, "attn_norm", m->eps);
        wk_value q = wk_rope(b, wk_linear(b, h, "attn_q", m->H * m->D, WK_NONE), m->D, &rope);  /* [H * D] */
        wk_value k = wk_rope(b, wk_linear(b, h, "attn_k", m->KV * m->D, WK_NONE), m->D, &rope); /* [KV * D] */
        wk_value v = wk_linear(b, h, "attn_v", m->KV * m->D, WK_NONE);
        x = wk_add(b, x, wk_linear(b, wk_attention(b, q, k, v, NULL, &attn), "attn_output", m->E, WK_NONE));

        h = wk_rms_norm(b, x, "ffn_norm", m->eps);
        wk_value gate = wk_linear(b, h, "ffn_gate", m->F, WK_NONE); /* [F] */
        wk_value up = wk_linear(b, h, "ffn_up", m->F, WK_NONE);
        x = wk_add(b, x, wk_linear(b, wk_glu(b, WK_GLU_SILU, gate, up), "ffn_down", m->E, WK_NONE));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", m->eps), m->output, m->V, WK_NONE)); /* [V] */
}

/* ---- what is exported ------------------------------------------------------------------------------------------
 * Names of general.architecture that this plugin serves; the same ones stand in its claims. The id is the plugin's own
 * for ever: the name of a domain of yours, reversed. */
static const char *const names[] = { "myarch" };
static const char *const ignored_keys[] = { "vocab_size" }; /* the embedding's rows say it */

static const struct wk_arch arch = {
    .struct_size = sizeof arch,
    WK_ARCH_NAMES(names),
    WK_ARCH_KEYS(keys),
    WK_ARCH_IGNORED_KEYS(ignored_keys),
    .open = open_model,
    .record = record,
    .close = wk_model_close,
};

WORKER_PLUGIN(WK_KIND_ARCH, "org.example.myarch", "arch:myarch", .name = "myarch", .version = "0.1", .arch = &arch);
