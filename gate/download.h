/* download.h: one answer at a time from another host, of any length, by a worker-fetch of its own: its header first,
 * then its body as it comes. For commands that fetch files, and for a service that pulls pages of prompts.
 *
 * fetch.h's rules hold: no redirects are followed (whoever asks sees them, and decides what goes to the next host),
 * certificates are always verified. Who reads slowly makes the other host send slowly: nothing is piled up. */
#ifndef GATE_DOWNLOAD_H
#define GATE_DOWNLOAD_H

#include "fetch.h"

struct download; /* [one thread at a time] */

/* program: as of fetch_open. The helper ends with the thread that has started it; the next download_begin starts
 * another one. WK_IO: it is not there, or does not run. */
wk_status download_open(const char *program, struct download **out, const struct wk_err *err);
void download_close(struct download *d); /* NULL allowed */
/* Asked twice a second while something is waited for; true: the call fails with WK_CANCELLED. NULL: nothing is asked.
 */
void download_watch(struct download *d, bool (*stop)(void *user), void *user);

/* Sends a GET, or a POST, and waits for the header of the answer. Of the request, most_bytes and part are not used, of
 * a GET neither is the body; timeout_ms is for each silence, 2000 at least. What is left of the answer before is
 * dropped. *header: lines as they came, terminated, valid until the next call of download_begin. WK_INVALID: the
 * request breaks a limit; WK_IO: why no answer came. */
wk_status download_begin(struct download *d, const struct fetch_request *r, uint32_t *status, const char **header,
                         const struct wk_err *err);
/* The next bytes of the body, valid until the next call; *n 0: its end. WK_IO: the connection broke, or ended early. */
wk_status download_next(struct download *d, const char **bytes, size_t *n, const struct wk_err *err);

/* The value of a header's first line of this name, whatever its capitals, without spaces around it. False: there is
 * none, or it does not fit. */
bool download_header(const char *header, const char *name, char *out, size_t cap);

#endif
