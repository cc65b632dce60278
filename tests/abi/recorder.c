/* recorder.c: an architecture plugin that uses everything that arch.h has: every operation, kind of key, and service of
 * the host. Written in what C11 to C++20 share; built from frozen, today's and grown headers, it must record the same.
 *
 * What the file's key "longer" names (an operation's kind, or one of the two below) it hands to the host with 16 bytes
 * more, which are zero unless "set" is 1. SET_* (of grown headers): sets the last word of that struct. No call has two
 * arguments that record: compilers choose which comes first. */
#include <stdlib.h>

#include <worker/plugin.h>
#include <worker/rope.h>

enum { LONGER_FREQS = 100, LONGER_DEF = 101 };
enum { WIDTH, EPS, SCALE, NAMED, FLAG, LAYERED, SECTIONS, LONGER, SET };
enum { V = 48, E = 32, C = 64, HEADS = 4, KV_HEADS = 2, D = 8, EXPERTS = 8, F = 16 };

#ifdef SET_KEY
#define KEY_TAIL \
    , { 0, 1 }
#else
#define KEY_TAIL
#endif
static const struct wk_key keys[] = {
    { "embedding_length", WK_KEY_U32, WK_KEY_REQUIRED, E, E, 0 KEY_TAIL },
    { "epsilon", WK_KEY_F32, WK_KEY_REQUIRED, 1e-9, 1, 0 KEY_TAIL },
    { "scale", WK_KEY_F32, 0, 0, 10, 0.5 KEY_TAIL },
    { "general.recorder", WK_KEY_TEXT, WK_KEY_ABSOLUTE, 0, 0, 0 KEY_TAIL },
    { "flag", WK_KEY_BOOL, 0, 0, 1, 0 KEY_TAIL },
    { "window", WK_KEY_U32, WK_KEY_PER_LAYER | WK_KEY_VARIES, 0, 1024, 0 KEY_TAIL },
    { "sections", WK_KEY_U32, WK_KEY_ARRAY, 0, 1024, 0 KEY_TAIL },
    { "longer", WK_KEY_U32, 0, 0, 1000, 0 KEY_TAIL },
    { "set", WK_KEY_U32, 0, 0, 1, 0 KEY_TAIL },
};

struct model {
    float eps, scale;
    uint32_t window[3], sections, longer, set, vocabulary;
};

static wk_status recorder_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    struct model *m = (struct model *)calloc(1, sizeof *m);
    uint32_t n, depth;
    if (!m) return wk_fail(err, WK_NO_MEMORY, "out of memory");
    m->eps = (float)wk_meta_number(meta, EPS);
    m->scale = (float)wk_meta_number(meta, SCALE) * (wk_meta_has(meta, FLAG) && wk_meta_u32(meta, FLAG) ? 2.0f : 1.0f);
    const double *windows = wk_meta_numbers(meta, LAYERED, &n);
    for (uint32_t i = 0; i < 3; i++) m->window[i] = n == 3 ? (uint32_t)windows[i] : 0;
    const double *sections = wk_meta_numbers(meta, SECTIONS, &n);
    for (uint32_t i = 0; i < n; i++) m->sections = m->sections * 31 + (uint32_t)sections[i];
    m->longer = wk_meta_u32(meta, LONGER);
    m->set = wk_meta_u32(meta, SET);
    const int known =
        strcmp(meta->architecture, "recorder") == 0 && strcmp(wk_meta_text(meta, NAMED), "all of it") == 0;
    if (!known || !meta->tensor(meta->self, "token_embd.weight", &m->vocabulary, &n, &depth) || n != E || depth != 1) {
        free(m);
        return wk_fail(err, WK_INVALID, "the file is not the test's");
    }
    if (meta->host->option(meta->host->self, "nobody"))
        meta->host->log(meta->host->self, WK_LOG_WARN, "an option that nobody gave");
    *model = m;
    return WK_OK;
}

/* ---- 16 bytes more ---------------------------------------------------------------------------------------- */

struct between { /* the host and the inlines */
    const struct wk_builder *host;
    uint32_t longer, set;
};

static uint32_t pass_op(void *self, const struct wk_op *op)
{
    const struct between *t = (const struct between *)self;
    uint64_t copy[64];
    if (op->kind != t->longer || op->size + 16u > sizeof copy) return t->host->op(t->host->self, op);
    memset(copy, 0, sizeof copy);
    memcpy(copy, op, op->size);
    const uint32_t size = op->size + 16u;
    memcpy(copy, &size, sizeof size); /* an operation's first field */
    copy[op->size / 8u + 1u] = t->set;
    return t->host->op(t->host->self, (const struct wk_op *)(const void *)copy);
}
static uint32_t pass_tensor(void *self, const char *name, const char *suffix, uint32_t rows, uint32_t cols,
                            uint32_t depth, uint32_t need)
{
    const struct between *t = (const struct between *)self;
    return t->host->tensor(t->host->self, name, suffix, rows, cols, depth, need);
}
static uint32_t pass_width(void *self, uint32_t value)
{
    const struct between *t = (const struct between *)self;
    return t->host->width(t->host->self, value);
}
static uint32_t pass_read(void *self, const char *name, float *dst, uint32_t n)
{
    const struct between *t = (const struct between *)self;
    return t->host->read(t->host->self, name, dst, n);
}
static uint32_t pass_supports(void *self, const struct wk_op *op)
{
    const struct between *t = (const struct between *)self;
    return t->host->supports(t->host->self, op);
}
static void pass_scope(void *self, const char *prefix, uint32_t layer)
{
    const struct between *t = (const struct between *)self;
    t->host->scope(t->host->self, prefix, layer);
}
static void pass_name(void *self, uint32_t value, const char *name)
{
    const struct between *t = (const struct between *)self;
    t->host->name(t->host->self, value, name);
}
static void pass_fail(void *self, const char *text)
{
    const struct between *t = (const struct between *)self;
    t->host->fail(t->host->self, text);
}

/* ---- the recording ---------------------------------------------------------------------------------------- */

static uint32_t twist_width(const uint32_t *in_width, uint32_t n_in) { return n_in == 1 ? in_width[0] : 0; }
static void twist(const struct wk_custom_call *call)
{
    const float *add = (const float *)call->params;
    for (uint32_t r = 0; r < call->n_rows; r++)
        for (uint32_t i = 0; i < call->out_width; i++)
            call->out[(size_t)r * call->out_width + i] =
                call->in[0][(size_t)r * call->in_width[0] + i] * call->tensor[0][i] + add[0] + (float)call->position[r];
}

struct longer_def {
    struct wk_custom_def def;
    uint64_t tail[2];
};
static wk_value twisted(const struct wk_builder *b, const struct model *m, wk_value x)
{
    static struct longer_def d; /* lives as long as the tape */
    const float params[2] = { m->scale, 0 };
    struct wk_custom_tensor gain;
    gain.name = "twist.gain";
    gain.rows = 1;
    gain.cols = E;
    memset(&d, 0, sizeof d);
    d.def.struct_size = m->longer == LONGER_DEF ? sizeof d : sizeof d.def;
    d.def.split = WK_SPLIT_COLUMNS;
    d.def.name = "twist";
    d.def.width = twist_width;
    d.def.cpu = twist;
    d.tail[1] = m->set;
    return wk_custom(b, &d.def, &x, 1, &gain, 1, params, sizeof params);
}

struct longer_freqs {
    struct wk_rope_freqs f;
    uint64_t tail[2];
};
static wk_value turned(const struct wk_builder *b, const struct model *m, wk_value x)
{
    double freq[D / 2];
    struct longer_freqs f;
    memset(&f, 0, sizeof f);
    wk_rope_frequencies(freq, D / 2, 10000.0);
    f.f = wk_rope_freqs_of(freq, D / 2, WK_ROPE_HALF, 1.0);
    if (m->longer == LONGER_FREQS) f.f.struct_size = sizeof f;
    f.tail[1] = m->set;
    return wk_rope(b, x, D, &f.f);
}

static wk_value attended(const struct wk_builder *b, const struct model *m, wk_value x)
{
    static const float slopes[HEADS] = { 0.5f, 0.25f, 0.125f, 0.0625f };
    struct wk_op_attention a;
    struct wk_rows second;
    memset(&a, 0, sizeof a);
    a.heads = HEADS;
    a.kv_heads = KV_HEADS;
    a.scale = 0.35f;
    a.softcap = 30.0f;
    a.window = m->window[0];
    a.slopes = slopes;
    const wk_value h = wk_layer_norm(b, x, "attn_norm", m->eps);
    const wk_value q =
        turned(b, m, wk_head_norm(b, wk_linear(b, h, "attn_q", HEADS * D, WK_NONE), "attn_q_norm", D, m->eps));
    const wk_value k = turned(b, m, wk_linear(b, h, "attn_k", KV_HEADS * D, WK_OPTIONAL));
    const wk_value v = wk_linear(b, h, "attn_v", KV_HEADS * D, WK_NONE), y = wk_attention(b, q, k, v, "attn_sinks", &a);
    second.name = "attn_output";
    second.total = 2 * E;
    second.first = second.n = E;
    second.reserved = 0;
    x = wk_add(b, x, wk_linear_rows(b, y, second, WK_REQUIRED));
    const wk_value again = wk_attention_reuse(b, wk_linear(b, x, "attn_q2", HEADS * D, WK_NONE), y, NULL, &a);
    return wk_add(b, x, wk_linear_heads(b, again, "attn_heads", HEADS, D));
}

static wk_value with_state(const struct wk_builder *b, const struct model *m, wk_value x)
{
    const wk_value h = wk_conv(b, wk_rms_norm(b, x, "ssm_norm", m->eps), "ssm_conv1d", 4, WK_OPTIONAL);
    const wk_value q = wk_linear(b, h, "ssm_q", KV_HEADS * D, WK_NONE),
                   k = wk_linear(b, h, "ssm_k", KV_HEADS * D, WK_NONE);
    const wk_value v = wk_linear(b, h, "ssm_v", HEADS * D, WK_NONE);
    const wk_value decay =
        wk_scale(b, wk_unary(b, wk_linear(b, h, "ssm_dt", HEADS, WK_NONE), WK_UNARY_SOFTPLUS, 0), -1);
    const wk_value beta = wk_unary(b, wk_linear(b, h, "ssm_beta", HEADS, WK_NONE), WK_UNARY_SIGMOID, 0);
    const wk_value s = wk_scan(b, q, k, v, decay, HEADS, KV_HEADS);
    const wk_value d = wk_delta(b, q, k, v, decay, beta, HEADS, KV_HEADS);
    x = wk_add(b, x, wk_mul(b, s, wk_vector(b, "ssm_d", 1, E)));
    return wk_add(b, x, wk_softcap(b, d, 20.0f));
}

static wk_value routed(const struct wk_builder *b, const struct model *m, wk_value x)
{
    struct wk_op_route o;
    const wk_value h = wk_rms_norm(b, x, "ffn_norm", m->eps);
    memset(&o, 0, sizeof o);
    o.k = 2;
    o.score = WK_SCORE_SIGMOID;
    o.flags = WK_ROUTE_NORMALIZE;
    o.scale = 2.5f;
    o.groups = 4;
    o.groups_used = 2;
    o.group_score = WK_GROUP_TOP2;
    const wk_value r = wk_route_op(b, wk_linear(b, h, "ffn_gate_inp", EXPERTS, WK_NONE), "exp_probs_b.bias", &o);
    const wk_value g = wk_expert(b, h, r, "ffn_gate_exps", EXPERTS, F, WK_NONE),
                   u = wk_expert(b, h, r, "ffn_up_exps", EXPERTS, F, WK_REQUIRED);
    const wk_value y =
        wk_expert(b, wk_glu_op(b, WK_GLU_SILU_CLAMPED, g, u, 1.702f, 7.0f), r, "ffn_down_exps", EXPERTS, E, WK_NONE);
    return wk_add(b, x, wk_combine(b, y, r));
}

static wk_value mixed(const struct wk_builder *b, const struct model *m, wk_value x)
{
    const wk_value one = wk_slice_groups(b, x, 2, 0, D), two = wk_slice(b, x, 0, D);
    x = wk_add(b, x, wk_concat_groups(b, one, two, 2, 2));
    const wk_value high = wk_slice(b, x, E / 2, E / 2), low = wk_slice(b, x, 0, E / 2);
    x = wk_add(b, x, wk_concat(b, high, low));
    x = wk_add(b, x, wk_scale(b, x, (float)(1 + m->sections % 7)));
    return wk_name(b, twisted(b, m, x), "twisted");
}

static void recorder_record(const struct wk_builder *host, const void *model)
{
    const struct model *m = (const struct model *)model;
    struct between t;
    struct wk_builder between = *host;
    const struct wk_builder *b = &between;
    float table[3] = { 0, 0, 0 };
    t.host = host;
    t.longer = m->longer;
    t.set = m->set;
    between.self = &t;
    between.op = pass_op;
    between.tensor = pass_tensor;
    between.width = pass_width;
    between.read = pass_read;
    between.supports = pass_supports;
    between.scope = pass_scope;
    between.name = pass_name;
    between.fail = pass_fail;
    if (wk_context(b) != C) wk_refuse(b, "another context than the test's");
    if (!wk_read(b, "table.weight", table, 3)) wk_refuse(b, "no table");
    wk_value x = wk_embed(b, "token_embd", m->vocabulary, E);
    x = wk_add(b, x, wk_embed_pos(b, "position_embd", C, E, 0));
    x = wk_add(b, x, wk_embed_row(b, "type_embd", 3, E, 1));
    x = wk_scale(b, x, m->scale + table[2]);
    wk_layer(b, 0);
    x = attended(b, m, x);
    wk_layer(b, 1);
    x = with_state(b, m, x);
    wk_layer(b, 2);
    x = mixed(b, m, routed(b, m, x));
    wk_end_layers(b);
    wk_embedding(b, wk_pool(b, x, WK_POOL_MEAN), WK_OUTPUT_L2_NORM);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", m->eps), "output", m->vocabulary, WK_NONE));
}

static void recorder_close(void *model) { free(model); }

/* ---- what is exported ------------------------------------------------------------------------------------- */

#ifdef SET_ALIAS
#define ALIAS_TAIL \
    , { 0, 1 }
#else
#define ALIAS_TAIL
#endif
static const char *const names[] = { "recorder" };
static const struct wk_alias aliases[] = { { "k_in_the_file", "attn_k" ALIAS_TAIL } };
static const char *const ignored[] = { "unused.*" };
static const char *const ignored_keys[] = { "remark" };
static const struct wk_arch arch = {
    .struct_size = sizeof(struct wk_arch),
    WK_ARCH_NAMES(names),
    WK_ARCH_KEYS(keys),
    WK_ARCH_ALIASES(aliases),
    WK_ARCH_IGNORED(ignored),
    WK_ARCH_IGNORED_KEYS(ignored_keys),
    .open = recorder_open,
    .record = recorder_record,
    .close = recorder_close,
#ifdef SET_ARCH
    .grown_ = { 0, 1 },
#endif
};

static int asked; /* what the host gave reaches as far as 1.0 has it */
static wk_status recorder_init(const struct wk_host *host, const struct wk_err *err)
{
    if (!WK_HAS(host, struct wk_host, extension) || host->extension(host->self, "org.example.nothing/1"))
        return wk_fail(err, WK_INTERNAL, "not the host that 1.0 says");
    asked = 1;
    return WK_OK;
}
static const void *recorder_extension(const char *id) { return asked && strcmp(id, "recorder/1") == 0 ? &asked : NULL; }

#ifdef SET_PLUGIN
#define PLUGIN_TAIL , .grown_ = { 0, 1 }
#else
#define PLUGIN_TAIL
#endif
WORKER_PLUGIN(WK_KIND_ARCH, "org.example.recorder", "arch:recorder", .name = "recorder", .version = "1.0",
              .init = recorder_init, .arch = &arch, .quant = NULL, .extension = recorder_extension PLUGIN_TAIL);
