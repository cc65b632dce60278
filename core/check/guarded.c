/* guarded.c: allocations of whole pages, with one behind them that nobody may touch. What is freed stays reserved for a
 * while, so that a pointer that somebody has kept leads nowhere. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/checked.h"
#include "check/internal.h"

/* KEPT: allocations that stay reserved after they were freed. */
enum { MOST = 16384, KEPT = 4096 };

static struct block {
    unsigned char *base, *user; /* base NULL: free row */
    size_t bytes;
} blocks[MOST], kept[KEPT];
static uint32_t n_blocks, next_kept;

void *guarded(size_t n, size_t align, unsigned char fill)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t bytes;
    if (!checked_round_up_u64(n ? n : 1, page, &bytes) || bytes > SIZE_MAX / 2) return NULL;
    uint32_t i = 0;
    while (i < n_blocks && blocks[i].base) i++;
    if (i == MOST) return NULL;
    unsigned char *base =
        mmap(NULL, (size_t)(bytes + page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return NULL;
    if (mprotect(base + bytes, (size_t)page, PROT_NONE) != 0) {
        (void)munmap(base, (size_t)(bytes + page));
        return NULL;
    }
    unsigned char *user = base + ((bytes - n) & ~(uint64_t)(align - 1));
    memset(user, fill, n);
    blocks[i] = (struct block){ base, user, (size_t)(bytes + page) };
    if (i == n_blocks) n_blocks++;
    return user;
}

void guarded_free(void *p)
{
    uint32_t i = 0;
    while (i < n_blocks && blocks[i].user != p) i++;
    if (!p || i == n_blocks) return;
    struct block *oldest = &kept[next_kept++ % KEPT];
    if (oldest->base) (void)munmap(oldest->base, oldest->bytes);
    (void)mprotect(blocks[i].base, blocks[i].bytes, PROT_NONE);
    *oldest = blocks[i];
    blocks[i] = (struct block){ 0 };
}
