/* bench/bench_product.c: how near a quantization plugin's products come to the machine's limits.
 *
 *     bench_product plugin.so... [-t type] [-i portable|avx2|avx512] [-m MiB] [-r repeats] [-g tiles a call]
 *
 * Decode: one token times copies of a matrix until -m MiB have been read, in GB/s of packed weights and as a share of
 * plain reads of the same memory. Prefill: 64 and 128 tokens, in GOP/s (a multiply and an add are two) and as a share
 * of vpdpbusd. Each with one thread and two; medians of -r repeats, each measured between two measurements of the
 * limit. Threads are pinned; nothing else should run. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <worker/cpu/act_q8.h>
#include <worker/plugin.h>

#include "plugin/format.h"
#include "plugin/plugin.h"
#include "roof.h"

enum { MAX_THREADS = 2, MAX_TOKENS = 128, MAX_REPEATS = 99 };

struct options {
    const char *type;
    uint64_t bytes;
    uint32_t isa, repeats, tiles_a_call;
};

static struct options opt = { NULL, 512u << 20, WK_ISA_AVX512, 5, 16 };

/* One timed piece of work, dealt to threads. */
struct work {
    void (*part)(const struct work *w, uint32_t thread);
    uint32_t threads, n_rows, k, act;
    uint64_t tiles, tile_bytes, bytes, rounds; /* bytes, rounds: of the limits */
    const struct wk_type_cpu *type;
    format_product product;
    const uint8_t *weights;
    const uint8_t *x;
    uint64_t x_stride;
    void *scratch[MAX_THREADS];
    float *y[MAX_THREADS];
    pthread_barrier_t *barrier;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const char *text)
{
    (void)fprintf(stderr, "bench_product: %s\n", text);
    exit(1);
}

static void *memory(uint64_t bytes)
{
    const uint64_t huge = 2u << 20, size = (bytes + huge - 1) & ~(huge - 1);
    void *p = NULL;
    if (posix_memalign(&p, huge, size)) die("out of memory");
    (void)madvise(p, size, MADV_HUGEPAGE);
    memset(p, 0, size);
    return p;
}

static uint64_t read_memory(const void *p, uint64_t bytes)
{
    return opt.isa == WK_ISA_AVX512 ? roof_read_avx512(p, bytes) : roof_read(p, bytes);
}

static volatile uint64_t sink;

static void part_read(const struct work *w, uint32_t thread)
{
    const uint64_t share = w->bytes / w->threads & ~(uint64_t)255;
    sink += read_memory(w->weights + thread * share, share);
}

static void part_vnni(const struct work *w, uint32_t thread)
{
    (void)thread;
    sink += (uint64_t)roof_vnni_avx512(w->rounds / w->threads);
}

static void part_product(const struct work *w, uint32_t thread)
{
    const uint64_t first = w->tiles * thread / w->threads, last = w->tiles * (thread + 1) / w->threads;
    for (uint64_t t = first; t < last; t += opt.tiles_a_call) {
        const uint64_t n = last - t < opt.tiles_a_call ? last - t : opt.tiles_a_call;
        const struct wk_cpu_product call = { .struct_size = sizeof call,
                                             .activation = w->act,
                                             .k = w->k,
                                             .n_rows = w->n_rows,
                                             .n_tiles = (uint32_t)n,
                                             .x_stride = w->x_stride,
                                             .y_stride = 16 * opt.tiles_a_call,
                                             .tiles = w->weights + t * w->tile_bytes,
                                             .x = w->x,
                                             .y = w->y[thread],
                                             .scratch = w->scratch[thread],
                                             .tensor = &format_plain };
        w->product(&call);
    }
}

struct seat {
    const struct work *work;
    uint32_t thread, pad;
};

static void *sit(void *arg)
{
    const struct seat *s = arg;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(s->thread, &set);
    (void)sched_setaffinity(0, sizeof set, &set);
    pthread_barrier_wait(s->work->barrier);
    s->work->part(s->work, s->thread);
    pthread_barrier_wait(s->work->barrier);
    return NULL;
}

/* Seconds from a common start to the end of the last thread. */
static double timed(struct work w, uint32_t threads, void (*part)(const struct work *w, uint32_t thread))
{
    pthread_barrier_t barrier;
    pthread_t thread[MAX_THREADS];
    struct seat seats[MAX_THREADS];
    w.part = part;
    w.threads = threads;
    w.barrier = &barrier;
    pthread_barrier_init(&barrier, NULL, threads + 1);
    for (uint32_t i = 0; i < threads; i++) {
        seats[i] = (struct seat){ &w, i, 0 };
        if (pthread_create(&thread[i], NULL, sit, &seats[i])) die("no thread");
    }
    pthread_barrier_wait(&barrier);
    const double start = now();
    pthread_barrier_wait(&barrier);
    const double seconds = now() - start;
    for (uint32_t i = 0; i < threads; i++) pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&barrier);
    return seconds;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, uint32_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

/* Medians of a rate and of its share of the limit measured before and after it. */
static void measure(const struct work *w, uint32_t threads, double amount, void (*limit)(const struct work *, uint32_t),
                    double limit_amount)
{
    double rate[MAX_REPEATS], share[MAX_REPEATS];
    for (uint32_t i = 0; i < opt.repeats; i++) {
        const double before = timed(*w, threads, limit), seconds = timed(*w, threads, part_product),
                     after = timed(*w, threads, limit);
        rate[i] = amount / seconds / 1e9;
        share[i] = 100 * amount / seconds / (limit_amount / (before < after ? before : after));
    }
    printf("  %7.1f %5.1f%%", median(rate, opt.repeats), median(share, opt.repeats));
    (void)fflush(stdout);
}

/* Fill the weight set with copies of one random matrix of 16 rows, encoded with equal importances: some types want
 * them. */
static void fill(struct work *w, uint8_t *to)
{
    const uint64_t row = (uint64_t)(w->k / w->type->block) * w->type->block_bytes;
    uint8_t *rows = memory(16 * row);
    float *x = memory(w->k * sizeof *x), *alike = memory(w->k * sizeof *alike);
    const void *from[16];
    uint64_t state = 88172645463325252u;
    for (uint32_t i = 0; i < w->k; i++) alike[i] = 1;
    for (uint32_t r = 0; r < 16; r++) {
        for (uint32_t i = 0; i < w->k; i++) {
            float sum = 0;
            for (uint32_t j = 0; j < 4; j++) {
                state ^= state << 13, state ^= state >> 7, state ^= state << 17;
                sum += (float)(state >> 40) * 0x1p-24f;
            }
            x[i] = sum - 2;
        }
        from[r] = rows + r * row;
        if (format_quantize_row(w->type, rows + r * row, x, alike, w->k, NULL)) die("the encoder refused noise");
    }
    format_pack(w->type, to, from, w->k);
    for (uint64_t t = 1; t < w->tiles; t++) memcpy(to + t * w->tile_bytes, to, w->tile_bytes);
    for (uint32_t t = 0; t < MAX_TOKENS; t++) {
        uint8_t *act = (uint8_t *)(uintptr_t)w->x + t * w->x_stride;
        if (w->act == WK_ACTIVATION_Q8)
            wk_quantize_act_q8(x, w->k, (struct wk_activation_q8 *)(void *)act);
        else
            memcpy(act, x, w->k * sizeof *x);
        x[t % w->k] *= 1.5f;
    }
    free(rows);
    free(x);
    free(alike);
}

static void bench_shape(const struct wk_type_cpu *type, uint8_t *weights, uint32_t k, uint32_t n)
{
    struct work w = { .type = type,
                      .k = k,
                      .weights = weights,
                      .product = format_product_for(type, opt.isa),
                      .tile_bytes = type->tile_bytes(k),
                      .act = type->activations & WK_ACTIVATION_Q8 ? WK_ACTIVATION_Q8 : WK_ACTIVATION_F32 };
    w.x_stride = w.act == WK_ACTIVATION_Q8 ? (k + 31) / 32 * sizeof(struct wk_activation_q8) : k * sizeof(float);
    uint8_t *x = memory(MAX_TOKENS * w.x_stride);
    w.x = x;
    for (uint32_t i = 0; i < MAX_THREADS; i++) {
        w.scratch[i] = memory(type->scratch_bytes(k));
        w.y[i] = memory((uint64_t)MAX_TOKENS * 16 * opt.tiles_a_call * sizeof(float));
    }
    const uint64_t all = opt.bytes / w.tile_bytes;
    w.tiles = all;
    w.bytes = all * w.tile_bytes;
    fill(&w, weights);
    printf("%-5s %4u x %-5u", type->name, n, k);
    w.n_rows = 1;
    for (uint32_t threads = 1; threads <= MAX_THREADS; threads++)
        measure(&w, threads, (double)w.bytes, part_read, (double)w.bytes);
    w.tiles = n / 16;
    for (uint32_t tokens = 64; tokens <= MAX_TOKENS; tokens += 64) {
        w.n_rows = tokens;
        w.tiles = n / 16;
        while (w.tiles * 2 <= all && (double)w.tiles * 16 * k * tokens < 3e10) w.tiles *= 2;
        w.rounds = 10000000;
        const double operations = 2.0 * (double)w.tiles * 16 * k * tokens, peak = 12.0 * 128 * (double)w.rounds;
        if (opt.isa == WK_ISA_AVX512)
            for (uint32_t threads = 1; threads <= MAX_THREADS; threads++)
                measure(&w, threads, operations, part_vnni, peak);
    }
    printf("\n");
    free(x);
    for (uint32_t i = 0; i < MAX_THREADS; i++) {
        free(w.scratch[i]);
        free(w.y[i]);
    }
}

static void bench_plugin(const char *path, uint8_t *weights)
{
    static const uint32_t shapes[][2] = { { 896, 4864 }, { 4864, 896 }, { 3072, 8192 }, { 8192, 3072 } }; /* k, n */
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) die(dlerror());
    const struct wk_plugin *plugin = dlsym(handle, WK_PLUGIN_SYMBOL);
    if (!plugin || plugin->kind != WK_KIND_QUANT) die("not a quantization plugin");
    for (uint32_t i = 0; i < plugin->quant->n_types; i++) {
        const struct wk_type_cpu *type = plugin->quant->types[i];
        if (opt.type && strcmp(opt.type, type->name)) continue;
        for (uint32_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            if (shapes[s][0] % type->block == 0) bench_shape(type, weights, shapes[s][0], shapes[s][1]);
        }
    }
}

int main(int argc, char **argv)
{
    for (int c; (c = getopt(argc, argv, "t:i:m:r:g:")) != -1;) {
        const uint32_t number = c == 't' || c == 'i' ? 0 : (uint32_t)strtoul(optarg ? optarg : "", NULL, 10);
        if (c == 't')
            opt.type = optarg;
        else if (c == 'i' && !plugin_isa_named(optarg, plugin_detect_isa(), &opt.isa, NULL))
            continue;
        else if (c == 'm' && number > 0)
            opt.bytes = (uint64_t)number << 20;
        else if (c == 'r' && number > 0 && number <= MAX_REPEATS)
            opt.repeats = number;
        else if (c == 'g' && number > 0)
            opt.tiles_a_call = number;
        else
            die("usage: bench_product plugin.so... [-t type] [-i portable|avx2|avx512] [-m MiB] [-r repeats] [-g tiles "
                "a call]");
    }
    uint8_t *weights = memory(opt.bytes + 256);
    printf("%s, %llu MiB, %u tiles a call; medians of %u. GB/s and share of plain reads; GOP/s and share of "
           "vpdpbusd\n",
           plugin_isa_name(opt.isa), (unsigned long long)(opt.bytes >> 20), opt.tiles_a_call, opt.repeats);
    printf("%-5s %12s  %14s  %14s", "type", "n x k", "1 token, 1 thr", "1 token, 2 thr");
    if (opt.isa == WK_ISA_AVX512)
        printf("  %14s  %14s  %14s  %14s", "64 tok, 1 thr", "64 tok, 2 thr", "128 tok, 1 thr", "128 tok, 2 thr");
    printf("\n");
    for (int i = optind; i < argc; i++) bench_plugin(argv[i], weights);
    free(weights);
    return 0;
}
