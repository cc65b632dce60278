/* call.c: see call.h. What each thread is in lies in a slot of its own, which handlers and the watching thread read. */
#include "plugin/call.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "base/result_file.h"
#include "log/log.h"

/* SLOW, AGAIN: seconds. A stack for handlers: a thread may have used its own up. */
enum { MAX_THREADS = 2048, MAX_MAPPED = 1024, SLOW = 30, AGAIN = 60, STACK_BYTES = 64 << 10, AT_ONCE = 64, FAILED = 1 };

struct slot {
    _Alignas(64) _Atomic(const char *) what; /* NULL: in no call */
    _Atomic uintptr_t function;
    _Atomic(const char *) file;
    _Atomic uint32_t turn; /* grows with each call: the same turn is the same call */
    _Atomic bool taken;
    void *stack; /* of the handlers; NULL: the thread has another */
    /* the watching thread's: */
    uint32_t seen;
    double since, told; /* when `seen` was seen first; when it was named last; 0: not */
};
static struct slot slots[MAX_THREADS];
static _Thread_local struct slot *mine;
static _Thread_local bool without; /* no slot was free */

static struct {
    uintptr_t first, end;
    const char *file;
} mapped[MAX_MAPPED];
static _Atomic uint32_t n_mapped;

static const int fatal[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS };
enum { FATAL = sizeof fatal / sizeof *fatal };
static struct sigaction before[FATAL];
static void (*last_words)(const char *text);
static pthread_key_t leaving;

/* ---- slots --------------------------------------------------------------------------------------------- */

static void leave(void *p)
{
    struct slot *s = p;
    if (s->stack) {
        const stack_t none = { .ss_flags = SS_DISABLE };
        (void)sigaltstack(&none, NULL);
        (void)munmap(s->stack, STACK_BYTES);
        s->stack = NULL;
    }
    mine = NULL;
    atomic_store(&s->what, NULL);
    atomic_store(&s->taken, false);
}

static void give_stack(struct slot *s)
{
    stack_t is;
    if (sigaltstack(NULL, &is) != 0 || !(is.ss_flags & SS_DISABLE)) return;
    void *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) return;
    const stack_t own = { .ss_sp = stack, .ss_size = STACK_BYTES };
    if (sigaltstack(&own, NULL) == 0)
        s->stack = stack;
    else
        (void)munmap(stack, STACK_BYTES);
}

static void take_slot(void)
{
    without = true;
    if (!last_words) return; /* nobody watches */
    for (uint32_t i = 0; i < MAX_THREADS; i++) {
        bool expected = false;
        if (!atomic_compare_exchange_strong(&slots[i].taken, &expected, true)) continue;
        without = false;
        mine = &slots[i];
        give_stack(mine);
        (void)pthread_setspecific(leaving, mine);
        return;
    }
}

static void enter(struct slot *s, const struct plugin_call *c)
{
    atomic_store_explicit(&s->what, NULL, memory_order_relaxed);
    atomic_store_explicit(&s->turn, atomic_load_explicit(&s->turn, memory_order_relaxed) + 1, memory_order_release);
    atomic_store_explicit(&s->function, c->function, memory_order_relaxed);
    atomic_store_explicit(&s->file, c->file, memory_order_relaxed);
    atomic_store_explicit(&s->what, c->what, memory_order_release);
}

static struct plugin_call current(const struct slot *s)
{
    return (struct plugin_call){ atomic_load_explicit(&s->function, memory_order_relaxed),
                                 atomic_load_explicit(&s->file, memory_order_relaxed),
                                 atomic_load_explicit(&s->what, memory_order_acquire) };
}

static const struct plugin_calls *program; /* in a module */

void plugin_calls_pass_to(const struct plugin_calls *to) { program = to; }

const struct plugin_calls plugin_calls = { plugin_call_begin, plugin_call_end };

void plugin_call_begin(struct plugin_call *c, const char *file, uintptr_t function, const char *what)
{
    if (program) {
        program->begin(c, file, function, what);
        return;
    }
    if (!mine && !without) take_slot();
    if (!mine) return;
    *c = current(mine);
    enter(mine, &(struct plugin_call){ function, file, what });
}

void plugin_call_end(const struct plugin_call *c)
{
    if (program) {
        program->end(c);
        return;
    }
    if (!mine) return;
    if (c->what)
        enter(mine, c);
    else
        atomic_store_explicit(&mine->what, NULL, memory_order_release);
}

/* ---- names --------------------------------------------------------------------------------------------- */

static int add_mapped(struct dl_phdr_info *info, size_t size, void *user)
{
    const struct link_map *link = ((void **)user)[0];
    const uint32_t n = n_mapped;
    (void)size;
    if (info->dlpi_addr != link->l_addr || n == MAX_MAPPED) return 0;
    mapped[n].first = UINTPTR_MAX;
    mapped[n].end = 0;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *p = &info->dlpi_phdr[i];
        if (p->p_type != PT_LOAD) continue;
        const uintptr_t first = info->dlpi_addr + p->p_vaddr, end = first + p->p_memsz;
        if (first < mapped[n].first) mapped[n].first = first;
        if (end > mapped[n].end) mapped[n].end = end;
    }
    mapped[n].file = ((void **)user)[1];
    n_mapped = n + 1;
    return 1;
}

void plugin_call_mapped(const char *file, void *handle)
{
    struct link_map *link = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &link) != 0 || !link) return;
    void *user[] = { link, (void *)(uintptr_t)file };
    (void)dl_iterate_phdr(add_mapped, user);
}

static const char *file_at(uintptr_t address)
{
    for (uint32_t i = 0; i < n_mapped; i++)
        if (address >= mapped[i].first && address < mapped[i].end) return mapped[i].file;
    return NULL;
}

static const char *file_of(const struct plugin_call *c)
{
    const char *file = c->file ? c->file : file_at(c->function);
    return file ? file : "a plugin";
}

/* ---- the end ------------------------------------------------------------------------------------------- */

/* Says who ended the process, once, and ends it. [in a handler] */
__attribute__((noreturn)) static void die(const char *file, const char *did, const char *how, const char *what)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    char text[512];
    while (atomic_flag_test_and_set(&said)) (void)pause(); /* another thread is about to end it */
    (void)snprintf(text, sizeof text, "plugin %.200s %s%s%s%s; mend or remove it", file, did, how,
                   what ? " while the host called its " : " outside of any call", what ? what : "");
    result_file_remove_temporaries();
    last_words(text);
    for (;;) (void)syscall(SYS_exit_group, FAILED); /* not by _exit, which others may have put something before */
}

static const char *signal_text(int number)
{
    switch (number) {
    case SIGSEGV: return "SIGSEGV";
    case SIGBUS: return "SIGBUS";
    case SIGFPE: return "SIGFPE";
    case SIGILL: return "SIGILL";
    case SIGABRT: return "SIGABRT";
    case SIGTRAP: return "SIGTRAP";
    default: return "SIGSYS";
    }
}

static uintptr_t instruction(const void *context)
{
#if defined(__x86_64__)
    return (uintptr_t)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#else
    return (uintptr_t)((const ucontext_t *)context)->uc_mcontext.pc;
#endif
}

static void on_fatal(int number, siginfo_t *info, void *context)
{
    const bool sent = info->si_code == SI_USER || info->si_code == SI_QUEUE; /* by somebody else */
    const struct plugin_call call = mine ? current(mine) : (struct plugin_call){ 0 };
    if (!sent && call.what) die(file_of(&call), "ended with ", signal_text(number), call.what);
    const char *file = info->si_code > 0 ? file_at(instruction(context)) : NULL;
    if (file) die(file, "ended with ", signal_text(number), NULL);
    for (int i = 0; i < FATAL; i++) {
        if (fatal[i] != number) continue;
        if ((before[i].sa_flags & SA_SIGINFO) && before[i].sa_sigaction) {
            before[i].sa_sigaction(number, info, context);
            return;
        }
        (void)sigaction(number, &before[i], NULL);
    }
    if (info->si_code <= 0) (void)raise(number); /* a fault repeats by itself when we return, a sent signal does not */
}

static void on_exit_called(void)
{
    const struct plugin_call call = mine ? current(mine) : (struct plugin_call){ 0 };
    if (call.what) die(file_of(&call), "called exit", "", call.what);
}

/* ---- slow calls ---------------------------------------------------------------------------------------- */

/* One look for slow calls. now: seconds of any clock. */
static void look(double now)
{
    char text[512];
    for (uint32_t i = 0; i < MAX_THREADS; i++) {
        struct slot *s = &slots[i];
        if (!atomic_load_explicit(&s->taken, memory_order_relaxed)) continue;
        const uint32_t turn = atomic_load_explicit(&s->turn, memory_order_acquire);
        const struct plugin_call call = current(s);
        if (!call.what || turn != s->seen || s->since == 0) {
            s->seen = turn;
            s->since = call.what ? now : 0;
            s->told = 0;
            continue;
        }
        const double taken = now - s->since;
        if (taken < SLOW || (s->told != 0 && now - s->told < AGAIN)) continue;
        if (turn != atomic_load_explicit(&s->turn, memory_order_acquire)) continue;
        s->told = now;
        (void)snprintf(text, sizeof text, "plugin %.200s: its %s has taken %.0f s and goes on", file_of(&call),
                       call.what, taken);
        LOG(LOG_WARN, "plugin_slow", text, log_s("plugin", file_of(&call)), log_s("call", call.what),
            log_f("seconds", taken));
    }
}

static void *watch(void *unused)
{
    (void)unused;
    for (;;) {
        const struct timespec second = { 1, 0 };
        struct timespec now;
        (void)nanosleep(&second, NULL);
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        look((double)now.tv_sec + (double)now.tv_nsec * 1e-9);
    }
    return NULL;
}

/* ---- start --------------------------------------------------------------------------------------------- */

static int start_watching(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, old;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the threads that expect them */
    int error = pthread_attr_init(&attributes);
    if (!error) {
        (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
        error = pthread_create(&thread, &attributes, watch, NULL);
        (void)pthread_attr_destroy(&attributes);
    }
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return error;
}

void plugin_calls_give_up(const char *limit)
{
    for (uint32_t i = 0; i < MAX_THREADS; i++) {
        const struct plugin_call call = current(&slots[i]);
        if (call.what) die(file_of(&call), "did not return within ", limit, call.what);
    }
}

wk_status plugin_calls_catch(void (*say)(const char *text), const struct wk_err *err)
{
    static bool done;
    last_words = say;
    if (done) return WK_OK;
    int error = pthread_key_create(&leaving, leave);
    /* Each thread that calls exit takes a handler off the list, and goes on to the end when none is left. */
    for (int i = 0; i < AT_ONCE && !error; i++)
        error = atexit(on_exit_called) || at_quick_exit(on_exit_called) ? ENOMEM : 0;
    for (int i = 0; i < FATAL && !error; i++) {
        struct sigaction action = { .sa_sigaction = on_fatal, .sa_flags = SA_SIGINFO | SA_ONSTACK };
        (void)sigemptyset(&action.sa_mask);
        if (sigaction(fatal[i], &action, &before[i]) != 0) error = errno;
    }
    done = !error;
    return error ? wk_fail(err, WK_IO, "plugins' calls cannot be watched: %s", strerror(error)) : WK_OK;
}

wk_status plugin_calls_watch(void (*say)(const char *text), const struct wk_err *err)
{
    const wk_status status = plugin_calls_catch(say, err);
    const int error = status == WK_OK ? start_watching() : 0;
    return error ? wk_fail(err, WK_IO, "plugins' calls cannot be watched: %s", strerror(error)) : status;
}
