/* branch.c: alternatives that begin alike as a tree in which what several begin with stands once. A reader then has one
 * stack for all that are still possible, where a plain choice (node_any_of) has one for each: a thousand functions
 * whose calls differ in the name alone are no more work than one. */
#include <stdlib.h>
#include <string.h>

#include "grammar/grammar_internal.h"
#include "base/utf8.h"

enum {
    MOST_ATOMS = 1024, /* of an alternative that are looked at; the rest stays as it is */
    DEPTH = 8,         /* of sequences in sequences that are looked into */
    PENDING = 32,      /* nodes that an alternative begins with */
    BRANCHES = 192,    /* of the tree above each other; what is further on is a plain choice */
    SHORT = 64         /* bytes of a text that is looked for among the last ones */
};

/* A character, or a node that stands as it is: equal keys read the same. */
struct atom {
    uint64_t key;
    node_id node; /* NODE_NONE: the character in key */
};
enum { CHARACTER = 0, LANGUAGE, TOKEN, OTHER };
static uint64_t key_of(unsigned kind, uint32_t value) { return (uint64_t)kind << 32 | value; }

struct line {
    const struct atom *atoms;
    size_t first, n;
};

struct branching {
    struct grammar *g;
    struct atom *atoms;
    size_t n_atoms, cap_atoms;
    struct line *lines;
    size_t n_lines, cap_lines;
    struct {
        char text[SHORT];
        size_t n;
        node_id node;
    } last[4]; /* texts that alternatives end with: mostly the same ones */
    unsigned next;
    bool no_memory;
};

/* ---- alternatives as lists of atoms -------------------------------------------------------------------- */

static bool grow(void **items, size_t *cap, size_t n, size_t size)
{
    if (n < *cap) return true;
    const size_t larger = 2 * *cap + 64;
    void *moved = realloc(*items, larger * size);
    if (!moved) return false;
    *items = moved;
    *cap = larger;
    return true;
}

static void push(struct branching *x, uint64_t key, node_id node)
{
    if (x->no_memory || !grow((void **)&x->atoms, &x->cap_atoms, x->n_atoms, sizeof *x->atoms)) {
        x->no_memory = true;
        return;
    }
    x->atoms[x->n_atoms++] = (struct atom){ key, node };
    x->lines[x->n_lines - 1].n++;
}

static void push_text(struct branching *x, const struct node *n)
{
    const unsigned char *text = (const unsigned char *)x->g->text + n->a;
    for (size_t at = 0, len; at < n->b; at += len) {
        len = utf8_sequence(text + at, n->b - at); /* not 0: node_literal has looked */
        push(x, key_of(CHARACTER, utf8_decode(text + at, len)), NODE_NONE);
    }
}

static void flatten(struct branching *x, node_id id, int depth)
{
    const struct node n = x->g->nodes[id];
    const size_t left = MOST_ATOMS - x->lines[x->n_lines - 1].n;
    if (id == NODE_EMPTY) return;
    if (n.kind == OF_LITERAL && n.b < left)
        push_text(x, &n);
    else if (n.kind == OF_SEQUENCE && depth < DEPTH && n.b < left)
        for (uint32_t i = 0; i < n.b; i++) flatten(x, x->g->parts.list[n.a + i], depth + 1);
    else if (n.kind == OF_TEXT)
        push(x, key_of(LANGUAGE, n.a), id);
    else if (n.kind == OF_TOKEN && n.b == 1 && !n.c)
        push(x, key_of(TOKEN, x->g->parts.list[n.a]), id);
    else
        push(x, key_of(OTHER, id), id);
}

/* The alternatives that begin with these nodes: where the first one is a choice, each of its own. */
static void add_lines(struct branching *x, const node_id *pending, size_t n, int depth)
{
    const struct node first = n ? x->g->nodes[pending[0]] : (struct node){ 0 };
    const bool several = first.kind == OF_SEQUENCE || first.kind == OF_ANY_OF;
    node_id next[PENDING];
    if (several && depth < DEPTH && n + first.b <= PENDING) {
        const size_t each = first.kind == OF_SEQUENCE ? first.b : 1;
        for (uint32_t at = 0; at < first.b; at += (uint32_t)each) {
            memcpy(next, x->g->parts.list + first.a + at, each * sizeof *next);
            memcpy(next + each, pending + 1, (n - 1) * sizeof *next);
            add_lines(x, next, each + n - 1, depth + 1);
        }
        return;
    }
    if (x->no_memory || !grow((void **)&x->lines, &x->cap_lines, x->n_lines, sizeof *x->lines)) {
        x->no_memory = true;
        return;
    }
    x->lines[x->n_lines++] = (struct line){ .first = x->n_atoms };
    for (size_t i = 0; i < n; i++) flatten(x, pending[i], 0);
}

static int compare(const void *a, const void *b)
{
    const struct line *x = a, *y = b;
    const size_t n = x->n < y->n ? x->n : y->n;
    for (size_t i = 0; i < n; i++)
        if (x->atoms[i].key != y->atoms[i].key) return x->atoms[i].key < y->atoms[i].key ? -1 : 1;
    return (x->n > y->n) - (x->n < y->n);
}

/* ---- the tree ------------------------------------------------------------------------------------------ */

static node_id text_node(struct branching *x, const char *text, size_t n)
{
    for (size_t i = 0; i < sizeof x->last / sizeof *x->last; i++)
        if (n <= SHORT && x->last[i].n == n && memcmp(x->last[i].text, text, n) == 0) return x->last[i].node;
    const node_id node = node_literal(x->g, text, n);
    if (n > SHORT || !n) return node;
    const unsigned at = x->next++ % (sizeof x->last / sizeof *x->last);
    memcpy(x->last[at].text, text, n);
    x->last[at].n = n;
    x->last[at].node = node;
    return node;
}

/* Atoms as nodes, and `then` behind them. */
static node_id write_atoms(struct branching *x, const struct atom *atoms, size_t n, node_id then)
{
    node_id *parts = malloc((n + 1) * sizeof *parts), made = NODE_NONE;
    char *text = malloc(4 * n + 1);
    size_t n_parts = 0, len = 0;
    for (size_t i = 0; parts && text && i < n; i++) {
        if (!atoms[i].node) len += utf8_encode((uint32_t)atoms[i].key, text + len);
        if (len && (atoms[i].node || i + 1 == n)) parts[n_parts++] = text_node(x, text, len), len = 0;
        if (atoms[i].node) parts[n_parts++] = atoms[i].node;
    }
    if (parts && text) {
        if (then != NODE_EMPTY) parts[n_parts++] = then;
        made = node_sequence(x->g, parts, n_parts);
    } else {
        x->no_memory = true;
    }
    free(parts);
    free(text);
    return made;
}

/* Lines from `low` to before `high`, sorted, which are equal before atom `at`. It calls itself for what differs further
 * on. */
static node_id write_lines(struct branching *x, size_t low, size_t high, size_t at, unsigned depth)
{
    const struct line *first = &x->lines[low], *last = &x->lines[high - 1];
    size_t same = at, n = 0;
    node_id then = NODE_EMPTY;
    while (same < first->n && same < last->n && first->atoms[same].key == last->atoms[same].key) same++;
    if (first->n != last->n || same < first->n) {
        node_id *parts = malloc((high - low) * sizeof *parts);
        x->no_memory = x->no_memory || !parts;
        while (parts && low < high && x->lines[low].n == same) parts[0] = NODE_EMPTY, n = 1, low++;
        for (size_t end = low; parts && low < high; low = end) {
            const uint64_t key = x->lines[low].atoms[same].key;
            do end++;
            while (depth < BRANCHES && end < high && x->lines[end].atoms[same].key == key);
            parts[n++] = write_lines(x, low, end, same, depth + 1);
        }
        then = parts ? node_any_of(x->g, parts, n) : NODE_NONE;
        free(parts);
    }
    return x->no_memory ? NODE_NONE : write_atoms(x, first->atoms + at, same - at, then);
}

node_id node_branches(struct grammar *g, const node_id *parts, size_t n)
{
    struct branching x = { .g = g };
    node_id made = NODE_NONE;
    for (size_t i = 0; i < n; i++)
        if (!parts[i]) return NODE_NONE; /* it has failed already */
    for (size_t i = 0; i < n; i++) add_lines(&x, &parts[i], 1, 0);
    for (size_t i = 0; i < x.n_lines; i++) x.lines[i].atoms = x.atoms + x.lines[i].first;
    if (!x.no_memory && x.n_lines) {
        qsort(x.lines, x.n_lines, sizeof *x.lines, compare);
        made = write_lines(&x, 0, x.n_lines, 0, 0);
    }
    if (x.no_memory) made = grammar_fail(g, WK_NO_MEMORY, "no memory for a grammar");
    free(x.atoms);
    free(x.lines);
    return n ? made : (node_id)NODE_NOTHING;
}
