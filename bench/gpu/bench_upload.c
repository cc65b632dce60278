/* bench_upload.c: how fast a file in the page cache becomes weights on the device, beside the rate of one large pinned
 * copy.
 *
 *   bench_upload FILE GIB [CHUNK_KIB...]     writes FILE, sends it once for each chunk size, removes it */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "device/cuda/context.h"
#include "device/cuda/test_memory_format.h"
#include "gguf/guard.h"
#include "tape/tape.h"

enum { COLS = 4096, ROWS = 14336, MOST = 4096 };

static char text[512];
static const struct wk_err err = { text, sizeof text };
#define OK(call)                                            \
    do {                                                    \
        if (call) {                                         \
            (void)fprintf(stderr, "%s: %s\n", #call, text); \
            exit(1);                                        \
        }                                                   \
    } while (0)

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static const uint64_t tensor_bytes = (uint64_t)ROWS * COLS / TEST_BLOCK * TEST_BLOCK_BYTES;

static void write_file(const char *path, uint32_t n)
{
    struct gguf_writer *w;
    const uint64_t ne[2] = { COLS, ROWS };
    char name[16];
    uint8_t *data = malloc(tensor_bytes);
    for (uint64_t i = 0; i < tensor_bytes; i++) data[i] = (uint8_t)(i * 2654435761u >> 13);
    OK(gguf_writer_open(path, &w, &err));
    for (uint32_t i = 0; i < n; i++) {
        const int len = snprintf(name, sizeof name, "t%u", i);
        OK(gguf_writer_tensor(w, (struct gguf_str){ name, (uint64_t)len }, TEST_FORMAT, 2, ne, tensor_bytes, &err));
    }
    for (uint32_t i = 0; i < n; i++) OK(gguf_writer_data(w, data, tensor_bytes, &err));
    OK(gguf_writer_finish(w, &err));
    free(data);
}

static double pinned_rate(struct cuda_device *d)
{
    const size_t bytes = (size_t)1 << 30;
    struct cuda_region r;
    void *host = NULL;
    OK(cuda_region_map(d, MEMORY_WORKSPACE, bytes, &r, &err));
    if (cudaHostAlloc(&host, bytes, cudaHostAllocDefault) != cudaSuccess) exit(1);
    double best = 0;
    for (int i = 0; i < 4; i++) {
        const double start = now();
        (void)cudaMemcpyAsync((void *)(uintptr_t)r.base, host, bytes, cudaMemcpyHostToDevice, d->stream);
        (void)cudaStreamSynchronize(d->stream);
        const double rate = (double)bytes / (now() - start);
        if (rate > best) best = rate;
    }
    (void)cudaFreeHost(host);
    cuda_region_unmap(d, &r);
    return best;
}

static void run(const char *path, uint32_t chunk, bool last)
{
    static struct tape_tensor tensors[MOST];
    static struct cuda_load loads[MOST];
    struct gguf *file;
    struct cuda_device *d;
    OK(gguf_open(path, &file, &err));
    const uint32_t n = (uint32_t)gguf_tensor_count(file);
    const double begin = now();
    OK(cuda_device_open(0, file, &d, &err));
    const double opened = now();
    const uint64_t run_bytes = ROWS / 16 * test_format_cuda.tile_bytes(COLS);
    void *weights;
    OK(cuda_memory_take(d, MEMORY_WEIGHTS, n * run_bytes, &weights, &err));
    for (uint32_t i = 0; i < n; i++) {
        tensors[i] = (struct tape_tensor){ .file = gguf_tensor_at(file, i),
                                           .type = &test_format_cpu,
                                           .rows = ROWS,
                                           .cols = COLS,
                                           .slabs = 1,
                                           .bytes = tensor_bytes };
        loads[i] = (struct cuda_load){
            .tensor = &tensors[i], .type = &test_format_cuda, .n = ROWS, .tiles = (uint8_t *)weights + i * run_bytes
        };
    }
    const double pinned = pinned_rate(d), start = now();
    OK(cuda_upload(d, &(struct cuda_upload){ .file = file, .loads = loads, .n_loads = n, .chunk = chunk }, &err));
    const double seconds = now() - start, rate = (double)n * (double)tensor_bytes / seconds;
    (void)printf("chunk %6u KiB: open %.3f s, upload %.3f s, %5.1f GB/s, %3.0f %% of a pinned copy (%.1f)\n",
                 chunk >> 10, opened - begin, seconds, rate * 1e-9, 100 * rate / pinned, pinned * 1e-9);
    if (last) {
        char hex[65];
        OK(cuda_seal(d, &err));
        const double sealed = now();
        OK(cuda_residency(d, &err));
        const double checked = now();
        OK(cuda_verify(d, hex, &err));
        (void)printf("digest of the file %.2f s after the start, residency %.4f s, verify %.2f s\n", sealed - start,
                     checked - sealed, now() - checked);
    }
    (void)fflush(stdout);
    cuda_device_close(d);
    gguf_close(file);
}

int main(int argc, char **argv)
{
    if (argc < 3) return 2;
    const uint32_t n = (uint32_t)(strtod(argv[2], NULL) * 0x1p30 / (double)tensor_bytes);
    if (n < 1 || n > MOST) return 2;
    OK(gguf_guard_install(&err));
    const double start = now();
    write_file(argv[1], n);
    (void)printf("%s: %u tensors, %.2f GB, written in %.1f s\n", argv[1], n, (double)n * (double)tensor_bytes * 1e-9,
                 now() - start);
    for (int i = 3; i < argc || i == 3; i++)
        run(argv[1], argc > 3 ? (uint32_t)strtoul(argv[i], NULL, 10) << 10 : 0, i + 1 >= argc);
    (void)unlink(argv[1]);
    return 0;
}
