/* memory.c: device memory, host memory that the device may use, and where an address of a kernel leads.
 *
 * Device memory is the host's, taken from one reserved range of addresses, each allocation followed by a page that
 * nobody may touch and never used again once it is free: an access past its end or after its life is a fault of the
 * host's processor, which becomes an error of the kernel that made it. An address of the device is the host's pointer;
 * a kernel that is given any other pointer of the host fails by name. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "emulator.h"

enum { PAGE = 4096, GRAIN = 256 };
static const uint64_t ARENA = 1ull << 42; /* of addresses, not of memory */

uint64_t arena_base, arena_bytes;
static uint64_t arena_next, used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct range {
    uint64_t at, bytes, begin, length;
} *allocations, *hosts;
static uint32_t n_allocations, cap_allocations, n_hosts, cap_hosts;

static void add(struct range **list, uint32_t *n, uint32_t *cap, struct range r)
{
    if (*n == *cap) {
        *cap = *cap ? 2 * *cap : 64;
        if (!(*list = realloc(*list, *cap * sizeof **list))) abort();
    }
    (*list)[(*n)++] = r;
}
static bool take(struct range *list, uint32_t *n, uint64_t at, struct range *out)
{
    for (uint32_t i = 0; i < *n; i++)
        if (list[i].at == at) {
            *out = list[i];
            list[i] = list[--*n];
            return true;
        }
    return false;
}

static uint64_t reserve(uint64_t bytes, uint64_t align)
{
    if (!arena_bytes) {
        void *p = mmap(NULL, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) return 0;
        arena_base = arena_next = (uint64_t)(uintptr_t)p;
        arena_bytes = ARENA;
    }
    const uint64_t at = (arena_next + align - 1) / align * align, end = at + (bytes + PAGE - 1) / PAGE * PAGE + PAGE;
    if (bytes > ARENA || end > arena_base + ARENA) return 0;
    arena_next = end;
    return at;
}
void *arena_reserve(uint64_t bytes, uint64_t align)
{
    (void)pthread_mutex_lock(&lock);
    const uint64_t at = reserve(bytes, align);
    (void)pthread_mutex_unlock(&lock);
    return (void *)(uintptr_t)at;
}
bool arena_open(void *p, uint64_t bytes, bool write)
{
    return mprotect(p, bytes, write ? PROT_READ | PROT_WRITE : PROT_READ) == 0;
}
void arena_shut(void *p, uint64_t bytes)
{
    (void)mmap(p, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

void *device_alloc(uint64_t bytes)
{
    const uint64_t grains = (bytes + GRAIN - 1) / GRAIN * GRAIN + (bytes == 0 ? GRAIN : 0),
                   pages = (grains + PAGE - 1) / PAGE * PAGE;
    (void)pthread_mutex_lock(&lock);
    const uint64_t begin = reserve(pages, PAGE), at = begin + pages - grains;
    const bool good = begin && arena_open((void *)(uintptr_t)begin, pages, true);
    if (good) {
        add(&allocations, &n_allocations, &cap_allocations, (struct range){ at, bytes, begin, pages });
        used += pages;
    }
    (void)pthread_mutex_unlock(&lock);
    if (!good) return NULL;
    memset((void *)(uintptr_t)begin, 0xff, pages); /* NaN as floats and as halves */
    return (void *)(uintptr_t)at;
}
bool device_free(void *p)
{
    struct range r;
    (void)pthread_mutex_lock(&lock);
    const bool found = take(allocations, &n_allocations, (uint64_t)(uintptr_t)p, &r);
    if (found) {
        arena_shut((void *)(uintptr_t)r.begin, r.length);
        used -= r.length;
    }
    (void)pthread_mutex_unlock(&lock);
    return found;
}
uint64_t device_used(void) { return used; }

void host_add(void *p, uint64_t bytes)
{
    (void)pthread_mutex_lock(&lock);
    add(&hosts, &n_hosts, &cap_hosts, (struct range){ (uint64_t)(uintptr_t)p, bytes, 0, 0 });
    (void)pthread_mutex_unlock(&lock);
}
bool host_remove(void *p)
{
    struct range r;
    (void)pthread_mutex_lock(&lock);
    const bool found = take(hosts, &n_hosts, (uint64_t)(uintptr_t)p, &r);
    (void)pthread_mutex_unlock(&lock);
    return found;
}
bool host_has(uint64_t at, uint64_t bytes)
{
    bool found = false;
    (void)pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < n_hosts && !found; i++)
        found = at >= hosts[i].at && at - hosts[i].at <= hosts[i].bytes && bytes <= hosts[i].bytes - (at - hosts[i].at);
    (void)pthread_mutex_unlock(&lock);
    return found;
}

/* ---- where an address leads ---------------------------------------------------------------------------- */

static unsigned char *shared_at(struct warp *w, uint64_t at, uint32_t bytes, int lane, bool cluster, bool write)
{
    struct block *b = w->block;
    const uint64_t rank = at >> RANK_SHIFT;
    if (rank && (cluster || &b->cluster->block[rank - 1] == b)) {
        if (rank > b->cluster->n_blocks)
            fault(w, lane, "shared address 0x%llx: block %llu of a cluster of %u", (unsigned long long)at,
                  (unsigned long long)rank - 1, b->cluster->n_blocks);
        b = &b->cluster->block[rank - 1];
        at &= (1u << RANK_SHIFT) - 1;
        if (!b->live)
            fault(w, lane, "shared memory of block %llu of the cluster, which has ended", (unsigned long long)rank - 1);
    }
    if (at < SHARED_BASE || at > b->shared_end || bytes > b->shared_end - at)
        fault(w, lane, "%u bytes %s shared address 0x%llx: the block has 0x%x to 0x%x", bytes, write ? "to" : "from",
              (unsigned long long)at, SHARED_BASE, b->shared_end);
    return b->shared + (at - SHARED_BASE);
}

unsigned char *locate(struct warp *w, enum space space, uint64_t at, uint32_t bytes, uint32_t align, int lane,
                      bool write)
{
    if (at & (align - 1))
        fault(w, lane, "misaligned: %u bytes %s 0x%llx", bytes, write ? "to" : "from", (unsigned long long)at);
    if (space == SPACE_GENERIC && at >= SHARED_WINDOW) {
        if (at >= LOCAL_WINDOW)
            space = SPACE_LOCAL, at -= LOCAL_WINDOW;
        else
            space = SPACE_CLUSTER, at -= SHARED_WINDOW;
    }
    switch (space) {
    case SPACE_SHARED: return shared_at(w, at, bytes, lane, false, write);
    case SPACE_CLUSTER: return shared_at(w, at, bytes, lane, true, write);
    case SPACE_LOCAL:
        if (at > w->kernel->local_bytes || bytes > w->kernel->local_bytes - at)
            fault(w, lane, "%u bytes at local address 0x%llx of %u", bytes, (unsigned long long)at,
                  w->kernel->local_bytes);
        return w->local + (size_t)lane * w->kernel->local_bytes + at;
    case SPACE_PARAM:
        if (write || at > w->kernel->param_bytes || bytes > w->kernel->param_bytes - at)
            fault(w, lane, "%u bytes at %llu of %u bytes of parameters", bytes, (unsigned long long)at,
                  w->kernel->param_bytes);
        return w->block->cluster->launch->params + at;
    case SPACE_GENERIC:
    case SPACE_GLOBAL: break;
    }
    if (at - arena_base >= arena_bytes && !host_has(at, bytes))
        fault(w, lane,
              "%u bytes %s address 0x%llx, which is neither device memory nor host memory that the device may use",
              bytes, write ? "to" : "from", (unsigned long long)at);
    return (unsigned char *)(uintptr_t)at;
}
