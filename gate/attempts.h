/* attempts.h: failed authentications by address: 10 at once, then one each 6 s (GCRA). An address is an IPv4 address,
 * or the /64 of an IPv6 address, since whoever has one address of a /64 has them all.
 *
 * A key that is valid is always let in, whatever its address did before: many people share one address behind a NAT,
 * and one of them with an old key must not shut out the others. So keys are looked up first (a hash and a table, about
 * a microsecond; what is guessed against has 178 random bits, which no rate of guesses finds), and only a failure is
 * counted: the first ones are answered 401, further ones 429 with the time to wait. Work that costs more than a lookup
 * (fetching an issuer's keys because of an unknown kid) asks attempts_wait first and is not done for such an address.
 *
 * The table is bounded and has one size. An address belongs to one set of 8 places, by SipHash with a random key of the
 * process, so nobody can choose addresses that fall into a set. In a full set the place that would be free soonest
 * is taken. So the failures of an address are forgotten only when the 7 others of its set have failed as often. One
 * address in 1,024 belongs to a given set: to find those 7 costs far more attempts than the 10 that it gains.
 *
 * All functions: [any thread]; one short lock a set. */
#ifndef GATE_ATTEMPTS_H
#define GATE_ATTEMPTS_H

#include <stdint.h>

#include <worker/abi.h>

enum { ATTEMPTS_AT_ONCE = 10, ATTEMPTS_MINUTE = 10 };

struct attempts;

wk_status attempts_open(struct attempts **out, const struct wk_err *err);
void attempts_close(struct attempts *a); /* NULL is allowed */

/* An authentication has failed. address: as text, "192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"; any other text (a
 * local socket) is one address of its own. now: as rates_now. 0: answer 401; else answer 429, and this many seconds are
 * to wait. A failure that is answered 429 is not counted, so the time is exact. */
uint64_t attempts_failed(struct attempts *a, const char *address, uint64_t now);
/* The same without counting: what the next failure would be answered. */
uint64_t attempts_wait(struct attempts *a, const char *address, uint64_t now);

#endif
