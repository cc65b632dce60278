/* test_prepare: a run's inputs, as the host writes them, against what lies on the device afterwards: tokens and last
 * ids, page tables of several groups, shorter and longer than a block of threads, rotations at guessed positions and at
 * others, runs one after the other around the ring. */
#include "device/cuda/prepare.h"
#include "device/cuda/test_device.cuh"

enum {
    ROWS = 110,
    SEQS = 100,
    GROUPS = 3,
    SLOTS = 80,
    PAIRS = 48,
    ROPE_TABLES = 2,
    OFFSETS = 4, /* the second is a constant row, the last by the token's type */
    VOCAB = 1000,
    CONTEXT = 9000
};

/* Groups: all pages of the context, more than a block has threads; a ring; few pages in a table with room for all. */
static const uint32_t ring_pages[GROUPS] = { 0, 13, 0 }, group_pages[GROUPS] = { (CONTEXT + KV_PAGE - 1) / KV_PAGE, 13,
                                                                                 (CONTEXT + KV_PAGE - 1) / KV_PAGE };

struct rig {
    uint8_t *host;
    struct prepare p;
    array<uint32_t> word, last, token, position, logits_rows, pages, offset[OFFSETS];
    array<int32_t> row_seq;
    array<struct cuda_seq> seq, sampled;
    array<struct cuda_lengths> lengths;
    array<double> freq;
    array<float> rope_table[ROPE_TABLES];
    uint32_t serial;
};

static void open_rig(struct rig *r)
{
    *r = {};
    struct prepare *p = &r->p;
    for (uint32_t g = 0; g < GROUPS; g++) {
        p->page_offset[g] = p->page_stride;
        p->ring_pages[g] = ring_pages[g];
        p->page_stride += group_pages[g];
    }
    p->layout = prepare_layout(ROWS, SEQS, p->page_stride);
    CUDA_OK(cudaHostAlloc((void **)&r->host, CUDA_RING * p->layout.bytes, cudaHostAllocMapped));
    CUDA_OK(cudaHostGetDevicePointer((void **)&p->ring, r->host, 0));
    memset(r->host, 0xee, CUDA_RING * p->layout.bytes);
    r->word = make<uint32_t>(2);
    r->word.host[0] = r->serial = UINT32_MAX - 2; /* on its way around */
    r->word.host[1] = 0;
    send(&r->word);
    r->last = make<uint32_t>(SLOTS);
    for (uint32_t i = 0; i < SLOTS; i++) r->last.host[i] = i % 7 == 3 ? UINT32_MAX : next_noise() % VOCAB;
    send(&r->last);
    p->serial = r->word.device;
    p->ticket = r->word.device + 1;
    p->last = r->last.device;
    r->token = make<uint32_t>(ROWS), p->token = r->token.device;
    r->position = make<uint32_t>(ROWS), p->position = r->position.device;
    r->logits_rows = make<uint32_t>(ROWS), p->logits_rows = r->logits_rows.device;
    r->row_seq = make<int32_t>(ROWS), p->row_seq = r->row_seq.device;
    r->seq = make<struct cuda_seq>(SEQS), p->seq = r->seq.device;
    r->sampled = make<struct cuda_seq>(SEQS), p->sampled = r->sampled.device;
    r->lengths = make<struct cuda_lengths>((SEQS + WK_CUDA_FEW - 1) / WK_CUDA_FEW), p->lengths = r->lengths.device;
    r->pages = make<uint32_t>((size_t)SEQS * p->page_stride), p->pages = r->pages.device;
    r->freq = make<double>(PAIRS);
    for (uint32_t i = 0; i < PAIRS; i++) r->freq.host[i] = pow(10000.0, -(double)i / PAIRS);
    send(&r->freq);
    p->n_groups = GROUPS;
    p->n_vocab = VOCAB;
    p->n_rope_tables = ROPE_TABLES;
    p->n_rows = OFFSETS;
    for (uint32_t t = 0; t < ROPE_TABLES; t++) {
        const uint32_t n = t ? 5 : PAIRS;
        r->rope_table[t] = make<float>((size_t)ROWS * n * 2);
        p->rope_table[t] =
            prepare_rope_table{ r->freq.device, r->rope_table[t].device, t ? 1.25 : 1.0, 0.1 * t, n, 37 * t };
    }
    for (uint32_t i = 0; i < OFFSETS; i++) {
        r->offset[i] = make<uint32_t>(ROWS);
        p->row[i].offset = 3 * i;
        p->row[i].by_position = i != 1 && i != 3;
        p->row[i].by_type = i == 3;
        p->row[i].index = r->offset[i].device;
    }
}

static void close_rig(struct rig *r)
{
    CUDA_OK(cudaFreeHost(r->host));
    drop(&r->word), drop(&r->last), drop(&r->token), drop(&r->position), drop(&r->logits_rows), drop(&r->row_seq),
        drop(&r->seq), drop(&r->sampled), drop(&r->lengths), drop(&r->pages), drop(&r->freq);
    for (uint32_t t = 0; t < ROPE_TABLES; t++) drop(&r->rope_table[t]);
    for (uint32_t i = 0; i < OFFSETS; i++) drop(&r->offset[i]);
}

struct inputs {
    struct prepare_row row[ROWS];
    struct cuda_seq seq[SEQS], sampled[SEQS];
    struct cuda_lengths lengths[(SEQS + WK_CUDA_FEW - 1) / WK_CUDA_FEW];
    uint32_t page[SEQS][2 * CONTEXT / KV_PAGE + 64];
};

static void put_lengths(struct inputs *in, struct prepare_line *line, uint32_t seqs)
{
    for (uint32_t i = 0; i < seqs; i += WK_CUDA_FEW) {
        struct cuda_lengths *l = &in->lengths[i / WK_CUDA_FEW];
        *l = cuda_lengths{};
        for (uint32_t j = i; j < seqs && j < i + WK_CUDA_FEW; j++) cuda_lengths_add(l, &in->seq[j]);
        line[i].lengths = *l;
    }
}

/* Random inputs of a run of `rows` rows and `seqs` sequences, some of them padding; positions one further than before,
 * or anywhere. */
static void make_inputs(struct rig *r, struct inputs *in, uint32_t rows, uint32_t seqs, bool further)
{
    for (uint32_t i = 0; i < rows; i++) {
        in->row[i].token = next_noise() % 3 ? next_noise() % VOCAB : PREPARE_LAST | next_noise() % SLOTS;
        if (next_noise() % 2) in->row[i].token |= PREPARE_SECOND;
        in->row[i].position = further ? in->row[i].position + 1 : next_noise() % CONTEXT;
        in->row[i].seq = next_noise() % 5 ? (int32_t)(next_noise() % seqs) : CUDA_PADDING;
        in->row[i].logits_row = next_noise() % rows;
    }
    for (uint32_t i = 0; i < seqs; i++) {
        in->seq[i] = cuda_seq{ i, next_noise() % 4 ? 1 + next_noise() % 3 : 0,
                               i % 3 ? next_noise() % 600 : next_noise() % (CONTEXT - 8), next_noise() % SLOTS };
        in->sampled[i] = cuda_seq{ i, next_noise() % 2, next_noise() % CONTEXT, next_noise() % SLOTS };
        uint32_t n = 0;
        for (uint32_t g = 0; g < GROUPS; g++)
            n += prepare_pages(ring_pages[g], in->seq[i].position + in->seq[i].n_rows);
        for (uint32_t j = 0; j < n; j++) in->page[i][j] = next_noise();
    }
    uint8_t *block = r->host + (r->serial + 1) % CUDA_RING * r->p.layout.bytes;
    struct prepare_line *line = (struct prepare_line *)block;
    for (uint32_t i = 0; i < rows; i++) line[i].row = in->row[i];
    for (uint32_t i = 0; i < seqs; i++) line[i].seq = in->seq[i], line[i].sampled = in->sampled[i];
    put_lengths(in, line, seqs);
    for (uint32_t i = 0; i < seqs; i++)
        memcpy(block + r->p.layout.pages + (size_t)i * r->p.layout.table * 4, in->page[i],
               r->p.page_stride * 4 < sizeof in->page[i] ? r->p.page_stride * 4 : sizeof in->page[i]);
}

static void check_rows(const struct rig *r, const struct inputs *in, uint32_t rows)
{
    for (uint32_t i = 0; i < rows; i++) {
        const struct prepare_row *row = &in->row[i];
        const uint32_t type = row->token & PREPARE_SECOND ? 1 : 0, own = row->token & ~PREPARE_SECOND,
                       token = own & PREPARE_LAST ? r->last.host[own & ~PREPARE_LAST] : own;
        assert_int_equal(r->token.host[i], token < VOCAB ? token : 0);
        assert_int_equal(r->position.host[i], row->position);
        assert_int_equal(r->row_seq.host[i], row->seq);
        assert_int_equal(r->logits_rows.host[i], row->logits_row);
        for (uint32_t k = 0; k < OFFSETS; k++)
            assert_int_equal(r->offset[k].host[i], (k == 3 ? type : k == 1 ? 0 : row->position) + 3 * k);
        for (uint32_t t = 0; t < ROPE_TABLES; t++)
            for (uint32_t j = 0; j < r->p.rope_table[t].n; j++) {
                const float *got = r->rope_table[t].host + ((size_t)i * r->p.rope_table[t].n + j) * 2;
                const double angle = (double)row->position * r->freq.host[j];
                const double m = t ? 1.25 * (1 + 0.1 * log(1 + (double)((row->position + 1) / 37))) : 1;
                if (!(fabs(got[0] - m * cos(angle)) < 2e-7 && fabs(got[1] - m * sin(angle)) < 2e-7))
                    fail_msg("row %u at %u, table %u, pair %u: %.9g %.9g", i, row->position, t, j, (double)got[0],
                             (double)got[1]);
            }
    }
}

static void check_pages(const struct rig *r, const struct inputs *in, uint32_t seqs)
{
    for (uint32_t i = 0; i < seqs; i++) {
        assert_memory_equal(&r->seq.host[i], &in->seq[i], sizeof in->seq[i]);
        assert_memory_equal(&r->sampled.host[i], &in->sampled[i], sizeof in->sampled[i]);
        assert_memory_equal(&r->lengths.host[i / WK_CUDA_FEW], &in->lengths[i / WK_CUDA_FEW], sizeof *in->lengths);
        const uint32_t *from = in->page[i];
        for (uint32_t g = 0; g < GROUPS; g++) {
            const uint32_t n =
                in->seq[i].n_rows ? prepare_pages(ring_pages[g], in->seq[i].position + in->seq[i].n_rows) : 0;
            const uint32_t *got = r->pages.host + (size_t)i * r->p.page_stride + r->p.page_offset[g];
            for (uint32_t j = 0; j < group_pages[g]; j++)
                if (got[j] != (j < n ? from[j] : UINT32_MAX))
                    fail_msg("sequence %u with %u rows from %u, group %u: entry %u of %u is %u", i, in->seq[i].n_rows,
                             in->seq[i].position, g, j, n, got[j]);
            from += n;
        }
    }
}

static void run_once(struct rig *r, struct inputs *in, uint32_t rows, uint32_t seqs, bool further)
{
    make_inputs(r, in, rows, seqs, further);
    poison(&r->token), poison(&r->logits_rows), poison(&r->row_seq), poison(&r->seq), poison(&r->sampled),
        poison(&r->lengths), poison(&r->pages); /* positions stay: they are read */
    LAUNCH(cuda_prepare(&r->p, rows, seqs, further, NULL, &error_text));
    receive(&r->token), receive(&r->position), receive(&r->logits_rows), receive(&r->row_seq), receive(&r->seq),
        receive(&r->sampled), receive(&r->lengths), receive(&r->pages), receive(&r->word);
    for (uint32_t t = 0; t < ROPE_TABLES; t++) receive(&r->rope_table[t]);
    for (uint32_t i = 0; i < OFFSETS; i++) receive(&r->offset[i]);
    r->serial++;
    assert_int_equal(r->word.host[0], r->serial);
    assert_int_equal(r->word.host[1], 0);
    check_rows(r, in, rows);
    check_pages(r, in, seqs);
}

static void test_runs(void **state)
{
    (void)state;
    struct rig r;
    struct inputs *in = (struct inputs *)calloc(1, sizeof *in);
    assert_non_null(in);
    open_rig(&r);
    static const struct {
        uint32_t rows, seqs;
    } shapes[] = { { 1, 1 }, { 2, 2 }, { 64, 64 }, { 64, 3 }, { ROWS, SEQS }, { ROWS, 1 } };
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint32_t round = 0; round < 4; round++) run_once(&r, in, shapes[i].rows, shapes[i].seqs, round % 2);
    close_rig(&r);
    free(in);
}

/* Every length of a table around what a block of threads takes at once. */
static void test_lengths(void **state)
{
    (void)state;
    struct rig r;
    struct inputs *in = (struct inputs *)calloc(1, sizeof *in);
    assert_non_null(in);
    open_rig(&r);
    for (uint32_t pages = 1; pages < 281; pages += pages > 8 && pages < 120 ? 17 : 1) {
        make_inputs(&r, in, 1, 1, false);
        in->seq[0].n_rows = 1;
        in->seq[0].position = pages * KV_PAGE - 1;
        struct prepare_line *line = (struct prepare_line *)(r.host + (r.serial + 1) % CUDA_RING * r.p.layout.bytes);
        line->seq = in->seq[0];
        put_lengths(in, line, 1);
        uint32_t *table = (uint32_t *)(r.host + (r.serial + 1) % CUDA_RING * r.p.layout.bytes + r.p.layout.pages);
        for (uint32_t j = 0; j < 2 * pages + 13; j++) table[j] = in->page[0][j] = 7 * j + pages;
        poison(&r.pages);
        LAUNCH(cuda_prepare(&r.p, 1, 1, false, NULL, &error_text));
        r.serial++;
        receive(&r.seq), receive(&r.sampled), receive(&r.lengths), receive(&r.pages);
        check_pages(&r, in, 1);
    }
    close_rig(&r);
    free(in);
}

int main(void)
{
    const int skipped = no_gpu();
    if (skipped) return skipped;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_runs), cmocka_unit_test(test_lengths) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
