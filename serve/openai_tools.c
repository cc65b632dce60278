/* openai_tools.c: see openai_tools.h. */
#include "openai_tools.h"

#include <stdlib.h>
#include <string.h>

static bool says(const char *text, const char *word) { return text && strcmp(text, word) == 0; }

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

static bool is_offered(const struct openai_tools *t)
{
    for (size_t i = 0; i < t->list.n; i++)
        if (t->list.list[i].name.len == t->named.len &&
            memcmp(t->list.list[i].name.data, t->named.data, t->named.len) == 0)
            return true;
    return false;
}

/* {"type": "function", "function": {"name": ...}} */
static bool read_named(const struct body_object *o, const json_t *choice, struct openai_tools *out, struct refusal *why)
{
    const char *type = json_string_value(json_object_get(choice, "type"));
    const json_t *name = json_object_get(json_object_get(choice, "function"), "name");
    if (says(type, "allowed_tools"))
        return body_fail(o, "tool_choice", why,
                         "none, auto, required or a function; of allowed_tools: offer those alone as tools");
    if (!says(type, "function") || !json_is_string(name))
        return body_fail(o, "tool_choice", why,
                         "none, auto, required or {\"type\": \"function\", \"function\": {\"name\": ...}}");
    out->choice = TOOLS_CHOICE_NAMED;
    out->named = (struct token_bytes){ json_string_value(name), json_string_length(name) };
    return is_offered(out) || body_fail(o, "tool_choice", why, "a function of tools");
}

static bool read_choice(const struct body_object *o, struct openai_tools *out, struct refusal *why)
{
    const json_t *choice = json_object_get(o->object, "tool_choice");
    const char *word = json_string_value(choice);
    out->choice = out->list.n ? TOOLS_CHOICE_AUTO : TOOLS_CHOICE_NONE;
    if (!choice || says(word, "auto")) return true;
    if (says(word, "none")) {
        out->choice = TOOLS_CHOICE_NONE;
        return true;
    }
    if (!json_is_object(choice) && !says(word, "required"))
        return body_fail(o, "tool_choice", why, "none, auto, required or a function");
    if (!out->list.n) return body_fail(o, "tool_choice", why, "tools to choose from");
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
    *t = (struct openai_tools){ 0 };
}

wk_status openai_tools_set(const struct openai_tools *t, struct tools_set **out, const struct wk_err *err)
{
    struct tools_function *functions = calloc(t->list.n, sizeof *functions);
    *out = NULL;
    if (!functions) return wk_fail(err, WK_NO_MEMORY, "no memory for the tools");
    for (size_t i = 0; i < t->list.n; i++)
        functions[i] = (struct tools_function){ .name = t->list.list[i].name,
                                                .parameters = t->list.list[i].parameters,
                                                .strict = t->list.list[i].strict };
    const wk_status status = tools_set_open(functions, t->list.n, out, err);
    free(functions);
    return status;
}
