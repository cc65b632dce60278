/* mask.c: which tokens may come next, and the memory of it.
 *
 * A mask is made by walking the tree of tokens with the machine: a byte that cannot follow takes everything below it
 * away. Before that, a slice of the vocabulary is allowed as a whole where the stack's automaton is shown to let all
 * its characters pass.
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
    MAX_KEY = 4096, /* numbers; a longer key is not looked up */
    FRONTIER = 8,   /* states that a slice is followed through at a time */
    NOT_A_SLICE = UINT32_MAX
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
    struct reading *levels; /* [longest + 1] */
    lang_id *states;        /* [longest + 1] */
    uint8_t *kinds;         /* [longest + 1]: enum level */
    struct tops tops;       /* [longest + 1] for levels that were inside, and then what the machine adds */
    uint64_t *bits;         /* the mask being made */
    uint64_t *ordinary;     /* tokens that have bytes */
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
    free(m->levels);
    free(m->states);
    free(m->kinds);
    free(m->tops.list);
    free(m->bits);
    free(m->ordinary);
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
    return sizeof *m + (f.masks + 2ull) * m->x->words * sizeof *m->bits + (m->x->longest + 1ull) * sizeof *m->levels +
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
    m->levels = malloc((x->longest + 1) * sizeof *m->levels);
    m->states = malloc((x->longest + 1) * sizeof *m->states);
    m->kinds = malloc((x->longest + 1) * sizeof *m->kinds);
    m->tops.cap = x->longest + 1 + 2 * GRAMMAR_MAX_STACKS;
    m->tops.list = malloc(m->tops.cap * sizeof *m->tops.list);
    m->bits = malloc(x->words * sizeof *m->bits);
    m->ordinary = calloc(x->words, sizeof *m->ordinary);
    m->entries = malloc(MAX_ENTRIES * sizeof *m->entries);
    m->buckets = calloc(BUCKETS, sizeof *m->buckets);
    if (!m->levels || !m->states || !m->kinds || !m->tops.list || !m->bits || !m->ordinary || !m->entries ||
        !m->buckets) {
        masks_close(m);
        return wk_fail(err, WK_NO_MEMORY, "no memory for masks");
    }
    for (uint32_t id = 0; id < x->n_vocab; id++)
        if (x->bytes[id].len) set_bit(m->ordinary, id);
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

/* ---- walking ------------------------------------------------------------------------------------------------------
 */

static void allow(struct masks *m, uint32_t id)
{
    for (uint32_t next = id + 1; next; next = m->x->same[next - 1]) set_bit(m->bits, next - 1);
}

/* What the walk knows of a level. */
enum level {
    GENERAL,       /* levels[] and tops */
    INSIDE,        /* a string's content or a text, by the state of its automaton: states[] */
    INSIDE_PARTIAL /* behind a part of a character, which will lead to states[] whatever it is */
};

/* Is all that a walk from this top reads first told by its automaton? */
static bool is_inside(const struct grammar *g, const struct top *t)
{
    const struct node *n = &g->nodes[t->node];
    if (n->kind == OF_TEXT) return true;
    return n->kind == OF_STRING && !(n->flags & NODE_UNIQUE) && n->a != LANG_EVERYTHING &&
           string_phase_of(t) == STRING_BODY;
}

/* One byte behind level d - 1, which is inside t's automaton. LANG_UNKNOWN: the machine has to say. */
static enum lang_answer inside_byte(struct grammar *g, struct masks *m, const struct top *t, uint32_t d, uint8_t byte)
{
    const bool string = g->nodes[t->node].kind == OF_STRING;
    const lang_id state = m->states[d - 1];
    struct reading *to = &m->levels[d];
    if (m->kinds[d - 1] == INSIDE_PARTIAL) {
        if (!machine_partial(&m->levels[d - 1], byte, to)) return LANG_NO;
        m->kinds[d] = to->need ? INSIDE_PARTIAL : INSIDE;
        m->states[d] = state;
        return LANG_YES;
    }
    /* A text that may end here is left as well. */
    if (!string && lang_accepts(g->langs, state)) return LANG_UNKNOWN;
    if (string && (byte == '"' || byte == '\\')) return LANG_UNKNOWN;
    if (string && byte < 0x20) return LANG_NO;
    const lang_id next = byte < 0x80 ? lang_next_ascii(g->langs, state, byte) : lang_next_above(g->langs, state);
    if (next == LANG_NOTHING) return LANG_NO;
    if (next == LANG_NONE || (next == LANG_EMPTY && !string)) return LANG_UNKNOWN;
    m->states[d] = next;
    m->kinds[d] = byte < 0x80 ? INSIDE : INSIDE_PARTIAL;
    const struct reading none = { .n = 0 };
    return byte < 0x80 || machine_partial(&none, byte, to) ? LANG_YES : LANG_NO;
}

/* One byte behind level d - 1 by the machine, which wants to see the level's stacks. */
static enum lang_answer general_byte(struct grammar *g, struct masks *m, const struct top *t, uint32_t d, uint8_t byte)
{
    if (m->kinds[d - 1] == INSIDE) {
        m->tops.list[d - 1] = *t;
        m->tops.list[d - 1].state = m->states[d - 1];
        m->levels[d - 1] = (struct reading){ .first = d - 1, .n = 1, .end = m->x->longest + 1 };
    }
    m->kinds[d] = GENERAL;
    return machine_byte(g, &m->tops, &m->levels[d - 1], byte, &m->levels[d]);
}

static enum lang_answer walk_byte(struct grammar *g, struct masks *m, const struct top *t, uint32_t d, uint8_t byte)
{
    const enum lang_answer fits = m->kinds[d - 1] == GENERAL ? LANG_UNKNOWN : inside_byte(g, m, t, d, byte);
    return fits == LANG_UNKNOWN ? general_byte(g, m, t, d, byte) : fits;
}

/* The first level: top t, with the position's partial character. */
static void begin_walk(struct grammar *g, struct masks *m, const struct position *p, const struct top *t)
{
    m->tops.list[0] = *t;
    m->levels[0] =
        (struct reading){ .n = 1, .end = m->x->longest + 1, .value = p->value, .need = p->need, .length = p->length };
    m->states[0] = t->state;
    m->kinds[0] = !p->need && is_inside(g, t) ? INSIDE : GENERAL;
}

/* Allows the tokens of a tree that can follow top t. False: a failure. */
static bool walk(struct grammar *g, struct masks *m, const struct trie *tree, const struct top *t)
{
    for (uint32_t i = 0; i < tree->n;) {
        const struct trie_node *n = &tree->nodes[i];
        const enum lang_answer fits = walk_byte(g, m, t, n->depth, n->byte);
        if (fits == LANG_UNKNOWN) return false;
        if (fits == LANG_NO) {
            i = n->skip;
            continue;
        }
        if (n->token) allow(m, n->token - 1);
        i++;
    }
    return true;
}

/* Allows one token if it can follow. */
static bool try_token(struct grammar *g, struct masks *m, uint32_t id, const struct top *t)
{
    const struct token_bytes b = m->x->bytes[id];
    for (size_t i = 0; i < b.len; i++) {
        const enum lang_answer fits = walk_byte(g, m, t, (uint32_t)i + 1, (uint8_t)b.data[i]);
        if (fits != LANG_YES) return fits == LANG_NO;
    }
    allow(m, id);
    return true;
}

/* ---- slices ---------------------------------------------------------------------------------------------------------
 */

/* How much of a slice can follow. */
struct passage {
    uint32_t up_to; /* characters; 0 with all: any number */
    bool all;
    bool longer_fail; /* tokens with more are not allowed; else they must be tried */
};

/* Follows every character of the slice's set through an automaton. False: it does not let all of them pass alike. */
static bool passes(struct grammar *g, const struct slice *s, lang_id state, bool can_leave, struct passage *out)
{
    lang_id now[FRONTIER] = { state }, next[FRONTIER];
    if (g->langs->exprs[state].flags & EXPR_OPEN) {
        *out = (struct passage){ .all = true };
        return true;
    }
    uint32_t n = 1;
    bool leaves = false; /* the text may end within a token, and what follows go on with it */
    for (uint32_t length = 0; length <= SLICE_LENGTHS; length++) {
        bool live, dead;
        for (uint32_t i = 0; i < n; i++) leaves |= can_leave && lang_accepts(g->langs, now[i]);
        const uint32_t found = lang_next_set(g->langs, now, n, s->set, s->n_set, next, FRONTIER, &live, &dead);
        if (found == UINT32_MAX || (live && dead) || (dead && leaves)) return false;
        *out = (struct passage){ .up_to = length, .longer_fail = true };
        if (dead) return true;
        if (found == n && !memcmp(now, next, n * sizeof *now)) {
            out->all = true;
            return true;
        }
        memcpy(now, next, found * sizeof *now);
        n = found;
    }
    *out = (struct passage){ .up_to = SLICE_LENGTHS };
    return true;
}

/* The string's counter alone decides. */
static struct passage counted(const struct node *n, uint64_t at, uint32_t longest)
{
    const uint64_t left = n->c == LANG_UNBOUNDED ? UINT64_MAX : n->c - at;
    if (left >= longest) return (struct passage){ .all = true };
    return (struct passage){ .up_to = (uint32_t)left, .longer_fail = true };
}

static bool inside_string(const struct slice *s)
{
    for (uint32_t i = 0; i < s->n_set; i++)
        for (const char *c = "\"\\\x1f"; *c; c++)
            if (s->set[i].first <= (uint32_t)*c && s->set[i].last >= (uint32_t)*c) return false;
    return true;
}

/* Which slice to allow at once where the single top t stands; NOT_A_SLICE: none. */
static uint32_t choose(struct grammar *g, const struct masks *m, const struct top *t, struct passage *out)
{
    const struct node *n = &g->nodes[t->node];
    const bool string = n->kind == OF_STRING;
    if (string ? string_phase_of(t) != STRING_BODY : n->kind != OF_TEXT) return NOT_A_SLICE;
    for (uint32_t i = 0; i < m->x->n_slices && !langs_status(g->langs, NULL); i++) {
        const struct slice *s = &m->x->slices[i];
        if (string && !inside_string(s)) continue;
        if (string && n->a == LANG_EVERYTHING && !(n->flags & NODE_UNIQUE)) {
            *out = counted(n, t->at, m->x->longest);
            return i;
        }
        if (passes(g, s, t->state, !string, out) && (out->all || out->up_to)) return i;
    }
    return NOT_A_SLICE;
}

/* Allows what of a slice can follow, and walks the rest. */
static bool walk_slice(struct grammar *g, struct masks *m, const struct slice *s, const struct passage *p,
                       const struct top *t)
{
    const uint32_t k = p->all ? 0 : p->up_to < SLICE_LENGTHS ? p->up_to : SLICE_LENGTHS;
    for (uint32_t w = 0; w < m->x->words && (p->all || k); w++) m->bits[w] |= s->up_to[k][w];
    for (uint32_t i = 0; i < s->n_longer && !p->all; i++) {
        if (s->lengths[i] <= p->up_to)
            allow(m, s->longer[i]);
        else if (!p->longer_fail && !try_token(g, m, s->longer[i], t))
            return false;
    }
    return walk(g, m, &s->rest, t);
}

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
        if (m->tops.n) set_bit(m->bits, id);
    }
    if (!g->any_token) return true;
    /* One that no node names stands for all of them. */
    m->tops.n = 0;
    if (!machine_step(g, p->tops, p->n, TOKEN_SYMBOL + TOKEN_ID_BITS, &m->tops)) return false;
    for (uint32_t w = 0; m->tops.n && w < m->x->words; w++) {
        uint64_t unnamed = m->ordinary[w];
        for (uint64_t left = unnamed; left; left &= left - 1) {
            const uint32_t bit = (uint32_t)__builtin_ctzll(left);
            if (is_listed(g, w * 64 + bit)) unnamed &= ~(UINT64_C(1) << bit);
        }
        m->bits[w] |= unnamed;
    }
    return true;
}

/* Allows what can follow one stack. */
static bool walk_stack(struct grammar *g, struct masks *m, const struct position *p, const struct top *t)
{
    struct passage passage;
    begin_walk(g, m, p, t);
    const uint32_t slice = p->need ? NOT_A_SLICE : choose(g, m, t, &passage);
    if (langs_status(g->langs, NULL)) return machine_failed(g);
    return slice == NOT_A_SLICE ? walk(g, m, &m->x->all, t) : walk_slice(g, m, &m->x->slices[slice], &passage, t);
}

/* A token can follow if it can follow one of the stacks: each is walked for itself, so that each has its slice. */
static bool make_mask(struct grammar *g, struct masks *m, const struct position *p)
{
    memset(m->bits, 0, m->x->words * sizeof *m->bits);
    for (uint32_t i = 0; i < p->n; i++)
        if (!walk_stack(g, m, p, &p->tops[i])) return false;
    if (p->need) return true;
    if (!try_named(g, m, p)) return false;
    const enum lang_answer complete = machine_complete(g, p->tops, p->n);
    for (uint32_t i = 0; complete == LANG_YES && i < m->x->n_ends; i++) set_bit(m->bits, m->x->ends[i]);
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

static uint64_t hash_bits(const struct masks *m)
{
    uint64_t h[4] = { 1, 2, 3, 4 };
    for (uint32_t w = 0; w < m->x->words; w++) {
        h[w & 3] = (h[w & 3] ^ m->bits[w]) * UINT64_C(0x9E3779B97F4A7C15);
        h[w & 3] ^= h[w & 3] >> 29;
    }
    return (h[0] ^ h[1] * 3) + (h[2] ^ h[3] * 5);
}

static uint32_t count_bits(const struct masks *m)
{
    uint32_t n = 0;
    for (uint32_t w = 0; w < m->x->words; w++) n += (uint32_t)__builtin_popcountll(m->bits[w]);
    return n;
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
    const size_t size = m->x->words * sizeof *m->bits;
    const uint64_t hash = hash_bits(m);
    for (uint32_t i = 0; i < MAX_MASKS; i++)
        if (m->kept[i].serial && m->kept[i].hash == hash && !memcmp(m->kept[i].bits, m->bits, size)) return i;
    const uint32_t slot = free_slot(m);
    struct kept_mask *k = &m->kept[slot];
    if (!k->bits) k->bits = malloc(size);
    if (!k->bits) return MAX_MASKS;
    memcpy(k->bits, m->bits, size);
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
