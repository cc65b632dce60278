/* parse.h: what the parser's two files share. Private to core/jinja. */
#ifndef CORE_JINJA_PARSE_H
#define CORE_JINJA_PARSE_H

#include "ast.h"

struct parser {
    struct vm *m;
    struct jinja_template *t;
    struct lexer *l;
    struct token now, ahead;
    bool looked;
    uint32_t depth;
};

/* A list of nodes under construction. */
struct nodes {
    struct node *first, *last;
    uint32_t depth;
};

static inline void deep(struct parser *p, uint32_t depth)
{
    if (depth > JINJA_MAX_DEPTH) jn_fail_syntax(p->m, p->now.at, "nested deeper than %d levels", JINJA_MAX_DEPTH);
}

static inline void enter(struct parser *p) { deep(p, ++p->depth); }
static inline void leave(struct parser *p) { p->depth--; }

static inline struct node *make(struct parser *p, enum node_kind kind, uint32_t at)
{
    struct node *n = jn_heap_take(p->m, sizeof *n);
    n->kind = (uint8_t)kind;
    n->at = at;
    n->depth = 1;
    return n;
}

static inline void deepen(struct parser *p, struct node *n, uint32_t below)
{
    if (below + 1 <= n->depth) return;
    deep(p, below + 1);
    n->depth = (uint16_t)(below + 1);
}

static inline struct node *child(struct parser *p, struct node *n, struct node *below)
{
    if (below) deepen(p, n, below->depth);
    return below;
}

static inline void append(struct nodes *l, struct node *n)
{
    if (l->last)
        l->last->next = n;
    else
        l->first = n;
    l->last = n;
    if (n->depth > l->depth) l->depth = n->depth;
}

static inline struct node *children(struct parser *p, struct node *n, const struct nodes *l)
{
    deepen(p, n, l->depth);
    return l->first;
}

static inline void advance(struct parser *p)
{
    p->now = p->looked ? p->ahead : jn_lex_next(p->l);
    p->looked = false;
}

static inline struct token look(struct parser *p)
{
    if (!p->looked) p->ahead = jn_lex_next(p->l);
    p->looked = true;
    return p->ahead;
}

static inline bool is(const struct parser *p, enum token_kind kind) { return p->now.kind == kind; }

static inline bool token_is_name(const struct token *t, const char *name)
{
    return t->kind == T_NAME && t->n == strlen(name) && memcmp(t->text, name, t->n) == 0;
}

static inline bool is_name(const struct parser *p, const char *name) { return token_is_name(&p->now, name); }

static inline bool skip(struct parser *p, enum token_kind kind)
{
    if (!is(p, kind)) return false;
    advance(p);
    return true;
}

static inline bool skip_name(struct parser *p, const char *name)
{
    if (!is_name(p, name)) return false;
    advance(p);
    return true;
}

_Noreturn static inline void unexpected(struct parser *p, const char *expected)
{
    jn_fail_syntax(p->m, p->now.at, "expected %s, got %s", expected, jn_token_words(p->m, &p->now));
}

static inline struct token expect(struct parser *p, enum token_kind kind, const char *what)
{
    const struct token t = p->now;
    if (!is(p, kind)) unexpected(p, what);
    advance(p);
    return t;
}

static inline const struct str *token_str(struct parser *p, const struct token *t)
{
    return jn_str_constant(p->m, t->text, t->n, JINJA_TEMPLATE).u.s;
}

/* Expressions: parse.c */

struct node *jn_parse_expression(struct parser *p);
/* Expressions with commas between. targets: names to assign to, namespaces: a.b among them; conditions: `a if b` may
 * stand here; end_name: a word that ends it, or NULL; parentheses: they are there, so that () is a tuple. */
struct node *jn_parse_tuple(struct parser *p, bool targets, bool conditions, const char *end_name, bool parentheses,
                            bool namespaces);
/* Filters behind n, which may be NULL: a captured text. The first needs no '|' if `begun`. */
struct node *jn_parse_filters(struct parser *p, struct node *n, bool begun);
struct node *jn_parse_variable(struct parser *p, const struct token *t, enum use use);

#endif
