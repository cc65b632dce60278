/* test_policy_kill.c: kill -9 loses nothing that was acknowledged.
 *
 * A child changes the policy in an encrypted file and tells each change after it was acknowledged, through a pipe. It
 * is killed, and the store is opened: it has all that was told, and at most the one change that was under way. Every
 * second point is a call of the file system, counted from the child's start, before or after which the child kills
 * itself: they go through all calls of the first changes. The others are moments that chance takes.
 *
 * WORKER_KILL_POINTS: how many points, 16 without it; 60 are a slow test, 300 take a minute or two. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>
#include <jansson.h>

#include "gate/policy.h"
#include "gate/test_folder.h"

#define PASS "correct horse"
enum { NOW = 1000000, POINTS = 16, MOST_POINTS = 100000 };

/* ---- the end, at a call --------------------------------------------------------------------------------------------
 */

static int calls, last_call = -1; /* of the child; last_call: twice the call at which it ends, one more: behind it */

static void before_call(void)
{
    if (2 * calls == last_call) (void)raise(SIGKILL);
}

static void after_call(void)
{
    if (2 * calls++ + 1 == last_call) (void)raise(SIGKILL);
}

int __real_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    before_call();
    const int result = __real_openat(dir, name, flags, mode);
    after_call();
    return result;
}

int __real_linkat(int from, const char *name, int to, const char *other, int flags);
int __wrap_linkat(int from, const char *name, int to, const char *other, int flags);
int __wrap_linkat(int from, const char *name, int to, const char *other, int flags)
{
    before_call();
    const int result = __real_linkat(from, name, to, other, flags);
    after_call();
    return result;
}

int __real_renameat(int from, const char *name, int to, const char *other);
int __wrap_renameat(int from, const char *name, int to, const char *other);
int __wrap_renameat(int from, const char *name, int to, const char *other)
{
    before_call();
    const int result = __real_renameat(from, name, to, other);
    after_call();
    return result;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    before_call();
    const int result = __real_fsync(fd);
    after_call();
    return result;
}

/* ---- the child -----------------------------------------------------------------------------------------------------
 */

/* A change that was acknowledged. */
struct told {
    uint64_t generation;
    char secret[SECRET_TEXT]; /* of its key; "": it was deleted */
};

/* What the change is that makes a generation, for all children alike: three for each key "k<slot>", in turn; in the
 * next round three more. */
enum { SLOTS = 20 };
enum what { CREATE, ROTATE, DELETE };
static enum what change_of(uint64_t generation, uint32_t *slot)
{
    const uint64_t i = generation - 1, round = i / 3 / SLOTS;
    *slot = (uint32_t)(i / 3 % SLOTS);
    if (round % 2 == 0) return i % 3 == 0 ? CREATE : ROTATE;
    return i % 3 == 2 ? DELETE : ROTATE;
}

static wk_status change(struct policies *p, uint64_t generation, struct told *t)
{
    struct policy_done done;
    char id[16];
    uint32_t slot;
    wk_status status;
    const enum what what = change_of(generation, &slot);
    (void)snprintf(id, sizeof id, "k%u", slot);
    if (what == CREATE) {
        json_t *o = json_pack("{s:s, s:[s]}", "id", id, "scopes", "inference");
        status = policies_create_key(p, o, NOW, &done, NULL);
        json_decref(o);
    } else if (what == ROTATE) {
        status = policies_rotate_key(p, id, 0, NOW, &done, NULL);
    } else {
        status = policies_delete_key(p, id, NOW, &done, NULL);
    }
    *t = (struct told){ .generation = generation };
    memcpy(t->secret, done.secret, sizeof t->secret);
    return status == WK_OK && done.generation != generation ? WK_INTERNAL : status;
}

static struct policies *open_policies(const struct wk_err *why)
{
    char pass[] = PASS;
    struct store store;
    struct policies *p;
    if (store_file_open(path, pass, strlen(pass), &store, why) != WK_OK) return NULL;
    return policies_open(&store, &p, why) == WK_OK ? p : NULL;
}

/* Never returns. */
static void child(int to, int at_call)
{
    calls = 0; /* the parent made some */
    last_call = at_call;
    struct policies *p = open_policies(NULL);
    if (!p) _exit(1);
    const struct policy *s = policies_now(p);
    uint64_t generation = s->generation;
    policy_release(s);
    for (;;) {
        struct told t;
        if (change(p, ++generation, &t) != WK_OK) _exit(2);
        if (write(to, &t, sizeof t) != (ssize_t)sizeof t) _exit(3);
    }
}

/* ---- what has to be there
 * -------------------------------------------------------------------------------------------- */

/* Each slot as it was acknowledged last. */
static struct {
    bool there;
    char secret[SECRET_TEXT]; /* "": a child made it and was killed before it told */
} slots[SLOTS];
static uint64_t acknowledged;

static void hear(const struct told *t)
{
    uint32_t slot;
    assert_int_equal(t->generation, acknowledged + 1);
    acknowledged = t->generation;
    const enum what what = change_of(acknowledged, &slot);
    slots[slot].there = what != DELETE;
    memcpy(slots[slot].secret, t->secret, sizeof t->secret);
}

/* The store has the last acknowledged generation; or the next, the one under way, and then all of that. */
static void check(void)
{
    struct policies *p = open_policies(&err);
    if (!p) fail_msg("behind generation %llu: %s", (unsigned long long)acknowledged, text);
    const struct policy *s = policies_now(p);
    if (s->generation != acknowledged && s->generation != acknowledged + 1)
        fail_msg("generation %llu, acknowledged was %llu", (unsigned long long)s->generation,
                 (unsigned long long)acknowledged);
    if (s->generation > acknowledged) hear(&(struct told){ .generation = s->generation });
    uint32_t keys = 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        char id[16];
        uint32_t key;
        (void)snprintf(id, sizeof id, "k%u", i);
        assert_int_equal(policy_key_of(s, id) != NULL, slots[i].there);
        keys += slots[i].there;
        if (!slots[i].secret[0]) continue;
        assert_int_equal(policy_find(s, slots[i].secret, SECRET_CHARS, NOW, &key), POLICY_FOUND);
        assert_string_equal(s->keys[key].id, id);
    }
    assert_int_equal(s->n_keys, keys);
    policy_release(s);
    assert_int_equal(policies_close(p, &err), WK_OK);
}

static void one_point(int point, unsigned *random)
{
    int ends[2], status = 0;
    const int at_call = point % 2 == 0 ? point / 2 : -1;
    const int wait_for = rand_r(random) % 10;
    assert_int_equal(pipe(ends), 0);
    (void)fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)close(ends[0]);
        child(ends[1], at_call);
    }
    (void)close(ends[1]);
    struct told t;
    int heard = 0;
    bool killed = false;
    for (;;) { /* what is in the pipe when it is killed was acknowledged, too */
        if (at_call < 0 && heard >= wait_for && !killed) {
            const struct timespec moment = { 0, rand_r(random) % 3000 * 1000 };
            (void)nanosleep(&moment, NULL);
            assert_int_equal(kill(pid, SIGKILL), 0);
            killed = true;
        }
        const ssize_t n = read(ends[0], &t, sizeof t);
        if (n == 0) break;
        assert_int_equal(n, sizeof t);
        hear(&t);
        heard++;
    }
    (void)close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail_msg("point %d: the child ended by itself: %d", point, WEXITSTATUS(status));
}

static void test_kill(void **state)
{
    (void)state;
    const char *wanted = getenv("WORKER_KILL_POINTS");
    const long points = wanted ? strtol(wanted, NULL, 10) : POINTS;
    unsigned random = 1;
    assert_in_range(points, 1, MOST_POINTS);
    for (int point = 0; point < points; point++) {
        one_point(point, &random);
        check();
    }
    print_message("killed at %ld points; %llu changes were acknowledged, and are there\n", points,
                  (unsigned long long)acknowledged);
    assert_true(acknowledged > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_setup_teardown(test_kill, make_folder, remove_folder) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
