/* jinja.c: the module's interface: templates, the caller's values, renders. */
#include "vm.h"

#include <stdlib.h>

#include "tokenizer/json_reader.h"
#include "base/utf8.h"

val jn_json_value_of(struct vm *m, struct json_reader *r);

/* --- Templates --- */

void jn_position_of(const struct jinja_template *t, uint32_t at, uint32_t *line, uint32_t *column)
{
    *line = *column = 0;
    if (!at) return;
    uint32_t begin = 0;
    *line = 1;
    for (uint32_t i = 0; i < at - 1 && i < t->n; i++) {
        if (t->source[i] != '\n') continue;
        ++*line;
        begin = i + 1;
    }
    const uint32_t end = at - 1 < t->n ? at - 1 : t->n;
    *column = (uint32_t)utf8_count(t->source + begin, end - begin) + 1;
}

/* The id of a name, new or known. They are sorted by text, so that no choice of names makes looking slow. */
uint32_t jn_name_id(struct jinja_template *t, const struct str *name)
{
    uint32_t low = 0, high = t->n_names;
    while (low < high) {
        const uint32_t mid = (low + high) / 2;
        const int o = jn_str_order(t->names[t->sorted[mid]], name);
        if (o == 0) return t->sorted[mid];
        if (o < 0)
            low = mid + 1;
        else
            high = mid;
    }
    if (t->n_names >= MAX_NAMES) jn_fail(&t->m, "more than %d names of variables", MAX_NAMES);
    memmove(t->sorted + low + 1, t->sorted + low, (t->n_names - low) * sizeof *t->sorted);
    t->sorted[low] = t->n_names;
    t->names[t->n_names] = name;
    return t->n_names++;
}

/* One kind of line end; the last one goes. */
static void take_source(struct jinja_template *t, const char *text, size_t n)
{
    char *source = jn_heap_take(&t->m, n + 1), *o = source;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\r') {
            *o++ = '\n';
            if (i + 1 < n && text[i + 1] == '\n') i++;
        } else {
            *o++ = text[i];
        }
    }
    if (o > source && o[-1] == '\n') o--;
    t->source = source;
    t->n = (uint32_t)(o - source);
}

static void list_reads(struct jinja_template *t)
{
    t->read_names = jn_heap_array(&t->m, t->n_names, sizeof(char *));
    for (uint32_t i = 0; i < t->n_names; i++) {
        if (!t->reads[i]) continue;
        char *name = jn_heap_take(&t->m, (size_t)t->names[i]->n + 1);
        memcpy(name, t->names[i]->data, t->names[i]->n);
        t->read_names[t->n_reads++] = name;
    }
}

static void build(struct jinja_template *t, const char *text, size_t n)
{
    struct vm *m = &t->m;
    struct lexer l;
    take_source(t, text, n);
    t->names = jn_heap_array(m, MAX_NAMES, sizeof(struct str *));
    t->sorted = jn_heap_array(m, MAX_NAMES + 1, sizeof *t->sorted);
    t->reads = jn_heap_array(m, MAX_NAMES, sizeof *t->reads);
    t->mentioned = jn_dict_new(m, 0);
    t->blocks = jn_dict_new(m, 0);
    jn_lex_open(&l, m, t->source, t->n);
    jn_compile(t, jn_parse(t, &l));
    list_reads(t);
}

wk_status jinja_open(struct jinja_template **out, const char *text, size_t n, const struct wk_err *err)
{
    jmp_buf trap;
    *out = NULL;
    if (n > JINJA_MAX_TEMPLATE)
        return wk_fail(err, WK_INVALID, "a template has %zu bytes: at most %d are allowed", n, JINJA_MAX_TEMPLATE);
    if (!utf8_is_valid(text, n)) return wk_fail(err, WK_INVALID, "a template is not UTF-8");
    struct jinja_template *const t = calloc(1, sizeof *t);
    if (!t) return wk_fail(err, WK_NO_MEMORY, "no memory for a template");
    t->m.trap = &trap;
    if (setjmp(trap) == 0) {
        build(t, text, n);
        t->m.trap = NULL;
        *out = t;
        return WK_OK;
    }
    const struct failure f = t->m.failure;
    wk_status status = WK_NO_MEMORY;
    if (f.end == JINJA_NO_MEMORY) {
        (void)wk_fail(err, status, "no memory for a template");
    } else {
        uint32_t line, column;
        jn_position_of(t, f.at, &line, &column);
        status = wk_fail(err, WK_INVALID, "template line %u, column %u: %s", line, column, f.message);
    }
    jinja_close(t);
    return status;
}

void jinja_close(struct jinja_template *t)
{
    if (!t) return;
    jn_heap_free(&t->m.heap);
    free(t);
}

size_t jinja_n_variables(const struct jinja_template *t) { return t->n_reads; }
const char *jinja_variable(const struct jinja_template *t, size_t i) { return t->read_names[i]; }

bool jinja_reads(const struct jinja_template *t, const char *name)
{
    for (uint32_t i = 0; i < t->n_reads; i++)
        if (strcmp(t->read_names[i], name) == 0) return true;
    return false;
}

bool jinja_mentions(const struct jinja_template *t, const char *name)
{
    const struct str s = { .data = name, .n = (uint32_t)strlen(name) };
    return jn_dict_find_str(t->mentioned, &s) != NULL;
}

/* --- Values --- */

struct jinja_values {
    struct vm m;
};

struct jinja_values *jinja_values_new(void) { return calloc(1, sizeof(struct jinja_values)); }

void jinja_values_free(struct jinja_values *a)
{
    if (!a) return;
    jn_heap_free(&a->m.heap);
    free(a);
}

static struct jinja_value *made(struct jinja_values *a, val v)
{
    struct jinja_value *copy = jn_heap_take(&a->m, sizeof *copy);
    *copy = v;
    return copy;
}

/* Runs `make` and gives its value, or NULL where memory is exhausted. */
#define MAKE(a, make)                   \
    jmp_buf trap;                       \
    if (!(a)) return NULL;              \
    (a)->m.trap = &trap;                \
    (a)->m.steps = 0;                   \
    if (setjmp(trap) != 0) return NULL; \
    return make

struct jinja_value *jinja_none(struct jinja_values *a) { MAKE(a, made(a, jn_v_none())); }
struct jinja_value *jinja_bool(struct jinja_values *a, bool b) { MAKE(a, made(a, jn_v_bool(b))); }

static val input_int(int64_t i)
{
    val v = jn_v_int(i);
    v.input = true;
    return v;
}
struct jinja_value *jinja_int(struct jinja_values *a, int64_t i) { MAKE(a, made(a, input_int(i))); }

struct jinja_value *jinja_string(struct jinja_values *a, const char *text, size_t n, enum jinja_origin origin)
{
    if (!text || n > UINT32_MAX / 2 || !utf8_is_valid(text, n)) return NULL;
    MAKE(a, made(a, jn_str_new(&a->m, text, n, origin)));
}

static val input_list(struct vm *m)
{
    struct list *l = jn_list_new(m, 0);
    l->input = true;
    return jn_list_value(l, V_LIST);
}
struct jinja_value *jinja_list(struct jinja_values *a) { MAKE(a, made(a, input_list(&a->m))); }

static struct jinja_value *pushed(struct jinja_values *a, struct jinja_value *list, const struct jinja_value *item)
{
    jn_list_push(&a->m, list->u.list, *item);
    return list;
}
struct jinja_value *jinja_list_add(struct jinja_values *a, struct jinja_value *list, const struct jinja_value *item)
{
    if (!list || !item || list->kind != V_LIST) return NULL;
    MAKE(a, pushed(a, list, item));
}

static val input_dict(struct vm *m)
{
    struct dict *d = jn_dict_new(m, 0);
    d->input = true;
    return (val){ .kind = V_DICT, .u.dict = d };
}
struct jinja_value *jinja_dict(struct jinja_values *a) { MAKE(a, made(a, input_dict(&a->m))); }

static struct jinja_value *put(struct jinja_values *a, struct jinja_value *dict, const char *key,
                               const struct jinja_value *v)
{
    jn_dict_put(&a->m, dict->u.dict, jn_str_new(&a->m, key, strlen(key), JINJA_INPUT), *v);
    return dict;
}
struct jinja_value *jinja_dict_set(struct jinja_values *a, struct jinja_value *dict, const char *key,
                                   const struct jinja_value *value)
{
    if (!dict || !key || !value || dict->kind != V_DICT || !utf8_is_valid(key, strlen(key))) return NULL;
    MAKE(a, put(a, dict, key, value));
}

const struct jinja_value *jinja_dict_get(const struct jinja_value *dict, const char *key)
{
    if (!dict || dict->kind != V_DICT) return NULL;
    const struct str s = { .data = key, .n = (uint32_t)strlen(key) };
    return jn_dict_find_str(dict->u.dict, &s);
}

wk_status jinja_from_json(struct jinja_values *a, const char *text, size_t n, const char *name,
                          struct jinja_value **out, const struct wk_err *err)
{
    jmp_buf trap;
    struct json_reader r;
    *out = NULL;
    if (!a) return wk_fail(err, WK_NO_MEMORY, "%s: no memory", name);
    jr_open(&r, text, n, name, "", err);
    a->m.trap = &trap;
    a->m.steps = 0;
    if (setjmp(trap) == 0) {
        struct jinja_value *const v = made(a, jn_json_value_of(&a->m, &r));
        const wk_status status = r.status;
        if (status == WK_OK) *out = v;
        jr_close(&r);
        return status;
    }
    jr_close(&r);
    const struct failure *f = &a->m.failure;
    return wk_fail(err, f->end == JINJA_NO_MEMORY ? WK_NO_MEMORY : WK_INVALID, "%s: %s", name, f->message);
}

/* --- Renders --- */

/* What each name of the template is in the context, looked up once. */
static void take_context(struct vm *m, const val *context)
{
    struct machine *x = m->machine;
    const struct jinja_template *t = m->t;
    x->context = jn_heap_array(m, t->n_names, sizeof(val));
    x->exported = jn_heap_array(m, t->n_names, sizeof(val));
    for (uint32_t i = 0; i < t->n_names; i++) {
        if (!t->reads[i]) continue;
        const val *given = context && context->kind == V_DICT ? jn_dict_find_str(context->u.dict, t->names[i]) : NULL;
        const int global = jn_global_find(t->names[i]);
        if (jn_str_is(t->names[i], "self"))
            x->context[i] = (val){ .kind = V_SELF };
        else if (given)
            x->context[i] = *given;
        else if (global >= 0)
            x->context[i] = (val){ .kind = V_FUNCTION, .aux = (uint32_t)global };
    }
}

/* The output and its runs in the caller's memory. False: no memory. */
static bool hand_out(const struct buf *b, struct jinja_result *out)
{
    out->text = malloc((size_t)b->n + 1);
    out->runs = malloc((b->n_runs + 1) * sizeof *out->runs);
    if (!out->text || !out->runs) return false;
    if (b->n) memcpy(out->text, b->data, b->n);
    out->text[b->n] = '\0';
    out->n = b->n;
    size_t begin = 0;
    for (uint32_t i = 0; i < b->n_runs; i++) {
        out->runs[i] = (struct jinja_run){ begin, b->runs[i].end, b->runs[i].origin == JINJA_TEMPLATE };
        begin = b->runs[i].end;
    }
    out->n_runs = b->n_runs;
    return true;
}

static char *copy_of(const char *text)
{
    const size_t n = strlen(text) + 1;
    char *copy = malloc(n);
    return copy ? memcpy(copy, text, n) : NULL;
}

static wk_status report(const struct vm *m, struct jinja_result *out, const struct wk_err *err)
{
    const struct failure *f = &m->failure;
    out->end = f->end;
    jn_position_of(m->t, f->at, &out->line, &out->column);
    if (f->end != JINJA_NO_MEMORY) out->message = copy_of(f->message);
    if (!out->message) {
        out->end = JINJA_NO_MEMORY;
        return wk_fail(err, WK_NO_MEMORY, "no memory to render a template");
    }
    return wk_fail(err, WK_INVALID, "template line %u, column %u: %s", out->line, out->column, f->message);
}

wk_status jinja_render(const struct jinja_template *t, const struct jinja_value *context,
                       const struct jinja_options *options, struct jinja_result *out, const struct wk_err *err)
{
    static const struct jinja_options none = { 0 };
    jmp_buf trap;
    struct vm *const m = calloc(1, sizeof *m);
    volatile wk_status status = WK_OK; /* across setjmp */
    *out = (struct jinja_result){ 0 };
    if (!m) {
        out->end = JINJA_NO_MEMORY;
        return wk_fail(err, WK_NO_MEMORY, "no memory to render a template");
    }
    m->trap = &trap;
    m->t = t;
    m->options = options ? options : &none;
    if (setjmp(trap) == 0) {
        m->machine = jn_heap_take(m, sizeof *m->machine);
        take_context(m, context);
        jn_run(m);
        if (!hand_out(&m->machine->captures[0], out)) {
            m->failure = (struct failure){ .end = JINJA_NO_MEMORY };
            status = report(m, out, err);
        }
    } else {
        status = report(m, out, err);
    }
    out->steps = m->steps;
    if (status != WK_OK) {
        free(out->text);
        free(out->runs);
        out->text = NULL;
        out->runs = NULL;
        out->n = out->n_runs = 0;
    }
    jn_heap_free(&m->heap);
    free(m);
    return status;
}

void jinja_result_free(struct jinja_result *r)
{
    free(r->text);
    free(r->runs);
    free(r->message);
    *r = (struct jinja_result){ 0 };
}
