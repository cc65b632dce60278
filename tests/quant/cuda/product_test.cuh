/* product_test.cuh: what tests of products share: matrices of every format with random blocks, rows of activations, a
 * double-precision reference over the CPU side's weights, memory that is full of NaNs. */
#ifndef QUANT_TEST_PRODUCT_TEST_CUH
#define QUANT_TEST_PRODUCT_TEST_CUH

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime.h>

#include "plugin/format.h"
#include "quant_formats.cuh"

#include <worker/cuda/part/act.cuh>

static int failures;
#define CHECK(cond, ...)                                    \
    do {                                                    \
        if (!(cond)) {                                      \
            if (failures++ < 40) {                          \
                printf("FAIL %s:%d: ", __FILE__, __LINE__); \
                printf(__VA_ARGS__);                        \
                printf("\n");                               \
            }                                               \
        }                                                   \
    } while (0)

static uint64_t seed = 88172645463325252u;
static inline uint32_t random32(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 16);
}
static inline float uniform(float a, float b) { return a + (b - a) * (float)(random32() & 0xffffffu) / 16777216.0f; }
static inline float normal(void)
{
    float s = 0.0f;
    for (int i = 0; i < 12; i++) s += uniform(0.0f, 1.0f);
    return s - 6.0f;
}

template <class T> static T *device(uint64_t n)
{
    T *p = NULL;
    OK(cudaMalloc(&p, n * sizeof(T) + 256));
    OK(cudaMemset(p, 0xff, n * sizeof(T) + 256)); /* NaN wherever nothing is written */
    return p;
}
template <class T> static T *upload(const T *h, uint64_t n)
{
    T *p = device<T>(n);
    OK(cudaMemcpy(p, h, n * sizeof(T), cudaMemcpyHostToDevice));
    return p;
}
template <class T> static T *download(const T *d, uint64_t n)
{
    T *h = (T *)malloc(n * sizeof(T));
    OK(cudaMemcpy(h, d, n * sizeof(T), cudaMemcpyDeviceToHost));
    return h;
}

struct matrix {
    const struct format *f;
    uint32_t n, k;
    float *w;     /* device [n][k]: as products take them (worker/cuda/part/weights.cuh), close to the CPU side's
                     dequantized ones */
    float *exact; /* device [n][k]: the CPU side's; of formats whose dense products are integer products alone */
    unsigned char *tiles; /* device */
};
/* far: in a unit of three the scales are larger by so many binary orders, less one, at most: some are beyond what a
 * format's short way holds (wk_wide_range), others beside them not. */
static inline struct matrix make_matrix(const struct format *f, uint32_t n, uint32_t k, uint32_t far = 1)
{
    if (k % f->block) printf("%s: %u values are not whole blocks\n", f->name, k), exit(1);
    const uint32_t in_row = k / f->block, in_unit = f->block < 64 ? 64 / f->block : 1;
    const uint64_t blocks = (uint64_t)n * in_row, bytes = blocks * f->block_bytes;
    unsigned char *raw = (unsigned char *)malloc(bytes);
    for (uint64_t i = 0; i < bytes; i++) raw[i] = (unsigned char)random32();
    for (uint64_t b = 0; b < blocks; b++) {
        unsigned char *const block = raw + b * f->block_bytes;
        const uint32_t more = (b / in_row / 16 + b % in_row / in_unit) % 3 == 0 ? random32() % far : 0;
        for (int j = 0; j < 2; j++) {
            if (f->halves[j] == 0xffff) continue;
            const bool negative = j == 0 && f->type != 10 && f->type != 12 && f->type != 13 && (random32() & 1);
            const __half d = __float2half(uniform(0.004f, 0.02f) * (negative ? -1.0f : 1.0f) *
                                          (f->block == 256 ? 0.05f : 1.0f) * (float)(1u << more));
            memcpy(block + f->halves[j], &d, 2);
        }
        if (f->type == nvfp4::type) put_nvfp4_scales(block, random32());
        if (f->type == iq1_m::type)
            put_iq1_m_d(block, __float2half(uniform(0.004f, 0.02f) * 0.05f * (float)(1u << more)));
        if (f->exponent != 0xffff) {
            if (f->block == 1)
                block[f->exponent] =
                    (unsigned char)(0x3b + random32() % 2 + more / 2 +
                                    random32() % 2 * 0x80); /* a sign and the upper seven bits of eight */
            else
                block[f->exponent] = (unsigned char)(116 + random32() % 8 + more);
        }
    }
    float *w = (float *)malloc((uint64_t)n * k * 4);
    format_call_dequantize(f->dequantize, w, raw, (uint64_t)n * k);
    struct matrix m = { f, n, k, device<float>((uint64_t)n * k), f->int8 ? upload(w, (uint64_t)n * k) : NULL, NULL };
    const uint64_t size = (n + 15) / 16 * f->tile_stride(k);
    m.tiles = device<unsigned char>(size);
    unsigned char *rows = upload(raw, bytes);
    f->pack(m.tiles, rows, n, k);
    unsigned char *back = device<unsigned char>(bytes);
    f->unpack(back, m.tiles, n, k);
    OK(cudaDeviceSynchronize());
    unsigned char *b = download(back, bytes);
    CHECK(memcmp(b, raw, bytes) == 0, "%s %u x %u: unpacked rows are not the file's", f->name, n, k);
    free(b);
    OK(cudaFree(back));
    OK(cudaFree(rows));
    free(raw);
    f->weights(m.w, m.tiles, n, k);
    OK(cudaDeviceSynchronize());
    float *halves = download(m.w, (uint64_t)n * k);
    double e = 0.0, squares = 0.0, most = 0.0; /* each weight is off by 2^-11 of the largest term that it is the
                                                  difference of, at most: q scale, or the minimum */
    for (uint64_t i = 0; i < (uint64_t)n * k; i++) {
        e += ((double)halves[i] - (double)w[i]) * ((double)halves[i] - (double)w[i]);
        squares += (double)w[i] * (double)w[i];
        most = fmax(most, fabs((double)halves[i] - (double)w[i]));
    }
    CHECK(e <= squares * 7e-4 * 7e-4,
          "%s %u x %u, far %u: weights of products are off by %.2g of their rms, at most %.2g of it", f->name, n, k,
          far, sqrt(e / squares), most / sqrt(squares / ((double)n * k)));
    if (n == 1000)
        printf("%s: weights off by %.2g rms, %.2g at most\n", f->name, sqrt(e / squares),
               most / sqrt(squares / ((double)n * k)));
    free(halves);
    free(w);
    return m;
}
static inline void free_matrix(struct matrix *m)
{
    OK(cudaFree(m->w));
    OK(cudaFree(m->exact));
    OK(cudaFree(m->tiles));
}

/* F32 rows, and what the contract makes of them, in its plainest form: a lane a value. */
struct activations {
    uint32_t n, k, shift;
    float *x, *part; /* F32 rows, stride k, and partials */
    __half *act;
};
static __global__ void convert_kernel(const float *x, const float *part, const float *w, float eps, uint32_t k,
                                      uint32_t shift, bool rms, __half *act)
{
    const uint32_t k32 = (k + 31) & ~31u, row = blockIdx.x;
    const float scale = rms ? wk_rms_scale(part + row * ((k + 15) / 16), (k + 15) / 16, k, eps) : 1.0f;
    for (uint32_t i = threadIdx.x; i < k32; i += 32) {
        const float v = i < k ? x[(uint64_t)row * k + i] : 0.0f;
        act[(uint64_t)row * k32 + i] = wk_act_half(rms ? wk_rms_value(v, scale, i < k && w ? w[i] : 1.0f) : v, shift);
    }
}
static __global__ void partials_kernel(const float *x, uint32_t k, float *part)
{
    const uint32_t k32 = (k + 31) & ~31u, row = blockIdx.x;
    for (uint32_t i = threadIdx.x; i < k32; i += 32) {
        const float s = wk_square_sum16(i < k ? x[(uint64_t)row * k + i] : 0.0f);
        if (i % 16 == 0 && i < k) part[(uint64_t)row * ((k + 15) / 16) + i / 16] = s;
    }
}
static inline struct activations make_rows(uint32_t n, uint32_t k, uint32_t shift)
{
    float *x = (float *)malloc((uint64_t)n * k * 4);
    for (uint64_t i = 0; i < (uint64_t)n * k; i++) x[i] = normal() * (random32() % 97 ? 1.0f : 12.0f);
    const uint64_t k32 = wk_act_k(k);
    struct activations r = {
        n, k, shift, upload(x, (uint64_t)n * k), device<float>((uint64_t)n * ((k + 15) / 16)), device<__half>(n * k32)
    };
    convert_kernel<<<n, 32>>>(r.x, NULL, NULL, 0.0f, k, shift, false, r.act);
    partials_kernel<<<n, 32>>>(r.x, k, r.part);
    OK(cudaDeviceSynchronize());
    free(x);
    return r;
}
static inline void free_rows(struct activations *r)
{
    OK(cudaFree(r->x));
    OK(cudaFree(r->part));
    OK(cudaFree(r->act));
}

/* Acts as F32, or, with int8, as integer products take them (worker/cuda/part/int8.cuh), in its plainest form: a
 * thread a block of 256. */
static __global__ void act_values_kernel(const __half *act, uint32_t k32, bool int8, float *x)
{
    for (uint32_t first = threadIdx.x * 256; first < k32; first += blockDim.x * 256) {
        const uint32_t end = min(first + 256, k32);
        const __half *const from = act + (uint64_t)blockIdx.x * k32;
        float *const to = x + (uint64_t)blockIdx.x * k32;
        float most = 0.0f;
        for (uint32_t i = first; i < end; i++) most = fmaxf(most, fabsf(__half2float(from[i])));
        const float inv = __half2float(__float2half_rn(fminf(127.0f / most, 65504.0f)));
        for (uint32_t i = first; i < end; i++) {
            const float v = __half2float(from[i]), high = rintf(v * inv),
                        low = rintf(__half2float(__float2half_rn(v * inv - high)) * 254.0f);
            to[i] = int8 ? (float)((254.0 * (double)high + (double)low) / (254.0 * (double)inv)) : v;
        }
    }
}
static __global__ void reference_kernel(const float *w, const float *x, uint32_t n, uint32_t k, uint32_t k32,
                                        double scale, double *y)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y;
    if (i >= n) return;
    double s = 0.0;
    for (uint32_t j = 0; j < k; j++) s += (double)w[(uint64_t)i * k + j] * (double)x[(uint64_t)row * k32 + j];
    y[(uint64_t)row * n + i] = s * scale;
}
/* experts: of products of experts, which are no integer products. */
static inline double *reference(const struct matrix *m, const struct activations *r, bool experts = false)
{
    const bool int8 = m->f->int8 && !experts;
    const uint32_t k32 = wk_act_k(m->k);
    double *y = device<double>((uint64_t)r->n * m->n);
    float *x = device<float>((uint64_t)r->n * k32);
    act_values_kernel<<<r->n, 32>>>(r->act, k32, int8, x);
    reference_kernel<<<dim3((m->n + 63) / 64, r->n), 64>>>(int8 ? m->exact : m->w, x, m->n, m->k, k32,
                                                           ldexp(1.0, (int)r->shift), y);
    OK(cudaDeviceSynchronize());
    double *h = download(y, (uint64_t)r->n * m->n);
    OK(cudaFree(x));
    OK(cudaFree(y));
    return h;
}

/* What products may ask for; all are in one stream. */
static inline void *workspace(void)
{
    enum { BYTES = 64 << 20 };
    static unsigned char *w;
    if (!w) w = device<unsigned char>(BYTES);
    return w;
}
static inline struct wk_cuda_product base(const struct matrix *m, const struct activations *r, uint32_t rows, float *y)
{
    struct wk_cuda_product p;
    memset(&p, 0, sizeof p);
    p.struct_size = sizeof p;
    p.rows = rows;
    p.k = m->k;
    p.workspace = workspace();
    p.n_seg = 1;
    p.input.kind = WK_CUDA_IN_ACT;
    p.input.shift = r->shift;
    p.input.x = r->act;
    p.seg[0].tiles = m->tiles;
    p.seg[0].ggml_type = m->f->type;
    p.seg[0].n = m->n;
    p.seg[0].out.y = y;
    p.seg[0].out.y_stride = m->n;
    return p;
}
/* Shared memory as no product leaves it: what a kernel reads without having written it is a NaN, not what the launch
 * before had there. */
static __global__ void poison_kernel(uint32_t words)
{
    extern __shared__ uint32_t shared[];
    for (uint32_t i = threadIdx.x; i < words; i += blockDim.x) *(volatile uint32_t *)&shared[i] = 0xffffffffu;
}
static inline void poison(void)
{
    static int bytes, processors;
    if (!bytes) {
        OK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
        OK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
        OK(cudaFuncSetAttribute((const void *)poison_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    }
    poison_kernel<<<processors, 1024, bytes>>>((uint32_t)bytes / 4);
}
static inline void run(const struct matrix *m, const struct wk_cuda_product *p)
{
    text[0] = 0;
    const wk_status s = m->f->family->product(p, NULL, &err);
    CHECK(s == WK_OK, "%s %u x %u, %u rows: status %d: %s", m->f->name, m->n, m->k, p->rows, s, text);
    OK(cudaDeviceSynchronize());
}
/* Runs of a kernel that have to give the same bits: 100, or KERNEL_REPEATS where a run takes long (the emulator). */
static inline int repeats(void)
{
    const char *asked = getenv("KERNEL_REPEATS");
    return asked && atoi(asked) > 1 ? atoi(asked) : 100;
}
/* The product again and again, into NaNs: the n values of y that `first` has. */
static inline void run_again(const struct matrix *m, const struct wk_cuda_product *p, const float *first, uint64_t n)
{
    const int times = repeats();
    int bad = 0;
    for (int i = 1; i < times; i++) {
        OK(cudaMemset(p->seg[0].out.y, 0xff, n * sizeof *first));
        run(m, p);
        float *h = download((const float *)p->seg[0].out.y, n);
        bad += memcmp(first, h, n * sizeof *h) != 0;
        free(h);
    }
    CHECK(bad == 0, "%s %u x %u, %u rows: of %d times %d give other bits than the first", m->f->name, m->n, m->k,
          p->rows, times - 1, bad);
}
/* Relative rms distance; NaN if anything is. */
static inline double distance(const float *y, const double *ref, uint64_t n)
{
    double e = 0.0, s = 0.0;
    for (uint64_t i = 0; i < n; i++) {
        e += ((double)y[i] - ref[i]) * ((double)y[i] - ref[i]);
        s += ref[i] * ref[i];
    }
    return sqrt(e / s);
}

/* The tests of a program, if there is a GPU and every family opens there. */
static inline int run_tests(const char *name, void (*tests)(void))
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || !count) {
        printf("%s: no GPU here\n", name);
        return 77;
    }
    for (const struct wk_product_family *f : families)
        if (f->open(0, &err)) {
            printf("open: %s\n", text);
            return 1;
        }
    tests();
    printf("%s: %d failures\n", name, failures);
    return failures != 0;
}

#endif
