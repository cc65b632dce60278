/* quant_values.c: what a format's blocks mean, and how they are made. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/known.h"
#include "check/quant.h"
#include "gguf/gguf.h"

/* The same bits; any NaN is as good as another. */
static bool same(float a, float b) { return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b)); }

/* n blocks of random bits, of which the k-th is the type's k-th edge block as long as there are some, from edge `first`
 * on. */
static uint8_t *make_blocks(struct check *c, const struct wk_type_cpu *t, uint32_t n, uint32_t first,
                            struct check_draw *d)
{
    uint8_t *blocks = quant_memory(c, (uint64_t)n * t->block_bytes);
    quant_bytes(d, blocks, (uint64_t)n * t->block_bytes);
    for (uint32_t i = 0; i < n && first + i < quant_edges(t); i++)
        quant_edge_block(t, first + i, blocks + (uint64_t)i * t->block_bytes);
    return blocks;
}

/* Blocks that a check looks at: those with edges, and as many again of any bits, within reason. */
static uint32_t blocks_of(const struct wk_type_cpu *t)
{
    const uint32_t all = 4096 + 2 * quant_edges(t), most = (1u << 22) / t->block;
    return all < most ? all : most + 1;
}

/* ---- dequantize ---------------------------------------------------------------------------------------- */

static void check_exact(struct check *c, const struct wk_type_cpu *t)
{
    struct check_draw d = { 0x2545f4914f6cdd1du };
    char what[QUANT_TEXT];
    const uint32_t n = blocks_of(t);
    float *y = quant_memory(c, (uint64_t)n * t->block * sizeof *y), *known = quant_memory(c, t->block * sizeof *known);
    const uint8_t *blocks = make_blocks(c, t, n, 0, &d);
    if (!known_values(t->ggml_type, blocks, known)) return;
    (void)snprintf(what, sizeof what, "type %s: dequantize", t->name);
    if (!quant_dequantize(c, what, t, y, blocks, (uint64_t)n * t->block)) return;
    for (uint32_t b = 0; b < n; b++) {
        (void)known_values(t->ggml_type, blocks + (uint64_t)b * t->block_bytes, known);
        for (uint32_t i = 0; i < t->block; i++) {
            const float got = y[(uint64_t)b * t->block + i];
            if (same(got, known[i])) continue;
            check_fail(c,
                       "%s: value %u of a block is %a, expected %a, as ggml defines the type: every rounding counts, "
                       "and so does the order of operations",
                       what, i, (double)got, (double)known[i]);
            return;
        }
    }
}

static bool has_reference(struct check *c, const struct wk_type_cpu *t)
{
    uint8_t *block = quant_memory(c, t->block_bytes);
    uint32_t values, bytes;
    if (!gguf_ggml_block(t->ggml_type, &values, &bytes)) return false;
    return known_values(t->ggml_type, block, quant_memory(c, (uint64_t)values * sizeof(float)));
}

void quant_check_exact(struct check *c)
{
    uint32_t known = 0;
    for (uint32_t i = 0; i < c->quant->n_types; i++) {
        if (!has_reference(c, c->quant->types[i])) continue;
        known++;
        check_exact(c, c->quant->types[i]);
    }
    if (!known) check_skip(c, "none of its types is one of ggml's that this worker has a reference of");
}

/* y of a part of the blocks against what all of them gave. */
static bool part_is_same(struct check *c, const struct wk_type_cpu *t, const uint8_t *blocks, const float *all,
                         uint32_t first, uint32_t n, uint32_t off)
{
    char what[QUANT_TEXT];
    uint8_t *copy = quant_memory(c, (uint64_t)n * t->block_bytes + off);
    const uint64_t values = (uint64_t)n * t->block;
    float *y = quant_memory(c, values * sizeof *y);
    memcpy(copy + off, blocks + (uint64_t)first * t->block_bytes, (uint64_t)n * t->block_bytes);
    memset(y, 0x5a, values * sizeof *y);
    (void)snprintf(what, sizeof what, "type %s: dequantize of %u blocks", t->name, n);
    if (!quant_dequantize(c, what, t, y, copy + off, values)) return false;
    for (uint64_t i = 0; i < values; i++) {
        const float expected = all[(uint64_t)first * t->block + i];
        if (same(y[i], expected)) continue;
        check_fail(c,
                   "%s at an address of %u modulo 64: value %" PRIu64 " is %a, expected %a, as of all blocks together: "
                   "a value depends on its own block alone",
                   what, off, i, (double)y[i], (double)expected);
        return false;
    }
    return true;
}

static void check_blocks(struct check *c, const struct wk_type_cpu *t)
{
    struct check_draw d = { 0x853c49e6748fea9bu };
    char what[QUANT_TEXT];
    const uint32_t n = blocks_of(t), singles = n < 4096 ? n : 4096;
    float *all = quant_memory(c, (uint64_t)n * t->block * sizeof *all);
    const uint8_t *blocks = make_blocks(c, t, n, 0, &d);
    (void)snprintf(what, sizeof what, "type %s: dequantize of %u blocks", t->name, n);
    if (!quant_dequantize(c, what, t, all, blocks, (uint64_t)n * t->block)) return;
    for (uint32_t b = 0; b < singles; b++)
        if (!part_is_same(c, t, blocks, all, b, 1, b % 64)) return;
    for (uint32_t first = 0, step = 1; first < n; first += step, step = step * 2 + 1)
        if (!part_is_same(c, t, blocks, all, first, step < n - first ? step : n - first, step % 7)) return;
}

void quant_check_blocks(struct check *c) { quant_each_type(c, check_blocks); }

/* ---- quantize ------------------------------------------------------------------------------------------ */

/* Values as weights are, with rows of different sizes. */
static float *make_values(struct check *c, uint64_t n, uint32_t row_length, struct check_draw *d)
{
    float *x = quant_memory(c, n * sizeof *x);
    for (uint64_t i = 0; i < n; i++) x[i] = quant_gauss(d) * (1.0f + (float)(i / row_length % 3)) * 0.25f + 0.01f;
    return x;
}

/* Encodes, and says so if that does not succeed. *none: the type has no encoder, and says that. */
static bool encode(struct check *c, const char *what, const struct wk_type_cpu *t, const float *x, uint64_t n,
                   uint32_t row_length, const float *importance, uint8_t *blocks, bool *none)
{
    char text[QUANT_TEXT];
    wk_status status;
    *none = false;
    if (!quant_quantize(c, what, t,
                        (struct wk_quantize){
                            .row_length = row_length, .n = n, .x = x, .importance = importance, .blocks = blocks },
                        &status, text, sizeof text))
        return false;
    *none = status == WK_UNSUPPORTED && text[0];
    if (*none)
        check_skip(c, "type %s has no encoder: %s", t->name, text);
    else if (status != WK_OK)
        check_fail(c, "%s: status %d, \"%s\"; expected to take moderate values", what, status, text);
    return status == WK_OK;
}

/* The value at index `at` is `bad`: its index is in the text. That it is refused at all is errors.finite's. */
static bool names_index(struct check *c, const struct wk_type_cpu *t, float *x, uint64_t n, uint64_t at, float bad)
{
    char what[QUANT_TEXT], text[QUANT_TEXT], number[24];
    wk_status status;
    uint8_t *blocks = quant_memory(c, quant_row_bytes(t, (uint32_t)n));
    const float kept = x[at];
    x[at] = bad;
    (void)snprintf(what, sizeof what, "type %s: quantize of %g as value %" PRIu64 " of %" PRIu64, t->name, (double)bad,
                   at, n);
    if (!quant_quantize(c, what, t, (struct wk_quantize){ .row_length = (uint32_t)n, .n = n, .x = x, .blocks = blocks },
                        &status, text, sizeof text))
        return false;
    x[at] = kept;
    (void)snprintf(number, sizeof number, "%" PRIu64, at);
    if (status == WK_UNSUPPORTED && text[0]) {
        check_skip(c, "type %s has no encoder: %s", t->name, text);
        return false;
    }
    if (status == WK_OK || (status == WK_INVALID && strstr(text, number))) return true;
    check_fail(c,
               "%s: status %d, \"%s\"; expected WK_INVALID (%d) and the value's index in the text, as wk_check_finite "
               "of worker/cpu/encode.h says it",
               what, status, text, WK_INVALID);
    return false;
}

static void check_index(struct check *c, const struct wk_type_cpu *t)
{
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    struct check_draw d = { 0xda3e39cb94b95bdbu };
    const uint32_t n = t->block == 1 ? 97 : 3 * t->block;
    float *x = make_values(c, n, n, &d);
    const uint64_t places[] = { 0, n / 2, n - 1 };
    for (uint32_t i = 0; i < 9; i++)
        if (!names_index(c, t, x, n, places[i / 3], bad[i % 3])) return;
}

void quant_check_index(struct check *c) { quant_each_type(c, check_index); }

enum { ROWS = 3 };

/* Rows together and one by one, with the importance of their columns. */
static bool rows_are_alone(struct check *c, const struct wk_type_cpu *t, uint32_t k, const float *importance,
                           const char *with, struct check_draw *d)
{
    char what[QUANT_TEXT];
    bool none;
    const uint64_t bytes = quant_row_bytes(t, k);
    const float *x = make_values(c, (uint64_t)ROWS * k, k, d);
    uint8_t *together = quant_memory(c, ROWS * bytes), *alone = quant_memory(c, bytes);
    memset(together, 0xa5, ROWS * bytes);
    (void)snprintf(what, sizeof what, "type %s: quantize of %d rows of %u values with %s", t->name, ROWS, k, with);
    if (!encode(c, what, t, x, (uint64_t)ROWS * k, k, importance, together, &none)) return false;
    for (uint32_t r = 0; r < ROWS; r++) {
        memset(alone, 0x5a, bytes);
        if (!encode(c, what, t, x + (uint64_t)r * k, k, k, importance, alone, &none)) return false;
        if (memcmp(alone, together + r * bytes, bytes) == 0) continue;
        check_fail(c,
                   "%s: row %u has other bytes than when it is encoded alone; expected each row to be encoded by "
                   "itself, importance[i] being that of column i of every row",
                   what, r);
        return false;
    }
    return true;
}

static void check_rows(struct check *c, const struct wk_type_cpu *t)
{
    struct check_draw d = { 0xca01f9dd51c2e6a3u };
    for (uint32_t i = 0; i < QUANT_LENGTHS; i++) {
        const uint32_t k = quant_length(t, i);
        float *importance = quant_memory(c, (uint64_t)ROWS * k * sizeof *importance); /* more are memory.encode's */
        if (!rows_are_alone(c, t, k, NULL, "no importance", &d)) return;
        if (!rows_are_alone(c, t, k, importance, "an importance of 0 everywhere", &d)) return;
        for (uint32_t j = 0; j < k; j++) importance[j] = (float)(check_draw(&d, 1000) * check_draw(&d, 3)) * 0x1p-11f;
        if (!rows_are_alone(c, t, k, importance, "importance", &d)) return;
    }
}

void quant_check_rows(struct check *c) { quant_each_type(c, check_rows); }

/* The root mean square of what comes back, less what was given, as a share of what was given. */
static double error_of(const float *x, const float *y, uint64_t n)
{
    double error = 0, size = 0;
    for (uint64_t i = 0; i < n; i++) {
        const double e = (double)y[i] - (double)x[i];
        error += e * e;
        size += (double)x[i] * (double)x[i];
    }
    return sqrt(error / size);
}

/* There and back; zeros stay zeros. */
static void check_near(struct check *c, const struct wk_type_cpu *t)
{
    struct check_draw d = { 0x14057b7ef767814fu };
    char what[2][QUANT_TEXT];
    bool none;
    const uint32_t k = quant_length(t, QUANT_LENGTHS - 1);
    float *x = make_values(c, k, k, &d), *y = quant_memory(c, k * sizeof *y);
    uint8_t *blocks = quant_memory(c, quant_row_bytes(t, k));
    (void)snprintf(what[0], QUANT_TEXT, "type %s: quantize of %u values", t->name, k);
    (void)snprintf(what[1], QUANT_TEXT, "type %s: dequantize of %u values", t->name, k);
    if (!encode(c, what[0], t, x, k, k, NULL, blocks, &none) || !quant_dequantize(c, what[1], t, y, blocks, k)) return;
    const double error = error_of(x, y, k);
    if (!(error < 0.75)) {
        check_fail(c,
                   "%s, then dequantize: what comes back differs from what was given by %.3g of it (root mean square); "
                   "expected less than 0.75",
                   what[0], error);
        return;
    }
    memset(x, 0, k * sizeof *x);
    if (!encode(c, what[0], t, x, k, k, NULL, blocks, &none) || !quant_dequantize(c, what[1], t, y, blocks, k)) return;
    for (uint32_t i = 0; i < k; i++) {
        if (fabsf(y[i]) <= 0x1p-20f) continue;
        check_fail(c, "type %s: zeros come back as %g from quantize and dequantize, expected 0", t->name, (double)y[i]);
        return;
    }
    check_note(c, "type %s: %.2f bits a value, error of Gaussian values %.4f", t->name, 8.0 * t->block_bytes / t->block,
               error);
}

void quant_check_near(struct check *c) { quant_each_type(c, check_near); }
