/* raw.c: see raw.h. */
#include "raw.h"

#include <stdio.h>
#include <string.h>

static struct raw piece(struct json_reader *json)
{
    struct json_text text;
    const enum jr_kind kind = jr_peek(json);
    return jr_raw(json, &text) ? (struct raw){ text.data, text.len, kind } : (struct raw){ 0 };
}

struct raw raw_of(const char *bytes, size_t n)
{
    struct json_reader json;
    jr_open(&json, bytes, n, "", "", NULL);
    const struct raw all = piece(&json);
    jr_close(&json);
    return all;
}

void raw_open(struct raw_walk *w, struct raw of)
{
    w->key = (struct json_text){ 0 };
    w->object = of.kind == JR_OBJECT;
    jr_open(&w->json, of.data ? of.data : "", of.n, "", "", NULL);
    if (of.kind == JR_OBJECT)
        (void)jr_object(&w->json);
    else if (of.kind == JR_ARRAY)
        (void)jr_array(&w->json);
    else
        w->json.status = WK_INVALID;
}

bool raw_next(struct raw_walk *w, struct raw *value)
{
    if (w->json.status || !(w->object ? jr_member(&w->json, &w->key) : jr_element(&w->json))) return false;
    *value = piece(&w->json);
    return value->data;
}

void raw_close(struct raw_walk *w) { jr_close(&w->json); }

struct raw raw_member(struct raw object, const char *name)
{
    struct raw found = { 0 };
    struct raw_walk w;
    if (object.kind != JR_OBJECT) return found;
    /* the key is the reader's until the value is taken */
    raw_open(&w, object);
    while (!w.json.status && jr_member(&w.json, &w.key)) {
        const bool is = jr_is(w.key, name);
        const struct raw value = piece(&w.json);
        if (is) found = value.kind == JR_NULL ? (struct raw){ 0 } : value;
    }
    raw_close(&w);
    return found;
}

bool raw_member_of(struct raw object, const char *where, const char *name, enum jr_kind kind, struct raw *out,
                   struct refusal *why)
{
    static const char *const kinds[] = {
        [JR_NOTHING] = "nothing", [JR_OBJECT] = "an object",   [JR_ARRAY] = "a list", [JR_STRING] = "a string",
        [JR_NUMBER] = "a number", [JR_BOOL] = "true or false", [JR_NULL] = "null"
    };
    char field[96];
    *out = raw_member(object, name);
    if (!out->data || out->kind == kind) return true;
    (void)snprintf(field, sizeof field, "%s%s%s", where, *where ? "." : "", name);
    return refuse(why, SERVE_INVALID_REQUEST, field, "%s: expected %s, got %s", field, kinds[kind], kinds[out->kind]);
}

bool raw_is_empty(struct raw value)
{
    struct raw_walk w;
    struct raw first;
    raw_open(&w, value);
    const bool empty = !w.json.status && !raw_next(&w, &first) && !w.json.status;
    raw_close(&w);
    return empty;
}

static bool take_string(struct raw string, struct json_reader *json, struct json_text *out)
{
    jr_open(json, string.data, string.n, "", "", NULL);
    return jr_string(json, out);
}

bool raw_says(struct raw value, const char *word)
{
    struct json_reader json;
    struct json_text text;
    if (value.kind != JR_STRING) return false;
    const bool says = take_string(value, &json, &text) && jr_is(text, word);
    jr_close(&json);
    return says;
}

void raw_text(struct raw string, struct http_text *out)
{
    struct json_reader json;
    struct json_text text;
    if (string.kind != JR_STRING) return;
    if (take_string(string, &json, &text))
        http_text_add(out, text.data, text.len);
    else
        out->failed = true; /* the reader had no memory: a string of a document that was parsed has no other fault */
    jr_close(&json);
}

void raw_copy(struct http_text *out, struct raw value, const char *otherwise)
{
    if (value.data)
        http_text_add(out, value.data, value.n);
    else
        http_text_add(out, otherwise, strlen(otherwise));
}

void raw_copy_line(struct http_text *out, struct raw value, const char *otherwise)
{
    const size_t from = out->n;
    raw_copy(out, value, otherwise);
    for (size_t i = from; !out->failed && i < out->n; i++)
        if (out->data[i] == '\n' || out->data[i] == '\r') out->data[i] = ' ';
}

void raw_copy_member(struct http_text *out, const char *name, struct raw value)
{
    if (!value.data) return;
    http_text_format(out, ",\"%s\":", name);
    http_text_add(out, value.data, value.n);
}
