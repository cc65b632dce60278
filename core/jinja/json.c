/* json.c: JSON text into values. */
#include "internal.h"

#include <stdlib.h>

#include "tokenizer/json_reader.h"

/* Reads one value. The reader bounds the depth: JR_MAX_DEPTH. */
static val read_value(struct vm *m, struct json_reader *r);

static val input_string(struct vm *m, const struct json_text *t) { return jn_str_new(m, t->data, t->len, JINJA_INPUT); }

static val read_dict(struct vm *m, struct json_reader *r)
{
    struct dict *d = jn_dict_new(m, 0);
    struct json_text key;
    d->input = true;
    (void)jr_object(r);
    while (jr_member(r, &key)) {
        const val name = input_string(m, &key);
        d->pairs = jn_heap_grow(m, d->pairs, d->n, &d->cap, (size_t)d->n + 1, sizeof *d->pairs);
        const val value = read_value(m, r);
        d->pairs = jn_heap_grow(m, d->pairs, d->n, &d->cap, (size_t)d->n + 1, sizeof *d->pairs);
        d->pairs[d->n++] = (struct pair){ name, value };
    }
    jn_dict_settle(m, d);
    return (val){ .kind = V_DICT, .u.dict = d };
}

static val read_list(struct vm *m, struct json_reader *r)
{
    struct list *l = jn_list_new(m, 0);
    l->input = true;
    (void)jr_array(r);
    while (jr_element(r)) jn_list_push(m, l, read_value(m, r));
    return jn_list_value(l, V_LIST);
}

static val read_number(struct vm *m, struct json_reader *r)
{
    struct json_text t;
    if (!jr_raw(r, &t)) return jn_v_none();
    val v;
    if (memchr(t.data, '.', t.len) || memchr(t.data, 'e', t.len) || memchr(t.data, 'E', t.len)) {
        char *copy = jn_heap_take(m, t.len + 1);
        memcpy(copy, t.data, t.len);
        v = jn_v_float(strtod(copy, NULL));
    } else {
        v = jn_number_from_digits(m, t.data, t.len, 10);
    }
    v.input = true;
    return v;
}

static val read_value(struct vm *m, struct json_reader *r)
{
    struct json_text t;
    bool b;
    m->steps = 0; /* reading is bounded by the text's length and the heap */
    switch (jr_peek(r)) {
    case JR_OBJECT: return read_dict(m, r);
    case JR_ARRAY: return read_list(m, r);
    case JR_NUMBER: return read_number(m, r);
    case JR_BOOL: return jr_bool(r, &b) ? jn_v_bool(b) : jn_v_none();
    case JR_STRING: return jr_string(r, &t) ? input_string(m, &t) : jn_v_none();
    default:
        if (!jr_null(r) && r->status == WK_OK) (void)jr_fail(r, WK_INVALID, "expected a value");
        return jn_v_none();
    }
}

val jn_json_value_of(struct vm *m, struct json_reader *r)
{
    const val v = read_value(m, r);
    (void)jr_finish(r);
    return v;
}
