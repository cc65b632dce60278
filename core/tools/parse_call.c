/* parse_call.c: what stands in a call: the JSON object that holds name and arguments, and parameters between tags,
 * whose values get their types from the schema.
 *
 * What was told of a call so far is always the beginning of one JSON object. A value between tags gets its type from
 * the function's schema. Where only a string may stand, it leaves as it comes. Otherwise it waits for its end; it is
 * JSON, or a Python literal as templates print them, where the schema takes such a value, and else a string. A value
 * ends where a parameter or the end of the call follows its end tag; a tag before anything else is its text. An empty
 * parameter that may be no string is left out. */
#include <string.h>

#include "tokenizer/json_reader.h"
#include "tokenizer/vocab.h"
#include "tools/parser.h"

static void no_memory(struct tools_parser *p) { p->status = WK_NO_MEMORY; }

/* ---- an object with name and arguments ------------------------------------------------------------------- */

static bool key_is(const struct tools_parser *p, const char *key)
{
    return *key && p->n_key == strlen(key) && memcmp(p->key, key, p->n_key) == 0;
}

/* The arguments may come before the name: they wait in the sink. */
static bool arguments_known(struct tools_parser *p)
{
    if (p->function && p->object_arguments && !p->begun) parser_begin_call(p);
    return true;
}

static enum object key_ended(struct tools_parser *p)
{
    const struct object_keys *keys = &p->model->keys;
    p->object = OBJECT_COLON;
    /* Without a mark, only what begins as calls do is one. */
    if (p->bare && !p->n_name && !p->object_arguments && *keys->name && !key_is(p, keys->name) &&
        !key_is(p, keys->arguments) && !key_is(p, keys->first))
        return OBJECT_LOST;
    if (*keys->name) return OBJECT_MORE;
    return !p->function && parser_resolve(p, p->key, p->n_key) ? OBJECT_MORE : OBJECT_LOST;
}

static enum object begin_member(struct tools_parser *p, unit u)
{
    const struct object_keys *keys = &p->model->keys;
    if (key_is(p, keys->name)) {
        p->object = OBJECT_NAME;
        return u == '"' && !p->n_name ? OBJECT_MORE : OBJECT_LOST;
    }
    /* {"type": "function", "function": {"name": ...}}, the form of OpenAI's interface */
    if (*keys->name && u == '{' && key_is(p, "function") && !p->nested && !p->n_name && !p->object_arguments) {
        p->nested = true;
        p->object = OBJECT_FIRST;
        return OBJECT_MORE;
    }
    const bool arguments = !*keys->name || key_is(p, keys->arguments);
    if (arguments && p->object_arguments) return OBJECT_LOST;
    if (arguments && u == '{') {
        p->object = OBJECT_ARGUMENTS;
        p->object_arguments = true;
        arguments_known(p);
    } else if (arguments && u == '"') {
        p->object = OBJECT_TEXT;
        p->raw.n = 0;
    } else if (arguments && u != 'n') /* null: none */
        return OBJECT_LOST;
    else
        p->object = OBJECT_SKIPPED;
    value_begin(&p->value, VALUE_JSON, NULL);
    return parser_object(p, u);
}

/* Arguments that were a string: what it says is the object. */
static bool text_ended(struct tools_parser *p)
{
    struct json_reader r;
    struct json_text said;
    jr_open(&r, p->raw.data, p->raw.n, "", "", NULL);
    const bool ok = jr_string(&r, &said) && jr_is_object(said.data, said.len);
    p->object_arguments = ok;
    if (ok) {
        (void)arguments_known(p);
        parser_arguments(p, said.data, said.len);
    }
    jr_close(&r);
    return ok;
}

static enum object in_value(struct tools_parser *p, unit u)
{
    const bool skipped = p->object == OBJECT_SKIPPED, text = p->object == OBJECT_TEXT;
    struct byte_buffer *out = skipped || text ? &p->raw : &p->sink;
    const enum value_result r = value_push(&p->value, u, out);
    if (skipped) p->raw.n = 0;
    if (r == VALUE_NO_MEMORY) no_memory(p);
    if (r == VALUE_BAD || r == VALUE_NO_MEMORY) return OBJECT_LOST;
    if (!skipped && !text) parser_arguments(p, NULL, 0);
    if (r == VALUE_MORE) return OBJECT_MORE;
    if (text && !text_ended(p)) return OBJECT_LOST;
    p->object = OBJECT_AFTER;
    if (!skipped) p->closed = p->begun;
    return r == VALUE_BEFORE ? parser_object(p, u) : OBJECT_MORE;
}

static enum object in_name(struct tools_parser *p, unit u)
{
    switch (parser_name(u, p->name, &p->n_name)) {
    case NAME_MORE: return unit_is_space(u) ? OBJECT_LOST : OBJECT_MORE;
    case NAME_BAD: return OBJECT_LOST;
    default: break;
    }
    if (u != '"' || !parser_resolve(p, p->name, p->n_name)) return OBJECT_LOST;
    p->object = OBJECT_AFTER;
    arguments_known(p);
    p->closed = p->begun;
    return OBJECT_MORE;
}

static enum object close_object(struct tools_parser *p)
{
    if (p->nested) {
        p->nested = false;
        p->object = OBJECT_AFTER;
        return OBJECT_MORE;
    }
    if (!p->function || (p->bare && !p->begun)) return OBJECT_LOST;
    if (!p->begun) {
        parser_begin_call(p);
        parser_arguments(p, "{}", 2);
    }
    p->closed = true;
    return OBJECT_CLOSED;
}

enum object parser_object(struct tools_parser *p, unit u)
{
    const bool space = unit_is_space(u);
    switch (p->object) {
    case OBJECT_OPEN:
        p->object_arguments = false;
        if (space) return OBJECT_MORE;
        p->object = OBJECT_FIRST;
        return u == '{' ? OBJECT_MORE : OBJECT_LOST;
    case OBJECT_FIRST:
    case OBJECT_KEY_OR_END:
        if (space) return OBJECT_MORE;
        if (u == '}' && p->object == OBJECT_FIRST) return close_object(p);
        p->object = OBJECT_KEY;
        p->n_key = 0;
        return u == '"' ? OBJECT_MORE : OBJECT_LOST;
    case OBJECT_KEY:
        if (u == '"') return key_ended(p);
        if (u == '\\' || u >= UNIT_MARK || p->n_key == sizeof p->key) return OBJECT_LOST;
        p->key[p->n_key++] = (char)u;
        return OBJECT_MORE;
    case OBJECT_COLON:
        if (space) return OBJECT_MORE;
        p->object = OBJECT_VALUE;
        return u == ':' ? OBJECT_MORE : OBJECT_LOST;
    case OBJECT_VALUE: return space ? OBJECT_MORE : begin_member(p, u);
    case OBJECT_NAME: return in_name(p, u);
    case OBJECT_ARGUMENTS:
    case OBJECT_TEXT:
    case OBJECT_SKIPPED: return in_value(p, u);
    default: break;
    }
    if (space) return OBJECT_MORE;
    if (u == '}') return close_object(p);
    p->object = OBJECT_KEY_OR_END;
    return u == ',' ? OBJECT_MORE : OBJECT_LOST;
}

/* ---- parameters between tags ----------------------------------------------------------------------------- */

/* "key": before a value. A key that comes twice stays twice, as in calls whose arguments are JSON. */
static bool tell_key(struct tools_parser *p)
{
    struct byte_buffer text = { 0 };
    struct raw_text raw = { 0 };
    bool ok = tools_put(&text, p->more_keys ? ", \"" : "\"", p->more_keys ? 3 : 1);
    for (size_t i = 0; ok && i < p->n_key; i++) ok = raw_put(&raw, (unsigned char)p->key[i], &text);
    ok = ok && raw_end(&raw, &text) && tools_put(&text, "\": ", 3);
    p->more_keys = true;
    if (ok)
        parser_arguments(p, text.data, text.n);
    else
        no_memory(p);
    free(text.data);
    return ok;
}

static bool begin_value(struct tools_parser *p)
{
    const struct token_bytes type = { p->type, p->n_type };
    p->kinds = p->set ? set_kinds(p->function, (struct token_bytes){ p->key, p->n_key }) : KIND_STRING;
    if (p->typed) {
        const bool string = (type.len == 6 && memcmp(type.data, "string", 6) == 0) ||
                            (type.len == 4 && memcmp(type.data, "true", 4) == 0);
        p->kinds = string ? KIND_STRING : KIND_ALL & ~KIND_STRING;
    }
    p->streams = p->kinds == KIND_STRING;
    p->value_begins = true;
    p->cdata = p->model->format.cdata ? CDATA_MAY_OPEN : CDATA_NONE;
    p->n_cdata = 0;
    p->n_tail = p->raw.n = 0;
    p->text.n = 0;
    while (p->n_key && unit_is_space((unsigned char)p->key[p->n_key - 1])) p->n_key--;
    if (!p->n_key) return false;
    if (!p->streams) return true; /* told with its value */
    if (!tell_key(p)) return false;
    parser_arguments(p, "\"", 1);
    return true;
}

void parser_enter_parameter(struct tools_parser *p, uint16_t step)
{
    const struct tools_model *m = p->model;
    if (step == 1) {
        parser_value_ended(p);
        p->n_key = p->n_type = 0;
        p->typed = false;
    }
    p->in_parameter = step < m->n_parameter;
    p->parameter_step = step;
    p->a = p->b = 0;
    p->a_lives = p->b_lives = true;
    if (!p->in_parameter) return;
    if (m->parameter[step].kind == STEP_TYPE || m->parameter[step].kind == STEP_IS) p->typed = true;
    if (m->parameter[step].kind == STEP_VALUE && !begin_value(p)) p->in_parameter = p->a_lives = p->b_lives = false;
}

static unsigned kind_of(char first)
{
    switch (first) {
    case '{': return KIND_OBJECT;
    case '[': return KIND_ARRAY;
    case '"': return KIND_STRING;
    case 't':
    case 'f': return KIND_BOOLEAN;
    case 'n': return KIND_NULL;
    default: return KIND_NUMBER;
    }
}

/* The whole text as one JSON value, or a Python literal, appended to out. */
static bool convert(struct tools_parser *p, const char *text, size_t n, struct byte_buffer *out)
{
    struct value v;
    enum value_result r = VALUE_MORE;
    value_begin(&v, VALUE_JSON, NULL);
    size_t i = 0;
    while (i < n && r == VALUE_MORE) r = value_push(&v, (unsigned char)text[i++], out);
    if (r == VALUE_NO_MEMORY) no_memory(p);
    return i == n && (r == VALUE_DONE || (r == VALUE_MORE && value_complete(&v)));
}

/* A value that is complete: as JSON, where the schema takes such a value; otherwise as a string. Nothing, where no
 * string may stand, is no value: models leave a parameter empty that they mean to leave out. */
static void tell_value(struct tools_parser *p)
{
    size_t n = p->raw.n;
    while (n && unit_is_space((unsigned char)p->raw.data[n - 1])) n--;
    if ((n || p->kinds & KIND_STRING) && tell_key(p)) parser_tell_text(p, p->raw.data, p->raw.n, p->kinds);
}

void parser_tell_text(struct tools_parser *p, const char *text, size_t n, unsigned kinds)
{
    size_t from = 0, to = n;
    struct byte_buffer json = { 0 };
    struct raw_text raw = { 0 };
    while (from < to && unit_is_space((unsigned char)text[from])) from++;
    while (from < to && unit_is_space((unsigned char)text[to - 1])) to--;
    const bool value = from < to && convert(p, text + from, to - from, &json);
    const unsigned kind = value ? kind_of(json.data[0]) : KIND_STRING;
    bool ok = true;
    if (!value || kind == KIND_STRING || (!(kinds & kind) && kinds & KIND_STRING)) {
        json.n = 0;
        ok = tools_put(&json, "\"", 1);
        for (size_t i = 0; ok && i < n; i++) ok = raw_put(&raw, (unsigned char)text[i], &json);
        ok = ok && raw_end(&raw, &json) && tools_put(&json, "\"", 1);
    }
    if (ok)
        parser_arguments(p, json.data, json.n);
    else
        no_memory(p);
    free(json.data);
}

/* A unit that is a part of the value. */
static bool value_unit(struct tools_parser *p, unit u)
{
    if (u >= UNIT_MARK) return false;
    const bool ok =
        p->streams ? raw_put(&p->text, (unsigned char)u, &p->sink) : tools_put(&p->raw, &(char){ (char)u }, 1);
    if (!ok) no_memory(p);
    return ok;
}

/* Is tail[from..] the beginning of the value's end: a newline, if the layout has one there, and the literal's first
 * word? DONE: all of it. */
static enum lit tail_matches(const struct tools_parser *p, size_t from)
{
    const struct step *s = &p->model->parameter[p->parameter_step + 1];
    size_t at = 0;
    if (from < p->n_tail && s->line_first && p->tail[from] == '\n' && (s->units[0] & (unit)~UNIT_SPACE_BEFORE) != '\n')
        from++;
    for (; from < p->n_tail; from++, at++)
        if (at == s->n || p->tail[from] != (s->units[at] & (unit)~UNIT_SPACE_BEFORE)) return LIT_DEAD;
    return at == s->n ? LIT_DONE : LIT_MORE;
}

/* What looks like the value's end has come. It is told when it is known to be: a text may have such tags in it. */
static bool end_value(struct tools_parser *p)
{
    p->end_at = p->at - p->n_tail;
    p->ending_value = true;
    parser_enter_parameter(p, (uint16_t)(p->parameter_step + 2));
    return true;
}

void parser_value_ended(struct tools_parser *p)
{
    if (!p->ending_value) return;
    p->ending_value = false;
    if (p->streams) {
        if (!raw_end(&p->text, &p->sink)) no_memory(p);
        parser_arguments(p, "\"", 1);
    } else
        tell_value(p);
}

bool parser_value_goes_on(struct tools_parser *p)
{
    if (!p->ending_value) return false;
    p->ending_value = false;
    p->at = p->end_at + 1;
    p->in_parameter = true;
    p->parameter_step = (uint16_t)(p->model->n_parameter - 2);
    p->n_tail = 0;
    return value_unit(p, p->in[p->end_at]);
}

static bool feed_plain(struct tools_parser *p, unit u)
{
    const struct step *before = &p->model->parameter[p->parameter_step - 1];
    const bool begins = p->value_begins;
    p->value_begins = false;
    if (begins && u == '\n' && before->line_last) return true;
    p->tail[p->n_tail++] = u;
    size_t from = 0;
    enum lit lit = tail_matches(p, 0);
    while (lit == LIT_DEAD && from < p->n_tail) {
        if (!value_unit(p, p->tail[from++])) return false;
        lit = from < p->n_tail ? tail_matches(p, from) : LIT_MORE;
    }
    p->n_tail -= from;
    memmove(p->tail, p->tail + from, p->n_tail * sizeof *p->tail);
    if (p->streams) parser_arguments(p, NULL, 0);
    return lit == LIT_DONE && p->n_tail ? end_value(p) : !p->status;
}

/* Inside of <![CDATA[: brackets wait until it is known whether they close it. */
static bool feed_cdata(struct tools_parser *p, unit u)
{
    bool ok = true;
    if (u == ']' && p->n_cdata < 2) {
        p->n_cdata++;
        return true;
    }
    if (u == '>' && p->n_cdata == 2) {
        p->cdata = CDATA_MAY_OPEN; /* "]]>" itself is written as the end of one and the beginning of another */
        p->n_cdata = 0;
        return true;
    }
    if (u == ']')
        ok = value_unit(p, u);
    else {
        for (; ok && p->n_cdata; p->n_cdata--) ok = value_unit(p, ']');
        ok = ok && value_unit(p, u);
    }
    if (p->streams) parser_arguments(p, NULL, 0);
    return ok;
}

static bool feed_value(struct tools_parser *p, unit u)
{
    if (p->cdata == CDATA_INSIDE) return feed_cdata(p, u);
    if (p->cdata == CDATA_MAY_OPEN && u == (unit)cdata_open[p->n_cdata]) {
        if (cdata_open[++p->n_cdata]) return true;
        p->cdata = CDATA_INSIDE;
        p->n_cdata = 0;
        return true;
    }
    if (p->cdata == CDATA_MAY_OPEN) {
        const uint8_t n = p->n_cdata;
        p->cdata = CDATA_NONE;
        for (uint8_t i = 0; i < n; i++)
            if (!feed_plain(p, (unit)cdata_open[i])) return false;
    }
    return feed_plain(p, u);
}

/* A key: up to the first unit of what follows it. */
static bool feed_key(struct tools_parser *p, unit u)
{
    const struct step *next = &p->model->parameter[p->parameter_step + 1];
    if (u == (next->units[0] & (unit)~UNIT_SPACE_BEFORE)) {
        p->at--;
        parser_enter_parameter(p, (uint16_t)(p->parameter_step + 1));
        return true;
    }
    if (unit_is_space(u) && !p->n_key) return true;
    if (u >= UNIT_MARK || u < 0x20 || p->n_key == sizeof p->key) return false;
    p->key[p->n_key++] = (char)u;
    return true;
}

bool parser_parameter(struct tools_parser *p, unit u)
{
    const struct step *s = &p->model->parameter[p->parameter_step];
    const uint16_t next = (uint16_t)(p->parameter_step + 1);
    switch (s->kind) {
    case STEP_LITERAL: {
        const enum lit lit = parser_match(s, &p->a, u);
        if (lit == LIT_DONE) parser_enter_parameter(p, next);
        return lit != LIT_DEAD;
    }
    case STEP_KEY: return feed_key(p, u);
    case STEP_VALUE: return feed_value(p, u);
    default:
        if (unit_is_word(u) && p->n_type < sizeof p->type) {
            p->type[p->n_type++] = (char)u;
            return true;
        }
        p->at--;
        parser_enter_parameter(p, next);
        return p->n_type;
    }
}
