/* peers.h: ways for pages of prompts between two workers, and which workers they may be pulled from. Pure functions.
 * [any thread]
 *
 * Where a prompt's pages are is said by the request, so by whoever sends it. What comes from there goes into the prefix
 * cache, and the client's key goes there: so only this machine's own addresses and those that the operator has named
 * are asked, never another one.
 *
 * UCX (libucp, opened by dlopen) is no way. It trusts whoever reaches its port: a connection that begins with a
 * constant of 8 bytes, which anybody knows, writes to any address of the process, and ids in its messages are used as
 * pointers. Both were tried with 1.22.0 over TCP, with tags or active messages alone and UCX_TCP_PUT_ENABLE=n. A
 * process of its own would run as the worker's user and hold pages of prompts. Over TCP it was slower than a plain
 * connection; what it would add is RDMA, which the wheel libucx-cu13, built without verbs, does not have. */
#ifndef HANDOVER_PEERS_H
#define HANDOVER_PEERS_H

#include <stdbool.h>
#include <stdint.h>

/* From the one that always works to the fastest. */
enum handover_way {
    HANDOVER_CHANNEL = 0, /* the bytes themselves, on the connection */
    HANDOVER_SHM,         /* shared memory of one host */
    HANDOVER_PEER,        /* from GPU to GPU of one host */
    HANDOVER_WAYS
};
const char *handover_way_name(enum handover_way way); /* "channel", "shm", "peer" */
/* HANDOVER_WAYS: there is none of this name. */
enum handover_way handover_way_named(const char *name);

enum { HANDOVER_HOST_MAX = 255 /* bytes of a host's name or address */ };
/* Is it a host's name (letters, digits, '-', '.', '_') or an address of either kind, without a port? */
bool handover_is_host(const char *host);
/* Is it a host, or a network: an address, '/', and how many of its bits count? */
bool handover_is_peer(const char *entry);
/* May pages be pulled from `host`: an address of the loopback, "localhost", or what one of entries [n] says? A name is
 * compared as it is written, and is never looked up here. */
bool handover_may_ask(const char *host, const char *const *entries, uint32_t n);

#endif
