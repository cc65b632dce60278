/* machine.c: stacks that read characters.
 *
 * A step takes all stacks, follows every way from their tops that reads nothing (into a part, out of what is done), and
 * lets each place that it reaches read the character. Such ways are kept on a list of work, never on the C stack.
 *
 * They end. Going in, because left recursion was refused; coming out, because stacks get shorter; and a repetition
 * whose part read nothing is not gone on with: leaving it was a way already, for a part that may be empty counts as any
 * number of parts. A frame whose part is its last is not pushed at all, so right recursion does not grow a stack. */
#include "grammar/grammar_internal.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/utf8.h"

/* What is asked of the stacks: to read one character (first == last), whether some of a range can be read, or whether
 * the text may end (first > last). */
struct question {
    uint32_t first, last;
    struct tops *out; /* of one character */
    uint32_t base;    /* the first new one in it */
    bool yes;
};
static bool one(const struct question *q) { return q->first == q->last; }
static bool is(const struct question *q, uint32_t c) { return q->first == c && one(q); }

static bool fail(struct grammar *g, wk_status status, const char *why)
{
    (void)grammar_fail(g, status, "%s", why);
    return false;
}

bool machine_failed(struct grammar *g)
{
    char why[200];
    const wk_status status = langs_status(g->langs, &(struct wk_err){ why, sizeof why });
    return fail(g, status ? status : WK_INTERNAL, status ? why : "an automaton failed");
}

/* ---- frames --------------------------------------------------------------------------------------------------------
 */

static uint32_t frame_hash(uint32_t node, uint64_t at, uint32_t parent)
{
    uint64_t h = (at ^ (uint64_t)node << 40 ^ parent) * UINT64_C(0x9E3779B97F4A7C15);
    h = (h ^ h >> 29) * UINT64_C(0xBF58476D1CE4E5B9);
    return (uint32_t)(h >> 32);
}

void frame_relink(struct grammar *g, uint32_t id)
{
    struct frame *f = &g->frames[id];
    uint32_t *bucket = &g->frame_buckets[frame_hash(f->node, f->at, f->parent) & (g->n_frame_buckets - 1)];
    f->chain = *bucket;
    *bucket = id;
}

static bool grow_frames(struct grammar *g)
{
    const uint32_t cap = g->cap_frames ? 2 * g->cap_frames : 256;
    struct frame *frames = realloc(g->frames, cap * sizeof *frames);
    if (!frames) return fail(g, WK_NO_MEMORY, "no memory for a grammar's stacks");
    g->frames = frames;
    g->cap_frames = cap;
    uint32_t *buckets = calloc(cap, sizeof *buckets);
    if (!buckets) return fail(g, WK_NO_MEMORY, "no memory for a grammar's stacks");
    free(g->frame_buckets);
    g->frame_buckets = buckets;
    g->n_frame_buckets = cap;
    if (!g->n_frames) frames[g->n_frames++] = (struct frame){ .marked = true }; /* the end of the text */
    for (uint32_t i = 1; i < g->n_frames; i++) {
        if (frames[i].used) frame_relink(g, i);
    }
    return true;
}

uint32_t frame_push(struct grammar *g, uint32_t node, uint64_t at, uint32_t parent)
{
    const uint32_t hash = frame_hash(node, at, parent);
    if (g->n_frame_buckets) {
        for (uint32_t i = g->frame_buckets[hash & (g->n_frame_buckets - 1)]; i; i = g->frames[i].chain)
            if (g->frames[i].node == node && g->frames[i].at == at && g->frames[i].parent == parent) return i;
    }
    uint32_t id = g->free_frame;
    if (id) {
        g->free_frame = g->frames[id].chain;
    } else {
        if (g->n_frames >= MAX_FRAMES)
            return fail(g, WK_UNSUPPORTED, "the grammar's stacks have more than 262,144 frames"), 0;
        if (g->n_frames == g->cap_frames && !grow_frames(g)) return 0;
        id = g->n_frames++;
    }
    uint32_t *bucket = &g->frame_buckets[hash & (g->n_frame_buckets - 1)];
    g->frames[id] = (struct frame){ .node = node, .parent = parent, .at = at, .chain = *bucket, .used = true };
    *bucket = id;
    g->live_frames++;
    return id;
}

/* ---- tops and work
 * --------------------------------------------------------------------------------------------------- */

struct top machine_start(const struct grammar *g, node_id node, uint32_t parent)
{
    const struct node *n = &g->nodes[node];
    struct top t = { .node = node, .parent = parent };
    if (n->kind == OF_TEXT || n->kind == OF_STRING) t.state = n->a;
    if (n->kind == OF_OBJECT || n->kind == OF_ARRAY) t.state = g->space;
    return t;
}

/* What a frame says decides about the mask that is being made. The end of the text, frame 0, is none: NULL. */
static const struct frame *look_at(struct grammar *g, uint32_t frame)
{
    const struct frame *f = frame ? &g->frames[frame] : NULL;
    const uint32_t depth = !f ? g->bottom : f->walk == g->walk ? f->depth : 0;
    if (depth > g->deepest) g->deepest = depth;
    return f;
}

/* Where the text stands when something above `parent` is done. */
static struct top resume(struct grammar *g, uint32_t parent)
{
    const struct frame *f = look_at(g, parent);
    if (!f) return (struct top){ .node = NODE_EMPTY };
    return (struct top){ .node = f->node, .parent = f->parent, .state = g->space, .at = f->at };
}

static bool same_top(const struct top *a, const struct top *b)
{
    return a->node == b->node && a->parent == b->parent && a->state == b->state && a->escape == b->escape &&
           a->at == b->at;
}

static bool grow_tops(struct grammar *g, struct tops *out)
{
    const uint32_t cap = out->cap ? 2 * out->cap : 128;
    struct top *moved = realloc(out->list, cap * sizeof *moved);
    if (!moved) return fail(g, WK_NO_MEMORY, "no memory for a grammar's stacks");
    out->list = moved;
    out->cap = cap;
    return true;
}

/* The character was read: the text now stands at t. */
static bool emit(struct grammar *g, struct question *q, struct top t)
{
    struct tops *out = q->out;
    q->yes = true;
    if (!one(q)) return true;
    for (uint32_t i = q->base; i < out->n; i++)
        if (same_top(&out->list[i], &t)) return true;
    if (out->n - q->base == GRAMMAR_MAX_STACKS)
        return fail(g, WK_UNSUPPORTED, "the grammar is too ambiguous here: more than 64 stacks at a time");
    if (out->n == out->cap && !grow_tops(g, out)) return false;
    out->list[out->n++] = t;
    return true;
}

static bool emit_done(struct grammar *g, struct question *q, uint32_t parent) { return emit(g, q, resume(g, parent)); }

static bool add_work(struct grammar *g, struct top t, uint32_t fresh)
{
    if (g->n_work == g->cap_work) {
        const uint32_t cap = g->cap_work ? 2 * g->cap_work : 128;
        struct work *moved = realloc(g->work, cap * sizeof *moved);
        if (!moved) return fail(g, WK_NO_MEMORY, "no memory for a grammar's stacks");
        g->work = moved;
        g->cap_work = cap;
    }
    g->work[g->n_work++] = (struct work){ t, fresh };
    return true;
}

/* Where work of this step is, or where it belongs. */
static struct visited *place_of(struct grammar *g, const struct top *t, uint32_t fresh)
{
    for (uint32_t i = frame_hash(t->node, t->at, t->parent) + fresh;; i++) {
        struct visited *v = &g->visited[i & (g->cap_visited - 1)];
        if (v->stamp != g->stamp || (v->fresh == fresh && same_top(&v->top, t))) return v;
    }
}

static bool grow_visited(struct grammar *g)
{
    const uint32_t old = g->cap_visited, cap = old ? 2 * old : 256;
    if (cap > MAX_VISITED)
        return fail(g, WK_UNSUPPORTED, "the grammar is too ambiguous here: more than 8,192 ways at a time");
    struct visited *before = g->visited, *larger = calloc(cap, sizeof *larger);
    if (!larger) return fail(g, WK_NO_MEMORY, "no memory for a grammar's stacks");
    g->visited = larger;
    g->cap_visited = cap;
    for (uint32_t i = 0; i < old; i++)
        if (before[i].stamp == g->stamp) *place_of(g, &before[i].top, before[i].fresh) = before[i];
    free(before);
    return true;
}

/* Was this work met before in this step? Only places with ways that read nothing are asked about. True on failure. */
static bool met(struct grammar *g, const struct work *w)
{
    if (2 * g->n_visited >= g->cap_visited && !grow_visited(g)) return true;
    struct visited *v = place_of(g, &w->top, w->fresh);
    if (v->stamp == g->stamp) return true;
    *v = (struct visited){ w->top, w->fresh, g->stamp };
    g->n_visited++;
    return false;
}

/* Goes into a part; `at` is where the node goes on after it. last: nothing is left to do there then. */
static bool enter(struct grammar *g, const struct work *w, node_id part, uint64_t at, bool last)
{
    uint32_t parent = w->top.parent;
    if (!last) {
        parent = frame_push(g, w->top.node, at, w->top.parent);
        if (!parent) return false;
    }
    return add_work(g, machine_start(g, part, parent), w->fresh + !last);
}

/* Comes out of what is done without reading. */
static bool leave(struct grammar *g, struct question *q, const struct work *w)
{
    const uint32_t parent = w->top.parent;
    if (!parent) {
        (void)look_at(g, parent);
        if (q->first > q->last) q->yes = true;
        return true;
    }
    if (w->fresh && g->nodes[g->frames[parent].node].kind == OF_REPEAT) return true;
    return add_work(g, resume(g, parent), w->fresh ? w->fresh - 1 : 0);
}

/* ---- texts
 * ------------------------------------------------------------------------------------------------------------ */

static bool read_literal(struct grammar *g, struct question *q, const struct top *t)
{
    const struct node *n = &g->nodes[t->node];
    const unsigned char *bytes = (const unsigned char *)g->text + n->a + t->at;
    const size_t len = utf8_sequence(bytes, n->b - (size_t)t->at);
    const uint32_t c = utf8_decode(bytes, len);
    if (c < q->first || c > q->last) return true;
    if (t->at + len == n->b) return emit_done(g, q, t->parent);
    struct top next = *t;
    next.at += len;
    return emit(g, q, next);
}

static bool read_text(struct grammar *g, struct question *q, const struct work *w)
{
    const struct top *t = &w->top;
    if (one(q) && q->first < TOKEN_SYMBOL) {
        const lang_id next = lang_next(g->langs, t->state, q->first);
        if (next == LANG_NONE) return machine_failed(g);
        struct top to = *t;
        to.state = next;
        if (next == LANG_EMPTY && !emit_done(g, q, t->parent)) return false;
        if (next > LANG_EMPTY && !emit(g, q, to)) return false;
    } else if (q->first < q->last) {
        const enum lang_answer any = lang_next_any(g->langs, t->state, q->first, q->last);
        if (any == LANG_UNKNOWN) return machine_failed(g);
        if (any == LANG_YES) q->yes = true;
    }
    return lang_accepts(g->langs, t->state) ? leave(g, q, w) : true;
}

static bool read_token(struct grammar *g, struct question *q, const struct top *t)
{
    const struct node *n = &g->nodes[t->node];
    if (!one(q) || q->first < TOKEN_SYMBOL) return true;
    const uint32_t id = (q->first - TOKEN_SYMBOL) & TOKEN_ID_BITS;
    bool listed = false;
    if (n->c && q->first & CONTROL_SYMBOL) return true;
    for (uint32_t i = 0; i < n->b && !listed; i++) listed = g->parts.list[n->a + i] == id;
    return listed != (n->c != 0) ? emit_done(g, q, t->parent) : true;
}

/* ---- strings
 * ------------------------------------------------------------------------------------------------------------ */

/* Where a string's escape stands: its phase; digits read (bits 3..4); whether, and which, high surrogate came before
 * (bit 5, 6..15); the digits' value (bits 16..31). */
static uint32_t escape_of(enum string_phase phase, uint32_t digits, uint32_t high, uint32_t value)
{
    return (uint32_t)phase | digits << 3 | high | value << 16;
}
enum { HIGH_BITS = 0xFFE0, HIGH_HELD = 0x20 };
static uint32_t digits_of(uint32_t escape) { return escape >> 3 & 3; }
static uint32_t value_of(uint32_t escape) { return escape >> 16; }
static uint32_t high_of(uint32_t escape) { return escape >> 6 & 0x3FF; }

/* Names: `at` holds the range of words that fit so far (16 bits each) and how many bytes have been read. */
static uint64_t names_at(uint32_t low, uint32_t end, uint32_t read)
{
    return (uint64_t)low | (uint64_t)end << 16 | (uint64_t)read << 32;
}
static uint32_t names_low(uint64_t at) { return (uint32_t)(at & 0xFFFF); }
static uint32_t names_end(uint64_t at) { return (uint32_t)(at >> 16 & 0xFFFF); }
static uint32_t names_read(uint64_t at) { return (uint32_t)(at >> 32); }

static uint32_t which_of(uint64_t at) { return (uint32_t)(at >> 8 & 0xFFFFFF); }
static uint32_t count_of(uint64_t at) { return (uint32_t)(at >> 32); }
static enum phase phase_of(uint64_t at) { return (enum phase)(at & 15); }

/* May property j come next, where the properties before `from` are over and `count` have come? */
static bool may_come(const struct object *o, uint32_t from, uint32_t count, uint32_t j)
{
    if (j < from || !o->properties[j].enabled) return false;
    if (o->properties[from].required_from != o->properties[j].required_from) return false; /* one would be left out */
    const uint64_t behind = (uint64_t)count + 1;
    if (behind + o->properties[j + 1].required_from > o->max) return false;
    return o->n_families || behind + o->properties[j + 1].enabled_from >= o->min;
}

/* Does one of the words low..end - 1 name a property that may come? */
static bool any_name(struct grammar *g, const struct top *t, uint32_t low, uint32_t end)
{
    const struct object *o = &g->objects[g->nodes[t->node].a];
    const uint64_t at = look_at(g, t->parent)->at;
    for (uint32_t i = low; i < end; i++)
        if (may_come(o, which_of(at), count_of(at), o->order[i])) return true;
    return false;
}

/* Character c of the content of a name. False: it cannot follow. */
static bool name_char(struct grammar *g, struct top *t, uint32_t c)
{
    const struct word_table *words = &g->langs->tables[g->objects[g->nodes[t->node].a].names];
    char next[4];
    const uint32_t n = (uint32_t)utf8_encode(c, next), skip = names_read(t->at);
    const uint32_t low = lang_word_bound(words, names_low(t->at), names_end(t->at), skip, next, n, false);
    const uint32_t end = lang_word_bound(words, low, names_end(t->at), skip, next, n, true);
    t->at = names_at(low, end, skip + n);
    return any_name(g, t, low, end);
}

static bool name_any(struct grammar *g, const struct top *t, uint32_t first, uint32_t last)
{
    const struct word_table *words = &g->langs->tables[g->objects[g->nodes[t->node].a].names];
    const uint32_t skip = names_read(t->at);
    for (uint32_t i = names_low(t->at); i < names_end(t->at); i++) {
        uint32_t len;
        const unsigned char *word = (const unsigned char *)word_at(words, i, &len) + skip;
        if (len == skip) continue;
        const uint32_t c = utf8_decode(word, utf8_sequence(word, len - skip));
        if (c >= first && c <= last && any_name(g, t, i, i + 1)) return true;
    }
    return false;
}

/* The hash of a name with one character more. */
static uint64_t add_to_name(uint64_t hash, uint32_t c)
{
    hash = (hash ^ (c + 1)) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ hash >> 29;
}

/* Character c of the content. LANG_NO: it cannot follow. */
static enum lang_answer content_char(struct grammar *g, struct top *t, uint32_t c)
{
    const struct node *n = &g->nodes[t->node];
    if (n->kind == OF_NAMES) return name_char(g, t, c) ? LANG_YES : LANG_NO;
    if (n->flags & NODE_UNIQUE) t->at = add_to_name(t->at, c);
    if (n->a == LANG_EVERYTHING) {
        if (n->flags & NODE_UNIQUE) return LANG_YES;
        if (t->at == n->c) return LANG_NO;
        if (n->c != LANG_UNBOUNDED || t->at < n->b) t->at++;
        return LANG_YES;
    }
    const lang_id next = lang_next(g->langs, t->state, c);
    if (next == LANG_NONE) return (void)machine_failed(g), LANG_UNKNOWN;
    if (next == LANG_NOTHING) return LANG_NO;
    t->state = next;
    return LANG_YES;
}

static enum lang_answer content_any(struct grammar *g, const struct top *t, uint32_t first, uint32_t last)
{
    const struct node *n = &g->nodes[t->node];
    if (first > last) return LANG_NO;
    if (n->kind == OF_NAMES) return name_any(g, t, first, last) ? LANG_YES : LANG_NO;
    if (n->a == LANG_EVERYTHING) return t->at == n->c && !(n->flags & NODE_UNIQUE) ? LANG_NO : LANG_YES;
    const enum lang_answer any = lang_next_any(g->langs, t->state, first, last);
    if (any == LANG_UNKNOWN) (void)machine_failed(g);
    return any;
}

/* Can the four digits that begin with these still become a character that fits? */
static enum lang_answer digits_fit(struct grammar *g, const struct top *t, uint32_t escape)
{
    const uint32_t rest = 4 * (4 - digits_of(escape)), low = value_of(escape) << rest, high = low | ((1u << rest) - 1);
    const uint32_t bounds[3][2] = { { low, high < 0xD7FF ? high : 0xD7FF },
                                    { low > 0xE000 ? low : 0xE000, high },
                                    { 1, 0 } };
    /* High surrogates begin characters above 0xFFFF, 1,024 each; low ones end them. */
    uint32_t first = low > 0xD800 ? low : 0xD800, last = high < 0xDBFF ? high : 0xDBFF;
    if (escape & HIGH_HELD) {
        first = low > 0xDC00 ? low : 0xDC00;
        last = high < 0xDFFF ? high : 0xDFFF;
        const uint32_t base = 0x10000 + (high_of(escape) << 10);
        return first > last ? LANG_NO : content_any(g, t, base + (first - 0xDC00), base + (last - 0xDC00));
    }
    for (int i = 0; i < 2; i++) {
        const enum lang_answer any = content_any(g, t, bounds[i][0], bounds[i][1]);
        if (any != LANG_NO) return any;
    }
    if (first > last) return LANG_NO;
    return content_any(g, t, 0x10000 + ((first - 0xD800) << 10), 0x10000 + ((last - 0xD800) << 10) + 0x3FF);
}

static int hex_value(uint32_t c)
{
    if (c >= '0' && c <= '9') return (int)c - '0';
    if (c >= 'a' && c <= 'f') return (int)c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? (int)c - 'A' + 10 : -1;
}

static enum lang_answer read_hex(struct grammar *g, struct top *t, uint32_t c)
{
    const int digit = hex_value(c);
    if (digit < 0) return LANG_NO;
    const uint32_t digits = digits_of(t->escape) + 1, value = value_of(t->escape) << 4 | (uint32_t)digit;
    const uint32_t high = t->escape & HIGH_BITS;
    if (digits < 4) {
        t->escape = escape_of(STRING_HEX, digits, high, value);
        return digits_fit(g, t, t->escape);
    }
    const uint32_t held = high_of(high);
    if (high && (value < 0xDC00 || value > 0xDFFF)) return LANG_NO;
    if (!high && value >= 0xD800 && value <= 0xDBFF) {
        t->escape = escape_of(STRING_HIGH, 0, HIGH_HELD | (value - 0xD800) << 6, 0);
        return digits_fit(g, t, escape_of(STRING_HEX, 0, t->escape & HIGH_BITS, 0));
    }
    if (!high && value >= 0xDC00 && value <= 0xDFFF) return LANG_NO;
    t->escape = STRING_BODY;
    return content_char(g, t, high ? 0x10000 + (held << 10) + (value - 0xDC00) : value);
}

static enum lang_answer read_escape(struct grammar *g, struct top *t, uint32_t c)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    if (c == 'u') {
        t->escape = escape_of(STRING_HEX, 0, 0, 0);
        return digits_fit(g, t, t->escape);
    }
    const char *letter = c && c < 128 ? strchr(letters, (int)c) : NULL;
    if (!letter) return LANG_NO;
    t->escape = STRING_BODY;
    return content_char(g, t, (uint32_t)meanings[letter - letters]);
}

/* A backslash: can any escape follow? Every character can be written as one. */
static enum lang_answer open_escape(struct grammar *g, struct top *t)
{
    t->escape = STRING_ESCAPE;
    return content_any(g, t, 0, LANG_MAX_CHAR);
}

/* The closing quote of a name: the object goes on with its property. */
static bool close_name(struct grammar *g, struct question *q, const struct top *t)
{
    const struct object *o = &g->objects[g->nodes[t->node].a];
    const struct word_table *words = &g->langs->tables[o->names];
    const uint32_t word = names_low(t->at);
    uint32_t len;
    (void)word_at(words, word, &len);
    if (len != names_read(t->at) || !any_name(g, t, word, word + 1)) return true;
    const struct frame *f = look_at(g, t->parent);
    return emit(g, q,
                (struct top){ .node = f->node,
                              .parent = f->parent,
                              .state = g->space,
                              .at = at_phase(AT_COLON, o->order[word], count_of(f->at)) });
}

/* The frame below the names that came in an object. */
static uint32_t below_names(struct grammar *g, uint32_t parent)
{
    while (parent && g->frames[parent].node == SEEN_NODE) parent = look_at(g, parent)->parent;
    return parent;
}

/* The closing quote of a name of a family that must not come twice: the object goes on, and the name is remembered. */
static bool close_unique(struct grammar *g, struct question *q, const struct top *t)
{
    const struct frame object = *look_at(g, t->parent);
    uint32_t seen = object.parent;
    for (; seen && look_at(g, seen)->node == SEEN_NODE; seen = g->frames[seen].parent)
        if (g->frames[seen].at == t->at) return true;
    seen = frame_push(g, SEEN_NODE, t->at, object.parent);
    if (!seen) return false;
    return emit(g, q, (struct top){ .node = object.node, .parent = seen, .state = g->space, .at = object.at });
}

static bool close_string(struct grammar *g, struct question *q, const struct top *t)
{
    const struct node *n = &g->nodes[t->node];
    if (n->kind == OF_NAMES) return close_name(g, q, t);
    if (n->flags & NODE_UNIQUE) return lang_accepts(g->langs, t->state) ? close_unique(g, q, t) : true;
    const bool done = n->a == LANG_EVERYTHING ? t->at >= n->b : lang_accepts(g->langs, t->state);
    return done ? emit_done(g, q, t->parent) : true;
}

static bool read_string(struct grammar *g, struct question *q, const struct top *t)
{
    const uint32_t c = q->first;
    struct top to = *t;
    enum lang_answer fits = LANG_NO;
    if (q->first > q->last || c >= TOKEN_SYMBOL) return true;
    if (!one(q)) {
        if (string_phase_of(t) != STRING_BODY) return true;
        fits = content_any(g, t, q->first, q->last);
        if (fits == LANG_YES) q->yes = true;
        return fits != LANG_UNKNOWN;
    }
    switch (string_phase_of(t)) {
    case STRING_OPEN:
        to.escape = STRING_BODY;
        fits = c == '"' ? LANG_YES : LANG_NO;
        break;
    case STRING_BODY:
        if (c == '"') return close_string(g, q, t);
        if (c == '\\')
            fits = open_escape(g, &to);
        else if (c >= 0x20)
            fits = content_char(g, &to, c);
        break;
    case STRING_ESCAPE: fits = read_escape(g, &to, c); break;
    case STRING_HEX: fits = read_hex(g, &to, c); break;
    case STRING_HIGH:
        to.escape = (t->escape & HIGH_BITS) | STRING_HIGH_SLASH;
        fits = c == '\\' ? LANG_YES : LANG_NO;
        break;
    case STRING_HIGH_SLASH:
        to.escape = escape_of(STRING_HEX, 0, t->escape & HIGH_BITS, 0);
        fits = c == 'u' ? LANG_YES : LANG_NO;
        break;
    }
    if (fits == LANG_UNKNOWN) return false;
    return fits == LANG_YES ? emit(g, q, to) : true;
}

/* ---- objects and arrays
 * ----------------------------------------------------------------------------------------------------- */

static struct top moved(const struct grammar *g, const struct top *t, enum phase phase, uint32_t which, uint32_t count)
{
    struct top to = *t;
    to.state = g->space;
    to.at = at_phase(phase, which, count);
    return to;
}

/* White space between two tokens. */
static bool read_space(struct grammar *g, struct question *q, const struct top *t)
{
    if (!g->has_space || !one(q) || (q->first != ' ' && (q->first < '\t' || q->first > '\r'))) return true;
    const lang_id next = lang_next(g->langs, t->state, q->first);
    if (next == LANG_NONE) return machine_failed(g);
    if (next == LANG_NOTHING) return true;
    struct top to = *t;
    to.state = next;
    return emit(g, q, to);
}

static bool family_may_come(const struct object *o, uint32_t from, uint32_t count)
{
    return o->n_families && !o->properties[from].required_from && count < o->max;
}

static bool more_may_come(const struct object *o, uint32_t from, uint32_t count)
{
    if (family_may_come(o, from, count)) return true;
    for (uint32_t j = from; j < o->n; j++)
        if (may_come(o, from, count, j)) return true;
    return false;
}

/* The opening quote of a name. */
static bool open_name(struct grammar *g, struct question *q, const struct top *t)
{
    const struct object *o = &g->objects[g->nodes[t->node].a];
    const uint32_t from = which_of(t->at), count = count_of(t->at);
    if (from < o->n) {
        const uint32_t parent = frame_push(g, t->node, at_phase(AT_NEXT, from, count), t->parent);
        if (!parent) return false;
        const struct top name = {
            .node = o->names_node, .parent = parent, .escape = STRING_BODY, .at = names_at(0, o->n, 0)
        };
        if (any_name(g, &name, 0, o->n) && !emit(g, q, name)) return false;
    }
    for (uint32_t i = 0; i < o->n_families && family_may_come(o, from, count); i++) {
        const uint32_t parent = frame_push(g, t->node, at_phase(AT_COLON, o->n + i, count), t->parent);
        if (!parent) return false;
        struct top name = machine_start(g, o->families[i].name, parent);
        name.escape = STRING_BODY;
        if (!emit(g, q, name)) return false;
    }
    return true;
}

static bool enter_property(struct grammar *g, const struct work *w, const struct object *o)
{
    const uint32_t which = which_of(w->top.at), family = which < o->n ? 0 : which - o->n;
    uint32_t count = count_of(w->top.at);
    /* Without an upper bound, more than the lower one need not be told apart. */
    if (o->max != NODE_UNBOUNDED || count < o->min) count++;
    const node_id value = which < o->n ? o->properties[which].value : o->families[family].value;
    return enter(g, w, value, at_phase(AT_AFTER, which < o->n ? which + 1 : o->n, count), false);
}

static bool read_object(struct grammar *g, struct question *q, const struct work *w)
{
    const struct top *t = &w->top;
    const struct object *o = &g->objects[g->nodes[t->node].a];
    const uint32_t which = which_of(t->at), count = count_of(t->at);
    const enum phase phase = phase_of(t->at);
    if (phase == AT_OPEN) return is(q, '{') ? emit(g, q, moved(g, t, AT_FIRST, 0, 0)) : true;
    if (q->first > q->last || !read_space(g, q, t)) return q->first > q->last;
    if (phase == AT_VALUE) return enter_property(g, w, o);
    if (phase == AT_COLON) return is(q, ':') ? emit(g, q, moved(g, t, AT_VALUE, which, count)) : true;
    if (is(q, '}') && phase != AT_NEXT)
        return o->properties[which].required_from || count < o->min ? true : emit_done(g, q, below_names(g, t->parent));
    if (phase == AT_AFTER)
        return is(q, ',') && more_may_come(o, which, count) ? emit(g, q, moved(g, t, AT_NEXT, which, count)) : true;
    return is(q, '"') ? open_name(g, q, t) : true;
}

static bool enter_element(struct grammar *g, const struct work *w, const struct array *a)
{
    uint32_t count = count_of(w->top.at);
    const node_id value = count < a->n_prefix ? a->prefix[count] : a->rest;
    if (count >= a->max) return true;
    if (a->max != NODE_UNBOUNDED || count < a->min || count < a->n_prefix) count++;
    return enter(g, w, value, at_phase(AT_AFTER, 0, count), false);
}

static bool read_array(struct grammar *g, struct question *q, const struct work *w)
{
    const struct top *t = &w->top;
    const struct array *a = &g->arrays[g->nodes[t->node].a];
    const uint32_t count = count_of(t->at);
    const enum phase phase = phase_of(t->at);
    if (phase == AT_OPEN) return is(q, '[') ? emit(g, q, moved(g, t, AT_FIRST, 0, 0)) : true;
    if (q->first > q->last || !read_space(g, q, t)) return q->first > q->last;
    if (is(q, ']') && phase != AT_NEXT) return count < a->min ? true : emit_done(g, q, t->parent);
    if (phase == AT_AFTER) return is(q, ',') && count < a->max ? emit(g, q, moved(g, t, AT_NEXT, 0, count)) : true;
    return enter_element(g, w, a);
}

/* ---- all together
 * --------------------------------------------------------------------------------------------------------------- */

static bool repeat(struct grammar *g, struct question *q, const struct work *w)
{
    const struct node n = g->nodes[w->top.node];
    const uint64_t count = w->top.at;
    const bool last = count + 1 == n.c;
    const uint64_t next = n.c != NODE_UNBOUNDED || count < n.b ? count + 1 : count;
    if (count < n.c && !enter(g, w, n.a, next, last)) return false;
    return count >= n.b || g->nodes[n.a].flags & NODE_NULLABLE ? leave(g, q, w) : true;
}

static bool any_of(struct grammar *g, const struct work *w)
{
    const struct node n = g->nodes[w->top.node];
    for (uint32_t i = 0; i < n.b; i++)
        if (!add_work(g, machine_start(g, g->parts.list[n.a + i], w->top.parent), w->fresh)) return false;
    return true;
}

static bool follow(struct grammar *g, struct question *q, const struct work *w)
{
    const struct top *t = &w->top;
    const struct node n = g->nodes[t->node];
    switch ((enum node_kind)n.kind) {
    case OF_NOTHING: return true;
    case OF_EMPTY: return leave(g, q, w);
    case OF_LITERAL: return read_literal(g, q, t);
    case OF_TEXT: return read_text(g, q, w);
    case OF_TOKEN: return read_token(g, q, t);
    case OF_STRING:
    case OF_NAMES: return read_string(g, q, t);
    case OF_SEEN: return true; /* no top ever stands there */
    case OF_OBJECT: return read_object(g, q, w);
    case OF_ARRAY: return read_array(g, q, w);
    case OF_SEQUENCE:
    case OF_ANY_OF:
    case OF_REPEAT:
    case OF_RULE: break;
    }
    if (met(g, w)) return !g->status;
    if (n.kind == OF_SEQUENCE) return enter(g, w, g->parts.list[n.a + t->at], t->at + 1, t->at + 1 == n.b);
    if (n.kind == OF_ANY_OF) return any_of(g, w);
    if (n.kind == OF_RULE) return add_work(g, machine_start(g, n.a, t->parent), w->fresh);
    return repeat(g, q, w);
}

/* One stack, after others in the same step. False: a failure. */
static bool ask_one(struct grammar *g, struct top t, struct question *q)
{
    g->n_work = 0;
    if (!add_work(g, t, 0)) return false;
    while (g->n_work) {
        const struct work w = g->work[--g->n_work];
        if (!follow(g, q, &w)) return false;
        if (q->yes && !one(q)) return true;
    }
    return true;
}

static void begin_step(struct grammar *g)
{
    g->stamp++;
    g->n_visited = 0;
}

/* `in` must not lie in q->out, which moves. */
static bool ask(struct grammar *g, const struct top *in, uint32_t n, struct question *q)
{
    if (g->status) return false;
    begin_step(g);
    for (uint32_t i = 0; i < n && (one(q) || !q->yes); i++)
        if (!ask_one(g, in[i], q)) return false;
    return true;
}

bool machine_step(struct grammar *g, const struct top *in, uint32_t n, uint32_t c, struct tops *out)
{
    struct question q = { c, c, out, out->n, false };
    return ask(g, in, n, &q);
}

enum lang_answer machine_can(struct grammar *g, const struct top *in, uint32_t n, uint32_t first, uint32_t last)
{
    struct tops none = { .list = NULL };
    struct question q = { first, last, &none, 0, false };
    if (!ask(g, in, n, &q)) return LANG_UNKNOWN;
    return q.yes ? LANG_YES : LANG_NO;
}

enum lang_answer machine_complete(struct grammar *g, const struct top *in, uint32_t n)
{
    return machine_can(g, in, n, 1, 0);
}

/* ---- bytes ----------------------------------------------------------------------------------------------------- */

/* The characters that `need` more bytes can make of `value`; false: none. */
static bool range_of(const struct reading *r, uint32_t *first, uint32_t *last)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    const uint32_t bits = 6u * r->need;
    *first = r->value << bits;
    *last = *first | ((1u << bits) - 1);
    if (*first < least[r->length]) *first = least[r->length];
    if (*last > LANG_MAX_CHAR) *last = LANG_MAX_CHAR;
    if (*first >= 0xD800 && *first <= 0xDFFF) *first = 0xE000;
    if (*last >= 0xD800 && *last <= 0xDFFF) *last = 0xD7FF;
    return *first <= *last;
}

/* The commonest case, without a list of work: one stack, in the content of a string or in a text that cannot end
 * here. False: it is another case. */
static bool step_inside(struct grammar *g, struct tops *list, const struct reading *from, uint32_t c)
{
    const struct top *t = &list->list[from->first];
    const struct node *n = &g->nodes[t->node];
    struct top to = *t;
    if (n->kind == OF_STRING) {
        if (string_phase_of(t) != STRING_BODY || c < 0x20 || c == '"' || c == '\\') return false;
        const enum lang_answer fits = content_char(g, &to, c);
        if (fits != LANG_YES) return fits == LANG_NO;
    } else if (n->kind == OF_TEXT && (!t->parent || !lang_accepts(g->langs, t->state))) {
        if (!t->parent) (void)look_at(g, 0); /* it may end here, but nothing follows it */
        to.state = lang_next(g->langs, t->state, c);
        if (to.state == LANG_NOTHING) return true;
        if (to.state == LANG_NONE || to.state == LANG_EMPTY) return false;
    } else {
        return false;
    }
    if (list->n == list->cap && !grow_tops(g, list)) return false;
    list->list[list->n++] = to;
    return true;
}

bool machine_load(struct grammar *g, const struct position *p, struct tops *list, struct reading *r)
{
    *r = (struct reading){ .n = p->n, .end = p->n, .value = p->value, .need = p->need, .length = p->length };
    while (list->cap < p->n)
        if (!grow_tops(g, list)) return false;
    if (p->n) memcpy(list->list, p->tops, p->n * sizeof *list->list);
    list->n = p->n;
    return true;
}

static enum lang_answer read_character(struct grammar *g, struct tops *list, const struct reading *from, uint32_t c,
                                       struct reading *to)
{
    list->n = from->end;
    if (from->n != 1 || !step_inside(g, list, from, c)) {
        list->n = from->end;
        /* The list may move while it grows: its stacks are read one by one, by value. */
        struct question q = { c, c, list, from->end, false };
        if (g->status) return LANG_UNKNOWN;
        begin_step(g);
        for (uint32_t i = 0; i < from->n; i++)
            if (!ask_one(g, list->list[from->first + i], &q)) return LANG_UNKNOWN;
    }
    *to = (struct reading){ .first = from->end, .n = list->n - from->end, .end = list->n };
    return to->n ? LANG_YES : LANG_NO;
}

bool machine_partial(const struct reading *from, unsigned char byte, struct reading *to)
{
    uint32_t first, last;
    *to = *from;
    if (from->need) {
        if ((byte & 0xC0) != 0x80) return false;
        to->value = from->value << 6 | (byte & 0x3F);
        to->need--;
    } else {
        if (byte < 0xC2 || byte > 0xF4) return false;
        to->length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
        to->value = byte & (0x7Fu >> to->length);
        to->need = (uint8_t)(to->length - 1);
    }
    return !to->need || range_of(to, &first, &last);
}

enum lang_answer machine_byte(struct grammar *g, struct tops *list, const struct reading *from, unsigned char byte,
                              struct reading *to)
{
    uint32_t first, last;
    if (!from->need && byte < 0x80) return read_character(g, list, from, byte, to);
    if (!machine_partial(from, byte, to)) return LANG_NO;
    if (!to->need) return read_character(g, list, from, to->value, to);
    (void)range_of(to, &first, &last);
    return machine_can(g, list->list + from->first, from->n, first, last);
}
