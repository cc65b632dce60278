/* ops.h: what operators and their tools see: counters of the service itself, and the
 * notifications of its supervisor. */
#ifndef SERVE_OPS_H
#define SERVE_OPS_H

#include <stdbool.h>
#include <stdint.h>

struct http_request;
struct serve;

/* ---- health -------------------------------------------------------------------------------------------- */
/* Is the worker able to do what it is there for? *reason: a word for probes ("model_not_loaded", "draining", ...),
 * *text: a sentence. Draining is healthy, but not ready. [any thread] */
struct serve_condition {
    bool healthy, ready;
    const char *reason;
    char text[320];
};
void serve_condition(const struct serve *s, struct serve_condition *out);

/* ---- counters that no other part keeps [any thread] ---------------------------------------------------- */
void metrics_answered(int status);                              /* an answer of any route, on either port */
void metrics_tool_calls(uint32_t complete, uint32_t malformed); /* of an answer */
void metrics_deadline(double remaining_seconds); /* an X-Deadline as it arrived; negative: it had passed */

/* ---- live.c -------------------------------------------------------------------------------------------- */
enum { OPS_LIVE_MOST = 8 }; /* streams of live figures at once, of a process */
/* GET /worker/live, for the main port alone; user: the struct serve. [a handler] */
void live_figures(void *user, struct http_request *r);

/* ---- the supervisor (systemd's sd_notify protocol); all calls do nothing without one [main thread] ----- */
/* Reads NOTIFY_SOCKET and WATCHDOG_USEC, and takes them out of the environment, where a child would find them. */
void notify_open(void);
void notify_ready(const char *status); /* status: a line for people */
void notify_status(const char *status);
void notify_stopping(void);
/* Keeps the watchdog from firing, if a third of its time has passed and the engine has done something meanwhile. Call
 * about every second. */
void notify_turn(const struct serve *s);
/* Milliseconds after which notify_turn should have been called again, at most `most`. */
int notify_wait(int most);

#endif
