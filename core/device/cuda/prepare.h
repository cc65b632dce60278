/* prepare.h: the first kernel of every run: takes the run's inputs out of the ring in pinned memory into the fixed addresses that all other
 * kernels read, puts the last sampled ids in the place of TOKEN_LAST, and makes the tables of rotations. */
#ifndef CORE_DEVICE_CUDA_PREPARE_H
#define CORE_DEVICE_CUDA_PREPARE_H

#include <stdint.h>

#include <worker/abi.h>

#include "device/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PREPARE_TURNS = 4, PREPARE_OFFSETS = 4 };

/* One run's inputs as the host writes them: uint32_t token[rows], position[rows]; int32_t row_seq[rows]; struct cuda_seq seq[seqs], sampled[seqs];
 * uint32_t wanted[rows], pages[seqs][page_stride]; each array 16-byte aligned. Offsets by the capacities; bytes: of a block. */
struct prepare_layout { uint64_t token, position, row_seq, seq, sampled, wanted, pages, bytes; };
struct prepare_layout prepare_layout(uint32_t rows, uint32_t seqs, uint32_t page_stride);

struct prepare_turn { const double *freq; float *turn; double mscale; uint32_t n, pad; }; /* turn [rows][n][2] = mscale x cos, mscale x sin of position x freq: F64, rounded once */
struct prepare {
    const uint8_t *ring;         /* [CUDA_RING] blocks of layout.bytes, pinned memory as the device sees it */
    struct prepare_layout layout;
    uint32_t *serial;            /* of the run before, then of this one */
    uint32_t *ticket;            /* 0 between runs */
    uint32_t *token, *position, *wanted, *pages;
    int32_t *row_seq;
    struct cuda_seq *seq, *sampled;
    const uint32_t *last;        /* sampled ids by slot */
    uint32_t n_vocab, page_stride, n_groups, n_turns, n_offsets;
    uint32_t page_offset[TAPE_MAX_GROUPS], ring_pages[TAPE_MAX_GROUPS]; /* of a sequence's tables; ring_pages: entries that are used in turn, or 0 */
    struct prepare_turn turn[PREPARE_TURNS];
    struct { uint32_t offset; uint32_t *index; } by_position[PREPARE_OFFSETS]; /* index[r] = position + offset: rows of a table of positions */
};
/* Not dependent on what precedes it, and what follows it must not be either. seqs <= rows. */
wk_status cuda_prepare(const struct prepare *p, uint32_t rows, uint32_t seqs, void *stream, const struct wk_err *err);

/* Writes the serial of the run to a mapped word: how the host sees that a run without sampled rows has ended. */
wk_status cuda_mark(const uint32_t *serial, uint32_t *mark, void *stream, const struct wk_err *err);

#ifdef __cplusplus
}
#endif
#endif
