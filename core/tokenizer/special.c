/* special.c: special tokens claim text by length, not by position, so the automaton alone does not decide: it finds the longest
 * special that ends at each byte; a heap then takes these in order of claim (longest special first, then leftmost). One that meets
 * bytes already taken is replaced by the next shorter special that ends on the same byte. Two texts overlap only if the shorter one's first
 * or last byte lies in the longer, so two bytes tell. */
#include "tokenizer/special.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

struct special_state {
    uint32_t parent, fail;
    uint32_t out;    /* index of the special spelt by this state + 1, 0: none */
    uint32_t shorter; /* nearest state on the fail chain that has an out (a dictionary link), 0: none */
    unsigned char byte;
};

static bool is_special(const struct vocab *v, uint32_t id)
{
    const enum token_type type = v->type[id];
    return (type == TOKEN_CONTROL || type == TOKEN_USER_DEFINED || type == TOKEN_UNKNOWN) && vocab_text(v, id).len;
}

/* A USER_DEFINED token that begins or ends a text is a control token by what it does (Phi-3's </s>). */
static bool is_control(const struct vocab *v, uint32_t id)
{
    return v->type[id] != TOKEN_USER_DEFINED || id == v->bos || id == v->eos || vocab_ends(v, id);
}

/* ---- building ---------------------------------------------------------------------------------------------------------- */

static uint32_t *find_edge(const struct specials *s, uint32_t state, unsigned char byte)
{
    uint32_t at = (uint32_t)hash_mix((uint64_t)state << 8 | byte, s->vocab->seed) & s->edge_mask;
    for (;; at = (at + 1) & s->edge_mask) {
        const uint32_t child = s->edge[at];
        if (!child || (s->state[child].parent == state && s->state[child].byte == byte)) return &s->edge[at];
    }
}

struct by_length { size_t len; uint32_t id; };
static int compare_length(const void *a, const void *b)
{
    const struct by_length *x = a, *y = b;
    if (x->len != y->len) return x->len > y->len ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

static wk_status collect(struct specials *s, size_t *bytes, const struct wk_err *err)
{
    const struct vocab *v = s->vocab;
    *bytes = 0;
    for (uint32_t id = 0; id < v->n; id++)
        if (is_special(v, id)) {
            s->n++;
            *bytes += vocab_text(v, id).len;
        }
    if (*bytes > SPECIAL_MAX_BYTES)
        return wk_fail(err, WK_INVALID, "tokenizer.ggml.tokens: the texts of special tokens have %zu bytes; at most %d are supported", *bytes,
                       SPECIAL_MAX_BYTES);
    const size_t n = s->n ? s->n : 1;
    struct by_length *order = malloc(n * sizeof *order);
    s->id = malloc(n * sizeof *s->id);
    s->terminal = malloc(n * sizeof *s->terminal);
    s->control = malloc(n);
    if (!order || !s->id || !s->terminal || !s->control) {
        free(order);
        return wk_fail(err, WK_NO_MEMORY, "no memory for %u special tokens", s->n);
    }
    uint32_t i = 0;
    for (uint32_t id = 0; id < v->n; id++)
        if (is_special(v, id)) order[i++] = (struct by_length){ vocab_text(v, id).len, id };
    qsort(order, s->n, sizeof *order, compare_length);
    for (i = 0; i < s->n; i++) {
        s->id[i] = order[i].id;
        s->control[i] = is_control(v, order[i].id);
    }
    free(order);
    return WK_OK;
}

static void insert(struct specials *s, uint32_t index)
{
    const struct token_bytes text = vocab_text(s->vocab, s->id[index]);
    uint32_t at = 0;
    for (size_t i = 0; i < text.len; i++) {
        const unsigned char byte = (unsigned char)text.data[i];
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
        state->shorter = s->state[state->fail].out ? state->fail : s->state[state->fail].shorter;
    }
    free(queue);
    free(first);
    free(depth);
    return WK_OK;
}

wk_status specials_open(struct specials *s, const struct vocab *v, const struct wk_err *err)
{
    size_t bytes;
    memset(s, 0, sizeof *s);
    s->vocab = v;
    const wk_status status = collect(s, &bytes, err);
    if (status) return status;
    uint32_t edges = 16;
    while (edges < 2 * bytes) edges *= 2;
    s->edge = calloc(edges, sizeof *s->edge);
    s->state = calloc(bytes + 1, sizeof *s->state);
    if (!s->edge || !s->state) return wk_fail(err, WK_NO_MEMORY, "no memory for the automaton of %u special tokens", s->n);
    s->edge_mask = edges - 1;
    s->n_states = 1; /* the root */
    for (uint32_t i = 0; i < s->n; i++) insert(s, i);
    return link_states(s, err);
}

void specials_close(struct specials *s)
{
    free(s->id);
    free(s->terminal);
    free(s->control);
    free(s->state);
    free(s->edge);
}

/* ---- splitting --------------------------------------------------------------------------------------------------------- */

/* Claims waiting, the smallest key first: index of the special << 32 | end of the occurrence. */
struct claims { uint64_t *key; size_t n, cap; };

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
        if (spans[middle].end > begin) high = middle;
        else low = middle + 1;
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
static bool settle(const struct specials *s, struct claims *c, const struct trust_span *spans, size_t n_spans, uint8_t *taken, struct fragments *out)
{
    while (c->n) {
        const uint32_t index = (uint32_t)(c->key[0] >> 32), end = (uint32_t)c->key[0];
        const uint32_t len = (uint32_t)vocab_text(s->vocab, s->id[index]).len, begin = end - len;
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

wk_status specials_split(const struct specials *s, const char *text, uint32_t n, const struct trust_span *spans, size_t n_spans,
                         struct fragments *out, const struct wk_err *err)
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
