/* mask.c: which tokens may come next, and the memory of it.
 *
 * A mask is made stack by stack: slices of the vocabulary at once (slice.c), other tokens by walking a tree (walk.c).
 *
 * A mask is a function of the stacks' tops and of the frames that some token can reach below them; the walk notes how
 * far down it looked. So masks are kept by tops and that many frames, and looked up in steps: what is kept for the tops
 * alone either is the mask or says how many frames are needed. Counters enter saturated at what one token can count. */
#include "grammar/masks.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_MASKS = 256,
    MAX_ENTRIES = 4096, /* then all are forgotten; masks are found again by what they are */
    BUCKETS = 8192,
    MAX_DEPTH = 64, /* a mask that looks further down is not kept */
    MAX_KEY = 4096  /* numbers; a longer key is not looked up */
};

struct kept_mask {
    uint64_t *bits;
    uint64_t serial, hash; /* serial 0: free */
    uint32_t n_allowed;
    bool used; /* since the hand came by */
};

struct cache_entry {
    uint64_t hash;
    uint64_t serial; /* of the mask in `slot`; another one there now: forgotten */
    uint32_t key_at, key_n, slot;
    uint32_t deeper; /* not 0: so many frames are needed */
    uint32_t chain;
};

struct masks {
    const struct grammar_index *x;
    struct walker walker;
    struct tops tops; /* what the machine adds for a token by its id */
    struct kept_mask kept[MAX_MASKS];
    uint32_t hand;
    uint64_t last_serial;
    struct cache_entry *entries; /* [MAX_ENTRIES] */
    uint32_t n_entries;
    uint32_t *buckets; /* [BUCKETS]: 1 + an entry */
    struct numbers keys, key;
    uint64_t hits, misses;
};

void masks_close(struct masks *m)
{
    if (!m) return;
    for (uint32_t i = 0; i < MAX_MASKS; i++) free(m->kept[i].bits);
    walker_close(&m->walker);
    free(m->tops.list);
    free(m->entries);
    free(m->buckets);
    free(m->keys.list);
    free(m->key.list);
    free(m);
}

void masks_figures(const struct masks *m, struct grammar_figures *out)
{
    out->hits = m->hits;
    out->misses = m->misses;
    for (uint32_t i = 0; i < MAX_MASKS; i++) out->masks += m->kept[i].serial != 0;
}

uint64_t masks_bytes(const struct masks *m)
{
    struct grammar_figures f = { 0 };
    masks_figures(m, &f);
    return sizeof *m + (uint64_t)f.masks * m->x->words * sizeof *m->kept->bits + walker_bytes(&m->walker) +
           MAX_ENTRIES * sizeof *m->entries + BUCKETS * sizeof *m->buckets +
           ((uint64_t)m->keys.cap + m->key.cap) * sizeof *m->keys.list;
}

static void set_bit(uint64_t *bits, uint32_t id) { bits[id / 64] |= UINT64_C(1) << id % 64; }

wk_status masks_use(struct grammar *g, const struct grammar_index *x, const struct wk_err *err)
{
    if (g->masks && g->masks->x == x) return WK_OK;
    if (g->masks && g->positions) return wk_fail(err, WK_INVALID, "a grammar is in use with another vocabulary");
    masks_close(g->masks);
    g->masks = NULL;
    struct masks *m = calloc(1, sizeof *m);
    if (!m) return wk_fail(err, WK_NO_MEMORY, "no memory for masks");
    m->x = x;
    const bool opened = walker_open(&m->walker, x);
    m->entries = malloc(MAX_ENTRIES * sizeof *m->entries);
    m->buckets = calloc(BUCKETS, sizeof *m->buckets);
    if (!opened || !m->entries || !m->buckets) {
        masks_close(m);
        return wk_fail(err, WK_NO_MEMORY, "no memory for masks");
    }
    g->masks = m;
    return WK_OK;
}

static bool is_listed(const struct grammar *g, uint32_t id)
{
    uint32_t low = 0, high = g->token_ids.n;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (g->token_ids.list[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < g->token_ids.n && g->token_ids.list[low] == id;
}

bool masks_names(const struct grammar *g, uint32_t id) { return g->any_token || is_listed(g, id); }

/* ---- making a mask --------------------------------------------------------------------------------------------------
 */

/* Tokens that nodes name by id. */
static bool try_named(struct grammar *g, struct masks *m, const struct position *p)
{
    for (uint32_t i = 0; i < g->token_ids.n; i++) {
        const uint32_t id = g->token_ids.list[i];
        if (id >= m->x->n_vocab) continue;
        const uint32_t symbol = TOKEN_SYMBOL + id + (m->x->bytes[id].len ? 0 : CONTROL_SYMBOL);
        m->tops.n = 0;
        if (!machine_step(g, p->tops, p->n, symbol, &m->tops)) return false;
        if (m->tops.n) set_bit(m->walker.bits, id);
    }
    if (!g->any_token) return true;
    /* One that no node names stands for all of them. */
    m->tops.n = 0;
    if (!machine_step(g, p->tops, p->n, TOKEN_SYMBOL + TOKEN_ID_BITS, &m->tops)) return false;
    for (uint32_t w = 0; m->tops.n && w < m->x->words; w++) {
        uint64_t unnamed = m->x->ordinary[w];
        for (uint64_t left = unnamed; left; left &= left - 1) {
            const uint32_t bit = (uint32_t)__builtin_ctzll(left);
            if (is_listed(g, w * 64 + bit)) unnamed &= ~(UINT64_C(1) << bit);
        }
        m->walker.bits[w] |= unnamed;
    }
    return true;
}

/* A token can follow if it can follow one of the stacks: each is walked for itself, so that each has its slice. */
static bool make_mask(struct grammar *g, struct masks *m, const struct position *p)
{
    walker_clear(&m->walker);
    for (uint32_t i = 0; i < p->n; i++)
        if (!slices_walk(g, &m->walker, p, &p->tops[i])) return false;
    if (p->need) return true;
    if (!try_named(g, m, p)) return false;
    const enum lang_answer complete = machine_complete(g, p->tops, p->n);
    for (uint32_t i = 0; complete == LANG_YES && i < m->x->n_ends; i++) set_bit(m->walker.bits, m->x->ends[i]);
    return complete != LANG_UNKNOWN;
}

/* Numbers the frames below the position's tops, so that the machine can tell how far down it looked. */
static void number_frames(struct grammar *g, const struct position *p)
{
    g->walk++;
    g->deepest = 0;
    g->bottom = 1;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t depth = 1;
        for (uint32_t f = p->tops[i].parent; f && depth <= MAX_DEPTH + 1; f = g->frames[f].parent, depth++) {
            struct frame *frame = &g->frames[f];
            if (frame->walk != g->walk || frame->depth < depth) frame->depth = (uint8_t)depth;
            frame->walk = g->walk;
        }
        if (depth > g->bottom) g->bottom = depth;
    }
}

/* ---- keys
 * ------------------------------------------------------------------------------------------------------------- */

static uint32_t least(uint64_t a, uint32_t most) { return a < most ? (uint32_t)a : most; }

/* What is left of a counter between b and c, as far as one token can tell. */
static uint32_t left_of(const struct masks *m, uint32_t b, uint32_t c, uint64_t at)
{
    const uint32_t most = m->x->longest + 1;
    const uint32_t need = at < b ? least(b - at, most) : 0, room = c == NODE_UNBOUNDED ? most : least(c - at, most);
    return need | room << 16;
}

static void push_place(struct grammar *g, struct masks *m, uint32_t node, uint64_t at)
{
    const struct node *n = &g->nodes[node];
    uint32_t low = (uint32_t)at, high = (uint32_t)(at >> 32);
    const bool counts = n->kind == OF_STRING && n->a == LANG_EVERYTHING && !(n->flags & NODE_UNIQUE);
    if (n->kind == OF_REPEAT || counts) {
        low = left_of(m, n->b, n->c, at);
        high = 0;
    } else if (n->kind == OF_ARRAY) {
        const struct array *a = &g->arrays[n->a];
        low = (low & 15) | (high < a->n_prefix ? (high + 1) << 8 : 0);
        high = left_of(m, a->min, a->max, high);
    }
    (void)(numbers_push(g->langs, &m->key, node) && numbers_push(g->langs, &m->key, low) &&
           numbers_push(g->langs, &m->key, high));
}

/* The key of a position with `depth` frames below each top. */
static void make_key(struct grammar *g, struct masks *m, const struct position *p, uint32_t depth)
{
    m->key.n = 0;
    (void)(numbers_push(g->langs, &m->key, p->need | (uint32_t)p->length << 8 | depth << 16) &&
           numbers_push(g->langs, &m->key, p->value));
    for (uint32_t i = 0; i < p->n && m->key.n < MAX_KEY; i++) {
        const struct top *t = &p->tops[i];
        push_place(g, m, t->node, t->at);
        (void)(numbers_push(g->langs, &m->key, t->state) && numbers_push(g->langs, &m->key, t->escape));
        uint32_t f = t->parent;
        for (uint32_t k = 0; k < depth; k++) {
            if (!f) {
                (void)numbers_push(g->langs, &m->key, UINT32_MAX); /* the end of the text */
                break;
            }
            push_place(g, m, g->frames[f].node, g->frames[f].at);
            f = g->frames[f].parent;
        }
    }
}

static uint64_t hash_key(const struct masks *m)
{
    uint64_t h = UINT64_C(0x9E3779B97F4A7C15) * (m->key.n + 1);
    for (uint32_t i = 0; i < m->key.n; i++) {
        h = (h ^ m->key.list[i]) * UINT64_C(0xBF58476D1CE4E5B9);
        h ^= h >> 32;
    }
    return h;
}

static struct cache_entry *find(struct masks *m, uint64_t hash)
{
    for (uint32_t i = m->buckets[hash % BUCKETS]; i; i = m->entries[i - 1].chain) {
        struct cache_entry *e = &m->entries[i - 1];
        if (e->hash == hash && e->key_n == m->key.n &&
            !memcmp(m->keys.list + e->key_at, m->key.list, m->key.n * sizeof(uint32_t)))
            return e;
    }
    return NULL;
}

static void forget_entries(struct masks *m)
{
    memset(m->buckets, 0, BUCKETS * sizeof *m->buckets);
    m->n_entries = m->keys.n = 0;
}

/* The entry of the key, found or new; NULL: no memory, so nothing is kept. */
static struct cache_entry *entry_for(struct grammar *g, struct masks *m, uint64_t hash)
{
    struct cache_entry *e = find(m, hash);
    if (e) return e;
    if (m->n_entries == MAX_ENTRIES || m->keys.n > MAX_ENTRIES * 32) forget_entries(m);
    if (!numbers_room(g->langs, &m->keys, m->key.n)) return NULL;
    e = &m->entries[m->n_entries++];
    *e = (struct cache_entry){
        .hash = hash, .key_at = m->keys.n, .key_n = m->key.n, .chain = m->buckets[hash % BUCKETS]
    };
    memcpy(m->keys.list + m->keys.n, m->key.list, m->key.n * sizeof(uint32_t));
    m->keys.n += m->key.n;
    m->buckets[hash % BUCKETS] = m->n_entries;
    return e;
}

/* ---- masks kept
 * ---------------------------------------------------------------------------------------------------------- */

/* Products of two words each, which do not wait for each other. Equal masks are compared in the end. */
static uint64_t hash_bits(const struct masks *m)
{
    const uint64_t *bits = m->walker.bits;
    uint64_t sum = 0, salt = UINT64_C(0x9E3779B97F4A7C15);
    for (uint32_t w = 0; w + 1 < m->x->words; w += 2, salt += UINT64_C(0xD1B54A32D192ED03)) {
        const unsigned __int128 product =
            (unsigned __int128)(bits[w] ^ salt) * (bits[w + 1] ^ (salt << 32 | salt >> 32));
        sum += (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    return m->x->words & 1 ? (sum ^ bits[m->x->words - 1]) * salt : sum;
}

/* Sums of bits in bytes, of so many words that a byte holds them. */
static uint32_t count_bits(const struct masks *m)
{
    const uint64_t ones = UINT64_C(0x5555555555555555), twos = UINT64_C(0x3333333333333333);
    const uint64_t fours = UINT64_C(0x0F0F0F0F0F0F0F0F);
    uint64_t n = 0;
    for (uint32_t w = 0; w < m->x->words;) {
        const uint32_t end = m->x->words - w < 16 ? m->x->words : w + 16;
        uint64_t sums = 0;
        for (; w < end; w++) {
            uint64_t b = m->walker.bits[w];
            b -= b >> 1 & ones;
            b = (b & twos) + (b >> 2 & twos);
            sums += (b + (b >> 4)) & fours;
        }
        const uint64_t halves = (sums & UINT64_C(0x00FF00FF00FF00FF)) + (sums >> 8 & UINT64_C(0x00FF00FF00FF00FF));
        n += (halves * UINT64_C(0x0001000100010001)) >> 48;
    }
    return (uint32_t)n;
}

/* A place for a mask: a free one, or that of one which was not used since the hand came by. */
static uint32_t free_slot(struct masks *m)
{
    for (;; m->hand = (m->hand + 1) % MAX_MASKS) {
        struct kept_mask *k = &m->kept[m->hand];
        if (!k->serial || !k->used) return m->hand;
        k->used = false;
    }
}

/* Where the mask that was made is kept; MAX_MASKS: no memory. */
static uint32_t keep_mask(struct masks *m)
{
    const size_t size = m->x->words * sizeof *m->walker.bits;
    const uint64_t hash = hash_bits(m);
    for (uint32_t i = 0; i < MAX_MASKS; i++)
        if (m->kept[i].serial && m->kept[i].hash == hash && !memcmp(m->kept[i].bits, m->walker.bits, size)) return i;
    const uint32_t slot = free_slot(m);
    struct kept_mask *k = &m->kept[slot];
    if (!k->bits) k->bits = malloc(size);
    if (!k->bits) return MAX_MASKS;
    memcpy(k->bits, m->walker.bits, size);
    k->serial = ++m->last_serial;
    k->hash = hash;
    k->n_allowed = count_bits(m);
    return slot;
}

static void hand_out(struct masks *m, uint32_t slot, struct grammar_mask *out)
{
    struct kept_mask *k = &m->kept[slot];
    k->used = true;
    *out = (struct grammar_mask){ k->bits, k->serial, k->n_allowed };
}

static bool cached(struct grammar *g, struct masks *m, const struct position *p, struct grammar_mask *out)
{
    for (uint32_t depth = 0;;) {
        make_key(g, m, p, depth);
        if (m->key.n >= MAX_KEY) return false;
        const struct cache_entry *e = find(m, hash_key(m));
        if (!e) return false;
        if (e->deeper) {
            depth = e->deeper;
            continue;
        }
        if (m->kept[e->slot].serial != e->serial) return false;
        hand_out(m, e->slot, out);
        return true;
    }
}

/* Keeps a mask that was decided by `depth` frames: the way there leads over every shallower entry. */
static void remember(struct grammar *g, struct masks *m, const struct position *p, uint32_t depth, uint32_t slot)
{
    if (depth > MAX_DEPTH) return;
    for (uint32_t at = 0;;) {
        make_key(g, m, p, at);
        if (m->key.n >= MAX_KEY) return;
        struct cache_entry *e = entry_for(g, m, hash_key(m));
        if (!e) return;
        if (at >= depth) {
            e->slot = slot;
            e->serial = m->kept[slot].serial;
            e->deeper = 0;
            return;
        }
        /* What other stacks with these tops need stays reachable: depths only grow along a way. */
        if (!e->deeper || e->deeper > depth) e->deeper = e->deeper && e->deeper < depth ? e->deeper : depth;
        at = e->deeper;
    }
}

wk_status masks_get(struct grammar *g, const struct position *p, struct grammar_mask *out, const struct wk_err *err)
{
    struct masks *m = g->masks;
    if (cached(g, m, p, out)) {
        m->hits++;
        return WK_OK;
    }
    m->misses++;
    number_frames(g, p);
    const bool made = make_mask(g, m, p);
    walker_end(&m->walker);
    const uint32_t depth = g->deepest;
    g->walk++; /* frames are numbered no more */
    g->bottom = 0;
    if (!made) return wk_fail(err, g->status ? g->status : WK_INTERNAL, "%s", g->why);
    const uint32_t slot = keep_mask(m);
    if (slot == MAX_MASKS) return wk_fail(err, WK_NO_MEMORY, "no memory for masks");
    remember(g, m, p, depth, slot);
    hand_out(m, slot, out);
    return WK_OK;
}
