/* test_store_file.c: the policy's file: nothing that is not whole, its own and the newest is read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "gate/sealed.h"
#include "gate/store.h"
#include "gate/test_folder.h"

#define PASS "correct horse"
#define DOCUMENT "{\"format\":1,\"generation\":7,\"marker\":\"plain text\"}"

static void save(struct store *s, const char *json, uint64_t generation)
{
    if (s->save(s->self, json, strlen(json), generation, &err) != WK_OK) fail_msg("%s", text);
}

/* The store's document, which has to be `json`. */
static void expect(struct store *s, const char *json, uint64_t generation)
{
    char *found;
    size_t n;
    uint64_t g;
    if (s->load(s->self, &found, &n, &g, &err) != WK_OK) fail_msg("%s", text);
    if (!json) {
        assert_null(found);
        return;
    }
    assert_int_equal(n, strlen(json));
    assert_string_equal(found, json);
    assert_int_equal(g, generation);
    free(found);
}

/* Neither opening nor loading gives anything, and the text has these words. */
static void refused_open(struct store *s, const char *says)
{
    char *found = NULL;
    size_t n;
    uint64_t g;
    text[0] = '\0';
    const wk_status status = s->load(s->self, &found, &n, &g, &err);
    if (status != WK_INVALID || found) fail_msg("loaded with status %d, not refused: %s", status, says);
    if (!strstr(text, says)) fail_msg("\"%s\" does not say \"%s\"", text, says);
}

static void refused(const char *passphrase, const char *says)
{
    struct store s;
    const wk_status status = open_store(passphrase, &s);
    if (status == WK_OK) {
        refused_open(&s, says);
        s.close(s.self);
    } else {
        assert_int_equal(status, WK_INVALID);
        if (!strstr(text, says)) fail_msg("\"%s\" does not say \"%s\"", text, says);
    }
}

static void test_encrypted(void **state)
{
    (void)state;
    struct stat st;
    struct store s = opened(PASS);
    expect(&s, NULL, 0);
    assert_int_equal(access(path, F_OK), -1);
    save(&s, DOCUMENT, 7);
    expect(&s, DOCUMENT, 7);
    struct bytes one = get(path);
    save(&s, DOCUMENT, 8);
    struct bytes two = get(path);
    assert_int_equal(one.n, SEALED_HEADER + strlen(DOCUMENT) + SEALED_TAG);
    assert_null(memmem(one.b, one.n, "plain", 5));
    assert_memory_equal(one.b + 48, two.b + 48, 16);      /* the salt of the master stays */
    assert_true(memcmp(one.b + 64, two.b + 64, 16) != 0); /* that of a write is new */
    assert_true(memcmp(one.b + 80, two.b + 80, 12) != 0); /* and so is the nonce */
    assert_true(memcmp(one.b + 92, two.b + 92, 16) != 0);
    free(one.b);
    free(two.b);
    s.close(s.self);
    assert_true(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    assert_true(stat(state_path, &st) == 0 && (st.st_mode & 0777) == 0600);
    s = opened(PASS);
    expect(&s, DOCUMENT, 8);
    s.close(s.self);
}

static void test_plain(void **state)
{
    (void)state;
    struct store s = opened(NULL);
    expect(&s, NULL, 0);
    save(&s, DOCUMENT, 7);
    expect(&s, DOCUMENT, 0);
    s.close(s.self);
    struct bytes b = get(path);
    assert_memory_equal(b.b, DOCUMENT, b.n);
    free(b.b);
    assert_int_equal(access(state_path, F_OK), -1);
    static const mode_t modes[] = { 0640, 0620, 0604, 0602, 0610, 0601, 0666 };
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        assert_int_equal(chmod(path, modes[i]), 0);
        refused(NULL, "must be its owner's alone: chmod 600");
    }
    assert_int_equal(chmod(path, 0400), 0);
    s = opened(NULL);
    expect(&s, DOCUMENT, 0);
    s.close(s.self);
}

static void test_passphrases(void **state)
{
    (void)state;
    struct store s = opened(PASS);
    save(&s, DOCUMENT, 7);
    s.close(s.self);
    refused("correct horsf", "the passphrase is wrong, or the file is damaged");
    refused("correct horse ", "the passphrase is wrong");
    refused("c", "the passphrase is wrong");
    refused(NULL, "is encrypted: give its passphrase");
    put(path, DOCUMENT, strlen(DOCUMENT));
    refused(PASS, "is not encrypted, but there is a passphrase");
}

/* One bit of every byte, and all bits of it. What stands in the header is tried from the start; what follows with the
 * key that the store has, since to derive it for each byte would take minutes. */
static void test_flipped(void **state)
{
    (void)state;
    struct store s = opened(PASS);
    save(&s, DOCUMENT, 7);
    struct bytes b = get(path);
    for (size_t i = 0; i < b.n; i++) {
        const unsigned char right = b.b[i];
        for (int all = 0; all < 2; all++) {
            b.b[i] = (unsigned char)(right ^ (all ? 0xffu : 1u << i % 8));
            put(path, b.b, b.n);
            refused_open(&s, path);
        }
        b.b[i] = right;
    }
    s.close(s.self);
    for (size_t i = 0; i < SEALED_HEADER; i++) {
        b.b[i] = (unsigned char)(b.b[i] ^ 1u << i % 8);
        put(path, b.b, b.n);
        refused(PASS, path);
        b.b[i] = (unsigned char)(b.b[i] ^ 1u << i % 8);
    }
    put(path, b.b, b.n);
    free(b.b);
    s = opened(PASS);
    expect(&s, DOCUMENT, 7);
    s.close(s.self);
}

static void test_truncated(void **state)
{
    (void)state;
    struct store s = opened(PASS);
    save(&s, DOCUMENT, 7);
    struct bytes b = get(path);
    for (size_t n = 0; n < b.n; n++) {
        put(path, b.b, n);
        refused_open(&s, path);
    }
    b.b[b.n] = 0;
    put(path, b.b, b.n + 1);
    refused_open(&s, "its header says");
    s.close(s.self);
    for (size_t n = 0; n < SEALED_HEADER + SEALED_TAG + 3; n++) {
        put(path, b.b, n);
        refused(PASS, path);
    }
    free(b.b);
}

/* Parameters that would cost memory or time are refused before they are used. */
static void test_hostile_kdf(void **state)
{
    (void)state;
    static const struct {
        size_t at;
        unsigned char value;
    } cases[] = { { 12, 2 }, { 16, 14 }, { 16, 18 }, { 16, 63 }, { 17, 1 }, { 20, 7 },
                  { 20, 9 }, { 23, 1 },  { 24, 0 },  { 24, 5 },  { 27, 1 }, { 28, 1 } };
    struct store s = opened(PASS);
    save(&s, DOCUMENT, 7);
    s.close(s.self);
    struct bytes b = get(path);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const unsigned char right = b.b[cases[i].at];
        b.b[cases[i].at] = cases[i].value;
        put(path, b.b, b.n);
        refused(PASS, "allowed are scrypt (1) with log2 N 15 to 17, r 8, p 1 to 4");
        b.b[cases[i].at] = right;
    }
    b.b[8] = 2;
    put(path, b.b, b.n);
    refused(PASS, "has version 2 of the encrypted form; this worker reads version 1");
    free(b.b);
}

static void test_rollback(void **state)
{
    (void)state;
    struct store s = opened(PASS);
    save(&s, "{\"one\"}", 1);
    struct bytes one = get(path), state_one = get(state_path);
    save(&s, "{\"two\"}", 2);
    struct bytes two = get(path), state_two = get(state_path);
    put(path, one.b, one.n);
    refused_open(&s, "is of generation 1, and");
    s.close(s.self);
    refused(PASS, "names 2: an older policy was put back. Put the newest back; or,");
    /* the newest again: its state may be one behind, after a crash between the two writes, and is brought forward */
    put(path, two.b, two.n);
    put(state_path, state_one.b, state_one.n);
    s = opened(PASS);
    expect(&s, "{\"two\"}", 2);
    s.close(s.self);
    struct bytes now = get(state_path);
    assert_int_equal(now.n, state_two.n);
    assert_memory_equal(now.b, state_two.b, now.n);
    /* the administrator's word that the older is meant */
    put(path, one.b, one.n);
    assert_int_equal(unlink(state_path), 0);
    s = opened(PASS);
    expect(&s, "{\"one\"}", 1);
    s.close(s.self);
    free(now.b);
    now = get(state_path);
    assert_memory_equal(now.b, state_one.b, now.n);
    /* no policy at all is the oldest */
    assert_int_equal(unlink(path), 0);
    refused(PASS, "is missing, and");
    assert_int_equal(unlink(state_path), 0);
    s = opened(PASS);
    expect(&s, NULL, 0);
    save(&s, "{\"new\"}", 1);
    s.close(s.self);
    put(state_path, state_one.b, state_one.n); /* of another key: the salt is another */
    refused(PASS, "does not belong to");
    free(one.b), free(two.b), free(state_one.b), free(state_two.b), free(now.b);
}

static void test_state_damaged(void **state)
{
    (void)state;
    struct store s = opened(PASS);
    save(&s, DOCUMENT, 12);
    struct bytes b = get(state_path);
    for (size_t i = 0; i < b.n; i++) {
        b.b[i] = (unsigned char)(b.b[i] ^ 1u << i % 8);
        put(state_path, b.b, b.n);
        refused_open(&s, "does not belong to");
        b.b[i] = (unsigned char)(b.b[i] ^ 1u << i % 8);
        put(state_path, b.b, i);
        refused_open(&s, "does not belong to");
    }
    b.b[b.n] = '\n';
    put(state_path, b.b, b.n + 1);
    refused_open(&s, "does not belong to");
    put(state_path, b.b, b.n);
    expect(&s, DOCUMENT, 12);
    free(b.b);
    s.close(s.self);
}

static void test_no_file(void **state)
{
    (void)state;
    struct store s;
    assert_int_equal(mkdir(path, 0700), 0);
    refused(NULL, "is no regular file");
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    refused(PASS, "is no regular file");
    assert_int_equal(unlink(path), 0);
    put(path, "", 0);
    refused(PASS, "is no encrypted policy file");
    put(path, "", 0);
    assert_int_equal(truncate(path, STORE_MOST_BYTES + 1024), 0);
    refused(NULL, "at most");
    (void)snprintf(path, sizeof path, "%s/missing/policy", folder);
    assert_int_equal(open_store(NULL, &s), WK_IO);
    assert_non_null(strstr(text, "policy.lock cannot be created: No such file"));
}

static void test_two_writers(void **state)
{
    (void)state;
    struct store s = opened(PASS), other;
    assert_int_equal(open_store(PASS, &other), WK_IO);
    assert_non_null(strstr(text, "is in use by another process"));
    (void)fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        char pass[] = PASS;
        _exit(store_file_open(path, pass, strlen(pass), &other, NULL) == WK_IO ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    s.close(s.self);
    s = opened(PASS); /* the lock ends with its holder */
    s.close(s.self);
}

/* A link is the file that it leads to: one lock, one newest generation. */
static void test_by_a_link(void **state)
{
    (void)state;
    char name[sizeof path];
    struct store s = opened(PASS), other;
    save(&s, DOCUMENT, 7);
    struct bytes older = get(path);
    save(&s, DOCUMENT, 8);
    (void)snprintf(name, sizeof name, "%s", path);
    (void)snprintf(path, sizeof path, "%s/link", folder);
    assert_int_equal(symlink("policy", path), 0);
    assert_int_equal(open_store(PASS, &other), WK_IO);
    assert_non_null(strstr(text, "policy is in use by another process"));
    s.close(s.self);
    s = opened(PASS);
    expect(&s, DOCUMENT, 8);
    save(&s, DOCUMENT, 9);
    s.close(s.self);
    put(name, older.b, older.n);
    refused(PASS, "names 9: an older policy was put back");
    free(older.b);
}

static void test_long(void **state)
{
    (void)state;
    struct store s = opened(PASS);
    char *json = malloc(STORE_MOST_BYTES + 2);
    assert_non_null(json);
    memset(json, 'x', STORE_MOST_BYTES + 1);
    json[STORE_MOST_BYTES + 1] = '\0';
    assert_int_equal(s.save(s.self, json, STORE_MOST_BYTES + 1, 1, &err), WK_INVALID);
    json[STORE_MOST_BYTES] = '\0';
    save(&s, json, 1);
    expect(&s, json, 1);
    free(json);
    s.close(s.self);
}

/* A folder that is gone: a failed save says so, and the document before it is still there afterwards. */
static void test_failed_save(void **state)
{
    (void)state;
    char moved[80];
    struct store s = opened(PASS);
    save(&s, "{\"one\"}", 1);
    (void)snprintf(moved, sizeof moved, "%s-moved", folder);
    assert_int_equal(rename(folder, moved), 0);
    assert_int_equal(s.save(s.self, "{\"two\"}", 7, 2, &err), WK_IO);
    assert_non_null(strstr(text, path));
    assert_int_equal(rename(moved, folder), 0);
    expect(&s, "{\"one\"}", 1);
    save(&s, "{\"two\"}", 2);
    expect(&s, "{\"two\"}", 2);
    s.close(s.self);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_encrypted),   TEST(test_plain),       TEST(test_passphrases), TEST(test_flipped),
        TEST(test_truncated),   TEST(test_hostile_kdf), TEST(test_rollback),    TEST(test_state_damaged),
        TEST(test_no_file),     TEST(test_two_writers), TEST(test_by_a_link),   TEST(test_long),
        TEST(test_failed_save),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
