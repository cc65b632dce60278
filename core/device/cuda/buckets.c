/* buckets.c: what is known of an executor before it is planned: its lists, the buckets of rows that runs of generated
 * rows are filled up to, which of them are captured as graphs, and what the driver takes for these. */
#include "device/cuda/executor.h"

#include <stdlib.h>

/* ---- lists --------------------------------------------------------------------------------------------- */

void *cuda_list(struct executor *x, uint64_t n, uint64_t size)
{
    if (x->n_lists == sizeof x->lists / sizeof *x->lists || n > SIZE_MAX) return NULL;
    void *list = calloc(n ? (size_t)n : 1, (size_t)size);
    if (list) x->lists[x->n_lists++] = list;
    return list;
}

void cuda_lists_free(struct executor *x)
{
    for (uint32_t i = 0; i < x->n_lists; i++) free(x->lists[i]);
    x->n_lists = 0;
}

/* ---- buckets ------------------------------------------------------------------------------------------ */

uint32_t cuda_bucket_at(uint32_t i) { return 1u << i <= WK_CUDA_FEW ? 1u << i : WK_CUDA_FEW * (i - 5); }

uint32_t cuda_bucket(uint32_t rows)
{
    uint32_t i = 0;
    while (cuda_bucket_at(i) < rows && i + 1 < BUCKETS) i++;
    return cuda_bucket_at(i);
}

/* ---- captured programs -------------------------------------------------------------------------------- */

/* Device memory that the driver takes for an instantiated graph, and for each of its kernels: on an H200 172 KB a graph
 * of 21 kernels; the shares are rounded up. It cannot be taken by us, so the plan counts it, memory() reports the plan,
 * and a test holds the driver to it. */
enum { GRAPH_BYTES = 64 << 10, NODE_BYTES = 8 << 10 };

/* Buckets that decoding of max_sequences needs; a larger run, which only several rows a sequence can make, is launched
 * kernel by kernel. */
uint32_t cuda_captured(const struct executor *x)
{
    const uint32_t rows = x->o.max_sequences < x->o.max_rows ? x->o.max_sequences : x->o.max_rows,
                   most = cuda_bucket(rows);
    uint32_t n = 1;
    while (n < BUCKETS && cuda_bucket_at(n) <= most) n++;
    return tape_whole_prompt(x->program) ? 0 : n; /* nothing is generated */
}

static uint32_t nodes(const struct executor *x, uint32_t rows)
{
    const struct tape_program *p = x->program;
    const uint32_t calls = (rows + WK_CUDA_FEW - 1) / WK_CUDA_FEW; /* of a dense product and of attention */
    uint32_t n = 2;                                                /* inputs, sampler */
    for (uint32_t i = 0; i < p->n_launches; i++) {
        const struct tape_launch *l = &p->launches[i];
        const uint32_t attends = calls > 3 ? calls : 3; /* or the store, tiles and their splits */
        n += (l->kind == LAUNCH_PRODUCT  ? calls
              : l->kind == LAUNCH_ATTEND ? attends
                                         : 1u) +
             (l->norm != TAPE_NONE && rows > 1) + (l->heads ? 4u : 0u) /* groups, conversion, rows apart */ +
             (l->kind == LAUNCH_ROUTE ? 2u : 0u) +
             (l->kind == LAUNCH_EMBED ? l->n_ops / 2u : 0u); /* a launch for each table */
    }
    return n;
}

uint64_t cuda_graph_bytes(const struct executor *x)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < cuda_captured(x); i++)
        bytes += PROGRAM_KINDS * GRAPH_BYTES + (PROGRAM_KINDS + 1) * (uint64_t)nodes(x, cuda_bucket_at(i)) *
                                                   NODE_BYTES; /* a pair has twice as many */
    return bytes;
}
