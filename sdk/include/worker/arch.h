/* worker/arch.h: what an architecture plugin is: a table of metadata keys, and a function that records the forward
 * pass.
 *
 * record() runs once, when a model is opened, before any weight is read. It states the pass as operations on values and
 * named tensors, through the inlines below, and reads like the model's paper. A tensor is declared by being used:
 * recording is at once the validation of the file, the memory plan and the capability list. No code of an architecture
 * plugin runs after a model is open (WK_OP_CUSTOM's own functions apart).
 *
 * A value is one row of real numbers for every token of a step: slots x width (slots is 1 except between route and
 * combine). It has no type, no strides, no batch axis and is never modified. Errors are sticky: a failed call returns
 * the value 0, an operation on value 0 returns 0 in silence, and the host refuses the model afterwards with the first
 * 16 messages. So record() checks nothing and frees nothing.
 *
 * Growth as worker/abi.h has it: an operation says its size, and the minor version that brought what it uses. */
#ifndef WORKER_ARCH_H
#define WORKER_ARCH_H

#include <string.h>

#include <worker/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- values, tensors, operations ----------------------------------------------------------------------- */

typedef struct {
    uint32_t id; /* 0: has failed before */
} wk_value;

enum {
    WK_OP_EMBED = 1,
    WK_OP_LINEAR,
    WK_OP_NORM,
    WK_OP_ROPE,
    WK_OP_ATTENTION,
    WK_OP_UNARY,
    WK_OP_GLU,
    WK_OP_ADD,
    WK_OP_MUL,
    WK_OP_SLICE,
    WK_OP_ROUTE,
    WK_OP_EXPERT,
    WK_OP_COMBINE,
    WK_OP_POOL,
    WK_OP_OUTPUT,
    WK_OP_CUSTOM,
    WK_OP_END
};

enum { WK_NONE = 0, WK_REQUIRED = 1, WK_OPTIONAL = 2 }; /* a tensor: not used, required, used if the file has it */
enum { WK_EMBED_TOKEN = 0, WK_EMBED_POSITION = 1 };     /* embed: what picks the row */
enum { WK_NORM_RMS = 0, WK_NORM_LAYER = 1 };
enum { WK_ROPE_INTERLEAVED = 0, WK_ROPE_HALF = 1 }; /* rotate (x[2i], x[2i+1]) or (x[i], x[i+n]) */
enum {
    WK_UNARY_SCALE = 1,
    WK_UNARY_GELU_TANH,
    WK_UNARY_GELU_ERF,
    WK_UNARY_SILU,
    WK_UNARY_SIGMOID,
    WK_UNARY_TANH,
    WK_UNARY_RELU,
    WK_UNARY_SOFTCAP,
    WK_UNARY_END
};
enum { WK_GLU_SILU = 1, WK_GLU_GELU_TANH, WK_GLU_GELU_ERF, WK_GLU_SILU_CLAMPED, WK_GLU_END };
enum { WK_SOFTMAX_TOPK = 1, WK_SOFTMAX_ALL, WK_SOFTMAX_ALL_RENORM, WK_SCORE_END };
enum { WK_POOL_MEAN = 1, WK_POOL_LAST, WK_POOL_FIRST, WK_POOL_END };
enum { WK_OUTPUT_LOGITS = 1, WK_OUTPUT_EMBEDDING, WK_OUTPUT_END };
enum { WK_OUTPUT_L2_NORM = 1u << 0 };

/* Head of every operation; its own fields follow and grow at the end only. Made by the inlines; copied by the host. */
struct wk_op {
    uint32_t size;        /* bytes in all */
    uint16_t kind, since; /* WK_OP_*; ABI minor that brought what it uses, filled by the inlines */
    uint32_t in[8];       /* value ids; 0: none */
    uint32_t t[8];        /* tensor ids; 0: none */
};

struct wk_op_embed {
    struct wk_op o;
    uint32_t index, offset;
};
struct wk_op_linear {
    struct wk_op o;
    uint32_t first, n, n_expert, reserved;
}; /* also WK_OP_EXPERT */
struct wk_op_norm {
    struct wk_op o;
    uint32_t kind, group;
    float eps;
    uint32_t reserved;
};
struct wk_op_unary {
    struct wk_op o;
    uint32_t fn;
    float p;
};
struct wk_op_glu {
    struct wk_op o;
    uint32_t fn;
    float alpha, limit;
    uint32_t reserved;
};
struct wk_op_slice {
    struct wk_op o;
    uint32_t first, n;
};
struct wk_op_route {
    struct wk_op o;
    uint32_t k, score;
    float scale;
    uint32_t reserved;
};
struct wk_op_pool {
    struct wk_op o;
    uint32_t how, reserved;
};
struct wk_op_output {
    struct wk_op o;
    uint32_t what, flags;
};

/* Rotation frequencies: pair i of a head turns by position * freq[i] radians; results are scaled by mscale. */
struct wk_rope_freqs {
    uint32_t struct_size, style; /* style: WK_ROPE_* */
    uint32_t n, reserved;        /* n: pairs; values from 2n on pass unchanged */
    const double *freq;          /* [n], radians a position, plugin's; copied */
    double mscale;
};
struct wk_op_rope {
    struct wk_op o;
    uint32_t head, reserved;
    const struct wk_rope_freqs *freqs;
};

/* Attention over the sequence's cache. window: a key at distance d = p - j is seen iff 0 <= d (and d < window if
 * window). */
struct wk_op_attention {
    struct wk_op o;
    uint32_t heads, kv_heads;
    float scale, softcap; /* softcap 0: none */
    uint32_t window, flags;
};

/* Rows [first, first + n) of a tensor of `total` rows. */
struct wk_rows {
    const char *name; /* static or alive during record() */
    uint32_t total, first, n, reserved;
};

/* An operation that the tape does not have: computed by the plugin's own function, row by row, fused with nothing. */
struct wk_custom_call {
    uint32_t struct_size, n_rows;
    uint32_t n_in, out_width;
    const float *const *in;   /* [n_in] of [n_rows][in_width[i]], host's */
    const uint32_t *in_width; /* [n_in] */
    const uint32_t *position; /* [n_rows] */
    const void *params;       /* as given to wk_custom, host's copy */
    float *out;               /* [n_rows][out_width], host's */
};
struct wk_custom_def {
    uint32_t struct_size, reserved;
    const char *name;                                           /* for messages; static */
    uint32_t (*width)(const uint32_t *in_width, uint32_t n_in); /* [main thread]; 0 refuses these inputs */
    void (*cpu)(const struct wk_custom_call *call);             /* [any thread]; a row depends on its own row alone */
};
struct wk_op_custom {
    struct wk_op o;
    const struct wk_custom_def *def;
    const void *params;
    uint32_t params_bytes, reserved;
};

/* Bytes in ABI 1.0; of operations without fields of their own WK_OP_SIZE_1_0. */
#define WK_OP_SIZE_1_0 WK_SIZE_TO(struct wk_op, t)
#define WK_OP_EMBED_SIZE_1_0 WK_SIZE_TO(struct wk_op_embed, offset)
#define WK_OP_LINEAR_SIZE_1_0 WK_SIZE_TO(struct wk_op_linear, reserved)
#define WK_OP_NORM_SIZE_1_0 WK_SIZE_TO(struct wk_op_norm, reserved)
#define WK_OP_ROPE_SIZE_1_0 WK_SIZE_TO(struct wk_op_rope, freqs)
#define WK_OP_ATTENTION_SIZE_1_0 WK_SIZE_TO(struct wk_op_attention, flags)
#define WK_OP_UNARY_SIZE_1_0 WK_SIZE_TO(struct wk_op_unary, p)
#define WK_OP_GLU_SIZE_1_0 WK_SIZE_TO(struct wk_op_glu, reserved)
#define WK_OP_SLICE_SIZE_1_0 WK_SIZE_TO(struct wk_op_slice, n)
#define WK_OP_ROUTE_SIZE_1_0 WK_SIZE_TO(struct wk_op_route, reserved)
#define WK_OP_POOL_SIZE_1_0 WK_SIZE_TO(struct wk_op_pool, reserved)
#define WK_OP_OUTPUT_SIZE_1_0 WK_SIZE_TO(struct wk_op_output, flags)
#define WK_OP_CUSTOM_SIZE_1_0 WK_SIZE_TO(struct wk_op_custom, reserved)
#define WK_ROPE_FREQS_SIZE_1_0 WK_SIZE_TO(struct wk_rope_freqs, mscale)
#define WK_CUSTOM_DEF_SIZE_1_0 WK_SIZE_TO(struct wk_custom_def, cpu)
WK_STATIC_ASSERT(WK_OP_SIZE_1_0 == 72 && WK_OP_ATTENTION_SIZE_1_0 == 96 && WK_OP_ROPE_SIZE_1_0 == 88,
                 "layout of operations");

/* The host's side of record(): valid during record() alone, [main thread]. Plugins call the
 * inlines below, never these. */
struct wk_builder {
    uint32_t struct_size, abi_minor;
    uint32_t context, reserved; /* context: positions allocated a sequence */
    void *self;
    uint32_t (*op)(void *self, const struct wk_op *op); /* copies all; a value id, 0 on error */
    /* name relative to the scope + suffix; shape rows x cols x depth; need WK_REQUIRED or WK_OPTIONAL; tensor id, 0:
     * absent or wrong */
    uint32_t (*tensor)(void *self, const char *name, const char *suffix, uint32_t rows, uint32_t cols, uint32_t depth,
                       uint32_t need);
    uint32_t (*width)(void *self, uint32_t value);
    uint32_t (*read)(void *self, const char *name, float *dst,
                     uint32_t n); /* F32 tensor [n] into dst; 1: found, 0: absent */
    /* 1: this host knows the operation's kind and all that is set in it, inputs and tensors apart; says nothing. */
    uint32_t (*supports)(void *self, const struct wk_op *op);
    void (*scope)(void *self, const char *prefix, uint32_t layer); /* "blk.7.", 7; "" and UINT32_MAX outside layers */
    void (*name)(void *self, uint32_t value, const char *name);    /* a name for taps */
    void (*fail)(void *self, const char *text);                    /* refuse the model, saying why */
};

/* ---- inlines: one per operation ------------------------------------------------------------------------ */

static inline struct wk_op wk_op_head(uint32_t size, uint16_t kind)
{
    struct wk_op o;
    memset(&o, 0, sizeof o);
    o.size = size;
    o.kind = kind;
    return o;
}
static inline wk_value wk_append(const struct wk_builder *b, const struct wk_op *o)
{
    wk_value v;
    v.id = b->op(b->self, o);
    return v;
}
static inline uint32_t wk_width(const struct wk_builder *b, wk_value x) { return b->width(b->self, x.id); }
/* Would this host take such an operation? For a plugin that can do without it. */
static inline int wk_supports(const struct wk_builder *b, const struct wk_op *o)
{
    return b->supports(b->self, o) != 0;
}
/* Positions allocated a sequence. */
static inline uint32_t wk_context(const struct wk_builder *b) { return b->context; }
/* F32 tensor [n] of that full name, into dst [n]. 1: found; 0: absent, or refused. */
static inline int wk_read(const struct wk_builder *b, const char *name, float *dst, uint32_t n)
{
    return b->read(b->self, name, dst, n) != 0;
}

/* Names now mean blk.<layer>.<name>. */
static inline void wk_layer(const struct wk_builder *b, uint32_t layer)
{
    char prefix[32];
    (void)snprintf(prefix, sizeof prefix, "blk.%u.", (unsigned)layer);
    b->scope(b->self, prefix, layer);
}
static inline void wk_end_layers(const struct wk_builder *b) { b->scope(b->self, "", UINT32_MAX); }
static inline wk_value wk_name(const struct wk_builder *b, wk_value x, const char *name)
{
    b->name(b->self, x.id, name);
    return x;
}
static inline void wk_refuse(const struct wk_builder *b, const char *text) { b->fail(b->self, text); }

/* Row W[token] -> [width]. */
static inline wk_value wk_embed(const struct wk_builder *b, const char *name, uint32_t rows, uint32_t width)
{
    struct wk_op_embed e;
    e.o = wk_op_head(sizeof e, WK_OP_EMBED);
    e.index = WK_EMBED_TOKEN;
    e.offset = 0;
    e.o.t[0] = b->tensor(b->self, name, ".weight", rows, width, 1, WK_REQUIRED);
    return wk_append(b, &e.o);
}
/* Row W[position + offset] -> [width]; a context that reaches past the table is refused at open. */
static inline wk_value wk_embed_pos(const struct wk_builder *b, const char *name, uint32_t rows, uint32_t width,
                                    uint32_t offset)
{
    struct wk_op_embed e;
    e.o = wk_op_head(sizeof e, WK_OP_EMBED);
    e.index = WK_EMBED_POSITION;
    e.offset = offset;
    e.o.t[0] = b->tensor(b->self, name, ".weight", rows, width, 1, WK_REQUIRED);
    return wk_append(b, &e.o);
}
/* y_j = sum_k W[first + j][k] x_k + bias[first + j] -> [n]. bias: WK_NONE, WK_REQUIRED or WK_OPTIONAL. */
static inline wk_value wk_linear_rows(const struct wk_builder *b, wk_value x, struct wk_rows w, uint32_t bias)
{
    struct wk_op_linear l;
    l.o = wk_op_head(sizeof l, WK_OP_LINEAR);
    l.o.in[0] = x.id;
    l.first = w.first;
    l.n = w.n;
    l.n_expert = l.reserved = 0;
    if (x.id) {
        l.o.t[0] = b->tensor(b->self, w.name, ".weight", w.total, wk_width(b, x), 1, WK_REQUIRED);
        if (bias) l.o.t[1] = b->tensor(b->self, w.name, ".bias", 1, w.total, 1, bias);
    }
    return wk_append(b, &l.o);
}
static inline wk_value wk_linear(const struct wk_builder *b, wk_value x, const char *name, uint32_t n, uint32_t bias)
{
    struct wk_rows w;
    w.name = name;
    w.total = w.n = n;
    w.first = w.reserved = 0;
    return wk_linear_rows(b, x, w, bias);
}
/* RMS: x / sqrt(mean(x^2) + eps) * w. LAYER: (x - mean) / sqrt(variance + eps) * w + b. group: over each run of `group`
 * values with one w[group]; 0: over the row. name NULL: no weight. */
static inline wk_value wk_norm(const struct wk_builder *b, wk_value x, const char *name, uint32_t kind, uint32_t group,
                               float eps, uint32_t bias)
{
    struct wk_op_norm n;
    n.o = wk_op_head(sizeof n, WK_OP_NORM);
    n.o.in[0] = x.id;
    n.kind = kind;
    n.group = group;
    n.eps = eps;
    n.reserved = 0;
    if (name && x.id) {
        uint32_t width = group ? group : wk_width(b, x);
        n.o.t[0] = b->tensor(b->self, name, ".weight", 1, width, 1, WK_REQUIRED);
        if (bias) n.o.t[1] = b->tensor(b->self, name, ".bias", 1, width, 1, bias);
    }
    return wk_append(b, &n.o);
}
static inline wk_value wk_rms_norm(const struct wk_builder *b, wk_value x, const char *name, float eps)
{
    return wk_norm(b, x, name, WK_NORM_RMS, 0, eps, WK_NONE);
}
static inline wk_value wk_head_norm(const struct wk_builder *b, wk_value x, const char *name, uint32_t head, float eps)
{
    return wk_norm(b, x, name, WK_NORM_RMS, head, eps, WK_NONE);
}
static inline wk_value wk_layer_norm(const struct wk_builder *b, wk_value x, const char *name, float eps)
{
    return wk_norm(b, x, name, WK_NORM_LAYER, 0, eps, WK_REQUIRED);
}
/* Rotary embedding of every head of `head` values; see wk_rope_freqs and worker/rope.h. */
static inline wk_value wk_rope(const struct wk_builder *b, wk_value x, uint32_t head, const struct wk_rope_freqs *freqs)
{
    struct wk_op_rope r;
    r.o = wk_op_head(sizeof r, WK_OP_ROPE);
    r.o.in[0] = x.id;
    r.head = head;
    r.reserved = 0;
    r.freqs = freqs;
    return wk_append(b, &r.o);
}
/* Stores k and v at the position, then softmax(scale q k + mask) v. q [heads * Dk], k [kv_heads * Dk], v [kv_heads *
 * Dv] -> [heads * Dv]. sinks: name of a tensor [heads] with one extra logit a head, or NULL. */
static inline wk_value wk_attention(const struct wk_builder *b, wk_value q, wk_value k, wk_value v, const char *sinks,
                                    const struct wk_op_attention *attn)
{
    struct wk_op_attention a = *attn;
    a.o = wk_op_head(sizeof a, WK_OP_ATTENTION);
    a.o.in[0] = q.id;
    a.o.in[1] = k.id;
    a.o.in[2] = v.id;
    if (sinks) a.o.t[0] = b->tensor(b->self, sinks, ".weight", 1, attn->heads, 1, WK_REQUIRED);
    return wk_append(b, &a.o);
}
static inline wk_value wk_unary(const struct wk_builder *b, wk_value x, uint32_t fn, float p)
{
    struct wk_op_unary m;
    m.o = wk_op_head(sizeof m, WK_OP_UNARY);
    m.o.in[0] = x.id;
    m.fn = fn;
    m.p = p;
    return wk_append(b, &m.o);
}
static inline wk_value wk_scale(const struct wk_builder *b, wk_value x, float p)
{
    return wk_unary(b, x, WK_UNARY_SCALE, p);
}
static inline wk_value wk_softcap(const struct wk_builder *b, wk_value x, float cap)
{
    return wk_unary(b, x, WK_UNARY_SOFTCAP, cap);
}
static inline wk_value wk_gelu_tanh(const struct wk_builder *b, wk_value x)
{
    return wk_unary(b, x, WK_UNARY_GELU_TANH, 0.0f);
}

/* act(g) * u; CLAMP: g = min(g, limit), u = clamp(u, -limit, limit), g * sigmoid(alpha g) * (u + 1). */
static inline wk_value wk_glu_op(const struct wk_builder *b, uint32_t fn, wk_value g, wk_value u, float alpha,
                                 float limit)
{
    struct wk_op_glu o;
    o.o = wk_op_head(sizeof o, WK_OP_GLU);
    o.o.in[0] = g.id;
    o.o.in[1] = u.id;
    o.fn = fn;
    o.alpha = alpha;
    o.limit = limit;
    o.reserved = 0;
    return wk_append(b, &o.o);
}
static inline wk_value wk_glu(const struct wk_builder *b, uint32_t fn, wk_value g, wk_value u)
{
    return wk_glu_op(b, fn, g, u, 0.0f, 0.0f);
}

static inline wk_value wk_binary(const struct wk_builder *b, uint16_t kind, wk_value x, wk_value y)
{
    struct wk_op o = wk_op_head(sizeof o, kind);
    o.in[0] = x.id;
    o.in[1] = y.id;
    return wk_append(b, &o);
}
static inline wk_value wk_add(const struct wk_builder *b, wk_value x, wk_value y)
{
    return wk_binary(b, WK_OP_ADD, x, y);
}
/* y may have width 1 or slots 1: it is then repeated. */
static inline wk_value wk_mul(const struct wk_builder *b, wk_value x, wk_value y)
{
    return wk_binary(b, WK_OP_MUL, x, y);
}
/* Columns [first, first + n). */
static inline wk_value wk_slice(const struct wk_builder *b, wk_value x, uint32_t first, uint32_t n)
{
    struct wk_op_slice c;
    c.o = wk_op_head(sizeof c, WK_OP_SLICE);
    c.o.in[0] = x.id;
    c.first = first;
    c.n = n;
    return wk_append(b, &c.o);
}
/* The k largest of r [experts], largest first, ties to the lowest index -> k slots of [1]: their weights; the ids
 * travel along. */
static inline wk_value wk_route(const struct wk_builder *b, wk_value r, uint32_t k, uint32_t score, float scale)
{
    struct wk_op_route o;
    o.o = wk_op_head(sizeof o, WK_OP_ROUTE);
    o.o.in[0] = r.id;
    o.k = k;
    o.score = score;
    o.scale = scale;
    o.reserved = 0;
    return wk_append(b, &o.o);
}
/* y[s] = W[e_s] x[s] + b[e_s] for the slots of `route`; x has 1 or k slots; W [n_expert][n][width of x]. */
static inline wk_value wk_expert(const struct wk_builder *b, wk_value x, wk_value route, const char *name,
                                 uint32_t n_expert, uint32_t n, uint32_t bias)
{
    struct wk_op_linear l;
    l.o = wk_op_head(sizeof l, WK_OP_EXPERT);
    l.o.in[0] = x.id;
    l.o.in[1] = route.id;
    l.first = l.reserved = 0;
    l.n = n;
    l.n_expert = n_expert;
    if (x.id) {
        l.o.t[0] = b->tensor(b->self, name, ".weight", n, wk_width(b, x), n_expert, WK_REQUIRED);
        if (bias) l.o.t[1] = b->tensor(b->self, name, ".bias", n_expert, n, 1, bias);
    }
    return wk_append(b, &l.o);
}
/* sum over slots, in order, of weight_s * y[s] -> one slot. */
static inline wk_value wk_combine(const struct wk_builder *b, wk_value y, wk_value route)
{
    return wk_binary(b, WK_OP_COMBINE, y, route);
}

/* One row a sequence, over the prompt's rows in position order. */
static inline wk_value wk_pool(const struct wk_builder *b, wk_value x, uint32_t how)
{
    struct wk_op_pool p;
    p.o = wk_op_head(sizeof p, WK_OP_POOL);
    p.o.in[0] = x.id;
    p.how = how;
    p.reserved = 0;
    return wk_append(b, &p.o);
}
static inline void wk_output(const struct wk_builder *b, wk_value x, uint32_t what, uint32_t flags)
{
    struct wk_op_output o;
    o.o = wk_op_head(sizeof o, WK_OP_OUTPUT);
    o.o.in[0] = x.id;
    o.what = what;
    o.flags = flags;
    (void)wk_append(b, &o.o);
}
static inline void wk_logits(const struct wk_builder *b, wk_value x) { wk_output(b, x, WK_OUTPUT_LOGITS, 0); }
static inline void wk_embedding(const struct wk_builder *b, wk_value x, uint32_t flags)
{
    wk_output(b, x, WK_OUTPUT_EMBEDDING, flags);
}

/* in: [n_in <= 4]; params: copied. */
static inline wk_value wk_custom(const struct wk_builder *b, const struct wk_custom_def *def, const wk_value *in,
                                 uint32_t n_in, const void *params, uint32_t params_bytes)
{
    struct wk_op_custom c;
    c.o = wk_op_head(sizeof c, WK_OP_CUSTOM);
    for (uint32_t i = 0; i < n_in && i < 4; i++) c.o.in[i] = in[i].id;
    c.def = def;
    c.params = params;
    c.params_bytes = params_bytes;
    c.reserved = 0;
    return wk_append(b, &c.o);
}

/* ---- metadata and the plugin's own struct -------------------------------------------------------------- */

enum { WK_KEY_U32 = 1, WK_KEY_F32 = 2, WK_KEY_TEXT = 3, WK_KEY_BOOL = 4 };
enum {
    WK_KEY_REQUIRED = 1u << 0,
    WK_KEY_ABSOLUTE = 1u << 1,  /* name is complete, not below "<architecture>."; not one of "tokenizer." */
    WK_KEY_PER_LAYER = 1u << 2, /* may be an array with an element for each layer (block_count); all equal */
    WK_KEY_VARIES = 1u << 3     /* with PER_LAYER: elements may differ, open() reads them all */
};
#define WK_KEY_NOT_FOR(i) (1u << (16 + (i))) /* the plugin's architecture names[i], i below 16, has no such key */

/* One metadata key that the plugin reads. The host checks type, range and number of elements before open() runs. Any
 * integer type in the file will do for U32, of a DIFFERS key a bool, too. Of min and max that are equal the file is
 * told that this value alone is served: a key that changes nothing as long as it has this value stands here so. */
struct wk_key {
    const char *name; /* "attention.head_count": below the architecture's name */
    uint32_t type, flags;
    double min, max;       /* inclusive; U32, F32 and BOOL */
    double default_number; /* when absent and not required; may lie outside of the range: "absent" as a number */
};
struct wk_key_value {
    double number;    /* U32, F32, BOOL; the default when absent; of an array the first element */
    const char *text; /* TEXT: terminated, host's, valid during open; "" when absent */
    uint32_t present;
    uint32_t count;        /* elements of an array; 0: none, or one value */
    const double *numbers; /* [count], host's, valid during open */
};

/* What open() sees of the file; valid during open alone. */
struct wk_meta {
    uint32_t struct_size, n_values;
    const char *architecture; /* value of general.architecture */
    const void *values;       /* [n_values] of struct wk_key_value, value_size apart: wk_meta_value */
    uint32_t value_size, reserved;
    const struct wk_host *host; /* options, log */
    void *self;
    /* Shape of a tensor as rows x cols x depth; 1: present, 0: absent. Any of the outputs may be NULL. */
    uint32_t (*tensor)(void *self, const char *full_name, uint32_t *rows, uint32_t *cols, uint32_t *depth);
};

/* What the file has for key number i of the plugin's table. */
static inline const struct wk_key_value *wk_meta_value(const struct wk_meta *m, uint32_t i)
{
    return (const struct wk_key_value *)(const void *)((const char *)m->values + (size_t)i * m->value_size);
}
static inline double wk_meta_number(const struct wk_meta *m, uint32_t i) { return wk_meta_value(m, i)->number; }
static inline uint32_t wk_meta_u32(const struct wk_meta *m, uint32_t i) { return (uint32_t)wk_meta_number(m, i); }
static inline const char *wk_meta_text(const struct wk_meta *m, uint32_t i) { return wk_meta_value(m, i)->text; }
static inline int wk_meta_has(const struct wk_meta *m, uint32_t i) { return wk_meta_value(m, i)->present != 0; }

struct wk_alias {
    const char *file_name, *name;
}; /* last parts: "attn_out" in the file means "attn_output"; "ffn_gate.#" means "ffn_gate_exps", whose matrices are
      tensors of their own, numbered from 0 */

struct wk_arch {
    uint32_t struct_size, flags; /* flags: 0 */
    const char *const *names;    /* [n_names] values of general.architecture */
    uint32_t n_names, reserved_names;
    const struct wk_key *keys; /* [n_keys], key_size apart */
    uint32_t n_keys, key_size;
    const struct wk_alias *aliases; /* [n_aliases], alias_size apart; or NULL */
    uint32_t n_aliases, alias_size;
    const char *const *ignored; /* [n_ignored] full tensor names, or prefixes ending in '*', that the file may have and
                                   nothing reads */
    uint32_t n_ignored, reserved_ignored;
    /* [n_ignored_keys] below the architecture's name, or prefixes ending in '*': keys that a file may have and that
     * change nothing. One that stands neither here nor in `keys` refuses the file. */
    const char *const *ignored_keys;
    uint32_t n_ignored_keys, reserved_ignored_keys;
    /* [main thread] Checks relations between keys and fills *model, which close() frees. On failure
     * *model is not used. */
    wk_status (*open)(const struct wk_meta *meta, void **model, const struct wk_err *err);
    void (*record)(const struct wk_builder *b, const void *model); /* [main thread] no allocation that outlives it */
    void (*close)(void *model);                                    /* [main thread] */
};

/* Fields of struct wk_arch for an array of each kind, in a designated initializer: WK_ARCH_NAMES(names), ... */
#define WK_COUNT_OF(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))
#define WK_ARCH_NAMES(array) .names = (array), .n_names = WK_COUNT_OF(array)
#define WK_ARCH_KEYS(array) .keys = (array), .n_keys = WK_COUNT_OF(array), .key_size = sizeof((array)[0])
#define WK_ARCH_ALIASES(array) .aliases = (array), .n_aliases = WK_COUNT_OF(array), .alias_size = sizeof((array)[0])
#define WK_ARCH_IGNORED(array) .ignored = (array), .n_ignored = WK_COUNT_OF(array)
#define WK_ARCH_IGNORED_KEYS(array) .ignored_keys = (array), .n_ignored_keys = WK_COUNT_OF(array)

#define WK_KEY_SIZE_1_0 WK_SIZE_TO(struct wk_key, default_number)
#define WK_ALIAS_SIZE_1_0 WK_SIZE_TO(struct wk_alias, name)
#define WK_ARCH_SIZE_1_0 WK_SIZE_TO(struct wk_arch, close)

#ifdef __cplusplus
}
#endif
#endif
