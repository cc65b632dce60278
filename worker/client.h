/* client.h: a running worker, as commands talk to one: where it is, who asks, requests and their answers. By
 * worker-fetch (gate/fetch.h), so that https is checked as everywhere else.
 *
 * Functions that return an int have already said what is wrong when it is not EXIT_DONE: the worker's own words where
 * it refuses. [main thread] */
#ifndef WORKER_CLIENT_H
#define WORKER_CLIENT_H

#include <jansson.h>

#include "gate/fetch.h"
#include "options.h"

struct client;

/* --url or a model in this process? Refuses both, and what is of the one that is not meant. For commands that take
 * either. */
int client_wanted(const struct options *o, bool *out);

/* The worker at --url, whose key is in WORKER_API_KEY or --api-key-file. Sends nothing. client_close in either case. */
int client_open(const struct options *o, struct client **out);
void client_close(struct client *c); /* NULL allowed */
const char *client_url(const struct client *c);

/* One request and its whole answer, which is 2xx, or `also` (0: none). path: from the first slash on; body: an object,
 * which stays the caller's; NULL: none. fetch_answer_free. */
int client_ask(struct client *c, const char *method, const char *path, const json_t *body, uint32_t also,
               struct fetch_answer *out);
/* The same of an answer that is a JSON object; the caller's. status: may be NULL. */
int client_object(struct client *c, const char *method, const char *path, const json_t *body, uint32_t also,
                  uint32_t *status, json_t **out);

/* An event of a stream as it comes; data: [n], and a zero behind it. False: no more is wanted. */
typedef bool (*client_event)(void *user, const char *data, size_t n);
/* One POST whose answer is a stream of events, to its end. Ctrl-C ends it (interrupts_catch, or interrupts_ask): that,
 * like an event that wants no more, is no failure; the worker sees that its client has left, and cancels. */
int client_stream(struct client *c, const char *path, const json_t *body, client_event event, void *user);

/* What a document of an error says, in the worker's form or in OpenAI's; the text goes into err. False: it is none. */
bool client_error(const json_t *document, const struct wk_err *err);

#endif
