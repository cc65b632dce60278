/* scope.h: what a caller may do. A route asks for one scope; a key or a token has a set of them. Nothing is implied but
 * what scope_closure says. */
#ifndef GATE_SCOPE_H
#define GATE_SCOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum gate_scope {
    SCOPE_INFERENCE = 1u << 0,  /* text and its jobs; what belongs to them: tokens, renderings, one's own jobs */
    SCOPE_EMBED = 1u << 1,      /* embeddings, scores */
    SCOPE_METRICS = 1u << 2,    /* /metrics */
    SCOPE_ADMIN_READ = 1u << 3, /* everybody's jobs; what /admin/ shows */
    SCOPE_ADMIN = 1u << 4,      /* what changes the worker: commit, shutdown, /admin/ */
    SCOPE_ALL = (1u << 5) - 1
};

/* "inference", "embed", "metrics", "admin:read", "admin"; NULL: not one scope. */
const char *scope_name(uint32_t scope);
/* 0: there is none of this name, which has n bytes. */
uint32_t scope_named(const char *name, size_t n);
/* With what the set implies: admin implies admin:read and metrics. */
uint32_t scope_closure(uint32_t scopes);

#endif
