/* scope.h: which variable a name means. Private to core/jinja.
 *
 * jinja2 decides this when it compiles: each block that has a scope (a template, a loop's body, a macro, ...) knows the
 * names that it loads and stores; a name that no scope around stores is looked up in the context, once, where the scope
 * is entered; a name that is stored here and known outside begins with the outer value. */
#ifndef CORE_JINJA_SCOPE_H
#define CORE_JINJA_SCOPE_H

#include "ast.h"

struct reference {
    uint32_t name, slot;
};

struct symbols {
    struct symbols *parent;
    struct function *f; /* whose variables these are */
    uint32_t level;
    struct reference *references;
    struct load *loads; /* by slot, in the order in which they came up */
    uint32_t *stores;   /* names */
    uint32_t n_references, cap_references, n_loads, cap_loads, n_stores, cap_stores;
};

struct symbols *jn_symbols_new(struct vm *m, struct symbols *parent, struct function *f);
/* The slot of a name and the function that has it; false: no scope knows it. */
bool jn_symbols_find(const struct symbols *s, uint32_t name, uint32_t *slot, struct function **f);
uint32_t jn_symbols_parameter(struct vm *m, struct symbols *s, uint32_t name);

/* What the parts of a node load and store, for the scope that the node opens. */
enum for_part { FOR_BODY, FOR_ELSE, FOR_TEST };
void jn_symbols_analyze(struct vm *m, struct symbols *s, struct node *n);
void jn_symbols_analyze_for(struct vm *m, struct symbols *s, struct node *n, enum for_part part);
void jn_symbols_analyze_list(struct vm *m, struct symbols *s, struct node *first);
/* Is the name read below `first` and its neighbours before it is stored there? */
bool jn_symbols_undeclared(struct node *first, uint32_t name);

#endif
