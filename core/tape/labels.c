/* labels.c: values get distinct names, also where a file asks for 65,536 of one base: a set by hash, with the next free
 * number at each base. */
#include <stdio.h>
#include <string.h>

#include "tape/internal.h"

struct entry {
    const char *name; /* NULL: empty slot */
    uint32_t next;    /* where the search for base.<number> goes on */
    bool taken;       /* false: only a base of numbered names */
};
struct labels {
    struct arena *arena;
    struct entry *slot;
    uint32_t n, cap; /* cap: a power of two */
};

static uint32_t hash(const char *s)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 16777619u;
    return h;
}

static struct entry *find(const struct labels *n, const char *name)
{
    for (uint32_t i = hash(name);; i++) {
        struct entry *e = &n->slot[i & (n->cap - 1)];
        if (!e->name || strcmp(e->name, name) == 0) return e;
    }
}

struct labels *labels_new(struct arena *a)
{
    struct labels *n = arena_take(a, 1, sizeof *n);
    if (!n) return NULL;
    n->arena = a;
    n->cap = 1024;
    n->slot = arena_take(a, n->cap, sizeof *n->slot);
    return n->slot ? n : NULL;
}

static bool enlarge(struct labels *n)
{
    struct labels wider = { n->arena, arena_take(n->arena, (size_t)n->cap * 2, sizeof *n->slot), n->n, n->cap * 2 };
    if (!wider.slot) return false;
    for (uint32_t i = 0; i < n->cap; i++)
        if (n->slot[i].name) *find(&wider, n->slot[i].name) = n->slot[i];
    *n = wider;
    return true;
}

static struct entry *enter(struct labels *n, const char *name)
{
    struct entry *e = find(n, name);
    if (e->name) return e;
    if (n->n + 1 > n->cap / 2) {
        if (!enlarge(n)) return NULL;
        e = find(n, name);
    }
    size_t len = strlen(name) + 1;
    char *copy = arena_take(n->arena, len, 1);
    if (!copy) return NULL;
    memcpy(copy, name, len);
    n->n++;
    *e = (struct entry){ .name = copy };
    return e;
}

bool labels_has(const struct labels *n, const char *name)
{
    const struct entry *e = find(n, name);
    return e->name && e->taken;
}

bool labels_take(struct labels *n, const char *name)
{
    struct entry *e = enter(n, name);
    if (e) e->taken = true;
    return e != NULL;
}

wk_status labels_free(struct labels *n, const char *base, bool numbered, char out[TAPE_NAME])
{
    int len = snprintf(out, TAPE_NAME, "%s", base);
    if (len < 0 || len >= TAPE_NAME) return WK_INVALID;
    if (!numbered && !labels_has(n, base)) return WK_OK;
    struct entry *e = enter(n, base);
    if (!e) return WK_NO_MEMORY;
    uint32_t k = e->next ? e->next : (numbered ? 1 : 2);
    for (;; k++) {
        len = snprintf(out, TAPE_NAME, numbered ? "%s%u" : "%s.%u", base, (unsigned)k);
        if (len < 0 || len >= TAPE_NAME) return WK_INVALID;
        if (!labels_has(n, out)) break;
    }
    find(n, base)->next = k; /* the name may still be refused: the next search begins here again */
    return WK_OK;
}
