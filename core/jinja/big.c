/* big.c: arithmetic of integers beyond 64 bits (Knuth, volume 2, 4.3.1). */
#include "big.h"

#include <math.h>

enum { MAX_DIGITS = JINJA_MAX_INTEGER_BITS / 32 };

static struct big *big_new(struct vm *m, size_t n)
{
    jn_spend(m, n);
    struct big *b = jn_heap_take(m, sizeof *b + n * sizeof b->d[0]);
    b->n = (uint32_t)n;
    return b;
}

static const struct big *trimmed(struct vm *m, struct big *b)
{
    while (b->n && !b->d[b->n - 1]) b->n--;
    if (!b->n) b->negative = false;
    if (b->n > MAX_DIGITS) jn_fail_limit(m, "an integer has more than %d bits", JINJA_MAX_INTEGER_BITS);
    return b;
}

const struct big *jn_big_from_int(struct vm *m, int64_t i)
{
    struct big *b = big_new(m, 2);
    const uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    b->d[0] = (uint32_t)u;
    b->d[1] = (uint32_t)(u >> 32);
    b->negative = i < 0;
    return trimmed(m, b);
}

val jn_big_value(struct vm *m, const struct big *b)
{
    (void)m;
    if (b->n <= 2) {
        const uint64_t u = (b->n > 0 ? b->d[0] : 0) | (uint64_t)(b->n > 1 ? b->d[1] : 0) << 32;
        if (b->negative ? u <= (uint64_t)1 << 63 : u < (uint64_t)1 << 63)
            return jn_v_int(b->negative ? (int64_t)(0 - u) : (int64_t)u);
    }
    return (val){ .kind = V_BIG, .u.big = b };
}

static int order(const uint32_t *a, uint32_t na, const uint32_t *b, uint32_t nb)
{
    if (na != nb) return na < nb ? -1 : 1;
    for (uint32_t i = na; i-- > 0;)
        if (a[i] != b[i]) return a[i] < b[i] ? -1 : 1;
    return 0;
}

int jn_big_order(const struct big *a, const struct big *b)
{
    if (a->negative != b->negative) return a->negative ? -1 : 1;
    const int o = order(a->d, a->n, b->d, b->n);
    return a->negative ? -o : o;
}

const struct big *jn_big_add(struct vm *m, const struct big *a, const struct big *b, bool subtract)
{
    const bool b_negative = b->negative != subtract && b->n;
    if (a->negative == b_negative || !a->n || !b->n) {
        const uint32_t n = (a->n > b->n ? a->n : b->n) + 1;
        struct big *sum = big_new(m, n);
        uint64_t carry = 0;
        for (uint32_t i = 0; i < n; i++) {
            carry += (uint64_t)(i < a->n ? a->d[i] : 0) + (i < b->n ? b->d[i] : 0);
            sum->d[i] = (uint32_t)carry;
            carry >>= 32;
        }
        sum->negative = a->n ? a->negative : b_negative;
        return trimmed(m, sum);
    }
    const bool a_larger = order(a->d, a->n, b->d, b->n) >= 0;
    const struct big *large = a_larger ? a : b, *small = a_larger ? b : a;
    struct big *rest = big_new(m, large->n);
    int64_t borrow = 0;
    for (uint32_t i = 0; i < large->n; i++) {
        borrow += (int64_t)large->d[i] - (i < small->n ? small->d[i] : 0);
        rest->d[i] = (uint32_t)borrow;
        borrow >>= 32;
    }
    rest->negative = a_larger ? a->negative : b_negative;
    return trimmed(m, rest);
}

const struct big *jn_big_mul(struct vm *m, const struct big *a, const struct big *b)
{
    if (a->n + b->n > MAX_DIGITS + 2) jn_fail_limit(m, "an integer has more than %d bits", JINJA_MAX_INTEGER_BITS);
    jn_spend_items(m, (size_t)a->n * b->n / 64);
    struct big *p = big_new(m, (size_t)a->n + b->n);
    for (uint32_t i = 0; i < a->n; i++) {
        uint64_t carry = 0;
        for (uint32_t j = 0; j < b->n; j++) {
            carry += (uint64_t)a->d[i] * b->d[j] + p->d[i + j];
            p->d[i + j] = (uint32_t)carry;
            carry >>= 32;
        }
        p->d[i + b->n] = (uint32_t)carry;
    }
    p->negative = a->negative != b->negative;
    return trimmed(m, p);
}

/* d /= by; the remainder. */
static uint32_t divide_small(uint32_t *d, uint32_t n, uint32_t by)
{
    uint64_t rest = 0;
    for (uint32_t i = n; i-- > 0;) {
        rest = rest << 32 | d[i];
        d[i] = (uint32_t)(rest / by);
        rest %= by;
    }
    return (uint32_t)rest;
}

/* Algorithm D: u (n + 1 digits, normalized) by v (n >= 2 digits, the highest bit set); one digit of the quotient for
 * each place j; u keeps the remainder. */
static void divide_long(uint32_t *u, uint32_t nu, const uint32_t *v, uint32_t nv, uint32_t *q)
{
    for (uint32_t j = nu - nv; j-- > 0;) {
        const uint64_t head = (uint64_t)u[j + nv] << 32 | u[j + nv - 1];
        uint64_t guess = head / v[nv - 1], rest = head % v[nv - 1];
        while (guess >> 32 || guess * v[nv - 2] > (rest << 32 | u[j + nv - 2])) {
            guess--;
            rest += v[nv - 1];
            if (rest >> 32) break;
        }
        uint64_t carry = 0;
        int64_t borrow = 0;
        for (uint32_t i = 0; i < nv; i++) {
            carry += guess * v[i];
            borrow += (int64_t)u[i + j] - (uint32_t)carry;
            u[i + j] = (uint32_t)borrow;
            carry >>= 32;
            borrow >>= 32;
        }
        borrow += (int64_t)u[j + nv] - (int64_t)carry;
        u[j + nv] = (uint32_t)borrow;
        if (borrow < 0) {
            guess--;
            carry = 0;
            for (uint32_t i = 0; i < nv; i++) {
                carry += (uint64_t)u[i + j] + v[i];
                u[i + j] = (uint32_t)carry;
                carry >>= 32;
            }
            u[j + nv] += (uint32_t)carry;
        }
        q[j] = (uint32_t)guess;
    }
}

/* |a| / |b| and what is left. */
static struct big *divide(struct vm *m, const struct big *a, const struct big *b, struct big **rest)
{
    jn_spend_items(m, (size_t)a->n * b->n / 64);
    if (order(a->d, a->n, b->d, b->n) < 0) {
        *rest = big_new(m, a->n);
        memcpy((*rest)->d, a->d, a->n * sizeof a->d[0]);
        return big_new(m, 0);
    }
    struct big *q = big_new(m, (size_t)a->n - b->n + 1);
    if (b->n == 1) {
        struct big *copy = big_new(m, a->n);
        memcpy(copy->d, a->d, a->n * sizeof a->d[0]);
        *rest = big_new(m, 1);
        (*rest)->d[0] = divide_small(copy->d, copy->n, b->d[0]);
        return copy;
    }
    const unsigned shift = (unsigned)__builtin_clz(b->d[b->n - 1]);
    struct big *u = big_new(m, (size_t)a->n + 1), *v = big_new(m, b->n);
    for (uint32_t i = 0; i < a->n; i++) {
        u->d[i] |= a->d[i] << shift;
        u->d[i + 1] = (uint32_t)((uint64_t)a->d[i] << shift >> 32);
    }
    for (uint32_t i = 0; i < b->n; i++)
        v->d[i] = b->d[i] << shift | (i ? (uint32_t)((uint64_t)b->d[i - 1] << shift >> 32) : 0);
    divide_long(u->d, u->n, v->d, v->n, q->d);
    for (uint32_t i = 0; i < u->n; i++)
        u->d[i] = (uint32_t)(((uint64_t)(i + 1 < u->n ? u->d[i + 1] : 0) << 32 | u->d[i]) >> shift);
    *rest = u;
    return q;
}

const struct big *jn_big_divide(struct vm *m, const struct big *a, const struct big *b, const struct big **rest)
{
    struct big *left;
    struct big *q = divide(m, a, b, &left);
    q->negative = a->negative != b->negative;
    left->negative = a->negative;
    const struct big *quotient = trimmed(m, q), *remainder = trimmed(m, left);
    if (remainder->n && remainder->negative != b->negative) {
        remainder = jn_big_add(m, remainder, b, false);
        quotient = jn_big_add(m, quotient, jn_big_from_int(m, 1), true);
    }
    *rest = remainder;
    return quotient;
}

const char *jn_big_text(struct vm *m, const struct big *b, unsigned base)
{
    if (!b->n) return "0";
    const size_t room = (size_t)b->n * 32 + 2; /* base 2 has the most */
    char *text = jn_heap_take(m, room);
    struct big *copy = big_new(m, b->n);
    memcpy(copy->d, b->d, b->n * sizeof b->d[0]);
    jn_spend_items(m, (size_t)b->n * b->n / 8);
    size_t at = room - 1;
    const uint32_t chunk = base == 10 ? 1000000000u : base == 8 ? 1u << 30 : 1u << 28;
    const int digits = base == 10 ? 9 : base == 8 ? 10 : base == 2 ? 28 : 7;
    while (copy->n) {
        uint32_t part = divide_small(copy->d, copy->n, chunk);
        while (copy->n && !copy->d[copy->n - 1]) copy->n--;
        for (int i = 0; i < digits && (copy->n || part); i++) {
            text[--at] = "0123456789abcdef"[part % base];
            part /= base;
        }
    }
    if (b->negative) text[--at] = '-';
    return text + at;
}

const struct big *jn_big_from_digits(struct vm *m, const char *digits, size_t n, unsigned base)
{
    const bool negative = n && *digits == '-';
    if (negative) {
        digits++;
        n--;
    }
    if (n > JINJA_MAX_INTEGER_BITS) jn_fail_limit(m, "an integer has more than %d bits", JINJA_MAX_INTEGER_BITS);
    struct big *b = big_new(m, n / 5 + 2); /* a digit has at most 5.17 bits */
    jn_spend_items(m, n * n / 512);
    uint32_t used = 0;
    for (size_t i = 0; i < n; i++) {
        const char c = digits[i];
        uint64_t carry = (uint64_t)(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
        for (uint32_t j = 0; j < used; j++) {
            carry += (uint64_t)b->d[j] * base;
            b->d[j] = (uint32_t)carry;
            carry >>= 32;
        }
        if (carry) b->d[used++] = (uint32_t)carry;
    }
    b->negative = negative;
    return trimmed(m, b);
}

static uint32_t bits(const struct big *b) { return b->n ? b->n * 32 - (uint32_t)__builtin_clz(b->d[b->n - 1]) : 0; }

static bool bit(const struct big *b, uint32_t i) { return i / 32 < b->n && b->d[i / 32] >> i % 32 & 1; }

/* The double nearest to |b| * 2^scale, `more`: there is something below |b|'s last bit. */
static bool nearest(const struct big *b, int scale, bool more, double *out)
{
    const uint32_t n = bits(b);
    uint64_t top = 0;
    const uint32_t skip = n > 64 ? n - 64 : 0;
    for (uint32_t i = n; i-- > skip;) top = top << 1 | bit(b, i);
    for (uint32_t i = 0; i < skip && !more; i++) more = bit(b, i);
    /* 64 bits with a sticky one: rounded once, by hand, to the 53 (or fewer, if subnormal) that the double has. */
    const int exponent = (int)skip + scale; /* of top's last bit */
    int width = n > 64 ? 64 : (int)n;
    int keep = 53;
    if (exponent + width < -1021) keep = 53 - (-1021 - (exponent + width));
    if (keep < 0) keep = 0;
    if (width > keep) {
        const int drop = width - keep;
        const uint64_t half = (uint64_t)1 << (drop - 1);
        const uint64_t rest = drop == 64 ? top : top & (((uint64_t)1 << drop) - 1);
        uint64_t kept = drop == 64 ? 0 : top >> drop;
        if (rest > half || (rest == half && (more || kept & 1))) kept++;
        *out = ldexp((double)kept, exponent + drop);
    } else {
        *out = ldexp((double)top, exponent);
    }
    if (b->negative) *out = -*out;
    return isfinite(*out);
}

bool jn_big_double(const struct big *b, double *out) { return nearest(b, 0, false, out); }

const struct big *jn_big_from_double(struct vm *m, double f)
{
    int exponent;
    const double mantissa = frexp(fabs(f), &exponent);
    if (exponent <= 0) return big_new(m, 0);
    uint64_t u = (uint64_t)ldexp(mantissa, 53);
    int shift = exponent - 53;
    if (shift < 0) {
        u >>= -shift;
        shift = 0;
    }
    struct big *b = big_new(m, (size_t)shift / 32 + 3);
    const unsigned __int128 wide = (unsigned __int128)u << (shift % 32);
    for (uint32_t i = 0; i < 3; i++) b->d[(uint32_t)shift / 32 + i] = (uint32_t)(wide >> (32 * i));
    b->negative = f < 0;
    return trimmed(m, b);
}

bool jn_big_quotient(struct vm *m, const struct big *a, const struct big *b, double *out)
{
    /* a is scaled so that the whole quotient has at least 66 bits; what is left below makes it sticky. */
    const int scale = (int)bits(b) + 66 - (int)bits(a);
    const uint32_t shift = scale > 0 ? (uint32_t)scale : 0;
    struct big *wide = big_new(m, (size_t)a->n + shift / 32 + 1);
    for (uint32_t i = 0; i < a->n; i++) {
        const uint64_t d = (uint64_t)a->d[i] << shift % 32;
        wide->d[i + shift / 32] |= (uint32_t)d;
        wide->d[i + shift / 32 + 1] |= (uint32_t)(d >> 32);
    }
    while (wide->n && !wide->d[wide->n - 1]) wide->n--;
    struct big *left;
    struct big *q = divide(m, wide, b, &left);
    while (q->n && !q->d[q->n - 1]) q->n--;
    while (left->n && !left->d[left->n - 1]) left->n--;
    q->negative = a->negative != b->negative;
    return nearest(q, -(int)shift, left->n != 0, out);
}
