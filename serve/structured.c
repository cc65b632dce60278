/* structured.c: see structured.h. */
#include "structured.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A member as it was parsed, and its own text, so that a schema's numbers and order are the client's. */
struct member {
    const struct body_object *o; /* that it is a member of */
    const char *name;
    const json_t *value;
    const char *text;
    size_t len;
};

/* False: it is absent, or why was made: *bad. */
static bool find(const struct body_object *o, const char *text, size_t len, const char *name, struct member *out,
                 bool *bad, struct refusal *why)
{
    *out = (struct member){ .o = o, .name = name, .value = json_object_get(o->object, name) };
    if (!out->value || json_is_null(out->value)) return false;
    if (body_member(text, len, name, &out->text, &out->len)) return true;
    *bad = true;
    return body_fail(o, name, why, "the name \"%s\" written without escapes", name);
}

/* ---- kinds --------------------------------------------------------------------------------------------- */

static bool take_text(const struct member *m, enum grammar_kind kind, const char *expected, struct structured *out,
                      struct refusal *why)
{
    if (!json_string_length(m->value)) return body_fail(m->o, m->name, why, "%s", expected);
    out->from.kind = kind;
    out->from.text = (struct token_bytes){ json_string_value(m->value), json_string_length(m->value) };
    return true;
}

/* A schema, or its text in a string. */
static bool take_schema(const struct member *m, bool strict, struct structured *out, struct refusal *why)
{
    static const char expected[] = "a JSON Schema: an object, or its text";
    out->from.strict = strict;
    if (json_is_string(m->value)) return take_text(m, GRAMMAR_SCHEMA, expected, out, why);
    if (json_is_false(m->value)) return body_fail(m->o, m->name, why, "a JSON Schema that accepts something");
    if (!json_is_object(m->value) && !json_is_true(m->value)) return body_fail(m->o, m->name, why, "%s", expected);
    out->from = (struct grammar_source){ .kind = GRAMMAR_SCHEMA, .strict = strict, .text = { m->text, m->len } };
    return true;
}

static bool take_choices(const struct member *m, struct structured *out, struct refusal *why)
{
    const size_t n = json_array_size(m->value);
    if (!n || n > STRUCTURED_CHOICES)
        return body_fail(m->o, m->name, why, "a list of 1 to %d texts", STRUCTURED_CHOICES);
    for (size_t i = 0; i < n; i++)
        if (!json_string_length(json_array_get(m->value, i)))
            return body_fail(m->o, m->name, why, "texts that are not empty");
    out->choices = calloc(n, sizeof *out->choices);
    if (!out->choices) return refuse(why, SERVE_INTERNAL, NULL, "no memory for the request");
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(m->value, i);
        out->choices[i] = (struct lang_word){ json_string_value(v), json_string_length(v) };
    }
    out->from = (struct grammar_source){ .kind = GRAMMAR_CHOICE, .choices = out->choices, .n_choices = n };
    return true;
}

/* ---- response_format ----------------------------------------------------------------------------------- */

/* {"json_schema": {"name", "schema", "strict"}}, {"schema", "strict"}. */
static bool take_format_schema(const struct body_object *format, const struct member *m, struct structured *out,
                               struct refusal *why)
{
    struct member nested, schema;
    bool bad = false, strict = false;
    const bool is_nested = find(format, m->text, m->len, "json_schema", &nested, &bad, why);
    if (bad) return false;
    if (is_nested && !json_is_object(nested.value)) return body_fail(format, "json_schema", why, "an object");
    const struct body_object inner = { nested.value, "response_format.json_schema." };
    const struct body_object *at = is_nested ? &inner : format;
    const char *text = is_nested ? nested.text : m->text;
    const size_t len = is_nested ? nested.len : m->len;
    if (!json_is_null(json_object_get(at->object, "strict")) && !body_flag(at, "strict", &strict, why)) return false;
    if (!find(at, text, len, "schema", &schema, &bad, why))
        return !bad &&
               refuse(why, SERVE_INVALID_REQUEST, "response_format",
                      "response_format: expected a schema, as \"json_schema\": {\"schema\": ...} or \"schema\"");
    return take_schema(&schema, strict, out, why);
}

/* What would be a form for another server must not get lost here. */
static bool knows_members(const json_t *format, struct refusal *why)
{
    static const char *const names[] = { "type", "json_schema", "schema", "strict", "name", "description" };
    const char *key;
    const json_t *value;
    json_object_foreach ((json_t *)(uintptr_t)format, key, value) {
        bool known = json_is_null(value);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) known = known || strcmp(names[i], key) == 0;
        if (known) continue;
        return refuse(why, SERVE_INVALID_REQUEST, "response_format",
                      "response_format: expected type and json_schema or schema, got %.60s", key);
    }
    return true;
}

/* llama-server's clients write out {}, its default. */
static bool has_schema(const json_t *format)
{
    const json_t *schema = json_object_get(format, "schema"), *nested = json_object_get(format, "json_schema");
    const bool flat = schema && !json_is_null(schema) && !(json_is_object(schema) && !json_object_size(schema));
    return flat || (nested && !json_is_null(nested));
}

static bool take_format(const struct member *m, struct structured *out, struct refusal *why)
{
    const struct body_object format = { m->value, "response_format." };
    const json_t *type = json_object_get(m->value, "type");
    if (!json_is_object(m->value)) return body_fail(m->o, m->name, why, "an object");
    const bool text = body_says(type, "text"), schema = body_says(type, "json_schema");
    if (!text && !schema && !body_says(type, "json_object"))
        return body_fail(&format, "type", why,
                         "text, json_object or json_schema (structured_outputs has regex, choice and grammar)");
    if (!knows_members(m->value, why)) return false;
    if (text && has_schema(m->value)) return body_fail(&format, "type", why, "json_schema, for there is a schema");
    if (text) return true;
    if (schema || has_schema(m->value)) return take_format_schema(&format, m, out, why);
    out->from.kind = GRAMMAR_OBJECT;
    return true;
}

/* ---- one member after the other ------------------------------------------------------------------------ */

static bool take_flag(const struct member *m, struct structured *out, struct refusal *why)
{
    bool object = false;
    if (!body_flag(m->o, m->name, &object, why)) return false;
    if (object) out->from.kind = GRAMMAR_OBJECT;
    return true;
}

static bool take_any_schema(const struct member *m, struct structured *out, struct refusal *why)
{
    return take_schema(m, false, out, why);
}
static bool take_regex(const struct member *m, struct structured *out, struct refusal *why)
{
    return take_text(m, GRAMMAR_REGEX, "a regular expression", out, why);
}
static bool take_gbnf(const struct member *m, struct structured *out, struct refusal *why)
{
    return take_text(m, GRAMMAR_GBNF, "a grammar in GBNF", out, why);
}
/* Clients of llama-server write out its default, "": no grammar. */
static bool take_grammar(const struct member *m, struct structured *out, struct refusal *why)
{
    return (json_is_string(m->value) && !json_string_length(m->value)) || take_gbnf(m, out, why);
}

struct way {
    const char *name;
    bool (*take)(const struct member *m, struct structured *out, struct refusal *why);
};

static bool take_ways(const struct way *ways, size_t n_ways, const struct body_object *o, const char *text, size_t len,
                      struct structured *out, struct refusal *why);

static bool take_outputs(const struct member *m, struct structured *out, struct refusal *why)
{
    static const struct way ways[] = { { "json", take_any_schema },
                                       { "regex", take_regex },
                                       { "choice", take_choices },
                                       { "grammar", take_gbnf },
                                       { "json_object", take_flag } };
    const struct body_object inner = { m->value, "structured_outputs." };
    const char *key;
    const json_t *value;
    if (!json_is_object(m->value)) return body_fail(m->o, m->name, why, "an object");
    json_object_foreach ((json_t *)(uintptr_t)m->value, key, value) {
        /* What is off asks for nothing; what else there is, such as whitespace_pattern, would be another answer. */
        bool known = json_is_null(value) || json_is_false(value);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) known = known || strcmp(ways[i].name, key) == 0;
        if (known) continue;
        return refuse(why, SERVE_INVALID_REQUEST, "structured_outputs",
                      "structured_outputs: expected json, regex, choice, grammar or json_object, got %.60s", key);
    }
    return take_ways(ways, sizeof ways / sizeof *ways, &inner, m->text, m->len, out, why) &&
           (out->from.kind != GRAMMAR_NONE ||
            body_fail(m->o, m->name, why, "json, regex, choice, grammar or json_object in it"));
}

/* Exactly one, or none. */
static bool take_ways(const struct way *ways, size_t n_ways, const struct body_object *o, const char *text, size_t len,
                      struct structured *out, struct refusal *why)
{
    const char *first = NULL;
    for (size_t i = 0; i < n_ways; i++) {
        struct structured one = { 0 };
        struct member m;
        bool bad = false;
        if (!find(o, text, len, ways[i].name, &m, &bad, why)) {
            if (bad) return structured_free(out), false;
            continue;
        }
        if (!ways[i].take(&m, &one, why)) return structured_free(out), false;
        if (one.from.kind == GRAMMAR_NONE) continue;
        if (first) {
            structured_free(&one);
            structured_free(out);
            return body_fail(o, ways[i].name, why, "one form of the answer: %s%s asks for one, too", o->prefix, first);
        }
        *out = one;
        out->field = first = ways[i].name;
    }
    return true;
}

bool structured_read(const struct body_object *o, const char *bytes, size_t n, struct structured *out,
                     struct refusal *why)
{
    static const struct way ways[] = { { "response_format", take_format }, { "json_schema", take_any_schema },
                                       { "grammar", take_grammar },        { "structured_outputs", take_outputs },
                                       { "guided_json", take_any_schema }, { "guided_regex", take_regex },
                                       { "guided_choice", take_choices },  { "guided_grammar", take_gbnf } };
    *out = (struct structured){ 0 };
    return take_ways(ways, sizeof ways / sizeof *ways, o, bytes, n, out, why);
}

void structured_free(struct structured *s)
{
    free(s->choices);
    *s = (struct structured){ 0 };
}
