/* rates.h: how many requests and tokens a key may have. GCRA: for each of the two, one time to which the key's quota is
 * used up. A cost of n moves it on by n * 60 s / limit, and a request is admitted if that leaves it at most 60 s ahead
 * of now. So a key that was quiet may use its limit at once (the burst), and then 1/60 of it a second: in no 60 s more
 * than twice the limit, in the long run the limit, and no window has an edge at which it starts anew.
 *
 * Tokens are reserved at admission, prompt and most answer together, and what was not used is given back at the end.
 * What is given back is never more than what time has not yet paid off of that reservation: else a key could keep
 * reservations open, settle them all at once, and be above the bound that is said here. It may be less where requests
 * end in another order than they came; a key far from its limit has nothing to get back anyway.
 *
 * State belongs to an id (of a key or a caller), not to a policy: limits are given with each call, so they can change
 * under way; the used share of the old limit is then the used share of the new one. The table is bounded. Only an id
 * with nothing left to pay off is ever forgotten, which changes no answer.
 *
 * Times are nanoseconds of CLOCK_MONOTONIC (rates_now), handed in. All functions: [any thread]; one short lock a key.
 */
#ifndef GATE_RATES_H
#define GATE_RATES_H

#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

enum { RATES_ID_MOST = 128 /* bytes of an id */, RATES_TEXT = 32 };
#define RATES_LIMIT_MOST UINT32_MAX

/* In 60 s, at most RATES_LIMIT_MOST; 0: without limit, and then it costs nothing and keeps no state. */
struct rates_limits {
    uint64_t requests, tokens;
};

enum rates_verdict {
    RATES_ADMITTED = 0,
    RATES_WAIT,  /* refused; the same request is admitted wait_ns later if nothing else happens, and not before */
    RATES_NEVER, /* the request has more tokens than the whole limit: waiting is of no use */
    RATES_FULL   /* refused; every place of the table belongs to an id with something to pay off */
};

struct rates_figure {
    uint64_t limit, remaining;
    uint64_t reset_ns; /* until remaining == limit */
};

struct rates_answer {
    enum rates_verdict verdict;
    uint64_t wait_ns;                     /* RATES_WAIT, RATES_FULL */
    const char *what;                     /* "requests" or "tokens": what was refused first; NULL: admitted */
    struct rates_figure requests, tokens; /* after this call; limit 0: without limit */
};

/* What an admitted request holds, kept by the caller until rates_settle. All zero: nothing. */
struct rates_hold {
    uint64_t tokens, limit, until, returned, generation;
    uint32_t place;
    uint32_t held; /* 1: there is something to settle */
};

struct rates;

/* places: ids at one time, 1 to 1,048,576; about 250 bytes each. */
wk_status rates_open(uint32_t places, struct rates **out, const struct wk_err *err);
void rates_close(struct rates *r); /* NULL is allowed */

/* One request with `tokens` tokens in all (prompt and the most that may be answered): both limits or none are charged.
 * id: n bytes, 1 to RATES_ID_MOST. WK_INVALID: an id or a limit out of range; then nothing was charged. */
wk_status rates_reserve(struct rates *r, const char *id, size_t n, const struct rates_limits *limits, uint64_t tokens,
                        uint64_t now, struct rates_hold *hold, struct rates_answer *answer, const struct wk_err *err);
/* The request has ended and used so many tokens. Clears *hold; a second call does nothing. More than was reserved is
 * charged. */
void rates_settle(struct rates *r, struct rates_hold *hold, uint64_t used, uint64_t now);
/* The figures of an id, without charging anything. WK_INVALID as above. */
wk_status rates_look(struct rates *r, const char *id, size_t n, const struct rates_limits *limits, uint64_t now,
                     struct rates_answer *answer, const struct wk_err *err);

uint64_t rates_now(void);
/* Whole seconds for Retry-After, rounded up, at least 1. */
uint64_t rates_retry_after(uint64_t wait_ns);
/* A time as in x-ratelimit-reset-*: "0s", "120ms", "1s", "8.64s", "6m0s", "1h0m0s"; rounded up to 1 ms. Returns out. */
const char *rates_duration(uint64_t ns, char out[RATES_TEXT]);

#endif
