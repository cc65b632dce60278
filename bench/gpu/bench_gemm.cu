/* bench_gemm.cu: large products of three models' shapes: TFLOP/s by number of rows, as a share of what the machine
 * reaches (790).
 *
 *   bench_gemm              the algorithms that core/device/cuda/gemm.c pins; what the first product costs
 *   bench_gemm candidates   what other choices would give: the library's first by the number of rows for which it is
 *                           asked, the best of
 *                           all its candidates, and how many different results they have between them */
#include <cublasLt.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/cuda/kernels.h"

#define CHECK(call)                                                                     \
    do {                                                                                \
        const int code_ = (int)(call);                                                  \
        if (code_) {                                                                    \
            (void)fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, code_); \
            exit(1);                                                                    \
        }                                                                               \
    } while (0)

struct shape {
    const char *name;
    uint32_t n, k;
};
static const struct shape shapes[] = {
    { "Qwen2.5-0.5B k", 128, 896 },        { "Qwen2.5-0.5B gate", 4864, 896 },    { "Phi-3-mini gate", 8192, 3072 },
    { "Llama-2-7B gate", 11008, 4096 },    { "Qwen2.5-0.5B qkv", 1152, 896 },     { "Qwen2.5-0.5B o", 896, 896 },
    { "Qwen2.5-0.5B gate|up", 9728, 896 }, { "Qwen2.5-0.5B down", 896, 4864 },    { "Phi-3-mini qkv", 9216, 3072 },
    { "Phi-3-mini o", 3072, 3072 },        { "Phi-3-mini gate|up", 16384, 3072 }, { "Phi-3-mini down", 3072, 8192 },
    { "Llama-2-7B qkv", 12288, 4096 },     { "Llama-2-7B o", 4096, 4096 },        { "Llama-2-7B gate|up", 22016, 4096 },
    { "Llama-2-7B down", 4096, 11008 },
};
enum { SHAPES = sizeof shapes / sizeof *shapes, MOST_ROWS = 2048, REPEATS = 10 };
static const uint32_t row_counts[] = { 128, 512, 1024, 2048 };
enum { COUNTS = sizeof row_counts / sizeof *row_counts };
static const double limit = 790e12;

static __half *w, *x;
static float *y, *c;
static void *workspace;
static cudaEvent_t from, to;

static __global__ void fill(__half *p, size_t n, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 2654435761u + seed;
        h ^= h >> 15;
        h *= 2246822519u;
        h ^= h >> 13;
        p[i] = __float2half(((float)(h >> 8) / 8388608.0f - 1.0f));
    }
}

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one run: the median of five loops. */
template <class Run> static double seconds(Run run)
{
    double t[5];
    for (int i = 0; i < 2; i++) run();
    for (int i = 0; i < 5; i++) {
        float ms;
        CHECK(cudaEventRecord(from));
        for (int j = 0; j < REPEATS; j++) run();
        CHECK(cudaEventRecord(to));
        CHECK(cudaEventSynchronize(to));
        CHECK(cudaEventElapsedTime(&ms, from, to));
        t[i] = 1e-3 * ms / REPEATS;
    }
    for (int i = 0; i < 5; i++)
        for (int j = i + 1; j < 5; j++)
            if (t[j] < t[i]) {
                const double s = t[i];
                t[i] = t[j];
                t[j] = s;
            }
    return t[2];
}

static double share(const struct shape *s, uint32_t rows, double t) { return 2.0 * rows * s->n * s->k / t / limit; }

/* ---- the pinned algorithms ----------------------------------------------------------------------------- */

static void bench_pinned(void)
{
    char text[256] = "";
    const struct wk_err err = { text, sizeof text };
    struct cuda_gemm *g;
    CHECK(cuda_gemm_open(&g, &err));
    for (uint32_t i = 0; i < SHAPES; i++) {
        const struct shape *s = &shapes[i];
        double t0 = now();
        CHECK(cuda_gemm_prepare(g, s->n, s->k, &err));
        double t1 = now();
        struct cuda_gemm_call call = { 512, s->n, s->k, w, s->k, x, s->k, NULL, s->n, y, s->n, 1.0f, workspace };
        CHECK(cuda_gemm_run(g, &call, NULL, &err));
        CHECK(cudaDeviceSynchronize());
        (void)printf("%-22s %5u x %5u  choose %6.2f ms, first %6.2f ms |", s->name, s->n, s->k, 1e3 * (t1 - t0),
                     1e3 * (now() - t1));
        t0 = now();
        for (int j = 0; j < REPEATS; j++) CHECK(cuda_gemm_run(g, &call, NULL, &err));
        t1 = now();
        CHECK(cudaDeviceSynchronize());
        for (uint32_t j = 0; j < COUNTS; j++)
            for (int with_c = 0; with_c < 2; with_c++) {
                call.rows = row_counts[j];
                call.c = with_c ? c : NULL;
                const double t = seconds([&] { CHECK(cuda_gemm_run(g, &call, NULL, &err)); });
                if (with_c)
                    (void)printf(" (+c %4.1f us)", 1e6 * t);
                else
                    (void)printf("  %4u: %6.1f us %4.1f %%", call.rows, 1e6 * t, 100 * share(s, call.rows, t));
            }
        (void)printf("  host %.1f us\n", 1e6 * (t1 - t0) / REPEATS);
    }
    cuda_gemm_close(g);
}

/* ---- other choices ------------------------------------------------------------------------------------- */

static cublasLtHandle_t handle;

struct problem {
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t w, x, y;
};
static void describe(struct problem *p, const struct shape *s, uint32_t rows)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    CHECK(cublasLtMatmulDescInit(&p->op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CHECK(cublasLtMatmulDescSetAttribute(&p->op, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    CHECK(cublasLtMatrixLayoutInit(&p->w, CUDA_R_16F, s->k, s->n, s->k));
    CHECK(cublasLtMatrixLayoutInit(&p->x, CUDA_R_16F, s->k, rows, s->k));
    CHECK(cublasLtMatrixLayoutInit(&p->y, CUDA_R_32F, s->n, rows, s->n));
}

struct config {
    int32_t id, split;
    uint32_t tile, reduction, swizzle, custom, stages;
    uint16_t inner, cluster;
};
static struct config config_of(const cublasLtMatmulAlgo_t *a)
{
    struct config f;
    size_t n;
    memset(&f, 0, sizeof f);
    (void)cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_ID, &f.id, sizeof f.id, &n);
    (void)cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &f.split, sizeof f.split, &n);
    (void)cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_TILE_ID, &f.tile, sizeof f.tile, &n);
    (void)cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &f.reduction,
                                               sizeof f.reduction, &n);
    (void)cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, &f.swizzle, sizeof f.swizzle, &n);
    (void)cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, &f.custom, sizeof f.custom, &n);
    (void)cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_STAGES_ID, &f.stages, sizeof f.stages, &n);
    (void)cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, &f.inner, sizeof f.inner, &n);
    (void)cublasLtMatmulAlgoConfigGetAttribute(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, &f.cluster, sizeof f.cluster,
                                               &n);
    return f;
}

enum { ASKED = 8, MOST_SEEN = 96, ROUNDS = 3, COMPARED = 2048 };
struct seen {
    cublasLtMatmulAlgo_t algo;
    struct config f;
    double t[COUNTS][ROUNDS], share[COUNTS];
    uint64_t bits;
};
static struct seen seen[MOST_SEEN];
static uint32_t n_seen;

static size_t most_workspace;

static bool run_algo(const struct shape *s, uint32_t rows, const cublasLtMatmulAlgo_t *algo)
{
    struct problem p;
    cublasLtMatmulHeuristicResult_t r;
    const float one = 1, zero = 0;
    describe(&p, s, rows);
    if (cublasLtMatmulAlgoCheck(handle, &p.op, &p.w, &p.x, &p.y, &p.y, algo, &r) ||
        r.workspaceSize > cuda_gemm_workspace())
        return false;
    CHECK(cublasLtMatmul(handle, &p.op, &one, w, &p.w, x, &p.x, &zero, y, &p.y, y, &p.y, algo, workspace,
                         cuda_gemm_workspace(), NULL));
    if (r.workspaceSize > most_workspace) most_workspace = r.workspaceSize;
    return true;
}

/* A number for the bits of COMPARED rows, every seventh value. */
static uint64_t bits_of(const struct shape *s, const cublasLtMatmulAlgo_t *algo)
{
    const size_t n = (size_t)COMPARED * s->n;
    uint32_t *host = (uint32_t *)malloc(n * 4);
    uint64_t h = 14695981039346656037ull;
    CHECK(cudaMemset(y, 0xff, n * 4));
    if (!run_algo(s, COMPARED, algo)) h = 0;
    CHECK(cudaMemcpy(host, y, n * 4, cudaMemcpyDeviceToHost));
    for (size_t i = 0; h && i < n; i += 7) h = (h ^ host[i]) * 1099511628211ull;
    free(host);
    return h;
}

/* The library's undivided candidates for so many rows join those seen. Index of the first. */
static uint32_t ask(const struct shape *s, uint32_t rows)
{
    struct problem p;
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t r[ASKED];
    int n = 0;
    const uint64_t bytes = cuda_gemm_workspace();
    uint32_t first = MOST_SEEN;
    describe(&p, s, rows);
    CHECK(cublasLtMatmulPreferenceInit(&preference));
    CHECK(cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                               sizeof bytes));
    CHECK(cublasLtMatmulAlgoGetHeuristic(handle, &p.op, &p.w, &p.x, &p.y, &p.y, &preference, ASKED, r, &n));
    for (int i = 0; i < n; i++) {
        const struct config f = config_of(&r[i].algo);
        uint32_t at = 0;
        if (f.split > 1 || f.reduction) continue;
        while (at < n_seen && memcmp(&seen[at].f, &f, sizeof f) != 0) at++;
        if (at == MOST_SEEN) continue;
        if (at == n_seen) {
            seen[at].algo = r[i].algo;
            seen[at].f = f;
            seen[at].bits = bits_of(s, &r[i].algo);
            n_seen++;
        }
        if (first == MOST_SEEN) first = at;
    }
    return first;
}

static void print_choice(const char *name, const struct seen *s)
{
    (void)printf("    %-18s", name);
    for (uint32_t j = 0; j < COUNTS; j++) (void)printf("  %4u: %4.1f %%", row_counts[j], 100 * s->share[j]);
    (void)printf("   algo %d tile %u cluster %u swizzle %u custom %u bits %04x\n", s->f.id, s->f.tile, s->f.cluster,
                 s->f.swizzle, s->f.custom, (unsigned)(s->bits >> 48));
}

static double middle(double *t)
{
    const double low = t[0] < t[1] ? t[0] : t[1], high = t[0] < t[1] ? t[1] : t[0];
    return t[2] < low ? low : t[2] > high ? high : t[2];
}

/* All candidates in turn, three times, so that each meets the same clocks. */
static void time_candidates(const struct shape *s)
{
    for (uint32_t j = 0; j < COUNTS; j++)
        for (uint32_t round = 0; round < ROUNDS; round++)
            for (uint32_t i = 0; i < n_seen; i++) {
                float ms;
                seen[i].t[j][round] = 1e9;
                if (!run_algo(s, row_counts[j], &seen[i].algo)) continue;
                CHECK(cudaEventRecord(from));
                for (int k = 0; k < 8; k++) (void)run_algo(s, row_counts[j], &seen[i].algo);
                CHECK(cudaEventRecord(to));
                CHECK(cudaEventSynchronize(to));
                CHECK(cudaEventElapsedTime(&ms, from, to));
                seen[i].t[j][round] = 1e-3 * ms / 8;
            }
    for (uint32_t i = 0; i < n_seen; i++)
        for (uint32_t j = 0; j < COUNTS; j++) seen[i].share[j] = share(s, row_counts[j], middle(seen[i].t[j]));
}

static void bench_candidates(const struct shape *s)
{
    static const uint32_t references[] = { 128, 256, 384, 512, 768, 1024, 2048, 4096 };
    enum { REFERENCES = sizeof references / sizeof *references };
    uint32_t first[REFERENCES], kinds = 0;
    n_seen = 0;
    for (uint32_t i = 0; i < REFERENCES; i++) first[i] = ask(s, references[i]);
    time_candidates(s);
    for (uint32_t i = 0; i < n_seen; i++) {
        uint32_t j = 0;
        while (j < i && seen[j].bits != seen[i].bits) j++;
        kinds += j == i;
    }
    (void)printf("%s %u x %u: %u candidates, %u different results, workspace at most %zu\n", s->name, s->n, s->k,
                 n_seen, kinds, most_workspace);
    for (uint32_t i = 0; i < REFERENCES; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "asked for %u", references[i]);
        if (first[i] < n_seen) print_choice(name, &seen[first[i]]);
    }
    for (uint32_t j = 0; j < COUNTS; j++) {
        uint32_t best = 0;
        char name[32];
        for (uint32_t i = 0; i < n_seen; i++)
            if (seen[i].share[j] > seen[best].share[j]) best = i;
        (void)snprintf(name, sizeof name, "best for %u", row_counts[j]);
        print_choice(name, &seen[best]);
    }
    uint32_t best = 0;
    for (uint32_t i = 0; i < n_seen; i++)
        if (1 / seen[i].share[1] + 1 / seen[i].share[2] < 1 / seen[best].share[1] + 1 / seen[best].share[2]) best = i;
    print_choice("best for 512, 2048", &seen[best]);
}

int main(int argc, char **argv)
{
    const double start = now();
    CHECK(cudaFree(NULL));
    const double context = now();
    CHECK(cublasLtCreate(&handle));
    (void)printf("context %.0f ms, cuBLASLt handle %.1f ms\n", 1e3 * (context - start), 1e3 * (now() - context));
    CHECK(cudaMalloc((void **)&w, (size_t)22016 * 4096 * 2));
    CHECK(cudaMalloc((void **)&x, (size_t)MOST_ROWS * 11008 * 2));
    CHECK(cudaMalloc((void **)&y, (size_t)MOST_ROWS * 22016 * 4));
    CHECK(cudaMalloc((void **)&c, (size_t)MOST_ROWS * 22016 * 4));
    CHECK(cudaMalloc(&workspace, cuda_gemm_workspace()));
    CHECK(cudaEventCreate(&from));
    CHECK(cudaEventCreate(&to));
    fill<<<1024, 256>>>(w, (size_t)22016 * 4096, 1);
    fill<<<1024, 256>>>(x, (size_t)MOST_ROWS * 11008, 2);
    CHECK(cudaMemset(c, 0, (size_t)MOST_ROWS * 22016 * 4));
    if (argc > 1 && strcmp(argv[1], "candidates") == 0)
        for (uint32_t i = 0; i < SHAPES; i++) bench_candidates(&shapes[i]);
    else
        bench_pinned();
    return 0;
}
