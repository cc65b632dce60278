/* test_audit.c: what stands in the audit log, that every change of it is found, and that what was acknowledged is there
 * after crashes and full disks. */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include "audit.h"
#include "base/sha256.h"
#include "log/words.h"

static const char key[] = "0123456789abcdef0123456789abcdef";
static char folder[] = "/tmp/test_audit.XXXXXX";
static char error_text[512];
static const struct wk_err err = { error_text, sizeof error_text };

/* ---- helpers ---------------------------------------------------------------------------------------------------- */

static int enter(void **state)
{
    (void)state;
    (void)signal(SIGXFSZ, SIG_IGN);
    return !mkdtemp(folder) || chdir(folder) != 0;
}

static void clear(const char *pattern)
{
    glob_t g;
    if (glob(pattern, 0, NULL, &g)) return;
    for (size_t i = 0; i < g.gl_pathc; i++) (void)unlink(g.gl_pathv[i]);
    globfree(&g);
}

static int leave(void **state)
{
    clear("*");
    return chdir("/") != 0 || rmdir(folder) != 0 || *state != NULL;
}

static struct audit *open_log(const struct audit_options *o)
{
    struct audit_options full = *o;
    struct audit *a;
    if (!full.path) full.path = "log";
    full.key = key;
    full.key_len = sizeof key - 1;
    if (audit_open(&full, &a, &err)) fail_msg("%s", error_text);
    return a;
}

static void note(struct audit *a, const char *text)
{
    const struct audit_entry e = { .kind = AUDIT_REQUEST, .request = "r", .note = text };
    if (audit_write(a, &e, &err)) fail_msg("%s", error_text);
}

static void write_notes(const struct audit_options *o, int n)
{
    struct audit *a = open_log(o);
    for (int i = 0; i < n; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "%d", i);
        note(a, text);
    }
    audit_close(a);
}

/* The files of the log "log". A crash in the middle of a rotation leaves none of that very name. */
static glob_t files_of_log(void)
{
    glob_t g = { 0 };
    (void)glob("log", 0, NULL, &g);
    (void)glob("log.0*", g.gl_pathc ? GLOB_APPEND : 0, NULL, &g);
    (void)glob("log.[1-9]", g.gl_pathc ? GLOB_APPEND : 0, NULL, &g);
    assert_true(g.gl_pathc > 0);
    return g;
}

/* Of all of them, or of one. */
static struct audit_verdict verify(const char *only, const char *public_key)
{
    struct audit_verdict v;
    glob_t g = files_of_log();
    const char *const *paths = only ? &only : (const char *const *)g.gl_pathv;
    if (audit_verify(paths, only ? 1 : g.gl_pathc, key, sizeof key - 1, public_key, &v, &err))
        fail_msg("%s", error_text);
    v.file = NULL;
    globfree(&g);
    return v;
}

static char *read_file(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    char *bytes = malloc(1 << 22);
    assert_non_null(bytes);
    *n = f ? fread(bytes, 1, (1 << 22) - 1, f) : 0;
    if (f) (void)fclose(f);
    bytes[*n] = '\0';
    return bytes;
}

static void write_file(const char *path, const char *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(chmod(path, 0600), 0);
}

static void expect(struct audit_verdict v, enum audit_break broken, uint64_t line)
{
    if (v.broken != broken || v.line != line)
        fail_msg("%s in line %lu, expected %s in line %lu", audit_break_name(v.broken), (unsigned long)v.line,
                 audit_break_name(broken), (unsigned long)line);
}

/* ---- what stands there ------------------------------------------------------------------------------------------ */

static json_t *line_of(const char *bytes, int number)
{
    for (; number > 0; number--) bytes = strchr(bytes, '\n') + 1;
    json_t *line = json_loadb(bytes, strcspn(bytes, "\n"), 0, NULL);
    assert_non_null(line);
    return line;
}

static const char *text_of(const json_t *line, const char *name)
{
    const char *text = json_string_value(json_object_get(line, name));
    if (!text) fail_msg("no %s", name);
    return text;
}

static const struct audit_entry full = {
    .kind = AUDIT_REQUEST,
    .request = "chatcmpl-1",
    .key = "k_1",
    .tenant = "a \"b\" \\ \n\x1b[31m \xc2\x9b \xff\xed\xa0\x80 \u00e9\u65e5",
    .address = "192.0.2.1",
    .route = "POST /v1/chat/completions",
    .model = "m",
    .status = 200,
    .code = "OK",
    .counted = true,
    .tokens_in = 12,
    .tokens_out = UINT64_C(1) << 40,
    .duration_us = 5,
    .prompt = { .bytes = "the secret prompt", .len = 17 },
    .response = { .bytes = "", .len = 0 },
    .decisions = (const char *const[]){ "opa:1", "blocklist:7" },
    .n_decisions = 2,
};

static void test_an_entry(void **state)
{
    (void)state;
    char hex[65];
    size_t n;
    struct audit *a = open_log(&(struct audit_options){ 0 });
    assert_int_equal(audit_write(a, &full, &err), WK_OK);
    const struct audit_entry admin = { .kind = AUDIT_ADMIN,
                                       .action = "api-keys.update",
                                       .target = "k_1",
                                       .fields = (const char *const[]){ "scopes", "limits.tokens" },
                                       .n_fields = 2 };
    assert_int_equal(audit_write(a, &admin, &err), WK_OK);
    audit_close(a);
    char *bytes = read_file("log", &n);
    assert_null(strstr(bytes, "secret"));
    json_t *line = line_of(bytes, 0);
    assert_int_equal(json_integer_value(json_object_get(line, "seq")), 1);
    assert_string_equal(text_of(line, "kind"), "request");
    assert_string_equal(text_of(line, "tenant"), "a \"b\" \\ \n\x1b[31m \xc2\x9b "
                                                 "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \u00e9\u65e5");
    assert_int_equal(json_integer_value(json_object_get(line, "tokens_out")), INT64_C(1) << 40);
    assert_int_equal(json_integer_value(json_object_get(line, "tokens_cached")), 0);
    assert_true(log_hmac("the secret prompt", 17, hex));
    assert_string_equal(text_of(line, "prompt_hmac"), hex);
    assert_true(log_hmac("", 0, hex));
    assert_string_equal(text_of(line, "response_hmac"), hex);
    assert_null(json_object_get(line, "prompt_sha256"));
    assert_int_equal(json_array_size(json_object_get(line, "decisions")), 2);
    assert_int_equal(strlen(text_of(line, "time")), 27);
    json_t *next = line_of(bytes, 1);
    assert_string_equal(text_of(next, "prev"), text_of(line, "mac"));
    assert_string_equal(json_string_value(json_array_get(json_object_get(next, "fields"), 1)), "limits.tokens");
    assert_null(json_object_get(next, "status"));
    json_decref(line);
    json_decref(next);
    line = line_of(bytes, 2);
    assert_string_equal(text_of(line, "kind"), "checkpoint");
    assert_int_equal(json_integer_value(json_object_get(line, "lines")), 3);
    json_decref(line);
    for (const char *p = bytes; *p; p++) assert_true(*p == '\n' || ((unsigned char)*p >= 0x20 && *p != 0x7f));
    free(bytes);
    struct stat s;
    assert_int_equal(stat("log", &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    const struct audit_verdict v = verify(NULL, NULL);
    expect(v, AUDIT_WHOLE, 3);
    assert_int_equal(v.lines, 3);
    assert_int_equal(v.checkpoints, 1);
    assert_true(v.stopped && v.head);
    clear("*");
}

static void test_texts_where_they_are_asked_for(void **state)
{
    (void)state;
    char hex[65];
    size_t n;
    struct audit *a = open_log(&(struct audit_options){ .raw = true, .plain_sha256 = true });
    assert_int_equal(audit_write(a, &full, &err), WK_OK);
    audit_close(a);
    char *bytes = read_file("log", &n);
    json_t *line = line_of(bytes, 0);
    assert_string_equal(text_of(line, "prompt"), "the secret prompt");
    assert_string_equal(text_of(line, "response"), "");
    assert_true(sha256_hex("the secret prompt", 17, hex));
    assert_string_equal(text_of(line, "prompt_sha256"), hex);
    json_decref(line);
    free(bytes);
    /* A line far larger than any buffer, and the chain goes on behind it. */
    char *large = malloc(1 << 20);
    assert_non_null(large);
    memset(large, '\n', 1 << 20);
    a = open_log(&(struct audit_options){ .raw = true });
    const struct audit_entry e = { .kind = AUDIT_REQUEST, .prompt = { .bytes = large, .len = 1 << 20 } };
    assert_int_equal(audit_write(a, &e, &err), WK_OK);
    audit_close(a);
    write_notes(&(struct audit_options){ 0 }, 1);
    free(large);
    expect(verify(NULL, NULL), AUDIT_WHOLE, 6);
    clear("*");
}

/* ---- changes ---------------------------------------------------------------------------------------------------- */

enum { LINES = 12 /* and a checkpoint */ };

/* A log, and where each of its lines begins. */
static char *make_log(size_t begin[LINES + 2], size_t *n)
{
    clear("*");
    write_notes(&(struct audit_options){ 0 }, LINES);
    char *bytes = read_file("log", n);
    size_t at = 0;
    for (int i = 0; i <= LINES; i++) {
        begin[i] = at;
        at += strcspn(bytes + at, "\n") + 1;
    }
    begin[LINES + 1] = at;
    assert_int_equal(at, *n);
    return bytes;
}

static void test_every_byte_counts(void **state)
{
    (void)state;
    size_t begin[LINES + 2], n;
    char *bytes = make_log(begin, &n);
    int line = 0;
    for (size_t i = 0; i < n - 1; i++) {
        if (i == begin[line + 1]) line++;
        if (i % 7 && line > 1 && line < LINES) continue;
        const char was = bytes[i];
        bytes[i] = (char)(was ^ (i % 2 ? 1 : 4));
        if (bytes[i] == '\n') bytes[i] = 'x';
        write_file("log", bytes, n);
        /* Without its newline a line is one with the next. */
        expect(verify(NULL, NULL), AUDIT_EDITED, (uint64_t)line + 1);
        bytes[i] = was;
    }
    free(bytes);
}

/* The lines of a log in another order; those not named are left out. */
static void arrange(const char *bytes, const size_t *begin, const int *order, int n)
{
    char *out = malloc(1 << 20);
    size_t len = 0;
    assert_non_null(out);
    for (int i = 0; i < n; i++) {
        const size_t size = begin[order[i] + 1] - begin[order[i]];
        memcpy(out + len, bytes + begin[order[i]], size);
        len += size;
    }
    write_file("log", out, len);
    free(out);
}

static void test_every_line_counts(void **state)
{
    (void)state;
    size_t begin[LINES + 2], n;
    char *bytes = make_log(begin, &n);
    for (int line = 0; line <= LINES; line++) {
        int order[LINES + 2], k = 0;
        for (int i = 0; i <= LINES; i++)
            if (i != line) order[k++] = i;
        arrange(bytes, begin, order, k);
        expect(verify(NULL, NULL), line == LINES ? AUDIT_TRUNCATED : AUDIT_REMOVED, (uint64_t)line + 1);
        /* Cut off from here on. */
        for (int i = 0; i < line; i++) order[i] = i;
        arrange(bytes, begin, order, line);
        const struct audit_verdict cut = verify(NULL, NULL);
        expect(cut, AUDIT_TRUNCATED, (uint64_t)line + 1);
        assert_int_equal(cut.expected, LINES + 1);
        /* Exchanged with each later one. */
        for (int other = line + 1; other <= LINES; other++) {
            for (int i = 0; i <= LINES; i++) order[i] = i == line ? other : i == other ? line : i;
            arrange(bytes, begin, order, LINES + 1);
            expect(verify(NULL, NULL), AUDIT_REORDERED, (uint64_t)line + 1);
        }
        /* A copy of each one in front of it. */
        for (int copy = 0; copy <= LINES; copy++) {
            for (int i = 0; i <= LINES + 1; i++) order[i] = i < line ? i : i == line ? copy : i - 1;
            arrange(bytes, begin, order, LINES + 2);
            expect(verify(NULL, NULL), AUDIT_INSERTED, (uint64_t)line + (copy == line ? 2 : 1));
        }
        if (line < 2) continue;
        /* Forged: the one before with other words. */
        char *forged = malloc(n + 512);
        assert_non_null(forged);
        memcpy(forged, bytes, begin[line]);
        const int more = snprintf(forged + begin[line], 512,
                                  "{\"seq\":%d,\"time\":\"2026-01-01T00:00:00.000000Z\",\"kind\":"
                                  "\"request\",\"prev\":\"%064d\",\"mac\":\"%064d\"}\n",
                                  line + 1, 0, 0);
        memcpy(forged + begin[line] + more, bytes + begin[line], n - begin[line]);
        write_file("log", forged, n + (size_t)more);
        expect(verify(NULL, NULL), AUDIT_INSERTED, (uint64_t)line + 1);
        free(forged);
    }
    free(bytes);
}

static void test_head_counts(void **state)
{
    (void)state;
    size_t begin[LINES + 2], n, len;
    free(make_log(begin, &n));
    char *head = read_file("log.head", &len);
    for (size_t i = 0; i < len; i++) {
        head[i] ^= 2;
        write_file("log.head", head, len);
        expect(verify(NULL, NULL), AUDIT_HEAD, LINES + 1);
        head[i] ^= 2;
    }
    write_file("log.head", head, 0);
    expect(verify(NULL, NULL), AUDIT_HEAD, LINES + 1);
    assert_int_equal(unlink("log.head"), 0);
    const struct audit_verdict v = verify(NULL, NULL);
    expect(v, AUDIT_WHOLE, LINES + 1);
    assert_false(v.head);
    /* Of another log with the same key. */
    clear("*");
    write_notes(&(struct audit_options){ 0 }, LINES);
    write_file("log.head", head, len);
    expect(verify(NULL, NULL), AUDIT_HEAD, LINES + 1);
    free(head);
    clear("*");
}

static void test_cut_while_nobody_writes(void **state)
{
    (void)state;
    size_t begin[LINES + 2], n;
    char *bytes = make_log(begin, &n);
    assert_int_equal(truncate("log", (off_t)begin[5]), 0);
    write_notes(&(struct audit_options){ 0 }, 3); /* the next start says so, and the log stays marked */
    const struct audit_verdict v = verify(NULL, NULL);
    expect(v, AUDIT_TRUNCATED, 6);
    free(bytes);
    clear("*");
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static void test_rotation(void **state)
{
    (void)state;
    glob_t g;
    for (int round = 0; round < 3; round++)
        write_notes(&(struct audit_options){ .rotate_bytes = 5000, .sync = round == 1 }, 200);
    struct audit_verdict v = verify(NULL, NULL);
    assert_int_equal(v.broken, AUDIT_WHOLE);
    assert_int_equal(v.first_seq, 1);
    assert_int_equal(v.last_seq, v.lines);
    assert_int_equal(glob("log.0*", 0, NULL, &g), 0);
    assert_true(g.gl_pathc > 20);
    assert_int_equal(v.lines, 600 + 2 * g.gl_pathc + 3); /* a checkpoint and a continue each; the ends */
    for (size_t i = 0; i < g.gl_pathc; i++) {
        struct stat s;
        assert_int_equal(stat(g.gl_pathv[i], &s), 0);
        assert_int_equal(s.st_mode & 0777, 0600);
        assert_true(s.st_size < 7000);
        v = verify(g.gl_pathv[i], NULL); /* each by itself */
        assert_int_equal(v.broken, AUDIT_WHOLE);
        assert_false(v.head);
    }
    assert_int_equal(rename(g.gl_pathv[4], "away"), 0);
    v = verify(NULL, NULL);
    expect(v, AUDIT_REMOVED, 1);
    assert_int_equal(rename("away", g.gl_pathv[4]), 0);
    assert_int_equal(verify(NULL, NULL).broken, AUDIT_WHOLE);
    /* The first line of a later file. */
    size_t n;
    char *bytes = read_file(g.gl_pathv[4], &n);
    const size_t first = strcspn(bytes, "\n") + 1;
    write_file(g.gl_pathv[4], bytes + first, n - first);
    expect(verify(g.gl_pathv[4], NULL), AUDIT_REMOVED, 1);
    expect(verify(NULL, NULL), AUDIT_REMOVED, 1);
    free(bytes);
    globfree(&g);
    clear("*");
}

static void test_reopen(void **state)
{
    (void)state;
    struct audit *a = open_log(&(struct audit_options){ 0 });
    note(a, "one");
    assert_int_equal(audit_reopen(a, &err), WK_OK); /* nothing was moved */
    assert_int_equal(rename("log", "log.1"), 0);
    note(a, "two");
    assert_int_equal(audit_reopen(a, &err), WK_OK);
    note(a, "three");
    assert_int_equal(rename("log", "log.2"), 0);
    write_file("log", "other\n", 6);
    assert_int_equal(audit_reopen(a, &err), WK_INVALID);
    note(a, "four");
    assert_int_equal(unlink("log"), 0);
    assert_int_equal(audit_reopen(a, &err), WK_OK);
    audit_close(a);
    struct audit_verdict v = verify(NULL, NULL);
    assert_int_equal(v.broken, AUDIT_WHOLE);
    assert_int_equal(v.lines, 4 + 2 * 2 + 1);
    /* Moved away after an orderly stop: the chain goes on from the head. */
    assert_int_equal(rename("log", "log.3"), 0);
    write_notes(&(struct audit_options){ 0 }, 1);
    v = verify(NULL, NULL);
    assert_int_equal(v.broken, AUDIT_WHOLE);
    assert_int_equal(v.lines, 4 + 2 * 2 + 1 + 3);
    clear("*");
}

static wk_status open_status(const char *path, const char *with, const char *signing)
{
    struct audit *a;
    error_text[0] = '\0';
    const struct audit_options o = { .path = path, .key = with, .key_len = strlen(with), .signing_key = signing };
    const wk_status status = audit_open(&o, &a, &err);
    if (status)
        assert_null(a);
    else
        audit_close(a);
    return status;
}

static void test_files_that_are_refused(void **state)
{
    (void)state;
    struct audit *a = open_log(&(struct audit_options){ 0 });
    assert_int_equal(open_status("log", key, NULL), WK_IO);
    assert_non_null(strstr(error_text, "another process"));
    note(a, "x");
    audit_close(a);
    assert_int_equal(open_status("log", "another key of 16 bytes and more", NULL), WK_INVALID);
    assert_non_null(strstr(error_text, "not written with this key"));
    assert_int_equal(open_status("log", "short", NULL), WK_INVALID);
    assert_int_equal(open_status("no/such/folder/log", key, NULL), WK_IO);
    assert_int_equal(symlink("log", "link"), 0);
    assert_int_equal(open_status("link", key, NULL), WK_IO);
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_int_equal(open_status("fifo", key, NULL), WK_INVALID);
    assert_non_null(strstr(error_text, "regular"));
    assert_int_equal(chmod("log", 0640), 0);
    assert_int_equal(open_status("log", key, NULL), WK_INVALID);
    assert_non_null(strstr(error_text, "chmod 600"));
    assert_int_equal(chmod("log", 0600), 0);
    assert_int_equal(open_status("log", key, "log"), WK_INVALID);
    assert_non_null(strstr(error_text, "Ed25519"));
    assert_int_equal(open_status("log", key, NULL), WK_OK);
    write_file("other", "not a log\n", 10);
    assert_int_equal(open_status("other", key, NULL), WK_INVALID);
    struct audit_verdict v;
    const char *const missing[] = { "missing" };
    assert_int_equal(audit_verify(missing, 1, key, sizeof key - 1, NULL, &v, &err), WK_IO);
    assert_int_equal(audit_verify(missing, 0, key, 32, NULL, &v, &err), WK_INVALID);
    clear("*");
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------ */

static void make_signing_key(const char *private_path, const char *public_path)
{
    EVP_PKEY *pair = EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    FILE *f = fopen(private_path, "w");
    assert_non_null(pair);
    assert_true(f && PEM_write_PrivateKey(f, pair, NULL, NULL, 0, NULL, NULL) == 1 && fclose(f) == 0);
    f = fopen(public_path, "w");
    assert_true(f && PEM_write_PUBKEY(f, pair) == 1 && fclose(f) == 0);
    EVP_PKEY_free(pair);
}

static void test_signatures(void **state)
{
    (void)state;
    make_signing_key("one", "one.pub");
    make_signing_key("two", "two.pub");
    write_notes(&(struct audit_options){ .signing_key = "one" }, 2100);
    struct audit_verdict v = verify(NULL, "one.pub");
    assert_int_equal(v.broken, AUDIT_WHOLE);
    assert_int_equal(v.checkpoints, 3); /* two after a thousand lines, and the end */
    assert_int_equal(verify(NULL, NULL).broken, AUDIT_WHOLE);
    expect(verify(NULL, "two.pub"), AUDIT_UNSIGNED, AUDIT_CHECKPOINT_LINES);
    /* Who has the key of the chain, but not the one of the signatures, can write a log, but none that is signed. */
    clear("log*");
    write_notes(&(struct audit_options){ 0 }, 2);
    expect(verify(NULL, "one.pub"), AUDIT_UNSIGNED, 3);
    assert_int_equal(audit_verify((const char *const[]){ "log" }, 1, key, sizeof key - 1, "one", &v, &err), WK_INVALID);
    clear("*");
}

static void test_ends_without_a_stop(void **state)
{
    (void)state;
    size_t n, len;
    struct audit *a = open_log(&(struct audit_options){ 0 });
    for (int i = 0; i < AUDIT_CHECKPOINT_LINES + 5; i++) note(a, "x");
    audit_tick(a); /* not yet due */
    const struct audit_verdict v = verify(NULL, NULL);
    expect(v, AUDIT_WHOLE, AUDIT_CHECKPOINT_LINES + 6);
    assert_int_equal(v.checkpoints, 1);
    assert_int_equal(v.after_checkpoint, 6);
    assert_false(v.stopped);
    /* A crash in the middle of a line. */
    char *bytes = read_file("log", &n), *head = read_file("log.head", &len);
    audit_close(a);
    write_file("log", bytes, n - 40);
    write_file("log.head", head, len);
    free(head);
    const struct audit_verdict torn = verify(NULL, NULL);
    expect(torn, AUDIT_WHOLE, AUDIT_CHECKPOINT_LINES + 5);
    assert_true(torn.torn > 40);
    free(bytes);
    clear("*");
}

static void test_a_torn_line(void **state)
{
    (void)state;
    size_t n, m;
    for (int cut = 1; cut < 400; cut += 30) {
        clear("*");
        struct audit *a = open_log(&(struct audit_options){ 0 });
        note(a, "one");
        note(a, "two");
        char *bytes = read_file("log", &n);
        audit_close(a);
        assert_int_equal(unlink("log.head"), 0); /* a crash: there was no checkpoint */
        const size_t torn = strcspn(bytes, "\n") + 1 + (size_t)cut % (n / 2 - 1);
        write_file("log", bytes, torn + 1);
        struct audit_verdict v = verify(NULL, NULL);
        expect(v, AUDIT_WHOLE, 1);
        assert_int_equal(v.torn, (size_t)cut % (n / 2 - 1) + 1);
        write_notes(&(struct audit_options){ 0 }, 1);
        v = verify(NULL, NULL);
        expect(v, AUDIT_WHOLE, 4);
        assert_int_equal(v.recovered, 1);
        assert_int_equal(v.torn, 0);
        char *aside = read_file("log.torn-2", &m);
        assert_int_equal(m, (size_t)cut % (n / 2 - 1) + 1);
        assert_memory_equal(aside, bytes + strcspn(bytes, "\n") + 1, m);
        free(aside);
        free(bytes);
    }
    clear("*"); /* a first line that never was whole */
    write_file("log", "{\"seq\":1,\"ti", 12);
    write_notes(&(struct audit_options){ 0 }, 1);
    expect(verify(NULL, NULL), AUDIT_WHOLE, 3);
    clear("*");
}

/* ---- a full disk ------------------------------------------------------------------------------------------------- */

static void limit(rlim_t bytes)
{
    struct rlimit r;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &r), 0);
    r.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &r), 0);
}

static void full_disk(bool required, bool sync)
{
    struct audit *a = open_log(&(struct audit_options){ .required = required, .sync = sync });
    const struct audit_entry e = { .kind = AUDIT_ADMISSION, .request = "r" };
    struct audit_figures f;
    int lost = 0;
    for (int round = 0; round < 3; round++) {
        limit(3000 + 3000 * (rlim_t)round + 100 * (rlim_t)round);
        int refused = 0;
        for (int i = 0; i < 30; i++) {
            const wk_status status = audit_write(a, &e, &err);
            refused += status != WK_OK;
            if (status) assert_int_equal(status, WK_IO);
        }
        audit_figures(a, &f);
        assert_true(f.failing && f.dropped > (uint64_t)lost);
        assert_int_equal(refused, required ? f.dropped - (uint64_t)lost : 0);
        lost = (int)f.dropped;
        assert_int_equal(verify(NULL, NULL).torn, 0); /* nothing of a line stays */
        limit(RLIM_INFINITY);
        assert_int_equal(audit_write(a, &e, &err), WK_OK);
        audit_figures(a, &f);
        assert_false(f.failing);
        assert_int_equal(verify(NULL, NULL).dropped, lost);
    }
    audit_close(a);
    const struct audit_verdict v = verify(NULL, NULL);
    assert_int_equal(v.broken, AUDIT_WHOLE);
    assert_int_equal(v.lines, 93 - (uint64_t)lost + 3 + 1);
    clear("*");
}

static void test_a_full_disk(void **state)
{
    (void)state;
    full_disk(true, false);
    full_disk(false, false);
    full_disk(true, true);
}

/* ---- threads and crashes ---------------------------------------------------------------------------------------- */

enum { THREADS = 8, EACH = 400 };

static void *write_many(void *log)
{
    for (int i = 0; i < EACH; i++) {
        const struct audit_entry e = { .kind = AUDIT_REQUEST,
                                       .prompt = { .bytes = "text", .len = 4 },
                                       .note = "thread" };
        if (audit_write(log, &e, NULL)) abort();
        if (i % 50 == 0) audit_tick(log);
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    for (int round = 0; round < 3; round++) {
        pthread_t threads[THREADS];
        struct audit *a = open_log(
            &(struct audit_options){ .required = true, .sync = round == 1, .rotate_bytes = round ? 40000 : 0 });
        for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, write_many, a), 0);
        for (int i = 0; i < 5; i++) assert_int_equal(audit_reopen(a, &err), WK_OK);
        for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
        struct audit_figures f;
        audit_figures(a, &f);
        assert_int_equal(f.dropped, 0);
        assert_true(!round || f.rotated > 10);
        audit_close(a);
        const struct audit_verdict v = verify(NULL, NULL);
        assert_int_equal(v.broken, AUDIT_WHOLE);
        assert_int_equal(v.lines, f.written + 1);
        assert_true(v.lines > THREADS * EACH);
        clear("*");
    }
}

/* Writes until it is killed, and acknowledges each line on the pipe as soon as it was told that it is there. */
static void write_until_killed(int pipe_end, uint32_t from, bool sync)
{
    struct audit *a;
    const struct audit_options o = {
        .path = "log", .key = key, .key_len = sizeof key - 1, .required = true, .sync = sync, .rotate_bytes = 20000
    };
    if (audit_open(&o, &a, NULL)) _exit(1);
    for (uint32_t i = from;; i++) {
        char text[32], padding[3000];
        memset(padding, 'p', sizeof padding);
        padding[i % sizeof padding] = '\0';
        (void)snprintf(text, sizeof text, "<%u>", i);
        const struct audit_entry e = { .kind = AUDIT_REQUEST, .note = text, .model = i % 5 ? NULL : padding };
        if (audit_write(a, &e, NULL) || write(pipe_end, &i, sizeof i) != sizeof i) _exit(1);
    }
}

static bool is_written(uint32_t i)
{
    char text[32];
    glob_t g = files_of_log();
    bool found = false;
    (void)snprintf(text, sizeof text, "\"<%u>\"", i);
    for (size_t k = 0; k < g.gl_pathc && !found; k++) { /* log, then the newest one first */
        size_t n;
        char *bytes = read_file(g.gl_pathv[k ? g.gl_pathc - k : 0], &n);
        found = strstr(bytes, text) != NULL;
        free(bytes);
    }
    globfree(&g);
    return found;
}

static void test_killed_writers_lose_nothing(void **state)
{
    (void)state;
    const char *asked = getenv("GATE_KILLS");
    const int kills = asked ? atoi(asked) : 60;
    uint32_t next = 0;
    uint64_t seed = 31337;
    for (int k = 0; k < kills; k++) {
        int ends[2];
        uint32_t acknowledged = 0, some = 0;
        assert_int_equal(pipe(ends), 0);
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            (void)close(ends[0]);
            write_until_killed(ends[1], next, k % 4 == 3);
        }
        (void)close(ends[1]);
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint32_t until = (uint32_t)(seed >> 40) % 60;
        for (; some <= until && read(ends[0], &acknowledged, 4) == 4; some++) {}
        (void)usleep((useconds_t)(seed >> 33) % 300);
        assert_int_equal(kill(child, SIGKILL), 0);
        while (read(ends[0], &acknowledged, 4) == 4) some++;
        (void)close(ends[0]);
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(acknowledged, next + some - 1);
        assert_int_equal(verify(NULL, NULL).broken, AUDIT_WHOLE);
        assert_true(is_written(acknowledged));
        next = acknowledged + 2; /* the one after it may be written, and was not acknowledged */
    }
    const struct audit_verdict v = verify(NULL, NULL);
    assert_true(v.lines >= next - (uint32_t)kills);
    clear("*");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_entry),
        cmocka_unit_test(test_texts_where_they_are_asked_for),
        cmocka_unit_test(test_every_byte_counts),
        cmocka_unit_test(test_every_line_counts),
        cmocka_unit_test(test_head_counts),
        cmocka_unit_test(test_cut_while_nobody_writes),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_reopen),
        cmocka_unit_test(test_files_that_are_refused),

        cmocka_unit_test(test_signatures),
        cmocka_unit_test(test_ends_without_a_stop),
        cmocka_unit_test(test_a_torn_line),
        cmocka_unit_test(test_a_full_disk),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_killed_writers_lose_nothing),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
