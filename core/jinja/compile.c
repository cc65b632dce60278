/* compile.c: the syntax tree into instructions. */
#include "scope.h"

struct frame_of { /* a scope while its code is written */
    struct symbols *s;
    bool toplevel, soft; /* soft: inside of an if, where unknown filters fail only when they are reached */
};

struct compiler {
    struct vm *m;
    struct jinja_template *t;
    struct function *f;
    struct loop_of *loop; /* the innermost loop of this function */
    uint32_t captures;    /* open in this function */
};

struct loop_of {
    struct loop_of *outer;
    uint32_t next; /* its OP_NEXT: where continue goes */
    uint32_t captures;
    uint32_t *breaks, n_breaks, cap_breaks;
};

static uint32_t emit(struct compiler *c, uint32_t at, enum op op, unsigned a, unsigned b, uint32_t operand)
{
    struct function *f = c->f;
    f->code = jn_heap_grow(c->m, f->code, f->n, &f->cap, (size_t)f->n + 1, sizeof *f->code);
    f->at = jn_heap_grow(c->m, f->at, f->n, &f->cap_at, (size_t)f->n + 1, sizeof *f->at);
    f->code[f->n] = (struct insn){ (uint8_t)op, (uint8_t)a, (uint16_t)b, operand };
    f->at[f->n] = at + 1;
    return f->n++;
}

static void land(struct compiler *c, uint32_t jump) { c->f->code[jump].c = c->f->n; }

static uint32_t add_constant(struct compiler *c, val v)
{
    struct jinja_template *t = c->t;
    t->constants = jn_heap_grow(c->m, t->constants, t->n_constants, &t->cap_constants, (size_t)t->n_constants + 1,
                                sizeof *t->constants);
    t->constants[t->n_constants] = v;
    return t->n_constants++;
}

static uint32_t add_name(struct compiler *c, const struct str *name)
{
    return add_constant(c, (val){ .kind = V_STRING, .u.s = name });
}

static struct function *add_function(struct compiler *c, struct function *outer, uint32_t *id)
{
    struct jinja_template *t = c->t;
    struct function *f = jn_heap_take(c->m, sizeof *f);
    f->outer = outer;
    f->depth = outer ? outer->depth + 1 : 0;
    if (f->depth > JINJA_MAX_DEPTH) jn_fail(c->m, "macros are nested deeper than %d levels", JINJA_MAX_DEPTH);
    f->caller = f->kwargs = f->varargs = -1;
    t->functions = jn_heap_grow(c->m, t->functions, t->n_functions, &t->cap_functions, (size_t)t->n_functions + 1,
                                sizeof(struct function *));
    *id = t->n_functions;
    t->functions[t->n_functions++] = f;
    return f;
}

static struct frame_of inner(struct compiler *c, const struct frame_of *frame)
{
    return (struct frame_of){ .s = jn_symbols_new(c->m, frame->s, c->f) };
}

static struct frame_of soft(const struct frame_of *frame)
{
    struct frame_of f = *frame;
    f.soft = true;
    return f;
}

/* Copies the scope's loads: it is complete by now. */
static uint32_t add_scope(struct compiler *c, const struct symbols *s)
{
    struct jinja_template *t = c->t;
    t->scopes = jn_heap_grow(c->m, t->scopes, t->n_scopes, &t->cap_scopes, (size_t)t->n_scopes + 1, sizeof *t->scopes);
    struct load *loads = jn_heap_array(c->m, s->n_loads, sizeof *loads);
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_loads; i++) {
        if (s->loads[i].kind == LOAD_RESOLVE) t->reads[s->loads[i].from] = true;
        loads[n++] = s->loads[i];
    }
    t->scopes[t->n_scopes] = (struct scope){ loads, n };
    return t->n_scopes++;
}

static uint32_t enter(struct compiler *c, const struct frame_of *frame, uint32_t at)
{
    const uint32_t id = add_scope(c, frame->s);
    if (frame->s->n_loads) emit(c, at, OP_ENTER, 0, 0, id);
    return id;
}

static void leave(struct compiler *c, const struct frame_of *frame, uint32_t at, uint32_t id)
{
    if (frame->s->n_loads) emit(c, at, OP_LEAVE, 0, 0, id);
}

static void expression(struct compiler *c, const struct frame_of *frame, struct node *n);
static void statements(struct compiler *c, struct frame_of *frame, struct node *first);

static uint32_t expressions(struct compiler *c, const struct frame_of *frame, struct node *first)
{
    uint32_t count = 0;
    for (struct node *n = first; n; n = n->next, count++) expression(c, frame, n);
    return count;
}

/* --- Expressions --- */

static void load_name(struct compiler *c, const struct frame_of *frame, const struct node *n)
{
    uint32_t slot;
    struct function *f;
    if (!jn_symbols_find(frame->s, n->id, &slot, &f)) jn_fail_syntax(c->m, n->at, "a name is not known to its scope");
    emit(c, n->at, OP_LOAD, c->f->depth - f->depth, 0, slot);
}

/* The arguments of n; a further keyword, `caller`, is on the stack already if its name is given. */
static uint32_t arguments(struct compiler *c, const struct frame_of *frame, struct node *n, struct node *caller,
                          uint32_t (*push_caller)(struct compiler *, struct frame_of *, struct node *))
{
    struct jinja_template *t = c->t;
    struct shape s = { 0 };
    uint32_t named = caller != NULL;
    for (const struct node *k = n->c; k; k = k->next) named += k->kind == N_KEYWORD;
    val *names = jn_heap_array(c->m, named, sizeof *names);
    struct node *star = NULL, *stars = NULL;
    for (struct node *a = n->b; a; a = a->next) {
        if (a->kind == N_STAR) {
            star = a;
            continue;
        }
        expression(c, frame, a);
        s.n_pos++;
    }
    for (struct node *k = n->c; k; k = k->next) {
        if (k->kind == N_STARS) {
            stars = k;
            continue;
        }
        names[s.n_named++] = (val){ .kind = V_STRING, .u.s = k->name };
        expression(c, frame, k->a);
    }
    if (caller) {
        struct frame_of copy = *frame;
        push_caller(c, &copy, caller);
        names[s.n_named++] = jn_v_text(c->m, "caller");
    }
    if (star) expression(c, frame, star->a);
    if (stars) expression(c, frame, stars->a);
    s.names = names;
    s.star = star != NULL;
    s.stars = stars != NULL;
    t->shapes = jn_heap_grow(c->m, t->shapes, t->n_shapes, &t->cap_shapes, (size_t)t->n_shapes + 1, sizeof *t->shapes);
    t->shapes[t->n_shapes] = s;
    return t->n_shapes++;
}

static void filter_or_test(struct compiler *c, const struct frame_of *frame, struct node *n)
{
    const bool filter = n->kind == N_FILTER;
    if (n->a) expression(c, frame, n->a);
    const uint32_t shape = arguments(c, frame, n, NULL, NULL);
    const int id = filter ? jn_filter_find(n->name) : jn_test_find(n->name);
    if (id >= 0) {
        emit(c, n->at, filter ? OP_FILTER : OP_TEST, 0, (unsigned)id, shape);
        return;
    }
    if (!frame->soft)
        jn_fail_syntax(c->m, n->at, "no %s is named '%.*s'", filter ? "filter" : "test",
                       (int)(n->name->n < 60 ? n->name->n : 60), n->name->data);
    emit(c, n->at, OP_NO_FILTER, !filter, 0, add_name(c, n->name));
}

static void comparison(struct compiler *c, const struct frame_of *frame, const struct node *n)
{
    uint32_t ends = 0, *jumps = NULL, cap = 0;
    expression(c, frame, n->a);
    for (struct node *o = n->b; o; o = o->next) {
        expression(c, frame, o->a);
        if (!o->next) {
            emit(c, o->at, OP_COMPARE, o->op, 0, 0);
            break;
        }
        jumps = jn_heap_grow(c->m, jumps, ends, &cap, (size_t)ends + 1, sizeof *jumps);
        jumps[ends++] = emit(c, o->at, OP_CHAIN, o->op, 0, 0);
    }
    for (uint32_t i = 0; i < ends; i++) land(c, jumps[i]);
}

static void condition(struct compiler *c, const struct frame_of *outer, struct node *n)
{
    const struct frame_of frame = soft(outer);
    expression(c, &frame, n->b);
    const uint32_t no = emit(c, n->at, OP_JUMP_FALSE, 0, 0, 0);
    expression(c, &frame, n->a);
    const uint32_t end = emit(c, n->at, OP_JUMP, 0, 0, 0);
    land(c, no);
    if (n->c)
        expression(c, &frame, n->c);
    else
        emit(c, n->at, OP_UNDEFINED_ELSE, 0, 0, 0);
    land(c, end);
}

static void slice(struct compiler *c, const struct frame_of *frame, struct node *n)
{
    struct node *const parts[] = { n->a, n->b, n->c };
    for (int i = 0; i < 3; i++) {
        if (parts[i])
            expression(c, frame, parts[i]);
        else
            emit(c, n->at, OP_CONST, 0, 0, add_constant(c, jn_v_none()));
    }
    emit(c, n->at, OP_SLICE, 0, 0, 0);
}

static void mention(struct compiler *c, val v)
{
    if (v.kind == V_STRING && v.u.s->n < 100) jn_dict_put(c->m, c->t->mentioned, v, jn_v_bool(true));
}

static void item(struct compiler *c, const struct frame_of *frame, struct node *n)
{
    expression(c, frame, n->a);
    expression(c, frame, n->b);
    if (n->b->kind == N_CONST) mention(c, n->b->v);
    emit(c, n->at, OP_ITEM, 0, 0, 0);
}

static void both(struct compiler *c, const struct frame_of *frame, struct node *n, enum op jump)
{
    expression(c, frame, n->a);
    const uint32_t end = emit(c, n->at, jump, 0, 0, 0);
    expression(c, frame, n->b);
    land(c, end);
}

static void expression(struct compiler *c, const struct frame_of *frame, struct node *n)
{
    switch ((enum node_kind)n->kind) {
    case N_CONST: emit(c, n->at, OP_CONST, 0, 0, add_constant(c, n->v)); break;
    case N_NAME: load_name(c, frame, n); break;
    case N_LIST: emit(c, n->at, OP_LIST, 0, 0, expressions(c, frame, n->a)); break;
    case N_TUPLE: emit(c, n->at, OP_TUPLE, 0, 0, expressions(c, frame, n->a)); break;
    case N_DICT: emit(c, n->at, OP_DICT, 0, 0, expressions(c, frame, n->a) / 2); break;
    case N_ATTR:
        expression(c, frame, n->a);
        mention(c, (val){ .kind = V_STRING, .u.s = n->name });
        emit(c, n->at, OP_ATTR, 0, 0, add_name(c, n->name));
        break;
    case N_ITEM: item(c, frame, n); break;
    case N_SLICE: slice(c, frame, n); break;
    case N_CALL:
        expression(c, frame, n->a);
        if (n->b && n->b->kind == N_CONST) mention(c, n->b->v);
        emit(c, n->at, OP_CALL, 0, 0, arguments(c, frame, n, NULL, NULL));
        break;
    case N_FILTER:
    case N_TEST: filter_or_test(c, frame, n); break;
    case N_NOT:
    case N_NEG:
    case N_POS:
        expression(c, frame, n->a);
        emit(c, n->at, n->kind == N_NOT ? OP_NOT : n->kind == N_NEG ? OP_NEG : OP_POS, 0, 0, 0);
        break;
    case N_BINARY:
        expression(c, frame, n->a);
        expression(c, frame, n->b);
        emit(c, n->at, OP_BINARY, n->op, 0, 0);
        break;
    case N_CONCAT: emit(c, n->at, OP_CONCAT, 0, 0, expressions(c, frame, n->a)); break;
    case N_COMPARE: comparison(c, frame, n); break;
    case N_AND: both(c, frame, n, OP_JUMP_FALSE_KEEP); break;
    case N_OR: both(c, frame, n, OP_JUMP_TRUE_KEEP); break;
    case N_COND: condition(c, frame, n); break;
    default: jn_fail_syntax(c->m, n->at, "expected an expression");
    }
}

/* --- Statements --- */

static void store_name(struct compiler *c, const struct frame_of *frame, const struct node *n)
{
    uint32_t slot;
    struct function *f;
    if (!jn_symbols_find(frame->s, n->id, &slot, &f) || f != c->f)
        jn_fail_syntax(c->m, n->at, "a name is not known to its scope");
    emit(c, n->at, OP_STORE, 0, 0, slot);
    if (frame->toplevel) emit(c, n->at, OP_EXPORT, 0, n->id, slot);
}

/* Pops a value into a target. */
static void assign(struct compiler *c, const struct frame_of *frame, struct node *target)
{
    if (target->kind == N_TUPLE) {
        uint32_t count = 0;
        for (const struct node *n = target->a; n; n = n->next) count++;
        emit(c, target->at, OP_UNPACK, 0, 0, count);
        for (struct node *n = target->a; n; n = n->next) assign(c, frame, n);
    } else if (target->kind == N_NSREF) {
        load_name(c, frame, target);
        emit(c, target->at, OP_SET_ATTR, 0, 0, add_constant(c, target->v));
    } else {
        store_name(c, frame, target);
    }
}

static void capture(struct compiler *c, uint32_t at)
{
    emit(c, at, OP_CAPTURE, 0, 0, 0);
    c->captures++;
}

static void captured(struct compiler *c, uint32_t at)
{
    emit(c, at, OP_CAPTURED, 0, 0, 0);
    c->captures--;
}

/* The block's statements, whose output is captured, in the scope that it returns: the caller leaves it. */
static uint32_t captured_body(struct compiler *c, struct frame_of *body, struct node *n)
{
    jn_symbols_analyze(c->m, body->s, n);
    const uint32_t scope = enter(c, body, n->at);
    capture(c, n->at);
    statements(c, body, n->c);
    captured(c, n->at);
    return scope;
}

static void set_block(struct compiler *c, struct frame_of *frame, struct node *n)
{
    struct frame_of body = inner(c, frame);
    const uint32_t scope = captured_body(c, &body, n);
    if (n->b) expression(c, &body, n->b);
    assign(c, frame, n->a);
    leave(c, &body, n->at, scope);
}

static void filter_block(struct compiler *c, struct frame_of *frame, struct node *n)
{
    struct frame_of body = inner(c, frame);
    const uint32_t scope = captured_body(c, &body, n);
    expression(c, &body, n->b);
    emit(c, n->at, OP_PRINT, PRINT_STRING, 0, 0);
    leave(c, &body, n->at, scope);
}

static void with(struct compiler *c, struct frame_of *frame, struct node *n)
{
    struct frame_of body = inner(c, frame);
    jn_symbols_analyze(c->m, body.s, n);
    const uint32_t scope = enter(c, &body, n->at);
    for (struct node *target = n->a, *value = n->b; target; target = target->next, value = value->next) {
        expression(c, frame, value);
        assign(c, &body, target);
    }
    statements(c, &body, n->c);
    leave(c, &body, n->at, scope);
}

static void if_statement(struct compiler *c, struct frame_of *outer, struct node *n)
{
    struct frame_of frame = soft(outer);
    uint32_t *ends = NULL, n_ends = 0, cap = 0;
    struct node *next = n->c;
    for (struct node *branch = n; branch; branch = next, next = next ? next->next : NULL) {
        expression(c, &frame, branch->a);
        const uint32_t no = emit(c, branch->at, OP_JUMP_FALSE, 0, 0, 0);
        statements(c, &frame, branch->b);
        ends = jn_heap_grow(c->m, ends, n_ends, &cap, (size_t)n_ends + 1, sizeof *ends);
        ends[n_ends++] = emit(c, branch->at, OP_JUMP, 0, 0, 0);
        land(c, no);
    }
    statements(c, &frame, n->d);
    for (uint32_t i = 0; i < n_ends; i++) land(c, ends[i]);
}

/* The code of a macro or of a call block's body as a function of its own. */
static uint32_t function_body(struct compiler *c, struct frame_of *frame, struct node *n)
{
    struct compiler outer = *c;
    uint32_t id, count = 0;
    struct function *f = add_function(c, c->f, &id);
    c->f = f;
    c->loop = NULL;
    c->captures = 0;
    struct frame_of body = inner(c, frame);
    jn_symbols_analyze(c->m, body.s, n);
    for (const struct node *p = n->a; p; p = p->next) count++;
    val *parameters = jn_heap_array(c->m, count, sizeof *parameters);
    uint32_t *slots = jn_heap_array(c->m, count, sizeof *slots);
    static const char *const special[] = { "caller", "kwargs", "varargs" };
    int64_t *const places[] = { &f->caller, &f->kwargs, &f->varargs };
    for (int i = 0; i < 3; i++) {
        const uint32_t name = jn_name_id(c->t, jn_v_text(c->m, special[i]).u.s);
        bool own = false;
        for (const struct node *p = n->a; p; p = p->next) own |= p->id == name;
        if (own && i == 0) f->explicit_caller = true;
        if (!own && jn_symbols_undeclared(n->c, name)) *places[i] = jn_symbols_parameter(c->m, body.s, name);
    }
    jn_symbols_analyze(c->m, body.s, n);
    enter(c, &body, n->at);
    struct node *fallback = n->b;
    uint32_t defaults = 0;
    for (const struct node *d = n->b; d; d = d->next) defaults++;
    uint32_t i = 0;
    for (const struct node *p = n->a; p; p = p->next, i++) {
        struct function *in;
        (void)jn_symbols_find(body.s, p->id, &slots[i], &in);
        parameters[i] = (val){ .kind = V_STRING, .u.s = p->name };
        if (i + defaults >= count) {
            const uint32_t given = emit(c, p->at, OP_DEFAULT, 0, slots[i], 0);
            expression(c, &body, fallback);
            emit(c, p->at, OP_STORE, 0, 0, slots[i]);
            land(c, given);
            fallback = fallback->next;
        } else {
            emit(c, p->at, OP_NO_PARAMETER, 0, slots[i], 0);
        }
    }
    statements(c, &body, n->c);
    emit(c, n->at, OP_RETURN, 0, 0, 0);
    f->parameters = parameters;
    f->slots = slots;
    f->n_parameters = count;
    if (n->kind == N_MACRO) f->name = n->name;
    outer.t = c->t;
    *c = outer;
    return id;
}

static uint32_t push_macro(struct compiler *c, struct frame_of *frame, struct node *n)
{
    const uint32_t id = function_body(c, frame, n);
    emit(c, n->at, OP_MACRO, 0, 0, id);
    return id;
}

static void call_block(struct compiler *c, struct frame_of *frame, struct node *n)
{
    if (n->d) {
        expression(c, frame, n->d->a);
        emit(c, n->d->at, OP_CALL, 0, 0, arguments(c, frame, n->d, n, push_macro));
    } else {
        push_macro(c, frame, n);
        emit(c, n->at, OP_CALL, 0, 0, arguments(c, frame, &(struct node){ 0 }, NULL, NULL));
    }
    emit(c, n->at, OP_PRINT, PRINT_STRING, 0, 0);
}

static void check_loop_stores(void *context, struct node *n)
{
    struct compiler *c = context;
    if (n->kind == N_NAME && n->op == USE_STORE && jn_str_is(n->name, "loop"))
        jn_fail_syntax(c->m, n->at, "cannot assign to the special variable loop inside of a loop");
    jn_each_child(n, check_loop_stores, c);
}

/* The items that pass the loop's test, before the loop begins: for loops that know their length. */
static void kept_items(struct compiler *c, const struct frame_of *test, struct node *n)
{
    emit(c, n->at, OP_FOR, 0, 0, 0);
    const uint32_t next = emit(c, n->at, OP_NEXT, 0, 0, 0);
    assign(c, test, n->a);
    enter(c, test, n->at);
    expression(c, test, n->e);
    emit(c, n->at, OP_JUMP_FALSE, 0, 0, next);
    emit(c, n->at, OP_KEEP, 0, 0, 0);
    emit(c, n->at, OP_JUMP, 0, 0, next);
    land(c, next);
    emit(c, n->at, OP_KEPT, 0, 0, 0);
}

/* The loop over the iterable on the stack. */
static void loop_code(struct compiler *c, struct frame_of *frame, struct node *n)
{
    struct frame_of body = inner(c, frame), otherwise = inner(c, frame), test = inner(c, frame);
    const uint32_t loop = jn_name_id(c->t, jn_v_text(c->m, "loop").u.s);
    const bool extended = n->op || jn_symbols_undeclared(n->c, loop);
    struct loop_of here = { .outer = c->loop, .captures = c->captures };
    uint32_t slot = 0;
    if (extended) slot = jn_symbols_parameter(c->m, body.s, loop);
    jn_symbols_analyze_for(c->m, body.s, n, FOR_BODY);
    if (n->d) jn_symbols_analyze_for(c->m, otherwise.s, n, FOR_ELSE);
    if (n->e) jn_symbols_analyze_for(c->m, test.s, n, FOR_TEST);
    if (n->e && extended) kept_items(c, &test, n);
    emit(c, n->at, OP_FOR, n->op ? FOR_RECURSIVE : 0, 0, 0);
    here.next = emit(c, n->at, OP_NEXT, 0, 0, 0);
    assign(c, &body, n->a);
    if (n->e && !extended) {
        enter(c, &test, n->at);
        expression(c, &test, n->e);
        emit(c, n->at, OP_JUMP_FALSE, 0, 0, here.next);
    }
    if (extended) emit(c, n->at, OP_LOOP_VARIABLE, 0, 0, slot);
    const uint32_t scope = enter(c, &body, n->at);
    c->loop = &here;
    statements(c, &body, n->c);
    c->loop = here.outer;
    if (n->d) emit(c, n->at, OP_COMPLETED, 0, 0, 0);
    emit(c, n->at, OP_JUMP, 0, 0, here.next);
    land(c, here.next);
    for (uint32_t i = 0; i < here.n_breaks; i++) land(c, here.breaks[i]);
    leave(c, &body, n->at, scope);
    emit(c, n->at, OP_END_FOR, 0, 0, 0);
    const uint32_t completed = emit(c, n->at, OP_JUMP_FALSE, 0, 0, 0);
    if (n->d) {
        const uint32_t other = enter(c, &otherwise, n->at);
        statements(c, &otherwise, n->d);
        leave(c, &otherwise, n->at, other);
    }
    land(c, completed);
}

static void for_statement(struct compiler *c, struct frame_of *frame, struct node *n)
{
    check_loop_stores(c, n);
    expression(c, frame, n->b);
    if (!n->op) {
        loop_code(c, frame, n);
        return;
    }
    /* A recursive loop is a function of its iterable, which its own body may call. */
    struct compiler outer = *c;
    uint32_t id;
    struct function *f = add_function(c, c->f, &id);
    c->f = f;
    c->loop = NULL;
    c->captures = 0;
    loop_code(c, frame, n);
    emit(c, n->at, OP_RETURN, 0, 0, 0);
    *c = outer;
    emit(c, n->at, OP_RECURSE, 0, 0, id);
    emit(c, n->at, OP_PRINT, 0, 0, 0);
}

static void jump_out(struct compiler *c, struct node *n)
{
    struct loop_of *loop = c->loop;
    if (!loop) jn_fail_syntax(c->m, n->at, "%s outside of a loop", n->kind == N_BREAK ? "break" : "continue");
    for (uint32_t i = loop->captures; i < c->captures; i++) emit(c, n->at, OP_DROP_CAPTURE, 0, 0, 0);
    const uint32_t jump = emit(c, n->at, OP_JUMP, 0, 0, loop->next);
    if (n->kind != N_BREAK) return;
    loop->breaks = jn_heap_grow(c->m, loop->breaks, loop->n_breaks, &loop->cap_breaks, (size_t)loop->n_breaks + 1,
                                sizeof *loop->breaks);
    loop->breaks[loop->n_breaks++] = jump;
}

static void block(struct compiler *c, struct node *n)
{
    struct compiler outer = *c;
    uint32_t id;
    if (jn_dict_find_str(c->t->blocks, n->name)) jn_fail_syntax(c->m, n->at, "two blocks have one name");
    struct function *f = add_function(c, NULL, &id);
    jn_dict_put(c->m, c->t->blocks, (val){ .kind = V_STRING, .u.s = n->name }, jn_v_int(id));
    c->f = f;
    c->loop = NULL;
    c->captures = 0;
    struct frame_of frame = { .s = jn_symbols_new(c->m, NULL, f) };
    jn_symbols_analyze(c->m, frame.s, n);
    enter(c, &frame, n->at);
    statements(c, &frame, n->c);
    emit(c, n->at, OP_RETURN, 0, 0, 0);
    *c = outer;
    emit(c, n->at, OP_BLOCK, 0, 0, id);
    emit(c, n->at, OP_PRINT, 0, 0, 0);
}

static void statement(struct compiler *c, struct frame_of *frame, struct node *n)
{
    switch ((enum node_kind)n->kind) {
    case N_DATA: emit(c, n->at, OP_DATA, 0, 0, add_constant(c, n->v)); break;
    case N_PRINT:
        for (struct node *i = n->a; i; i = i->next) {
            expression(c, frame, i);
            emit(c, i->at, OP_PRINT, 0, 0, 0);
        }
        break;
    case N_IF: if_statement(c, frame, n); break;
    case N_FOR: for_statement(c, frame, n); break;
    case N_SET:
        expression(c, frame, n->b);
        assign(c, frame, n->a);
        break;
    case N_SET_BLOCK: set_block(c, frame, n); break;
    case N_MACRO:
        push_macro(c, frame, n);
        store_name(c, frame, n);
        break;
    case N_CALL_BLOCK: call_block(c, frame, n); break;
    case N_FILTER_BLOCK: filter_block(c, frame, n); break;
    case N_WITH: with(c, frame, n); break;
    case N_BLOCK: block(c, n); break;
    case N_BREAK:
    case N_CONTINUE: jump_out(c, n); break;
    default: jn_fail_syntax(c->m, n->at, "expected a statement");
    }
}

static void statements(struct compiler *c, struct frame_of *frame, struct node *first)
{
    for (struct node *n = first; n; n = n->next) statement(c, frame, n);
}

void jn_compile(struct jinja_template *t, struct node *body)
{
    struct compiler c = { .m = &t->m, .t = t };
    uint32_t id;
    c.f = add_function(&c, NULL, &id);
    struct frame_of frame = { .s = jn_symbols_new(c.m, NULL, c.f), .toplevel = true };
    jn_symbols_analyze_list(c.m, frame.s, body);
    enter(&c, &frame, 0);
    statements(&c, &frame, body);
    emit(&c, t->n, OP_RETURN, 0, 0, 0);
}
