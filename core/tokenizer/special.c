/* special.c: in GGUF tokenizers special tokens claim text by length, not by position, so the automaton alone does not
 * decide: it finds the longest special that ends at each byte; a heap then takes these in order of claim (longest
 * special first, then leftmost). One that meets bytes already taken is replaced by the next shorter special that ends
 * on the same byte. Two texts overlap only if the shorter one's first or last byte lies in the longer, so two bytes
 * tell.
 *
 * Those of a tokenizer.json claim it by position. There the automaton has the reversed texts and reads the text
 * backwards, and so knows the longest special that begins at each byte: one walk forwards takes them. */
#include "tokenizer/special.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/unicode.h"
#include "base/utf8.h"
#include "tokenizer/vocab.h"

struct special_state {
    uint32_t parent, fail;
    uint32_t out;     /* index of the special spelt by this state + 1, 0: none */
    uint32_t shorter; /* nearest state on the fail chain that has an out (a dictionary link), 0: none */
    uint32_t plain;   /* the same of specials that are no control tokens */
    unsigned char byte;
};

/* ---- building ------------------------------------------------------------------------------------------ */

static uint32_t *find_edge(const struct specials *s, uint32_t state, unsigned char byte)
{
    uint32_t at = (uint32_t)hash_mix((uint64_t)state << 8 | byte, s->seed) & s->edge_mask;
    for (;; at = (at + 1) & s->edge_mask) {
        const uint32_t child = s->edge[at];
        if (!child || (s->state[child].parent == state && s->state[child].byte == byte)) return &s->edge[at];
    }
}

static int compare_length(const void *a, const void *b)
{
    const struct special *x = *(const struct special *const *)a, *y = *(const struct special *const *)b;
    if (x->text.len != y->text.len) return x->text.len > y->text.len ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static bool allocate(struct specials *s, size_t bytes)
{
    const size_t n = s->n ? s->n : 1;
    uint32_t edges = 16;
    while (edges < 2 * bytes) edges *= 2;
    s->id = malloc(n * sizeof *s->id);
    s->len = malloc(n * sizeof *s->len);
    s->terminal = malloc(n * sizeof *s->terminal);
    s->control = malloc(n);
    s->flags = malloc(n);
    s->edge = calloc(edges, sizeof *s->edge);
    s->state = calloc(bytes + 1, sizeof *s->state);
    s->edge_mask = edges - 1;
    s->n_states = 1; /* the root */
    return s->id && s->len && s->terminal && s->control && s->flags && s->edge && s->state;
}

static void insert(struct specials *s, uint32_t index, struct token_bytes text)
{
    uint32_t at = 0;
    for (size_t i = 0; i < text.len; i++) {
        const unsigned char byte = (unsigned char)text.data[s->leftmost ? text.len - 1 - i : i];
        uint32_t *edge = find_edge(s, at, byte);
        if (!*edge) {
            s->state[s->n_states] = (struct special_state){ .parent = at, .byte = byte };
            *edge = s->n_states++;
        }
        at = *edge;
    }
    s->terminal[index] = at;
    if (!s->state[at].out) s->state[at].out = index + 1; /* of two specials with one text the first counts */
}

/* Longest text first. */
static wk_status insert_all(struct specials *s, const struct special *list, const struct wk_err *err)
{
    const struct special **order = malloc((s->n ? s->n : 1) * sizeof *order);
    if (!order) return wk_fail(err, WK_NO_MEMORY, "no memory for %u special tokens", s->n);
    for (uint32_t i = 0; i < s->n; i++) order[i] = &list[i];
    qsort(order, s->n, sizeof *order, compare_length);
    for (uint32_t i = 0; i < s->n; i++) {
        s->id[i] = order[i]->id;
        s->len[i] = (uint32_t)order[i]->text.len;
        s->control[i] = order[i]->control;
        s->flags[i] = order[i]->flags;
        insert(s, i, order[i]->text);
    }
    free(order);
    return WK_OK;
}

static uint32_t next_state(const struct specials *s, uint32_t state, unsigned char byte)
{
    for (;; state = s->state[state].fail) {
        const uint32_t child = *find_edge(s, state, byte);
        if (child || !state) return child;
    }
}

/* Fail links, breadth first: a state's depends on shallower ones only. `depth` orders the states. */
static wk_status link_states(struct specials *s, const struct wk_err *err)
{
    uint32_t *queue = malloc(s->n_states * sizeof *queue);
    uint32_t *first = calloc(s->n_states + (size_t)2, sizeof *first); /* states by depth: a counting sort */
    uint32_t *depth = calloc(s->n_states, sizeof *depth);
    if (!queue || !first || !depth) {
        free(queue);
        free(first);
        free(depth);
        return wk_fail(err, WK_NO_MEMORY, "no memory for the automaton of %u special tokens", s->n);
    }
    for (uint32_t i = 1; i < s->n_states; i++) depth[i] = depth[s->state[i].parent] + 1; /* parents are made first */
    for (uint32_t i = 0; i < s->n_states; i++) first[depth[i] + 1]++;
    for (uint32_t i = 1; i <= s->n_states; i++) first[i] += first[i - 1];
    for (uint32_t i = 0; i < s->n_states; i++) queue[first[depth[i]]++] = i;
    for (uint32_t i = 1; i < s->n_states; i++) {
        struct special_state *state = &s->state[queue[i]];
        if (state->parent) state->fail = next_state(s, s->state[state->parent].fail, state->byte);
        const struct special_state *fail = &s->state[state->fail];
        state->shorter = fail->out ? state->fail : fail->shorter;
        state->plain = fail->out && !s->control[fail->out - 1] ? state->fail : fail->plain;
    }
    free(queue);
    free(first);
    free(depth);
    return WK_OK;
}

wk_status specials_open(struct specials *s, const struct special *list, uint32_t n, bool leftmost, uint64_t seed,
                        const char *where, const struct wk_err *err)
{
    size_t bytes = 0;
    *s = (struct specials){ .seed = seed, .leftmost = leftmost, .n = n };
    for (uint32_t i = 0; i < n; i++) bytes += list[i].text.len;
    if (bytes > SPECIAL_MAX_BYTES)
        return wk_fail(err, WK_INVALID, "%s: the texts of special tokens have %zu bytes; at most %d are supported",
                       where, bytes, SPECIAL_MAX_BYTES);
    if (!allocate(s, bytes)) return wk_fail(err, WK_NO_MEMORY, "no memory for the automaton of %u special tokens", n);
    const wk_status status = insert_all(s, list, err);
    return status ? status : link_states(s, err);
}

bool special_is_control(const struct vocab *v, uint32_t id)
{
    return v->type[id] != TOKEN_USER_DEFINED || id == v->bos || id == v->eos || vocab_ends(v, id);
}

static bool is_special(const struct vocab *v, uint32_t id)
{
    const enum token_type type = v->type[id];
    return (type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED || type == TOKEN_UNKNOWN) && vocab_text(v, id).len;
}

wk_status specials_open_vocab(struct specials *s, const struct vocab *v, const struct wk_err *err)
{
    uint32_t n = 0, at = 0;
    for (uint32_t id = 0; id < v->n; id++) n += is_special(v, id);
    struct special *list = malloc((n ? n : 1) * sizeof *list);
    if (!list) return wk_fail(err, WK_NO_MEMORY, "no memory for %u special tokens", n);
    for (uint32_t id = 0; id < v->n; id++)
        if (is_special(v, id)) list[at++] = (struct special){ vocab_text(v, id), id, special_is_control(v, id), 0 };
    const wk_status status = specials_open(s, list, n, false, v->seed, v->where, err);
    free(list);
    return status;
}

void specials_close(struct specials *s)
{
    free(s->id);
    free(s->len);
    free(s->terminal);
    free(s->control);
    free(s->flags);
    free(s->state);
    free(s->edge);
}

/* ---- splitting ----------------------------------------------------------------------------------------- */

/* Claims waiting, the smallest key first: index of the special << 32 | end of the occurrence. */
struct claims {
    uint64_t *key;
    size_t n, cap;
};

static void sift_down(uint64_t *key, size_t n, size_t i)
{
    const uint64_t k = key[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && key[child + 1] < key[child]) child++;
        if (key[child] >= k) break;
        key[i] = key[child];
    }
    key[i] = k;
}

/* The longest special that ends at each byte. */
static bool find_claims(const struct specials *s, const char *text, uint32_t n, struct claims *c)
{
    uint32_t state = 0;
    for (uint32_t i = 0; i < n; i++) {
        state = next_state(s, state, (unsigned char)text[i]);
        const uint32_t at = s->state[state].out ? state : s->state[state].shorter;
        if (!at) continue;
        if (!array_reserve((void **)&c->key, &c->cap, c->n + 1, sizeof *c->key)) return false;
        c->key[c->n++] = (uint64_t)(s->state[at].out - 1) << 32 | (i + 1);
    }
    for (size_t i = c->n / 2; i-- > 0;) sift_down(c->key, c->n, i);
    return true;
}

/* Does one span that allows control tokens hold all of [begin, end)? */
static bool allows_control(const struct trust_span *spans, size_t n, uint32_t begin, uint32_t end)
{
    size_t low = 0, high = n - 1; /* the first span that ends behind begin */
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (spans[middle].end > begin)
            high = middle;
        else
            low = middle + 1;
    }
    return spans[low].control && end <= spans[low].end;
}

static int compare_fragment(const void *a, const void *b)
{
    const struct fragment *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

static bool put_fragment(struct fragments *f, struct fragment fragment)
{
    if (!array_reserve((void **)&f->list, &f->cap, f->n + 1, sizeof *f->list)) return false;
    f->list[f->n++] = fragment;
    return true;
}

/* Lets the claims take text; appends what was taken, in no order. taken: [n] zeros. */
static bool settle(const struct specials *s, struct claims *c, const struct trust_span *spans, size_t n_spans,
                   uint8_t *taken, struct fragments *out)
{
    while (c->n) {
        const uint32_t index = (uint32_t)(c->key[0] >> 32), end = (uint32_t)c->key[0];
        const uint32_t len = s->len[index], begin = end - len;
        const uint32_t shorter = s->state[s->terminal[index]].shorter;
        const bool dead = taken[end - 1];
        if (!dead && !taken[begin] && (!s->control[index] || allows_control(spans, n_spans, begin, end))) {
            memset(taken + begin, 1, len);
            if (!put_fragment(out, (struct fragment){ begin, len, s->id[index] })) return false;
        } else if (!dead && shorter) {
            c->key[0] = (uint64_t)(s->state[shorter].out - 1) << 32 | end;
            sift_down(c->key, c->n, 0);
            continue;
        }
        c->key[0] = c->key[--c->n];
        if (c->n) sift_down(c->key, c->n, 0);
    }
    return true;
}

/* Turns the specials, list[first..), into a gapless sequence with the raw text between them. */
static bool fill_gaps(struct fragments *f, size_t first, uint32_t n)
{
    const size_t found = f->n - first;
    if (!array_reserve((void **)&f->list, &f->cap, first + 2 * found + 1, sizeof *f->list)) return false;
    if (found) qsort(f->list + first, found, sizeof *f->list, compare_fragment);
    /* From the back, so that every special moves to where it is not in the way. */
    size_t to = first + 2 * found + 1;
    uint32_t end = n;
    for (size_t i = found; i-- > 0;) {
        const struct fragment special = f->list[first + i];
        const uint32_t behind = special.at + special.len;
        f->list[--to] = (struct fragment){ behind, end - behind, TOKEN_NONE };
        f->list[--to] = special;
        end = special.at;
    }
    f->list[first] = (struct fragment){ 0, end, TOKEN_NONE };
    size_t kept = first;
    for (size_t i = first; i < first + 2 * found + 1; i++)
        if (f->list[i].len) f->list[kept++] = f->list[i];
    f->n = kept;
    return true;
}

wk_status specials_split(const struct specials *s, const char *text, uint32_t n, const struct trust_span *spans,
                         size_t n_spans, struct fragments *out, const struct wk_err *err)
{
    struct claims claims = { 0 };
    uint8_t *taken = NULL;
    const size_t first = out->n;
    bool ok = find_claims(s, text, n, &claims);
    if (ok && claims.n) ok = (taken = calloc(n, 1)) && settle(s, &claims, spans, n_spans, taken, out);
    ok = ok && fill_gaps(out, first, n);
    free(taken);
    free(claims.key);
    return ok ? WK_OK : wk_fail(err, WK_NO_MEMORY, "no memory to find special tokens in %u bytes of text", n);
}

/* ---- leftmost first ------------------------------------------------------------------------------------ */

/* The white space that ends at text[end], and that begins at text[begin]: how many bytes it has. */
static uint32_t space_before(const char *text, uint32_t begin, uint32_t end)
{
    uint32_t at = end;
    while (at > begin) {
        uint32_t c = at - 1;
        while (c > begin && at - c < 4 && ((unsigned char)text[c] & 0xC0) == 0x80) c--;
        const size_t len = utf8_sequence((const unsigned char *)text + c, at - c);
        if (len != at - c || !unicode_is_space(utf8_decode((const unsigned char *)text + c, len))) break;
        at = c;
    }
    return end - at;
}
static uint32_t space_after(const char *text, uint32_t begin, uint32_t end)
{
    uint32_t at = begin;
    while (at < end) {
        const size_t len = utf8_sequence((const unsigned char *)text + at, end - at);
        if (!len || !unicode_is_space(utf8_decode((const unsigned char *)text + at, len))) break;
        at += (uint32_t)len;
    }
    return at - begin;
}

/* Is the character that ends at `begin`, or the one that begins at `end`, one of a word? */
static bool beside_word(const char *text, uint32_t n, uint32_t begin, uint32_t end)
{
    const unsigned char *bytes = (const unsigned char *)text;
    uint32_t c = begin ? begin - 1 : 0;
    while (c && begin - c < 4 && (bytes[c] & 0xC0) == 0x80) c--;
    const size_t before = begin ? utf8_sequence(bytes + c, begin - c) : 0, after = utf8_sequence(bytes + end, n - end);
    return (before && before == begin - c && unicode_is_word(utf8_decode(bytes + c, before))) ||
           (after && unicode_is_word(utf8_decode(bytes + end, after)));
}

/* found: [n] the special + 1 to take where it begins: the longest that may stand there. */
static void find_beginnings(const struct specials *s, const char *text, uint32_t n, const struct trust_span *spans,
                            size_t n_spans, uint32_t *found)
{
    uint32_t state = 0;
    size_t span = n_spans - 1;
    for (uint32_t i = n; i-- > 0;) {
        state = next_state(s, state, (unsigned char)text[i]);
        while (span && spans[span - 1].end > i) span--;
        uint32_t at = s->state[state].out ? state : s->state[state].shorter;
        while (at && s->control[s->state[at].out - 1] &&
               !(spans[span].control && s->len[s->state[at].out - 1] <= spans[span].end - i))
            at = spans[span].control ? s->state[at].shorter : s->state[at].plain;
        found[i] = at ? s->state[at].out : 0;
    }
}

wk_status specials_split_leftmost(const struct specials *s, const char *text, uint32_t n,
                                  const struct trust_span *spans, size_t n_spans, struct fragments *out,
                                  const struct wk_err *err)
{
    const size_t first = out->n;
    uint32_t *found = s->n ? malloc(n * sizeof *found) : NULL;
    bool ok = found || !s->n;
    if (ok && s->n) {
        uint32_t done = 0;
        find_beginnings(s, text, n, spans, n_spans, found);
        for (uint32_t i = 0; ok && i < n;) {
            const uint32_t index = found[i] - 1;
            uint32_t begin = i, end = found[i] ? i + s->len[index] : i + 1;
            if (found[i] && !((s->flags[index] & SPECIAL_WORD) && beside_word(text, n, begin, end))) {
                if (s->flags[index] & SPECIAL_STRIPS_LEFT) begin -= space_before(text, done, begin);
                if (s->flags[index] & SPECIAL_STRIPS_RIGHT) end += space_after(text, end, n);
                ok = put_fragment(out, (struct fragment){ begin, end - begin, s->id[index] });
                done = end;
            }
            i = end;
        }
    }
    ok = ok && fill_gaps(out, first, n);
    free(found);
    return ok ? WK_OK : wk_fail(err, WK_NO_MEMORY, "no memory to find special tokens in %u bytes of text", n);
}
