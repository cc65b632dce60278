/* number.c: numbers as Python counts with them: bool is an integer, integers have no bound (but a counted one), floats
 * are doubles and print as the shortest text that reads back. */
#include "big.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_PRINTED_DIGITS = 4300 /* Python's own limit between integers and decimal text */ };

bool jn_is_integer(val v) { return v.kind == V_INT || v.kind == V_BIG || v.kind == V_BOOL; }
bool jn_is_number(val v) { return jn_is_integer(v) || v.kind == V_FLOAT; }

bool jn_number_int64(val v, int64_t *out)
{
    if (v.kind == V_BIG) return false;
    *out = v.kind == V_BOOL ? v.u.b : v.u.i;
    return true;
}

bool jn_number_negative(val v)
{
    return v.kind == V_FLOAT ? v.u.f < 0 : v.kind == V_BIG ? v.u.big->negative : v.kind == V_INT && v.u.i < 0;
}

static const struct big *to_big(struct vm *m, val v)
{
    if (v.kind == V_BIG) return v.u.big;
    int64_t i = 0;
    (void)jn_number_int64(v, &i);
    return jn_big_from_int(m, i);
}

double jn_number_double(struct vm *m, val v)
{
    double f;
    if (v.kind == V_FLOAT) return v.u.f;
    if (v.kind == V_BOOL) return v.u.b;
    if (v.kind == V_INT) return (double)v.u.i;
    if (!jn_big_double(v.u.big, &f)) jn_fail(m, "int too large to convert to float");
    return f;
}

val jn_number_from_double(struct vm *m, double f)
{
    if (isnan(f)) jn_fail(m, "cannot convert float NaN to integer");
    if (isinf(f)) jn_fail(m, "cannot convert float infinity to integer");
    if (f > -9e18 && f < 9e18) return jn_v_int((int64_t)f);
    return jn_big_value(m, jn_big_from_double(m, f));
}

val jn_number_from_digits(struct vm *m, const char *digits, size_t n, unsigned base)
{
    if (n <= 12) {
        int64_t i = 0;
        const bool negative = n && *digits == '-';
        for (size_t k = negative; k < n; k++) {
            const char c = digits[k];
            i = i * (int64_t)base + (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
        }
        return jn_v_int(negative ? -i : i);
    }
    return jn_big_value(m, jn_big_from_digits(m, digits, n, base));
}

static val both(val v, val a, val b)
{
    v.input = a.input | b.input;
    return v;
}

static bool two_ints(val a, val b, int64_t *x, int64_t *y) { return jn_number_int64(a, x) && jn_number_int64(b, y); }

val jn_number_add(struct vm *m, val a, val b)
{
    int64_t x, y;
    if (a.kind == V_FLOAT || b.kind == V_FLOAT)
        return both(jn_v_float(jn_number_double(m, a) + jn_number_double(m, b)), a, b);
    if (two_ints(a, b, &x, &y) && !__builtin_add_overflow(x, y, &x)) return both(jn_v_int(x), a, b);
    return both(jn_big_value(m, jn_big_add(m, to_big(m, a), to_big(m, b), false)), a, b);
}

val jn_number_sub(struct vm *m, val a, val b)
{
    int64_t x, y;
    if (a.kind == V_FLOAT || b.kind == V_FLOAT)
        return both(jn_v_float(jn_number_double(m, a) - jn_number_double(m, b)), a, b);
    if (two_ints(a, b, &x, &y) && !__builtin_sub_overflow(x, y, &x)) return both(jn_v_int(x), a, b);
    return both(jn_big_value(m, jn_big_add(m, to_big(m, a), to_big(m, b), true)), a, b);
}

val jn_number_mul(struct vm *m, val a, val b)
{
    int64_t x, y;
    if (a.kind == V_FLOAT || b.kind == V_FLOAT)
        return both(jn_v_float(jn_number_double(m, a) * jn_number_double(m, b)), a, b);
    if (two_ints(a, b, &x, &y) && !__builtin_mul_overflow(x, y, &x)) return both(jn_v_int(x), a, b);
    return both(jn_big_value(m, jn_big_mul(m, to_big(m, a), to_big(m, b))), a, b);
}

static bool is_zero(val v)
{
    return v.kind == V_FLOAT ? v.u.f == 0 : v.kind == V_BOOL ? !v.u.b : v.kind == V_INT && !v.u.i;
}

static bool exact(int64_t i) { return i >= -(INT64_C(1) << 53) && i <= INT64_C(1) << 53; }

val jn_number_div(struct vm *m, val a, val b)
{
    int64_t x, y;
    if (is_zero(b)) jn_fail(m, "division by zero");
    if (a.kind == V_FLOAT || b.kind == V_FLOAT)
        return both(jn_v_float(jn_number_double(m, a) / jn_number_double(m, b)), a, b);
    if (two_ints(a, b, &x, &y) && exact(x) && exact(y)) return both(jn_v_float((double)x / (double)y), a, b);
    double f;
    if (!jn_big_quotient(m, to_big(m, a), to_big(m, b), &f))
        jn_fail(m, "integer division result too large for a float");
    return both(jn_v_float(f), a, b);
}

/* x // y and x % y of doubles as Python has them: the remainder has the sign of y. */
static void float_divide(double x, double y, double *quotient, double *rest)
{
    double r = fmod(x, y), q = (x - r) / y;
    if (r != 0) {
        if ((y < 0) != (r < 0)) {
            r += y;
            q -= 1;
        }
    } else {
        r = copysign(0, y);
    }
    if (q != 0) {
        double whole = floor(q);
        if (q - whole > 0.5) whole += 1;
        q = whole;
    } else {
        q = copysign(0, x / y);
    }
    *quotient = q;
    *rest = r;
}

static val divide(struct vm *m, val a, val b, bool rest)
{
    int64_t x, y;
    if (is_zero(b)) jn_fail(m, "division or modulo by zero");
    if (a.kind == V_FLOAT || b.kind == V_FLOAT) {
        double q, r;
        float_divide(jn_number_double(m, a), jn_number_double(m, b), &q, &r);
        return both(jn_v_float(rest ? r : q), a, b);
    }
    if (two_ints(a, b, &x, &y) && !(x == INT64_MIN && y == -1)) {
        int64_t q = x / y, r = x % y;
        if (r && (r < 0) != (y < 0)) {
            r += y;
            q--;
        }
        return both(jn_v_int(rest ? r : q), a, b);
    }
    const struct big *left;
    const struct big *q = jn_big_divide(m, to_big(m, a), to_big(m, b), &left);
    return both(jn_big_value(m, rest ? left : q), a, b);
}

val jn_number_floor_div(struct vm *m, val a, val b) { return divide(m, a, b, false); }
val jn_number_mod(struct vm *m, val a, val b) { return divide(m, a, b, true); }

static val float_pow(struct vm *m, double x, double y)
{
    if (x == 0 && y < 0) jn_fail(m, "0.0 cannot be raised to a negative power");
    if (x < 0 && isfinite(x) && isfinite(y) && y != floor(y))
        jn_fail(m, "a power of a negative number is not real: complex numbers are not supported");
    const double f = pow(x, y);
    if (isinf(f) && isfinite(x) && isfinite(y)) jn_fail(m, "(34, 'Numerical result out of range')");
    return jn_v_float(f);
}

val jn_number_pow(struct vm *m, val a, val b)
{
    if (a.kind == V_FLOAT || b.kind == V_FLOAT || jn_number_negative(b))
        return both(float_pow(m, jn_number_double(m, a), jn_number_double(m, b)), a, b);
    int64_t base, n;
    const bool small = jn_number_int64(a, &base) && base >= -1 && base <= 1;
    if (!jn_number_int64(b, &n)) {
        if (!small) jn_fail_limit(m, "an integer has more than %d bits", JINJA_MAX_INTEGER_BITS);
        n = 2 + (int64_t)(b.u.big->d[0] & 1); /* 0, 1 and -1 ask for no more than whether it is odd */
    }
    val result = jn_v_int(1), square = a;
    if (small && n > 2) n = 2 + (n & 1);
    for (; n; n >>= 1) {
        if (n & 1) result = jn_number_mul(m, result, square);
        if (n > 1) square = jn_number_mul(m, square, square);
    }
    if (result.kind == V_BOOL) result = jn_v_int(result.u.b);
    return both(result, a, b);
}

val jn_number_neg(struct vm *m, val a)
{
    if (a.kind == V_FLOAT) return both(jn_v_float(-a.u.f), a, a);
    return jn_number_sub(m, jn_v_int(0), a);
}

int jn_number_order(struct vm *m, val a, val b)
{
    int64_t x, y;
    if (jn_is_integer(a) && jn_is_integer(b)) {
        if (two_ints(a, b, &x, &y)) return (x > y) - (x < y);
        return jn_big_order(to_big(m, a), to_big(m, b));
    }
    if (a.kind != V_FLOAT) {
        const int o = jn_number_order(m, b, a);
        return o == 2 ? 2 : -o;
    }
    if (isnan(a.u.f)) return 2;
    if (b.kind == V_FLOAT) return isnan(b.u.f) ? 2 : (a.u.f > b.u.f) - (a.u.f < b.u.f);
    if (jn_number_int64(b, &y) && exact(y)) return (a.u.f > (double)y) - (a.u.f < (double)y);
    if (isinf(a.u.f)) return a.u.f > 0 ? 1 : -1;
    const double whole = trunc(a.u.f);
    const int o = jn_big_order(jn_big_from_double(m, whole), to_big(m, b));
    return o ? o : (a.u.f > whole) - (a.u.f < whole);
}

static val power_of_ten(struct vm *m, int64_t n) { return jn_number_pow(m, jn_v_int(10), jn_v_int(n)); }

/* v to a multiple of 10^places, ties to even; `more`: |v| has a fraction beyond. */
static val round_integer(struct vm *m, val v, int64_t places, bool more)
{
    const val unit = power_of_ten(m, places);
    const bool negative = jn_number_negative(v);
    const val size = negative ? jn_number_neg(m, v) : v;
    val q = jn_number_floor_div(m, size, unit);
    const val rest = jn_number_mod(m, size, unit);
    int side = jn_number_order(m, jn_number_mul(m, rest, jn_v_int(2)), unit);
    if (side == 0) side = more || jn_number_order(m, jn_number_mod(m, q, jn_v_int(2)), jn_v_int(1)) == 0 ? 1 : -1;
    if (side > 0) q = jn_number_add(m, q, jn_v_int(1));
    const val result = jn_number_mul(m, q, unit);
    return negative ? jn_number_neg(m, result) : result;
}

val jn_number_round(struct vm *m, val v, int64_t digits, bool to_integer)
{
    val result = v;
    if (jn_is_integer(v)) {
        if (v.kind == V_BOOL) result = jn_v_int(v.u.b);
        if (digits < 0) result = digits < -5000 ? jn_v_int(0) : round_integer(m, result, -digits, false);
    } else if (to_integer) {
        result = jn_number_from_double(m, rint(v.u.f));
    } else if (!isfinite(v.u.f) || digits > 323) {
        return v;
    } else if (digits < -308) {
        result = jn_v_float(copysign(0, v.u.f));
    } else if (digits >= 0) {
        char text[700];
        jn_spend_chars(m, (size_t)snprintf(text, sizeof text, "%.*f", (int)digits, v.u.f) * 8);
        result = jn_v_float(strtod(text, NULL));
        if (isinf(result.u.f)) jn_fail(m, "rounded value too large to represent");
    } else {
        const double whole = trunc(v.u.f);
        const val rounded = round_integer(m, jn_number_from_double(m, whole), -digits, whole != v.u.f);
        result = jn_v_float(copysign(jn_number_double(m, rounded), v.u.f));
    }
    result.input = v.input;
    return result;
}

const char *jn_number_text(struct vm *m, val v, unsigned base)
{
    int64_t i;
    if (jn_number_int64(v, &i) && base == 10) return jn_words(m, "%lld", (long long)i);
    const struct big *b = to_big(m, v);
    const char *text = jn_big_text(m, b, base);
    if (base == 10 && strlen(text) - b->negative > MAX_PRINTED_DIGITS)
        jn_fail(m, "exceeds the limit (%d digits) for integer string conversion", MAX_PRINTED_DIGITS);
    return text;
}

/* One more in the last place of "d.ddde+xx": a double that is a power of two has more room above than below, so that
 * the nearest text of some length may not read back where the next larger does. */
static bool next_up(char *mantissa)
{
    char *e = strchr(mantissa, 'e');
    for (char *p = e; p-- > mantissa;) {
        if (*p < '0' || *p > '9') continue;
        if (*p != '9') {
            ++*p;
            return true;
        }
        *p = '0';
    }
    return false;
}

void jn_float_text(double f, char out[32])
{
    if (!isfinite(f)) {
        (void)snprintf(out, 32, "%s", isnan(f) ? "nan" : f < 0 ? "-inf" : "inf");
        return;
    }
    char text[40] = "";
    /* A text of at most 15 digits that reads back is what 15 digits round to, but for zeros; not below the normal
     * doubles, which have fewer bits. */
    for (int digits = isnormal(f) ? 15 : 1; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*e", digits - 1, f);
        if (strtod(text, NULL) == f) break;
        char up[40];
        memcpy(up, text, sizeof up);
        if (digits < 17 && next_up(up + (f < 0)) && strtod(up, NULL) == f) {
            memcpy(text, up, sizeof text);
            break;
        }
    }
    char digits[24];
    int n = 0;
    const char *p = text;
    for (; *p != 'e'; p++)
        if (*p >= '0' && *p <= '9') digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0') n--;
    const int point = atoi(p + 1) + 1; /* of the digits, how many stand before the point */
    char *o = out;
    if (signbit(f)) *o++ = '-';
    if (point > 16 || point < -3) {
        *o++ = digits[0];
        if (n > 1) *o++ = '.';
        for (int i = 1; i < n; i++) *o++ = digits[i];
        (void)snprintf(o, 8, "e%c%02u", point > 0 ? '+' : '-', (unsigned)abs(point - 1) % 1000);
        return;
    }
    if (point <= 0) {
        *o++ = '0';
        *o++ = '.';
        for (int i = point; i < 0; i++) *o++ = '0';
    }
    for (int i = 0; i < n || i < point; i++) {
        if (i == point && i > 0) *o++ = '.';
        *o++ = i < n ? digits[i] : '0';
    }
    if (point >= n) {
        *o++ = '.';
        *o++ = '0';
    }
    *o = '\0';
}

static uint8_t any_input(const struct str *s) { return s->runs || s->origin == JINJA_INPUT; }

/* The text as ASCII without the white space around it, decimal digits of every script as 0 to 9. NULL: it has others.
 */
static char *plain(struct vm *m, const struct str *s)
{
    char *text = jn_heap_take(m, (size_t)s->n + 1), *o = text;
    uint32_t begin = 0, end = s->n, len, last = 0;
    jn_spend_chars(m, s->n);
    while (begin < end && jn_char_is_space(jn_char_at(s, begin, &len))) begin += len;
    for (uint32_t i = begin; i < end; i += len)
        if (!jn_char_is_space(jn_char_at(s, i, &len))) last = i + len;
    for (uint32_t i = begin; i < last; i += len) {
        const uint32_t c = jn_char_at(s, i, &len);
        if (c < 0x80)
            *o++ = (char)c;
        else if (jn_char_digit(c) < 10)
            *o++ = (char)('0' + jn_char_digit(c));
        else
            return NULL;
    }
    return text;
}

/* Takes digits, with single underscores between two of them, to *o. False: an underscore elsewhere. */
static bool digits_of(const char **p, char **o)
{
    while (**p >= '0' && **p <= '9') {
        *(*o)++ = *(*p)++;
        if (**p == '_') {
            if ((*p)[1] < '0' || (*p)[1] > '9') return false;
            (*p)++;
        }
    }
    return true;
}

static bool is_word(const char *p, const char *word)
{
    for (; *word; p++, word++)
        if ((*p | 32) != *word) return false;
    return !*p;
}

val jn_float_parse(struct vm *m, const struct str *s)
{
    const char *p = plain(m, s);
    if (!p || memchr(s->data, 0, s->n)) return jn_v_missing();
    char *clean = jn_heap_take(m, (size_t)s->n + 1), *o = clean;
    val v = { .kind = V_FLOAT, .input = any_input(s) };
    const bool negative = *p == '-';
    if (*p == '-' || *p == '+') *o++ = *p++;
    if (is_word(p, "inf") || is_word(p, "infinity") || is_word(p, "nan")) {
        v.u.f = copysign((*p | 32) == 'n' ? (double)NAN : (double)INFINITY, negative ? -1 : 1);
        return v;
    }
    const char *begin = o;
    if (!digits_of(&p, &o)) return jn_v_missing();
    bool any = o > begin;
    if (*p == '.') {
        *o++ = *p++;
        begin = o;
        if (!digits_of(&p, &o)) return jn_v_missing();
        any |= o > begin;
    }
    if (!any) return jn_v_missing();
    if (*p == 'e' || *p == 'E') {
        *o++ = *p++;
        if (*p == '-' || *p == '+') *o++ = *p++;
        begin = o;
        if (!digits_of(&p, &o) || o == begin) return jn_v_missing();
    }
    if (*p) return jn_v_missing();
    if (o - clean > 40) jn_spend_chars(m, (size_t)(o - clean) * 8); /* no longer a matter of one multiplication */
    v.u.f = strtod(clean, NULL);
    return v;
}

static unsigned digit_value(char c)
{
    return c >= '0' && c <= '9'                 ? (unsigned)(c - '0')
           : (c | 32) >= 'a' && (c | 32) <= 'z' ? (unsigned)((c | 32) - 'a') + 10
                                                : 99;
}

val jn_integer_parse(struct vm *m, const struct str *s, unsigned base)
{
    const char *p = plain(m, s);
    if (!p || memchr(s->data, 0, s->n)) return jn_v_missing();
    char *clean = jn_heap_take(m, (size_t)s->n + 2), *o = clean;
    if (*p == '-') *o++ = '-';
    if (*p == '-' || *p == '+') p++;
    const char letter = *p == '0' ? (char)(p[1] | 32) : '\0';
    const unsigned prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    const bool guess = base == 0;
    if (prefix && (guess || base == prefix)) {
        base = prefix;
        p += 2;
        if (*p == '_') p++;
    } else if (guess) {
        base = 10;
        if (*p == '0')
            for (const char *z = p; *z; z++)
                if (*z != '0' && *z != '_') return jn_v_missing();
    }
    const char *begin = o;
    while (digit_value(*p) < base) {
        *o++ = *p++;
        if (*p == '_' && digit_value(p[1]) < base) p++;
    }
    if (*p || o == begin) return jn_v_missing();
    if ((base & (base - 1)) != 0 && o - begin > MAX_PRINTED_DIGITS) return jn_v_missing(); /* Python's ValueError */
    val v = jn_number_from_digits(m, clean, (size_t)(o - clean), base);
    v.input = any_input(s);
    return v;
}
