/* leases.h: the hand-overs that this worker has offered: prompts whose pages wait for a decode worker.
 *
 * A hand-over's id is 128 random bits, told in the answer to whom the prompt belongs: without it nobody finds the
 * pages, and with it only who has the same rights as that caller (the salt of its prefix cache). Each is given once. It
 * ends when its pages were taken, or LEASES_WAIT_S seconds after it was offered or last asked for; while it is being
 * read it does not. There are at most as many as the table was opened for; a place is taken before the prompt is
 * computed. */
#ifndef HANDOVER_LEASES_H
#define HANDOVER_LEASES_H

#include <stdbool.h>
#include <stdint.h>

#include <worker/abi.h>

enum { LEASES_ID = 33 /* 32 hexadecimal digits, terminated */, LEASES_WAIT_S = 30 };

struct leases; /* [any thread] */
struct engine_lease;

struct leases_figures {
    uint64_t offered, taken, expired, full; /* full: no place was left */
    uint32_t waiting;                       /* now */
};

/* drop: ends one lease (engine_lease_release). WK_NO_MEMORY. */
wk_status leases_open(uint32_t most, void (*drop)(struct engine_lease *lease), struct leases **out,
                      const struct wk_err *err);
/* Nobody reads any more. NULL allowed. [main thread] */
void leases_close(struct leases *t);

/* A place for a hand-over to come. False: all are taken. */
bool leases_reserve(struct leases *t);
/* A place is not needed. */
void leases_unreserve(struct leases *t);
/* The lease takes a reserved place and belongs to the table. id: under which it is found. False: no random bytes; the
 * lease is the caller's, and so is the place. */
bool leases_add(struct leases *t, struct engine_lease *lease, const uint64_t salt[2], uint64_t now_ns,
                char id[LEASES_ID]);

enum leases_found {
    LEASES_FOUND = 0,
    LEASES_UNKNOWN, /* also: it has ended, or is another caller's */
    LEASES_BUSY     /* somebody reads it */
};
/* To read it: until leases_return nobody else gets it, and it does not end. */
enum leases_found leases_take(struct leases *t, const char *id, const uint64_t salt[2], struct engine_lease **out);
/* taken: its pages are where they were to go, and it ends. Else it waits again. */
void leases_return(struct leases *t, const char *id, bool taken, uint64_t now_ns);
/* What has waited too long ends. To be called at least about once a second. */
void leases_tick(struct leases *t, uint64_t now_ns);
/* All that nobody reads end: the worker drains, and the pages are wanted. */
void leases_end(struct leases *t);
void leases_figures(struct leases *t, struct leases_figures *out);

#endif
