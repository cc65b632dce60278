/* walk.c: which tokens of a tree can follow a stack. The tree is walked down with the machine; what the machine says is
 * kept as a table, so that each byte is asked about once at each place and tokens that lead to the same place share
 * what follows. A place is a set of stacks with a partial character; it is known for as long as one mask is made, since
 * what its stacks do depends on the frames below. */
#include "grammar/masks.h"

#include <stdlib.h>
#include <string.h>

enum {
    MAX_PLACES = 4096, /* then all but those on the way from the root are forgotten */
    FEW_PLACES = 512,  /* room for so many is kept from mask to mask */
    PLACE_BUCKETS = 1024,
    MOST_NEW = 4,      /* that one byte makes */
    PLACE_UNKNOWN = 0, /* of what follows a place: not asked yet */
    PLACE_NONE = 1,    /* nothing: the byte cannot follow */
    FIRST_PLACE = 2,
    ASK_AHEAD = 4 /* so many questions to the machine cost more than to ask what can follow at all */
};

enum place_kind {
    GENERAL,
    INSIDE, /* one stack, in a string's content or a text: its automaton says what follows */
    PARTIAL /* behind a part of a character, which will lead to the stack whatever it is */
};

struct place {
    struct reading at; /* its stacks are in `tops` */
    uint32_t chain;
    uint8_t kind, asked;
    uint8_t low, high; /* PARTIAL: the next byte; then any continuation */
    uint16_t other;    /* of JSON's white space, the place before it; of a text that may end, the one behind it; or 0 */
};

bool walker_open(struct walker *w, const struct grammar_index *x)
{
    w->x = x;
    w->path = malloc((x->longest + 1) * sizeof *w->path);
    w->bits = malloc(x->words * sizeof *w->bits);
    return w->path && w->bits;
}

static void forget_places(struct walker *w)
{
    free(w->places);
    free(w->buckets);
    free(w->rows);
    free(w->tops.list);
    w->places = NULL;
    w->buckets = NULL;
    w->rows = NULL;
    w->tops = (struct tops){ .list = NULL };
    w->n_places = w->cap_places = w->kept_tops = 0;
}

void walker_close(struct walker *w)
{
    forget_places(w);
    free(w->path);
    free(w->bits);
}

uint64_t walker_bytes(const struct walker *w)
{
    return (uint64_t)w->cap_places * (sizeof *w->places + 256 * sizeof *w->rows) +
           (w->buckets ? PLACE_BUCKETS * sizeof *w->buckets : 0) + (uint64_t)w->tops.cap * sizeof *w->tops.list +
           (w->x->longest + 1ull) * sizeof *w->path + w->x->words * sizeof *w->bits;
}

/* ---- places -------------------------------------------------------------------------------------------------------
 */

static bool no_memory(struct grammar *g)
{
    (void)grammar_fail(g, WK_NO_MEMORY, "no memory for a grammar's stacks");
    return false;
}

static uint32_t hash_place(const struct walker *w, const struct place *p)
{
    uint64_t h = p->kind | (uint32_t)p->low << 8 | (uint32_t)p->high << 16 | (uint64_t)p->at.need << 24 |
                 (uint64_t)p->at.length << 28 | (uint64_t)p->at.value << 32;
    for (uint32_t i = 0; i < p->at.n; i++) {
        const struct top *t = &w->tops.list[p->at.first + i];
        h = (h ^ t->node ^ (uint64_t)t->parent << 32) * UINT64_C(0x9E3779B97F4A7C15);
        h = (h ^ h >> 31 ^ t->state ^ (uint64_t)t->escape << 32) * UINT64_C(0xBF58476D1CE4E5B9);
        h = (h ^ h >> 29 ^ t->at) * UINT64_C(0x94D049BB133111EB);
    }
    return (uint32_t)(h ^ h >> 32);
}

static bool same_place(const struct walker *w, const struct place *a, const struct place *b)
{
    if (a->kind != b->kind || a->low != b->low || a->high != b->high || a->at.need != b->at.need ||
        a->at.length != b->at.length || a->at.value != b->at.value || a->at.n != b->at.n)
        return false;
    for (uint32_t i = 0; i < a->at.n; i++)
        if (!machine_same(&w->tops.list[a->at.first + i], &w->tops.list[b->at.first + i])) return false;
    return true;
}

static bool grow_places(struct grammar *g, struct walker *w)
{
    const uint32_t cap = w->cap_places ? 2 * w->cap_places : 128;
    if (!w->buckets) w->buckets = calloc(PLACE_BUCKETS, sizeof *w->buckets);
    struct place *places = realloc(w->places, cap * sizeof *places);
    if (places) w->places = places;
    uint16_t *rows = places ? realloc(w->rows, cap * 256 * sizeof *rows) : NULL;
    if (rows) w->rows = rows;
    if (!rows || !w->buckets) return no_memory(g);
    memset(rows + (size_t)w->cap_places * 256, 0, (size_t)(cap - w->cap_places) * 256 * sizeof *rows);
    w->cap_places = cap;
    return true;
}

/* The number of a place, found or new. Its stacks are those of another place or lie behind all that are kept. */
static uint32_t place_for(struct grammar *g, struct walker *w, const struct place *p)
{
    if (w->n_places >= w->cap_places && !grow_places(g, w)) return PLACE_UNKNOWN;
    uint32_t *bucket = &w->buckets[hash_place(w, p) % PLACE_BUCKETS];
    for (uint32_t i = *bucket; i; i = w->places[i].chain)
        if (same_place(w, &w->places[i], p)) return i;
    const uint32_t id = w->n_places++;
    w->places[id] = *p;
    w->places[id].asked = 0;
    w->places[id].other = PLACE_UNKNOWN;
    w->places[id].chain = *bucket;
    *bucket = id;
    if (p->at.first >= w->kept_tops) w->kept_tops = p->at.first + p->at.n;
    return id;
}

static bool add_top(struct grammar *g, struct walker *w, const struct top *t)
{
    struct tops *list = &w->tops;
    if (list->n == list->cap) {
        const uint32_t cap = list->cap ? 2 * list->cap : 128;
        struct top *moved = realloc(list->list, cap * sizeof *moved);
        if (!moved) return no_memory(g);
        list->list = moved;
        list->cap = cap;
    }
    list->list[list->n++] = *t;
    return true;
}

/* Is all that is read first at this top told by its automaton or its counter? */
static bool is_inside(const struct grammar *g, const struct top *t)
{
    const struct node *n = &g->nodes[t->node];
    if (n->kind == OF_TEXT) return true;
    return n->kind == OF_STRING && !(n->flags & NODE_UNIQUE) && string_phase_of(t) == STRING_BODY;
}

static uint8_t kind_of(const struct grammar *g, const struct walker *w, const struct reading *r)
{
    return r->n == 1 && !r->need && is_inside(g, &w->tops.list[r->first]) ? INSIDE : GENERAL;
}

/* Rows that are not in use are zero. */
static void no_places(struct walker *w)
{
    if (w->rows) memset(w->rows, 0, (size_t)w->n_places * 256 * sizeof *w->rows);
    if (w->buckets) memset(w->buckets, 0, PLACE_BUCKETS * sizeof *w->buckets);
    w->n_places = FIRST_PLACE;
    w->kept_tops = w->tops.n = 0;
}

/* Forgets all places but those behind the first `depth` bytes. */
static bool start_over(struct grammar *g, struct walker *w, uint32_t depth)
{
    struct walker old = *w;
    bool held = true;
    w->places = NULL;
    w->buckets = NULL;
    w->rows = NULL;
    w->tops = (struct tops){ .list = NULL };
    w->cap_places = 0;
    no_places(w);
    for (uint32_t d = 0; held && d <= depth; d++) {
        struct place p = old.places[old.path[d]];
        const uint32_t first = w->tops.n = w->kept_tops;
        for (uint32_t i = 0; held && i < p.at.n; i++) held = add_top(g, w, &old.tops.list[p.at.first + i]);
        p.at.first = first;
        const uint32_t id = held ? place_for(g, w, &p) : PLACE_UNKNOWN;
        held = id != PLACE_UNKNOWN;
        w->path[d] = (uint16_t)id;
    }
    old.path = NULL;
    forget_places(&old);
    return held;
}

/* ---- what follows a place -----------------------------------------------------------------------------------------
 */

/* The stack of `from` with the state that a whole character leads to. */
static bool put_inside(struct grammar *g, struct walker *w, const struct top *t, struct place *to)
{
    const struct top copy = *t; /* the list may move */
    *to = (struct place){ .at = { .first = w->tops.n, .n = 1 }, .kind = INSIDE };
    return add_top(g, w, &copy);
}

enum lang_answer walker_inside(struct grammar *g, const struct walker *w, struct top *t, uint32_t c)
{
    const struct node *n = &g->nodes[t->node];
    const bool string = n->kind == OF_STRING;
    if (string ? c == '"' || c == '\\' : lang_accepts(g->langs, t->state)) return LANG_UNKNOWN;
    if (string && c < 0x20) return LANG_NO;
    if (string && n->a == LANG_EVERYTHING) {
        /* A counter from which no token comes to a bound says the same all along it. */
        const uint64_t need = t->at < n->b ? n->b - t->at : 0, room = n->c - t->at;
        if (!room) return LANG_NO;
        if ((need && need <= w->x->longest) || (n->c != LANG_UNBOUNDED && room < w->x->longest)) t->at++;
        return LANG_YES;
    }
    const lang_id next = c < 0x80 ? lang_next_ascii(g->langs, t->state, c) : lang_next_above(g->langs, t->state);
    if (next == LANG_NOTHING) return LANG_NO;
    if (next == LANG_NONE || (next == LANG_EMPTY && !string)) return LANG_UNKNOWN;
    t->state = next;
    return LANG_YES;
}

/* The first byte of a character above ASCII, all of which lead to the same. */
static bool begin_partial(uint8_t byte, struct place *to)
{
    if (byte < 0xC2 || byte > 0xF4) return false;
    to->kind = PARTIAL;
    to->at.need = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
    to->low = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;  /* no character is longer than it must be, */
    to->high = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF; /* a surrogate, or above the last one */
    return true;
}

static enum lang_answer inside_byte(struct grammar *g, struct walker *w, const struct place *from, uint8_t byte,
                                    struct place *to)
{
    struct top t = w->tops.list[from->at.first];
    const enum lang_answer fits = walker_inside(g, w, &t, byte < 0x80 ? byte : 0x80);
    if (fits != LANG_YES) return fits;
    if (!put_inside(g, w, &t, to)) return LANG_UNKNOWN;
    return byte < 0x80 || begin_partial(byte, to) ? LANG_YES : LANG_NO;
}

static enum lang_answer partial_byte(const struct place *from, uint8_t byte, struct place *to)
{
    *to = *from;
    if (byte < from->low || byte > from->high) return LANG_NO;
    to->at.need--;
    to->low = to->at.need ? 0x80 : 0;
    to->high = to->at.need ? 0xBF : 0;
    to->kind = to->at.need ? PARTIAL : INSIDE;
    return LANG_YES;
}

/* Notes which bytes cannot follow at all. */
static bool rule_out(struct grammar *g, struct walker *w, uint32_t id)
{
    const struct place *p = &w->places[id];
    uint16_t *row = w->rows + (size_t)id * 256;
    struct ahead ahead;
    if (!machine_ahead(g, w->tops.list + p->at.first, p->at.n, &ahead)) return false;
    for (uint32_t b = 0; b < 256; b++)
        if (b < 0x80 ? !(ahead.ascii[b / 64] >> b % 64 & 1) : !ahead.above) row[b] = PLACE_NONE;
    return true;
}

/* What follows a place; PLACE_UNKNOWN: a failure. There is room for one more place. */
static uint32_t next_of(struct grammar *g, struct walker *w, uint32_t id, uint8_t byte)
{
    struct place *from = &w->places[id], to;
    enum lang_answer fits = LANG_UNKNOWN;
    w->tops.n = w->kept_tops;
    if (from->kind == PARTIAL) fits = partial_byte(from, byte, &to);
    if (from->kind == INSIDE) fits = inside_byte(g, w, from, byte, &to);
    if (fits == LANG_UNKNOWN && !g->status) {
        if (!from->at.need && ++from->asked == ASK_AHEAD) {
            if (!rule_out(g, w, id)) return PLACE_UNKNOWN;
            if (w->rows[(size_t)id * 256 + byte] == PLACE_NONE) return PLACE_NONE;
        }
        to = (struct place){ .kind = GENERAL };
        from->at.end = w->kept_tops;
        fits = machine_byte(g, &w->tops, &from->at, byte, &to.at);
        if (fits == LANG_YES) to.kind = kind_of(g, w, &to.at);
    }
    if (fits == LANG_UNKNOWN) return PLACE_UNKNOWN;
    const uint32_t next = fits == LANG_YES ? place_for(g, w, &to) : PLACE_NONE;
    w->rows[(size_t)id * 256 + byte] = (uint16_t)next;
    return next;
}

/* The place of one stack that stands at t. */
static uint32_t place_at(struct grammar *g, struct walker *w, const struct top *t)
{
    struct place p = { .at = { .first = w->kept_tops, .n = 1 } };
    w->tops.n = w->kept_tops;
    if (!add_top(g, w, t)) return PLACE_UNKNOWN;
    p.kind = kind_of(g, w, &p.at);
    return place_for(g, w, &p);
}

/* What follows the other place of `id`, where the stack stands at t. */
static uint32_t next_of_other(struct grammar *g, struct walker *w, uint32_t id, const struct top *t, uint8_t byte)
{
    uint32_t other = w->places[id].other;
    if (!other) other = place_at(g, w, t);
    if (!other) return PLACE_UNKNOWN;
    w->places[id].other = (uint16_t)other;
    const uint32_t known = w->rows[(size_t)other * 256 + byte];
    return known ? known : next_of(g, w, other, byte);
}
/* Is t in white space between two tokens of JSON? */
static bool in_space(const struct grammar *g, const struct top *t)
{
    const uint8_t kind = g->nodes[t->node].kind;
    return (kind == OF_OBJECT || kind == OF_ARRAY) && t->state;
}

/* One more byte behind white space, which decides about nothing but more of it: other bytes are told by the place
 * before it. So are its own, where they can only be white space. */
static uint32_t next_in_space(struct grammar *g, struct walker *w, uint32_t id, uint8_t byte)
{
    struct top t = w->tops.list[w->places[id].at.first], first = t;
    first.state = 0;
    const uint32_t next = next_of_other(g, w, id, &first, byte);
    if (next == PLACE_UNKNOWN || byte > ' ') return next;
    if (next != PLACE_NONE) {
        const struct place *p = &w->places[next];
        const struct top *to = &w->tops.list[p->at.first];
        if (p->at.n != 1 || to->node != t.node || to->parent != t.parent || to->at != t.at)
            return next_of(g, w, id, byte);
    }
    t.state = space_next(g, t.state, byte);
    return t.state ? place_at(g, w, &t) : PLACE_NONE;
}

/* One more byte behind a text that may end there: it goes on, or what comes behind it does. */
static uint32_t next_in_text(struct grammar *g, struct walker *w, uint32_t id, uint8_t byte)
{
    struct top t = w->tops.list[w->places[id].at.first];
    const struct top behind = machine_resume(g, t.parent);
    const uint32_t next = next_of_other(g, w, id, &behind, byte);
    if (next == PLACE_UNKNOWN) return next;
    t.state = lang_next_ascii(g->langs, t.state, byte);
    if (t.state == LANG_NOTHING) return next;
    if (next != PLACE_NONE || t.state == LANG_NONE || t.state == LANG_EMPTY) return next_of(g, w, id, byte);
    return place_at(g, w, &t);
}

/* What follows the place behind `depth` bytes; PLACE_UNKNOWN: a failure. */
static uint32_t next_place(struct grammar *g, struct walker *w, uint32_t depth, uint8_t byte)
{
    if (w->n_places + MOST_NEW > MAX_PLACES && !start_over(g, w, depth)) return PLACE_UNKNOWN;
    const uint32_t id = w->path[depth];
    const struct place *p = &w->places[id];
    const struct top *t = &w->tops.list[p->at.first];
    uint32_t next;
    if (p->at.n != 1 || p->at.need || byte >= 0x80)
        next = next_of(g, w, id, byte);
    else if (in_space(g, t))
        next = next_in_space(g, w, id, byte);
    else if (g->nodes[t->node].kind == OF_TEXT && lang_accepts(g->langs, t->state))
        next = next_in_text(g, w, id, byte);
    else
        next = next_of(g, w, id, byte);
    w->rows[(size_t)id * 256 + byte] = (uint16_t)next;
    return next;
}

static inline uint32_t follow(struct grammar *g, struct walker *w, uint32_t depth, uint8_t byte)
{
    const uint32_t next = w->rows[(size_t)w->path[depth] * 256 + byte];
    return next ? next : next_place(g, w, depth, byte);
}

/* ---- walking ------------------------------------------------------------------------------------------------------
 */

void walker_clear(struct walker *w)
{
    memset(w->bits, 0, w->x->words * sizeof *w->bits);
    no_places(w);
}

void walker_end(struct walker *w)
{
    if (w->cap_places > FEW_PLACES) forget_places(w);
}

bool walker_begin(struct grammar *g, struct walker *w, const struct position *p, const struct top *t)
{
    w->tops.n = w->kept_tops;
    struct place start = { .at = { .first = w->tops.n, .n = 1 } };
    if (p) {
        start.at.value = p->value;
        start.at.need = p->need;
        start.at.length = p->length;
    }
    if (!add_top(g, w, t)) return false;
    start.kind = kind_of(g, w, &start.at);
    w->path[0] = (uint16_t)place_for(g, w, &start);
    return w->path[0] != PLACE_UNKNOWN;
}

void walker_allow(struct walker *w, uint32_t id)
{
    for (uint32_t next = id + 1; next; next = w->x->same[next - 1])
        w->bits[(next - 1) / 64] |= UINT64_C(1) << (next - 1) % 64;
}

static void allow_group(struct walker *w, const struct tails *tails, uint32_t group)
{
    for (uint32_t i = tails->at[group]; i < tails->at[group + 1]; i++)
        w->bits[tails->ids[i] / 64] |= UINT64_C(1) << tails->ids[i] % 64;
}

/* Nodes first..end - 1 of a tree. groups: of its ends; NULL: its tokens are ids. */
static bool walk_nodes(struct grammar *g, struct walker *w, const struct trie_node *nodes, uint32_t first, uint32_t end,
                       const struct tails *groups)
{
    for (uint32_t i = first; i < end;) {
        const struct trie_node n = nodes[i];
        const uint32_t next = follow(g, w, n.depth - 1u, n.byte);
        if (next == PLACE_UNKNOWN) return false;
        if (next == PLACE_NONE) {
            i = n.skip;
            continue;
        }
        w->path[n.depth] = (uint16_t)next;
        i++;
        if (!n.token) continue;
        if (groups)
            allow_group(w, groups, n.token - 1);
        else if (n.shared)
            walker_allow(w, n.token - 1);
        else
            w->bits[(n.token - 1) / 64] |= UINT64_C(1) << (n.token - 1) % 64;
    }
    return true;
}

bool walker_tree(struct grammar *g, struct walker *w, const struct trie *tree)
{
    return walk_nodes(g, w, tree->nodes, 0, tree->n, NULL);
}

bool walker_tails(struct grammar *g, struct walker *w, const struct tails *tails)
{
    return walk_nodes(g, w, tails->tree.nodes, 0, tails->tree.n, tails);
}

bool walker_branch(struct grammar *g, struct walker *w, uint8_t byte)
{
    return walk_nodes(g, w, w->x->all.nodes, w->x->branches[byte], w->x->branches[byte + 1], NULL);
}

enum lead walker_lead(struct grammar *g, struct walker *w, uint8_t byte, struct top *t)
{
    const uint32_t next = follow(g, w, 0, byte);
    if (next <= PLACE_NONE) return next ? LEAD_NONE : LEAD_FAILED;
    const struct place *p = &w->places[next];
    if (p->kind != INSIDE) return LEAD_PLACE;
    *t = w->tops.list[p->at.first];
    return LEAD_INSIDE;
}

bool walker_token(struct grammar *g, struct walker *w, uint32_t id)
{
    const struct token_bytes b = w->x->bytes[id];
    for (uint32_t i = 0; i < b.len; i++) {
        const uint32_t next = follow(g, w, i, (uint8_t)b.data[i]);
        if (next <= PLACE_NONE) return next == PLACE_NONE;
        w->path[i + 1] = (uint16_t)next;
    }
    walker_allow(w, id);
    return true;
}
