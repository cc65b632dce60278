/* bench_attend.cu: attention of generated rows and of prompts, by model shape and depth, as a share of the limits (4.54
 * TB/s read, 790 TFLOP/s f16).
 *
 * Generated rows: a graph of one launch a layer with dependent launch, every layer with its own cache; once back to
 * back, and once with a product's stand-in between (132 blocks with 96 KiB of shared memory, a prefetch, a few rows to
 * read): what attention adds to it.
 *
 *   bench_attend [few | rows | prompt | key | one]     rows: several sequences; key: sixteen lines in two seconds;
 *   one: one row at several depths, with pages for as many positions
 *                                                      and for 4096 */
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <worker/arch.h>
#include <worker/cuda/part/launch.cuh>

#include "device/cuda/kernels.h"

#define CHECK(call)                                                                                         \
    do {                                                                                                    \
        const cudaError_t code_ = (call);                                                                   \
        if (code_ != cudaSuccess) {                                                                         \
            (void)fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(code_)); \
            exit(1);                                                                                        \
        }                                                                                                   \
    } while (0)
static char text[512];
static const struct wk_err err = { text, sizeof text };
#define LAUNCH(call)                                        \
    do {                                                    \
        if ((call) != WK_OK) {                              \
            (void)fprintf(stderr, "%s: %s\n", #call, text); \
            exit(1);                                        \
        }                                                   \
    } while (0)

static const double read_limit = 4.54e12, matrix_limit = 790e12;

struct model {
    const char *name;
    uint32_t heads, kv_heads, d, layers;
};
static const struct model qwen = { "Qwen2.5-0.5B", 14, 2, 64, 24 }, phi = { "Phi-3-mini", 32, 32, 96, 32 },
                          llama = { "Llama-2-7B", 32, 32, 128, 32 }, llama3 = { "Llama-3-8B", 32, 8, 128, 32 },
                          oss = { "GPT-OSS-20B", 64, 8, 64, 24 };

static __global__ void fill_half(__half *p, size_t n, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 2654435761u + seed;
        h ^= h >> 15;
        h *= 2246822519u;
        p[i] = __float2half((float)(h >> 8) / 8388608.0f - 1.0f);
    }
}
static __global__ void fill_float(float *p, size_t n)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x)
        p[i] = (float)((uint32_t)i * 2654435761u >> 8) / 8388608.0f - 1.0f;
}

enum { STANDIN_BYTES = 96 * 1024 };
static __global__ void __launch_bounds__(256) standin(const uint4 *weights, const float *x, float *y)
{
    extern __shared__ uint4 ring[];
    wk_release();
    for (uint32_t i = threadIdx.x; i < 1024; i += 256) ring[i] = __ldg(weights + blockIdx.x * 1024 + i);
    wk_depend();
    __syncthreads();
    float s = (float)ring[(threadIdx.x * 7) & 1023].x;
    for (uint32_t i = threadIdx.x; i < 2048; i += 256) s += __ldcg(x + i);
    if (threadIdx.x < 64) y[blockIdx.x * 64 + threadIdx.x] = s;
}

static void launch_standin(const uint4 *weights, const float *x, float *y, cudaStream_t stream)
{
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(132);
    config.blockDim = dim3(256);
    config.dynamicSmemBytes = STANDIN_BYTES;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, standin, weights, x, y));
}

static void *take(size_t bytes)
{
    void *p = NULL;
    CHECK(cudaMalloc(&p, bytes));
    CHECK(cudaMemset(p, 0, bytes));
    return p;
}

/* Positions of sequence i before the step: evenly from past to past + spread, in no order. */
static uint32_t past_of(uint32_t i, uint32_t seqs, uint32_t past, uint32_t spread)
{
    return past + (seqs > 1 ? i * 7919 % seqs * spread / (seqs - 1) : 0);
}

/* Everything that a step over `seqs` sequences needs; each has `rows` new positions. */
struct setup {
    struct cuda_batch b;
    struct cuda_attend a;
    __half *caches;
    uint64_t cache_halves;
    uint32_t layers;
    void *q_half;
};

static struct setup prepare(const struct model *m, uint32_t seqs, uint32_t past, uint32_t spread, uint32_t rows,
                            uint32_t context, uint32_t window)
{
    struct setup s = {};
    const uint32_t all = seqs * rows, stride = (past + spread + rows + KV_PAGE - 1) / KV_PAGE, pages = seqs * stride;
    s.cache_halves = cuda_attend_page_bytes(m->kv_heads, m->d, m->d) / 2 * pages;
    s.layers = m->layers;
    while (s.layers > 2 && s.layers * s.cache_halves * 2 > (uint64_t)40e9) s.layers /= 2;
    s.caches = (__half *)take(s.layers * s.cache_halves * 2);
    fill_half<<<1024, 256>>>(s.caches, s.layers * s.cache_halves, 1);
    struct cuda_seq *seq = (struct cuda_seq *)malloc(seqs * sizeof *seq);
    uint32_t *table = (uint32_t *)malloc(pages * sizeof *table);
    for (uint32_t i = 0; i < seqs; i++) seq[i] = cuda_seq{ i * rows, rows, past_of(i, seqs, past, spread), i };
    for (uint32_t i = 0; i < pages; i++) table[i] = (uint32_t)((uint64_t)i * 7919 % pages);
    if (pages % 7919 == 0) exit(1);
    s.b.rows = all;
    s.b.seqs = seqs;
    s.b.seq = (struct cuda_seq *)take(seqs * sizeof *seq);
    s.b.pages[0] = (uint32_t *)take(pages * 4);
    s.b.page_stride[0] = stride;
    struct cuda_lengths lengths = {};
    for (uint32_t i = 0; i < seqs; i++) cuda_lengths_add(&lengths, &seq[i]);
    s.b.lengths = (struct cuda_lengths *)take(sizeof lengths);
    CHECK(cudaMemcpy((void *)s.b.seq, seq, seqs * sizeof *seq, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy((void *)s.b.lengths, &lengths, sizeof lengths, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy((void *)s.b.pages[0], table, pages * 4, cudaMemcpyHostToDevice));
    free(seq);
    free(table);
    struct cuda_attend *a = &s.a;
    a->pdl = true;
    a->heads = m->heads;
    a->kv_heads = m->kv_heads;
    a->dk = a->dv = m->d;
    a->scale = 0.1f;
    a->window = window;
    const uint64_t width = (uint64_t)(m->heads + 2 * m->kv_heads) * m->d;
    float *x = (float *)take((all * width + 4096) * 4), *rope_table = (float *)take((uint64_t)all * m->d * 4);
    fill_float<<<256, 256>>>(x, all * width);
    fill_float<<<256, 256>>>(rope_table, (uint64_t)all * m->d);
    a->q = x;
    a->k = x + (uint64_t)m->heads * m->d;
    a->v = a->k + (uint64_t)m->kv_heads * m->d;
    a->q_stride = a->k_stride = a->v_stride = width;
    a->q_rope_table = a->k_rope_table = rope_table;
    a->q_rope_n = a->k_rope_n = m->d / 2;
    a->q_rope_style = a->k_rope_style = WK_ROPE_HALF;
    a->act = take((uint64_t)all * wk_act_k(m->heads * m->d) * 2);
    if (all <= WK_CUDA_FEW) {
        a->workspace = take(cuda_attend_workspace(all, m->heads, m->d, m->d, context));
        a->counters = (uint32_t *)take(cuda_attend_counters(all, m->heads) * 4);
    }
    s.q_half = take(cuda_attend_query_bytes(all, m->heads, m->d, m->d));
    return s;
}

static void drop(struct setup *s)
{
    CHECK(cudaDeviceSynchronize());
    void *const all[] = { s->caches,
                          (void *)s->b.seq,
                          (void *)s->b.lengths,
                          (void *)s->b.pages[0],
                          (void *)s->a.q,
                          (void *)s->a.q_rope_table,
                          s->a.act,
                          s->a.workspace,
                          s->a.counters,
                          s->q_half };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) CHECK(cudaFree(all[i]));
}

enum order { ATTEND_ONLY, STANDIN_ONLY, BOTH };

/* Microseconds a layer: the median of several replays. */
static double layer_time(struct setup *s, uint32_t context, enum order order)
{
    static uint4 *weights;
    static float *y;
    if (!weights) {
        weights = (uint4 *)take(64 << 20);
        y = (float *)take(1 << 20);
        CHECK(cudaFuncSetAttribute(standin, cudaFuncAttributeMaxDynamicSharedMemorySize, STANDIN_BYTES));
    }
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t from, to;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&to));
    s->a.batch = &s->b;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    for (uint32_t l = 0; l < s->layers; l++) {
        s->a.cache = s->caches + l * s->cache_halves;
        if (order != ATTEND_ONLY) launch_standin(weights + l % 16 * 132 * 1024, (const float *)s->a.act, y, stream);
        if (order != STANDIN_ONLY) LAUNCH(cuda_attend(&s->a, context, stream, &err));
    }
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    float times[7];
    for (int i = 0; i < 9; i++) {
        const int inner = 10;
        CHECK(cudaEventRecord(from, stream));
        for (int j = 0; j < inner; j++) CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaEventRecord(to, stream));
        CHECK(cudaEventSynchronize(to));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, from, to));
        if (i >= 2) times[i - 2] = ms * 1000.0f / (float)inner / (float)s->layers;
    }
    for (int i = 0; i < 7; i++)
        for (int j = i + 1; j < 7; j++)
            if (times[j] < times[i]) {
                const float t = times[i];
                times[i] = times[j];
                times[j] = t;
            }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaStreamDestroy(stream));
    return times[3];
}

static void few(const struct model *m, uint32_t seqs, uint32_t past, uint32_t rows, uint32_t context, uint32_t window,
                uint32_t spread = 0)
{
    struct setup s = prepare(m, seqs, past, spread, rows, context, window);
    const double alone = layer_time(&s, context, ATTEND_ONLY),
                 between = layer_time(&s, context, BOTH) - layer_time(&s, context, STANDIN_ONLY);
    double bytes = 0;
    for (uint32_t i = 0; i < seqs; i++) {
        const uint32_t end = past_of(i, seqs, past, spread) + rows;
        bytes += (double)(window && window < end ? window + rows - 1 : end) * m->kv_heads * m->d * 4;
    }
    printf(
        "%-13s %2u x %u rows at %6u + %3u of %6u%s: %7.2f us a layer, %7.2f us between products, %8.1f GB/s %5.1f %%\n",
        m->name, seqs, rows, past, spread, context, window ? " (window)" : "", alone, between, bytes / alone * 1e-3,
        100 * bytes / alone * 1e6 / read_limit);
    drop(&s);
}

static void prompt(const struct model *m, uint32_t seqs, uint32_t past, uint32_t rows, uint32_t window)
{
    struct setup s = prepare(m, seqs, past, 0, rows, past + rows, window);
    s.a.batch = &s.b;
    s.a.cache = s.caches;
    cudaEvent_t from, middle, to;
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&middle));
    CHECK(cudaEventCreate(&to));
    float best = 1e9f, store = 1e9f;
    for (int i = 0; i < 8; i++) {
        const int inner = 10;
        CHECK(cudaEventRecord(from));
        for (int j = 0; j < inner; j++) LAUNCH(cuda_attend_store(&s.a, s.q_half, NULL, &err));
        CHECK(cudaEventRecord(middle));
        for (int j = 0; j < inner; j++) LAUNCH(cuda_attend_prompt(&s.a, s.q_half, NULL, &err));
        CHECK(cudaEventRecord(to));
        CHECK(cudaEventSynchronize(to));
        float ms;
        CHECK(cudaEventElapsedTime(&ms, from, middle));
        if (ms / inner < store) store = ms / inner;
        CHECK(cudaEventElapsedTime(&ms, middle, to));
        if (ms / inner < best) best = ms / inner;
    }
    double seen = 0;
    for (uint32_t r = 0; r < rows; r++) seen += window && window < past + r + 1 ? window : past + r + 1;
    const double work = 4.0 * m->d * m->heads * seen * seqs;
    printf("%-13s %2u prompts of %5u at %5u%s: %8.1f us, %6.1f TFLOP/s %5.1f %%; store %6.1f us\n", m->name, seqs, rows,
           past, window ? " (window)" : "", best * 1e3, work / best * 1e-9, 100 * work / best * 1e3 / matrix_limit,
           store * 1e3);
    drop(&s);
}

int main(int argc, char **argv)
{
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc > 1 && !strcmp(argv[1], "key")) {
        const struct model *const models[] = { &qwen, &phi, &llama };
        for (int i = 0; i < 3; i++)
            few(models[i], 1, 128, 1, 4096, 0), few(models[i], 1, 640, 1, 4096, 0), few(models[i], 1, 3840, 1, 4096, 0),
                few(models[i], 64, 640, 1, 4096, 0);
        prompt(&qwen, 1, 0, 2048, 0);
        prompt(&phi, 1, 0, 2048, 0);
        prompt(&llama, 1, 0, 512, 0);
        prompt(&llama, 1, 0, 2048, 0);
        return 0;
    }
    if (argc > 1 && !strcmp(argv[1], "one")) {
        static const uint32_t depths[] = { 128, 250, 640, 1500, 3840 };
        const struct model *const models[] = { &qwen, &phi, &llama, &oss, &llama3 };
        for (int i = 0; i < 5; i++) {
            for (uint32_t d = 0; d < sizeof depths / sizeof *depths; d++)
                few(models[i], 1, depths[d], 1, depths[d] + 1, 0), few(models[i], 1, depths[d], 1, 4096, 0);
            if (models[i] == &oss) few(&oss, 1, 128, 1, 256, 128), few(&oss, 1, 3840, 1, 4096, 128);
        }
        return 0;
    }
    const bool all = argc < 2;
    if (all || !strcmp(argv[1], "rows")) {
        static const struct {
            const struct model *m;
            uint32_t seqs, past, context, window, spread;
        } cases[] = {
            { &qwen, 8, 128, 1024, 0, 0 },    { &qwen, 8, 640, 1024, 0, 0 },    { &qwen, 8, 640, 4096, 0, 0 },
            { &qwen, 8, 3840, 4096, 0, 0 },   { &qwen, 32, 128, 1024, 0, 0 },   { &qwen, 32, 640, 1024, 0, 0 },
            { &qwen, 32, 1500, 2048, 0, 0 },  { &qwen, 64, 640, 1024, 0, 0 },   { &phi, 2, 640, 1024, 0, 0 },
            { &phi, 8, 128, 1024, 0, 0 },     { &phi, 8, 640, 1024, 0, 0 },     { &phi, 32, 640, 1024, 0, 0 },
            { &phi, 64, 640, 1024, 0, 0 },    { &llama, 8, 128, 1024, 0, 0 },   { &llama, 8, 640, 1024, 0, 0 },
            { &llama, 32, 640, 1024, 0, 0 },  { &llama, 32, 1250, 2048, 0, 0 }, { &llama, 32, 1000, 2048, 0, 500 },
            { &llama, 32, 1500, 2048, 0, 0 }, { &oss, 8, 640, 1024, 0, 0 },     { &oss, 8, 640, 1024, 128, 0 },
            { &oss, 32, 640, 1024, 0, 0 },    { &oss, 32, 640, 1024, 128, 0 },  { &oss, 64, 640, 1024, 0, 0 },
            { &oss, 64, 640, 1024, 128, 0 },  { &llama3, 8, 640, 1024, 0, 0 },  { &llama3, 32, 640, 1024, 0, 0 },
        };
        for (const auto &c : cases) few(c.m, c.seqs, c.past, 1, c.context, c.window, c.spread);
    }
    if (all || !strcmp(argv[1], "few")) {
        const struct model *const models[] = { &qwen, &phi, &llama, &llama3, &oss };
        for (int i = 0; i < 5; i++) {
            few(models[i], 1, 128, 1, 4096, 0);
            few(models[i], 1, 250, 1, 4096, 0);
            few(models[i], 1, 640, 1, 4096, 0);
            few(models[i], 1, 3840, 1, 4096, 0);
        }
        few(&oss, 1, 3840, 1, 131072, 128);
        few(&qwen, 1, 128, 1, 32768, 0);
        few(&llama3, 1, 100000, 1, 131072, 0);
        few(&llama, 1, 640, 8, 4096, 0);
        few(&qwen, 64, 640, 1, 131072, 0);
        few(&phi, 64, 640, 1, 4096, 0);
        few(&llama, 8, 640, 1, 4096, 0);
        few(&llama, 64, 640, 1, 4096, 0);
        few(&oss, 64, 640, 1, 131072, 0);
    }
    if (all || !strcmp(argv[1], "prompt")) {
        const struct model *const models[] = { &qwen, &phi, &llama, &llama3, &oss };
        for (int i = 0; i < 5; i++) {
            prompt(models[i], 1, 0, 512, 0);
            prompt(models[i], 1, 0, 2048, 0);
        }
        prompt(&llama, 1, 0, 8192, 0);
        prompt(&llama, 1, 3840, 256, 0);
        prompt(&llama, 4, 0, 512, 0);
        prompt(&oss, 1, 0, 2048, 128);
    }
    return 0;
}
