/* bench_rows.cu: what row launches cost: bandwidth over many rows as a share of a device copy (4.30 TB/s), what a
 * prompt's layer costs outside of products and attention, and microseconds a launch in a graph of dependent launches
 * over few rows. */
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

#include "device/cuda/kernels.h"

#define CHECK(call)                                                                              \
    do {                                                                                         \
        const int code_ = (int)(call);                                                           \
        if (code_) {                                                                             \
            (void)fprintf(stderr, "%s:%d: %s: %d %s\n", __FILE__, __LINE__, #call, code_, text); \
            exit(1);                                                                             \
        }                                                                                        \
    } while (0)

static char text[256];
static const struct wk_err err = { text, sizeof text };
enum { ROWS = 2048, WIDEST = 22016, CHAIN = 100 };
static float *x, *u, *y, *part, *weights, *route;
static uint32_t *groups, *ticket;
static void *act;
static cudaStream_t stream;
static cudaEvent_t from, to;

static __global__ void fill(float *p, size_t n, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 2654435761u + seed;
        h ^= h >> 15;
        h *= 2246822519u;
        h ^= h >> 13;
        p[i] = 3.0f * ((float)(h >> 8) / 8388608.0f - 1.0f);
    }
}

/* Seconds of one run: the best of five loops of ten. */
template <class Run> static double seconds(Run run)
{
    double best = 1;
    for (int i = 0; i < 3; i++) run();
    for (int i = 0; i < 5; i++) {
        float ms;
        CHECK(cudaEventRecord(from, stream));
        for (int j = 0; j < 10; j++) run();
        CHECK(cudaEventRecord(to, stream));
        CHECK(cudaEventSynchronize(to));
        CHECK(cudaEventElapsedTime(&ms, from, to));
        if (1e-4 * ms < best) best = 1e-4 * ms;
    }
    return best;
}

static void report(const char *name, uint32_t rows, uint32_t width, double bytes_a_value, double t)
{
    const double rate = bytes_a_value * rows * width / t;
    (void)printf("%-34s [%4u][%5u] %8.1f us %7.0f GB/s %5.1f %%\n", name, rows, width, 1e6 * t, 1e-9 * rate,
                 100 * rate / 4.30e12);
}

/* ---- the launches -------------------------------------------------------------------------------------- */

static void convert(uint32_t rows, uint32_t width, uint32_t norm, bool parts, bool pdl)
{
    struct cuda_convert c = {};
    c.pdl = pdl;
    c.rows = rows;
    c.width = width;
    c.norm = norm;
    c.eps = 1e-5f;
    c.x = { x, width, NULL };
    c.part = parts ? part : NULL;
    c.w = norm ? weights : NULL;
    c.b = norm == CUDA_NORM_LAYER ? weights : NULL;
    c.act = act;
    CHECK(cuda_convert(&c, stream, &err));
}
static void finish_act(uint32_t rows, uint32_t width, uint32_t glu, uint32_t map)
{
    struct cuda_finish f = {};
    f.rows = rows;
    f.width = width;
    f.x = x;
    f.u = glu ? u : NULL;
    f.x_stride = f.u_stride = width;
    f.glu = glu;
    f.alpha = 1.702f;
    f.limit = 7.0f;
    f.map[0].fn = map;
    f.map[0].p = 1.0f;
    f.out = { WK_CUDA_OUT_ACT, 4, act, NULL, 0 };
    CHECK(cuda_finish(&f, stream, &err));
}
static void finish_residual(uint32_t rows, uint32_t width)
{
    struct cuda_finish f = {};
    f.rows = rows;
    f.width = width;
    f.x = x;
    f.x_stride = width;
    f.bias = weights;
    f.residual = { y, width, NULL };
    f.out = { WK_CUDA_OUT_F32, 0, y, part, width };
    CHECK(cuda_finish(&f, stream, &err));
}
static void combine(uint32_t rows, uint32_t width, uint32_t k)
{
    struct cuda_combine c = {};
    c.pdl = true;
    c.rows = rows;
    c.width = width;
    c.k = k;
    c.x = x;
    c.x_stride = width;
    c.route = route;
    c.route_stride = 2 * k;
    c.residual = { y, width, NULL };
    c.y = y;
    c.y_stride = width;
    c.part = part;
    CHECK(cuda_combine(&c, stream, &err));
}
static struct cuda_route route_of(uint32_t rows, uint32_t experts, uint32_t k)
{
    struct cuda_route r = {};
    r.pdl = true;
    r.rows = rows;
    r.experts = experts;
    r.k = k;
    r.score = WK_SCORE_SOFTMAX_TOPK;
    r.scale = 1.0f;
    r.out = route;
    r.out_stride = 2 * k;
    return r;
}
static void pick(uint32_t rows, uint32_t experts, uint32_t k)
{
    struct cuda_route r = route_of(rows, experts, k);
    r.logits = { x, experts, NULL };
    CHECK(cuda_route(&r, stream, &err));
}

/* Of GPT-OSS-20B: 4 of 32 experts. */
static void router(uint32_t rows)
{
    enum { WIDTH = 2880, EXPERTS = 32, TOP = 4 };
    struct cuda_router r = {};
    r.pdl = true;
    r.rows = rows;
    r.k = WIDTH;
    r.experts = EXPERTS;
    r.in.kind = WK_CUDA_IN_RMS;
    r.in.x = x;
    r.in.aux = part;
    r.in.x_stride = WIDTH;
    r.in.w = weights;
    r.in.eps = 1e-5f;
    r.w = u;
    r.bias = weights;
    r.act = act;
    r.y = y;
    r.y_stride = EXPERTS;
    r.route = route_of(rows, EXPERTS, TOP);
    r.route.groups = groups;
    r.route.ticket = ticket;
    CHECK(cuda_router(&r, stream, &err));
}

/* ---- measurements -------------------------------------------------------------------------------------- */

static void bandwidth(void)
{
    const double to_act = 2.5, to_f32 = 4.25;
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t width = i == 0 ? 22016 : i == 1 ? 11008 : 4096;
        report("convert", ROWS, width, 4 + to_act, seconds([&] { convert(ROWS, width, 0, false, false); }));
        report("convert RMS", ROWS, width, 4 + to_act,
               seconds([&] { convert(ROWS, width, CUDA_NORM_RMS, false, false); }));
        report("convert RMS, partials given", ROWS, width, 4.25 + to_act,
               seconds([&] { convert(ROWS, width, CUDA_NORM_RMS, true, false); }));
        report("convert layer norm", ROWS, width, 4 + to_act,
               seconds([&] { convert(ROWS, width, CUDA_NORM_LAYER, false, false); }));
        report("glu SILU to act", ROWS, width, 8 + to_act, seconds([&] { finish_act(ROWS, width, WK_GLU_SILU, 0); }));
        report("glu GELU erf to act", ROWS, width, 8 + to_act,
               seconds([&] { finish_act(ROWS, width, WK_GLU_GELU_ERF, 0); }));
        report("glu CLAMP to act", ROWS, width, 8 + to_act,
               seconds([&] { finish_act(ROWS, width, WK_GLU_SILU_CLAMPED, 0); }));
        report("map GELU tanh to act", ROWS, width, 4 + to_act,
               seconds([&] { finish_act(ROWS, width, 0, WK_UNARY_GELU_TANH); }));
        report("bias + residual to F32", ROWS, width, 8 + to_f32, seconds([&] { finish_residual(ROWS, width); }));
    }
}

static void layers(void)
{
    static const struct {
        const char *name;
        uint32_t e, f;
    } models[] = { { "Qwen2.5-0.5B", 896, 4864 }, { "Phi-3-mini", 3072, 8192 }, { "Llama-2-7B", 4096, 11008 } };
    for (uint32_t rows = 512; rows <= ROWS; rows *= 4)
        for (uint32_t i = 0; i < 3; i++) {
            const uint32_t e = models[i].e, f = models[i].f;
            const double norm = seconds([&] { convert(rows, e, CUDA_NORM_RMS, false, false); }),
                         glu = seconds([&] { finish_act(rows, f, WK_GLU_SILU, 0); }),
                         residual = seconds([&] { finish_residual(rows, e); });
            (void)printf("%-14s %4u rows: a norm and conversion %5.1f us, glu %5.1f us: a layer %6.1f us (residual by "
                         "itself %5.1f us)\n",
                         models[i].name, rows, 1e6 * norm, 1e6 * glu, 1e6 * (2 * norm + glu), 1e6 * residual);
        }
}

template <class Run> static void chain(const char *name, uint32_t rows, Run run)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < CHAIN; i++) run();
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    const double t = seconds([&] { CHECK(cudaGraphLaunch(exec, stream)); });
    (void)printf("%-34s %3u rows: %5.2f us\n", name, rows, 1e6 * t / CHAIN);
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

static void few_rows(void)
{
    static const uint32_t counts[] = { 1, 8, 64 };
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t rows = counts[i];
        chain("convert RMS, 896, partials given", rows, [&] { convert(rows, 896, CUDA_NORM_RMS, true, true); });
        chain("convert RMS, 4096, partials given", rows, [&] { convert(rows, 4096, CUDA_NORM_RMS, true, true); });
        chain("convert RMS, 4096", rows, [&] { convert(rows, 4096, CUDA_NORM_RMS, false, true); });
        chain("convert layer norm, 768", rows, [&] { convert(rows, 768, CUDA_NORM_LAYER, false, true); });
        chain("route 4 of 32", rows, [&] { pick(rows, 32, 4); });
        chain("route 8 of 128", rows, [&] { pick(rows, 128, 8); });
        chain("combine 4 x 2880", rows, [&] { combine(rows, 2880, 4); });
    }
    static const uint32_t routed[] = { 1, 8, 16, 32, 64, ROWS };
    for (uint32_t rows : routed) chain("router 4 of 32, 2880", rows, [=] { router(rows); });
}

int main(void)
{
    CHECK(cudaMalloc((void **)&x, (size_t)ROWS * WIDEST * 4));
    CHECK(cudaMalloc((void **)&u, (size_t)ROWS * WIDEST * 4));
    CHECK(cudaMalloc((void **)&y, (size_t)ROWS * WIDEST * 4));
    CHECK(cudaMalloc((void **)&act, (size_t)ROWS * WIDEST * 2));
    CHECK(cudaMalloc((void **)&part, (size_t)ROWS * WIDEST / 4));
    CHECK(cudaMalloc((void **)&route, (size_t)ROWS * 64));
    CHECK(cudaMalloc((void **)&weights, WIDEST * 4));
    CHECK(cudaMalloc((void **)&groups, (size_t)ROWS * 8 * 4));
    CHECK(cudaMalloc((void **)&ticket, sizeof *ticket));
    CHECK(cudaMemset(ticket, 0, sizeof *ticket));
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&to));
    fill<<<1024, 256>>>(x, (size_t)ROWS * WIDEST, 1);
    fill<<<1024, 256>>>(u, (size_t)ROWS * WIDEST, 2);
    fill<<<1024, 256>>>(y, (size_t)ROWS * WIDEST, 3);
    fill<<<1024, 256>>>(part, (size_t)ROWS * WIDEST / 16, 4);
    fill<<<1024, 256>>>(weights, WIDEST, 5);
    CHECK(cudaDeviceSynchronize());
    bandwidth();
    layers();
    few_rows();
    return 0;
}
