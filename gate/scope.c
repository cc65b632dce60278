/* scope.c: see scope.h. */
#include "scope.h"

#include <string.h>

static const char *const names[] = { "inference", "embed", "metrics", "admin:read", "admin" };
enum { N_SCOPES = sizeof names / sizeof names[0] };

const char *scope_name(uint32_t scope)
{
    for (uint32_t i = 0; i < N_SCOPES; i++)
        if (scope == 1u << i) return names[i];
    return NULL;
}

uint32_t scope_named(const char *name, size_t n)
{
    for (uint32_t i = 0; i < N_SCOPES; i++)
        if (strlen(names[i]) == n && memcmp(names[i], name, n) == 0) return 1u << i;
    return 0;
}

uint32_t scope_closure(uint32_t scopes)
{
    return scopes & SCOPE_ADMIN ? scopes | SCOPE_ADMIN_READ | SCOPE_METRICS : scopes;
}
