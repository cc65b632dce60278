/* vm.c: runs a template's instructions. Calls of macros and of recursive loops push an activation, so that a template's
 * recursion needs no stack of the thread. */
#include "vm.h"

static void push(struct vm *m, val v)
{
    struct machine *x = m->machine;
    if (x->n_stack == x->cap_stack)
        x->stack = jn_heap_grow(m, x->stack, x->n_stack, &x->cap_stack, (size_t)x->n_stack + 1, sizeof *x->stack);
    x->stack[x->n_stack++] = v;
}

static val pop(struct machine *x) { return x->stack[--x->n_stack]; }
static val *top(struct machine *x) { return &x->stack[x->n_stack - 1]; }

static struct buf *out(struct machine *x) { return &x->captures[x->n_captures - 1]; }

static void capture(struct vm *m)
{
    struct machine *x = m->machine;
    x->captures =
        jn_heap_grow(m, x->captures, x->n_captures, &x->cap_captures, (size_t)x->n_captures + 1, sizeof *x->captures);
    jn_buf_open(&x->captures[x->n_captures++], m);
}

static val captured(struct machine *x) { return jn_buf_value(&x->captures[--x->n_captures], false); }

static void print(struct vm *m, val v)
{
    struct buf *b = out(m->machine);
    jn_print_str(b, v);
    if (b->n > JINJA_MAX_OUTPUT) jn_fail_limit(m, "more than %d bytes of output", JINJA_MAX_OUTPUT);
}

/* --- Loops --- */

bool jn_loop_next(struct vm *m, struct loop *l, val *item)
{
    if (l->after.kind != V_MISSING) {
        *item = l->after;
        l->after = jn_v_missing();
    } else if (l->ended || !jn_iter_next(m, &l->it, item)) {
        l->ended = true;
        return false;
    }
    l->index0++;
    l->before = l->current;
    l->current = *item;
    return true;
}

static bool peek(struct vm *m, struct loop *l)
{
    if (l->after.kind == V_MISSING && !l->ended && !jn_iter_next(m, &l->it, &l->after)) l->ended = true;
    return l->after.kind != V_MISSING;
}

static int64_t loop_length(struct vm *m, struct loop *l)
{
    if (l->it.v.kind != V_ITERATOR) return jn_length(m, l->it.v);
    const struct iterator *it = l->it.v.u.it;
    if (it->failure) jn_fail_again(m, it->failure);
    return l->index0 + 1 + (l->after.kind != V_MISSING) + (it->n - it->at);
}

val jn_loop_attr(struct vm *m, struct loop *l, const struct str *name)
{
    if (jn_str_is(name, "index")) return jn_v_int(l->index0 + 1);
    if (jn_str_is(name, "index0")) return jn_v_int(l->index0);
    if (jn_str_is(name, "first")) return jn_v_bool(l->index0 == 0);
    if (jn_str_is(name, "last")) return jn_v_bool(!peek(m, l));
    if (jn_str_is(name, "length")) return jn_v_int(loop_length(m, l));
    if (jn_str_is(name, "revindex")) return jn_v_int(loop_length(m, l) - l->index0);
    if (jn_str_is(name, "revindex0")) return jn_v_int(loop_length(m, l) - l->index0 - 1);
    if (jn_str_is(name, "depth")) return jn_v_int(l->depth0 + 1);
    if (jn_str_is(name, "depth0")) return jn_v_int(l->depth0);
    if (jn_str_is(name, "previtem")) return l->index0 > 0 ? l->before : jn_v_undefined(m, "there is no previous item");
    if (jn_str_is(name, "nextitem")) return peek(m, l) ? l->after : jn_v_undefined(m, "there is no next item");
    return jn_v_missing();
}

val jn_loop_method(struct vm *m, struct loop *l, const struct str *name, const struct args *a)
{
    if (a->n_named) jn_fail(m, "loop.%.*s takes no keyword arguments", (int)name->n, name->data);
    if (jn_str_is(name, "cycle")) {
        if (!a->n_pos) jn_fail(m, "no items for cycling given");
        return a->pos[(uint64_t)l->index0 % a->n_pos];
    }
    struct list *seen = jn_list_new(m, a->n_pos);
    for (uint32_t i = 0; i < a->n_pos; i++) jn_list_push(m, seen, a->pos[i]);
    const val now = jn_list_value(seen, V_TUPLE);
    if (l->changed.kind != V_MISSING && jn_equal(m, l->changed, now)) return jn_v_bool(false);
    l->changed = now;
    return jn_v_bool(true);
}

static void open_loop(struct vm *m, const struct insn *i)
{
    struct machine *x = m->machine;
    const struct activation *a = &x->activations[x->n_activations - 1];
    struct loop *l = jn_heap_take(m, sizeof *l);
    l->index0 = -1;
    jn_iter_open(m, &l->it, pop(x));
    if (i->a & FOR_RECURSIVE) {
        l->recurse = a->f;
        l->outer = a->frame->outer;
        l->depth0 = a->depth0;
    }
    x->loops = jn_heap_grow(m, x->loops, x->n_loops, &x->cap_loops, (size_t)x->n_loops + 1, sizeof(struct loop *));
    x->loops[x->n_loops++] = l;
}

static void keep(struct vm *m, struct loop *l)
{
    if (!l->kept) l->kept = jn_list_new(m, 0);
    jn_list_push(m, l->kept, l->current);
}

/* --- Variables --- */

static struct frame *frame_at(struct frame *f, unsigned hops)
{
    while (hops--) f = f->outer;
    return f;
}

static val resolve(struct vm *m, uint32_t name)
{
    const struct machine *x = m->machine;
    if (x->exported[name].kind != V_MISSING) return x->exported[name];
    return x->context[name];
}

static void enter_scope(struct vm *m, struct frame *f, const struct scope *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const struct load *l = &s->loads[i];
        switch ((enum load_kind)l->kind) {
        case LOAD_PARAM: break;
        case LOAD_RESOLVE: f->slots[l->slot] = resolve(m, l->from); break;
        case LOAD_ALIAS: f->slots[l->slot] = frame_at(f, l->hops)->slots[l->from]; break;
        case LOAD_UNDEFINED: f->slots[l->slot] = jn_v_missing(); break;
        }
    }
}

static val load(struct vm *m, struct frame *f, uint32_t slot)
{
    if (f->slots[slot].kind != V_MISSING) return f->slots[slot];
    return jn_v_undefined_name(m, NULL, m->t->names[f->f->variables[slot].name]);
}

static void unpack(struct vm *m, uint32_t want)
{
    struct machine *x = m->machine;
    const val v = pop(x);
    if (!jn_is_iterable(v)) jn_fail(m, "cannot unpack non-iterable %s object", jn_type_name(v));
    const struct list *l = jn_to_list(m, v);
    if (l->n > want) jn_fail(m, "too many values to unpack (expected %u)", want);
    if (l->n < want) jn_fail(m, "not enough values to unpack (expected %u, got %u)", want, l->n);
    for (uint32_t i = want; i-- > 0;) push(m, l->items[i]);
}

/* --- Calls --- */

static struct frame *activate(struct vm *m, const struct function *f, struct frame *outer, uint32_t depth0)
{
    struct machine *x = m->machine;
    if (x->n_activations > JINJA_MAX_DEPTH) jn_fail_limit(m, "calls are nested deeper than %d levels", JINJA_MAX_DEPTH);
    struct frame *frame = jn_heap_take(m, sizeof *frame + f->n_variables * sizeof(val));
    frame->f = f;
    frame->outer = outer;
    x->activations[x->n_activations++] = (struct activation){ f, frame, 0, depth0 };
    capture(m);
    return frame;
}

static const val *named(const struct args *a, val name, bool *used)
{
    for (uint32_t i = 0; i < a->n_named; i++) {
        if (used[i] || !jn_str_same(a->names[i].u.s, name.u.s)) continue;
        used[i] = true;
        return &a->named[i];
    }
    return NULL;
}

static void bind_caller(struct vm *m, const struct function *f, const struct args *a, struct frame *frame, bool *used)
{
    const val *caller = named(a, jn_v_text(m, "caller"), used);
    frame->slots[f->caller] = caller && caller->kind != V_NONE ? *caller : jn_v_undefined(m, "No caller defined");
}

static void bind_rest(struct vm *m, const struct function *f, const struct args *a, struct frame *frame,
                      const bool *used)
{
    struct dict *rest = f->kwargs >= 0 ? jn_dict_new(m, a->n_named) : NULL;
    const struct str none = { .data = "None", .n = 4 }, *name = f->name ? f->name : &none;
    const int n = (int)(name->n < 99 ? name->n : 99);
    for (uint32_t i = 0; i < a->n_named; i++) {
        if (used[i]) continue;
        const struct str *k = a->names[i].u.s;
        if (!rest)
            jn_fail(m, "macro '%.*s' takes no keyword argument '%.*s'", n, name->data, (int)(k->n < 99 ? k->n : 99),
                    k->data);
        jn_dict_put(m, rest, a->names[i], a->named[i]);
    }
    if (rest) frame->slots[f->kwargs] = (val){ .kind = V_DICT, .u.dict = rest };
    if (f->varargs >= 0) {
        struct list *more = jn_list_new(m, a->n_pos);
        for (uint32_t i = f->n_parameters; i < a->n_pos; i++) jn_list_push(m, more, a->pos[i]);
        frame->slots[f->varargs] = jn_list_value(more, V_TUPLE);
    } else if (a->n_pos > f->n_parameters) {
        jn_fail(m, "macro '%.*s' takes not more than %u argument(s)", n, name->data, f->n_parameters);
    }
}

static void call_macro(struct vm *m, const struct macro *macro, const struct args *a)
{
    const struct function *f = macro->f;
    bool *used = jn_heap_take(m, a->n_named);
    struct frame *frame = activate(m, f, macro->outer, 0);
    bool caller = f->explicit_caller && a->n_pos >= f->n_parameters;
    for (uint32_t i = 0; i < f->n_parameters; i++) {
        const val *v = i < a->n_pos ? &a->pos[i] : named(a, f->parameters[i], used);
        frame->slots[f->slots[i]] = v ? *v : jn_v_missing();
        caller |= i >= a->n_pos && jn_str_is(f->parameters[i].u.s, "caller");
    }
    if (f->caller >= 0 && !caller) bind_caller(m, f, a, frame, used);
    bind_rest(m, f, a, frame, used);
}

/* The arguments on the stack with * and ** spread. */
static struct args spread(struct vm *m, const struct shape *s, const val *first)
{
    struct args a = { first, s->n_pos, s->names, first + s->n_pos, s->n_named };
    const val *more = first + s->n_pos + s->n_named;
    if (s->star) {
        struct list *l = jn_list_new(m, s->n_pos);
        for (uint32_t i = 0; i < a.n_pos; i++) jn_list_push(m, l, a.pos[i]);
        const struct list *tail = jn_to_list(m, *more++);
        for (uint32_t i = 0; i < tail->n; i++) jn_list_push(m, l, tail->items[i]);
        a.pos = l->items;
        a.n_pos = l->n;
    }
    if (s->stars) {
        if (more->kind != V_DICT) jn_fail(m, "argument after ** must be a mapping, not %s", jn_type_name(*more));
        const struct dict *d = more->u.dict;
        val *names = jn_heap_array(m, (size_t)a.n_named + d->n, sizeof *names);
        val *values = jn_heap_array(m, (size_t)a.n_named + d->n, sizeof *values);
        for (uint32_t i = 0; i < a.n_named; i++) {
            names[i] = a.names[i];
            values[i] = a.named[i];
        }
        for (uint32_t i = 0; i < d->n; i++) {
            if (d->pairs[i].key.kind != V_STRING) jn_fail(m, "keywords must be strings");
            for (uint32_t k = 0; k < s->n_named; k++)
                if (jn_str_same(names[k].u.s, d->pairs[i].key.u.s))
                    jn_fail(m, "got multiple values for a keyword argument");
            names[a.n_named] = d->pairs[i].key;
            values[a.n_named++] = d->pairs[i].value;
        }
        jn_spend_items(m, a.n_named);
        a.names = names;
        a.named = values;
    }
    return a;
}

static uint32_t places(const struct shape *s) { return s->n_pos + s->n_named + s->star + s->stars; }

/* Calls what lies below its arguments; the result takes its place, at once or when the activation returns. */
static void call(struct vm *m, const struct shape *s)
{
    struct machine *x = m->machine;
    const uint32_t base = x->n_stack - places(s) - 1;
    const val callee = x->stack[base];
    const struct args a = spread(m, s, x->stack + base + 1);
    x->n_stack = base;
    val result;
    switch ((enum kind)callee.kind) {
    case V_MACRO: call_macro(m, callee.u.macro, &a); return;
    case V_LOOP: {
        const struct loop *l = callee.u.loop;
        if (!l->recurse) jn_fail(m, "the loop must have the 'recursive' marker to be called recursively");
        if (a.n_pos != 1 || a.n_named) jn_fail(m, "loop() takes one argument");
        const val items = a.pos[0];
        (void)activate(m, l->recurse, l->outer, l->depth0 + 1);
        push(m, items);
        return;
    }
    case V_METHOD: result = jn_method_call(m, callee.u.method, &a); break;
    case V_FUNCTION: result = jn_global_call(m, callee.aux, &a); break;
    case V_JOINER:
        if (a.n_pos || a.n_named) jn_fail(m, "a joiner takes no arguments");
        result = callee.u.joiner->used ? callee.u.joiner->separator : jn_v_text(m, "");
        callee.u.joiner->used = true;
        break;
    case V_UNDEFINED: jn_fail_undefined(m, callee);
    default: jn_fail(m, "'%s' object is not callable", jn_type_name(callee));
    }
    push(m, result);
}

/* Filters and tests: the value is below the arguments. */
static void apply(struct vm *m, const struct insn *i)
{
    struct machine *x = m->machine;
    const struct shape *s = &m->t->shapes[i->c];
    const uint32_t base = x->n_stack - places(s) - 1;
    const struct args a = spread(m, s, x->stack + base + 1);
    const val v = x->stack[base];
    x->n_stack = base;
    push(m, i->op == OP_FILTER ? jn_filter_call(m, i->b, v, &a) : jn_v_bool(jn_test_call(m, i->b, v, &a)));
}

val jn_block_of(struct vm *m, const struct str *name)
{
    const val *id = jn_dict_find_str(m->t->blocks, name);
    if (!id) return jn_v_missing();
    struct macro *macro = jn_heap_take(m, sizeof *macro);
    macro->f = m->t->functions[id->u.i];
    return (val){ .kind = V_MACRO, .u.macro = macro };
}

val jn_macro_attr(struct vm *m, val macro, const struct str *name)
{
    const struct function *f = macro.u.macro->f;
    if (jn_str_is(name, "name")) return f->name ? (val){ .kind = V_STRING, .u.s = f->name } : jn_v_none();
    if (jn_str_is(name, "catch_kwargs")) return jn_v_bool(f->kwargs >= 0);
    if (jn_str_is(name, "catch_varargs")) return jn_v_bool(f->varargs >= 0);
    if (jn_str_is(name, "caller")) return jn_v_bool(f->caller >= 0);
    if (!jn_str_is(name, "arguments")) return jn_v_missing();
    struct list *l = jn_list_new(m, f->n_parameters);
    for (uint32_t i = 0; i < f->n_parameters; i++) jn_list_push(m, l, f->parameters[i]);
    return jn_list_value(l, V_TUPLE);
}

/* --- Instructions --- */

static void build(struct vm *m, const struct insn *i)
{
    struct machine *x = m->machine;
    if (i->op == OP_DICT) {
        struct dict *d = jn_dict_new(m, i->c);
        x->n_stack -= 2 * i->c;
        for (uint32_t k = 0; k < i->c; k++) {
            const uint32_t key = x->n_stack + 2 * k;
            d->pairs[d->n++] = (struct pair){ x->stack[key], x->stack[key + 1] };
        }
        jn_dict_settle(m, d);
        push(m, (val){ .kind = V_DICT, .u.dict = d });
        return;
    }
    struct list *l = jn_list_new(m, i->c);
    l->n = i->c;
    if (i->c) memcpy(l->items, x->stack + x->n_stack - i->c, i->c * sizeof(val));
    x->n_stack -= i->c;
    push(m, jn_list_value(l, i->op == OP_LIST ? V_LIST : V_TUPLE));
}

static void concat(struct vm *m, uint32_t n)
{
    struct machine *x = m->machine;
    struct buf b;
    jn_buf_open(&b, m);
    for (uint32_t k = x->n_stack - n; k < x->n_stack; k++) jn_print_str(&b, x->stack[k]);
    jn_spend(m, b.n);
    x->n_stack -= n;
    push(m, jn_buf_value(&b, false));
}

static void push_slice(struct vm *m)
{
    struct machine *x = m->machine;
    val *parts = jn_heap_array(m, 3, sizeof *parts);
    memcpy(parts, x->stack + x->n_stack - 3, 3 * sizeof *parts);
    x->n_stack -= 3;
    push(m, (val){ .kind = V_SLICE, .u.slice = parts });
}

static void set_attribute(struct vm *m, val name)
{
    struct machine *x = m->machine;
    const val namespace = pop(x), v = pop(x);
    if (namespace.kind != V_NAMESPACE) jn_fail(m, "cannot assign attribute on non-namespace object");
    jn_dict_put(m, namespace.u.dict, name, v);
}

static void make_macro(struct vm *m, struct frame *frame, uint32_t id)
{
    struct macro *macro = jn_heap_take(m, sizeof *macro);
    *macro = (struct macro){ m->t->functions[id], frame };
    push(m, (val){ .kind = V_MACRO, .u.macro = macro });
}

/* Instructions that work on values alone. */
static void compute(struct vm *m, const struct insn *i)
{
    struct machine *x = m->machine;
    val b;
    switch ((enum op)i->op) {
    case OP_LIST:
    case OP_TUPLE:
    case OP_DICT: build(m, i); break;
    case OP_ATTR: *top(x) = jn_get_attr(m, *top(x), m->t->constants[i->c].u.s); break;
    case OP_ITEM:
        b = pop(x);
        *top(x) = jn_get_item(m, *top(x), b);
        break;
    case OP_SLICE: push_slice(m); break;
    case OP_CALL: call(m, &m->t->shapes[i->c]); break;
    case OP_FILTER:
    case OP_TEST: apply(m, i); break;
    case OP_NO_FILTER:
        jn_fail(m, "no %s is named '%.*s'", i->a ? "test" : "filter", (int)m->t->constants[i->c].u.s->n,
                m->t->constants[i->c].u.s->data);
    case OP_NOT: *top(x) = jn_v_bool(!jn_truth(m, *top(x))); break;
    case OP_NEG: *top(x) = jn_unary_minus(m, *top(x)); break;
    case OP_POS: *top(x) = jn_unary_plus(m, *top(x)); break;
    case OP_BINARY:
        b = pop(x);
        *top(x) = jn_binary(m, (enum binary)i->a, *top(x), b);
        break;
    case OP_CONCAT: concat(m, i->c); break;
    case OP_COMPARE:
        b = pop(x);
        *top(x) = jn_v_bool(jn_compare(m, (enum comparison)i->a, *top(x), b));
        break;
    case OP_UNDEFINED_ELSE:
        push(m, jn_v_undefined(m, "the inline if-expression evaluated to false and no else section was defined"));
        break;
    default: jn_fail(m, "an instruction is unknown");
    }
}

static void keep_or_pop(struct machine *x, struct activation *a, const struct insn *i, bool jump)
{
    if (jump)
        a->pc = i->c;
    else
        x->n_stack--;
}

/* Loops and jumps. */
static void control(struct vm *m, struct activation *a, const struct insn *i)
{
    struct machine *x = m->machine;
    struct loop *l = x->n_loops ? x->loops[x->n_loops - 1] : NULL;
    val v;
    switch ((enum op)i->op) {
    case OP_CHAIN:
        v = pop(x);
        if (jn_compare(m, (enum comparison)i->a, *top(x), v)) {
            *top(x) = v;
        } else {
            *top(x) = jn_v_bool(false);
            a->pc = i->c;
        }
        break;
    case OP_JUMP: a->pc = i->c; break;
    case OP_JUMP_FALSE:
        if (!jn_truth(m, pop(x))) a->pc = i->c;
        break;
    case OP_JUMP_FALSE_KEEP: keep_or_pop(x, a, i, !jn_truth(m, *top(x))); break;
    case OP_JUMP_TRUE_KEEP: keep_or_pop(x, a, i, jn_truth(m, *top(x))); break;
    case OP_FOR: open_loop(m, i); break;
    case OP_NEXT:
        if (jn_loop_next(m, l, &v))
            push(m, v);
        else
            a->pc = i->c;
        break;
    case OP_KEEP: keep(m, l); break;
    case OP_KEPT:
        x->n_loops--;
        push(m, jn_iterator_of(m, l->kept ? l->kept : jn_list_new(m, 0), "generator"));
        break;
    case OP_COMPLETED: l->completed = true; break;
    case OP_END_FOR:
        x->n_loops--;
        push(m, jn_v_bool(!l->completed));
        break;
    case OP_LOOP_VARIABLE: a->frame->slots[i->c] = (val){ .kind = V_LOOP, .u.loop = l }; break;
    case OP_DEFAULT:
        if (a->frame->slots[i->b].kind != V_MISSING) a->pc = i->c;
        break;
    default: compute(m, i); break;
    }
}

static bool step(struct vm *m, struct activation *a)
{
    struct machine *x = m->machine;
    const struct jinja_template *t = m->t;
    const struct insn *i = &a->f->code[a->pc];
    m->at = a->f->at[a->pc++];
    jn_spend(m, 0);
    switch ((enum op)i->op) {
    case OP_CONST: push(m, t->constants[i->c]); break;
    case OP_LOAD: push(m, load(m, frame_at(a->frame, i->a), i->c)); break;
    case OP_STORE: a->frame->slots[i->c] = pop(x); break;
    case OP_EXPORT: x->exported[i->b] = a->frame->slots[i->c]; break;
    case OP_PRINT:
        if (i->a & PRINT_STRING && top(x)->kind != V_STRING)
            jn_fail(m, "expected str, %s found", jn_type_name(*top(x)));
        print(m, pop(x));
        break;
    case OP_DATA: print(m, t->constants[i->c]); break;
    case OP_CAPTURE: capture(m); break;
    case OP_CAPTURED: push(m, captured(x)); break;
    case OP_DROP_CAPTURE: x->n_captures--; break;
    case OP_RECURSE: {
        const val items = pop(x);
        (void)activate(m, t->functions[i->c], a->frame, 0);
        push(m, items);
        break;
    }
    case OP_UNPACK: unpack(m, i->c); break;
    case OP_ENTER: enter_scope(m, a->frame, &t->scopes[i->c]); break;
    case OP_LEAVE:
        for (uint32_t k = 0; k < t->scopes[i->c].n; k++)
            a->frame->slots[t->scopes[i->c].loads[k].slot] = jn_v_missing();
        break;
    case OP_MACRO: make_macro(m, a->frame, i->c); break;
    case OP_NO_PARAMETER:
        if (a->frame->slots[i->b].kind == V_MISSING)
            a->frame->slots[i->b] = jn_v_undefined(m, "a parameter of the macro was not provided");
        break;
    case OP_SET_ATTR: set_attribute(m, t->constants[i->c]); break;
    case OP_BLOCK: (void)activate(m, t->functions[i->c], NULL, 0); break;
    case OP_RETURN:
        if (x->n_activations == 1) return false;
        x->n_activations--;
        push(m, captured(x));
        break;
    default: control(m, a, i); break;
    }
    return true;
}

void jn_run(struct vm *m)
{
    struct machine *x = m->machine;
    (void)activate(m, m->t->functions[0], NULL, 0);
    while (step(m, &x->activations[x->n_activations - 1])) {}
}
