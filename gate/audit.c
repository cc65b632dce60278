/* audit.c: the writer of the audit log: entries become lines, lines get their place in the chain and go into the file,
 * under one lock. Formatting and the digests of texts are done before the lock is taken. */
#include "audit.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <openssl/evp.h>
#include <openssl/pem.h>

#include "audit_file.h"
#include "audit_line.h"
#include "base/sha256.h"
#include "log/words.h"

struct audit {
    bool required, sync, raw, plain_sha256;
    uint64_t rotate_bytes;
    char *path;
    EVP_PKEY *signing; /* NULL: none */

    pthread_mutex_t lock;
    pthread_cond_t synced_more;
    struct audit_mac mac;
    struct audit_bytes line;
    int fd, head;
    uint64_t seq, size, rotate_at; /* of the last line; of the file; size from which it is rotated, 0: never */
    char prev[AUDIT_MAC + 1];
    uint64_t head_seq;         /* that the head names */
    uint64_t since;            /* lines after the last checkpoint */
    uint64_t checked_s;        /* when it was */
    uint64_t lost;             /* lines that no "dropped" tells of yet */
    uint64_t synced, unsynced; /* seq up to which lines are on disk; up to which they may not be, after an error */
    bool syncing, broken;      /* a thread is in fdatasync; the file is in an unknown state */
    struct audit_figures figures;
};

static uint64_t seconds_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec;
}

/* ---- lines into the file ---------------------------------------------------------------------------------------- */

/* What an unfinished write left is cut off, unless somebody else made the file shorter. False: it cannot be. */
static bool cut_off(struct audit *a)
{
    struct stat s;
    return fstat(a->fd, &s) == 0 && ((uint64_t)s.st_size <= a->size || ftruncate(a->fd, (off_t)a->size) == 0);
}

/* The next line of the chain. False, with errno: it is not in the file. */
static bool append(struct audit *a, const struct audit_bytes *body)
{
    char mac[AUDIT_MAC + 1];
    if (a->broken && !cut_off(a)) return false;
    a->broken = false;
    if (!audit_line_make(&a->mac, a->seq + 1, a->prev, body, &a->line, mac)) {
        errno = ENOMEM;
        return false;
    }
    if (!audit_file_write(a->fd, a->line.at, a->line.len)) {
        const int why = errno;
        a->broken = !cut_off(a);
        errno = why;
        return false;
    }
    a->seq++;
    a->since++;
    a->size += a->line.len;
    a->figures.written++;
    memcpy(a->prev, mac, sizeof a->prev);
    return true;
}

__attribute__((format(printf, 2, 3))) static bool append_own(struct audit *a, const char *format, ...)
{
    char text[256 + AUDIT_PATH];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof text) return false;
    return append(a, &(struct audit_bytes){ .at = text, .len = (size_t)n });
}

/* Waits until seq is on disk; one of those who wait does it for all. False, with errno. After a failure the kernel
 * takes what it could not write for written, so a later success says nothing of lines up to there. */
static bool wait_synced(struct audit *a, uint64_t seq)
{
    for (;;) {
        if (seq <= a->unsynced) {
            errno = EIO;
            return false;
        }
        if (seq <= a->synced) return true;
        if (a->syncing) {
            (void)pthread_cond_wait(&a->synced_more, &a->lock);
            continue;
        }
        const uint64_t until = a->seq;
        a->syncing = true;
        (void)pthread_mutex_unlock(&a->lock);
        const bool done = fdatasync(a->fd) == 0; /* nobody closes it meanwhile */
        const int why = errno;
        (void)pthread_mutex_lock(&a->lock);
        a->syncing = false;
        if (done)
            a->synced = until;
        else
            a->unsynced = until;
        (void)pthread_cond_broadcast(&a->synced_more);
        errno = why;
        if (!done) return false;
    }
}

/* ---- checkpoints ------------------------------------------------------------------------------------------------ */

/* ,"signature":"..." of the checkpoint that comes next; "" without a key. */
static bool sign(struct audit *a, char out[128])
{
    char text[160];
    unsigned char signature[64];
    size_t n = sizeof signature;
    out[0] = '\0';
    if (!a->signing) return true;
    const size_t len = audit_signed_text(a->seq + 1, a->prev, text);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    const bool done = ctx && EVP_DigestSignInit(ctx, NULL, NULL, NULL, a->signing) == 1 &&
                      EVP_DigestSign(ctx, signature, &n, (const unsigned char *)text, len) == 1 &&
                      n == sizeof signature;
    EVP_MD_CTX_free(ctx);
    if (!done) return false;
    unsigned char base64[4 * ((sizeof signature + 2) / 3) + 1];
    (void)EVP_EncodeBlock(base64, signature, (int)n);
    (void)snprintf(out, 128, ",\"signature\":\"%s\"", (const char *)base64);
    return true;
}

/* One that cannot be written leaves the one before, which is behind, not wrong. */
static void write_head(struct audit *a, uint64_t seq, const char mac[AUDIT_MAC + 1])
{
    char text[AUDIT_HEAD_BYTES + 1];
    if (seq <= a->head_seq || !audit_head_make(&a->mac, seq, mac, text)) return;
    if (pwrite(a->head, text, AUDIT_HEAD_BYTES, 0) != AUDIT_HEAD_BYTES) return;
    a->head_seq = seq;
    if (a->sync) (void)fdatasync(a->head);
}

static bool checkpoint(struct audit *a, const char *more)
{
    char signature[128], mac[AUDIT_MAC + 1];
    if (!sign(a, signature)) {
        errno = EIO;
        return false;
    }
    if (!append_own(a, "\"kind\":\"checkpoint\",\"lines\":%" PRIu64 ",\"since\":%" PRIu64 "%s%s", a->seq + 1, a->since,
                    more, signature))
        return false;
    a->since = 0;
    a->checked_s = seconds_now();
    const uint64_t seq = a->seq;
    memcpy(mac, a->prev, sizeof mac);
    /* With sync, what the head names is on disk before the head is. */
    if (a->sync && !wait_synced(a, seq)) return false;
    write_head(a, seq, mac);
    return true;
}

static void checkpoint_if_due(struct audit *a)
{
    if (a->since + 1 >= AUDIT_CHECKPOINT_LINES || (a->since && seconds_now() - a->checked_s >= AUDIT_CHECKPOINT_S))
        (void)checkpoint(a, "");
}

/* ---- rotation --------------------------------------------------------------------------------------------------- */

/* Ends what the file has: a checkpoint, and all of it on disk with sync. The lock is held from the last line on, so
 * that the caller can go on with another file. False, with errno. */
static bool end_file(struct audit *a)
{
    if (!checkpoint(a, ",\"rotated\":true")) return false;
    while (a->syncing) (void)pthread_cond_wait(&a->synced_more, &a->lock);
    if (!a->sync || a->synced == a->seq) return true;
    if (fdatasync(a->fd) != 0) {
        a->unsynced = a->seq;
        return false;
    }
    a->synced = a->seq;
    (void)pthread_cond_broadcast(&a->synced_more);
    return true;
}

/* The chain goes on in the empty file behind fd. */
static bool switch_to(struct audit *a, int fd, const char *after)
{
    (void)close(a->fd);
    a->fd = fd;
    a->size = 0;
    a->rotate_at = a->rotate_bytes;
    a->figures.rotated++;
    if (a->sync) audit_file_sync_folder(a->path);
    struct audit_bytes body = { 0 };
    audit_print(&body, "\"kind\":\"continue\",\"after\":");
    audit_put_string(&body, after, strlen(after));
    const bool done = append(a, &body);
    free(body.at);
    return done;
}

/* Is the file that is written still the one of its name? */
static bool in_place(const struct audit *a)
{
    struct stat ours, named;
    return fstat(a->fd, &ours) == 0 && lstat(a->path, &named) == 0 && ours.st_dev == named.st_dev &&
           ours.st_ino == named.st_ino;
}

/* What cannot be rotated now goes on in the old file, and is tried again when it is larger by as much. */
static void rotate(struct audit *a)
{
    char old[AUDIT_PATH];
    int fd;
    a->rotate_at = a->size + a->rotate_bytes;
    if (!end_file(a) || !in_place(a)) return;
    const int n = snprintf(old, sizeof old, "%s.%020" PRIu64, a->path, a->seq);
    if (n < 0 || (size_t)n >= sizeof old || renameat2(AT_FDCWD, a->path, AT_FDCWD, old, RENAME_NOREPLACE) != 0) return;
    if (audit_file_open(a->path, true, &fd, NULL)) {
        (void)renameat2(AT_FDCWD, old, AT_FDCWD, a->path, RENAME_NOREPLACE);
        return;
    }
    const char *slash = strrchr(old, '/');
    (void)switch_to(a, fd, slash ? slash + 1 : old);
}

wk_status audit_reopen(struct audit *a, const struct wk_err *err)
{
    int fd = -1;
    struct stat new;
    wk_status status = WK_OK;
    (void)pthread_mutex_lock(&a->lock);
    if (!in_place(a)) {
        status = audit_file_open(a->path, false, &fd, err);
        if (!status && fstat(fd, &new) != 0)
            status = wk_fail(err, WK_IO, "%s: cannot be looked at: %s", a->path, strerror(errno));
        if (!status && new.st_size)
            status = wk_fail(err, WK_INVALID,
                             "%s: another file is there, and it is not empty; the old one is still used", a->path);
        if (!status && !end_file(a))
            status = wk_fail(err, WK_IO, "%s: the old audit log cannot be ended: %s", a->path, strerror(errno));
        if (status && fd >= 0)
            (void)close(fd);
        else if (!status && !switch_to(a, fd, "renamed"))
            status = wk_fail(err, WK_IO, "%s: cannot be written: %s", a->path, strerror(errno));
    }
    (void)pthread_mutex_unlock(&a->lock);
    return status;
}

/* ---- entries ---------------------------------------------------------------------------------------------------- */

static void put_text(struct audit_bytes *b, const char *name, const char *text)
{
    if (!text) return;
    audit_put(b, ",\"", 2);
    audit_put(b, name, strlen(name));
    audit_put(b, "\":", 2);
    audit_put_string(b, text, strlen(text));
}

static void put_list(struct audit_bytes *b, const char *name, const char *const *texts, size_t n)
{
    if (!n) return;
    audit_print(b, ",\"%s\":[", name);
    for (size_t i = 0; i < n; i++) {
        if (i) audit_put(b, ",", 1);
        audit_put_string(b, texts[i], strlen(texts[i]));
    }
    audit_put(b, "]", 1);
}

/* A digest that is given, or made here. */
static void put_digest(struct audit_bytes *b, const char *name, const char *kind, const char *given,
                       const struct audit_text *t, bool (*make)(const void *bytes, size_t n, char hex[65]))
{
    char hex[65] = "";
    const bool is_given = given && given[0];
    if (!is_given && (!t->bytes || !make(t->bytes, t->len, hex))) {
        b->failed = b->failed || t->bytes;
        return;
    }
    audit_print(b, ",\"%s_%s\":\"%s\"", name, kind, is_given ? given : hex);
}

static void put_digests(const struct audit *a, struct audit_bytes *b, const char *name, const struct audit_text *t)
{
    put_digest(b, name, "hmac", t->hmac, t, log_hmac);
    if (a->plain_sha256) put_digest(b, name, "sha256", t->sha256, t, sha256_hex);
    if (!a->raw || !t->bytes) return;
    audit_print(b, ",\"%s\":", name);
    audit_put_string(b, t->bytes, t->len);
}

static void format(const struct audit *a, const struct audit_entry *e, struct audit_bytes *b)
{
    static const char *const kinds[AUDIT_KINDS] = {
        [AUDIT_START] = "start",     [AUDIT_STOP] = "stop",       [AUDIT_ADMISSION] = "admission",
        [AUDIT_REQUEST] = "request", [AUDIT_REFUSAL] = "refusal", [AUDIT_COMMIT] = "commit",
        [AUDIT_ADMIN] = "admin",
    };
    audit_print(b, "\"kind\":\"%s\"", kinds[e->kind]);
    put_text(b, "request_id", e->request);
    put_text(b, "key_id", e->key);
    put_text(b, "tenant", e->tenant);
    put_text(b, "address", e->address);
    put_text(b, "method", e->method);
    put_text(b, "route", e->route);
    put_text(b, "model", e->model);
    if (e->status) audit_print(b, ",\"status\":%u", e->status);
    put_text(b, "code", e->code);
    if (e->counted)
        audit_print(b,
                    ",\"tokens_in\":%" PRIu64 ",\"tokens_out\":%" PRIu64 ",\"tokens_cached\":%" PRIu64
                    ",\"duration_us\":%" PRIu64,
                    e->tokens_in, e->tokens_out, e->tokens_cached, e->duration_us);
    put_digests(a, b, "prompt", &e->prompt);
    put_digests(a, b, "response", &e->response);
    put_list(b, "decisions", e->decisions, e->n_decisions);
    put_text(b, "action", e->action);
    put_text(b, "target", e->target);
    put_list(b, "fields", e->fields, e->n_fields);
    put_text(b, "note", e->note);
}

/* With the lock: what was lost before. */
static bool tell_lost(struct audit *a)
{
    if (a->lost && !append_own(a, "\"kind\":\"dropped\",\"lines\":%" PRIu64, a->lost)) return false;
    a->lost = 0;
    return true;
}

/* With the lock. */
static bool write_entry(struct audit *a, const struct audit_bytes *body)
{
    if (!tell_lost(a) || !append(a, body)) return false;
    const uint64_t seq = a->seq;
    if (a->sync && !wait_synced(a, seq)) return false;
    checkpoint_if_due(a);
    if (a->rotate_at && a->size >= a->rotate_at) rotate(a);
    return true;
}

wk_status audit_write(struct audit *a, const struct audit_entry *e, const struct wk_err *err)
{
    struct audit_bytes body = { 0 };
    format(a, e, &body);
    (void)pthread_mutex_lock(&a->lock);
    errno = ENOMEM;
    const bool done = !body.failed && write_entry(a, &body);
    const int why = errno;
    a->figures.failing = !done;
    if (!done) {
        a->lost++;
        a->figures.dropped++;
    }
    (void)pthread_mutex_unlock(&a->lock);
    free(body.at);
    if (done || !a->required) return WK_OK;
    return wk_fail(err, why == ENOMEM ? WK_NO_MEMORY : WK_IO, "the audit log cannot be written: %s", strerror(why));
}

void audit_tick(struct audit *a)
{
    (void)pthread_mutex_lock(&a->lock);
    checkpoint_if_due(a);
    (void)pthread_mutex_unlock(&a->lock);
}

void audit_figures(struct audit *a, struct audit_figures *out)
{
    (void)pthread_mutex_lock(&a->lock);
    *out = a->figures;
    (void)pthread_mutex_unlock(&a->lock);
}

/* ---- open and close --------------------------------------------------------------------------------------------- */

static wk_status read_signing_key(struct audit *a, const char *path, const struct wk_err *err)
{
    if (!path) return WK_OK;
    FILE *f = fopen(path, "re");
    if (!f) return wk_fail(err, WK_IO, "%s: cannot be opened: %s", path, strerror(errno));
    a->signing = PEM_read_PrivateKey(f, NULL, NULL, NULL);
    (void)fclose(f);
    if (a->signing && EVP_PKEY_get_base_id(a->signing) == EVP_PKEY_ED25519) return WK_OK;
    return wk_fail(err, WK_INVALID,
                   "%s: expected an Ed25519 private key in PEM form: openssl genpkey -algorithm ed25519", path);
}

/* Where the chain goes on: behind the last line of the file; in an empty file behind what the head names. */
static wk_status find_end(struct audit *a, struct audit_end *end, uint64_t *missing, const struct wk_err *err)
{
    char head[AUDIT_HEAD_BYTES + 1], mac[AUDIT_MAC + 1];
    uint64_t seq = 0;
    *missing = 0;
    const wk_status status = audit_file_end(a->fd, a->path, &a->mac, end, err);
    if (status) return status;
    const ssize_t n = pread(a->head, head, sizeof head, 0);
    if (n < 0) return wk_fail(err, WK_IO, "%s.head: cannot be read: %s", a->path, strerror(errno));
    if (n && !audit_head_read(&a->mac, head, (size_t)n, &seq, mac))
        return wk_fail(
            err, WK_INVALID,
            "%s.head: was not written with this key, or was changed; to begin a new log, move it and the log "
            "away",
            a->path);
    if (!end->whole && seq) {
        end->seq = seq;
        memcpy(end->mac, mac, sizeof end->mac);
    } else if (seq > end->seq) {
        *missing = seq - end->seq;
    }
    return WK_OK;
}

static wk_status go_on(struct audit *a, const struct wk_err *err)
{
    struct audit_end end;
    uint64_t missing;
    wk_status status = find_end(a, &end, &missing, err);
    if (!status && end.torn) status = audit_file_cut(a->fd, a->path, &end, err);
    if (status) return status;
    a->seq = a->synced = end.seq;
    a->size = end.whole;
    memcpy(a->prev, end.mac, sizeof a->prev);
    bool done = true;
    if (!end.whole && end.seq) done = append_own(a, "\"kind\":\"continue\"");
    if (done && (end.torn || missing))
        done = append_own(a, "\"kind\":\"recovered\",\"torn\":%" PRIu64 ",\"missing\":%" PRIu64, end.torn, missing);
    return done ? WK_OK : wk_fail(err, WK_IO, "%s: cannot be written: %s", a->path, strerror(errno));
}

static wk_status open_files(struct audit *a, const struct audit_options *o, const struct wk_err *err)
{
    char head[AUDIT_PATH];
    const int n = snprintf(head, sizeof head, "%s.head", o->path);
    if (n < 0 || (size_t)n + 32 >= sizeof head)
        return wk_fail(err, WK_INVALID, "%.100s...: the path of the audit log is too long", o->path);
    wk_status status = audit_file_lock(head, &a->head, err);
    if (!status) status = audit_file_open(o->path, false, &a->fd, err);
    if (!status) status = go_on(a, err);
    if (!status && a->sync) audit_file_sync_folder(o->path);
    return status;
}

static void free_audit(struct audit *a)
{
    if (a->fd >= 0) (void)close(a->fd);
    if (a->head >= 0) (void)close(a->head);
    EVP_PKEY_free(a->signing);
    audit_mac_close(&a->mac);
    (void)pthread_mutex_destroy(&a->lock);
    (void)pthread_cond_destroy(&a->synced_more);
    free(a->line.at);
    free(a->path);
    free(a);
}

wk_status audit_open(const struct audit_options *o, struct audit **out, const struct wk_err *err)
{
    *out = NULL;
    struct audit *a = calloc(1, sizeof *a);
    if (!a) return wk_fail(err, WK_NO_MEMORY, "no memory for the audit log");
    a->fd = a->head = -1;
    a->required = o->required;
    a->sync = o->sync;
    a->raw = o->raw;
    a->plain_sha256 = o->plain_sha256;
    a->rotate_bytes = a->rotate_at = o->rotate_bytes;
    a->checked_s = seconds_now();
    a->path = strdup(o->path);
    (void)pthread_mutex_init(&a->lock, NULL);
    (void)pthread_cond_init(&a->synced_more, NULL);
    wk_status status = a->path ? WK_OK : wk_fail(err, WK_NO_MEMORY, "no memory for the audit log");
    if (!status) status = audit_mac_open(&a->mac, o->key, o->key_len, err);
    if (!status) status = read_signing_key(a, o->signing_key, err);
    if (!status) status = open_files(a, o, err);
    if (status)
        free_audit(a);
    else
        *out = a;
    return status;
}

void audit_close(struct audit *a)
{
    if (!a) return;
    (void)pthread_mutex_lock(&a->lock);
    (void)tell_lost(a);
    (void)checkpoint(a, ",\"end\":true");
    if (a->sync) (void)wait_synced(a, a->seq);
    (void)pthread_mutex_unlock(&a->lock);
    free_audit(a);
}
