/* pull.c: see pull.h. What the hub says of a file (its size, its SHA-256) is taken from the list of the repository's
 * files, or else from the answer for the file. When both do not agree, the repository has changed in between, and its
 * list is asked for again. */
#include "pull.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/checked.h"
#include "part.h"

enum {
    MOST_FAILURES = 5, /* one after another, without a byte more in between */
    MOST_TRIES = 200,  /* of a file */
    MOST_ROUNDS = 3,   /* lists of a repository that changes */
    FIRST_PAUSE_MS = 250,
    MOST_PAUSE_S = 60, /* that a host may ask for */
    SLICE_NS = 100000000
};

/* One file on its way. */
struct job {
    const struct pull_options *o;
    const struct hub_ref *ref;
    struct pulled_file *out;
    struct part part;
    struct pull_news news;
    uint64_t resumed; /* bytes that another run had fetched */
    bool waited;      /* that another process has the lock was said */
    bool present;     /* it is there already */
    bool changed;     /* the hub has another file now than its list says */
    uint64_t news_at; /* bytes */
    uint64_t most;    /* bytes that were ever there */
    uint32_t failures, tries;
};

static void tell(struct job *j, enum pull_event event, uint64_t done, const char *why)
{
    j->news.event = event;
    j->news.done = done;
    j->news.why = why;
    if (j->o->news) j->o->news(j->o->user, &j->news);
}

static bool on_step(void *user, bool waits, uint64_t done)
{
    struct job *j = user;
    if (waits && !j->waited) {
        j->waited = true;
        tell(j, PULL_WAITS, 0, NULL);
    }
    if (!waits) tell(j, PULL_CHECKS, done, NULL);
    return !j->o->stop || !j->o->stop();
}

/* False: stopped. */
static bool wait_ms(const struct job *j, uint64_t ms)
{
    for (uint64_t waited = 0; waited < ms; waited += SLICE_NS / 1000000) {
        if (j->o->stop && j->o->stop()) return false;
        (void)nanosleep(&(struct timespec){ .tv_nsec = SLICE_NS }, NULL);
    }
    return true;
}

/* ---- one try ------------------------------------------------------------------------------------------- */

/* Does the answer fit what is known of the file? WK_INVALID with changed: the hub has another one. */
static wk_status compare(struct job *j, const struct hub_answer *a, const struct wk_err *err)
{
    struct pulled_file *f = j->out;
    if (!f->sha256[0]) memcpy(f->sha256, a->sha256, sizeof f->sha256);
    const uint64_t told = a->linked_bytes != HUB_UNKNOWN ? a->linked_bytes
                          : a->status == 200             ? a->length
                                                         : a->range_total;
    if (f->bytes == HUB_UNKNOWN) f->bytes = j->news.bytes = told;
    if (!f->sha256[0])
        return wk_fail(err, WK_INVALID,
                       "%.500s: the hub does not say its SHA-256, so that nobody could tell what comes", f->path);
    if (f->bytes == HUB_UNKNOWN) return wk_fail(err, WK_INVALID, "%.500s: the hub does not say its size", f->path);
    if ((a->sha256[0] && strcmp(a->sha256, f->sha256) != 0) || (told != HUB_UNKNOWN && told != f->bytes)) {
        j->changed = true;
        return wk_fail(err, WK_INVALID,
                       "%.500s: the hub's list has %" PRIu64 " bytes with SHA-256 %.64s, its file another size or "
                       "SHA-256: it changes; try again later",
                       f->path, f->bytes, f->sha256);
    }
    return WK_OK;
}

/* Does the answer go on with what is there? Otherwise what is there is dropped. *again: the file must be asked for from
 * its beginning. */
static wk_status settle(struct job *j, const struct hub_answer *a, bool *again, const struct wk_err *err)
{
    struct part *p = &j->part;
    const bool same = !a->etag[0] || !p->etag[0] || strcmp(a->etag, p->etag) == 0;
    *again = false;
    if (a->status == 206 && p->bytes && a->range_first == p->bytes && same) return WK_OK;
    *again = a->status != 200;
    j->resumed = 0;
    return part_restart(p, j->out->sha256, a->etag, err);
}

/* The body. WK_OK: all of the file is there. */
static wk_status take_body(struct job *j, const struct wk_err *err)
{
    const uint64_t step = j->out->bytes / 1000 + 65536;
    for (;;) {
        const char *bytes;
        size_t n;
        wk_status status = hub_read(j->o->hub, &bytes, &n, err);
        if (status) return status;
        if (!n) break;
        if (n > j->out->bytes - j->part.bytes) {
            (void)part_restart(&j->part, j->out->sha256, "", NULL);
            return wk_fail(err, WK_INVALID, "%.500s: more than the %" PRIu64 " bytes come that the hub says it has",
                           j->out->path, j->out->bytes);
        }
        if ((status = part_write(&j->part, bytes, n, err)) != WK_OK) return status;
        j->out->fetched += n;
        if (j->part.bytes > j->most) {
            j->most = j->part.bytes;
            j->failures = 0;
        }
        if (j->part.bytes - j->news_at >= step || j->part.bytes == j->out->bytes) {
            j->news_at = j->part.bytes;
            tell(j, PULL_BYTES, j->part.bytes, NULL);
        }
    }
    if (j->part.bytes == j->out->bytes) return WK_OK;
    return wk_fail(err, WK_IO, "%.500s: %" PRIu64 " of %" PRIu64 " bytes came, then the answer ended", j->out->path,
                   j->part.bytes, j->out->bytes);
}

/* Is the file there already, under its name and right? Not while the hub has not said what is right. */
static wk_status look_for_it(struct job *j, const struct wk_err *err)
{
    char sha256[HUB_SHA256];
    bool there;
    if (j->out->bytes == HUB_UNKNOWN || !j->out->sha256[0]) return WK_OK;
    const wk_status status = part_file_sha256(j->out->local, j->out->bytes, on_step, j, sha256, &there, err);
    j->present = !status && there && strcmp(sha256, j->out->sha256) == 0;
    return status;
}

/* WK_OK: all of the file is in the part, or present. */
static wk_status attempt(struct job *j, struct hub_answer *a, const struct wk_err *err)
{
    enum { ASKS = 3 };
    struct part *p = &j->part;
    bool again = true;
    for (int i = 0; again && i < ASKS; i++) {
        const bool known = j->out->sha256[0] && j->out->bytes != HUB_UNKNOWN;
        wk_status status = hub_get(j->o->hub, j->ref, j->out->path, p->bytes, p->etag, a, err);
        if (!status) status = compare(j, a, err);
        if (!status && !known) status = look_for_it(j, err);
        if (!status && j->present) return WK_OK;
        if (!status && !known) { /* now it can be told what the part is of */
            status = part_resume(p, j->out->sha256, j->out->bytes, on_step, j, err);
            j->resumed = p->bytes;
            if (!status && p->bytes) continue;
        }
        if (!status) status = settle(j, a, &again, err);
        if (status) return status;
    }
    if (again)
        return wk_fail(err, WK_IO, "%.500s: answers %u where all of the file was asked for", j->out->path, a->status);
    tell(j, PULL_BEGINS, p->bytes, NULL);
    j->news_at = p->bytes;
    return take_body(j, err);
}

/* ---- a file -------------------------------------------------------------------------------------------- */

static wk_status give_up_or_wait(struct job *j, wk_status status, const struct hub_answer *a, const struct wk_err *err)
{
    uint64_t pause = (uint64_t)FIRST_PAUSE_MS << (j->failures < 8 ? j->failures : 8);
    j->failures++;
    if (j->failures >= MOST_FAILURES || ++j->tries >= MOST_TRIES) {
        char why[1024];
        (void)snprintf(why, sizeof why, "%s", err && err->text ? err->text : "");
        return wk_fail(err, status, "%s; given up after %u tries%s", why, j->failures,
                       j->part.bytes ? "; what came is kept, and the same command goes on from there" : "");
    }
    if (a->retry_after) pause = (a->retry_after < MOST_PAUSE_S ? a->retry_after : MOST_PAUSE_S) * UINT64_C(1000);
    tell(j, PULL_BREAKS, j->part.bytes, err && err->text ? err->text : "");
    return wait_ms(j, pause) ? WK_OK : wk_fail(err, WK_CANCELLED, "stopped");
}

static wk_status fetch_all(struct job *j, const struct wk_err *err)
{
    for (;;) {
        struct hub_answer a = { 0 };
        if (j->out->sha256[0] && j->part.bytes == j->out->bytes) return WK_OK;
        wk_status status = attempt(j, &a, err);
        if (!status) return WK_OK;
        if (status != WK_IO) return status;
        status = give_up_or_wait(j, status, &a, err);
        if (status) return status;
    }
}

/* Fetches it and gives it its name. A wrong SHA-256 of what an earlier run began is one more reason to begin anew. */
static wk_status fetch_checked(struct job *j, const struct wk_err *err)
{
    struct pulled_file *f = j->out;
    wk_status status = WK_OK;
    if (f->sha256[0] && f->bytes != HUB_UNKNOWN) {
        status = part_resume(&j->part, f->sha256, f->bytes, on_step, j, err);
        j->resumed = j->part.bytes;
    }
    for (;;) {
        bool right = false;
        char sha256[HUB_SHA256];
        if (!status) status = fetch_all(j, err);
        if (status || j->present) return status;
        memcpy(sha256, f->sha256, sizeof sha256);
        status = part_finish(&j->part, sha256, &right, err);
        if (status || right) return status;
        if (!j->resumed) {
            j->changed = true; /* or the list is old: it is asked for once more */
            return wk_fail(err, WK_INVALID,
                           "%.500s: its SHA-256 is %s where the hub says %s: what came is wrong and was dropped",
                           f->path, sha256, f->sha256);
        }
        j->resumed = 0;
        tell(j, PULL_BREAKS, 0, "what an earlier run had begun was wrong");
        status = part_restart(&j->part, f->sha256, "", err);
    }
}

static wk_status fetch_file(struct job *j, const struct wk_err *err)
{
    wk_status status = part_make_folders(j->out->local, err);
    if (!status) status = look_for_it(j, err);
    if (!status && !j->present) {
        status = part_open(j->out->local, on_step, j, &j->part, err);
        if (!status) status = look_for_it(j, err); /* another process may have fetched it since */
        if (!status && !j->present) status = fetch_checked(j, err);
        part_close(&j->part);
    }
    if (!status) tell(j, j->present ? PULL_PRESENT : PULL_DONE, j->out->bytes, NULL);
    return status;
}

/* ---- a model ------------------------------------------------------------------------------------------- */

static const struct hub_file *listed(const struct hub_listing *l, const char *path)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->files[i].path, path) == 0) return &l->files[i];
    return NULL;
}

/* File i of n of the model whose first is `first`. */
static wk_status name_file(const struct pull_options *o, const struct hub_ref *ref, const struct hub_listing *l,
                           const char *first, uint32_t i, uint32_t n, struct pulled_file *out, const struct wk_err *err)
{
    uint32_t part, parts;
    size_t stem;
    int made;
    *out = (struct pulled_file){ .bytes = HUB_UNKNOWN };
    if (n > 1 && ref_part(first, &part, &parts, &stem))
        made = asprintf(&out->path, "%.*s-%05u-of-%05u.gguf", (int)stem, first, i + 1, n);
    else
        made = asprintf(&out->path, "%s", first);
    if (made < 0) out->path = NULL;
    if (!out->path || asprintf(&out->local, "%s/%s/%s/%s", o->folder, ref->org, ref->name, out->path) < 0) {
        out->local = NULL;
        return wk_fail(err, WK_NO_MEMORY, "no memory for the list of files");
    }
    const struct hub_file *file = listed(l, out->path);
    if (!file)
        return wk_fail(err, WK_INVALID, "hf:%s/%s: %.300s is not there, which is file %u of %u of this model", ref->org,
                       ref->name, out->path, i + 1, n);
    out->bytes = file->bytes;
    memcpy(out->sha256, file->sha256, sizeof out->sha256);
    return WK_OK;
}

static wk_status choose(const struct pull_options *o, const struct hub_ref *ref, const struct hub_listing *l,
                        struct pulled *out, const struct wk_err *err)
{
    size_t chosen = 0, stem;
    uint32_t part, parts = 1;
    const char **paths = malloc((l->n + 1) * sizeof *paths);
    if (!paths) return wk_fail(err, WK_NO_MEMORY, "no memory for the list of files");
    for (size_t i = 0; i < l->n; i++) paths[i] = l->files[i].path;
    wk_status status = ref_choose(ref, paths, l->n, &chosen, err);
    free(paths);
    if (status) return status;
    const char *first = l->files[chosen].path;
    if (strlen(first) < 6 || strcasecmp(first + strlen(first) - 5, ".gguf") != 0)
        return wk_fail(err, WK_INVALID, "hf:%s/%s/%.300s: is no GGUF file", ref->org, ref->name, first);
    if (!ref_part(first, &part, &parts, &stem)) parts = 1;
    if (parts > REF_MOST_PARTS)
        return wk_fail(err, WK_INVALID, "%.300s: a model of more than %d files", first, REF_MOST_PARTS);
    out->files = calloc(parts, sizeof *out->files);
    if (!out->files) return wk_fail(err, WK_NO_MEMORY, "no memory for the list of files");
    for (uint32_t i = 0; !status && i < parts; i++) {
        status = name_file(o, ref, l, first, i, parts, &out->files[i], err);
        out->n++;
    }
    return status;
}

/* Is there room for what is still to come? A file system that does not say so is found out by writing. */
static wk_status check_room(const struct pull_options *o, const struct pulled *p, const struct wk_err *err)
{
    struct statvfs v;
    uint64_t needed = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        const uint64_t bytes = p->files[i].bytes;
        if (bytes != HUB_UNKNOWN &&
            !checked_add_u64(needed, bytes - part_bytes_there(p->files[i].local, bytes), &needed))
            return wk_fail(err, WK_INVALID, "%.500s: the hub says sizes that cannot be", p->files[i].path);
    }
    const wk_status status = part_make_folders(p->files[0].local, err);
    if (status) return status;
    if (statvfs(o->folder, &v) != 0 || !v.f_blocks) return WK_OK;
    const uint64_t room = (uint64_t)v.f_bavail * v.f_frsize;
    if (needed <= room) return WK_OK;
    return wk_fail(err, WK_INVALID,
                   "%.1000s: %" PRIu64 " bytes are to come and there is room for %" PRIu64
                   ": make room, or name another folder with --model-dir",
                   o->folder, needed, room);
}

static wk_status fetch_files(const struct pull_options *o, const struct hub_ref *ref, struct pulled *p, bool *changed,
                             const struct wk_err *err)
{
    wk_status status = check_room(o, p, err);
    for (uint32_t i = 0; !status && i < p->n; i++) {
        struct job j = { .o = o, .ref = ref, .out = &p->files[i], .part = { .fd = -1 } };
        j.news = (struct pull_news){ .path = p->files[i].path, .file = i, .files = p->n, .bytes = p->files[i].bytes };
        status = fetch_file(&j, err);
        *changed = j.changed;
    }
    return status;
}

/* Are the two lists of the same files? Then the list was not what was wrong. */
static bool is_same(const struct pulled *a, const struct pulled *b)
{
    bool same = a->n == b->n;
    for (uint32_t i = 0; same && i < a->n; i++)
        same = strcmp(a->files[i].path, b->files[i].path) == 0 && a->files[i].bytes == b->files[i].bytes &&
               strcmp(a->files[i].sha256, b->files[i].sha256) == 0;
    return same;
}

/* The list, with tries as of a file. */
static wk_status list(const struct pull_options *o, const struct hub_ref *ref, struct hub_listing *l,
                      const struct wk_err *err)
{
    struct pulled_file none = { 0 };
    struct job j = { .o = o, .ref = ref, .out = &none, .part = { .fd = -1 }, .news = { .path = "the list of files" } };
    for (;;) {
        wk_status status = hub_list(o->hub, ref, l, err);
        if (status != WK_IO) return status;
        hub_listing_free(l);
        status = give_up_or_wait(&j, status, &(struct hub_answer){ 0 }, err);
        if (status) return status;
    }
}

wk_status pull_model(const struct pull_options *o, const struct hub_ref *ref, struct pulled *out,
                     const struct wk_err *err)
{
    wk_status status = WK_OK;
    *out = (struct pulled){ 0 };
    for (int round = 0; round < MOST_ROUNDS; round++) {
        struct hub_listing l;
        struct pulled next = { 0 };
        bool changed = false;
        char why[1024];
        (void)snprintf(why, sizeof why, "%s", status && err && err->text ? err->text : "");
        const wk_status before = status;
        status = list(o, ref, &l, err);
        if (!status) status = choose(o, ref, &l, &next, err);
        hub_listing_free(&l);
        const bool same = round && !status && is_same(&next, out);
        pulled_free(out);
        *out = next;
        if (same) return wk_fail(err, before, "%s", why);
        if (!status) status = fetch_files(o, ref, out, &changed, err);
        if (!status || !changed) return status;
    }
    return status;
}

void pulled_free(struct pulled *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        free(p->files[i].path);
        free(p->files[i].local);
    }
    free(p->files);
    *p = (struct pulled){ 0 };
}
