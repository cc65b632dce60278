/* tape.h: the recorded forward pass and what the host makes of it.
 *
 * An architecture plugin records operations (tape_record); passes over one array then bring them to canonical form,
 * find which rows each value is needed for, join operations into launches (fusion) and colour row buffers (plan). The
 * result, a tape_program, is what every executor runs; it holds no pointers to weights and can be printed, hashed and
 * compared. Nothing here knows a device's memory or a format's bits.
 *
 * [any thread]: what a plugin is called for is serialised (record.c). A finished program is immutable. */
#ifndef CORE_TAPE_TAPE_H
#define CORE_TAPE_TAPE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <worker/arch.h>
#include <worker/quant.h>

#include "gguf/gguf.h"
#include "tape/adapter.h"

#define TAPE_NONE UINT32_MAX
enum {
    TAPE_MAX_OPS = 65536,
    TAPE_MAX_WIDTH = 1 << 24,
    TAPE_MAX_SLOTS = 64,
    TAPE_MAX_ROUTE_GROUPS = 64,
    TAPE_MAX_KERNEL = 64,     /* rows that a convolution sees */
    TAPE_MAX_STATE = 1 << 28, /* numbers of a state */
    TAPE_MAX_MESSAGES = 16,
    TAPE_NAME = 64,
    TAPE_IN = 8, /* inputs and tensors of an operation, at most */
    TAPE_MAX_GROUPS = 8
};

enum tape_role { /* found by data flow; no author states it */
                 ROLE_NONE = 0,
                 ROLE_EMBED,
                 ROLE_Q,
                 ROLE_K,
                 ROLE_V,
                 ROLE_O,
                 ROLE_GATE,
                 ROLE_UP,
                 ROLE_DOWN,
                 ROLE_ROUTER,
                 ROLE_EXPERT,
                 ROLE_NORM,
                 ROLE_HEAD,
                 ROLE_BIAS,
                 ROLE_SINKS,
                 ROLE_OTHER
};
const char *tape_role_name(enum tape_role role);

struct tape_tensor {
    char name[TAPE_NAME];           /* full, as in the file */
    const struct gguf *in;          /* the program's file or an adapter's; outlives the program */
    uint32_t adapter;               /* 0: the model's; else 1 + index of the adapter in tape_options */
    const struct gguf_tensor *file; /* there; that of slab 0 */
    const struct gguf_tensor *const
        *slab_files;                /* [slabs] where each slab is a tensor of the file; NULL: one has all */
    const struct wk_type_cpu *type; /* who serves it */
    uint32_t rows, cols, slabs;
    uint64_t bytes; /* in the file */
    enum tape_role role;
};

/* The file's tensor that a slab lies in, and the bytes before it there. */
static inline const struct gguf_tensor *tape_slab_file(const struct tape_tensor *t, uint32_t slab)
{
    return t->slab_files ? t->slab_files[slab] : t->file;
}
static inline uint64_t tape_slab_first(const struct tape_tensor *t, uint32_t slab)
{
    return t->slab_files ? 0 : t->bytes / t->slabs * slab;
}

enum tape_rows {
    ROWS_ALL = 0,
    ROWS_LOGITS = 1,
    ROWS_POOLED = 2
}; /* for which rows of a step a value exists; pooled: one a sequence */

struct tape_value {
    char name[TAPE_NAME]; /* "blk.0.attn_q", "blk.0.attn_q.rope", "blk.0.attention", "blk.0.add1", "logits" */
    uint32_t width, slots;
    uint32_t op;        /* its producer */
    uint32_t n_readers; /* operations that read it; a tap counts as one */
    bool tapped;
    bool pooled;         /* one row a sequence: what pool makes, and what follows it */
    enum tape_rows rows; /* rows that its buffer holds. A launch of ROWS_LOGITS that reads a ROWS_ALL value reads, for
                            its row i, the value's row step.logits_rows[i]; a ROWS_LOGITS value is read at row i */
    uint32_t buffer;     /* index of its row buffer; TAPE_NONE: swallowed by a launch (or the step's logits) */
};

struct tape_op {
    uint16_t kind;        /* WK_OP_* */
    uint32_t layer;       /* TAPE_NONE outside layers */
    uint32_t in[TAPE_IN]; /* value indices, TAPE_NONE: none */
    uint32_t t[TAPE_IN];  /* tensor indices, TAPE_NONE: none */
    uint32_t out;         /* value index; TAPE_NONE for OUTPUT */
    uint32_t launch;      /* where it is computed */
    bool adapter;         /* recorded by the host for an adapter (adapt.c) */
    union {               /* by kind, copied from the plugin's struct */
        struct {
            uint32_t index, offset;
        } embed;
        struct {
            uint32_t first, n, slabs; /* slabs: experts or heads, 0 in LINEAR */
        } linear;                     /* also EXPERT and LINEAR_HEADS */
        struct {
            uint32_t kind, group;
            float eps;
        } norm;
        struct {
            uint32_t head, style, n;
            uint32_t temperature_length; /* 0: none */
            const double *freq;
            double mscale, temperature;
        } rope; /* freq: [n], the program's; ropes of equal tables share it */
        struct {
            uint32_t heads, kv_heads, head_k, head_v;
            float scale, softcap;
            uint32_t window, chunk, flags, value_in_key;
            const float *slopes; /* [heads], the program's; NULL: none */
            uint32_t kv_layer;   /* index; it stores keys and values iff the layer's op is this one */
            bool tap_scores;     /* a tap asks for "<value name>.scores", F32 after scale, cap and slopes */
        } attn;
        struct {
            uint32_t fn;
            float p;
        } unary;
        struct {
            uint32_t fn;
            float alpha, limit;
        } glu;
        struct {
            uint32_t first, n, groups; /* groups: 1 or more */
        } slice;
        struct {
            uint32_t groups, repeated; /* groups: 1 or more */
        } concat;
        struct {
            uint32_t kind, kernel, heads, groups, head_k, head_v, kv_layer;
        } state;
        struct {
            uint32_t k, score;
            float scale;
            uint32_t flags, groups, groups_used, group_score;
            bool tap_ids; /* a tap asks for "<value name>.ids", the experts' numbers */
        } route;
        struct {
            uint32_t how;
        } pool;
        struct {
            uint32_t what, flags;
        } output;
        struct {
            const struct wk_custom_def *def;
            const void *params;
            uint32_t params_bytes;
        } custom;
    } u;
};

/* A layer of the cache: the keys and values of one attention operation, or the state of one state operation. Layers
 * whose pages are given back by one rule form a group with one page table. */
struct tape_kv_layer {
    uint32_t op, group, kv_heads, head_k, head_v;
    bool value_in_key;     /* the values are the first head_v numbers of the keys, and not stored */
    uint64_t state_floats; /* F32 numbers of a page of a group of states, which has the state behind its last stored
                              row; a convolution of one row has none */
};
/* window: positions that a row sees, its own included, 0: all. chunk: it sees none before the last multiple of chunk,
 * 0: no chunks. state: a page has a state; a row reads that of the row before it, so that its window is 2, and in a
 * step that covers several pages only the last whole one and the one that is not full need to exist. */
struct tape_kv_group {
    uint32_t window, chunk;
    bool state;
    uint32_t n_layers;
};

/* One step of the executor. Which fields mean something depends on the kind; an index that means nothing is TAPE_NONE.
 * Launches stand in an order in which they can run. A launch never reads and writes one buffer, but for nothing else
 * may be assumed of buffers. */
enum launch_kind {
    LAUNCH_EMBED = 0, /* ops: embed (scale) (embed_pos) (add): out = sums of gathered rows */
    LAUNCH_PRODUCT,  /* [norm] -> 1..4 linear or expert segments -> bias -> [glu of the two | maps] -> [add residual] */
    LAUNCH_ATTEND,   /* [head norms] [ropes] of q and k, store k and v, attention */
    LAUNCH_ROUTE,    /* [norm] -> linear (seg[0]) -> route; out: the route value. A route without its linear is
                        LAUNCH_ALONE */
    LAUNCH_COMBINE,  /* combine -> [add residual] */
    LAUNCH_NORM_ADD, /* norm -> add residual */
    LAUNCH_ALONE,    /* ops[0] by itself: norm (row or head), rope, map, glu, add, mul, cols, route, custom; inputs by
                        op->in, result `out` */
    LAUNCH_STATE,    /* a state operation; all its inputs for all rows */
    LAUNCH_OUTPUT, /* [pool] -> output (the last of ops), when not the end of a product; x: the value given to the first
                      of them */
    LAUNCH_KINDS
};
const char *launch_kind_name(enum launch_kind kind);

/* bias: tensor; out: value that receives the rows, TAPE_NONE when glu, maps, add or logits follow in the launch (then
 * `out` of the launch has it) */
struct tape_segment {
    uint32_t op, tensor, first, n, bias, out;
};

struct tape_launch {
    enum launch_kind kind;
    uint32_t layer;
    enum tape_rows rows; /* rows computed. ATTEND: rows of the output; k and v are stored for all rows */
    uint32_t norm;       /* PRODUCT, ROUTE: norm in the prologue; NORM_ADD: the norm */
    uint32_t x;     /* input value (the norm's input when there is a prologue); MoE products: second input `route` */
    uint32_t route; /* value of route for expert segments and combine */
    uint32_t heads; /* PRODUCT of a linear by heads, seg[0]: how many; 0: it is none */
    uint32_t n_seg;
    struct tape_segment seg[4];
    uint32_t glu;           /* operation that joins seg[0] = its in[0] and seg[1] = its in[1] */
    uint32_t n_map, map[4]; /* map operations on the (single) result, in order */
    uint32_t add, residual; /* add operation and the other value it adds */
    uint32_t q_norm, k_norm, v_norm, q_rope, k_rope,
        attention; /* ATTEND, operations; norm (over heads) comes before rope; q, k, v: input values */
    uint32_t q, k, v;
    uint32_t out; /* value of the last operation; TAPE_NONE when only segments have results */
    bool logits;  /* PRODUCT: out is the step's logits (its value has no buffer) */
    uint32_t n_ops,
        ops[16]; /* every operation it computes, in order of the tape; a norm in prologues is in each of its launches */
    char alone[96]; /* why a fusion that one might expect did not happen; "" else */
};

/* Does each result have a slab of its own? Experts that a route chose, or heads. */
static inline bool tape_launch_slabs(const struct tape_launch *l)
{
    return l->kind == LAUNCH_PRODUCT && (l->heads || l->route != TAPE_NONE);
}
/* Parts of each input row that are multiplied one by one. */
static inline uint32_t tape_launch_parts(const struct tape_launch *l) { return l->heads ? l->heads : 1; }

/* F32 rows [slots][width], row_bytes apart or closer; ROWS_LOGITS buffers have max_logits_rows rows. A route value's
 * row: k weights (F32), then k expert ids (uint32). row_bytes is a multiple of 64. */
struct tape_buffer {
    uint64_t row_bytes;
    enum tape_rows rows;
};

struct tape_program {
    const struct gguf *file;
    char architecture[TAPE_NAME];
    uint32_t context, n_vocab, embedding_width; /* embedding_width: of the pooled output, 0: none */
    uint32_t n_layers;
    bool bidirectional; /* a prompt is one step, and nothing is generated */
    struct tape_tensor *tensors;
    uint32_t n_tensors;
    struct tape_value *values;
    uint32_t n_values;
    struct tape_op *ops;
    uint32_t n_ops;
    struct tape_launch *launches;
    uint32_t n_launches;
    struct tape_buffer *buffers;
    uint32_t n_buffers;
    struct tape_kv_layer *kv_layers;
    uint32_t n_kv_layers;
    struct tape_kv_group groups[TAPE_MAX_GROUPS];
    uint32_t n_groups;
    void *arena; /* owns everything above */
};

/* Must a prompt be one step? Where rows see what comes after them, or are pooled. */
static inline bool tape_whole_prompt(const struct tape_program *p) { return p->bidirectional || p->embedding_width; }

/* Fusions, each of which can be turned off alone; the bits of the results do not change. */
enum {
    FUSE_EMBED = 1u << 0,
    FUSE_NORM = 1u << 1,
    FUSE_SIBLINGS = 1u << 2,
    FUSE_GLU = 1u << 3,
    FUSE_EPILOGUE = 1u << 4,
    FUSE_ATTEND = 1u << 5,
    FUSE_ROUTE = 1u << 6,
    FUSE_COMBINE = 1u << 7,
    FUSE_NORM_ADD = 1u << 8,
    FUSE_ALL = (1u << 9) - 1
};

/* How rows become one of a text, as files number it. */
enum tape_pooling { TAPE_POOL_FILE = 0 /* as the file says */, TAPE_POOL_MEAN, TAPE_POOL_FIRST, TAPE_POOL_LAST };
struct tape_options {
    uint32_t context;        /* positions a sequence; 0: the file's context_length */
    uint32_t fuse;           /* mask of FUSE_* */
    const char *const *taps; /* [n_taps] value names; "*": all */
    uint32_t n_taps;
    enum tape_pooling pooling;      /* of a model that generates: its rows are to be pooled, and give no logits */
    const struct wk_host *host;     /* of the plugin, for its open(); NULL: it is told of no options */
    struct gguf_accepted *accepted; /* keys that may be there unread; NULL: none */
    const struct adapter *adapters; /* [n_adapters], at most ADAPTERS_MAX, in the order in which they are added */
    uint32_t n_adapters;
    const struct wk_type_cpu *(*find_type)(void *user, uint32_t ggml_type); /* NULL result: nobody serves it */
    const char *(*type_owner)(void *user, uint32_t ggml_type); /* id of the plugin that serves a type of its own number;
                                                                  NULL: files need not say whose it is */
    void (*describe_types)(void *user, char *text, size_t cap); /* who was asked, for the refusal */
    /* Told of each required tensor that the file does not have; NULL: nobody wants to know. */
    void (*missing)(void *user, const char *name, uint32_t rows, uint32_t cols, uint32_t slabs);
    void *user;
};

/* Checks the plugin's keys, opens it, records, closes it, and makes the program. The program is the caller's; `file`
 * must outlive it. On failure the text holds up to 16 messages, one a line, and *out is NULL. WK_UNSUPPORTED if what is
 * missing is a type or an operation, WK_INVALID if the file is wrong. */
wk_status tape_record(const struct wk_arch *arch, const struct gguf *file, const struct tape_options *o,
                      struct tape_program **out, const struct wk_err *err);
void tape_free(struct tape_program *p); /* NULL allowed */

/* Does it predict a next token? A model that gives an embedding alone does not. */
static inline bool tape_gives_logits(const struct tape_program *p)
{
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == WK_OP_OUTPUT && p->ops[i].u.output.what == WK_OUTPUT_LOGITS) return true;
    return false;
}

/* What `worker debug tape` prints: operations, launches, launches a layer, buffers, KV groups. */
void tape_print(const struct tape_program *p, FILE *out);
/* SHA-256 over the canonical operations (not over fusion), hex: part of a fingerprint. */
void tape_digest(const struct tape_program *p, char hex[65]);
uint32_t tape_find_value(const struct tape_program *p, const char *name); /* TAPE_NONE: none */
bool tape_launch_tapped(const struct tape_program *p,
                        const struct tape_launch *l); /* a tap asks for one of its values, its scores or ids */

/* What the model asks of a worker, found while recording (Model Capability Descriptor). */
struct tape_capabilities {
    const char *positional; /* "rope_llama", "rope_neox", "yarn", "longrope", "alibi", "learned", "none" */
    /* "mha", "gqa", "mqa" or "mla" (one latent row); then, a blank before each, "swa" (a window), "chunked", "sinks",
     * "bidirectional" and "state". Without attention "state" or "none". */
    char attention[TAPE_NAME];
    uint32_t context_max, n_vocab;
    uint32_t n_types;
    uint32_t types[64];
    uint64_t type_bytes[64]; /* ggml types in use and their bytes */
};
void tape_describe(const struct tape_program *p, struct tape_capabilities *out);

#endif
