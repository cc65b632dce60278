/* number.c: the texts of JSON numbers between bounds, as a language. Bounds are compared digit by digit, so they are
 * exact however many digits they have. See lang_number in lang.h. */
#include "grammar/lang_internal.h"

#include <string.h>

enum {
    MAX_DIGITS = 400, /* of a bound, on each side of the point */
    INTEGER_DIGITS = 20,
    FRACTION_DIGITS = 17,
    EXPONENT_DIGITS = 3,
    MAX_DIVISOR_DIGITS = 9
};

/* A number: its integer part without leading zeros (but "0") and its fraction without trailing ones. */
struct decimal {
    bool negative; /* never for zero */
    uint32_t n_integer, n_fraction;
    uint8_t integer[MAX_DIGITS + 1], fraction[MAX_DIGITS + 1];
};

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* A number's text as its digits and the place of the point among them. */
struct digits {
    uint8_t list[2 * MAX_DIGITS + 2];
    uint32_t n;
    int64_t point; /* the value is 0.list times 10^point */
};

/* Takes digits up to something else. Leading zeros do not count. False: too many. */
static bool take_digits(const char **text, struct digits *d, bool integer)
{
    for (; is_digit(**text); (*text)++) {
        if (integer && (d->n || **text != '0')) d->point++;
        if (!integer && !d->n && **text == '0') d->point--;
        if (!d->n && **text == '0') continue;
        if (d->n == sizeof d->list) return false;
        d->list[d->n++] = (uint8_t)(**text - '0');
    }
    return true;
}

static bool take_exponent(const char **text, struct digits *d)
{
    int64_t value = 0;
    const bool minus = **text == '-';
    if (**text == '-' || **text == '+') (*text)++;
    if (!is_digit(**text)) return false;
    for (; is_digit(**text); (*text)++)
        if (value < 100000) value = value * 10 + (**text - '0');
    d->point += minus ? -value : value;
    return true;
}

/* Puts the digits around the point. False: too many. */
static bool place_digits(const struct digits *d, struct decimal *out)
{
    out->n_integer = out->n_fraction = 0;
    if (d->n && (d->point > MAX_DIGITS || (int64_t)d->n - d->point > MAX_DIGITS)) return false;
    for (int64_t i = d->point < 0 ? d->point : 0; d->n && (i < d->n || i < d->point); i++) {
        const uint8_t digit = i >= 0 && i < d->n ? d->list[i] : 0;
        if (i < d->point)
            out->integer[out->n_integer++] = digit;
        else
            out->fraction[out->n_fraction++] = digit;
    }
    if (!out->n_integer) out->integer[out->n_integer++] = 0;
    while (out->n_fraction && !out->fraction[out->n_fraction - 1]) out->n_fraction--;
    return true;
}

static bool is_zero(const struct decimal *d) { return d->n_integer == 1 && !d->integer[0] && !d->n_fraction; }

/* NULL, or why the text is not taken. */
static const char *parse(const char *text, struct decimal *out)
{
    struct digits d = { .n = 0 };
    const char *at = text;
    const bool minus = *at == '-';
    at += minus;
    if (!is_digit(*at) || (*at == '0' && is_digit(at[1]))) return "is no JSON number";
    bool fits = take_digits(&at, &d, true);
    if (*at == '.') {
        at++;
        if (!is_digit(*at)) return "is no JSON number";
        fits = fits && take_digits(&at, &d, false);
    }
    if (!fits) return "has more than 400 digits";
    if (*at == 'e' || *at == 'E') {
        at++;
        if (!take_exponent(&at, &d)) return "is no JSON number";
    }
    if (*at) return "is no JSON number";
    while (d.n && !d.list[d.n - 1]) d.n--;
    if (!place_digits(&d, out)) return "has more than 400 digits before or behind its point when written out";
    out->negative = minus && !is_zero(out);
    return NULL;
}

/* ---- languages ------------------------------------------------------------------------------------------------- */

/* What all numbers of one language have in common. */
struct form {
    struct langs *x;
    uint32_t max_integer, max_fraction; /* digits */
    lang_id tail;                       /* any fraction, or none */
    bool integer;
};

static lang_id digits(struct langs *x, int first, int last)
{
    if (first > last) return LANG_NOTHING;
    return lang_chars(x, &(struct lang_range){ (uint32_t)('0' + first), (uint32_t)('0' + last) }, 1);
}

static lang_id some_digits(struct langs *x, uint32_t min, uint32_t max)
{
    return lang_repeat(x, digits(x, 0, 9), min, max);
}

static lang_id zeros(struct langs *x, uint32_t min, uint32_t max) { return lang_repeat(x, digits(x, 0, 0), min, max); }

static lang_id optional(struct langs *x, lang_id a) { return lang_repeat(x, a, 0, 1); }

/* Fractions (with their point, or none) of at most 0.fraction. */
static lang_id fraction_to(const struct form *f, const struct decimal *bound, bool exclusive)
{
    struct langs *x = f->x;
    const uint32_t m = bound->n_fraction, most = f->max_fraction;
    lang_id rest = exclusive ? LANG_NOTHING : zeros(x, m ? 0 : 1, most - m);
    for (uint32_t j = m; j-- > 0;) {
        const lang_id below = lang_concat(x, digits(x, 0, bound->fraction[j] - 1), some_digits(x, 0, most - j - 1));
        rest = lang_or(x, below, lang_concat(x, digits(x, bound->fraction[j], bound->fraction[j]), rest));
        if (j) rest = lang_or(x, rest, LANG_EMPTY); /* it ends here, and so is smaller */
    }
    const lang_id some = lang_concat(x, lang_text(x, ".", 1), rest);
    return m || !exclusive ? optional(x, some) : some;
}

/* Fractions of at least 0.fraction. */
static lang_id fraction_from(const struct form *f, const struct decimal *bound, bool exclusive)
{
    struct langs *x = f->x;
    const uint32_t m = bound->n_fraction, most = f->max_fraction;
    if (!m && !exclusive) return f->tail;
    const lang_id above_zero =
        lang_concat(x, zeros(x, 0, most), lang_concat(x, digits(x, 1, 9), some_digits(x, 0, most)));
    lang_id rest = exclusive ? above_zero : some_digits(x, 0, most - m);
    for (uint32_t j = m; j-- > 0;) {
        const lang_id above = lang_concat(x, digits(x, bound->fraction[j] + 1, 9), some_digits(x, 0, most - j - 1));
        rest = lang_or(x, above, lang_concat(x, digits(x, bound->fraction[j], bound->fraction[j]), rest));
    }
    return lang_concat(x, lang_text(x, ".", 1), rest);
}

/* Magnitudes of at most (upper), or at least, the bound's. Digits are compared from the left: the first that differs
 * decides, whatever follows. */
static lang_id magnitudes(const struct form *f, const struct decimal *bound, bool upper, bool exclusive)
{
    struct langs *x = f->x;
    const uint32_t n = bound->n_integer;
    lang_id rest = upper ? fraction_to(f, bound, exclusive) : fraction_from(f, bound, exclusive);
    for (uint32_t i = n; i-- > 0;) {
        const int h = bound->integer[i], least = !i && n > 1;
        const lang_id other = upper ? digits(x, least, h - 1) : digits(x, h + 1, 9);
        const lang_id behind = lang_concat(x, some_digits(x, n - 1 - i, n - 1 - i), f->tail);
        rest = lang_or(x, lang_concat(x, other, behind), lang_concat(x, digits(x, h, h), rest));
    }
    if (upper && n > 1) {
        const lang_id longer = lang_concat(x, digits(x, 1, 9), some_digits(x, 0, n - 2));
        rest = lang_or(x, rest, lang_concat(x, lang_or(x, digits(x, 0, 0), longer), f->tail));
    } else if (!upper && n < f->max_integer) {
        const lang_id longer = lang_concat(x, digits(x, 1, 9), some_digits(x, n, f->max_integer - 1));
        rest = lang_or(x, rest, lang_concat(x, longer, f->tail));
    }
    return rest;
}

/* Numbers without a sign, in JSON's form. */
static lang_id unsigned_numbers(const struct form *f)
{
    struct langs *x = f->x;
    const lang_id large = lang_concat(x, digits(x, 1, 9), some_digits(x, 0, f->max_integer - 1));
    return lang_concat(x, lang_or(x, digits(x, 0, 0), large), f->tail);
}

static lang_id exponents(struct langs *x)
{
    static const struct lang_range e[] = { { 'e', 'e' }, { 'E', 'E' } }, sign[] = { { '+', '+' }, { '-', '-' } };
    const lang_id value = lang_concat(x, optional(x, lang_chars(x, sign, 2)), some_digits(x, 1, EXPONENT_DIGITS));
    return lang_concat(x, lang_chars(x, e, 2), value);
}

struct bounds {
    const struct decimal *min, *max; /* NULL: none */
    bool min_exclusive, max_exclusive;
};

/* The numbers without a minus sign, or the magnitudes of those with one (then bounds are mirrored by the caller). */
static lang_id one_sign(const struct form *f, const struct bounds *b)
{
    struct langs *x = f->x;
    lang_id all = unsigned_numbers(f);
    if (b->max && (b->max->negative || (is_zero(b->max) && b->max_exclusive))) return LANG_NOTHING;
    if (b->max) all = lang_and(x, all, magnitudes(f, b->max, true, b->max_exclusive));
    if (b->min && !b->min->negative) all = lang_and(x, all, magnitudes(f, b->min, false, b->min_exclusive));
    return all;
}

static lang_id bounded(const struct form *f, const struct bounds *b)
{
    struct langs *x = f->x;
    struct decimal low, high;
    struct bounds mirrored = { .min_exclusive = b->max_exclusive, .max_exclusive = b->min_exclusive };
    if (b->max) {
        low = *b->max;
        low.negative = !low.negative && !is_zero(&low);
        mirrored.min = &low;
    }
    if (b->min) {
        high = *b->min;
        high.negative = !high.negative && !is_zero(&high);
        mirrored.max = &high;
    }
    lang_id below = one_sign(f, &mirrored);
    if (f->integer) { /* -0 is an integer, but readers with types make a real number of it */
        const struct decimal zero = { .n_integer = 1 };
        below = lang_and(x, below, magnitudes(f, &zero, false, true));
    }
    const lang_id negative = lang_concat(x, lang_text(x, "-", 1), below);
    return lang_or(x, one_sign(f, b), negative);
}

static lang_id multiples(struct langs *x, const struct decimal *of, wk_status *status, const struct wk_err *err)
{
    uint64_t divisor = 0;
    if (of->negative || is_zero(of)) {
        *status = wk_fail(err, WK_INVALID, "multipleOf must be larger than 0");
        return LANG_NONE;
    }
    for (uint32_t i = 0; i < of->n_integer + of->n_fraction && divisor < UINT32_MAX; i++)
        divisor = divisor * 10 + (i < of->n_integer ? of->integer[i] : of->fraction[i - of->n_integer]);
    if (divisor >= 1000000000) {
        *status = wk_fail(err, WK_UNSUPPORTED, "multipleOf has more than 9 digits");
        return LANG_NONE;
    }
    return lang_multiple(x, (uint32_t)divisor, 0, AT_START, of->n_fraction);
}

/* A bound's digits. False: refused. */
static bool read_bound(const char *name, const char *text, struct decimal *out, struct form *f, wk_status *status,
                       const struct wk_err *err)
{
    if (!text) return true;
    const char *why = parse(text, out);
    if (why) {
        *status = wk_fail(err, WK_INVALID, "%s %.40s %s", name, text, why);
        return false;
    }
    if (out->n_integer > f->max_integer) f->max_integer = out->n_integer;
    if (out->n_fraction > f->max_fraction) f->max_fraction = out->n_fraction;
    return true;
}

lang_id lang_number(struct langs *x, const struct lang_number *number, wk_status *status, const struct wk_err *err)
{
    struct form f = {
        .x = x, .max_integer = INTEGER_DIGITS, .max_fraction = FRACTION_DIGITS, .integer = number->integer
    };
    struct decimal min, max, multiple;
    *status = WK_OK;
    if (!read_bound("minimum", number->min, &min, &f, status, err) ||
        !read_bound("maximum", number->max, &max, &f, status, err) ||
        !read_bound("multipleOf", number->multiple_of, &multiple, &f, status, err))
        return LANG_NONE;
    const lang_id point = lang_text(x, ".", 1);
    f.tail = optional(x, number->integer ? lang_concat(x, point, zeros(x, 1, 1))
                                         : lang_concat(x, point, some_digits(x, 1, f.max_fraction)));
    const struct bounds b = { number->min ? &min : NULL, number->max ? &max : NULL, number->min_exclusive,
                              number->max_exclusive };
    lang_id all = bounded(&f, &b);
    if (!number->min && !number->max && !number->multiple_of && !number->integer)
        all = lang_concat(x, all, optional(x, exponents(x)));
    if (number->multiple_of) {
        const lang_id steps = multiples(x, &multiple, status, err);
        if (*status) return LANG_NONE;
        all = lang_and(x, all, steps);
    }
    if (lang_is_empty(x, all) == LANG_YES) all = LANG_NOTHING;
    *status = langs_status(x, err);
    return *status ? LANG_NONE : all;
}
