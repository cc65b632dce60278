/* test_leases.c: hand-overs that wait: each is given once, to whom it belongs, and ends in time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "leases.h"

/* The table knows of a lease that it can be ended, and nothing else. */
struct engine_lease {
    int ended;
};
static void end(struct engine_lease *lease) { lease->ended++; }

static const uint64_t ours[2] = { 1, 2 }, theirs[2] = { 1, 3 }, second = 1000000000u;

static struct leases *table(uint32_t most)
{
    struct leases *t;
    assert_int_equal(leases_open(most, end, &t, NULL), WK_OK);
    return t;
}

static void add(struct leases *t, struct engine_lease *lease, uint64_t now, char id[LEASES_ID])
{
    assert_true(leases_reserve(t));
    assert_true(leases_add(t, lease, ours, now, id));
}

static void given_once(void **state)
{
    (void)state;
    struct leases *t = table(2);
    struct engine_lease lease = { 0 }, *got = NULL;
    struct leases_figures f;
    char id[LEASES_ID], other[LEASES_ID];
    add(t, &lease, 0, id);
    memcpy(other, id, sizeof other);
    other[31] = other[31] == '0' ? '1' : '0';
    assert_int_equal(leases_take(t, other, ours, &got), LEASES_UNKNOWN);
    assert_int_equal(leases_take(t, "", ours, &got), LEASES_UNKNOWN);
    assert_int_equal(leases_take(t, id, theirs, &got), LEASES_UNKNOWN);
    assert_int_equal(leases_take(t, id, ours, &got), LEASES_FOUND);
    assert_ptr_equal(got, &lease);
    assert_int_equal(leases_take(t, id, ours, &got), LEASES_BUSY);
    leases_return(t, id, false, 0); /* it broke off: somebody may ask again */
    assert_int_equal(leases_take(t, id, ours, &got), LEASES_FOUND);
    leases_return(t, id, true, 0);
    assert_int_equal(lease.ended, 1);
    assert_int_equal(leases_take(t, id, ours, &got), LEASES_UNKNOWN);
    leases_figures(t, &f);
    assert_int_equal(f.taken, 1);
    assert_int_equal(f.waiting, 0);
    leases_close(t);
    assert_int_equal(lease.ended, 1);
}

static void places(void **state)
{
    (void)state;
    struct leases *t = table(2);
    struct engine_lease lease[2] = { 0 };
    struct leases_figures f;
    char id[LEASES_ID];
    add(t, &lease[0], 0, id);
    assert_true(leases_reserve(t));
    assert_false(leases_reserve(t));
    leases_unreserve(t);
    add(t, &lease[1], 0, id);
    assert_false(leases_reserve(t));
    leases_figures(t, &f);
    assert_int_equal(f.full, 2);
    leases_end(t);
    assert_true(leases_reserve(t));
    leases_unreserve(t);
    leases_close(t);
    assert_int_equal(lease[0].ended + lease[1].ended, 2);
}

static void ends_in_time(void **state)
{
    (void)state;
    struct leases *t = table(2);
    struct engine_lease lease[2] = { 0 }, *got;
    struct leases_figures f;
    char id[2][LEASES_ID];
    add(t, &lease[0], 0, id[0]);
    add(t, &lease[1], 0, id[1]);
    assert_int_equal(leases_take(t, id[1], ours, &got), LEASES_FOUND);
    leases_tick(t, LEASES_WAIT_S * second - 1);
    assert_int_equal(lease[0].ended, 0);
    leases_tick(t, LEASES_WAIT_S * second);
    assert_int_equal(lease[0].ended, 1);
    assert_int_equal(lease[1].ended, 0); /* it is being read */
    leases_return(t, id[1], false, LEASES_WAIT_S * second);
    leases_tick(t, (LEASES_WAIT_S + 1) * second);
    assert_int_equal(lease[1].ended, 0); /* its time began anew */
    leases_tick(t, 2 * LEASES_WAIT_S * second);
    assert_int_equal(lease[1].ended, 1);
    leases_figures(t, &f);
    assert_int_equal(f.expired, 2);
    assert_int_equal(f.offered, 2);
    leases_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(given_once), cmocka_unit_test(places),
                                        cmocka_unit_test(ends_in_time) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
