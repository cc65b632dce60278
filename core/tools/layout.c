/* layout.c: a row's layouts: cut into steps over the units of a vocabulary, and written out for given calls. */
#include <string.h>

#include "tokenizer/json_reader.h"
#include "tools/internal.h"

static const struct {
    const char *name;
    enum step_kind kind;
} placeholders[] = { { "$NAME", STEP_NAME },     { "$ID", STEP_ID },         { "$INDEX", STEP_INDEX },
                     { "$PLACE", STEP_PLACE },   { "$ARGS", STEP_ARGS },     { "$OBJECT", STEP_OBJECT },
                     { "$PARAMS", STEP_PARAMS }, { "$NESTED", STEP_NESTED }, { "$PYTHON", STEP_PYTHON },
                     { "$GEMMA", STEP_GEMMA },   { "$KEY", STEP_KEY },       { "$VALUE", STEP_VALUE },
                     { "$TYPE", STEP_TYPE },     { "$IS", STEP_IS } };

const char cdata_open[] = "<![CDATA[", cdata_close[] = "]]>";

const char *format_object(const struct tools_format *f)
{
    return f->object ? f->object : "{\"name\": \"$NAME\", \"arguments\": $ARGS}";
}

bool format_is_bare(const struct tools_format *f)
{
    return f->begin ? strcmp(f->begin, "[") == 0 : strncmp(f->call, "$OBJECT", 7) == 0;
}

bool layout_next(const char **at, enum step_kind *kind, struct token_bytes *literal)
{
    if (!*at || !**at) return false;
    for (size_t i = 0; **at == '$' && i < sizeof placeholders / sizeof *placeholders; i++) {
        const size_t n = strlen(placeholders[i].name);
        if (strncmp(*at, placeholders[i].name, n) != 0) continue;
        *kind = placeholders[i].kind;
        *at += n;
        return true;
    }
    *kind = STEP_LITERAL;
    const char *end = strchr(*at + 1, '$');
    *literal = (struct token_bytes){ *at, end ? (size_t)(end - *at) : strlen(*at) };
    *at += literal->len;
    return true;
}

/* ---- as steps -------------------------------------------------------------------------------------------- */

/* The place of a control token that begins at text, its bytes in *n; MODEL_MARKS: none. */
static uint16_t find_mark(struct tools_model *m, const struct tokenizer *t, const char *text, size_t left, size_t *n)
{
    for (size_t len = left < sizeof m->mark_texts[0] ? left : sizeof m->mark_texts[0] - 1; t && len > 1; len--) {
        const uint32_t id = tokenizer_find(t, text, len);
        if (id == TOKEN_NONE || tokenizer_type(t, id) != TOKEN_CONTROL) continue;
        uint16_t i = 0;
        while (i < m->n_marks && m->mark[i] != id) i++;
        if (i == MODEL_MARKS) return i;
        if (i == m->n_marks) {
            memcpy(m->mark_texts[i], text, len);
            m->mark[i] = id;
            m->mark_text[i] = (struct token_bytes){ m->mark_texts[i], len };
            m->n_marks++;
        }
        *n = len;
        return i;
    }
    return MODEL_MARKS;
}

/* A text behind what the step holds already. */
static bool add_literal(struct tools_model *m, const struct tokenizer *t, struct token_bytes text, struct step *s)
{
    bool space = s->line_last;
    if (!s->n) {
        s->units = m->units + m->n_units;
        s->line_first = text.len && text.data[0] == '\n';
    }
    if (text.len) s->line_last = text.data[text.len - 1] == '\n';
    for (size_t i = 0; i < text.len;) {
        size_t n = 1;
        const uint16_t mark = find_mark(m, t, text.data + i, text.len - i, &n);
        unit u = mark < MODEL_MARKS ? (unit)(UNIT_MARK + mark) : (unit)(unsigned char)text.data[i];
        i += n;
        if (unit_is_space(u)) {
            space = true;
            continue;
        }
        if (m->n_units == MODEL_UNITS) return false;
        m->units[m->n_units++] = (unit)(u | (space ? UNIT_SPACE_BEFORE : 0));
        s->n++;
        space = false;
    }
    return true;
}
static bool add_text(struct tools_model *m, const struct tokenizer *t, const char *text, struct step *s)
{
    s->kind = STEP_LITERAL;
    return !text || add_literal(m, t, (struct token_bytes){ text, strlen(text) }, s);
}

static bool add_layout(struct tools_model *m, const struct tokenizer *t, const char *layout, struct step *steps,
                       uint16_t *n)
{
    struct step s = { 0 };
    struct token_bytes literal = { 0 };
    for (const char *at = layout; layout_next(&at, &s.kind, &literal); s = (struct step){ 0 }) {
        if (s.kind == STEP_LITERAL && !add_literal(m, t, literal, &s)) return false;
        if (s.kind == STEP_LITERAL && !s.n) continue; /* white space alone */
        if (*n == MODEL_STEPS) return false;
        steps[(*n)++] = s;
    }
    return true;
}

static void add_trigger(struct tools_model *m, const unit *units, uint16_t n, uint16_t skip, bool section)
{
    if (n && m->n_triggers < MODEL_TRIGGERS) m->trigger[m->n_triggers++] = (struct trigger){ units, n, skip, section };
}

/* Units of the first word: up to white space, the end of a tag, or a control token. */
static uint16_t first_word(const struct step *s)
{
    uint16_t n = 0;
    while (n < s->n) {
        const unit u = s->units[n] & (unit)~UNIT_SPACE_BEFORE;
        if (n && (s->units[n] & UNIT_SPACE_BEFORE)) break;
        n++;
        if (u >= UNIT_MARK || (n > 1 && (u == '>' || u == ']'))) break;
    }
    return n;
}

/* How a call is noticed in a text: by the first word of a section or of a call, and, since models leave out the opening
 * tag, by the second tag of a call. */
static bool add_triggers(struct tools_model *m, const struct tokenizer *t)
{
    const struct tools_format *f = &m->format;
    const struct step *head = &m->call[0];
    struct step given = { 0 };
    if (format_is_bare(f)) return true;
    if (!add_text(m, t, f->trigger, &given)) return false;
    if (m->begin.n) add_trigger(m, m->begin.units, given.n ? given.n : first_word(&m->begin), 0, true);
    if (head->kind != STEP_LITERAL) return true;
    if (given.n) { /* it is there because a call's first word is not its own */
        if (!m->begin.n) add_trigger(m, given.units, given.n, 0, false);
        return true;
    }
    const uint16_t n = first_word(head);
    if (n > 1 || head->units[0] >= UNIT_MARK) add_trigger(m, head->units, n, 0, false);
    if (n < head->n && (head->units[n] & ~UNIT_SPACE_BEFORE) == '<' && head->n - n > 2)
        add_trigger(m, head->units + n, (uint16_t)(head->n - n), n, false);
    return true;
}

/* The key whose value a layout's text leads to: of `{"id": "x", "name": "` name; "": none. */
static void key_before(struct token_bytes text, char *out, size_t cap)
{
    size_t n = text.len;
    while (n && text.data[n - 1] != ':') n--; /* the value's quote and white space */
    while (n && text.data[n - 1] != '"') n--;
    size_t from = n ? n - 1 : 0;
    while (from && text.data[from - 1] != '"') from--;
    const size_t len = n > from ? n - 1 - from : 0;
    out[0] = '\0';
    if (!len || len >= cap) return;
    memcpy(out, text.data + from, len);
    out[len] = '\0';
}

static void find_keys(struct tools_model *m)
{
    struct token_bytes literal, before = { 0 };
    enum step_kind kind;
    for (const char *at = format_object(&m->format); layout_next(&at, &kind, &literal);) {
        if (kind == STEP_LITERAL) before = literal;
        if (kind == STEP_LITERAL && !m->keys.first[0]) key_before(literal, m->keys.first, sizeof m->keys.first);
        if (kind == STEP_NAME) key_before(before, m->keys.name, sizeof m->keys.name);
        if (kind == STEP_ARGS) key_before(before, m->keys.arguments, sizeof m->keys.arguments);
    }
}

wk_status tools_model_open(const struct tools_format *f, const struct tokenizer *t, struct tools_model **out,
                           const struct wk_err *err)
{
    struct tools_model *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return wk_fail(err, WK_NO_MEMORY, "no memory for the call format \"%s\"", f->name);
    m->format = *f;
    find_keys(m);
    bool fits = add_text(m, t, f->begin, &m->begin) && add_text(m, t, f->end, &m->end) &&
                add_layout(m, t, f->call, m->call, &m->n_call) &&
                add_layout(m, t, f->parameter, m->parameter, &m->n_parameter);
    for (uint16_t i = 0; fits && i < m->n_call; i++)
        if (m->call[i].kind == STEP_GEMMA) fits = add_text(m, t, f->quote, &m->call[i]), m->call[i].kind = STEP_GEMMA;
    fits = fits && add_text(m, t, f->between, &m->again);
    const char *at = f->call;
    enum step_kind kind;
    struct token_bytes literal;
    if (fits && layout_next(&at, &kind, &literal) && kind == STEP_LITERAL) fits = add_literal(m, t, literal, &m->again);
    fits = fits && add_triggers(m, t);
    if (!fits) {
        free(m);
        return wk_fail(err, WK_UNSUPPORTED, "the call format \"%s\" has more than %d units, %d steps or %d marks",
                       f->name, MODEL_UNITS, MODEL_STEPS, MODEL_MARKS);
    }
    *out = m;
    return WK_OK;
}

void tools_model_close(struct tools_model *m) { free(m); }

const uint32_t *tools_model_marks(const struct tools_model *m, size_t *n)
{
    *n = m->n_marks;
    return m->mark;
}

enum tools_id_rule tools_model_ids(const struct tools_model *m) { return m->format.ids; }

/* ---- written out ----------------------------------------------------------------------------------------- */

struct writer {
    const struct tools_format *f;
    struct byte_buffer *out;
    const struct wk_err *err;
    wk_status status;
};

static bool put(struct writer *w, struct token_bytes text)
{
    if (!w->status && !tools_put(w->out, text.data, text.len)) w->status = wk_fail(w->err, WK_NO_MEMORY, "no memory");
    return !w->status;
}
static bool put_text(struct writer *w, const char *text) { return put(w, (struct token_bytes){ text, strlen(text) }); }

struct token_bytes tools_kimi_id(struct token_bytes name, uint32_t index, char out[TOOLS_ID])
{
    const int n = snprintf(out, TOOLS_ID, "functions.%.*s:%u", (int)name.len, name.data, index);
    return (struct token_bytes){ out, (size_t)n };
}

static const char *type_name(enum jr_kind kind)
{
    switch (kind) {
    case JR_STRING: return "string";
    case JR_NUMBER: return "number";
    case JR_BOOL: return "boolean";
    case JR_NULL: return "null";
    case JR_ARRAY: return "array";
    default: return "object";
    }
}

/* JSON in another form of the same structure: strings between quotes that are not escaped, as templates write them. */
static bool put_value(struct writer *w, struct json_reader *r, const char *quote, bool bare_keys)
{
    struct json_text text;
    bool first = true, truth;
    switch (jr_peek(r)) {
    case JR_STRING:
        return jr_string(r, &text) && put_text(w, quote) && put(w, (struct token_bytes){ text.data, text.len }) &&
               put_text(w, quote);
    case JR_BOOL:
        return jr_bool(r, &truth) && put_text(w, bare_keys ? truth ? "true" : "false" : truth ? "True" : "False");
    case JR_NULL: return jr_null(r) && put_text(w, "None");
    case JR_OBJECT:
        if (!bare_keys) break;
        if (!jr_object(r) || !put_text(w, "{")) return false;
        for (; jr_member(r, &text); first = false)
            if (!put_text(w, first ? "" : ",") || !put(w, (struct token_bytes){ text.data, text.len }) ||
                !put_text(w, ":") || !put_value(w, r, quote, true))
                return false;
        return put_text(w, "}");
    case JR_ARRAY:
        if (!bare_keys) break;
        if (!jr_array(r) || !put_text(w, "[")) return false;
        for (; jr_element(r); first = false)
            if (!put_text(w, first ? "" : ",") || !put_value(w, r, quote, true)) return false;
        return put_text(w, "]");
    default: break;
    }
    return jr_raw(r, &text) && put(w, (struct token_bytes){ text.data, text.len });
}

static bool has(struct token_bytes text, const char *part) { return memmem(text.data, text.len, part, strlen(part)); }

/* A string between tags. */
static bool put_raw(struct writer *w, struct json_reader *r, struct token_bytes text)
{
    const struct tools_format *f = w->f;
    if (!f->cdata || !(has(text, "<") || has(text, "&") || has(text, "\n"))) return put(w, text);
    if (has(text, cdata_close))
        return jr_fail(r, WK_UNSUPPORTED, "the call format \"%s\" has no form for a string with %s", f->name,
                       cdata_close);
    return put_text(w, cdata_open) && put(w, text) && put_text(w, cdata_close);
}

static bool put_parameter(struct writer *w, struct json_text key, struct json_reader *r)
{
    struct token_bytes literal;
    enum step_kind step;
    const enum jr_kind kind = jr_peek(r);
    struct json_text text;
    char name[256];
    if (key.len >= sizeof name) return jr_fail(r, WK_UNSUPPORTED, "expected keys of less than %zu bytes", sizeof name);
    memcpy(name, key.data, key.len); /* the reader's own copy goes when it reads the value */
    const bool got = kind == JR_STRING ? jr_string(r, &text) : jr_raw(r, &text);
    for (const char *at = w->f->parameter; got && layout_next(&at, &step, &literal);) {
        const struct token_bytes value = { text.data, text.len };
        if (step == STEP_LITERAL ? !put(w, literal)
            : step == STEP_KEY   ? !put(w, (struct token_bytes){ name, key.len })
            : step == STEP_TYPE  ? !put_text(w, type_name(kind))
            : step == STEP_IS    ? !put_text(w, kind == JR_STRING ? "true" : "false")
            : kind == JR_STRING  ? !put_raw(w, r, value)
                                 : !put(w, value))
            return false;
    }
    return got;
}

static bool put_nested(struct writer *w, struct json_reader *r, uint32_t depth);

/* A member, or an item, as an element. */
static bool put_element(struct writer *w, struct json_reader *r, struct json_text key, uint32_t depth)
{
    struct token_bytes literal = { 0 };
    enum step_kind step;
    char name[256];
    if (key.len >= sizeof name) return jr_fail(r, WK_UNSUPPORTED, "expected keys of less than %zu bytes", sizeof name);
    memcpy(name, key.data, key.len);
    for (const char *at = w->f->parameter; layout_next(&at, &step, &literal);)
        if (step == STEP_LITERAL ? !put(w, literal)
            : step == STEP_KEY   ? !put(w, (struct token_bytes){ name, key.len })
                                 : !put_nested(w, r, depth))
            return false;
    return true;
}

static bool put_nested(struct writer *w, struct json_reader *r, uint32_t depth)
{
    static const struct json_text item = { "item", 4 };
    struct json_text text;
    bool ok = true;
    if (depth > NESTED_DEPTH) return jr_fail(r, WK_UNSUPPORTED, "expected at most %d levels", NESTED_DEPTH);
    switch (jr_peek(r)) {
    case JR_STRING: return jr_string(r, &text) && put(w, (struct token_bytes){ text.data, text.len });
    case JR_OBJECT:
        for (ok = jr_object(r); ok && jr_member(r, &text);) /* the form has no null: such members are left out */
            ok = jr_peek(r) == JR_NULL ? jr_null(r) : put_element(w, r, text, depth + 1);
        return ok && !r->status;
    case JR_ARRAY:
        for (ok = jr_array(r); ok && jr_element(r);) ok = put_element(w, r, item, depth + 1);
        return ok && !r->status;
    case JR_NULL: return jr_null(r);
    default: return jr_raw(r, &text) && put(w, (struct token_bytes){ text.data, text.len });
    }
}

/* The arguments one by one, by the layout `parameter`, or as those of a Python call. */
static bool put_arguments(struct writer *w, struct json_reader *r, enum step_kind kind)
{
    struct json_text key;
    bool first = true;
    if (!jr_object(r)) return false;
    if (kind == STEP_PYTHON && !put_text(w, "(")) return false;
    for (; jr_member(r, &key); first = false) {
        if (kind == STEP_PARAMS ? !put_parameter(w, key, r)
                                : !put_text(w, first         ? ""
                                               : w->f->tight ? ","
                                                             : ", ") ||
                                      !put(w, (struct token_bytes){ key.data, key.len }) || !put_text(w, "=") ||
                                      !put_value(w, r, w->f->double_quotes ? "\"" : "'", false))
            return false;
    }
    return !r->status && (kind != STEP_PYTHON || put_text(w, ")"));
}

static bool put_layout(struct writer *w, const char *layout, const struct tools_written *c, size_t index)
{
    struct token_bytes literal;
    enum step_kind kind;
    char number[24];
    bool ok = true;
    for (const char *at = layout; ok && layout_next(&at, &kind, &literal);) {
        struct json_reader r;
        jr_open(&r, c->arguments.data, c->arguments.len, "arguments", "", w->err);
        switch (kind) {
        case STEP_LITERAL: ok = put(w, literal); break;
        case STEP_NAME: ok = put(w, c->name); break;
        case STEP_ID: ok = put(w, c->id); break;
        case STEP_ARGS: ok = put(w, c->arguments); break;
        case STEP_OBJECT: ok = put_layout(w, format_object(w->f), c, index); break;
        case STEP_GEMMA: ok = put_value(w, &r, w->f->quote, true); break;
        case STEP_INDEX:
        case STEP_PLACE:
            (void)snprintf(number, sizeof number, "%zu", index + (kind == STEP_INDEX));
            ok = put_text(w, number);
            break;
        case STEP_NESTED: ok = jr_peek(&r) == JR_OBJECT && put_nested(w, &r, 0); break;
        default: ok = put_arguments(w, &r, kind); break;
        }
        if (r.status) w->status = r.status;
        jr_close(&r);
    }
    return ok;
}

wk_status tools_write(const struct tools_format *f, const struct tools_written *calls, size_t n,
                      struct byte_buffer *out, const struct wk_err *err)
{
    struct writer w = { .f = f, .out = out, .err = err };
    bool ok = !f->begin || put_text(&w, f->begin);
    for (size_t i = 0; ok && i < n; i++)
        ok = (!i || !f->between || put_text(&w, f->between)) && put_layout(&w, f->call, &calls[i], i);
    ok = ok && (!f->end || put_text(&w, f->end));
    return ok ? WK_OK : w.status ? w.status : wk_fail(err, WK_INVALID, "arguments: expected a JSON object");
}
