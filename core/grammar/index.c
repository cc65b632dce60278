/* index.c: a vocabulary arranged for masks: its tokens as a tree of bytes, and slices of it that can be allowed as a
 * whole where an automaton lets every character of a set pass. In a JSON string 97 of 100 tokens of a large vocabulary
 * are such; what a walk then has to look at is the few that hold a quote, a backslash or part of a character. */
#include "grammar/masks.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/utf8.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

/* From large to small: the first that is let pass is taken. All ranges but surrogates. */
static const struct lang_range everything[] = { { 0, LANG_MAX_CHAR } };
static const struct lang_range one_line[] = { { 0, 9 }, { 11, 12 }, { 14, 0x2027 }, { 0x202A, LANG_MAX_CHAR } };
static const struct lang_range in_string[] = { { ' ', '!' }, { '#', '[' }, { ']', LANG_MAX_CHAR } };
static const struct lang_range words[] = { { ' ', ' ' }, { 'A', 'Z' }, { 'a', 'z' }, { 0x80, LANG_MAX_CHAR } };
static const struct lang_range latin[] = { { ' ', ' ' }, { 'A', 'Z' }, { 'a', 'z' } };
static const struct lang_range letters[] = { { 'A', 'Z' }, { 'a', 'z' } };
static const struct lang_range small[] = { { 'a', 'z' } };
static const struct lang_range names[] = { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } };
static const struct {
    const struct lang_range *set;
    uint32_t n;
} slice_sets[MAX_SLICES] = { { everything, LENGTH(everything) }, { one_line, LENGTH(one_line) },
                             { in_string, LENGTH(in_string) },   { words, LENGTH(words) },
                             { latin, LENGTH(latin) },           { names, LENGTH(names) },
                             { letters, LENGTH(letters) },       { small, LENGTH(small) } };

struct token_bytes grammar_index_bytes(const struct grammar_index *x, uint32_t id)
{
    return id < x->n_vocab ? x->bytes[id] : (struct token_bytes){ NULL, 0 };
}

uint32_t grammar_index_longest(const struct grammar_index *x, const char *bytes, size_t n)
{
    uint32_t id = TOKEN_NONE, depth = 0;
    for (uint32_t i = 0; i < x->all.n && depth < n;) {
        const struct trie_node *node = &x->all.nodes[i];
        if (node->depth <= depth) break; /* the children of the last one are over */
        if (node->byte != (unsigned char)bytes[depth]) {
            i = node->skip;
            continue;
        }
        if (node->token) id = node->token - 1;
        depth++;
        i++;
    }
    return id;
}

bool index_ends(const struct grammar_index *x, uint32_t id)
{
    for (uint32_t i = 0; i < x->n_ends; i++)
        if (x->ends[i] == id) return true;
    return false;
}

static void close_slice(struct slice *s)
{
    for (uint32_t k = 0; k <= SLICE_LENGTHS; k++) {
        free(s->up_to[k]);
        free(s->tails[k].tree.nodes);
        free(s->tails[k].at);
        free(s->tails[k].ids);
    }
    free(s->longer);
    free(s->lengths);
    free(s->odd.nodes);
    free(s->some.nodes);
    free(s->control.nodes);
    free(s->some_longer);
}

void grammar_index_close(struct grammar_index *x)
{
    if (!x) return;
    for (uint32_t i = 0; i < x->n_slices; i++) close_slice(&x->slices[i]);
    free(x->bytes);
    free(x->ordinary);
    free(x->same);
    free(x->ends);
    free(x->all.nodes);
    free(x);
}

/* ---- trees --------------------------------------------------------------------------------------------------------
 */

struct entry {
    const unsigned char *bytes;
    uint32_t len, id;
    uint32_t in_set; /* of the end of a token: characters of a slice's set before it */
};

static int by_bytes(const void *a, const void *b)
{
    const struct entry *p = a, *q = b;
    const int order = memcmp(p->bytes, q->bytes, p->len < q->len ? p->len : q->len);
    if (order) return order;
    if (p->len != q->len) return p->len < q->len ? -1 : 1;
    return (p->id > q->id) - (p->id < q->id);
}

/* Bytes that both begin with. */
static uint32_t common(const struct entry *a, const struct entry *b)
{
    uint32_t n = 0;
    while (n < a->len && n < b->len && a->bytes[n] == b->bytes[n]) n++;
    return n;
}

/* A tree of entries, which are sorted and differ. same: of ids, NULL: they are groups. False: no memory. open: room for
 * the longest token. */
static bool build_trie(const struct entry *e, uint32_t n, const uint32_t *same, uint32_t *open, struct trie *out)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < n; i++) count += e[i].len - (i ? common(&e[i - 1], &e[i]) : 0);
    out->nodes = malloc((count + 1) * sizeof *out->nodes);
    if (!out->nodes) return false;
    uint32_t depth = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t shared = i ? common(&e[i - 1], &e[i]) : 0;
        while (depth > shared) out->nodes[open[--depth]].skip = out->n;
        for (; depth < e[i].len; depth++) {
            open[depth] = out->n;
            out->nodes[out->n++] = (struct trie_node){ .depth = (uint16_t)(depth + 1), .byte = e[i].bytes[depth] };
        }
        out->nodes[out->n - 1].token = e[i].id + 1;
        out->nodes[out->n - 1].shared = same && same[e[i].id];
    }
    while (depth) out->nodes[open[--depth]].skip = out->n;
    for (uint32_t b = 0, i = 0; b <= 256; b++) {
        while (i < out->n && out->nodes[i].byte < b) i = out->nodes[i].skip;
        out->first[b] = i;
    }
    return true;
}

/* ---- slices
 * ---------------------------------------------------------------------------------------------------------- */

static bool in_set(const struct slice *s, uint32_t c)
{
    for (uint32_t i = 0; i < s->n_set; i++)
        if (c >= s->set[i].first && c <= s->set[i].last) return true;
    return false;
}

/* Can the bytes, which are not a whole character, become one of the set? */
static bool begins_one(const struct slice *s, const unsigned char *bytes, size_t n)
{
    struct reading r = { .n = 0 };
    uint32_t first, last;
    for (size_t i = 0; i < n; i++)
        if ((i && !r.need) || !machine_partial(&r, bytes[i], &r)) return false;
    if (!r.need || !machine_range(&r, &first, &last)) return false;
    for (uint32_t i = 0; i < s->n_set; i++)
        if (first <= s->set[i].last && last >= s->set[i].first) return true;
    return false;
}

/* How many characters of the set the token begins with; *at: the bytes behind them. */
static uint32_t count_in(const struct slice *s, const struct entry *e, uint32_t *at)
{
    uint32_t n = 0;
    for (*at = 0; *at < e->len; n++) {
        const size_t len = utf8_sequence(e->bytes + *at, e->len - *at);
        if (!len && begins_one(s, e->bytes + *at, e->len - *at)) {
            *at = e->len;
            return n + 1;
        }
        if (!len || !in_set(s, utf8_decode(e->bytes + *at, len))) break;
        *at += (uint32_t)len;
    }
    return n;
}

static void allow_same(const struct grammar_index *x, uint64_t *bits, uint32_t id)
{
    for (uint32_t next = id + 1; next; next = x->same[next - 1])
        bits[(next - 1) / 64] |= UINT64_C(1) << (next - 1) % 64;
}

/* Entries of a slice that is being made, each list in order of bytes. */
struct lists {
    struct entry *odd, *some, *control, *ends, *groups;
    uint32_t n_odd, n_some, n_control, n_ends;
};

static bool open_slice(const struct grammar_index *x, struct slice *s, uint32_t n)
{
    for (uint32_t k = 0; k <= SLICE_LENGTHS; k++) {
        s->up_to[k] = calloc(x->words, sizeof(uint64_t));
        if (!s->up_to[k]) return false;
    }
    for (uint32_t i = 0; i < s->n_set; i++)
        for (uint32_t c = s->set[i].first; c <= s->set[i].last && c < 0x80; c++)
            s->begins[c / 64] |= UINT64_C(1) << c % 64;
    if (s->set[s->n_set - 1].last >= 0x80) s->begins[2] = s->begins[3] = UINT64_MAX;
    s->longer = malloc((n + 1) * sizeof *s->longer);
    s->lengths = malloc((n + 1) * sizeof *s->lengths);
    s->some_longer = malloc((n + 1) * sizeof *s->some_longer);
    return s->longer && s->lengths && s->some_longer;
}
/* Tokens of n characters of the set, and nothing else. */
static void add_whole(const struct grammar_index *x, struct slice *s, uint32_t id, uint32_t n)
{
    allow_same(x, s->up_to[0], id);
    if (n <= SLICE_LENGTHS) {
        allow_same(x, s->up_to[n], id);
    } else {
        s->longer[s->n_longer] = id;
        s->lengths[s->n_longer++] = n;
    }
}

static void split(const struct grammar_index *x, struct slice *s, const struct entry *e, uint32_t n, struct lists *l)
{
    l->n_odd = l->n_some = l->n_control = l->n_ends = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at;
        const uint32_t in_set = count_in(s, &e[i], &at);
        if (!in_set) {
            if (s->begins[e[i].bytes[0] / 64] >> e[i].bytes[0] % 64 & 1) l->odd[l->n_odd++] = e[i];
        } else if (at == e[i].len) {
            add_whole(x, s, e[i].id, in_set);
        } else {
            l->ends[l->n_ends++] = (struct entry){ e[i].bytes + at, e[i].len - at, e[i].id, in_set };
            if (in_set > SLICE_LENGTHS) s->some_longer[s->n_some_longer++] = e[i].id;
            if (e[i].bytes[at] < 0x20)
                l->control[l->n_control++] = e[i];
            else
                l->some[l->n_some++] = e[i];
        }
    }
    for (uint32_t k = 2; k <= SLICE_LENGTHS; k++)
        for (uint32_t w = 0; w < x->words; w++) s->up_to[k][w] |= s->up_to[k - 1][w];
    if (l->n_ends) qsort(l->ends, l->n_ends, sizeof *l->ends, by_bytes);
}

static uint32_t count_same(const struct grammar_index *x, uint32_t id)
{
    uint32_t n = 0;
    for (uint32_t next = id + 1; next; next = x->same[next - 1]) n++;
    return n;
}

/* The ends behind in_set characters; 0: behind any number. */
static bool make_tails(const struct grammar_index *x, const struct lists *l, uint32_t in_set, uint32_t *open,
                       struct tails *out)
{
    uint32_t n_ids = 0, n = 0;
    for (uint32_t i = 0; i < l->n_ends; i++)
        if (!in_set || l->ends[i].in_set == in_set) n_ids += count_same(x, l->ends[i].id);
    out->at = malloc((n_ids + 1) * sizeof *out->at);
    out->ids = malloc((n_ids + 1) * sizeof *out->ids);
    if (!out->at || !out->ids) return false;
    n_ids = 0;
    for (uint32_t i = 0; i < l->n_ends; i++) {
        const struct entry *e = &l->ends[i];
        if (in_set && e->in_set != in_set) continue;
        if (!n || e->len != l->groups[n - 1].len || memcmp(e->bytes, l->groups[n - 1].bytes, e->len) != 0) {
            out->at[n] = n_ids;
            l->groups[n] = (struct entry){ e->bytes, e->len, n, 0 };
            n++;
        }
        for (uint32_t next = e->id + 1; next; next = x->same[next - 1]) out->ids[n_ids++] = next - 1;
    }
    out->at[n] = n_ids;
    return build_trie(l->groups, n, NULL, open, &out->tree);
}

static bool make_slice(const struct grammar_index *x, struct slice *s, const struct entry *e, uint32_t n,
                       struct lists *l, uint32_t *open)
{
    if (!open_slice(x, s, n)) return false;
    split(x, s, e, n, l);
    bool made = build_trie(l->odd, l->n_odd, x->same, open, &s->odd) &&
                build_trie(l->some, l->n_some, x->same, open, &s->some) &&
                build_trie(l->control, l->n_control, x->same, open, &s->control);
    for (uint32_t k = 0; k <= SLICE_LENGTHS && made; k++) made = make_tails(x, l, k, open, &s->tails[k]);
    return made;
}

static bool add_slices(struct grammar_index *x, const struct entry *e, uint32_t n, uint32_t *open)
{
    struct entry *room = malloc(5 * ((size_t)n + 1) * sizeof *room);
    struct lists l = { .odd = room };
    bool made = room != NULL;
    if (room) {
        l.some = l.odd + n + 1;
        l.control = l.some + n + 1;
        l.ends = l.control + n + 1;
        l.groups = l.ends + n + 1;
    }
    for (uint32_t i = 0; made && i < MAX_SLICES; i++) {
        struct slice *s = &x->slices[x->n_slices++];
        *s = (struct slice){ .set = slice_sets[i].set, .n_set = slice_sets[i].n };
        made = make_slice(x, s, e, n, &l, open);
    }
    free(room);
    return made;
}

/* ---- tokens
 * ------------------------------------------------------------------------------------------------------------ */

/* Marks of chat formats that some files call user-defined: as text they can be spelt by other tokens, and what watches
 * for their ids must not meet them inside a string. */
static bool is_mark(struct token_bytes b) { return b.len > 2 && b.data[0] == '<' && b.data[b.len - 1] == '>'; }

static struct token_bytes bytes_of(const struct tokenizer *t, uint32_t id)
{
    struct token_bytes b = { NULL, 0 };
    const enum token_type type = tokenizer_type(t, id);
    if (tokenizer_ends(t, id) || (type != TOKEN_NORMAL && type != TOKEN_BYTE && type != TOKEN_USER_DEFINED)) return b;
    b = tokenizer_piece(t, id, false);
    if (type == TOKEN_USER_DEFINED && is_mark(b)) b.len = 0;
    return b.len < UINT16_MAX ? b : (struct token_bytes){ NULL, 0 };
}

/* Sorts the ordinary tokens; of those with the same bytes one stays, and the others are listed. */
static uint32_t collect_entries(struct grammar_index *x, struct entry *e)
{
    uint32_t n = 0, kept = 0;
    for (uint32_t id = 0; id < x->n_vocab; id++)
        if (x->bytes[id].len)
            e[n++] = (struct entry){ (const unsigned char *)x->bytes[id].data, (uint32_t)x->bytes[id].len, id, 0 };
    if (n) qsort(e, n, sizeof *e, by_bytes);
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t before = kept ? e[kept - 1].id : 0;
        if (kept && e[kept - 1].len == e[i].len && !memcmp(e[kept - 1].bytes, e[i].bytes, e[i].len)) {
            x->same[e[i].id] = x->same[before];
            x->same[before] = e[i].id + 1;
        } else {
            e[kept++] = e[i];
        }
        if (e[i].len > x->longest) x->longest = e[i].len;
    }
    return kept;
}

/* Can every text of printable ASCII be written, and end? */
static wk_status check_maskable(const struct grammar_index *x, const struct wk_err *err)
{
    bool single[256] = { false };
    for (uint32_t id = 0; id < x->n_vocab; id++)
        if (x->bytes[id].len == 1) single[(unsigned char)x->bytes[id].data[0]] = true;
    for (uint32_t b = ' '; b <= '~'; b++)
        if (!single[b])
            return wk_fail(err, WK_UNSUPPORTED,
                           "this model's output cannot be constrained: its vocabulary has no token for the byte 0x%02X "
                           "alone",
                           b);
    if (!x->n_ends)
        return wk_fail(err, WK_UNSUPPORTED,
                       "this model's output cannot be constrained: its vocabulary has no token that ends generation");
    return WK_OK;
}

static bool fill(struct grammar_index *x, const struct tokenizer *t)
{
    size_t n_ends;
    const uint32_t *ends = tokenizer_end_ids(t, &n_ends);
    x->words = (x->n_vocab + 63) / 64;
    x->bytes = calloc(x->n_vocab, sizeof *x->bytes);
    x->ordinary = calloc(x->words, sizeof *x->ordinary);
    x->same = calloc(x->n_vocab, sizeof *x->same);
    x->ends = malloc((n_ends + 1) * sizeof *x->ends);
    if (!x->bytes || !x->ordinary || !x->same || !x->ends) return false;
    for (size_t i = 0; i < n_ends; i++)
        if (ends[i] < x->n_vocab) x->ends[x->n_ends++] = ends[i];
    for (uint32_t id = 0; id < x->n_vocab && id < tokenizer_size(t); id++) {
        x->bytes[id] = bytes_of(t, id);
        if (x->bytes[id].len) x->ordinary[id / 64] |= UINT64_C(1) << id % 64;
    }
    return true;
}

static bool arrange(struct grammar_index *x)
{
    struct entry *e = malloc(x->n_vocab * sizeof *e);
    const uint32_t n = e ? collect_entries(x, e) : 0;
    uint32_t *open = malloc((x->longest + 1) * sizeof *open);
    const bool arranged = e && open && build_trie(e, n, x->same, open, &x->all) && add_slices(x, e, n, open);
    free(e);
    free(open);
    return arranged;
}

wk_status grammar_index_possible(const struct tokenizer *t, uint32_t n_vocab, const struct wk_err *err)
{
    struct grammar_index *x = calloc(1, sizeof *x);
    if (x) x->n_vocab = n_vocab;
    const wk_status status = x && fill(x, t) ? check_maskable(x, err)
                                             : wk_fail(err, WK_NO_MEMORY, "no memory for the index of a vocabulary");
    grammar_index_close(x);
    return status;
}

wk_status grammar_index_open(const struct tokenizer *t, uint32_t n_vocab, struct grammar_index **out,
                             const struct wk_err *err)
{
    struct grammar_index *x = n_vocab ? calloc(1, sizeof *x) : NULL;
    wk_status status = WK_OK;
    *out = NULL;
    if (!n_vocab || n_vocab > TOKENIZER_MAX_VOCAB)
        return wk_fail(err, WK_INVALID, "a vocabulary of %u ids cannot be masked", n_vocab);
    if (x) x->n_vocab = n_vocab;
    if (x && fill(x, t)) status = check_maskable(x, err);
    if (!status && (!x || !x->ends || !arrange(x)))
        status = wk_fail(err, WK_NO_MEMORY, "no memory for the index of a vocabulary");
    if (status)
        grammar_index_close(x);
    else
        *out = x;
    return status;
}
