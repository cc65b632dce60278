/* schema_form.c: sets of schemas, atoms, and the algebra of forms. See schema_form.h. */
#include "grammar/schema_form.h"

#include <string.h>

enum { TABLE = 1 << 12, PROOF_DEPTH = 6 /* schemas inside schemas that a question of emptiness looks at */ };

struct set_entry {
    struct set_entry *next;
    struct want_set set;
};
struct atom_entry {
    struct atom_entry *next;
    struct atom atom;
};
struct forms {
    struct set_entry *sets[TABLE];
    struct atom_entry *atoms[TABLE];
    uint32_t n_sets, n_atoms;
    struct want_set *all, *none;
    uint32_t proof; /* questions of emptiness inside which the compiler is */
    bool blocked;   /* a form was needed that is being made outside of the question */
};

static const struct js_value no_value = { .kind = JR_BOOL, .truth = false };

/* ---- sets ----------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t hash, uint64_t v)
{
    hash = (hash ^ v) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

static bool same_want(struct want a, struct want b)
{
    return a.v == b.v && a.is_value == b.is_value && a.negated == b.negated;
}

static struct want_set *intern_set(struct schema_ctx *c, const struct want *want, uint32_t n)
{
    uint64_t hash = n;
    for (uint32_t i = 0; i < n; i++) hash = mix(hash, want[i].v->order * 4u + want[i].is_value * 2u + want[i].negated);
    struct set_entry **slot = &c->forms->sets[hash % TABLE];
    for (struct set_entry *e = *slot; e; e = e->next) {
        uint32_t i = 0;
        if (!sch_step(c, 1)) return NULL;
        while (e->set.n == n && i < n && same_want(e->set.want[i], want[i])) i++;
        if (e->set.n == n && i == n) return &e->set;
    }
    struct set_entry *e = sch_take(c, 1, sizeof *e);
    struct want *copy = sch_take(c, n, sizeof *copy);
    if (!e || !copy) return NULL;
    if (++c->forms->n_sets > SCHEMA_MAX_NODES) {
        sch_fail(c, WK_UNSUPPORTED, n ? want[0].v : NULL, NULL, "more than %d different nodes: make the schema simpler",
                 SCHEMA_MAX_NODES);
        return NULL;
    }
    if (n) memcpy(copy, want, n * sizeof *copy);
    e->set.want = copy;
    e->set.n = n;
    e->next = *slot;
    *slot = e;
    return &e->set;
}

bool forms_open(struct schema_ctx *c)
{
    static const struct want never = { .v = &no_value };
    c->forms = sch_take(c, 1, sizeof *c->forms);
    if (!c->forms) return false;
    c->forms->all = intern_set(c, NULL, 0);
    c->forms->none = c->forms->all ? intern_set(c, &never, 1) : NULL;
    return c->forms->none != NULL;
}

struct want_set *set_all(struct schema_ctx *c) { return c->forms->all; }
struct want_set *set_none(struct schema_ctx *c) { return c->forms->none; }

struct want_set *set_of(struct schema_ctx *c, const struct js_value *v, bool is_value, bool negated)
{
    if (c->status) return NULL;
    if (!is_value && v->kind == JR_BOOL) return v->truth != negated ? c->forms->all : c->forms->none;
    if (!is_value && v->kind == JR_OBJECT && !v->n) return negated ? c->forms->none : c->forms->all;
    const struct want want = { v, is_value, negated };
    return intern_set(c, &want, 1);
}

struct want_set *set_not(struct schema_ctx *c, const struct want_set *a)
{
    if (!a || c->status) return NULL;
    if (!a->n) return c->forms->none;
    if (a == c->forms->none) return c->forms->all;
    return set_of(c, a->want[0].v, a->want[0].is_value, !a->want[0].negated);
}

struct want_set *set_and(struct schema_ctx *c, const struct want_set *a, const struct want_set *b)
{
    if (!a || !b || !sch_step(c, (uint64_t)a->n + b->n)) return NULL;
    if (a == b || !b->n) return (struct want_set *)(uintptr_t)a;
    if (!a->n) return (struct want_set *)(uintptr_t)b;
    if (a == c->forms->none || b == c->forms->none) return c->forms->none;
    struct want *both = sch_take(c, (size_t)a->n + b->n, sizeof *both);
    uint32_t n = 0;
    if (!both) return NULL;
    for (uint32_t i = 0, j = 0; i < a->n || j < b->n;) {
        const struct want *x = i < a->n ? &a->want[i] : NULL, *y = j < b->n ? &b->want[j] : NULL;
        const uint64_t kx = x ? x->v->order * 4ull + x->is_value * 2u + x->negated : UINT64_MAX;
        const uint64_t ky = y ? y->v->order * 4ull + y->is_value * 2u + y->negated : UINT64_MAX;
        if (x && y && kx != ky && x->v == y->v && x->is_value == y->is_value) return c->forms->none;
        both[n++] = kx <= ky ? *x : *y;
        i += kx <= ky;
        j += ky <= kx;
    }
    return intern_set(c, both, n);
}

static const struct form *make_form(struct schema_ctx *c, const struct want_set *set)
{
    const struct form *f = NULL;
    if (set == c->forms->none) return form_none(c);
    if (set->n == 1 && !set->want[0].negated)
        return set->want[0].is_value ? form_of_value(c, set->want[0].v) : form_of_schema(c, set->want[0].v);
    if (!set->n) return form_all(c);
    for (uint32_t i = 0; i < set->n; i++) {
        const struct want w = set->want[i];
        const struct form *one = set_form(c, set_of(c, w.v, w.is_value, false));
        if (one && w.negated) one = form_not(c, one);
        f = f && one ? form_and(c, f, one) : one;
        if (!f) return NULL;
    }
    return f;
}

const struct form *set_form(struct schema_ctx *c, const struct want_set *asked)
{
    struct want_set *set = (struct want_set *)(uintptr_t)asked;
    if (!set || c->status || c->forms->blocked) return NULL;
    if (set->state == FORM_MADE) return set->form;
    if (set->state == FORM_BEING_MADE) {
        if (set->proof < c->forms->proof)
            c->forms->blocked = true;
        else
            sch_fail(c, WK_INVALID, set->want[0].v, "$ref",
                     "an endless reference: the schema is itself before any value");
        return NULL;
    }
    if (c->depth >= SCHEMA_MAX_DEPTH && c->forms->proof) {
        c->forms->blocked = true;
        return NULL;
    }
    if (c->depth >= SCHEMA_MAX_DEPTH) {
        sch_fail(c, WK_UNSUPPORTED, set->want[0].v, NULL, "more than %d schemas applied in one place, each by another",
                 SCHEMA_MAX_DEPTH);
        return NULL;
    }
    set->state = FORM_BEING_MADE;
    set->proof = c->forms->proof;
    c->depth++;
    set->form = make_form(c, set);
    c->depth--;
    set->state = set->form ? FORM_MADE : FORM_ABSENT;
    return set->form;
}

bool set_is_empty(struct schema_ctx *c, const struct want_set *asked)
{
    struct want_set *set = (struct want_set *)(uintptr_t)asked;
    if (!set || c->status) return false;
    if (set == c->forms->none) return true;
    if (set->empty != SET_NOT_ASKED || c->forms->proof >= PROOF_DEPTH || c->forms->blocked)
        return set->empty == SET_EMPTY;
    bool empty = true;
    const uint32_t depth = c->depth;
    set->empty = SET_BEING_ASKED;
    c->forms->proof++;
    const struct form *f = set_form(c, set);
    for (int t = 0; f && t < N_TYPES && empty; t++)
        for (uint32_t i = 0; i < f->type[t].n && empty; i++)
            empty = alternative_is_empty(c, (enum schema_type)t, &f->type[t].one[i]);
    c->forms->proof--;
    c->depth = depth;
    if (!f) empty = false;
    /* An answer that was cut short by what is being made may come out better another time. */
    set->empty = empty ? SET_EMPTY : f ? SET_NOT_SHOWN_EMPTY : SET_NOT_ASKED;
    c->forms->blocked = false;
    return empty;
}

/* ---- atoms ---------------------------------------------------------------------------------------------- */

static bool same_names(const struct names *a, const struct names *b)
{
    if (a == b) return true;
    if (!a || !b || a->language != b->language || a->listed != b->listed || a->n_more != b->n_more) return false;
    for (uint32_t i = 0; i < a->n_more; i++)
        if (!text_equal(a->more[i], b->more[i])) return false;
    return true;
}

static bool same_values(const struct atom *a, const struct atom *b)
{
    for (uint32_t i = 0; a->kind == ATOM_NUMBERS && i < a->count; i++)
        if (!js_equal(a->values[i], b->values[i])) return false;
    return true;
}

static bool same_statement(const struct atom *a, const struct atom *b)
{
    return a->kind == b->kind && a->exclusive == b->exclusive && a->count == b->count && a->least == b->least &&
           text_equal(a->text, b->text) && a->child == b->child && a->units == b->units && a->exp == b->exp &&
           a->language == b->language && dec_compare(a->bound, b->bound) == 0 && same_names(a->names, b->names) &&
           same_values(a, b);
}

const struct atom *atom_make(struct schema_ctx *c, const struct atom *wanted)
{
    uint64_t hash = mix(wanted->kind, wanted->count);
    for (size_t i = 0; i < wanted->text.len; i++) hash = mix(hash, (unsigned char)wanted->text.data[i]);
    hash = mix(mix(hash, wanted->language), wanted->child && wanted->child->n ? wanted->child->want[0].v->order : 0);
    struct atom_entry **slot = &c->forms->atoms[hash % TABLE];
    for (struct atom_entry *e = *slot; e; e = e->next) {
        if (!sch_step(c, 1)) return NULL;
        if (e->atom.negated == wanted->negated && e->atom.silent == wanted->silent &&
            same_statement(&e->atom, wanted) && (wanted->kind != ATOM_UNIQUE || e->atom.at == wanted->at))
            return &e->atom; /* uniqueItems is refused by its place, so each has its own */
    }
    struct atom_entry *e = sch_take(c, 1, sizeof *e);
    if (!e || !sch_step(c, 1)) return NULL;
    e->atom = *wanted;
    e->atom.id = c->forms->n_atoms++;
    e->next = *slot;
    *slot = e;
    return &e->atom;
}

/* ---- alternatives --------------------------------------------------------------------------------------- */

static bool part_of(struct schema_ctx *c, const struct alternative *a, const struct alternative *b)
{
    if (a->n > b->n || !sch_step(c, 1 + a->n)) return false;
    for (uint32_t i = 0, j = 0; i < a->n; i++, j++) {
        while (j < b->n && b->atom[j]->id < a->atom[i]->id) j++;
        if (j == b->n || b->atom[j] != a->atom[i]) return false;
    }
    return true;
}

/* Adds an alternative, unless it lies in one that is there; takes out those that lie in it. Where properties are
 * evaluated by which schemas held, every alternative counts. */
static bool add(struct schema_ctx *c, struct alternatives *list, struct alternative a)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list->n && !c->unevaluated; i++)
        if (part_of(c, &list->one[i], &a)) return !c->status;
    if (!sch_step(c, 1 + list->n)) return false;
    for (uint32_t i = 0; i < list->n; i++)
        if (c->unevaluated || !part_of(c, &a, &list->one[i])) list->one[kept++] = list->one[i];
    if (c->status) return false;
    list->n = kept;
    if (list->n == list->cap) {
        const uint32_t cap = list->cap ? list->cap * 2 : 2;
        struct alternative *more = sch_take(c, cap, sizeof *more);
        if (!more) return false;
        if (list->n) memcpy(more, list->one, list->n * sizeof *more);
        list->one = more;
        list->cap = cap;
    }
    list->one[list->n++] = a;
    if (list->n <= SCHEMA_MAX_ALTERNATIVES) return true;
    return sch_fail(c, WK_UNSUPPORTED, a.n ? a.atom[0]->at : NULL, a.n ? a.atom[0]->keyword : NULL,
                    "more than %d alternatives come of allOf, anyOf, oneOf, not, if or dependencies here",
                    SCHEMA_MAX_ALTERNATIVES);
}

/* Do two atoms of one type exclude each other at first sight? Deeper questions are alternative_is_empty's. */
static bool clash(const struct atom *a, const struct atom *b)
{
    if (a->kind == ATOM_TRUTH && b->kind == ATOM_TRUTH) return a->count != b->count;
    if (a->negated != b->negated) return same_statement(a, b);
    return false;
}

/* All atoms of both, by id. False: failed, or (*none) nothing can fit. */
static bool join(struct schema_ctx *c, const struct alternative *a, const struct alternative *b,
                 struct alternative *out, bool *none)
{
    *none = false;
    if (!sch_step(c, 1 + 2 * ((uint64_t)a->n + b->n))) return false;
    if (!a->n || a == b) {
        *out = *b;
        return true;
    }
    if (!b->n) {
        *out = *a;
        return true;
    }
    const struct atom **atom = sch_take(c, (size_t)a->n + b->n, sizeof *atom);
    uint32_t n = 0;
    if (!atom) return false;
    const bool few = a->n <= 64 && b->n <= 64;
    for (uint32_t i = 0, j = 0; i < a->n || j < b->n;) {
        const bool first = j == b->n || (i < a->n && a->atom[i]->id <= b->atom[j]->id);
        const struct atom *next = first ? a->atom[i] : b->atom[j];
        if (first && j < b->n && a->atom[i] == b->atom[j]) j++;
        i += first;
        j += !first;
        for (uint32_t k = 0; k < n && few && (next->kind == ATOM_TRUTH || next->kind == ATOM_HAS || next->negated); k++)
            if (clash(atom[k], next)) *none = true;
        atom[n++] = next;
    }
    out->atom = atom;
    out->n = n;
    return true;
}

static struct alternatives product(struct schema_ctx *c, const struct alternatives *a, const struct alternatives *b)
{
    struct alternatives out = { 0 };
    for (uint32_t i = 0; i < a->n; i++)
        for (uint32_t j = 0; j < b->n; j++) {
            struct alternative both;
            bool none;
            if (!join(c, &a->one[i], &b->one[j], &both, &none)) return out;
            if (!none && !add(c, &out, both)) return out;
        }
    return out;
}

/* ---- forms ---------------------------------------------------------------------------------------------- */

static bool is_whole(const struct alternatives *a) { return a->n == 1 && !a->one[0].n; }

struct form *form_none(struct schema_ctx *c) { return sch_take(c, 1, sizeof(struct form)); }

struct form *form_all(struct schema_ctx *c)
{
    struct form *f = form_none(c);
    for (int t = 0; f && t < N_TYPES; t++)
        if (!add(c, &f->type[t], (struct alternative){ 0 })) return NULL;
    return f;
}

struct form *form_and(struct schema_ctx *c, const struct form *a, const struct form *b)
{
    struct form *f = a && b ? form_none(c) : NULL;
    for (int t = 0; f && t < N_TYPES; t++)
        f->type[t] = is_whole(&a->type[t])   ? b->type[t]
                     : is_whole(&b->type[t]) ? a->type[t]
                                             : product(c, &a->type[t], &b->type[t]);
    return c->status ? NULL : f;
}

struct form *form_or(struct schema_ctx *c, const struct form *a, const struct form *b)
{
    struct form *f = a && b ? form_none(c) : NULL;
    for (int t = 0; f && t < N_TYPES; t++) {
        for (uint32_t i = 0; i < a->type[t].n; i++)
            if (!add(c, &f->type[t], a->type[t].one[i])) return NULL;
        for (uint32_t i = 0; i < b->type[t].n; i++)
            if (!add(c, &f->type[t], b->type[t].one[i])) return NULL;
    }
    return f;
}

static int compare_ids(const struct atom *a, const struct atom *b) { return (a->id > b->id) - (a->id < b->id); }

bool form_add(struct schema_ctx *c, struct form *f, enum schema_type type, const struct atom *const *atoms, uint32_t n)
{
    const struct atom **sorted = sch_take(c, n, sizeof *sorted);
    uint32_t kept = 0;
    if (!sorted) return false;
    for (uint32_t i = 0; i < n; i++) {
        if (!atoms[i]) return false;
        uint32_t at = kept;
        while (at && compare_ids(sorted[at - 1], atoms[i]) > 0) at--;
        if (!sch_step(c, 1 + (kept - at) / 8)) return false;
        if (at && sorted[at - 1] == atoms[i]) continue;
        memmove(sorted + at + 1, sorted + at, (kept - at) * sizeof(void *));
        sorted[at] = atoms[i];
        kept++;
    }
    return add(c, &f->type[type], (struct alternative){ sorted, kept });
}

struct form *form_of_atoms(struct schema_ctx *c, enum schema_type type, const struct atom *const *atoms, uint32_t n)
{
    struct form *f = form_all(c);
    if (!f) return NULL;
    f->type[type] = (struct alternatives){ 0 };
    return form_add(c, f, type, atoms, n) ? f : NULL;
}

/* ---- not ------------------------------------------------------------------------------------------------ */

static bool negated_bound(const struct atom *a, struct atom *n)
{
    switch (a->kind) {
    case ATOM_MINIMUM:
    case ATOM_MAXIMUM:
        n->kind = a->kind == ATOM_MINIMUM ? ATOM_MAXIMUM : ATOM_MINIMUM;
        n->exclusive = !a->exclusive;
        return true;
    case ATOM_MIN_LENGTH:
    case ATOM_MIN_ITEMS:
    case ATOM_MIN_PROPERTIES:
        n->kind = (uint8_t)(a->kind + 1); /* each maximum follows its minimum */
        n->count = a->count - 1;          /* a minimum of 0 is no atom */
        return true;
    case ATOM_MAX_LENGTH:
    case ATOM_MAX_ITEMS:
    case ATOM_MAX_PROPERTIES:
        n->kind = (uint8_t)(a->kind - 1);
        n->count = a->count + 1;
        return true;
    default: return false;
    }
}

/* All values of the type of which the atom does not hold, in two atoms at most; 0: there are none. */
static uint32_t negate(struct schema_ctx *c, const struct atom *a, const struct atom *out[2])
{
    struct atom n = *a, there = { .at = a->at, .keyword = a->keyword, .silent = c->unevaluated };
    uint32_t used = 1;
    n.silent = c->unevaluated;
    switch (a->kind) {
    case ATOM_TRUTH: n.count = !a->count; break;
    case ATOM_ITEM:
        there.kind = ATOM_MIN_ITEMS;
        there.count = a->count + 1;
        used = 2;
        break;
    case ATOM_PROPERTY:
        there.kind = ATOM_HAS;
        there.text = a->text;
        used = 2;
        break;
    case ATOM_ITEMS_FROM:
        n.kind = ATOM_SOME_ITEMS;
        n.least = 1;
        break;
    case ATOM_SOME_ITEMS:
        n.kind = a->least == 1 ? ATOM_ITEMS_FROM : ATOM_FEW_ITEMS;
        n.least = a->least == 1 ? 0 : a->least - 1;
        break;
    case ATOM_FEW_ITEMS:
        n.kind = ATOM_SOME_ITEMS;
        n.least = a->least + 1;
        break;
    case ATOM_FAMILY: n.kind = ATOM_SOME_FAMILY; break;
    case ATOM_SOME_FAMILY: n.kind = ATOM_FAMILY; break;
    default:
        if (!negated_bound(a, &n)) n.negated = !a->negated;
    }
    if (n.child && n.kind != ATOM_FEW_ITEMS && !(n.kind == ATOM_SOME_ITEMS && a->kind == ATOM_FEW_ITEMS))
        n.child = set_not(c, a->child);
    if (n.child == set_none(c) && n.kind != ATOM_FAMILY && n.kind != ATOM_ITEMS_FROM) return 0;
    out[0] = atom_make(c, &n);
    out[1] = used == 2 ? atom_make(c, &there) : NULL;
    return used;
}

static struct alternatives not_one(struct schema_ctx *c, const struct alternative *a)
{
    struct form f = { 0 };
    for (uint32_t i = 0; i < a->n; i++) {
        const struct atom *parts[2];
        const uint32_t n = negate(c, a->atom[i], parts);
        if (n && !form_add(c, &f, TYPE_OBJECT, parts, n)) break;
    }
    return f.type[TYPE_OBJECT];
}

struct form *form_not(struct schema_ctx *c, const struct form *a)
{
    struct form *f = a ? form_all(c) : NULL;
    for (int t = 0; f && t < N_TYPES; t++)
        for (uint32_t i = 0; i < a->type[t].n; i++) {
            const struct alternatives rest = not_one(c, &a->type[t].one[i]);
            f->type[t] = product(c, &f->type[t], &rest);
            if (c->status) return NULL;
        }
    return f;
}

/* ---- minus ---------------------------------------------------------------------------------------------- */

static bool minus_one(struct schema_ctx *c, enum schema_type type, const struct alternatives *from,
                      const struct alternative *b, struct alternatives *out)
{
    struct alternatives rest = { 0 };
    bool have_rest = false;
    for (uint32_t i = 0; i < from->n; i++) {
        struct alternative both;
        bool none;
        if (!join(c, &from->one[i], b, &both, &none)) return false;
        if (none || alternative_is_empty(c, type, &both)) {
            if (!add(c, out, from->one[i])) return false;
            continue;
        }
        if (!have_rest) rest = not_one(c, b);
        have_rest = true;
        for (uint32_t j = 0; j < rest.n; j++) {
            if (!join(c, &from->one[i], &rest.one[j], &both, &none)) return false;
            if (!none && !alternative_is_empty(c, type, &both) && !add(c, out, both)) return false;
        }
    }
    return !c->status;
}

struct form *form_minus(struct schema_ctx *c, const struct form *a, const struct form *b)
{
    struct form *f = a && b ? form_none(c) : NULL;
    for (int t = 0; f && t < N_TYPES; t++) {
        f->type[t] = a->type[t];
        for (uint32_t i = 0; i < b->type[t].n; i++) {
            struct alternatives less = { 0 };
            if (!minus_one(c, (enum schema_type)t, &f->type[t], &b->type[t].one[i], &less)) return NULL;
            f->type[t] = less;
        }
    }
    return f;
}
