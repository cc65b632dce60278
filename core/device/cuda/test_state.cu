/* test_state.cu: states against float64, and bits: the same however the rows are cut into steps and runs, whatever
 * pages the blocks have or lack, beside other sequences and padding; full pages stay as they are. */
#include "device/cuda/kernels.h"
#include "device/cuda/test_device.cuh"

enum {
    N = 150,
    BLOCKS = (N + KV_PAGE - 1) / KV_PAGE,
    SEQS = 2,
    PAGES = 64,
    MOST_ROWS = 2 * N + 1,
    RING = 7,
    INPUTS = 5
};

struct shape {
    uint32_t kind, kernel, heads, groups, dk, dv, width;
};
static const struct shape shapes[] = {
    { WK_STATE_CONV, 4, 0, 0, 0, 0, 300 },     { WK_STATE_CONV, 1, 0, 0, 0, 0, 5 },
    { WK_STATE_CONV, 64, 0, 0, 0, 0, 130 },    { WK_STATE_SCAN, 0, 4, 2, 16, 16, 64 },
    { WK_STATE_SCAN, 0, 3, 1, 128, 64, 192 },  { WK_STATE_SCAN, 0, 2, 2, 18, 20, 40 },
    { WK_STATE_SCAN, 0, 1, 1, 256, 256, 256 }, { WK_STATE_SCAN, 0, 5, 5, 1, 1, 5 },
    { WK_STATE_DELTA, 0, 2, 1, 64, 72, 144 },  { WK_STATE_DELTA, 0, 3, 3, 41, 7, 21 },
    { WK_STATE_DELTA, 0, 1, 1, 200, 16, 16 },  { WK_STATE_DELTA, 0, 2, 2, 128, 128, 256 },
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static uint32_t input_width(const struct shape *s, uint32_t i)
{
    if (s->kind == WK_STATE_CONV) return i ? 0 : s->width;
    return i < 2 ? s->groups * s->dk : i == 2 ? s->width : i == 3 || s->kind == WK_STATE_DELTA ? s->heads : 0;
}

/* The inputs of every row of every sequence. */
struct numbers {
    float *x[SEQS][INPUTS], *w, *b;
};
static struct numbers make_numbers(const struct shape *s)
{
    struct numbers n = {};
    for (uint32_t q = 0; q < SEQS; q++)
        for (uint32_t i = 0; i < INPUTS; i++) {
            const uint32_t width = input_width(s, i);
            n.x[q][i] = (float *)calloc((size_t)N * width + 1, sizeof(float));
            for (size_t e = 0; e < (size_t)N * width; e++) {
                const float v = noise(1);
                n.x[q][i][e] = i == 1 ? v / sqrtf((float)s->dk) : i == 3 ? -fabsf(v) : i == 4 ? fabsf(v) : v;
            }
        }
    const size_t kernel = s->kernel ? s->kernel : 1;
    n.w = (float *)calloc(s->width * kernel, sizeof(float));
    n.b = (float *)calloc(s->width, sizeof(float));
    for (size_t e = 0; e < s->width * kernel; e++) n.w[e] = noise(1);
    for (size_t e = 0; e < s->width; e++) n.b[e] = noise(1);
    return n;
}
static void free_numbers(struct numbers *n)
{
    for (uint32_t q = 0; q < SEQS; q++)
        for (uint32_t i = 0; i < INPUTS; i++) free(n->x[q][i]);
    free(n->w);
    free(n->b);
}

/* ---- float64 ------------------------------------------------------------------------------------------- */

static void conv_reference(const struct shape *s, const struct numbers *n, uint32_t q, double *y)
{
    for (uint32_t t = 0; t < N; t++)
        for (uint32_t c = 0; c < s->width; c++) {
            double sum = (double)n->b[c];
            for (uint32_t i = 0; i < s->kernel; i++)
                if (t + i + 1 >= s->kernel)
                    sum += (double)n->w[c * s->kernel + i] * (double)n->x[q][0][(t + i + 1 - s->kernel) * s->width + c];
            y[(size_t)t * s->width + c] = sum;
        }
}
static void scan_reference(const struct shape *s, const struct numbers *n, uint32_t q, double *y)
{
    double *state = (double *)calloc((size_t)s->width * s->dk, sizeof *state);
    for (uint32_t t = 0; t < N; t++)
        for (uint32_t c = 0; c < s->width; c++) {
            const uint32_t h = c / s->dv, key = h / (s->heads / s->groups) * s->dk;
            const float *qr = n->x[q][0] + (size_t)t * s->groups * s->dk + key,
                        *kr = n->x[q][1] + (size_t)t * s->groups * s->dk + key;
            double *row = state + (size_t)c * s->dk, told = 0, sum = 0,
                   u = (double)n->x[q][2][(size_t)t * s->width + c];
            const double decay = exp((double)n->x[q][3][t * s->heads + h]);
            for (uint32_t i = 0; i < s->dk; i++) told += (row[i] *= decay) * (double)kr[i];
            if (s->kind == WK_STATE_DELTA) u = (double)n->x[q][4][t * s->heads + h] * (u - told);
            for (uint32_t i = 0; i < s->dk; i++) sum += (row[i] += u * (double)kr[i]) * (double)qr[i];
            y[(size_t)t * s->width + c] = sum;
        }
    free(state);
}

/* ---- runs ---------------------------------------------------------------------------------------------- */

struct sequence {
    uint32_t position, page[BLOCKS]; /* UINT32_MAX: none */
};
struct bench {
    const struct shape *shape;
    const struct numbers *n;
    struct cuda_state call;
    struct cuda_batch batch;
    array<float> x[INPUTS], w, b, y, cache;
    array<struct cuda_seq> seq;
    array<int32_t> row_seq;
    array<uint32_t> table;
    uint64_t stride[INPUTS], y_stride;
    uint32_t next_page, ring;
    struct sequence s[SEQS];
    float *out[SEQS]; /* [N][width] */
};

static void bench_open(struct bench *b, const struct shape *s, const struct numbers *n, uint32_t ring)
{
    *b = bench{};
    b->shape = s;
    b->n = n;
    b->ring = ring;
    struct cuda_state *a = &b->call;
    a->kind = s->kind;
    a->width = s->width;
    a->kernel = s->kernel;
    a->heads = s->heads;
    a->groups = s->groups;
    a->dk = s->dk;
    a->dv = s->dv;
    a->ring_pages = ring;
    a->batch = &b->batch;
    for (uint32_t i = 0; i < INPUTS; i++) {
        b->stride[i] = (input_width(s, i) + 15) / 16 * 16;
        b->x[i] = make<float>(MOST_ROWS * b->stride[i] + 1);
        a->x[i] = b->x[i].device;
        a->x_stride[i] = b->stride[i];
    }
    b->y_stride = (s->width + 15) / 16 * 16;
    b->y = make<float>(MOST_ROWS * b->y_stride);
    b->w = make<float>((size_t)s->width * (s->kernel ? s->kernel : 1));
    b->b = make<float>(s->width);
    memcpy(b->w.host, n->w, b->w.n * sizeof(float));
    memcpy(b->b.host, n->b, b->b.n * sizeof(float));
    send(&b->w);
    send(&b->b);
    b->cache = make<float>(PAGES * cuda_state_page_bytes(a) / sizeof(float));
    b->seq = make<struct cuda_seq>(MOST_ROWS);
    b->row_seq = make<int32_t>(MOST_ROWS);
    b->table = make<uint32_t>(MOST_ROWS * RING);
    a->w = b->w.device;
    a->b = b->b.device;
    a->y = b->y.device;
    a->y_stride = b->y_stride;
    a->cache = b->cache.device;
    b->batch.row_seq = b->row_seq.device;
    b->batch.seq = b->seq.device;
    b->batch.pages[0] = b->table.device;
    b->batch.page_stride[0] = RING;
    for (uint32_t q = 0; q < SEQS; q++) {
        memset(b->s[q].page, 0xff, sizeof b->s[q].page);
        b->out[q] = (float *)calloc((size_t)N * s->width, sizeof(float));
    }
}
static void bench_close(struct bench *b)
{
    for (uint32_t i = 0; i < INPUTS; i++) drop(&b->x[i]);
    drop(&b->w);
    drop(&b->b);
    drop(&b->y);
    drop(&b->cache);
    drop(&b->seq);
    drop(&b->row_seq);
    drop(&b->table);
    for (uint32_t q = 0; q < SEQS; q++) free(b->out[q]);
}

/* One launch: rows[q] rows of each sequence, by tables as the host makes them; a row of padding behind them. */
static void run(struct bench *b, const uint32_t *rows)
{
    uint32_t n = 0, seqs = 0, of[SEQS];
    for (uint32_t i = 0; i < INPUTS; i++) memset(b->x[i].host, 0xff, b->x[i].n * sizeof(float));
    memset(b->table.host, 0xff, b->table.n * sizeof(uint32_t));
    for (uint32_t q = 0; q < SEQS; q++) {
        struct sequence *s = &b->s[q];
        if (!rows[q]) continue;
        const uint32_t last = (s->position + rows[q] - 1) / KV_PAGE;
        for (uint32_t block = s->position ? (s->position - 1) / KV_PAGE : 0; block <= last; block++) {
            uint32_t home = block;
            while (s->page[home] == UINT32_MAX) home++;
            b->table.host[seqs * RING + (b->ring ? block % b->ring : block)] = s->page[home];
        }
        b->seq.host[seqs] = cuda_seq{ n, rows[q], s->position, q };
        for (uint32_t r = 0; r < rows[q]; r++, n++) {
            b->row_seq.host[n] = (int32_t)seqs;
            for (uint32_t i = 0; i < INPUTS; i++) {
                const uint32_t width = input_width(b->shape, i);
                memcpy(b->x[i].host + n * b->stride[i], b->n->x[q][i] + (size_t)(s->position + r) * width,
                       width * sizeof(float));
            }
        }
        of[seqs++] = q;
    }
    b->row_seq.host[n] = CUDA_PADDING;
    b->batch.rows = b->batch.seqs = n + 1;
    for (uint32_t i = seqs; i <= n; i++) b->seq.host[i] = cuda_seq{ 0, 0, 0, 0 };
    for (uint32_t i = 0; i < INPUTS; i++) send(&b->x[i]);
    send(&b->seq);
    send(&b->row_seq);
    send(&b->table);
    poison(&b->y);
    LAUNCH(cuda_state(&b->call, NULL, &error_text));
    receive(&b->y);
    for (uint32_t i = 0; i < seqs; i++)
        for (uint32_t r = 0; r < rows[of[i]]; r++, b->s[of[i]].position++)
            memcpy(b->out[of[i]] + (size_t)b->s[of[i]].position * b->shape->width,
                   b->y.host + (b->seq.host[i].row + r) * b->y_stride, b->shape->width * sizeof(float));
    for (uint32_t c = 0; c < b->shape->width; c++) assert_true(b->y.host[n * b->y_stride + c] == 0.0f);
}

/* A step of rows[q] rows each: pages of the last blocks, and of some between; in one run or in two. */
static void step(struct bench *b, const uint32_t *rows, bool cut)
{
    uint32_t now[SEQS] = { 0 }, then[SEQS] = { 0 };
    for (uint32_t q = 0; q < SEQS; q++) {
        struct sequence *s = &b->s[q];
        const uint32_t last = rows[q] ? (s->position + rows[q] - 1) / KV_PAGE : 0;
        for (uint32_t block = s->position / KV_PAGE; rows[q] && block <= last; block++)
            if (s->page[block] == UINT32_MAX && (block == last || next_noise() % 3 == 0))
                s->page[block] = b->next_page++;
        assert_true(b->next_page <= PAGES);
        now[q] = cut ? next_noise() % (rows[q] + 1) : rows[q];
        then[q] = rows[q] - now[q];
    }
    if (now[0] + now[1]) run(b, now);
    if (then[0] + then[1]) run(b, then);
}

static void feed(struct bench *b, uint32_t seed)
{
    for (uint32_t i = 0; b->s[0].position < N || b->s[1].position < N; i++) {
        uint32_t rows[SEQS];
        for (uint32_t q = 0; q < SEQS; q++) {
            const uint32_t left = N - b->s[q].position, most = !seed              ? left
                                                               : next_noise() % 2 ? 1
                                                                                  : 1 + next_noise() % 90;
            rows[q] = most < left ? most : left;
        }
        step(b, rows, seed > 0);
    }
}

static void test_states(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SHAPES; i++) {
        const struct shape *s = &shapes[i];
        struct numbers n = make_numbers(s);
        struct bench whole;
        bench_open(&whole, s, &n, 0);
        feed(&whole, 0);
        double *want = (double *)calloc((size_t)N * s->width, sizeof *want);
        for (uint32_t q = 0; q < SEQS; q++) {
            if (s->kind == WK_STATE_CONV)
                conv_reference(s, &n, q, want);
            else
                scan_reference(s, &n, q, want);
            double error = 0, square = 0;
            for (size_t e = 0; e < (size_t)N * s->width; e++) {
                error += ((double)whole.out[q][e] - want[e]) * ((double)whole.out[q][e] - want[e]);
                square += want[e] * want[e];
            }
            if (!(error <= square * 1e-12)) fail_msg("shape %u: relative rms %g", i, sqrt(error / square));
        }
        for (uint32_t seed = 1; seed <= 3; seed++) {
            struct bench cut;
            bench_open(&cut, s, &n, seed == 2 ? RING : 0);
            feed(&cut, seed);
            for (uint32_t q = 0; q < SEQS; q++)
                for (size_t e = 0; e < (size_t)N * s->width; e++)
                    if (memcmp(&cut.out[q][e], &whole.out[q][e], sizeof(float)))
                        fail_msg("shape %u, cut %u, sequence %u: row %zu, value %zu: %.9g and %.9g", i, seed, q,
                                 e / s->width, e % s->width, (double)cut.out[q][e], (double)whole.out[q][e]);
            bench_close(&cut);
        }
        free(want);
        bench_close(&whole);
        free_numbers(&n);
    }
}

/* Two go on from one page, which stays as it was. */
static void test_forks(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < SHAPES; i++) {
        const struct shape *s = &shapes[i];
        struct numbers n = make_numbers(s);
        struct bench b;
        bench_open(&b, s, &n, 0);
        for (uint32_t e = 0; e < INPUTS; e++)
            memcpy(n.x[1][e], n.x[0][e], (size_t)64 * input_width(s, e) * sizeof(float));
        const uint32_t first[SEQS] = { 64, 0 }, both[SEQS] = { 40, 21 };
        step(&b, first, false);
        b.s[1].position = 64;
        b.s[1].page[1] = b.s[0].page[1];
        receive(&b.cache);
        const size_t floats = cuda_state_page_bytes(&b.call) / sizeof(float);
        float *kept = (float *)malloc(floats * sizeof *kept);
        memcpy(kept, b.cache.host + b.s[0].page[1] * floats, floats * sizeof *kept);
        step(&b, both, true);
        receive(&b.cache);
        assert_memory_equal(kept, b.cache.host + b.s[0].page[1] * floats, floats * sizeof *kept);
        struct bench alone;
        bench_open(&alone, s, &n, 0);
        feed(&alone, 0);
        assert_memory_equal(alone.out[0], b.out[0], (size_t)104 * s->width * sizeof(float));
        assert_memory_equal(alone.out[1] + (size_t)64 * s->width, b.out[1] + (size_t)64 * s->width,
                            (size_t)21 * s->width * sizeof(float));
        free(kept);
        bench_close(&alone);
        bench_close(&b);
        free_numbers(&n);
    }
}

int main(void)
{
    if (no_gpu()) return 77;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_states), cmocka_unit_test(test_forks) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
