/* machine.c: stacks that read characters.
 *
 * A step takes all stacks, follows every way from their tops that reads nothing (into a part, out of what is done), and
 * lets each place that it reaches read the character. Such ways are kept on a list of work, never on the C stack.
 *
 * They end. Going in, because left recursion was refused; coming out, because stacks get shorter; and a repetition
 * whose part read nothing is not gone on with: leaving it was a way already, for a part that may be empty counts as any
 * number of parts. A frame whose part is its last is not pushed at all, so right recursion does not grow a stack. */
#include "grammar/machine.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

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
    return t;
}

/* What a frame says decides about the mask that is being made. The end of the text, frame 0, is none: NULL. */
const struct frame *machine_look(struct grammar *g, uint32_t frame)
{
    const struct frame *f = frame ? &g->frames[frame] : NULL;
    const uint32_t depth = !f ? g->bottom : f->walk == g->walk ? f->depth : 0;
    if (depth > g->deepest) g->deepest = depth;
    return f;
}

struct top machine_resume(struct grammar *g, uint32_t parent)
{
    const struct frame *f = machine_look(g, parent);
    if (!f) return (struct top){ .node = NODE_EMPTY };
    return (struct top){ .node = f->node, .parent = f->parent, .at = f->at };
}

bool machine_same(const struct top *a, const struct top *b)
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
bool machine_emit(struct grammar *g, struct question *q, struct top t)
{
    struct tops *out = q->out;
    q->yes = true;
    if (!asks_one(q)) return true;
    for (uint32_t i = q->base; i < out->n; i++)
        if (machine_same(&out->list[i], &t)) return true;
    if (out->n - q->base == GRAMMAR_MAX_STACKS) return g->over_limit = true; /* those that are there can all be ended */
    if (out->n == out->cap && !grow_tops(g, out)) return false;
    out->list[out->n++] = t;
    return true;
}

bool machine_emit_done(struct grammar *g, struct question *q, uint32_t parent)
{
    return machine_emit(g, q, machine_resume(g, parent));
}

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
        if (v->stamp != g->stamp || (v->fresh == fresh && machine_same(&v->top, t))) return v;
    }
}

/* False: there are too many ways (g->over_limit), or no memory. */
static bool grow_visited(struct grammar *g)
{
    const uint32_t old = g->cap_visited, cap = old ? 2 * old : 256;
    if (cap > MAX_VISITED) return !(g->over_limit = true);
    struct visited *before = g->visited, *larger = calloc(cap, sizeof *larger);
    if (!larger) return fail(g, WK_NO_MEMORY, "no memory for a grammar's stacks");
    g->visited = larger;
    g->cap_visited = cap;
    for (uint32_t i = 0; i < old; i++)
        if (before[i].stamp == g->stamp) *place_of(g, &before[i].top, before[i].fresh) = before[i];
    free(before);
    return true;
}

/* Was this work met before in this step? Only places with ways that read nothing are asked about. True on failure, and
 * of what is too much: it is left out. */
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
bool machine_enter(struct grammar *g, const struct work *w, node_id part, uint64_t at, bool last)
{
    uint32_t parent = w->top.parent;
    if (!last) {
        parent = frame_push(g, w->top.node, at, w->top.parent);
        if (!parent) return false;
    }
    return add_work(g, machine_start(g, part, parent), w->fresh + !last);
}

/* Comes out of what is done without reading. */
bool machine_leave(struct grammar *g, struct question *q, const struct work *w)
{
    const uint32_t parent = w->top.parent;
    if (!parent) {
        (void)machine_look(g, parent);
        if (q->first > q->last) q->yes = true;
        return true;
    }
    if (w->fresh && g->nodes[g->frames[parent].node].kind == OF_REPEAT) return true;
    return add_work(g, machine_resume(g, parent), w->fresh ? w->fresh - 1 : 0);
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
    if (t->at + len == n->b) return machine_emit_done(g, q, t->parent);
    struct top next = *t;
    next.at += len;
    return machine_emit(g, q, next);
}

static bool read_text(struct grammar *g, struct question *q, const struct work *w)
{
    const struct top *t = &w->top;
    if (asks_one(q) && q->first < TOKEN_SYMBOL) {
        const lang_id next = lang_next(g->langs, t->state, q->first);
        if (next == LANG_NONE) return machine_failed(g);
        struct top to = *t;
        to.state = next;
        if (next == LANG_EMPTY && !machine_emit_done(g, q, t->parent)) return false;
        if (next > LANG_EMPTY && !machine_emit(g, q, to)) return false;
    } else if (q->first < q->last) {
        const enum lang_answer any = lang_next_any(g->langs, t->state, q->first, q->last);
        if (any == LANG_UNKNOWN) return machine_failed(g);
        if (any == LANG_YES) q->yes = true;
    }
    return lang_accepts(g->langs, t->state) ? machine_leave(g, q, w) : true;
}

static bool read_token(struct grammar *g, struct question *q, const struct top *t)
{
    const struct node *n = &g->nodes[t->node];
    if (!asks_one(q) || q->first < TOKEN_SYMBOL) return true;
    const uint32_t id = (q->first - TOKEN_SYMBOL) & TOKEN_ID_BITS;
    bool listed = false;
    if (n->c && q->first & CONTROL_SYMBOL) return true;
    for (uint32_t i = 0; i < n->b && !listed; i++) listed = g->parts.list[n->a + i] == id;
    return listed != (n->c != 0) ? machine_emit_done(g, q, t->parent) : true;
}

/* ---- all together
 * --------------------------------------------------------------------------------------------------------------- */

static bool repeat(struct grammar *g, struct question *q, const struct work *w)
{
    const struct node n = g->nodes[w->top.node];
    const uint64_t count = w->top.at;
    const bool last = count + 1 == n.c;
    const uint64_t next = n.c != NODE_UNBOUNDED || count < n.b ? count + 1 : count;
    if (count < n.c && !machine_enter(g, w, n.a, next, last)) return false;
    return count >= n.b || g->nodes[n.a].flags & NODE_NULLABLE ? machine_leave(g, q, w) : true;
}

static bool any_of(struct grammar *g, const struct work *w)
{
    const struct node n = g->nodes[w->top.node];
    for (uint32_t i = 0; i < n.b; i++)
        if (!add_work(g, machine_start(g, g->parts.list[n.a + i], w->top.parent), w->fresh)) return false;
    return true;
}

/* Adds the ASCII characters that may come where a stack stands. */
static bool look_ahead(struct grammar *g, const struct top *t, struct ahead *ahead)
{
    const struct node *n = &g->nodes[t->node];
    if (n->kind == OF_LITERAL) {
        const unsigned char c = (unsigned char)g->text[n->a + t->at];
        if (c < 0x80) ahead_add(ahead, c);
    } else if (n->kind == OF_TEXT) {
        for (uint32_t c = 0; c < 0x80; c++) {
            const lang_id next = lang_next_ascii(g->langs, t->state, c);
            if (next == LANG_NONE) return machine_failed(g);
            if (next != LANG_NOTHING) ahead_add(ahead, c);
        }
    } else {
        machine_json_ahead(g, t, ahead);
    }
    return true;
}

static bool follow(struct grammar *g, struct question *q, const struct work *w)
{
    const struct top *t = &w->top;
    const struct node n = g->nodes[t->node];
    if (q->ahead && !look_ahead(g, t, q->ahead)) return false;
    switch ((enum node_kind)n.kind) {
    case OF_NOTHING: return true;
    case OF_EMPTY: return machine_leave(g, q, w);
    case OF_LITERAL: return read_literal(g, q, t);
    case OF_TEXT: return read_text(g, q, w);
    case OF_TOKEN: return read_token(g, q, t);
    case OF_STRING:
    case OF_NAMES: return machine_string(g, q, t);
    case OF_SEEN: return true; /* no top ever stands there */
    case OF_OBJECT: return machine_object(g, q, w);
    case OF_ARRAY: return machine_array(g, q, w);
    case OF_SEQUENCE:
    case OF_ANY_OF:
    case OF_REPEAT:
    case OF_RULE: break;
    }
    if (met(g, w)) return !g->status;
    if (n.kind == OF_SEQUENCE) return machine_enter(g, w, g->parts.list[n.a + t->at], t->at + 1, t->at + 1 == n.b);
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
        if (q->yes && !asks_one(q) && !q->ahead) return true;
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
    for (uint32_t i = 0; i < n && (asks_one(q) || q->ahead || !q->yes); i++)
        if (!ask_one(g, in[i], q)) return false;
    return true;
}

bool machine_step(struct grammar *g, const struct top *in, uint32_t n, uint32_t c, struct tops *out)
{
    struct question q = { c, c, out, out->n, false, NULL };
    return ask(g, in, n, &q);
}

enum lang_answer machine_can(struct grammar *g, const struct top *in, uint32_t n, uint32_t first, uint32_t last)
{
    struct tops none = { .list = NULL };
    struct question q = { first, last, &none, 0, false, NULL };
    if (!ask(g, in, n, &q)) return LANG_UNKNOWN;
    return q.yes ? LANG_YES : LANG_NO;
}

bool machine_ahead(struct grammar *g, const struct top *in, uint32_t n, struct ahead *out)
{
    struct tops none = { .list = NULL };
    *out = (struct ahead){ { 0, 0 }, false };
    struct question q = { 0x80, LANG_MAX_CHAR, &none, 0, false, out };
    if (!ask(g, in, n, &q)) return false;
    out->above = q.yes;
    return true;
}

enum lang_answer machine_complete(struct grammar *g, const struct top *in, uint32_t n)
{
    return machine_can(g, in, n, 1, 0);
}

/* ---- bytes ----------------------------------------------------------------------------------------------------- */

bool machine_range(const struct reading *r, uint32_t *first, uint32_t *last)
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
        const enum lang_answer fits = machine_content(g, &to, c);
        if (fits != LANG_YES) return fits == LANG_NO;
    } else if (n->kind == OF_TEXT && (!t->parent || !lang_accepts(g->langs, t->state))) {
        if (!t->parent) (void)machine_look(g, 0); /* it may end here, but nothing follows it */
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
        struct question q = { c, c, list, from->end, false, NULL };
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
    return !to->need || machine_range(to, &first, &last);
}

enum lang_answer machine_byte(struct grammar *g, struct tops *list, const struct reading *from, unsigned char byte,
                              struct reading *to)
{
    uint32_t first, last;
    if (!from->need && byte < 0x80) return read_character(g, list, from, byte, to);
    if (!machine_partial(from, byte, to)) return LANG_NO;
    if (!to->need) return read_character(g, list, from, to->value, to);
    (void)machine_range(to, &first, &last);
    return machine_can(g, list->list + from->first, from->n, first, last);
}
