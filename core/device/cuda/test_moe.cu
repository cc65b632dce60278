/* test_moe.cu: routes, combinations and pooled rows against float64; ties, NaN, chunks. */
#include "device/cuda/kernels.h"
#include "device/cuda/test_device.cuh"

enum { MOST_EXPERTS = 600 };

/* ---- route ------------------------------------------------------------------------------------------------------------ */

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
        const double expected = exp((double)r[ids[s]] - r[ids[0]]) / (score == WK_SOFTMAX_ALL ? all : picked) * scale;
        if (id != ids[s]) fail_msg("top %u of %u: pick %u is %u, expected %u", k, experts, s, id, ids[s]);
        if (!(fabs(out[s] - expected) <= 1e-6 * expected + 1e-37)) fail_msg("top %u of %u, score %u: weight %u is %.9g, expected %.9g", k, experts, score, s, out[s], expected);
    }
}

static void test_route(void **state)
{
    (void)state;
    static const uint32_t cases[][2] = { { 1, 1 }, { 2, 1 }, { 8, 2 }, { 31, 31 }, { 32, 4 }, { 33, 4 }, { 60, 4 }, { 64, 64 }, { 128, 8 }, { 256, 8 }, { 600, 40 } };
    for (uint32_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t score = WK_SOFTMAX_TOPK; score < WK_SCORE_END; score++)
            for (uint32_t form = 0; form < 3; form++) {
                const uint32_t experts = cases[i][0], k = cases[i][1], rows = form == 1 ? 1 : 9, stride = (experts + 15) / 16 * 16, out_stride = (2 * k + 15) / 16 * 16;
                array<float> r = make_noise((size_t)(rows + 1) * stride, 4), out = make<float>((size_t)rows * out_stride);
                array<uint32_t> index = make<uint32_t>(rows);
                /* Form 2: few different values, so that most are ties; zeros of both signs. */
                if (form == 2)
                    for (size_t j = 0; j < r.n; j++) r.host[j] = (float)(next_noise() % 3) - 1 == 0 ? (next_noise() % 2 ? 0.0f : -0.0f) : (float)(next_noise() % 3) - 1;
                for (uint32_t j = 0; j < rows; j++) index.host[j] = rows - j;
                send(&r);
                send(&index);
                const struct cuda_route call = { form == 0, rows, experts, k, score, 1.5f, { r.device, stride, form ? index.device : NULL }, out.device, out_stride };
                LAUNCH(cuda_route(&call, NULL, &error_text));
                receive(&out);
                for (uint32_t j = 0; j < rows; j++) {
                    check_route(r.host + (size_t)(form ? index.host[j] : j) * stride, out.host + (size_t)j * out_stride, experts, k, score, 1.5);
                    for (uint32_t q = 2 * k; q < out_stride; q++) assert_true(isnan(out.host[(size_t)j * out_stride + q]));
                }
                drop(&r);
                drop(&out);
                drop(&index);
            }
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
    const struct cuda_route call = { false, ROWS, EXPERTS, K, WK_SOFTMAX_TOPK, 1, { r.device, EXPERTS, NULL }, out.device, 2 * K };
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

/* ---- combine ---------------------------------------------------------------------------------------------------------- */

static void test_combine(void **state)
{
    (void)state;
    static const uint32_t widths[] = { 1, 5, 16, 100, 2880 }, ks[] = { 1, 2, 4, 9 };
    for (uint32_t i = 0; i < 5; i++)
        for (uint32_t j = 0; j < 4; j++)
            for (uint32_t residual = 0; residual < 2; residual++) {
                const uint32_t n = widths[i], k = ks[j], rows = 5, stride = (n + 15) / 16 * 16, n16 = (n + 15) / 16, route_stride = 2 * k + 3;
                array<float> x = make_noise((size_t)rows * k * stride, 3), route = make_noise((size_t)rows * route_stride, 1), res = make_noise((size_t)rows * stride, 3);
                array<float> y = make<float>((size_t)rows * stride), part = make<float>((size_t)rows * n16);
                struct cuda_combine c = {};
                c.rows = rows;
                c.width = n;
                c.k = k;
                c.x = x.device;
                c.x_stride = stride;
                c.route = route.device;
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
                            const double t = (double)route.host[r * route_stride + s] * x.host[((size_t)r * k + s) * stride + q];
                            expected += t;
                            size += fabs(t);
                        }
                        if (!(fabs(got[q] - expected) <= 3e-7 * size)) fail_msg("combine of %u, width %u: %.9g, expected %.9g", k, n, got[q], expected);
                    }
                    double squares = 0, stored = 0;
                    for (uint32_t q = 0; q < n; q++) squares += (double)got[q] * got[q];
                    for (uint32_t q = 0; q < n16; q++) stored += part.host[r * n16 + q];
                    if (!(fabs(squares - stored) <= 1e-6 * squares)) fail_msg("combine of %u, width %u: partials sum to %.9g, expected %.9g", k, n, stored, squares);
                }
                free(before);
                drop(&x);
                drop(&route);
                drop(&res);
                drop(&y);
                drop(&part);
            }
}

/* ---- pool ------------------------------------------------------------------------------------------------------------- */

/* A sequence's rows in chunks of every cut, beside another sequence and a padding one. */
static void pool_one(uint32_t how, uint32_t l2, uint32_t width, const uint32_t *cuts, uint32_t n_cuts)
{
    enum { TOTAL = 30, SLOT = 3 };
    const uint32_t stride = width + 1;
    array<float> x = make_noise((size_t)(TOTAL + 2) * stride, 2), running = make<float>((size_t)(SLOT + 2) * width), y = make<float>((size_t)3 * stride);
    array<struct cuda_seq> seq = make<struct cuda_seq>(3);
    for (uint32_t i = 0, at = 0; i < n_cuts; at += cuts[i++]) {
        seq.host[0] = { at + 2, cuts[i], at, SLOT };
        seq.host[1] = { 0, 0, 0, 0 };
        seq.host[2] = { 0, 2, 0, 1 };
        send(&seq);
        poison(&y);
        const struct cuda_pool p = { 3, width, how, l2, seq.device, x.device, stride, running.device, y.device, stride };
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
            if (!(fabs(got - e) <= 2e-6)) fail_msg("pool %u of %u cuts, width %u: %.9g, expected %.9g", how, n_cuts, width, got, e);
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
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_route), cmocka_unit_test(test_broken_rows), cmocka_unit_test(test_combine), cmocka_unit_test(test_pool), cmocka_unit_test(test_length) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
