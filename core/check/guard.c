/* guard.c: see guard.h. A fault's address and kind are noted by the handler and put into words where the call was
 * made. */
#include "check/guard.h"

#include <fenv.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { GUARD_BYTES = 1 << 20, PATTERN = 0xa5 };
#define GUARD_MOST ((size_t)1 << 34) /* bytes of one memory */

static struct guarded *guards; /* [one thread at a time changes it] */
static struct {
    const uint8_t *begin, *end;
    const char *name;
} also[8];

void guard_also(const void *begin, const void *end, const char *name)
{
    for (size_t i = 0; i < sizeof also / sizeof *also; i++) {
        if (name && also[i].name) continue;
        also[i].begin = begin;
        also[i].end = end;
        also[i].name = name;
        if (name) return;
    }
}

const char *guard_place_name(enum guard_place place)
{
    static const char *const names[GUARD_PLACES] = { "ends at a page's end", "begins at a page's begin",
                                                     "aligned as promised and no more" };
    return names[place];
}

wk_status guard_make(struct guarded *g, const char *name, size_t bytes, size_t align, enum guard_place place,
                     uint8_t fill, const struct wk_err *err)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *g = (struct guarded){ .name = name, .bytes = bytes };
    if (bytes > GUARD_MOST) return wk_fail(err, WK_NO_MEMORY, "out of memory for %s, %zu bytes", name, bytes);
    const size_t inner = (bytes + align + page - 1) / page * page, mapped = inner + 2 * GUARD_BYTES;
    uint8_t *map = mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) return wk_fail(err, WK_NO_MEMORY, "out of memory for %s, %zu bytes", name, bytes);
    g->map = map;
    g->mapped = mapped;
    g->next = guards;
    guards = g;
    if (inner && mprotect(map + GUARD_BYTES, inner, PROT_READ | PROT_WRITE))
        return wk_fail(err, WK_NO_MEMORY, "out of memory for %s, %zu bytes", name, bytes);
    const size_t at = place == GUARD_BEGIN ? 0 : place == GUARD_MIDDLE ? align : (inner - bytes) & ~(align - 1);
    g->p = map + GUARD_BYTES + at;
    memset(map + GUARD_BYTES, PATTERN, inner);
    memset(g->p, fill, bytes);
    return WK_OK;
}

void guard_free(struct guarded *g)
{
    struct guarded **at = &guards;
    while (*at && *at != g) at = &(*at)->next;
    if (*at) *at = g->next;
    if (g->map) (void)munmap(g->map, g->mapped);
    *g = (struct guarded){ 0 };
}

wk_status guard_read_only(const struct guarded *g, bool read_only, const struct wk_err *err)
{
    const size_t inner = g->mapped - 2 * GUARD_BYTES;
    if (!inner || !mprotect(g->map + GUARD_BYTES, inner, read_only ? PROT_READ : PROT_READ | PROT_WRITE)) return WK_OK;
    return wk_fail(err, WK_NO_MEMORY, "%s: the memory's protection cannot be changed", g->name);
}

wk_status guard_intact(const struct guarded *g, const char *what, const struct wk_err *err)
{
    const uint8_t *begin = g->map + GUARD_BYTES, *end = g->map + g->mapped - GUARD_BYTES;
    for (const uint8_t *b = begin; b < end; b == g->p - 1 ? b += g->bytes + 1 : b++) {
        if (*b == PATTERN || (b >= g->p && b < g->p + g->bytes)) continue;
        if (b < g->p)
            return wk_fail(err, WK_INTERNAL, "%s writes %zu bytes before %s", what, (size_t)(g->p - b), g->name);
        return wk_fail(err, WK_INTERNAL, "%s writes at byte %zu past the end of %s, which has %zu", what,
                       (size_t)(b - g->p) - g->bytes, g->name, g->bytes);
    }
    return WK_OK;
}

/* ---- faults -------------------------------------------------------------------------------------------- */

static const int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE };
enum { SIGNALS = sizeof signals / sizeof *signals };
static struct sigaction before[SIGNALS];

struct fault {
    int signal, code;
    const uint8_t *address;
    int write; /* -1: unknown */
};
static _Thread_local sigjmp_buf *caught_at; /* NULL: the thread is in no call of ours */
static _Thread_local volatile struct fault fault;

static int was_write(const void *context)
{
#if defined(__x86_64__)
    return (((const ucontext_t *)context)->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
    (void)context;
    return -1;
#endif
}

static void on_fault(int number, siginfo_t *info, void *context)
{
    sigjmp_buf *to = caught_at;
    for (size_t i = 0; i < SIGNALS && !to; i++) { /* of no call of ours: who was there before tells it */
        if (signals[i] != number) continue;
        (void)sigaction(number, &before[i], NULL);
        return; /* the instruction runs again */
    }
    fault.signal = number;
    fault.code = info->si_code;
    fault.address = info->si_addr;
    fault.write = was_write(context);
    caught_at = NULL;
    siglongjmp(*to, 1);
}

static void watch(void)
{
    struct sigaction action = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK };
    (void)sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < SIGNALS; i++) (void)sigaction(signals[i], &action, &before[i]);
}

static wk_status say_fault(const char *what, const struct wk_err *err)
{
    const uint8_t *const a = fault.address;
    const char *verb = fault.write < 0 ? "touches" : fault.write ? "writes" : "reads";
    if (fault.signal == SIGILL)
        return wk_fail(
            err, WK_INTERNAL,
            "%s executes an instruction that ends programs: one that this processor does not have, or a trap", what);
    if (fault.signal == SIGFPE) return wk_fail(err, WK_INTERNAL, "%s divides by zero (SIGFPE)", what);
    if (fault.signal == SIGSEGV && fault.code == SI_KERNEL)
        return wk_fail(err, WK_INTERNAL,
                       "%s uses an address that is not aligned as it takes for granted, or no address at all", what);
    for (const struct guarded *g = guards; g; g = g->next) {
        if (a < g->map || a >= g->map + g->mapped) continue;
        if (a < g->p)
            return wk_fail(err, WK_INTERNAL, "%s %s %zu bytes before %s", what, verb, (size_t)(g->p - a), g->name);
        if (a >= g->p + g->bytes)
            return wk_fail(err, WK_INTERNAL, "%s %s at byte %zu past the end of %s, which has %zu", what, verb,
                           (size_t)(a - g->p) - g->bytes, g->name, g->bytes);
        return wk_fail(err, WK_INTERNAL, "%s writes %s, which it may only read", what, g->name);
    }
    for (size_t i = 0; i < sizeof also / sizeof *also; i++)
        if (also[i].name && a >= also[i].begin && a < also[i].end)
            return wk_fail(err, WK_INTERNAL, "%s %s %s", what, verb, also[i].name);
    return wk_fail(err, WK_INTERNAL, "%s %s memory that it was not given (%s at %p)", what, verb,
                   fault.signal == SIGBUS ? "SIGBUS" : "SIGSEGV", (const void *)a);
}

/* ---- calls --------------------------------------------------------------------------------------------- */

wk_status guard_call(const char *what, void (*fn)(void *user), void *user, const struct wk_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    sigjmp_buf here;
    (void)pthread_once(&once, watch);
    if (sigsetjmp(here, 0)) {
        (void)fesetenv(FE_DFL_ENV);
        return say_fault(what, err);
    }
    caught_at = &here;
    fn(user);
    caught_at = NULL;
    (void)fesetenv(FE_DFL_ENV);
    return WK_OK;
}
