/* handover.h: a prompt's pages leave one engine and enter another.
 *
 * One engine reads the prompt of a job that asks for it (engine_job.keep) and keeps its whole pages under a lease, from
 * which they are read while later parts of the prompt are still computed. The other engine reserves pages, has them
 * written, and puts them into its prefix cache: a job with the same prompt and salt that is submitted then finds them
 * and computes what is behind them. Ids are those of an engine that does both, since they depend neither on chunks nor
 * on what was found.
 *
 * What travels is counted in blocks of KV_PAGE positions: blocks [0, n) of a prompt of t tokens, n = (t - 1) / KV_PAGE,
 * since the last token is always computed by the job itself. A block is a page of each KV group, in the order of the
 * groups; of a group with a window or chunks the first blocks, which no row to come sees, have none. A page is the
 * bytes of its layers, one behind the other, as they lie in the device's memory: only an engine of the same program,
 * model, device and layout can use them, which the caller makes sure of (packet.h).
 *
 * What holds memory is bounded: leases and imports are at most ENGINE_LEASES, and those that are not committed yet hold
 * at most half of each group's pages, or one alone whatever it needs. Their owners end them, by a time limit if nothing
 * else; a job that was admitted has been promised its own pages and never waits for them, one that waits is next when
 * they end. What an import has committed is given up as soon as a job that waits needs the room. */
#ifndef CORE_ENGINE_HANDOVER_H
#define CORE_ENGINE_HANDOVER_H

#include "engine/engine.h"

enum { ENGINE_LEASES = 1024 };

/* ---- what a block is ----------------------------------------------------------------------------------- */

struct engine_layout {
    uint32_t n_groups;
    struct {
        uint32_t window, chunk; /* that its rows see; 0: all */
        uint32_t layers;
        uint64_t page_bytes; /* of all layers */
    } group[TAPE_MAX_GROUPS];
    enum kv_type kv_type;
    uint32_t version; /* of how values lie in a page */
};
/* WK_UNSUPPORTED: this engine can neither give nor take pages, and why (states instead of pages, no prefix cache, a
 * model opened without device_options.hand_over). [any thread] */
wk_status engine_layout(const struct engine *e, struct engine_layout *out, const struct wk_err *err);
/* Blocks of a prompt of so many tokens that can be handed over. */
static inline uint32_t engine_blocks(uint32_t n_prompt) { return n_prompt ? (n_prompt - 1) / KV_PAGE : 0; }
/* The first of `blocks` blocks that has a page of group g. [any thread] */
uint32_t engine_first_block(const struct engine_layout *l, uint32_t g, uint32_t blocks);
/* Bytes of blocks [from, to) of a hand-over of `blocks`, to <= blocks; so those of [0, from) lie before them. Blocks
 * are at most 2^27, so nothing overflows as long as a block has less than 2^36 bytes. [any thread] */
uint64_t engine_block_bytes(const struct engine_layout *l, uint32_t blocks, uint32_t from, uint32_t to);

/* ---- giving -------------------------------------------------------------------------------------------- */

/* Pages of a prompt that stay where they are until it is released. Counted references: from any thread. */
struct engine_lease;
enum lease_state {
    LEASE_GROWING = 0, /* blocks [0, ready) can be read, more will come */
    LEASE_WHOLE,       /* all of them */
    LEASE_LOST /* none: the job ended before its prompt was read, there was no room, or the lease was given up */
};

/* The lease of a job that was submitted with `keep`, from its submission on: a reference of the caller's, which it
 * releases. NULL: the job has none. [the job's reader] */
struct engine_lease *job_lease(struct job *j);
void engine_lease_ref(struct engine_lease *l);
/* The last reference gives the pages back. NULL allowed. */
void engine_lease_release(struct engine_lease *l);
/* The prompt's tokens [blocks * KV_PAGE], valid as long as the lease. */
const uint32_t *engine_lease_tokens(const struct engine_lease *l, uint32_t *blocks);
/* Waits until more than `have` blocks can be read, or none will come; timeout_ms 0: does not wait, below 0: without
 * end. *ready: how many can be read. */
enum lease_state engine_lease_wait(struct engine_lease *l, uint32_t have, int timeout_ms, uint32_t *ready);
/* Why a lease is lost; "" as long as it is not. */
const char *engine_lease_text(const struct engine_lease *l);
/* Blocks [from, to), to <= ready, into out [engine_block_bytes]. Does not wait for steps. WK_INVALID: they cannot be
 * read (any more); other: the device failed. */
wk_status engine_lease_read(struct engine_lease *l, uint32_t from, uint32_t to, void *out, const struct wk_err *err);

/* ---- taking -------------------------------------------------------------------------------------------- */

/* Reserved pages, of one thread at a time. */
struct engine_import;
/* Reserves pages for the prompt's blocks that the prefix cache does not have; waits for steps in flight that may read
 * what they had.
 * Gives up what is kept for nobody, never what a job has or was promised. WK_NO_MEMORY: there are not enough pages, or
 * too many imports; WK_UNSUPPORTED: see engine_layout; WK_INVALID: an id that the vocabulary has not. */
wk_status engine_import_begin(struct engine *e, const uint32_t *prompt, uint32_t n_prompt,
                              const struct engine_salt *salt, struct engine_import **out, const struct wk_err *err);
/* The blocks that must be written, [*from, *to), *to = engine_blocks(n_prompt): each once, in any order and in runs of
 * any length. The same: nothing is missing. */
void engine_import_range(const struct engine_import *i, uint32_t *from, uint32_t *to);
/* Blocks [from, to) from `bytes` [engine_block_bytes]. Does not wait for steps; when it returns, `bytes` was read. */
wk_status engine_import_write(struct engine_import *i, uint32_t from, uint32_t to, const void *bytes,
                              const struct wk_err *err);
/* The blocks are in the prefix cache from now on. A lease on them, which is released when the job has begun (or has
 * ended); i is gone. NULL: the engine is dead; i is gone, too. */
struct engine_lease *engine_import_commit(struct engine_import *i);
void engine_import_abort(struct engine_import *i); /* NULL allowed */

/* Host memory from which pages are read, and into which they are written, faster: the device does it itself. Worth its
 * time (the machine's pages are pinned one by one) for memory that is used again and again. bytes: a multiple of the
 * machine's pages. What is read or written there begins at a multiple of 16 bytes, or goes the slower way.
 * WK_UNSUPPORTED: it makes no difference here. [any thread] */
wk_status engine_pin(struct engine *e, void *memory, uint64_t bytes, const struct wk_err *err);
void engine_unpin(struct engine *e, void *memory); /* of what was pinned, before it is unmapped and the engine closed */

/* ---- from GPU to GPU ----------------------------------------------------------------------------------- */

/* Where pages lie in the device's memory: those of blocks [from, to), in the order of their bytes, into out
 * [engine_block_pages]. They stay until the lease is released. */
uint32_t engine_block_pages(const struct engine_layout *l, uint32_t blocks, uint32_t from, uint32_t to);
wk_status engine_lease_pages(struct engine_lease *l, uint32_t from, uint32_t to, struct device_page *out,
                             const struct wk_err *err);
/* The device's memory of pages as other processes of this host can open it: out->fd is the caller's. WK_UNSUPPORTED: it
 * cannot be shared, and why. [any thread] */
wk_status engine_share(struct engine *e, struct device_share *out, const struct wk_err *err);
/* Opens another process's, whose program and layout are the same; share->fd stays the caller's. WK_UNSUPPORTED: not
 * from this device. Until it is closed the memory stays, also if its process ends. Closed before the engine. [any
 * thread] */
wk_status engine_peer_open(struct engine *e, const struct device_share *share, struct device_peer **out,
                           const struct wk_err *err);
void engine_peer_close(struct engine *e, struct device_peer *p); /* NULL allowed */
/* Blocks [from, to) from pages [engine_block_pages] of the peer. What was read while the giver's lease ended is damaged
 * and must not be committed: ask the giver afterwards. */
wk_status engine_import_peer(struct engine_import *i, uint32_t from, uint32_t to, struct device_peer *p,
                             const struct device_page *pages, const struct wk_err *err);

#endif
