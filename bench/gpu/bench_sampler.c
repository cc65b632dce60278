/* bench_sampler.c: microseconds of sampling one step, by rows, vocabulary and parameters, as a chain of dependent
 * launches in a graph.
 *
 * Each figure is the median over repeats of a graph of LAUNCHES steps; the logits are in the cache as after the product
 * that made them. The last line of a vocabulary is the time that reading the logits once at 4.54 TB/s takes. An
 * argument "large" leaves the smaller vocabulary out. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/kernels.h"

enum { LAUNCHES = 100, REPEATS = 15, SLOTS = 64 };

static char text[512];
static const struct wk_err err = { text, sizeof text };

static void check(cudaError_t code)
{
    if (!code) return;
    printf("%s\n", cudaGetErrorString(code));
    exit(1);
}
static void ok(wk_status status)
{
    if (!status) return;
    printf("%s\n", text);
    exit(1);
}

static const struct {
    const char *name;
    enum cuda_sample_kind kind;
    bool clusters;
    struct sampler_params p;
} cases[] = {
    { "greedy", CUDA_SAMPLE_PLAIN, true, { .repetition_penalty = 1, .top_p = 1 } },
    { "greedy with penalties",
      CUDA_SAMPLE_ANY,
      true,
      { .repetition_penalty = 1.1f, .presence_penalty = 0.5f, .top_p = 1 } },
    { "temperature 1", CUDA_SAMPLE_PLAIN, true, { .temperature = 1, .repetition_penalty = 1, .top_p = 1 } },
    { "temperature", CUDA_SAMPLE_PLAIN, true, { .temperature = 0.8f, .repetition_penalty = 1, .top_p = 1 } },
    { "temperature beside others",
      CUDA_SAMPLE_ANY,
      true,
      { .temperature = 0.8f, .repetition_penalty = 1, .top_p = 1 } },
    { "min-p 0.05",
      CUDA_SAMPLE_ANY,
      true,
      { .temperature = 0.8f, .repetition_penalty = 1, .top_p = 1, .min_p = 0.05f } },
    { "top-k 40", CUDA_SAMPLE_ANY, true, { .temperature = 0.8f, .repetition_penalty = 1, .top_p = 1, .top_k = 40 } },
    { "top-p 0.95", CUDA_SAMPLE_ANY, true, { .temperature = 0.8f, .repetition_penalty = 1, .top_p = 0.95f } },
    { "top-k, top-p, min-p, penalties",
      CUDA_SAMPLE_ANY,
      true,
      { .temperature = 0.8f, .repetition_penalty = 1.1f, .top_p = 0.95f, .top_k = 40, .min_p = 0.02f } },
    { "the same, no clusters",
      CUDA_SAMPLE_ANY,
      false,
      { .temperature = 0.8f, .repetition_penalty = 1.1f, .top_p = 0.95f, .top_k = 40, .min_p = 0.02f } },
};
enum { N_CASES = sizeof cases / sizeof *cases };

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

struct bench {
    void *memory;
    float *logits;
    struct cuda_seq *seq;
    uint32_t *serial;
    struct cuda_sampled *out;
    cudaStream_t stream;
};

static double microseconds(const struct bench *b, uint32_t n, uint32_t rows, uint32_t which)
{
    struct cuda_sampler *s;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaEvent_t start, end;
    float ms[REPEATS];
    ok(cuda_sampler_open(SLOTS, n, SLOTS, b->memory, &s, &err));
    if (!cases[which].clusters) cuda_sampler_without_clusters(s);
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct sampler_params p = cases[which].p;
        p.seed = i;
        ok(cuda_sampler_set(s, i, &p, NULL, 0, b->stream, &err));
    }
    const struct cuda_sample c = { .pdl = true,
                                   .kind = cases[which].kind,
                                   .rows = rows,
                                   .seq = b->seq,
                                   .logits = b->logits,
                                   .stride = n,
                                   .serial = b->serial,
                                   .out = b->out };
    check(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal));
    for (uint32_t i = 0; i < LAUNCHES; i++) ok(cuda_sampler_run(s, &c, b->stream, &err));
    check(cudaStreamEndCapture(b->stream, &graph));
    check(cudaGraphInstantiate(&exec, graph, 0));
    check(cudaEventCreate(&start));
    check(cudaEventCreate(&end));
    check(cudaGraphLaunch(exec, b->stream));
    for (uint32_t i = 0; i < REPEATS; i++) {
        check(cudaEventRecord(start, b->stream));
        check(cudaGraphLaunch(exec, b->stream));
        check(cudaEventRecord(end, b->stream));
        check(cudaEventSynchronize(end));
        check(cudaEventElapsedTime(&ms[i], start, end));
    }
    check(cudaEventDestroy(start));
    check(cudaEventDestroy(end));
    check(cudaGraphExecDestroy(exec));
    check(cudaGraphDestroy(graph));
    cuda_sampler_close(s);
    qsort(ms, REPEATS, sizeof *ms, ascending);
    return (double)ms[REPEATS / 2] * 1e3 / LAUNCHES;
}

int main(int argc, char **argv)
{
    static const uint32_t vocab[] = { 32064, 151936 }, rows[] = { 1, 8, 32, 64 };
    const uint32_t first = argc > 1 && strcmp(argv[1], "large") == 0 ? 1 : 0;
    struct bench b = { 0 };
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    struct cuda_seq seq[SLOTS];
    uint64_t random = 5;
    const size_t floats = (size_t)vocab[1] * SLOTS;
    float *host = malloc(floats * sizeof *host);
    if (!host) return 1;
    for (size_t i = 0; i < floats; i++) { /* bell-shaped, deviation 2.5 */
        double sum = -6;
        for (int k = 0; k < 12; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            sum += (double)(random >> 40) * 0x1p-24;
        }
        host[i] = (float)(sum * 2.5);
    }
    for (uint32_t i = 0; i < SLOTS; i++) seq[i] = (struct cuda_seq){ .n_rows = 1, .slot = i };
    check(cudaMalloc(&b.memory, cuda_sampler_bytes(SLOTS, vocab[1], SLOTS)));
    check(cudaMalloc((void **)&b.logits, floats * sizeof *host));
    check(cudaMalloc((void **)&b.seq, sizeof seq));
    check(cudaMalloc((void **)&b.serial, sizeof *b.serial));
    check(cudaHostAlloc((void **)&b.out, sizeof *b.out * CUDA_RING * SLOTS, cudaHostAllocMapped));
    check(cudaMemcpy(b.logits, host, floats * sizeof *host, cudaMemcpyHostToDevice));
    check(cudaMemcpy(b.seq, seq, sizeof seq, cudaMemcpyHostToDevice));
    check(cudaMemset(b.serial, 0, sizeof *b.serial));
    check(cudaStreamCreateWithFlags(&b.stream, cudaStreamNonBlocking));
    free(host);
    printf("%-32s %10s %10s %10s %10s   us a step at vocabulary\n", "", "1 row", "8 rows", "32 rows", "64 rows");
    for (uint32_t v = first; v < 2; v++) {
        for (uint32_t i = 0; i < N_CASES; i++) {
            printf("%-32s", cases[i].name);
            for (uint32_t r = 0; r < 4; r++) printf(" %10.2f", microseconds(&b, vocab[v], rows[r], i));
            printf("   %u\n", vocab[v]);
        }
        printf("%-32s", "reading once");
        for (uint32_t r = 0; r < 4; r++) printf(" %10.2f", 4.0 * vocab[v] * rows[r] / 4.54e12 * 1e6);
        printf("   %u\n", vocab[v]);
    }
    return 0;
}
