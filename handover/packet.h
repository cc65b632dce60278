/* packet.h: what is said of a prompt's pages ahead of their bytes: whose they are, what computed them, how they lie.
 * Pure functions; what is read is bytes from outside. [any thread]
 *
 * Little-endian, without gaps:
 *
 *      0  magic "WKVP" | version 16 | sums 16 | bytes of the packet 32 | tokens n 32
 *     16  request id [64], zeros behind | digest of the model [32] | fingerprint of program and device [32]
 *    144  last id 32 | ids generated 32 | sampler's seed 64 | its counter 64
 *    168  cache type 32 | layout's version 32 | rank 32 | ranks 32 | first KV head 32 | KV heads 32
 *    192  bytes of the blocks 64 | groups g 32 | 0 32
 *    208  g times: window 32 | chunk 32 | first block 32 | pages 32 | layers 32 | 0 32 | bytes of a page 64
 *         n times: token 32
 *         CRC-32C of all before 32
 *
 * A packet without tokens is a control packet: it says what its sender is, and no blocks follow. */
#ifndef HANDOVER_PACKET_H
#define HANDOVER_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/handover.h"

enum {
    PACKET_VERSION = 1,
    PACKET_ID = 64, /* bytes of a request's id, at most */
    PACKET_DIGEST = 32,
    PACKET_TOKENS = 1 << 22 /* at most */
};

/* What checks the blocks' bytes: nothing but the packet (they never leave a GPU's memory), or a sum of each run. */
enum packet_sums { PACKET_SUMS_NONE = 0, PACKET_SUMS_RUNS };

struct packet {
    char request_id[PACKET_ID + 1]; /* printable ASCII */
    uint8_t digest[PACKET_DIGEST], fingerprint[PACKET_DIGEST];
    enum packet_sums sums;
    uint32_t n_tokens, last_id, generated; /* n_tokens: a multiple of KV_PAGE; last_id: the last of them; generated: ids
                                              that the sampler has given: 0, since the first comes from the taker */
    uint64_t seed, counter;                /* of the sampler */
    struct engine_layout layout;
    uint32_t rank, ranks, first_head, heads; /* whose part of the KV heads the pages have: 0, 1, 0, all */
    uint64_t bytes;                          /* of all blocks */
    const uint8_t *tokens;                   /* [4 * n_tokens], little-endian, of whoever made or read the packet */
};

/* Bytes that it has when written. */
size_t packet_bytes(const struct packet *p);
/* Into out [packet_bytes]. first block and pages of each group, and p->bytes, follow from the layout and n_tokens. */
void packet_write(const struct packet *p, uint8_t *out);
/* out->tokens points into `in`. WK_UNSUPPORTED: of another version; WK_INVALID: it is no packet, cut short, damaged, or
 * contradicts itself, and how. */
wk_status packet_read(const uint8_t *in, size_t n, struct packet *out, const struct wk_err *err);
/* Can who would write `mine` use the blocks of `theirs`? WK_UNSUPPORTED names the first difference. Request ids and
 * sums may differ. */
wk_status packet_check(const struct packet *mine, const struct packet *theirs, const struct wk_err *err);
static inline bool packet_is_control(const struct packet *p) { return p->n_tokens == 0; }
/* n tokens as a packet has them, into out [4 * n]. */
void packet_put_tokens(const uint32_t *tokens, uint32_t n, uint8_t *out);

#endif
