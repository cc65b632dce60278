/* bandwidth.c: a buffer four times the last-level cache, in huge pages where the system gives them, of which each
 * thread reads its own part; the best way of reading it counts. */
#include "bandwidth.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/read_memory.h"
#include "parallel.h"
#include "setup.h"

enum { MORE_PASSES = 3, HUGE_PAGE = 2 << 20 };
#define BUFFER_MIN (256ull << 20)
#define BUFFER_MAX (1024ull << 20)
#define PASS_BYTES (1024ull << 20) /* read by a pass at least: threads begin up to 0.1 ms after each other */

struct reading {
    uint32_t way;                                  /* of read_memory.h */
    unsigned char *buffer;                         /* 64-byte aligned */
    uint32_t rounds;                               /* times that a pass reads it */
    uint64_t bytes;                                /* multiple of threads * READ_UNIT */
    uint64_t seen[PARALLEL_MAX];                   /* keeps the loads alive */
    double begin[PARALLEL_MAX], end[PARALLEL_MAX]; /* of each thread's reading: seconds_now() */
};

/* First touch by the thread that reads it: its pages then lie in its own node's memory. */
static void touch(void *user, uint32_t index, uint32_t n)
{
    struct reading *r = user;
    const uint64_t part = r->bytes / n;
    memset(r->buffer + index * part, (int)index + 1, part);
}

static void read_rounds(void *user, uint32_t index, uint32_t n)
{
    struct reading *r = user;
    const uint64_t part = r->bytes / n;
    r->begin[index] = seconds_now();
    for (uint32_t i = 0; i < r->rounds; i++) r->seen[index] ^= read_memory(r->way, r->buffer + index * part, part);
    r->end[index] = seconds_now();
}

static uint64_t buffer_bytes(uint32_t n)
{
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    uint64_t bytes = cache > 0 ? 4 * (uint64_t)cache : BUFFER_MIN;
    if (bytes < BUFFER_MIN) bytes = BUFFER_MIN;
    if (bytes > BUFFER_MAX) bytes = BUFFER_MAX;
    const uint64_t unit = (uint64_t)n * READ_UNIT;
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
    uint32_t fastest = 0;
    double best = 0;
    for (uint32_t i = 0; i < READ_WAYS + MORE_PASSES; i++) {
        r->way = i < READ_WAYS ? i : fastest;
        const double rate = rate_of(r, n_threads);
        if (rate <= best) continue;
        best = rate;
        if (i < READ_WAYS) fastest = i;
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
