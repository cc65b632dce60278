/* callback.h: tells whoever started the worker that it is ready: one POST of JSON over plain HTTP, in a thread of its
 * own.
 *
 * A client of a page instead of libcurl: that library brings some thirty others (LDAP, Kerberos, SSH) into the process
 * that serves strangers, for one request of a few hundred bytes whose answer is a status. https is refused when the
 * options are read. */
#ifndef SERVE_CALLBACK_H
#define SERVE_CALLBACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>
#include <worker/abi.h>

enum { CALLBACK_TRIES = 6 /* at once, then after 1, 2, 4, 8 and 16 s */ };

struct callback;

/* http://HOST[:PORT][/PATH], no user, no fragment. WK_INVALID: what is wrong. [any thread] */
wk_status callback_check(const char *url, const struct wk_err *err);
/* Sends `document` (taken over, used by nobody else from then on) until an answer is 2xx or CALLBACK_TRIES have failed;
 * each failure is a warning event, the last one an error event. port: its member "url" names the address from
 * which the connection leaves, and this port; 0: it stands as it is. WK_NO_MEMORY. [any thread] */
wk_status callback_start(const char *url, json_t *document, uint16_t port, struct callback **out,
                         const struct wk_err *err);
/* Says it again, with another document (taken over): as soon as the try that is under way has ended, whether that one
 * or an earlier document was taken or not. [any thread] */
void callback_again(struct callback *c, json_t *document);
/* Ends it; does not wait for a name server that does not answer. NULL allowed. [main thread] */
void callback_stop(struct callback *c);

#endif
