/* bandwidth.c: a buffer four times the last-level cache, in huge pages where the system gives them; each thread reads
 * its own part as four streams, asked for ahead of their use: one stream alone leaves half of the bandwidth of a large
 * machine's core unused. */
#include "bandwidth.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "parallel.h"
#include "setup.h"

enum { PASSES = 7, LINE = 64, STREAMS = 4, AHEAD = 4096, HUGE_PAGE = 2 << 20 };
#define BUFFER_MIN (256ull << 20)
#define BUFFER_MAX (1024ull << 20)

typedef uint64_t line_vector __attribute__((vector_size(LINE)));

struct reading {
    unsigned char *buffer;       /* 64-byte aligned */
    uint64_t bytes;              /* multiple of LINE * threads * STREAMS */
    uint64_t seen[PARALLEL_MAX]; /* keeps the loads alive */
};

/* First touch by the thread that reads it: its pages then lie in its own node's memory. */
static void touch(void *user, uint32_t index, uint32_t n)
{
    struct reading *r = user;
    const uint64_t part = r->bytes / n;
    memset(r->buffer + index * part, (int)index + 1, part);
}

static void read_part(void *user, uint32_t index, uint32_t n)
{
    struct reading *r = user;
    const uint64_t lines = r->bytes / n / STREAMS / LINE;
    const line_vector *p = (const void *)(r->buffer + index * (r->bytes / n)), *q = p + lines, *s = q + lines,
                      *t = s + lines;
    line_vector a = p[0], b = p[0], c = p[0], d = p[0];
    for (uint64_t i = 0; i < lines; i++) { /* a prefetch past the end is only a hint */
        __builtin_prefetch((const char *)(p + i) + AHEAD);
        __builtin_prefetch((const char *)(q + i) + AHEAD);
        __builtin_prefetch((const char *)(s + i) + AHEAD);
        __builtin_prefetch((const char *)(t + i) + AHEAD);
        a ^= p[i];
        b += q[i];
        c ^= s[i];
        d += t[i];
    }
    a ^= b ^ c ^ d;
    for (int i = 0; i < LINE / 8; i++) r->seen[index] ^= a[i];
}

static uint64_t buffer_bytes(uint32_t n)
{
    const long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    uint64_t bytes = cache > 0 ? 4 * (uint64_t)cache : BUFFER_MIN;
    if (bytes < BUFFER_MIN) bytes = BUFFER_MIN;
    if (bytes > BUFFER_MAX) bytes = BUFFER_MAX;
    const uint64_t unit = (uint64_t)n * LINE * STREAMS;
    return bytes / unit * unit;
}

double bandwidth_read(uint32_t n_threads)
{
    struct reading *r = calloc(1, sizeof *r);
    double best = 0;
    if (!r) return 0;
    r->bytes = buffer_bytes(n_threads);
    r->buffer = aligned_alloc(HUGE_PAGE, (r->bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    if (r->buffer) {
        (void)madvise(r->buffer, r->bytes, MADV_HUGEPAGE); /* a system without them reads a little slower */
        parallel(n_threads, touch, r);
        for (int pass = 0; pass < PASSES; pass++) {
            const double start = seconds_now();
            parallel(n_threads, read_part, r);
            const double rate = (double)r->bytes / (seconds_now() - start);
            if (rate > best) best = rate;
        }
    }
    free(r->buffer);
    free(r);
    return best;
}
