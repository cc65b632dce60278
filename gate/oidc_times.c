/* oidc_times.c: see oidc_times.h. */
#include "oidc_times.h"

#include "oidc.h"

enum { MOST_PAUSE_S = 60 };

int64_t oidc_times_next(const struct oidc_times *t, int64_t now)
{
    int64_t next;
    if (!t->any && t->failures == 0) return now;
    if (!t->any) /* nobody with a token can come in: soon, then ever later */
        next = t->tried_at + (t->failures > 6 ? MOST_PAUSE_S : (int64_t)1 << (t->failures - 1));
    else
        next = t->failures ? t->tried_at + MOST_PAUSE_S : t->good_at + OIDC_REFRESH_S;
    if (t->wanted) {
        const int64_t asked = t->asked ? t->asked_at + OIDC_UNKNOWN_S : now;
        if (asked < next) next = asked;
    }
    return next;
}

bool oidc_times_unknown(struct oidc_times *t, int64_t now)
{
    if (t->any) t->wanted = true;
    return oidc_times_next(t, now) <= now;
}

void oidc_times_begin(struct oidc_times *t, int64_t now)
{
    t->tried_at = now;
    if (t->wanted) {
        t->asked = true;
        t->asked_at = now;
    }
    t->wanted = false;
}

void oidc_times_end(struct oidc_times *t, bool good)
{
    if (!good) {
        if (t->failures < UINT32_MAX) t->failures++;
        return;
    }
    t->any = true;
    t->good_at = t->tried_at;
    t->failures = 0;
}

bool oidc_times_usable(const struct oidc_times *t, int64_t now) { return t->any && now - t->good_at < OIDC_KEYS_S; }
