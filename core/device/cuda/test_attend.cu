/* test_attend.cu: attention of both classes against float64, and a row's bits alone, in any batch, in any pages, in any
 * chunks.
 *
 * What a sequence holds is a function of its name and the position, so the same sequence can be run again in other
 * company. Its past goes through cuda_attend_store into pages that are NaN everywhere before. */
#include "device/cuda/attend.cuh"
#include "device/cuda/launch.cuh"
#include "device/cuda/test_attend.cuh"

struct form {
    const char *name;
    uint32_t heads, kv_heads, dk, dv, window;
    float softcap;
    bool sinks;
    uint32_t norm; /* of q and k, CUDA_NORM_* */
    uint32_t rope_n, style;
    bool plain; /* F32 results, not acts */
};

enum { CHUNK = 450 }; /* most rows of a run over a window */

/* ---- what a sequence holds ----------------------------------------------------------------------------- */

/* The same in every world. */
static array<float> constants(uint32_t which, uint32_t n, float scale)
{
    array<float> a = make<float>(n);
    for (uint32_t i = 0; i < n; i++) a.host[i] = scale * input(1000 + which, 0, 2, i);
    send(&a);
    return a;
}

/* Norm and rotation in double. */
static void finish(const struct form *f, uint32_t name, uint32_t position, uint32_t which, uint32_t head,
                   const float *w, const float *b, double *y)
{
    const uint32_t d = which == 2 ? f->dv : f->dk;
    for (uint32_t i = 0; i < d; i++) y[i] = input(name, position, which, head * d + i);
    if (which == 2) return;
    norm_head(y, d, f->norm, w, f->norm == CUDA_NORM_LAYER ? b : NULL);
    rope_head(y, position, f->rope_n, f->style);
}

/* ---- a cache, and runs over it ------------------------------------------------------------------------- */

struct world {
    struct form f;
    uint32_t n_seqs, context, ring, stride, head; /* stride: pages a sequence's table has */
    uint64_t page_halves;
    array<uint32_t> table, counters;
    array<uint16_t> cache, query;
    array<float> norm_w, norm_b, sinks;
    array<char> work;
};

static float scale_of(const struct form *f) { return 1.0f / sqrtf((float)f->dk); }

/* shuffle: how the pages lie. */
static struct world make_world(const struct form *f, uint32_t n_seqs, uint32_t context, uint32_t shuffle)
{
    struct world w = {};
    w.f = *f;
    w.n_seqs = n_seqs;
    w.context = context;
    w.ring = f->window ? (f->window + CHUNK + KV_PAGE - 1) / KV_PAGE + 1 : 0;
    w.stride = w.ring ? w.ring : (context + KV_PAGE - 1) / KV_PAGE;
    w.head = attend_head(f->dk, f->dv);
    w.page_halves = cuda_attend_page_bytes(f->kv_heads, f->dk, f->dv) / 2;
    w.table = make_table(n_seqs * w.stride, shuffle);
    w.cache = make<uint16_t>((w.table.n + SPARE_PAGES) * w.page_halves);
    w.query = make<uint16_t>((size_t)MOST_ROWS * f->heads * w.head);
    w.norm_w = constants(0, f->dk, 2);
    w.norm_b = constants(1, f->dk, 1);
    w.sinks = constants(2, f->heads, 3);
    w.counters = make<uint32_t>(cuda_attend_counters(WK_CUDA_FEW, f->heads));
    CUDA_OK(cudaMemset(w.counters.device, 0, w.counters.n * 4));
    w.work = make<char>(cuda_attend_workspace(WK_CUDA_FEW, f->heads, f->dk, f->dv, context));
    return w;
}
static void drop_world(struct world *w)
{
    drop(&w->table);
    drop(&w->cache);
    drop(&w->query);
    drop(&w->norm_w);
    drop(&w->norm_b);
    drop(&w->sinks);
    drop(&w->counters);
    drop(&w->work);
}

struct batch {
    uint32_t rows, seqs;
    array<struct cuda_seq> seq;
    array<struct cuda_lengths> lengths;
    array<float> q, k, v, rope_table;
    struct results y;
    struct cuda_batch b;
    struct cuda_attend a;
};

/* Rows of the sequences, one after another; row and seq padding behind them. */
static struct batch make_batch(const struct world *w, const struct sequence *s, uint32_t n, uint32_t padding)
{
    const struct form *f = &w->f;
    struct batch b = {};
    b.seqs = n + padding;
    b.seq = make_seqs(s, n, padding, &b.rows);
    b.lengths = make<struct cuda_lengths>(1);
    b.lengths.host[0] = cuda_lengths{};
    for (uint32_t i = 0; i < b.seqs; i++) cuda_lengths_add(&b.lengths.host[0], &b.seq.host[i]);
    send(&b.lengths);
    b.q = make_inputs(s, n, b.rows, 0, f->heads * f->dk);
    b.k = make_inputs(s, n, b.rows, 1, f->kv_heads * f->dk);
    b.v = make_inputs(s, n, b.rows, 2, f->kv_heads * f->dv);
    b.rope_table = make_rope_table(s, n, b.rows, f->rope_n);
    b.y = make_results(b.rows, f->heads * f->dv, f->plain);
    return b;
}
static void drop_batch(struct batch *b)
{
    drop(&b->seq);
    drop(&b->lengths);
    drop(&b->q);
    drop(&b->k);
    drop(&b->v);
    drop(&b->rope_table);
    drop_results(&b->y);
}

/* tables[i]: which of the world's page tables sequence i of the batch has; they are laid out in the batch's order. */
static void run_batch(const struct world *w, struct batch *b, const uint32_t *tables, uint32_t n, enum how how)
{
    const struct form *f = &w->f;
    array<uint32_t> pages = make_pages(&w->table, w->stride, tables, n, b->seqs);
    b->b = cuda_batch{};
    b->b.rows = b->rows;
    b->b.seqs = b->seqs;
    b->b.seq = b->seq.device;
    b->b.lengths = b->lengths.device;
    b->b.pages[1] = pages.device;
    b->b.page_stride[1] = w->stride;
    struct cuda_attend a = {};
    a.batch = &b->b;
    a.heads = f->heads;
    a.kv_heads = f->kv_heads;
    a.dk = f->dk;
    a.dv = f->dv;
    a.scale = scale_of(f);
    a.softcap = f->softcap;
    a.window = f->window;
    a.group = 1;
    a.ring_pages = w->ring;
    a.q = b->q.device;
    a.k = b->k.device;
    a.v = b->v.device;
    a.q_stride = f->heads * f->dk;
    a.k_stride = f->kv_heads * f->dk;
    a.v_stride = f->kv_heads * f->dv;
    a.q_norm = a.k_norm =
        cuda_head_norm{ w->norm_w.device, f->norm == CUDA_NORM_LAYER ? w->norm_b.device : NULL, norm_eps, f->norm };
    if (f->rope_n) a.q_rope_table = a.k_rope_table = b->rope_table.device;
    a.q_rope_n = a.k_rope_n = f->rope_n;
    a.q_rope_style = a.k_rope_style = f->style;
    a.sinks = f->sinks ? w->sinks.device : NULL;
    a.cache = w->cache.device;
    ask_results(&a, &b->y);
    a.workspace = w->work.device;
    a.counters = w->counters.device;
    b->a = a;
    if (how == FEW) {
        LAUNCH(cuda_attend(&a, w->context, NULL, &error_text));
    } else {
        LAUNCH(cuda_attend_store(&a, w->query.device, NULL, &error_text));
        if (how == PROMPT) LAUNCH(cuda_attend_prompt(&a, w->query.device, NULL, &error_text));
    }
    receive(&w->cache);
    receive(&w->query);
    receive(&w->counters);
    receive(&w->work);
    receive_results(&b->y);
    for (size_t i = 0; i < w->counters.n; i++) assert_int_equal(w->counters.host[i], 0);
    drop(&pages);
}

/* Brings a sequence's past into the cache. */
static void fill_past(const struct world *w, const struct sequence *s, uint32_t table)
{
    store_past(s, w->ring, [&](const struct sequence *chunk) {
        struct batch b = make_batch(w, chunk, 1, 0);
        run_batch(w, &b, &table, 1, STORE);
        drop_batch(&b);
    });
}

/* ---- against float64 ----------------------------------------------------------------------------------- */

/* One row, one head: relative error of the head's values, by norms. */
static double head_error(const struct world *w, const struct sequence *s, uint32_t position, uint32_t head,
                         const struct batch *b, uint32_t row)
{
    const struct form *f = &w->f;
    const uint32_t kv = head / (f->heads / f->kv_heads),
                   low = f->window && position + 1 > f->window ? position + 1 - f->window : 0;
    double q[256], k[256], y[256] = { 0 }, max = f->sinks ? w->sinks.host[head] : -INFINITY, sum = 0;
    double *score = (double *)malloc((position + 1) * sizeof *score);
    finish(f, s->name, position, 0, head, w->norm_w.host, w->norm_b.host, q);
    for (uint32_t p = low; p <= position; p++) {
        finish(f, s->name, p, 1, kv, w->norm_w.host, w->norm_b.host, k);
        double x = 0;
        for (uint32_t i = 0; i < f->dk; i++) x += as_half(q[i]) * as_half(k[i]);
        x *= scale_of(f);
        if (f->softcap != 0.0f) x = f->softcap * tanh(x / f->softcap);
        score[p] = x;
        if (x > max) max = x;
    }
    if (f->sinks) sum = exp(w->sinks.host[head] - max);
    for (uint32_t p = low; p <= position; p++) {
        const double e = exp(score[p] - max);
        sum += e;
        finish(f, s->name, p, 2, kv, NULL, NULL, k);
        for (uint32_t i = 0; i < f->dv; i++) y[i] += e * as_half(k[i]);
    }
    free(score);
    return relative_error(&b->y, row, head * f->dv, y, f->dv, sum);
}

/* every: how many rows are passed over between two that are compared. */
static void check_batch(const struct world *w, const struct batch *b, const struct sequence *s, uint32_t n,
                        uint32_t every, const char *how)
{
    const struct form *f = &w->f;
    const uint32_t group = f->heads / f->kv_heads;
    double worst = 0;
    for (uint32_t i = 0, row = 0; i < n; row += s[i].rows, i++)
        for (uint32_t r = 0; r < s[i].rows; r++) {
            check_tail(&b->y, row + r);
            if (r % every && r != s[i].rows - 1) continue;
            for (uint32_t head = 0; head < f->heads; head += group > 1 ? group - 1 : f->heads > 8 ? 5 : 1) {
                const double e = head_error(w, &s[i], s[i].past + r, head, b, row + r);
                if (e > worst) worst = e;
                if (!(e <= 3e-3))
                    fail_msg("%s, %s: sequence %u (past %u, %u rows), row %u, head %u: off by %.3g", f->name, how, i,
                             s[i].past, s[i].rows, r, head, e);
            }
        }
    print_message("    %-40s %-7s worst error %.2g\n", f->name, how, worst);
}

static const struct form forms[] = {
    { "128, no groups, halves", 4, 4, 128, 128, 0, 0, false, CUDA_NORM_NONE, 64, WK_ROPE_HALF, false },
    { "96, no groups, part rotated, pairs", 3, 3, 96, 96, 0, 0, false, CUDA_NORM_NONE, 40, WK_ROPE_INTERLEAVED, false },
    { "64, 7 a group", 14, 2, 64, 64, 0, 0, false, CUDA_NORM_NONE, 32, WK_ROPE_HALF, false },
    { "128, 4 a group, head norm", 8, 2, 128, 128, 0, 0, false, CUDA_NORM_RMS, 64, WK_ROPE_HALF, false },
    { "64, 8 a group, window, sinks", 16, 2, 64, 64, 128, 0, true, CUDA_NORM_NONE, 32, WK_ROPE_HALF, false },
    { "64, 4 a group, window of 8, sinks", 8, 2, 64, 64, 8, 0, true, CUDA_NORM_NONE, 32, WK_ROPE_HALF, false },
    { "256, 2 a group, soft-cap, window", 4, 2, 256, 256, 100, 5, false, CUDA_NORM_NONE, 128, WK_ROPE_HALF, false },
    { "80, no groups, layer norm", 3, 3, 80, 80, 0, 0, false, CUDA_NORM_LAYER, 16, WK_ROPE_HALF, false },
    { "16, 2 a group", 4, 2, 16, 16, 0, 0, false, CUDA_NORM_NONE, 8, WK_ROPE_HALF, false },
    { "8, 4 a group, F32", 8, 2, 8, 8, 0, 0, false, CUDA_NORM_RMS, 4, WK_ROPE_INTERLEAVED, true },
    { "32, 12 a group, no rotation", 12, 1, 32, 32, 0, 0, false, CUDA_NORM_NONE, 0, 0, false },
    { "48 and 32, soft-cap", 3, 1, 48, 32, 0, 20, true, CUDA_NORM_RMS, 24, WK_ROPE_HALF, false },
    { "72 and 25, F32", 6, 3, 72, 25, 70, 0, false, CUDA_NORM_NONE, 36, WK_ROPE_INTERLEAVED, true },
    { "96, no groups, halves", 3, 3, 96, 96, 0, 0, false, CUDA_NORM_NONE, 48, WK_ROPE_HALF, false },
    { "128, 3 a group, pairs, sinks", 3, 1, 128, 128, 0, 0, true, CUDA_NORM_NONE, 64, WK_ROPE_INTERLEAVED, false },
};
enum { FORMS = sizeof forms / sizeof *forms };

static void run_and_check(const struct form *f, const struct sequence *s, uint32_t n, uint32_t padding, enum how how,
                          uint32_t every)
{
    struct world w = make_world(f, n, 2048, 5);
    uint32_t tables[WK_CUDA_FEW];
    for (uint32_t i = 0; i < n; i++) {
        tables[i] = (i * 5 + 3) % n;
        fill_past(&w, &s[i], tables[i]);
    }
    struct batch b = make_batch(&w, s, n, padding);
    run_batch(&w, &b, tables, n, how);
    check_batch(&w, &b, s, n, every, how == FEW ? "few" : "prompt");
    drop_batch(&b);
    drop_world(&w);
}

static void test_few(void **state)
{
    (void)state;
    static const struct sequence mixed_lengths[] = { { 1, 0, 1 },   { 2, 300, 1 },  { 3, 31, 2 }, { 4, 1030, 1 },
                                                     { 5, 255, 1 }, { 6, 250, 13 }, { 7, 64, 1 } };
    for (uint32_t i = 0; i < FORMS; i++) run_and_check(&forms[i], mixed_lengths, 7, 3, FEW, 1);
    static const struct sequence alone[] = { { 9, 127, 1 } }, most[] = { { 8, 230, 64 } };
    for (uint32_t i = 0; i < 7; i++) {
        run_and_check(&forms[i], alone, 1, 0, FEW, 1);
        run_and_check(&forms[i], most, 1, 0, FEW, 3);
    }
}

static void test_prompt(void **state)
{
    (void)state;
    static const struct sequence chunks[] = { { 1, 0, 130 },   { 2, 300, 1 }, { 3, 31, 70 },
                                              { 4, 700, 150 }, { 5, 0, 1 },   { 6, 64, 64 } };
    for (uint32_t i = 0; i < FORMS; i++) run_and_check(&forms[i], chunks, 6, 2, PROMPT, 29);
}

/* ---- bits ---------------------------------------------------------------------------------------------- */

struct row_bits {
    uint16_t x[2048];
    uint32_t bytes;
};

static void keep(struct row_bits *r, const struct batch *b, uint32_t row)
{
    r->bytes = row_bytes(&b->y);
    assert_true(r->bytes <= sizeof r->x);
    memcpy(r->x, row_bits_of(&b->y, row), r->bytes);
}
static void same_bits(const struct row_bits *x, const struct row_bits *y, const struct form *f, const char *what,
                      uint32_t position)
{
    if (x->bytes != y->bytes || memcmp(x->x, y->x, x->bytes) != 0)
        fail_msg("%s: %s: position %u has other bits", f->name, what, position);
}

/* Result of the last of `rows` rows when the sequence runs alone. */
static struct row_bits alone(const struct form *f, const struct sequence *s, enum how how, uint32_t shuffle,
                             uint32_t context)
{
    struct world w = make_world(f, 1, context, shuffle);
    const uint32_t table = 0;
    struct row_bits bits;
    fill_past(&w, s, 0);
    struct batch b = make_batch(&w, s, 1, 0);
    run_batch(&w, &b, &table, 1, how);
    keep(&bits, &b, s->rows - 1);
    drop_batch(&b);
    drop_world(&w);
    return bits;
}

/* Alone, in other pages, with a larger context, and among others with several rows at once. */
static void test_few_bits(void **state)
{
    (void)state;
    static const struct sequence together[] = {
        { 1, 767, 3 }, { 2, 290, 1 }, { 3, 20, 9 }, { 4, 255, 2 }, { 5, 0, 1 }
    };
    for (uint32_t i = 0; i < FORMS; i++) {
        const struct form *f = &forms[i];
        struct world w = make_world(f, 5, 1024, 11);
        const uint32_t tables[] = { 4, 2, 0, 1, 3 };
        for (uint32_t s = 0; s < 5; s++) fill_past(&w, &together[s], tables[s]);
        struct batch b = make_batch(&w, together, 5, 2);
        run_batch(&w, &b, tables, 5, FEW);
        for (uint32_t s = 0, row = 0; s < 5; row += together[s].rows, s++)
            for (uint32_t r = 0; r < together[s].rows; r++) {
                struct row_bits there;
                const struct sequence single = { together[s].name, together[s].past + r, 1 };
                keep(&there, &b, row + r);
                const struct row_bits here = alone(f, &single, FEW, 1, 1024),
                                      elsewhere = alone(f, &single, FEW, 99, 2048);
                same_bits(&here, &there, f, "alone and in a batch", single.past);
                same_bits(&here, &elsewhere, f, "in other pages", single.past);
            }
        drop_batch(&b);
        drop_world(&w);
    }
}

/* One row whose splits are more than a cluster's blocks where these fill a multiprocessor each: the same bits as beside
 * another sequence, and where no cluster is. */
static void test_runs_of_splits(void **state)
{
    (void)state;
    static const struct form f = {
        "128, 2 a group, sinks", 16, 8, 128, 128, 0, 0, true, CUDA_NORM_NONE, 64, WK_ROPE_HALF, false
    };
    static const struct sequence both[] = { { 1, 2600, 1 }, { 2, 1500, 1 } };
    const uint32_t tables[] = { 1, 0 };
    struct world w = make_world(&f, 2, 4096, 7);
    for (uint32_t s = 0; s < 2; s++) fill_past(&w, &both[s], tables[s]);
    struct batch b = make_batch(&w, both, 2, 0);
    run_batch(&w, &b, tables, 2, FEW);
    check_batch(&w, &b, both, 2, 1, "few");
    for (uint32_t s = 0; s < 2; s++) {
        struct row_bits there;
        keep(&there, &b, s);
        const struct row_bits here = alone(&f, &both[s], FEW, 1, 4096), longer = alone(&f, &both[s], FEW, 1, 8192);
        same_bits(&here, &there, &f, "alone and beside another", both[s].past);
        same_bits(&here, &longer, &f, "with a longer context", both[s].past);
    }
    drop_batch(&b);
    drop_world(&w);
}

/* A row of each of several sequences, as in generation, and the next one, which sees what the first has stored. The
 * same bits as alone, of every `every`th. */
static void generate(const struct form *f, struct sequence *s, uint32_t n, uint32_t every)
{
    uint32_t tables[WK_CUDA_FEW];
    struct world w = make_world(f, n, 2048, 11);
    for (uint32_t k = 0; k < n; k++) {
        tables[k] = (k * 5 + 3) % n;
        fill_past(&w, &s[k], tables[k]);
    }
    for (uint32_t step = 0; step < 2; step++) {
        struct batch b = make_batch(&w, s, n, 2);
        run_batch(&w, &b, tables, n, FEW);
        check_batch(&w, &b, s, n, 1, "few");
        for (uint32_t k = 0; k < n; k++) {
            struct row_bits there;
            if (k % every == 0) {
                keep(&there, &b, k);
                const struct row_bits here = alone(f, &s[k], FEW, 1, 2048);
                same_bits(&here, &there, f, "alone and beside other rows", s[k].past);
            }
            s[k].past++;
        }
        drop_batch(&b);
    }
    drop_world(&w);
}

/* In clusters, where one has a block for each split; where one of the sequences is too long for that; and more tiles
 * than clusters are for. */
static void test_generated(void **state)
{
    (void)state;
    enum { N = 6, MANY = 41 };
    static const struct sequence begin[N] = { { 1, 0, 1 },   { 2, 300, 1 }, { 3, 1022, 1 },
                                              { 4, 254, 1 }, { 5, 600, 1 }, { 6, 31, 1 } };
    static const uint32_t which[] = { 2, 4, 13 };
    struct sequence s[MANY];
    for (uint32_t i = 0; i < FORMS; i++)
        for (uint32_t longest = 1022; longest <= 1500; longest += 478) {
            memcpy(s, begin, sizeof begin);
            s[2].past = longest;
            generate(&forms[i], s, N, 1);
        }
    for (uint32_t i = 0; i < sizeof which / sizeof *which; i++) {
        for (uint32_t k = 0; k < MANY; k++) s[k] = sequence{ 20 + k, 510 + mixed(k, 3, 9) % 190, 1 };
        generate(&forms[which[i]], s, MANY, 7);
    }
}

struct copies {
    void *to[3];
    const void *from[3];
    uint32_t bytes[3];
};
static __global__ void copy_all(const copies c, bool pdl)
{
    if (pdl) wk_release();
    if (pdl) wk_depend();
    for (int i = 0; i < 3; i++)
        for (uint32_t j = threadIdx.x; j < c.bytes[i] / 4; j += blockDim.x)
            static_cast<uint32_t *>(c.to[i])[j] = static_cast<const uint32_t *>(c.from[i])[j];
}

/* Step by step in the same buffers, launches beginning before the ones ahead have ended: each sees what these wrote,
 * and no other step's. */
static void test_steps(void **state)
{
    (void)state;
    enum { STEPS = 6 };
    static const uint32_t which[] = { 2, 4, 13, 14 };
    for (uint32_t k = 0; k < sizeof which / sizeof *which; k++) {
        const struct form *f = &forms[which[k]];
        const struct sequence begin = { 7, 253, 1 };
        const uint32_t table = 0;
        struct world w = make_world(f, 1, 512, 3), x = make_world(f, 1, 512, 3);
        struct batch b[STEPS], all = make_batch(&w, &begin, 1, 0);
        struct row_bits apart[STEPS], there;
        fill_past(&w, &begin, 0);
        fill_past(&x, &begin, 0);
        for (uint32_t i = 0; i < STEPS; i++) {
            const struct sequence s = { begin.name, begin.past + i, 1 };
            b[i] = make_batch(&x, &s, 1, 0);
            run_batch(&x, &b[i], &table, 1, FEW);
            keep(&apart[i], &b[i], 0);
            poison(&b[i].y.act);
        }
        run_batch(&w, &all, &table, 1, FEW);
        array<uint32_t> pages = make_pages(&w.table, w.stride, &table, 1, 1);
        all.b.pages[1] = pages.device;
        struct cuda_attend a = all.a;
        a.batch = &all.b;
        a.pdl = true;
        for (uint32_t i = 0; i < STEPS; i++) {
            const copies ahead = { { all.seq.device, all.rope_table.device },
                                   { b[i].seq.device, b[i].rope_table.device },
                                   { sizeof(struct cuda_seq), (uint32_t)all.rope_table.n * 4 } };
            const copies rows = { { all.q.device, all.k.device, all.v.device },
                                  { b[i].q.device, b[i].k.device, b[i].v.device },
                                  { (uint32_t)all.q.n * 4, (uint32_t)all.k.n * 4, (uint32_t)all.v.n * 4 } };
            a.act = b[i].y.act.device;
            LAUNCH(cuda_launch("copy", copy_all, dim3(1), dim3(256), 0, false, NULL, &error_text, ahead, false));
            LAUNCH(cuda_launch("copy", copy_all, dim3(1), dim3(256), 0, true, NULL, &error_text, rows, true));
            LAUNCH(cuda_attend(&a, w.context, NULL, &error_text));
        }
        for (uint32_t i = 0; i < STEPS; i++) {
            receive(&b[i].y.act);
            keep(&there, &b[i], 0);
            same_bits(&apart[i], &there, f, "apart and one after another", begin.past + i);
            drop_batch(&b[i]);
        }
        drop(&pages);
        drop_batch(&all);
        drop_world(&w);
        drop_world(&x);
    }
}

/* More items than blocks: runs of several splits and tiles a block, cut anywhere and at tiles. The
 * same bits as alone. */
static void test_many(void **state)
{
    (void)state;
    static const struct form wide = { "16, 32 heads", 32, 32,           16,   16, 0, 0, false,
                                      CUDA_NORM_NONE, 8,  WK_ROPE_HALF, false };
    static const struct form narrow = { "128, 2 a group", 8,    4, 128, 128, 0, 0, false, CUDA_NORM_RMS, 64,
                                        WK_ROPE_HALF,     false };
    const struct form *const both[] = { &wide, &narrow };
    struct sequence s[WK_CUDA_FEW];
    uint32_t tables[WK_CUDA_FEW], n = 0, rows = 0;
    for (; rows < WK_CUDA_FEW - 1; n++) {
        s[n] = sequence{ 100 + n, mixed(n, 3, 9) % 700, n % 16 == 5 ? 3u : 1u };
        rows += s[n].rows;
        tables[n] = n;
    }
    for (uint32_t i = 0; i < 2; i++) {
        const struct form *f = both[i];
        struct world w = make_world(f, n, 1024, 5);
        for (uint32_t k = 0; k < n; k++) fill_past(&w, &s[k], tables[k]);
        struct batch b = make_batch(&w, s, n, 0);
        run_batch(&w, &b, tables, n, FEW);
        check_batch(&w, &b, s, n, 2, "few");
        for (uint32_t k = 0, row = 0; k < n; row += s[k].rows, k++) {
            struct row_bits there;
            if (k % 7) continue;
            keep(&there, &b, row + s[k].rows - 1);
            const struct row_bits here = alone(f, &s[k], FEW, 1, 1024);
            same_bits(&here, &there, f, "alone and among many", s[k].past);
        }
        drop_batch(&b);
        drop_world(&w);
    }
}

/* A prompt at once and in chunks that begin anywhere. */
static void test_prompt_bits(void **state)
{
    (void)state;
    static const uint32_t cuts[] = { 0, 1, 40, 64, 161, 290, 300, 420 };
    for (uint32_t i = 0; i < FORMS; i++) {
        const struct form *f = &forms[i];
        struct world w = make_world(f, 2, 1024, 3), x = make_world(f, 2, 1024, 4);
        const struct sequence whole[] = { { 7, 0, 420 }, { 8, 0, 33 } };
        const uint32_t tables[] = { 1, 0 };
        struct batch all = make_batch(&w, whole, 2, 0);
        run_batch(&w, &all, tables, 2, PROMPT);
        for (uint32_t c = 0; c + 1 < sizeof cuts / sizeof *cuts; c++) {
            const struct sequence chunk = { 7, cuts[c], cuts[c + 1] - cuts[c] };
            const uint32_t table = 0;
            struct batch b = make_batch(&x, &chunk, 1, 0);
            run_batch(&x, &b, &table, 1, PROMPT);
            for (uint32_t r = 0; r < chunk.rows; r++) {
                struct row_bits here, there;
                keep(&here, &b, r);
                keep(&there, &all, chunk.past + r);
                same_bits(&here, &there, f, "in a chunk and at once", chunk.past + r);
            }
            drop_batch(&b);
        }
        drop_batch(&all);
        drop_world(&w);
        drop_world(&x);
    }
}

/* Both classes leave the same keys and values behind: many rows, and one. */
static void test_same_cache(void **state)
{
    (void)state;
    static const struct sequence both[] = { { 7, 30, 40 }, { 8, 77, 1 } };
    for (uint32_t i = 0; i < 2 * FORMS; i++) {
        const struct form *f = &forms[i / 2];
        struct world w = make_world(f, 1, 512, 3), x = make_world(f, 1, 512, 3);
        const struct sequence s = both[i % 2];
        const uint32_t table = 0;
        struct batch b = make_batch(&w, &s, 1, 0), c = make_batch(&x, &s, 1, 0);
        fill_past(&w, &s, 0);
        fill_past(&x, &s, 0);
        run_batch(&w, &b, &table, 1, PROMPT);
        run_batch(&x, &c, &table, 1, FEW);
        assert_memory_equal(w.cache.host, x.cache.host, w.cache.n * 2);
        drop_batch(&b);
        drop_batch(&c);
        drop_world(&w);
        drop_world(&x);
    }
}

/* Scores of taps, and -inf where nothing is seen. */
static void test_scores(void **state)
{
    (void)state;
    static const uint32_t which[] = { 1, 5, 6, 9, 12 };
    for (uint32_t i = 0; i < sizeof which / sizeof *which; i++) {
        const struct form *f = &forms[which[i]];
        struct world w = make_world(f, 1, 512, 3);
        const struct sequence s = { 3, 50, 20 };
        const uint32_t table = 0, keys = 75, group = f->heads / f->kv_heads;
        fill_past(&w, &s, 0);
        struct batch b = make_batch(&w, &s, 1, 0);
        run_batch(&w, &b, &table, 1, STORE);
        array<float> out = make<float>((size_t)b.rows * f->heads * keys);
        array<uint32_t> pages = make_pages(&w.table, w.stride, &table, 1, 1);
        b.b.pages[1] = pages.device;
        b.a.batch = &b.b;
        LAUNCH(cuda_attend_scores(&b.a, w.query.device, keys, out.device, NULL, &error_text));
        receive(&out);
        for (uint32_t r = 0; r < s.rows; r++)
            for (uint32_t head = 0; head < f->heads; head++) {
                double q[256], k[256];
                const uint32_t position = s.past + r,
                               low = f->window && position + 1 > f->window ? position + 1 - f->window : 0;
                finish(f, s.name, position, 0, head, w.norm_w.host, w.norm_b.host, q);
                for (uint32_t p = 0; p < keys; p++) {
                    const float got = out.host[((size_t)r * f->heads + head) * keys + p];
                    if (p > position || p < low) {
                        assert_true(got == -INFINITY);
                        continue;
                    }
                    double x = 0;
                    finish(f, s.name, p, 1, head / group, w.norm_w.host, w.norm_b.host, k);
                    for (uint32_t j = 0; j < f->dk; j++) x += q[j] * k[j];
                    x *= scale_of(f);
                    if (f->softcap != 0.0f) x = f->softcap * tanh(x / f->softcap);
                    if (!(fabs(got - x) <= 4e-3))
                        fail_msg("%s: row %u head %u key %u: %g, expected %g", f->name, r, head, p, got, x);
                }
            }
        drop(&out);
        drop(&pages);
        drop_batch(&b);
        drop_world(&w);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct form f = forms[0];
    struct world w = make_world(&f, 1, 512, 3);
    const struct sequence s = { 3, 0, 1 };
    const uint32_t table = 0;
    struct batch b = make_batch(&w, &s, 1, 0);
    run_batch(&w, &b, &table, 1, FEW);
    struct cuda_attend a = b.a;
    a.dk = 257;
    assert_int_equal(cuda_attend(&a, 512, NULL, &error_text), WK_UNSUPPORTED);
    assert_non_null(strstr(error_memory, "257"));
    assert_false(cuda_attend_serves(257, 128));
    assert_false(cuda_attend_serves(0, 8));
    assert_true(cuda_attend_serves(1, 256));
    a = b.a;
    a.kv_heads = 3;
    assert_int_equal(cuda_attend(&a, 512, NULL, &error_text), WK_INVALID);
    a = b.a;
    a.q_rope_n = 65;
    assert_int_equal(cuda_attend_store(&a, w.query.device, NULL, &error_text), WK_INVALID);
    assert_non_null(strstr(error_memory, "q_rope_n"));
    a = b.a;
    a.dv = 120;
    assert_int_equal(cuda_attend_prompt(&a, w.query.device, NULL, &error_text), WK_INVALID);
    a = b.a;
    struct cuda_batch wide = b.b;
    wide.seqs = WK_CUDA_FEW + 1;
    a.batch = &wide;
    assert_int_equal(cuda_attend(&a, 512, NULL, &error_text), WK_INVALID);
    drop_batch(&b);
    drop_world(&w);
}

int main(int argc, char **argv)
{
    if (no_gpu()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),       cmocka_unit_test(test_few),
        cmocka_unit_test(test_prompt),         cmocka_unit_test(test_few_bits),
        cmocka_unit_test(test_runs_of_splits), cmocka_unit_test(test_generated),
        cmocka_unit_test(test_steps),          cmocka_unit_test(test_many),
        cmocka_unit_test(test_prompt_bits),    cmocka_unit_test(test_same_cache),
        cmocka_unit_test(test_scores),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
