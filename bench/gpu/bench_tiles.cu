/* bench_tiles: pack, unpack, expansion to f16 and gather of every type that the CUDA modules serve: GB/s of bytes read
 * and written, and the share of what one H200 copies (4.3 TB/s). bench_tiles [type...]; plugins are looked for as
 * always. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime.h>

extern "C" {
#include "plugin/plugin.h"
}

#define OK(call)                                                                 \
    do {                                                                         \
        const cudaError_t code_ = (call);                                        \
        if (code_ != cudaSuccess) {                                              \
            (void)fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(code_)); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

enum { ROWS = 32768, K = 4096, REPEATS = 10, PROMPT = 2048 };
static const double copy_rate = 4.3e12;

static char text[512];
static const struct wk_err err = { text, sizeof text };
static void check(wk_status status)
{
    if (status == WK_OK) return;
    (void)fprintf(stderr, "%s\n", text);
    exit(1);
}

struct place {
    const struct wk_type_cuda *type;
    struct wk_cuda_tiles tiles;
    struct wk_cuda_expand expand;
    struct wk_cuda_gather gather;
};
typedef void (*step)(const struct place *);

static double seconds(const struct place *p, step run)
{
    cudaEvent_t begin, end;
    float ms = 0.0f;
    OK(cudaEventCreate(&begin));
    OK(cudaEventCreate(&end));
    run(p);
    OK(cudaEventRecord(begin));
    for (int i = 0; i < REPEATS; i++) run(p);
    OK(cudaEventRecord(end));
    OK(cudaEventSynchronize(end));
    OK(cudaEventElapsedTime(&ms, begin, end));
    OK(cudaEventDestroy(begin));
    OK(cudaEventDestroy(end));
    return (double)ms * 1e-3 / REPEATS;
}

static void pack(const struct place *p) { check(p->type->pack(&p->tiles, NULL, &err)); }
static void unpack(const struct place *p) { check(p->type->unpack(&p->tiles, NULL, &err)); }
static void expand(const struct place *p) { check(p->type->expand(&p->expand, NULL, &err)); }
static void gather(const struct place *p) { check(p->type->gather(&p->gather, NULL, &err)); }

static void run_type(const struct wk_type_cpu *cpu, const struct wk_type_cuda *type)
{
    const uint64_t row = (uint64_t)K / cpu->block * cpu->block_bytes, file = row * ROWS,
                   tiles = type->tile_bytes(K) * (ROWS / 16);
    void *rows, *packed, *halves;
    float *y;
    uint32_t *index, host[PROMPT];
    for (uint32_t i = 0; i < PROMPT; i++) host[i] = i * 2654435761u % ROWS;
    OK(cudaMalloc(&rows, file));
    OK(cudaMalloc(&packed, tiles));
    OK(cudaMalloc(&halves, (uint64_t)ROWS * K * 2));
    OK(cudaMalloc(&y, (uint64_t)PROMPT * K * 4));
    OK(cudaMalloc(&index, sizeof host));
    OK(cudaMemset(rows, 0x35, file));
    OK(cudaMemcpy(index, host, sizeof host, cudaMemcpyHostToDevice));
    struct place p = { type,
                       { sizeof(struct wk_cuda_tiles), K, ROWS / 16, ROWS, packed, rows, row },
                       { sizeof(struct wk_cuda_expand), K, ROWS, 0, packed, halves, K },
                       { sizeof(struct wk_cuda_gather), 0, K, PROMPT, packed, index, y, K, 1.0f, 0, NULL } };
    const double there = seconds(&p, pack), back = seconds(&p, unpack),
                 wide = type->expand ? seconds(&p, expand) : INFINITY, many = seconds(&p, gather);
    p.gather.rows = 1;
    const double one = seconds(&p, gather);
    const double moved = (double)(file + tiles), expanded = (double)tiles + 2.0 * ROWS * K;
    (void)printf("%-5s  pack %5.0f GB/s  unpack %5.0f GB/s  expand %5.0f GB/s = %3.0f %%  gather %4d rows %6.1f us, 1 "
                 "row %4.1f us\n",
                 cpu->name, moved / there * 1e-9, moved / back * 1e-9, expanded / wide * 1e-9,
                 100.0 * expanded / wide / copy_rate, PROMPT, many * 1e6, one * 1e6);
    OK(cudaFree(rows));
    OK(cudaFree(packed));
    OK(cudaFree(halves));
    OK(cudaFree(y));
    OK(cudaFree(index));
}

int main(int argc, char **argv)
{
    struct plugin_registry *r;
    const struct plugin_options o = {};
    check(plugin_registry_open(&o, &r, &err));
    for (uint32_t type = 0; type <= UINT16_MAX; type++) {
        const struct wk_type_cpu *cpu = plugin_find_type(r, type, NULL);
        const struct wk_quant_cuda *module;
        bool wanted = cpu && argc == 1;
        for (int n = 1; cpu && n < argc; n++) wanted = wanted || strcmp(argv[n], cpu->name) == 0;
        if (!wanted) continue;
        check(plugin_find_cuda(r, type, &module, &err));
        check(module->open(0, &err));
        for (uint32_t t = 0; t < module->n_types; t++)
            if (module->types[t]->ggml_type == type) run_type(cpu, module->types[t]);
    }
    plugin_registry_close(r);
    return 0;
}
