/* vm.h: the state of a render. Private to core/jinja. */
#ifndef CORE_JINJA_VM_H
#define CORE_JINJA_VM_H

#include "ast.h"

/* The variables of one run of a function. Macros keep the frame that they were made in. */
struct frame {
    const struct function *f;
    struct frame *outer;
    val slots[];
};

struct loop {
    struct iter it;
    int64_t index0;
    val before, current, after; /* after: looked at already; V_MISSING: not */
    val changed;                /* what loop.changed() saw last; V_MISSING: nothing */
    bool ended, completed;
    uint32_t depth0;
    const struct function *recurse; /* NULL: not recursive */
    struct frame *outer;            /* of recurse */
    struct list *kept;
};

struct activation {
    const struct function *f;
    struct frame *frame;
    uint32_t pc, depth0;
};

struct machine {
    val *stack;
    uint32_t n_stack, cap_stack;
    struct loop **loops;
    uint32_t n_loops, cap_loops;
    struct buf *captures; /* the last one is printed to; the first is the output */
    uint32_t n_captures, cap_captures;
    struct activation activations[JINJA_MAX_DEPTH + 1];
    uint32_t n_activations;
    val *context;  /* of each name: what the caller gave, or V_MISSING */
    val *exported; /* of each name: what the template's top level has set */
};

bool jn_loop_next(struct vm *m, struct loop *l, val *out);
void jn_run(struct vm *m);

#endif
