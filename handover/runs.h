/* runs.h: how a hand-over is cut into runs of blocks, and what its packet says. [any thread] */
#ifndef HANDOVER_RUNS_H
#define HANDOVER_RUNS_H

#include <stddef.h>

#include "packet.h"

enum { RUN_BYTES = 8 << 20 /* of a run of several blocks; a single block may have more */ };

/* The end of the run that begins with block `from`, at most `to`. */
uint32_t run_end(const struct engine_layout *l, uint32_t blocks, uint32_t from, uint32_t to);
/* Bytes of the largest run. */
uint64_t run_most(const struct engine_layout *l, uint32_t blocks);

/* What the blocks are of. */
struct run_of {
    const struct engine_layout *layout;
    const char *fingerprint, *digest; /* of program, device and model; of the model's weights, 64 hexadecimal digits */
    const uint32_t *tokens;           /* [n_tokens], of all blocks */
    uint32_t n_tokens;
};
/* Their packet, without a request's id. tokens: room for theirs [4 * n_tokens], which it points into. False: no digest
 * of the fingerprint can be made. */
bool run_packet(const struct run_of *of, uint8_t *tokens, struct packet *out);
/* The packet that goes ahead of the blocks; the caller frees it. NULL: no memory. */
void *run_make_packet(const struct run_of *of, const char *request_id, size_t *n);
/* Is it a packet, of blocks that can be used in the place of one's own? WK_INVALID: it is none; WK_UNSUPPORTED: they
 * cannot, and why. */
wk_status run_check_packet(const void *bytes, size_t n, const struct run_of *mine, const struct wk_err *err);

#endif
