/* grid.c: runs a grid: the lanes of a warp, the warps of a block, the blocks of a cluster, clusters one after the other
 * (all at once in a cooperative launch).
 *
 * A warp runs until all of its groups wait, or pause because they look at memory that others write; then the next warp.
 * If nobody can go on, or those who can only look again and again while nothing happens, that is a deadlock, and the
 * report says which threads wait for what. */
#include "emulator.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <x86intrin.h>

char emulator_error[1024];
int emulator_error_code;
uint64_t emulator_events;
uint32_t emulator_seed;

enum {
    BUDGET = 1 << 20 /* instructions a group runs before others get a turn */,
    PATIENCE = 1 << 18 /* rounds without an event */,
    ILLEGAL_ADDRESS = 700,
    MISALIGNED = 716,
    LAUNCH_FAILURE = 719
};

static sigjmp_buf failed;
static struct warp *running;

uint32_t emulator_random(void)
{
    static uint64_t state;
    if (!state) state = emulator_seed * 0x9e3779b97f4a7c15ull | 1;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 32);
}

/* ---- errors -------------------------------------------------------------------------------------------- */

/* The text of a line of the module. */
static void show_line(const struct module *m, uint32_t line, char *out, size_t bytes)
{
    const char *p = m->ptx;
    for (uint32_t n = 1; n < line && p; n++) p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL;
    size_t n = 0;
    while (p && (*p == '\t' || *p == ' ')) p++;
    for (; p && *p && *p != '\n' && n + 1 < bytes; p++) out[n++] = *p == '\t' ? ' ' : *p;
    out[n] = '\0';
}

void fault(struct warp *w, int lane, const char *format, ...)
{
    char text[400], line[200];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    const struct block *b = w->block;
    const uint32_t l = lane >= 0 ? (uint32_t)lane : w->active ? (uint32_t)__builtin_ctz(w->active) : 0;
    show_line(w->kernel->module, w->insn ? w->insn->line : w->kernel->line, line, sizeof line);
    (void)snprintf(emulator_error, sizeof emulator_error,
                   "kernel %s, block (%u, %u, %u), thread %u, line %u of its PTX \"%s\": %s", w->kernel->name, b->at[0],
                   b->at[1], b->at[2], w->index * LANES + l, w->insn ? w->insn->line : 0, line, text);
    emulator_error_code = strstr(text, "misaligned") ? MISALIGNED
                          : strstr(text, "address")  ? ILLEGAL_ADDRESS
                                                     : LAUNCH_FAILURE;
    siglongjmp(failed, 1);
}

static void on_segv(int number, siginfo_t *info, void *context)
{
    const uint64_t at = (uint64_t)(uintptr_t)info->si_addr;
    (void)context;
    if (running && at - arena_base < arena_bytes)
        fault(running, -1, "address 0x%llx: no device memory there, or read-only", (unsigned long long)at);
    (void)signal(number, SIG_DFL); /* the host's own */
}

/* ---- waking -------------------------------------------------------------------------------------------- */

void wake_block(struct block *b, const char *what, uint64_t which)
{
    emulator_events++;
    for (uint32_t i = 0; i < b->n_warps; i++) {
        struct warp *w = &b->warps[i];
        for (uint32_t g = 0; g < w->n_groups; g++)
            if (w->group[g].state == WAITS && w->group[g].which == which && !strcmp(w->group[g].what, what)) {
                w->group[g].state = RUNS;
                w->idle = false;
            }
    }
}

/* Threads have ended: who waits for all that are left may have them now. */
static void after_exit(struct warp *w, uint32_t lanes)
{
    struct block *b = w->block;
    struct cluster *c = b->cluster;
    const uint32_t n = (uint32_t)__builtin_popcount(lanes);
    emulator_events++;
    w->exited |= lanes;
    b->live -= n;
    c->live -= n;
    for (uint32_t g = 0; g < w->n_groups; g++)
        if (w->group[g].state == BLOCKED) w->group[g].state = RUNS;
    for (uint32_t id = 0; id < MAX_BARRIERS; id++)
        if (b->live && b->barrier[id].arrived && !b->barrier[id].expected && b->barrier[id].arrived >= b->live) {
            b->barrier[id].arrived = 0;
            wake_block(b, "barrier", id);
        }
    if (c->live && c->arrived && c->arrived >= c->live) {
        c->arrived = 0;
        c->phase++;
        for (uint32_t r = 0; r < c->n_blocks; r++) wake_block(&c->block[r], "barrier.cluster", 0);
    }
    if (b->live) return;
    for (const struct late_copy *copy = b->late; copy; copy = copy->next)
        if (!copy->by || copy->by->n_copies) /* an arrival alone, of lanes that copied nothing, harms nobody */
            fault(w, -1, "the block ends with %u bytes on their way to its shared address 0x%llx", copy->bytes,
                  (unsigned long long)copy->destination);
}

/* ---- a warp -------------------------------------------------------------------------------------------- */

static struct group *add_group(struct warp *w, uint32_t mask, uint32_t pc)
{
    struct group *g = &w->group[w->n_groups++];
    *g = (struct group){ mask, pc, RUNS, NULL, 0 };
    return g;
}
static void drop_group(struct warp *w, struct group *g) { *g = w->group[--w->n_groups]; }

/* Joins to g the groups that stand at the same instruction, those that block there too when g does. */
static bool join(struct warp *w, struct group *g, bool blocked)
{
    bool joined = false;
    for (uint32_t k = 0; k < w->n_groups; k++) {
        struct group *o = &w->group[k];
        if (o == g || o->pc != g->pc || !(o->state == RUNS || (blocked && o->state == BLOCKED))) continue;
        g->mask |= o->mask;
        if (g == &w->group[w->n_groups - 1]) g = o; /* it moves into the place of the one that goes */
        drop_group(w, o);
        joined = true;
        k = (uint32_t)-1;
    }
    w->now = g;
    return joined;
}

/* Runs w->now until it stands still, has come to `limit`, or has parted. */
static void run_group(struct warp *w, uint32_t limit, uint32_t budget)
{
    struct group *g = w->now;
    const struct insn *code = w->kernel->code;
    uint32_t pc = g->pc;
    const uint32_t here = g->mask;
    w->here = here;
    for (; budget; budget--) {
        const struct insn *i = &code[pc];
        uint32_t on = here;
        if (i->guard >= 0) {
            on &= i->negated ? ~w->p[i->guard] : w->p[i->guard];
            if (!on) {
                if (++pc >= limit) break;
                continue;
            }
        }
        w->active = on;
        w->insn = i;
        const enum outcome o = i->run(w, i);
        if (o == NEXT) {
            if (++pc >= limit) break;
            continue;
        }
        if (o == JUMP && on == here) {
            pc = (uint32_t)i->imm[0];
            if (pc >= limit) break;
            continue;
        }
        /* the lanes that the guard keeps out go on by themselves */
        if (on != here) (void)add_group(w, here & ~on, pc + 1);
        g->mask = on;
        g->pc = o == JUMP ? (uint32_t)i->imm[0] : o == BLOCK ? pc : pc + 1;
        if (o == EXIT) {
            drop_group(w, g);
            after_exit(w, on);
        } else if (o == BLOCK) {
            if (!join(w, g, true))
                g->state = BLOCKED;
            else
                w->now->state = RUNS;
        } else if (o != JUMP)
            g->state = o == WAIT ? WAITS : PAUSED;
        return;
    }
    g->pc = pc;
    if (!budget) {
        g->state = PAUSED;
        g->what = "its turn";
        emulator_events++;
    }
}

static void run_warp(struct warp *w)
{
    running = w;
    if (w->kernel->clocks) {
        for (uint32_t n = 0; n < w->kernel->n_constants; n++) {
            const struct constant *c = &w->kernel->constants[n];
            const uint64_t now =
                c->special == GLOBALTIMER ? (uint64_t)clock() * (1000000000u / CLOCKS_PER_SEC) : __rdtsc();
            if (c->special < CLOCK || c->special == SPECIALS) continue;
            if (c->bits == 32)
                EACH_LANE((uint32_t *)(void *)(w->r + c->at))[l] = (uint32_t)now;
            else
                EACH_LANE((uint64_t *)(void *)(w->r + c->at))[l] = now;
        }
    }
    for (uint32_t k = 0; k < w->n_groups; k++)
        if (w->group[k].state == PAUSED) w->group[k].state = RUNS;
    for (;;) {
        struct group *g = NULL;
        uint32_t limit = UINT32_MAX;
        for (uint32_t k = 0; k < w->n_groups; k++)
            if (w->group[k].state == RUNS && (!g || w->group[k].pc < g->pc)) g = &w->group[k];
        if (!g) break;
        (void)join(w, g, false);
        g = w->now;
        for (uint32_t k = 0; k < w->n_groups; k++)
            if (&w->group[k] != g && w->group[k].state == RUNS && w->group[k].pc < limit) limit = w->group[k].pc;
        run_group(w, limit, emulator_seed ? 1 + emulator_random() % 256 : BUDGET);
    }
    w->idle = true;
    for (uint32_t k = 0; k < w->n_groups; k++)
        if (w->group[k].state == PAUSED) w->idle = false;
}

/* ---- blocks -------------------------------------------------------------------------------------------- */

static uint32_t special_value(const struct warp *w, uint32_t special, uint32_t l)
{
    const struct block *b = w->block;
    const struct cluster *c = b->cluster;
    const struct launch *g = c->launch;
    const uint32_t thread = w->index * LANES + l, x = g->threads[0], y = g->threads[1];
    switch (special) {
    case TID_X: return thread % x;
    case TID_Y: return thread / x % y;
    case TID_Z: return thread / x / y;
    case NTID_X:
    case NTID_Y:
    case NTID_Z: return g->threads[special - NTID_X];
    case CTAID_X:
    case CTAID_Y:
    case CTAID_Z: return b->at[special - CTAID_X];
    case NCTAID_X:
    case NCTAID_Y:
    case NCTAID_Z: return g->grid[special - NCTAID_X];
    case LANEID: return l;
    case WARPID: return w->index;
    case NWARPID: return b->n_warps;
    case SMID: return (b->at[0] + b->at[1] * g->grid[0]) % 132;
    case NSMID: return 132;
    case LANEMASK_EQ: return 1u << l;
    case LANEMASK_LT: return (1u << l) - 1;
    case LANEMASK_LE: return (2u << l) - 1;
    case LANEMASK_GT: return ~((2u << l) - 1);
    case LANEMASK_GE: return ~((1u << l) - 1);
    case CLUSTER_CTARANK: return b->rank;
    case CLUSTER_NCTARANK: return c->n_blocks;
    case CLUSTER_CTAID_X:
    case CLUSTER_CTAID_Y:
    case CLUSTER_CTAID_Z: return b->at[special - CLUSTER_CTAID_X] % g->cluster[special - CLUSTER_CTAID_X];
    case CLUSTER_NCTAID_X:
    case CLUSTER_NCTAID_Y:
    case CLUSTER_NCTAID_Z: return g->cluster[special - CLUSTER_NCTAID_X];
    case CLUSTERID_X:
    case CLUSTERID_Y:
    case CLUSTERID_Z: return b->at[special - CLUSTERID_X] / g->cluster[special - CLUSTERID_X];
    case NCLUSTERID_X:
    case NCLUSTERID_Y:
    case NCLUSTERID_Z: return g->grid[special - NCLUSTERID_X] / g->cluster[special - NCLUSTERID_X];
    case DYNAMIC_SMEM: return g->dynamic;
    default: return 0;
    }
}

static void *memory(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    if (!p) abort();
    memset(p, 0xff, (bytes + 127) / 64 * 64);
    return p;
}

static void make_block(struct block *b, const struct launch *g)
{
    const struct kernel *k = g->kernel;
    memset(b, 0, sizeof *b);
    b->threads = g->threads[0] * g->threads[1] * g->threads[2];
    b->n_warps = (b->threads + LANES - 1) / LANES;
    b->shared_end = k->dynamic_at + g->dynamic;
    b->shared = memory(b->shared_end - SHARED_BASE);
    if (!(b->warps = calloc(b->n_warps, sizeof *b->warps))) abort();
    for (uint32_t i = 0; i < b->n_warps; i++) {
        struct warp *w = &b->warps[i];
        w->block = b;
        w->kernel = k;
        w->index = i;
        w->r = memory(k->register_bytes + k->constant_bytes);
        w->p = memory(k->n_predicates * sizeof *w->p + 4);
        w->local = memory((size_t)k->local_bytes * LANES + 4);
        memcpy(w->r + k->register_bytes, k->constant_values, k->constant_bytes);
    }
}
static void free_block(struct block *b)
{
    for (uint32_t i = 0; i < b->n_warps; i++) {
        free(b->warps[i].r);
        free(b->warps[i].p);
        free(b->warps[i].local);
        free(b->warps[i].copies);
        late_work_free(b->warps[i].late);
    }
    for (struct late_copy *c = b->late, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(b->warps);
    free(b->shared);
}

static void start_warp(struct warp *w)
{
    const struct kernel *k = w->kernel;
    const uint32_t threads = w->block->threads - w->index * LANES;
    w->lanes = threads >= LANES ? ALL_LANES : (1u << threads) - 1;
    w->exited = ~w->lanes;
    w->n_groups = 0;
    w->n_copies = 0;
    late_work_free(w->late);
    w->late = NULL;
    w->idle = false;
    memset(w->committed, 0, sizeof w->committed);
    memset(w->cluster_phase, 0xff, sizeof w->cluster_phase);
    (void)add_group(w, w->lanes, 0);
    for (uint32_t n = 0; n < k->n_constants; n++) {
        const struct constant *c = &k->constants[n];
        if (c->bits == 1) w->p[c->at] = c->value ? ALL_LANES : 0;
        if (c->special == SPECIALS || c->special >= CLOCK) continue;
        EACH_LANE
        {
            const uint32_t v = special_value(w, c->special, l);
            if (c->bits == 32)
                ((uint32_t *)(void *)(w->r + c->at))[l] = v;
            else
                ((uint64_t *)(void *)(w->r + c->at))[l] = v;
        }
    }
}

static void start_cluster(struct cluster *c, uint32_t x, uint32_t y, uint32_t z)
{
    const struct launch *g = c->launch;
    c->at[0] = x, c->at[1] = y, c->at[2] = z;
    c->arrived = c->phase = 0;
    c->live = 0;
    for (uint32_t r = 0; r < c->n_blocks; r++) {
        struct block *b = &c->block[r];
        b->cluster = c;
        b->rank = r;
        b->at[0] = x * g->cluster[0] + r % g->cluster[0];
        b->at[1] = y * g->cluster[1] + r / g->cluster[0] % g->cluster[1];
        b->at[2] = z * g->cluster[2] + r / g->cluster[0] / g->cluster[1];
        b->live = b->threads;
        c->live += b->threads;
        memset(b->barrier, 0, sizeof b->barrier);
        memset(b->shared, 0xff, b->shared_end - SHARED_BASE);
        for (uint32_t i = 0; i < b->n_warps; i++) start_warp(&b->warps[i]);
    }
}

/* ---- deadlock ------------------------------------------------------------------------------------------ */

_Noreturn static void report_deadlock(struct cluster *clusters, uint32_t n, const char *why)
{
    uint32_t shown = 0;
    struct warp *any = NULL;
    (void)fprintf(stderr, "emulator: kernel %s: %s\n", clusters->launch->kernel->name, why);
    for (uint32_t c = 0; c < n; c++)
        for (uint32_t r = 0; r < clusters[c].n_blocks; r++)
            for (uint32_t i = 0; i < clusters[c].block[r].n_warps; i++) {
                struct warp *w = &clusters[c].block[r].warps[i];
                for (uint32_t g = 0; g < w->n_groups && shown < 40; g++, shown++) {
                    char line[160];
                    const struct group *o = &w->group[g];
                    const struct insn *insn = &w->kernel->code[o->state == BLOCKED ? o->pc : o->pc ? o->pc - 1 : 0];
                    show_line(w->kernel->module, insn->line, line, sizeof line);
                    (void)fprintf(stderr, "  block (%u, %u, %u) warp %u lanes 0x%08x %s %s 0x%llx at line %u \"%s\"\n",
                                  w->block->at[0], w->block->at[1], w->block->at[2], i, o->mask,
                                  o->state == PAUSED ? "look again and again at" : "wait for",
                                  o->what ? o->what : "their turn", (unsigned long long)o->which, insn->line, line);
                    any = w;
                }
            }
    any = any ? any : clusters->block->warps;
    any->insn = NULL;
    any->active = 0;
    fault(any, -1, "%s", why);
}

static void run_clusters(struct cluster *clusters, uint32_t n)
{
    uint64_t events = emulator_events, quiet = 0;
    for (;;) {
        bool live = false, ran = false;
        for (uint32_t c = 0; c < n; c++) {
            if (!clusters[c].live) continue;
            live = true;
            for (uint32_t r = 0; r < clusters[c].n_blocks; r++) {
                struct block *b = &clusters[c].block[r];
                const uint32_t first = emulator_seed ? emulator_random() % b->n_warps : 0,
                               step = emulator_seed && emulator_random() & 1 ? b->n_warps - 1 : 1;
                for (uint32_t i = 0, at = first; i < b->n_warps; i++, at = (at + step) % b->n_warps) {
                    struct warp *w = &b->warps[at];
                    if (!w->n_groups || w->idle) continue;
                    run_warp(w);
                    ran = true;
                }
            }
        }
        if (!live) return;
        if (!ran) report_deadlock(clusters, n, "deadlock: all threads wait");
        quiet = emulator_events == events ? quiet + 1 : 0;
        events = emulator_events;
        if (quiet > PATIENCE)
            report_deadlock(clusters, n, "deadlock: the threads that do not wait look at memory that nobody changes");
    }
}

/* ---- a launch ------------------------------------------------------------------------------------------ */

bool launch_run(const struct launch *g)
{
    const uint32_t per = g->cluster[0] * g->cluster[1] * g->cluster[2];
    const uint32_t nx = g->grid[0] / g->cluster[0], ny = g->grid[1] / g->cluster[1], nz = g->grid[2] / g->cluster[2];
    const uint32_t total = nx * ny * nz, at_once = g->cooperative ? total : 1;
    struct sigaction action = { .sa_sigaction = on_segv, .sa_flags = SA_SIGINFO | SA_NODEFER }, before;
    struct cluster *volatile clusters = calloc(at_once, sizeof *clusters);
    volatile bool good = true;
    if (!clusters) abort();
    for (uint32_t c = 0; c < at_once; c++) {
        clusters[c].launch = g;
        clusters[c].n_blocks = per;
        if (!(clusters[c].block = calloc(per, sizeof *clusters[c].block))) abort();
        for (uint32_t r = 0; r < per; r++) make_block(&clusters[c].block[r], g);
    }
    (void)sigaction(SIGSEGV, &action, &before);
    if (!sigsetjmp(failed, 1)) {
        for (uint32_t first = 0; first < total; first += at_once) {
            for (uint32_t c = 0; c < at_once; c++) {
                const uint32_t n = first + c;
                start_cluster(&clusters[c], n % nx, n / nx % ny, n / nx / ny);
            }
            run_clusters(clusters, at_once);
        }
    } else
        good = false;
    running = NULL;
    (void)sigaction(SIGSEGV, &before, NULL);
    for (uint32_t c = 0; c < at_once; c++) {
        for (uint32_t r = 0; r < per; r++) free_block(&clusters[c].block[r]);
        free(clusters[c].block);
    }
    free(clusters);
    return good;
}
