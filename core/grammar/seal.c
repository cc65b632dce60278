/* seal.c: what must be known of all nodes before a grammar is followed: which can be empty, which have a text at all,
 * and that none refers to itself at its left end. See node.h. */
#include "grammar/grammar_internal.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_PREPARED = 512 }; /* states */

static bool has(const struct grammar *g, node_id id, uint8_t flag) { return g->nodes[id].flags & flag; }

/* ---- which nodes have a text, and which the empty one ---------------------------------------------------------- */

static uint8_t all_parts(const struct grammar *g, const struct node *n)
{
    uint8_t all = NODE_NULLABLE | NODE_PRODUCTIVE;
    for (uint32_t i = 0; i < n->b; i++) all &= g->nodes[g->parts.list[n->a + i]].flags;
    return all;
}

static uint8_t any_part(const struct grammar *g, const struct node *n)
{
    uint8_t any = 0;
    for (uint32_t i = 0; i < n->b; i++) any |= g->nodes[g->parts.list[n->a + i]].flags;
    return any;
}

/* Which properties and families can come, from what is known of their values; has the object a text then? */
static bool judge_object(struct grammar *g, struct object *o)
{
    uint32_t required = 0, enabled = 0;
    bool families = false;
    for (uint32_t i = o->n; i-- > 0;) {
        struct property *p = &o->properties[i];
        p->enabled = has(g, p->value, NODE_PRODUCTIVE);
        if (p->required && !p->enabled) return false;
        p->required_from = required += p->required;
        p->enabled_from = enabled += p->enabled;
    }
    for (uint32_t i = 0; i < o->n_families; i++)
        families |= has(g, o->families[i].name, NODE_PRODUCTIVE) && has(g, o->families[i].value, NODE_PRODUCTIVE);
    return required <= o->max && (families || enabled >= o->min);
}

static bool judge_array(const struct grammar *g, const struct array *a)
{
    uint32_t n = 0;
    while (n < a->n_prefix && has(g, a->prefix[n], NODE_PRODUCTIVE)) n++;
    if (n == a->n_prefix && has(g, a->rest, NODE_PRODUCTIVE)) n = NODE_UNBOUNDED;
    return a->min <= a->max && n >= a->min;
}

static bool has_text(struct grammar *g, lang_id language)
{
    const enum lang_answer empty = lang_is_empty(g->langs, language);
    if (empty == LANG_UNKNOWN)
        (void)grammar_fail(g, WK_UNSUPPORTED, "an expression needs more than %d states to tell whether it has any text",
                           LANG_MAX_PROOF);
    return empty == LANG_NO;
}

static uint8_t judge(struct grammar *g, const struct node *n)
{
    switch ((enum node_kind)n->kind) {
    case OF_NOTHING: return 0;
    case OF_EMPTY: return NODE_NULLABLE | NODE_PRODUCTIVE;
    case OF_LITERAL:
    case OF_TOKEN:
    case OF_SEEN:
    case OF_NAMES: return NODE_PRODUCTIVE;
    case OF_TEXT:
        if (lang_accepts(g->langs, n->a)) return NODE_NULLABLE | NODE_PRODUCTIVE;
        return has_text(g, n->a) ? NODE_PRODUCTIVE : 0;
    case OF_STRING: return has_text(g, n->a) ? NODE_PRODUCTIVE : 0;
    case OF_SEQUENCE: return all_parts(g, n);
    case OF_ANY_OF: return any_part(g, n);
    case OF_REPEAT: return n->b ? g->nodes[n->a].flags : NODE_NULLABLE | NODE_PRODUCTIVE;
    case OF_RULE: return n->a ? g->nodes[n->a].flags : 0;
    case OF_OBJECT: return judge_object(g, &g->objects[n->a]) ? NODE_PRODUCTIVE : 0;
    case OF_ARRAY: return judge_array(g, &g->arrays[n->a]) ? NODE_PRODUCTIVE : 0;
    }
    return 0;
}

/* Flags are only ever gained, so this ends. Passes go both ways, since rules come before and behind their bodies. */
static void judge_all(struct grammar *g)
{
    bool changed = true;
    for (uint32_t pass = 0; changed && !g->status; pass++) {
        changed = false;
        for (uint32_t k = 1; k < g->n_nodes; k++) {
            struct node *n = &g->nodes[pass & 1 ? g->n_nodes - k : k];
            const bool leaf = n->kind == OF_TEXT || n->kind == OF_STRING;
            if (leaf && pass) continue;
            const bool list = n->kind == OF_SEQUENCE || n->kind == OF_ANY_OF;
            if (!langs_step(g->langs, 1 + (list ? n->b / 4 : n->kind == OF_OBJECT ? g->objects[n->a].n : 0))) return;
            const uint8_t flags = n->flags | judge(g, n);
            changed |= flags != n->flags;
            n->flags = flags;
        }
    }
}

/* ---- what can never be completed goes -----------------------------------------------------------------------------
 */

static void prune_object(struct grammar *g, struct object *o)
{
    uint32_t kept = 0;
    (void)judge_object(g, o);
    for (uint32_t i = 0; i < o->n_families; i++) {
        const struct family f = o->families[i];
        if (has(g, f.name, NODE_PRODUCTIVE) && has(g, f.value, NODE_PRODUCTIVE)) o->families[kept++] = f;
    }
    o->n_families = kept;
}

static void prune_array(const struct grammar *g, struct array *a)
{
    uint32_t n = 0;
    while (n < a->n_prefix && has(g, a->prefix[n], NODE_PRODUCTIVE)) n++;
    if ((n < a->n_prefix || !has(g, a->rest, NODE_PRODUCTIVE)) && a->max > n) a->max = n;
}

static void prune(struct grammar *g)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        struct node *n = &g->nodes[i];
        uint32_t kept = 0;
        if (!(n->flags & NODE_PRODUCTIVE)) continue; /* nothing leads there any more */
        switch ((enum node_kind)n->kind) {
        case OF_ANY_OF:
            for (uint32_t k = 0; k < n->b; k++) {
                const node_id part = g->parts.list[n->a + k];
                if (has(g, part, NODE_PRODUCTIVE)) g->parts.list[n->a + kept++] = part;
            }
            n->b = kept;
            break;
        case OF_REPEAT:
            if (!has(g, n->a, NODE_PRODUCTIVE)) *n = (struct node){ .kind = OF_EMPTY, .flags = n->flags };
            break;
        case OF_OBJECT: prune_object(g, &g->objects[n->a]); break;
        case OF_ARRAY: prune_array(g, &g->arrays[n->a]); break;
        default: break;
        }
    }
}

/* ---- left recursion
 * -------------------------------------------------------------------------------------------------- */

/* The k-th node that may begin at the left end of node n; NODE_NONE: there are no more. */
static node_id left_part(const struct grammar *g, const struct node *n, uint32_t k)
{
    switch ((enum node_kind)n->kind) {
    case OF_SEQUENCE:
        if (k >= n->b || (k && !has(g, g->parts.list[n->a + k - 1], NODE_NULLABLE))) return NODE_NONE;
        return g->parts.list[n->a + k];
    case OF_ANY_OF: return k < n->b ? g->parts.list[n->a + k] : NODE_NONE;
    case OF_REPEAT:
    case OF_RULE: return k ? NODE_NONE : n->a;
    default: return NODE_NONE;
    }
}

struct visit {
    node_id id;
    uint32_t next; /* part to look at */
};
enum { UNSEEN = 0, OPEN, DONE };

static void refuse_cycle(struct grammar *g, const struct visit *path, uint32_t n, node_id id)
{
    uint32_t i = n;
    while (i && path[i - 1].id != id) i--;
    for (i -= i != 0; i < n; i++) {
        const struct node *rule = &g->nodes[path[i].id];
        if (rule->kind != OF_RULE) continue;
        (void)grammar_fail(
            g, WK_UNSUPPORTED,
            "rule \"%.*s\" refers to itself at its left end (left recursion); write it with a repetition",
            (int)(rule->b < 80 ? rule->b : 80), g->text + rule->c);
        return;
    }
}

static void find_left_recursion(struct grammar *g)
{
    uint8_t *state = calloc(g->n_nodes, 1);
    struct visit *path = malloc(g->n_nodes * sizeof *path);
    if (!state || !path) (void)grammar_fail(g, WK_NO_MEMORY, "no memory for a grammar");
    for (uint32_t i = 1; i < g->n_nodes && !g->status; i++) {
        if (state[i] != UNSEEN || !has(g, i, NODE_PRODUCTIVE)) continue;
        uint32_t n = 1;
        path[0] = (struct visit){ i, 0 };
        state[i] = OPEN;
        while (n && !g->status) {
            struct visit *v = &path[n - 1];
            const node_id part = left_part(g, &g->nodes[v->id], v->next++);
            if (!part) {
                state[v->id] = DONE;
                n--;
            } else if (state[part] == OPEN) {
                refuse_cycle(g, path, n, part);
            } else if (state[part] == UNSEEN) {
                state[part] = OPEN;
                path[n++] = (struct visit){ part, 0 };
            }
        }
    }
    free(state);
    free(path);
}

/* ---- seal
 * -------------------------------------------------------------------------------------------------------------- */

static void check_rules(struct grammar *g)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        if (n->kind == OF_RULE && !n->a)
            (void)grammar_fail(g, WK_INVALID, "rule \"%.*s\" is not defined", (int)(n->b < 80 ? n->b : 80),
                               g->text + n->c);
    }
}

static int by_number(const void *a, const void *b)
{
    const uint32_t p = *(const uint32_t *)a, q = *(const uint32_t *)b;
    return (p > q) - (p < q);
}

/* Ids of token nodes: sorted, for each node and for all of them. */
static void list_tokens(struct grammar *g)
{
    for (uint32_t i = 1; i < g->n_nodes; i++) {
        const struct node *n = &g->nodes[i];
        if (n->kind != OF_TOKEN) continue;
        if (n->b) qsort(g->parts.list + n->a, n->b, sizeof(uint32_t), by_number);
        g->any_token |= n->c != 0;
        for (uint32_t k = 0; k < n->b; k++)
            if (!numbers_push(g->langs, &g->token_ids, g->parts.list[n->a + k]))
                (void)grammar_fail(g, WK_NO_MEMORY, "no memory for a grammar");
    }
    if (!g->token_ids.n) return;
    uint32_t kept = 0, *list = g->token_ids.list;
    qsort(list, g->token_ids.n, sizeof *list, by_number);
    for (uint32_t i = 0; i < g->token_ids.n; i++)
        if (!kept || list[kept - 1] != list[i]) list[kept++] = list[i];
    g->token_ids.n = kept;
}

/* Makes the states that masks will ask for first: who compiles waits for it, not who is given tokens. */
static wk_status prepare(struct grammar *g, const struct wk_err *err)
{
    uint32_t left = MAX_PREPARED;
    for (uint32_t i = 1; i < g->n_nodes && left; i++) {
        const struct node *n = &g->nodes[i];
        if ((n->kind != OF_TEXT && n->kind != OF_STRING) || n->a == LANG_EVERYTHING) continue;
        left -= lang_prepare(g->langs, n->a, left < LANG_MAX_PREPARED ? left : LANG_MAX_PREPARED);
    }
    return langs_status(g->langs, err);
}

wk_status grammar_seal(struct grammar *g, node_id root, const struct wk_err *err)
{
    const wk_status languages = langs_status(g->langs, err);
    if (!g->status && languages) return languages;
    if (!g->status && (!root || root >= g->n_nodes)) (void)grammar_fail(g, WK_INVALID, "a node could not be built");
    if (!g->status) check_rules(g);
    if (!g->status) judge_all(g);
    if (!g->status && langs_status(g->langs, NULL)) return langs_status(g->langs, err);
    if (!g->status && !has(g, root, NODE_PRODUCTIVE))
        (void)grammar_fail(g, WK_INVALID, "no text fits: every way through it leads to something that cannot end");
    if (!g->status) prune(g);
    if (!g->status) find_left_recursion(g);
    if (!g->status) list_tokens(g);
    g->root = root;
    if (!g->status) stack_limit_check(g);
    if (!g->status && langs_status(g->langs, NULL)) return langs_status(g->langs, err);
    if (!g->status && grammar_bytes(g) > GRAMMAR_MAX_BYTES)
        (void)grammar_fail(g, WK_UNSUPPORTED, "the compiled grammar has more than 16 MiB");
    if (g->status) return wk_fail(err, g->status, "%s", g->why);
    langs_built(g->langs);
    const wk_status prepared = prepare(g, err);
    atomic_store(&g->held, grammar_bytes(g));
    g->sealed = !prepared;
    return prepared;
}
