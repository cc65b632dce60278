/* oidc_times.h: when an issuer's keys are fetched, and how long they are good. Seconds of a clock that never goes back
 * and goes on while the machine sleeps. Pure; the owner's lock is held. */
#ifndef GATE_OIDC_TIMES_H
#define GATE_OIDC_TIMES_H

#include <stdbool.h>
#include <stdint.h>

struct oidc_times {
    bool any, asked, wanted; /* a fetch has succeeded; one was for an unknown key; one is wanted for such a key */
    int64_t good_at;         /* the last that succeeded began */
    int64_t tried_at;        /* the last began */
    int64_t asked_at;        /* the last for an unknown key began */
    uint32_t failures;       /* since the last that succeeded */
};

/* Before the first fetch: it is due at once. */
#define OIDC_TIMES_FIRST ((struct oidc_times){ .failures = 0 })

/* When the next fetch is due; not after now: at once. */
int64_t oidc_times_next(const struct oidc_times *t, int64_t now);
/* A token names a key that is not there: a fetch is wanted. true: it is due at once. */
bool oidc_times_unknown(struct oidc_times *t, int64_t now);
void oidc_times_begin(struct oidc_times *t, int64_t now);
void oidc_times_end(struct oidc_times *t, bool good);
/* Are the keys of the last fetch that succeeded still good? */
bool oidc_times_usable(const struct oidc_times *t, int64_t now);

#endif
