/* test_cli_audit.c: worker audit verify, on logs as a worker writes them and on changed ones. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "gate/audit.h"

static void write_log(const char *path, const char *key_path, int entries, uint64_t rotate)
{
    char key[AUDIT_KEY_MOST], text[512] = "";
    const struct wk_err err = { text, sizeof text };
    struct audit_options o = { .path = path, .key = key, .rotate_bytes = rotate };
    struct audit *a;
    if (audit_key_read(key_path, true, key, &o.key_len, &err) || audit_open(&o, &a, &err)) fail_msg("%s", text);
    for (int i = 0; i < entries; i++) {
        const struct audit_entry e = { .kind = AUDIT_REQUEST, .request = "a-request", .status = 200 };
        assert_int_equal(audit_write(a, &e, &err), WK_OK);
    }
    audit_close(a);
}

static void expect(struct cli_result r, int status, const char *out, const char *err)
{
    if (r.status != status || !matches(r.out, out) || !matches(r.err, err))
        fail_msg("status %d, output: %s, standard error: %s", r.status, r.out, r.err);
    cli_free(&r);
}

static void shell(const char *command) { assert_int_equal(system(command), 0); }

static void whole(void **state)
{
    (void)state;
    write_log("log", "log.key", 5, 0);
    expect(CLI("audit", "verify", "log"), 0, "^1 file, 6 lines, seq 1 to 6, 1 checkpoints\n$", "^$");
    expect(CLI("audit", "verify", "log", "--key-file", "log.key"), 0, "6 lines", "^$");
    write_log("turned", "log.key", 100, 4000);
    shell("ls turned.0* | wc -l | grep -q '^[4-9]$\\|^[1-9][0-9]$'");
    shell("'" WORKER_BINARY
          "' audit verify turned turned.0* --key-file log.key | grep -q ' files, 1[0-9][0-9] lines, '");
    expect(CLI("audit", "verify", "turned", "--key-file", "log.key"), 0, "^1 file", "^$");
    struct cli_result r = CLI("audit", "verify", "--json", "log");
    assert_int_equal(r.status, 0);
    json_t *d = json_loads(r.out, 0, NULL);
    assert_true(json_is_true(json_object_get(d, "whole")) && json_is_null(json_object_get(d, "broken")));
    assert_int_equal(json_integer_value(json_object_get(d, "lines")), 6);
    assert_true(json_is_true(json_object_get(d, "stopped")));
    json_decref(d);
    cli_free(&r);
}

static void changed(void **state)
{
    (void)state;
    static const struct {
        const char *edit, *says;
    } cases[] = {
        { "sed '3s/200/500/' log >x", "^worker: error: AUDIT_BROKEN: x:3: this line was edited" },
        { "sed 3d log >x", "x:3: this line is not the one that belongs here: lines before it were removed \\(seq: "
                           "expected 3, found 4\\)" },
        { "sed '3{h;d};4G' log >x", "x:3: this line was moved" },
        { "sed '3{p}' log >x", "x:4: this line was inserted" },
        { "head -n 4 log >x", "x:5: this line is missing: the end was cut off \\(seq: expected 6, found 4\\)" },
        { "cp log x && sed s/5/6/g log.head >x.head", "x.head: was changed, or is of another log" },
    };
    char command[256];
    write_log("log", "log.key", 5, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        (void)snprintf(command, sizeof command, "cp log.head x.head; %s", cases[i].edit);
        shell(command);
        expect(CLI("audit", "verify", "x", "--key-file", "log.key"), 1, "until the first that is broken",
               cases[i].says);
        expect(CLI("audit", "verify", "x", "--key-file", "log.key", "--json"), 1, "\"whole\": false", cases[i].says);
    }
    shell("rm x.head; head -n 5 log >x");
    expect(CLI("audit", "verify", "x", "--key-file", "log.key"), 0, "no .head beside the last file", "^$");
    shell("cp log.head x.head; printf '{\"seq\":7,' | cat log - >x");
    expect(CLI("audit", "verify", "x", "--key-file", "log.key"), 0, "9 bytes of a last line that a crash cut", "^$");
}

static void cannot(void **state)
{
    (void)state;
    write_log("log", "log.key", 1, 0);
    expect(CLI("audit", "verify", "missing", "--key-file", "log.key"), 1, "^$", "missing: cannot be opened");
    expect(CLI("audit", "verify", "log", "--key-file", "nokey"), 1, "^$", "nokey: cannot be opened");
    shell("echo another-key-of-this-length >other; chmod 600 other");
    expect(CLI("audit", "verify", "log", "--key-file", "other"), 1, "^1 file, 0 lines", "log:1: this line was edited");
    shell("chmod 644 other");
    expect(CLI("audit", "verify", "log", "--key-file", "other"), 1, "^$", "others than its owner may use it");
    expect(CLI("audit", "verify", "log", "--public-key", "log"), 1, "^$", "expected an Ed25519 public key");
    shell("openssl genpkey -algorithm ed25519 -out k 2>/dev/null; openssl pkey -in k -pubout -out k.pub");
    expect(CLI("audit", "verify", "log", "--public-key", "k.pub"), 1, "", "without the right signature");
}

static int teardown(void **state)
{
    (void)state;
    return system("rm -f -- *");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(whole, teardown),
        cmocka_unit_test_teardown(changed, teardown),
        cmocka_unit_test_teardown(cannot, teardown),
    };
    return cmocka_run_group_tests(tests, enter_scratch, leave_scratch);
}
