/* lang.c: building expressions. Every constructor brings its result into one form (flat, sorted, without what changes
 * nothing), so that equal states of an automaton become one expression, and finds what can be seen at once: whether the
 * empty text is in it, and whether any is. See lang.h. */
#include "grammar/lang_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum {
    FIRST_BUCKETS = 256,
    MAX_OPERANDS = 1 << 20, /* of all unions and intersections together */
    MAX_WORDS = 4 << 20,    /* bytes of all word tables */
    ASK_STEPS = 50000,      /* about a millisecond of work */
    SURROGATE_FIRST = 0xD800,
    SURROGATE_LAST = 0xDFFF
};

lang_id langs_fail(struct langs *x, wk_status status, const char *why)
{
    if (!x->status) {
        x->status = status;
        (void)snprintf(x->why, sizeof x->why, "%s", why);
    }
    return LANG_NONE;
}

static lang_id no_memory(struct langs *x) { return langs_fail(x, WK_NO_MEMORY, "no memory for an automaton"); }

wk_status langs_status(const struct langs *x, const struct wk_err *err)
{
    return x->status ? wk_fail(err, x->status, "%s", x->why) : WK_OK;
}

bool langs_step(struct langs *x, uint64_t n)
{
    if (x->built || x->status) return !x->status;
    x->steps += n;
    if (x->steps < x->ask_at) return true;
    x->ask_at = x->steps + ASK_STEPS;
    if (x->steps > LANG_MAX_STEPS)
        (void)langs_fail(x, WK_UNSUPPORTED, "it takes more than 12 million steps to compile: make it simpler");
    else if (langs_bytes(x) > LANG_MAX_BYTES)
        (void)langs_fail(x, WK_UNSUPPORTED, "it needs more than 16 MiB to compile: make it simpler");
    else if (x->watch.stop && x->watch.stop(x->watch.user))
        (void)langs_fail(x, WK_CANCELLED, "it was ended while it was compiled");
    return !x->status;
}

uint64_t langs_steps(const struct langs *x) { return x->steps; }

void langs_built(struct langs *x)
{
    x->built = true;
    x->watch = (struct lang_watch){ 0 };
}

/* Room for n items of `size` bytes; false: no memory. */
static bool grow(struct langs *x, void **items, uint32_t *cap, uint64_t n, size_t size)
{
    if (n <= *cap) return true;
    uint64_t larger = *cap ? 2 * (uint64_t)*cap : 64;
    if (larger < n) larger = n;
    void *moved = larger <= UINT32_MAX / 2 ? realloc(*items, (size_t)larger * size) : NULL;
    if (!moved) {
        (void)no_memory(x);
        return false;
    }
    *items = moved;
    *cap = (uint32_t)larger;
    return true;
}

bool numbers_room(struct langs *x, struct numbers *v, uint32_t more)
{
    return grow(x, (void **)&v->list, &v->cap, (uint64_t)v->n + more, sizeof *v->list);
}

bool numbers_push(struct langs *x, struct numbers *v, uint32_t value)
{
    if (v->n == v->cap && !numbers_room(x, v, 1)) return false;
    v->list[v->n++] = value;
    return true;
}

/* ---- expressions, each once ------------------------------------------------------------------------------------ */

static bool is_list(uint8_t kind) { return kind == KIND_OR || kind == KIND_AND; }

static uint32_t mix(uint32_t h, uint32_t v)
{
    h = (h ^ v) * 0x9E3779B1u;
    return h ^ h >> 15;
}

static uint32_t hash_of(const struct langs *x, const struct expr *e)
{
    uint32_t h = mix(0x811C9DC5u, e->kind);
    if (is_list(e->kind)) {
        for (uint32_t i = 0; i < e->b; i++) h = mix(h, x->pool.list[e->a + i]);
        return h;
    }
    return mix(mix(mix(mix(h, e->a), e->b), e->c), e->d);
}

static bool same(const struct langs *x, const struct expr *p, const struct expr *q)
{
    if (p->kind != q->kind || p->b != q->b) return false;
    if (is_list(p->kind)) return !memcmp(x->pool.list + p->a, x->pool.list + q->a, p->b * sizeof(uint32_t));
    return p->a == q->a && p->c == q->c && p->d == q->d;
}

static bool rehash(struct langs *x)
{
    const uint32_t n = x->n_buckets ? 2 * x->n_buckets : FIRST_BUCKETS;
    uint32_t *buckets = calloc(n, sizeof *buckets);
    if (!buckets) {
        (void)no_memory(x);
        return false;
    }
    free(x->buckets);
    x->buckets = buckets;
    x->n_buckets = n;
    for (uint32_t i = 1; i < x->n_exprs; i++) {
        uint32_t *bucket = &buckets[hash_of(x, &x->exprs[i]) & (n - 1)];
        x->exprs[i].chain = *bucket;
        *bucket = i;
    }
    return true;
}

/* The expression's id: an older one's, if there is one like it. Operands of a list lie at the end of the pool. */
static lang_id intern(struct langs *x, const struct expr *e)
{
    if (!langs_step(x, 1 + (is_list(e->kind) ? e->b / 4 : 0))) return LANG_NONE;
    if (x->n_exprs >= x->n_buckets && !rehash(x)) return LANG_NONE;
    uint32_t *bucket = &x->buckets[hash_of(x, e) & (x->n_buckets - 1)];
    for (uint32_t i = *bucket; i; i = x->exprs[i].chain) {
        if (!same(x, &x->exprs[i], e)) continue;
        if (is_list(e->kind)) x->pool.n = e->a;
        return i;
    }
    if (x->n_exprs >= LANG_MAX_EXPRESSIONS)
        return langs_fail(x, WK_UNSUPPORTED, "the automata need more than 131,072 expressions: too many states");
    if (e->depth > LANG_MAX_DEPTH) return langs_fail(x, WK_UNSUPPORTED, "an expression is nested too deeply");
    if (!grow(x, (void **)&x->exprs, &x->cap_exprs, (uint64_t)x->n_exprs + 1, sizeof *x->exprs)) return LANG_NONE;
    x->exprs[x->n_exprs] = *e;
    x->exprs[x->n_exprs].chain = *bucket;
    *bucket = x->n_exprs;
    return x->n_exprs++;
}

static uint8_t flags(const struct langs *x, lang_id id) { return x->exprs[id].flags; }
static bool accepts(const struct langs *x, lang_id id) { return flags(x, id) & EXPR_ACCEPTS; }
static uint16_t depth(const struct langs *x, lang_id id) { return x->exprs[id].depth; }

static uint16_t deeper(uint16_t a, uint16_t b)
{
    const uint16_t most = a > b ? a : b;
    return most < LANG_MAX_DEPTH ? (uint16_t)(most + 1) : LANG_MAX_DEPTH + 1;
}

wk_status langs_open(const struct lang_watch *watch, struct langs **out, const struct wk_err *err)
{
    *out = NULL;
    struct langs *x = calloc(1, sizeof *x);
    if (!x) return wk_fail(err, WK_NO_MEMORY, "no memory for an automaton");
    if (watch) x->watch = *watch;
    x->ask_at = ASK_STEPS;
    const struct lang_range all = { 0, LANG_MAX_CHAR };
    /* Expression 0 is no expression; row 0 no row. */
    bool made = grow(x, (void **)&x->exprs, &x->cap_exprs, 1, sizeof *x->exprs) &&
                grow(x, (void **)&x->ranges, &x->cap_ranges, 1, sizeof *x->ranges) && numbers_push(x, &x->rows, 0);
    if (made) {
        x->exprs[0] = (struct expr){ .kind = KIND_NOTHING };
        x->n_exprs = 1;
        const uint8_t whole = EXPR_ACCEPTS | EXPR_POSITIVE;
        made = intern(x, &(struct expr){ .kind = KIND_NOTHING, .flags = EXPR_DEAD | EXPR_FINITE }) == LANG_NOTHING &&
               intern(x, &(struct expr){ .kind = KIND_EMPTY, .flags = whole | EXPR_FINITE }) == LANG_EMPTY &&
               lang_set(x, NULL, 0) == 0 && lang_from_set(x, lang_set(x, &all, 1)) == LANG_ANY_CHAR &&
               intern(x, &(struct expr){ .kind = KIND_EVERYTHING, .flags = whole | EXPR_OPEN }) == LANG_EVERYTHING;
    }
    if (!made) {
        langs_close(x);
        return wk_fail(err, WK_NO_MEMORY, "no memory for an automaton");
    }
    *out = x;
    return WK_OK;
}

void langs_close(struct langs *x)
{
    if (!x) return;
    for (uint32_t i = 0; i < x->n_tables; i++) {
        free(x->tables[i].bytes);
        free(x->tables[i].at);
    }
    free(x->exprs);
    free(x->buckets);
    free(x->pool.list);
    free(x->scratch.list);
    free(x->sets);
    free(x->ranges);
    free(x->tables);
    free(x->partitions);
    free(x->numbers.list);
    free(x->rows.list);
    free(x);
}

uint64_t langs_bytes(const struct langs *x)
{
    const uint64_t numbers = (uint64_t)x->pool.cap + x->scratch.cap + x->numbers.cap + x->rows.cap + x->n_buckets;
    return sizeof *x + x->cap_exprs * sizeof *x->exprs + x->cap_sets * sizeof *x->sets +
           x->cap_ranges * sizeof *x->ranges + x->cap_partitions * sizeof *x->partitions + numbers * sizeof(uint32_t) +
           x->words_bytes;
}

uint32_t langs_states(const struct langs *x) { return x->n_rows; }

/* ---- sets of characters ---------------------------------------------------------------------------------------- */

static int by_first(const void *a, const void *b)
{
    const struct lang_range *p = a, *q = b;
    return (p->first > q->first) - (p->first < q->first);
}

/* Ranges from `base` on, sorted, joined, without surrogates: a set, found or new. */
static uint32_t keep_set(struct langs *x, uint32_t base)
{
    struct lang_range *r = x->ranges + base;
    const uint32_t n = x->n_ranges - base;
    if (!langs_step(x, 1 + n + (x->n_sets < 512 ? x->n_sets : 512) / 16)) return UINT32_MAX;
    if (n) qsort(r, n, sizeof *r, by_first);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (kept && r[i].first <= r[kept - 1].last + 1) {
            if (r[i].last > r[kept - 1].last) r[kept - 1].last = r[i].last;
        } else {
            r[kept++] = r[i];
        }
    }
    x->n_ranges = base + kept;
    /* Few sets are alike and few there are; a search from the latest on is enough below some hundreds. */
    const uint32_t most = x->n_sets < 512 ? x->n_sets : 512;
    for (uint32_t k = 1; k <= most; k++) {
        const struct char_set *s = &x->sets[x->n_sets - k];
        if (s->n != kept || memcmp(x->ranges + s->at, x->ranges + base, kept * sizeof *r) != 0) continue;
        x->n_ranges = base;
        return x->n_sets - k;
    }
    if (!grow(x, (void **)&x->sets, &x->cap_sets, (uint64_t)x->n_sets + 1, sizeof *x->sets)) return UINT32_MAX;
    x->sets[x->n_sets] = (struct char_set){ base, kept };
    return x->n_sets++;
}

static bool push_range(struct langs *x, uint32_t first, uint32_t last)
{
    if (first > last) return true;
    if (!grow(x, (void **)&x->ranges, &x->cap_ranges, (uint64_t)x->n_ranges + 1, sizeof *x->ranges)) return false;
    x->ranges[x->n_ranges++] = (struct lang_range){ first, last };
    return true;
}

/* A range but for its surrogates and what lies above the last character. */
static bool push_characters(struct langs *x, struct lang_range r)
{
    const uint32_t last = r.last < LANG_MAX_CHAR ? r.last : LANG_MAX_CHAR;
    const uint32_t low = last < SURROGATE_FIRST ? last : SURROGATE_FIRST - 1;
    const uint32_t high = r.first > SURROGATE_LAST ? r.first : SURROGATE_LAST + 1;
    return push_range(x, r.first, low) && push_range(x, high, last);
}

uint32_t lang_set(struct langs *x, const struct lang_range *ranges, size_t n)
{
    const uint32_t base = x->n_ranges;
    for (size_t i = 0; i < n; i++)
        if (!push_characters(x, ranges[i])) return UINT32_MAX;
    return keep_set(x, base);
}

lang_id lang_from_set(struct langs *x, uint32_t set)
{
    if (set == UINT32_MAX) return LANG_NONE;
    if (!x->sets[set].n) return LANG_NOTHING;
    return intern(x, &(struct expr){ .kind = KIND_CHARS, .a = set, .flags = EXPR_POSITIVE | EXPR_FINITE });
}

lang_id lang_chars(struct langs *x, const struct lang_range *ranges, size_t n)
{
    return lang_from_set(x, lang_set(x, ranges, n));
}

static uint32_t join_sets(struct langs *x, uint32_t p, uint32_t q)
{
    const uint32_t base = x->n_ranges;
    for (int k = 0; k < 2; k++) {
        const struct char_set s = x->sets[k ? q : p];
        for (uint32_t i = 0; i < s.n; i++)
            if (!push_range(x, x->ranges[s.at + i].first, x->ranges[s.at + i].last)) return UINT32_MAX;
    }
    return keep_set(x, base);
}

static uint32_t meet_sets(struct langs *x, uint32_t p, uint32_t q)
{
    const uint32_t base = x->n_ranges;
    const struct char_set s = x->sets[p], t = x->sets[q];
    for (uint32_t i = 0, j = 0; i < s.n && j < t.n;) {
        const struct lang_range a = x->ranges[s.at + i], b = x->ranges[t.at + j];
        if (!push_range(x, a.first > b.first ? a.first : b.first, a.last < b.last ? a.last : b.last)) return UINT32_MAX;
        if (a.last < b.last)
            i++;
        else
            j++;
    }
    return keep_set(x, base);
}

/* ---- words ----------------------------------------------------------------------------------------------------- */

int lang_compare_words(const struct lang_word *a, const struct lang_word *b)
{
    const size_t n = a->len < b->len ? a->len : b->len;
    const int order = n ? memcmp(a->text, b->text, n) : 0;
    return order ? order : (a->len > b->len) - (a->len < b->len);
}

static int by_text(const void *a, const void *b) { return lang_compare_words(a, b); }

/* Copies sorted words into a table. */
static bool fill_table(struct word_table *t, const struct lang_word *words, size_t n, size_t bytes)
{
    t->bytes = malloc(bytes ? bytes : 1);
    t->at = malloc((n + 1) * sizeof *t->at);
    if (!t->bytes || !t->at) return false;
    uint32_t at = 0;
    for (size_t i = 0; i < n; i++) {
        if (i && !lang_compare_words(&words[i - 1], &words[i])) continue;
        t->at[t->n++] = at;
        if (words[i].len) memcpy(t->bytes + at, words[i].text, words[i].len);
        at += (uint32_t)words[i].len;
    }
    t->at[t->n] = at;
    return true;
}

uint32_t lang_word_table(struct langs *x, const struct lang_word *words, size_t n)
{
    static const char *const too_many = "fixed texts have more than 4 MiB";
    uint64_t bytes = 0;
    if (!langs_step(x, n)) return UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        if (!utf8_is_valid(words[i].text, words[i].len))
            return langs_fail(x, WK_INVALID, "a text is not UTF-8"), UINT32_MAX;
        bytes += words[i].len + sizeof(uint32_t);
        if (bytes > MAX_WORDS) return langs_fail(x, WK_UNSUPPORTED, too_many), UINT32_MAX;
    }
    x->words_bytes += bytes;
    if (x->words_bytes > MAX_WORDS) return langs_fail(x, WK_UNSUPPORTED, too_many), UINT32_MAX;
    if (!grow(x, (void **)&x->tables, &x->cap_tables, (uint64_t)x->n_tables + 1, sizeof *x->tables)) return UINT32_MAX;
    struct word_table *t = &x->tables[x->n_tables++];
    *t = (struct word_table){ 0 };
    if (!fill_table(t, words, n, (size_t)bytes)) return no_memory(x), UINT32_MAX;
    return x->n_tables - 1;
}

lang_id lang_words(struct langs *x, const struct lang_word *words, size_t n)
{
    if (!n) return LANG_NOTHING;
    if (!langs_step(x, n)) return LANG_NONE;
    struct lang_word *sorted = malloc(n * sizeof *sorted);
    if (!sorted) return no_memory(x);
    memcpy(sorted, words, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_text);
    const uint32_t table = lang_word_table(x, sorted, n);
    free(sorted);
    return table == UINT32_MAX ? LANG_NONE : lang_words_from(x, table, 0, x->tables[table].n - 1, 0);
}

lang_id lang_words_from(struct langs *x, uint32_t table, uint32_t first, uint32_t last, uint32_t skip)
{
    uint32_t len;
    (void)word_at(&x->tables[table], first, &len);
    if (len == skip && first == last) return LANG_EMPTY;
    const uint8_t f = EXPR_POSITIVE | EXPR_FINITE | (len == skip ? EXPR_ACCEPTS : 0);
    return intern(x, &(struct expr){ .kind = KIND_WORDS, .a = table, .b = first, .c = last, .d = skip, .flags = f });
}

lang_id lang_text(struct langs *x, const char *text, size_t n)
{
    if (!n) return LANG_EMPTY;
    return lang_words(x, &(struct lang_word){ text, n }, 1);
}

/* ---- union and intersection ------------------------------------------------------------------------------------ */

static int by_number(const void *a, const void *b)
{
    const uint32_t p = *(const uint32_t *)a, q = *(const uint32_t *)b;
    return (p > q) - (p < q);
}

/* Operands that are lists of the same kind are replaced by their own. */
static bool flatten(struct langs *x, enum lang_kind kind, uint32_t base)
{
    const uint32_t n = x->scratch.n;
    uint32_t kept = base;
    for (uint32_t i = base; i < n; i++) {
        const lang_id id = x->scratch.list[i];
        const struct expr *e = &x->exprs[id];
        if (e->kind != kind) {
            x->scratch.list[kept++] = id;
            continue;
        }
        if (!numbers_room(x, &x->scratch, e->b)) return false;
        memcpy(x->scratch.list + x->scratch.n, x->pool.list + e->a, e->b * sizeof(uint32_t));
        x->scratch.n += e->b;
    }
    const uint32_t added = x->scratch.n - n;
    memmove(x->scratch.list + kept, x->scratch.list + n, added * sizeof(uint32_t));
    x->scratch.n = kept + added;
    return true;
}

/* Sets of characters become one; the same operand comes once. False: failed. */
static bool merge_operands(struct langs *x, enum lang_kind kind, uint32_t base)
{
    uint32_t set = UINT32_MAX, kept = base;
    for (uint32_t i = base; i < x->scratch.n; i++) {
        const lang_id id = x->scratch.list[i];
        const struct expr *e = &x->exprs[id];
        if (e->kind != KIND_CHARS) {
            x->scratch.list[kept++] = id;
        } else if (set == UINT32_MAX) {
            set = e->a;
        } else {
            set = kind == KIND_OR ? join_sets(x, set, e->a) : meet_sets(x, set, e->a);
            if (set == UINT32_MAX) return false;
        }
    }
    x->scratch.n = kept;
    if (set != UINT32_MAX) {
        const lang_id chars = lang_from_set(x, set);
        if (!chars || !numbers_push(x, &x->scratch, chars)) return false;
    }
    uint32_t *list = x->scratch.list;
    qsort(list + base, x->scratch.n - base, sizeof *list, by_number);
    kept = base;
    for (uint32_t i = base; i < x->scratch.n; i++)
        if (kept == base || list[kept - 1] != list[i]) list[kept++] = list[i];
    x->scratch.n = kept;
    return true;
}

/* Does the list hold an operand and its complement? */
static bool has_opposites(const struct langs *x, uint32_t base)
{
    const uint32_t *list = x->scratch.list, n = x->scratch.n - base;
    for (uint32_t i = base; i < x->scratch.n; i++) {
        const struct expr *e = &x->exprs[list[i]];
        if (e->kind == KIND_NOT && bsearch(&e->a, list + base, n, sizeof *list, by_number)) return true;
    }
    return false;
}

/* Counters of lengths (`.{a,b}`) among operands of an intersection become one. */
static bool merge_lengths(struct langs *x, uint32_t base)
{
    uint32_t min = 0, max = LANG_UNBOUNDED, kept = base, *list = x->scratch.list;
    for (uint32_t i = base; i < x->scratch.n; i++) {
        const struct expr *e = &x->exprs[list[i]];
        if (e->kind == KIND_REPEAT && e->a == LANG_ANY_CHAR) {
            if (e->b > min) min = e->b;
            if (e->c < max) max = e->c;
        } else {
            list[kept++] = list[i];
        }
    }
    if (kept == x->scratch.n) return true;
    x->scratch.n = kept;
    const lang_id length = lang_repeat(x, LANG_ANY_CHAR, min, max);
    return length && numbers_push(x, &x->scratch, length);
}

static lang_id make_list(struct langs *x, enum lang_kind kind, uint32_t base)
{
    const uint32_t n = x->scratch.n - base;
    uint8_t all = EXPR_ACCEPTS | EXPR_POSITIVE | EXPR_FINITE, any = 0;
    uint16_t most = 0;
    if (x->pool.n + n > MAX_OPERANDS)
        return langs_fail(x, WK_UNSUPPORTED, "the automata need more than 1,048,576 operands: too many states");
    if (!numbers_room(x, &x->pool, n)) return LANG_NONE;
    for (uint32_t i = 0; i < n; i++) {
        const lang_id id = x->scratch.list[base + i];
        all &= flags(x, id);
        any |= flags(x, id);
        if (depth(x, id) > most) most = depth(x, id);
        x->pool.list[x->pool.n + i] = id;
    }
    struct expr e = { .kind = (uint8_t)kind, .a = x->pool.n, .b = n, .depth = deeper(most, 0) };
    /* A union has a text if one operand has; an intersection for certain only if the empty one is in all. */
    e.flags = kind == KIND_OR ? (any & (EXPR_ACCEPTS | EXPR_POSITIVE | EXPR_OPEN)) | (all & EXPR_FINITE)
                              : (all & EXPR_ACCEPTS) | (any & EXPR_FINITE);
    if (e.flags & EXPR_ACCEPTS) e.flags |= EXPR_POSITIVE;
    x->pool.n += n;
    return intern(x, &e);
}

static lang_id combine(struct langs *x, enum lang_kind kind, uint32_t base)
{
    if (!langs_step(x, 1 + x->scratch.n - base)) return LANG_NONE;
    const lang_id neutral = kind == KIND_OR ? LANG_NOTHING : LANG_EVERYTHING;
    const lang_id winner = kind == KIND_OR ? LANG_EVERYTHING : LANG_NOTHING;
    if (!flatten(x, kind, base) || !langs_step(x, x->scratch.n - base) || !merge_operands(x, kind, base))
        return LANG_NONE;
    if (kind == KIND_AND && (!merge_lengths(x, base) || !merge_operands(x, kind, base))) return LANG_NONE;
    uint32_t kept = base, accepting = 0;
    bool empty = false;
    for (uint32_t i = base; i < x->scratch.n; i++) accepting += accepts(x, x->scratch.list[i]);
    for (uint32_t i = base; i < x->scratch.n; i++) {
        const lang_id id = x->scratch.list[i];
        if (id == LANG_NONE || id == winner) return id;
        empty |= id == LANG_EMPTY;
        if (id == neutral || (id == LANG_EMPTY && kind == KIND_OR && accepting > 1)) continue;
        x->scratch.list[kept++] = id;
    }
    x->scratch.n = kept;
    if (kind == KIND_AND && empty) {
        for (uint32_t i = base; i < kept; i++)
            if (!accepts(x, x->scratch.list[i])) return LANG_NOTHING;
        return LANG_EMPTY;
    }
    if (kept == base) return neutral;
    if (kept == base + 1) return x->scratch.list[base];
    if (has_opposites(x, base)) return winner;
    return make_list(x, kind, base);
}

lang_id lang_combine(struct langs *x, enum lang_kind kind, uint32_t base)
{
    const lang_id id = combine(x, kind, base);
    x->scratch.n = base;
    return id;
}

static lang_id combine_two(struct langs *x, enum lang_kind kind, lang_id a, lang_id b)
{
    if (!a || !b) return LANG_NONE;
    if (a == b) return a;
    const uint32_t base = x->scratch.n;
    if (!numbers_push(x, &x->scratch, a) || !numbers_push(x, &x->scratch, b)) return LANG_NONE;
    return lang_combine(x, kind, base);
}

lang_id lang_or(struct langs *x, lang_id a, lang_id b) { return combine_two(x, KIND_OR, a, b); }

/* Is the expression all words of a table? */
static bool is_table(const struct langs *x, lang_id id)
{
    const struct expr *e = &x->exprs[id];
    return e->kind == KIND_WORDS && !e->d && !e->b && e->c + 1 == x->tables[e->a].n;
}

/* The words of all tables among the parts as one; LANG_NONE: failed. */
static lang_id join_tables(struct langs *x, const lang_id *parts, size_t n, size_t n_words)
{
    struct lang_word *words = malloc(n_words * sizeof *words);
    size_t at = 0;
    if (!words) return no_memory(x);
    for (size_t i = 0; i < n; i++) {
        if (!is_table(x, parts[i])) continue;
        const struct word_table *t = &x->tables[x->exprs[parts[i]].a];
        for (uint32_t k = 0; k < t->n; k++) {
            uint32_t len;
            const char *text = word_at(t, k, &len);
            words[at++] = (struct lang_word){ text, len };
        }
    }
    const lang_id id = lang_words(x, words, at);
    free(words);
    return id;
}

lang_id lang_any_of(struct langs *x, const lang_id *parts, size_t n)
{
    const uint32_t base = x->scratch.n;
    size_t n_tables = 0, n_words = 0;
    for (size_t i = 0; i < n; i++) {
        if (!parts[i] || !langs_step(x, 1)) return LANG_NONE;
        if (!is_table(x, parts[i])) continue;
        n_tables++;
        n_words += x->tables[x->exprs[parts[i]].a].n;
    }
    const lang_id words = n_tables > 1 ? join_tables(x, parts, n, n_words) : LANG_NOTHING;
    bool pushed = words && numbers_push(x, &x->scratch, words);
    for (size_t i = 0; pushed && i < n; i++)
        if (n_tables < 2 || !is_table(x, parts[i])) pushed = numbers_push(x, &x->scratch, parts[i]);
    if (pushed) return lang_combine(x, KIND_OR, base);
    x->scratch.n = base;
    return LANG_NONE;
}

lang_id lang_and(struct langs *x, lang_id a, lang_id b) { return combine_two(x, KIND_AND, a, b); }
lang_id lang_minus(struct langs *x, lang_id a, lang_id b) { return lang_and(x, a, lang_not(x, b)); }

/* ---- the other forms ------------------------------------------------------------------------------------------- */

lang_id lang_not(struct langs *x, lang_id a)
{
    if (!a) return LANG_NONE;
    const struct expr *e = &x->exprs[a];
    if (a == LANG_NOTHING) return LANG_EVERYTHING;
    if (a == LANG_EVERYTHING) return LANG_NOTHING;
    if (e->kind == KIND_NOT) return e->a;
    uint8_t f = e->flags & EXPR_ACCEPTS ? 0 : EXPR_ACCEPTS | EXPR_POSITIVE;
    if (e->flags & EXPR_FINITE) f |= EXPR_POSITIVE | EXPR_OPEN; /* all long texts are in it */
    return intern(x, &(struct expr){ .kind = KIND_NOT, .a = a, .flags = f, .depth = deeper(e->depth, 0) });
}

lang_id lang_concat(struct langs *x, lang_id a, lang_id b)
{
    if (!a || !b) return LANG_NONE;
    if (a == LANG_NOTHING || b == LANG_NOTHING) return LANG_NOTHING;
    if (a == LANG_EMPTY) return b;
    if (b == LANG_EMPTY) return a;
    const struct expr *p = &x->exprs[a], *q = &x->exprs[b];
    /* a* a* is a*, and so is a* before it. */
    const bool any = a == LANG_EVERYTHING || (p->kind == KIND_REPEAT && !p->b && p->c == LANG_UNBOUNDED);
    if (any && (b == a || (q->kind == KIND_CONCAT && q->a == a))) return b;
    struct expr e = { .kind = KIND_CONCAT, .a = a, .b = b };
    e.flags = p->flags & q->flags & (EXPR_ACCEPTS | EXPR_POSITIVE | EXPR_FINITE);
    if (p->flags & EXPR_OPEN && q->flags & EXPR_POSITIVE) e.flags |= EXPR_OPEN;
    /* Derivatives follow the right side in a loop. */
    e.depth = deeper(p->depth, 0) > q->depth ? deeper(p->depth, 0) : q->depth;
    return intern(x, &e);
}

lang_id lang_repeat(struct langs *x, lang_id a, uint32_t min, uint32_t max)
{
    if (!a) return LANG_NONE;
    if (min > max) return LANG_NOTHING;
    if (!max || a == LANG_EMPTY) return LANG_EMPTY;
    if (a == LANG_NOTHING) return min ? LANG_NOTHING : LANG_EMPTY;
    const struct expr *e = &x->exprs[a];
    if (a == LANG_EVERYTHING) return a;
    if (e->flags & EXPR_ACCEPTS) min = 0;
    if (min == 1 && max == 1) return a;
    if (a == LANG_ANY_CHAR && !min && max == LANG_UNBOUNDED) return LANG_EVERYTHING;
    if (e->kind == KIND_REPEAT && e->b <= 1 && (e->c == LANG_UNBOUNDED || e->c == 1) && max == LANG_UNBOUNDED)
        return lang_repeat(x, e->a, e->b * min, max); /* (a*)*, (a+)*, (a?)* and their like */
    struct expr r = { .kind = KIND_REPEAT, .a = a, .b = min, .c = max, .depth = deeper(e->depth, 0) };
    r.flags = min ? e->flags & EXPR_POSITIVE : EXPR_ACCEPTS | EXPR_POSITIVE;
    if (max != LANG_UNBOUNDED)
        r.flags |= e->flags & EXPR_FINITE;
    else if (a == LANG_ANY_CHAR)
        r.flags |= EXPR_OPEN;
    return intern(x, &r);
}

lang_id lang_multiple(struct langs *x, uint32_t divisor, uint32_t rest, uint32_t where, uint32_t places)
{
    uint64_t left = rest;
    for (uint32_t j = where < AT_FRACTION ? 0 : where - AT_FRACTION; j < places && left; j++)
        left = left * 10 % divisor;
    const uint8_t f = where != AT_START && !left ? EXPR_ACCEPTS | EXPR_POSITIVE : 0;
    return intern(
        x, &(struct expr){ .kind = KIND_MULTIPLE, .a = divisor, .b = rest, .c = where, .d = places, .flags = f });
}

lang_id lang_length(struct langs *x, uint32_t min, uint32_t max) { return lang_repeat(x, LANG_ANY_CHAR, min, max); }
