/* quant-test/quant_test_product.c: products against float64 of the dequantized weights, and the
 * promise of same bits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <worker/cpu/act_q8.h>

#include "plugin/format.h"
#include "quant_test.h"

enum { MAX_TILES = 3, MAX_TOKENS = 133 };

/* A matrix of up to 48 rows and activations in both forms, each row at an address that is only 8-byte aligned. */
struct problem {
    const struct wk_type_cpu *type;
    uint32_t k, pad;
    uint64_t tile_bytes, stride[2]; /* of x */
    uint8_t *tiles, *x[2];
    float *weights;  /* [48][k] */
    uint8_t rubbish; /* what scratch begins with */
};

/* kind: of rows; activations that go with extreme weights are extreme too, so that no sum of
 * products could be larger. */
static void problem_make(struct problem *p, const struct wk_type_cpu *type, uint32_t k, uint32_t kind, struct noise *s)
{
    *p = (struct problem){ .type = type, .k = k, .tile_bytes = type->tile_bytes(k), .rubbish = 0xff };
    p->tiles = aligned_bytes(MAX_TILES * p->tile_bytes);
    p->weights = aligned_bytes((uint64_t)MAX_TILES * 16 * k * sizeof(float));
    for (uint32_t i = 0; i < MAX_TILES; i++) {
        uint8_t *rows = random_rows(type, k, kind, s);
        const void *from[16];
        for (uint32_t r = 0; r < 16; r++) {
            from[r] = rows + r * row_bytes(type, k);
            format_dequantize(type, p->weights + ((uint64_t)i * 16 + r) * k, from[r], k);
        }
        format_pack(type, p->tiles + i * p->tile_bytes, from, k);
        free(rows);
    }
    const uint32_t blocks = (k + 31) / 32;
    p->stride[0] = ((uint64_t)k * sizeof(float) + 7) / 8 * 8 + 8;
    p->stride[1] = blocks * sizeof(struct wk_activation_q8) + 24;
    for (uint32_t f = 0; f < 2; f++) p->x[f] = (uint8_t *)aligned_bytes(MAX_TOKENS * p->stride[f] + 8) + 8;
    for (uint32_t t = 0; t < MAX_TOKENS; t++) {
        float *x = (float *)(void *)(p->x[0] + t * p->stride[0]);
        for (uint32_t i = 0; i < k; i++)
            x[i] = kind != ROWS_EXTREME  ? noise_gauss(s) * (i % 97 ? 1.0f : 8.0f)
                   : t % 3 == 2 && i % 2 ? 1
                   : t % 3               ? -1.0f
                                         : 1.0f;
        wk_quantize_act_q8(x, k, (struct wk_activation_q8 *)(void *)(p->x[1] + t * p->stride[1]));
    }
}

static void problem_free(struct problem *p)
{
    free(p->tiles);
    free(p->weights);
    free(p->x[0] - 8);
    free(p->x[1] - 8);
}

/* Activation i of token t as the product sees it. */
static double activation(const struct problem *p, uint32_t form, uint32_t t, uint32_t i)
{
    const uint8_t *row = p->x[form] + t * p->stride[form];
    if (form == 0) return (double)((const float *)(const void *)row)[i];
    const struct wk_activation_q8 *b = (const struct wk_activation_q8 *)(const void *)row + i / 32;
    return (double)b->d * b->q[i % 32];
}

/* y: [n_rows][stride], poisoned here; the guard columns past n_tiles must stay poisoned. */
static void run(const struct problem *p, uint32_t isa, uint32_t form, uint32_t tile, uint32_t n_tiles, uint32_t t0,
                uint32_t n_rows, float *y, uint64_t y_stride)
{
    const uint64_t scratch_bytes = p->type->scratch_bytes(p->k);
    void *scratch = aligned_bytes(scratch_bytes);
    memset(scratch, p->rubbish, scratch_bytes);
    memset(y, 0xff, n_rows * y_stride * sizeof *y);
    const struct wk_cpu_product call = { .struct_size = sizeof call,
                                         .activation = form ? WK_ACTIVATION_Q8 : WK_ACTIVATION_F32,
                                         .k = p->k,
                                         .n_rows = n_rows,
                                         .n_tiles = n_tiles,
                                         .x_stride = p->stride[form],
                                         .y_stride = y_stride,
                                         .tiles = p->tiles + tile * p->tile_bytes,
                                         .x = p->x[form] + t0 * p->stride[form],
                                         .y = y,
                                         .scratch = scratch };
    format_product_of(p->type, isa)(&call);
    free(scratch);
    for (uint32_t t = 0; t < n_rows; t++) {
        for (uint64_t j = 16 * n_tiles; j < y_stride; j++) {
            uint32_t bits;
            memcpy(&bits, y + t * y_stride + j, 4);
            assert_int_equal(bits, 0xffffffffu);
        }
    }
}

static void check_against_double(const struct problem *p, uint32_t isa, uint32_t form, uint32_t n_tiles,
                                 uint32_t n_rows)
{
    const uint64_t stride = 16 * n_tiles + 3;
    float *y = aligned_bytes(n_rows * stride * sizeof *y);
    run(p, isa, form, 0, n_tiles, 0, n_rows, y, stride);
    for (uint32_t t = 0; t < n_rows; t++) {
        for (uint32_t row = 0; row < 16 * n_tiles; row++) {
            const float *w = p->weights + (uint64_t)row * p->k;
            double sum = 0, magnitude = 0, most = 1;
            for (uint32_t i = 0; i < p->k; i++) {
                const double x = activation(p, form, t, i);
                sum += (double)w[i] * x;
                magnitude += fabs(x);
                most = fmax(most, fabs((double)w[i]));
            }
            /* Sums, scaled blocks and minima round, relative to the largest weight at most. */
            const double error = fabs((double)y[t * stride + row] - sum), bound = 4e-6 * magnitude * most;
            if (!(error <= bound))
                fail_msg("%s isa %u form %u k %u tiles %u tokens %u: y[%u][%u] = %.9g, expected %.9g", p->type->name,
                         isa, form, p->k, n_tiles, n_rows, t, row, (double)y[t * stride + row], sum);
        }
    }
    free(y);
}

static uint32_t forms(const struct wk_type_cpu *type) { return type->activations & WK_ACTIVATION_Q8 ? 2 : 1; }

/* Row lengths a type can have: the shortest, an odd number of blocks, a longer one; for plain types also any number. */
static uint32_t length(const struct wk_type_cpu *type, uint32_t i)
{
    static const uint32_t blocks32[] = { 32, 96, 896 }, blocks256[] = { 256, 768, 1280 }, plain[] = { 1, 103, 898 };
    return type->block == 256 ? blocks256[i] : type->block == 32 ? blocks32[i] : plain[i];
}

void test_product(void **state)
{
    static const uint32_t tokens[] = { 1, 2, 3, 5, 7, 8, 9, 12, 13, 31, 33, 64, 130 };
    const struct wk_quant *quant = quant_test_plugin();
    struct noise s = { *(uint64_t *)*state };
    for (uint32_t i = 0; i < quant->n_types * 3; i++) {
        struct problem p;
        problem_make(&p, quant->types[i / 3], length(quant->types[i / 3], i % 3), ROWS_GAUSS, &s);
        for (uint32_t isa = 0; isa <= machine_isa(); isa++) {
            if (!format_product_of(p.type, isa)) continue;
            for (uint32_t form = 0; form < forms(p.type); form++) {
                for (uint32_t n = 0; n < sizeof tokens / sizeof *tokens; n++) {
                    /* The double loop is the slow part: all token counts at the short lengths, some at the long one. */
                    if (p.k > 800 && (n % 4 || tokens[n] > 64)) continue;
                    check_against_double(&p, isa, form, 1 + n % MAX_TILES, tokens[n]);
                    if (p.k < 300) check_against_double(&p, isa, form, 1 + (n + 1) % MAX_TILES, tokens[n]);
                }
            }
        }
        problem_free(&p);
    }
}

/* The largest sums that integers and saturating instructions meet, and bit patterns that no encoder makes. */
void test_product_extremes(void **state)
{
    const struct wk_quant *quant = quant_test_plugin();
    struct noise s = { *(uint64_t *)*state };
    for (uint32_t i = 0; i < quant->n_types * 2; i++) {
        struct problem p;
        problem_make(&p, quant->types[i / 2], length(quant->types[i / 2], 1), i % 2 ? ROWS_BITS : ROWS_EXTREME, &s);
        for (uint32_t isa = 0; isa <= machine_isa(); isa++) {
            for (uint32_t form = 0; format_product_of(p.type, isa) && form < forms(p.type); form++) {
                check_against_double(&p, isa, form, 3, 7);
                check_against_double(&p, isa, form, 1, 1);
            }
        }
        problem_free(&p);
    }
}

/* Every split of tiles and tokens gives the bits of the whole call. */
void test_product_same_bits(void **state)
{
    static const uint32_t splits[] = { 1, 2, 3, 5, 7, 8, 9, 12, 13, 31, 33, 64, MAX_TOKENS };
    const struct wk_quant *quant = quant_test_plugin();
    struct noise s = { *(uint64_t *)*state };
    for (uint32_t i = 0; i < quant->n_types; i++) {
        struct problem p;
        problem_make(&p, quant->types[i], length(quant->types[i], 2), ROWS_GAUSS, &s);
        const uint64_t stride = 16 * MAX_TILES;
        float *whole = aligned_bytes(MAX_TOKENS * stride * sizeof *whole),
              *part = aligned_bytes(MAX_TOKENS * stride * sizeof *part);
        for (uint32_t isa = 0; isa <= machine_isa(); isa++) {
            for (uint32_t form = 0; format_product_of(p.type, isa) && form < forms(p.type); form++) {
                run(&p, isa, form, 0, MAX_TILES, 0, MAX_TOKENS, whole, stride);
                for (uint32_t n = 0; n < sizeof splits / sizeof *splits * MAX_TILES; n++) {
                    const uint32_t step = splits[n / MAX_TILES], tiles = 1 + n % MAX_TILES,
                                   tile = n % 2 * (MAX_TILES - tiles);
                    const uint32_t t0 = step < MAX_TOKENS ? (n * 11) % (MAX_TOKENS - step) : 0;
                    run(&p, isa, form, tile, tiles, t0, step, part, 16 * tiles);
                    for (uint32_t t = 0; t < step; t++)
                        assert_memory_equal(part + (uint64_t)t * 16 * tiles, whole + (t0 + t) * stride + 16 * tile,
                                            16 * tiles * sizeof *part);
                }
            }
        }
        free(whole);
        free(part);
        problem_free(&p);
    }
}

/* A hundred runs, each with something else in the memory to work in: the same bits. */
void test_product_repeats(void **state)
{
    enum { RUNS = 100, TOKENS = 5, STRIDE = 16 * MAX_TILES };
    const struct wk_quant *quant = quant_test_plugin();
    struct noise s = { *(uint64_t *)*state };
    for (uint32_t i = 0; i < quant->n_types; i++) {
        struct problem p;
        float first[TOKENS * STRIDE], again[TOKENS * STRIDE];
        problem_make(&p, quant->types[i], length(quant->types[i], 1), ROWS_GAUSS, &s);
        for (uint32_t isa = 0; isa <= machine_isa(); isa++) {
            for (uint32_t form = 0; format_product_of(p.type, isa) && form < forms(p.type); form++) {
                run(&p, isa, form, 0, MAX_TILES, 0, TOKENS, first, STRIDE);
                for (uint32_t n = 1; n < RUNS; n++) {
                    p.rubbish = (uint8_t)(n * 37);
                    run(&p, isa, form, 0, MAX_TILES, 0, TOKENS, again, STRIDE);
                    if (memcmp(first, again, sizeof first) != 0)
                        fail_msg("%s isa %u form %u: run %u has other bits than the first", p.type->name, isa, form, n);
                }
            }
        }
        problem_free(&p);
    }
}

/* A token that is not finite poisons its own row of results and no other. */
void test_product_nan(void **state)
{
    const struct wk_quant *quant = quant_test_plugin();
    struct noise s = { *(uint64_t *)*state };
    for (uint32_t i = 0; i < quant->n_types; i++) {
        struct problem p;
        problem_make(&p, quant->types[i], length(quant->types[i], 1), ROWS_GAUSS, &s);
        float *x = (float *)(void *)(p.x[0] + 2 * p.stride[0]), y[5 * 32];
        x[p.k - 1] = i % 2 ? NAN : INFINITY;
        wk_quantize_act_q8(x, p.k, (struct wk_activation_q8 *)(void *)(p.x[1] + 2 * p.stride[1]));
        for (uint32_t isa = 0; isa <= machine_isa(); isa++) {
            for (uint32_t form = 0; format_product_of(p.type, isa) && form < forms(p.type); form++) {
                run(&p, isa, form, 0, 2, 0, 5, y, 32);
                for (uint32_t j = 0; j < 5 * 32; j++) assert_int_equal(!isfinite(y[j]), j / 32 == 2);
            }
        }
        problem_free(&p);
    }
}
