/* test_moe.cu: routes, panels, combinations and pooled rows against float64; ties, NaN, chunks. */
#include <worker/cuda/part/panels.cuh>

#include "device/cuda/kernels.h"
#include "device/cuda/test_device.cuh"

enum { MOST_EXPERTS = 600 };

/* ---- route --------------------------------------------------------------------------------------------- */

static void pick(const float *r, uint32_t experts, uint32_t k, uint32_t *ids)
{
    bool taken[MOST_EXPERTS] = { false };
    for (uint32_t s = 0; s < k; s++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t e = 0; e < experts; e++)
            if (!taken[e] && (best == UINT32_MAX || r[e] > r[best])) best = e;
        taken[best] = true;
        ids[s] = best;
    }
}

static void check_route(const float *r, const float *out, uint32_t experts, uint32_t k, uint32_t score, double scale)
{
    uint32_t ids[TAPE_MAX_SLOTS];
    double all = 0, picked = 0;
    pick(r, experts, k, ids);
    for (uint32_t e = 0; e < experts; e++) all += exp((double)r[e] - r[ids[0]]);
    for (uint32_t s = 0; s < k; s++) picked += exp((double)r[ids[s]] - r[ids[0]]);
    for (uint32_t s = 0; s < k; s++) {
        uint32_t id;
        memcpy(&id, out + k + s, 4);
        const double expected = score == WK_SCORE_SIGMOID ? scale / (1 + exp(-(double)r[ids[s]]))
                                                          : exp((double)r[ids[s]] - r[ids[0]]) /
                                                                (score == WK_SCORE_SOFTMAX ? all : picked) * scale;
        if (id != ids[s]) fail_msg("top %u of %u: pick %u is %u, expected %u", k, experts, s, id, ids[s]);
        if (!(fabs(out[s] - expected) <= 1e-6 * expected + 1e-37))
            fail_msg("top %u of %u, score %u: weight %u is %.9g, expected %.9g", k, experts, score, s, out[s],
                     expected);
    }
}

static struct cuda_route route_of(uint32_t rows, uint32_t experts, uint32_t k, uint32_t score,
                                  const array<float> *logits, uint32_t stride, const array<float> *out,
                                  uint32_t out_stride)
{
    struct cuda_route r = {};
    r.rows = rows;
    r.experts = experts;
    r.k = k;
    r.score = score;
    r.scale = 1.0f;
    r.logits = { logits->device, stride, NULL };
    r.out = out->device;
    r.out_stride = out_stride;
    return r;
}

static void test_route(void **state)
{
    (void)state;
    static const uint32_t cases[][2] = { { 1, 1 },  { 2, 1 },   { 8, 2 },   { 31, 31 }, { 32, 4 },  { 33, 4 },
                                         { 60, 4 }, { 64, 64 }, { 128, 8 }, { 256, 8 }, { 600, 40 } };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t score = WK_SCORE_SOFTMAX_TOPK; score < WK_SCORE_END; score++)
            for (uint32_t form = 0; form < 3; form++) {
                const uint32_t experts = cases[i][0], k = cases[i][1], rows = form == 1 ? 1 : 9,
                               stride = (experts + 15) / 16 * 16, out_stride = (2 * k + 15) / 16 * 16;
                array<float> r = make_noise((size_t)(rows + 1) * stride, 4),
                             out = make<float>((size_t)rows * out_stride);
                array<uint32_t> index = make<uint32_t>(rows);
                /* Form 2: few different values, so that most are ties; zeros of both signs. */
                if (form == 2)
                    for (size_t j = 0; j < r.n; j++)
                        r.host[j] = (float)(next_noise() % 3) - 1 == 0 ? (next_noise() % 2 ? 0.0f : -0.0f)
                                                                       : (float)(next_noise() % 3) - 1;
                for (uint32_t j = 0; j < rows; j++) index.host[j] = rows - j;
                send(&r);
                send(&index);
                struct cuda_route call = route_of(rows, experts, k, score, &r, stride, &out, out_stride);
                call.pdl = form == 0;
                call.scale = 1.5f;
                call.logits.index = form ? index.device : NULL;
                LAUNCH(cuda_route(&call, NULL, &error_text));
                receive(&out);
                for (uint32_t j = 0; j < rows; j++) {
                    check_route(r.host + (size_t)(form ? index.host[j] : j) * stride, out.host + (size_t)j * out_stride,
                                experts, k, score, 1.5);
                    for (uint32_t q = 2 * k; q < out_stride; q++)
                        assert_true(isnan(out.host[(size_t)j * out_stride + q]));
                }
                drop(&r);
                drop(&out);
                drop(&index);
            }
}

/* Choices by score + bias among the best groups, in float64; numbers are such that no two scores are close, or equal
 * when `ties`: then logits and biases of few values meet in few sums. */
struct rules {
    uint32_t experts, k, groups, used, group_score;
};

static uint32_t rank_of(const double *x, uint32_t n, uint32_t i)
{
    uint32_t rank = 0;
    for (uint32_t j = 0; j < n; j++) rank += x[j] > x[i] || (x[j] == x[i] && j < i);
    return rank;
}

/* choice: what decides; an expert that is out has -infinity. */
static void keep_groups(const struct rules *c, double *choice)
{
    const uint32_t size = c->groups ? c->experts / c->groups : 0;
    double best[TAPE_MAX_ROUTE_GROUPS];
    for (uint32_t g = 0; g < c->groups; g++) {
        best[g] = 0;
        for (uint32_t e = 0; e < size; e++)
            if (rank_of(choice + g * size, size, e) < (c->group_score == WK_GROUP_TOP2 ? 2 : 1))
                best[g] += choice[g * size + e];
    }
    for (uint32_t e = 0; c->groups && e < c->experts; e++)
        if (rank_of(best, c->groups, e / size) >= c->used) choice[e] = -INFINITY;
}

static void scored_one(const struct rules *c, uint32_t score, bool biased, bool normalize, bool ties)
{
    enum { ROWS = 7 };
    static const float tied[] = { -1, 0, 2 };
    const uint32_t n = c->experts, k = c->k, stride = (2 * k + 15) / 16 * 16;
    array<float> r = make_noise((size_t)ROWS * n, 3), bias = make_noise(n, 0.4f), out = make<float>(ROWS * stride);
    /* Exact in F32 and apart by more than rounding: each logit another multiple of 1/64 where there are no ties. */
    for (uint32_t i = 0; i < ROWS * n; i++)
        r.host[i] = ties ? tied[next_noise() % 3] : (float)((i * 37u) % n) / 64 - 3 + (i / n) / 256.0f;
    for (uint32_t e = 0; e < n; e++) bias.host[e] = ties ? (float)(e / 2 % 2) : bias.host[e];
    send(&r);
    send(&bias);
    struct cuda_route call = route_of(ROWS, n, k, score, &r, n, &out, stride);
    call.scale = 2.5f;
    call.bias = biased ? bias.device : NULL;
    call.n_groups = c->groups;
    call.groups_used = c->used;
    call.group_score = c->group_score;
    call.normalize = normalize;
    LAUNCH(cuda_route(&call, NULL, &error_text));
    receive(&out);
    for (uint32_t row = 0; row < ROWS; row++) {
        double p[MOST_EXPERTS], choice[MOST_EXPERTS], all = 0, sum = 0;
        uint32_t ids[TAPE_MAX_SLOTS];
        const float *x = r.host + (size_t)row * n, *got = out.host + (size_t)row * stride;
        for (uint32_t e = 0; e < n; e++) all += exp((double)x[e]);
        for (uint32_t e = 0; e < n; e++) {
            p[e] = score == WK_SCORE_SIGMOID ? 1 / (1 + exp(-(double)x[e])) : exp((double)x[e]) / all;
            choice[e] = p[e] + (biased ? bias.host[e] : 0);
        }
        keep_groups(c, choice);
        for (uint32_t e = 0; e < n; e++)
            if (rank_of(choice, n, e) < k) ids[rank_of(choice, n, e)] = e;
        for (uint32_t s = 0; s < k; s++) sum += p[ids[s]];
        for (uint32_t s = 0; s < k; s++) {
            const double expected = p[ids[s]] / (normalize ? sum : 1) * 2.5;
            uint32_t id;
            memcpy(&id, got + k + s, 4);
            if (id != ids[s])
                fail_msg("score %u, top %u of %u, %u of %u groups by %u, bias %d: row %u, pick %u is %u, expected %u",
                         score, k, n, c->used, c->groups, c->group_score, biased, row, s, id, ids[s]);
            if (!(fabs(got[s] - expected) <= 2e-6 * expected))
                fail_msg("score %u, top %u of %u: weight %u is %.9g, expected %.9g", score, k, n, s, got[s], expected);
        }
        for (uint32_t q = 2 * k; q < stride; q++) assert_true(isnan(got[q]));
    }
    drop(&r);
    drop(&bias);
    drop(&out);
}

static void test_scored(void **state)
{
    (void)state;
    static const struct rules cases[] = { { 8, 3, 0, 0, 0 },
                                          { 33, 33, 0, 0, 0 },
                                          { 128, 8, 0, 0, 0 },
                                          { 8, 3, 4, 2, WK_GROUP_TOP2 },
                                          { 64, 6, 8, 3, WK_GROUP_MAX },
                                          { 160, 6, 8, 3, WK_GROUP_MAX },
                                          { 256, 8, 8, 4, WK_GROUP_TOP2 },
                                          { 64, 5, 64, 5, WK_GROUP_MAX },
                                          { 512, 64, 2, 1, WK_GROUP_TOP2 } };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t form = 0; form < 16; form++) {
            const uint32_t score = form & 1 ? WK_SCORE_SIGMOID : WK_SCORE_SOFTMAX;
            if (form & 8 && score == WK_SCORE_SOFTMAX && form & 2) continue; /* probability + 1: rounding makes ties */
            scored_one(&cases[i], score, form & 2, form & 4, form & 8);
        }
}

/* However far the logits are out, the chosen experts differ and the weights are numbers: of experts that the softmax
 * over all leaves nothing, of sigmoids that are 0 in F32. A row with a NaN shows it. */
static void test_extreme_scores(void **state)
{
    (void)state;
    enum { ROWS = 4, EXPERTS = 40, K = 6 };
    array<float> r = make<float>(ROWS * EXPERTS), bias = make<float>(EXPERTS), out = make<float>(ROWS * 2 * K);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        r.host[e] = e == 3 ? 5000.0f : -5000.0f;
        r.host[EXPERTS + e] = -1000.0f - e;
        r.host[2 * EXPERTS + e] = 1000.0f;
        r.host[3 * EXPERTS + e] = e == 17 ? NAN : 0.0f;
        bias.host[e] = e < 8 ? 0.0f : 2.0f;
    }
    send(&r);
    send(&bias);
    for (uint32_t score = WK_SCORE_SOFTMAX; score < WK_SCORE_END; score++)
        for (uint32_t groups = 0; groups <= 5; groups += 5) {
            struct cuda_route call = route_of(ROWS, EXPERTS, K, score, &r, EXPERTS, &out, 2 * K);
            call.bias = bias.device;
            call.n_groups = groups;
            call.groups_used = 2;
            call.group_score = WK_GROUP_TOP2;
            call.normalize = true;
            poison(&out);
            LAUNCH(cuda_route(&call, NULL, &error_text));
            receive(&out);
            for (uint32_t i = 0; i < ROWS; i++) {
                bool seen[EXPERTS] = { false };
                float sum = 0;
                for (uint32_t s = 0; s < K; s++) {
                    uint32_t id;
                    memcpy(&id, out.host + i * 2 * K + K + s, 4);
                    assert_true(id < EXPERTS && !seen[id]);
                    seen[id] = true;
                    sum += out.host[i * 2 * K + s];
                }
                if (i < 3 && !(fabsf(sum - 1) <= 1e-5f)) fail_msg("row %u, score %u: weights sum to %g", i, score, sum);
                if (i == 3) assert_true(isnan(sum));
            }
        }
    drop(&r);
    drop(&bias);
    drop(&out);
}

/* Rows with NaN or infinities still get k different experts, and the weights of a row with a NaN show it. */
static void test_broken_rows(void **state)
{
    (void)state;
    enum { ROWS = 4, EXPERTS = 40, K = 6 };
    array<float> r = make_noise(ROWS * EXPERTS, 1), out = make<float>(ROWS * 2 * K);
    for (uint32_t e = 0; e < EXPERTS; e++) {
        r.host[e] = NAN;
        r.host[EXPERTS + e] = -INFINITY;
    }
    r.host[2 * EXPERTS + 17] = NAN;
    r.host[3 * EXPERTS + 5] = INFINITY;
    send(&r);
    const struct cuda_route call = route_of(ROWS, EXPERTS, K, WK_SCORE_SOFTMAX_TOPK, &r, EXPERTS, &out, 2 * K);
    LAUNCH(cuda_route(&call, NULL, &error_text));
    receive(&out);
    for (uint32_t i = 0; i < ROWS; i++) {
        bool seen[EXPERTS] = { false };
        for (uint32_t s = 0; s < K; s++) {
            uint32_t id;
            memcpy(&id, out.host + i * 2 * K + K + s, 4);
            assert_true(id < EXPERTS && !seen[id]);
            seen[id] = true;
            if (i < 3) assert_true(isnan(out.host[i * 2 * K + s]));
        }
    }
    drop(&r);
    drop(&out);
}

/* The items by expert are those of the ids that stand in the rows, sorted; padding has none; the ticket is 0 again, so
 * a second run gives the same. */
static void test_groups(void **state)
{
    (void)state;
    static const uint32_t cases[][3] = { { 1, 1, 1 },    { 2, 8, 2 },     { 7, 32, 4 },
                                         { 64, 32, 4 },  { 33, 33, 33 },  { 64, 600, 40 },
                                         { 9, 5000, 3 }, { 700, 128, 8 }, { 3000, 32, 4 } };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t padding = 0; padding < 3; padding++) {
            const uint32_t rows = cases[i][0], experts = cases[i][1], k = cases[i][2], stride = (2 * k + 15) / 16 * 16;
            const size_t words = wk_cuda_group_words(experts, (uint64_t)rows * k);
            array<float> r = make_noise((size_t)rows * experts, 4), out = make<float>((size_t)rows * stride);
            array<uint32_t> groups = make<uint32_t>(words), ticket = make<uint32_t>(1);
            array<int32_t> seq = make<int32_t>(rows);
            for (uint32_t j = 0; j < rows; j++) seq.host[j] = padding == 2 || j % 3 == 1 ? CUDA_PADDING : (int32_t)j;
            /* Half of the rows choose among few experts. */
            for (uint32_t j = 0; j < rows; j += 2)
                for (uint32_t e = 0; e < experts; e++) r.host[(size_t)j * experts + e] += e < k + 2 ? 20.0f : 0.0f;
            ticket.host[0] = 0;
            send(&r);
            send(&seq);
            send(&ticket);
            struct cuda_route call = route_of(rows, experts, k, WK_SCORE_SOFTMAX_TOPK, &r, experts, &out, stride);
            call.pdl = padding == 1;
            call.groups = groups.device;
            call.ticket = ticket.device;
            call.row_seq = padding ? seq.device : NULL;
            for (uint32_t run = 0; run < 2; run++) {
                poison(&groups);
                LAUNCH(cuda_route(&call, NULL, &error_text));
            }
            receive(&out);
            receive(&groups);
            receive(&ticket);
            assert_int_equal(ticket.host[0], 0);
            uint32_t used = 0, items = 0;
            for (uint32_t e = 0; e < experts; e++) {
                const uint32_t first = items;
                for (uint32_t j = 0; j < rows * k; j++) {
                    uint32_t id;
                    memcpy(&id, out.host + (size_t)(j / k) * stride + k + j % k, 4);
                    if (id != e || (padding && seq.host[j / k] < 0)) continue;
                    if (groups.host[2 * experts + 1 + items] != j)
                        fail_msg("%u rows, top %u of %u: item %u is %u, expected %u", rows, k, experts, items,
                                 groups.host[2 * experts + 1 + items], j);
                    items++;
                }
                if (items == first) continue;
                assert_int_equal(groups.host[used], e);
                assert_int_equal(groups.host[experts + used], first);
                used++;
            }
            assert_int_equal(items, padding == 2 ? 0 : padding ? (rows - (rows + 1) / 3) * k : rows * k);
            for (uint32_t e = used; e < experts; e++) assert_int_equal(groups.host[e], 0);
            for (uint32_t e = used; e <= experts; e++) assert_int_equal(groups.host[experts + e], items);
            drop(&r);
            drop(&out);
            drop(&groups);
            drop(&ticket);
            drop(&seq);
        }
}

/* ---- router -------------------------------------------------------------------------------------------- */

struct router_case {
    uint32_t rows, k, experts, top;
    array<float> x, part, norm, w, bias, y, out;
    array<uint16_t> act;
    array<uint32_t> groups, tickets, index;
    struct cuda_router call;
};

enum { ROUTER_ROWS = 310 };

static struct router_case make_router(uint32_t rows, uint32_t k, uint32_t experts, uint32_t top)
{
    const uint32_t k32 = wk_act_k(k), stride = (k + 15) / 16 * 16 + 4, logits = (experts + 15) / 16 * 16,
                   out = (2 * top + 15) / 16 * 16;
    struct router_case c = { rows,
                             k,
                             experts,
                             top,
                             make_noise((size_t)ROUTER_ROWS * stride, 3),
                             make<float>((size_t)ROUTER_ROWS * ((k + 15) / 16)),
                             make_noise(k, 1),
                             make_noise((size_t)experts * k, 0.3f),
                             make_noise(experts, 1),
                             make<float>((size_t)rows * logits),
                             make<float>((size_t)rows * out),
                             make<uint16_t>((size_t)ROUTER_ROWS * k32),
                             make<uint32_t>(wk_cuda_group_words(experts, (uint64_t)rows * top)),
                             make<uint32_t>(1),
                             make<uint32_t>(rows),
                             {} };
    struct tape_op as_is = {}; /* rows as they are, with their partials */
    as_is.kind = WK_OP_UNARY;
    as_is.u.unary.fn = WK_UNARY_SCALE;
    as_is.u.unary.p = 1.0f;
    struct cuda_alone a = {};
    a.op = &as_is;
    a.rows = ROUTER_ROWS;
    a.width = a.x_width[0] = k;
    a.slots = a.x_slots[0] = 1;
    a.x[0] = { c.x.device, stride, NULL };
    a.y = c.x.device;
    a.y_stride = stride;
    a.part = c.part.device;
    LAUNCH(cuda_alone(&a, NULL, &error_text));
    memset(c.tickets.host, 0, c.tickets.n * sizeof(uint32_t));
    send(&c.tickets);
    for (uint32_t i = 0; i < rows; i++) c.index.host[i] = (i * 37 + 5) % ROUTER_ROWS;
    send(&c.index);
    c.call.rows = rows;
    c.call.k = k;
    c.call.experts = experts;
    c.call.in.kind = WK_CUDA_IN_RMS;
    c.call.in.eps = 1e-5f;
    c.call.in.x = c.x.device;
    c.call.in.aux = c.part.device;
    c.call.in.w = c.norm.device;
    c.call.in.x_stride = stride;
    c.call.w = c.w.device;
    c.call.bias = c.bias.device;
    c.call.act = c.act.device;
    c.call.y = c.y.device;
    c.call.y_stride = logits;
    c.call.route.k = top;
    c.call.route.score = WK_SCORE_SOFTMAX_TOPK;
    c.call.route.scale = 1.0f;
    c.call.route.out = c.out.device;
    c.call.route.out_stride = out;
    c.call.route.groups = c.groups.device;
    c.call.route.ticket = c.tickets.device;
    return c;
}
static void drop_router(struct router_case *c)
{
    array<float> *const floats[] = { &c->x, &c->part, &c->norm, &c->w, &c->bias, &c->y, &c->out };
    for (array<float> *a : floats) drop(a);
    drop(&c->act);
    array<uint32_t> *const words[] = { &c->groups, &c->tickets, &c->index };
    for (array<uint32_t> *a : words) drop(a);
}

/* Logits against the acts in F64; one more act than rows that were asked for: none is written. */
static void check_logits(struct router_case *c, const array<uint16_t> *act)
{
    const uint32_t k32 = wk_act_k(c->k);
    receive(&c->y);
    for (uint32_t r = 0; r < c->rows; r++)
        for (uint32_t e = 0; e < c->experts; e++) {
            double want = c->bias.host[e], size = fabs(want);
            for (uint32_t i = 0; i < c->k; i++) {
                const double term =
                    (double)half_value(act->host[(size_t)r * k32 + i]) * c->w.host[(size_t)e * c->k + i];
                want += term;
                size += fabs(term);
            }
            const float y = c->y.host[(size_t)r * c->call.y_stride + e];
            if (!(fabs(y - want) <= 1e-6 * size))
                fail_msg("%u rows, k %u: logit %u of row %u is %.9g, expected %.9g", c->rows, c->k, e, r, y, want);
        }
}

static void check_router(uint32_t rows, uint32_t k, uint32_t experts, uint32_t top)
{
    struct router_case c = make_router(rows, k, experts, top);
    const uint32_t k32 = wk_act_k(k), logits = (uint32_t)c.call.y_stride, out = (uint32_t)c.call.route.out_stride;
    for (uint32_t run = 0; run < 2; run++) { /* tickets are 0 again */
        poison(&c.out);
        poison(&c.groups);
        poison(&c.act);
        c.call.pdl = run;
        LAUNCH(cuda_router(&c.call, NULL, &error_text));
    }
    receive(&c.act);
    receive(&c.out);
    receive(&c.groups);
    receive(&c.tickets);
    check_logits(&c, &c.act);
    for (size_t i = 0; i < c.tickets.n; i++) assert_int_equal(c.tickets.host[i], 0);
    for (size_t i = (size_t)rows * k32; i < c.act.n; i++) assert_int_equal(c.act.host[i], 0xffff);

    /* The act is cuda_convert's, the choice cuda_route's. */
    array<uint16_t> act = make<uint16_t>((size_t)rows * k32);
    array<float> chosen = make<float>((size_t)rows * out), y = make<float>((size_t)rows * logits);
    array<uint32_t> groups = make<uint32_t>(c.groups.n);
    const struct cuda_convert convert = {
        false,         rows,          k,    CUDA_NORM_RMS, 1e-5f, 0,    { c.x.device, c.call.in.x_stride, NULL },
        c.part.device, c.norm.device, NULL, act.device,    false, NULL, 0
    };
    LAUNCH(cuda_convert(&convert, NULL, &error_text));
    struct cuda_route route = c.call.route;
    route.rows = rows;
    route.experts = experts;
    route.logits = { c.y.device, logits, NULL };
    route.out = chosen.device;
    route.groups = groups.device;
    LAUNCH(cuda_route(&route, NULL, &error_text));
    receive(&act);
    receive(&chosen);
    receive(&groups);
    assert_memory_equal(act.host, c.act.host, act.n * 2);
    assert_memory_equal(chosen.host, c.out.host, chosen.n * 4);
    assert_memory_equal(groups.host, c.groups.host, groups.n * 4);

    /* From the act, without a choice, and a row by itself: the same logits. */
    struct cuda_router from = c.call;
    from.in = { WK_CUDA_IN_ACT, 0, 0.0f, 0, act.device, NULL, NULL, 0, NULL };
    from.act = NULL;
    from.route.k = 0;
    from.y = y.device;
    LAUNCH(cuda_router(&from, NULL, &error_text));
    receive(&y);
    assert_memory_equal(y.host, c.y.host, y.n * 4);
    poison(&y);
    from.rows = 1;
    from.in.x = act.device + (size_t)(rows - 1) * k32;
    LAUNCH(cuda_router(&from, NULL, &error_text));
    receive(&y);
    assert_memory_equal(y.host, c.y.host + (size_t)(rows - 1) * logits, experts * sizeof(float));
    array<float> *const floats[] = { &chosen, &y };
    for (array<float> *a : floats) drop(a);
    drop(&act);
    drop(&groups);
    drop_router(&c);
}

static void test_router(void **state)
{
    (void)state;
    static const uint32_t cases[][4] = { { 1, 2880, 32, 4 }, { 1, 96, 8, 4 },     { 3, 100, 5, 2 },
                                         { 8, 2880, 32, 4 }, { 9, 64, 33, 4 },    { 33, 96, 8, 4 },
                                         { 64, 500, 32, 4 }, { 2, 3500, 6, 6 },   { 17, 1030, 128, 8 },
                                         { 5, 40, 600, 3 },  { 300, 3200, 8, 2 }, { 309, 100, 32, 4 } };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_router(cases[i][0], cases[i][1], cases[i][2], cases[i][3]);
}

/* Picked rows: those of the index, in its order. */
static void test_picked_router(void **state)
{
    (void)state;
    for (uint32_t rows = 3; rows <= 21; rows += 18) {
        struct router_case c = make_router(rows, 160, 8, 2);
        c.call.in.row_index = c.index.device;
        LAUNCH(cuda_router(&c.call, NULL, &error_text));
        receive(&c.act);
        check_logits(&c, &c.act);
        array<uint16_t> act = make<uint16_t>((size_t)rows * 160);
        const struct cuda_convert convert = { false,
                                              rows,
                                              160,
                                              CUDA_NORM_RMS,
                                              1e-5f,
                                              0,
                                              { c.x.device, c.call.in.x_stride, c.index.device },
                                              c.part.device,
                                              c.norm.device,
                                              NULL,
                                              act.device,
                                              false,
                                              NULL,
                                              0 };
        LAUNCH(cuda_convert(&convert, NULL, &error_text));
        receive(&act);
        assert_memory_equal(act.host, c.act.host, act.n * 2);
        drop(&act);
        drop_router(&c);
    }
}

/* ---- panels -------------------------------------------------------------------------------------------- */

/* Every value at its place, zeros behind k, nothing between experts; items of rows and of items, both orders of k. */
static void check_panels(uint32_t rows, uint32_t top, uint32_t x_items, uint32_t k, uint32_t experts, uint32_t group)
{
    const uint32_t items = rows * top, k32 = wk_act_k(k), panels = (k + 63) / 64;
    const uint64_t places = wk_cuda_panel_places(experts, items);
    array<uint16_t> x = make<uint16_t>((size_t)items / x_items * k32),
                    y = make<uint16_t>(wk_cuda_panel_bytes(k, places) / 2);
    array<uint32_t> groups = make<uint32_t>(wk_cuda_group_words(experts, items));
    for (size_t i = 0; i < x.n; i++) x.host[i] = i % k32 < k ? (uint16_t)next_noise() : 0;
    uint32_t used = 0, n = 0, at = 0;
    array<uint16_t> expected = make<uint16_t>(y.n);
    for (uint32_t e = 0; e < experts; e++) {
        const uint32_t first = n;
        for (uint32_t i = 0; i < items; i++)
            if ((i * 7 + i / top) % experts == e && e != 1)
                groups.host[2 * experts + 1 + n++] = i; /* expert 1: as if of padding */
        if (n == first) continue;
        groups.host[used] = e;
        groups.host[experts + used++] = first;
        for (uint32_t i = first; i < n; i++)
            for (uint32_t v = 0; v < panels * 64; v++)
                expected.host[((v / 64) * places + at + i - first) * 64 + wk_panel_at(group, at + i - first, v) / 2] =
                    v < k ? x.host[(size_t)(groups.host[2 * experts + 1 + i] / x_items) * k32 + v] : 0;
        at += (n - first + 7) & ~7u;
    }
    for (uint32_t i = used; i <= experts; i++) groups.host[experts + i] = n;
    send(&x);
    send(&groups);
    const struct cuda_panels call = { k, items, x_items, experts, group, groups.device, x.device, y.device, places };
    LAUNCH(cuda_panels(&call, NULL, &error_text));
    receive(&y);
    for (size_t i = 0; i < y.n; i++)
        if (y.host[i] != expected.host[i])
            fail_msg("%u items of %u values, %u experts, order %u: half %zu is %04x, expected %04x", items, k, experts,
                     group, i, y.host[i], expected.host[i]);
    drop(&x);
    drop(&y);
    drop(&groups);
    drop(&expected);
}

static void test_panels(void **state)
{
    (void)state;
    for (uint32_t group = 16; group <= 32; group += 16) {
        check_panels(1, 1, 1, 32, 2, group);
        check_panels(13, 4, 4, 96, 5, group);
        check_panels(70, 2, 1, 2880, 3, group);
        check_panels(40, 4, 4, 1000, 40, group);
    }
    struct cuda_panels none = { 64, 4, 4, WK_CUDA_LARGE_EXPERTS + 1, 32, (const uint32_t *)&none, &none, &none, 8 };
    assert_int_equal(cuda_panels(&none, NULL, &error_text), WK_INTERNAL);
    assert_non_null(strstr(error_memory, "513 experts"));
}

/* ---- combine ------------------------------------------------------------------------------------------- */

static void test_combine(void **state)
{
    (void)state;
    static const uint32_t widths[] = { 1, 5, 16, 100, 2880 }, ks[] = { 1, 2, 4, 9 };
    for (uint32_t i = 0; i < 5; i++)
        for (uint32_t j = 0; j < 4; j++)
            for (uint32_t form = 0; form < 4; form++) {
                const bool residual = form & 1, weighted = !(form & 2);
                const uint32_t n = widths[i], k = ks[j], rows = 5, stride = (n + 15) / 16 * 16, n16 = (n + 15) / 16,
                               route_stride = 2 * k + 3;
                array<float> x = make_noise((size_t)rows * k * stride, 3),
                             route = make_noise((size_t)rows * route_stride, 1),
                             res = make_noise((size_t)rows * stride, 3);
                array<float> y = make<float>((size_t)rows * stride), part = make<float>((size_t)rows * n16);
                struct cuda_combine c = {};
                c.rows = rows;
                c.width = n;
                c.k = k;
                c.x = x.device;
                c.x_stride = stride;
                c.route = weighted ? route.device : NULL;
                c.route_stride = route_stride;
                if (residual) c.residual = { res.device, stride, NULL };
                c.y = residual ? res.device : y.device; /* in place of the residual, as an executor does */
                c.y_stride = stride;
                c.part = part.device;
                float *before = (float *)malloc(res.n * sizeof *before);
                memcpy(before, res.host, res.n * sizeof *before);
                LAUNCH(cuda_combine(&c, NULL, &error_text));
                receive(residual ? &res : &y);
                receive(&part);
                for (uint32_t r = 0; r < rows; r++) {
                    const float *got = (residual ? res.host : y.host) + (size_t)r * stride;
                    for (uint32_t q = 0; q < n; q++) {
                        double expected = residual ? before[(size_t)r * stride + q] : 0, size = fabs(expected);
                        for (uint32_t s = 0; s < k; s++) {
                            const double t = (weighted ? (double)route.host[r * route_stride + s] : 1.0) *
                                             x.host[((size_t)r * k + s) * stride + q];
                            expected += t;
                            size += fabs(t);
                        }
                        if (!(fabs(got[q] - expected) <= 3e-7 * size))
                            fail_msg("combine of %u, width %u: %.9g, expected %.9g", k, n, got[q], expected);
                    }
                    double squares = 0, stored = 0;
                    for (uint32_t q = 0; q < n; q++) squares += (double)got[q] * got[q];
                    for (uint32_t q = 0; q < n16; q++) stored += part.host[r * n16 + q];
                    if (!(fabs(squares - stored) <= 1e-6 * squares))
                        fail_msg("combine of %u, width %u: partials sum to %.9g, expected %.9g", k, n, stored, squares);
                }
                free(before);
                drop(&x);
                drop(&route);
                drop(&res);
                drop(&y);
                drop(&part);
            }
}

/* ---- pool ---------------------------------------------------------------------------------------------- */

/* A sequence's rows in chunks of every cut, beside another sequence and a padding one. */
static void pool_one(uint32_t how, uint32_t l2, uint32_t width, const uint32_t *cuts, uint32_t n_cuts)
{
    enum { TOTAL = 30, SLOT = 3 };
    const uint32_t stride = width + 1;
    array<float> x = make_noise((size_t)(TOTAL + 2) * stride, 2), running = make<float>((size_t)(SLOT + 2) * width),
                 y = make<float>((size_t)3 * stride);
    array<struct cuda_seq> seq = make<struct cuda_seq>(3);
    for (uint32_t i = 0, at = 0; i < n_cuts; at += cuts[i++]) {
        seq.host[0] = { at + 2, cuts[i], at, SLOT };
        seq.host[1] = { 0, 0, 0, 0 };
        seq.host[2] = { 0, 2, 0, 1 };
        send(&seq);
        poison(&y);
        const struct cuda_pool p = {
            3, width, how, l2, seq.device, x.device, stride, running.device, y.device, stride
        };
        LAUNCH(cuda_pool(&p, NULL, &error_text));
        receive(&y);
    }
    receive(&running);
    for (uint32_t s = 0; s < 3; s += 2) {
        const uint32_t first = s ? 0 : 2, rows = s ? 2 : TOTAL;
        double length = 0, *expected = (double *)malloc(width * sizeof *expected);
        for (uint32_t i = 0; i < width; i++) {
            const float *column = x.host + (size_t)first * stride + i;
            expected[i] = how == WK_POOL_LAST ? column[(size_t)(rows - 1) * stride] : *column;
            if (how == WK_POOL_MEAN) {
                for (uint32_t r = 1; r < rows; r++) expected[i] += column[(size_t)r * stride];
                expected[i] /= rows;
            }
            length += expected[i] * expected[i];
        }
        for (uint32_t i = 0; i < width; i++) {
            const double e = l2 ? expected[i] / sqrt(length) : expected[i], got = y.host[(size_t)s * stride + i];
            if (!(fabs(got - e) <= 2e-6))
                fail_msg("pool %u of %u cuts, width %u: %.9g, expected %.9g", how, n_cuts, width, got, e);
        }
        assert_true(isnan(y.host[(size_t)s * stride + width]));
        free(expected);
    }
    for (uint32_t i = 0; i < width; i++) assert_true(isnan(y.host[stride + i])); /* padding */
    drop(&x);
    drop(&running);
    drop(&y);
    drop(&seq);
}

static void test_pool(void **state)
{
    (void)state;
    static const uint32_t one[] = { 30 }, many[] = { 1, 17, 8, 4 };
    static const uint32_t widths[] = { 1, 33, 384 };
    for (uint32_t how = WK_POOL_MEAN; how < WK_POOL_END; how++)
        for (uint32_t l2 = 0; l2 < 2; l2++)
            for (uint32_t i = 0; i < 3; i++) {
                pool_one(how, l2, widths[i], one, 1);
                pool_one(how, l2, widths[i], many, 4);
            }
}

/* Rows as they are, scaled to length 1; a row of zeros stays one. */
static void test_length(void **state)
{
    (void)state;
    enum { ROWS = 3, WIDTH = 70 };
    array<float> x = make_noise(ROWS * WIDTH, 2), y = make<float>(ROWS * WIDTH);
    array<struct cuda_seq> seq = make<struct cuda_seq>(ROWS);
    for (uint32_t i = 0; i < ROWS; i++) seq.host[i] = { i, 1, 9, i };
    for (uint32_t i = 0; i < WIDTH; i++) x.host[WIDTH + i] = 0;
    send(&x);
    send(&seq);
    const struct cuda_pool p = { ROWS, WIDTH, 0, 1, seq.device, x.device, WIDTH, NULL, y.device, WIDTH };
    LAUNCH(cuda_pool(&p, NULL, &error_text));
    receive(&y);
    for (uint32_t r = 0; r < ROWS; r++) {
        double length = 0;
        for (uint32_t i = 0; i < WIDTH; i++) length += (double)y.host[r * WIDTH + i] * y.host[r * WIDTH + i];
        if (!(fabs(length - (r == 1 ? 0 : 1)) <= 1e-6)) fail_msg("row %u has length %.9g", r, length);
    }
    drop(&x);
    drop(&y);
    drop(&seq);
}

int main(void)
{
    const int skipped = no_gpu();
    if (skipped) return skipped;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_route),         cmocka_unit_test(test_broken_rows),
                                        cmocka_unit_test(test_scored),        cmocka_unit_test(test_extreme_scores),
                                        cmocka_unit_test(test_groups),        cmocka_unit_test(test_router),
                                        cmocka_unit_test(test_picked_router), cmocka_unit_test(test_panels),
                                        cmocka_unit_test(test_combine),       cmocka_unit_test(test_pool),
                                        cmocka_unit_test(test_length) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
