/* node.c: building the graph. See node.h. */
#include "grammar/grammar_internal.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { FIRST_COLLECTION = 1 << 14 };

node_id grammar_fail(struct grammar *g, wk_status status, const char *format, ...)
{
    if (!g->status) {
        va_list args;
        g->status = status;
        va_start(args, format);
        (void)vsnprintf(g->why, sizeof g->why, format, args);
        va_end(args);
    }
    return NODE_NONE;
}

static node_id no_memory(struct grammar *g) { return grammar_fail(g, WK_NO_MEMORY, "no memory for a grammar"); }

/* Room for n items in all. */
static bool grow(struct grammar *g, void **items, uint32_t *cap, uint32_t n, size_t size)
{
    if (n <= *cap) return true;
    const uint32_t larger = n < 32 ? 32 : n > UINT32_MAX / 4 ? n : 2 * n;
    void *moved = realloc(*items, larger * size);
    if (!moved) {
        (void)no_memory(g);
        return false;
    }
    *items = moved;
    *cap = larger;
    return true;
}

static node_id add(struct grammar *g, enum node_kind kind, uint32_t a, uint32_t b, uint32_t c)
{
    if (g->status || g->sealed || !langs_step(g->langs, 2)) return NODE_NONE;
    if (g->n_nodes > GRAMMAR_MAX_NODES)
        return grammar_fail(g, WK_UNSUPPORTED, "the grammar has more than %d nodes", GRAMMAR_MAX_NODES);
    if (!grow(g, (void **)&g->nodes, &g->cap_nodes, g->n_nodes + 1, sizeof *g->nodes)) return NODE_NONE;
    g->nodes[g->n_nodes] = (struct node){ .kind = (uint8_t)kind, .a = a, .b = b, .c = c };
    return g->n_nodes++;
}

wk_status grammar_open(const struct lang_watch *watch, struct grammar **out, const struct wk_err *err)
{
    *out = NULL;
    struct grammar *g = calloc(1, sizeof *g);
    if (!g) return wk_fail(err, WK_NO_MEMORY, "no memory for a grammar");
    atomic_init(&g->owners, 1);
    g->collect_at = FIRST_COLLECTION;
    wk_status status = langs_open(watch, &g->langs, err);
    if (!status) {
        (void)add(g, OF_NOTHING, 0, 0, 0);
        (void)add(g, OF_NOTHING, 0, 0, 0);
        (void)add(g, OF_EMPTY, 0, 0, 0);
        (void)add(g, OF_SEEN, 0, 0, 0);
        grammar_set_space(g, &(struct grammar_space){ 20, 1 });
        if (g->status) status = wk_fail(err, g->status, "%s", g->why);
    }
    if (status)
        grammar_close(g);
    else
        *out = g;
    return status;
}

uint64_t grammar_held(const struct grammar *g) { return atomic_load(&g->held); }
bool grammar_failed(const struct grammar *g) { return atomic_load(&g->failed); }

struct grammar *grammar_keep(struct grammar *g)
{
    (void)atomic_fetch_add(&g->owners, 1);
    return g;
}

void grammar_close(struct grammar *g)
{
    if (!g || atomic_fetch_sub(&g->owners, 1) != 1) return;
    for (uint32_t i = 0; i < g->n_objects; i++) {
        free(g->objects[i].properties);
        free(g->objects[i].order);
        free(g->objects[i].families);
    }
    for (uint32_t i = 0; i < g->n_arrays; i++) free(g->arrays[i].prefix);
    masks_close(g->masks);
    langs_close(g->langs);
    free(g->nodes);
    free(g->parts.list);
    free(g->text);
    free(g->objects);
    free(g->arrays);
    free(g->token_ids.list);
    free(g->frames);
    free(g->frame_buckets);
    free(g->work);
    free(g->visited);
    free(g);
}

struct langs *grammar_langs(struct grammar *g) { return g->langs; }

uint64_t grammar_bytes(const struct grammar *g)
{
    uint64_t bytes = sizeof *g + langs_bytes(g->langs) + g->cap_nodes * sizeof *g->nodes + g->cap_text;
    bytes += ((uint64_t)g->parts.cap + g->token_ids.cap + g->n_frame_buckets) * sizeof(uint32_t) + g->lists_bytes;
    bytes += g->cap_objects * sizeof *g->objects + g->cap_arrays * sizeof *g->arrays;
    bytes += g->cap_frames * sizeof *g->frames + g->cap_work * sizeof *g->work;
    return bytes + g->cap_visited * sizeof *g->visited;
}

/* ---- leaves ---------------------------------------------------------------------------------------------------- */

/* Copies bytes into `text`; UINT32_MAX: failed. */
static uint32_t keep_text(struct grammar *g, const char *bytes, size_t n)
{
    if (g->n_text + n > 4 * (size_t)GRAMMAR_MAX_TEXT)
        return grammar_fail(g, WK_UNSUPPORTED, "the grammar's fixed texts have more than 4 MiB"), UINT32_MAX;
    if (g->n_text + n > g->cap_text) {
        const size_t cap = 2 * (g->n_text + n) + 64;
        char *moved = realloc(g->text, cap);
        if (!moved) return no_memory(g), UINT32_MAX;
        g->text = moved;
        g->cap_text = cap;
    }
    if (n) memcpy(g->text + g->n_text, bytes, n);
    g->n_text += n;
    return (uint32_t)(g->n_text - n);
}

node_id node_literal(struct grammar *g, const char *text, size_t n)
{
    if (!n) return NODE_EMPTY;
    if (!utf8_is_valid(text, n)) return grammar_fail(g, WK_INVALID, "a fixed text is not UTF-8");
    const uint32_t at = keep_text(g, text, n);
    return at == UINT32_MAX ? NODE_NONE : add(g, OF_LITERAL, at, (uint32_t)n, 0);
}

/* Takes over a failure of the languages. */
static bool has_language(struct grammar *g, lang_id language)
{
    char why[200];
    if (language) return true;
    const wk_status status = langs_status(g->langs, &(struct wk_err){ why, sizeof why });
    (void)grammar_fail(g, status ? status : WK_INVALID, "%s", status ? why : "a language could not be built");
    return false;
}

node_id node_text(struct grammar *g, lang_id language)
{
    if (!has_language(g, language)) return NODE_NONE;
    if (language == LANG_NOTHING) return NODE_NOTHING;
    return language == LANG_EMPTY ? NODE_EMPTY : add(g, OF_TEXT, language, 0, 0);
}

node_id node_token(struct grammar *g, const uint32_t *ids, size_t n, bool except)
{
    const uint32_t at = g->parts.n;
    if (!n && !except) return NODE_NOTHING;
    if (n > GRAMMAR_MAX_NODES) return grammar_fail(g, WK_UNSUPPORTED, "a node has more than 20,000 ids");
    for (size_t i = 0; i < n; i++)
        if (!numbers_push(g->langs, &g->parts, ids[i])) return no_memory(g);
    return add(g, OF_TOKEN, at, (uint32_t)n, except);
}

/* ---- combinations ---------------------------------------------------------------------------------------------- */

/* Copies parts; UINT32_MAX: failed, or one of them did. */
static uint32_t keep_parts(struct grammar *g, const node_id *parts, size_t n)
{
    const uint32_t at = g->parts.n;
    if (n > 16 * GRAMMAR_MAX_NODES || at > 16 * GRAMMAR_MAX_NODES)
        return grammar_fail(g, WK_UNSUPPORTED, "the grammar's nodes have more than 320,000 parts"), UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        if (!parts[i] || parts[i] >= g->n_nodes) return UINT32_MAX;
        if (!numbers_push(g->langs, &g->parts, parts[i])) return no_memory(g), UINT32_MAX;
    }
    return at;
}

static node_id add_list(struct grammar *g, enum node_kind kind, const node_id *parts, size_t n)
{
    const uint32_t at = keep_parts(g, parts, n);
    return at == UINT32_MAX ? NODE_NONE : add(g, kind, at, (uint32_t)n, 0);
}

node_id node_sequence(struct grammar *g, const node_id *parts, size_t n)
{
    if (!n) return NODE_EMPTY;
    return n == 1 ? parts[0] : add_list(g, OF_SEQUENCE, parts, n);
}

node_id node_any_of(struct grammar *g, const node_id *parts, size_t n)
{
    if (!n) return NODE_NOTHING;
    return n == 1 ? parts[0] : add_list(g, OF_ANY_OF, parts, n);
}

node_id node_repeat(struct grammar *g, node_id part, uint32_t min, uint32_t max)
{
    if (!part) return NODE_NONE;
    if (min > max) return NODE_NOTHING;
    if (!max) return NODE_EMPTY;
    return min == 1 && max == 1 ? part : add(g, OF_REPEAT, part, min, max);
}

node_id node_rule(struct grammar *g, const char *name, size_t n)
{
    const uint32_t at = keep_text(g, name, n);
    return at == UINT32_MAX ? NODE_NONE : add(g, OF_RULE, NODE_NONE, (uint32_t)n, at);
}

void node_define(struct grammar *g, node_id rule, node_id body)
{
    if (!rule || rule >= g->n_nodes || g->nodes[rule].kind != OF_RULE || !body) return; /* a failure that has stuck */
    g->nodes[rule].a = body;
}

/* ---- JSON ---------------------------------------------------------------------------------------------------------
 */

void grammar_set_space(struct grammar *g, const struct grammar_space *space)
{
    if (!g->space_fixed) g->space = *space;
}

node_id node_string(struct grammar *g, lang_id content, uint32_t min, uint32_t max)
{
    if (min > max) return NODE_NOTHING;
    if (content != LANG_EVERYTHING) {
        if (min || max != LANG_UNBOUNDED) content = lang_and(g->langs, content, lang_length(g->langs, min, max));
        min = 0;
        max = LANG_UNBOUNDED;
    }
    if (!has_language(g, content)) return NODE_NONE;
    return content == LANG_NOTHING ? NODE_NOTHING : add(g, OF_STRING, content, min, max);
}

struct named {
    struct lang_word word;
    uint32_t property;
};

static int by_name(const void *a, const void *b)
{
    const struct named *p = a, *q = b;
    return lang_compare_words(&p->word, &q->word);
}

/* Sorts the names into a table; o->order says whose each is. False: failed. */
static bool sort_names(struct grammar *g, const struct node_object *from, struct object *o)
{
    struct named *named = malloc((from->n_properties + 1) * sizeof *named);
    struct lang_word *words = malloc((from->n_properties + 1) * sizeof *words);
    bool sorted = named && words;
    if (!sorted) (void)no_memory(g);
    for (uint32_t i = 0; sorted && i < o->n; i++)
        named[i] = (struct named){ { from->properties[i].name, from->properties[i].len }, i };
    if (sorted) qsort(named, o->n, sizeof *named, by_name);
    for (uint32_t i = 0; sorted && i < o->n; i++) {
        words[i] = named[i].word;
        o->order[i] = named[i].property;
        if (i && !by_name(&named[i - 1], &named[i])) {
            (void)grammar_fail(g, WK_INVALID, "an object declares the name %.*s twice",
                               (int)(named[i].word.len < 80 ? named[i].word.len : 80), named[i].word.text);
            sorted = false;
        }
    }
    if (sorted && o->n) {
        o->names = lang_word_table(g->langs, words, o->n);
        sorted = o->names != UINT32_MAX || has_language(g, LANG_NONE);
    }
    free(named);
    free(words);
    return sorted;
}

/* Further names count towards the least number only if they differ, so then they are remembered. */
static bool needs_unique(const struct node_object *from)
{
    size_t required = 0;
    for (size_t i = 0; i < from->n_properties; i++) required += from->properties[i].required;
    return from->min > required;
}

static bool fill_object(struct grammar *g, const struct node_object *from, struct object *o)
{
    const uint8_t flags = needs_unique(from) ? NODE_UNIQUE : 0;
    for (uint32_t i = 0; i < o->n; i++) {
        if (!from->properties[i].value || from->properties[i].value >= g->n_nodes) return false;
        o->properties[i].value = from->properties[i].value;
        o->properties[i].required = from->properties[i].required;
    }
    for (size_t i = 0; i < from->n_families; i++) {
        const node_id name = node_string(g, from->families[i].names, 0, NODE_UNBOUNDED);
        if (!name || !from->families[i].value || from->families[i].value >= g->n_nodes) return false;
        if (name == NODE_NOTHING || from->families[i].value == NODE_NOTHING) continue;
        g->nodes[name].flags |= flags;
        o->families[o->n_families++] = (struct family){ name, from->families[i].value };
    }
    return sort_names(g, from, o);
}

node_id node_object(struct grammar *g, const struct node_object *from)
{
    if (g->status) return NODE_NONE;
    if (from->n_properties > GRAMMAR_MAX_NODES || from->n_families > GRAMMAR_MAX_NODES)
        return grammar_fail(g, WK_UNSUPPORTED, "an object has more than %d properties", GRAMMAR_MAX_NODES);
    if (!grow(g, (void **)&g->objects, &g->cap_objects, g->n_objects + 1, sizeof *g->objects)) return NODE_NONE;
    g->space_fixed = true;
    const uint32_t n = (uint32_t)from->n_properties;
    struct object o = { .n = n, .min = from->min, .max = from->max };
    o.properties = calloc(n + 1, sizeof *o.properties);
    o.order = calloc(n + 1, sizeof *o.order);
    o.families = calloc(from->n_families + 1, sizeof *o.families);
    g->lists_bytes += n * (sizeof *o.properties + sizeof *o.order) + from->n_families * sizeof *o.families;
    bool made = o.properties && o.order && o.families;
    if (!made) (void)no_memory(g);
    made = made && fill_object(g, from, &o);
    o.names_node = made ? add(g, OF_NAMES, g->n_objects, 0, 0) : NODE_NONE;
    g->objects[g->n_objects++] = o;
    return o.names_node ? add(g, OF_OBJECT, g->n_objects - 1, 0, 0) : NODE_NONE;
}

/* A string like this one, of which the same text does not come twice. Its counters become part of its language. */
static node_id unique_string(struct grammar *g, node_id string)
{
    if (!string || string >= g->n_nodes || g->nodes[string].kind != OF_STRING)
        return grammar_fail(g, WK_INTERNAL, "only strings are told apart");
    const struct node n = g->nodes[string];
    const lang_id content = lang_and(g->langs, n.a, lang_length(g->langs, n.b, n.c));
    const node_id id = has_language(g, content) ? add(g, OF_STRING, content, 0, NODE_UNBOUNDED) : (node_id)NODE_NONE;
    if (id) g->nodes[id].flags |= NODE_UNIQUE;
    return id;
}

node_id node_array(struct grammar *g, const struct node_array *from)
{
    if (g->status) return NODE_NONE;
    if (from->n_prefix > GRAMMAR_MAX_NODES)
        return grammar_fail(g, WK_UNSUPPORTED, "an array has more than %d fixed elements", GRAMMAR_MAX_NODES);
    if (!grow(g, (void **)&g->arrays, &g->cap_arrays, g->n_arrays + 1, sizeof *g->arrays)) return NODE_NONE;
    g->space_fixed = true;
    struct array a = { .n_prefix = (uint32_t)from->n_prefix, .rest = from->rest, .min = from->min, .max = from->max };
    if (from->unique) a.rest = unique_string(g, from->rest);
    bool made = a.rest && a.rest < g->n_nodes;
    for (size_t i = 0; i < from->n_prefix; i++) made = made && from->prefix[i] && from->prefix[i] < g->n_nodes;
    if (!made) return NODE_NONE;
    a.prefix = malloc((a.n_prefix + 1) * sizeof *a.prefix);
    if (!a.prefix) return no_memory(g);
    g->lists_bytes += a.n_prefix * sizeof *a.prefix;
    if (a.n_prefix) memcpy(a.prefix, from->prefix, a.n_prefix * sizeof *a.prefix);
    g->arrays[g->n_arrays++] = a;
    return add(g, OF_ARRAY, g->n_arrays - 1, 0, 0);
}

static node_id any_number(struct grammar *g)
{
    wk_status status;
    const struct lang_number number = { .min = NULL };
    return node_text(g, lang_number(g->langs, &number, &status, NULL));
}

node_id node_json(struct grammar *g)
{
    if (g->json) return g->json;
    const node_id value = g->json = node_rule(g, "any JSON value", 14);
    const struct node_family any = { LANG_EVERYTHING, value };
    const struct node_object object = { .families = &any, .n_families = 1, .max = NODE_UNBOUNDED };
    const struct node_array array = { .rest = value, .max = NODE_UNBOUNDED };
    g->json_object = node_object(g, &object);
    const node_id parts[] = { g->json_object,
                              node_array(g, &array),
                              node_string(g, LANG_EVERYTHING, 0, NODE_UNBOUNDED),
                              any_number(g),
                              node_literal(g, "true", 4),
                              node_literal(g, "false", 5),
                              node_literal(g, "null", 4) };
    node_define(g, value, node_any_of(g, parts, sizeof parts / sizeof *parts));
    return value;
}

node_id node_json_object(struct grammar *g)
{
    (void)node_json(g);
    return g->json_object;
}
