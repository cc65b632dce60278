/* audit.c: `worker audit verify`: reads the files of an audit log and says whether they are as they were written, and
 * if not, what was changed first. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <openssl/crypto.h>

#include "commands.h"
#include "errors.h"
#include "gate/audit.h"
#include "json_out.h"

/* --key-file, else FILE.key beside one of the files, where a worker makes it. */
static int find_key(const struct options *o, char key[AUDIT_KEY_MOST], size_t *len)
{
    char beside[4096];
    const char *path = option_text(o, OPT_KEY_FILE);
    ERROR_TEXT(err);
    for (int i = 1; !path && i < o->n_operands; i++) {
        const int n = snprintf(beside, sizeof beside, "%s.key", o->operands[i]);
        if (n > 0 && (size_t)n < sizeof beside && access(beside, F_OK) == 0) path = beside;
    }
    if (!path)
        return fail_usage("audit", "verify: there is no %.200s.key; name the file of the key with --key-file FILE",
                          o->operands[1]);
    const wk_status status = audit_key_read(path, false, key, len, &err);
    return status ? fail_status(STAGE_TOKENS, status, &err) : EXIT_DONE;
}

static int print_json(const struct audit_verdict *v, int files)
{
    json_t *d = json_pack(
        "{s:b, s:s, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b}", "whole", v->broken == AUDIT_WHOLE,
        "verdict", audit_break_name(v->broken), "files", files, "lines", (json_int_t)v->lines, "checkpoints",
        (json_int_t)v->checkpoints, "first_seq", (json_int_t)v->first_seq, "last_seq", (json_int_t)v->last_seq,
        "after_checkpoint", (json_int_t)v->after_checkpoint, "torn_bytes", (json_int_t)v->torn, "recovered",
        (json_int_t)v->recovered, "dropped", (json_int_t)v->dropped, "stopped", v->stopped, "head", v->head);
    json_t *broken = v->broken == AUDIT_WHOLE || !v->file
                         ? json_null()
                         : json_pack("{s:o, s:I, s:I, s:I}", "file", json_bytes(v->file, strlen(v->file)), "line",
                                     (json_int_t)v->line, "expected_seq", (json_int_t)v->expected, "found_seq",
                                     (json_int_t)v->found);
    if (d && json_object_set_new(d, "broken", broken)) {
        json_decref(d);
        d = NULL;
    }
    return json_print(d);
}

static void print_text(const struct audit_verdict *v, int files)
{
    (void)printf("%d file%s, %" PRIu64 " lines, seq %" PRIu64 " to %" PRIu64 ", %" PRIu64 " checkpoints%s\n", files,
                 files == 1 ? "" : "s", v->lines, v->first_seq, v->last_seq, v->checkpoints,
                 v->broken ? ", until the first that is broken" : "");
    if (v->recovered) (void)printf("%" PRIu64 " crashes that the log tells of\n", v->recovered);
    if (v->dropped) (void)printf("%" PRIu64 " lines that could not be written, as the log tells\n", v->dropped);
    if (v->torn) (void)printf("%" PRIu64 " bytes of a last line that a crash cut short\n", v->torn);
    if (v->first_seq > 1)
        (void)printf("begins behind line %" PRIu64
                     " of its log: those up to it are looked at if their files are named, "
                     "too\n",
                     v->first_seq - 1);
    if (v->broken) return;
    if (!v->head)
        (void)puts("no .head beside the last file: if lines were cut off its end, that is not found");
    else if (!v->stopped)
        (void)printf("not stopped in order, or still written: if lines were cut off behind the last checkpoint, that "
                     "is not found "
                     "(%" PRIu64 " are there)\n",
                     v->after_checkpoint);
}

static int refuse(const struct audit_verdict *v)
{
    static const char *const why[] = {
        [AUDIT_EDITED] = "was edited: its mac is another",
        [AUDIT_REMOVED] = "is not the one that belongs here: lines before it were removed",
        [AUDIT_INSERTED] = "was inserted: it was not written here",
        [AUDIT_REORDERED] = "was moved: the one that belongs here stands further down",
        [AUDIT_TRUNCATED] = "is missing: the end was cut off",
        [AUDIT_UNSIGNED] = "is a checkpoint without the right signature",
    };
    if (v->broken == AUDIT_HEAD) return fail(CODE_AUDIT_BROKEN, "%s.head: was changed, or is of another log", v->file);
    return fail(CODE_AUDIT_BROKEN, "%s:%" PRIu64 ": this line %s (seq: expected %" PRIu64 ", found %" PRIu64 ")",
                v->file, v->line, why[v->broken], v->expected, v->found);
}

int command_audit(const struct options *o)
{
    static const char usage[] = "expected verify FILE...";
    char key[AUDIT_KEY_MOST];
    size_t len;
    struct audit_verdict v;
    ERROR_TEXT(err);
    if (strcmp(o->operands[0], "verify") != 0 || o->n_operands < 2) return fail_usage("audit", "%s", usage);
    int result = find_key(o, key, &len);
    if (result) return result;
    const int files = o->n_operands - 1;
    const wk_status status = audit_verify((const char *const *)o->operands + 1, (size_t)files, key, len,
                                          option_text(o, OPT_PUBLIC_KEY), &v, &err);
    OPENSSL_cleanse(key, sizeof key);
    if (status) return fail_status(STAGE_TOKENS, status, &err);
    if (option_flag(o, OPT_JSON))
        result = print_json(&v, files);
    else
        print_text(&v, files);
    return !result && v.broken ? refuse(&v) : result;
}
