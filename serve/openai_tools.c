/* openai_tools.c: see openai_tools.h. */
#include "openai_tools.h"

#include <stdlib.h>
#include <string.h>

static bool is_name(struct token_bytes t)
{
    if (t.len > TOOLS_MAX_NAME) return false;
    for (size_t i = 0; i < t.len; i++) {
        const char c = t.data[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c && strchr("_-.:/", c))))
            return false;
    }
    return true;
}

static bool read_list(const struct body_object *o, struct token_bytes json, struct openai_tools *out,
                      struct refusal *why)
{
    struct chat_problem problem;
    char field[64];
    if (!json.data) return true;
    if (!json_is_array(json_object_get(o->object, "tools"))) return body_fail(o, "tools", why, "a list of functions");
    if (!chat_tools_read(json.data, json.len, &out->list, &problem))
        return refuse(why, serve_code_of_status(problem.status), problem.field, "%s", problem.text);
    for (size_t i = 0; i < out->list.n; i++) {
        const struct chat_tool *t = &out->list.list[i];
        (void)snprintf(field, sizeof field, "tools[%zu].function.%s", i, is_name(t->name) ? "parameters" : "name");
        if (!is_name(t->name))
            return refuse(why, SERVE_INVALID_REQUEST, field, "%s: expected at most %d letters, digits and _ - . : /",
                          field, TOOLS_MAX_NAME);
        if (t->parameters.len > TOOLS_MAX_SCHEMA)
            return refuse(why, SERVE_INVALID_REQUEST, field, "%s: expected at most %d bytes, got %zu", field,
                          TOOLS_MAX_SCHEMA, t->parameters.len);
    }
    return true;
}

/* The function's place; list.n: it is not offered. */
static size_t place_of(const struct openai_tools *t, struct token_bytes name)
{
    size_t i = 0;
    while (i < t->list.n &&
           (t->list.list[i].name.len != name.len || memcmp(t->list.list[i].name.data, name.data, name.len) != 0))
        i++;
    return i;
}

/* {"type": "function", "function": {"name": ...}}, or flat: {"type": "function", "name": ...}. data NULL: neither. */
static struct token_bytes name_in(const json_t *function)
{
    const json_t *name = json_object_get(json_object_get(function, "function"), "name");
    if (!name) name = json_object_get(function, "name");
    if (!body_says(json_object_get(function, "type"), "function") || !json_is_string(name))
        return (struct token_bytes){ 0 };
    return (struct token_bytes){ json_string_value(name), json_string_length(name) };
}

static bool read_named(const struct body_object *o, const json_t *choice, struct openai_tools *out, struct refusal *why)
{
    out->choice = TOOLS_CHOICE_NAMED;
    out->named = name_in(choice);
    if (!out->named.data)
        return body_fail(o, "tool_choice", why,
                         "none, auto, required, {\"type\": \"function\", \"function\": {\"name\": ...}} or {\"type\": "
                         "\"allowed_tools\", \"allowed_tools\": {\"mode\": ..., \"tools\": [...]}}");
    return place_of(out, out->named) < out->list.n || body_fail(o, "tool_choice", why, "a function of tools");
}

/* {"type": "allowed_tools", "allowed_tools": {"mode": "auto" or "required", "tools": [...]}}, or flat: the prompt has
 * all functions, so that prompts of a conversation begin alike, and these alone may be called. */
static bool read_allowed(const struct body_object *o, const json_t *choice, struct openai_tools *out,
                         struct refusal *why)
{
    const json_t *nested = json_object_get(choice, "allowed_tools"), *inner = nested ? nested : choice;
    const json_t *tools = json_object_get(inner, "tools");
    const json_t *mode = json_object_get(inner, "mode");
    const size_t n = json_array_size(tools);
    if (!body_says(mode, "auto") && !body_says(mode, "required"))
        return body_fail(o, "tool_choice", why, "allowed_tools with \"mode\": \"auto\" or \"required\"");
    if (!n || n > TOOLS_MAX)
        return body_fail(o, "tool_choice", why, "allowed_tools with a list of 1 to %d \"tools\"", TOOLS_MAX);
    out->choice = body_says(mode, "auto") ? TOOLS_CHOICE_AUTO : TOOLS_CHOICE_REQUIRED;
    out->barred = malloc(out->list.n * sizeof *out->barred);
    if (!out->barred) return refuse(why, SERVE_INTERNAL, NULL, "no memory for the request");
    memset(out->barred, true, out->list.n * sizeof *out->barred);
    for (size_t i = 0; i < n; i++) {
        const struct token_bytes name = name_in(json_array_get(tools, i));
        const size_t place = name.data ? place_of(out, name) : out->list.n;
        if (place == out->list.n)
            return body_fail(o, "tool_choice", why, "functions of tools in allowed_tools, entry %zu is none", i);
        out->barred[place] = false;
    }
    return true;
}

static bool read_choice(const struct body_object *o, struct openai_tools *out, struct refusal *why)
{
    const json_t *choice = json_object_get(o->object, "tool_choice");
    out->choice = out->list.n ? TOOLS_CHOICE_AUTO : TOOLS_CHOICE_NONE;
    if (!choice || body_says(choice, "auto")) return true;
    if (body_says(choice, "none")) {
        out->choice = TOOLS_CHOICE_NONE;
        return true;
    }
    if (!json_is_object(choice) && !body_says(choice, "required"))
        return body_fail(o, "tool_choice", why, "none, auto, required or a function");
    if (!out->list.n) return body_fail(o, "tool_choice", why, "tools to choose from");
    if (body_says(json_object_get(choice, "type"), "allowed_tools")) return read_allowed(o, choice, out, why);
    if (json_is_object(choice)) return read_named(o, choice, out, why);
    out->choice = TOOLS_CHOICE_REQUIRED;
    return true;
}

bool openai_tools_read(const struct body_object *o, struct token_bytes json, struct openai_tools *out,
                       struct refusal *why)
{
    bool parallel = true;
    *out = (struct openai_tools){ 0 };
    if (!read_list(o, json, out, why) || !read_choice(o, out, why) ||
        !body_flag(o, "parallel_tool_calls", &parallel, why))
        return false;
    out->one = !parallel;
    return true;
}

void openai_tools_free(struct openai_tools *t)
{
    chat_tools_free(&t->list);
    free(t->barred);
    *t = (struct openai_tools){ 0 };
}

wk_status openai_tools_set(const struct openai_tools *t, struct tools_set **out, const struct wk_err *err)
{
    struct tools_function *functions = calloc(t->list.n, sizeof *functions);
    *out = NULL;
    if (!functions) return wk_fail(err, WK_NO_MEMORY, "no memory for the tools");
    size_t n = 0;
    for (size_t i = 0; i < t->list.n; i++)
        if (!openai_tools_barred(t, i))
            functions[n++] = (struct tools_function){ .name = t->list.list[i].name,
                                                      .parameters = t->list.list[i].parameters,
                                                      .strict = t->list.list[i].strict };
    const wk_status status = tools_set_open(functions, n, out, err);
    free(functions);
    return status;
}
