/* peer_link.h: messages between two processes of one host and one user, with a file descriptor where one is passed.
 * Shared by peer_giver.c and peer_taker.c alone. */
#ifndef HANDOVER_PEER_LINK_H
#define HANDOVER_PEER_LINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "peer.h"

enum link_kind {
    LINK_ASK_SHARE = 1, /* a control packet */
    LINK_ASK_PAGES,     /* struct link_ask, and the packet that is expected */
    LINK_SHARE,         /* struct device_share, with its descriptor */
    LINK_PAGES,         /* struct link_pages, and so many struct device_page */
    LINK_REFUSED,       /* struct link_refused */
    LINK_TAKEN,         /* nothing: all pages were copied */
    LINK_HELD           /* nothing: and the lease was held until then */
};
struct link_ask {
    char ticket[PEER_TICKET]; /* terminated */
    uint32_t from;
};
struct link_pages {
    uint32_t from, to, n; /* of blocks [from, to) */
};
struct link_refused {
    int32_t status;
    char text[252];
};
enum { LINK_MOST = 32 << 20 /* bytes of a message */, LINK_WAIT_MS = 10000 /* without a byte, where one is due */ };

struct link_message {
    enum link_kind kind;
    uint32_t bytes;
    uint8_t *payload; /* NULL: none; the caller frees it */
    int fd;           /* -1: none; the caller closes it */
};

/* A socket that listens under a name of its own; -1: err says why. */
int link_listen(char name[PEER_NAME], const struct wk_err *err);
/* -1: it is no giver's name, nobody listens there, or somebody of another user. */
int link_connect(const char *name, const struct wk_err *err);
bool link_same_user(int socket);
/* Of a payload in two parts, the second may be empty. False: the other side is gone, slow, or *stop became true. */
bool link_send(int socket, enum link_kind kind, const void *a, uint32_t na, const void *b, uint32_t nb, int fd,
               const atomic_bool *stop);
/* False: the same, or it is no message. patient: the first byte may take any time. */
bool link_receive(int socket, struct link_message *out, bool patient, const atomic_bool *stop);
void link_forget(struct link_message *m); /* frees and closes what it has */

#endif
