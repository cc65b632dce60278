/* parse.c: an answer's ids as text and calls, driven by a row of the table.
 *
 * Units wait in one array until it is known what they are. Outside of calls each place is compared with the row's
 * triggers; at one, a candidate begins, and the row's steps read on from there. A candidate that turns out to be none
 * gives back its first unit as text and the search goes on behind it; one that had begun to be told (its function is
 * known) is broken, and all of it is text. So every unit is either in a call or in the text, except white space between
 * calls. White space of layouts is optional in what is read: models are not exact there. */
#include "tools/parser.h"

#include <string.h>

#include "tokenizer/vocab.h"

/* ---- events ---------------------------------------------------------------------------------------------- */

static void no_memory(struct tools_parser *p) { p->status = WK_NO_MEMORY; }

bool parser_tell(struct tools_parser *p, enum tools_kind kind, const char *bytes, size_t n)
{
    struct told *last = p->n_told ? &p->told[p->n_told - 1] : NULL;
    const bool joins = last && last->kind == kind && (kind == TOOLS_TEXT || kind == TOOLS_ARGUMENTS);
    if (p->status || (!n && (kind == TOOLS_TEXT || kind == TOOLS_ARGUMENTS))) return !p->status;
    if (!joins && !array_reserve((void **)&p->told, &p->cap_told, p->n_told + 1, sizeof *p->told)) no_memory(p);
    if (!p->status && !tools_put(&p->out, bytes, n)) no_memory(p);
    if (p->status) return false;
    if (joins)
        last->len += n;
    else
        p->told[p->n_told++] = (struct told){ kind, p->calls, p->out.n - n, n, 0, 0 };
    return true;
}

static bool tell_units(struct tools_parser *p, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++) {
        const unit u = p->in[i];
        const struct token_bytes mark = u >= UNIT_MARK ? p->model->mark_text[u - UNIT_MARK] : (struct token_bytes){ 0 };
        if (!(u >= UNIT_MARK ? parser_tell(p, TOOLS_TEXT, mark.data, mark.len)
                             : parser_tell(p, TOOLS_TEXT, &(char){ (char)u }, 1)))
            return false;
    }
    return true;
}

/* ---- a call's life --------------------------------------------------------------------------------------- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

size_t tools_call_id(enum tools_id_rule rule, uint64_t seed, uint32_t index, char out[TOOLS_ID])
{
    static const char letters[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint64_t state = seed + index * 0xD6E8FEB86659FD93u;
    size_t n = rule == TOOLS_ID_NINE ? 0 : 5;
    memcpy(out, "call_", n);
    for (const size_t end = rule == TOOLS_ID_NINE ? 9 : 29; n < end; n++) out[n] = letters[next_random(&state) % 62];
    return n;
}

/* The index that the model wrote into its id: it goes on from call to call through the whole conversation. One that
 * cannot be, because a call before has it, is the next. */
static uint32_t written_index(const struct tools_parser *p)
{
    uint32_t index = 0;
    size_t at = p->n_id;
    while (at && p->id[at - 1] >= '0' && p->id[at - 1] <= '9') at--;
    if (!at || p->id[at - 1] != ':' || p->n_id - at > 6) return p->next_index;
    for (; at < p->n_id; at++) index = index * 10 + (uint32_t)(p->id[at] - '0');
    return index < p->next_index ? p->next_index : index;
}

static size_t make_id(struct tools_parser *p, char out[TOOLS_ID])
{
    const enum tools_id_rule rule = p->model->format.ids;
    if (rule == TOOLS_ID_KIMI && p->set) {
        const uint32_t index = written_index(p);
        p->next_index = index + 1;
        return tools_kimi_id(p->function->name, index, out).len;
    }
    bool own = rule == TOOLS_ID_NINE ? p->n_id == 9 : p->n_id > 0;
    for (size_t i = 0; i < p->n_id; i++)
        if (rule == TOOLS_ID_NINE && (!unit_is_word((unsigned char)p->id[i]) || p->id[i] == '_')) own = false;
    if (own) {
        memcpy(out, p->id, p->n_id);
        return p->n_id;
    }
    return tools_call_id(rule, p->seed, p->calls, out);
}

void parser_begin_call(struct tools_parser *p)
{
    char id[TOOLS_ID];
    const size_t n = make_id(p, id);
    if (!parser_tell(p, TOOLS_CALL, p->function->name.data, p->function->name.len)) return;
    struct told *t = &p->told[p->n_told - 1];
    t->id_at = p->out.n;
    t->id_len = n;
    if (!tools_put(&p->out, id, n)) no_memory(p);
    p->begun = true;
    if (p->sink.n) parser_arguments(p, NULL, 0);
}

/* What the sink holds, and these bytes, as arguments; before the call has begun they wait. */
void parser_arguments(struct tools_parser *p, const char *bytes, size_t n)
{
    if (!tools_put(&p->sink, bytes, n)) no_memory(p);
    if (!p->begun || p->status) return;
    parser_tell(p, TOOLS_ARGUMENTS, p->sink.data, p->sink.n);
    p->sink.n = 0;
}

static void forget_call(struct tools_parser *p)
{
    p->begun = p->closed = p->ending_value = false;
    p->function = NULL;
    p->n_name = p->n_id = p->n_key = p->n_tail = 0;
    p->sink.n = p->raw.n = 0;
    p->more_keys = p->object_arguments = p->nested = false;
    p->a = p->b = 0;
}

static void to_text(struct tools_parser *p)
{
    p->mode = MODE_TEXT;
    p->cand = p->at;
}

static void begin_next(struct tools_parser *p, bool first)
{
    p->mode = MODE_NEXT;
    p->first = first;
    p->a = p->b = 0;
    p->a_lives = first || !p->single;
    p->b_lives = p->model->end.n > 0;
}

static void end_call(struct tools_parser *p)
{
    parser_tell(p, TOOLS_END, NULL, 0);
    p->calls++;
    forget_call(p);
    to_text(p);
    p->after_call = true;
    if (p->section) begin_next(p, false);
}

/* No call after all. */
static void lose(struct tools_parser *p)
{
    const bool told = p->begun;
    if (!p->bare || told) p->malformed++;
    if (told) {
        parser_tell(p, TOOLS_BROKEN, NULL, 0);
        tell_units(p, p->cand, p->at);
    } else {
        p->at = p->cand + 1;
        tell_units(p, p->cand, p->at);
    }
    forget_call(p);
    to_text(p);
    p->section = p->bare = p->after_call = false;
    p->started = true;
}

/* ---- literals -------------------------------------------------------------------------------------------- */

enum lit parser_match(const struct step *s, uint16_t *at, unit u)
{
    const unit expected = *at < s->n ? s->units[*at] & (unit)~UNIT_SPACE_BEFORE : 0;
    if (*at == s->n) return LIT_DEAD;
    if (u == expected) return ++*at == s->n ? LIT_DONE : LIT_MORE;
    if (!unit_is_space(u)) return LIT_DEAD;
    const unit before = *at ? s->units[*at - 1] & (unit)~UNIT_SPACE_BEFORE : 0;
    const bool may = !*at || (s->units[*at] & UNIT_SPACE_BEFORE) || !unit_is_word(before) || !unit_is_word(expected);
    return may ? LIT_MORE : LIT_DEAD;
}

/* ---- steps ----------------------------------------------------------------------------------------------- */

static void enter(struct tools_parser *p, int to)
{
    const uint16_t step = (uint16_t)to;
    p->step = step;
    p->a = p->b = 0;
    p->a_lives = p->b_lives = true;
    p->lit_at = p->at;
    p->n_key = 0;
    if (step == p->model->n_call) {
        end_call(p);
        return;
    }
    switch (p->model->call[step].kind) {
    case STEP_ARGS: value_begin(&p->value, VALUE_JSON, NULL); break;
    case STEP_PYTHON: value_begin(&p->value, VALUE_PYTHON_CALL, NULL); break;
    case STEP_GEMMA: value_begin(&p->value, VALUE_GEMMA, &p->model->call[step]); break;
    case STEP_OBJECT: p->object = OBJECT_OPEN; break;
    case STEP_NESTED: parser_begin_nested(p); break;
    case STEP_PARAMS:
        p->in_parameter = false;
        parser_begin_call(p);
        parser_arguments(p, "{", 1);
        break;
    default: break;
    }
}

static void begin_call_at(struct tools_parser *p, uint16_t step, uint16_t skip)
{
    p->mode = MODE_CALL;
    enter(p, step);
    p->a = skip;
}

enum name parser_name(unit u, char *out, size_t *n)
{
    if (unit_is_space(u) && !*n) return NAME_MORE;
    if (!unit_is_name(u)) return *n ? NAME_END : NAME_BAD;
    if (*n == PARSER_NAME) return NAME_BAD;
    out[(*n)++] = (char)u;
    return NAME_MORE;
}

static bool find_function(struct tools_parser *p, const char *name, size_t n)
{
    if (p->set) return (p->function = set_find(p->set, (struct token_bytes){ name, n })) != NULL;
    if (!n || n > sizeof p->any_name) return false;
    memcpy(p->any_name, name, n);
    p->any.name = (struct token_bytes){ p->any_name, n };
    p->function = &p->any;
    return true;
}

/* The function that a name, or an id that holds one, means: as it is, or without "functions." and ":0". */
bool parser_resolve(struct tools_parser *p, const char *name, size_t n)
{
    static const char space[] = "functions.";
    if (p->set && find_function(p, name, n)) return true;
    size_t digits = 0;
    while (digits < n && name[n - 1 - digits] >= '0' && name[n - 1 - digits] <= '9') digits++;
    if (digits && digits < n && name[n - 1 - digits] == ':') n -= digits + 1;
    if (n > sizeof space - 1 && memcmp(name, space, sizeof space - 1) == 0) {
        name += sizeof space - 1;
        n -= sizeof space - 1;
    }
    return find_function(p, name, n);
}

/* A feed function takes the unit that was read last, p->in[p->at - 1], or puts it back. False: this is no call. */
static bool feed_name(struct tools_parser *p, unit u, bool is_id)
{
    const enum name name = is_id ? parser_name(u, p->id, &p->n_id) : parser_name(u, p->name, &p->n_name);
    if (name != NAME_END) return name == NAME_MORE;
    if (!is_id && !parser_resolve(p, p->name, p->n_name)) return false;
    if (is_id && p->model->format.ids == TOOLS_ID_KIMI && !parser_resolve(p, p->id, p->n_id)) {
        if (!p->set || p->set->n != 1) return false;
        p->function = &p->set->list[0]; /* an id of another form names none; there is but one */
    }
    p->at--;
    enter(p, p->step + 1);
    return true;
}

/* The arguments as one value. */
static bool feed_arguments(struct tools_parser *p, unit u, unit opens)
{
    if (!p->begun) {
        if (unit_is_space(u)) return true;
        if (u != opens) return false;
        parser_begin_call(p);
    }
    const enum value_result r = value_push(&p->value, u, &p->sink);
    if (r == VALUE_NO_MEMORY) no_memory(p);
    if (r == VALUE_BAD || r == VALUE_NO_MEMORY) return false;
    parser_arguments(p, NULL, 0);
    if (r != VALUE_DONE) return true;
    p->closed = true;
    enter(p, p->step + 1);
    return true;
}

static bool feed_literal(struct tools_parser *p, unit u)
{
    switch (parser_match(&p->model->call[p->step], &p->a, u)) {
    case LIT_MORE: return true;
    case LIT_DONE: enter(p, p->step + 1); return true;
    default: break;
    }
    if (!p->closed) return false;
    p->at = p->lit_at; /* the call is complete, its end is missing */
    end_call(p);
    return true;
}

/* Between parameters: one more, or the end of the call. */
static bool feed_parameters(struct tools_parser *p, unit u)
{
    if (p->in_parameter) return parser_parameter(p, u);
    const enum lit a = p->a_lives ? parser_match(&p->model->parameter[0], &p->a, u) : LIT_DEAD;
    const enum lit b = p->b_lives ? parser_match(&p->model->call[p->step + 1], &p->b, u) : LIT_DEAD;
    p->a_lives = a != LIT_DEAD;
    p->b_lives = b != LIT_DEAD;
    if (a == LIT_DONE) {
        parser_enter_parameter(p, 1);
        return true;
    }
    if (b == LIT_DONE) {
        parser_value_ended(p);
        parser_arguments(p, "}", 1);
        p->closed = true;
        enter(p, p->step + 2);
        return true;
    }
    return p->a_lives || p->b_lives || parser_value_goes_on(p);
}

static bool feed_call(struct tools_parser *p, unit u)
{
    switch (p->model->call[p->step].kind) {
    case STEP_LITERAL: return feed_literal(p, u);
    case STEP_NAME: return feed_name(p, u, false);
    case STEP_ID: return feed_name(p, u, true);
    case STEP_INDEX:
        if (u >= '0' && u <= '9') return true;
        p->at--;
        enter(p, p->step + 1);
        return true;
    case STEP_ARGS:
    case STEP_GEMMA: return feed_arguments(p, u, '{');
    case STEP_PYTHON: return feed_arguments(p, u, '(');
    case STEP_OBJECT: {
        const enum object object = parser_object(p, u);
        if (object == OBJECT_CLOSED) enter(p, p->step + 1);
        return object != OBJECT_LOST;
    }
    case STEP_NESTED: {
        const enum nested_result nested = parser_nested(p, u);
        if (nested == NESTED_CLOSED) {
            p->at = p->nest.mark_at;
            p->closed = true;
            enter(p, p->step + 1);
        }
        return nested != NESTED_LOST;
    }
    default: return feed_parameters(p, u);
    }
}

/* Behind a section's beginning, or a call in it: the next call, or the section's end. */
static bool feed_next(struct tools_parser *p, unit u)
{
    static const struct step nothing = { 0 };
    const struct tools_model *m = p->model;
    const bool tagged = m->call[0].kind == STEP_LITERAL;
    const struct step *next = !p->first ? &m->again : tagged ? &m->call[0] : &nothing;
    if (unit_is_space(u) && !p->a && !p->b) return true;
    const enum lit b = p->b_lives ? parser_match(&m->end, &p->b, u) : LIT_DEAD;
    const enum lit a = p->a_lives && next->n ? parser_match(next, &p->a, u) : LIT_DEAD;
    if (b == LIT_DONE) {
        if (p->first) return false; /* a section without a call */
        p->section = false;
        p->after_call = p->started = true;
        to_text(p);
        return true;
    }
    if (a == LIT_DONE) {
        begin_call_at(p, tagged ? 1 : 0, 0);
        return true;
    }
    if (b == LIT_DEAD && p->a_lives && !next->n) {
        p->at--;
        begin_call_at(p, 0, 0);
        return true;
    }
    p->b_lives = b != LIT_DEAD;
    p->a_lives = a != LIT_DEAD;
    if (p->a_lives || p->b_lives) return true;
    if (p->first) return false;
    p->section = false; /* the calls before stand; what follows them is text */
    p->at = p->cand;
    p->mode = MODE_TEXT;
    return true;
}

static bool feed_begin(struct tools_parser *p, unit u)
{
    const enum lit lit = parser_match(&p->model->begin, &p->a, u);
    if (lit == LIT_DONE) begin_next(p, true);
    return lit != LIT_DEAD;
}

/* ---- outside of calls ------------------------------------------------------------------------------------ */

/* Does this trigger begin at this place? MORE: it may, the input ends before it is known. */
static enum lit match_trigger(const struct tools_parser *p, const struct trigger *t, size_t at)
{
    for (uint16_t n = 0; n < t->n; n++, at++) {
        if (t->units[n] & UNIT_SPACE_BEFORE) {
            const size_t end = at + (n ? TRIGGER_SPACE : 1);
            while (at < p->n_in && at < end && unit_is_space(p->in[at])) at++;
        }
        if (at == p->n_in) return LIT_MORE;
        if (p->in[at] != (t->units[n] & (unit)~UNIT_SPACE_BEFORE)) return LIT_DEAD;
    }
    return LIT_DONE;
}

/* The longest trigger that begins here. MORE: one may. */
static enum lit find_trigger(struct tools_parser *p, size_t at, const struct trigger **out)
{
    bool more = false;
    *out = NULL;
    for (uint16_t i = 0; i < p->model->n_triggers; i++) {
        const struct trigger *t = &p->model->trigger[i];
        const enum lit lit = match_trigger(p, t, at);
        if (lit == LIT_DONE && (!*out || t->n > (*out)->n)) *out = t;
        if (lit == LIT_MORE) more = true;
    }
    if (more && !p->ending) return LIT_MORE;
    return *out ? LIT_DONE : LIT_DEAD;
}

static void begin_candidate(struct tools_parser *p, size_t at, const struct trigger *t)
{
    const struct step *head = &p->model->call[0];
    p->at = p->cand = at;
    p->after_call = false;
    p->started = true;
    p->section = t ? t->section : p->model->begin.n > 0;
    p->bare = !t;
    p->a = 0;
    if (p->section)
        p->mode = MODE_BEGIN;
    else
        begin_call_at(p, !t && head->kind == STEP_LITERAL ? 1 : 0, t ? t->skip : 0);
}

/* Does what says that text follows stand here? */
static enum lit match_said(const struct tools_parser *p, size_t at)
{
    const char *said = p->model->format.said;
    if (!said || !p->set) return LIT_DEAD;
    for (; *said; said++, at++) {
        if (at == p->n_in) return p->ending ? LIT_DEAD : LIT_MORE;
        if (p->in[at] != (unit)*said) return LIT_DEAD;
    }
    return LIT_DONE;
}

/* It is no part of the text. */
static void skip_said(struct tools_parser *p, size_t at)
{
    p->at = p->cand = at + strlen(p->model->format.said);
    p->after_call = false;
    p->started = true;
}

/* The first place of an answer that is no white space: a call whose mark is missing, or that has none, or whose mark is
 * the prompt's end. */
static bool may_begin_bare(const struct tools_parser *p, unit u)
{
    const struct tools_model *m = p->model;
    const bool object = !m->begin.n && m->call[m->call[0].kind == STEP_LITERAL].kind == STEP_OBJECT;
    if (p->started || !p->set) return false;
    if (m->format.opened) return unit_is_name(u);
    return u == (format_is_bare(&m->format) && m->begin.n ? '[' : object ? '{' : UNIT_SPACE_BEFORE);
}

/* One place of the text. False: more input is needed. */
static bool text_step(struct tools_parser *p)
{
    const struct trigger *t = NULL;
    size_t at = p->at;
    const bool over = p->single && p->calls;
    while (at < p->n_in && unit_is_space(p->in[at]) && (p->after_call || !p->started)) at++;
    if (at == p->n_in && at > p->at) {
        if (!p->ending) return false;
        if (!p->after_call) tell_units(p, p->at, at);
        p->at = p->cand = at;
        return true;
    }
    const enum lit found = over ? LIT_DEAD : find_trigger(p, at, &t);
    if (found == LIT_MORE) return false;
    const enum lit said = found == LIT_DONE ? match_said(p, at + t->n) : p->started ? LIT_DEAD : match_said(p, at);
    if (said == LIT_MORE) return false;
    if (said == LIT_DONE) {
        skip_said(p, found == LIT_DONE ? at + t->n : at);
        return true;
    }
    if (found == LIT_DEAD && !over && may_begin_bare(p, p->in[at])) {
        tell_units(p, p->at, at);
        begin_candidate(p, at, NULL);
        return true;
    }
    if (found == LIT_DONE) {
        const bool own_space = t->units[0] & UNIT_SPACE_BEFORE && at > p->at;
        if (!p->after_call) tell_units(p, p->at, at - own_space);
        begin_candidate(p, at, t);
        return true;
    }
    tell_units(p, p->at, at + 1);
    p->at = p->cand = at + 1;
    p->after_call = false;
    p->started = true;
    return true;
}

/* ---- the loop -------------------------------------------------------------------------------------------- */

static void run(struct tools_parser *p)
{
    while (!p->status && p->at < p->n_in) {
        if (p->mode == MODE_TEXT) {
            if (!text_step(p)) return;
            continue;
        }
        const unit u = p->in[p->at++];
        const bool fed = p->mode == MODE_BEGIN  ? feed_begin(p, u)
                         : p->mode == MODE_NEXT ? feed_next(p, u)
                                                : feed_call(p, u);
        if (!fed && !p->status) lose(p);
    }
}

static wk_status give(struct tools_parser *p, const struct tools_event **events, size_t *n)
{
    *events = NULL;
    *n = 0;
    if (!p->status && !array_reserve((void **)&p->events, &p->cap_events, p->n_told + 1, sizeof *p->events))
        no_memory(p);
    if (p->status) return p->status;
    for (size_t i = 0; i < p->n_told; i++) {
        const struct told *t = &p->told[i];
        p->events[i] = (struct tools_event){
            t->kind, t->index, { p->out.data + t->at, t->len }, { t->id_len ? p->out.data + t->id_at : NULL, t->id_len }
        };
    }
    *events = p->events;
    *n = p->n_told;
    return WK_OK;
}

static void begin_push(struct tools_parser *p)
{
    p->n_told = p->out.n = 0;
    if (!p->cand) return;
    memmove(p->in, p->in + p->cand, (p->n_in - p->cand) * sizeof *p->in);
    p->n_in -= p->cand;
    p->at -= p->cand;
    p->lit_at -= p->lit_at < p->cand ? p->lit_at : p->cand;
    p->end_at -= p->end_at < p->cand ? p->end_at : p->cand;
    p->nest.mark_at -= p->nest.mark_at < p->cand ? p->nest.mark_at : p->cand;
    p->cand = 0;
}

static bool take(struct tools_parser *p, uint32_t id, struct token_bytes piece)
{
    for (uint16_t i = 0; i < p->model->n_marks; i++)
        if (p->model->mark[i] == id) {
            if (!array_reserve((void **)&p->in, &p->cap_in, p->n_in + 1, sizeof *p->in)) return false;
            p->in[p->n_in++] = (unit)(UNIT_MARK + i);
            return true;
        }
    if (!array_reserve((void **)&p->in, &p->cap_in, p->n_in + piece.len, sizeof *p->in)) return false;
    for (size_t i = 0; i < piece.len; i++) p->in[p->n_in++] = (unsigned char)piece.data[i];
    return true;
}

bool tools_model_notices(const struct tools_model *m, struct token_bytes text)
{
    for (uint16_t i = 0; i < m->n_triggers; i++) {
        const struct trigger *t = &m->trigger[i];
        char begin[8];
        size_t n = 0;
        while (n < t->n && n < sizeof begin && (!n || !(t->units[n] & UNIT_SPACE_BEFORE))) {
            begin[n] = (char)t->units[n];
            n++;
        }
        if (memmem(text.data, text.len, begin, n)) return true;
    }
    return false;
}

wk_status tools_parser_push(struct tools_parser *p, uint32_t id, struct token_bytes piece,
                            const struct tools_event **events, size_t *n)
{
    begin_push(p);
    if (!p->status && !take(p, id, piece)) no_memory(p);
    run(p);
    while (!p->status && p->n_in - p->cand > TOOLS_MAX_ANSWER && p->mode != MODE_TEXT) {
        lose(p);
        run(p);
    }
    return give(p, events, n);
}

wk_status tools_parser_finish(struct tools_parser *p, const struct tools_event **events, size_t *n)
{
    begin_push(p);
    p->ending = true;
    run(p);
    while (!p->status && p->mode != MODE_TEXT) {
        if (p->mode == MODE_CALL && p->closed)
            end_call(p);
        else if (p->mode == MODE_NEXT && !p->first) {
            p->at = p->cand; /* the section's end is missing or cut */
            p->section = false;
            p->mode = MODE_TEXT;
        } else
            lose(p);
        run(p);
    }
    return give(p, events, n);
}

wk_status tools_parser_open(const struct tools_model *m, const struct tools_set *s, uint64_t seed, bool single,
                            struct tools_parser **out, const struct wk_err *err)
{
    struct tools_parser *p = *out = calloc(1, sizeof *p);
    if (!p) return wk_fail(err, WK_NO_MEMORY, "no memory for a parser of calls");
    p->model = m;
    p->set = s;
    p->seed = seed;
    p->single = single || m->format.single;
    return WK_OK;
}

void tools_parser_close(struct tools_parser *p)
{
    if (!p) return;
    free(p->in);
    free(p->told);
    free(p->events);
    free(p->out.data);
    free(p->sink.data);
    free(p->raw.data);
    free(p->nest.keys.data);
    free(p);
}

bool tools_parser_holds(const struct tools_parser *p) { return p->cand < p->n_in; }
uint32_t tools_parser_calls(const struct tools_parser *p) { return p->calls; }
uint32_t tools_parser_malformed(const struct tools_parser *p) { return p->malformed; }
