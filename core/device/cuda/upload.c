/* upload.c: the file's tensors into the weights' region.
 *
 * The work is cut into chunks: whole tiles of one load, or a piece of a vector. Several threads take chunks in file
 * order; each copies its chunk's bytes out of the mapping, under the guard, into a slot of pinned memory, sends the
 * slot to a slot of the same size on the device, and has the format's plugin re-order it from there into place. One
 * thread copies at about 12 GB/s, the link takes 55: six to eight threads keep it busy. A thread has two slots, so that
 * it fills one while the other is in flight, and its chunks go over one of two streams, so that one stream copies while
 * the other re-orders. The ring is ordinary memory, touched by the threads that use it and registered: a tenth of what
 * an allocation of pinned memory costs. */
#include "device/cuda/context.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/machine.h"
#include "base/monotonic.h"
#include "gguf/gguf.h"
#include "gguf/guard.h"
#include "plugin/guarded.h"
#include "tape/tape.h"
#include "device/cuda_calls.h"

enum {
    LANES = 8,
    STREAMS = 2,
    SLOTS = 2,
    CHUNK = 4 << 20,
    CHUNK_LEAST = 256 << 10,
    RING_MOST = 256 << 20,
    SLOT_ALIGN = 4096, /* registered memory: whole pages */
};

enum chunk_kind { CHUNK_TILES = 0, CHUNK_VALUES, CHUNK_RAW };

struct chunk {
    enum chunk_kind kind;
    uint32_t of;        /* index of the load or vector */
    uint64_t first, n;  /* tiles, values or bytes */
    const uint8_t *src; /* in the mapping */
    uint64_t bytes;     /* there */
};

struct slot {
    uint8_t *host;
    void *device;
    cudaEvent_t sent;
};

struct upload;
struct lane {
    struct upload *u;
    pthread_t thread;
    cudaStream_t stream;
    struct slot slot[SLOTS];
    bool registered;
};

struct upload {
    struct cuda_device *d;
    const struct cuda_upload *o;
    struct chunk *chunks;
    uint64_t n_chunks, bytes, slot_bytes;
    uint32_t n_lanes, n_started;
    struct lane lane[LANES];
    cudaStream_t stream[STREAMS];
    uint8_t *ring;
    struct cuda_region staging;
    _Atomic uint64_t next, done; /* chunk; bytes */
    pthread_mutex_t lock;
    pthread_cond_t ended;
    uint32_t running; /* lanes; under the lock */
    wk_status status; /* the first failure; under the lock */
    char text[512];
    _Atomic bool stop;
};

/* ---- chunks -------------------------------------------------------------------------------------------- */

static uint64_t tensor_values(const struct tape_tensor *t) { return (uint64_t)t->rows * t->cols * t->slabs; }
static uint64_t at_most(uint64_t n, uint64_t most) { return n < most ? n : most; }

/* Cuts [0, n) of one load or vector; src_bytes(i) = i * unit bytes into src, of which there are `bytes`. out NULL:
 * counts alone. */
static uint64_t cut(struct chunk *out, enum chunk_kind kind, uint32_t of, const uint8_t *src, uint64_t bytes,
                    uint64_t n, uint64_t step, uint64_t step_bytes)
{
    uint64_t count = 0;
    for (uint64_t first = 0, at = 0; first < n; first += step, at += step_bytes, count++)
        if (out)
            out[count] =
                (struct chunk){ kind, of, first, at_most(n - first, step), src + at, at_most(bytes - at, step_bytes) };
    return count;
}

static uint64_t cut_load(const struct upload *u, uint32_t i, struct chunk *out)
{
    const struct cuda_load *l = &u->o->loads[i];
    const uint64_t row = cuda_row_bytes(l->tensor), tile = row * WK_TILE_ROWS;
    const uint8_t *src = (const uint8_t *)gguf_tensor_data(l->tensor->in, tape_slab_file(l->tensor, l->slab)) +
                         tape_slab_first(l->tensor, l->slab) + l->first * row;
    const uint64_t step = u->slot_bytes / tile;
    return cut(out, CHUNK_TILES, i, src, l->n * row, ((uint64_t)l->n + WK_TILE_ROWS - 1) / WK_TILE_ROWS, step,
               step * tile);
}

static uint64_t cut_vector(const struct upload *u, uint32_t i, struct chunk *out)
{
    const struct cuda_vector *v = &u->o->vectors[i];
    const struct wk_type_cpu *type = v->tensor->type;
    const uint8_t *src = gguf_tensor_data(v->tensor->in, v->tensor->file);
    const uint64_t blocks = u->slot_bytes / sizeof(float) /
                            type->block; /* of one chunk: F32 values are the larger side, or else the bytes are */
    const uint64_t step = at_most(blocks, u->slot_bytes / type->block_bytes);
    uint64_t n = cut(out, CHUNK_VALUES, i, src, v->tensor->bytes, tensor_values(v->tensor), step * type->block,
                     step * type->block_bytes);
    if (v->raw)
        n += cut(out ? out + n : NULL, CHUNK_RAW, i, src, v->tensor->bytes, v->tensor->bytes, u->slot_bytes,
                 u->slot_bytes);
    return n;
}

static int by_source(const void *a, const void *b)
{
    const struct chunk *x = a, *y = b;
    return (x->src > y->src) - (x->src < y->src);
}

/* Slots that hold 16 rows of every tensor and a block of every vector. */
static wk_status choose_slots(struct upload *u, const struct wk_err *err)
{
    uint64_t slot = u->o->chunk ? u->o->chunk : CHUNK;
    if (slot < CHUNK_LEAST) slot = CHUNK_LEAST;
    for (uint32_t i = 0; i < u->o->n_loads; i++) {
        const uint64_t tile = cuda_row_bytes(u->o->loads[i].tensor) * WK_TILE_ROWS;
        if (tile > RING_MOST / SLOTS)
            return wk_fail(
                err, WK_UNSUPPORTED, "%s: a row of %" PRIu64 " bytes; rows of up to %d bytes can be sent to a device",
                u->o->loads[i].tensor->name, cuda_row_bytes(u->o->loads[i].tensor), RING_MOST / SLOTS / WK_TILE_ROWS);
        if (slot < tile) slot = tile;
    }
    for (uint32_t i = 0; i < u->o->n_vectors; i++) {
        const struct wk_type_cpu *type = u->o->vectors[i].tensor->type;
        const uint64_t block =
            type->block_bytes > type->block * sizeof(float) ? type->block_bytes : type->block * sizeof(float);
        if (slot < block) slot = block;
    }
    u->slot_bytes = (slot + SLOT_ALIGN - 1) / SLOT_ALIGN * SLOT_ALIGN;
    return WK_OK;
}

static wk_status make_chunks(struct upload *u, const struct wk_err *err)
{
    wk_status s = choose_slots(u, err);
    if (s) return s;
    uint64_t n = 0;
    for (uint32_t i = 0; i < u->o->n_loads; i++) n += cut_load(u, i, NULL);
    for (uint32_t i = 0; i < u->o->n_vectors; i++) n += cut_vector(u, i, NULL);
    u->chunks = calloc(n ? n : 1, sizeof *u->chunks);
    if (!u->chunks) return wk_fail(err, WK_NO_MEMORY, "out of memory for a list of %" PRIu64 " pieces", n);
    for (uint32_t i = 0; i < u->o->n_loads; i++) u->n_chunks += cut_load(u, i, u->chunks + u->n_chunks);
    for (uint32_t i = 0; i < u->o->n_vectors; i++) u->n_chunks += cut_vector(u, i, u->chunks + u->n_chunks);
    qsort(u->chunks, n, sizeof *u->chunks, by_source); /* a disk reads forwards */
    for (uint64_t i = 0; i < n; i++) u->bytes += u->chunks[i].bytes;
    return WK_OK;
}

/* ---- one lane ------------------------------------------------------------------------------------------ */

/* The chunk's bytes, or a vector's values, into a slot. */
static wk_status fill(const struct upload *u, const struct chunk *c, struct slot *s, const struct wk_err *err)
{
    if (c->kind != CHUNK_VALUES) return gguf_guarded_copy(s->host, c->src, c->bytes, err);
    const struct wk_type_cpu *type = u->o->vectors[c->of].tensor->type;
    return guarded_dequantize(type, (float *)(void *)s->host, c->src, c->n, c->bytes, err);
}

static wk_status send(const struct upload *u, const struct chunk *c, const struct slot *s, cudaStream_t stream,
                      const struct wk_err *err)
{
    const bool tiles = c->kind == CHUNK_TILES;
    void *to = s->device;
    if (c->kind == CHUNK_VALUES) to = u->o->vectors[c->of].device + c->first;
    if (c->kind == CHUNK_RAW) to = (uint8_t *)u->o->vectors[c->of].raw + c->first;
    const uint64_t bytes = c->kind == CHUNK_VALUES ? c->n * sizeof(float) : c->bytes;
    wk_status st = cuda_check(u->d, cudaMemcpyAsync(to, s->host, bytes, cudaMemcpyHostToDevice, stream), "upload", err);
    if (!st && tiles) {
        const struct cuda_load *l = &u->o->loads[c->of];
        const uint64_t row = cuda_row_bytes(l->tensor);
        const struct wk_cuda_tiles t = { .struct_size = sizeof t,
                                         .k = l->tensor->cols,
                                         .n_tiles = (uint32_t)c->n,
                                         .n_rows = (uint32_t)(c->bytes / row),
                                         .tiles =
                                             (uint8_t *)l->tiles + c->first * type_tile_bytes(l->type, l->tensor->cols),
                                         .rows = s->device,
                                         .row_bytes = row };
        st = type_pack(l->type, &t, stream, err);
    }
    if (!st) st = cuda_check(u->d, cudaEventRecord(s->sent, stream), "upload: event", err);
    return st;
}

static wk_status run_chunks(struct lane *lane, const struct wk_err *err)
{
    struct upload *u = lane->u;
    for (uint32_t turn = 0;; turn = (turn + 1) % SLOTS) {
        struct slot *s = &lane->slot[turn];
        const uint64_t i = atomic_fetch_add(&u->next, 1);
        if (i >= u->n_chunks || atomic_load_explicit(&u->stop, memory_order_relaxed)) return WK_OK;
        wk_status st = cuda_check(u->d, cudaEventSynchronize(s->sent), "upload",
                                  err); /* an event that was never recorded has happened */
        if (!st) st = fill(u, &u->chunks[i], s, err);
        if (!st) st = send(u, &u->chunks[i], s, lane->stream, err);
        if (st) return st;
        atomic_fetch_add_explicit(&u->done, u->chunks[i].bytes, memory_order_relaxed);
    }
}

static wk_status lane_begin(struct lane *lane, const struct wk_err *err)
{
    struct upload *u = lane->u;
    wk_status st = cuda_check(u->d, cudaSetDevice((int)u->d->info.index), "upload: cudaSetDevice", err);
    memset(lane->slot[0].host, 0, SLOTS * u->slot_bytes); /* first touch: by as many threads as there are lanes */
    if (!st)
        st = cuda_check(u->d, cudaHostRegister(lane->slot[0].host, SLOTS * u->slot_bytes, cudaHostRegisterPortable),
                        "upload: cudaHostRegister", err);
    lane->registered = st == WK_OK;
    for (int i = 0; !st && i < SLOTS; i++)
        st = cuda_check(u->d,
                        cudaEventCreateWithFlags(&lane->slot[i].sent, cudaEventDisableTiming | cudaEventBlockingSync),
                        "upload: cudaEventCreate", err);
    return st;
}

static void lane_end(struct lane *lane)
{
    (void)cudaStreamSynchronize(lane->stream); /* nothing of the slots is under way any more */
    for (int i = 0; i < SLOTS; i++)
        if (lane->slot[i].sent) (void)cudaEventDestroy(lane->slot[i].sent);
    if (lane->registered) (void)cudaHostUnregister(lane->slot[0].host);
}

static void *run_lane(void *arg)
{
    struct lane *lane = arg;
    struct upload *u = lane->u;
    char text[sizeof u->text] = "";
    const struct wk_err err = { text, sizeof text };
    wk_status st = lane_begin(lane, &err);
    if (!st) st = run_chunks(lane, &err);
    if (st) atomic_store(&u->stop, true);
    lane_end(lane);
    (void)pthread_mutex_lock(&u->lock);
    if (st && !u->status) {
        u->status = st;
        memcpy(u->text, text, sizeof u->text);
    }
    u->running--;
    (void)pthread_cond_signal(&u->ended);
    (void)pthread_mutex_unlock(&u->lock);
    return NULL;
}

/* ---- all of them --------------------------------------------------------------------------------------- */

/* As many lanes as are worth it; where the model leaves less of the device than their staging takes, fewer. */
static wk_status make_staging(struct upload *u, const struct wk_err *err)
{
    const uint64_t lane_bytes = SLOTS * u->slot_bytes, processors = machine_processors();
    const uint64_t lanes = at_most(at_most(LANES, processors), at_most(u->n_chunks, RING_MOST / lane_bytes));
    wk_status s = WK_NO_MEMORY;
    for (u->n_lanes = lanes ? (uint32_t)lanes : 1; u->n_lanes && s == WK_NO_MEMORY; u->n_lanes /= 2) {
        s = cuda_region_map(u->d, MEMORY_WORKSPACE, u->n_lanes * lane_bytes, &u->staging, err);
        if (!s) return WK_OK;
    }
    return s;
}

static wk_status make_ring(struct upload *u, const struct wk_err *err)
{
    wk_status s = make_staging(u, err);
    if (s) return s;
    const uint64_t lane_bytes = SLOTS * u->slot_bytes, bytes = u->n_lanes * lane_bytes;
    void *ring = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ring == MAP_FAILED) return wk_fail(err, WK_NO_MEMORY, "out of memory: %" PRIu64 " bytes for staging", bytes);
    u->ring = ring;
    (void)madvise(ring, bytes, MADV_HUGEPAGE); /* a wish */
    for (int i = 0; !s && i < STREAMS; i++)
        s = cuda_check(u->d, cudaStreamCreateWithFlags(&u->stream[i], cudaStreamNonBlocking), "cudaStreamCreate", err);
    for (uint32_t i = 0; i < u->n_lanes; i++) {
        u->lane[i].u = u;
        u->lane[i].stream = u->stream[i % STREAMS];
        for (uint32_t k = 0; k < SLOTS; k++)
            u->lane[i].slot[k] =
                (struct slot){ .host = u->ring + i * lane_bytes + k * u->slot_bytes,
                               .device = (void *)(uintptr_t)(u->staging.base + i * lane_bytes + k * u->slot_bytes) };
    }
    return s;
}

static void free_ring(struct upload *u)
{
    for (int i = 0; i < STREAMS; i++)
        if (u->stream[i]) (void)cudaStreamDestroy(u->stream[i]);
    cuda_region_unmap(u->d, &u->staging);
    if (u->ring) (void)munmap(u->ring, u->n_lanes * SLOTS * u->slot_bytes);
    free(u->chunks);
}

/* Each quarter is told even where the upload is faster than anybody looks. */
static void tell(const struct upload *u, uint32_t *quarters, bool all)
{
    if (!u->o->progress) return;
    const double fraction = all || !u->bytes ? 1.0 : (double)atomic_load(&u->done) / (double)u->bytes;
    while (*quarters <= 4 && fraction >= *quarters / 4.0) u->o->progress(u->o->progress_user, (*quarters)++ / 4.0);
    if (fraction < 1.0) u->o->progress(u->o->progress_user, fraction);
}

static void wait_for_lanes(struct upload *u)
{
    enum { LOOK_MS = 20 };
    uint32_t quarters = 0;
    (void)pthread_mutex_lock(&u->lock);
    while (u->running) {
        const struct timespec until = clock_in(CLOCK_MONOTONIC, LOOK_MS);
        (void)pthread_cond_timedwait(&u->ended, &u->lock, &until);
        (void)pthread_mutex_unlock(&u->lock);
        tell(u, &quarters, false);
        (void)pthread_mutex_lock(&u->lock);
    }
    (void)pthread_mutex_unlock(&u->lock);
    if (!u->status) tell(u, &quarters, true);
}

static wk_status run_lanes(struct upload *u, const struct wk_err *err)
{
    if (!cond_init_monotonic(&u->ended)) return wk_fail(err, WK_NO_MEMORY, "no memory for the upload");
    (void)pthread_mutex_init(&u->lock, NULL);
    int why = 0;
    u->running = u->n_lanes;
    while (u->n_started < u->n_lanes &&
           !(why = pthread_create(&u->lane[u->n_started].thread, NULL, run_lane, &u->lane[u->n_started])))
        u->n_started++;
    (void)pthread_mutex_lock(&u->lock);
    u->running -= u->n_lanes - u->n_started; /* fewer lanes are slower, not wrong */
    (void)pthread_mutex_unlock(&u->lock);
    if (u->n_started) wait_for_lanes(u);
    for (uint32_t i = 0; i < u->n_started; i++) (void)pthread_join(u->lane[i].thread, NULL);
    (void)pthread_mutex_destroy(&u->lock);
    (void)pthread_cond_destroy(&u->ended);
    if (!u->n_started) return wk_fail(err, WK_NO_MEMORY, "no thread for the upload: %s", strerror(why));
    return u->status ? wk_fail(err, u->status, "%s", u->text) : WK_OK;
}

static wk_status send_all(struct cuda_device *d, const struct wk_err *err)
{
    struct upload u = { .d = d, .o = &d->upload };
    wk_status s = make_chunks(&u, err);
    if (!s) s = make_ring(&u, err);
    if (!s) s = run_lanes(&u, err);
    for (int i = 0; i < STREAMS && !s; i++) s = cuda_check(d, cudaStreamSynchronize(u.stream[i]), "upload", err);
    free_ring(&u);
    return s;
}

wk_status cuda_upload(struct cuda_device *d, const struct cuda_upload *u, const struct wk_err *err)
{
    if (d->upload.file) return wk_fail(err, WK_INTERNAL, "this device holds its model already");
    cuda_prefetch_end(d->prefetch); /* what it has not read, the upload's own threads read */
    d->prefetch = NULL;
    d->upload = *u;
    wk_status s = cuda_digest_begin(d, err);
    if (!s) s = send_all(d, err);
    if (s) {
        cuda_digest_end(d);
        return s;
    }
    cuda_write_protect(d);
    cuda_digest_resident(d);
    return u->digest ? cuda_seal(d, err) : WK_OK;
}
