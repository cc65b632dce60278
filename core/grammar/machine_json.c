/* machine_json.c: the parts of the machine that read JSON: strings with their escapes, names, objects, arrays. See
 * machine.c.
 *
 * Between two tokens of JSON at most 20 bytes of white space and one newline are allowed, and digits are bounded
 * (integers 20, fractions 17, exponents 3, unless bounds say otherwise): a model that repeats valid characters for ever
 * is stopped. */
#include "grammar/machine.h"

#include <string.h>

#include "base/utf8.h"

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
    const uint64_t at = machine_look(g, t->parent)->at;
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
enum lang_answer machine_content(struct grammar *g, struct top *t, uint32_t c)
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
    return machine_content(g, t, high ? 0x10000 + (held << 10) + (value - 0xDC00) : value);
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
    return machine_content(g, t, (uint32_t)meanings[letter - letters]);
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
    const struct frame *f = machine_look(g, t->parent);
    return machine_emit(g, q,
                        (struct top){ .node = f->node,
                                      .parent = f->parent,
                                      .at = at_phase(AT_COLON, o->order[word], count_of(f->at)) });
}

/* The frame below the names that came in an object, or the strings in an array. */
static uint32_t below_names(struct grammar *g, uint32_t parent)
{
    while (parent && g->frames[parent].node == SEEN_NODE) parent = machine_look(g, parent)->parent;
    return parent;
}

/* The closing quote of a name of a family, or of an array's string, that must not come twice: the object or the array
 * goes on, and the text is remembered. */
static bool close_unique(struct grammar *g, struct question *q, const struct top *t)
{
    const struct frame object = *machine_look(g, t->parent);
    uint32_t seen = object.parent;
    for (; seen && machine_look(g, seen)->node == SEEN_NODE; seen = g->frames[seen].parent)
        if (g->frames[seen].at == t->at) return true;
    seen = frame_push(g, SEEN_NODE, t->at, object.parent);
    if (!seen) return false;
    return machine_emit(g, q, (struct top){ .node = object.node, .parent = seen, .at = object.at });
}

static bool close_string(struct grammar *g, struct question *q, const struct top *t)
{
    const struct node *n = &g->nodes[t->node];
    if (n->kind == OF_NAMES) return close_name(g, q, t);
    if (n->flags & NODE_UNIQUE) return lang_accepts(g->langs, t->state) ? close_unique(g, q, t) : true;
    const bool done = n->a == LANG_EVERYTHING ? t->at >= n->b : lang_accepts(g->langs, t->state);
    return done ? machine_emit_done(g, q, t->parent) : true;
}

bool machine_string(struct grammar *g, struct question *q, const struct top *t)
{
    const uint32_t c = q->first;
    struct top to = *t;
    enum lang_answer fits = LANG_NO;
    if (q->first > q->last || c >= TOKEN_SYMBOL) return true;
    if (!asks_one(q)) {
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
            fits = machine_content(g, &to, c);
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
    return fits == LANG_YES ? machine_emit(g, q, to) : true;
}

/* ---- objects and arrays
 * ----------------------------------------------------------------------------------------------------- */

static struct top moved(const struct top *t, enum phase phase, uint32_t which, uint32_t count)
{
    struct top to = *t;
    to.state = 0;
    to.at = at_phase(phase, which, count);
    return to;
}

/* White space between two tokens. */
static bool read_space(struct grammar *g, struct question *q, const struct top *t)
{
    struct top to = *t;
    to.state = asks_one(q) ? space_next(g, t->state, q->first) : 0;
    return to.state ? machine_emit(g, q, to) : true;
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
        if (any_name(g, &name, 0, o->n) && !machine_emit(g, q, name)) return false;
    }
    for (uint32_t i = 0; i < o->n_families && family_may_come(o, from, count); i++) {
        const uint32_t parent = frame_push(g, t->node, at_phase(AT_COLON, o->n + i, count), t->parent);
        if (!parent) return false;
        struct top name = machine_start(g, o->families[i].name, parent);
        name.escape = STRING_BODY;
        if (!machine_emit(g, q, name)) return false;
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
    return machine_enter(g, w, value, at_phase(AT_AFTER, which < o->n ? which + 1 : o->n, count), false);
}

bool machine_object(struct grammar *g, struct question *q, const struct work *w)
{
    const struct top *t = &w->top;
    const struct object *o = &g->objects[g->nodes[t->node].a];
    const uint32_t which = which_of(t->at), count = count_of(t->at);
    const enum phase phase = phase_of(t->at);
    if (phase == AT_OPEN) return asks_for(q, '{') ? machine_emit(g, q, moved(t, AT_FIRST, 0, 0)) : true;
    if (q->first > q->last || !read_space(g, q, t)) return q->first > q->last;
    if (phase == AT_VALUE) return enter_property(g, w, o);
    if (phase == AT_COLON) return asks_for(q, ':') ? machine_emit(g, q, moved(t, AT_VALUE, which, count)) : true;
    if (asks_for(q, '}') && phase != AT_NEXT)
        return o->properties[which].required_from || count < o->min
                   ? true
                   : machine_emit_done(g, q, below_names(g, t->parent));
    if (phase == AT_AFTER)
        return asks_for(q, ',') && more_may_come(o, which, count) ? machine_emit(g, q, moved(t, AT_NEXT, which, count))
                                                                  : true;
    return asks_for(q, '"') ? open_name(g, q, t) : true;
}

static bool enter_element(struct grammar *g, const struct work *w, const struct array *a)
{
    uint32_t count = count_of(w->top.at);
    const node_id value = count < a->n_prefix ? a->prefix[count] : a->rest;
    if (count >= a->max) return true;
    if (a->max != NODE_UNBOUNDED || count < a->min || count < a->n_prefix) count++;
    return machine_enter(g, w, value, at_phase(AT_AFTER, 0, count), false);
}

bool machine_array(struct grammar *g, struct question *q, const struct work *w)
{
    const struct top *t = &w->top;
    const struct array *a = &g->arrays[g->nodes[t->node].a];
    const uint32_t count = count_of(t->at);
    const enum phase phase = phase_of(t->at);
    if (phase == AT_OPEN) return asks_for(q, '[') ? machine_emit(g, q, moved(t, AT_FIRST, 0, 0)) : true;
    if (q->first > q->last || !read_space(g, q, t)) return q->first > q->last;
    if (asks_for(q, ']') && phase != AT_NEXT)
        return count < a->min ? true : machine_emit_done(g, q, below_names(g, t->parent));
    if (phase == AT_AFTER)
        return asks_for(q, ',') && count < a->max ? machine_emit(g, q, moved(t, AT_NEXT, 0, count)) : true;
    return enter_element(g, w, a);
}

/* ---- what may come -------------------------------------------------------------------------------------------------
 */

static void add_all(struct ahead *ahead, const char *characters)
{
    for (; *characters; characters++) ahead_add(ahead, (unsigned char)*characters);
}

static void string_ahead(const struct top *t, struct ahead *ahead)
{
    switch (string_phase_of(t)) {
    case STRING_OPEN: add_all(ahead, "\""); break;
    case STRING_BODY:
        for (uint32_t c = 0x20; c < 0x80; c++) ahead_add(ahead, c);
        break;
    case STRING_ESCAPE: add_all(ahead, "\"\\/bfnrtu"); break;
    case STRING_HEX: add_all(ahead, "0123456789abcdefABCDEF"); break;
    case STRING_HIGH: add_all(ahead, "\\"); break;
    case STRING_HIGH_SLASH: add_all(ahead, "u"); break;
    }
}

void machine_json_ahead(const struct grammar *g, const struct top *t, struct ahead *ahead)
{
    /* What may stand in the phases of an object and of an array, values not included. */
    static const char *const of_object[] = { "{", "\"}", "\"", ":", "", ",}" };
    static const char *const of_array[] = { "[", "]", "", "", "", ",]" };
    const uint8_t kind = g->nodes[t->node].kind;
    if (kind == OF_STRING || kind == OF_NAMES) {
        string_ahead(t, ahead);
    } else if (kind == OF_OBJECT || kind == OF_ARRAY) {
        const enum phase phase = phase_of(t->at);
        add_all(ahead, kind == OF_OBJECT ? of_object[phase] : of_array[phase]);
        if (phase != AT_OPEN) add_all(ahead, " \t\n\r");
    }
}
