/* test_attend.cuh: what the tests of attention have in common: what a sequence holds, tables of pages, the arrays of a
 * batch, and its results. */
#ifndef CORE_DEVICE_CUDA_TEST_ATTEND_CUH
#define CORE_DEVICE_CUDA_TEST_ATTEND_CUH

#include "device/cuda/kernels.h"
#include "device/cuda/test_device.cuh"

struct sequence {
    uint32_t name, past, rows;
}; /* rows at positions past .. */

enum how { STORE, FEW, PROMPT };

enum { MOST_ROWS = 1024 };

/* ---- what a sequence holds: a function of its name and the position ------------------------------------- */

static inline uint32_t mixed(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t h = a * 2654435761u ^ b * 2246822519u ^ c * 3266489917u;
    h ^= h >> 15;
    h *= 2246822519u;
    h ^= h >> 13;
    h *= 3266489917u;
    return h ^ h >> 16;
}
/* Value i of q (0), k (1) or v (2) at a position. */
static inline float input(uint32_t name, uint32_t position, uint32_t which, uint32_t i)
{
    return (which == 2 ? 1.0f : 1.5f) * ((float)(mixed(name * 4 + which, position, i) >> 8) / 8388608.0f - 1.0f);
}
/* Turns of a position: cosines and sines of n pairs. Kept for the n asked for last. */
static inline const double *rope_of(uint32_t position, uint32_t n)
{
    enum { POSITIONS = 3072, MOST_TURNS = 128 };
    static double kept[POSITIONS][2 * MOST_TURNS];
    static uint32_t kept_n;
    assert_true(position < POSITIONS && n <= MOST_TURNS);
    if (kept_n != n)
        for (uint32_t i = 0; i < n; i++) {
            const double frequency = pow(10000.0, -(double)i / n);
            for (uint32_t p = 0; p < POSITIONS; p++) {
                kept[p][2 * i] = cos(p * frequency);
                kept[p][2 * i + 1] = sin(p * frequency);
            }
        }
    kept_n = n;
    return kept[position];
}
static const float norm_eps = 1e-5f;

/* Norm (CUDA_NORM_*) of a head's d values, in double; b NULL: none. */
static inline void norm_head(double *y, uint32_t d, uint32_t norm, const float *w, const float *b)
{
    double mean = 0, square = 0;
    if (norm == CUDA_NORM_NONE) return;
    if (norm == CUDA_NORM_LAYER)
        for (uint32_t i = 0; i < d; i++) mean += y[i] / d;
    for (uint32_t i = 0; i < d; i++) square += (y[i] - mean) * (y[i] - mean) / d;
    for (uint32_t i = 0; i < d; i++) y[i] = (y[i] - mean) / sqrt(square + norm_eps) * w[i] + (b ? b[i] : 0);
}
/* Rotation of its first n pairs, in double. */
static inline void rope_head(double *y, uint32_t position, uint32_t n, uint32_t style)
{
    for (uint32_t i = 0; i < n; i++) {
        const double c = rope_of(position, n)[2 * i], s = rope_of(position, n)[2 * i + 1];
        const uint32_t ia = style == WK_ROPE_INTERLEAVED ? 2 * i : i,
                       ib = style == WK_ROPE_INTERLEAVED ? 2 * i + 1 : i + n;
        const double x = y[ia], z = y[ib];
        y[ia] = x * c - z * s;
        y[ib] = x * s + z * c;
    }
}
static inline double as_half(double x) { return half_value(half_bits((float)x)); }

/* ---- pages --------------------------------------------------------------------------------------------- */

/* Tables of n pages in all, which are some of n + SPARE_PAGES. shuffle: how they lie. On the host alone. */
enum { SPARE_PAGES = 3 };
static inline array<uint32_t> make_table(uint32_t n, uint32_t shuffle)
{
    const uint32_t pages = n + SPARE_PAGES;
    array<uint32_t> table = make<uint32_t>(n);
    uint32_t *order = (uint32_t *)malloc(pages * sizeof *order);
    for (uint32_t i = 0; i < pages; i++) order[i] = i;
    for (uint32_t i = pages - 1; i > 0; i--) {
        const uint32_t j = mixed(shuffle, i, 7) % (i + 1), x = order[i];
        order[i] = order[j];
        order[j] = x;
    }
    memcpy(table.host, order, n * sizeof *order);
    free(order);
    return table;
}
/* The tables of a batch's n sequences, of `stride` pages each, in the batch's order; tables[i]: which one sequence i
 * has. Those of `seqs` - n more sequences are not set. */
static inline array<uint32_t> make_pages(const array<uint32_t> *table, uint32_t stride, const uint32_t *tables,
                                         uint32_t n, uint32_t seqs)
{
    array<uint32_t> pages = make<uint32_t>((size_t)seqs * stride);
    for (uint32_t i = 0; i < n; i++)
        memcpy(pages.host + (size_t)i * stride, table->host + (size_t)tables[i] * stride, stride * 4);
    send(&pages);
    return pages;
}

/* Has `store` bring the sequence's past into the cache, in chunks; of a ring of pages only what it holds. */
template <class F> static void store_past(const struct sequence *s, uint32_t ring, F store)
{
    const uint32_t keep = ring ? (ring - 1) * KV_PAGE : UINT32_MAX;
    for (uint32_t at = s->past > keep ? s->past - keep : 0, rows; at < s->past; at += rows) {
        rows = s->past - at < (uint32_t)MOST_ROWS ? s->past - at : (uint32_t)MOST_ROWS;
        const struct sequence chunk = { s->name, at, rows };
        store(&chunk);
    }
}

/* ---- rows of a batch ----------------------------------------------------------------------------------- */

/* The sequences' rows follow each other; behind them come `padding` rows, and as many sequences without any. rows: of
 * all. */
static inline array<struct cuda_seq> make_seqs(const struct sequence *s, uint32_t n, uint32_t padding, uint32_t *rows)
{
    array<struct cuda_seq> seq = make<struct cuda_seq>(n + padding);
    *rows = 0;
    for (uint32_t i = 0; i < n; i++) {
        seq.host[i] = cuda_seq{ *rows, s[i].rows, s[i].past, 0 };
        *rows += s[i].rows;
    }
    for (uint32_t i = n; i < n + padding; i++) seq.host[i] = cuda_seq{ *rows, 0, 0, 0 };
    *rows += padding;
    send(&seq);
    return seq;
}
/* q (0), k (1) or v (2) of the rows. */
static inline array<float> make_inputs(const struct sequence *s, uint32_t n, uint32_t rows, uint32_t which,
                                       uint32_t width)
{
    array<float> x = make<float>((size_t)rows * width);
    float *to = x.host;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < s[i].rows; r++)
            for (uint32_t j = 0; j < width; j++) *to++ = input(s[i].name, s[i].past + r, which, j);
    send(&x);
    return x;
}
/* RoPE table of so many pairs of the rows. */
static inline array<float> make_rope_table(const struct sequence *s, uint32_t n, uint32_t rows, uint32_t pairs)
{
    array<float> x = make<float>((size_t)rows * pairs * 2 + 2);
    float *to = x.host;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t r = 0; r < s[i].rows; r++)
            for (uint32_t j = 0; j < 2 * pairs; j++) *to++ = (float)rope_of(s[i].past + r, pairs)[j];
    send(&x);
    return x;
}

/* ---- results ------------------------------------------------------------------------------------------- */

enum { RESULT_SHIFT = 3 }; /* of acts */

/* Rows of `width` values. plain: F32; else acts. */
struct results {
    array<float> out;
    array<uint16_t> act;
    uint32_t width;
    bool plain;
};
static inline struct results make_results(uint32_t rows, uint32_t width, bool plain)
{
    return results{ make<float>((size_t)rows * width), make<uint16_t>((size_t)rows * wk_act_k(width)), width, plain };
}
static inline void receive_results(const struct results *y)
{
    receive(&y->act);
    receive(&y->out);
}
static inline void drop_results(struct results *y)
{
    drop(&y->act);
    drop(&y->out);
}
static inline void ask_results(struct cuda_attend *a, const struct results *y)
{
    a->shift = RESULT_SHIFT;
    a->out = y->plain ? y->out.device : NULL;
    a->out_stride = y->width;
    a->act = y->plain ? NULL : y->act.device;
}
static inline double result(const struct results *y, uint32_t row, uint32_t i)
{
    return y->plain ? y->out.host[(size_t)row * y->width + i]
                    : (1 << RESULT_SHIFT) * (double)half_value(y->act.host[(size_t)row * wk_act_k(y->width) + i]);
}
static inline uint32_t row_bytes(const struct results *y) { return y->plain ? y->width * 4 : wk_act_k(y->width) * 2; }
static inline const char *row_bits_of(const struct results *y, uint32_t row)
{
    const void *host = y->plain ? (const void *)y->out.host : (const void *)y->act.host;
    return (const char *)host + (size_t)row * row_bytes(y);
}
/* An act has zeros past the row. */
static inline void check_tail(const struct results *y, uint32_t row)
{
    const uint32_t k = wk_act_k(y->width);
    for (uint32_t i = y->width; i < k && !y->plain; i++) assert_int_equal(y->act.host[(size_t)row * k + i], 0);
}
/* Relative error, by norms, of a row's values from `first` on; they should be the n of x, each by `sum`. */
static inline double relative_error(const struct results *y, uint32_t row, uint32_t first, const double *x, uint32_t n,
                                    double sum)
{
    double wrong = 0, size = 0;
    for (uint32_t i = 0; i < n; i++) {
        const double d = result(y, row, first + i) - x[i] / sum;
        wrong += d * d;
        size += x[i] / sum * (x[i] / sum);
    }
    return sqrt(wrong) <= 1e30 ? sqrt(wrong / size) : INFINITY;
}

#endif
