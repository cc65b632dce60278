/* merge.c: see merge.h. */
#include "tokenizer/merge.h"

#include <stdlib.h>

#include "tokenizer/vocab.h"

enum { LOOK_EVERY = 4096 }; /* words or pairs: about a millisecond */

void merger_clear(struct merger *m) { m->n = m->n_heap = 0; }

bool merger_add(struct merger *m, uint32_t at, uint32_t len, uint32_t id)
{
    if (!array_reserve((void **)&m->symbol, &m->cap, m->n + 1, sizeof *m->symbol)) return false;
    const uint32_t i = (uint32_t)m->n++;
    m->symbol[i] = (struct symbol){ at, len, i ? i - 1 : SYMBOL_END, SYMBOL_END, id };
    if (i) m->symbol[i - 1].next = i;
    return true;
}

static void sift_up(struct candidate *heap, size_t i, struct candidate c)
{
    for (; i && heap[(i - 1) / 2].key > c.key; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
    heap[i] = c;
}

static struct candidate pop(struct merger *m)
{
    struct candidate *heap = m->heap;
    const struct candidate top = heap[0], last = heap[--m->n_heap];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < m->n_heap; i = child) {
        if (child + 1 < m->n_heap && heap[child + 1].key < heap[child].key) child++;
        if (heap[child].key >= last.key) break;
        heap[i] = heap[child];
    }
    if (m->n_heap) heap[i] = last;
    return top;
}

static bool push_pair(struct merger *m, merge_rule *rule, const void *model, const char *text, uint32_t left)
{
    if (left == SYMBOL_END || m->symbol[left].next == SYMBOL_END) return true;
    const struct symbol *l = &m->symbol[left], *r = &m->symbol[l->next];
    uint32_t priority, id;
    if (!rule(model, text, l, r, &priority, &id)) return true;
    if (!array_reserve((void **)&m->heap, &m->heap_cap, m->n_heap + 1, sizeof *m->heap)) return false;
    sift_up(m->heap, m->n_heap++, (struct candidate){ (uint64_t)priority << 32 | left, l->len + r->len, id });
    return true;
}

bool merger_goes_on(struct merger *m)
{
    if (m->watch && ++m->work % LOOK_EVERY == 0 && m->watch->stop(m->watch->user)) m->stopped = true;
    return !m->stopped;
}

bool merger_run(struct merger *m, merge_rule *rule, const void *model, const char *text)
{
    for (uint32_t i = 0; i + 1 < m->n; i++)
        if (!merger_goes_on(m) || !push_pair(m, rule, model, text, i)) return false;
    while (m->n_heap) {
        if (!merger_goes_on(m)) return false;
        const struct candidate c = pop(m);
        const uint32_t left = (uint32_t)c.key;
        struct symbol *l = &m->symbol[left];
        if (!l->len || l->next == SYMBOL_END) continue;
        struct symbol *r = &m->symbol[l->next];
        if (l->len + r->len != c.len) continue;
        l->len = c.len;
        l->id = c.id;
        r->len = 0;
        l->next = r->next;
        if (l->next != SYMBOL_END) m->symbol[l->next].prev = left;
        if (!push_pair(m, rule, model, text, l->prev) || !push_pair(m, rule, model, text, left)) return false;
    }
    return true;
}

void merger_free(struct merger *m)
{
    free(m->symbol);
    free(m->heap);
}
