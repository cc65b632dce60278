/* pages.c: bytes of pages to and from host memory and other processes' GPUs, beside the steps.
 *
 * Streams of their own copy; steps never wait for them, but share the memory's speed with them. Host memory that is not
 * pinned goes through pinned slots, so that the processor copies one while the GPU fills or empties the next. One
 * thread copies more slowly than the GPU does, so there are lanes for several at once; who finds none free waits.
 * Pinned memory, and pages of another process's GPU, are read and written where they are. */
#include "device/cuda/executor.h"

#include <cuda_runtime_api.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "device/kv_pages.h"
#include "device/step_check.h"

enum { LANES = 4, SLOTS = 3, SLOT_BYTES = 2 << 20, SLOT_MOVES = 4096 };

/* Part of a transfer that is under way. */
struct slot {
    uint8_t *host, *device; /* [SLOT_BYTES] the same memory */
    struct cuda_move *moves, *moves_device;
    uint8_t **outside; /* [SLOT_MOVES] where each copy goes on the host; NULL of all: nowhere */
    cudaEvent_t done;
    uint32_t n;
    uint64_t used; /* bytes */
    bool busy;
};
struct lane {
    pthread_mutex_t lock; /* of the transfer that it has */
    cudaStream_t stream;
    struct slot slot[SLOTS];
    uint32_t next;
    uint8_t *outside[SLOTS][SLOT_MOVES];
};
struct cuda_mover {
    struct lane lane[LANES];
    _Atomic uint32_t turn; /* who waits, waits for this one */
};

struct device_peer {
    void *base;
    uint64_t bytes;
    uint32_t kv_pages[TAPE_MAX_GROUPS];
    uint64_t layer[]; /* [n_kv_layers] where each begins */
};

/* ---- open and close ------------------------------------------------------------------------------------ */

static wk_status check_sizes(const struct executor *x, const struct wk_err *err)
{
    for (uint32_t k = 0; k < x->program->n_kv_layers; k++)
        if (cuda_layer_page_bytes(x, k) % 16)
            return wk_fail(err, WK_INTERNAL,
                           "a page of cache layer %u has %" PRIu64 " bytes: expected a multiple of 16", k,
                           cuda_layer_page_bytes(x, k));
    return WK_OK;
}

static wk_status slot_open(struct executor *x, struct slot *s, uint8_t *host, uint8_t *device, struct cuda_move *moves,
                           struct cuda_move *moves_device, const struct wk_err *err)
{
    s->host = host;
    s->device = device;
    s->moves = moves;
    s->moves_device = moves_device;
    return cuda_check(x->device,
                      (int)cudaEventCreateWithFlags(&s->done, cudaEventDisableTiming | cudaEventBlockingSync),
                      "an event for pages", err);
}

static wk_status lane_open(struct executor *x, struct lane *l, const struct wk_err *err)
{
    void *host, *device, *moves, *moves_device;
    (void)pthread_mutex_init(&l->lock, NULL);
    wk_status s = cuda_memory_pinned(x->device, (uint64_t)SLOTS * SLOT_BYTES, &host, &device, err);
    if (!s)
        s = cuda_memory_pinned(x->device, (uint64_t)SLOTS * SLOT_MOVES * sizeof(struct cuda_move), &moves,
                               &moves_device, err);
    if (!s)
        s = cuda_check(x->device, (int)cudaStreamCreateWithFlags(&l->stream, cudaStreamNonBlocking),
                       "a stream for pages", err);
    for (uint32_t i = 0; !s && i < SLOTS; i++) {
        l->slot[i].outside = l->outside[i];
        s = slot_open(x, &l->slot[i], (uint8_t *)host + i * SLOT_BYTES, (uint8_t *)device + i * SLOT_BYTES,
                      (struct cuda_move *)moves + i * SLOT_MOVES, (struct cuda_move *)moves_device + i * SLOT_MOVES,
                      err);
    }
    return s;
}

wk_status cuda_pages_open(struct executor *x, const struct wk_err *err)
{
    wk_status s = check_sizes(x, err);
    if (s) return s;
    x->mover = calloc(1, sizeof *x->mover);
    if (!x->mover) return wk_fail(err, WK_NO_MEMORY, "out of memory for copies of pages");
    for (uint32_t i = 0; !s && i < LANES; i++) s = lane_open(x, &x->mover->lane[i], err);
    return s;
}

void cuda_pages_close(struct executor *x)
{
    for (uint32_t i = 0; x->mover && i < LANES && !cuda_device_dead(x->device); i++) {
        struct lane *l = &x->mover->lane[i];
        for (uint32_t k = 0; k < SLOTS; k++)
            if (l->slot[k].done) (void)cudaEventDestroy(l->slot[k].done);
        if (l->stream) (void)cudaStreamDestroy(l->stream);
    }
    free(x->mover);
    x->mover = NULL;
}

/* ---- transfers ----------------------------------------------------------------------------------------- */

enum way { READ, WRITE };

struct transfer {
    struct executor *x;
    struct lane *lane;
    enum way way;
    bool direct;       /* the device sees the outside: nothing goes through slots but the list of copies */
    struct slot *slot; /* that is being filled */
};

static bool turn(struct transfer *t) /* to the next slot */
{
    struct lane *l = t->lane;
    t->slot = &l->slot[l->next];
    l->next = (l->next + 1) % SLOTS;
    return t->slot->busy;
}

/* Waits for a slot's copies; what was read is brought to its place. */
static wk_status finish(struct transfer *t, struct slot *s, const struct wk_err *err)
{
    if (!s->busy) return WK_OK;
    wk_status st = cuda_check(t->x->device, (int)cudaEventSynchronize(s->done), "copies of pages", err);
    uint64_t at = 0;
    for (uint32_t i = 0; !st && t->way == READ && !t->direct && i < s->n; at += s->moves[i++].bytes)
        memcpy(s->outside[i], s->host + at, s->moves[i].bytes);
    s->busy = false;
    s->n = 0;
    s->used = 0;
    return st;
}

static wk_status send(struct transfer *t, const struct wk_err *err)
{
    struct slot *s = t->slot;
    if (!s || !s->n) return WK_OK;
    wk_status st = cuda_move_pages(s->moves_device, s->n, t->lane->stream, err);
    s->busy = true; /* also then: what is in it is forgotten by finish */
    if (!st) st = cuda_check(t->x->device, (int)cudaEventRecord(s->done, t->lane->stream), "copies of pages", err);
    t->slot = NULL;
    return st;
}

/* One copy of at most CUDA_MOVE_BYTES between `cache`, which the device sees, and `outside`. */
static wk_status add(struct transfer *t, uint8_t *cache, uint8_t *outside, uint32_t bytes, const struct wk_err *err)
{
    wk_status st = WK_OK;
    if (t->slot && (t->slot->n == SLOT_MOVES || (!t->direct && t->slot->used + bytes > SLOT_BYTES))) st = send(t, err);
    if (!st && !t->slot && turn(t)) st = finish(t, t->slot, err);
    if (st) return st;
    struct slot *s = t->slot;
    uint8_t *seen = t->direct ? outside : s->device + s->used;
    if (t->way == WRITE && !t->direct) memcpy(s->host + s->used, outside, bytes);
    s->outside[s->n] = outside;
    s->moves[s->n++] =
        t->way == READ ? (struct cuda_move){ cache, seen, bytes } : (struct cuda_move){ seen, cache, bytes };
    if (!t->direct) s->used += bytes;
    return WK_OK;
}

static wk_status add_all(struct transfer *t, uint8_t *cache, uint8_t *outside, uint64_t bytes, const struct wk_err *err)
{
    wk_status st = WK_OK;
    for (uint64_t at = 0; !st && at < bytes; at += CUDA_MOVE_BYTES) {
        const uint64_t left = bytes - at;
        st = add(t, cache + at, outside + at, left < CUDA_MOVE_BYTES ? (uint32_t)left : CUDA_MOVE_BYTES, err);
    }
    return st;
}

static wk_status begin(struct transfer *t, const struct wk_err *err)
{
    struct executor *x = t->x;
    if (!x->mover)
        return wk_fail(err, WK_UNSUPPORTED, "the model was not opened for pages to be handed over (hand_over)");
    if (cuda_device_dead(x->device)) return wk_fail(err, WK_INTERNAL, "the device is dead");
    const wk_status s = cuda_check(x->device, (int)cudaSetDevice((int)x->o.gpu), "cudaSetDevice", err);
    for (uint32_t i = 0; !s && i < LANES && !t->lane; i++)
        if (!pthread_mutex_trylock(&x->mover->lane[i].lock)) t->lane = &x->mover->lane[i];
    if (s || t->lane) return s;
    t->lane = &x->mover->lane[atomic_fetch_add(&x->mover->turn, 1) % LANES];
    (void)pthread_mutex_lock(&t->lane->lock);
    return WK_OK;
}

/* Sends the rest and waits for all, in the order in which they were sent. */
static wk_status end(struct transfer *t, wk_status st, const struct wk_err *err)
{
    struct lane *l = t->lane;
    if (!st) st = send(t, err);
    if (t->slot) t->slot->n = 0, t->slot->used = 0;
    for (uint32_t i = 0; i < SLOTS; i++) {
        const wk_status one = finish(t, &l->slot[(l->next + i) % SLOTS], st ? NULL : err);
        if (!st) st = one;
    }
    (void)pthread_mutex_unlock(&l->lock);
    return st;
}

/* Pinned memory as the device sees it; NULL: it is not pinned, or not where 16 bytes at a time can be copied. */
static uint8_t *pinned_at(uint8_t *outside)
{
    struct cudaPointerAttributes a;
    if (cudaPointerGetAttributes(&a, outside) != cudaSuccess || a.type != cudaMemoryTypeHost) {
        (void)cudaGetLastError();
        return NULL;
    }
    return (uintptr_t)a.devicePointer % 16 ? NULL : a.devicePointer;
}

static wk_status move(struct executor *x, const struct device_page *pages, uint32_t n, uint8_t *outside, enum way way,
                      const struct wk_err *err)
{
    const struct tape_program *p = x->program;
    struct transfer t = { .x = x, .way = way };
    wk_status st = step_check_pages(p, x->plan.kv_pages, pages, n, err);
    if (!st) st = begin(&t, err);
    if (st) return st;
    uint8_t *pinned = pinned_at(outside);
    t.direct = pinned != NULL;
    if (pinned) outside = pinned;
    for (uint32_t i = 0; !st && i < n; i++)
        for (uint32_t k = 0; !st && k < p->n_kv_layers; k++) {
            const uint64_t bytes = cuda_layer_page_bytes(x, k);
            if (p->kv_layers[k].group != pages[i].group) continue;
            if (pages[i].page != KV_NO_PAGE) st = add_all(&t, x->cache[k] + bytes * pages[i].page, outside, bytes, err);
            outside += bytes;
        }
    return end(&t, st, err);
}

wk_status cuda_pages_read(struct executor *x, const struct device_page *pages, uint32_t n, void *out,
                          const struct wk_err *err)
{
    return move(x, pages, n, out, READ, err);
}

/* One function for both ways: `bytes` is read alone. */
wk_status cuda_pages_write(struct executor *x, const struct device_page *pages, uint32_t n, const void *bytes,
                           const struct wk_err *err)
{
    return move(x, pages, n, (uint8_t *)(uintptr_t)bytes, WRITE, err);
}

wk_status cuda_pages_pin(struct executor *x, void *memory, uint64_t bytes, const struct wk_err *err)
{
    wk_status s = cuda_check(x->device, (int)cudaSetDevice((int)x->o.gpu), "cudaSetDevice", err);
    return s ? s
             : cuda_check(x->device,
                          (int)cudaHostRegister(memory, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable),
                          "cudaHostRegister", err);
}

void cuda_pages_unpin(struct executor *x, void *memory)
{
    if (!cuda_device_dead(x->device)) (void)cudaHostUnregister(memory);
}

/* ---- other processes' pages ---------------------------------------------------------------------------- */

wk_status cuda_pages_share(struct executor *x, struct device_share *out, const struct wk_err *err)
{
    *out = (struct device_share){ .fd = -1 };
    if (!x->mover)
        return wk_fail(err, WK_UNSUPPORTED, "the model was not opened for pages to be handed over (hand_over)");
    memcpy(out->kv_pages, x->plan.kv_pages, sizeof out->kv_pages);
    return cuda_memory_export(x->device, &out->fd, &out->bytes, err);
}

wk_status cuda_peer_open(struct executor *x, const struct device_share *share, struct device_peer **out,
                         const struct wk_err *err)
{
    *out = NULL;
    if (!x->mover)
        return wk_fail(err, WK_UNSUPPORTED, "the model was not opened for pages to be handed over (hand_over)");
    wk_status s = cuda_check(x->device, (int)cudaSetDevice((int)x->o.gpu), "cudaSetDevice", err);
    if (s) return s;
    struct device_peer *p = calloc(1, sizeof *p + x->program->n_kv_layers * sizeof *p->layer);
    if (!p) return wk_fail(err, WK_NO_MEMORY, "out of memory for another process's pages");
    p->bytes = share->bytes;
    memcpy(p->kv_pages, share->kv_pages, sizeof p->kv_pages);
    s = kv_place_layers(x->program, share, x, cuda_layer_bytes, p->layer, err);
    if (!s) s = cuda_memory_import(x->device, share->fd, share->bytes, &p->base, err);
    if (s)
        free(p);
    else
        *out = p;
    return s;
}

void cuda_peer_close(struct executor *x, struct device_peer *p)
{
    if (!p) return;
    if (!cuda_device_dead(x->device)) cuda_memory_forget(x->device, p->base, p->bytes);
    free(p);
}

wk_status cuda_peer_read(struct executor *x, struct device_peer *p, const struct device_page *from,
                         const struct device_page *to, uint32_t n, const struct wk_err *err)
{
    const struct tape_program *program = x->program;
    struct transfer t = { .x = x, .way = WRITE, .direct = true };
    wk_status st = step_check_peer(program, p->kv_pages, from, x->plan.kv_pages, to, n, err);
    if (!st) st = begin(&t, err);
    if (st) return st;
    for (uint32_t i = 0; !st && i < n; i++)
        for (uint32_t k = 0; !st && to[i].page != KV_NO_PAGE && k < program->n_kv_layers; k++) {
            if (program->kv_layers[k].group != to[i].group) continue;
            const uint64_t bytes = cuda_layer_page_bytes(x, k);
            st = add_all(&t, x->cache[k] + bytes * to[i].page, (uint8_t *)p->base + p->layer[k] + bytes * from[i].page,
                         bytes, err);
        }
    return end(&t, st, err);
}
