/* test_page_events.c: who follows the events of the prefix cache knows what it keeps, whatever is evicted meanwhile and
 * however slowly they are read. */
#include "engine/internal.h"
#include "engine/page_events.h"
#include "test_jobs.h"

#include <stdio.h>
#include <string.h>

static struct test_model model;
static struct engine *engine;

static void open_all(uint64_t kv_pages, uint32_t records)
{
    model = test_llama(test_device(1, UINT64_MAX), (struct device_options){ .max_sequences = 4 }, 2);
    const uint64_t page = model.m->plan.bytes[MEMORY_KV] / model.m->plan.kv_pages[0];
    test_unload(&model);
    model = test_llama(test_device(1, UINT64_MAX),
                       (struct device_options){ .max_sequences = 4, .kv_bytes = kv_pages * page }, 2);
    engine = test_engine(model.m, (struct engine_options){ .prefix_cache = true, .page_events = records });
}

static void close_all(void)
{
    engine_close(engine);
    test_unload(&model);
}

/* Prompts of one kind begin the same. */
static void run(uint32_t n, uint32_t kind, uint64_t salt)
{
    struct test_job t = { .n = n, .most = 2, .params = { .top_p = 1, .repetition_penalty = 1 } };
    uint32_t ids[TEST_CONTEXT];
    enum job_end end;
    for (uint32_t i = 0; i < n; i++) t.tokens[i] = (i * 5 + i / 7 + 13 * kind) % TEST_VOCAB;
    t.salt.word[0] = salt;
    struct job *j = test_submit(engine, "j", &t, 0, 0);
    assert_int_equal(test_read(j, ids, TEST_CONTEXT, &end), 2);
    job_release(j);
    test_wait_idle(engine);
}

/* ---- what a reader makes of the events ----------------------------------------------------------------- */

enum { MOST = 64 };
static struct page_event known[MOST];
static uint32_t n_known, n_cleared;

static struct page_event *find(uint64_t hash)
{
    for (uint32_t i = 0; i < n_known; i++)
        if (known[i].hash == hash) return &known[i];
    return NULL;
}

static void forget(uint64_t hash)
{
    struct page_event *x = find(hash);
    assert_non_null(x);
    for (uint32_t i = 0; i < n_known; i++)
        assert_true(known[i].first || known[i].parent != hash); /* nothing is below what goes */
    *x = known[--n_known];
}

static void follow(const struct page_event *v)
{
    assert_true(v->at_ns > 0 && v->at_ns <= engine_now());
    if (v->kind == PAGE_REMOVED) {
        forget(v->hash);
    } else if (v->kind == PAGES_CLEARED) {
        n_known = 0;
        n_cleared++;
    } else {
        assert_true(v->hash && n_known < MOST && !find(v->hash));
        assert_true(v->first ? !v->parent : find(v->parent) != NULL);
        known[n_known++] = *v;
    }
}

static void nothing(void *user) { (void)user; }

/* Until a whole turn of the engine, which had room for everything, told nothing: between two calls there is one. */
static void drain(void)
{
    struct page_event v[3];
    for (bool more = true; more;) {
        more = false;
        for (uint32_t i = 0; i < 2; i++) assert_true(engine_call(engine, nothing, NULL));
        for (uint32_t n; (n = engine_page_events(engine, v, 3, 0)) > 0; more = true)
            for (uint32_t i = 0; i < n; i++) follow(&v[i]);
    }
}

/* ---- what the tree has --------------------------------------------------------------------------------- */

static uint32_t n_nodes, n_same;

/* Of the node's tokens and all above, is there a known page with the same above it? */
static bool is_known(const struct prefix *p, uint32_t node)
{
    for (uint32_t i = 0; i < n_known; i++) {
        const struct page_event *x = &known[i];
        uint32_t at = node;
        while (x && at != ENGINE_NONE) {
            const struct prefix_node *n = &p->nodes[at];
            if (memcmp(x->tokens, n->tokens, sizeof n->tokens) != 0 || x->first != (n->parent == ENGINE_NONE)) break;
            if (x->first && !engine_same_salt(&x->salt, &n->salt)) break;
            at = n->parent;
            x = x->first ? NULL : find(x->parent);
        }
        if (!x && at == ENGINE_NONE) return true;
    }
    return false;
}

static void look(void *user)
{
    const struct prefix *p = user;
    n_nodes = n_same = 0;
    for (uint32_t b = 0; b < p->n_buckets; b++)
        for (uint32_t i = p->buckets[b]; i != ENGINE_NONE; i = p->nodes[i].next) {
            n_nodes++;
            n_same += is_known(p, i);
        }
}

static void compare(void)
{
    assert_true(engine_call(engine, look, &engine->prefix));
    if (n_nodes != n_known || n_same != n_nodes)
        fail_msg("the tree has %u pages, %u of them known; %u are known", n_nodes, n_same, n_known);
}

/* ---- tests --------------------------------------------------------------------------------------------- */

/* A cache of 10 pages and prompts of 1 to 9: much is evicted. */
static void test_follow(void **state)
{
    (void)state;
    n_known = n_cleared = 0;
    open_all(10, 1024);
    drain();
    assert_int_equal(n_cleared, 1); /* the first of all records */
    for (uint32_t i = 0; i < 40; i++) {
        run(33 + i * 37 % 250, i % 5, i % 3);
        drain();
        compare();
    }
    assert_int_equal(n_cleared, 1);
    assert_true(n_known > 0);
    close_all();
}

/* A ring of 4: nobody reads for a while; what went meanwhile is said by PAGES_CLEARED, what came is told later. */
static void test_full(void **state)
{
    (void)state;
    n_known = n_cleared = 0;
    open_all(10, 4);
    for (uint32_t round = 0; round < 10; round++) {
        for (uint32_t i = 0; i < round; i++) run(33 + (round + i) * 37 % 250, i % 5, 0);
        drain();
        compare();
    }
    assert_true(n_cleared > 1);
    close_all();
}

/* Room for all that comes and for nothing that goes: PAGES_CLEARED comes by itself, without another page. */
static void test_full_of_removed(void **state)
{
    (void)state;
    n_known = n_cleared = 0;
    open_all(10, 8);
    run(32 * 7 + 5, 1, 0); /* PAGES_CLEARED and 7 pages */
    run(32 * 9 + 5, 2, 0);
    drain();
    assert_int_equal(n_cleared, 2);
    assert_int_equal(n_known, 9);
    compare();
    close_all();
}

static void test_again(void **state)
{
    (void)state;
    n_known = n_cleared = 0;
    open_all(20, 1024);
    run(300, 1, 0);
    run(200, 2, 0);
    drain();
    compare();
    engine_page_events_again(engine);
    n_known = 0; /* the reader has lost everything */
    drain();
    assert_int_equal(n_cleared, 2);
    compare();
    close_all();
}

static uint64_t last_hash(void)
{
    drain();
    return known[n_known - 1].hash;
}

/* Another process, another salt, another beginning. */
static void test_hashes(void **state)
{
    (void)state;
    uint64_t hash[5];
    for (uint32_t i = 0; i < 2; i++) {
        n_known = 0;
        open_all(20, 1024);
        if (i) run(40, 3, 0);
        run(100, 1, 0);
        hash[i] = last_hash();
        assert_int_equal(engine->prefix.seed != 0, 1);
        if (i) run(100, 1, 7), hash[2] = last_hash();
        if (i) run(100, 2, 0), hash[3] = last_hash();
        if (i) run(64, 1, 0), hash[4] = last_hash(); /* few tokens: rows of another class */
        close_all();
    }
    assert_int_equal(hash[0], hash[1]);
    for (uint32_t i = 1; i < 5; i++)
        for (uint32_t k = 1; k < i; k++) assert_int_not_equal(hash[i], hash[k]);
}

static void test_off(void **state)
{
    (void)state;
    open_all(10, 0);
    run(100, 1, 0);
    assert_null(engine->prefix.events);
    close_all();
}

static void test_wake(void **state)
{
    (void)state;
    struct page_event v[2];
    open_all(10, 16);
    assert_int_equal(engine_page_events(engine, v, 2, -1), 1);
    assert_int_equal(v[0].kind, PAGES_CLEARED);
    assert_int_equal(engine_page_events(engine, v, 2, 0), 0);
    assert_int_equal(engine_page_events(engine, v, 2, 1), 0);
    engine_page_events_wake(engine); /* of nobody */
    close_all();
}

int main(void)
{
    if (test_open_plugins()) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_follow), cmocka_unit_test(test_full),   cmocka_unit_test(test_full_of_removed),
        cmocka_unit_test(test_again),  cmocka_unit_test(test_hashes), cmocka_unit_test(test_off),
        cmocka_unit_test(test_wake),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_close_plugins();
    return failed;
}
