/* memory_instructions.c: loads, stores, atomics, asynchronous copies and the barriers in shared memory that they report
 * to.
 *
 * A copy that runs beside the threads arrives as late as it may: cp.async when its thread waits for the group, bulk
 * copies and st.async when a thread tries the barrier that they complete. A wait that is missing thus reads what was
 * there before, which is poison in fresh memory. With a seed some arrive at once, which finds buffers that are filled
 * again too early. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "forms.h"
#include "lanes.h"

/* ---- addresses ----------------------------------------------------------------------------------------- */

/* Operand n of the instruction, its memory operand m, in lane l. */
static inline uint64_t address(const struct warp *w, const struct insn *i, unsigned n, unsigned m, unsigned l)
{
    if (i->wide >> m & 1) return r64(w, i, n)[l] + (uint64_t)(int64_t)i->imm[m];
    return (uint32_t)(r32(w, i, n)[l] + (uint32_t)i->imm[m]);
}

/* Pointers for the active lanes (others: anything) if all of them lead, aligned, into one kind of memory; false:
 * locate() has to look at each lane, and finds the fault. */
static bool pointers(const struct warp *w, const struct insn *i, unsigned n, uint32_t bytes, uint64_t at[LANES])
{
    const uint32_t on = w->active;
    uint64_t low = arena_base, span = arena_bytes, shift = 0, wrong = 0;
    if (i->space == SPACE_SHARED)
        low = SHARED_BASE, span = w->block->shared_end - SHARED_BASE + 1 - bytes,
        shift = (uint64_t)(uintptr_t)w->block->shared - SHARED_BASE;
    else if (i->space == SPACE_PARAM)
        low = 0, span = w->kernel->param_bytes + 1 - bytes,
        shift = (uint64_t)(uintptr_t)w->block->cluster->launch->params;
    else if (i->space != SPACE_GLOBAL && i->space != SPACE_GENERIC)
        return false;
    if (span > arena_bytes) return false; /* less memory than a value */
    if (i->wide & 1) {
        const uint64_t *r = r64(w, i, n), offset = (uint64_t)(int64_t)i->imm[0];
        EACH_LANE at[l] = r[l] + offset;
    } else {
        const uint32_t *r = r32(w, i, n), offset = (uint32_t)i->imm[0];
        EACH_LANE at[l] = (uint32_t)(r[l] + offset);
    }
    EACH_LANE
    {
        wrong |= ((at[l] - low >= span) | ((at[l] & (bytes - 1)) != 0)) & (on >> l & 1);
        at[l] += shift;
    }
    return !wrong;
}

/* ---- loads and stores ---------------------------------------------------------------------------------- */

/* To: the register's type; FROM: the value's in memory. */
#define LOAD(name, TO, FROM)                                                                                   \
    static enum outcome name(struct warp *w, const struct insn *i)                                             \
    {                                                                                                          \
        const unsigned n = i->vector;                                                                          \
        const uint32_t bytes = n * (uint32_t)sizeof(FROM);                                                     \
        uint64_t at[LANES];                                                                                    \
        TO *d = (TO *)(void *)(w->r + i->arg[0]);                                                              \
        if (!pointers(w, i, n, bytes, at)) EACH_ACTIVE(w)                                                      \
        at[l] = (uint64_t)(uintptr_t)locate(w, i->space, address(w, i, n, 0, l), bytes, bytes, (int)l, false); \
        if (n == 1 && w->active == ALL_LANES) {                                                                \
            EACH_LANE d[l] = (TO) * (const FROM *)(uintptr_t)at[l];                                            \
            return NEXT;                                                                                       \
        }                                                                                                      \
        EACH_ACTIVE(w)                                                                                         \
        {                                                                                                      \
            const FROM *p = (const FROM *)(uintptr_t)at[l];                                                    \
            for (unsigned k = 0; k < n; k++) ((TO *)(void *)(w->r + i->arg[k]))[l] = (TO)p[k];                 \
        }                                                                                                      \
        return NEXT;                                                                                           \
    }
LOAD(load_u8, uint32_t, uint8_t)
LOAD(load_s8, int32_t, int8_t)
LOAD(load_16, uint32_t, uint16_t)
LOAD(load_s16, int32_t, int16_t)
LOAD(load_32, uint32_t, uint32_t)
LOAD(load_64, uint64_t, uint64_t)
LOAD(load_u8_64, uint64_t, uint8_t)
LOAD(load_16_64, uint64_t, uint16_t)
LOAD(load_u32_64, uint64_t, uint32_t)
LOAD(load_s32_64, int64_t, int32_t)

#define STORE(name, FROM, TO)                                                                                    \
    static enum outcome name(struct warp *w, const struct insn *i)                                               \
    {                                                                                                            \
        const unsigned n = i->vector;                                                                            \
        const uint32_t bytes = n * (uint32_t)sizeof(TO);                                                         \
        uint64_t at[LANES];                                                                                      \
        emulator_events++;                                                                                       \
        if (!pointers(w, i, 0, bytes, at)) EACH_ACTIVE(w)                                                        \
        at[l] = (uint64_t)(uintptr_t)locate(w, i->space, address(w, i, 0, 0, l), bytes, bytes, (int)l, true);    \
        EACH_ACTIVE(w)                                                                                           \
        {                                                                                                        \
            TO *p = (TO *)(uintptr_t)at[l];                                                                      \
            for (unsigned k = 0; k < n; k++) p[k] = (TO)((const FROM *)(const void *)(w->r + i->arg[k + 1]))[l]; \
        }                                                                                                        \
        return NEXT;                                                                                             \
    }
STORE(store_8, uint32_t, uint8_t)
STORE(store_16, uint32_t, uint16_t)
STORE(store_32, uint32_t, uint32_t)
STORE(store_64, uint64_t, uint64_t)

/* What others may be waiting for, or what waits: the other warps go on first. */
#define PAUSING(name, plain)                                                             \
    static enum outcome name(struct warp *w, const struct insn *i)                       \
    {                                                                                    \
        (void)plain(w, i);                                                               \
        w->now->what = "a value in memory";                                              \
        w->now->which = address(w, i, i->vector, 0, (unsigned)__builtin_ctz(w->active)); \
        return PAUSE;                                                                    \
    }
PAUSING(load_32_shared_with_others, load_32)
PAUSING(load_64_shared_with_others, load_64)
PAUSING(load_8_shared_with_others, load_u8)
PAUSING(load_16_shared_with_others, load_16)

/* ---- atomics ------------------------------------------------------------------------------------------- */

enum atomic { ATOM_ADD, ATOM_MIN, ATOM_MAX, ATOM_AND, ATOM_OR, ATOM_XOR, ATOM_EXCH, ATOM_INC, ATOM_CAS };
static inline uint64_t combined(enum atomic op, bool sign, uint64_t old, uint64_t v)
{
    switch (op) {
    case ATOM_ADD: return old + v;
    case ATOM_MIN: return sign ? ((int64_t)old < (int64_t)v ? old : v) : old < v ? old : v;
    case ATOM_MAX: return sign ? ((int64_t)old > (int64_t)v ? old : v) : old > v ? old : v;
    case ATOM_AND: return old & v;
    case ATOM_OR: return old | v;
    case ATOM_XOR: return old ^ v;
    case ATOM_INC: return old >= v ? 0 : old + 1;
    default: return v;
    }
}
/* The device's memory may be looked at by a thread of the host meanwhile, so the host's atomic stores; no other thread
 * writes there. */
#define ATOMIC(name, T, S, result, first)                                                                              \
    static enum outcome name(struct warp *w, const struct insn *i)                                                     \
    {                                                                                                                  \
        const enum atomic op = (enum atomic)(i->vector & 15);                                                          \
        emulator_events++;                                                                                             \
        EACH_ACTIVE(w)                                                                                                 \
        {                                                                                                              \
            T *p = (T *)(void *)locate(w, i->space, address(w, i, first, 0, l), sizeof(T), sizeof(T), (int)l, true);   \
            const T old = *p, v = ((const T *)(const void *)(w->r + i->arg[first + 1]))[l];                            \
            const bool sign = i->vector & 16;                                                                          \
            T now = (T)combined(op, sign, sign ? (uint64_t)(int64_t)(S)old : old, sign ? (uint64_t)(int64_t)(S)v : v); \
            if (op == ATOM_CAS) now = old == v ? ((const T *)(const void *)(w->r + i->arg[first + 2]))[l] : old;       \
            __atomic_store_n(p, now, __ATOMIC_RELEASE);                                                                \
            if (result) ((T *)(void *)(w->r + i->arg[0]))[l] = old;                                                    \
        }                                                                                                              \
        return op == ATOM_CAS || op == ATOM_EXCH ? PAUSE : NEXT;                                                       \
    }
ATOMIC(atom_32, uint32_t, int32_t, 1, 1)
ATOMIC(atom_64, uint64_t, int64_t, 1, 1)
ATOMIC(red_32, uint32_t, int32_t, 0, 0)
ATOMIC(red_64, uint64_t, int64_t, 0, 0)

/* ---- names of loads, stores and atomics ---------------------------------------------------------------- */

struct parts {
    bool volatile_, atomic_, vector_given, wide;
    uint32_t vector, bits;
    char kind;
};

static bool is_one_of(const char *s, const char *const *list)
{
    for (; *list; list++)
        if (!strcmp(s, *list)) return true;
    return false;
}

static bool split(char *name, struct parts *p, struct form *out, enum atomic *op)
{
    static const char *const harmless[] = { "nc",
                                            "cg",
                                            "ca",
                                            "cs",
                                            "lu",
                                            "cv",
                                            "wb",
                                            "wt",
                                            "weak",
                                            "gpu",
                                            "cta",
                                            "sys",
                                            "cluster",
                                            "acq_rel",
                                            "L1::no_allocate",
                                            "L1::evict_last",
                                            "L1::evict_first",
                                            "L1::evict_normal",
                                            "L2::128B",
                                            "L2::256B",
                                            "L2::64B",
                                            "L2::evict_first",
                                            "L2::evict_last",
                                            "noftz",
                                            NULL };
    static const char *const ordered[] = { "volatile", "relaxed", "acquire", "release", "mmio", NULL };
    static const char *const ops[] = { "add", "min", "max", "and", "or", "xor", "exch", "inc", "cas", NULL };
    out->space = SPACE_GENERIC;
    p->vector = 1;
    for (char *c = strtok(name, "."); c; c = strtok(NULL, ".")) {
        bool known = is_one_of(c, harmless);
        if (is_one_of(c, ordered)) known = p->volatile_ = true;
        for (unsigned k = 0; ops[k]; k++)
            if (p->atomic_ && !strcmp(c, ops[k])) *op = (enum atomic)k, known = true;
        if (!strcmp(c, "global") || !strcmp(c, "const")) out->space = SPACE_GLOBAL, known = true;
        if (!strcmp(c, "shared") || !strcmp(c, "shared::cta")) out->space = SPACE_SHARED, known = true;
        if (!strcmp(c, "shared::cluster")) out->space = SPACE_CLUSTER, known = true;
        if (!strcmp(c, "local")) out->space = SPACE_LOCAL, known = true;
        if (!strcmp(c, "param") || !strcmp(c, "param::entry") || !strcmp(c, "param::func"))
            out->space = SPACE_PARAM, known = true;
        if (!strcmp(c, "v2")) p->vector = 2, known = true;
        if (!strcmp(c, "v4")) p->vector = 4, known = true;
        if (strchr("busf", c[0]) &&
            (!strcmp(c + 1, "8") || !strcmp(c + 1, "16") || !strcmp(c + 1, "32") || !strcmp(c + 1, "64"))) {
            p->kind = c[0];
            p->bits = (uint32_t)atoi(c + 1);
            known = true;
        }
        if (!known) return false;
    }
    return p->bits != 0;
}

static void sign(struct form *out, const char *left, char register_, uint32_t vector, const char *right)
{
    size_t n = 0;
    for (const char *c = left; *c; c++)
        if (*c == 'V') {
            for (uint32_t k = 0; k < vector; k++) out->signature[n++] = register_;
        } else
            out->signature[n++] = *c;
    out->signature[n++] = ':';
    for (const char *c = right; *c; c++)
        if (*c == 'V') {
            for (uint32_t k = 0; k < vector; k++) out->signature[n++] = register_;
        } else
            out->signature[n++] = *c;
    out->signature[n] = '\0';
}

static insn_fn load_of(const struct parts *p, bool wide)
{
    if (p->volatile_) {
        if (wide != (p->bits == 64) || p->kind == 's') return NULL;
        return p->bits == 64   ? load_64_shared_with_others
               : p->bits == 32 ? load_32_shared_with_others
               : p->bits == 16 ? load_16_shared_with_others
                               : load_8_shared_with_others;
    }
    if (p->bits == 64) return load_64;
    if (wide)
        return p->bits == 32    ? (p->kind == 's' ? load_s32_64 : load_u32_64)
               : p->kind == 's' ? NULL
               : p->bits == 16  ? load_16_64
                                : load_u8_64;
    if (p->bits == 32) return load_32;
    return p->bits == 16 ? (p->kind == 's' ? load_s16 : load_16) : p->kind == 's' ? load_s8 : load_u8;
}

bool memory_form(const char *name, uint32_t register_bits, struct form *out)
{
    struct parts p = { 0 };
    enum atomic op = ATOM_ADD;
    char copy[128];
    const bool load = !strncmp(name, "ld.", 3), store = !strncmp(name, "st.", 3), atom = !strncmp(name, "atom.", 5),
               red = !strncmp(name, "red.", 4);
    memset(out, 0, sizeof *out);
    if ((!load && !store && !atom && !red) || strlen(name) >= sizeof copy) return false;
    p.atomic_ = atom || red;
    strcpy(copy, name + (atom ? 5 : red ? 4 : 3));
    if (!split(copy, &p, out, &op)) return false;
    const bool wide = p.bits == 64 || (load && register_bits == 64);
    out->vector = (uint8_t)p.vector;
    if (load) {
        out->run = load_of(&p, wide);
        sign(out, "V", wide ? 'l' : 'i', p.vector, "m");
    } else if (store) {
        out->run = p.bits == 64 ? store_64 : p.bits == 32 ? store_32 : p.bits == 16 ? store_16 : store_8;
        sign(out, "", wide ? 'l' : 'i', p.vector, "mV");
    } else {
        if (p.vector != 1 || p.bits < 32 || p.kind == 'f') return false;
        out->vector = (uint8_t)(op | (p.kind == 's' ? 16 : 0));
        out->run = atom ? (p.bits == 64 ? atom_64 : atom_32) : p.bits == 64 ? red_64 : red_32;
        sign(out, atom ? "V" : "", wide ? 'l' : 'i', 1, op == ATOM_CAS ? "mVV" : "mV");
    }
    return out->run != NULL;
}

/* ---- cp.async: a thread's own copies, in groups -------------------------------------------------------- */

static void arrive_copy(struct warp *w, const struct lane_copy *c)
{
    unsigned char *to = locate(w, SPACE_SHARED, c->destination, c->bytes, c->bytes, c->lane, true);
    memset(to, 0, c->bytes);
    if (c->from) memcpy(to, locate(w, SPACE_GLOBAL, c->source, c->from, 1, c->lane, false), c->from);
}

static enum outcome start_copy(struct warp *w, const struct insn *i, bool sized)
{
    emulator_events++;
    EACH_ACTIVE(w)
    {
        const uint32_t bytes = r32(w, i, 2)[l], from = sized ? r32(w, i, 3)[l] : bytes;
        struct lane_copy c = { w->committed[l],        w->copy_turn,          (uint8_t)l, (uint8_t)bytes, (uint8_t)from,
                               address(w, i, 0, 0, l), address(w, i, 1, 1, l) };
        if ((bytes != 4 && bytes != 8 && bytes != 16) || from > bytes)
            fault(w, (int)l, "cp.async of %u bytes, %u of them from memory", bytes, from);
        if (c.source % bytes || c.destination % bytes)
            fault(w, (int)l, "cp.async: an address is not aligned to %u bytes: shared 0x%llx, global 0x%llx", bytes,
                  (unsigned long long)c.destination, (unsigned long long)c.source);
        (void)locate(w, SPACE_SHARED, c.destination, bytes, bytes, (int)l, true);
        if (from) (void)locate(w, SPACE_GLOBAL, c.source, from, 1, (int)l, false);
        if (emulator_seed && emulator_random() & 1) {
            arrive_copy(w, &c);
            continue;
        }
        if (w->n_copies == w->cap_copies) {
            w->cap_copies = w->cap_copies ? 2 * w->cap_copies : 256;
            if (!(w->copies = realloc(w->copies, w->cap_copies * sizeof *w->copies))) abort();
        }
        w->copies[w->n_copies++] = c;
    }
    return NEXT;
}
static enum outcome cp_async(struct warp *w, const struct insn *i) { return start_copy(w, i, false); }
static enum outcome cp_async_sized(struct warp *w, const struct insn *i) { return start_copy(w, i, true); }

static enum outcome cp_async_commit(struct warp *w, const struct insn *i)
{
    (void)i;
    EACH_ACTIVE(w) w->committed[l]++;
    return NEXT;
}

/* Groups of the active lanes but the last `left`, and with all of them what is in no group yet, arrive. */
static void arrive_groups(struct warp *w, uint32_t left, bool all)
{
    uint32_t kept = 0;
    for (uint32_t n = 0; n < w->n_copies; n++) {
        const struct lane_copy *c = &w->copies[n];
        const bool waited = w->active >> c->lane & 1 && (all || c->group + left < w->committed[c->lane]);
        if (waited)
            arrive_copy(w, c);
        else
            w->copies[kept++] = *c;
    }
    w->n_copies = kept;
}
static enum outcome cp_async_wait_group(struct warp *w, const struct insn *i)
{
    arrive_groups(w, r32(w, i, 0)[0], false);
    return NEXT;
}
static enum outcome cp_async_wait_all(struct warp *w, const struct insn *i)
{
    (void)i;
    arrive_groups(w, 0, true);
    return NEXT;
}

/* ---- mbarrier ------------------------------------------------------------------------------------------ */

/* An mbarrier's 64 bits: a mark, the phase's parity, arrivals expected and still missing, bytes
 * that copies still owe. */
enum { MARK = 0x5a };
struct mbarrier {
    uint32_t parity, expected, missing;
    int32_t owed;
};

static uint64_t pack(const struct mbarrier *m)
{
    return (uint64_t)MARK << 56 | (uint64_t)m->parity << 55 | (uint64_t)(m->expected & 0x3fff) << 41 |
           (uint64_t)(m->missing & 0x3fff) << 27 | ((uint32_t)m->owed & 0x7ffffff);
}
static struct mbarrier read_mbarrier(struct warp *w, enum space space, uint64_t at, int lane, uint64_t **where)
{
    *where = (uint64_t *)(void *)locate(w, space, at, 8, 8, lane, true);
    const uint64_t v = **where;
    if (v >> 56 != MARK)
        fault(w, lane, "the mbarrier at shared address 0x%llx is not initialised (it holds 0x%016llx)",
              (unsigned long long)at, (unsigned long long)v);
    const uint32_t owed = v & 0x7ffffff;
    return (struct mbarrier){ v >> 55 & 1, v >> 41 & 0x3fff, v >> 27 & 0x3fff,
                              owed & 0x4000000 ? (int32_t)(owed | 0xf8000000u) : (int32_t)owed };
}
static void write_mbarrier(uint64_t *where, struct mbarrier m)
{
    if (m.missing == 0 && m.owed == 0) {
        m.parity ^= 1;
        m.missing = m.expected;
        emulator_events++;
    }
    *where = pack(&m);
}

static enum outcome mbarrier_init(struct warp *w, const struct insn *i)
{
    emulator_events++;
    EACH_ACTIVE(w)
    {
        const uint32_t count = r32(w, i, 1)[l];
        if (!count || count > 0x3fff) fault(w, (int)l, "mbarrier.init for %u arrivals (1 to 16383)", count);
        const struct mbarrier m = { 0, count, count, 0 };
        *(uint64_t *)(void *)locate(w, SPACE_SHARED, address(w, i, 0, 0, l), 8, 8, (int)l, true) = pack(&m);
    }
    return NEXT;
}
static enum outcome mbarrier_inval(struct warp *w, const struct insn *i)
{
    EACH_ACTIVE(w)
    {
        uint64_t *where;
        (void)read_mbarrier(w, SPACE_SHARED, address(w, i, 0, 0, l), (int)l, &where);
        memset(where, 0xff, 8);
    }
    return NEXT;
}

static void arrive(struct warp *w, enum space space, uint64_t at, uint32_t l, uint32_t count, uint32_t bytes)
{
    uint64_t *where;
    struct mbarrier m = read_mbarrier(w, space, at, (int)l, &where);
    if (m.missing < count)
        fault(w, (int)l, "more arrivals at the mbarrier at shared address 0x%llx than the %u it expects in a phase",
              (unsigned long long)at, m.expected);
    m.missing -= count;
    m.owed += (int32_t)bytes;
    if (m.owed > 0xfffff)
        fault(w, (int)l, "the mbarrier at shared address 0x%llx waits for %d bytes; 1048575 is the most",
              (unsigned long long)at, m.owed);
    write_mbarrier(where, m);
    emulator_events++;
}
/* The state that an arrival returns is the word itself. */
static enum outcome mbarrier_arrive(struct warp *w, const struct insn *i)
{
    EACH_ACTIVE(w)
    {
        r64(w, i, 0)[l] = 0;
        arrive(w, SPACE_SHARED, address(w, i, 1, 0, l), l, 1, 0);
    }
    return NEXT;
}
static enum outcome mbarrier_arrive_count(struct warp *w, const struct insn *i)
{
    EACH_ACTIVE(w)
    {
        r64(w, i, 0)[l] = 0;
        arrive(w, SPACE_SHARED, address(w, i, 1, 0, l), l, r32(w, i, 2)[l], 0);
    }
    return NEXT;
}
static enum outcome mbarrier_arrive_expect(struct warp *w, const struct insn *i)
{
    EACH_ACTIVE(w)
    {
        r64(w, i, 0)[l] = 0;
        arrive(w, SPACE_SHARED, address(w, i, 1, 0, l), l, 1, r32(w, i, 2)[l]);
    }
    return NEXT;
}
/* An arrival when the lane's copies so far are there: as late as somebody waits for it. */
static enum outcome cp_async_arrive(struct warp *w, const struct insn *i)
{
    for (uint32_t left = w->active; left;) {
        const uint64_t at = address(w, i, 0, 0, (uint32_t)__builtin_ctz(left));
        struct late_copy *c = calloc(1, sizeof *c), **end = &w->block->late;
        if (!c) abort();
        for (uint32_t l = 0; l < LANES; l++)
            if (left >> l & 1 && address(w, i, 0, 0, l) == at) c->lanes |= 1u << l;
        left &= ~c->lanes;
        c->barrier = (uint32_t)at & ((1u << RANK_SHIFT) - 1);
        c->by = w;
        c->turn = w->copy_turn;
        c->to = w->block;
        while (*end) end = &(*end)->next;
        *end = c;
    }
    w->copy_turn++;
    emulator_events++;
    return NEXT;
}
static void arrive_late(const struct late_copy *c)
{
    struct warp *w = c->by;
    uint32_t kept = 0;
    for (uint32_t n = 0; n < w->n_copies; n++) {
        if (c->lanes >> w->copies[n].lane & 1 && w->copies[n].turn <= c->turn)
            arrive_copy(w, &w->copies[n]);
        else
            w->copies[kept++] = w->copies[n];
    }
    w->n_copies = kept;
    for (uint32_t l = 0; l < LANES; l++)
        if (c->lanes >> l & 1) arrive(w, SPACE_SHARED, c->barrier, l, 1, 0);
}
static enum outcome mbarrier_arrive_cluster(struct warp *w,
                                            const struct insn *i) /* of another block: no state comes back */
{
    EACH_ACTIVE(w) arrive(w, SPACE_CLUSTER, address(w, i, 1, 0, l), l, 1, 0);
    return NEXT;
}
static enum outcome mbarrier_arrive_expect_cluster(struct warp *w, const struct insn *i)
{
    EACH_ACTIVE(w) arrive(w, SPACE_CLUSTER, address(w, i, 1, 0, l), l, 1, r32(w, i, 2)[l]);
    return NEXT;
}
static enum outcome mbarrier_expect(struct warp *w, const struct insn *i)
{
    EACH_ACTIVE(w) arrive(w, SPACE_SHARED, address(w, i, 0, 0, l), l, 0, r32(w, i, 1)[l]);
    return NEXT;
}

/* True when the phase of that parity has ended. What is on its way to the barrier comes now. */
static enum outcome mbarrier_try(struct warp *w, const struct insn *i)
{
    bool all = true;
    EACH_ACTIVE(w)
    {
        uint64_t *where;
        const uint64_t at = address(w, i, 1, 0, l);
        deliver_late(w->block, (uint32_t)at);
        const struct mbarrier m = read_mbarrier(w, SPACE_SHARED, at, (int)l, &where);
        const uint32_t done = (m.parity ^ r32(w, i, 2)[l]) & 1;
        *pred(w, i, 0) = (*pred(w, i, 0) & ~(1u << l)) | done << l;
        if (done) continue;
        all = false;
        w->now->what = "the mbarrier at shared address";
        w->now->which = at;
    }
    return all ? NEXT : PAUSE;
}

void mbarrier_complete(struct warp *w, struct block *b, uint32_t at, uint32_t bytes)
{
    uint64_t *where = (uint64_t *)(void *)(b->shared + (at - SHARED_BASE));
    if (*where >> 56 != MARK)
        fault(w, -1, "a copy reports to the mbarrier at shared address 0x%x, which is not initialised", at);
    const uint32_t owed = *where & 0x7ffffff;
    struct mbarrier m = { *where >> 55 & 1, *where >> 41 & 0x3fff, *where >> 27 & 0x3fff,
                          owed & 0x4000000 ? (int32_t)(owed | 0xf8000000u) : (int32_t)owed };
    m.owed -= (int32_t)bytes;
    write_mbarrier(where, m);
}

/* ---- bulk copies and st.async -------------------------------------------------------------------------- */

static struct late_copy *new_late(struct warp *w, uint32_t l, uint64_t destination, uint64_t barrier, uint32_t bytes)
{
    struct block *to[2];
    const uint64_t at[2] = { destination, barrier };
    for (int n = 0; n < 2; n++) {
        const uint32_t rank = (uint32_t)at[n] >> RANK_SHIFT;
        (void)locate(w, SPACE_CLUSTER, at[n], n ? 8 : bytes, n ? 8 : bytes < 16 ? bytes : 16, (int)l, true);
        to[n] = rank ? &w->block->cluster->block[rank - 1] : w->block;
    }
    if (to[0] != to[1])
        fault(w, (int)l, "an asynchronous copy to shared address 0x%llx reports to a barrier of another block, 0x%llx",
              (unsigned long long)destination, (unsigned long long)barrier);
    struct late_copy *c = calloc(1, sizeof *c);
    if (!c) abort();
    c->destination = destination & ((1u << RANK_SHIFT) - 1);
    c->barrier = (uint32_t)barrier & ((1u << RANK_SHIFT) - 1);
    c->bytes = bytes;
    c->to = to[0];
    struct late_copy **end = &to[0]->late;
    while (*end) end = &(*end)->next;
    *end = c;
    emulator_events++;
    return c;
}

static enum outcome cp_async_bulk(struct warp *w, const struct insn *i)
{
    EACH_ACTIVE(w)
    {
        const uint64_t from = address(w, i, 1, 1, l);
        const uint32_t bytes = r32(w, i, 2)[l];
        if (bytes % 16 || !bytes) fault(w, (int)l, "cp.async.bulk of %u bytes: not a multiple of 16", bytes);
        const unsigned char *source = locate(w, SPACE_GLOBAL, from, bytes, 16, (int)l, false);
        struct late_copy *c = new_late(w, l, address(w, i, 0, 0, l), address(w, i, 3, 2, l), bytes);
        c->source = source;
        if (emulator_seed && emulator_random() & 1) deliver_late(c->to, c->barrier);
    }
    return NEXT;
}

/* There is no cache: a policy is a number that nobody looks at. */
static enum outcome createpolicy(struct warp *w, const struct insn *i)
{
    EACH_ACTIVE(w) r64(w, i, 0)[l] = 0;
    return NEXT;
}

static void st_async(struct warp *w, const struct insn *i, uint32_t n, bool wide)
{
    EACH_ACTIVE(w)
    {
        struct late_copy *c = new_late(w, l, address(w, i, 0, 0, l), address(w, i, n + 1, 1, l), n * (wide ? 8 : 4));
        for (uint32_t k = 0; k < n; k++) {
            if (wide)
                memcpy(c->value + 8 * k, &r64(w, i, k + 1)[l], 8);
            else
                memcpy(c->value + 4 * k, &r32(w, i, k + 1)[l], 4);
        }
        if (emulator_seed && emulator_random() & 1) deliver_late(c->to, c->barrier);
    }
}
static enum outcome st_async_v4(struct warp *w, const struct insn *i)
{
    st_async(w, i, 4, false);
    return NEXT;
}
static enum outcome st_async_v2(struct warp *w, const struct insn *i)
{
    st_async(w, i, 2, false);
    return NEXT;
}
static enum outcome st_async_32(struct warp *w, const struct insn *i)
{
    st_async(w, i, 1, false);
    return NEXT;
}
static enum outcome st_async_64(struct warp *w, const struct insn *i)
{
    st_async(w, i, 1, true);
    return NEXT;
}

void deliver_late(struct block *b, uint32_t barrier)
{
    for (struct late_copy **p = &b->late; *p;) {
        struct late_copy *c = *p;
        if (c->barrier != barrier && barrier != ~0u) {
            p = &c->next;
            continue;
        }
        *p = c->next;
        if (c->by) {
            arrive_late(c);
        } else {
            memcpy(b->shared + (c->destination - SHARED_BASE), c->source ? c->source : c->value, c->bytes);
            mbarrier_complete(b->warps, b, c->barrier, c->bytes);
        }
        free(c);
    }
}

/* ---- addresses in a cluster, hints --------------------------------------------------------------------- */

static uint32_t mapped(struct warp *w, uint32_t at, uint32_t rank, uint32_t l)
{
    if (rank >= w->block->cluster->n_blocks)
        fault(w, (int)l, "mapa: block %u of a cluster of %u", rank, w->block->cluster->n_blocks);
    return (rank + 1) << RANK_SHIFT | (at & ((1u << RANK_SHIFT) - 1));
}
static enum outcome mapa32(struct warp *w, const struct insn *i)
{
    EACH_ACTIVE(w) r32(w, i, 0)[l] = mapped(w, r32(w, i, 1)[l], r32(w, i, 2)[l], l);
    return NEXT;
}
static enum outcome mapa64(struct warp *w, const struct insn *i) /* of a generic address */
{
    EACH_ACTIVE(w)
    r64(w, i, 0)[l] = SHARED_WINDOW + mapped(w, (uint32_t)(r64(w, i, 1)[l] - SHARED_WINDOW), r32(w, i, 2)[l], l);
    return NEXT;
}
static enum outcome nothing(struct warp *w, const struct insn *i)
{
    (void)w, (void)i;
    return NEXT;
}

const struct instruction memory_instructions[] = {
#define CP_ASYNC(name)                                                                                       \
    { name, ":mmi", cp_async, false }, { name, ":mmii", cp_async_sized, false },                             \
        { name ".L2::128B", ":mmi", cp_async, false }, { name ".L2::128B", ":mmii", cp_async_sized, false }, \
        { name ".L2::256B", ":mmi", cp_async, false },                                                       \
    {                                                                                                        \
        name ".L2::256B", ":mmii", cp_async_sized, false                                                     \
    }
    CP_ASYNC("cp.async.cg.shared.global"),
    CP_ASYNC("cp.async.ca.shared.global"),
    CP_ASYNC("cp.async.cg.shared::cta.global"),
    CP_ASYNC("cp.async.ca.shared::cta.global"),
    { "cp.async.commit_group", "", cp_async_commit, false },
    { "cp.async.wait_group", ":i", cp_async_wait_group, false },
    { "cp.async.wait_all", "", cp_async_wait_all, false },
    { "cp.async.mbarrier.arrive.noinc.shared.b64", ":m", cp_async_arrive, false },
    { "mbarrier.init.shared.b64", ":mi", mbarrier_init, false },
    { "mbarrier.init.shared::cta.b64", ":mi", mbarrier_init, false },
    { "mbarrier.inval.shared.b64", ":m", mbarrier_inval, false },
    { "mbarrier.inval.shared::cta.b64", ":m", mbarrier_inval, false },
    { "mbarrier.arrive.shared.b64", "l:m", mbarrier_arrive, false },
    { "mbarrier.arrive.shared::cta.b64", "l:m", mbarrier_arrive, false },
    { "mbarrier.arrive.shared.b64", "l:mi", mbarrier_arrive_count, false },
    { "mbarrier.arrive.shared::cta.b64", "l:mi", mbarrier_arrive_count, false },
    { "mbarrier.arrive.release.cta.shared::cta.b64", "l:m", mbarrier_arrive, false },
    { "mbarrier.arrive.release.cta.shared::cta.b64", "l:mi", mbarrier_arrive_count, false },
    { "mbarrier.arrive.expect_tx.shared.b64", "l:mi", mbarrier_arrive_expect, false },
    { "mbarrier.arrive.expect_tx.shared::cta.b64", "l:mi", mbarrier_arrive_expect, false },
    { "mbarrier.arrive.release.cta.expect_tx.shared::cta.b64", "l:mi", mbarrier_arrive_expect, false },
    { "mbarrier.arrive.expect_tx.release.cta.shared::cta.b64", "l:mi", mbarrier_arrive_expect, false },
    { "mbarrier.arrive.release.cluster.shared::cluster.b64", "l:m", mbarrier_arrive_cluster, false },
    { "mbarrier.arrive.shared::cluster.b64", "l:m", mbarrier_arrive_cluster, false },
    { "mbarrier.arrive.expect_tx.shared::cluster.b64", "l:mi", mbarrier_arrive_expect_cluster, false },
    { "mbarrier.arrive.release.cluster.expect_tx.shared::cluster.b64", "l:mi", mbarrier_arrive_expect_cluster, false },
    { "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64", "l:mi", mbarrier_arrive_expect_cluster, false },
    { "mbarrier.expect_tx.relaxed.cta.shared::cta.b64", ":mi", mbarrier_expect, false },
    { "mbarrier.try_wait.parity.shared.b64", "p:mi", mbarrier_try, false },
    { "mbarrier.try_wait.parity.shared::cta.b64", "p:mi", mbarrier_try, false },
    { "mbarrier.test_wait.parity.shared.b64", "p:mi", mbarrier_try, false },
    { "mbarrier.test_wait.parity.shared::cta.b64", "p:mi", mbarrier_try, false },
    { "mbarrier.try_wait.parity.acquire.cta.shared::cta.b64", "p:mi", mbarrier_try, false },
    { "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64", "p:mi", mbarrier_try, false },
    { "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes", ":mmim", cp_async_bulk, false },
    { "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint", ":mmiml", cp_async_bulk,
      false },
    { "createpolicy.fractional.L2::evict_first.b64", "l:", createpolicy, false },
    { "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32", ":miiiim", st_async_v4, false },
    { "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32", ":miiiim", st_async_v4, false },
    { "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32", ":miim", st_async_v2, false },
    { "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32", ":miim", st_async_v2, false },
    { "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32", ":mim", st_async_32, false },
    { "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32", ":mim", st_async_32, false },
    { "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64", ":mlm", st_async_64, false },
    { "mapa.shared::cluster.u32", "i:ii", mapa32, false },
    { "mapa.u64", "l:li", mapa64, false },
    /* one thread of the emulator runs all: memory is in order */
    { "fence.proxy.async.shared::cta", "", nothing, false },
    { "fence.proxy.async", "", nothing, false },
    { "fence.proxy.async.global", "", nothing, false },
    { "fence.mbarrier_init.release.cluster", "", nothing, false },
    { "fence.acq_rel.gpu", "", nothing, false },
    { "fence.acq_rel.sys", "", nothing, false },
    { "fence.acq_rel.cta", "", nothing, false },
    { "fence.acq_rel.cluster", "", nothing, false },
    { "fence.sc.gpu", "", nothing, false },
    { "fence.sc.sys", "", nothing, false },
    { "membar.gl", "", nothing, false },
    { "membar.sys", "", nothing, false },
    { "membar.cta", "", nothing, false },
    /* a launch begins when the one before has ended */
    { "griddepcontrol.wait", "", nothing, false },
    { "griddepcontrol.launch_dependents", "", nothing, false },
    { "prefetch.global.L2", ":m", nothing, false },
    { "prefetch.global.L1", ":m", nothing, false },
    { "prefetchu.L1", ":m", nothing, false },
    { "cp.async.bulk.prefetch.L2.global", ":mi", nothing, false },
    { NULL, NULL, NULL, false }
};
