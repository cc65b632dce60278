/* responses_input.c: the input's items as messages of a chat. What belongs to one turn of the model, its reasoning, its
 * text and its calls, becomes one message, as templates expect it. */
#include "responses.h"

#include <stdio.h>
#include <string.h>

#include "base/base64url.h"

struct input {
    struct responses *r;
    struct http_text *out; /* the list of messages */
    struct refusal *why;
    size_t index; /* of the item that is read */
    uint32_t n;   /* messages so far */
    struct http_text reasoning, content,
        calls; /* of the model's turn; content: JSON, calls: JSON objects with commas */
};

__attribute__((format(printf, 3, 4))) static bool wrong(struct input *in, const char *member, const char *format, ...)
{
    char field[96], text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    (void)snprintf(field, sizeof field, "input[%zu]%s%s", in->index, *member ? "." : "", member);
    return refuse(in->why, SERVE_INVALID_REQUEST, field, "%s: %s", field, text);
}

static void begin_message(struct input *in, const char *role)
{
    http_text_format(in->out, "%s{\"role\":\"%s\"", in->n++ ? "," : "", role);
}

/* The model's turn that is being read is over. */
static void flush(struct input *in)
{
    if (!in->reasoning.n && !in->content.n && !in->calls.n) return;
    begin_message(in, "assistant");
    http_text_format(in->out, ",\"content\":");
    if (in->content.n)
        http_text_add(in->out, in->content.data, in->content.n);
    else
        http_text_add(in->out, "null", 4);
    if (in->reasoning.n) {
        http_text_format(in->out, ",\"reasoning_content\":");
        http_text_json(in->out, in->reasoning.data, in->reasoning.n);
    }
    if (in->calls.n) {
        http_text_format(in->out, ",\"tool_calls\":[");
        http_text_add(in->out, in->calls.data, in->calls.n);
        http_text_add(in->out, "]", 1);
    }
    http_text_add(in->out, "}", 1);
    in->out->failed = in->out->failed || in->reasoning.failed || in->content.failed || in->calls.failed;
    in->reasoning.n = in->content.n = in->calls.n = 0;
}

/* ---- content ------------------------------------------------------------------------------------------- */

static bool put_part(struct input *in, struct http_text *out, struct raw part, size_t k)
{
    struct http_text type = { 0 };
    const struct raw kind = raw_member(part, "type");
    const bool refusal = raw_says(kind, "refusal");
    const struct raw text = raw_member(part, refusal ? "refusal" : "text");
    if (!refusal && !raw_says(kind, "input_text") && !raw_says(kind, "output_text") && !raw_says(kind, "text") &&
        !raw_says(kind, "summary_text") && !raw_says(kind, "reasoning_text")) {
        raw_text(kind, &type);
        (void)wrong(in, "content", "part %zu is of type %.40s: only text is served", k, type.n ? type.data : "(none)");
        http_text_free(&type);
        return false;
    }
    if (text.kind != JR_STRING) return wrong(in, "content", "part %zu has no %s", k, refusal ? "refusal" : "text");
    http_text_format(out, "%s{\"type\":\"text\",\"text\":", k ? "," : "");
    raw_copy(out, text, "");
    http_text_add(out, "}", 1);
    return true;
}

/* A string, or a list of parts, as the content of a message. */
static bool put_content(struct input *in, struct http_text *out, struct raw content, const char *name)
{
    struct raw_walk w;
    struct raw part;
    size_t k = 0;
    bool good = true;
    if (content.kind == JR_STRING) {
        raw_copy(out, content, "");
        return true;
    }
    if (content.kind != JR_ARRAY) return wrong(in, name, "expected a string or a list of parts");
    http_text_add(out, "[", 1);
    raw_open(&w, content);
    while (good && raw_next(&w, &part)) good = put_part(in, out, part, k++);
    if (good && w.json.status) good = wrong(in, name, "expected at most %d levels", JR_MAX_DEPTH);
    raw_close(&w);
    http_text_add(out, "]", 1);
    if (good && !k) out->n -= 2, http_text_add(out, "\"\"", 2); /* an empty list is an empty text */
    return good;
}

static bool read_message(struct input *in, struct raw item)
{
    const struct raw role = raw_member(item, "role"), content = raw_member(item, "content");
    if (raw_says(role, "assistant")) {
        if (in->content.n || in->calls.n) flush(in);
        return put_content(in, &in->content, content, "content");
    }
    flush(in);
    const char *name = raw_says(role, "user")        ? "user"
                       : raw_says(role, "system")    ? "system"
                       : raw_says(role, "developer") ? "developer"
                                                     : NULL;
    if (!name) return wrong(in, "role", "expected user, assistant, system or developer");
    begin_message(in, name);
    http_text_format(in->out, ",\"content\":");
    if (!put_content(in, in->out, content, "content")) return false;
    http_text_add(in->out, "}", 1);
    return true;
}

/* ---- calls and their outputs --------------------------------------------------------------------------- */

static bool needs(struct input *in, struct raw item, const char *name, struct raw *out)
{
    *out = raw_member(item, name);
    return out->kind == JR_STRING || wrong(in, name, "expected a string");
}

/* {"id": ..., "function": {"name": FULL, "arguments": */
static bool begin_call(struct input *in, struct raw item, struct raw id)
{
    struct http_text full = { 0 };
    struct raw name;
    if (!needs(in, item, "name", &name)) return false;
    responses_full_name(&full, raw_member(item, "namespace"), name);
    http_text_format(&in->calls, "%s{\"id\":", in->calls.n ? "," : "");
    raw_copy(&in->calls, id, "\"\"");
    http_text_format(&in->calls, ",\"type\":\"function\",\"function\":{\"name\":");
    http_text_json(&in->calls, full.n ? full.data : "", full.n);
    http_text_format(&in->calls, ",\"arguments\":");
    in->calls.failed = in->calls.failed || full.failed;
    http_text_free(&full);
    return true;
}

static bool read_call(struct input *in, struct raw item)
{
    struct raw id, arguments;
    if (!needs(in, item, "call_id", &id) || !needs(in, item, "arguments", &arguments) || !begin_call(in, item, id))
        return false;
    raw_copy(&in->calls, arguments, "");
    http_text_format(&in->calls, "}}");
    return true;
}

/* Its input as the model has written it: the text of a member. */
static bool read_custom_call(struct input *in, struct raw item)
{
    struct http_text inner = { 0 };
    struct raw id, input;
    if (!needs(in, item, "call_id", &id) || !needs(in, item, "input", &input) || !begin_call(in, item, id))
        return false;
    http_text_format(&inner, "{\"input\":");
    raw_copy(&inner, input, "\"\"");
    http_text_add(&inner, "}", 1);
    http_text_json(&in->calls, inner.data ? inner.data : "", inner.n);
    in->calls.failed = in->calls.failed || inner.failed;
    http_text_free(&inner);
    http_text_format(&in->calls, "}}");
    return true;
}

/* A command that another model's tool of its own has asked for: the function of that name. */
static bool read_shell_call(struct input *in, struct raw item)
{
    struct raw id;
    const struct raw action = raw_member(item, "action");
    if (!needs(in, item, "call_id", &id)) return false;
    if (action.kind != JR_OBJECT) return wrong(in, "action", "expected an object");
    http_text_format(&in->calls, "%s{\"id\":", in->calls.n ? "," : "");
    raw_copy(&in->calls, id, "\"\"");
    http_text_format(&in->calls, ",\"type\":\"function\",\"function\":{\"name\":\"local_shell\",\"arguments\":");
    raw_copy(&in->calls, action, "");
    http_text_format(&in->calls, "}}");
    return true;
}

static bool read_output(struct input *in, struct raw item)
{
    struct raw id;
    if (!needs(in, item, "call_id", &id)) return false;
    flush(in);
    begin_message(in, "tool");
    http_text_format(in->out, ",\"tool_call_id\":");
    raw_copy(in->out, id, "\"\"");
    http_text_format(in->out, ",\"content\":");
    if (!put_content(in, in->out, raw_member(item, "output"), "output")) return false;
    http_text_add(in->out, "}", 1);
    return true;
}

/* ---- reasoning ----------------------------------------------------------------------------------------- */

static const char mark[] = "w1.";

void responses_seal(struct http_text *out, const struct http_text *text)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint32_t bits = 0, n = 0;
    http_text_add(out, mark, sizeof mark - 1);
    for (size_t i = 0; i < text->n; i++) {
        bits = (bits << 8 | (unsigned char)text->data[i]) & 0xffff;
        for (n += 8; n >= 6; n -= 6) http_text_add(out, &digits[bits >> (n - 6) & 63], 1);
    }
    if (n) http_text_add(out, &digits[bits << (6 - n) & 63], 1);
}

bool responses_unseal(struct raw sealed, struct http_text *out)
{
    const size_t lead = sizeof mark - 1;
    struct http_text text = { 0 };
    size_t n = 0;
    raw_text(sealed, &text);
    const bool good = text.n >= lead && memcmp(text.data, mark, lead) == 0 &&
                      base64url_decode(text.data + lead, text.n - lead, (uint8_t *)text.data + lead, text.n - lead, &n);
    if (good) http_text_add(out, text.data + lead, n);
    out->failed = out->failed || text.failed;
    http_text_free(&text);
    return good;
}

/* The reasoning itself, where the client has it; a summary is not it. */
static bool read_reasoning(struct input *in, struct raw item)
{
    struct raw_walk w;
    struct raw part;
    const size_t before = in->reasoning.n;
    if (in->content.n || in->calls.n) flush(in);
    raw_open(&w, raw_member(item, "content"));
    while (raw_next(&w, &part)) raw_text(raw_member(part, "text"), &in->reasoning);
    raw_close(&w);
    if (in->reasoning.n == before && !responses_unseal(raw_member(item, "encrypted_content"), &in->reasoning))
        in->reasoning.n = before;
    return true;
}

/* ---- items --------------------------------------------------------------------------------------------- */

/* What a server's own tool has done, or what only the server that made it can read: it is no part of a prompt. */
static bool read_foreign(struct input *in, struct raw item)
{
    struct http_text type = { 0 };
    raw_text(raw_member(item, "type"), &type);
    responses_warn(in->r, "input[%zu]: an item of type %.40s was left out", in->index, type.data);
    http_text_free(&type);
    return true;
}

static bool read_item(struct input *in, struct raw item)
{
    static const struct {
        const char *type;
        bool (*read)(struct input *in, struct raw item);
    } types[] = {
        { "message", read_message },
        { "function_call", read_call },
        { "function_call_output", read_output },
        { "custom_tool_call", read_custom_call },
        { "custom_tool_call_output", read_output },
        { "local_shell_call", read_shell_call },
        { "local_shell_call_output", read_output },
        { "reasoning", read_reasoning },
        { "web_search_call", read_foreign },
        { "file_search_call", read_foreign },
        { "code_interpreter_call", read_foreign },
        { "image_generation_call", read_foreign },
        { "computer_call", read_foreign },
        { "mcp_list_tools", read_foreign },
        { "mcp_call", read_foreign },
        { "mcp_approval_request", read_foreign },
        { "mcp_approval_response", read_foreign },
        { "tool_search_call", read_foreign },
        { "tool_search_output", read_foreign },
        { "compaction", read_foreign },
        { "compaction_summary", read_foreign },
    };
    const struct raw type = raw_member(item, "type");
    struct http_text name = { 0 };
    if (item.kind != JR_OBJECT) return wrong(in, "", "expected an object");
    if (!type.data) return read_message(in, item);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (raw_says(type, types[i].type)) return types[i].read(in, item);
    raw_text(type, &name);
    if (raw_says(type, "item_reference"))
        (void)wrong(in, "type", "this worker stores nothing that an item_reference could name: send the item itself");
    else
        (void)wrong(in, "type",
                    "expected message, reasoning, function_call, function_call_output or another kind "
                    "that this worker knows, got %.40s",
                    name.n ? name.data : "no string");
    http_text_free(&name);
    return false;
}

static bool read_list(struct input *in, struct raw list)
{
    struct raw_walk w;
    struct raw item;
    bool good = true;
    raw_open(&w, list);
    for (; good && raw_next(&w, &item); in->index++) good = read_item(in, item);
    if (good && w.json.status)
        good = refuse(in->why, SERVE_INVALID_REQUEST, "input", "input: expected at most %d levels", JR_MAX_DEPTH);
    raw_close(&w);
    flush(in);
    return good;
}

bool responses_write_input(struct responses *r, struct raw root, struct http_text *out, struct refusal *why)
{
    struct input in = { .r = r, .out = out, .why = why };
    const struct raw input = raw_member(root, "input");
    struct raw instructions;
    if (!raw_member_of(root, "", "instructions", JR_STRING, &instructions, why)) return false;
    if (input.kind != JR_STRING && input.kind != JR_ARRAY)
        return refuse(why, SERVE_INVALID_REQUEST, "input", "input: expected a string or a list of items");
    http_text_format(out, "\"messages\":[");
    if (instructions.data) {
        begin_message(&in, "system");
        raw_copy_member(in.out, "content", instructions);
        http_text_add(in.out, "}", 1);
    }
    bool good = true;
    if (input.kind == JR_STRING) {
        begin_message(&in, "user");
        raw_copy_member(in.out, "content", input);
        http_text_add(in.out, "}", 1);
    } else {
        good = read_list(&in, input);
    }
    http_text_free(&in.reasoning);
    http_text_free(&in.content);
    http_text_free(&in.calls);
    http_text_add(out, "]", 1);
    return good && (in.n || refuse(why, SERVE_INVALID_REQUEST, "input", "input: expected one item or more"));
}
