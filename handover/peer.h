/* peer.h: pages of a prompt from the GPU of one process to that of another on the same host, without the processor
 * seeing them.
 *
 * The giver listens on a UNIX socket (in the abstract namespace: it leaves nothing behind). Whoever takes asks there
 * once for the giver's memory of pages, as a file descriptor that its GPU maps, and keeps that connection: it tells
 * when the giver ends. For a hand-over it asks again, with its id and the packet that it expects; the giver compares
 * that with the lease, says where the pages are as they become ready, and keeps the lease until the taker says that it
 * has copied them. Only processes of the same user, or of root, are answered. */
#ifndef HANDOVER_PEER_H
#define HANDOVER_PEER_H

#include <stdatomic.h>

#include "packet.h"

enum { PEER_NAME = 64 /* bytes of a giver's name, terminated */, PEER_TICKET = 64, PEER_GIVES = 16, PEER_OPEN = 16 };

/* ---- giving -------------------------------------------------------------------------------------------- */

struct peer_giver;
/* The lease of a hand-over, with a reference that `done` gives back; NULL: there is none such (any more). taken: its
 * pages were copied. Both from threads of the giver's. */
struct peer_leases {
    struct engine_lease *(*find)(void *user, const char *ticket);
    void (*done)(void *user, const char *ticket, struct engine_lease *l, bool taken);
    void *user;
};
/* `is`: what every packet of this process says: digest, fingerprint, layout, ranks and heads. Copied. WK_UNSUPPORTED:
 * the device cannot be shared, and why. [main thread] */
wk_status peer_giver_open(struct engine *e, const struct packet *is, const struct peer_leases *leases,
                          struct peer_giver **out, const struct wk_err *err);
const char *peer_giver_name(const struct peer_giver *g);
/* Ends what is under way, and waits for it. NULL allowed. [main thread] */
void peer_giver_close(struct peer_giver *g);

/* ---- taking -------------------------------------------------------------------------------------------- */

struct peer_taker;
wk_status peer_taker_open(struct engine *e, struct peer_taker **out, const struct wk_err *err); /* [main thread] */
/* All blocks that the import lacks, from the giver of this name. mine: what the packet has to say. When it returns
 * WK_OK the import can be committed; else it must be aborted, or written by another way: WK_UNSUPPORTED: not between
 * these two, or the pages are others; WK_INVALID: the giver does not know the ticket, or broke off; WK_CANCELLED: *stop
 * became true (NULL: never). [any thread] */
wk_status peer_take(struct peer_taker *t, const char *name, const char *ticket, const struct packet *mine,
                    struct engine_import *i, const atomic_bool *stop, const struct wk_err *err);
/* Gives back the memory of givers that have ended. To be called about once a second; waits for nobody. [one
 * thread] */
void peer_taker_tick(struct peer_taker *t);
void peer_taker_close(struct peer_taker *t); /* nobody takes any more; before the engine. NULL allowed */

#endif
