/* seal.c: the weights' digest, from the file and from the device, and their protection.
 *
 * The digest is the SHA-256 of the tensors that the device holds, byte for byte and in the order of the file, then of
 * those of each adapter. One
 * stream of it runs at about 2 GB/s, a twentieth of the upload, so that it cannot ride along: a thread of its own
 * hashes the mapping beside the upload and after it, and the model serves meanwhile unless a digest was demanded. When
 * it is done the weights are sealed and the file's tensor data are unmapped. The same walk over the same pieces, with
 * bytes from the tiles instead of the file, verifies it later. */
#include "device/cuda/context.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "gguf/gguf.h"
#include "gguf/guard.h"
#include "tape/tape.h"
#include "device/cuda_calls.h"

enum { HASH_BYTES = 128 << 10 /* at a time: stays in a core's cache */, VERIFY_BYTES = 4 << 20 };

/* A run of a file's bytes that one load or one vector put on the device. */
struct piece {
    const struct gguf *in;
    uint32_t adapter, shard;      /* adapter: 0: of the model's file */
    uint64_t first, end;          /* in the shard's data section */
    const struct cuda_load *load; /* or */
    const struct cuda_vector *vector;
};

struct cuda_digest {
    const struct gguf *file;
    const char *demanded;
    struct piece *pieces;
    uint32_t n_pieces;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    _Atomic bool stop;
    bool resident, finished, sealed; /* under the lock, as are: */
    char hex[65];
    wk_status status;
    char text[512];
};

uint64_t cuda_row_bytes(const struct tape_tensor *t) { return t->bytes / ((uint64_t)t->rows * t->slabs); }
uint64_t cuda_vector_raw(const struct tape_tensor *tensor)
{
    return tensor->file->ggml_type == 0 /* F32 */ ? 0 : tensor->bytes;
}

/* ---- the pieces in file order -------------------------------------------------------------------------- */

static int in_file_order(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    if (x->adapter != y->adapter) return x->adapter < y->adapter ? -1 : 1;
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static struct piece *list_pieces(const struct cuda_upload *u, uint32_t *n)
{
    struct piece *list = calloc((size_t)u->n_loads + u->n_vectors + 1, sizeof *list);
    if (!list) return NULL;
    *n = 0;
    for (uint32_t i = 0; i < u->n_loads; i++) {
        const struct cuda_load *l = &u->loads[i];
        const struct gguf_tensor *t = tape_slab_file(l->tensor, l->slab);
        const uint64_t row = cuda_row_bytes(l->tensor),
                       first = t->offset + tape_slab_first(l->tensor, l->slab) + l->first * row;
        list[(*n)++] = (struct piece){ .in = l->tensor->in,
                                       .adapter = l->tensor->adapter,
                                       .shard = t->shard,
                                       .first = first,
                                       .end = first + l->n * row,
                                       .load = l };
    }
    for (uint32_t i = 0; i < u->n_vectors; i++) {
        const struct tape_tensor *t = u->vectors[i].tensor;
        list[(*n)++] = (struct piece){ .in = t->in,
                                       .adapter = t->adapter,
                                       .shard = t->file->shard,
                                       .first = t->file->offset,
                                       .end = t->file->offset + t->bytes,
                                       .vector = &u->vectors[i] };
    }
    qsort(list, *n, sizeof *list, in_file_order);
    return list;
}

/* Calls visit for every byte once: rows that two loads share count for the first. */
static wk_status walk(const struct piece *list, uint32_t n,
                      wk_status (*visit)(void *user, const struct piece *p, uint64_t first, const struct wk_err *err),
                      void *user, const struct wk_err *err)
{
    uint64_t at = 0;
    wk_status s = WK_OK;
    for (uint32_t i = 0; !s && i < n; i++) {
        if (!i || list[i].adapter != list[i - 1].adapter || list[i].shard != list[i - 1].shard) at = 0;
        const uint64_t first = list[i].first > at ? list[i].first : at;
        if (first >= list[i].end) continue;
        s = visit(user, &list[i], first, err);
        at = list[i].end;
    }
    return s;
}

/* ---- from the file ------------------------------------------------------------------------------------- */

struct file_hash {
    struct cuda_digest *d;
    struct sha256 *sha;
    uint8_t *buffer;
};

static const uint8_t *piece_source(const struct piece *p)
{
    const struct gguf_tensor *t = p->load ? tape_slab_file(p->load->tensor, p->load->slab) : p->vector->tensor->file;
    return (const uint8_t *)gguf_tensor_data(p->in, t) + (p->first - t->offset);
}

/* Copied out first: a fault must not leave libcrypto in the middle of something. */
static wk_status hash_file_piece(void *user, const struct piece *p, uint64_t first, const struct wk_err *err)
{
    struct file_hash *h = user;
    const uint8_t *src = piece_source(p);
    for (uint64_t at = first; at < p->end; at += HASH_BYTES) {
        const size_t n = p->end - at < HASH_BYTES ? (size_t)(p->end - at) : HASH_BYTES;
        if (atomic_load_explicit(&h->d->stop, memory_order_relaxed)) return WK_CANCELLED;
        wk_status s = gguf_guarded_copy(h->buffer, src + (at - p->first), n, err);
        if (s) return s;
        sha256_update(h->sha, h->buffer, n);
    }
    return WK_OK;
}

static wk_status hash_file(struct cuda_digest *d, char hex[65], const struct wk_err *err)
{
    struct file_hash h = { .d = d, .sha = sha256_begin(), .buffer = malloc(HASH_BYTES) };
    wk_status s = h.sha && h.buffer ? walk(d->pieces, d->n_pieces, hash_file_piece, &h, err)
                                    : wk_fail(err, WK_NO_MEMORY, "out of memory for the digest");
    if (h.sha && !sha256_end(h.sha, hex) && !s)
        s = wk_fail(err, WK_INTERNAL, "the weights' SHA-256 cannot be computed");
    free(h.buffer);
    return s;
}

static wk_status compare(const char *hex, const char *demanded, const struct wk_err *err)
{
    if (!demanded || strcmp(hex, demanded) == 0) return WK_OK;
    return wk_fail(err, WK_INVALID, "the weights' digest is %s, %s was demanded: another model, or a damaged file", hex,
                   demanded);
}

static void release_files(const struct cuda_digest *d)
{
    gguf_release_tensors(d->file);
    for (uint32_t i = 1; i < d->n_pieces; i++)
        if (d->pieces[i].adapter != d->pieces[i - 1].adapter) gguf_release_tensors(d->pieces[i].in);
}

static void *digest_thread(void *arg)
{
    struct cuda_digest *d = arg;
    char hex[65] = "", text[sizeof d->text] = "";
    const struct wk_err err = { text, sizeof text };
    wk_status s = hash_file(d, hex, &err);
    if (!s) s = compare(hex, d->demanded, &err);
    (void)pthread_mutex_lock(&d->lock);
    while (!s && !d->resident && !atomic_load(&d->stop)) (void)pthread_cond_wait(&d->changed, &d->lock);
    if (!s && !d->resident) s = WK_CANCELLED;
    (void)pthread_mutex_unlock(&d->lock);
    if (!s) release_files(d); /* it takes a while, and handles are asked for meanwhile */
    (void)pthread_mutex_lock(&d->lock);
    d->sealed = s == WK_OK;
    d->status = s;
    memcpy(d->hex, hex, sizeof d->hex);
    memcpy(d->text, text, sizeof d->text);
    d->finished = true;
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
    return NULL;
}

static void digest_free(struct cuda_digest *d)
{
    (void)pthread_mutex_destroy(&d->lock);
    (void)pthread_cond_destroy(&d->changed);
    free(d->pieces);
    free(d);
}

wk_status cuda_digest_begin(struct cuda_device *device, const struct wk_err *err)
{
    struct cuda_digest *d = calloc(1, sizeof *d);
    if (!d) return wk_fail(err, WK_NO_MEMORY, "out of memory for the digest");
    d->file = device->upload.file;
    d->demanded = device->upload.digest;
    d->pieces = list_pieces(&device->upload, &d->n_pieces);
    (void)pthread_mutex_init(&d->lock, NULL);
    (void)pthread_cond_init(&d->changed, NULL);
    const int why = d->pieces ? pthread_create(&d->thread, NULL, digest_thread, d) : ENOMEM;
    if (why) {
        digest_free(d);
        return wk_fail(err, WK_NO_MEMORY, "no thread for the digest: %s", strerror(why));
    }
    device->digest = d;
    return WK_OK;
}

void cuda_digest_resident(struct cuda_device *device)
{
    struct cuda_digest *d = device->digest;
    (void)pthread_mutex_lock(&d->lock);
    d->resident = true;
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
}

void cuda_digest_end(struct cuda_device *device)
{
    struct cuda_digest *d = device->digest;
    if (!d) return;
    (void)pthread_mutex_lock(&d->lock);
    atomic_store(&d->stop, true);
    (void)pthread_cond_broadcast(&d->changed);
    (void)pthread_mutex_unlock(&d->lock);
    (void)pthread_join(d->thread, NULL);
    digest_free(d);
    device->digest = NULL;
}

wk_status cuda_seal(struct cuda_device *device, const struct wk_err *err)
{
    struct cuda_digest *d = device->digest;
    if (!d) return wk_fail(err, WK_INTERNAL, "nothing was uploaded that could be sealed");
    (void)pthread_mutex_lock(&d->lock);
    while (!d->finished) (void)pthread_cond_wait(&d->changed, &d->lock);
    const wk_status s = d->status ? wk_fail(err, d->status, "%s", d->text) : WK_OK;
    (void)pthread_mutex_unlock(&d->lock);
    return s;
}

void cuda_handle(const struct cuda_device *device, struct shard_handle *out)
{
    struct memory_plan used;
    cuda_memory_used(device, &used);
    *out = (struct shard_handle){ .gpu_device = device->info.index,
                                  .vram_bytes = used.total,
                                  .write_protected = device->write_protected,
                                  .total_shards = 1 };
    struct cuda_digest *d = device->digest;
    if (!d) return;
    (void)pthread_mutex_lock(&d->lock);
    out->sealed = d->sealed;
    memcpy(out->digest, d->hex, sizeof out->digest);
    (void)pthread_mutex_unlock(&d->lock);
}

/* ---- protection ---------------------------------------------------------------------------------------- */

static CUresult set_access(struct cuda_device *d, const struct cuda_region *r, CUmemAccess_flags flags)
{
    const CUmemAccessDesc access = { .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)d->info.index },
                                     .flags = flags };
    return d->driver.set_access(r->base, r->bytes, &access, 1);
}

void cuda_write_protect(struct cuda_device *d)
{
    d->write_protected = true;
    for (uint32_t i = 0; i < d->n_regions && d->write_protected; i++)
        if (d->region[i].kind == MEMORY_WEIGHTS)
            d->write_protected = set_access(d, &d->region[i], CU_MEM_ACCESS_FLAGS_PROT_READ) == CUDA_SUCCESS;
    /* All or none, so that the handle can say which. */
    for (uint32_t i = 0; i < d->n_regions && !d->write_protected; i++)
        if (d->region[i].kind == MEMORY_WEIGHTS) (void)set_access(d, &d->region[i], CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

/* ---- from the device ----------------------------------------------------------------------------------- */

struct device_hash {
    struct cuda_device *d;
    struct sha256 *sha;
    struct cuda_region rows; /* unpacked, on the device */
    uint8_t *host;           /* the same, pinned */
    uint64_t bytes;          /* of each */
};

static wk_status hash_device_bytes(struct device_hash *h, const void *device, uint64_t skip, uint64_t n,
                                   const struct wk_err *err)
{
    wk_status s = cuda_check(
        h->d, cudaMemcpyAsync(h->host, (const uint8_t *)device + skip, n, cudaMemcpyDeviceToHost, h->d->stream),
        "verify", err);
    if (!s) s = cuda_check(h->d, cudaStreamSynchronize(h->d->stream), "verify", err);
    if (!s) sha256_update(h->sha, h->host, n);
    return s;
}

static wk_status hash_vector(struct device_hash *h, const struct cuda_vector *v, uint64_t skip, uint64_t bytes,
                             const struct wk_err *err)
{
    const uint8_t *from = v->raw ? v->raw : (const void *)v->device;
    wk_status s = WK_OK;
    for (uint64_t at = skip; !s && at < bytes; at += h->bytes)
        s = hash_device_bytes(h, from, at, bytes - at < h->bytes ? bytes - at : h->bytes, err);
    return s;
}

/* Rows of the load from `row` on, brought back into the file's order a run of tiles at a time. */
static wk_status hash_load(struct device_hash *h, const struct cuda_load *l, uint32_t row, const struct wk_err *err)
{
    const uint64_t row_bytes = cuda_row_bytes(l->tensor), tile_bytes = type_tile_bytes(l->type, l->tensor->cols);
    const uint32_t most = (uint32_t)(h->bytes / (row_bytes * WK_TILE_ROWS)) * WK_TILE_ROWS; /* rows a time */
    wk_status s = WK_OK;
    for (uint32_t first = row / WK_TILE_ROWS * WK_TILE_ROWS; !s && first < l->n; first += most) {
        const uint32_t n = l->n - first < most ? l->n - first : most, skip = row > first ? row - first : 0;
        const struct wk_cuda_tiles t = { .struct_size = sizeof t,
                                         .k = l->tensor->cols,
                                         .n_tiles = (n + WK_TILE_ROWS - 1) / WK_TILE_ROWS,
                                         .n_rows = n,
                                         .tiles = (uint8_t *)l->tiles + first / WK_TILE_ROWS * tile_bytes,
                                         .rows = (void *)(uintptr_t)h->rows.base,
                                         .row_bytes = row_bytes };
        s = type_unpack(l->type, &t, h->d->stream, err);
        if (!s)
            s = hash_device_bytes(h, (const void *)(uintptr_t)h->rows.base, skip * row_bytes, (n - skip) * row_bytes,
                                  err);
    }
    return s;
}

static wk_status hash_device_piece(void *user, const struct piece *p, uint64_t first, const struct wk_err *err)
{
    struct device_hash *h = user;
    const uint64_t skip = first - p->first;
    if (p->vector) return hash_vector(h, p->vector, skip, p->end - p->first, err);
    return hash_load(h, p->load, (uint32_t)(skip / cuda_row_bytes(p->load->tensor)), err);
}

static wk_status make_buffers(struct device_hash *h, const struct wk_err *err)
{
    const struct cuda_upload *u = &h->d->upload;
    h->bytes = VERIFY_BYTES;
    for (uint32_t i = 0; i < u->n_loads; i++) {
        const uint64_t tile = cuda_row_bytes(u->loads[i].tensor) * WK_TILE_ROWS;
        if (h->bytes < tile) h->bytes = tile;
    }
    h->sha = sha256_begin();
    if (!h->sha) return wk_fail(err, WK_NO_MEMORY, "out of memory for the digest");
    wk_status s = cuda_region_map(h->d, MEMORY_WORKSPACE, h->bytes, &h->rows, err);
    if (!s)
        s = cuda_check(h->d, cudaHostAlloc((void **)&h->host, h->bytes, cudaHostAllocDefault), "verify: cudaHostAlloc",
                       err);
    return s;
}

wk_status cuda_verify(struct cuda_device *d, char hex[65], const struct wk_err *err)
{
    struct device_hash h = { .d = d };
    uint32_t n = 0;
    hex[0] = '\0';
    if (!d->digest) return wk_fail(err, WK_INTERNAL, "nothing was uploaded that could be verified");
    struct piece *list = list_pieces(&d->upload, &n);
    wk_status s = list ? make_buffers(&h, err) : wk_fail(err, WK_NO_MEMORY, "out of memory for the digest");
    if (!s) s = walk(list, n, hash_device_piece, &h, err);
    if (h.sha && !sha256_end(h.sha, hex) && !s)
        s = wk_fail(err, WK_INTERNAL, "the weights' SHA-256 cannot be computed");
    if (s) hex[0] = '\0';
    if (h.host) (void)cudaFreeHost(h.host);
    cuda_region_unmap(d, &h.rows);
    free(list);
    return s;
}
