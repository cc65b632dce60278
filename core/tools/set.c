/* set.c: a request's functions, and what their schemas say of a parameter: which kinds of values it may have. Values
 * that stand as text between tags have no type of their own; the schema gives it. */
#include <string.h>

#include "tokenizer/json_reader.h"
#include "tools/internal.h"

enum { MAX_LOOKS = 512 /* subschemas that one question may look at */, MAX_REFS = 8, MAX_NESTED = 8 };

static bool is_name(struct token_bytes name)
{
    for (size_t i = 0; i < name.len; i++)
        if (!unit_is_name((unsigned char)name.data[i])) return false;
    return name.len && name.len <= TOOLS_MAX_NAME;
}

static wk_status check(const struct tools_function *f, size_t at, const struct tools_function *all,
                       const struct wk_err *err)
{
    struct json_reader r;
    if (!is_name(f->name))
        return wk_fail(err, WK_INVALID, "function %zu: expected a name of 1 to %d letters, digits and _ . : - /", at,
                       TOOLS_MAX_NAME);
    for (size_t i = 0; i < at; i++)
        if (all[i].name.len == f->name.len && memcmp(all[i].name.data, f->name.data, f->name.len) == 0)
            return wk_fail(err, WK_INVALID, "function %zu: the name \"%.*s\" is given twice", at, (int)f->name.len,
                           f->name.data);
    if (!f->parameters.data) return WK_OK;
    if (f->parameters.len > TOOLS_MAX_SCHEMA)
        return wk_fail(err, WK_UNSUPPORTED, "function \"%.*s\": parameters of at most %d bytes, found %zu",
                       (int)f->name.len, f->name.data, TOOLS_MAX_SCHEMA, f->parameters.len);
    char name[TOOLS_MAX_NAME + 16];
    (void)snprintf(name, sizeof name, "function \"%.*s\"", (int)f->name.len, f->name.data);
    jr_open(&r, f->parameters.data, f->parameters.len, name, "parameters", err);
    if (jr_peek(&r) != JR_OBJECT)
        (void)jr_fail(&r, WK_INVALID, "expected an object, a JSON Schema");
    else
        (void)(jr_skip(&r) && jr_finish(&r));
    const wk_status status = r.status;
    jr_close(&r);
    return status;
}

wk_status tools_set_open(const struct tools_function *functions, size_t n, struct tools_set **out,
                         const struct wk_err *err)
{
    size_t bytes = 0;
    *out = NULL;
    if (n > TOOLS_MAX) return wk_fail(err, WK_UNSUPPORTED, "expected at most %d functions, found %zu", TOOLS_MAX, n);
    for (size_t i = 0; i < n; i++) {
        const wk_status status = check(&functions[i], i, functions, err);
        if (status) return status;
        bytes += functions[i].name.len + functions[i].parameters.len;
    }
    struct tools_set *s = calloc(1, sizeof *s);
    if (s) s->list = calloc(n + 1, sizeof *s->list);
    if (s) s->texts = malloc(bytes + 1);
    if (!s || !s->list || !s->texts) {
        tools_set_close(s);
        return wk_fail(err, WK_NO_MEMORY, "no memory for %zu functions", n);
    }
    char *at = s->texts;
    for (size_t i = 0; i < n; i++) {
        struct tools_function *f = &s->list[s->n++];
        *f = functions[i];
        memcpy(at, f->name.data, f->name.len);
        f->name.data = at;
        at += f->name.len;
        if (!f->parameters.data) continue;
        memcpy(at, f->parameters.data, f->parameters.len);
        f->parameters.data = at;
        at += f->parameters.len;
    }
    *out = s;
    return WK_OK;
}

void tools_set_close(struct tools_set *s)
{
    if (!s) return;
    free(s->list);
    free(s->texts);
    free(s);
}

const struct tools_function *set_find(const struct tools_set *s, struct token_bytes name)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->list[i].name.len == name.len && memcmp(s->list[i].name.data, name.data, name.len) == 0)
            return &s->list[i];
    return NULL;
}

/* ---- kinds ----------------------------------------------------------------------------------------------- */

struct look {
    struct json_text root;
    uint32_t looks;
};

/* The member of an object, raw. False: it has none, or is no object. */
static bool member(struct json_text object, const char *key, size_t n, struct json_text *out)
{
    struct json_reader r;
    struct json_text found;
    bool got = false;
    jr_open(&r, object.data, object.len, "", "", NULL);
    if (jr_peek(&r) == JR_OBJECT && jr_object(&r))
        while (!got && jr_member(&r, &found)) {
            const bool same = found.len == n && memcmp(found.data, key, n) == 0;
            if (same ? !(got = jr_raw(&r, out)) : !jr_skip(&r)) break;
        }
    jr_close(&r);
    return got;
}
static bool member_of(struct json_text object, const char *key, struct json_text *out)
{
    return member(object, key, strlen(key), out);
}

static unsigned kind_named(struct json_text name)
{
    static const struct {
        const char *name;
        unsigned kind;
    } kinds[] = { { "string", KIND_STRING },   { "number", KIND_NUMBER }, { "integer", KIND_NUMBER },
                  { "boolean", KIND_BOOLEAN }, { "null", KIND_NULL },     { "array", KIND_ARRAY },
                  { "object", KIND_OBJECT } };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (jr_is(name, kinds[i].name)) return kinds[i].kind;
    return 0;
}

static unsigned kind_peeked(enum jr_kind kind)
{
    switch (kind) {
    case JR_OBJECT: return KIND_OBJECT;
    case JR_ARRAY: return KIND_ARRAY;
    case JR_STRING: return KIND_STRING;
    case JR_NUMBER: return KIND_NUMBER;
    case JR_BOOL: return KIND_BOOLEAN;
    case JR_NULL: return KIND_NULL;
    default: return 0;
    }
}

static unsigned kinds_of(struct look *l, struct json_text schema, uint32_t nested, uint32_t refs);

/* The kinds of a list's elements: of their values, of the types that they name, or of the schemas that they are. */
enum list { LIST_VALUES, LIST_NAMES, LIST_ANY_OF, LIST_ALL_OF };
static unsigned list_kinds(struct look *l, struct json_text text, enum list list, uint32_t nested, uint32_t refs)
{
    struct json_reader r;
    struct json_text part;
    unsigned kinds = list == LIST_ALL_OF ? KIND_ALL : 0;
    jr_open(&r, text.data, text.len, "", "", NULL);
    if (jr_peek(&r) != JR_ARRAY) {
        const bool named = list == LIST_NAMES && jr_string(&r, &part);
        kinds = named ? kind_named(part) : KIND_ALL;
        jr_close(&r);
        return kinds;
    }
    if (jr_array(&r))
        while (jr_element(&r)) {
            if (list == LIST_VALUES) kinds |= kind_peeked(jr_peek(&r));
            if (list == LIST_NAMES ? !jr_string(&r, &part) : !jr_raw(&r, &part)) break;
            if (list == LIST_NAMES) kinds |= kind_named(part);
            if (list == LIST_ANY_OF) kinds |= kinds_of(l, part, nested + 1, refs);
            if (list == LIST_ALL_OF) kinds &= kinds_of(l, part, nested + 1, refs);
        }
    jr_close(&r);
    return kinds;
}

/* What "#/a/b" refers to. */
static bool refer(const struct look *l, struct json_text ref, struct json_text *out)
{
    struct json_text at = l->root;
    size_t i = 1;
    if (!ref.len || ref.data[0] != '#') return false;
    while (i < ref.len) {
        char key[256];
        size_t n = 0;
        if (ref.data[i++] != '/') return false;
        for (; i < ref.len && ref.data[i] != '/'; i++) {
            if (n == sizeof key) return false;
            char c = ref.data[i];
            if (c == '~' && i + 1 < ref.len) c = ref.data[++i] == '1' ? '/' : '~';
            key[n++] = c;
        }
        if (!member(at, key, n, &at)) return false;
    }
    *out = at;
    return true;
}

static unsigned ref_kinds(struct look *l, struct json_text text, uint32_t nested, uint32_t refs)
{
    struct json_reader r;
    struct json_text ref, target = { 0 };
    jr_open(&r, text.data, text.len, "", "", NULL);
    const bool found = refs < MAX_REFS && jr_string(&r, &ref) && refer(l, ref, &target);
    jr_close(&r);
    return found ? kinds_of(l, target, nested + 1, refs + 1) : KIND_ALL;
}

static unsigned kinds_of(struct look *l, struct json_text schema, uint32_t nested, uint32_t refs)
{
    struct json_text part;
    unsigned kinds = KIND_ALL;
    if (nested > MAX_NESTED || ++l->looks > MAX_LOOKS) return KIND_ALL;
    if (member_of(schema, "type", &part)) kinds &= list_kinds(l, part, LIST_NAMES, nested, refs);
    if (member_of(schema, "enum", &part)) kinds &= list_kinds(l, part, LIST_VALUES, nested, refs);
    if (member_of(schema, "const", &part)) {
        struct json_reader r;
        jr_open(&r, part.data, part.len, "", "", NULL);
        kinds &= kind_peeked(jr_peek(&r));
        jr_close(&r);
    }
    if (member_of(schema, "anyOf", &part)) kinds &= list_kinds(l, part, LIST_ANY_OF, nested, refs);
    if (member_of(schema, "oneOf", &part)) kinds &= list_kinds(l, part, LIST_ANY_OF, nested, refs);
    if (member_of(schema, "allOf", &part)) kinds &= list_kinds(l, part, LIST_ALL_OF, nested, refs);
    if (member_of(schema, "$ref", &part)) kinds &= ref_kinds(l, part, nested, refs);
    return kinds ? kinds : KIND_ALL;
}

unsigned set_kinds(const struct tools_function *f, struct token_bytes key)
{
    struct json_text properties, property;
    struct look l = { .root = { f->parameters.data, f->parameters.len } };
    if (!f->parameters.data) return KIND_ALL;
    if (member_of(l.root, "properties", &properties) && member(properties, key.data, key.len, &property))
        return kinds_of(&l, property, 0, 0);
    return member_of(l.root, "additionalProperties", &property) ? kinds_of(&l, property, 0, 0) : KIND_ALL;
}

static bool within(struct look *l, struct json_text schema, struct token_bytes key, uint32_t nested,
                   struct json_text *out);

/* In one of the schemas of a list. */
static bool within_any(struct look *l, struct json_text list, struct token_bytes key, uint32_t nested,
                       struct json_text *out)
{
    struct json_reader r;
    struct json_text part;
    bool found = false;
    jr_open(&r, list.data, list.len, "", "", NULL);
    if (jr_peek(&r) == JR_ARRAY && jr_array(&r))
        while (!found && jr_element(&r) && jr_raw(&r, &part)) found = within(l, part, key, nested + 1, out);
    jr_close(&r);
    return found;
}

/* The schema of a member, or of the items (key.data NULL), as a schema declares it. */
static bool within(struct look *l, struct json_text schema, struct token_bytes key, uint32_t nested,
                   struct json_text *out)
{
    static const char *const lists[] = { "anyOf", "oneOf", "allOf" };
    struct json_text part;
    if (nested > MAX_NESTED || ++l->looks > MAX_LOOKS) return false;
    if (!key.data && member_of(schema, "items", out)) return true;
    if (key.data && member_of(schema, "properties", &part) && member(part, key.data, key.len, out)) return true;
    if (member_of(schema, "$ref", &part)) {
        struct json_reader r;
        struct json_text ref, target = { 0 };
        jr_open(&r, part.data, part.len, "", "", NULL);
        const bool found = jr_string(&r, &ref) && refer(l, ref, &target);
        jr_close(&r);
        if (found && within(l, target, key, nested + 1, out)) return true;
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (member_of(schema, lists[i], &part) && within_any(l, part, key, nested, out)) return true;
    return key.data && member_of(schema, "additionalProperties", out);
}

unsigned set_kinds_at(const struct tools_function *f, const struct token_bytes *path, size_t n)
{
    struct json_text at = { f->parameters.data, f->parameters.len };
    struct look l = { .root = at };
    if (!f->parameters.data) return KIND_ALL;
    for (size_t i = 0; i < n; i++)
        if (!within(&l, at, path[i], 0, &at)) return KIND_ALL;
    return kinds_of(&l, at, 0, 0);
}

unsigned set_root_kinds(const struct tools_function *f)
{
    struct look l = { .root = { f->parameters.data, f->parameters.len } };
    return kinds_of(&l, l.root, 0, 0);
}

bool tools_set_has(const struct tools_set *s, struct token_bytes name) { return set_find(s, name) != NULL; }
