/* blocklist.c: the automaton of blocklist.h: built once, then read by any number of scans. Folding is fold.c's.
 *
 * Nodes are numbered level by level, so that the children of a node have consecutive numbers: it needs no more than the
 * first of them, and each node the symbol that leads to it. The phrases are sorted first; a node is then a range of
 * them, and its children are the parts of this range by the next symbol. */
#include "blocklist.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "fold.h"
#include "base/utf8.h"

enum { SYMBOLS = 256, RING_LEAST = 64 };

struct blocklist {
    _Atomic uint32_t users;
    uint32_t n_nodes, depth; /* nodes with the root, 0; the longest phrase in symbols */
    unsigned char *symbol;   /* [n_nodes] that leads to the node */
    uint32_t *child;         /* [n_nodes + 1] first child of each; those of node i end at child[i + 1] */
    uint32_t *fail;          /* [n_nodes] the longest other suffix that a phrase begins with */
    uint32_t *found;         /* [n_nodes] phrase that ends here, BLOCKLIST_NONE */
    uint32_t *level;         /* [depth + 1] first node of each level */
    uint32_t root[SYMBOLS];  /* child of the root for a symbol; 0: none */
};

/* ---- building --------------------------------------------------------------------------------------------------- */

/* The symbols of one phrase. */
struct folded {
    const unsigned char *symbols;
    size_t len;
    uint32_t phrase;
};

/* Symbols of all phrases, one after the other. */
struct text {
    unsigned char *bytes;
    size_t len, cap;
    bool full;
};

static void keep_symbol(void *user, unsigned char symbol, uint64_t origin)
{
    struct text *t = user;
    (void)origin;
    if (t->len == t->cap && t->cap < BLOCKLIST_SYMBOLS) {
        size_t cap = t->cap ? 2 * t->cap : 4096;
        if (cap > BLOCKLIST_SYMBOLS) cap = BLOCKLIST_SYMBOLS;
        unsigned char *more = realloc(t->bytes, cap);
        if (more) {
            t->bytes = more;
            t->cap = cap;
        }
    }
    if (t->len == t->cap)
        t->full = true;
    else
        t->bytes[t->len++] = symbol;
}

/* Cuts off what is no part of the phrase itself: space at its ends, and the borders of words that it may lie within. */
static size_t trim(unsigned char *s, size_t len, bool anywhere)
{
    size_t begin = 0;
    while (begin < len && s[begin] == ' ') begin++;
    while (len > begin && s[len - 1] == ' ') len--;
    if (anywhere && begin < len && s[begin] == FOLD_BORDER) begin++;
    if (anywhere && len > begin && s[len - 1] == FOLD_BORDER) len--;
    if (begin) memmove(s, s + begin, len - begin); /* s may be NULL where the phrase is nothing */
    return len - begin;
}

static wk_status fold_phrase(const struct blocklist_phrase *p, size_t number, struct text *t, const struct wk_err *err)
{
    struct fold f;
    const size_t begin = t->len;
    if (!p->len || p->len > BLOCKLIST_PHRASE_BYTES)
        return wk_fail(err, WK_INVALID, "phrase %zu: expected 1 to %d bytes, got %zu", number, BLOCKLIST_PHRASE_BYTES,
                       p->len);
    if (!utf8_is_valid(p->bytes, p->len)) return wk_fail(err, WK_INVALID, "phrase %zu: expected UTF-8", number);
    fold_begin(&f, keep_symbol, t);
    fold_feed(&f, p->bytes, p->len);
    fold_end(&f);
    if (t->full && t->cap < BLOCKLIST_SYMBOLS)
        return wk_fail(err, WK_NO_MEMORY, "no memory for the phrases of a blocklist");
    if (t->full)
        return wk_fail(err, WK_INVALID,
                       "phrase %zu: the phrases have more than %u bytes when folded: make fewer of them", number,
                       BLOCKLIST_SYMBOLS);
    if (t->len > begin) t->len = begin + trim(t->bytes + begin, t->len - begin, p->anywhere);
    if (t->len == begin)
        return wk_fail(err, WK_INVALID,
                       "phrase %zu: it holds nothing that could be found, only space or what shows "
                       "nothing",
                       number);
    return WK_OK;
}

static int compare(const void *a, const void *b)
{
    const struct folded *x = a, *y = b;
    const int order = memcmp(x->symbols, y->symbols, x->len < y->len ? x->len : y->len);
    if (order) return order;
    if (x->len != y->len) return x->len < y->len ? -1 : 1;
    return x->phrase < y->phrase ? -1 : 1;
}

/* The phrases lo..hi-1 of the sorted ones pass a node. */
struct range {
    uint32_t lo, hi;
};

/* Makes the children of node i, whose phrases agree in `depth` symbols, behind the nodes that there are. */
static void branch(struct blocklist *b, const struct folded *sorted, struct range *ranges, uint32_t i, size_t depth)
{
    uint32_t at = ranges[i].lo;
    b->child[i] = b->n_nodes;
    if (sorted[at].len == depth) b->found[i] = sorted[at].phrase; /* of equal ones the first */
    while (at < ranges[i].hi && sorted[at].len == depth) at++;
    while (at < ranges[i].hi) {
        const uint32_t node = b->n_nodes++;
        b->symbol[node] = sorted[at].symbols[depth];
        b->found[node] = BLOCKLIST_NONE;
        ranges[node].lo = at;
        while (at < ranges[i].hi && sorted[at].symbols[depth] == b->symbol[node]) at++;
        ranges[node].hi = at;
    }
}

static uint32_t child_of(const struct blocklist *b, uint32_t node, unsigned char symbol)
{
    if (!node) return b->root[symbol];
    uint32_t lo = b->child[node], hi = b->child[node + 1];
    while (lo < hi) {
        const uint32_t middle = lo + (hi - lo) / 2;
        if (b->symbol[middle] == symbol) return middle;
        if (b->symbol[middle] < symbol)
            lo = middle + 1;
        else
            hi = middle;
    }
    return 0;
}

/* Level by level, so a node's link leads to one whose own is known. A node also finds what its link finds, unless a
 * phrase of its own ends there. */
static void link_nodes(struct blocklist *b)
{
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        for (uint32_t c = b->child[i]; c < b->child[i + 1]; c++) {
            uint32_t from = i, to = 0;
            while (from && !to) {
                from = b->fail[from];
                to = child_of(b, from, b->symbol[c]);
            }
            b->fail[c] = to;
            if (b->found[c] == BLOCKLIST_NONE) b->found[c] = b->found[to];
        }
    }
}

static void build_nodes(struct blocklist *b, const struct folded *sorted, uint32_t n, struct range *ranges)
{
    b->n_nodes = 1;
    b->found[0] = BLOCKLIST_NONE;
    ranges[0] = (struct range){ 0, n };
    uint32_t level_end = 1;
    for (uint32_t i = 0; n && i < b->n_nodes; i++) {
        if (i == level_end) {
            b->level[++b->depth] = i;
            level_end = b->n_nodes;
        }
        branch(b, sorted, ranges, i, b->depth);
    }
    if (!n) b->child[0] = 1;
    b->child[b->n_nodes] = b->n_nodes;
    for (uint32_t c = b->child[0]; c < b->child[1]; c++) b->root[b->symbol[c]] = c;
    link_nodes(b);
}

static wk_status make_nodes(const struct folded *sorted, uint32_t n, size_t symbols, size_t longest,
                            struct blocklist **out, const struct wk_err *err)
{
    struct blocklist *b = calloc(1, sizeof *b);
    struct range *ranges = malloc((symbols + 1) * sizeof *ranges);
    if (b) {
        b->users = 1;
        b->symbol = calloc(symbols + 1, 1);
        b->child = calloc(symbols + 2, sizeof *b->child);
        b->fail = calloc(symbols + 1, sizeof *b->fail);
        b->found = calloc(symbols + 1, sizeof *b->found);
        b->level = calloc(longest + 1, sizeof *b->level);
    }
    if (!b || !ranges || !b->symbol || !b->child || !b->fail || !b->found || !b->level) {
        free(ranges);
        blocklist_free(b);
        return wk_fail(err, WK_NO_MEMORY, "no memory for a blocklist of %zu symbols", symbols);
    }
    build_nodes(b, sorted, n, ranges);
    free(ranges);
    *out = b;
    return WK_OK;
}

wk_status blocklist_build(const struct blocklist_phrase *phrases, size_t n, struct blocklist **out,
                          const struct wk_err *err)
{
    struct text t = { 0 };
    size_t longest = 0;
    wk_status status = WK_OK;
    *out = NULL;
    if (n > BLOCKLIST_PHRASES)
        return wk_fail(err, WK_INVALID, "expected at most %d phrases in a blocklist, got %zu", BLOCKLIST_PHRASES, n);
    struct folded *sorted = calloc(n + 1, sizeof *sorted);
    if (!sorted) return wk_fail(err, WK_NO_MEMORY, "no memory for a blocklist of %zu phrases", n);
    for (size_t i = 0; i < n && !status; i++) {
        const size_t begin = t.len;
        status = fold_phrase(&phrases[i], i + 1, &t, err);
        sorted[i] = (struct folded){ .len = t.len - begin, .phrase = (uint32_t)i };
        if (sorted[i].len > longest) longest = sorted[i].len;
    }
    for (size_t i = 0, at = 0; i < n && !status; at += sorted[i++].len) sorted[i].symbols = t.bytes + at;
    if (!status) {
        qsort(sorted, n, sizeof *sorted, compare);
        status = make_nodes(sorted, (uint32_t)n, t.len, longest, out, err);
    }
    free(t.bytes);
    free(sorted);
    return status;
}

struct blocklist *blocklist_share(struct blocklist *b)
{
    b->users++;
    return b;
}

void blocklist_free(struct blocklist *b)
{
    if (!b || --b->users) return;
    free(b->symbol);
    free(b->child);
    free(b->fail);
    free(b->found);
    free(b->level);
    free(b);
}

/* ---- scanning --------------------------------------------------------------------------------------------------- */

struct blocklist_scan {
    struct blocklist *list;
    struct fold fold;
    struct blocklist_seen seen;
    uint64_t steps, symbols;
    uint32_t node, depth, mask; /* depth: symbols of node */
    uint64_t origin[];          /* [mask + 1] where in the text the last symbols begin */
};

/* Where the longest end of the text begins that is the beginning of a phrase; without one, where the symbols end. */
static uint64_t begin_of_node(const struct blocklist_scan *s, uint64_t otherwise)
{
    return s->depth ? s->origin[(s->symbols - s->depth) & s->mask] : otherwise;
}

/* A link leads to a node of a higher level, and the levels' first nodes say which. All moves up together are no more
 * than the moves down. */
static void step(void *user, unsigned char symbol, uint64_t origin)
{
    struct blocklist_scan *s = user;
    const struct blocklist *b = s->list;
    uint32_t next;
    if (s->seen.phrase != BLOCKLIST_NONE) return;
    s->origin[s->symbols++ & s->mask] = origin;
    for (;;) {
        s->steps++;
        next = child_of(b, s->node, symbol);
        if (next || !s->node) break;
        s->node = b->fail[s->node];
    }
    while (s->node < b->level[s->depth]) s->depth--;
    s->node = next;
    s->depth = next ? s->depth + 1 : 0;
    if (b->found[next] == BLOCKLIST_NONE) return;
    s->seen.phrase = b->found[next];
    s->seen.safe = begin_of_node(s, origin);
}

wk_status blocklist_scan_begin(struct blocklist *b, struct blocklist_scan **out, const struct wk_err *err)
{
    uint32_t ring = RING_LEAST;
    while (ring <= b->depth) ring *= 2;
    struct blocklist_scan *s = calloc(1, sizeof *s + ring * sizeof *s->origin);
    *out = s;
    if (!s) return wk_fail(err, WK_NO_MEMORY, "no memory to look for phrases of the blocklist");
    s->list = blocklist_share(b);
    s->mask = ring - 1;
    s->seen.phrase = BLOCKLIST_NONE;
    fold_begin(&s->fold, step, s);
    return WK_OK;
}

static struct blocklist_seen seen(struct blocklist_scan *s)
{
    if (s->seen.phrase == BLOCKLIST_NONE) s->seen.safe = begin_of_node(s, fold_done(&s->fold));
    return s->seen;
}

struct blocklist_seen blocklist_scan_feed(struct blocklist_scan *s, const void *bytes, size_t n)
{
    if (s->seen.phrase == BLOCKLIST_NONE) fold_feed(&s->fold, bytes, n);
    return seen(s);
}

struct blocklist_seen blocklist_scan_end(struct blocklist_scan *s)
{
    if (s->seen.phrase == BLOCKLIST_NONE) fold_end(&s->fold);
    if (s->seen.phrase == BLOCKLIST_NONE) s->seen.safe = s->fold.at;
    return s->seen;
}

uint64_t blocklist_scan_steps(const struct blocklist_scan *s) { return s->steps; }

void blocklist_scan_free(struct blocklist_scan *s)
{
    if (!s) return;
    blocklist_free(s->list);
    free(s);
}

wk_status blocklist_find(struct blocklist *b, const void *bytes, size_t n, uint32_t *phrase, const struct wk_err *err)
{
    struct blocklist_scan *s;
    *phrase = BLOCKLIST_NONE;
    const wk_status status = blocklist_scan_begin(b, &s, err);
    if (status) return status;
    *phrase = blocklist_scan_feed(s, bytes, n).phrase;
    if (*phrase == BLOCKLIST_NONE) *phrase = blocklist_scan_end(s).phrase;
    blocklist_scan_free(s);
    return WK_OK;
}
