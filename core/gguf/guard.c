/* guard.c: the SIGBUS handler and the regions that it protects. */
#include "gguf/guard.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <ucontext.h>

struct region {
    sigjmp_buf back;
    uintptr_t first;
    uint64_t bytes;
    struct region *outer;
};

static _Thread_local struct region *innermost;
static struct sigaction before; /* what SIGBUS did until gguf_guard_install */

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    const uintptr_t at = (uintptr_t)info->si_addr;
    /* si_code > 0: the kernel reports a fault of this thread; others are sent by kill() and carry no address. */
    for (struct region *r = info->si_code > 0 ? innermost : NULL; r; r = r->outer) {
        if (at - r->first < r->bytes) {
            innermost = r;
            /* Regions save no signal mask, which would cost a system call each; the one at the fault
             * is in the context. */
            (void)pthread_sigmask(SIG_SETMASK, &((const ucontext_t *)context)->uc_sigmask, NULL);
            siglongjmp(r->back, 1);
        }
    }
    /* Not ours: another copy of this file in a module of the process may have the region. */
    if ((before.sa_flags & SA_SIGINFO) && before.sa_sigaction) {
        before.sa_sigaction(number, info, context);
        return;
    }
    (void)sigaction(number, &before, NULL);
    if (info->si_code <= 0) (void)raise(number); /* a fault repeats by itself when we return, a sent signal does not */
}

wk_status gguf_guard_install(const struct wk_err *err)
{
    struct sigaction action = { .sa_sigaction = on_sigbus };
    (void)sigemptyset(&action.sa_mask);
    action.sa_flags = SA_SIGINFO | SA_ONSTACK; /* threads that set an alternate stack up have a reason */
    struct sigaction old;
    if (sigaction(SIGBUS, &action, &old) != 0)
        return wk_fail(err, WK_IO, "the handler for SIGBUS cannot be installed: %s", strerror(errno));
    if (!(old.sa_flags & SA_SIGINFO) || old.sa_sigaction != on_sigbus)
        before = old; /* installed once or twice: the same */
    return WK_OK;
}

wk_status gguf_guarded(void (*fn)(void *arg), void *arg, const void *src, uint64_t n, const struct wk_err *err)
{
    struct region region = { .first = (uintptr_t)src, .bytes = n, .outer = innermost };
    const int fault = sigsetjmp(region.back, 0);
    if (fault == 0) {
        innermost = &region;
        /* The compiler sees no fault in fn: keep it from moving fn's reads out of the region. */
        atomic_signal_fence(memory_order_seq_cst);
        fn(arg);
        atomic_signal_fence(memory_order_seq_cst);
    }
    innermost = region.outer;
    if (fault)
        return wk_fail(
            err, WK_IO,
            "the model file became shorter or its storage failed while it was read: restore the file and start again");
    return WK_OK;
}

struct copy {
    void *dst;
    const void *src;
    uint64_t n;
};

static void run_copy(void *arg)
{
    const struct copy *c = arg;
    memcpy(c->dst, c->src, c->n);
}

wk_status gguf_guarded_copy(void *dst, const void *src, uint64_t n, const struct wk_err *err)
{
    struct copy c = { dst, src, n };
    return gguf_guarded(run_copy, &c, src, n, err);
}
