/* test_attend_latent.cu: attention over values that are parts of keys against float64, and a row's bits alone, in any
 * batch, in any pages, in any chunks, whichever tiles and splits a step is cut into.
 *
 * What a sequence holds is a function of its name and the position, so the same sequence can be run again in other
 * company. Its past goes through cuda_latent_store into pages that are NaN everywhere before. */
#include "device/cuda/attend_latent.cuh"
#include "device/cuda/test_attend.cuh"

struct form {
    const char *name;
    uint32_t heads, kv_heads, dk, dv, window, chunk;
    float softcap;
    bool sinks, slopes, both_ways;
    uint32_t norm;   /* of q and k, CUDA_NORM_* */
    uint32_t rope_n; /* pairs, interleaved */
    bool plain;      /* F32 results, not acts */
};

enum { MOST_HEAD = 576 };

/* ---- what a sequence holds ----------------------------------------------------------------------------- */

static float weight(uint32_t i) { return 1.0f + 0.5f * input(99, 0, 0, i); }
static float sink(uint32_t head) { return 2.0f * input(98, 0, 0, head); }
static float slope(uint32_t head) { return 0.25f / (float)(1 + head); }
static float scale_of(const struct form *f) { return 1.0f / sqrtf((float)f->dk); }

/* Norm and rotation in double, rounded to f16. */
static void finish(const struct form *f, uint32_t name, uint32_t position, uint32_t which, uint32_t head, double *y)
{
    float w[MOST_HEAD];
    for (uint32_t i = 0; i < f->dk; i++) {
        y[i] = input(name, position, which, head * f->dk + i);
        w[i] = weight(i);
    }
    norm_head(y, f->dk, f->norm, w, NULL);
    rope_head(y, position, f->rope_n, WK_ROPE_INTERLEAVED);
    for (uint32_t i = 0; i < f->dk; i++) y[i] = as_half(y[i]);
}

/* ---- a cache, and runs over it ------------------------------------------------------------------------- */

struct world {
    struct form f;
    uint32_t context, ring, stride; /* stride: pages a sequence's table has */
    array<uint32_t> table;
    array<uint16_t> cache, query;
    array<float> norm_w, sinks, slopes;
    array<char> work;
};

static array<float> made(uint32_t n, float (*value)(uint32_t))
{
    array<float> a = make<float>(n);
    for (uint32_t i = 0; i < n; i++) a.host[i] = value(i);
    send(&a);
    return a;
}

/* shuffle: how the pages lie. */
static struct world make_world(const struct form *f, uint32_t n_seqs, uint32_t context, uint32_t shuffle)
{
    struct world w = {};
    w.f = *f;
    w.context = context;
    w.ring = f->window + f->chunk ? (f->window + f->chunk + MOST_ROWS) / KV_PAGE + 1 : 0;
    w.stride = w.ring ? w.ring : (context + KV_PAGE - 1) / KV_PAGE;
    w.table = make_table(n_seqs * w.stride, shuffle);
    w.cache = make<uint16_t>((w.table.n + SPARE_PAGES) * cuda_latent_page_bytes(f->kv_heads, f->dk, f->dv) / 2);
    w.query = make<uint16_t>(cuda_latent_query_bytes(MOST_ROWS, f->heads, f->dk, f->dv) / 2);
    w.norm_w = made(f->dk, weight);
    w.sinks = made(f->heads, sink);
    w.slopes = made(f->heads, slope);
    w.work = make<char>(cuda_latent_workspace(WK_CUDA_FEW, f->heads, f->dk, f->dv, context));
    return w;
}
static void drop_world(struct world *w)
{
    drop(&w->table);
    drop(&w->cache);
    drop(&w->query);
    drop(&w->norm_w);
    drop(&w->sinks);
    drop(&w->slopes);
    drop(&w->work);
}

struct batch {
    uint32_t rows, seqs;
    array<struct cuda_seq> seq;
    array<float> q, k, rope_table;
    struct results y;
    array<uint32_t> pages;
    struct cuda_batch b;
    struct cuda_attend a;
};

/* Rows of the sequences, one after another; row and seq padding behind them. tables[i]: which of the world's page
 * tables sequence i has; they are laid out in the batch's order. */
static struct batch make_batch(const struct world *w, const struct sequence *s, const uint32_t *tables, uint32_t n,
                               uint32_t padding)
{
    const struct form *f = &w->f;
    struct batch b = {};
    b.seqs = n + padding;
    b.seq = make_seqs(s, n, padding, &b.rows);
    b.pages = make_pages(&w->table, w->stride, tables, n, b.seqs);
    b.q = make_inputs(s, n, b.rows, 0, f->heads * f->dk);
    b.k = make_inputs(s, n, b.rows, 1, f->kv_heads * f->dk);
    b.rope_table = make_rope_table(s, n, b.rows, f->rope_n);
    b.y = make_results(b.rows, f->heads * f->dv, f->plain);
    return b;
}
static void drop_batch(struct batch *b)
{
    drop(&b->seq);
    drop(&b->pages);
    drop(&b->q);
    drop(&b->k);
    drop(&b->rope_table);
    drop_results(&b->y);
}

static void describe(const struct world *w, struct batch *b)
{
    const struct form *f = &w->f;
    struct cuda_attend *a = &b->a;
    b->b = cuda_batch{};
    b->b.rows = b->rows;
    b->b.seqs = b->seqs;
    b->b.seq = b->seq.device;
    b->b.pages[1] = b->pages.device;
    b->b.page_stride[1] = w->stride;
    memset(a, 0, sizeof *a);
    a->batch = &b->b;
    a->value_in_key = true;
    a->heads = f->heads;
    a->kv_heads = f->kv_heads;
    a->dk = f->dk;
    a->dv = f->dv;
    a->scale = scale_of(f);
    a->softcap = f->softcap;
    a->window = f->window;
    a->chunk = f->chunk;
    a->both_ways = f->both_ways;
    a->group = 1;
    a->ring_pages = w->ring;
    a->q = b->q.device;
    a->k = b->k.device;
    a->q_stride = f->heads * f->dk;
    a->k_stride = f->kv_heads * f->dk;
    a->q_norm = a->k_norm = cuda_head_norm{ w->norm_w.device, NULL, norm_eps, f->norm };
    a->q_rope_table = a->k_rope_table = f->rope_n ? b->rope_table.device : NULL;
    a->q_rope_n = a->k_rope_n = f->rope_n;
    a->q_rope_style = a->k_rope_style = WK_ROPE_INTERLEAVED;
    a->sinks = f->sinks ? w->sinks.device : NULL;
    a->slopes = f->slopes ? w->slopes.device : NULL;
    a->cache = w->cache.device;
    ask_results(a, &b->y);
    a->workspace = w->work.device;
}

static void run_batch(const struct world *w, struct batch *b, enum how how)
{
    describe(w, b);
    LAUNCH(cuda_latent_store(&b->a, w->query.device, NULL, &error_text));
    if (how != STORE) LAUNCH(cuda_latent(&b->a, w->query.device, how == FEW ? w->context : 0, NULL, &error_text));
    receive(&w->cache);
    receive(&w->query);
    receive(&w->work);
    receive_results(&b->y);
}

/* Brings a sequence's past into the cache. */
static void fill_past(const struct world *w, const struct sequence *s, uint32_t table)
{
    store_past(s, w->ring, [&](const struct sequence *chunk) {
        struct batch b = make_batch(w, chunk, &table, 1, 0);
        run_batch(w, &b, STORE);
        drop_batch(&b);
    });
}

/* ---- against float64 ----------------------------------------------------------------------------------- */

static bool sees(const struct form *f, uint32_t position, uint32_t p, uint32_t end)
{
    if (p > position) return f->both_ways && p <= end && (!f->window || p - position < f->window);
    return (!f->window || position - p < f->window) && (!f->chunk || p / f->chunk == position / f->chunk);
}

static double score_of(const struct form *f, const double *q, const double *k, uint32_t head, uint32_t distance)
{
    double x = 0;
    for (uint32_t i = 0; i < f->dk; i++) x += q[i] * k[i];
    x *= scale_of(f);
    if (f->softcap != 0.0f) x = f->softcap * tanh(x / f->softcap);
    return f->slopes ? x - (double)slope(head) * distance : x;
}

/* One row, one head: relative error of the head's values, by norms. keys: of the sequence, finished, from position 0
 * on. */
static double head_error(const struct form *f, const struct sequence *s, const double *keys, uint32_t position,
                         uint32_t head, const struct batch *b, uint32_t row)
{
    const uint32_t end = s->past + s->rows - 1;
    double q[MOST_HEAD], y[MOST_HEAD] = { 0 }, sum = f->sinks ? exp(sink(head)) : 0;
    finish(f, s->name, position, 0, head, q);
    for (uint32_t p = 0; p <= end; p++) {
        if (!sees(f, position, p, end)) continue;
        const double *k = keys + (size_t)p * f->dk,
                     e = exp(score_of(f, q, k, head, p > position ? p - position : position - p));
        sum += e;
        for (uint32_t i = 0; i < f->dv; i++) y[i] += e * k[i];
    }
    return relative_error(&b->y, row, head * f->dv, y, f->dv, sum);
}

/* Some rows and heads of a sequence, of which every row has zeros past its act's end. */
static double sequence_error(const struct form *f, const struct batch *b, const struct sequence *s, uint32_t row,
                             uint32_t every)
{
    const uint32_t end = s->past + s->rows, group = f->heads / f->kv_heads, step = f->heads > 4 ? f->heads / 3 : 1;
    double *keys = (double *)malloc((size_t)end * f->dk * sizeof *keys), worst = 0;
    for (uint32_t kv = 0; kv < f->kv_heads; kv++) {
        for (uint32_t p = 0; p < end; p++) finish(f, s->name, p, 1, kv, keys + (size_t)p * f->dk);
        for (uint32_t r = 0; r < s->rows; r++) {
            if (r % every && r != s->rows - 1) continue;
            for (uint32_t head = kv * group; head < (kv + 1) * group; head += step) {
                const double e = head_error(f, s, keys, s->past + r, head, b, row + r);
                worst = e > worst ? e : worst;
            }
        }
    }
    for (uint32_t r = 0; r < s->rows; r++) check_tail(&b->y, row + r);
    free(keys);
    return worst;
}

static const struct form forms[] = {
    { "latent, 16 heads", 16, 1, 576, 512, 0, 0, 0, false, false, false, CUDA_NORM_NONE, 0, false },
    { "latent, 128 heads", 128, 1, 576, 512, 0, 0, 0, false, false, false, CUDA_NORM_NONE, 0, false },
    { "256 and 32, 40 heads, norm", 40, 1, 288, 256, 0, 0, 0, false, false, false, CUDA_NORM_RMS, 0, false },
    { "tiny, F32", 4, 1, 40, 24, 0, 0, 0, false, false, false, CUDA_NORM_NONE, 20, true },
    { "tiny, 11 heads", 11, 1, 40, 32, 0, 0, 0, false, false, false, CUDA_NORM_NONE, 8, false },
    { "the whole key, window, soft-cap", 6, 2, 36, 36, 70, 0, 4, false, false, false, CUDA_NORM_LAYER, 18, true },
    { "an odd part, chunks, slopes, sinks", 8, 1, 40, 21, 0, 64, 0, true, true, false, CUDA_NORM_NONE, 0, true },
    { "both directions", 12, 2, 64, 48, 0, 0, 0, true, true, true, CUDA_NORM_NONE, 32, false },
    { "both directions, window", 3, 1, 520, 300, 100, 0, 0, false, false, true, CUDA_NORM_RMS, 4, true },
};
enum { FORMS = sizeof forms / sizeof *forms, WIDE = 3 /* from here on small ones, of all that can be said */ };

static void run_and_check(const struct form *f, const struct sequence *s, uint32_t n, uint32_t padding, enum how how,
                          uint32_t every)
{
    struct world w = make_world(f, n, 2048, 5);
    uint32_t tables[WK_CUDA_FEW];
    double worst = 0;
    for (uint32_t i = 0; i < n; i++) {
        tables[i] = (i * 5 + 3) % n;
        fill_past(&w, &s[i], tables[i]);
    }
    struct batch b = make_batch(&w, s, tables, n, padding);
    run_batch(&w, &b, how);
    for (uint32_t i = 0, row = 0; i < n; row += s[i].rows, i++) {
        const double e = sequence_error(f, &b, &s[i], row, every);
        if (!(e <= 3e-3))
            fail_msg("%s, %s: sequence %u (past %u, %u rows): off by %.3g", f->name, how == FEW ? "few" : "prompt", i,
                     s[i].past, s[i].rows, e);
        worst = e > worst ? e : worst;
    }
    print_message("    %-40s %-7s worst error %.2g\n", f->name, how == FEW ? "few" : "prompt", worst);
    drop_batch(&b);
    drop_world(&w);
}

static void test_few(void **state)
{
    (void)state;
    static const struct sequence mixed_lengths[] = { { 1, 0, 1 },   { 2, 300, 1 }, { 3, 31, 2 },
                                                     { 4, 630, 1 }, { 5, 127, 1 }, { 6, 120, 13 } };
    static const struct sequence alone[] = { { 9, 127, 1 } }, most[] = { { 8, 230, 64 } };
    for (uint32_t i = 0; i < FORMS; i++) {
        /* In both directions a prompt is one step. */
        if (!forms[i].both_ways) run_and_check(&forms[i], mixed_lengths, 6, 3, FEW, 1);
        if (!forms[i].both_ways) run_and_check(&forms[i], alone, 1, 0, FEW, 1);
        if (i >= WIDE && !forms[i].both_ways) run_and_check(&forms[i], most, 1, 0, FEW, 7);
    }
}

static void test_prompt(void **state)
{
    (void)state;
    static const struct sequence chunks[] = { { 1, 0, 130 }, { 2, 300, 1 }, { 3, 31, 70 }, { 4, 600, 90 } };
    static const struct sequence whole[] = { { 1, 0, 130 }, { 2, 0, 1 }, { 3, 0, 200 } };
    static const struct sequence few[] = { { 1, 90, 20 } }; /* tiles of 16 */
    for (uint32_t i = 0; i < FORMS; i++) {
        if (forms[i].both_ways) {
            run_and_check(&forms[i], whole, 3, 2, PROMPT, 29);
            continue;
        }
        run_and_check(&forms[i], chunks, i < WIDE ? 3 : 4, 2, PROMPT, 29);
        run_and_check(&forms[i], few, 1, 0, PROMPT, 7);
    }
}

/* ---- bits ---------------------------------------------------------------------------------------------- */

static void same_rows(const struct form *f, const struct batch *x, uint32_t x_row, const struct batch *y,
                      uint32_t y_row, const char *what, uint32_t position)
{
    if (memcmp(row_bits_of(&x->y, x_row), row_bits_of(&y->y, y_row), row_bytes(&x->y)) != 0)
        fail_msg("%s: %s: position %u has other bits", f->name, what, position);
}

/* Row `row` of b, at s->past, when it runs alone. */
static void same_alone(const struct form *f, const struct batch *b, uint32_t row, const struct sequence *s,
                       uint32_t shuffle, uint32_t context, const char *what)
{
    const uint32_t table = 0;
    struct world w = make_world(f, 1, context, shuffle);
    fill_past(&w, s, 0);
    struct batch one = make_batch(&w, s, &table, 1, 0);
    run_batch(&w, &one, FEW);
    same_rows(f, &one, 0, b, row, what, s->past);
    drop_batch(&one);
    drop_world(&w);
}

/* Alone each split is a block's; among so many that tiles fill the machine a block adds them itself. */
static void test_few_bits(void **state)
{
    (void)state;
    enum { MANY = 40 };
    static const struct sequence together[] = {
        { 1, 767, 3 }, { 2, 290, 1 }, { 3, 20, 9 }, { 4, 255, 2 }, { 5, 0, 1 }
    };
    static const uint32_t which[] = { 0, 3, 5, 6 };
    for (uint32_t i = 0; i < sizeof which / sizeof *which; i++) {
        const struct form *f = &forms[which[i]];
        struct sequence s[MANY];
        uint32_t tables[MANY], n = which[i] < WIDE ? 5 : MANY;
        for (uint32_t k = 0; k < MANY; k++) {
            s[k] = k < 5 ? together[k] : sequence{ 20 + k, mixed(k, 3, 9) % 90, 1 };
            tables[k] = (k * 3 + 1) % n;
        }
        struct world w = make_world(f, n, 1024, 11);
        for (uint32_t k = 0; k < n; k++) fill_past(&w, &s[k], tables[k]);
        struct batch b = make_batch(&w, s, tables, n, n == MANY ? 20 : 2); /* padding counts as tiles */
        run_batch(&w, &b, FEW);
        for (uint32_t k = 0, row = 0; k < 5; row += s[k].rows, k++)
            for (uint32_t r = 0; r < s[k].rows; r += s[k].rows > 2 ? 2 : 1) {
                const struct sequence single = { s[k].name, s[k].past + r, 1 };
                same_alone(f, &b, row + r, &single, 1, 1024, "alone and in a batch");
                if (r == 0) same_alone(f, &b, row, &single, 99, 2048, "in other pages, with a longer context");
            }
        drop_batch(&b);
        drop_world(&w);
    }
}

/* Long contexts, whose later splits are longer, alone and beside another. */
static void test_long(void **state)
{
    (void)state;
    static const struct form f = { "long", 20, 1, 48, 32, 0, 0, 0, false, false, false, CUDA_NORM_NONE, 0, false };
    static const struct sequence both[] = { { 1, 9000, 1 }, { 2, 4500, 2 } };
    const uint32_t tables[] = { 1, 0 };
    struct world w = make_world(&f, 2, 10000, 7);
    for (uint32_t s = 0; s < 2; s++) fill_past(&w, &both[s], tables[s]);
    struct batch b = make_batch(&w, both, tables, 2, 40); /* padding: too many tiles for splits of their own */
    run_batch(&w, &b, FEW);
    for (uint32_t s = 0; s < 2; s++) {
        const double e = sequence_error(&f, &b, &both[s], s, 1);
        if (!(e <= 3e-3)) fail_msg("past %u: off by %.3g", both[s].past, e);
        same_alone(&f, &b, s, &both[s], 3, s ? 8192 : 16384, "alone and beside another");
    }
    drop_batch(&b);
    drop_world(&w);
}

/* Splits follow each other without gaps, and are as many as is said. */
static void test_splits(void **state)
{
    (void)state;
    for (uint32_t page = 0, split = 0; page < 10000; page++) {
        split += page == split_end(split);
        assert_int_equal(split_of(page), split);
        assert_true(page < split_end(split));
    }
    assert_int_equal(split_of(127), 31);
    assert_int_equal(split_of(255), 47);
    assert_int_equal(split_of(1023), 79);
}

/* A prompt at once, in tiles of 64, and in chunks that begin anywhere, of which small ones go in tiles of 16. */
static void test_prompt_bits(void **state)
{
    (void)state;
    static const uint32_t cuts[] = { 0, 1, 40, 64, 161, 290, 300, 330 }, which[] = { 0, 2, 3, 5, 6 };
    for (uint32_t i = 0; i < sizeof which / sizeof *which; i++) {
        const struct form *f = &forms[which[i]];
        const uint32_t end = which[i] < WIDE ? 3 : 7, table = 0, tables[] = { 1, 0 };
        struct world w = make_world(f, 2, 1024, 3), x = make_world(f, 2, 1024, 4);
        const struct sequence whole[] = { { 7, 0, cuts[end] }, { 8, 0, 400 } };
        struct batch all = make_batch(&w, whole, tables, 2, 0);
        run_batch(&w, &all, PROMPT);
        for (uint32_t c = 0; c < end; c++) {
            const struct sequence chunk = { 7, cuts[c], cuts[c + 1] - cuts[c] };
            struct batch b = make_batch(&x, &chunk, &table, 1, 0);
            run_batch(&x, &b, PROMPT);
            for (uint32_t r = 0; r < chunk.rows; r++)
                same_rows(f, &b, r, &all, chunk.past + r, "in a chunk and at once", chunk.past + r);
            drop_batch(&b);
        }
        drop_batch(&all);
        drop_world(&w);
        drop_world(&x);
    }
}

/* Over what another layer stored: no keys of its own. */
static void test_no_keys(void **state)
{
    (void)state;
    const struct form *f = &forms[4];
    const struct sequence s = { 7, 100, 3 };
    const uint32_t table = 0;
    struct world w = make_world(f, 1, 512, 3);
    fill_past(&w, &s, 0);
    struct batch b = make_batch(&w, &s, &table, 1, 0), c = make_batch(&w, &s, &table, 1, 0);
    run_batch(&w, &b, FEW);
    describe(&w, &c);
    c.a.k = NULL;
    LAUNCH(cuda_latent_store(&c.a, w.query.device, NULL, &error_text));
    LAUNCH(cuda_latent(&c.a, w.query.device, w.context, NULL, &error_text));
    receive(&c.y.act);
    for (uint32_t r = 0; r < s.rows; r++) same_rows(f, &b, r, &c, r, "without keys", s.past + r);
    drop_batch(&b);
    drop_batch(&c);
    drop_world(&w);
}

/* Scores of taps, and -inf where nothing is seen. */
static void test_scores(void **state)
{
    (void)state;
    static const uint32_t which[] = { 0, 5, 6 };
    for (uint32_t i = 0; i < sizeof which / sizeof *which; i++) {
        const struct form *f = &forms[which[i]];
        const struct sequence s = { 3, 50, 20 };
        const uint32_t table = 0, keys = 75;
        struct world w = make_world(f, 1, 512, 3);
        fill_past(&w, &s, 0);
        struct batch b = make_batch(&w, &s, &table, 1, 0);
        run_batch(&w, &b, STORE);
        array<float> out = make<float>((size_t)b.rows * f->heads * keys);
        LAUNCH(cuda_latent_scores(&b.a, w.query.device, keys, out.device, NULL, &error_text));
        receive(&out);
        for (uint32_t r = 0; r < s.rows; r += 3)
            for (uint32_t head = 0; head < f->heads; head += 5) {
                double q[MOST_HEAD], k[MOST_HEAD];
                finish(f, s.name, s.past + r, 0, head, q);
                for (uint32_t p = 0; p < keys; p++) {
                    const float got = out.host[((size_t)r * f->heads + head) * keys + p];
                    if (!sees(f, s.past + r, p, s.past + s.rows - 1)) {
                        assert_true(got == -INFINITY);
                        continue;
                    }
                    finish(f, s.name, p, 1, head / (f->heads / f->kv_heads), k);
                    const double x = score_of(f, q, k, head, s.past + r - p);
                    if (!(fabs(got - x) <= 4e-3))
                        fail_msg("%s: row %u head %u key %u: %g, expected %g", f->name, r, head, p, got, x);
                }
            }
        drop(&out);
        drop_batch(&b);
        drop_world(&w);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    const struct sequence s = { 3, 0, 1 };
    const uint32_t table = 0;
    struct world w = make_world(&forms[3], 1, 512, 3);
    struct batch b = make_batch(&w, &s, &table, 1, 0);
    run_batch(&w, &b, FEW);
    assert_true(cuda_latent_serves(576, 512));
    assert_true(cuda_latent_serves(1, 1));
    assert_false(cuda_latent_serves(577, 512));
    assert_false(cuda_latent_serves(576, 513));
    assert_false(cuda_latent_serves(576, 0));
    struct cuda_attend a = b.a;
    a.dk = 577;
    assert_int_equal(cuda_latent(&a, w.query.device, 512, NULL, &error_text), WK_UNSUPPORTED);
    assert_non_null(strstr(error_memory, "577"));
    a = b.a, a.dv = 41;
    assert_int_equal(cuda_latent(&a, w.query.device, 512, NULL, &error_text), WK_UNSUPPORTED);
    a = b.a, a.v = a.k;
    assert_int_equal(cuda_latent_store(&a, w.query.device, NULL, &error_text), WK_INVALID);
    a = b.a, a.value_in_key = false;
    assert_int_equal(cuda_latent(&a, w.query.device, 512, NULL, &error_text), WK_INVALID);
    a = b.a, a.workspace = NULL;
    assert_int_equal(cuda_latent(&a, w.query.device, 512, NULL, &error_text), WK_INVALID);
    assert_int_equal(cuda_attend_prompt(&b.a, w.query.device, NULL, &error_text), WK_INVALID);
    assert_int_equal(cuda_attend(&b.a, 512, NULL, &error_text), WK_INVALID);
    drop_batch(&b);
    drop_world(&w);
}

int main(int argc, char **argv)
{
    if (no_gpu()) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits),  cmocka_unit_test(test_refusals),    cmocka_unit_test(test_few),
        cmocka_unit_test(test_prompt),  cmocka_unit_test(test_few_bits),    cmocka_unit_test(test_long),
        cmocka_unit_test(test_no_keys), cmocka_unit_test(test_prompt_bits), cmocka_unit_test(test_scores),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
