/* grammar.c: from a row and a request's functions to the grammar of the answers that hold good calls. The literals are
 * the row's own, to the byte, so that the mask asks for nothing that the model was not trained to write. */
#include <string.h>

#include "harmony/harmony.h"
#include "grammar/grammar.h"
#include "grammar/schema.h"
#include "tools/internal.h"

enum { MAX_PARTS = 24, MESSAGE = 256 };

struct build {
    const struct harmony_ids *harmony; /* NULL: the row's form */
    const struct tools_model *m;
    const struct tools_format *f;
    const struct tools_function *function;
    struct grammar *g;
    struct langs *langs;
    const struct lang_watch *watch;
    const struct wk_err *err;
    wk_status status;
};

static node_id fail(struct build *b, wk_status status, const char *why)
{
    if (!b->status)
        b->status =
            wk_fail(b->err, status, "function \"%.*s\": %s", (int)b->function->name.len, b->function->name.data, why);
    return NODE_NONE;
}

static lang_id regex(struct build *b, const char *pattern)
{
    wk_status status = WK_OK;
    return lang_regex(b->langs, pattern, strlen(pattern), LANG_WHOLE, &status, NULL);
}
static lang_id text_language(struct build *b, struct token_bytes text)
{
    return lang_text(b->langs, text.data, text.len);
}
/* Texts with this one in them. */
static lang_id containing(struct build *b, lang_id part)
{
    return lang_concat(b->langs, LANG_EVERYTHING, lang_concat(b->langs, part, LANG_EVERYTHING));
}

/* ---- literals -------------------------------------------------------------------------------------------- */

/* A text of the row: bytes, and control tokens by their ids. */
static node_id literal(struct build *b, struct token_bytes text)
{
    node_id parts[MAX_PARTS];
    size_t n = 0, from = 0;
    for (size_t at = 0; at < text.len && n + 2 < MAX_PARTS;) {
        uint16_t mark = 0;
        size_t longest = 0, which = 0;
        for (; mark < b->m->n_marks; mark++) {
            const struct token_bytes t = b->m->mark_text[mark];
            if (t.len > longest && t.len <= text.len - at && memcmp(t.data, text.data + at, t.len) == 0) {
                longest = t.len;
                which = mark;
            }
        }
        if (!longest) {
            at++;
            continue;
        }
        if (at > from) parts[n++] = node_literal(b->g, text.data + from, at - from);
        parts[n++] = node_token(b->g, &b->m->mark[which], 1, false);
        at += longest;
        from = at;
    }
    if (text.len > from) parts[n++] = node_literal(b->g, text.data + from, text.len - from);
    return node_sequence(b->g, parts, n);
}
static node_id literal_text(struct build *b, const char *text)
{
    return literal(b, (struct token_bytes){ text, text ? strlen(text) : 0 });
}

static node_id pair(struct build *b, node_id first, node_id second)
{
    return node_sequence(b->g, (const node_id[]){ first, second }, 2);
}
static node_id triple(struct build *b, node_id first, node_id second, node_id third)
{
    return node_sequence(b->g, (const node_id[]){ first, second, third }, 3);
}
static node_id either(struct build *b, node_id first, node_id second)
{
    return node_any_of(b->g, (const node_id[]){ first, second }, 2);
}

/* An id as the model would write it. */
static node_id id_node(struct build *b)
{
    if (b->f->ids == TOOLS_ID_NINE) return node_text(b->g, regex(b, "[0-9A-Za-z]{9}"));
    if (b->f->ids == TOOLS_ID_OPENAI) return node_text(b->g, regex(b, "[0-9A-Za-z_-]{1,40}"));
    return triple(b, pair(b, node_literal(b->g, "functions.", 10), literal(b, b->function->name)),
                  node_literal(b->g, ":", 1), node_text(b->g, regex(b, "0|[1-9][0-9]{0,2}")));
}

/* ---- values that stand between marks ----------------------------------------------------------------------- */

/* Strings as they may stand in this form, raw: without what ends them. */
static lang_id raw_strings(struct build *b, enum step_kind form, struct token_bytes end)
{
    switch (form) {
    case STEP_PYTHON: return regex(b, "[^'\\\\\\x00-\\x1f]*");
    case STEP_GEMMA: return lang_not(b->langs, containing(b, lang_text(b->langs, b->f->quote, strlen(b->f->quote))));
    default: {
        /* A newline that begins the end belongs to the layout. */
        size_t skip = end.len && end.data[0] == '\n';
        size_t n = end.len;
        while (n > skip && unit_is_space((unsigned char)end.data[n - 1])) n--;
        return lang_not(b->langs, containing(b, text_language(b, (struct token_bytes){ end.data + skip, n - skip })));
    }
    }
}

/* What the parser would take for another value than a string, and more. */
static lang_id like_json(struct build *b)
{
    return regex(b, "[ \\t\\r\\n]*([\\[{\"'0-9-](.|\\n|\\r)*|([Tt]rue|[Ff]alse|null|None)[ \\t\\r\\n]*)");
}

/* The text behind the next placeholder of a kind in a layout: the literal that follows it. */
static struct token_bytes literal_behind(const char *layout, enum step_kind kind)
{
    enum step_kind step;
    struct token_bytes text = { 0 };
    bool behind = false;
    for (const char *at = layout; layout_next(&at, &step, &text);) {
        if (behind) return step == STEP_LITERAL ? text : (struct token_bytes){ 0 };
        behind = step == kind;
    }
    return (struct token_bytes){ 0 };
}

struct member {
    struct token_bytes key; /* data NULL: any */
    bool required;
    lang_id strings;
    node_id string, other; /* strings, and all else, as JSON */
};

static bool says_type(const struct tools_format *f)
{
    enum step_kind step;
    struct token_bytes text;
    for (const char *at = f->parameter; layout_next(&at, &step, &text);)
        if (step == STEP_TYPE || step == STEP_IS) return true;
    return false;
}

/* Of the strings, those that stand between tags as they are, and those that need <![CDATA[ ]]>. */
static node_id cdata_node(struct build *b, lang_id strings)
{
    const lang_id special = containing(b, regex(b, "[<&\\n]")), close = containing(b, regex(b, "\\]\\]>"));
    const node_id plain = node_text(b->g, lang_minus(b->langs, strings, special));
    const node_id inside = node_text(b->g, lang_minus(b->langs, lang_and(b->langs, strings, special), close));
    return either(b, plain, triple(b, literal_text(b, cdata_open), inside, literal_text(b, cdata_close)));
}

/* A parameter's string. */
static node_id raw_node(struct build *b, const struct member *member)
{
    struct token_bytes end = literal_behind(b->f->parameter, STEP_VALUE);
    if (strstr(b->f->call, "$NESTED") && end.len > 2) end.len -= 2; /* the mark ends a value, whatever tag follows */
    lang_id strings = member->strings;
    if (!b->f->cdata) strings = lang_and(b->langs, strings, raw_strings(b, STEP_PARAMS, end));
    if (!says_type(b->f) && (!member->key.data || set_kinds(b->function, member->key) != KIND_STRING))
        strings = lang_minus(b->langs, strings, like_json(b));
    return b->f->cdata ? cdata_node(b, strings) : node_text(b->g, strings);
}

/* A parameter by the row's layout: with a string, or with another value. */
static node_id parameter(struct build *b, const struct member *member, bool string)
{
    node_id parts[MAX_PARTS];
    size_t n = 0;
    enum step_kind step;
    struct token_bytes text;
    for (const char *at = b->f->parameter; layout_next(&at, &step, &text) && n < MAX_PARTS;) switch (step) {
        case STEP_LITERAL: parts[n++] = literal(b, text); break;
        case STEP_KEY:
            parts[n++] = member->key.data ? node_literal(b->g, member->key.data, member->key.len)
                                          : node_text(b->g, regex(b, "[A-Za-z0-9_.-]{1,64}"));
            break;
        case STEP_IS: parts[n++] = literal_text(b, string ? "true" : "false"); break;
        case STEP_TYPE:
            parts[n++] =
                string ? literal_text(b, "string") : node_text(b->g, regex(b, "number|boolean|null|array|object"));
            break;
        default: parts[n++] = string ? raw_node(b, member) : member->other; break;
        }
    return node_sequence(b->g, parts, n);
}

/* key=value, key:value */
static node_id assignment(struct build *b, const struct member *member, enum step_kind form)
{
    const char *quote = form == STEP_GEMMA ? b->f->quote : b->f->double_quotes ? "\"" : "'";
    const lang_id all = member->strings;
    /* Where any string fits, escapes do, too; else what fits is known of strings without them alone. */
    const lang_id strings = form == STEP_PYTHON && all == LANG_EVERYTHING
                                ? regex(b, "([^'\\\\\\x00-\\x1f]|\\\\['\\\\nrt])*")
                                : lang_and(b->langs, all, raw_strings(b, form, (struct token_bytes){ 0 }));
    const node_id key = member->key.data ? node_literal(b->g, member->key.data, member->key.len)
                                         : node_text(b->g, regex(b, "[A-Za-z_][A-Za-z0-9_]{0,63}"));
    node_id string = triple(b, literal_text(b, quote), node_text(b->g, strings), literal_text(b, quote));
    if (form == STEP_PYTHON && b->f->double_quotes) string = member->string;
    return triple(b, key, literal_text(b, form == STEP_GEMMA ? ":" : "="), either(b, string, member->other));
}

static bool key_fits(struct token_bytes key, enum step_kind form)
{
    for (size_t i = 0; i < key.len; i++) {
        const unsigned char c = (unsigned char)key.data[i];
        const bool plain = unit_is_word(c) || c == '-' || c == '.' || c == '/';
        if (form == STEP_PARAMS ? c <= ' ' || c == '<' || c == '>' || c == '"' || c == '=' || c == 0x7F : !plain)
            return false;
    }
    return key.len && key.len <= 128;
}

/* The members in their order, each that is not required perhaps absent, with what stands between two. */
static node_id in_order(struct build *b, const node_id *one, const struct member *members, size_t n,
                        const char *between)
{
    node_id first = NODE_EMPTY, later = NODE_EMPTY; /* from a member on: nothing, or something, was before it */
    for (size_t i = n; i--;) {
        const node_id here = pair(b, one[i], later);
        const node_id next = *between ? triple(b, node_literal(b->g, between, strlen(between)), one[i], later) : here;
        first = members[i].required ? here : either(b, here, first);
        later = members[i].required ? next : either(b, next, later);
    }
    return first;
}

static node_id member_list(struct build *b, const struct member *members, size_t n, enum step_kind form)
{
    const char *between = form == STEP_PARAMS ? "" : form == STEP_GEMMA || b->f->tight ? "," : ", ";
    node_id *one = calloc(n + 1, sizeof *one);
    if (!one) return fail(b, WK_NO_MEMORY, "no memory for its parameters");
    for (size_t i = 0; i < n; i++)
        one[i] = form == STEP_PARAMS ? either(b, parameter(b, &members[i], true), parameter(b, &members[i], false))
                                     : assignment(b, &members[i], form);
    const node_id list = in_order(b, one, members, n, between);
    free(one);
    return list;
}

/* Without a schema: members of any name, in any number. */
static node_id any_members(struct build *b, enum step_kind form)
{
    const struct member any = { .strings = LANG_EVERYTHING,
                                .string = node_string(b->g, LANG_EVERYTHING, 0, NODE_UNBOUNDED),
                                .other = either(b, node_json_object(b->g),
                                                node_text(b->g, regex(b, "true|false|null|-?(0|[1-9][0-9]{0,18})"))) };
    if (form == STEP_PARAMS)
        return node_repeat(b->g, either(b, parameter(b, &any, true), parameter(b, &any, false)), 0, NODE_UNBOUNDED);
    const node_id one = assignment(b, &any, form);
    const node_id comma = literal_text(b, form == STEP_GEMMA || b->f->tight ? "," : ", ");
    return either(b, NODE_EMPTY, pair(b, one, node_repeat(b->g, pair(b, comma, one), 0, NODE_UNBOUNDED)));
}

static node_id strict_members(struct build *b, enum step_kind form)
{
    const struct token_bytes schema = b->function->parameters;
    const struct schema_options options = { .strict = b->function->strict };
    struct schema_member *told;
    size_t n;
    const wk_status status = schema_members(b->g, schema.data, schema.len, &options, &told, &n, b->err);
    if (status) {
        b->status = status;
        return NODE_NONE;
    }
    struct member *members = calloc(n + 1, sizeof *members);
    node_id list = NODE_NONE;
    bool fit = members;
    for (size_t i = 0; fit && i < n; i++) {
        const bool only_string =
            form == STEP_PARAMS && !says_type(b->f) &&
            set_kinds(b->function, (struct token_bytes){ told[i].name, told[i].len }) == KIND_STRING;
        members[i] = (struct member){ { told[i].name, told[i].len },
                                      told[i].required,
                                      told[i].strings,
                                      told[i].string,
                                      only_string ? (node_id)NODE_NOTHING : told[i].other };
        fit = key_fits(members[i].key, form);
    }
    if (!members)
        (void)fail(b, WK_NO_MEMORY, "no memory for its parameters");
    else if (!fit)
        (void)fail(b, WK_UNSUPPORTED, "a parameter's name cannot stand in the model's call format");
    else
        list = member_list(b, members, n, form);
    free(members);
    free(told);
    return list;
}

/* Elements have their name in both tags, so only names that are known can be held to that. Values within values are
 * written as JSON, which is read as well. */
static bool has_elements(const struct tools_format *f) { return strstr(f->call, "$NESTED"); }

static node_id members_node(struct build *b, enum step_kind form)
{
    if (has_elements(b->f)) return b->function->parameters.data ? strict_members(b, form) : (node_id)NODE_EMPTY;
    return b->function->strict && b->function->parameters.data ? strict_members(b, form) : any_members(b, form);
}

/* ---- a call ---------------------------------------------------------------------------------------------- */

/* The arguments as JSON. */
static node_id json_arguments(struct build *b)
{
    const struct token_bytes schema = b->function->parameters;
    const struct schema_options options = { .strict = true };
    node_id node;
    if (!b->function->strict || !schema.data) return node_json_object(b->g);
    b->status = schema_node(b->g, schema.data, schema.len, &options, &node, b->err);
    return node;
}

static node_id layout_node(struct build *b, const char *layout)
{
    node_id parts[MAX_PARTS];
    size_t n = 0;
    enum step_kind step;
    struct token_bytes text;
    for (const char *at = layout; layout_next(&at, &step, &text) && n < MAX_PARTS;) switch (step) {
        case STEP_LITERAL: parts[n++] = literal(b, text); break;
        case STEP_NAME: parts[n++] = literal(b, b->function->name); break;
        case STEP_ID: parts[n++] = id_node(b); break;
        case STEP_INDEX: parts[n++] = node_text(b->g, regex(b, "[1-9][0-9]{0,2}")); break;
        case STEP_PLACE: parts[n++] = node_text(b->g, regex(b, "0|[1-9][0-9]{0,2}")); break;
        case STEP_ARGS: parts[n++] = json_arguments(b); break;
        case STEP_OBJECT: parts[n++] = layout_node(b, format_object(b->f)); break;
        case STEP_PYTHON:
            parts[n++] = triple(b, literal_text(b, "("), members_node(b, step), literal_text(b, ")"));
            break;
        case STEP_GEMMA:
            parts[n++] = triple(b, literal_text(b, "{"), members_node(b, step), literal_text(b, "}"));
            break;
        default: parts[n++] = members_node(b, STEP_PARAMS); break;
        }
    return b->status ? (node_id)NODE_NONE : node_sequence(b->g, parts, n);
}

static node_id call_node(struct build *b) { return layout_node(b, b->f->call); }

/* An answer's first call, of which the prompt has the beginning. */
static node_id first_call_node(struct build *b) { return layout_node(b, b->f->call + strlen(b->f->opened)); }

/* Can the function be held to its schema at all? In a grammar of its own, so that a failure is its alone; but the work
 * of it counts as the answer's. */
static wk_status try_function(const struct build *whole, const struct tools_function *function,
                              const struct wk_err *err)
{
    char why[MESSAGE] = "";
    const struct wk_err inner = { why, sizeof why };
    struct build b = { .m = whole->m, .f = whole->f, .function = function, .err = &inner };
    if (!function->strict) return WK_OK;
    if (function->parameters.data && set_root_kinds(function) != KIND_OBJECT)
        return wk_fail(err, WK_UNSUPPORTED, "function \"%.*s\" cannot be strict: expected parameters of type object",
                       (int)function->name.len, function->name.data);
    wk_status status = grammar_open(whole->watch, &b.g, &inner);
    if (!status) {
        b.langs = grammar_langs(b.g);
        const node_id call = call_node(&b);
        status = b.status ? b.status : grammar_seal(b.g, call, &inner);
        (void)langs_step(whole->langs, langs_steps(b.langs));
        grammar_close(b.g);
    }
    if (!status) return WK_OK;
    return wk_fail(err, status, "function \"%.*s\" cannot be strict: %s", (int)function->name.len, function->name.data,
                   why);
}

/* ---- an answer ------------------------------------------------------------------------------------------- */

/* A trigger as text; a control token is none. */
static lang_id trigger_language(struct build *b, const struct trigger *t)
{
    const lang_id space = regex(b, "[ \\t\\r\\n]{0,4}"); /* TRIGGER_SPACE */
    char text[MESSAGE];
    size_t n = 0;
    lang_id all = lang_text(b->langs, "", 0);
    for (uint16_t k = 0; k < t->n && n < sizeof text; k++) {
        if ((t->units[k] & (unit)~UNIT_SPACE_BEFORE) >= UNIT_MARK) return LANG_NOTHING;
        if (k && t->units[k] & UNIT_SPACE_BEFORE) {
            all = lang_concat(b->langs, all, lang_concat(b->langs, lang_text(b->langs, text, n), space));
            n = 0;
        }
        text[n++] = (char)t->units[k];
    }
    return lang_concat(b->langs, all, lang_text(b->langs, text, n));
}

/* Text in which no call begins. */
static node_id free_text(struct build *b)
{
    const struct tools_model *m = b->m;
    const struct tools_format *f = b->f;
    lang_id language = LANG_EVERYTHING;
    for (uint16_t i = 0; i < m->n_triggers; i++) {
        const lang_id trigger = trigger_language(b, &m->trigger[i]);
        language = lang_minus(b->langs, language, containing(b, trigger));
    }
    if (*m->keys.name && (format_is_bare(f) || (!m->begin.n && m->call[1].kind == STEP_OBJECT))) {
        char pattern[MESSAGE];
        (void)snprintf(pattern, sizeof pattern, "[ \\t\\r\\n]*%s\\{[ \\t\\r\\n]*\"(%s|%s|%s)\"(.|\\n|\\r)*",
                       m->begin.n ? "\\[[ \\t\\r\\n]*" : "", m->keys.first, m->keys.name, m->keys.arguments);
        language = lang_minus(b->langs, language, regex(b, pattern));
    }
    return node_text(b->g, language);
}

/* first: the first call, another node than call only where the prompt has its beginning. */
static node_id answer_node(struct build *b, node_id first, node_id call, const struct tools_rule *rule)
{
    const struct tools_format *f = b->f;
    node_id more = NODE_EMPTY;
    if (!rule->single && !f->single)
        more = node_repeat(b->g, pair(b, literal_text(b, f->between), call), 0, NODE_UNBOUNDED);
    const node_id calls = triple(b, literal_text(b, f->begin), pair(b, call, more), literal_text(b, f->end));
    if (f->opened) {
        const node_id text = triple(b, literal_text(b, f->said), free_text(b), either(b, NODE_EMPTY, calls));
        const node_id opened = pair(b, first, more);
        return rule->required ? opened : either(b, text, opened);
    }
    if (rule->required) return pair(b, node_text(b->g, regex(b, "\\n{0,2}")), calls);
    return b->m->n_triggers ? pair(b, free_text(b), either(b, NODE_EMPTY, calls)) : either(b, free_text(b), calls);
}

static bool is_wanted(const struct tools_function *f, const struct tools_rule *rule)
{
    return !rule->named.data ||
           (f->name.len == rule->named.len && memcmp(f->name.data, rule->named.data, f->name.len) == 0);
}

/* ---- harmony --------------------------------------------------------------------------------------------- */

static node_id control(struct build *b, uint32_t id) { return node_token(b->g, &id, 1, false); }

/* <|channel|>NAME<|message|> and text. */
static node_id message(struct build *b, const char *channel)
{
    const node_id parts[] = { control(b, b->harmony->channel), literal_text(b, channel),
                              control(b, b->harmony->message), node_text(b->g, LANG_EVERYTHING) };
    return node_sequence(b->g, parts, sizeof parts / sizeof *parts);
}

/* A call's header, in the order of the models' own answers or in that of their template, and its arguments. */
static node_id harmony_call(struct build *b)
{
    const struct harmony_ids *ids = b->harmony;
    const node_id to = pair(b, node_literal(b->g, " to=functions.", 14), literal(b, b->function->name));
    const node_id commentary = pair(b, control(b, ids->channel), node_literal(b->g, "commentary", 10));
    const node_id recipient = either(b, pair(b, commentary, to), pair(b, to, commentary));
    const node_id json = node_literal(b->g, "json", 4), space = node_literal(b->g, " ", 1);
    const node_id type = pair(b, space, either(b, json, pair(b, control(b, ids->constrain), json)));
    return pair(b, triple(b, recipient, type, control(b, ids->message)), json_arguments(b));
}

static node_id harmony_answer(struct build *b, node_id call, const struct tools_rule *rule)
{
    const struct harmony_ids *ids = b->harmony;
    const node_id next = triple(b, control(b, ids->end), control(b, ids->start), node_literal(b->g, "assistant", 9));
    const node_id before = pair(b, either(b, message(b, "analysis"), message(b, "commentary")), next);
    const node_id last = rule->required ? call : either(b, call, message(b, "final"));
    return pair(b, node_repeat(b->g, before, 0, NODE_UNBOUNDED), last);
}

/* ---- all of it ------------------------------------------------------------------------------------------- */

static wk_status build(struct build *b, const struct tools_set *s, const struct tools_rule *rule,
                       struct tools_refusal *refusals)
{
    node_id *calls = calloc(2 * s->n + 1, sizeof *calls), *first = calls ? calls + s->n : NULL;
    size_t n = 0;
    if (!calls) return wk_fail(b->err, WK_NO_MEMORY, "no memory for %zu functions", s->n);
    for (size_t i = 0; i < s->n && !b->status; i++) {
        char why[MESSAGE] = "";
        const struct wk_err inner = { why, sizeof why };
        b->function = &s->list[i];
        if (!is_wanted(b->function, rule)) continue;
        const wk_status status = try_function(b, b->function, &inner);
        if (status && (!refusals || status == WK_NO_MEMORY || status == WK_CANCELLED))
            b->status = wk_fail(b->err, status, "%s", why);
        else if (status) {
            refusals[i].refused = true;
            memcpy(refusals[i].text, why, sizeof refusals[i].text);
        } else {
            calls[n] = b->harmony ? harmony_call(b) : call_node(b);
            first[n] = b->f->opened ? first_call_node(b) : calls[n];
            n++;
        }
    }
    if (!b->status && !n)
        b->status = rule->named.data && !refusals
                        ? wk_fail(b->err, WK_INVALID, "no function of the name \"%.*s\"", (int)rule->named.len,
                                  rule->named.data)
                        : wk_fail(b->err, WK_INVALID, "no function is left that can be called");
    wk_status status = b->status;
    if (!status) {
        const node_id call = node_branches(b->g, calls, n), begin = b->f->opened ? node_branches(b->g, first, n) : call;
        status =
            grammar_seal(b->g, b->harmony ? harmony_answer(b, call, rule) : answer_node(b, begin, call, rule), b->err);
    }
    free(calls);
    return status;
}

static wk_status make(struct build b, const struct tools_set *s, const struct tools_rule *rule,
                      struct tools_refusal *refusals, struct grammar **out)
{
    *out = NULL;
    wk_status status = grammar_open(b.watch, &b.g, b.err);
    if (status) return status;
    b.langs = grammar_langs(b.g);
    status = build(&b, s, rule, refusals);
    if (status)
        grammar_close(b.g);
    else
        *out = b.g;
    return status;
}

wk_status tools_grammar(const struct tools_model *m, const struct tools_set *s, const struct tools_rule *rule,
                        struct tools_refusal *refusals, struct grammar **out, const struct wk_err *err)
{
    return make((struct build){ .m = m, .f = &m->format, .watch = rule->watch, .err = err }, s, rule, refusals, out);
}

wk_status tools_harmony_grammar(const struct harmony_ids *ids, const struct tools_set *s, const struct tools_rule *rule,
                                struct tools_refusal *refusals, struct grammar **out, const struct wk_err *err)
{
    static const struct tools_model model = { .format = { .name = "harmony", .call = "$ARGS", .single = true } };
    return make((struct build){ .harmony = ids, .m = &model, .f = &model.format, .watch = rule->watch, .err = err }, s,
                rule, refusals, out);
}
