/* messages_request.c: a request's members as those of a chat, and a chat's refusals as those of the request. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "body.h"
#include "messages.h"

/* ---- members ------------------------------------------------------------------------------------------- */

/* Those that are read here. What else there is goes to the chat as it is, which serves, refuses or ignores it. */
struct members {
    struct raw messages, system, tools, tool_choice, thinking, output_config, output_format, context_management,
        max_tokens, stop_sequences;
};

struct reading {
    struct members all;
    struct messages *m;
    struct http_text *out;
    struct refusal *why;
};

static const struct {
    const char *name;
    enum jr_kind kind; /* JR_NOTHING: of several */
    size_t at;
} members[] = {
    { "messages", JR_ARRAY, offsetof(struct members, messages) },
    { "system", JR_NOTHING, offsetof(struct members, system) },
    { "tools", JR_ARRAY, offsetof(struct members, tools) },
    { "tool_choice", JR_OBJECT, offsetof(struct members, tool_choice) },
    { "thinking", JR_OBJECT, offsetof(struct members, thinking) },
    { "output_config", JR_OBJECT, offsetof(struct members, output_config) },
    { "output_format", JR_OBJECT, offsetof(struct members, output_format) },
    { "context_management", JR_OBJECT, offsetof(struct members, context_management) },
    { "max_tokens", JR_NUMBER, offsetof(struct members, max_tokens) },
    { "stop_sequences", JR_ARRAY, offsetof(struct members, stop_sequences) },
};

/* Members that this interface has in other words or not at all. */
static const struct {
    const char *name, *instead; /* NULL: leave it out */
    bool empty;                 /* an empty list or object asks for nothing */
} refused[] = {
    { "container", NULL, true },
    { "mcp_servers", "tools whose results the client sends", true },
    { "compaction", NULL, true },
    { "thread", NULL, true },
    { "stop", "stop_sequences", false },
    { "max_completion_tokens", "max_tokens", false },
    { "max_tokens_to_sample", "max_tokens", false },
    { "parallel_tool_calls", "disable_parallel_tool_use in tool_choice", false },
    { "enable_thinking", "thinking", false },
    { "reasoning_effort", "effort in output_config", false },
    { "include_reasoning", "thinking", false },
    { "response_format", "format in output_config", false },
    { "continue_final_message", "a last message of the assistant", false },
    { "add_generation_prompt", NULL, false },
    { "stream_options", NULL, false },
    { "n", NULL, false },
    { "best_of", NULL, false },
    { "logprobs", NULL, false },
    { "top_logprobs", NULL, false },
    { "prompt_logprobs", NULL, false },
};

/* Before a further member. */
static void put_comma(struct http_text *out)
{
    if (out->n && out->data[out->n - 1] != '{') http_text_add(out, ",", 1);
}

/* One that is not read here. */
static bool pass(struct reading *r, struct json_text key, struct raw value)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (jr_is(key, refused[i].name)) {
            const char *name = refused[i].name, *instead = refused[i].instead;
            return (refused[i].empty && raw_is_empty(value)) ||
                   refuse(r->why, SERVE_INVALID_REQUEST, name, "%s: this worker does not serve it here; %s%s", name,
                          instead ? "what it serves instead: " : "leave it out", instead ? instead : "");
        }
    put_comma(r->out);
    http_text_json(r->out, key.data, key.len);
    http_text_add(r->out, ":", 1);
    raw_copy(r->out, value, "");
    return true;
}

static bool take(struct reading *r, struct json_text key, struct raw value)
{
    if (value.kind == JR_NULL) return true;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (jr_is(key, members[i].name)) {
            if (members[i].kind != JR_NOTHING && members[i].kind != value.kind)
                return refuse(r->why, SERVE_INVALID_REQUEST, members[i].name, "%s: expected %s", members[i].name,
                              members[i].kind == JR_ARRAY    ? "a list"
                              : members[i].kind == JR_OBJECT ? "an object"
                                                             : "a number");
            memcpy((char *)&r->all + members[i].at, &value, sizeof value);
            return true;
        }
    return pass(r, key, value);
}

static bool take_all(struct reading *r, struct raw body)
{
    struct raw_walk w;
    struct raw value;
    bool good = true;
    raw_open(&w, body);
    while (good && raw_next(&w, &value)) good = take(r, w.key, value);
    good = good && (!w.json.status || refuse(r->why, SERVE_INTERNAL, NULL, "no memory for the request"));
    raw_close(&w);
    return good;
}

/* ---- tools --------------------------------------------------------------------------------------------- */

/* One that the client runs. Those that Anthropic's servers run, or whose schema only its models know, have a type. */
static bool put_tool(struct reading *r, struct raw tool, size_t k)
{
    char where[32], field[64];
    struct raw type, name, description, schema, strict;
    (void)snprintf(where, sizeof where, "tools[%zu]", k);
    if (tool.kind != JR_OBJECT)
        return refuse(r->why, SERVE_INVALID_REQUEST, where, "%s: expected an object with name and input_schema", where);
    if (!raw_member_of(tool, where, "type", JR_STRING, &type, r->why) ||
        !raw_member_of(tool, where, "name", JR_STRING, &name, r->why))
        return false;
    if (type.data && !raw_says(type, "custom")) {
        (void)snprintf(field, sizeof field, "%s.type", where);
        return refuse(r->why, SERVE_INVALID_REQUEST, field,
                      "%s: %.*s is a tool of Anthropic's, which this worker does not have: expected custom, with an "
                      "input_schema",
                      field, (int)(type.n < 64 ? type.n : 64), type.data);
    }
    if (!raw_member_of(tool, where, "description", JR_STRING, &description, r->why) ||
        !raw_member_of(tool, where, "input_schema", JR_OBJECT, &schema, r->why) ||
        !raw_member_of(tool, where, "strict", JR_BOOL, &strict, r->why))
        return false;
    if (!name.data || !schema.data) {
        (void)snprintf(field, sizeof field, "%s.%s", where, name.data ? "input_schema" : "name");
        return refuse(r->why, SERVE_INVALID_REQUEST, field, "%s: expected %s", field,
                      name.data ? "a JSON Schema of an object" : "a string");
    }
    http_text_format(r->out, "%s{\"type\":\"function\",\"function\":{\"name\":", k ? "," : "");
    raw_copy(r->out, name, "");
    raw_copy_member(r->out, "description", description);
    raw_copy_member(r->out, "parameters", schema);
    raw_copy_member(r->out, "strict", strict);
    http_text_format(r->out, "}}");
    return true;
}

static bool put_tools(struct reading *r)
{
    struct raw_walk w;
    struct raw tool;
    bool good = true;
    if (!r->all.tools.data) return true;
    http_text_format(r->out, ",\"tools\":[");
    raw_open(&w, r->all.tools);
    for (size_t k = 0; good && raw_next(&w, &tool); k++) good = put_tool(r, tool, k);
    good = good && (!w.json.status || refuse(r->why, SERVE_INTERNAL, NULL, "no memory for the request"));
    raw_close(&w);
    http_text_add(r->out, "]", 1);
    return good;
}

static bool put_choice(struct reading *r)
{
    const struct raw choice = r->all.tool_choice, type = raw_member(choice, "type");
    struct raw name, one;
    if (!choice.data) return true;
    if (!raw_member_of(choice, "tool_choice", "name", JR_STRING, &name, r->why) ||
        !raw_member_of(choice, "tool_choice", "disable_parallel_tool_use", JR_BOOL, &one, r->why))
        return false;
    if (one.data) http_text_format(r->out, ",\"parallel_tool_calls\":%s", *one.data == 't' ? "false" : "true");
    if (raw_says(type, "auto") || raw_says(type, "none"))
        raw_copy_member(r->out, "tool_choice", type);
    else if (raw_says(type, "any"))
        http_text_format(r->out, ",\"tool_choice\":\"required\"");
    else if (raw_says(type, "tool") && name.data) {
        http_text_format(r->out, ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":");
        raw_copy(r->out, name, "");
        http_text_format(r->out, "}}");
    } else
        return refuse(r->why, SERVE_INVALID_REQUEST, "tool_choice",
                      "tool_choice: expected {\"type\": \"auto\"}, any, none, or {\"type\": \"tool\", \"name\": ...}");
    return true;
}

/* ---- thinking, and the answer's form ------------------------------------------------------------------- */

/* Who asks for none is shown none, also of a model that always thinks. A budget is a wish: no model here is told of
 * one. */
static bool put_thinking(struct reading *r, bool *off)
{
    const struct raw thinking = r->all.thinking, type = raw_member(thinking, "type");
    struct raw budget, display;
    *off = raw_says(type, "disabled");
    if (!thinking.data) return true;
    if (!*off && !raw_says(type, "enabled") && !raw_says(type, "adaptive"))
        return refuse(r->why, SERVE_INVALID_REQUEST, "thinking.type",
                      "thinking.type: expected enabled, adaptive or disabled");
    if (!raw_member_of(thinking, "thinking", "budget_tokens", JR_NUMBER, &budget, r->why) ||
        !raw_member_of(thinking, "thinking", "display", JR_STRING, &display, r->why))
        return false;
    if (display.data && !raw_says(display, "omitted") && !raw_says(display, "summarized"))
        return refuse(r->why, SERVE_INVALID_REQUEST, "thinking.display",
                      "thinking.display: expected omitted or summarized");
    r->m->hidden = raw_says(display, "omitted");
    http_text_format(r->out, ",\"enable_thinking\":%s,\"include_reasoning\":%s", *off ? "false" : "true",
                     *off ? "false" : "true");
    return true;
}

/* Levels above the highest that models know are that one. */
static bool put_effort(struct reading *r, bool off)
{
    static const char *const levels[][2] = {
        { "low", "low" }, { "medium", "medium" }, { "high", "high" }, { "xhigh", "high" }, { "max", "high" }
    };
    const struct raw effort = raw_member(r->all.output_config, "effort");
    if (!effort.data) return true;
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++)
        if (raw_says(effort, levels[i][0])) {
            if (!off) http_text_format(r->out, ",\"reasoning_effort\":\"%s\"", levels[i][1]);
            return true;
        }
    return refuse(r->why, SERVE_INVALID_REQUEST, "output_config.effort",
                  "output_config.effort: expected low, medium, high, xhigh or max");
}

static bool put_form(struct reading *r)
{
    struct raw format;
    if (!raw_member_of(r->all.output_config, "output_config", "format", JR_OBJECT, &format, r->why)) return false;
    r->m->form = format.data ? "output_config.format" : "output_format";
    if (format.data && r->all.output_format.data)
        return refuse(r->why, SERVE_INVALID_REQUEST, "output_format",
                      "output_format: expected it or output_config.format, got both");
    if (!format.data) format = r->all.output_format;
    if (!format.data) return true;
    const struct raw schema = raw_member(format, "schema");
    if (!raw_says(raw_member(format, "type"), "json_schema") || !schema.data)
        return refuse(r->why, SERVE_INVALID_REQUEST, r->m->form,
                      "%s: expected {\"type\": \"json_schema\", \"schema\": ...}", r->m->form);
    http_text_format(r->out, ",\"response_format\":{\"type\":\"json_schema\",\"schema\":");
    raw_copy(r->out, schema, "");
    http_text_add(r->out, "}", 1);
    return true;
}

/* ---- the whole ----------------------------------------------------------------------------------------- */

static bool put_all(struct reading *r, struct raw body, bool counted)
{
    bool ends_open = false, off = false;
    http_text_add(r->out, "{", 1);
    if (!take_all(r, body)) return false;
    if (!r->all.messages.data)
        return refuse(r->why, SERVE_INVALID_REQUEST, "messages", "messages: expected a list of messages, got nothing");
    if (!counted && !r->all.max_tokens.data)
        return refuse(r->why, SERVE_INVALID_REQUEST, "max_tokens",
                      "max_tokens: expected how many tokens the answer may have, got nothing");
    put_comma(r->out);
    if (!messages_write_history(r->all.system, r->all.messages, r->m, r->out, &ends_open, r->why) || !put_tools(r) ||
        !put_choice(r) || !put_thinking(r, &off) || !put_effort(r, off) || !put_form(r))
        return false;
    r->m->edits = r->all.context_management.data;
    raw_copy_member(r->out, "max_tokens", r->all.max_tokens);
    raw_copy_member(r->out, "stop", r->all.stop_sequences);
    http_text_format(r->out, ends_open ? ",\"continue_final_message\":true}" : "}");
    return !r->out->failed || refuse(r->why, SERVE_INTERNAL, NULL, "no memory for the request");
}

bool messages_write(const char *bytes, size_t n, bool counted, struct messages *m, struct http_text *out,
                    struct refusal *why)
{
    struct reading r = { .m = m, .out = out, .why = why };
    json_t *parsed = NULL;
    if (!body_parse(bytes, n, &parsed, why)) return false;
    json_decref(parsed); /* it is one object, in JSON: what is read from here on are its bytes */
    const struct raw body = raw_of(bytes, n);
    if (!body.data)
        return refuse(why, SERVE_INVALID_REQUEST, NULL, "the body has more than %d levels, or there is no memory",
                      JR_MAX_DEPTH);
    return put_all(&r, body, counted);
}

void messages_free(struct messages *m)
{
    free(m->origins);
    *m = (struct messages){ 0 };
}

/* ---- refusals ------------------------------------------------------------------------------------------ */

const struct exchange_name messages_names[] = { { "stop", "stop_sequences", false },
                                                { "reasoning_effort", "output_config.effort", false },
                                                { "enable_thinking", "thinking", false },
                                                { "parallel_tool_calls", "tool_choice", false },
                                                { NULL, NULL, false } };

/* messages[2].tool_calls, of the chat's: the content of the request's. */
static bool reword_message(const struct messages *m, const char *field, char out[96])
{
    char *end;
    if (strncmp(field, "messages[", strlen("messages[")) != 0) return false;
    const unsigned long long i = strtoull(field + strlen("messages["), &end, 10);
    if (i >= m->n || *end != ']') return false;
    if (m->origins[i] == MESSAGES_SYSTEM)
        (void)snprintf(out, 96, "system");
    else
        (void)snprintf(out, 96, "messages[%" PRId32 "]%s", m->origins[i],
                       !end[1]                         ? ""
                       : strcmp(end + 1, ".role") == 0 ? ".role"
                                                       : ".content");
    return true;
}

/* tools[2].function.parameters: tools[2].input_schema. */
static bool reword_tool(const char *field, char out[96])
{
    static const char inner[] = "].function";
    const char *at = strstr(field, inner);
    if (strncmp(field, "tools[", strlen("tools[")) != 0 || !at) return false;
    const char *rest = at + sizeof inner - 1;
    (void)snprintf(out, 96, "%.*s]%s", (int)(at - field), field,
                   strcmp(rest, ".parameters") == 0 ? ".input_schema" : rest);
    return true;
}

static bool reword_form(const struct messages *m, const char *field, char out[96])
{
    static const char chat[] = "response_format";
    const bool is = strncmp(field, chat, sizeof chat - 1) == 0;
    if (is) (void)snprintf(out, 96, "%s%.60s", m->form, field + sizeof chat - 1);
    return is;
}

/* Clients of this interface look for these words when a conversation has become too long. */
static void reword_length(struct refusal *why)
{
    char text[sizeof why->text];
    (void)snprintf(text, sizeof text, "prompt is too long: %" PRIu64 " tokens > %" PRIu64 " maximum: %.800s",
                   why->more[0].value, why->more[1].value, why->text);
    memcpy(why->text, text, sizeof why->text);
}

bool messages_reword(const struct messages *m, struct refusal *why)
{
    char field[sizeof why->field], text[sizeof why->text];
    const size_t n = strlen(why->field);
    if (why->code == SERVE_CONTEXT_LENGTH_EXCEEDED) reword_length(why);
    if (!reword_message(m, why->field, field) && !reword_tool(why->field, field) && !reword_form(m, why->field, field))
        return false;
    if (strncmp(why->text, why->field, n) == 0) {
        (void)snprintf(text, sizeof text, "%s%.900s", field, why->text + n);
        memcpy(why->text, text, sizeof why->text);
    }
    memcpy(why->field, field, sizeof why->field);
    return true;
}
