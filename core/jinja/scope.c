/* scope.c: which variable a name means, by the rules of jinja2's idtracking. */
#include "scope.h"

struct symbols *jn_symbols_new(struct vm *m, struct symbols *parent, struct function *f)
{
    struct symbols *s = jn_heap_take(m, sizeof *s);
    s->parent = parent;
    s->f = f;
    s->level = parent ? parent->level + 1 : 0;
    return s;
}

static struct symbols *copy(struct vm *m, const struct symbols *s)
{
    struct symbols *c = jn_heap_take(m, sizeof *c);
    *c = *s;
    c->references = NULL;
    c->loads = NULL;
    c->stores = NULL;
    c->cap_references = c->cap_loads = c->cap_stores = 0;
    c->references = jn_heap_grow(m, NULL, 0, &c->cap_references, s->n_references + 4, sizeof *c->references);
    c->loads = jn_heap_grow(m, NULL, 0, &c->cap_loads, s->n_loads + 4, sizeof *c->loads);
    c->stores = jn_heap_grow(m, NULL, 0, &c->cap_stores, s->n_stores + 4, sizeof *c->stores);
    if (s->n_references) memcpy(c->references, s->references, s->n_references * sizeof *c->references);
    if (s->n_loads) memcpy(c->loads, s->loads, s->n_loads * sizeof *c->loads);
    if (s->n_stores) memcpy(c->stores, s->stores, s->n_stores * sizeof *c->stores);
    return c;
}

static const struct reference *own(const struct symbols *s, uint32_t name)
{
    for (uint32_t i = 0; i < s->n_references; i++)
        if (s->references[i].name == name) return &s->references[i];
    return NULL;
}

bool jn_symbols_find(const struct symbols *s, uint32_t name, uint32_t *slot, struct function **f)
{
    for (; s; s = s->parent) {
        const struct reference *r = own(s, name);
        if (!r) continue;
        *slot = r->slot;
        *f = s->f;
        return true;
    }
    return false;
}

static bool stores(const struct symbols *s, uint32_t name)
{
    for (uint32_t i = 0; i < s->n_stores; i++)
        if (s->stores[i] == name) return true;
    return false;
}

static void add_store(struct vm *m, struct symbols *s, uint32_t name)
{
    if (stores(s, name)) return;
    s->stores = jn_heap_grow(m, s->stores, s->n_stores, &s->cap_stores, (size_t)s->n_stores + 1, sizeof *s->stores);
    s->stores[s->n_stores++] = name;
}

/* The function's variable for a name of this level. Two scopes of one level share it: they never live together. */
static uint32_t slot_of(struct vm *m, struct function *f, uint32_t level, uint32_t name)
{
    for (uint32_t i = 0; i < f->n_variables; i++)
        if (f->variables[i].level == level && f->variables[i].name == name) return i;
    f->variables = jn_heap_grow(m, f->variables, f->n_variables, &f->cap_variables, (size_t)f->n_variables + 1,
                                sizeof *f->variables);
    f->variables[f->n_variables] = (struct variable){ level, name };
    return f->n_variables++;
}

static void set_load(struct vm *m, struct symbols *s, struct load load)
{
    for (uint32_t i = 0; i < s->n_loads; i++) {
        if (s->loads[i].slot != load.slot) continue;
        s->loads[i] = load;
        return;
    }
    s->loads = jn_heap_grow(m, s->loads, s->n_loads, &s->cap_loads, (size_t)s->n_loads + 1, sizeof *s->loads);
    s->loads[s->n_loads++] = load;
}

static void set_reference(struct vm *m, struct symbols *s, struct reference r)
{
    for (uint32_t i = 0; i < s->n_references; i++) {
        if (s->references[i].name != r.name) continue;
        s->references[i] = r;
        return;
    }
    s->references = jn_heap_grow(m, s->references, s->n_references, &s->cap_references, (size_t)s->n_references + 1,
                                 sizeof *s->references);
    s->references[s->n_references++] = r;
}

static uint32_t define(struct vm *m, struct symbols *s, uint32_t name, struct load load)
{
    load.slot = slot_of(m, s->f, s->level, name);
    set_reference(m, s, (struct reference){ name, load.slot });
    set_load(m, s, load);
    return load.slot;
}

uint32_t jn_symbols_parameter(struct vm *m, struct symbols *s, uint32_t name)
{
    add_store(m, s, name);
    return define(m, s, name, (struct load){ .kind = LOAD_PARAM });
}

static struct load alias(const struct symbols *s, const struct function *f, uint32_t slot)
{
    return (struct load){ .kind = LOAD_ALIAS, .hops = (uint8_t)(s->f->depth - f->depth), .from = slot };
}

static void store(struct vm *m, struct symbols *s, uint32_t name)
{
    uint32_t slot;
    struct function *f;
    add_store(m, s, name);
    if (own(s, name)) return;
    if (s->parent && jn_symbols_find(s->parent, name, &slot, &f))
        (void)define(m, s, name, alias(s, f, slot));
    else
        (void)define(m, s, name, (struct load){ .kind = LOAD_UNDEFINED });
}

static void load(struct vm *m, struct symbols *s, uint32_t name)
{
    uint32_t slot;
    struct function *f;
    if (!jn_symbols_find(s, name, &slot, &f))
        (void)define(m, s, name, (struct load){ .kind = LOAD_RESOLVE, .from = name });
}

struct visitor {
    struct vm *m;
    struct symbols *s;
};

static void visit(void *context, struct node *n);

static void visit_list(struct visitor *v, struct node *first)
{
    for (struct node *n = first; n; n = n->next) visit(v, n);
}

/* What a branch stores may be stored or not: behind it the name begins with what it was outside. */
static void merge(struct visitor *v, struct symbols *const *branches)
{
    struct symbols *s = v->s;
    uint32_t *news = NULL, n_news = 0, cap = 0, slot;
    struct function *f;
    for (int b = 0; b < 3; b++)
        for (uint32_t i = 0; i < branches[b]->n_stores; i++) {
            if (stores(s, branches[b]->stores[i])) continue;
            news = jn_heap_grow(v->m, news, n_news, &cap, (size_t)n_news + 1, sizeof *news);
            news[n_news++] = branches[b]->stores[i];
        }
    for (int b = 0; b < 3; b++) {
        for (uint32_t i = 0; i < branches[b]->n_references; i++) set_reference(v->m, s, branches[b]->references[i]);
        for (uint32_t i = 0; i < branches[b]->n_loads; i++) set_load(v->m, s, branches[b]->loads[i]);
        for (uint32_t i = 0; i < branches[b]->n_stores; i++) add_store(v->m, s, branches[b]->stores[i]);
    }
    for (uint32_t i = 0; i < n_news; i++) {
        const struct reference *r = own(s, news[i]);
        struct load l = { .kind = LOAD_RESOLVE, .from = news[i] };
        if (s->parent && jn_symbols_find(s->parent, news[i], &slot, &f)) l = alias(s, f, slot);
        l.slot = r->slot;
        set_load(v->m, s, l);
    }
}

static void visit_if(struct visitor *v, struct node *n)
{
    struct symbols *before = v->s, *branches[3];
    struct node *const parts[] = { n->b, n->c, n->d };
    visit(v, n->a);
    for (int i = 0; i < 3; i++) {
        v->s = branches[i] = copy(v->m, before);
        visit_list(v, parts[i]);
    }
    v->s = before;
    merge(v, branches);
}

static void visit(void *context, struct node *n)
{
    struct visitor *v = context;
    switch ((enum node_kind)n->kind) {
    case N_NAME:
        if (n->op == USE_PARAM)
            (void)jn_symbols_parameter(v->m, v->s, n->id);
        else if (n->op == USE_STORE)
            store(v->m, v->s, n->id);
        else
            load(v->m, v->s, n->id);
        break;
    case N_NSREF: load(v->m, v->s, n->id); break;
    case N_IF: visit_if(v, n); break;
    case N_MACRO: store(v->m, v->s, n->id); break;
    case N_SET:
        visit(v, n->b);
        visit(v, n->a);
        break;
    case N_FOR: visit(v, n->b); break;
    case N_CALL_BLOCK:
        if (n->d) visit(v, n->d);
        break;
    case N_FILTER_BLOCK: visit(v, n->b); break;
    case N_WITH: visit_list(v, n->b); break;
    case N_SET_BLOCK: visit(v, n->a); break;
    case N_BLOCK: break;
    default: jn_each_child(n, visit, v); break;
    }
}

static void visit_parameters(struct visitor *v, struct node *target)
{
    if (target->kind == N_NAME)
        (void)jn_symbols_parameter(v->m, v->s, target->id);
    else
        for (struct node *n = target->a; n; n = n->next) visit_parameters(v, n);
}

void jn_symbols_analyze_list(struct vm *m, struct symbols *s, struct node *first)
{
    visit_list(&(struct visitor){ m, s }, first);
}

void jn_symbols_analyze(struct vm *m, struct symbols *s, struct node *n)
{
    struct visitor v = { m, s };
    switch ((enum node_kind)n->kind) {
    case N_MACRO:
    case N_CALL_BLOCK:
        visit_list(&v, n->a);
        visit_list(&v, n->b);
        visit_list(&v, n->c);
        break;
    case N_FILTER_BLOCK:
        visit_list(&v, n->c);
        visit(&v, n->b);
        break;
    case N_WITH:
        for (struct node *t = n->a; t; t = t->next) visit_parameters(&v, t);
        visit_list(&v, n->c);
        break;
    default: visit_list(&v, n->c); break;
    }
}

void jn_symbols_analyze_for(struct vm *m, struct symbols *s, struct node *n, enum for_part part)
{
    struct visitor v = { m, s };
    if (part != FOR_ELSE) visit_parameters(&v, n->a);
    if (part == FOR_TEST)
        visit(&v, n->e);
    else
        visit_list(&v, part == FOR_BODY ? n->c : n->d);
}

struct search {
    uint32_t name;
    bool read, stored;
};

static void search(void *context, struct node *n)
{
    struct search *s = context;
    if (s->read || s->stored || n->kind == N_BLOCK) return;
    if (n->kind == N_NAME) {
        if (n->id != s->name) return;
        if (n->op == USE_LOAD)
            s->read = true;
        else
            s->stored = true;
        return;
    }
    jn_each_child(n, search, s);
}

bool jn_symbols_undeclared(struct node *first, uint32_t name)
{
    struct search s = { .name = name };
    for (struct node *n = first; n; n = n->next) search(&s, n);
    return s.read;
}
