/* responses_request.c: the members of a request to /v1/responses but for its input: tools, sampling, what is repeated
 * in the answer. */
#include "responses.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "body.h"

enum { MOST_WARNINGS = 64 };

void responses_warn(struct responses *r, const char *format, ...)
{
    char text[256];
    va_list args;
    if (r->n_warnings++ >= MOST_WARNINGS) return; /* the first ones tell what kind of thing is left out */
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (r->warnings.n) http_text_add(&r->warnings, ",", 1);
    http_text_json(&r->warnings, text, strlen(text));
}

void responses_free(struct responses *r)
{
    if (!r) return;
    for (size_t i = 0; i < r->n_tools; i++) {
        http_text_free(&r->tools[i].full);
        http_text_free(&r->tools[i].space);
        http_text_free(&r->tools[i].name);
    }
    free(r->tools);
    http_text_free(&r->repeated);
    http_text_free(&r->warnings);
    http_text_free(&r->items);
    http_text_free(&r->probs);
    free(r);
}

/* ---- tools --------------------------------------------------------------------------------------------- */

void responses_full_name(struct http_text *out, struct raw space, struct raw name)
{
    raw_text(space, out);
    if (out->n && out->data[out->n - 1] != '_') http_text_format(out, "__");
    raw_text(name, out);
}

struct offering {
    struct responses *r;
    struct http_text *out;
    struct refusal *why;
    uint32_t n;
    struct responses_place at; /* the tool that is read, and its path */
    char field[64];
};

static void put_path(char *out, size_t cap, struct responses_place p)
{
    if (p.inside)
        (void)snprintf(out, cap, "tools[%u].tools[%u]", p.at, p.inside - 1);
    else
        (void)snprintf(out, cap, "tools[%u]", p.at);
}

static bool wrong(struct offering *o, const char *expected)
{
    return refuse(o->why, SERVE_INVALID_REQUEST, o->field, "%s: expected %s", o->field, expected);
}

/* A function more: how many there may be and how long names are is tested before anything is kept, since a namespace's
 * name is in the names of all of its tools. */
static bool may_offer(struct offering *o, struct raw space, struct raw name)
{
    struct http_text full = { 0 };
    if (o->n == TOOLS_MAX)
        return refuse(o->why, SERVE_INVALID_REQUEST, "tools", "tools: expected at most %d functions", TOOLS_MAX);
    responses_full_name(&full, space, name);
    const bool failed = full.failed, longer = full.n > TOOLS_MAX_NAME;
    http_text_free(&full);
    if (failed) return refuse(o->why, SERVE_INTERNAL, NULL, "no memory for the tools");
    return !longer ||
           refuse(o->why, SERVE_INVALID_REQUEST, o->field,
                  "%s: expected names of at most %d bytes, with that of the namespace", o->field, TOOLS_MAX_NAME);
}

/* The tool answers by names of its own. */
static bool remember(struct offering *o, struct raw space, struct raw name, bool custom)
{
    struct responses *r = o->r;
    if (!(r->n_tools & (r->n_tools - 1))) { /* doubled at each power of two */
        struct responses_tool *grown = realloc(r->tools, (r->n_tools ? 2 * r->n_tools : 1) * sizeof *grown);
        if (!grown) return refuse(o->why, SERVE_INTERNAL, NULL, "no memory for the tools");
        r->tools = grown;
    }
    struct responses_tool *t = &r->tools[r->n_tools++];
    *t = (struct responses_tool){ .custom = custom };
    responses_full_name(&t->full, space, name);
    raw_text(space, &t->space);
    raw_text(name, &t->name);
    return !(t->full.failed || t->space.failed || t->name.failed) ||
           refuse(o->why, SERVE_INTERNAL, NULL, "no memory for the tools");
}

static void begin_function(struct offering *o, struct raw space, struct raw name)
{
    struct http_text full = { 0 };
    o->r->places[o->n] = o->at; /* may_offer has seen that there is room */
    responses_full_name(&full, space, name);
    http_text_format(o->out, "%s{\"type\":\"function\",\"function\":{\"name\":", o->n++ ? "," : "");
    http_text_json(o->out, full.n ? full.data : "", full.n);
    o->out->failed = o->out->failed || full.failed;
    http_text_free(&full);
}

static bool offer_function(struct offering *o, struct raw space, struct raw tool)
{
    const struct raw name = raw_member(tool, "name");
    if (name.kind != JR_STRING) return wrong(o, "a function with a \"name\"");
    if (!may_offer(o, space, name)) return false;
    if (space.data && !remember(o, space, name, false)) return false;
    begin_function(o, space, name);
    raw_copy_member(o->out, "description", raw_member(tool, "description"));
    raw_copy_member(o->out, "parameters", raw_member(tool, "parameters"));
    raw_copy_member(o->out, "strict", raw_member(tool, "strict"));
    http_text_format(o->out, "}}");
    return true;
}

/* A tool whose input is a text. What form that has the model is told; it is not held to it. */
static bool offer_custom(struct offering *o, struct raw space, struct raw tool)
{
    struct http_text description = { 0 };
    const struct raw name = raw_member(tool, "name"), format = raw_member(tool, "format");
    if (name.kind != JR_STRING) return wrong(o, "a custom tool with a \"name\"");
    if (!may_offer(o, space, name)) return false;
    if (!remember(o, space, name, true)) return false;
    raw_text(raw_member(tool, "description"), &description);
    if (raw_member(format, "definition").kind == JR_STRING) {
        http_text_format(&description, "%sThe input has the form of this grammar (", description.n ? "\n\n" : "");
        raw_text(raw_member(format, "syntax"), &description);
        http_text_format(&description, "):\n");
        raw_text(raw_member(format, "definition"), &description);
    }
    begin_function(o, space, name);
    if (description.n) {
        http_text_format(o->out, ",\"description\":");
        http_text_json(o->out, description.data, description.n);
    }
    http_text_format(o->out, ",\"parameters\":{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},"
                             "\"required\":[\"input\"],\"additionalProperties\":false}}}");
    o->out->failed = o->out->failed || description.failed;
    http_text_free(&description);
    return true;
}

static bool offer_tool(struct offering *o, struct raw space, struct raw tool);

static bool offer_group(struct offering *o, struct raw group)
{
    struct raw_walk w;
    struct raw tool;
    const struct raw name = raw_member(group, "name"), list = raw_member(group, "tools");
    bool good = true;
    if (name.kind != JR_STRING || list.kind != JR_ARRAY) return wrong(o, "a namespace with a \"name\" and \"tools\"");
    raw_open(&w, list);
    while (good && raw_next(&w, &tool)) {
        o->at.inside++;
        put_path(o->field, sizeof o->field, o->at);
        good = raw_says(raw_member(tool, "type"), "namespace") ? wrong(o, "no namespace inside of a namespace")
                                                               : offer_tool(o, name, tool);
    }
    raw_close(&w);
    return good;
}

static bool offer_tool(struct offering *o, struct raw space, struct raw tool)
{
    const struct raw type = raw_member(tool, "type");
    struct http_text name = { 0 };
    if (tool.kind != JR_OBJECT || type.kind != JR_STRING) return wrong(o, "an object with a \"type\"");
    if (raw_says(type, "function")) return offer_function(o, space, tool);
    if (raw_says(type, "custom")) return offer_custom(o, space, tool);
    if (raw_says(type, "namespace")) return offer_group(o, tool);
    raw_text(type, &name);
    responses_warn(o->r, "%s: a tool of type %.40s is run by no one here and was left out", o->field,
                   name.n ? name.data : "");
    http_text_free(&name);
    return true;
}

/* {"type": "function", "name": ...} of a choice, by what the model calls it. */
static void put_chosen(struct http_text *out, struct raw choice)
{
    struct http_text full = { 0 };
    responses_full_name(&full, raw_member(choice, "namespace"), raw_member(choice, "name"));
    http_text_format(out, "{\"type\":\"function\",\"name\":");
    http_text_json(out, full.n ? full.data : "", full.n);
    http_text_add(out, "}", 1);
    out->failed = out->failed || full.failed;
    http_text_free(&full);
}

static bool is_ours(struct raw choice)
{
    const struct raw type = raw_member(choice, "type");
    return raw_says(type, "function") || raw_says(type, "custom");
}

static bool put_choice(struct http_text *out, struct raw choice, struct refusal *why)
{
    struct raw_walk w;
    struct raw one;
    uint32_t n = 0;
    http_text_format(out, ",\"tool_choice\":");
    if (choice.kind != JR_OBJECT) {
        raw_copy(out, choice, "");
        return true;
    }
    if (is_ours(choice)) {
        put_chosen(out, choice);
        return true;
    }
    if (!raw_says(raw_member(choice, "type"), "allowed_tools"))
        return refuse(why, SERVE_INVALID_REQUEST, "tool_choice",
                      "tool_choice: expected none, auto, required, or one of type function, custom or allowed_tools");
    http_text_format(out, "{\"type\":\"allowed_tools\",\"mode\":");
    raw_copy(out, raw_member(choice, "mode"), "\"auto\"");
    http_text_format(out, ",\"tools\":[");
    raw_open(&w, raw_member(choice, "tools"));
    while (raw_next(&w, &one)) {
        if (!is_ours(one)) continue; /* was left out, and could not be called */
        if (n++) http_text_add(out, ",", 1);
        put_chosen(out, one);
    }
    raw_close(&w);
    http_text_format(out, "]}");
    return true;
}

static bool put_tools(struct responses *r, struct raw root, struct http_text *out, struct refusal *why)
{
    struct offering o = { .r = r, .out = out, .why = why };
    struct raw_walk w;
    struct raw list, tool, choice = raw_member(root, "tool_choice");
    bool good = true;
    if (!raw_member_of(root, "", "tools", JR_ARRAY, &list, why)) return false;
    http_text_format(out, ",\"tools\":[");
    raw_open(&w, list);
    for (uint32_t i = 0; good && raw_next(&w, &tool); i++) {
        o.at = (struct responses_place){ .at = i };
        put_path(o.field, sizeof o.field, o.at);
        good = offer_tool(&o, (struct raw){ 0 }, tool);
    }
    raw_close(&w);
    http_text_add(out, "]", 1);
    /* with tools that were left out alone, "auto" asks for nothing */
    if (good && choice.data && (o.n || !raw_says(choice, "auto"))) good = put_choice(out, choice, why);
    if (good && o.n) raw_copy_member(out, "parallel_tool_calls", raw_member(root, "parallel_tool_calls"));
    return good;
}

/* Text of the chat in which tools[K].function becomes the path of the request's tool. */
static void put_reworded(struct http_text *out, const struct responses *r, const char *text)
{
    static const char list[] = "tools[", inner[] = ".function";
    for (const char *at; (at = strstr(text, list));) {
        char path[64], *end;
        const char *digits = at + sizeof list - 1;
        const unsigned long k = strtoul(digits, &end, 10);
        const bool known = *end == ']' && k < TOOLS_MAX;
        http_text_add(out, text, (size_t)((known ? at : digits) - text));
        text = known ? end + 1 : digits;
        if (!known) continue;
        put_path(path, sizeof path, r->places[k]);
        http_text_add(out, path, strlen(path));
        if (strncmp(text, inner, sizeof inner - 1) == 0) text += sizeof inner - 1;
    }
    http_text_add(out, text, strlen(text));
}

bool responses_reword(const struct responses *r, struct refusal *why)
{
    struct http_text field = { 0 }, text = { 0 };
    if (strncmp(why->field, "tools[", 6) != 0) return false;
    put_reworded(&field, r, why->field);
    put_reworded(&text, r, why->text);
    if (!field.failed && !text.failed) {
        (void)snprintf(why->field, sizeof why->field, "%s", field.data);
        (void)snprintf(why->text, sizeof why->text, "%s", text.data);
    }
    http_text_free(&field);
    http_text_free(&text);
    return true;
}

/* ---- the other members --------------------------------------------------------------------------------- */

enum what {
    TAKEN,  /* read here */
    HINT,   /* asks for nothing of the answer */
    ABSENT, /* refused unless it is null, false, "" or empty */
    OTHERS  /* of another interface: refused, for a chat's body would have it */
};

static const struct {
    const char *name;
    enum what what;
    const char *instead;
} members[] = {
    { "input", TAKEN, NULL },
    { "instructions", TAKEN, NULL },
    { "tools", TAKEN, NULL },
    { "tool_choice", TAKEN, NULL },
    { "parallel_tool_calls", TAKEN, NULL },
    { "max_output_tokens", TAKEN, NULL },
    { "text", TAKEN, NULL },
    { "reasoning", TAKEN, NULL },
    { "include", TAKEN, NULL },
    { "top_logprobs", TAKEN, NULL },
    { "truncation", TAKEN, NULL },
    { "store", HINT, NULL },
    { "stream_options", HINT, NULL },
    { "metadata", HINT, NULL },
    { "client_metadata", HINT, NULL },
    { "max_tool_calls", HINT, NULL },
    { "background", ABSENT, "false: this worker stores nothing that could be asked for later" },
    { "previous_response_id", ABSENT,
      "nothing: this worker stores no responses; send the whole conversation as input" },
    { "conversation", ABSENT, "nothing: this worker stores no conversations; send all of it as input" },
    { "prompt", ABSENT, "nothing: this worker stores no prompts; send it as instructions and input" },
    { "context_management", ABSENT, "nothing: this worker leaves the conversation as it is" },
    { "messages", OTHERS, "input" },
    { "max_tokens", OTHERS, "max_output_tokens" },
    { "max_completion_tokens", OTHERS, "max_output_tokens" },
    { "response_format", OTHERS, "text with \"format\"" },
    { "reasoning_effort", OTHERS, "reasoning with \"effort\"" },
    { "logprobs", OTHERS, "include with \"message.output_text.logprobs\"" },
    { "prompt_logprobs", OTHERS, "/v1/completions" },
    { "n", OTHERS, "one request for each answer" },
    { "best_of", OTHERS, "one request for each answer" },
    { "functions", OTHERS, "tools" },
    { "add_generation_prompt", OTHERS, "/v1/chat/completions" },
    { "continue_final_message", OTHERS, "/v1/chat/completions" },
};

static bool asks_for_nothing(struct raw value)
{
    return value.kind == JR_NULL || (value.kind == JR_BOOL && value.data[0] == 'f') ||
           (value.kind == JR_STRING && value.n == 2) || raw_is_empty(value);
}

/* What a chat's body has under the same name goes there as it is, and is checked there. */
static bool put_others(struct raw root, struct http_text *out, struct refusal *why)
{
    struct raw_walk w;
    struct raw value;
    bool good = true;
    raw_open(&w, root);
    while (good && raw_next(&w, &value)) {
        size_t i = 0;
        while (i < sizeof members / sizeof *members && !jr_is(w.key, members[i].name)) i++;
        if (i == sizeof members / sizeof *members) {
            http_text_add(out, ",", 1);
            http_text_json(out, w.key.data, w.key.len);
            http_text_add(out, ":", 1);
            raw_copy(out, value, "");
        } else if ((members[i].what == ABSENT && !asks_for_nothing(value)) ||
                   (members[i].what == OTHERS && value.kind != JR_NULL)) {
            good = refuse(why, SERVE_INVALID_REQUEST, members[i].name, "%s: expected %s%s", members[i].name,
                          members[i].what == OTHERS ? "nothing; use " : "", members[i].instead);
        }
    }
    raw_close(&w);
    return good;
}

static bool read_include(struct responses *r, struct raw root, bool *probs, struct refusal *why)
{
    static const char *const idle[] = { "web_search_call.action.sources",
                                        "web_search_call.results",
                                        "file_search_call.results",
                                        "code_interpreter_call.outputs",
                                        "computer_call_output.output.image_url",
                                        "message.input_image.image_url" };
    struct raw_walk w;
    struct raw list, value;
    bool good = true;
    if (!raw_member_of(root, "", "include", JR_ARRAY, &list, why)) return false;
    raw_open(&w, list);
    while (good && raw_next(&w, &value)) {
        bool known = false;
        if (raw_says(value, "message.output_text.logprobs")) *probs = known = true;
        if (raw_says(value, "reasoning.encrypted_content")) r->encrypted = known = true;
        for (size_t i = 0; i < sizeof idle / sizeof *idle; i++) known = known || raw_says(value, idle[i]);
        if (!known)
            good = refuse(why, SERVE_INVALID_REQUEST, "include",
                          "include: expected message.output_text.logprobs or reasoning.encrypted_content, got %.*s",
                          value.n < 60 ? (int)value.n : 60, value.data);
    }
    raw_close(&w);
    return good;
}

/* {"format": {...}, "verbosity": ...}; {"effort": ..., "summary": ...}; what else decides about the answer's form. */
static bool put_form(struct responses *r, struct raw root, struct http_text *out, struct refusal *why)
{
    struct raw text, reasoning, effort, format;
    bool probs = false;
    const struct raw top = raw_member(root, "top_logprobs"), truncation = raw_member(root, "truncation");
    if (!raw_member_of(root, "", "text", JR_OBJECT, &text, why) ||
        !raw_member_of(text, "text", "format", JR_OBJECT, &format, why) ||
        !raw_member_of(root, "", "reasoning", JR_OBJECT, &reasoning, why) ||
        !raw_member_of(reasoning, "reasoning", "effort", JR_STRING, &effort, why) ||
        !read_include(r, root, &probs, why))
        return false;
    if (truncation.data && !raw_says(truncation, "auto") && !raw_says(truncation, "disabled"))
        return refuse(why, SERVE_INVALID_REQUEST, "truncation", "truncation: expected auto or disabled");
    raw_copy_member(out, "response_format", format);
    raw_copy_member(out, "reasoning_effort", effort);
    raw_copy_member(out, "max_completion_tokens", raw_member(root, "max_output_tokens"));
    if (probs) {
        http_text_format(out, ",\"logprobs\":true");
        raw_copy_member(out, "top_logprobs", top);
    }
    return true;
}

/* Every member of the answer that only repeats the request: strict clients need them all. */
static void repeat(struct responses *r, struct raw root)
{
    static const struct {
        const char *name, *otherwise;
    } as_is[] = { { "instructions", "null" },
                  { "max_output_tokens", "null" },
                  { "max_tool_calls", "null" },
                  { "metadata", "{}" },
                  { "parallel_tool_calls", "true" },
                  { "prompt_cache_key", "null" },
                  { "reasoning", "{\"effort\":null,\"summary\":null}" },
                  { "safety_identifier", "null" },
                  { "temperature", "null" },
                  { "text", "{\"format\":{\"type\":\"text\"}}" },
                  { "tool_choice", "\"auto\"" },
                  { "tools", "[]" },
                  { "top_logprobs", "0" },
                  { "top_p", "null" },
                  { "user", "null" } };
    for (size_t i = 0; i < sizeof as_is / sizeof *as_is; i++) {
        http_text_format(&r->repeated, ",\"%s\":", as_is[i].name);
        raw_copy_line(&r->repeated, raw_member(root, as_is[i].name), as_is[i].otherwise);
    }
    http_text_format(&r->repeated, ",\"background\":false,\"previous_response_id\":null,\"service_tier\":\"default\","
                                   "\"store\":false,\"truncation\":\"disabled\"");
}

bool responses_write(struct responses *r, const char *bytes, size_t n, struct http_text *out, struct refusal *why)
{
    json_t *parsed = NULL;
    if (!body_parse(bytes, n, &parsed, why)) return false;
    json_decref(parsed); /* it is one object, in JSON: what is read from here on are its bytes */
    const struct raw root = raw_of(bytes, n);
    if (!root.data) return refuse(why, SERVE_INVALID_REQUEST, NULL, "the body has more than %d levels", JR_MAX_DEPTH);
    http_text_add(out, "{", 1);
    if (!responses_write_input(r, root, out, why) || !put_tools(r, root, out, why) || !put_form(r, root, out, why) ||
        !put_others(root, out, why))
        return false;
    http_text_add(out, "}", 1);
    repeat(r, root);
    return !(out->failed || r->repeated.failed || r->warnings.failed) ||
           refuse(why, SERVE_INTERNAL, NULL, "no memory for the request");
}
