/* quant_speed.c: how fast a format's products are, for its author to see. Nothing is judged by it. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/read_memory.h"
#include "check/quant.h"

enum { PASSES = 5, K = 4096, MANY = QUANT_TOKENS };
#define ENOUGH 0.1                     /* seconds; one pass in any case */
#define ONE_BYTES ((uint64_t)24 << 20) /* of weights, for one row of activations: more than caches near a core hold */
#define MANY_BYTES ((uint64_t)1 << 18)

static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Bytes a second that one thread reads, the best way and pass. p: 64-byte aligned. */
static double read_speed(const uint8_t *p, uint64_t bytes)
{
    const uint64_t whole = bytes / READ_UNIT * READ_UNIT;
    double best = 0;
    for (uint32_t i = 0; i < PASSES * READ_WAYS; i++) {
        volatile uint64_t seen;
        const double start = seconds();
        seen = read_memory(i % READ_WAYS, p, whole);
        (void)seen;
        best = fmax(best, (double)whole / (seconds() - start));
    }
    return best;
}

/* The first tile of the problem's matrix over and over. */
static uint8_t *many_tiles(struct check *c, const struct quant_problem *p, uint32_t n)
{
    uint8_t *tiles = quant_memory(c, n * p->tile_bytes);
    for (uint32_t i = 0; i < n; i++) memcpy(tiles + i * p->tile_bytes, p->tiles, p->tile_bytes);
    return tiles;
}

/* Seconds of a product of n tiles with `tokens` rows, the best of some passes; negative: a fault. */
static double time_product(struct check *c, const struct quant_problem *p, format_product product, uint32_t form,
                           const uint8_t *tiles, uint32_t n, uint32_t tokens)
{
    double best = INFINITY;
    const uint64_t stride = (uint64_t)n * WK_TILE_ROWS;
    float *y = quant_memory(c, tokens * stride * sizeof *y);
    const double began = seconds();
    for (uint32_t i = 0; i < PASSES && seconds() - began < ENOUGH; i++) {
        const double start = seconds();
        if (!quant_product(c, "product", product,
                           (struct wk_cpu_product){ .activation = quant_activation(form),
                                                    .k = p->k,
                                                    .n_rows = tokens,
                                                    .n_tiles = n,
                                                    .x_stride = p->stride[form],
                                                    .y_stride = stride,
                                                    .tiles = tiles,
                                                    .x = p->x[form],
                                                    .y = y,
                                                    .scratch = p->scratch }))
            return -1;
        best = fmin(best, seconds() - start);
    }
    return best;
}

static void check_speed(struct check *c, const struct wk_type_cpu *t)
{
    struct check_draw d = { 0xeb44accab455d165u };
    struct quant_problem p;
    const uint32_t k = t->block > K ? t->block : K / t->block * t->block, form = quant_forms(t) - 1;
    uint32_t isa = FORMAT_ISAS;
    while (isa > 0 && !quant_product_of(c, t, --isa)) {}
    const format_product product = quant_product_of(c, t, isa);
    if (!product || !quant_problem_make(c, &p, t, k, MANY, QUANT_PLAIN, &d)) return;
    const uint32_t n_one = (uint32_t)(ONE_BYTES / p.tile_bytes) + 1, n_many = (uint32_t)(MANY_BYTES / p.tile_bytes) + 1;
    const uint8_t *tiles = many_tiles(c, &p, n_one);
    const double memory = read_speed(tiles, n_one * p.tile_bytes),
                 one = time_product(c, &p, product, form, tiles, n_one, 1),
                 many = one < 0 ? -1 : time_product(c, &p, product, form, tiles, n_many, MANY);
    if (many < 0) return;
    check_note(
        c,
        "type %s for %s, one thread: 1 row %.1f GB/s of weights, where memory gives %.1f; 64 rows %.1f rows/s of "
        "a billion weights",
        t->name, plugin_isa_name(isa), (double)(n_one * p.tile_bytes) / one * 1e-9, memory * 1e-9,
        MANY * (double)n_many * WK_TILE_ROWS * k * 1e-9 / many);
}

void performance_check_product(struct check *c) { quant_each_type(c, check_speed); }
