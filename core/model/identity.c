/* identity.c: what a model's weights are known by. Their digest, SHA-256 over the tensors' bytes as in the file and in
 * its order, reads all of them; a cheaper identity reads the headers and some pages, for whoever cannot wait. */
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "gguf/guard.h"
#include "model/model.h"

enum {
    PIECE = 1 << 20, /* read at a time */
    SAMPLE = 4096,
    WHOLE = 64 << 20 /* bytes of weights that are read all the same: some hundredths of a second */
};

static int compare(const void *a, const void *b)
{
    const struct tape_tensor *s = *(const struct tape_tensor *const *)a, *t = *(const struct tape_tensor *const *)b;
    const struct gguf_tensor *x = s->file, *y = t->file;
    if (s->adapter != t->adapter) return s->adapter < t->adapter ? -1 : 1;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* The model's tensors in the order of their bytes, each once; NULL: no memory. */
static const struct tape_tensor **in_file_order(const struct tape_program *p, uint32_t *n)
{
    const struct tape_tensor **list = calloc((size_t)p->n_tensors + 1, sizeof *list);
    uint32_t kept = 0;
    *n = 0;
    if (!list) return NULL;
    for (uint32_t i = 0; i < p->n_tensors; i++)
        if (p->tensors[i].file) list[(*n)++] = &p->tensors[i];
    if (*n) qsort(list, *n, sizeof *list, compare);
    for (uint32_t i = 0; i < *n; i++)
        if (!kept || list[i]->file != list[kept - 1]->file) list[kept++] = list[i];
    *n = kept;
    return list;
}

/* Copied out first: a fault must not leave libcrypto in the middle of something. */
static wk_status add_bytes(struct sha256 *h, const uint8_t *src, uint64_t bytes, uint8_t *buffer,
                           const atomic_bool *stop, const struct wk_err *err)
{
    for (uint64_t at = 0; at < bytes; at += PIECE) {
        const size_t n = bytes - at < PIECE ? (size_t)(bytes - at) : PIECE;
        if (stop && atomic_load_explicit(stop, memory_order_relaxed)) return wk_fail(err, WK_CANCELLED, "stopped");
        wk_status s = gguf_guarded_copy(buffer, src + at, n, err);
        if (s) return s;
        sha256_update(h, buffer, n);
    }
    return WK_OK;
}

/* What both ways share: the list, the hash, a buffer, and their end. */
struct hashing {
    const struct tape_tensor **list;
    uint32_t n;
    struct sha256 *sha;
    uint8_t *buffer;
};

static wk_status begin(const struct model *m, struct hashing *h, const struct wk_err *err)
{
    h->list = in_file_order(m->program, &h->n);
    h->sha = sha256_begin();
    h->buffer = malloc(PIECE);
    return h->list && h->sha && h->buffer ? WK_OK : wk_fail(err, WK_NO_MEMORY, "out of memory for the digest");
}

static wk_status end(struct hashing *h, wk_status status, char hex[65], const struct wk_err *err)
{
    hex[0] = '\0';
    if (h->sha && !sha256_end(h->sha, hex) && !status)
        status = wk_fail(err, WK_INTERNAL, "the weights' SHA-256 cannot be computed");
    if (status) hex[0] = '\0';
    free(h->list);
    free(h->buffer);
    return status;
}

wk_status model_digest(const struct model *m, const atomic_bool *stop, char hex[65], const struct wk_err *err)
{
    struct hashing h = { 0 };
    wk_status s = begin(m, &h, err);
    for (uint32_t i = 0; !s && i < h.n; i++)
        s = add_bytes(h.sha, gguf_tensor_data(h.list[i]->in, h.list[i]->file), h.list[i]->bytes, h.buffer, stop, err);
    return end(&h, s, hex, err);
}

/* Small weights whole; of others a place in the middle of every tensor, so that a model that was trained further in
 * some layers is another one. */
static wk_status add_samples(struct hashing *h, const struct wk_err *err)
{
    uint64_t all = 0;
    wk_status s = WK_OK;
    for (uint32_t i = 0; i < h->n; i++) all += h->list[i]->bytes;
    for (uint32_t i = 0; !s && i < h->n; i++) {
        const uint64_t bytes = h->list[i]->bytes, n = all <= WHOLE || bytes < SAMPLE ? bytes : SAMPLE;
        s = add_bytes(h->sha, gguf_tensor_data(h->list[i]->in, h->list[i]->file) + (bytes - n) / 2, n, h->buffer, NULL,
                      err);
    }
    return s;
}

static wk_status add_headers(struct hashing *h, const struct gguf *file, const struct wk_err *err)
{
    const uint64_t size = gguf_file_bytes(file);
    wk_status s = WK_OK;
    sha256_update(h->sha, &size, sizeof size);
    for (uint32_t i = 0; !s && i < gguf_shard_count(file); i++) {
        uint64_t n;
        const void *header = gguf_header(file, i, &n);
        s = add_bytes(h->sha, header, n, h->buffer, NULL, err);
    }
    return s;
}

wk_status model_identity(const struct model *m, char hex[65], const struct wk_err *err)
{
    struct hashing h = { 0 };
    wk_status s = begin(m, &h, err);
    if (!s) s = add_headers(&h, m->file, err);
    for (uint32_t i = 0; !s && i < m->n_adapters; i++)
        if (m->adapters[i].scale != 0) s = add_headers(&h, m->adapters[i].file, err);
    if (!s) s = add_samples(&h, err);
    return end(&h, s, hex, err);
}
