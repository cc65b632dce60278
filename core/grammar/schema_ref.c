/* schema_ref.c: identifiers of a schema's text, and what a reference names. Nothing is ever fetched: a reference is
 * looked up among the identifiers ($id, $anchor) and places of the text itself, or the schema is refused.
 *
 * Identifiers are found at places where the draft has a schema, never inside `enum`, `const` or unknown keywords. */
#include <string.h>

#include "grammar/schema_internal.h"

struct schema_base {
    struct schema_base *next;
    const struct js_value *schema;
    struct json_text uri; /* absolute as far as the text makes it so, without a fragment */
    struct schema_anchor *anchors;
};
struct schema_anchor {
    struct schema_anchor *next;
    const struct js_value *schema;
    struct json_text name;
    bool dynamic;
};

/* ---- URIs (RFC 3986, 5.2) ------------------------------------------------------------------------------- */

struct uri {
    struct json_text scheme /* with ':' */, authority /* with "//" */, path, query /* with '?' */;
};

static struct json_text part(const char *from, const char *to)
{
    return (struct json_text){ from, (size_t)(to - from) };
}

static bool scheme_char(char ch)
{
    return (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch >= '0' && ch <= '9') || ch == '+' || ch == '-' ||
           ch == '.';
}

static struct uri split_uri(struct json_text t)
{
    struct uri u = { 0 };
    const char *p = t.data, *end = t.data + t.len, *q = p;
    while (q < end && scheme_char(*q)) q++;
    if (q < end && q > p && *q == ':') {
        u.scheme = part(p, q + 1);
        p = q + 1;
    }
    if (end - p >= 2 && p[0] == '/' && p[1] == '/') {
        for (q = p + 2; q < end && *q != '/' && *q != '?';) q++;
        u.authority = part(p, q);
        p = q;
    }
    for (q = p; q < end && *q != '?';) q++;
    u.path = part(p, q);
    u.query = part(q, end);
    return u;
}

/* Takes "." and ".." out of a path, in place; returns its length. */
static size_t remove_dots(char *path, size_t n)
{
    size_t out = 0, at = 0;
    while (at < n) {
        size_t end = at + (path[at] == '/');
        while (end < n && path[end] != '/') end++;
        const char *segment = path + at + (path[at] == '/');
        const size_t len = (size_t)(path + end - segment);
        const bool last = end == n;
        if (len == 1 && segment[0] == '.') {
            if (last && out < n) path[out++] = '/';
        } else if (len == 2 && segment[0] == '.' && segment[1] == '.') {
            while (out && path[--out] != '/') continue;
            if (last && out < n) path[out++] = '/';
        } else {
            memmove(path + out, path + at, end - at);
            out += end - at;
        }
        at = end;
    }
    return out;
}

static size_t put(char *out, size_t n, struct json_text t)
{
    if (t.len) memcpy(out + n, t.data, t.len);
    return n + t.len;
}

static bool resolve_uri(struct schema_ctx *c, struct json_text base_text, struct json_text ref_text,
                        struct json_text *out)
{
    const struct uri base = split_uri(base_text), ref = split_uri(ref_text);
    char *text = sch_take(c, base_text.len + ref_text.len + 4, 1);
    if (!text) return false;
    const bool own_scheme = ref.scheme.len, own_authority = own_scheme || ref.authority.len;
    const bool own_path = own_authority || ref.path.len;
    size_t n = put(text, 0, own_scheme ? ref.scheme : base.scheme);
    n = put(text, n, own_authority ? ref.authority : base.authority);
    const size_t path = n;
    if (own_authority || (ref.path.len && ref.path.data[0] == '/'))
        n = put(text, n, ref.path);
    else if (!ref.path.len)
        n = put(text, n, base.path);
    else {
        size_t keep = base.path.len;
        while (keep && base.path.data[keep - 1] != '/') keep--;
        if (!keep && base.authority.len) text[n++] = '/';
        n = put(text, n, (struct json_text){ base.path.data, keep });
        n = put(text, n, ref.path);
    }
    if (n > path && text[path] == '/') n = path + remove_dots(text + path, n - path);
    n = put(text, n, own_path || ref.query.len ? ref.query : base.query);
    *out = (struct json_text){ text, n };
    return true;
}

/* ---- collecting ----------------------------------------------------------------------------------------- */

static const char *const one_schema[] = { "additionalItems",
                                          "additionalProperties",
                                          "unevaluatedProperties",
                                          "unevaluatedItems",
                                          "items",
                                          "contains",
                                          "propertyNames",
                                          "if",
                                          "then",
                                          "else",
                                          "not",
                                          NULL };
static const char *const schema_lists[] = { "allOf", "anyOf", "oneOf", "prefixItems", "items", NULL };
static const char *const schema_maps[] = { "properties",       "patternProperties", "$defs", "definitions",
                                           "dependentSchemas", "dependencies",      NULL };

static bool in(const char *const *list, struct json_text key)
{
    for (; *list; list++)
        if (jr_is(key, *list)) return true;
    return false;
}

/* NULL: failed. */
static struct schema_base *base_at(struct schema_ctx *c, const struct js_value *v)
{
    while (!v->base && v->parent) v = v->parent;
    for (struct schema_base *b = c->bases; b; b = b->next) {
        if (!sch_step(c, 1)) return NULL;
        if (b->schema == v) return b;
    }
    return c->bases;
}

static bool add_anchor(struct schema_ctx *c, const struct js_value *schema, struct json_text name, bool dynamic)
{
    struct schema_anchor *a = sch_take(c, 1, sizeof *a);
    struct schema_base *b = base_at(c, schema);
    if (!a || !b) return false;
    *a = (struct schema_anchor){ b->anchors, schema, name, dynamic };
    b->anchors = a;
    return true;
}

/* A schema's own identifier: a new base, or in older drafts an anchor ("#name"). */
static bool add_id(struct schema_ctx *c, struct js_value *schema, const struct js_value *id)
{
    struct json_text uri = id->text;
    const char *hash = memchr(uri.data, '#', uri.len);
    if (hash && c->draft > DRAFT_7 && hash + 1 < uri.data + uri.len)
        return sch_fail(c, WK_INVALID, schema, "$id", "an identifier with a fragment; use $anchor");
    if (hash == uri.data && uri.len > 1)
        return add_anchor(c, schema, (struct json_text){ uri.data + 1, uri.len - 1 }, false);
    if (hash) uri.len = (size_t)(hash - uri.data);
    struct schema_base *above = base_at(c, schema), *b = schema == c->root ? above : sch_take(c, 1, sizeof *b);
    if (!above || !b || !resolve_uri(c, above->uri, uri, &uri)) return false;
    b->uri = uri;
    if (schema == c->root) return true;
    b->schema = schema;
    schema->base = true;
    b->next = c->bases->next; /* the root's stays first */
    c->bases->next = b;
    return true;
}

static bool collect(struct schema_ctx *c, struct js_value *schema);

static bool collect_each(struct schema_ctx *c, struct js_value *v)
{
    for (uint32_t i = 0; i < v->n; i++)
        if (!collect(c, v->kind == JR_ARRAY ? &v->item[i] : &v->member[i].value)) return false;
    return true;
}

/* Depth: the text's, which the reader bounds. */
static bool collect(struct schema_ctx *c, struct js_value *schema)
{
    if (schema->kind != JR_OBJECT) return true;
    const struct js_value *id = js_get(schema, c->draft == DRAFT_4 ? "id" : "$id"), *v = js_get(schema, "$schema");
    const bool ref_alone = c->draft <= DRAFT_7 && js_get(schema, "$ref");
    if (js_is(id, JR_STRING) && !ref_alone && !add_id(c, schema, id)) return false;
    if (v && schema->base && schema_draft_of(v, c->draft) != c->draft)
        return sch_fail(c, WK_UNSUPPORTED, schema, "$schema", "a part in another draft than the whole");
    if (c->draft >= DRAFT_2019 && js_is(v = js_get(schema, "$anchor"), JR_STRING) &&
        !add_anchor(c, schema, v->text, false))
        return false;
    if (js_is(v = js_get(schema, "$dynamicAnchor"), JR_STRING) && !add_anchor(c, schema, v->text, true)) return false;
    v = js_get(schema, "$recursiveAnchor");
    if (v && v->truth && !add_anchor(c, schema, (struct json_text){ "", 0 }, true)) return false;
    for (uint32_t i = 0; i < schema->n; i++) {
        struct js_member *m = &schema->member[i];
        struct js_value *child = &m->value;
        if (jr_is(m->key, "unevaluatedProperties") || jr_is(m->key, "unevaluatedItems")) c->unevaluated = true;
        if (child->kind == JR_OBJECT && in(one_schema, m->key) && !collect(c, child)) return false;
        if (((child->kind == JR_ARRAY && in(schema_lists, m->key)) ||
             (child->kind == JR_OBJECT && in(schema_maps, m->key))) &&
            !collect_each(c, child))
            return false;
    }
    return true;
}

bool ref_collect(struct schema_ctx *c)
{
    struct schema_base *b = sch_take(c, 1, sizeof *b);
    if (!b) return false;
    b->schema = c->root;
    b->uri = (struct json_text){ "", 0 };
    c->bases = b;
    struct js_value *root = (struct js_value *)(uintptr_t)c->root;
    root->base = true;
    return collect(c, root);
}

enum schema_draft schema_draft_of(const struct js_value *schema, enum schema_draft otherwise)
{
    static const struct {
        const char *uri;
        enum schema_draft draft;
    } known[] = { { "://json-schema.org/draft-04/schema", DRAFT_4 },
                  { "://json-schema.org/draft-06/schema", DRAFT_6 },
                  { "://json-schema.org/draft-07/schema", DRAFT_7 },
                  { "://json-schema.org/draft/2019-09/schema", DRAFT_2019 },
                  { "://json-schema.org/draft/2020-12/schema", DRAFT_2020 } };
    if (!js_is(schema, JR_STRING)) return otherwise;
    struct json_text t = schema->text;
    if (t.len && t.data[t.len - 1] == '#') t.len--;
    const size_t scheme = t.len > 5 && memcmp(t.data, "https", 5) == 0 ? 5 : t.len > 4 ? 4 : 0;
    t.data += scheme;
    t.len -= scheme;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (jr_is(t, known[i].uri)) return known[i].draft;
    return DRAFT_UNKNOWN;
}

/* ---- resolving ------------------------------------------------------------------------------------------ */

static int hex(char ch)
{
    if (ch >= '0' && ch <= '9') return ch - '0';
    ch = (char)(ch | 0x20);
    return ch >= 'a' && ch <= 'f' ? ch - 'a' + 10 : -1;
}

/* Percent signs out of a fragment. */
static bool unescape(struct schema_ctx *c, struct json_text t, struct json_text *out)
{
    char *text = sch_take(c, t.len, 1);
    size_t n = 0;
    if (!text) return false;
    for (size_t i = 0; i < t.len; i++) {
        const int high = t.data[i] == '%' && i + 2 < t.len ? hex(t.data[i + 1]) : -1;
        const int low = high >= 0 ? hex(t.data[i + 2]) : -1;
        text[n++] = low >= 0 ? (char)(high * 16 + low) : t.data[i];
        i += low >= 0 ? 2 : 0;
    }
    *out = (struct json_text){ text, n };
    return true;
}

static const struct js_value *step_into(struct schema_ctx *c, const struct js_value *v, char *name, size_t n)
{
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        const bool escape = name[i] == '~' && i + 1 < n && (name[i + 1] == '0' || name[i + 1] == '1');
        name[len++] = !escape ? name[i] : name[i + 1] == '0' ? '~' : '/';
        i += escape;
    }
    if (v->kind == JR_OBJECT) return sch_step(c, 1 + v->n / 8) ? js_find(v, (struct json_text){ name, len }) : NULL;
    if (v->kind != JR_ARRAY || !len || len > 6 || (len > 1 && name[0] == '0')) return NULL;
    uint32_t index = 0;
    for (size_t i = 0; i < len; i++) {
        if (name[i] < '0' || name[i] > '9') return NULL;
        index = index * 10 + (uint32_t)(name[i] - '0');
    }
    return index < v->n ? &v->item[index] : NULL;
}

static const struct js_value *follow(struct schema_ctx *c, const struct js_value *v, struct json_text pointer)
{
    char *p = (char *)(uintptr_t)pointer.data, *end = p + pointer.len; /* unescape's copy */
    while (v && p < end) {
        char *next = ++p;
        while (next < end && *next != '/') next++;
        v = step_into(c, v, p, (size_t)(next - p));
        p = next;
    }
    return v;
}

static uint32_t count_dynamic(struct schema_ctx *c, struct json_text name)
{
    uint32_t n = 0;
    for (const struct schema_base *b = c->bases; b; b = b->next)
        for (const struct schema_anchor *a = b->anchors; a && sch_step(c, 1); a = a->next)
            n += a->dynamic && text_equal(a->name, name);
    return n;
}

const struct js_value *ref_resolve(struct schema_ctx *c, const struct js_value *schema, const char *keyword,
                                   const struct js_value *ref)
{
    if (ref->kind != JR_STRING) {
        sch_fail(c, WK_INVALID, schema, keyword, "expected a string");
        return NULL;
    }
    const struct json_text t = ref->text;
    const char *hash = memchr(t.data, '#', t.len);
    struct json_text uri = { t.data, hash ? (size_t)(hash - t.data) : t.len }, name = { "", 0 };
    const struct schema_base *base = base_at(c, schema);
    if (!base) return NULL;
    if (hash && !unescape(c, part(hash + 1, t.data + t.len), &name)) return NULL;
    if (uri.len) {
        if (!resolve_uri(c, base->uri, uri, &uri)) return NULL;
        for (base = c->bases; base && sch_step(c, 1) && !text_equal(base->uri, uri);) base = base->next;
        for (const struct schema_base *b = base ? base->next : NULL; b; b = b->next)
            if (text_equal(b->uri, uri)) {
                sch_fail(c, WK_INVALID, schema, keyword, "several schemas have the identifier \"%.*s\"",
                         (int)(uri.len < 128 ? uri.len : 128), uri.data);
                return NULL;
            }
    }
    const struct js_value *found = base ? base->schema : NULL;
    const struct schema_anchor *anchor = NULL;
    if (base && name.len && name.data[0] == '/')
        found = follow(c, found, name);
    else if (base && name.len) {
        for (anchor = base->anchors; anchor && sch_step(c, 1) && !text_equal(anchor->name, name);)
            anchor = anchor->next;
        found = anchor ? anchor->schema : NULL;
    }
    if (!found) {
        sch_fail(c, WK_UNSUPPORTED, schema, keyword,
                 "\"%.*s\" is not in this text, and other places are not asked: bring it in under $defs",
                 (int)(t.len < 128 ? t.len : 128), t.data);
        return NULL;
    }
    const bool dynamic = strcmp(keyword, "$ref") != 0;
    if (dynamic && ((anchor && anchor->dynamic) || !name.len) && count_dynamic(c, name) > 1) {
        sch_fail(c, WK_UNSUPPORTED, schema, keyword,
                 "several schemas carry its anchor, and which is meant depends on the way to it: use $ref");
        return NULL;
    }
    if (found->kind != JR_OBJECT && found->kind != JR_BOOL) {
        sch_fail(c, WK_INVALID, schema, keyword, "it names a place that holds no schema");
        return NULL;
    }
    return found;
}
