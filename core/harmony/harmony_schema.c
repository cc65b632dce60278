/* harmony_schema.c: a JSON Schema as the TypeScript-like type that gpt-oss models were trained to read. See harmony.h.
 *
 * The form is the reference renderer's, line by line: comments above a property for its title, description and
 * examples, its default behind it, variants of oneOf on lines of their own. What a schema says beyond that (formats,
 * bounds, $ref) the models do not know and is left out: any. Members are looked up in the text itself, which is small;
 * it was proved to be JSON before. */
#include "harmony/harmony.h"

#include <string.h>

#include "tokenizer/json_reader.h"
#include "tokenizer/vocab.h"

struct writer {
    struct byte_buffer *out;
    bool failed;
};

static void put(struct writer *w, const char *data, size_t n)
{
    w->failed = w->failed || !array_reserve((void **)&w->out->data, &w->out->cap, w->out->n + n, 1);
    if (w->failed || !n) return;
    memcpy(w->out->data + w->out->n, data, n);
    w->out->n += n;
}
static void say(struct writer *w, const char *text) { put(w, text, strlen(text)); }
static void indent(struct writer *w, unsigned n)
{
    for (unsigned i = 0; i < n; i++) put(w, " ", 1);
}

/* ---- looking into JSON --------------------------------------------------------------------------------- */

/* The member's value as raw JSON; false: the value is no object, or has no such member. */
static bool member(struct json_text object, const char *name, struct json_text *out)
{
    struct json_reader r;
    struct json_text key;
    bool found = false;
    jr_open(&r, object.data, object.len, "", "", NULL);
    if (jr_peek(&r) == JR_OBJECT && jr_object(&r))
        while (!found && jr_member(&r, &key)) {
            const bool it = jr_is(key, name);
            if (!jr_raw(&r, out)) break;
            found = it;
        }
    jr_close(&r);
    return found;
}

static bool is_a(struct json_text value, char first) { return value.len && value.data[0] == first; }
static bool text_member(struct json_text object, const char *name, struct json_text *out)
{
    return member(object, name, out) && is_a(*out, '"');
}
static bool list_member(struct json_text object, const char *name, struct json_text *out)
{
    return member(object, name, out) && is_a(*out, '[');
}

/* A string's text, without quotes and escapes. */
static void put_text(struct writer *w, struct json_text string)
{
    struct json_reader r;
    struct json_text text;
    jr_open(&r, string.data, string.len, "", "", NULL);
    if (jr_string(&r, &text))
        put(w, text.data, text.len);
    else
        w->failed = true; /* of memory */
    jr_close(&r);
}

static bool text_is(struct json_text string, const char *text)
{
    return string.len == strlen(text) + 2 && memcmp(string.data + 1, text, string.len - 2) == 0;
}

/* A value as it stands, without white space between its tokens. */
static void put_compact(struct writer *w, struct json_text value)
{
    bool inside = false;
    for (size_t i = 0; i < value.len; i++) {
        const char c = value.data[i];
        if (inside && c == '\\')
            put(w, value.data + i++, 1);
        else if (c == '"')
            inside = !inside;
        if (inside || (c != ' ' && c != '\n' && c != '\r' && c != '\t')) put(w, value.data + i, 1);
    }
}

/* Walks a list's elements as raw JSON. */
struct elements {
    struct json_reader r;
    bool open;
};
static void elements_begin(struct elements *e, struct json_text list)
{
    jr_open(&e->r, list.data, list.len, "", "", NULL);
    e->open = jr_array(&e->r);
}
static bool elements_next(struct elements *e, struct json_text *out)
{
    return e->open && jr_element(&e->r) && jr_raw(&e->r, out);
}

static bool is_enum(struct json_text schema)
{
    struct json_text list, value;
    struct elements e;
    if (!list_member(schema, "enum", &list)) return false;
    elements_begin(&e, list);
    return elements_next(&e, &value);
}

static bool contains_text(struct json_text list, struct json_text key)
{
    struct elements e;
    struct json_text value;
    elements_begin(&e, list);
    while (elements_next(&e, &value))
        if (value.len == key.len && memcmp(value.data, key.data, key.len) == 0) return true;
    return false;
}

/* ---- types --------------------------------------------------------------------------------------------- */

static void put_type(struct writer *w, struct json_text schema, unsigned depth);

static void put_default(struct writer *w, struct json_text schema, struct json_text value, bool bare)
{
    say(w, "default: ");
    if (!is_a(value, '"'))
        put_compact(w, value);
    else {
        const bool quotes = !bare || !is_enum(schema);
        if (quotes) say(w, "\"");
        put_text(w, value);
        if (quotes) say(w, "\"");
    }
}

/* The type, and null beside it where the schema allows that and the type does not say so. */
static void put_nullable(struct writer *w, struct json_text schema, unsigned depth)
{
    struct json_text nullable;
    const size_t begin = w->out->n;
    put_type(w, schema, depth);
    if (!w->failed && member(schema, "nullable", &nullable) && is_a(nullable, 't') &&
        !memmem(w->out->data + begin, w->out->n - begin, "null", 4))
        say(w, " | null");
}

/* " // description default: x" of a variant; no description where above is its text. */
static void put_remarks(struct writer *w, struct json_text variant, bool described, bool bare)
{
    struct json_text description, value;
    const bool has = described && text_member(variant, "description", &description),
               preset = member(variant, "default", &value);
    if (!has && !preset) return;
    say(w, " // ");
    if (has) put_text(w, description);
    if (has && preset) say(w, " ");
    if (preset) put_default(w, variant, value, bare);
}

static void put_one_of(struct writer *w, struct json_text variants, unsigned depth)
{
    struct elements e;
    struct json_text variant;
    elements_begin(&e, variants);
    while (elements_next(&e, &variant)) {
        say(w, "\n");
        indent(w, depth);
        say(w, " | ");
        put_nullable(w, variant, depth + 3);
        put_remarks(w, variant, true, false);
    }
}

static void put_comment(struct writer *w, unsigned depth, struct json_text text)
{
    indent(w, depth);
    say(w, "// ");
    put_text(w, text);
    say(w, "\n");
}

static void put_name(struct writer *w, unsigned depth, struct json_text key, bool required, const char *end)
{
    indent(w, depth);
    put_text(w, key);
    if (!required) say(w, "?");
    say(w, end);
}

static void put_variants(struct writer *w, struct json_text key, struct json_text schema, struct json_text variants,
                         bool required, unsigned depth)
{
    struct json_text description = { 0 }, first, of_first, value;
    struct elements e;
    const bool has = text_member(schema, "description", &description);
    elements_begin(&e, variants);
    const bool same = has && elements_next(&e, &first) && text_member(first, "description", &of_first) &&
                      of_first.len == description.len && memcmp(of_first.data, description.data, description.len) == 0;
    if (has && !same) put_comment(w, depth, description);
    if (member(schema, "default", &value)) {
        indent(w, depth);
        say(w, "// ");
        put_default(w, schema, value, true);
        say(w, "\n");
    }
    put_name(w, depth, key, required, ":\n");
    elements_begin(&e, variants);
    for (bool at_first = true; elements_next(&e, &first); at_first = false) {
        indent(w, depth);
        say(w, " | ");
        put_nullable(w, first, depth + 3);
        const bool repeats = has && text_member(first, "description", &of_first) && of_first.len == description.len &&
                             memcmp(of_first.data, description.data, description.len) == 0;
        put_remarks(w, first, !repeats && !(at_first && has && !same), true);
        say(w, "\n");
    }
    indent(w, depth);
    say(w, ",\n");
}

static void put_examples(struct writer *w, struct json_text schema, unsigned depth)
{
    struct json_text list, value;
    struct elements e;
    if (!list_member(schema, "examples", &list)) return;
    elements_begin(&e, list);
    for (bool first = true; elements_next(&e, &value); first = false) {
        if (first) {
            indent(w, depth);
            say(w, "// Examples:\n");
        }
        if (!is_a(value, '"')) continue;
        indent(w, depth);
        say(w, "// - \"");
        put_text(w, value);
        say(w, "\"\n");
    }
}

static void put_property(struct writer *w, struct json_text key, struct json_text schema, bool required, unsigned depth)
{
    struct json_text text, variants, value;
    const bool one_of = member(schema, "oneOf", &variants);
    if (text_member(schema, "title", &text)) {
        put_comment(w, depth, text);
        indent(w, depth);
        say(w, "//\n");
    }
    if (!one_of && text_member(schema, "description", &text)) put_comment(w, depth, text);
    put_examples(w, schema, depth);
    if (one_of && is_a(variants, '[')) {
        put_variants(w, key, schema, variants, required, depth);
        return;
    }
    put_name(w, depth, key, required, ": ");
    put_nullable(w, schema, depth + 4);
    say(w, ",");
    if (!one_of && member(schema, "default", &value)) {
        say(w, " // ");
        put_default(w, schema, value, true);
    }
    say(w, "\n");
}

static void put_object(struct writer *w, struct json_text schema, unsigned depth)
{
    struct json_text text, properties, required = { "[]", 2 }, value;
    struct json_reader r;
    if (text_member(schema, "description", &text)) put_comment(w, depth, text);
    say(w, "{\n");
    if (member(schema, "properties", &properties) && is_a(properties, '{')) {
        if (!list_member(schema, "required", &required)) required = (struct json_text){ "[]", 2 };
        jr_open(&r, properties.data, properties.len, "", "", NULL);
        if (jr_object(&r))
            while (jr_member(&r, NULL)) {
                const struct json_text key = r.level[0].key,
                                       quoted = { key.data - 1, key.len + 2 }; /* as it stands, with its quotes */
                if (!jr_raw(&r, &value)) break;
                put_property(w, quoted, value, contains_text(required, quoted), depth);
            }
        jr_close(&r);
    }
    indent(w, depth);
    say(w, "}");
}

/* "a" | "b" of the strings in a list; false: it has none. mapped: type names, integer being number. */
static bool put_choice(struct writer *w, struct json_text list, bool mapped)
{
    struct elements e;
    struct json_text value;
    bool any = false;
    elements_begin(&e, list);
    while (elements_next(&e, &value)) {
        if (!is_a(value, '"')) continue;
        if (any) say(w, " | ");
        any = true;
        if (!mapped) say(w, "\"");
        if (mapped && text_is(value, "integer"))
            say(w, "number");
        else
            put_text(w, value);
        if (!mapped) say(w, "\"");
    }
    return any;
}

static void put_type(struct writer *w, struct json_text schema, unsigned depth)
{
    struct json_text type, list;
    if (list_member(schema, "oneOf", &list)) {
        put_one_of(w, list, depth);
        return;
    }
    if (list_member(schema, "type", &list) && put_choice(w, list, true)) return;
    if (!text_member(schema, "type", &type))
        say(w, "any");
    else if (text_is(type, "object"))
        put_object(w, schema, depth);
    else if (text_is(type, "string")) {
        if (!list_member(schema, "enum", &list) || !put_choice(w, list, false)) say(w, "string");
    } else if (text_is(type, "number") || text_is(type, "integer"))
        say(w, "number");
    else if (text_is(type, "boolean"))
        say(w, "boolean");
    else if (text_is(type, "array")) {
        if (!member(schema, "items", &list))
            say(w, "Array<any>");
        else {
            put_type(w, list, depth);
            say(w, "[]");
        }
    } else
        say(w, "any");
}

wk_status harmony_schema(struct token_bytes schema, const char *what, struct byte_buffer *out, const struct wk_err *err)
{
    struct writer w = { .out = out };
    struct json_reader r;
    struct json_text raw = { schema.data, schema.len };
    if (schema.len > HARMONY_MAX_SCHEMA)
        return wk_fail(err, WK_INVALID, "%s: %zu bytes; at most %d are supported", what, schema.len,
                       HARMONY_MAX_SCHEMA);
    jr_open(&r, schema.data, schema.len, what, "", err);
    if (jr_peek(&r) != JR_OBJECT)
        (void)jr_fail(&r, WK_INVALID, "expected a JSON Schema, an object");
    else if (jr_raw(&r, &raw))
        (void)jr_finish(&r);
    jr_close(&r);
    if (r.status) return r.status;
    put_type(&w, raw, 0);
    return w.failed ? wk_fail(err, WK_NO_MEMORY, "%s: no memory", what) : WK_OK;
}
