/* bandwidth.c: a buffer four times the last-level cache, in huge pages where the system gives them, of which each
 * thread reads its own part; and several ways of reading it, of which the best counts. Which one that is differs: some
 * processors prefetch one stream as fast as memory is, others leave half of it unused, and asking ahead of use helps
 * the one and hinders the other. */
#include "bandwidth.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clones.h"
#include "parallel.h"
#include "setup.h"

enum { MORE_PASSES = 3, LINE = 64, STREAMS = 4, UNROLLED = 4, HUGE_PAGE = 2 << 20 };
#define BUFFER_MIN (256ull << 20)
#define BUFFER_MAX (1024ull << 20)
#define PASS_BYTES (1024ull << 20) /* read by a pass at least: threads begin up to 0.1 ms after each other */

typedef uint64_t line_vector __attribute__((vector_size(LINE)));

struct reading {
    void (*way)(void *user, uint32_t index, uint32_t n); /* how `buffer` is read */
    unsigned char *buffer;                               /* 64-byte aligned */
    uint32_t rounds;                                     /* times that a pass reads it */
    uint64_t bytes;                                      /* multiple of LINE * threads * STREAMS * UNROLLED */
    uint64_t seen[PARALLEL_MAX];                         /* keeps the loads alive */
    double begin[PARALLEL_MAX], end[PARALLEL_MAX];       /* of each thread's reading: seconds_now() */
};

/* First touch by the thread that reads it: its pages then lie in its own node's memory. */
static void touch(void *user, uint32_t index, uint32_t n)
{
    struct reading *r = user;
    const uint64_t part = r->bytes / n;
    memset(r->buffer + index * part, (int)index + 1, part);
}

/* A thread's part as `streams` of equal length, each asked for `ahead` bytes before its use (0: not at all). Both are
 * constants: the loops over them are gone. A prefetch past the end is only a hint. CLONES: a line is one load where the
 * processor can. */
static inline __attribute__((always_inline)) void read_part(struct reading *r, uint32_t index, uint32_t n,
                                                            const uint32_t streams, const uint32_t ahead)
{
    const uint64_t lines = r->bytes / n / streams / LINE;
    const line_vector *p = (const void *)(r->buffer + index * (r->bytes / n));
    line_vector seen[STREAMS] = { { 0 } };
    for (uint64_t i = 0; i < lines; i += UNROLLED) {
        for (uint32_t u = 0; u < UNROLLED; u++) {
            for (uint32_t s = 0; s < streams; s++) {
                const line_vector *line = p + s * lines + i + u;
                if (ahead) __builtin_prefetch((const char *)line + ahead);
                seen[(u * streams + s) % STREAMS] ^= *line;
            }
        }
    }
    seen[0] ^= seen[1] ^ seen[2] ^ seen[3];
    for (int i = 0; i < LINE / 8; i++) r->seen[index] ^= seen[0][i];
}

#define WAY(streams, ahead)                                                             \
    CLONES static void read_##streams##_##ahead(void *user, uint32_t index, uint32_t n) \
    {                                                                                   \
        read_part(user, index, n, streams, ahead);                                      \
    }
WAY(1, 0)
WAY(1, 4096)
WAY(1, 8192)
WAY(2, 0)
WAY(2, 4096)
WAY(4, 0)
WAY(4, 4096)

static void read_rounds(void *user, uint32_t index, uint32_t n)
{
    struct reading *r = user;
    r->begin[index] = seconds_now();
    for (uint32_t i = 0; i < r->rounds; i++) r->way(user, index, n);
    r->end[index] = seconds_now();
}

static uint64_t buffer_bytes(uint32_t n)
{
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    uint64_t bytes = cache > 0 ? 4 * (uint64_t)cache : BUFFER_MIN;
    if (bytes < BUFFER_MIN) bytes = BUFFER_MIN;
    if (bytes > BUFFER_MAX) bytes = BUFFER_MAX;
    const uint64_t unit = (uint64_t)n * LINE * STREAMS * UNROLLED;
    return bytes / unit * unit;
}

/* From the first thread's begin to the last one's end. */
static double rate_of(struct reading *r, uint32_t n_threads)
{
    parallel(n_threads, read_rounds, r);
    double begin = r->begin[0], end = r->end[0];
    for (uint32_t i = 1; i < n_threads; i++) {
        begin = r->begin[i] < begin ? r->begin[i] : begin;
        end = r->end[i] > end ? r->end[i] : end;
    }
    return (double)(r->bytes * r->rounds) / (end - begin);
}

/* The best of a pass in each way and of some more in the fastest. */
static double best_rate(struct reading *r, uint32_t n_threads)
{
    static void (*const ways[])(void *, uint32_t, uint32_t) = { read_1_0,    read_1_4096, read_1_8192, read_2_0,
                                                                read_2_4096, read_4_0,    read_4_4096 };
    enum { WAYS = sizeof ways / sizeof *ways };
    uint32_t fastest = 0;
    double best = 0;
    for (uint32_t i = 0; i < WAYS + MORE_PASSES; i++) {
        r->way = ways[i < WAYS ? i : fastest];
        const double rate = rate_of(r, n_threads);
        if (rate <= best) continue;
        best = rate;
        if (i < WAYS) fastest = i;
    }
    return best;
}

double bandwidth_read(uint32_t n_threads)
{
    struct reading *r = calloc(1, sizeof *r);
    double best = 0;
    if (!r) return 0;
    r->bytes = buffer_bytes(n_threads);
    r->rounds = (uint32_t)((PASS_BYTES + r->bytes - 1) / r->bytes);
    r->buffer = aligned_alloc(HUGE_PAGE, (r->bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    if (r->buffer) {
        (void)madvise(r->buffer, r->bytes, MADV_HUGEPAGE); /* a system without them reads a little slower */
        parallel(n_threads, touch, r);
        best = best_rate(r, n_threads);
    }
    free(r->buffer);
    free(r);
    return best;
}
