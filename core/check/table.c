/* table.c: the groups, in the order in which they run. */
#include <string.h>

#include "check/internal.h"

static const struct check_list *const lists[] = { &checks_static, &checks_load,   &checks_negotiation,
                                                  &checks_errors, &checks_quant,  &checks_architecture,
                                                  &checks_cuda,   &checks_memory, &checks_performance };
enum { LISTS = sizeof lists / sizeof lists[0] };

const char *check_group_name(enum check_group group)
{
    static const char *const names[CHECK_GROUPS] = { "static",       "load", "negotiation", "errors",     "quant",
                                                     "architecture", "cuda", "memory",      "performance" };
    return names[group];
}

const char *check_result_name(enum check_result result)
{
    static const char *const names[] = { "pass", "warn", "skip", "fail" };
    return names[result];
}

uint32_t check_count(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < LISTS; i++) n += lists[i]->n;
    return n;
}

/* The list of row i, which becomes the row within it. */
static const struct check_list *list_of(uint32_t *i)
{
    uint32_t l = 0;
    while (*i >= lists[l]->n) *i -= lists[l++]->n;
    return lists[l];
}

const struct check_def *check_at(uint32_t i)
{
    const struct check_list *list = list_of(&i);
    return &list->defs[i];
}

enum check_group check_group_of(uint32_t i) { return list_of(&i)->group; }

uint32_t check_find(const char *id)
{
    uint32_t i = 0;
    while (i < check_count() && strcmp(check_at(i)->id, id) != 0) i++;
    return i;
}
