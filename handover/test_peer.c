/* test_peer.c: pages straight from one worker's memory to another's, over a real socket: the ids are those of one
 * engine; what the giver refuses, what a taker notices, and that nothing stays. */
#include "test_widths.h"

#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "peer.h"
#include "peer_link.h"

static const struct widths widths = { 3, { 40, 0, CHUNK(64) } };

/* ---- two workers --------------------------------------------------------------------------------------- */

static struct {
    struct test_model give, take;
    struct engine *giving, *taking;
    struct peer_giver *giver;
    struct peer_taker *taker;
    struct packet is;
    /* The table of leases: one. */
    struct engine_lease *lease;
    _Atomic uint32_t found, done, taken;
} w;

static struct engine_lease *find(void *user, const char *ticket)
{
    (void)user;
    if (strcmp(ticket, "ticket") || !w.lease) return NULL;
    engine_lease_ref(w.lease);
    atomic_fetch_add(&w.found, 1);
    return w.lease;
}

static void done(void *user, const char *ticket, struct engine_lease *l, bool taken)
{
    (void)user;
    assert_string_equal(ticket, "ticket");
    engine_lease_release(l);
    atomic_fetch_add(&w.taken, taken);
    atomic_fetch_add(&w.done, 1);
}

static void giver_open(void)
{
    const struct peer_leases leases = { .find = find, .done = done };
    ok(peer_giver_open(w.giving, &w.is, &leases, &w.giver, &test_err));
}

static void open_all(const struct device_ops *giving)
{
    w.give = open_model(&widths, giving, (struct device_options){ .max_sequences = 4 });
    w.take = open_model(&widths, device_cpu(), (struct device_options){ .max_sequences = 2, .max_rows = 33 });
    w.giving = test_engine(w.give.m, (struct engine_options){ .prefix_cache = true });
    w.taking = test_engine(w.take.m, (struct engine_options){ .prefix_cache = true });
    w.is = (struct packet){ .ranks = 1, .heads = 1 };
    ok(engine_layout(w.giving, &w.is.layout, &test_err));
    memset(w.is.digest, 1, sizeof w.is.digest);
    giver_open();
    ok(peer_taker_open(w.taking, &w.taker, &test_err));
    w.found = w.done = w.taken = 0;
}

/* The giver ends a hand-over after its taker, in a thread of its own. */
static void await_done(void) { test_wait_for(atomic_load(&w.done) == atomic_load(&w.found)); }

static void close_all(void)
{
    peer_giver_close(w.giver);
    peer_taker_close(w.taker);
    assert_int_equal(w.found, w.done);
    test_wait_unused(w.giving);
    test_wait_unused(w.taking);
    engine_close(w.giving);
    engine_close(w.taking);
    test_unload(&w.give);
    test_unload(&w.take);
}

/* ---- hand-overs ---------------------------------------------------------------------------------------- */

static struct job *read_prompt(const struct test_job *t)
{
    struct engine_job spec = test_spec(t, "give");
    spec.keep = true;
    spec.max_tokens = 1;
    struct job *j = test_submit_spec(w.giving, &spec);
    w.lease = job_lease(j);
    return j;
}

static void end_prompt(struct job *j)
{
    uint32_t ids[TEST_CONTEXT];
    enum job_end end;
    (void)test_read(j, ids, TEST_CONTEXT, &end);
    job_release(j);
    engine_lease_release(w.lease);
    w.lease = NULL;
}

/* Takes all that the import lacks. */
static wk_status take(const struct test_job *t, const char *name, const char *ticket, struct engine_import *i,
                      const atomic_bool *stop)
{
    uint8_t raw[4 * TEST_CONTEXT];
    struct packet mine = w.is;
    mine.n_tokens = engine_blocks(t->n) * KV_PAGE;
    mine.tokens = raw;
    packet_put_tokens(t->tokens, mine.n_tokens, raw);
    if (mine.n_tokens) mine.last_id = t->tokens[mine.n_tokens - 1];
    return peer_take(w.taker, name, ticket, &mine, i, stop, &test_err);
}

static struct engine_import *begin(const struct test_job *t)
{
    struct engine_import *i;
    ok(engine_import_begin(w.taking, t->tokens, t->n, &t->salt, &i, &test_err));
    return i;
}

static void expect_answer(const struct test_job *t, const struct test_answer *want, uint32_t cached)
{
    uint32_t ids[TEST_CONTEXT];
    enum job_end end;
    struct job_figures f;
    struct job *j = test_submit(w.taking, "take", t, 0, 0);
    assert_int_equal(test_read(j, ids, TEST_CONTEXT, &end), want->n);
    assert_memory_equal(ids, want->ids, want->n * sizeof *ids);
    job_figures(j, &f);
    job_release(j);
    assert_int_equal(f.n_cached, cached);
}

/* Prompts with nothing to hand over, with some of it on the other side already, while the prompt is being read. */
static void test_ids(void **state)
{
    (void)state;
    answer_all(&widths);
    open_all(device_cpu());
    for (uint32_t k = 0; k < KINDS; k++) {
        const struct test_job t = make(k);
        struct job *j = read_prompt(&t);
        struct engine_import *i = begin(&t);
        ok(take(&t, peer_giver_name(w.giver), "ticket", i, NULL));
        struct engine_lease *l = engine_import_commit(i);
        end_prompt(j);
        expect_answer(&t, &answers[k], engine_blocks(t.n) * KV_PAGE);
        engine_lease_release(l);
        peer_taker_tick(w.taker);
    }
    await_done();
    assert_int_equal(w.taken, KINDS);
    close_all();
}

/* Nothing is committed of what the giver does not confirm, or does not know; the job computes its prompt itself. */
static void test_refused(void **state)
{
    (void)state;
    open_all(device_cpu());
    answer_all(&widths);
    const struct test_job t = make(0), other = make(5);
    struct job *j = read_prompt(&t);
    struct engine_import *i = begin(&t);
    assert_int_equal(take(&t, "worker-kv-0-nobody", "ticket", i, NULL), WK_UNSUPPORTED);
    assert_non_null(strstr(test_text, "no worker of this user listens as worker-kv-0-nobody"));
    assert_int_equal(take(&t, "", "ticket", i, NULL), WK_INVALID);
    assert_int_equal(take(&t, peer_giver_name(w.giver), "tickets", i, NULL), WK_INVALID);
    assert_non_null(strstr(test_text, "there is no such hand-over, or not any more"));
    assert_int_equal(take(&other, peer_giver_name(w.giver), "ticket", i, NULL), WK_INVALID);
    assert_non_null(strstr(test_text, "for an import of"));
    engine_import_abort(i);
    i = begin(&other);
    assert_int_equal(take(&other, peer_giver_name(w.giver), "ticket", i, NULL), WK_UNSUPPORTED);
    assert_non_null(strstr(test_text, "another number of tokens"));
    engine_import_abort(i);
    i = begin(&t);
    w.is.fingerprint[3] =
        1; /* the taker is of another build: the second connection refuses what the first has let in */
    assert_int_equal(take(&t, peer_giver_name(w.giver), "ticket", i, NULL), WK_UNSUPPORTED);
    assert_non_null(strstr(test_text, "computed by another program, device or setting"));
    peer_taker_close(w.taker);
    ok(peer_taker_open(w.taking, &w.taker, &test_err));
    assert_int_equal(take(&t, peer_giver_name(w.giver), "ticket", i, NULL), WK_UNSUPPORTED);
    assert_non_null(strstr(test_text, "computed by another program, device or setting"));
    engine_import_abort(i);
    end_prompt(j);
    await_done();
    assert_int_equal(w.taken, 0);
    expect_answer(&t, &answers[0], 0);
    close_all();
}

struct waiter {
    const struct test_job *t;
    const char *name; /* NULL: the giver's */
    atomic_bool over;
    struct engine_import *i;
    atomic_bool stop;
    wk_status status;
    pthread_t thread;
    char text[256];
};
static void *wait_for_pages(void *arg)
{
    struct waiter *x = arg;
    uint8_t raw[4 * TEST_CONTEXT];
    struct packet mine = w.is;
    mine.n_tokens = engine_blocks(x->t->n) * KV_PAGE;
    mine.tokens = raw;
    packet_put_tokens(x->t->tokens, mine.n_tokens, raw);
    mine.last_id = x->t->tokens[mine.n_tokens - 1];
    x->status = peer_take(w.taker, x->name ? x->name : peer_giver_name(w.giver), "ticket", &mine, x->i, &x->stop,
                          &(struct wk_err){ x->text, sizeof x->text });
    atomic_store(&x->over, true);
    return NULL;
}
static void waiter_begin(struct waiter *x, const struct test_job *t)
{
    *x = (struct waiter){ .t = t, .i = begin(t) };
    const uint32_t before = w.found;
    assert_int_equal(pthread_create(&x->thread, NULL, wait_for_pages, x), 0);
    while (atomic_load(&w.found) == before) test_nap();
}
static void waiter_end(struct waiter *x, wk_status want, const char *why)
{
    assert_int_equal(pthread_join(x->thread, NULL), 0);
    assert_int_equal(x->status, want);
    if (!strstr(x->text, why)) fail_msg("\"%s\", expected \"%s\"", x->text, why);
    engine_import_abort(x->i);
}

/* In the middle of a prompt: the taker gives up, the prompt's job is cancelled, the giver ends. */
static void test_broken_off(void **state)
{
    (void)state;
    open_all(test_device(1, 0));
    const struct test_job t = make(0);
    struct waiter x;
    struct job *j = read_prompt(&t);
    waiter_begin(&x, &t);
    atomic_store(&x.stop, true);
    waiter_end(&x, WK_CANCELLED, "cancelled");
    waiter_begin(&x, &t);
    test_permit(1);
    job_cancel(j);
    waiter_end(&x, WK_INVALID, "its job ended before all pages of the prompt were kept");
    end_prompt(j);
    j = read_prompt(&t);
    waiter_begin(&x, &t);
    peer_giver_close(w.giver);
    waiter_end(&x, WK_INVALID, "broke off");
    test_permit(UINT64_MAX);
    end_prompt(j);
    peer_taker_tick(w.taker); /* gives its memory back */
    giver_open();
    close_all();
}

/* Of whoever listens as a giver and says nothing the taker's other callers hear nothing: the tick is the main thread's.
 */
static void test_silent(void **state)
{
    (void)state;
    char name[PEER_NAME];
    open_all(device_cpu());
    const struct test_job t = make(0);
    const int socket = link_listen(name, &test_err);
    assert_true(socket >= 0);
    struct pollfd comes = { .fd = socket, .events = POLLIN };
    struct waiter x = { .t = &t, .name = name, .i = begin(&t) };
    assert_int_equal(pthread_create(&x.thread, NULL, wait_for_pages, &x), 0);
    assert_int_equal(poll(&comes, 1, 60000), 1);
    peer_taker_tick(w.taker);
    assert_false(atomic_load(&x.over));
    atomic_store(&x.stop, true);
    waiter_end(&x, WK_CANCELLED, "cancelled");
    (void)close(socket);
    close_all();
}

/* Sockets of this user that are no giver's get no byte, whoever names them. */
static void test_other_sockets(void **state)
{
    (void)state;
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    open_all(device_cpu());
    const struct test_job t = make(0);
    (void)snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "test-peer-%ld", (long)getpid());
    const socklen_t n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(a.sun_path + 1));
    const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(s >= 0 && !bind(s, (struct sockaddr *)&a, n) && !listen(s, 4));
    struct pollfd comes = { .fd = s, .events = POLLIN };
    struct engine_import *i = begin(&t);
    const atomic_bool stop = true;
    assert_int_equal(take(&t, a.sun_path + 1, "ticket", i, &stop), WK_UNSUPPORTED);
    assert_int_equal(poll(&comes, 1, 0), 0);
    engine_import_abort(i);
    (void)close(s);
    close_all();
}

/* What is given to another process can be read there, and not written. */
static void test_reading_alone(void **state)
{
    (void)state;
    open_all(device_cpu());
    struct device_share share;
    ok(engine_share(w.giving, &share, &test_err));
    void *at = mmap(NULL, share.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, share.fd, 0);
    assert_ptr_equal(at, MAP_FAILED);
    assert_int_not_equal(ftruncate(share.fd, 0), 0);
    at = mmap(NULL, share.bytes, PROT_READ, MAP_SHARED, share.fd, 0);
    assert_ptr_not_equal(at, MAP_FAILED);
    (void)munmap(at, share.bytes);
    (void)close(share.fd);
    close_all();
}

/* What is no message of a taker's ends the connection and nothing else. */
static void test_hostile(void **state)
{
    (void)state;
    open_all(device_cpu());
    static const struct {
        uint32_t words[4];
        size_t n;
    } sent[] = { { { 0 }, 0 },
                 { { LINK_ASK_PAGES, 0 }, 8 },
                 { { LINK_ASK_PAGES, 8, 1, 2 }, 16 },
                 { { LINK_ASK_SHARE, 0 }, 8 },
                 { { LINK_ASK_SHARE, 4, 0xffffffff }, 12 },
                 { { LINK_ASK_SHARE, UINT32_MAX }, 8 },
                 { { LINK_TAKEN, 0 }, 8 },
                 { { 77, 4, 1 }, 12 } };
    for (size_t i = 0; i < sizeof sent / sizeof *sent; i++) {
        struct link_message m;
        const int s = link_connect(peer_giver_name(w.giver), &test_err);
        assert_true(s >= 0);
        assert_int_equal(write(s, sent[i].words, sent[i].n), sent[i].n);
        if (i) {
            if (link_receive(s, &m, false, NULL)) {
                assert_int_equal(m.kind, LINK_REFUSED);
                link_forget(&m);
            }
        }
        (void)close(s);
    }
    close_all();
}

/* More takers than there are places wait for nobody: who finds none is refused at once. */
static void test_many(void **state)
{
    (void)state;
    open_all(device_cpu());
    answer_all(&widths);
    int socket[3 * PEER_GIVES];
    for (uint32_t i = 0; i < 3 * PEER_GIVES; i++) socket[i] = link_connect(peer_giver_name(w.giver), &test_err);
    for (uint32_t i = 0; i < 3 * PEER_GIVES; i++)
        if (socket[i] >= 0) (void)close(socket[i]);
    const struct test_job t = make(0);
    struct job *j = read_prompt(&t);
    struct engine_import *i = begin(&t);
    for (uint32_t n = 0; take(&t, peer_giver_name(w.giver), "ticket", i, NULL); n++) assert_in_range(n, 0, 1000);
    engine_lease_release(engine_import_commit(i));
    end_prompt(j);
    close_all();
}

int main(void)
{
    if (test_open_plugins()) return 1;
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_ids),        cmocka_unit_test(test_refused),
                                        cmocka_unit_test(test_broken_off), cmocka_unit_test(test_hostile),
                                        cmocka_unit_test(test_many),       cmocka_unit_test(test_reading_alone),
                                        cmocka_unit_test(test_silent),     cmocka_unit_test(test_other_sockets) };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_close_plugins();
    return failed;
}
