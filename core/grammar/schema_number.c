/* schema_number.c: exact decimals of a schema: compared, counted, divided. A bound that is rounded would let a wrong
 * number pass, so no floating point is used. */
#include <string.h>

#include "grammar/schema_internal.h"

enum { UNIT_DIGITS = 18 };
static const int64_t EXP_LIMIT = 1000000000; /* beyond it an exponent is only "very large" */

struct dec dec_of(struct json_text number)
{
    /* The reader has proved the form. The digits are those between the first and the last that is not 0; a point among
     * them is left in the text and skipped by whoever reads digits, so nothing is copied. */
    const char *p = number.data, *end = number.data + number.len;
    struct dec d = { .negative = *p == '-' };
    const char *mantissa = p + d.negative, *exponent = mantissa;
    while (exponent < end && *exponent != 'e' && *exponent != 'E') exponent++;
    int64_t exp = 0;
    if (exponent < end) {
        p = exponent + 1;
        const bool down = *p == '-';
        if (*p == '-' || *p == '+') p++;
        for (; p < end; p++)
            if (exp < EXP_LIMIT) exp = exp * 10 + (*p - '0');
        if (down) exp = -exp;
    }
    const char *point = memchr(mantissa, '.', (size_t)(exponent - mantissa));
    if (point) exp -= exponent - point - 1;
    const char *first = mantissa, *last = exponent;
    while (last > first && (last[-1] == '0' || last[-1] == '.')) {
        exp += last[-1] == '0';
        last--;
    }
    while (first < last && (*first == '0' || *first == '.')) first++;
    if (first == last) return (struct dec){ 0 };
    d.digits = first;
    d.n = (uint32_t)(last - first) - (point && point > first && point < last);
    d.exp = exp;
    return d;
}

/* Digit i of a number whose text may hold a point. */
static const char *next_digit(const char *p) { return *p == '.' ? p + 1 : p; }

static int compare_size(struct dec a, struct dec b)
{
    const int64_t top_a = (int64_t)a.n + a.exp, top_b = (int64_t)b.n + b.exp;
    if (top_a != top_b) return top_a < top_b ? -1 : 1;
    const char *p = a.digits, *q = b.digits;
    for (uint32_t i = 0; i < a.n || i < b.n; i++) {
        const char x = i < a.n ? *(p = next_digit(p)) : '0', y = i < b.n ? *(q = next_digit(q)) : '0';
        if (x != y) return x < y ? -1 : 1;
        p += i < a.n;
        q += i < b.n;
    }
    return 0;
}

int dec_compare(struct dec a, struct dec b)
{
    if (!a.n || !b.n) {
        const int sign_a = !a.n ? 0 : a.negative ? -1 : 1, sign_b = !b.n ? 0 : b.negative ? -1 : 1;
        return sign_a - sign_b;
    }
    if (a.negative != b.negative) return a.negative ? -1 : 1;
    return a.negative ? -compare_size(a, b) : compare_size(a, b);
}

bool dec_count(struct dec a, uint32_t *out)
{
    uint64_t value = 0;
    if (!a.n) {
        *out = 0;
        return true;
    }
    if (a.negative || a.exp < 0 || (int64_t)a.n + a.exp > 10) return false;
    const char *p = a.digits;
    for (uint32_t i = 0; i < a.n; i++, p++) value = value * 10 + (uint64_t)(*(p = next_digit(p)) - '0');
    for (int64_t i = 0; i < a.exp; i++) value *= 10;
    if (value >= UINT32_MAX) return false;
    *out = (uint32_t)value;
    return true;
}

bool dec_units(struct dec a, uint64_t *units, int64_t *exp)
{
    if (!a.n || a.negative || (int64_t)a.n + (a.exp > 0 ? a.exp : 0) > UNIT_DIGITS) return false;
    uint64_t value = 0;
    const char *p = a.digits;
    for (uint32_t i = 0; i < a.n; i++, p++) value = value * 10 + (uint64_t)(*(p = next_digit(p)) - '0');
    for (int64_t i = 0; i < a.exp; i++) value *= 10;
    *units = value;
    *exp = a.exp < 0 ? a.exp : 0;
    return true;
}

static uint64_t multiply_mod(uint64_t a, uint64_t b, uint64_t m)
{
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)a * b % m);
}

bool dec_is_multiple(struct dec a, uint64_t units, int64_t exp)
{
    if (!a.n) return true;
    if (a.exp < exp) return false; /* a's digits end in no 0, and a multiple's would */
    uint64_t rest = 0, power = 10 % units;
    const char *p = a.digits;
    for (uint32_t i = 0; i < a.n; i++, p++) {
        rest = multiply_mod(rest, 10, units);
        rest = (rest + (uint64_t)(*(p = next_digit(p)) - '0') % units) % units;
    }
    for (int64_t left = a.exp - exp; left; left >>= 1) {
        if (left & 1) rest = multiply_mod(rest, power, units);
        power = multiply_mod(power, power, units);
    }
    return rest == 0;
}

static bool scale(uint64_t *units, int64_t *exp, int64_t to)
{
    for (; *exp > to; --*exp)
        if (__builtin_mul_overflow(*units, 10, units)) return false;
    return true;
}

bool units_lcm(uint64_t *a_units, int64_t *a_exp, uint64_t b_units, int64_t b_exp)
{
    const int64_t exp = *a_exp < b_exp ? *a_exp : b_exp;
    if (!scale(a_units, a_exp, exp) || !scale(&b_units, &b_exp, exp)) return false;
    uint64_t x = *a_units, y = b_units;
    while (y) {
        const uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return !__builtin_mul_overflow(*a_units / x, b_units, a_units) && *a_units < UINT64_MAX / 16;
}
