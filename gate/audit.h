/* audit.h: what the worker did, for whom, in a file that shows whether it was changed.
 *
 * JSON lines, appended only. Each has "seq" (1, 2, ...), "time", "kind", "prev" (the mac of the line before; zeros in
 * the first) and "mac", its last field: HMAC-SHA256 of the line up to there. So a line that is edited, removed,
 * inserted or moved is found without the lines after it. FILE.head keeps seq and mac of the last checkpoint: an end
 * that was cut off is found up to there, and to the last line after an orderly stop. Against somebody who has the key,
 * or who puts the files back as they once were, only a copy of checkpoints elsewhere helps; they may be signed
 * (Ed25519).
 *
 * The calling thread writes, under one lock: when audit_write returns WK_OK the line is in the file (with sync, on the
 * disk; threads that wait at one time share one fdatasync). With `required` it fails when it is not, and the caller
 * refuses the request: a line "admission" is written before anything is generated, "request" when it has ended.
 * Without, "request" alone is enough. A line that is not in the file is counted as dropped either way, and before the
 * next one that can be written stands one of kind "dropped" with their number. What of a line was written before an
 * error is cut off again.
 *
 * A crash may leave a part of a line, which nobody was told of: the next start moves it into FILE.torn-SEQ and says so
 * in a line "recovered". A file is 0600, is not opened through a symbolic link, and has one writer (a lock on
 * FILE.head).
 *
 * Of a prompt or an answer the log has the keyed digest (log/words.h: the same as in events); the text itself only with
 * `raw`. */
#ifndef GATE_AUDIT_H
#define GATE_AUDIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

enum { AUDIT_KEY_LEAST = 16, AUDIT_KEY_MOST = 4096, AUDIT_CHECKPOINT_LINES = 1000, AUDIT_CHECKPOINT_S = 60 };

/* What the caller writes; checkpoint, continue, recovered and dropped are the log's own. */
enum audit_kind {
    AUDIT_START = 0,
    AUDIT_STOP,
    AUDIT_ADMISSION,
    AUDIT_REQUEST,
    AUDIT_REFUSAL,
    AUDIT_COMMIT,
    AUDIT_ADMIN,
    AUDIT_KINDS
};

struct audit_text {
    const char *bytes; /* NULL: none, or it is not there any more: then its digests stand for it */
    size_t len;
    const char *hmac, *sha256; /* of log_hmac and sha256_hex; NULL or "": made of bytes */
};

/* One entry; NULL, 0 and false: the field is left out. Texts are copied; bytes that are no UTF-8 become U+FFFD. Never
 * put a secret in here. */
struct audit_entry {
    enum audit_kind kind;
    const char *request, *key, *tenant, *address, *method, *route, *model;
    uint32_t status;  /* of HTTP */
    const char *code; /* "RATE_LIMITED", "GUARDRAIL_BLOCKED" */
    bool counted;     /* tokens and duration are known */
    uint64_t tokens_in, tokens_out, tokens_cached, duration_us;
    struct audit_text prompt, response; /* prompt_hmac, response_hmac; prompt_sha256, and raw, where asked for */
    const char *const *decisions;       /* ids of what decided: of OPA, "blocklist:17" */
    size_t n_decisions;
    const char *action, *target; /* ADMIN, COMMIT: "api-keys.update", an id */
    const char *const *fields;   /* ADMIN: names of the fields that changed, without values */
    size_t n_fields;
    const char *note; /* START: version; STOP: why */
};

struct audit_options {
    const char *path;
    const void *key; /* of the chain; AUDIT_KEY_LEAST to AUDIT_KEY_MOST bytes, copied */
    size_t key_len;
    bool required, sync, raw, plain_sha256;
    uint64_t rotate_bytes;   /* a file as large as this is renamed to FILE.SEQ, SEQ that of its last line; 0: never */
    const char *signing_key; /* PEM file with an Ed25519 private key, for checkpoints; NULL: none */
};

struct audit_figures {
    uint64_t written, dropped, rotated; /* lines, lines, files, since the log was opened */
    bool failing;                       /* the last write failed */
};

struct audit;

/* The key in a file: its bytes without one line end, AUDIT_KEY_LEAST to AUDIT_KEY_MOST. make: where there is no such
 * file, it is made, 0600, with 32 random bytes as hexadecimal digits. The caller wipes key. [any thread]
 * WK_IO, WK_INVALID: a length, or others than the owner may read it. */
wk_status audit_key_read(const char *path, bool make, char key[AUDIT_KEY_MOST], size_t *len, const struct wk_err *err);

/* Opens or makes the file and goes on with its chain. WK_IO; WK_INVALID: its last line is not of this key, or not of a
 * log. [main thread] */
wk_status audit_open(const struct audit_options *o, struct audit **out, const struct wk_err *err);
/* See above. WK_IO: required, and the line is not in the file: refuse what it was to tell of. WK_NO_MEMORY: the same.
 * [any thread] */
wk_status audit_write(struct audit *a, const struct audit_entry *e, const struct wk_err *err);
/* A checkpoint, if the last one is AUDIT_CHECKPOINT_S seconds old and lines followed it. For a timer. [any thread] */
void audit_tick(struct audit *a);
/* The file was renamed by somebody else, or is to be opened anew: the chain goes on in a new file of the old name.
 * [any thread] */
wk_status audit_reopen(struct audit *a, const struct wk_err *err);
void audit_figures(struct audit *a, struct audit_figures *out); /* [any thread] */
/* A checkpoint, and closed. NULL is allowed. [main thread, when no other uses it] */
void audit_close(struct audit *a);

/* ---- verification ---------------------------------------------------------------------------------------------- */

enum audit_break {
    AUDIT_WHOLE = 0,
    AUDIT_EDITED,    /* its bytes are not those that were written */
    AUDIT_REMOVED,   /* lines are missing before it */
    AUDIT_INSERTED,  /* it was not written here, or stands here a second time */
    AUDIT_REORDERED, /* the line that belongs here stands further down */
    AUDIT_TRUNCATED, /* the file ends before the line that FILE.head names */
    AUDIT_UNSIGNED,  /* a checkpoint without the right signature, and a public key was given */
    AUDIT_HEAD       /* FILE.head is not of this key or names another chain */
};

struct audit_verdict {
    enum audit_break broken;
    const char *file;             /* of the broken line: one of paths */
    uint64_t line;                /* in that file, counted from 1; TRUNCATED: one after the last */
    uint64_t expected, found;     /* seq */
    uint64_t lines, checkpoints;  /* that were right, until there */
    uint64_t first_seq, last_seq; /* 0: no lines */
    uint64_t after_checkpoint;    /* lines after the last checkpoint: removing those is not found, unless stopped */
    uint64_t torn;                /* bytes of a last line that is not whole: a crash, not a change */
    uint64_t recovered, dropped;  /* lines that tell of crashes; lines that they say were dropped */
    bool stopped;                 /* the last line is a checkpoint that ended the log in order */
    bool head;                    /* there was a FILE.head: else an end that was cut off is not found */
};

/* Checks files of one chain, which may be given in any order. public_key: PEM file, NULL: signatures are not looked at.
 * WK_OK: *out says what was found. WK_IO, WK_NO_MEMORY, WK_INVALID: it could not be looked at, or is no such log.
 * [any thread] */
wk_status audit_verify(const char *const *paths, size_t n, const void *key, size_t key_len, const char *public_key,
                       struct audit_verdict *out, const struct wk_err *err);
const char *audit_break_name(enum audit_break b); /* "edited", ... */

#endif
