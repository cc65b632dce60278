/* test_policies.c: the live policy: a change is stored, then seen; what fails changes nothing. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "gate/policy.h"
#include "gate/test_folder.h"

enum { NOW = 1000000, HOUR = 3600 };

static struct policies *p;
static struct policy_done done;

static void open_policies(void)
{
    struct store store = opened(NULL);
    if (policies_open(&store, &p, &err) != WK_OK) fail_msg("%s", text);
}

static void close_policies(void)
{
    if (policies_close(p, &err) != WK_OK) fail_msg("%s", text);
    p = NULL;
}

static json_t *body(const char *json)
{
    json_t *o = json_loads(json, JSON_ALLOW_NUL, NULL); /* as bodies of requests are read */
    assert_non_null(o);
    return o;
}

static wk_status create(const char *json, int64_t now)
{
    json_t *o = body(json);
    const wk_status status = policies_create_key(p, o, now, &done, &err);
    json_decref(o);
    return status;
}

static wk_status update(const char *id, const char *json)
{
    json_t *o = body(json);
    const wk_status status = policies_update_key(p, id, o, NOW, &done, &err);
    json_decref(o);
    return status;
}

static wk_status replace(enum policy_section section, const char *json)
{
    json_t *o = body(json);
    const wk_status status = policies_replace(p, section, o, NOW, &done, &err);
    json_decref(o);
    return status;
}

static void did(wk_status status, uint64_t generation)
{
    if (status != WK_OK) fail_msg("%s", text);
    assert_int_equal(done.why, POLICY_DONE);
    assert_int_equal(done.generation, generation);
}

static void refused(wk_status status, enum policy_why why, const char *says)
{
    assert_int_not_equal(status, WK_OK);
    assert_int_equal(done.why, why);
    assert_int_equal(done.secret[0], 0);
    if (!strstr(text, says)) fail_msg("\"%s\" does not say \"%s\"", text, says);
}

static enum policy_found find(const char *secret, int64_t now)
{
    const struct policy *s = policies_now(p);
    uint32_t key;
    const enum policy_found found = policy_find(s, secret, strlen(secret), now, &key);
    policy_release(s);
    return found;
}

static uint64_t generation(void)
{
    const struct policy *s = policies_now(p);
    const uint64_t g = s->generation;
    policy_release(s);
    return g;
}

static void test_create(void **state)
{
    (void)state;
    open_policies();
    const struct policy *before = policies_now(p);
    assert_true(before->generation == 0 && before->n_keys == 0);
    did(create("{\"id\":\"a\",\"scopes\":[\"inference\"],\"tenant\":\"t\",\"expires\":2000000}", NOW), 1);
    char secret[SECRET_TEXT];
    uint32_t key;
    memcpy(secret, done.secret, sizeof secret);
    assert_int_equal(find(secret, NOW), POLICY_FOUND);
    assert_int_equal(find(secret, 2000000), POLICY_EXPIRED);
    assert_int_equal(policy_find(before, secret, SECRET_CHARS, NOW, &key), POLICY_UNKNOWN);
    policy_release(before);
    refused(create("{\"id\":\"a\"}", NOW), POLICY_KEY_EXISTS, "id: there is a key \"a\" already");
    refused(create("{\"id\":\"b\",\"scopes\":[\"embed\",\"root\"]}", NOW), POLICY_WRONG, "scopes[1]: \"root\" is not");
    refused(create("{\"name\":\"b\"}", NOW), POLICY_WRONG, "the document: the member \"id\" is missing");
    refused(create("{\"id\":\"b\",\"secrets\":[]}", NOW), POLICY_WRONG, "there is no member \"secrets\"");
    refused(create("{\"id\":\"b\",\"created\":1}", NOW), POLICY_WRONG, "there is no member \"created\"");
    refused(create("{\"id\":\"b\\u0000c\"}", NOW), POLICY_WRONG, "id: has a character NUL");
    refused(create("{\"id\":\"b\",\"name\":\"\\u0000\"}", NOW), POLICY_WRONG, "name: has a character NUL");
    refused(create("{\"id\":\"b\",\"scopes\":[\"embed\\u0000\"]}", NOW), POLICY_WRONG, "is not a scope");
    refused(create("{\"id\":\"b\",\"limits\":{\"tokens_per_minute\":\"none\\u0000\"}}", NOW), POLICY_WRONG,
            "limits.tokens_per_minute: a whole number or");
    refused(create("[]", NOW), POLICY_WRONG, "an object is expected");
    assert_int_equal(generation(), 1);
    close_policies();
    struct bytes file = get(path);
    assert_null(memmem(file.b, file.n, secret, SECRET_CHARS));
    assert_null(memmem(file.b, file.n, secret + 8, 20)); /* behind its hint */
    free(file.b);
    open_policies();
    const struct policy *s = policies_now(p);
    assert_int_equal(policy_find(s, secret, SECRET_CHARS, NOW, &key), POLICY_FOUND);
    assert_true(s->generation == 1 && s->keys[key].created == NOW && s->keys[key].scopes == SCOPE_INFERENCE);
    assert_memory_equal(s->keys[key].secrets[0].hint, secret + 3, SECRET_HINT);
    policy_release(s);
    close_policies();
}

static void test_update(void **state)
{
    (void)state;
    open_policies();
    did(create("{\"id\":\"a\",\"name\":\"A\",\"scopes\":[\"inference\"],\"max_priority\":3}", NOW), 1);
    char secret[SECRET_TEXT];
    memcpy(secret, done.secret, sizeof secret);
    did(update("a", "{\"scopes\":[\"admin\"],\"max_priority\":null,\"limits\":{\"tokens_per_minute\":\"none\"}}"), 2);
    for (int again = 0; again < 2; again++) {
        const struct policy *s = policies_now(p);
        const struct policy_key *key = policy_key_of(s, "a");
        assert_string_equal(key->name, "A");
        assert_true(key->scopes == SCOPE_ADMIN && key->max_priority == -1 && key->created == NOW);
        assert_true(key->limits.tokens_per_minute == POLICY_UNLIMITED && key->limits.requests_per_minute == 0);
        policy_release(s);
        assert_int_equal(find(secret, NOW), POLICY_FOUND);
        close_policies();
        open_policies();
    }
    refused(update("b", "{}"), POLICY_NO_SUCH_KEY, "there is no key of this id");
    refused(update("a", "{\"id\":\"b\"}"), POLICY_WRONG, "there is no member \"id\"");
    refused(update("a", "{\"secrets\":null}"), POLICY_WRONG, "there is no member \"secrets\"");
    refused(update("a", "{\"name\":7}"), POLICY_WRONG, "name: a string is expected, found a whole number");
    did(update("a", "{\"disabled\":true}"), 3);
    assert_int_equal(find(secret, NOW), POLICY_DISABLED);
    did(update("a", "{\"disabled\":null}"), 4);
    assert_int_equal(find(secret, NOW), POLICY_FOUND);
    did(policies_delete_key(p, "a", NOW, &done, &err), 5);
    assert_int_equal(find(secret, NOW), POLICY_UNKNOWN);
    refused(policies_delete_key(p, "a", NOW, &done, &err), POLICY_NO_SUCH_KEY, "there is no key");
    close_policies();
}

static int64_t created_of(const char *id)
{
    const struct policy *s = policies_now(p);
    const int64_t created = policy_key_of(s, id)->created;
    policy_release(s);
    return created;
}

/* Whoever has an id after it was deleted is somebody else, however soon, and however the clock goes. */
static void test_made_again(void **state)
{
    (void)state;
    open_policies();
    did(create("{\"id\":\"a\"}", NOW), 1);
    did(create("{\"id\":\"b\"}", NOW), 2);
    assert_int_equal(created_of("b"), NOW); /* both are there, and have different ids */
    did(policies_delete_key(p, "a", NOW, &done, &err), 3);
    did(create("{\"id\":\"a\"}", NOW), 4);
    assert_int_equal(created_of("a"), NOW + 1);
    did(policies_delete_key(p, "a", NOW, &done, &err), 5);
    did(create("{\"id\":\"a\"}", NOW - HOUR), 6);
    assert_int_equal(created_of("a"), NOW + 2);
    did(create("{\"id\":\"c\"}", NOW + HOUR), 7);
    assert_int_equal(created_of("c"), NOW + HOUR);
    close_policies();
}

static void test_rotate(void **state)
{
    (void)state;
    char one[SECRET_TEXT], two[SECRET_TEXT], three[SECRET_TEXT];
    open_policies();
    did(create("{\"id\":\"a\"}", NOW), 1);
    memcpy(one, done.secret, sizeof one);
    did(policies_rotate_key(p, "a", 100, NOW, &done, &err), 2);
    memcpy(two, done.secret, sizeof two);
    assert_true(find(one, NOW + 99) == POLICY_FOUND && find(two, NOW + 99) == POLICY_FOUND);
    assert_true(find(one, NOW + 100) == POLICY_EXPIRED && find(two, NOW + 100) == POLICY_FOUND);
    refused(policies_rotate_key(p, "a", 100, NOW + 99, &done, &err), POLICY_CONFLICT, "has 2 secrets that are good");
    did(policies_rotate_key(p, "a", 10, NOW + 100, &done, &err), 3); /* the first is over */
    memcpy(three, done.secret, sizeof three);
    assert_int_equal(find(one, NOW), POLICY_UNKNOWN);
    assert_true(find(two, NOW + 109) == POLICY_FOUND && find(two, NOW + 110) == POLICY_EXPIRED);
    assert_int_equal(find(three, NOW + 1000), POLICY_FOUND);
    did(policies_rotate_key(p, "a", 0, NOW + 101, &done, &err), 4); /* both end */
    assert_true(find(two, NOW + 101) == POLICY_UNKNOWN && find(three, NOW + 101) == POLICY_UNKNOWN);
    assert_int_equal(find(done.secret, NOW + 101), POLICY_FOUND);
    refused(policies_rotate_key(p, "a", -1, NOW, &done, &err), POLICY_WRONG, "grace: -1 is not from 0 to");
    refused(policies_rotate_key(p, "a", POLICY_MOST_GRACE_S + 1, NOW, &done, &err), POLICY_WRONG, "grace: ");
    refused(policies_rotate_key(p, "x", 0, NOW, &done, &err), POLICY_NO_SUCH_KEY, "there is no key");
    close_policies();
}

static void test_sections(void **state)
{
    (void)state;
    open_policies();
    did(create("{\"id\":\"a\"}", NOW), 1);
    const struct policy *old = policies_now(p);
    did(replace(POLICY_GUARDRAILS, "{\"blocklist\":[\"x\"]}"), 2);
    did(replace(POLICY_LIMITS, "{\"tokens_per_minute\":5}"), 3);
    did(replace(POLICY_SCHEDULER, "{\"high_priority\":7}"), 4);
    did(replace(POLICY_ROLES, "{\"r\":{\"scopes\":[\"metrics\"]}}"), 5);
    refused(replace(POLICY_GUARDRAILS, "{\"blocklist\":[\"x\",1]}"), POLICY_WRONG,
            "blocklist[1]: a string is expected");
    refused(replace(POLICY_ROLES, "{\"r\":{\"x\":1}}"), POLICY_WRONG, "r: there is no member \"x\"");
    assert_true(old->guardrails.n_phrases == 0 && old->n_keys == 1); /* as it was */
    policy_release(old);
    const struct policy *s = policies_now(p);
    assert_string_equal(s->guardrails.blocklist[0], "x");
    assert_int_equal(s->guardrails_since, 2);
    assert_int_equal(s->defaults.tokens_per_minute, 5);
    assert_true(s->scheduler.has_high_priority && s->scheduler.high_priority == 7);
    assert_int_equal(policy_role_of(s, "r", 1)->scopes, SCOPE_METRICS);
    policy_release(s);
    did(replace(POLICY_GUARDRAILS, "{}"), 6);
    s = policies_now(p);
    assert_true(s->guardrails.n_phrases == 0 && s->guardrails_since == 6 && s->n_keys == 1);
    policy_release(s);
    close_policies();
}

static void use(const char *id, int64_t now)
{
    const struct policy *s = policies_now(p);
    policy_used(policy_key_of(s, id), now);
    policy_release(s);
}

static int64_t used(const char *id)
{
    const struct policy *s = policies_now(p);
    const int64_t at = policy_last_used(policy_key_of(s, id));
    policy_release(s);
    return at;
}

static bool stored(const char *words)
{
    struct bytes file = get(path);
    const bool found = memmem(file.b, file.n, words, strlen(words)) != NULL;
    free(file.b);
    return found;
}

static void test_uses(void **state)
{
    (void)state;
    open_policies();
    did(create("{\"id\":\"a\"}", NOW), 1);
    did(create("{\"id\":\"b\"}", NOW), 2);
    const struct policy *old = policies_now(p);
    use("a", 1000080);
    assert_int_equal(policies_tick(p, NOW + HOUR - 1, &err), WK_OK);
    assert_false(stored("1000080"));
    assert_int_equal(policies_tick(p, NOW + HOUR, &err), WK_OK);
    assert_true(stored("1000080") && stored("\"generation\": 2"));
    use("a", 1000140);
    assert_int_equal(policies_tick(p, NOW + HOUR + 60, &err), WK_OK);
    assert_false(stored("1000140"));
    did(update("b", "{\"name\":\"B\"}"), 3); /* with the next change */
    assert_true(stored("1000140"));
    policy_used(&old->keys[0], 1000200); /* by one that still has an old snapshot */
    policy_release(old);
    assert_int_equal(used("a"), 1000200);
    close_policies(); /* at the end */
    assert_true(stored("1000200"));
    open_policies();
    assert_true(used("a") == 1000200 && used("b") == 0);
    did(policies_delete_key(p, "a", NOW, &done, &err), 4);
    did(create("{\"id\":\"a\"}", NOW), 5);
    assert_int_equal(used("a"), 0); /* another key of this name */
    struct stat before, after;
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(policies_tick(p, NOW + 10 * HOUR, &err), WK_OK);
    close_policies();
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino); /* nothing new, nothing written */
}

/* What the store does not take is not seen; nor is it overwritten later by an older state. */
static void test_not_stored(void **state)
{
    (void)state;
    char moved[80], secret[SECRET_TEXT];
    (void)snprintf(moved, sizeof moved, "%s-moved", folder);
    open_policies();
    did(create("{\"id\":\"a\"}", NOW), 1);
    memcpy(secret, done.secret, sizeof secret);
    assert_int_equal(rename(folder, moved), 0);
    refused(policies_delete_key(p, "a", NOW, &done, &err), POLICY_NOT_STORED, path);
    refused(create("{\"id\":\"b\"}", NOW), POLICY_NOT_STORED, path);
    refused(policies_rotate_key(p, "a", 0, NOW, &done, &err), POLICY_NOT_STORED, path);
    assert_int_equal(generation(), 1);
    assert_int_equal(find(secret, NOW), POLICY_FOUND);
    assert_int_equal(rename(moved, folder), 0);
    use("a", 1000080);
    assert_int_equal(policies_tick(p, NOW + HOUR, &err), WK_OK);
    assert_false(stored("1000080"));
    did(create("{\"id\":\"b\"}", NOW), 2);
    assert_true(stored("1000080"));
    close_policies();
}

static void test_no_store(void **state)
{
    (void)state;
    assert_int_equal(policies_open(NULL, &p, &err), WK_OK);
    assert_int_equal(generation(), 0);
    refused(create("{\"id\":\"a\"}", NOW), POLICY_NOT_STORED, "there is no policy file");
    assert_int_equal(policies_tick(p, NOW, &err), WK_OK);
    close_policies();
}

static void test_bad_file(void **state)
{
    (void)state;
    static const char bad[] = "{\"format\":1,\"generation\":1,\"keys\":[{\"id\":7}]}";
    put(path, bad, strlen(bad));
    for (int i = 0; i < 2; i++) { /* the second time: the lock was given back */
        struct store store = opened(NULL);
        assert_int_equal(policies_open(&store, &p, &err), WK_INVALID);
        assert_null(p);
        assert_string_equal(text, "the policy that is stored cannot be read: keys[0].id: a string is expected, found a "
                                  "whole number");
    }
    /* an encrypted file whose inside is of another generation than its header says */
    assert_int_equal(unlink(path), 0);
    static const char one[] = "{\"format\":1,\"generation\":1}";
    struct store store = opened("pass");
    assert_int_equal(store.save(store.self, one, strlen(one), 2, &err), WK_OK);
    assert_int_equal(policies_open(&store, &p, &err), WK_INVALID);
    assert_non_null(strstr(text, "is of generation 1, and its store says 2"));
}

/* The most keys that there can be: one more is refused, and changes of so many still work. */
static void test_most_keys(void **state)
{
    (void)state;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    (void)fprintf(f, "{\"format\":1,\"generation\":1,\"keys\":[");
    for (int i = 0; i < POLICY_MOST_KEYS; i++)
        (void)fprintf(f, "%s{\"id\":\"k%d\",\"secrets\":[{\"hash\":\"%064d\",\"hint\":\"AbCd\"}]}", i ? "," : "", i, i);
    (void)fprintf(f, "]}");
    (void)fclose(f);
    assert_int_equal(chmod(path, 0600), 0);
    open_policies();
    refused(create("{\"id\":\"a\"}", NOW), POLICY_CONFLICT, "there are 10000 keys");
    did(policies_delete_key(p, "k5000", NOW, &done, &err), 2);
    did(create("{\"id\":\"a\"}", NOW), 3);
    assert_int_equal(find(done.secret, NOW), POLICY_FOUND);
    close_policies();
}

/* ---- threads -------------------------------------------------------------------------------------------------------
 */

static _Atomic bool stop;
static _Atomic uint64_t looked;

/* Generations never go back, each snapshot is whole, and its first key is always found. */
static void *read_on(void *secret)
{
    uint64_t newest = 0, n = 0;
    while (!atomic_load(&stop)) {
        const struct policy *s = policies_now(p);
        uint32_t key;
        if (s->generation < newest || policy_find(s, secret, SECRET_CHARS, NOW, &key) != POLICY_FOUND ||
            strcmp(s->keys[key].id, "a") != 0)
            abort();
        newest = s->generation;
        policy_used(&s->keys[key], NOW + (int64_t)n % 6000);
        policy_release(s);
        n++;
    }
    atomic_fetch_add(&looked, n);
    return NULL;
}

static void *tick_on(void *none)
{
    for (int64_t now = NOW; !atomic_load(&stop); now += HOUR)
        if (policies_tick(p, now, NULL) != WK_OK) abort();
    return none;
}

static void test_threads(void **state)
{
    (void)state;
    enum { READERS = 3, CHANGES = 40 };
    pthread_t threads[READERS + 1];
    char secret[SECRET_TEXT], json[64];
    open_policies();
    did(create("{\"id\":\"a\"}", NOW), 1);
    memcpy(secret, done.secret, sizeof secret);
    atomic_store(&stop, false);
    for (int i = 0; i <= READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < READERS ? read_on : tick_on, secret), 0);
    for (uint64_t i = 0; i < CHANGES; i += 2) {
        (void)snprintf(json, sizeof json, "{\"id\":\"b%u\"}", (unsigned)i);
        did(create(json, NOW), 2 + i);
        did(update("a", "{\"name\":\"A\"}"), 3 + i);
    }
    atomic_store(&stop, true);
    for (int i = 0; i <= READERS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(atomic_load(&looked) > 0);
    close_policies();
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_create),   TEST(test_update),    TEST(test_made_again), TEST(test_rotate),
        TEST(test_sections), TEST(test_uses),      TEST(test_not_stored), TEST(test_no_store),
        TEST(test_bad_file), TEST(test_most_keys), TEST(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
