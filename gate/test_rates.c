/* test_rates.c: limits hold over every 60 s for 500 keys, many threads and any settling; waits are exact. The clock is
 * a number of the test's. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "rates.h"

#define SECOND UINT64_C(1000000000)
#define START (UINT64_C(86400) * SECOND)

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static struct rates *open_rates(uint32_t places)
{
    struct rates *r;
    assert_int_equal(rates_open(places, &r, NULL), WK_OK);
    return r;
}

static struct rates_answer ask(struct rates *r, const char *id, struct rates_limits l, uint64_t tokens, uint64_t now,
                               struct rates_hold *hold)
{
    struct rates_answer a;
    struct rates_hold mine;
    assert_int_equal(rates_reserve(r, id, strlen(id), &l, tokens, now, hold ? hold : &mine, &a, NULL), WK_OK);
    return a;
}

static void test_burst_is_exact(void **state)
{
    (void)state;
    static const uint64_t limits[] = { 1, 2, 3, 7, 59, 60, 61, 997, 100003 };
    struct rates *r = open_rates(16);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        char id[16];
        const struct rates_limits l = { limits[i], 0 };
        (void)snprintf(id, sizeof id, "k%zu", i);
        for (uint64_t n = 1; n <= limits[i]; n++) {
            const struct rates_answer a = ask(r, id, l, 5, START, NULL);
            assert_int_equal(a.verdict, RATES_ADMITTED);
            assert_int_equal(a.requests.remaining, limits[i] - n);
            assert_int_equal(a.requests.limit, limits[i]);
            assert_int_equal(a.tokens.limit, 0);
        }
        const struct rates_answer a = ask(r, id, l, 5, START, NULL);
        assert_int_equal(a.verdict, RATES_WAIT);
        assert_string_equal(a.what, "requests");
        assert_int_equal(a.wait_ns, (60 * SECOND + limits[i] - 1) / limits[i]);
        assert_int_equal(a.requests.reset_ns, 60 * SECOND);
        assert_int_equal(ask(r, id, l, 5, START + a.wait_ns - 1, NULL).verdict, RATES_WAIT);
        assert_int_equal(ask(r, id, l, 5, START + a.wait_ns, NULL).verdict, RATES_ADMITTED);
        assert_int_equal(ask(r, id, l, 5, START + a.wait_ns, NULL).verdict, RATES_WAIT);
    }
    rates_close(r);
}

static void test_waits_are_exact(void **state)
{
    (void)state;
    struct rates *r = open_rates(4);
    uint64_t seed = 88172645463325252u, now = START, refused = 0;
    for (uint64_t i = 0; i < 200000; i++) {
        const struct rates_limits l = { i / 1000 % 3 ? 1 + i / 1000 % 97 : 0, i / 500 % 4 ? 1 + i % 7 * 131 : 0 };
        const uint64_t tokens = draw(&seed) % 900;
        struct rates_hold hold;
        struct rates_answer a = ask(r, "key", l, tokens, now, &hold);
        if (a.verdict == RATES_WAIT) {
            refused++;
            const struct rates_answer before = ask(r, "key", l, tokens, now + a.wait_ns - 1, &hold);
            assert_int_equal(before.verdict, RATES_WAIT);
            assert_int_equal(before.wait_ns, 1);
            now += a.wait_ns;
            a = ask(r, "key", l, tokens, now, &hold);
        }
        assert_int_equal(a.verdict, l.tokens && tokens > l.tokens ? RATES_NEVER : RATES_ADMITTED);
        assert_int_equal(hold.held, a.verdict == RATES_ADMITTED && l.tokens);
        if (draw(&seed) % 2) rates_settle(r, &hold, tokens ? draw(&seed) % (tokens + 1) : 0, now);
        now += draw(&seed) % 3 ? 0 : draw(&seed) % (2 * SECOND);
    }
    assert_true(refused > 1000);
    rates_close(r);
}

static void test_all_or_nothing(void **state)
{
    (void)state;
    struct rates *r = open_rates(4);
    const struct rates_limits l = { 2, 100 };
    struct rates_hold hold;
    struct rates_answer a = ask(r, "a", l, 101, START, &hold);
    assert_int_equal(a.verdict, RATES_NEVER);
    assert_string_equal(a.what, "tokens");
    assert_int_equal(a.wait_ns, 0);
    assert_int_equal(a.requests.remaining, 2);
    assert_int_equal(hold.held, 0);
    a = ask(r, "a", l, 100, START, &hold);
    assert_int_equal(a.verdict, RATES_ADMITTED);
    assert_int_equal(a.tokens.remaining, 0);
    assert_int_equal(a.tokens.reset_ns, 60 * SECOND);
    a = ask(r, "a", l, 1, START, NULL);
    assert_int_equal(a.verdict, RATES_WAIT);
    assert_string_equal(a.what, "tokens");
    assert_int_equal(a.wait_ns, 600000000);
    assert_int_equal(a.requests.remaining, 1); /* the request is not charged */
    rates_settle(r, &hold, 40, START);
    assert_int_equal(hold.held, 0);
    a = ask(r, "a", l, 60, START, NULL);
    assert_int_equal(a.verdict, RATES_ADMITTED);
    assert_int_equal(a.tokens.remaining, 0);
    assert_int_equal(a.requests.remaining, 0);
    assert_string_equal(ask(r, "a", l, 0, START, NULL).what, "requests");
    rates_settle(r, &hold, 0, START); /* settled already */
    assert_int_equal(ask(r, "a", (struct rates_limits){ 0, 100 }, 1, START, NULL).verdict, RATES_WAIT);
    rates_close(r);
}

static void test_settle_never_below_now(void **state)
{
    (void)state;
    struct rates *r = open_rates(4);
    const struct rates_limits l = { 0, 600 };
    struct rates_hold first, second;
    struct rates_answer a;
    assert_int_equal(ask(r, "a", l, 600, START, &first).verdict, RATES_ADMITTED);
    /* Paid off by time: giving it back would let the key have the limit twice at one moment. */
    assert_int_equal(ask(r, "a", l, 600, START + 60 * SECOND, &second).verdict, RATES_ADMITTED);
    rates_settle(r, &first, 0, START + 60 * SECOND);
    assert_int_equal(ask(r, "a", l, 1, START + 60 * SECOND, NULL).verdict, RATES_WAIT);
    rates_settle(r, &second, 0, START + 90 * SECOND); /* half of it is */
    a = ask(r, "a", l, 600, START + 90 * SECOND, &first);
    assert_int_equal(a.verdict, RATES_ADMITTED);
    assert_int_equal(a.tokens.remaining, 0);
    rates_settle(r, &first, 0, START + 1000 * SECOND);
    assert_int_equal(rates_look(r, "a", 1, &l, START + 1000 * SECOND, &a, NULL), WK_OK);
    assert_int_equal(a.tokens.remaining, 600);
    assert_int_equal(a.tokens.reset_ns, 0);
    /* What others gave back moves what is left of a reservation to an earlier time. */
    assert_int_equal(ask(r, "b", l, 300, START, &first).verdict, RATES_ADMITTED);
    assert_int_equal(ask(r, "b", l, 300, START, &second).verdict, RATES_ADMITTED);
    rates_settle(r, &first, 0, START);
    assert_int_equal(ask(r, "b", l, 600, START + 30 * SECOND, NULL).verdict, RATES_ADMITTED);
    rates_settle(r, &second, 0, START + 30 * SECOND);
    assert_int_equal(ask(r, "b", l, 1, START + 30 * SECOND, NULL).verdict, RATES_WAIT);
    /* More than reserved is charged. */
    assert_int_equal(ask(r, "a", l, 10, START + 1000 * SECOND, &first).verdict, RATES_ADMITTED);
    rates_settle(r, &first, 110, START + 1000 * SECOND);
    assert_int_equal(rates_look(r, "a", 1, &l, START + 1000 * SECOND, &a, NULL), WK_OK);
    assert_int_equal(a.tokens.remaining, 490);
    rates_close(r);
}

static void test_limits_change(void **state)
{
    (void)state;
    struct rates *r = open_rates(4);
    struct rates_answer a;
    struct rates_hold hold;
    assert_int_equal(ask(r, "a", (struct rates_limits){ 0, 1000 }, 500, START, &hold).verdict, RATES_ADMITTED);
    /* Half is used, of whatever limit. */
    const struct rates_limits less = { 0, 100 }, none = { 0, 0 };
    assert_int_equal(rates_look(r, "a", 1, &less, START, &a, NULL), WK_OK);
    assert_int_equal(a.tokens.remaining, 50);
    assert_int_equal(ask(r, "a", none, 1u << 30, START, NULL).verdict, RATES_ADMITTED);
    assert_int_equal(ask(r, "a", less, 50, START, NULL).verdict, RATES_ADMITTED);
    assert_int_equal(ask(r, "a", less, 1, START, NULL).verdict, RATES_WAIT);
    rates_settle(r, &hold, 0, START);
    assert_int_equal(rates_look(r, "a", 1, &less, START, &a, NULL), WK_OK);
    assert_int_equal(a.tokens.remaining, 50);
    rates_close(r);
}

static void test_bounded_table(void **state)
{
    (void)state;
    struct rates *r = open_rates(3);
    const struct rates_limits l = { 60, 0 };
    char text[256] = "";
    const struct wk_err err = { text, sizeof text };
    struct rates_answer a;
    struct rates_hold hold;
    const char *ids[] = { "a", "b", "c" };
    for (int i = 0; i < 3; i++) assert_int_equal(ask(r, ids[i], l, 0, START, NULL).verdict, RATES_ADMITTED);
    a = ask(r, "d", l, 0, START, NULL);
    assert_int_equal(a.verdict, RATES_FULL);
    assert_int_equal(a.wait_ns, SECOND);
    assert_int_equal(ask(r, "a", l, 0, START + SECOND / 2, NULL).requests.remaining, 58); /* it is still known */
    assert_int_equal(ask(r, "d", l, 0, START + SECOND, NULL).verdict, RATES_ADMITTED);    /* in the place of b or c */
    assert_int_equal(ask(r, "a", l, 0, START + SECOND, NULL).requests.remaining, 58);
    /* A hold of an id that was forgotten gives nothing to the next one. */
    assert_int_equal(ask(r, "h", (struct rates_limits){ 0, 60 }, 1, START + 1000 * SECOND, &hold).verdict,
                     RATES_ADMITTED);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ask(r, ids[i], (struct rates_limits){ 0, 60 }, 30, START + 2000 * SECOND, NULL).verdict,
                         RATES_ADMITTED);
    rates_settle(r, &hold, 0, START + 2000 * SECOND);
    for (int i = 0; i < 3; i++)
        assert_int_equal(ask(r, ids[i], (struct rates_limits){ 0, 60 }, 31, START + 2000 * SECOND, NULL).verdict,
                         RATES_WAIT);
    assert_int_equal(rates_reserve(r, "", 0, &l, 0, START, &hold, &a, &err), WK_INVALID);
    assert_non_null(strstr(text, "1 to 128"));
    const struct rates_limits large = { 0, RATES_LIMIT_MOST + UINT64_C(1) };
    assert_int_equal(rates_reserve(r, "a", 1, &large, 0, START, &hold, &a, &err), WK_INVALID);
    rates_close(r);
    assert_int_equal(rates_open(0, &r, &err), WK_INVALID);
    assert_int_equal(rates_open(1u << 21, &r, &err), WK_INVALID);
}

static void test_texts(void **state)
{
    (void)state;
    static const struct {
        uint64_t ns;
        const char *text;
    } cases[] = { { 0, "0s" },
                  { 1, "1ms" },
                  { 120000000, "120ms" },
                  { 999000001, "1s" },
                  { SECOND, "1s" },
                  { 8640000000, "8.64s" },
                  { 1005000000, "1.005s" },
                  { 1050000000, "1.05s" },
                  { 60 * SECOND, "1m0s" },
                  { 61500000000, "1m1.5s" },
                  { 360 * SECOND, "6m0s" },
                  { 3600 * SECOND, "1h0m0s" },
                  { 90061 * SECOND, "25h1m1s" } };
    char out[RATES_TEXT];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(rates_duration(cases[i].ns, out), cases[i].text);
    assert_int_equal(rates_retry_after(0), 1);
    assert_int_equal(rates_retry_after(SECOND), 1);
    assert_int_equal(rates_retry_after(SECOND + 1), 2);
}

/* ---- the property ---------------------------------------------------------------------------------------------- */

enum { KEYS = 500, THREADS = 8, EVENTS = 2500 /* of a key */, OPEN = 6 };

struct event {
    uint64_t at, used;
};

static struct key {
    pthread_mutex_t order; /* the key's calls have the order of their times */
    char id[16];
    struct rates_limits limits;
    struct event events[EVENTS];
    struct rates_hold hold[OPEN];
    uint64_t reserved[OPEN];
    uint32_t event_of[OPEN], n;
} keys[KEYS];
static struct rates *shared;
static _Atomic uint64_t clock_now;

/* Settles whatever lies in slot i with a share of what it reserved. */
static void settle_slot(struct key *k, uint32_t i, uint64_t *seed, uint64_t now)
{
    if (!k->hold[i].held) return;
    const uint64_t used = draw(seed) % 3 ? draw(seed) % (k->reserved[i] / 20 + 1) : draw(seed) % (k->reserved[i] + 1);
    k->events[k->event_of[i]].used = used;
    rates_settle(shared, &k->hold[i], used, now);
}

static void request(struct key *k, uint64_t *seed, uint64_t now)
{
    const uint32_t i = (uint32_t)(draw(seed) % OPEN);
    struct rates_answer a;
    settle_slot(k, i, seed, now);
    if (k->n == EVENTS) return;
    const uint64_t most = draw(seed) % 4 ? k->limits.tokens / 4 : k->limits.tokens, n = draw(seed) % (most + 1);
    if (rates_reserve(shared, k->id, strlen(k->id), &k->limits, n, now, &k->hold[i], &a, NULL) != WK_OK) abort();
    if (a.verdict == RATES_WAIT && (a.wait_ns == 0 || a.wait_ns > 60 * SECOND)) abort();
    if (a.verdict != RATES_ADMITTED) return;
    k->reserved[i] = n;
    k->event_of[i] = k->n;
    k->events[k->n++] = (struct event){ now, n };
}

static void *traffic(void *argument)
{
    uint64_t seed = 1234567 + (uint64_t)(uintptr_t)argument * 7919;
    for (int i = 0; i < 150000; i++) {
        struct key *k = &keys[draw(&seed) % KEYS];
        (void)pthread_mutex_lock(&k->order);
        /* Sometimes all is quiet for a while; each key is asked for a few hundred times a minute. */
        const uint64_t step = draw(&seed) % 20000 ? draw(&seed) % 800000 : draw(&seed) % (90 * SECOND);
        request(k, &seed, atomic_fetch_add(&clock_now, step) + step);
        (void)pthread_mutex_unlock(&k->order);
    }
    return NULL;
}

/* In every 60 s that begin with an event: at most twice the limit, to the token. */
static void check_windows(const struct key *k)
{
    uint64_t tokens = 0;
    uint32_t end = 0;
    for (uint32_t i = 0; i < k->n; i++) {
        for (; end < k->n && k->events[end].at <= k->events[i].at + 60 * SECOND; end++) tokens += k->events[end].used;
        assert_true(tokens <= 2 * k->limits.tokens);
        assert_true(end - i <= 2 * k->limits.requests);
        tokens -= k->events[i].used;
    }
}

static void test_no_key_exceeds_its_limit(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    uint64_t busy = 0, seed = 99;
    shared = open_rates(KEYS);
    clock_now = START;
    for (int i = 0; i < KEYS; i++) {
        (void)pthread_mutex_init(&keys[i].order, NULL);
        (void)snprintf(keys[i].id, sizeof keys[i].id, "key-%d", i);
        keys[i].limits = (struct rates_limits){ 100 + (uint64_t)i, 40 + draw(&seed) % 20000 };
    }
    for (uintptr_t i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, traffic, (void *)i), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < KEYS; i++) {
        for (uint32_t j = 0; j < OPEN; j++) settle_slot(&keys[i], j, &seed, clock_now);
        check_windows(&keys[i]);
        busy += keys[i].n;
        (void)pthread_mutex_destroy(&keys[i].order);
    }
    assert_true(busy > 100000);
    rates_close(shared);
}

static _Atomic uint64_t admitted;

static void *hammer(void *argument)
{
    for (int i = 0; i < 20000; i++) {
        struct rates_hold hold;
        struct rates_answer a;
        char id[16];
        const struct rates_limits l = { 0, 9000 };
        (void)snprintf(id, sizeof id, "key-%d", i % 3);
        (void)argument;
        if (rates_reserve(shared, id, strlen(id), &l, 3, START, &hold, &a, NULL) != WK_OK) abort();
        if (a.verdict != RATES_ADMITTED) continue;
        admitted++;
        rates_settle(shared, &hold, 2, START);
    }
    return NULL;
}

/* Threads that meet at one key: 9,000 tokens in pieces of 2 of 3 reserved, and the last reserve must fit. Who settles
 * later than one that was admitted later may be given back less. */
static void test_threads_at_one_key(void **state)
{
    (void)state;
    pthread_t threads[THREADS];
    shared = open_rates(3);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, hammer, NULL), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(admitted <= 3 * 4499 && admitted >= 3 * 3000);
    rates_close(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_burst_is_exact),
        cmocka_unit_test(test_waits_are_exact),
        cmocka_unit_test(test_all_or_nothing),
        cmocka_unit_test(test_settle_never_below_now),
        cmocka_unit_test(test_limits_change),
        cmocka_unit_test(test_bounded_table),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_no_key_exceeds_its_limit),
        cmocka_unit_test(test_threads_at_one_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
