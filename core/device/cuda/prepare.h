/* prepare.h: the first kernel of every run: takes the run's inputs out of the ring in pinned memory into the fixed
 * addresses that all other kernels read, puts the last sampled ids in the place of TOKEN_LAST, and makes the RoPE
 * tables. */
#ifndef CORE_DEVICE_CUDA_PREPARE_H
#define CORE_DEVICE_CUDA_PREPARE_H

#include <stdbool.h>
#include <stdint.h>

#include <worker/abi.h>

#include "device/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifdef __CUDACC__
#define PREPARE_BOTH __host__ __device__
#else
#define PREPARE_BOTH
#endif

enum { PREPARE_ROPE_TABLES = 4, PREPARE_ROWS = 4 };

/* One run's inputs as the host writes them: struct prepare_line line[]; uint32_t pages[seqs][table]: the tables of a
 * sequence's groups one behind the other without gaps, as many entries of each as prepare_pages says. No array is
 * needed to find what is wanted of another, so the device asks for all at once. Lines and tables begin at multiples of
 * 64 bytes: blocks that read of the same 64 bytes of pinned memory wait for each other, a microsecond each. Offsets by
 * the capacities; bytes: of a block. */
struct prepare_row {
    uint32_t token; /* or PREPARE_LAST | slot: the id that was sampled last for it; and PREPARE_SECOND */
    uint32_t position;
    int32_t seq;         /* CUDA_PADDING: none */
    uint32_t logits_row; /* an entry of the list of logits rows; it has nothing to do with this row */
};
#define PREPARE_LAST 0x80000000u
#define PREPARE_SECOND 0x40000000u /* the token's type is 1; no id is that large */
struct prepare_line {
    struct prepare_row row;
    struct cuda_seq seq, sampled;
    struct cuda_lengths lengths;
}; /* the i-th of each; lengths: in the line of the first of WK_CUDA_FEW sequences */
struct prepare_layout {
    uint64_t pages, bytes;
    uint32_t table;
}; /* table: entries */
struct prepare_layout prepare_layout(uint32_t rows, uint32_t seqs, uint32_t page_stride);

struct prepare_rope_table {
    const double *freq;
    float *rows;
    double mscale, temperature;
    uint32_t n, temperature_length;
}; /* rows [rows][n][2] = mscale x cos, mscale x sin of position x freq: F64, rounded once; mscale grows as struct
      wk_rope_freqs has it */
struct prepare {
    uint32_t *serial;    /* of the run before, then of this one */
    uint32_t *ticket;    /* 0 between runs */
    const uint8_t *ring; /* [CUDA_RING] blocks of layout.bytes, pinned memory as the device sees it */
    struct prepare_layout layout;
    uint32_t *token, *position, *logits_rows, *pages; /* position: also read, as what the run before left */
    int32_t *row_seq;
    struct cuda_seq *seq, *sampled;
    struct cuda_lengths *lengths;
    const uint32_t *last; /* sampled ids by slot */
    uint32_t n_vocab, page_stride, n_groups, n_rope_tables, n_rows;
    uint32_t page_offset[TAPE_MAX_GROUPS],
        ring_pages[TAPE_MAX_GROUPS]; /* of a sequence's tables; ring_pages: entries that are used in turn, or 0 */
    struct prepare_rope_table rope_table[PREPARE_ROPE_TABLES];
    struct {
        uint32_t offset;
        uint16_t by_position, by_type; /* 0 or 1 */
        uint32_t *index;
    } row[PREPARE_ROWS]; /* index[r] = by_position * position + by_type * type of the token + offset: rows of a table of
                            positions or of types, or one row */
};
CUDA_LAID_OUT(prepare_row, 16, logits_row, 12);
CUDA_LAID_OUT(prepare_line, 64, lengths, 48);
CUDA_LAID_OUT(prepare_rope_table, 40, n, 32);
CUDA_LAID_OUT(prepare, 432, row, 368);
/* Entries of a table that a sequence has at the end of its rows. */
static inline PREPARE_BOTH uint32_t prepare_pages(uint32_t ring_pages, uint32_t end)
{
    return ring_pages ? ring_pages : (end + KV_PAGE - 1) / KV_PAGE;
}

/* What follows may depend on it, and lets the next launch begin only when it has waited itself: so everything later may
 * read these inputs at once. pdl: what precedes it is the sampler of the run before; the inputs have to be in the
 * ring by then. seqs <= rows. */
wk_status cuda_prepare(const struct prepare *p, uint32_t rows, uint32_t seqs, bool pdl, void *stream,
                       const struct wk_err *err);

/* Writes the serial of the run to a mapped word: how the host sees that a run without sampled rows has ended. */
wk_status cuda_mark(const uint32_t *serial, uint32_t *mark, void *stream, const struct wk_err *err);

#ifdef __cplusplus
}
#endif
#endif
