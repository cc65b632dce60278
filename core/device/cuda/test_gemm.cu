/* test_gemm.cu: large products against float64, and a row's bits for every number of rows and every
 * place in the batch. */
#include "device/cuda/kernels.h"
#include "device/cuda/test_device.cuh"

struct shape {
    uint32_t n, k;
};
static struct cuda_gemm *gemm;
static array<char> workspace;

struct product {
    uint32_t rows;
    struct shape s;
    uint32_t k_stride, n_stride;
    array<uint16_t> w, x;
    array<float> c, y;
};

/* A prime number of random values, over and over: a row never meets the same ones at the same place. */
enum { VALUES = 65537 };
static uint16_t halves[VALUES];
static float value_of[65536]; /* of a half's bits */
static float floats[VALUES];

static void fill_rows(uint16_t *p, size_t rows, uint32_t width, uint32_t stride)
{
    /* Between width and stride stays NaN, which must not get into a sum. */
    uint32_t at = next_noise() % VALUES;
    for (size_t r = 0; r < rows; r++)
        for (uint32_t i = 0; i < width; i++, at = at + 1 < VALUES ? at + 1 : 0) p[r * stride + i] = halves[at];
}

static struct product make_product(uint32_t rows, struct shape s)
{
    struct product p = { rows, s, wk_act_k(s.k), (s.n + 15) / 16 * 16, {}, {}, {}, {} };
    p.w = make<uint16_t>((size_t)s.n * p.k_stride);
    p.x = make<uint16_t>((size_t)rows * p.k_stride);
    p.c = make<float>((size_t)rows * p.n_stride);
    p.y = make<float>((size_t)rows * p.n_stride);
    fill_rows(p.w.host, s.n, s.k, p.k_stride);
    fill_rows(p.x.host, rows, s.k, p.k_stride);
    for (size_t i = 0; i < p.c.n; i++) p.c.host[i] = floats[i % VALUES];
    send(&p.w);
    send(&p.x);
    send(&p.c);
    return p;
}

static void drop_product(struct product *p)
{
    drop(&p->w);
    drop(&p->x);
    drop(&p->c);
    drop(&p->y);
}

static void run(const struct product *p, uint32_t first, uint32_t rows, const float *c, float *y)
{
    const struct cuda_gemm_call call = { rows,
                                         p->s.n,
                                         p->s.k,
                                         p->w.device,
                                         p->k_stride,
                                         p->x.device + (size_t)first * p->k_stride,
                                         p->k_stride,
                                         c,
                                         p->n_stride,
                                         y,
                                         p->n_stride,
                                         0.125f,
                                         workspace.device };
    LAUNCH(cuda_gemm_run(gemm, &call, NULL, &error_text));
}

/* Against double, for a sample of the columns. */
static void check(const struct product *p, bool with_c)
{
    receive(&p->y);
    for (uint32_t r = 0; r < p->rows; r++)
        for (uint32_t j = 0; j < p->s.n; j += p->s.n > 32 ? 13 : 1) {
            double sum = 0, size = 0;
            for (uint32_t i = 0; i < p->s.k; i++) {
                const double t = (double)value_of[p->w.host[(size_t)j * p->k_stride + i]] *
                                 value_of[p->x.host[(size_t)r * p->k_stride + i]];
                sum += t;
                size += fabs(t);
            }
            const double expected = 0.125 * sum + (with_c ? p->c.host[(size_t)r * p->n_stride + j] : 0),
                         got = p->y.host[(size_t)r * p->n_stride + j];
            if (!(fabs(got - expected) <= 4e-7 * (0.125 * size + fabs(expected)) * (1 + sqrt((double)p->s.k) / 16)))
                fail_msg("%u rows, %u x %u, row %u column %u: %.9g, expected %.9g", p->rows, p->s.n, p->s.k, r, j, got,
                         expected);
        }
}

static void test_values(void **state)
{
    (void)state;
    static const struct shape shapes[] = { { 1, 1 },     { 17, 5 },   { 33, 64 },  { 100, 100 },  { 129, 33 },
                                           { 896, 896 }, { 7, 1000 }, { 288, 77 }, { 1000, 256 }, { 64, 4864 } };
    static const uint32_t rows[] = { 1, 2, 3, 16, 65, 130 };
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (uint32_t j = 0; j < sizeof rows / sizeof *rows; j++) {
            struct product p = make_product(rows[j], shapes[i]);
            run(&p, 0, rows[j], NULL, p.y.device);
            check(&p, false);
            poison(&p.y);
            run(&p, 0, rows[j], p.c.device, p.y.device);
            check(&p, true);
            /* in place */
            CUDA_OK(cudaMemcpy(p.y.device, p.c.device, p.c.n * sizeof(float), cudaMemcpyDeviceToDevice));
            run(&p, 0, rows[j], p.y.device, p.y.device);
            check(&p, true);
            drop_product(&p);
        }
}

/* Row 0, and a row in the middle, alone and among any number of others. */
static void test_bits(void **state)
{
    (void)state;
    static const struct shape shapes[] = { { 1152, 896 },   { 896, 896 },    { 9728, 896 },  { 896, 4864 },
                                           { 3072, 3072 },  { 16384, 3072 }, { 3072, 8192 }, { 12288, 4096 },
                                           { 22016, 4096 }, { 4096, 11008 }, { 128, 896 },   { 4864, 896 },
                                           { 8192, 3072 },  { 11008, 4096 }, { 288, 288 },   { 100, 77 } };
    static const uint32_t counts[] = { 1, 2, 7, 64, 100, 128, 129, 256, 257, 512, 513, 1024, 1025, 1948, 2048 };
    enum { MOST = 2048, SEEN = 100 };
    for (uint32_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct product p = make_product(MOST, shapes[i]);
        const size_t bytes = p.s.n * sizeof(float);
        float *whole = (float *)malloc(SEEN * (size_t)p.n_stride * sizeof(float)), *row = (float *)malloc(bytes);
        run(&p, 0, MOST, p.c.device, p.y.device);
        CUDA_OK(cudaMemcpy(whole, p.y.device, SEEN * (size_t)p.n_stride * sizeof(float), cudaMemcpyDeviceToHost));
        for (uint32_t j = 0; j < sizeof counts / sizeof *counts; j++)
            for (uint32_t at = 0; at < SEEN; at += 33) {
                if (at + counts[j] > MOST) continue;
                poison(&p.y);
                run(&p, at, counts[j], p.c.device + (size_t)at * p.n_stride, p.y.device);
                CUDA_OK(cudaMemcpy(row, p.y.device, bytes, cudaMemcpyDeviceToHost));
                if (memcmp(row, whole + (size_t)at * p.n_stride, bytes) != 0)
                    fail_msg("%u x %u: row %u differs among %u rows from what it is among %d", p.s.n, p.s.k, at,
                             counts[j], MOST);
            }
        receive(&p.y);
        free(whole);
        free(row);
        drop_product(&p);
    }
}

static void refused(const struct cuda_gemm_call *c, const char *text)
{
    error_memory[0] = 0;
    assert_int_equal(cuda_gemm_run(gemm, c, NULL, &error_text), WK_INTERNAL);
    if (!strstr(error_memory, text)) fail_msg("\"%s\" does not say \"%s\"", error_memory, text);
}

static void test_refusals(void **state)
{
    (void)state;
    struct product p = make_product(3, { 32, 32 });
    const struct cuda_gemm_call good = { 3,    32, 32,         p.w.device, 32,   p.x.device,      32,
                                         NULL, 0,  p.y.device, 32,         1.0f, workspace.device };
    struct cuda_gemm_call c = good;
    c.rows = 0;
    refused(&c, "is 0");
    c = good;
    c.x_stride = 36;
    refused(&c, "multiple of 8");
    c = good;
    c.w_stride = 24;
    refused(&c, "less than k");
    c = good;
    c.y = p.y.device + 1;
    refused(&c, "16-byte");
    c = good;
    c.c = p.y.device;
    c.c_stride = 64;
    refused(&c, "another stride");
    LAUNCH(cuda_gemm_run(gemm, &good, NULL, &error_text));
    CUDA_OK(cudaDeviceSynchronize());
    drop_product(&p);
}

int main(void)
{
    const int skipped = no_gpu();
    if (skipped) return skipped;
    if (cuda_gemm_open(&gemm, &error_text) != WK_OK) {
        (void)fprintf(stderr, "%s\n", error_memory);
        return 1;
    }
    for (uint32_t i = 0; i < 65536; i++) value_of[i] = half_value((uint16_t)i);
    for (uint32_t i = 0; i < VALUES; i++) {
        halves[i] = half_bits(noise(1));
        floats[i] = noise(3);
    }
    workspace = make<char>(cuda_gemm_workspace());
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_values), cmocka_unit_test(test_bits),
                                        cmocka_unit_test(test_refusals) };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    cuda_gemm_close(gemm);
    return failed;
}
