/* slots.c: virtual registers to slots. nvcc's PTX has thousands of registers that live for a few instructions; a warp
 * that kept them all would not fit into a cache.
 *
 * Liveness by blocks, then a slot for each register from its first to its last instruction in the order of the text, as
 * a linear scan gives it. Lanes of a warp may stand at different places: that is no matter, since a slot's lanes belong
 * to their threads, and instructions write those of active lanes only. */
#include "emulator.h"

#include <stdlib.h>
#include <string.h>

struct stretch {
    int64_t from, to;
}; /* of instructions; from > to: never */

struct flow {
    const struct virtual_insn *code;
    const int32_t *operands;
    uint32_t n_code, n_blocks, words;
    uint32_t *begin;     /* [n_blocks + 1] */
    uint32_t *block_of;  /* [n_code] */
    uint64_t *in, *kill; /* [n_blocks][words]: needed at the beginning; written before any use */
};

static void *zeroed(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);
    if (!p) abort();
    return p;
}

static void find_blocks(struct flow *f)
{
    bool *leads = zeroed(f->n_code + 1, 1);
    leads[0] = true;
    for (uint32_t i = 0; i < f->n_code; i++) {
        if (f->code[i].jumps) leads[f->code[i].target] = true;
        if (f->code[i].jumps || !f->code[i].falls_through) leads[i + 1] = true;
    }
    f->begin = zeroed(f->n_code + 1, sizeof *f->begin);
    f->block_of = zeroed(f->n_code + 1, sizeof *f->block_of);
    for (uint32_t i = 0; i < f->n_code; i++) {
        if (leads[i]) f->begin[f->n_blocks++] = i;
        f->block_of[i] = f->n_blocks - 1;
    }
    f->begin[f->n_blocks] = f->n_code;
    free(leads);
}

static void use(uint64_t *in, const uint64_t *kill, int32_t r)
{
    if (r >= 0 && !(kill[r / 64] >> (r % 64) & 1)) in[r / 64] |= 1ull << (r % 64);
}

static void scan_blocks(struct flow *f)
{
    f->in = zeroed((size_t)f->n_blocks * f->words, sizeof *f->in);
    f->kill = zeroed((size_t)f->n_blocks * f->words, sizeof *f->kill);
    for (uint32_t i = 0; i < f->n_code; i++) {
        const struct virtual_insn *v = &f->code[i];
        uint64_t *in = f->in + (size_t)f->block_of[i] * f->words, *kill = f->kill + (size_t)f->block_of[i] * f->words;
        if (v->guard >= 0) use(in, kill, v->guard);
        for (uint32_t o = v->defs; o < v->n; o++) use(in, kill, f->operands[v->first + o]);
        for (uint32_t o = 0; o < v->defs; o++) {
            const int32_t r = f->operands[v->first + o];
            if (v->guard >= 0)
                use(in, kill, r); /* lanes that do not run it keep what was there */
            else
                kill[r / 64] |= 1ull << (r % 64);
        }
    }
}

/* The blocks that may follow; -1: none. */
static void followers(const struct flow *f, uint32_t block, int64_t next[2])
{
    const uint32_t end = f->begin[block + 1];
    const struct virtual_insn *last = &f->code[end - 1];
    next[0] = last->jumps ? (int64_t)f->block_of[last->target] : -1;
    next[1] = last->falls_through && end < f->n_code ? (int64_t)block + 1 : -1;
}

static void spread(struct flow *f)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t b = f->n_blocks; b-- > 0;) {
            int64_t next[2];
            uint64_t *in = f->in + (size_t)b * f->words;
            const uint64_t *kill = f->kill + (size_t)b * f->words;
            followers(f, b, next);
            for (int n = 0; n < 2; n++) {
                if (next[n] < 0) continue;
                const uint64_t *theirs = f->in + (size_t)next[n] * f->words;
                for (uint32_t w = 0; w < f->words; w++) {
                    const uint64_t more = theirs[w] & ~kill[w] & ~in[w];
                    if (more) in[w] |= more, changed = true;
                }
            }
        }
    }
}

static void widen(struct stretch *s, int64_t at)
{
    if (s->from > s->to)
        s->from = s->to = at;
    else if (at < s->from)
        s->from = at;
    else if (at > s->to)
        s->to = at;
}

static void widen_all(struct stretch *s, const uint64_t *set, uint32_t words, int64_t at)
{
    for (uint32_t w = 0; w < words; w++)
        for (uint64_t m = set[w]; m; m &= m - 1) widen(&s[w * 64 + (uint32_t)__builtin_ctzll(m)], at);
}

static struct stretch *stretches(const struct flow *f)
{
    struct stretch *s = zeroed((size_t)f->words * 64, sizeof *s);
    for (uint32_t r = 0; r < f->words * 64; r++) s[r] = (struct stretch){ 1, 0 };
    for (uint32_t i = 0; i < f->n_code; i++) {
        const struct virtual_insn *v = &f->code[i];
        if (v->guard >= 0) widen(&s[v->guard], i);
        for (uint32_t o = 0; o < v->n; o++)
            if (f->operands[v->first + o] >= 0) widen(&s[f->operands[v->first + o]], i);
    }
    for (uint32_t b = 0; b < f->n_blocks; b++) {
        int64_t next[2];
        widen_all(s, f->in + (size_t)b * f->words, f->words, f->begin[b]);
        followers(f, b, next);
        for (int n = 0; n < 2; n++)
            if (next[n] >= 0) widen_all(s, f->in + (size_t)next[n] * f->words, f->words, (int64_t)f->begin[b + 1] - 1);
    }
    return s;
}

struct begin {
    int64_t from;
    uint32_t id;
};
static int by_begin(const void *a, const void *b)
{
    const struct begin *x = a, *y = b;
    return x->from != y->from ? (x->from < y->from ? -1 : 1) : x->id < y->id ? -1 : 1;
}

void assign_slots(const struct virtual_insn *code, uint32_t n_code, const int32_t *operands,
                  struct virtual_register *registers, uint32_t n_registers, uint32_t count[3])
{
    struct flow f = { code, operands, n_code, 0, (n_registers + 63) / 64, NULL, NULL, NULL, NULL };
    find_blocks(&f);
    scan_blocks(&f);
    spread(&f);
    struct stretch *s = stretches(&f);
    struct begin *order = zeroed(n_registers, sizeof *order);
    int64_t *busy[3]; /* the last instruction that needs what is in the slot */
    uint32_t n = 0;
    for (uint32_t c = 0; c < 3; c++) count[c] = 0, busy[c] = zeroed(n_registers, sizeof **busy);
    for (uint32_t r = 0; r < n_registers; r++)
        if (s[r].from <= s[r].to) order[n++] = (struct begin){ s[r].from, r };
    qsort(order, n, sizeof *order, by_begin);
    for (uint32_t i = 0; i < n; i++) {
        struct virtual_register *v = &registers[order[i].id];
        const uint32_t c = v->bits == 1 ? 0 : v->bits == 32 ? 1 : 2;
        uint32_t slot = 0;
        while (slot < count[c] && busy[c][slot] >= order[i].from) slot++;
        if (slot == count[c]) count[c]++;
        busy[c][slot] = s[order[i].id].to;
        v->slot = (int32_t)slot;
    }
    for (uint32_t c = 0; c < 3; c++) free(busy[c]);
    free(order);
    free(s);
    free(f.begin);
    free(f.block_of);
    free(f.in);
    free(f.kill);
}
