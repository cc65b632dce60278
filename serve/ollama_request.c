/* ollama_request.c: see ollama_request.h.
 *
 * Pieces are copied as the client wrote them, so numbers keep their digits and objects their order; ranges are those of
 * /v1, and its refusals are renamed. As there, null is the same as absent and names that nobody knows are ignored. What
 * is about the machine (num_gpu, num_thread, use_mmap, keep_alive, ...) asks nothing of a worker. */
#include "ollama_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "openai_names.h"
#include "raw.h"

enum {
    CALLS = 256,     /* of one message, most */
    FIELD = 96,      /* room for a path */
    NUMBERS = 100000 /* of ids that are made for calls without one */
};

/* One body while it is read. */
struct reading {
    struct ollama_body *to;
    const struct ollama_limits *l;
    json_t *tree;
    const json_t *options; /* NULL: none */
    struct raw body, options_raw;
    struct http_text *out; /* what is written */
    struct refusal *why;
    struct call {
        struct raw id, name;
        size_t number;
        bool answered;
    } calls[CALLS]; /* of the last message that has some: results name them, by their functions or their order */
    size_t n_calls, n_numbered;
    bool goes_on; /* the last message is an answer that has begun */
};

static bool no_memory(struct refusal *why) { return refuse(why, SERVE_INTERNAL, NULL, "no memory for the request"); }

/* ---- what is not served -------------------------------------------------------------------------------- */

/* Members that would change the answer and are not served. */
struct unserved {
    const char *name, *nothing /* further values that ask for nothing, as JSON; NULL: none */, *instead;
};

static bool refuse_unserved(const json_t *object, const char *prefix, const struct unserved *list, size_t n,
                            struct refusal *why)
{
    char field[FIELD];
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_object_get(object, list[i].name);
        if (!v || json_is_null(v) || openai_names_is_nothing(v, list[i].nothing)) continue;
        (void)snprintf(field, sizeof field, "%s%s", prefix, list[i].name);
        return refuse(why, SERVE_INVALID_REQUEST, field, "%s: this worker does not serve it; %s", field,
                      list[i].instead);
    }
    return true;
}

/* ---- what both bodies have ----------------------------------------------------------------------------- */

static bool keep_model(struct reading *b)
{
    const char *name = NULL;
    if (!body_name(&(struct body_object){ b->tree, "" }, "model", 255, &name, b->why)) return false;
    b->to->model = name ? strdup(name) : NULL;
    return b->to->model || !name || no_memory(b->why);
}

/* -1 and -2 are as many as the context holds, or --max-tokens-out allows; absent: its default. */
static void put_most(struct reading *b)
{
    const json_t *v = json_object_get(b->options, "num_predict");
    if (json_is_number(v) && (json_number_value(v) == -1 || json_number_value(v) == -2))
        http_text_format(b->out, ",\"max_tokens\":%u", b->l->most_tokens);
    else
        raw_copy_member(b->out, "max_tokens", raw_member(b->options_raw, "num_predict"));
}

/* The context is the worker's: a smaller one is held as well. */
static bool check_context(struct reading *b)
{
    const json_t *v = json_object_get(b->options, "num_ctx");
    const struct body_object o = { b->options, "options." };
    const double most = b->l->context ? b->l->context : INT32_MAX, value = json_number_value(v);
    return !v || (json_is_number(v) && value >= 1 && value <= most) ||
           body_fail(&o, "num_ctx", b->why, "a number from 1 to %.0f, the context that this worker has (--context)",
                     most);
}

static bool put_options(struct reading *b)
{
    static const struct {
        const char *from, *to;
        bool penalty;
    } names[] = {
        { "temperature", "temperature", false },
        { "top_k", "top_k", false },
        { "top_p", "top_p", false },
        { "min_p", "min_p", false },
        { "seed", "seed", false },
        { "stop", "stop", false },
        { "repeat_penalty", "repetition_penalty", true },
        { "presence_penalty", "presence_penalty", true },
        { "frequency_penalty", "frequency_penalty", true },
    };
    static const struct unserved unserved[] = { { "mirostat", NULL, "leave it out" },
                                                { "tfs_z", "[1]", "leave it out" },
                                                { "typical_p", "[1]", "leave it out" } };
    const json_t *last = json_object_get(b->options, "repeat_last_n");
    const bool off = json_is_number(last) && json_number_value(last) == 0; /* no id counts for a penalty */
    if (!refuse_unserved(b->options, "options.", unserved, sizeof unserved / sizeof *unserved, b->why) ||
        !check_context(b))
        return false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!off || !names[i].penalty) raw_copy_member(b->out, names[i].to, raw_member(b->options_raw, names[i].from));
    put_most(b);
    return true;
}

/* "json", or a schema. */
static bool put_form(struct reading *b)
{
    const struct raw format = raw_member(b->body, "format");
    if (!format.data || raw_says(format, "")) return true;
    if (raw_says(format, "json")) {
        http_text_format(b->out, ",\"response_format\":{\"type\":\"json_object\"}");
        return true;
    }
    if (format.kind != JR_OBJECT)
        return refuse(b->why, SERVE_INVALID_REQUEST, "format", "format: expected \"json\" or a JSON Schema");
    http_text_format(b->out, ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":");
    raw_copy(b->out, format, "");
    http_text_format(b->out, "}}");
    return true;
}

static bool says_level(struct raw v) { return raw_says(v, "low") || raw_says(v, "medium") || raw_says(v, "high"); }

/* true, false, or how much. gpt-oss always reasons: who wants no reasoning is not told of it, as with Ollama. */
static bool put_think(struct reading *b)
{
    const struct raw think = raw_member(b->body, "think");
    const bool yes = think.kind == JR_BOOL && think.data[0] == 't';
    if (!think.data || raw_says(think, "")) return true;
    if (think.kind != JR_BOOL && !says_level(think))
        return refuse(b->why, SERVE_INVALID_REQUEST, "think",
                      "think: expected true, false, \"low\", \"medium\" or \"high\"");
    if (think.kind != JR_BOOL)
        raw_copy_member(b->out, "reasoning_effort", think);
    else if (!yes && b->l->always_reasons)
        http_text_format(b->out, ",\"include_reasoning\":false");
    else
        raw_copy_member(b->out, "enable_thinking", think);
    return true;
}

/* The written body's first member: whether the answer is streamed, which it is unless the client says no. */
static void put_stream(struct reading *b)
{
    http_text_format(b->out, "{\"stream\":");
    raw_copy(b->out, raw_member(b->body, "stream"), "true");
}

/* Of numbers and flags that nobody reads: they may say what they want, but they are what they are. */
static bool check_flags(struct reading *b)
{
    const struct body_object o = { b->tree, "" };
    bool flag = false;
    return body_flag(&o, "stream", &flag, b->why) && body_flag(&o, "truncate", &flag, b->why) &&
           body_flag(&o, "shift", &flag, b->why);
}

static bool begin(struct reading *b, const char *bytes, size_t n)
{
    if (!body_parse(bytes, n, &b->tree, b->why)) return false;
    body_drop_nulls(b->tree);
    b->body = raw_of(bytes, n);
    if (!b->body.data)
        return refuse(b->why, SERVE_INVALID_REQUEST, NULL, "the body: expected at most %d levels", JR_MAX_DEPTH);
    if (!raw_member_of(b->body, "", "options", JR_OBJECT, &b->options_raw, b->why)) return false;
    b->options = json_object_get(b->tree, "options");
    if (b->options) body_drop_nulls(json_object_get(b->tree, "options"));
    return keep_model(b) && check_flags(b);
}

/* ---- loading ------------------------------------------------------------------------------------------- */

/* "0", "0s", "0m": for no time. */
static bool is_no_time(const json_t *v)
{
    const char *text = json_string_value(v);
    if (json_is_number(v)) return json_number_value(v) == 0;
    return text && text[0] == '0' && strspn(text, "0.nuµmsh") == strlen(text);
}

/* Nothing is asked of the model but to be there, or to go. */
static bool take_loading(struct reading *b)
{
    b->to->asks = is_no_time(json_object_get(b->tree, "keep_alive")) ? OLLAMA_UNLOAD : OLLAMA_LOAD;
    return true;
}

/* ---- messages ------------------------------------------------------------------------------------------ */

/* The id that a call has, or is given: nine letters and digits, which every template takes. */
static void put_id(struct http_text *out, const struct call *c)
{
    if (c->id.data)
        http_text_add(out, c->id.data, c->id.n);
    else
        http_text_format(out, "\"call%05zu\"", c->number % NUMBERS);
}

static bool put_call(struct reading *b, const char *where, size_t k, struct raw call)
{
    char field[FIELD];
    struct raw function, arguments;
    struct call *c = &b->calls[b->n_calls];
    (void)snprintf(field, sizeof field, "%.40s.tool_calls[%zu]", where, k);
    *c = (struct call){ .number = b->n_numbered++ };
    if (call.kind != JR_OBJECT)
        return refuse(b->why, SERVE_INVALID_REQUEST, field, "%s: expected an object with function", field);
    if (!raw_member_of(call, field, "id", JR_STRING, &c->id, b->why) ||
        !raw_member_of(call, field, "function", JR_OBJECT, &function, b->why))
        return false;
    if (raw_says(c->id, "")) c->id = (struct raw){ 0 };
    (void)snprintf(field, sizeof field, "%.40s.tool_calls[%zu].function", where, k);
    if (!raw_member_of(function, field, "name", JR_STRING, &c->name, b->why) ||
        !raw_member_of(function, field, "arguments", JR_OBJECT, &arguments, b->why))
        return false;
    if (!c->name.data)
        return refuse(b->why, SERVE_INVALID_REQUEST, field, "%s: expected a function with a name", field);
    b->n_calls++;
    http_text_format(b->out, "%s{\"type\":\"function\",\"id\":", k ? "," : "");
    put_id(b->out, c);
    http_text_format(b->out, ",\"function\":{\"name\":");
    raw_copy(b->out, c->name, "");
    http_text_format(b->out, ",\"arguments\":");
    raw_copy(b->out, arguments, "{}");
    http_text_format(b->out, "}}");
    return true;
}

/* A message's calls, which those of earlier ones give way to. */
static bool put_calls(struct reading *b, const char *where, struct raw list)
{
    struct raw_walk w;
    struct raw call;
    char field[FIELD];
    bool ok = true;
    b->n_calls = 0;
    (void)snprintf(field, sizeof field, "%.40s.tool_calls", where);
    http_text_format(b->out, ",\"tool_calls\":[");
    raw_open(&w, list);
    for (size_t k = 0; ok && raw_next(&w, &call); k++)
        ok = (k < CALLS ||
              refuse(b->why, SERVE_INVALID_REQUEST, field, "%s: expected at most %d calls", field, CALLS)) &&
             put_call(b, where, k, call);
    if (ok && w.json.status) ok = no_memory(b->why); /* its levels were counted */
    raw_close(&w);
    http_text_add(b->out, "]", 1);
    return ok;
}

static bool same(struct raw a, struct raw b) { return a.n == b.n && a.n && memcmp(a.data, b.data, a.n) == 0; }

/* A result names its call by an id, or its function, or follows the calls in their order. */
static bool put_answered(struct reading *b, const char *where, struct raw message)
{
    struct raw id, name, other;
    char field[FIELD];
    if (!raw_member_of(message, where, "tool_call_id", JR_STRING, &id, b->why) ||
        !raw_member_of(message, where, "tool_name", JR_STRING, &name, b->why) ||
        !raw_member_of(message, where, "name", JR_STRING, &other, b->why))
        return false;
    if (id.data && !raw_says(id, "")) {
        raw_copy_member(b->out, "tool_call_id", id);
        return true;
    }
    if (!name.data || raw_says(name, "")) name = raw_says(other, "") ? (struct raw){ 0 } : other;
    for (size_t i = 0; i < b->n_calls; i++) {
        if (b->calls[i].answered || (name.data && !same(name, b->calls[i].name))) continue;
        b->calls[i].answered = true;
        http_text_format(b->out, ",\"tool_call_id\":");
        put_id(b->out, &b->calls[i]);
        return true;
    }
    if (!b->n_calls) return true; /* an answer of the past may have them in its text */
    (void)snprintf(field, sizeof field, "%.40s.%s", where, name.data ? "tool_name" : "tool_call_id");
    return refuse(b->why, SERVE_INVALID_REQUEST, field,
                  "%s: expected the result of a call of the last message that has some; all of these%s have theirs",
                  field, name.data ? " of this name" : "");
}

/* The last message, if it is the model's, is an answer that has begun, with which the model goes on, as with Ollama. */
static bool go_on(struct reading *b, const char *where, bool calls)
{
    char field[FIELD];
    b->goes_on = !calls;
    if (!calls) return true;
    (void)snprintf(field, sizeof field, "%.40s.tool_calls", where);
    return refuse(b->why, SERVE_INVALID_REQUEST, field,
                  "%s: the last message calls functions: messages with their results must follow", field);
}

static bool put_message(struct reading *b, size_t i, struct raw message, bool last)
{
    struct raw role, content, thinking, calls, images;
    char where[FIELD], field[FIELD];
    (void)snprintf(where, sizeof where, "messages[%zu]", i);
    if (message.kind != JR_OBJECT)
        return refuse(b->why, SERVE_INVALID_REQUEST, where, "%s: expected an object with role and content", where);
    if (!raw_member_of(message, where, "role", JR_STRING, &role, b->why) ||
        !raw_member_of(message, where, "content", JR_STRING, &content, b->why) ||
        !raw_member_of(message, where, "thinking", JR_STRING, &thinking, b->why) ||
        !raw_member_of(message, where, "images", JR_ARRAY, &images, b->why) ||
        !raw_member_of(message, where, "tool_calls", JR_ARRAY, &calls, b->why))
        return false;
    const json_t *parsed = json_array_get(json_object_get(b->tree, "messages"), i);
    if (json_array_size(json_object_get(parsed, "images"))) {
        (void)snprintf(field, sizeof field, "%.40s.images", where);
        return refuse(b->why, SERVE_INVALID_REQUEST, field, "%s: this worker reads text alone; leave it out", field);
    }
    const bool begun = last && raw_says(role, "assistant"), calling = calls.data && !raw_is_empty(calls);
    if (begun && !calling && (!content.data || raw_says(content, ""))) return true; /* no: it has no text */
    http_text_format(b->out, "%s{\"content\":", i ? "," : "");
    raw_copy(b->out, content, "\"\"");
    raw_copy_member(b->out, "role", role);
    raw_copy_member(b->out, "reasoning_content", thinking);
    const bool ok = (!calls.data || put_calls(b, where, calls)) &&
                    (!raw_says(role, "tool") || put_answered(b, where, message)) &&
                    (!begun || go_on(b, where, calling));
    http_text_add(b->out, "}", 1);
    return ok;
}

static bool put_messages(struct reading *b)
{
    struct raw_walk w;
    struct raw message;
    const size_t n = json_array_size(json_object_get(b->tree, "messages"));
    bool ok = true;
    http_text_format(b->out, ",\"messages\":[");
    raw_open(&w, raw_member(b->body, "messages"));
    for (size_t i = 0; ok && raw_next(&w, &message); i++) ok = put_message(b, i, message, i + 1 == n);
    if (ok && w.json.status) ok = no_memory(b->why);
    raw_close(&w);
    http_text_format(b->out, b->goes_on ? "],\"continue_final_message\":true" : "]");
    return ok;
}

/* ---- /api/chat ----------------------------------------------------------------------------------------- */

/* What a chat's and a generated answer share, and their end. */
static bool finish_chat(struct reading *b)
{
    if (!put_options(b) || !put_form(b) || !put_think(b)) return false;
    raw_copy_member(b->out, "model", raw_member(b->body, "model"));
    raw_copy_member(b->out, "logprobs", raw_member(b->body, "logprobs"));
    raw_copy_member(b->out, "top_logprobs", raw_member(b->body, "top_logprobs"));
    http_text_add(b->out, "}", 1);
    return true;
}

static bool read_chat(struct reading *b)
{
    struct raw messages;
    if (!raw_member_of(b->body, "", "messages", JR_ARRAY, &messages, b->why)) return false;
    if (!json_array_size(json_object_get(b->tree, "messages"))) return take_loading(b);
    b->to->asks = OLLAMA_CHAT;
    put_stream(b);
    if (!put_messages(b)) return false;
    raw_copy_member(b->out, "tools", raw_member(b->body, "tools"));
    return finish_chat(b);
}

/* ---- /api/generate ------------------------------------------------------------------------------------- */

/* The prompt as it is: what it spells of the template's marks is such. */
static bool read_raw(struct reading *b, struct raw prompt)
{
    static const char instead[] = "with \"raw\" the prompt is all that the model is given";
    static const struct unserved unserved[] = { { "system", NULL, instead }, { "think", NULL, instead } };
    const struct body_object o = { b->tree, "" };
    bool probs = false;
    b->to->asks = OLLAMA_RAW;
    if (!refuse_unserved(b->tree, "", unserved, sizeof unserved / sizeof *unserved, b->why) ||
        !body_flag(&o, "logprobs", &probs, b->why))
        return false;
    const struct raw top = raw_member(b->body, "top_logprobs");
    if (!probs && top.data && !openai_names_is_nothing(json_object_get(b->tree, "top_logprobs"), NULL))
        return body_fail(&o, "top_logprobs", b->why, "it only with \"logprobs\": true");
    put_stream(b);
    http_text_format(b->out, ",\"parse_special\":true");
    raw_copy_member(b->out, "prompt", prompt);
    if (!put_options(b) || !put_form(b)) return false;
    if (!raw_member(b->options_raw, "num_predict").data)
        http_text_format(b->out, ",\"max_tokens\":%u", b->l->max_tokens_out);
    raw_copy_member(b->out, "model", raw_member(b->body, "model"));
    if (probs) http_text_format(b->out, ",\"logprobs\":");
    if (probs) raw_copy(b->out, top, "0");
    http_text_add(b->out, "}", 1);
    return true;
}

static bool read_generate(struct reading *b)
{
    static const struct unserved unserved[] = {
        { "suffix", NULL, "it fills in nothing: leave it out" },
        { "template", NULL, "the template is the model's, or --chat-template: leave it out" },
        { "context", NULL, "POST /api/chat takes the messages before" },
        { "images", NULL, "it reads text alone: leave it out" },
        { "width", NULL, "it makes no images: leave it out" },
        { "height", NULL, "it makes no images: leave it out" },
        { "steps", NULL, "it makes no images: leave it out" },
    };
    struct raw prompt, system;
    bool raw = false;
    if (!raw_member_of(b->body, "", "prompt", JR_STRING, &prompt, b->why) ||
        !raw_member_of(b->body, "", "system", JR_STRING, &system, b->why) ||
        !body_flag(&(struct body_object){ b->tree, "" }, "raw", &raw, b->why) ||
        !refuse_unserved(b->tree, "", unserved, sizeof unserved / sizeof *unserved, b->why))
        return false;
    if (!prompt.data || raw_says(prompt, "")) return take_loading(b);
    if (raw) return read_raw(b, prompt);
    b->to->asks = OLLAMA_PROMPT;
    put_stream(b);
    http_text_format(b->out, ",\"messages\":[");
    if (system.data && !raw_says(system, "")) {
        b->to->asks = OLLAMA_SYSTEM;
        http_text_format(b->out, "{\"role\":\"system\",\"content\":");
        raw_copy(b->out, system, "");
        http_text_format(b->out, "},");
    }
    http_text_format(b->out, "{\"role\":\"user\",\"content\":");
    raw_copy(b->out, prompt, "");
    http_text_format(b->out, "}]");
    return finish_chat(b);
}

/* ---- both ---------------------------------------------------------------------------------------------- */

bool ollama_write(bool generate, const char *bytes, size_t n, const struct ollama_limits *l, struct ollama_body *to,
                  struct http_text *out, struct refusal *why)
{
    struct reading *b = calloc(1, sizeof *b);
    *to = (struct ollama_body){ .asks = OLLAMA_LOAD };
    if (!b) return no_memory(why);
    *b = (struct reading){ .to = to, .l = l, .out = out, .why = why };
    bool ok = begin(b, bytes, n) && (generate ? read_generate : read_chat)(b);
    if (ok && out->failed) ok = no_memory(why);
    json_decref(b->tree);
    free(b);
    return ok;
}
