/* harmony_render.c: conversations in the form that gpt-oss models were trained on. See harmony.h. The texts of the
 * system message and of the built-in tools are the format's own, to the letter: another wording is another
 * distribution. */
#include "harmony/harmony.h"

#include <stdlib.h>
#include <string.h>

#include "tokenizer/vocab.h"

static const char browser_tool[] =
    "## browser\n\n"
    "// Tool for browsing.\n"
    "// The `cursor` appears in brackets before each browsing display: `[{cursor}]`.\n"
    "// Cite information from the tool using the following format:\n"
    "// `\u3010{cursor}\u2020L{line_start}(-L{line_end})?\u3011`, for example: `\u30106\u2020L9-L11\u3011` or "
    "`\u30108\u2020L3\u3011`.\n"
    "// Do not quote more than 10 words directly from the tool output.\n"
    "// sources=web (default: web)\n"
    "namespace browser {\n\n"
    "// Searches for information related to `query` and displays `topn` results.\n"
    "type search = (_: {\nquery: string,\ntopn?: number, // default: 10\nsource?: string,\n}) => any;\n\n"
    "// Opens the link `id` from the page indicated by `cursor` starting at line number `loc`, showing `num_lines` "
    "lines.\n"
    "// Valid link ids are displayed with the formatting: `\u3010{id}\u2020.*\u3011`.\n"
    "// If `cursor` is not provided, the most recent page is implied.\n"
    "// If `id` is a string, it is treated as a fully qualified URL associated with `source`.\n"
    "// If `loc` is not provided, the viewport will be positioned at the beginning of the document or centered on the "
    "most relevant passage, if available.\n"
    "// Use this function without `id` to scroll to a new location of an opened page.\n"
    "type open = (_: {\nid?: number | string, // default: -1\ncursor?: number, // default: -1\nloc?: number, // "
    "default: -1\nnum_lines?: number, // default: -1\n"
    "view_source?: boolean, // default: false\nsource?: string,\n}) => any;\n\n"
    "// Finds exact matches of `pattern` in the current page, or the page given by `cursor`.\n"
    "type find = (_: {\npattern: string,\ncursor?: number, // default: -1\n}) => any;\n\n"
    "} // namespace browser";
static const char python_tool[] =
    "## python\n\n"
    "Use this tool to execute Python code in your chain of thought. The code will not be shown to the user. This tool "
    "should be used for internal reasoning, but not for "
    "code that is intended to be visible to the user (e.g. when creating plots, tables, or files).\n\n"
    "When you send a message containing Python code to python, it will be executed in a stateful Jupyter notebook "
    "environment. python will respond with the output of the "
    "execution or time out after 120.0 seconds. The drive at '/mnt/data' can be used to save and persist user files. "
    "Internet access for this session is UNKNOWN. Depends on "
    "the cluster.";

/* ---- building parts ------------------------------------------------------------------------------------ */

/* Text with the ends of its stretches of one trust. */
struct stretch {
    size_t end;
    bool trusted;
};
struct building {
    struct byte_buffer text;
    struct stretch *stretch;
    size_t n, cap;
    bool failed;
    const struct wk_err *err;
};

static void put(struct building *b, const char *data, size_t n, bool trusted)
{
    if (!n || b->failed) return;
    const bool longer = b->n && b->stretch[b->n - 1].trusted == trusted;
    b->failed = !array_reserve((void **)&b->text.data, &b->text.cap, b->text.n + n, 1) ||
                (!longer && !array_reserve((void **)&b->stretch, &b->cap, b->n + 1, sizeof *b->stretch));
    if (b->failed) return;
    memcpy(b->text.data + b->text.n, data, n);
    b->text.n += n;
    if (!longer) b->n++;
    b->stretch[b->n - 1] = (struct stretch){ b->text.n, trusted };
}
static void say(struct building *b, const char *text) { put(b, text, strlen(text), true); }
static void put_foreign(struct building *b, struct token_bytes text) { put(b, text.data, text.len, false); }

static wk_status make_parts(struct building *b, struct harmony_prompt *out)
{
    struct tokenizer_part *parts = b->failed ? NULL : malloc((b->n ? b->n : 1) * sizeof *parts);
    if (!parts) {
        free(b->text.data);
        return wk_fail(b->err, WK_NO_MEMORY, "no memory for a conversation of %zu bytes", b->text.n);
    }
    for (size_t i = 0, at = 0; i < b->n; at = b->stretch[i++].end)
        parts[i] = (struct tokenizer_part){ b->text.data + at, b->stretch[i].end - at, b->stretch[i].trusted };
    *out = (struct harmony_prompt){ parts, b->n, b->text };
    return WK_OK;
}

void harmony_prompt_free(struct harmony_prompt *p)
{
    free(p->parts);
    free(p->text.data);
    *p = (struct harmony_prompt){ 0 };
}

/* ---- headers ------------------------------------------------------------------------------------------- */

/* Names end at a space, so a space in one would be a header of the caller's own. */
static wk_status check_name(struct token_bytes name, const char *what, const struct wk_err *err)
{
    for (size_t i = 0; i < name.len; i++) {
        const char c = name.data[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || (c && strchr("_.:-/", c))))
            return wk_fail(err, WK_INVALID, "%s '%.*s': expected letters, digits and _ . : - / alone", what,
                           (int)(name.len < 64 ? name.len : 64), name.data);
    }
    return WK_OK;
}

static wk_status check_message(const struct harmony_message *m, const struct wk_err *err)
{
    const struct {
        struct token_bytes name;
        const char *what;
    } names[] = { { m->name, "name of a tool" },
                  { m->recipient, "recipient" },
                  { m->channel, "channel" },
                  { m->content_type, "type of content" } };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (check_name(names[i].name, names[i].what, err)) return WK_INVALID;
    if (m->role == HARMONY_TOOL && !m->name.len)
        return wk_fail(err, WK_INVALID, "a tool's message needs the tool's name");
    return WK_OK;
}

static void put_message(struct building *b, const struct harmony_message *m)
{
    static const char *const roles[] = { "system", "developer", "user", "assistant" };
    say(b, "<|start|>");
    if (m->role == HARMONY_TOOL)
        put_foreign(b, m->name);
    else
        say(b, roles[m->role]);
    if (m->recipient.len) {
        say(b, " to=");
        put_foreign(b, m->recipient);
    }
    if (m->channel.len) {
        say(b, "<|channel|>");
        put_foreign(b, m->channel);
    }
    if (m->content_type.len) {
        say(b, m->constrained ? " <|constrain|>" : " ");
        put_foreign(b, m->content_type);
    }
    say(b, "<|message|>");
    put_foreign(b, m->content);
    say(b, m->role == HARMONY_ASSISTANT && m->recipient.len ? "<|call|>" : "<|end|>");
}

/* ---- the first two messages ---------------------------------------------------------------------------- */

static void put_or(struct building *b, const char *given, const char *preset)
{
    if (given)
        put(b, given, strlen(given), false);
    else
        say(b, preset);
}

static wk_status put_system(struct building *b, const struct harmony_system *s, bool functions)
{
    const char *effort = s->effort ? s->effort : "medium";
    if (strcmp(effort, "low") && strcmp(effort, "medium") && strcmp(effort, "high"))
        return wk_fail(b->err, WK_INVALID, "reasoning effort must be low, medium or high, not '%.32s'", effort);
    say(b, "<|start|>system<|message|>");
    put_or(b, s->identity, "You are ChatGPT, a large language model trained by OpenAI.");
    say(b, "\nKnowledge cutoff: ");
    put_or(b, s->knowledge_cutoff, "2024-06");
    if (s->date) say(b, "\nCurrent date: ");
    put_or(b, s->date, "");
    say(b, "\n\nReasoning: ");
    say(b, effort);
    if (s->browser || s->python) say(b, "\n\n# Tools");
    if (s->browser) say(b, "\n\n"), say(b, browser_tool);
    if (s->python) say(b, "\n\n"), say(b, python_tool);
    say(b, "\n\n# Valid channels: ");
    put_or(b, s->channels, "analysis, commentary, final");
    say(b, ". Channel must be included for every message.");
    if (functions) say(b, "\nCalls to these tools must go to the commentary channel: 'functions'.");
    say(b, "<|end|>");
    return WK_OK;
}

/* "// " before every line. */
static void put_description(struct building *b, struct token_bytes text)
{
    for (size_t at = 0; at < text.len;) {
        const char *end = memchr(text.data + at, '\n', text.len - at);
        const size_t len = end ? (size_t)(end - text.data) - at : text.len - at;
        say(b, "// ");
        put(b, text.data + at, len - (len && text.data[at + len - 1] == '\r'), false);
        say(b, "\n");
        at += len + 1;
    }
}

static wk_status put_function(struct building *b, const struct harmony_function *f)
{
    wk_status status = f->name.len ? check_name(f->name, "name of a function", b->err)
                                   : wk_fail(b->err, WK_INVALID, "a function needs a name");
    if (status) return status;
    put_description(b, f->description);
    say(b, "type ");
    put_foreign(b, f->name);
    if (!f->parameters.data) {
        say(b, " = () => any;\n\n");
        return WK_OK;
    }
    struct byte_buffer type = { 0 };
    char what[160];
    (void)snprintf(what, sizeof what, "parameters of function '%.*s'", (int)(f->name.len < 64 ? f->name.len : 64),
                   f->name.data);
    status = harmony_schema(f->parameters, what, &type, b->err);
    say(b, " = (_: ");
    put(b, type.data, type.n, false);
    say(b, ") => any;\n\n");
    free(type.data);
    return status;
}

static wk_status put_developer(struct building *b, const struct harmony_developer *d)
{
    wk_status status = WK_OK;
    say(b, "<|start|>developer<|message|>");
    if (d->instructions.len) {
        say(b, "# Instructions\n\n");
        put_foreign(b, d->instructions);
    }
    if (d->n_functions) {
        say(b, d->instructions.len ? "\n\n# Tools\n\n## functions\n\nnamespace functions {\n\n"
                                   : "# Tools\n\n## functions\n\nnamespace functions {\n\n");
        for (uint32_t i = 0; !status && i < d->n_functions; i++) status = put_function(b, &d->functions[i]);
        say(b, "} // namespace functions");
    }
    say(b, "<|end|>");
    return status;
}

/* ---- conversations ------------------------------------------------------------------------------------- */

static bool channel_is(const struct harmony_message *m, const char *channel)
{
    return m->channel.len == strlen(channel) && memcmp(m->channel.data, channel, m->channel.len) == 0;
}

/* Messages before this one lose their reasoning: the last final message of the assistant's that has something behind
 * it. If the conversation ends with an answer (it is shown, not continued), the reasoning behind that one stays. */
static size_t reasoning_from(const struct harmony_conversation *c)
{
    for (size_t i = c->n_messages; !c->keep_analysis && i-- > 0;)
        if (c->messages[i].role == HARMONY_ASSISTANT && channel_is(&c->messages[i], "final") &&
            (i + 1 < c->n_messages || c->answer))
            return i;
    return 0;
}

wk_status harmony_render(const struct harmony_conversation *c, struct harmony_prompt *out, const struct wk_err *err)
{
    struct building b = { .err = err };
    const bool functions = c->developer && c->developer->n_functions;
    const size_t from = reasoning_from(c);
    wk_status status = c->system ? put_system(&b, c->system, functions) : WK_OK;
    if (!status && c->developer && (functions || c->developer->instructions.len))
        status = put_developer(&b, c->developer);
    for (size_t i = 0; !status && i < c->n_messages; i++) {
        const struct harmony_message *m = &c->messages[i];
        status = check_message(m, err);
        if (!status && !(i < from && m->role == HARMONY_ASSISTANT && channel_is(m, "analysis"))) put_message(&b, m);
    }
    if (c->answer) say(&b, "<|start|>assistant");
    if (status)
        free(b.text.data);
    else
        status = make_parts(&b, out);
    free(b.stretch);
    return status;
}
