/* quant.c: see quant.h. */
#include "check/quant.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <worker/cpu/act_q8.h>

void quant_each_type(struct check *c, void (*run)(struct check *c, const struct wk_type_cpu *t))
{
    for (uint32_t i = 0; i < c->quant->n_types; i++) run(c, c->quant->types[i]);
}

void *quant_memory(struct check *c, uint64_t bytes)
{
    enum { BESIDE = 256 };
    void *p = NULL;
    if (bytes > SIZE_MAX - 2 * BESIDE || posix_memalign(&p, BESIDE, (size_t)bytes + 2 * BESIDE)) {
        check_skip(c, "out of memory for %llu bytes", (unsigned long long)bytes);
        check_leave(c);
    }
    memset(p, 0, (size_t)bytes + 2 * BESIDE);
    return (char *)p + BESIDE;
}

/* ---- calls --------------------------------------------------------------------------------------------- */

/* One call of the plugin, as guard_call wants it. */
struct call {
    const struct wk_type_cpu *t;
    format_product product;
    union {
        struct wk_dequantize dequantize;
        struct wk_quantize quantize;
        struct wk_pack pack;
        struct wk_unpack unpack;
        struct wk_cpu_product product;
    } args;
    wk_status status;
    struct wk_err err;
};

static void call_dequantize(void *user)
{
    struct call *a = user;
    a->t->dequantize(&a->args.dequantize);
}
static void call_quantize(void *user)
{
    struct call *a = user;
    a->status = a->t->quantize(&a->args.quantize, &a->err);
}
static void call_pack(void *user)
{
    struct call *a = user;
    a->t->pack(&a->args.pack);
}
static void call_unpack(void *user)
{
    struct call *a = user;
    a->t->unpack(&a->args.unpack);
}
static void call_product(void *user)
{
    struct call *a = user;
    a->product(&a->args.product);
}

bool quant_call(struct check *c, const char *what, void (*fn)(void *user), void *user, uintptr_t function,
                const char *name)
{
    char text[CHECK_TEXT];
    struct plugin_call under_way;
    plugin_call_begin(&under_way, NULL, function, name);
    const wk_status status = guard_call(what, fn, user, &(struct wk_err){ text, sizeof text });
    plugin_call_end(&under_way);
    if (status != WK_OK) check_fail(c, "%s", text);
    return status == WK_OK;
}

bool quant_dequantize(struct check *c, const char *what, const struct wk_type_cpu *t, float *y, const void *blocks,
                      uint64_t n)
{
    struct call a = { .t = t, .args.dequantize = { sizeof a.args.dequantize, 0, n, blocks, y, &format_plain } };
    return quant_call(c, what, call_dequantize, &a, (uintptr_t)t->dequantize, "dequantize");
}

bool quant_quantize(struct check *c, const char *what, const struct wk_type_cpu *t, struct wk_quantize q,
                    wk_status *status, char *text, size_t room)
{
    struct call a = { .t = t, .args.quantize = q, .err = { text, room } };
    a.args.quantize.struct_size = sizeof q;
    a.args.quantize.tensor = &format_plain;
    text[0] = '\0';
    if (!quant_call(c, what, call_quantize, &a, (uintptr_t)t->quantize, "quantize")) return false;
    *status = a.status;
    return true;
}

bool quant_pack(struct check *c, const char *what, const struct wk_type_cpu *t, void *tile, const void *const *rows,
                uint32_t k)
{
    struct call a = { .t = t, .args.pack = { sizeof a.args.pack, k, rows, tile, &format_plain } };
    return quant_call(c, what, call_pack, &a, (uintptr_t)t->pack, "pack");
}

bool quant_unpack(struct check *c, const char *what, const struct wk_type_cpu *t, void *const *rows, const void *tile,
                  uint32_t k)
{
    struct call a = { .t = t, .args.unpack = { sizeof a.args.unpack, k, tile, rows, &format_plain } };
    return quant_call(c, what, call_unpack, &a, (uintptr_t)t->unpack, "unpack");
}

bool quant_product(struct check *c, const char *what, format_product product, struct wk_cpu_product p)
{
    struct call a = { .product = product, .args.product = p };
    a.args.product.struct_size = sizeof p;
    a.args.product.tensor = &format_plain;
    return quant_call(c, what, call_product, &a, (uintptr_t)product, "product");
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
/* A check's process is forked from one that has threads, and starts some, which that sanitizer refuses otherwise. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "die_after_fork=0"; }
#endif
#endif

struct on_thread {
    void (*fn)(void *user);
    void *user;
};
static void *begin_thread(void *user)
{
    const struct on_thread *t = user;
    t->fn(t->user);
    return NULL;
}

void quant_on_thread(struct check *c, void (*fn)(void *user), void *user)
{
    enum { STACK = 256 * 1024 };
    struct on_thread t = { fn, user };
    pthread_attr_t small;
    pthread_t thread;
    if (pthread_attr_init(&small) || pthread_attr_setstacksize(&small, STACK) ||
        pthread_create(&thread, &small, begin_thread, &t)) {
        check_skip(c, "no thread could be started");
        check_leave(c);
    }
    (void)pthread_join(thread, NULL);
    (void)pthread_attr_destroy(&small);
}

/* ---- types --------------------------------------------------------------------------------------------- */

uint32_t quant_length(const struct wk_type_cpu *t, uint32_t i)
{
    enum { MANY = 1200 };
    static const uint32_t blocks[] = { 1, 3, 7 }, plain[] = { 1, 33, 103 };
    if (t->block == 1) return i < 3 ? plain[i] : MANY + 1;
    if (i < 3) return (t->block > MANY && i == 2 ? 2 : blocks[i]) * t->block; /* a large block: fewer of them */
    return (MANY / t->block | 1) * t->block;
}

const char *quant_product_name(const struct wk_type_cpu *t, uint32_t isa, uint32_t form, char text[QUANT_TEXT])
{
    (void)snprintf(text, QUANT_TEXT, "type %s: product for %s with %s activations", t->name, plugin_isa_name(isa),
                   form ? "8-bit" : "F32");
    return text;
}

format_product quant_product_of(const struct check *c, const struct wk_type_cpu *t, uint32_t isa)
{
    if (c->options->isa == FORMAT_ISAS) return isa <= plugin_detect_isa() ? format_product_of(t, isa) : NULL;
    return c->options->isa == isa ? format_product_for(t, isa) : NULL;
}

/* ---- noise --------------------------------------------------------------------------------------------- */

static float unit(struct check_draw *d) { return ((float)check_draw(d, 1u << 23) + 0.5f) * 0x1p-23f; } /* (0, 1) */

float quant_gauss(struct check_draw *d)
{
    const float radius = sqrtf(-2 * logf(unit(d)));
    return radius * cosf(6.2831853f * unit(d));
}

void quant_bytes(struct check_draw *d, uint8_t *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) p[i] = (uint8_t)check_draw(d, 256);
}

bool quant_random_block(struct check *c, const struct wk_type_cpu *t, uint8_t *block, struct check_draw *d)
{
    enum { TRIES = 10000 };
    char what[QUANT_TEXT];
    static float *y; /* of the largest type that there is; as long as the process */
    if (!y) y = quant_memory(c, 65536 * sizeof *y);
    (void)snprintf(what, sizeof what, "type %s: dequantize", t->name);
    for (uint32_t n = 0; n < TRIES; n++) {
        bool moderate = true;
        quant_bytes(d, block, t->block_bytes);
        if (!quant_dequantize(c, what, t, y, block, t->block)) return false;
        for (uint32_t i = 0; i < t->block && moderate; i++) moderate = fabsf(y[i]) < 1000;
        if (moderate) return true;
    }
    memset(block, 0, t->block_bytes); /* a format whose random bits mean no numbers: zeros will have to do */
    return true;
}

/* Halves, bytes and floats that a scale may be. */
static const uint16_t edge_halves[] = {
    0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x7c01
};
static const uint8_t edge_bytes[] = { 0x00, 0x01, 0x7f, 0x80, 0xfe, 0xff };
static const uint32_t edge_words[] = { 0x00000001, 0x00800000, 0x7f7fffff, 0x7f800000, 0x7fc00001, 0xff800000 };
enum {
    HALVES = sizeof edge_halves / sizeof *edge_halves,
    BYTES = sizeof edge_bytes,
    WORDS = sizeof edge_words / sizeof *edge_words,
    KINDS = HALVES + BYTES + WORDS,
    PLACES = 96 /* of a block: as many from its begin and its end */
};

static uint32_t edge_places(const struct wk_type_cpu *t)
{
    return t->block_bytes < 2 * PLACES ? t->block_bytes : 2 * PLACES;
}

/* And all bytes 0, all 0xff. */
uint32_t quant_edges(const struct wk_type_cpu *t) { return 2 + KINDS * edge_places(t); }

void quant_edge_block(const struct wk_type_cpu *t, uint32_t i, uint8_t *block)
{
    if (i < 2) {
        memset(block, i ? 0xff : 0, t->block_bytes);
        return;
    }
    const uint32_t places = edge_places(t), kind = (i - 2) / places, n = (i - 2) % places;
    const uint32_t at = n < places / 2 ? n : t->block_bytes - (places - n), room = t->block_bytes - at;
    const void *value = kind < HALVES           ? (const void *)&edge_halves[kind]
                        : kind < HALVES + BYTES ? (const void *)&edge_bytes[kind - HALVES]
                                                : (const void *)&edge_words[kind - HALVES - BYTES];
    const uint32_t size = kind < HALVES ? 2 : kind < HALVES + BYTES ? 1 : 4;
    memcpy(block + at, value, size < room ? size : room);
}

/* ---- products ------------------------------------------------------------------------------------------ */

static bool make_tile(struct check *c, const struct quant_problem *p, uint32_t tile)
{
    char what[QUANT_TEXT];
    const void *rows[WK_TILE_ROWS];
    (void)snprintf(what, sizeof what, "type %s: pack of %u values", p->t->name, p->k);
    for (uint32_t r = 0; r < WK_TILE_ROWS; r++) rows[r] = p->file + (tile * WK_TILE_ROWS + r) * p->row_bytes;
    return quant_pack(c, what, p->t, p->tiles + tile * p->tile_bytes, rows, p->k);
}

static bool make_random_row(struct check *c, const struct quant_problem *p, uint32_t r, uint32_t edges,
                            struct check_draw *d)
{
    const uint32_t blocks = p->k / p->t->block;
    uint8_t *row = p->file + r * p->row_bytes;
    for (uint32_t b = 0; b < blocks; b++)
        if (!quant_random_block(c, p->t, row + (uint64_t)b * p->t->block_bytes, d)) return false;
    if (edges < QUANT_PLAIN)
        quant_edge_block(p->t, (edges + r) % quant_edges(p->t),
                         row + (uint64_t)check_draw(d, blocks) * p->t->block_bytes);
    return true;
}

/* One value just farther from zero than all others takes the lowest level, so that these get the highest. */
static bool make_extreme_row(struct check *c, const struct quant_problem *p, uint32_t r)
{
    char what[QUANT_TEXT], text[QUANT_TEXT];
    wk_status status = WK_OK;
    float *x = p->weights + (uint64_t)r * p->k; /* until it is decoded */
    for (uint32_t i = 0; i < p->k; i++) x[i] = (i % 16 || r & 2 ? 1.5f : -1.5f * 33 / 32) * (r & 1 ? -1.0f : 1.0f);
    (void)snprintf(what, sizeof what, "type %s: quantize of %u values", p->t->name, p->k);
    const struct wk_quantize q = { .row_length = p->k, .n = p->k, .x = x, .blocks = p->file + r * p->row_bytes };
    return quant_quantize(c, what, p->t, q, &status, text, sizeof text) && status == WK_OK;
}

static bool make_rows(struct check *c, struct quant_problem *p, uint32_t kind, struct check_draw *d)
{
    char what[QUANT_TEXT];
    (void)snprintf(what, sizeof what, "type %s: dequantize of %u values", p->t->name, p->k);
    for (uint32_t r = 0; r < QUANT_ROWS; r++) {
        float *w = p->weights + (uint64_t)r * p->k;
        if (r < p->rows && !(kind == QUANT_EXTREME ? make_extreme_row(c, p, r) : make_random_row(c, p, r, kind, d)))
            return false;
        if (!quant_dequantize(c, what, p->t, w, p->file + r * p->row_bytes, p->k)) return false;
        p->most[r] = 0;
        for (uint32_t i = 0; i < p->k && !isnan(p->most[r]); i++)
            if (!(fabs((double)w[i]) <= p->most[r])) p->most[r] = fabs((double)w[i]);
    }
    return true;
}

static void make_activations(struct quant_problem *p, uint32_t kind, struct check_draw *d)
{
    for (uint32_t t = 0; t < p->tokens; t++) {
        float *x = (float *)(void *)(p->x[0] + t * p->stride[0]);
        for (uint32_t i = 0; i < p->k && kind == QUANT_EXTREME; i++)
            x[i] = t % 3 == 0 || (t % 3 == 2 && i % 2) ? 1.0f : -1.0f;
        for (uint32_t i = 0; i < p->k && kind != QUANT_EXTREME; i++) {
            x[i] = quant_gauss(d) * (i % 97 ? 1.0f : 8.0f);
            if (fabsf(x[i]) < 0.01f) x[i] = 0.01f; /* none is 0: every weight counts */
        }
        wk_quantize_act_q8(x, p->k, (struct wk_activation_q8 *)(void *)(p->x[1] + t * p->stride[1]));
    }
}

bool quant_problem_make(struct check *c, struct quant_problem *p, const struct wk_type_cpu *t, uint32_t k,
                        uint32_t tokens, uint32_t kind, struct check_draw *d)
{
    enum { ODD_ROWS = 2 * WK_TILE_ROWS + 5 };
    *p = (struct quant_problem){ .t = t, .k = k, .rows = ODD_ROWS, .tokens = tokens };
    p->row_bytes = quant_row_bytes(t, k);
    p->tile_bytes = t->tile_bytes(k);
    p->scratch_bytes = t->scratch_bytes(k);
    p->stride[0] = ((uint64_t)k * sizeof(float) + 7) / 8 * 8 + 8;
    p->stride[1] = (uint64_t)(k + 31) / 32 * sizeof(struct wk_activation_q8) + 24;
    p->file = quant_memory(c, QUANT_ROWS * p->row_bytes);
    p->tiles = quant_memory(c, QUANT_TILES * p->tile_bytes);
    p->scratch = quant_memory(c, p->scratch_bytes);
    p->weights = quant_memory(c, (uint64_t)QUANT_ROWS * k * sizeof *p->weights);
    p->most = quant_memory(c, QUANT_ROWS * sizeof *p->most);
    for (uint32_t f = 0; f < 2; f++) {
        p->x[f] = (uint8_t *)quant_memory(c, tokens * p->stride[f] + 8) + 8;
        p->sum[f] = quant_memory(c, (uint64_t)tokens * QUANT_ROWS * sizeof(double));
        p->magnitude[f] = quant_memory(c, tokens * sizeof(double));
    }
    if (!make_rows(c, p, kind, d)) return false;
    for (uint32_t i = 0; i < QUANT_TILES; i++)
        if (!make_tile(c, p, i)) return false;
    make_activations(p, kind, d);
    return true;
}

/* Activation i of a token as the product is given it. */
static double activation(const struct quant_problem *p, uint32_t form, uint32_t token, uint32_t i)
{
    const uint8_t *row = p->x[form] + token * p->stride[form];
    if (form == 0) return (double)((const float *)(const void *)row)[i];
    const struct wk_activation_q8 *b = (const struct wk_activation_q8 *)(const void *)row + i / 32;
    return (double)b->d * b->q[i % 32];
}

void quant_problem_sums(struct quant_problem *p, struct check *c)
{
    double *x = quant_memory(c, p->k * sizeof *x);
    for (uint32_t f = 0; f < quant_forms(p->t); f++)
        for (uint32_t t = 0; t < p->tokens; t++) {
            double magnitude = 0;
            for (uint32_t i = 0; i < p->k; i++) magnitude += fabs(x[i] = activation(p, f, t, i));
            p->magnitude[f][t] = magnitude;
            for (uint32_t r = 0; r < QUANT_ROWS; r++) {
                const float *w = p->weights + (uint64_t)r * p->k;
                double sum = 0;
                for (uint32_t i = 0; i < p->k; i++) sum += (double)w[i] * x[i];
                p->sum[f][t * QUANT_ROWS + r] = sum;
            }
        }
}

bool quant_run(struct check *c, const struct quant_problem *p, const char *what, format_product product, uint32_t form,
               uint32_t tile, uint32_t tiles, uint32_t token, uint32_t tokens, float *y, uint64_t y_stride)
{
    memset(y, 0xff, tokens * y_stride * sizeof *y);
    return quant_product(c, what, product,
                         (struct wk_cpu_product){ .activation = quant_activation(form),
                                                  .k = p->k,
                                                  .n_rows = tokens,
                                                  .n_tiles = tiles,
                                                  .x_stride = p->stride[form],
                                                  .y_stride = y_stride,
                                                  .tiles = p->tiles + tile * p->tile_bytes,
                                                  .x = p->x[form] + token * p->stride[form],
                                                  .y = y,
                                                  .scratch = p->scratch });
}

double quant_bound(const struct quant_problem *p, uint32_t form, uint32_t token, uint32_t row)
{
    const double plain = (64 + 0.5 * p->k) * 0x1p-24; /* of k sums in F32, and some roundings more */
    return plain * p->magnitude[form][token] * p->most[row] + p->k * 0x1p-130; /* and what underflows */
}
