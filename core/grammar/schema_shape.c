/* schema_shape.c: an alternative's atoms brought together: one range of numbers, one language of strings, the schemas
 * of each item, each property and each family of further names. Also the question whether nothing is left. */
#include "grammar/schema_form.h"

#include <string.h>

enum {
    MAX_FAMILIES = 64, /* different families of further names in one object */
    NEGATED_NUMBERS = 512,
    EXPONENT_DIGITS = 24
};

/* ---- numbers -------------------------------------------------------------------------------------------- */

struct number_shape {
    const struct atom *min, *max, *values;
    bool integer;
    uint64_t units; /* 0: no multipleOf */
    int64_t exp;
};

/* A decimal as JSON text: its digits and an exponent. */
static const char *dec_text(struct schema_ctx *c, struct dec d)
{
    char *text = sch_take(c, (size_t)d.n + EXPONENT_DIGITS + 3, 1);
    size_t n = 0;
    if (!text) return NULL;
    if (d.negative) text[n++] = '-';
    const char *p = d.digits;
    for (uint32_t i = 0; i < d.n; i++, p++) {
        if (*p == '.') p++;
        text[n++] = *p;
    }
    if (!d.n) text[n++] = '0';
    if (d.n && d.exp) (void)snprintf(text + n, EXPONENT_DIGITS, "e%lld", (long long)d.exp);
    return text;
}

static bool tighter(const struct atom *a, const struct atom *than)
{
    if (!than) return true;
    const int order = dec_compare(a->bound, than->bound);
    if (!order) return a->exclusive && !than->exclusive;
    return a->kind == ATOM_MINIMUM ? order > 0 : order < 0;
}

static bool number_shape(struct schema_ctx *c, const struct alternative *a, struct number_shape *s)
{
    *s = (struct number_shape){ 0 };
    for (uint32_t i = 0; i < a->n; i++) {
        const struct atom *x = a->atom[i];
        if (x->negated) continue;
        if (x->kind == ATOM_MINIMUM && tighter(x, s->min)) s->min = x;
        if (x->kind == ATOM_MAXIMUM && tighter(x, s->max)) s->max = x;
        if (x->kind == ATOM_INTEGER) s->integer = true;
        if (x->kind == ATOM_NUMBERS && (!s->values || x->count < s->values->count)) s->values = x;
        if (x->kind == ATOM_MULTIPLE && !s->units) {
            s->units = x->units;
            s->exp = x->exp;
        } else if (x->kind == ATOM_MULTIPLE && !units_lcm(&s->units, &s->exp, x->units, x->exp))
            return sch_fail(c, WK_UNSUPPORTED, x->at, x->keyword, "the common multiple has too many digits");
    }
    return true;
}

static bool has_value(struct schema_ctx *c, const struct atom *values, struct dec d)
{
    for (uint32_t i = 0; i < values->count && sch_step(c, 1); i++)
        if (dec_compare(dec_of(values->values[i]->text), d) == 0) return true;
    return false;
}

/* Does the atom hold for this number? */
static bool holds(struct schema_ctx *c, const struct atom *x, struct dec d)
{
    switch (x->kind) {
    case ATOM_MINIMUM: return dec_compare(d, x->bound) > (x->exclusive ? 0 : -1);
    case ATOM_MAXIMUM: return dec_compare(d, x->bound) < (x->exclusive ? 0 : 1);
    case ATOM_INTEGER: return dec_is_integer(d) != x->negated;
    case ATOM_MULTIPLE: return dec_is_multiple(d, x->units, x->exp) != x->negated;
    default: return has_value(c, x, d) != x->negated;
    }
}

static lang_id number_between(struct schema_ctx *c, const struct lang_number *n, const struct atom *blame)
{
    wk_status status = WK_OK;
    char text[200] = "";
    const struct wk_err err = { text, sizeof text };
    const lang_id found = lang_number(c->langs, n, &status, &err);
    if (found == LANG_NONE && !status) return (void)sch_lang_failed(c, NULL, NULL), LANG_NONE;
    if (found == LANG_NONE)
        sch_fail(c, status ? status : WK_UNSUPPORTED, blame ? blame->at : NULL, blame ? blame->keyword : NULL, "%s",
                 text);
    return found;
}

lang_id own_language(struct schema_ctx *c, const char *pattern)
{
    wk_status status = WK_OK;
    char text[160] = "";
    const struct wk_err err = { text, sizeof text };
    const lang_id found = lang_regex(c->langs, pattern, strlen(pattern), LANG_WHOLE, &status, &err);
    if (found != LANG_NONE) return found;
    if (langs_status(c->langs, NULL))
        (void)sch_lang_failed(c, NULL, NULL); /* a limit: it is none of the pattern's */
    else
        sch_fail(c, WK_INTERNAL, NULL, NULL, "%s: %s", pattern, text);
    return LANG_NONE;
}

/* In draft 4 an integer is written as one: 1.0 is none. */
static lang_id written_as_integer(struct schema_ctx *c, lang_id numbers)
{
    return lang_and(c->langs, numbers, own_language(c, "[^.]*"));
}

/* Given numbers, of which all other atoms hold. Those with equally many places are words before the zeros that may
 * follow: thousands are one set. */
enum { LISTED_DIGITS = 17 };
struct listed {
    struct lang_word *word; /* [n] */
    uint32_t n;
};

/* A number written out; its places behind the point, or UINT32_MAX: zero, or too many digits, which is left to
 * lang_number. */
static uint32_t write_out(struct schema_ctx *c, struct dec d, struct lang_word *out)
{
    if (!d.n || d.exp > LISTED_DIGITS || d.exp < -LISTED_DIGITS || d.n > LISTED_DIGITS) return UINT32_MAX;
    char *text = sch_take(c, (size_t)d.n + LISTED_DIGITS + 4, 1);
    if (!text) return UINT32_MAX;
    const int64_t whole = (int64_t)d.n + d.exp; /* digits before the point */
    size_t n = 0;
    if (d.negative) text[n++] = '-';
    if (whole <= 0) {
        text[n++] = '0';
        text[n++] = '.';
        for (int64_t i = whole; i < 0; i++) text[n++] = '0';
    }
    const char *p = d.digits;
    for (uint32_t i = 0; i < d.n; i++, p++) {
        if (i && i == whole) text[n++] = '.';
        if (*p == '.') p++;
        text[n++] = *p;
    }
    for (int64_t i = 0; i < d.exp; i++) text[n++] = '0';
    *out = (struct lang_word){ text, n };
    return d.exp < 0 ? (uint32_t)-d.exp : 0;
}

/* The words of each number of places, and the zeros that may follow. */
static lang_id listed_language(struct schema_ctx *c, const struct listed *places)
{
    lang_id parts[LISTED_DIGITS + 1];
    for (uint32_t i = 0; i <= LISTED_DIGITS; i++) {
        char zeros[32];
        (void)snprintf(zeros, sizeof zeros, i ? "0{0,%u}" : "(?:\\.0{1,%u})?", LISTED_DIGITS - i);
        parts[i] = places[i].n ? lang_concat(c->langs, lang_words(c->langs, places[i].word, places[i].n),
                                             own_language(c, zeros))
                               : (lang_id)LANG_NOTHING;
    }
    return lang_any_of(c->langs, parts, LISTED_DIGITS + 1);
}

static lang_id number_list(struct schema_ctx *c, const struct alternative *a, const struct atom *values)
{
    struct listed places[LISTED_DIGITS + 1] = { { 0 } };
    lang_id all = LANG_NOTHING;
    for (uint32_t i = 0; i < values->count; i++) {
        const struct dec d = dec_of(values->values[i]->text);
        struct lang_word word;
        bool fits = sch_step(c, 1 + a->n);
        for (uint32_t k = 0; k < a->n && fits; k++) fits = a->atom[k] == values || holds(c, a->atom[k], d);
        if (!fits) continue;
        const uint32_t at = write_out(c, d, &word);
        if (c->status) return LANG_NONE;
        if (at != UINT32_MAX) {
            struct listed *list = &places[at];
            if (!list->word && !(list->word = sch_take(c, values->count - i, sizeof *list->word))) return LANG_NONE;
            list->word[list->n++] = word;
            continue;
        }
        const char *text = dec_text(c, d);
        const struct lang_number one = { .min = text, .max = text };
        all = lang_or(c->langs, all, text ? number_between(c, &one, values) : LANG_NONE);
    }
    all = lang_or(c->langs, all, listed_language(c, places));
    for (uint32_t k = 0; k < a->n && c->draft == DRAFT_4; k++)
        if (a->atom[k]->kind == ATOM_INTEGER && !a->atom[k]->negated) all = written_as_integer(c, all);
    if (all == LANG_NONE) (void)sch_lang_failed(c, values->at, values->keyword);
    return c->status ? LANG_NONE : all;
}

/* Every spelling of a number without an exponent, however many zeros end it. */
static lang_id spellings(struct schema_ctx *c, struct dec d, const struct atom *blame)
{
    enum { WRITTEN = 400 };
    if ((d.exp > 0 ? d.exp : -d.exp) + d.n > WRITTEN) {
        sch_fail(c, WK_UNSUPPORTED, blame->at, blame->keyword, "a number of more than %d digits", WRITTEN);
        return LANG_NONE;
    }
    char text[2 * WRITTEN + 32];
    size_t n = 0;
    const int64_t whole = (int64_t)d.n + d.exp; /* digits before the point */
    if (d.negative) text[n++] = '-';
    if (!d.n) n = (size_t)snprintf(text, sizeof text, "-?0");
    if (d.n && whole <= 0) n += (size_t)snprintf(text + n, sizeof text - n, "0\\.");
    for (int64_t i = whole; d.n && i < 0; i++) text[n++] = '0';
    const char *p = d.digits;
    for (uint32_t i = 0; i < d.n; i++, p++) {
        if (i && i == whole) n += (size_t)snprintf(text + n, sizeof text - n, "\\.");
        if (*p == '.') p++;
        text[n++] = *p;
    }
    for (int64_t i = 0; d.n && i < d.exp; i++) text[n++] = '0';
    n += (size_t)snprintf(text + n, sizeof text - n, d.n && d.exp < 0 ? "0*" : "(?:\\.0+)?");
    wk_status status = WK_OK;
    const lang_id found = lang_regex(c->langs, text, n, LANG_WHOLE, &status, NULL);
    if (found == LANG_NONE) sch_lang_failed(c, blame->at, blame->keyword);
    return found;
}

/* Numbers with whatever zeros may end them: a language of numbers need not hold them all, but none of them is to be
 * left where these numbers are taken away. */
static lang_id with_more_zeros(struct schema_ctx *c, lang_id numbers)
{
    const lang_id whole = own_language(c, "[^.]*");
    const lang_id zeros = own_language(c, "0*");
    const lang_id fraction = own_language(c, "(?:\\.0+)?");
    return lang_or(c->langs, lang_concat(c->langs, lang_and(c->langs, numbers, whole), fraction),
                   lang_concat(c->langs, lang_minus(c->langs, numbers, whole), zeros));
}

/* What the negated atoms take away. It is bounded like what it is taken from, so that digits are capped alike. */
static lang_id taken_away(struct schema_ctx *c, const struct atom *x, const struct lang_number *bounds)
{
    struct lang_number n = *bounds;
    lang_id all = LANG_NOTHING;
    if (x->kind == ATOM_INTEGER) n.integer = true;
    if (x->kind == ATOM_MULTIPLE) {
        char *text = sch_take(c, 48, 1);
        if (!text) return LANG_NONE;
        (void)snprintf(text, 48, "%llue%lld", (unsigned long long)x->units, (long long)x->exp);
        n.multiple_of = text;
    }
    if (x->kind == ATOM_INTEGER && c->draft == DRAFT_4) return written_as_integer(c, number_between(c, &n, x));
    if (x->kind != ATOM_NUMBERS) return with_more_zeros(c, number_between(c, &n, x));
    if (x->count > NEGATED_NUMBERS) {
        sch_fail(c, WK_UNSUPPORTED, x->at, x->keyword, "more than %d numbers are excluded", NEGATED_NUMBERS);
        return LANG_NONE;
    }
    for (uint32_t i = 0; i < x->count; i++) all = lang_or(c->langs, all, spellings(c, dec_of(x->values[i]->text), x));
    return all;
}

/* Numbers from 0 are all that have no sign, so they may keep their exponents; other bounded numbers are written
 * without. */
static lang_id not_negative(struct schema_ctx *c)
{
    const struct lang_number any = { 0 };
    return lang_and(c->langs, number_between(c, &any, NULL), own_language(c, "[^-].*"));
}

lang_id number_language(struct schema_ctx *c, const struct alternative *a)
{
    struct number_shape s;
    if (!number_shape(c, a, &s)) return LANG_NONE;
    if (s.values) return number_list(c, a, s.values);
    if (a->n == 1 && s.min && !s.min->exclusive && !s.min->bound.n) return not_negative(c);
    const struct atom *blame = s.min ? s.min : s.max ? s.max : a->n ? a->atom[0] : NULL;
    struct lang_number bounds = { .min_exclusive = s.min && s.min->exclusive,
                                  .max_exclusive = s.max && s.max->exclusive };
    if (s.min && !(bounds.min = dec_text(c, s.min->bound))) return LANG_NONE;
    if (s.max && !(bounds.max = dec_text(c, s.max->bound))) return LANG_NONE;
    struct lang_number n = bounds;
    n.integer = s.integer;
    if (s.units) {
        char *text = sch_take(c, 48, 1);
        if (!text) return LANG_NONE;
        (void)snprintf(text, 48, "%llue%lld", (unsigned long long)s.units, (long long)s.exp);
        n.multiple_of = text;
    }
    lang_id found = number_between(c, &n, blame);
    if (s.integer && c->draft == DRAFT_4) found = written_as_integer(c, found);
    bool plain = false; /* without exponents, which what is taken away does not spell */
    for (uint32_t i = 0; i < a->n && !c->status; i++) {
        if (!a->atom[i]->negated) continue;
        if (!plain) found = lang_and(c->langs, found, own_language(c, "[0-9.-]+"));
        plain = true;
        found = lang_minus(c->langs, found, taken_away(c, a->atom[i], &bounds));
    }
    return c->status ? LANG_NONE : found;
}

/* ---- strings -------------------------------------------------------------------------------------------- */

bool string_shape(struct schema_ctx *c, const struct alternative *a, struct string_shape *s)
{
    *s = (struct string_shape){ LANG_EVERYTHING, 0, LANG_UNBOUNDED };
    for (uint32_t i = 0; i < a->n; i++) {
        const struct atom *x = a->atom[i];
        if (x->kind == ATOM_MIN_LENGTH && x->count > s->min) s->min = x->count;
        if (x->kind == ATOM_MAX_LENGTH && x->count < s->max) s->max = x->count;
        if (x->kind != ATOM_LANGUAGE) continue;
        s->language =
            x->negated ? lang_minus(c->langs, s->language, x->language) : lang_and(c->langs, s->language, x->language);
    }
    if (s->min > s->max) s->language = LANG_NOTHING;
    return s->language != LANG_NONE || sch_lang_failed(c, a->n ? a->atom[0]->at : NULL, NULL);
}

lang_id strings_language(struct schema_ctx *c, const struct form *f)
{
    const uint32_t n = f->type[TYPE_STRING].n;
    lang_id *each = sch_take(c, n, sizeof *each);
    for (uint32_t i = 0; each && i < n; i++) {
        struct string_shape s;
        if (!string_shape(c, &f->type[TYPE_STRING].one[i], &s)) return LANG_NONE;
        if ((s.min || s.max != LANG_UNBOUNDED) && s.language != LANG_NOTHING)
            s.language = lang_and(c->langs, s.language, lang_length(c->langs, s.min, s.max));
        each[i] = s.language;
    }
    const lang_id all = each ? lang_any_of(c->langs, each, n) : (lang_id)LANG_NONE;
    if (all == LANG_NONE) sch_lang_failed(c, NULL, NULL);
    return all;
}

/* ---- arrays --------------------------------------------------------------------------------------------- */

/* What each item must fit, of which the counts of items are not part. */
static bool array_items(struct schema_ctx *c, const struct alternative *a, struct array_shape *s)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const struct atom *x = a->atom[i];
        const uint32_t length = x->kind == ATOM_ITEM ? x->count + 1 : x->kind == ATOM_ITEMS_FROM ? x->count : 0;
        if (length > s->n_prefix) s->n_prefix = length;
        if (x->kind == ATOM_MIN_ITEMS && x->count > s->min) s->min = x->count;
        if (x->kind == ATOM_MAX_ITEMS && x->count < s->max) s->max = x->count;
        if (x->kind == ATOM_UNIQUE) s->unique = x;
    }
    s->prefix = sch_take(c, s->n_prefix, sizeof *s->prefix);
    if (!s->prefix || !sch_step(c, (uint64_t)s->n_prefix * (1 + a->n))) return false;
    for (uint32_t i = 0; i < s->n_prefix; i++) s->prefix[i] = set_all(c);
    for (uint32_t k = 0; k < a->n; k++) {
        const struct atom *x = a->atom[k];
        if (x->kind == ATOM_ITEM) s->prefix[x->count] = set_and(c, s->prefix[x->count], x->child);
        if (x->kind != ATOM_ITEMS_FROM) continue;
        for (uint32_t i = x->count; i < s->n_prefix; i++) s->prefix[i] = set_and(c, s->prefix[i], x->child);
        s->rest = set_and(c, s->rest, x->child);
    }
    for (uint32_t i = 0; i < s->n_prefix && i < s->max; i++)
        if (set_is_empty(c, s->prefix[i])) s->max = i;
    if (s->max > s->n_prefix && set_is_empty(c, s->rest)) s->max = s->n_prefix;
    return !c->status;
}

/* A count of items that fit a schema: perhaps all items fit it, or none can. */
static bool array_count(struct schema_ctx *c, const struct atom *x, struct array_shape *s)
{
    const bool some = x->kind == ATOM_SOME_ITEMS;
    const struct atom **slot = some ? &s->some : &s->few;
    if (s->n_prefix <= x->count && some) {
        if (s->max < x->count + x->least || set_is_empty(c, set_and(c, s->rest, x->child))) {
            s->empty = true;
            return true;
        }
        if (set_is_empty(c, set_and(c, s->rest, set_not(c, x->child)))) {
            if (s->min < x->count + x->least) s->min = x->count + x->least;
            return true;
        }
    }
    if (*slot && some && (*slot)->count == x->count && (*slot)->child == x->child) {
        if (x->least > (*slot)->least) *slot = x;
        return true;
    }
    if (!*slot)
        *slot = x;
    else if (some && s->n_others < SHAPE_OTHERS)
        s->others[s->n_others++] = x;
    else
        s->more = x;
    return true;
}

bool array_shape(struct schema_ctx *c, const struct alternative *a, struct array_shape *s)
{
    *s = (struct array_shape){ .max = UINT32_MAX, .rest = set_all(c) };
    if (!array_items(c, a, s)) return false;
    for (uint32_t i = 0; i < a->n; i++)
        if ((a->atom[i]->kind == ATOM_SOME_ITEMS || a->atom[i]->kind == ATOM_FEW_ITEMS) &&
            !array_count(c, a->atom[i], s))
            return false;
    if (s->min > s->max) s->empty = true;
    return !c->status;
}

/* ---- objects -------------------------------------------------------------------------------------------- */

static bool is_listed(struct schema_ctx *c, const struct names *names, struct json_text name)
{
    if (!sch_step(c, 1 + names->n_more / 4 + (names->listed ? names->listed->n / 4 : 0))) return false;
    for (uint32_t i = 0; i < names->n_more; i++)
        if (text_equal(names->more[i], name)) return true;
    return names->listed && js_find(names->listed, name);
}

static bool names_have(struct schema_ctx *c, const struct names *names, struct json_text name)
{
    if (is_listed(c, names, name)) return false;
    return names->language == LANG_EVERYTHING || lang_matches(c->langs, names->language, name.data, name.len);
}

struct name_table {
    struct property_shape *property;
    uint32_t n, cap;
    uint32_t *slot;   /* [mask + 1] index + 1 */
    uint32_t *listed; /* [cap] the last atom by number + 1 that lists the name */
    uint32_t mask;
};

/* NULL: there is none, or (c->status) failed. */
static struct property_shape *name_find(struct schema_ctx *c, struct name_table *t, struct json_text name, bool add)
{
    uint64_t hash = 14695981039346656037u;
    for (size_t i = 0; i < name.len; i++) hash = (hash ^ (unsigned char)name.data[i]) * 1099511628211u;
    for (uint64_t at = hash ^ hash >> 32;; at++) {
        if (!sch_step(c, 1)) return NULL; /* names may be chosen so that they meet */
        uint32_t *slot = &t->slot[at & t->mask];
        if (*slot && text_equal(t->property[*slot - 1].name, name)) return &t->property[*slot - 1];
        if (*slot) continue;
        if (!add) return NULL;
        t->property[t->n].name = name;
        *slot = ++t->n;
        return &t->property[t->n - 1];
    }
}

static uint32_t names_in(const struct atom *x)
{
    if (x->kind == ATOM_PROPERTY || x->kind == ATOM_HAS) return 1;
    return x->names ? x->names->n_more + (x->names->listed ? x->names->listed->n : 0) : 0;
}

/* Every name that some atom mentions is declared: properties first, in order, then what is only required or lacking. */
static bool gather_names(struct schema_ctx *c, const struct alternative *a, struct name_table *t)
{
    uint64_t cap = 0, slots = 8;
    for (uint32_t i = 0; i < a->n; i++) cap += names_in(a->atom[i]);
    while (slots < 2 * cap) slots *= 2;
    if (!sch_step(c, 1 + cap)) return false;
    t->property = sch_take(c, cap, sizeof *t->property);
    t->slot = sch_take(c, slots, sizeof *t->slot);
    t->listed = sch_take(c, cap, sizeof *t->listed);
    t->mask = (uint32_t)(slots - 1);
    if (!t->property || !t->slot || !t->listed) return false;
    for (int round = 0; round < 3; round++)
        for (uint32_t i = 0; i < a->n; i++) {
            const struct atom *x = a->atom[i];
            if ((round == 0 && x->kind == ATOM_PROPERTY) || (round == 1 && x->kind == ATOM_HAS))
                (void)name_find(c, t, x->text, true);
            for (uint32_t k = 0; round == 2 && x->names && k < x->names->n_more; k++)
                (void)name_find(c, t, x->names->more[k], true);
            for (uint32_t k = 0; round == 2 && x->names && x->names->listed && k < x->names->listed->n; k++)
                (void)name_find(c, t, x->names->listed->member[k].key, true);
        }
    for (uint32_t i = 0; i < t->n; i++) t->property[i].value = set_all(c);
    return !c->status;
}

/* What names of the family `x`, the atom of number i, must fit. */
static bool apply_family(struct schema_ctx *c, const struct atom *x, uint32_t i, struct name_table *t)
{
    const struct names *names = x->names;
    for (uint32_t k = 0; k < names->n_more + (names->listed ? names->listed->n : 0); k++) {
        const struct json_text name = k < names->n_more ? names->more[k] : names->listed->member[k - names->n_more].key;
        const struct property_shape *p = name_find(c, t, name, false);
        if (!p) return false;
        t->listed[p - t->property] = i + 1;
    }
    for (uint32_t k = 0; k < t->n; k++) {
        struct property_shape *p = &t->property[k];
        if (!sch_step(c, 1 + p->name.len / 8)) return false;
        if (t->listed[k] != i + 1 &&
            (names->language == LANG_EVERYTHING || lang_matches(c->langs, names->language, p->name.data, p->name.len)))
            p->value = set_and(c, p->value, x->child);
    }
    return !c->status;
}

static bool apply_atoms(struct schema_ctx *c, const struct alternative *a, struct name_table *t, struct object_shape *s)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const struct atom *x = a->atom[i];
        struct property_shape *p =
            x->kind == ATOM_PROPERTY || x->kind == ATOM_HAS ? name_find(c, t, x->text, false) : NULL;
        if (c->status) return false;
        if (x->kind == ATOM_MIN_PROPERTIES && x->count > s->min) s->min = x->count;
        if (x->kind == ATOM_MAX_PROPERTIES && x->count < s->max) s->max = x->count;
        if (x->kind == ATOM_SOME_FAMILY) s->some = x;
        if (x->kind == ATOM_PROPERTY) p->value = set_and(c, p->value, x->child);
        if (x->kind == ATOM_HAS && x->negated) p->value = set_none(c);
        if (x->kind == ATOM_HAS && !x->negated) p->required = true;
        if (x->kind == ATOM_FAMILY && x->child->n && !apply_family(c, x, i, t)) return false;
    }
    return !c->status;
}

/* Cuts the families of further names by one atom's: inside of it they must fit its schema, too. */
static bool cut_families(struct schema_ctx *c, const struct atom *x, struct object_shape *s)
{
    const uint32_t before = s->n_families;
    for (uint32_t i = 0; i < before; i++) {
        struct family_shape *f = &s->family[i];
        const struct want_set *value = set_and(c, f->value, x->child);
        if (!sch_step(c, 16) || !value) return false;
        if (value == f->value) continue;
        /* Listed names are declared, so of further ones only the language decides. */
        const lang_id in = lang_and(c->langs, f->names, x->names->language);
        const lang_id out = lang_minus(c->langs, f->names, x->names->language);
        const bool some_in = lang_is_empty(c->langs, in) != LANG_YES,
                   some_out = lang_is_empty(c->langs, out) != LANG_YES;
        if (!some_in) continue;
        if (some_out && s->n_families == MAX_FAMILIES)
            return sch_fail(c, WK_UNSUPPORTED, x->at, x->keyword, "patterns overlap in more than %d ways",
                            MAX_FAMILIES);
        if (some_out) s->family[s->n_families++] = (struct family_shape){ out, f->value };
        s->family[i] = (struct family_shape){ in, value };
    }
    return true;
}

static bool gather_families(struct schema_ctx *c, const struct alternative *a, struct object_shape *s)
{
    s->family = sch_take(c, MAX_FAMILIES, sizeof *s->family);
    if (!s->family) return false;
    s->family[s->n_families++] = (struct family_shape){ LANG_EVERYTHING, set_all(c) };
    for (uint32_t i = 0; i < a->n; i++)
        if (a->atom[i]->kind == ATOM_FAMILY && !cut_families(c, a->atom[i], s)) return false;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < s->n_families; i++)
        if (!set_is_empty(c, s->family[i].value)) s->family[kept++] = s->family[i];
    s->n_families = kept;
    return !c->status;
}

/* Properties that can never come are counted out; the rest decides whether any object is left. */
static bool settle(struct schema_ctx *c, struct object_shape *s)
{
    uint32_t possible = 0, required = 0;
    for (uint32_t i = 0; i < s->n_properties; i++) {
        struct property_shape *p = &s->property[i];
        if (set_is_empty(c, p->value)) p->value = set_none(c);
        if (p->required && p->value == set_none(c)) s->empty = true;
        possible += p->value != set_none(c);
        required += p->required;
    }
    if (!s->n_families && possible < s->max) s->max = possible;
    if (required > s->min) s->min = required;
    if (s->min > s->max) s->empty = true;
    if (required == s->max) s->n_families = 0;
    return !c->status;
}

/* Is there a property, declared or not, that a SOME_FAMILY may speak of? */
static bool some_is_possible(struct schema_ctx *c, const struct atom *some, const struct object_shape *s)
{
    for (uint32_t i = 0; i < s->n_properties; i++) {
        const struct property_shape *p = &s->property[i];
        if (p->value != set_none(c) && names_have(c, some->names, p->name) &&
            !set_is_empty(c, set_and(c, p->value, some->child)))
            return true;
    }
    for (uint32_t i = 0; i < s->n_families; i++)
        if (lang_disjoint(c->langs, some->names->language, s->family[i].names) != LANG_YES &&
            !set_is_empty(c, set_and(c, s->family[i].value, some->child)))
            return true;
    return false;
}

bool object_shape(struct schema_ctx *c, const struct alternative *a, struct object_shape *s)
{
    struct name_table t = { 0 };
    *s = (struct object_shape){ .max = UINT32_MAX };
    if (!gather_names(c, a, &t) || !apply_atoms(c, a, &t, s) || !gather_families(c, a, s)) return false;
    s->property = t.property;
    s->n_properties = t.n;
    if (!settle(c, s)) return false;
    for (uint32_t i = 0; i < a->n && !s->empty; i++)
        if (a->atom[i]->kind == ATOM_SOME_FAMILY) s->empty = !some_is_possible(c, a->atom[i], s);
    return !c->status;
}

static bool add_case(struct schema_ctx *c, const struct alternative *a, const struct atom *without,
                     const struct atom *const *with, uint32_t n, struct form *out)
{
    const struct atom **atoms = sch_take(c, (size_t)a->n + n, sizeof *atoms);
    uint32_t used = 0;
    if (!atoms) return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (a->atom[i] != without) atoms[used++] = a->atom[i];
    for (uint32_t i = 0; i < n; i++) atoms[used++] = with[i];
    return form_add(c, out, TYPE_OBJECT, atoms, used);
}

/* The property that SOME_FAMILY speaks of is a declared one, or a further one. */
static bool cases_of(struct schema_ctx *c, const struct alternative *a, const struct object_shape *s, struct form *out)
{
    const struct atom *some = s->some;
    for (uint32_t i = 0; i < s->n_properties; i++) {
        const struct property_shape *p = &s->property[i];
        if (p->value == set_none(c) || !names_have(c, some->names, p->name)) continue;
        struct atom has = { .kind = ATOM_HAS, .at = some->at, .keyword = some->keyword, .text = p->name };
        struct atom fits = has;
        fits.kind = ATOM_PROPERTY;
        fits.child = some->child;
        const struct atom *with[2] = { atom_make(c, &has), atom_make(c, &fits) };
        if (!with[0] || !with[1] || !add_case(c, a, some, with, 2, out)) return false;
    }
    uint32_t optional = 0, required = 0;
    bool whole = true, any = false; /* is every further property one, or at least some? */
    for (uint32_t i = 0; i < s->n_properties; i++) {
        required += s->property[i].required;
        optional += !s->property[i].required && s->property[i].value != set_none(c);
    }
    for (uint32_t i = 0; i < s->n_families; i++) {
        const struct family_shape *f = &s->family[i];
        const bool inside = lang_contains(c->langs, some->names->language, f->names) == LANG_YES;
        const bool outside = lang_disjoint(c->langs, some->names->language, f->names) == LANG_YES;
        const struct want_set *value = set_and(c, f->value, some->child);
        const bool never = outside || set_is_empty(c, value);
        any = any || !never;
        whole = whole && inside && value == f->value;
    }
    if (!any || c->status) return !c->status;
    if (!whole || optional)
        return sch_fail(c, WK_UNSUPPORTED, some->at, some->keyword,
                        "not, oneOf or if ask for an object that breaks this by a property whose name is not listed");
    const struct atom most = {
        .kind = ATOM_MIN_PROPERTIES, .at = some->at, .keyword = some->keyword, .count = required + 1
    };
    const struct atom *with = atom_make(c, &most);
    return with && add_case(c, a, some, &with, 1, out);
}

bool object_cases(struct schema_ctx *c, const struct alternative *a, struct alternatives *out)
{
    enum { MAX_CASES = 256 };
    struct form done = { 0 };
    struct alternative *todo = sch_take(c, MAX_CASES, sizeof *todo);
    uint32_t n = 0;
    if (!todo) return false;
    todo[n++] = *a;
    while (n) {
        const struct alternative one = todo[--n];
        struct object_shape s;
        struct form cases = { 0 };
        if (!object_shape(c, &one, &s)) return false;
        if (s.empty) continue;
        if (s.some ? !cases_of(c, &one, &s, &cases) : !form_add(c, &done, TYPE_OBJECT, one.atom, one.n)) return false;
        const struct alternatives *next = &cases.type[TYPE_OBJECT];
        if (n + next->n > MAX_CASES)
            return sch_fail(c, WK_UNSUPPORTED, s.some->at, s.some->keyword, "its negation has more than %d cases",
                            MAX_CASES);
        for (uint32_t i = 0; i < next->n; i++) todo[n++] = next->one[i];
    }
    *out = done.type[TYPE_OBJECT];
    return true;
}

/* ---- is anything left? ---------------------------------------------------------------------------------- */

bool alternative_is_empty(struct schema_ctx *c, enum schema_type type, const struct alternative *a)
{
    if (!a->n || c->status) return false;
    struct string_shape string;
    struct array_shape array;
    struct object_shape object;
    lang_id number;
    switch (type) {
    case TYPE_BOOLEAN: return a->n > 1 && a->atom[0]->count != a->atom[1]->count;
    case TYPE_NUMBER:
        number = number_language(c, a);
        return number != LANG_NONE && lang_is_empty(c->langs, number) == LANG_YES;
    case TYPE_STRING:
        if (!string_shape(c, a, &string)) return false;
        if (string.min || string.max != LANG_UNBOUNDED)
            string.language = lang_and(c->langs, string.language, lang_length(c->langs, string.min, string.max));
        return lang_is_empty(c->langs, string.language) == LANG_YES;
    case TYPE_ARRAY: return array_shape(c, a, &array) && array.empty;
    case TYPE_OBJECT: return object_shape(c, a, &object) && object.empty;
    default: return false;
    }
}
