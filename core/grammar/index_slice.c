/* index_slice.c: slices of a vocabulary: what can be allowed as a whole where an automaton lets every character of a
 * set pass, and what begins so. slice.c uses them. */
#include "grammar/index.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

#define LENGTH(array) (sizeof(array) / sizeof *(array))

/* From large to small: the first that is let pass is taken. All ranges but surrogates. */
static const struct lang_range everything[] = { { 0, LANG_MAX_CHAR } };
static const struct lang_range one_line[] = { { 0, 9 }, { 11, 12 }, { 14, 0x2027 }, { 0x202A, LANG_MAX_CHAR } };
static const struct lang_range in_string[] = { { ' ', '!' }, { '#', '[' }, { ']', 0x2027 }, { 0x202A, LANG_MAX_CHAR } };
/* Characters above U+00A0 that are no space and no byte order mark. */
#define VISIBLE_FROM_A1                                                                               \
    { 0xA1, 0x167F }, { 0x1681, 0x1FFF }, { 0x200B, 0x2027 }, { 0x202A, 0x202E }, { 0x2030, 0x205E }, \
        { 0x2060, 0x2FFF }, { 0x3001, 0xFEFE },                                                       \
    {                                                                                                 \
        0xFF00, LANG_MAX_CHAR                                                                         \
    }
static const struct lang_range visible[] = { { '!', '!' }, { '#', '[' }, { ']', 0x9F }, VISIBLE_FROM_A1 };
static const struct lang_range all_names[] = { { '0', '9' }, { 'A', 'Z' },   { '_', '_' },
                                               { 'a', 'z' }, { 0x80, 0x9F }, VISIBLE_FROM_A1 };
static const struct lang_range words[] = { { ' ', ' ' }, { 'A', 'Z' }, { 'a', 'z' }, { 0x80, LANG_MAX_CHAR } };
static const struct lang_range latin[] = { { ' ', ' ' }, { 'A', 'Z' }, { 'a', 'z' } };
static const struct lang_range letters[] = { { 'A', 'Z' }, { 'a', 'z' } };
static const struct lang_range small[] = { { 'a', 'z' } };
static const struct lang_range names[] = { { '0', '9' }, { 'A', 'Z' }, { '_', '_' }, { 'a', 'z' } };
#define SET(ranges) { ranges, LENGTH(ranges) }
static const struct {
    const struct lang_range *set;
    uint32_t n;
} slice_sets[MAX_SLICES] = { SET(everything), SET(one_line), SET(in_string), SET(visible), SET(words),
                             SET(all_names),  SET(latin),    SET(names),     SET(letters), SET(small) };

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

/* How many characters of the set come from byte *at of the token on; then *at: the bytes up to behind them. */
static uint32_t count_in(const struct slice *s, const struct entry *e, uint32_t *at)
{
    uint32_t n = 0;
    for (; *at < e->len; n++) {
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

/* Entries of a part that is being made. */
struct lists {
    struct entry *other, *some, *control; /* in order of bytes */
    struct entry *ends, *groups;          /* of `some` and `control` */
    struct entry *whole;                  /* in_set: its characters */
    uint32_t n_other, n_some, n_control, n_ends, n_whole;
};

static bool is_in(const uint64_t bytes[4], uint32_t b) { return bytes[b / 64] >> b % 64 & 1; }

/* Puts each of the entries, which have the same first `skip` bytes, into its lists. */
static void split(struct slice *s, const struct entry *e, uint32_t n, uint32_t skip, struct lists *l)
{
    l->n_other = l->n_some = l->n_control = l->n_ends = l->n_whole = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t at = skip;
        const uint32_t in_set = count_in(s, &e[i], &at);
        struct entry here = e[i];
        here.in_set = in_set;
        if (!in_set) {
            if (skip || is_in(s->begins, e[i].bytes[0])) l->other[l->n_other++] = here;
        } else if (at == e[i].len) {
            l->whole[l->n_whole++] = here;
        } else {
            l->ends[l->n_ends++] = (struct entry){ e[i].bytes + at, e[i].len - at, e[i].id, in_set };
            if (e[i].bytes[at] < 0x20)
                l->control[l->n_control++] = here;
            else
                l->some[l->n_some++] = here;
        }
    }
    for (uint32_t i = 0; i < l->n_ends; i++)
        if (l->ends[i].bytes[0] >= 0x20 && l->ends[i].len > s->longest_end) s->longest_end = l->ends[i].len;
    if (l->n_ends) qsort(l->ends, l->n_ends, sizeof *l->ends, entry_order);
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
    return entry_trie(l->groups, n, NULL, open, &out->tree);
}

/* Ids of entries with from..to characters of the set, others of the same bytes included. */
static void list_ids(const struct grammar_index *x, const struct entry *e, uint32_t n, uint32_t from, uint32_t to,
                     uint32_t *ids, uint32_t *n_ids)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t next = e[i].in_set >= from && e[i].in_set <= to ? e[i].id + 1 : 0; next; next = x->same[next - 1])
            ids[(*n_ids)++] = next - 1;
}

/* Lists the whole tokens; of the root only those that no mask has. */
static bool list_whole(const struct grammar_index *x, const struct lists *l, bool root, struct part *p)
{
    uint32_t n_ids = 0;
    for (uint32_t i = 0; i < l->n_whole; i++)
        if (!root || l->whole[i].in_set > SLICE_LENGTHS) n_ids += count_same(x, l->whole[i].id);
    p->whole = malloc((n_ids + 1) * sizeof *p->whole);
    if (!p->whole) return false;
    n_ids = 0;
    for (uint32_t k = 1; k <= SLICE_LENGTHS; k++) {
        p->whole_at[k] = n_ids;
        if (!root) list_ids(x, l->whole, l->n_whole, k, k, p->whole, &n_ids);
    }
    p->whole_at[SLICE_LENGTHS + 1] = n_ids;
    list_ids(x, l->whole, l->n_whole, SLICE_LENGTHS + 1, UINT32_MAX, p->whole, &n_ids);
    p->whole_at[SLICE_LENGTHS + 2] = n_ids;
    return true;
}

static bool list_longer(const struct lists *l, struct part *p)
{
    for (uint32_t i = 0; i < l->n_ends; i++) p->n_longer += l->ends[i].in_set > SLICE_LENGTHS;
    p->longer = malloc((p->n_longer + 1) * sizeof *p->longer);
    for (uint32_t i = 0, n = 0; i < l->n_ends && p->longer; i++)
        if (l->ends[i].in_set > SLICE_LENGTHS) p->longer[n++] = l->ends[i].id;
    return p->longer != NULL;
}

static bool make_part(const struct grammar_index *x, const struct lists *l, bool root, uint32_t *open, struct part *p)
{
    bool made = list_whole(x, l, root, p) && list_longer(l, p) &&
                entry_trie(l->other, l->n_other, x->same, open, &p->other) &&
                entry_trie(l->some, l->n_some, x->same, open, &p->some) &&
                entry_trie(l->control, l->n_control, x->same, open, &p->control);
    for (uint32_t k = 0; k <= SLICE_LENGTHS && made; k++) made = make_tails(x, l, k, open, &p->tails[k]);
    return made;
}

static void close_part(struct part *p)
{
    for (uint32_t k = 0; k <= SLICE_LENGTHS; k++) {
        free(p->tails[k].tree.nodes);
        free(p->tails[k].at);
        free(p->tails[k].ids);
    }
    free(p->whole);
    free(p->longer);
    free(p->other.nodes);
    free(p->some.nodes);
    free(p->control.nodes);
}

void index_slice_close(struct slice *s)
{
    for (uint32_t k = 0; k <= SLICE_LENGTHS; k++) free(s->up_to[k]);
    close_part(&s->root);
    for (uint32_t b = 0; b < 0x80; b++) {
        if (s->behind[b]) close_part(s->behind[b]);
        free(s->behind[b]);
    }
}

static void set_bits(const struct grammar_index *x, uint64_t *bits, uint32_t id)
{
    for (uint32_t next = id + 1; next; next = x->same[next - 1])
        bits[(next - 1) / 64] |= UINT64_C(1) << (next - 1) % 64;
}

static bool make_masks(const struct grammar_index *x, const struct lists *l, struct slice *s)
{
    for (uint32_t k = 0; k <= SLICE_LENGTHS; k++) {
        s->up_to[k] = calloc(x->words, sizeof(uint64_t));
        if (!s->up_to[k]) return false;
    }
    for (uint32_t i = 0; i < l->n_whole; i++) {
        const struct entry *e = &l->whole[i];
        set_bits(x, s->up_to[0], e->id);
        if (e->in_set <= SLICE_LENGTHS) set_bits(x, s->up_to[e->in_set], e->id);
    }
    for (uint32_t k = 2; k <= SLICE_LENGTHS; k++)
        for (uint32_t w = 0; w < x->words; w++) s->up_to[k][w] |= s->up_to[k - 1][w];
    return true;
}

/* Which first bytes that are no letter and no digit have many tokens. */
static void find_many(struct grammar_index *x, const struct entry *e, uint32_t n)
{
    for (uint32_t i = 0, end; i < n; i = end) {
        const uint32_t b = e[i].bytes[0];
        for (end = i + 1; end < n && e[end].bytes[0] == b;) end++;
        const bool letter = (b >= '0' && b <= '9') || (b >= 'A' && b <= 'Z') || (b >= 'a' && b <= 'z');
        if (!letter && b < 0x80 && end - i >= MANY_TOKENS) x->many[b / 64] |= UINT64_C(1) << b % 64;
    }
}

/* Parts for the tokens that begin with such a byte. */
static bool make_behind(const struct grammar_index *x, struct slice *s, const struct entry *e, uint32_t n,
                        struct lists *l, uint32_t *open)
{
    for (uint32_t i = 0, end; i < n; i = end) {
        const uint32_t b = e[i].bytes[0];
        for (end = i + 1; end < n && e[end].bytes[0] == b;) end++;
        if (is_in(s->begins, b) || !is_in(x->many, b)) continue;
        s->behind[b] = calloc(1, sizeof *s->behind[b]);
        if (!s->behind[b]) return false;
        split(s, e + i, end - i, 1, l);
        if (!make_part(x, l, false, open, s->behind[b])) return false;
    }
    return true;
}

static bool make_slice(const struct grammar_index *x, struct slice *s, const struct entry *e, uint32_t n,
                       struct lists *l, uint32_t *open)
{
    for (uint32_t i = 0; i < s->n_set; i++)
        for (uint32_t c = s->set[i].first; c <= s->set[i].last && c < 0x80; c++)
            s->begins[c / 64] |= UINT64_C(1) << c % 64;
    if (s->set[s->n_set - 1].last >= 0x80) s->begins[2] = s->begins[3] = UINT64_MAX;
    split(s, e, n, 0, l);
    return make_masks(x, l, s) && make_part(x, l, true, open, &s->root) && make_behind(x, s, e, n, l, open);
}

bool index_slices(struct grammar_index *x, const struct entry *e, uint32_t n, uint32_t *open)
{
    struct entry *room = malloc(6 * ((size_t)n + 1) * sizeof *room);
    struct lists l = { .other = room };
    bool made = room != NULL;
    if (room) {
        l.some = l.other + n + 1;
        l.control = l.some + n + 1;
        l.ends = l.control + n + 1;
        l.groups = l.ends + n + 1;
        l.whole = l.groups + n + 1;
    }
    find_many(x, e, n);
    for (uint32_t i = 0; made && i < MAX_SLICES; i++) {
        struct slice *s = &x->slices[x->n_slices++];
        *s = (struct slice){ .set = slice_sets[i].set, .n_set = slice_sets[i].n };
        made = make_slice(x, s, e, n, &l, open);
    }
    free(room);
    return made;
}
