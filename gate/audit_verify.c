/* audit_verify.c: reads the files of a chain again and says where it was changed first, and how. What a line is about
 * is not looked at: its mac says that it is as it was written, its seq and prev that it stands where it was. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <openssl/evp.h>
#include <openssl/pem.h>

#include "audit.h"
#include "audit_line.h"

struct source {
    const char *path;
    FILE *stream;
    uint64_t first; /* seq of its first line; UINT64_MAX: it has none that can be read */
};

struct verifier {
    struct audit_mac mac;
    EVP_PKEY *public_key; /* NULL: none */
    struct source *sources;
    size_t n;
    struct audit_verdict *out;
    char prev[AUDIT_MAC + 1]; /* mac of the last right line */
    uint64_t expected;        /* seq of the next; 0: any, it is the first */
    struct audit_line head;   /* seq and mac that FILE.head names; seq 0: nothing */
    bool head_wrong;          /* it is not of this key, or its line has another mac */
    char *line;               /* getline's */
    size_t cap;
};

const char *audit_break_name(enum audit_break b)
{
    static const char *const names[] = { "whole",     "edited",    "removed",  "inserted",
                                         "reordered", "truncated", "unsigned", "head" };
    return (size_t)b < sizeof names / sizeof *names ? names[b] : "unknown";
}

static wk_status failed(const char *path, const struct wk_err *err)
{
    return wk_fail(err, WK_IO, "%s: cannot be read: %s", path, strerror(errno));
}

/* ---- where a line stands ---------------------------------------------------------------------------------------- */

/* Is there a right line of this seq (and, if given, this prev) behind where source i is read? The place is kept. */
static bool stands_later(struct verifier *v, size_t i, uint64_t seq, const char *prev)
{
    char *line = NULL;
    size_t cap = 0;
    bool found = false;
    for (size_t k = i; k < v->n && !found; k++) {
        FILE *f = v->sources[k].stream;
        const off_t place = ftello(f);
        ssize_t len;
        struct audit_line l;
        while (!found && (len = getline(&line, &cap, f)) > 0)
            found = line[len - 1] == '\n' && audit_line_read(&v->mac, line, (size_t)len - 1, &l) && l.seq == seq &&
                    (!prev || memcmp(l.prev, prev, AUDIT_MAC) == 0);
        (void)fseeko(f, place, SEEK_SET);
    }
    free(line);
    return found;
}

/* What happened where line l stands (right: with a right mac) instead of the expected one. */
static enum audit_break diagnose(struct verifier *v, size_t i, const struct audit_line *l, bool right)
{
    const bool later = stands_later(v, i, v->expected, v->prev);
    if (!right) return later ? AUDIT_INSERTED : AUDIT_EDITED;
    if (l->seq <= v->expected) return AUDIT_INSERTED; /* a copy, or of another chain with this key */
    if (!later) return AUDIT_REMOVED;
    return stands_later(v, i, l->seq, NULL) ? AUDIT_INSERTED : AUDIT_REORDERED;
}

/* ---- one line --------------------------------------------------------------------------------------------------- */

static bool is_signed(const struct verifier *v, const struct audit_line *l, const char *bytes, size_t n)
{
    static const char name[] = ",\"signature\":\"";
    enum { DIGITS = 88, BYTES = 64 };
    unsigned char signature[DIGITS];
    char text[160];
    const char *at = memmem(bytes, n, name, sizeof name - 1);
    if (!at || (size_t)(bytes + n - at) < sizeof name - 1 + DIGITS) return false;
    if (EVP_DecodeBlock(signature, (const unsigned char *)at + sizeof name - 1, DIGITS) < BYTES) return false;
    const size_t len = audit_signed_text(l->seq, l->prev, text);
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    const bool right = ctx && EVP_DigestVerifyInit(ctx, NULL, NULL, NULL, v->public_key) == 1 &&
                       EVP_DigestVerify(ctx, signature, BYTES, (const unsigned char *)text, len) == 1;
    EVP_MD_CTX_free(ctx);
    return right;
}

/* A line at its place. False: something is wrong with what it says. */
static bool take_line(struct verifier *v, const struct audit_line *l, const char *bytes, size_t n)
{
    struct audit_verdict *out = v->out;
    const bool checkpoint = strcmp(l->kind, "checkpoint") == 0;
    if (checkpoint && v->public_key && !is_signed(v, l, bytes, n)) {
        out->broken = AUDIT_UNSIGNED;
        return false;
    }
    if (strcmp(l->kind, "recovered") == 0) {
        out->recovered++;
        if (audit_line_number(bytes, n, "missing")) { /* the writer itself has seen that lines were gone */
            out->broken = AUDIT_TRUNCATED;
            return false;
        }
    }
    if (strcmp(l->kind, "dropped") == 0) out->dropped += audit_line_number(bytes, n, "lines");
    if (!out->first_seq) out->first_seq = l->seq;
    out->last_seq = l->seq;
    out->lines++;
    out->checkpoints += checkpoint;
    out->after_checkpoint = checkpoint ? 0 : out->after_checkpoint + 1;
    out->stopped = checkpoint && memmem(bytes, n, ",\"end\":true", 11) != NULL;
    if (l->seq == v->head.seq && memcmp(l->mac, v->head.mac, AUDIT_MAC) != 0) v->head_wrong = true;
    memcpy(v->prev, l->mac, sizeof v->prev);
    v->expected = l->seq + 1;
    return true;
}

/* False: the chain is broken here. */
static bool check_line(struct verifier *v, size_t i, const char *bytes, size_t n)
{
    static const char zeros[] = "0000000000000000000000000000000000000000000000000000000000000000";
    struct audit_line l = { 0 };
    const bool right = audit_line_read(&v->mac, bytes, n, &l);
    /* A file that is not the first of a log begins with "continue". */
    if (!v->expected && right && strcmp(l.kind, "continue") == 0) {
        v->expected = l.seq;
        memcpy(v->prev, l.prev, sizeof v->prev);
    } else if (!v->expected) {
        v->expected = 1;
        memcpy(v->prev, zeros, sizeof v->prev);
    }
    v->out->expected = v->expected;
    v->out->found = l.seq;
    if (right && l.seq == v->expected && memcmp(l.prev, v->prev, AUDIT_MAC) == 0) return take_line(v, &l, bytes, n);
    v->out->broken = diagnose(v, i, &l, right);
    return false;
}

static wk_status check_source(struct verifier *v, size_t i, const struct wk_err *err)
{
    struct source *s = &v->sources[i];
    ssize_t len;
    v->out->file = s->path;
    v->out->line = 0;
    errno = 0;
    while ((len = getline(&v->line, &v->cap, s->stream)) > 0) {
        v->out->line++;
        if (v->line[len - 1] != '\n' && i + 1 == v->n) {
            v->out->torn = (uint64_t)len;
            v->out->line--;
            break;
        }
        if (!check_line(v, i, v->line, (size_t)len - (v->line[len - 1] == '\n'))) return WK_OK;
        errno = 0;
    }
    if (ferror(s->stream) || errno == ENOMEM) return failed(s->path, err);
    return WK_OK;
}

/* ---- the end ---------------------------------------------------------------------------------------------------- */

/* FILE.head of the last file. An empty one is of a log without a checkpoint. */
static void read_head(struct verifier *v)
{
    char path[4096], bytes[AUDIT_HEAD_BYTES + 1];
    const int n = snprintf(path, sizeof path, "%s.head", v->sources[v->n - 1].path);
    FILE *f = n > 0 && (size_t)n < sizeof path ? fopen(path, "re") : NULL;
    if (!f) return;
    v->out->head = true;
    const size_t len = fread(bytes, 1, sizeof bytes, f);
    (void)fclose(f);
    v->head_wrong = len && !audit_head_read(&v->mac, bytes, len, &v->head.seq, v->head.mac);
    if (v->head_wrong) v->head.seq = 0;
}

static void check_head(struct verifier *v)
{
    if (v->head_wrong || (v->out->head && !v->head.seq && v->out->checkpoints)) {
        v->out->broken = AUDIT_HEAD;
    } else if (v->head.seq > v->out->last_seq) {
        v->out->broken = AUDIT_TRUNCATED;
        v->out->line++;
        v->out->expected = v->head.seq;
        v->out->found = v->out->last_seq;
    }
}

/* ---- files ------------------------------------------------------------------------------------------------------ */

static int earlier(const void *a, const void *b)
{
    const struct source *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return strcmp(x->path, y->path);
}

/* A first line that was changed is still put somewhere, so that it is found to be so. */
static wk_status open_source(struct verifier *v, struct source *s, const struct wk_err *err)
{
    s->first = UINT64_MAX;
    s->stream = fopen(s->path, "re");
    if (!s->stream) return wk_fail(err, WK_IO, "%s: cannot be opened: %s", s->path, strerror(errno));
    errno = 0;
    const ssize_t len = getline(&v->line, &v->cap, s->stream);
    if (len < 0 && (ferror(s->stream) || errno == ENOMEM)) return failed(s->path, err);
    if (len > 0 && sscanf(v->line, "{\"seq\":%" SCNu64, &s->first) != 1) s->first = 0;
    rewind(s->stream);
    return WK_OK;
}

static wk_status read_public_key(struct verifier *v, const char *path, const struct wk_err *err)
{
    if (!path) return WK_OK;
    FILE *f = fopen(path, "re");
    if (!f) return wk_fail(err, WK_IO, "%s: cannot be opened: %s", path, strerror(errno));
    v->public_key = PEM_read_PUBKEY(f, NULL, NULL, NULL);
    (void)fclose(f);
    if (v->public_key && EVP_PKEY_get_base_id(v->public_key) == EVP_PKEY_ED25519) return WK_OK;
    return wk_fail(err, WK_INVALID, "%s: expected an Ed25519 public key in PEM form: openssl pkey -pubout", path);
}

wk_status audit_verify(const char *const *paths, size_t n, const void *key, size_t key_len, const char *public_key,
                       struct audit_verdict *out, const struct wk_err *err)
{
    struct verifier v = { .out = out };
    *out = (struct audit_verdict){ .broken = AUDIT_WHOLE };
    if (!n) return wk_fail(err, WK_INVALID, "expected at least one file of an audit log");
    v.sources = calloc(n, sizeof *v.sources);
    if (!v.sources) return wk_fail(err, WK_NO_MEMORY, "no memory to look at %zu files", n);
    wk_status status = audit_mac_open(&v.mac, key, key_len, err);
    if (!status) status = read_public_key(&v, public_key, err);
    for (; v.n < n && !status; v.n++) {
        v.sources[v.n].path = paths[v.n];
        status = open_source(&v, &v.sources[v.n], err);
    }
    if (!status) {
        qsort(v.sources, n, sizeof *v.sources, earlier);
        read_head(&v);
    }
    for (size_t i = 0; i < n && !status && !out->broken; i++) status = check_source(&v, i, err);
    if (!status && !out->broken) check_head(&v);
    for (size_t i = 0; i < v.n; i++)
        if (v.sources[i].stream) (void)fclose(v.sources[i].stream);
    free(v.sources);
    free(v.line);
    EVP_PKEY_free(v.public_key);
    audit_mac_close(&v.mac);
    return status;
}
