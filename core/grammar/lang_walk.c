/* lang_walk.c: automata, made while they are walked. A state is an expression; its row holds the state behind each
 * class of characters that the expression tells apart. Also what is proved about languages by looking at all their
 * states. See lang.h. */
#include "grammar/lang_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum {
    MAX_ROWS = 1 << 20,    /* numbers in all rows, and in all partitions */
    MANY_SETS = 64,        /* more are not compared: each interval is a class of its own */
    RECENT_CLASSES = 64,   /* that an interval is compared with; one class too many does no harm */
    PREPARED_EXPRS = 4096, /* that lang_prepare may make */
    PREPARED_OPERANDS = 16384,
    SURROGATE_FIRST = 0xD800,
    SURROGATE_END = 0xE000
};

static bool accepts(const struct langs *x, lang_id id) { return x->exprs[id].flags & EXPR_ACCEPTS; }

bool lang_accepts(const struct langs *x, lang_id state) { return accepts(x, state); }

/* ---- derivatives ----------------------------------------------------------------------------------------------- */

static lang_id derive(struct langs *x, lang_id id, uint32_t c);

static bool push_derivative(struct langs *x, lang_id id, uint32_t c)
{
    const lang_id d = derive(x, id, c);
    return d && numbers_push(x, &x->scratch, d);
}

static lang_id derive_list(struct langs *x, const struct expr *e, uint32_t c)
{
    const uint32_t base = x->scratch.n;
    for (uint32_t i = 0; i < e->b; i++)
        if (!push_derivative(x, x->pool.list[e->a + i], c)) {
            x->scratch.n = base;
            return LANG_NONE;
        }
    return lang_combine(x, e->kind, base);
}

/* Of a b c ...: what comes of a, then b c ...; and of b, if a may be empty; and so on. */
static bool push_chain(struct langs *x, lang_id id, uint32_t c)
{
    for (;;) {
        const struct expr e = x->exprs[id];
        if (e.kind != KIND_CONCAT) return push_derivative(x, id, c);
        const lang_id d = lang_concat(x, derive(x, e.a, c), e.b);
        if (!d || !numbers_push(x, &x->scratch, d)) return false;
        if (!accepts(x, e.a)) return true;
        id = e.b;
    }
}

static lang_id derive_concat(struct langs *x, lang_id id, uint32_t c)
{
    const uint32_t base = x->scratch.n;
    if (push_chain(x, id, c)) return lang_combine(x, KIND_OR, base);
    x->scratch.n = base;
    return LANG_NONE;
}

static lang_id derive_repeat(struct langs *x, const struct expr *e, uint32_t c)
{
    const uint32_t min = e->b ? e->b - 1 : 0, max = e->c == LANG_UNBOUNDED ? LANG_UNBOUNDED : e->c - 1;
    const lang_id first = derive(x, e->a, c);
    if (first == LANG_NONE || first == LANG_NOTHING) return first;
    return lang_concat(x, first, lang_repeat(x, e->a, min, max));
}

static bool set_has(const struct langs *x, uint32_t set, uint32_t c)
{
    const struct lang_range *r = x->ranges + x->sets[set].at;
    uint32_t low = 0, high = x->sets[set].n;
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (r[middle].last < c)
            low = middle + 1;
        else
            high = middle;
    }
    return low < x->sets[set].n && r[low].first <= c;
}

/* How the n bytes of `next` compare with what word i has from `skip` on. */
static int compare_at(const struct word_table *t, uint32_t i, uint32_t skip, const char *next, uint32_t n)
{
    uint32_t len;
    const char *word = word_at(t, i, &len);
    const uint32_t rest = len - skip, common = rest < n ? rest : n;
    const int order = memcmp(word + skip, next, common);
    return order ? order : rest < n ? -1 : 0;
}

uint32_t lang_word_bound(const struct word_table *t, uint32_t low, uint32_t high, uint32_t skip, const char *next,
                         uint32_t n, bool after)
{
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        const int order = compare_at(t, middle, skip, next, n);
        if (order < 0 || (after && order == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static lang_id derive_words(struct langs *x, const struct expr *e, uint32_t c)
{
    const struct word_table *t = &x->tables[e->a];
    char next[4];
    const uint32_t n = (uint32_t)utf8_encode(c, next);
    const uint32_t first = lang_word_bound(t, e->b, e->c + 1, e->d, next, n, false);
    const uint32_t end = lang_word_bound(t, first, e->c + 1, e->d, next, n, true);
    return first == end ? LANG_NOTHING : lang_words_from(x, e->a, first, end - 1, e->d + n);
}

static lang_id derive_multiple(struct langs *x, const struct expr *e, uint32_t c)
{
    if (c == '-' && e->c == AT_START) return lang_multiple(x, e->a, e->b, e->c, e->d);
    if (c == '.' && e->c == AT_INTEGER) return lang_multiple(x, e->a, e->b, AT_FRACTION, e->d);
    if (c < '0' || c > '9') return LANG_NOTHING;
    if (e->c == AT_FRACTION + e->d) /* as many places as the divisor has: only zeros follow */
        return c == '0' && !e->b ? lang_multiple(x, e->a, e->b, e->c, e->d) : LANG_NOTHING;
    const uint32_t rest = (uint32_t)(((uint64_t)e->b * 10 + (c - '0')) % e->a);
    return lang_multiple(x, e->a, rest, e->c < AT_FRACTION ? AT_INTEGER : e->c + 1, e->d);
}

static lang_id derive(struct langs *x, lang_id id, uint32_t c)
{
    const struct expr e = x->exprs[id]; /* a copy: expressions move */
    if (e.stamp == x->stamp) return e.memo;
    if (!langs_step(x, 1)) return LANG_NONE;
    lang_id d = LANG_NOTHING;
    switch ((enum lang_kind)e.kind) {
    case KIND_NOTHING:
    case KIND_EMPTY: break;
    case KIND_EVERYTHING: d = id; break;
    case KIND_CHARS: d = set_has(x, e.a, c) ? LANG_EMPTY : LANG_NOTHING; break;
    case KIND_CONCAT: d = derive_concat(x, id, c); break;
    case KIND_OR:
    case KIND_AND: d = derive_list(x, &e, c); break;
    case KIND_NOT: d = lang_not(x, derive(x, e.a, c)); break;
    case KIND_REPEAT: d = derive_repeat(x, &e, c); break;
    case KIND_WORDS: d = derive_words(x, &e, c); break;
    case KIND_MULTIPLE: d = derive_multiple(x, &e, c); break;
    }
    x->exprs[id].stamp = x->stamp;
    x->exprs[id].memo = d;
    return d;
}

/* ---- classes of characters ------------------------------------------------------------------------------------- */

static uint32_t single_set(struct langs *x, uint32_t c)
{
    if (c < 128 && x->single[c]) return x->single[c] - 1;
    const uint32_t set = lang_set(x, &(struct lang_range){ c, c }, 1);
    if (c < 128 && set != UINT32_MAX) x->single[c] = set + 1;
    return set;
}

/* Sets of the characters that may come next in the words of e. */
static bool push_word_sets(struct langs *x, const struct expr *e)
{
    for (uint32_t i = e->b; i <= e->c;) {
        const struct word_table *t = &x->tables[e->a];
        uint32_t len;
        const char *word = word_at(t, i, &len) + e->d;
        if (len == e->d) {
            i++;
            continue;
        }
        const size_t n = utf8_sequence((const unsigned char *)word, len - e->d);
        if (!langs_step(x, 2)) return false;
        const uint32_t set = single_set(x, utf8_decode((const unsigned char *)word, n));
        if (set == UINT32_MAX || !numbers_push(x, &x->scratch, set)) return false;
        i = lang_word_bound(t, i, e->c + 1, e->d, word, (uint32_t)n, true);
    }
    return true;
}

static bool push_number_sets(struct langs *x)
{
    for (const char *c = "-.0123456789"; *c; c++) {
        const uint32_t set = single_set(x, (uint32_t)*c);
        if (set == UINT32_MAX || !numbers_push(x, &x->scratch, set)) return false;
    }
    return true;
}

/* Pushes the sets that decide about the first character of `id`. */
static bool push_sets(struct langs *x, lang_id id)
{
    for (;;) {
        const struct expr e = x->exprs[id];
        if (e.stamp == x->stamp) return true;
        if (!langs_step(x, 1)) return false;
        x->exprs[id].stamp = x->stamp;
        x->exprs[id].memo = LANG_NONE;
        switch ((enum lang_kind)e.kind) {
        case KIND_NOTHING:
        case KIND_EMPTY:
        case KIND_EVERYTHING: return true;
        case KIND_CHARS: return numbers_push(x, &x->scratch, e.a);
        case KIND_WORDS: return push_word_sets(x, &e);
        case KIND_MULTIPLE: return push_number_sets(x);
        case KIND_OR:
        case KIND_AND:
            for (uint32_t i = 0; i < e.b; i++)
                if (!push_sets(x, x->pool.list[e.a + i])) return false;
            return true;
        case KIND_NOT:
        case KIND_REPEAT: id = e.a; break;
        case KIND_CONCAT:
            if (!push_sets(x, e.a)) return false;
            if (!accepts(x, e.a)) return true;
            id = e.b;
            break;
        }
    }
}

static int by_number(const void *a, const void *b)
{
    const uint32_t p = *(const uint32_t *)a, q = *(const uint32_t *)b;
    return (p > q) - (p < q);
}

static uint32_t sort_unique(uint32_t *list, uint32_t n)
{
    uint32_t kept = 0;
    qsort(list, n, sizeof *list, by_number);
    for (uint32_t i = 0; i < n; i++)
        if (!kept || list[kept - 1] != list[i]) list[kept++] = list[i];
    return kept;
}

/* Index of the interval that c lies in. */
static uint32_t interval_of(const struct langs *x, const struct partition *p, uint32_t c)
{
    const uint32_t *starts = x->numbers.list + p->starts_at;
    uint32_t low = 0, high = p->n;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (starts[middle] <= c)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Pushes the first characters of the intervals that the sets cut the alphabet into. */
static bool push_starts(struct langs *x, const struct partition *p)
{
    struct numbers *v = &x->numbers;
    const uint32_t base = v->n;
    if (!numbers_push(x, v, 0) || !numbers_push(x, v, SURROGATE_FIRST) || !numbers_push(x, v, SURROGATE_END))
        return false;
    for (uint32_t i = 0; i < p->n_sets; i++) {
        const struct char_set s = x->sets[v->list[p->sets_at + i]];
        for (uint32_t k = 0; k < s.n; k++) {
            const struct lang_range r = x->ranges[s.at + k];
            if (!numbers_push(x, v, r.first)) return false;
            if (r.last < LANG_MAX_CHAR && !numbers_push(x, v, r.last + 1)) return false;
        }
    }
    v->n = base + sort_unique(v->list + base, v->n - base);
    return langs_step(x, 2 * (v->n - base));
}

/* Gives each interval its class: those that lie in the same sets share one. */
static bool push_classes(struct langs *x, struct partition *p)
{
    struct numbers *v = &x->numbers;
    uint64_t *in = calloc(p->n, sizeof *in), recent[RECENT_CLASSES];
    if (!in || !numbers_room(x, v, p->n)) {
        free(in);
        (void)langs_fail(x, WK_NO_MEMORY, "no memory for an automaton");
        return false;
    }
    for (uint32_t i = 0; i < p->n_sets && p->n_sets <= MANY_SETS; i++) {
        const struct char_set s = x->sets[v->list[p->sets_at + i]];
        if (!langs_step(x, s.n)) break; /* the failure sticks */
        for (uint32_t k = 0; k < s.n; k++) {
            const struct lang_range r = x->ranges[s.at + k];
            for (uint32_t j = interval_of(x, p, r.first); j < p->n && v->list[p->starts_at + j] <= r.last; j++)
                in[j] |= UINT64_C(1) << i;
        }
    }
    for (uint32_t j = 0; j < p->n; j++) {
        uint32_t class = p->n_classes, first = class > RECENT_CLASSES ? class - RECENT_CLASSES : 0;
        for (uint32_t k = first; k < p->n_classes && p->n_sets <= MANY_SETS; k++)
            if (recent[k % RECENT_CLASSES] == in[j]) class = k;
        if (v->list[p->starts_at + j] == SURROGATE_FIRST) {
            class = CLASS_NONE;
        } else if (class == p->n_classes) {
            recent[class % RECENT_CLASSES] = in[j];
            p->n_classes++;
        }
        v->list[v->n++] = class;
    }
    free(in);
    return true;
}

static void fill_ascii(const struct langs *x, struct partition *p)
{
    const uint32_t *starts = x->numbers.list + p->starts_at, *classes = starts + p->n;
    for (uint32_t c = 0, j = 0; c < 128; c++) {
        if (j + 1 < p->n && starts[j + 1] <= c) j++;
        p->ascii[c] = (uint16_t)classes[j];
    }
    p->alike_above = true;
    for (uint32_t j = interval_of(x, p, 0x80), first = classes[j]; j < p->n; j++)
        p->alike_above &= classes[j] == first || classes[j] == CLASS_NONE;
}

/* A new partition for the sets that lie at the end of `numbers`. */
static bool make_partition(struct langs *x, struct partition *p)
{
    p->starts_at = x->numbers.n;
    if (!push_starts(x, p)) return false;
    p->n = x->numbers.n - p->starts_at;
    if (p->n > MAX_CLASSES) {
        (void)langs_fail(x, WK_UNSUPPORTED,
                         "a state of an automaton tells more than 65,534 ranges of characters apart");
        return false;
    }
    if (!push_classes(x, p)) return false;
    fill_ascii(x, p);
    return true;
}

static uint32_t hash_sets(const uint32_t *sets, uint32_t n)
{
    uint32_t h = 0x811C9DC5u;
    for (uint32_t i = 0; i < n; i++) h = (h ^ sets[i]) * 0x01000193u;
    return h ^ h >> 16;
}

/* Which partition a state has; UINT32_MAX: failed. */
static uint32_t partition_for(struct langs *x, lang_id id)
{
    const uint32_t base = x->scratch.n;
    x->stamp++;
    if (!push_sets(x, id)) {
        x->scratch.n = base;
        return UINT32_MAX;
    }
    const uint32_t *sets = x->scratch.list + base;
    const uint32_t n = sort_unique(x->scratch.list + base, x->scratch.n - base);
    x->scratch.n = base;
    uint32_t *bucket = &x->partition_buckets[hash_sets(sets, n) & 255];
    for (uint32_t i = *bucket; i; i = x->partitions[i - 1].chain) {
        const struct partition *p = &x->partitions[i - 1];
        if (p->n_sets == n && !memcmp(x->numbers.list + p->sets_at, sets, n * sizeof *sets)) return i - 1;
    }
    if (!numbers_room(x, &x->numbers, n)) return UINT32_MAX;
    struct partition p = { .sets_at = x->numbers.n, .n_sets = n, .chain = *bucket };
    if (n) memcpy(x->numbers.list + x->numbers.n, sets, n * sizeof *sets);
    x->numbers.n += n;
    if (!make_partition(x, &p)) return UINT32_MAX;
    if (x->n_partitions == x->cap_partitions) {
        const uint32_t cap = x->cap_partitions ? 2 * x->cap_partitions : 16;
        struct partition *moved = realloc(x->partitions, cap * sizeof *moved);
        if (!moved) return langs_fail(x, WK_NO_MEMORY, "no memory for an automaton"), UINT32_MAX;
        x->partitions = moved;
        x->cap_partitions = cap;
    }
    x->partitions[x->n_partitions] = p;
    *bucket = ++x->n_partitions;
    return x->n_partitions - 1;
}

/* ---- rows ------------------------------------------------------------------------------------------------------ */

/* Forgets all rows and partitions; expressions, and so states, stay. */
static void forget_rows(struct langs *x)
{
    for (uint32_t i = 0; i < x->n_exprs; i++) x->exprs[i].row = 0;
    memset(x->partition_buckets, 0, sizeof x->partition_buckets);
    x->n_partitions = 0;
    x->numbers.n = 0;
    x->rows.n = 1;
    x->n_rows = 0;
}

/* Where the state's row is; 0: failed. */
static uint32_t row_of(struct langs *x, lang_id id)
{
    if (x->exprs[id].row) return x->exprs[id].row;
    if (x->n_rows >= LANG_MAX_STATES || x->rows.n > MAX_ROWS || x->numbers.n > MAX_ROWS) forget_rows(x);
    const uint32_t partition = partition_for(x, id);
    if (partition == UINT32_MAX) return 0;
    const uint32_t n = x->partitions[partition].n_classes, row = x->rows.n;
    if (!numbers_room(x, &x->rows, n + 1)) return 0;
    x->rows.list[row] = partition;
    memset(x->rows.list + row + 1, 0, n * sizeof(uint32_t));
    x->rows.n += n + 1;
    x->n_rows++;
    x->exprs[id].row = row;
    return row;
}

/* The state behind a class, perhaps a dead one; c: any of the class's characters. */
static lang_id step(struct langs *x, lang_id id, uint32_t row, uint32_t class, uint32_t c)
{
    const uint32_t known = x->rows.list[row + 1 + class];
    if (known) return known;
    x->stamp++;
    const lang_id d = derive(x, id, c);
    x->rows.list[row + 1 + class] = d;
    return d;
}

static uint32_t class_of(const struct langs *x, const struct partition *p, uint32_t c)
{
    if (c < 128) return p->ascii[c];
    return x->numbers.list[p->starts_at + p->n + interval_of(x, p, c)];
}

/* ---- proofs ---------------------------------------------------------------------------------------------------- */

/* States met, and from which one. */
struct proof {
    lang_id state[LANG_MAX_PROOF];
    uint16_t from[LANG_MAX_PROOF];
    uint32_t n;
};

static bool shown_live(const struct langs *x, lang_id id)
{
    return x->exprs[id].flags & (EXPR_ACCEPTS | EXPR_POSITIVE | EXPR_LIVE);
}

/* Meets all states behind state number i. LANG_YES: one of them has a text, and so have those that lead to it. */
static enum lang_answer look_behind(struct langs *x, struct proof *proof, uint32_t i)
{
    const lang_id id = proof->state[i];
    const uint32_t row = row_of(x, id);
    if (!row) return LANG_UNKNOWN;
    const struct partition p = x->partitions[x->rows.list[row]];
    for (uint32_t j = 0, done = 0; j < p.n; j++) {
        const uint32_t class = x->numbers.list[p.starts_at + p.n + j];
        if (class == CLASS_NONE || class < done) continue; /* classes are numbered as they come */
        if (!langs_step(x, 1)) return LANG_UNKNOWN;
        done = class + 1;
        const lang_id next = step(x, id, row, class, x->numbers.list[p.starts_at + j]);
        if (!next) return LANG_UNKNOWN;
        if (shown_live(x, next)) {
            for (uint32_t k = i;; k = proof->from[k]) {
                x->exprs[proof->state[k]].flags |= EXPR_LIVE;
                if (!k) return LANG_YES;
            }
        }
        if (x->exprs[next].flags & EXPR_DEAD || x->exprs[next].mark == x->mark) continue;
        if (proof->n == LANG_MAX_PROOF) return LANG_UNKNOWN;
        x->exprs[next].mark = x->mark;
        proof->state[proof->n] = next;
        proof->from[proof->n++] = (uint16_t)i;
    }
    return LANG_NO;
}

/* Has the state any text? What is found out is remembered. */
static enum lang_answer is_live(struct langs *x, lang_id id)
{
    if (!id) return LANG_UNKNOWN;
    if (shown_live(x, id)) return LANG_YES;
    if (x->exprs[id].flags & EXPR_DEAD) return LANG_NO;
    if (!langs_step(x, 8)) return LANG_UNKNOWN;
    struct proof *proof = malloc(sizeof *proof);
    if (!proof) return langs_fail(x, WK_NO_MEMORY, "no memory for an automaton"), LANG_UNKNOWN;
    x->exprs[id].mark = ++x->mark;
    proof->state[0] = id;
    proof->n = 1;
    enum lang_answer live = LANG_NO;
    for (uint32_t i = 0; i < proof->n && live == LANG_NO; i++) live = look_behind(x, proof, i);
    for (uint32_t i = 0; i < proof->n && live == LANG_NO; i++) x->exprs[proof->state[i]].flags |= EXPR_DEAD;
    free(proof);
    return live;
}

/* The state, NOTHING if no text is in it, LANG_NONE if that cannot be told. */
static lang_id live_state(struct langs *x, lang_id id)
{
    if (shown_live(x, id)) return id;
    switch (is_live(x, id)) {
    case LANG_YES: return id;
    case LANG_NO: return LANG_NOTHING;
    default:
        return langs_fail(x, WK_UNSUPPORTED,
                          "an automaton needs more than 4,096 states to tell whether a text can end");
    }
}

/* Is there much more than there was? An expression whose states are large is left for when they are needed. */
static bool grown(const struct langs *x, uint32_t exprs, uint32_t operands)
{
    return x->status || x->n_exprs - exprs > PREPARED_EXPRS || x->pool.n - operands > PREPARED_OPERANDS;
}

uint32_t lang_prepare(struct langs *x, lang_id id, uint32_t most)
{
    const uint32_t exprs = x->n_exprs, operands = x->pool.n;
    lang_id states[LANG_MAX_PREPARED] = { id };
    uint32_t n = shown_live(x, id);
    for (uint32_t i = 0; i < n && !grown(x, exprs, operands); i++) {
        const uint32_t row = row_of(x, states[i]);
        if (!row) break;
        const struct partition p = x->partitions[x->rows.list[row]];
        for (uint32_t j = 0, done = 0; j < p.n && !grown(x, exprs, operands); j++) {
            const uint32_t class = x->numbers.list[p.starts_at + p.n + j];
            if (class == CLASS_NONE || class < done) continue;
            done = class + 1;
            const lang_id next = step(x, states[i], row, class, x->numbers.list[p.starts_at + j]);
            bool met = !next || !shown_live(x, next) || n == most;
            for (uint32_t k = 0; k < n && !met; k++) met = states[k] == next;
            if (!met) states[n++] = next;
        }
    }
    return n;
}

lang_id lang_next(struct langs *x, lang_id state, uint32_t c)
{
    if (state == LANG_EVERYTHING) return state;
    const uint32_t row = row_of(x, state);
    if (!row) return LANG_NONE;
    const uint32_t class = class_of(x, &x->partitions[x->rows.list[row]], c);
    if (class == CLASS_NONE) return LANG_NOTHING;
    const lang_id next = step(x, state, row, class, c);
    return next ? live_state(x, next) : LANG_NONE;
}

lang_id lang_next_above(struct langs *x, lang_id state)
{
    if (state == LANG_EVERYTHING) return state;
    const uint32_t row = row_of(x, state);
    return row && x->partitions[x->rows.list[row]].alike_above ? lang_next(x, state, 0x80) : LANG_NONE;
}

enum lang_answer lang_next_any(struct langs *x, lang_id state, uint32_t first, uint32_t last)
{
    if (state == LANG_EVERYTHING) return LANG_YES;
    for (uint32_t c = first; c <= last;) {
        const lang_id next = c >= SURROGATE_FIRST && c < SURROGATE_END ? LANG_NOTHING : lang_next(x, state, c);
        if (next != LANG_NOTHING) return next ? LANG_YES : LANG_UNKNOWN;
        /* On to the next interval. A proof may have made rows anew. */
        const uint32_t row = row_of(x, state);
        if (!row) return LANG_UNKNOWN;
        const struct partition *p = &x->partitions[x->rows.list[row]];
        const uint32_t i = interval_of(x, p, c) + 1;
        if (i == p->n) break;
        c = x->numbers.list[p->starts_at + i];
    }
    return LANG_NO;
}

static bool add_state(lang_id *out, uint32_t *n, uint32_t cap, lang_id state)
{
    for (uint32_t i = 0; i < *n; i++)
        if (out[i] == state) return true;
    if (*n == cap) return false;
    out[(*n)++] = state;
    return true;
}

uint32_t lang_next_set(struct langs *x, const lang_id *in, uint32_t n, const struct lang_range *set, uint32_t n_set,
                       lang_id *out, uint32_t cap)
{
    uint32_t found = 0;
    bool dead = false;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < n_set; k++) {
            for (uint32_t c = set[k].first; c <= set[k].last;) {
                const lang_id next = lang_next(x, in[i], c);
                if (!next) return UINT32_MAX;
                if (next == LANG_NOTHING)
                    dead = true;
                else if (!add_state(out, &found, cap, next))
                    return UINT32_MAX;
                if (found && dead) return UINT32_MAX;
                if (in[i] == LANG_EVERYTHING) break;
                const uint32_t row = row_of(x, in[i]);
                if (!row) return UINT32_MAX;
                const struct partition *p = &x->partitions[x->rows.list[row]];
                const uint32_t interval = interval_of(x, p, c) + 1;
                if (interval == p->n) break;
                c = x->numbers.list[p->starts_at + interval];
                if (c == SURROGATE_FIRST) c = SURROGATE_END;
            }
        }
    }
    return found;
}

/* ---- questions ----------------------------------------------------------------------------------------------------
 */

static enum lang_answer opposite(enum lang_answer a)
{
    return a == LANG_UNKNOWN ? a : a == LANG_YES ? LANG_NO : LANG_YES;
}

enum lang_answer lang_is_empty(struct langs *x, lang_id a) { return opposite(is_live(x, a)); }

enum lang_answer lang_disjoint(struct langs *x, lang_id a, lang_id b) { return lang_is_empty(x, lang_and(x, a, b)); }

enum lang_answer lang_contains(struct langs *x, lang_id a, lang_id part)
{
    return lang_is_empty(x, lang_minus(x, part, a));
}

bool lang_matches(struct langs *x, lang_id a, const char *text, size_t n)
{
    for (size_t i = 0, len; a && i < n; i += len) {
        len = utf8_sequence((const unsigned char *)text + i, n - i);
        if (!len) return false;
        const uint32_t c = utf8_decode((const unsigned char *)text + i, len), row = row_of(x, a);
        if (!row) return false;
        a = step(x, a, row, class_of(x, &x->partitions[x->rows.list[row]], c), c);
    }
    return a && accepts(x, a);
}

/* Adds the states behind state `from` that have a text. *found: is there one? False: too many, or a failure. */
static bool add_states(struct langs *x, lang_id from, lang_id *met, uint32_t *n, uint32_t cap, bool *found)
{
    *found = false;
    for (uint32_t c = 0; c <= LANG_MAX_CHAR;) {
        const lang_id next = c >= SURROGATE_FIRST && c < SURROGATE_END ? LANG_NOTHING : lang_next(x, from, c);
        if (!next || !langs_step(x, 1 + *n / 4)) return false;
        *found |= next != LANG_NOTHING;
        if (next != LANG_NOTHING && !add_state(met, n, cap, next)) return false;
        if (from == LANG_EVERYTHING) return true;
        const uint32_t row = row_of(x, from);
        if (!row) return false;
        const struct partition *p = &x->partitions[x->rows.list[row]];
        const uint32_t interval = interval_of(x, p, c) + 1;
        if (interval == p->n) return true;
        c = x->numbers.list[p->starts_at + interval];
    }
    return true;
}

/* Each state that can be met has another one behind it, or itself: so from none of them the texts are finitely many. */
enum lang_answer lang_goes_on(struct langs *x, lang_id a)
{
    enum { MAX_STATES = 256 };
    lang_id met[MAX_STATES] = { a };
    if (!a) return LANG_UNKNOWN;
    for (uint32_t i = 0, n = 1; i < n; i++) {
        bool found;
        if (!add_states(x, met[i], met, &n, MAX_STATES, &found)) return LANG_UNKNOWN;
        if (!found) return LANG_NO;
    }
    return LANG_YES;
}

uint32_t lang_texts(const struct langs *x, lang_id a, struct lang_word *words, uint32_t cap)
{
    const struct expr *e = &x->exprs[a];
    if (a == LANG_NOTHING) return 0;
    if (a == LANG_EMPTY && cap) return *words = (struct lang_word){ "", 0 }, 1;
    if (a == LANG_NONE || e->kind != KIND_WORDS || e->c - e->b >= cap) return UINT32_MAX;
    for (uint32_t i = e->b; i <= e->c; i++) {
        uint32_t len;
        const char *text = word_at(&x->tables[e->a], i, &len);
        words[i - e->b] = (struct lang_word){ text + e->d, len - e->d };
    }
    return e->c - e->b + 1;
}
