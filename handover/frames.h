/* frames.h: what a prefill worker answers to who pulls a prompt's pages: a head, runs of blocks, an end. Each is a
 * frame of FRAME_BYTES bytes and its payload, integers little-endian. Pure functions; what is read is bytes from
 * outside. [any thread]
 *
 *     magic "WKVF" | version 16 | kind 16 | from 32 | to 32 | payload bytes 64 | CRC-32C 32 | 0 32
 *
 * FRAME_HEAD comes once and first: its payload is the packet (packet.h) that says what the blocks are of. FRAME_RUN:
 * its payload is blocks [from, to). FRAME_SEGMENT: they lie in shared memory under the name that is the payload. Runs
 * follow each other without gaps. FRAME_PEER: all blocks that were asked for can be copied from the other process's own
 * memory (peer.h), by the name that is the payload and the hand-over's id; where they are not, runs of the same blocks
 * follow. FRAME_END comes last: all that was asked for has been given. The sum of a head is of its payload, that of a
 * run or segment of the blocks. */
#ifndef HANDOVER_FRAMES_H
#define HANDOVER_FRAMES_H

#include <stdint.h>

#include <worker/abi.h>

enum { FRAME_BYTES = 32, FRAME_VERSION = 1, FRAME_HEAD_MAX = 1 << 25 /* bytes of a packet */ };
enum frame_kind { FRAME_HEAD = 1, FRAME_RUN, FRAME_SEGMENT, FRAME_PEER, FRAME_END };
enum { FRAME_NAME_MAX = 63 /* bytes of a payload that is a name */ };

struct frame {
    enum frame_kind kind;
    uint32_t from, to; /* blocks; 0 of a head and an end */
    uint64_t bytes;    /* of the payload */
    uint32_t sum;
};

void frame_write(const struct frame *f, uint8_t out[FRAME_BYTES]);
/* WK_INVALID: it is none, and why; WK_UNSUPPORTED: of another version. */
wk_status frame_read(const uint8_t in[FRAME_BYTES], struct frame *out, const struct wk_err *err);

#endif
