/* recorder.c: a builder that takes whatever record() says, as a host does which has every tensor that is asked for.
 * What it cannot know, it answers so that a recording goes on. */
#include <string.h>

#include "check/internal.h"

enum { GARBAGE = 0x5a };

void check_hash(uint64_t *hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) *hash = (*hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3u;
}

static void add_text(struct check_recorder *r, const char *text) { check_hash(&r->hash, text, strlen(text) + 1); }

static void count(struct check_recorder *r, const char *what)
{
    if (++r->calls < RECORD_CALLS) return;
    if (strcmp(r->check->def->id, "errors.record") != 0) {
        check_skip(r->check, "record() does not end, of which errors.record tells");
        check_leave(r->check);
    }
    check_fail(
        r->check,
        "record() has made %d calls of its builder, the last of %s, and goes on; expected an end by a count that "
        "the ranges of its keys bound: lower their largest values, and stop when operations give 0",
        RECORD_CALLS, what);
    check_leave(r->check);
}

static uint32_t width_of(const struct check_recorder *r, uint32_t value)
{
    return value && value <= r->ops ? r->width[value] : 0;
}

/* As wide as the operation says; what keeps its input's width, or is not known here, is as wide as that. */
static uint32_t result_width(const struct check_recorder *r, const struct wk_op *op)
{
    union {
        struct wk_op o;
        struct wk_op_linear linear;
        struct wk_op_slice slice;
        struct wk_op_attention attention;
    } u;
    memset(&u, 0, sizeof u);
    memcpy(&u, op, op->size < sizeof u ? op->size : sizeof u);
    const uint32_t first = width_of(r, op->in[0]);
    switch (op->kind) {
    case WK_OP_EMBED: return op->t[0];
    case WK_OP_LINEAR:
    case WK_OP_EXPERT: return u.linear.n;
    case WK_OP_SLICE: return u.slice.n;
    case WK_OP_ROUTE: return 1;
    case WK_OP_ATTENTION: {
        const uint64_t v = width_of(r, op->in[2]);
        const uint64_t all = u.attention.kv_heads ? v / u.attention.kv_heads * u.attention.heads : v;
        return all <= UINT32_MAX ? (uint32_t)all : 0;
    }
    default: return first;
    }
}

static uint32_t on_op(void *self, const struct wk_op *op)
{
    struct check_recorder *r = self;
    count(r, "op");
    check_hash(&r->hash, op, WK_OP_SIZE_1_0);
    if (r->ops == RECORD_OPS) return 0;
    const uint32_t width = result_width(r, op);
    r->width[++r->ops] = width;
    return op->kind == WK_OP_OUTPUT ? 0 : r->ops;
}

/* The id of a tensor is its number of columns, which is what an embedding is as wide as. */
static uint32_t on_tensor(void *self, const char *name, const char *suffix, uint32_t rows, uint32_t cols,
                          uint32_t depth, uint32_t need)
{
    struct check_recorder *r = self;
    const uint32_t shape[4] = { rows, cols, depth, need };
    count(r, "tensor");
    add_text(r, name);
    add_text(r, suffix);
    check_hash(&r->hash, shape, sizeof shape);
    return cols;
}

static uint32_t on_width(void *self, uint32_t value) { return width_of(self, value); }

static uint32_t on_read(void *self, const char *name, float *dst, uint32_t n)
{
    struct check_recorder *r = self;
    count(r, "read");
    add_text(r, name);
    for (uint32_t i = 0; i < n; i++) dst[i] = 1.0f;
    return 1;
}

static uint32_t on_supports(void *self, const struct wk_op *op)
{
    struct check_recorder *r = self;
    count(r, "supports");
    check_hash(&r->hash, op, WK_OP_SIZE_1_0);
    return r->supports;
}

static void on_scope(void *self, const char *prefix, uint32_t layer)
{
    struct check_recorder *r = self;
    count(r, "scope");
    add_text(r, prefix);
    check_hash(&r->hash, &layer, sizeof layer);
}

static void on_name(void *self, uint32_t value, const char *name)
{
    struct check_recorder *r = self;
    count(r, "name");
    add_text(r, name);
    check_hash(&r->hash, &value, sizeof value);
}

static void on_fail(void *self, const char *text)
{
    struct check_recorder *r = self;
    count(r, "fail");
    add_text(r, text);
}

static void on_ignore(void *self, const char *name)
{
    struct check_recorder *r = self;
    count(r, "ignore");
    add_text(r, name);
}

struct check_recorder *recorder_make(struct check *c, uint32_t extra)
{
    struct check_recorder *r = guarded(sizeof *r, 8, 0);
    struct wk_builder *b = guarded(sizeof *b + extra, 8, GARBAGE);
    if (!r || !b) return NULL;
    r->check = c;
    r->supports = true;
    r->hash = CHECK_HASH;
    r->builder = b;
    *b = (struct wk_builder){ .struct_size = (uint32_t)sizeof *b + extra,
                              .abi_minor = extra ? UINT16_MAX : WK_ABI_MINOR,
                              .context = 128,
                              .self = r,
                              .op = on_op,
                              .tensor = on_tensor,
                              .width = on_width,
                              .read = on_read,
                              .supports = on_supports,
                              .scope = on_scope,
                              .name = on_name,
                              .fail = on_fail,
                              .ignore = on_ignore };
    return r;
}

void recorder_free(struct check_recorder *r)
{
    guarded_free(r->builder);
    guarded_free(r);
}
