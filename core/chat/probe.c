/* probe.c: what a template can express, found by rendering small conversations (caps.h).
 *
 * A probe asks whether words that nobody else writes come out. A template that fails at a probe cannot express it; only
 * one that cannot express a single message of a user is no chat template. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chat/caps.h"

struct probing {
    const struct jinja_template *template;
    struct token_bytes source, bos, eos;
    struct chat_caps *caps;
    struct jinja_result last; /* of the last render */
    char said[512];           /* why the last render failed */
    bool with_tools;          /* of a template for conversations with tools: there always are some */
    bool exhausted;           /* for want of memory: nothing is known of the template */
};

struct asking {
    const char *messages, *tools, *kwargs; /* JSON; NULL: none */
    bool nothing_follows;                  /* no generation prompt */
};

#define TOOLS                                                                                                      \
    "[{\"type\":\"function\",\"function\":{\"name\":\"wname\",\"description\":\"Wdescribedw\",\"parameters\":{"    \
    "\"type\":\"object\",\"properties\":{\"wkey\":{\"type\":\"string\",\"description\":\"Wkeyw\"}},\"required\":[" \
    "\"wkey\"]}}}]"

/* Renders; true: the template has made a text of it. */
static bool render(struct probing *p, struct asking a)
{
    struct conversation c;
    struct chat_problem why;
    struct jinja_value *context = NULL, *tools = NULL;
    const struct wk_err err = { p->said, sizeof p->said };
    const struct jinja_options options = { 0 };
    struct jinja_values *values = jinja_values_new();
    if (p->with_tools) a.tools = TOOLS;
    jinja_result_free(&p->last);
    p->last = (struct jinja_result){ 0 };
    bool ok = false;
    if (values && conversation_read(a.messages, strlen(a.messages), &c, &why)) {
        if (!a.tools || !jinja_from_json(values, a.tools, strlen(a.tools), "tools", &tools, &err)) {
            const struct chat_context x = { .template = p->template,
                                            .caps = p->caps,
                                            .bos = p->bos,
                                            .eos = p->eos,
                                            .tools = tools,
                                            .kwargs = { a.kwargs, a.kwargs ? strlen(a.kwargs) : 0 },
                                            .generation = !a.nothing_follows,
                                            .thinking = -1 };
            ok = chat_shape(&c, &x, values, &context, &why);
            if (!ok) (void)snprintf(p->said, sizeof p->said, "%s", why.text);
            ok = ok && !jinja_render(p->template, context, &options, &p->last, &err);
        }
        conversation_free(&c);
    }
    p->exhausted = p->exhausted || !values || p->last.end == JINJA_NO_MEMORY;
    jinja_values_free(values);
    return ok;
}

/* Does the last render hold the words? */
static bool holds(const struct probing *p, const char *words)
{
    return p->last.text && memmem(p->last.text, p->last.n, words, strlen(words)) != NULL;
}

static bool shows(struct probing *p, const char *messages, const char *words)
{
    return render(p, (struct asking){ .messages = messages }) && holds(p, words);
}

/* ---- messages ------------------------------------------------------------------------------------------ */

#define SYSTEM "{\"role\":\"system\",\"content\":\"Wsysw\"}"
#define SECOND "{\"role\":\"system\",\"content\":\"Wsecondw\"}"
#define DEVELOPER "{\"role\":\"developer\",\"content\":\"Wdevw\"}"
#define USER "{\"role\":\"user\",\"content\":\"Wuserw\"}"
#define MORE "{\"role\":\"user\",\"content\":\"Wmorew\"}"
#define ANSWER "{\"role\":\"assistant\",\"content\":\"Wanswerw\"}"
#define PARTS "\"content\":[{\"type\":\"text\",\"text\":\"Wonew\"},{\"type\":\"text\",\"text\":\"Wtwow\"}]}"

/* Do the parts of a message of this role come through? A list that was only printed shows its quotes. */
static void probe_parts(struct probing *p, enum chat_role role, const char *messages)
{
    static const char *const quoted[] = { "Wonew'", "Wonew\"", "Wonew\\" };
    const unsigned bit = 1u << role;
    p->caps->parts |= bit;
    bool shown = shows(p, messages, "Wonew") && holds(p, "Wtwow");
    for (size_t i = 0; i < sizeof quoted / sizeof *quoted; i++) shown = shown && !holds(p, quoted[i]);
    if (!shown) p->caps->parts &= ~bit;
}

/* Does a message of a user come through, as a string or in parts? said: why not. */
static bool shows_user(struct probing *p, char said[sizeof p->said])
{
    struct chat_caps *caps = p->caps;
    caps->text = caps->system = true;
    bool text = shows(p, "[" USER "]", "Wuserw");
    if (p->last.end != JINJA_DONE) memcpy(said, p->said, sizeof p->said);
    text = text || shows(p, "[" SYSTEM "," USER "]", "Wuserw");
    caps->text = false;
    probe_parts(p, CHAT_USER, "[{\"role\":\"user\"," PARTS "]");
    if (!text && !caps->parts) caps->one_part = shows(p, "[" USER "]", "Wuserw") && !holds(p, "Wuserw'");
    caps->text = text;
    return text || caps->parts || caps->one_part;
}

static wk_status probe_user(struct probing *p, const struct wk_err *err)
{
    char said[sizeof p->said] = "its text does not come out", again[sizeof p->said];
    if (shows_user(p, said)) return WK_OK;
    p->caps->none = true;
    if (shows_user(p, again)) return WK_OK;
    if (p->exhausted) return wk_fail(err, WK_NO_MEMORY, "no memory to try the chat template");
    return wk_fail(err, WK_UNSUPPORTED, "the chat template has no form for a message of a user: %s", said);
}

static bool shows_system(struct probing *p) { return shows(p, "[" SYSTEM "," USER "]", "Wsysw") && holds(p, "Wuserw"); }

static void probe_roles(struct probing *p)
{
    struct chat_caps *caps = p->caps;
    caps->system = caps->systems = caps->developer = true;
    caps->system = shows_system(p);
    if (!caps->system && !caps->none) {
        caps->system = caps->none = true; /* a template may look at tools beside a system message alone */
        caps->system = caps->none = shows_system(p) && shows(p, "[" USER "]", "Wuserw");
    }
    if (caps->system) probe_parts(p, CHAT_SYSTEM, "[{\"role\":\"system\"," PARTS "," USER "]");
    probe_parts(p, CHAT_ASSISTANT, "[" USER ",{\"role\":\"assistant\"," PARTS "," MORE "]");
    caps->systems = caps->system && shows(p, "[" SYSTEM "," SECOND "," USER "]", "Wsysw") && holds(p, "Wsecondw");
    /* A template that knows no such role may show it all the same, as the user's, or under a name that the model was
     * never trained on. */
    caps->developer =
        memmem(p->source.data, p->source.len, "developer", 9) != NULL && shows(p, "[" DEVELOPER "," USER "]", "Wdevw");
    if (caps->developer) probe_parts(p, CHAT_DEVELOPER, "[{\"role\":\"developer\"," PARTS "," USER "]");
    caps->alternates =
        !shows(p, "[" USER "," MORE "]", "Wmorew") && shows(p, "[" USER "," ANSWER "," MORE "]", "Wmorew");
    caps->prefill = render(p, (struct asking){ .messages = "[" USER "," ANSWER "]", .nothing_follows = true }) &&
                    holds(p, "Wanswerw");
}

/* ---- marks ---------------------------------------------------------------------------------------------- */

static bool is_blank(char c) { return c == '\n' || c == ' ' || c == '\r' || c == '\t'; }

/* The mark that ends at `end`, blanks left out: from its bracket on. */
static bool mark_before(const char *text, size_t end, char out[CHAT_MARK])
{
    while (end && is_blank(text[end - 1])) end--;
    if (!end || (text[end - 1] != '>' && text[end - 1] != ']')) return false;
    const char bracket = text[end - 1] == '>' ? '<' : '[';
    size_t begin = end - 1;
    while (begin && end - begin < CHAT_MARK && text[begin] != bracket) begin--;
    if (text[begin] != bracket || end - begin >= CHAT_MARK || end - begin < 3) return false;
    (void)snprintf(out, CHAT_MARK, "%.*s", (int)(end - begin), text + begin);
    return true;
}

static bool mark_behind(const char *text, size_t n, size_t begin, char out[CHAT_MARK])
{
    while (begin < n && is_blank(text[begin])) begin++;
    if (begin == n || (text[begin] != '<' && text[begin] != '[')) return false;
    const char *end = memchr(text + begin, text[begin] == '<' ? '>' : ']', n - begin);
    if (!end || end + 1 - (text + begin) >= CHAT_MARK) return false;
    (void)snprintf(out, CHAT_MARK, "%.*s", (int)(end + 1 - (text + begin)), text + begin);
    return true;
}

/* ---- calls and tools ----------------------------------------------------------------------------------- */

#define CALL_AS(id, name, arguments) \
    "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"arguments\":\"" arguments "\"}}"
#define CALL CALL_AS("wcall0001", "wname", "{\\\"wkey\\\": \\\"Wvaluew\\\"}")
#define CALL_LONG CALL_AS("call_w_and_more", "wname", "{\\\"wkey\\\": \\\"Wvaluew\\\"}")
#define OTHER CALL_AS("wcall0002", "wother", "{\\\"wkey\\\": \\\"Wthirdw\\\"}")
#define CALLS(calls) "{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[" calls "]}"
#define RESULT "{\"role\":\"tool\",\"tool_call_id\":\"wcall0001\",\"content\":\"Wresultw\"}"
#define RESULT_LONG "{\"role\":\"tool\",\"tool_call_id\":\"call_w_and_more\",\"content\":\"Wresultw\"}"
#define RESULT_OTHER "{\"role\":\"tool\",\"tool_call_id\":\"wcall0002\",\"content\":\"Wthenw\"}"
static bool shows_call(struct probing *p, const char *messages)
{
    return render(p, (struct asking){ .messages = messages, .tools = p->caps->tools ? TOOLS : NULL }) &&
           holds(p, "wname") && holds(p, "Wvaluew");
}

/* The shapes of a call, the usual ones first. Python's way to print an object means that the template wanted text, and
 * JSON within JSON that it wanted an object. */
static bool probe_call(struct probing *p, const char *messages)
{
    static const enum chat_no_content contents[] = { CONTENT_EMPTY, CONTENT_NULL, CONTENT_ABSENT };
    static const char *const wrong[] = { "{'wkey'", "\\\"wkey" };
    struct chat_caps *caps = p->caps;
    for (int careful = 1; careful >= 0; careful--)
        for (size_t i = 0; i < sizeof contents / sizeof *contents; i++)
            for (caps->arguments = ARGUMENTS_OBJECT; caps->arguments <= ARGUMENTS_TEXT; caps->arguments++) {
                caps->no_content = contents[i];
                if (shows_call(p, messages) && !(careful && holds(p, wrong[caps->arguments]))) return true;
            }
    caps->arguments = ARGUMENTS_OBJECT;
    caps->no_content = CONTENT_EMPTY;
    return false;
}

static void probe_calls(struct probing *p)
{
    static const char trip[] = "[" USER "," CALLS(CALL) "," RESULT "]", alone[] = "[" USER "," CALLS(CALL) "]",
                      trip_long[] = "[" USER "," CALLS(CALL_LONG) "," RESULT_LONG "]",
                      both[] = "[" USER "," CALLS(CALL "," OTHER) "," RESULT "," RESULT_OTHER "]";
    struct chat_caps *caps = p->caps;
    caps->calls = caps->parallel = caps->results = true;
    caps->tools = render(p, (struct asking){ .messages = "[" USER "]", .tools = TOOLS }) && holds(p, "wname");
    if (!caps->tools && caps->system)
        caps->tools =
            render(p, (struct asking){ .messages = "[" SYSTEM "," USER "]", .tools = TOOLS }) && holds(p, "wname");
    caps->calls = probe_call(p, trip) || probe_call(p, alone);
    const struct asking tripped = { .messages = trip, .tools = caps->tools ? TOOLS : NULL };
    caps->results = caps->calls && render(p, tripped) && holds(p, "Wresultw");
    if (caps->results)
        probe_parts(p, CHAT_TOOL,
                    "[" USER "," CALLS(CALL) ",{\"role\":\"tool\",\"tool_call_id\":\"wcall0001\"," PARTS "]");
    caps->short_ids = caps->calls && !shows_call(p, trip_long);
    const struct asking two = { .messages = both, .tools = tripped.tools };
    caps->parallel = caps->calls && render(p, two) && holds(p, "Wvaluew") && holds(p, "Wthirdw") && holds(p, "wother");
}

/* ---- thinking ------------------------------------------------------------------------------------------ */

/* A copy of the last render's text. NULL: no memory, or there is none. */
static char *keep(struct probing *p, size_t *n)
{
    char *text = p->last.text;
    *n = text ? p->last.n : 0;
    p->last.text = NULL;
    return text;
}

/* Does a variable's value change what the template makes of a conversation? */
static bool differs(struct probing *p, const char *messages, const char *one, const char *other)
{
    size_t n;
    if (!render(p, (struct asking){ .messages = messages, .kwargs = one })) return false;
    char *text = keep(p, &n);
    const bool same = render(p, (struct asking){ .messages = messages, .kwargs = other }) && p->last.n == n && text &&
                      memcmp(text, p->last.text, n) == 0;
    free(text);
    return p->last.text && !same;
}

static bool switches(struct probing *p, const char *name)
{
    static const char *const conversations[] = { "[" USER "]", "[" SYSTEM "," USER "]",
                                                 "[" USER "," ANSWER "," MORE "]" };
    char on[64], off[64];
    (void)snprintf(on, sizeof on, "{\"%s\":true}", name);
    (void)snprintf(off, sizeof off, "{\"%s\":false}", name);
    for (size_t i = 0; jinja_reads(p->template, name) && i < sizeof conversations / sizeof *conversations; i++)
        if (differs(p, conversations[i], on, off)) return true;
    return false;
}

static bool takes_effort(struct probing *p)
{
    static const char *const conversations[] = { "[" USER "]", "[" SYSTEM "," USER "]" };
    for (size_t i = 0; jinja_reads(p->template, "reasoning_effort") && i < 2; i++)
        if (differs(p, conversations[i], "{\"reasoning_effort\":\"low\"}", "{\"reasoning_effort\":\"high\"}"))
            return true;
    return false;
}

/* Marks that models are known to write around their reasoning. */
static const struct {
    const char *open, *close;
} known_marks[] = { { "<think>", "</think>" },
                    { "[THINK]", "[/THINK]" },
                    { "<seed:think>", "</seed:think>" },
                    { "<|channel>thought", "<channel|>" },
                    { "<|inner_prefix|>", "<|inner_suffix|>" },
                    { "<thinking>", "</thinking>" },
                    { "<reasoning>", "</reasoning>" },
                    { "<thought>", "</thought>" },
                    { "<|open|>think<|sep|>", "<|close|>think<|sep|>" },
                    { "<|think|>", "<|/think|>" } };

#define THOUGHT "{\"role\":\"assistant\",\"reasoning_content\":\"Wthoughtw\",\"content\":\"Wanswerw\"}"

/* Is an answer shown though it comes with reasoning? There are templates that show either. */
static bool keeps_answer(struct probing *p) { return shows(p, "[" USER "," THOUGHT "," MORE "]", "Wanswerw"); }

/* The marks around the reasoning of an answer that is shown. */
static bool marks_of_answer(struct probing *p)
{
    static const char answer[] = "[" USER "," THOUGHT "]";
    struct chat_caps *caps = p->caps;
    if (!render(p, (struct asking){ .messages = answer, .nothing_follows = true })) return false;
    const char *at = memmem(p->last.text, p->last.n, "Wthoughtw", 9);
    if (!at) return false;
    const size_t begin = (size_t)(at - p->last.text);
    char open[CHAT_MARK] = "", close[CHAT_MARK] = "";
    caps->reasoning = true;
    for (size_t i = 0; i < sizeof known_marks / sizeof *known_marks; i++)
        if (memmem(p->last.text, begin, known_marks[i].open, strlen(known_marks[i].open)) &&
            memmem(at, p->last.n - begin, known_marks[i].close, strlen(known_marks[i].close))) {
            (void)snprintf(caps->open, CHAT_MARK, "%s", known_marks[i].open);
            (void)snprintf(caps->close, CHAT_MARK, "%s", known_marks[i].close);
            return true;
        }
    if (!mark_before(p->last.text, begin, open) || !mark_behind(p->last.text, p->last.n, begin + 9, close)) return true;
    memcpy(caps->open, open, sizeof open);
    memcpy(caps->close, close, sizeof close);
    return true;
}

/* The end of the prompt, or the template's own words for cutting reasoning off, tell of marks as well. */
static void marks_of_prompt(struct probing *p, const char *text, size_t n)
{
    for (size_t i = 0; !p->caps->open[0] && i < sizeof known_marks / sizeof *known_marks; i++) {
        const char *const open = known_marks[i].open, *const close = known_marks[i].close;
        size_t end = n;
        while (end && is_blank(text[end - 1])) end--;
        const bool opened = end >= strlen(open) && memcmp(text + end - strlen(open), open, strlen(open)) == 0,
                   closed = end >= strlen(close) && memcmp(text + end - strlen(close), close, strlen(close)) == 0;
        if (!opened && !closed) continue;
        (void)snprintf(p->caps->open, CHAT_MARK, "%s", open);
        (void)snprintf(p->caps->close, CHAT_MARK, "%s", close);
    }
}

/* A template that cuts marked reasoning off an answer of the past is of a model that writes it. */
static void marks_that_are_cut(struct probing *p)
{
    for (size_t i = 0; !p->caps->open[0] && i < sizeof known_marks / sizeof *known_marks; i++) {
        char messages[512];
        const int n =
            snprintf(messages, sizeof messages,
                     "[" USER ",{\"role\":\"assistant\",\"content\":\"%s\\nWthoughtw\\n%s\\n\\nWanswerw\"}," MORE "]",
                     known_marks[i].open, known_marks[i].close);
        if (n < 0 || (size_t)n >= sizeof messages || !shows(p, messages, "Wanswerw") || holds(p, "Wthoughtw")) continue;
        (void)snprintf(p->caps->open, CHAT_MARK, "%s", known_marks[i].open);
        (void)snprintf(p->caps->close, CHAT_MARK, "%s", known_marks[i].close);
    }
}

/* A template may tell the model of its marks, in a system message that it writes itself, or write them where no probe
 * comes to. */
static void marks_of_source(struct probing *p)
{
    for (size_t i = 0; !p->caps->open[0] && i < sizeof known_marks / sizeof *known_marks; i++) {
        const char *const open = known_marks[i].open, *const close = known_marks[i].close;
        if (!memmem(p->source.data, p->source.len, open, strlen(open)) ||
            !memmem(p->source.data, p->source.len, close, strlen(close)))
            continue;
        (void)snprintf(p->caps->open, CHAT_MARK, "%s", open);
        (void)snprintf(p->caps->close, CHAT_MARK, "%s", close);
    }
}

static void probe_thinking(struct probing *p)
{
    static const char *const fields[] = { "reasoning_content", "reasoning", "thinking", "thought" };
    struct chat_caps *caps = p->caps;
    caps->thinking_switch = switches(p, "enable_thinking") ? "enable_thinking"
                            : switches(p, "thinking")      ? "thinking"
                                                           : NULL;
    caps->effort = takes_effort(p);
    for (size_t i = 0; !caps->reasoning && i < sizeof fields / sizeof *fields; i++) {
        const char *before = caps->reasoning_field;
        if (!jinja_mentions(p->template, fields[i])) continue;
        caps->reasoning_field = fields[i];
        if (!keeps_answer(p) || (!marks_of_answer(p) && before)) caps->reasoning_field = before;
    }
    if (render(p, (struct asking){ .messages = "[" USER "]" })) marks_of_prompt(p, p->last.text, p->last.n);
    if (caps->thinking_switch && !caps->open[0]) {
        char off[64];
        (void)snprintf(off, sizeof off, "{\"%s\":false}", caps->thinking_switch);
        if (render(p, (struct asking){ .messages = "[" USER "]", .kwargs = off }))
            marks_of_prompt(p, p->last.text, p->last.n);
    }
    marks_that_are_cut(p);
    marks_of_source(p);
}

wk_status chat_probe(const struct jinja_template *t, struct token_bytes source, struct token_bytes bos,
                     struct token_bytes eos, bool with_tools, struct chat_caps *out, const struct wk_err *err)
{
    struct probing p = {
        .template = t, .source = source, .bos = bos, .eos = eos, .caps = out, .with_tools = with_tools
    };
    *out = (struct chat_caps){ 0 };
    wk_status status = probe_user(&p, err);
    if (!status) {
        probe_roles(&p);
        probe_calls(&p);
        probe_thinking(&p);
        if (p.exhausted) status = wk_fail(err, WK_NO_MEMORY, "no memory to try the chat template");
    }
    jinja_result_free(&p.last);
    return status;
}
