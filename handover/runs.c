/* runs.c: see runs.h. */
#include "runs.h"

#include <stdlib.h>
#include <string.h>

#include "base/hex.h"
#include "base/sha256.h"

/* ---- runs ---------------------------------------------------------------------------------------------- */

uint32_t run_end(const struct engine_layout *l, uint32_t blocks, uint32_t from, uint32_t to)
{
    uint32_t end = from + 1;
    while (end < to && engine_block_bytes(l, blocks, from, end + 1) <= RUN_BYTES) end++;
    return end;
}

uint64_t run_most(const struct engine_layout *l, uint32_t blocks)
{
    /* the last block has a page of every group */
    const uint64_t one = blocks ? engine_block_bytes(l, blocks, blocks - 1, blocks) : 0;
    return one > RUN_BYTES ? one : RUN_BYTES;
}

/* ---- packets ------------------------------------------------------------------------------------------- */

bool run_packet(const struct run_of *of, uint8_t *tokens, struct packet *out)
{
    char hex[65];
    if (!sha256_hex(of->fingerprint, strlen(of->fingerprint), hex)) return false;
    *out = (struct packet){ .sums = PACKET_SUMS_RUNS,
                            .n_tokens = of->n_tokens,
                            .last_id = of->n_tokens ? of->tokens[of->n_tokens - 1] : 0,
                            .layout = *of->layout,
                            .ranks = 1,
                            .bytes = engine_block_bytes(of->layout, of->n_tokens / KV_PAGE, 0, of->n_tokens / KV_PAGE),
                            .tokens = tokens };
    hex_read(hex, sizeof out->fingerprint, out->fingerprint);
    hex_read(of->digest, sizeof out->digest, out->digest);
    packet_put_tokens(of->tokens, of->n_tokens, tokens);
    return true;
}

static uint8_t *room_for(const struct run_of *of) { return malloc(of->n_tokens ? 4 * (size_t)of->n_tokens : 1); }

void *run_make_packet(const struct run_of *of, const char *request_id, size_t *n)
{
    struct packet p;
    uint8_t *tokens = room_for(of), *out = NULL;
    if (tokens && run_packet(of, tokens, &p)) {
        const size_t id = strlen(request_id);
        memcpy(p.request_id, request_id, id < PACKET_ID ? id : PACKET_ID);
        *n = packet_bytes(&p);
        out = malloc(*n);
        if (out) packet_write(&p, out);
    }
    free(tokens);
    return out;
}

wk_status run_check_packet(const void *bytes, size_t n, const struct run_of *mine, const struct wk_err *err)
{
    struct packet own, theirs;
    wk_status status = packet_read(bytes, n, &theirs, err);
    if (status) return status;
    uint8_t *tokens = room_for(mine);
    status = tokens && run_packet(mine, tokens, &own) ? packet_check(&own, &theirs, err)
                                                      : wk_fail(err, WK_NO_MEMORY, "no memory for a packet");
    free(tokens);
    if (!status && theirs.sums != PACKET_SUMS_RUNS)
        status = wk_fail(err, WK_UNSUPPORTED, "a packet says that runs of blocks have no check sums");
    return status;
}
