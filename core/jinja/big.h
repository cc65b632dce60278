/* big.h: integers beyond 64 bits. Private to core/jinja.
 *
 * Sign and magnitude, 32 bits a digit, the least first, none of the highest is zero; at most JINJA_MAX_INTEGER_BITS. */
#ifndef CORE_JINJA_BIG_H
#define CORE_JINJA_BIG_H

#include "internal.h"

struct big {
    uint32_t n;
    bool negative;
    uint32_t d[];
};

const struct big *jn_big_from_int(struct vm *m, int64_t i);
val jn_big_value(struct vm *m, const struct big *b); /* V_INT where it fits */
const struct big *jn_big_add(struct vm *m, const struct big *a, const struct big *b, bool subtract);
const struct big *jn_big_mul(struct vm *m, const struct big *a, const struct big *b);
/* Rounded down, as Python divides; *rest has b's sign. b is not zero. */
const struct big *jn_big_divide(struct vm *m, const struct big *a, const struct big *b, const struct big **rest);
int jn_big_order(const struct big *a, const struct big *b);
const char *jn_big_text(struct vm *m, const struct big *b, unsigned base);
const struct big *jn_big_from_digits(struct vm *m, const char *digits, size_t n, unsigned base);
bool jn_big_double(const struct big *b, double *out);         /* to nearest, ties to even; false: out of range */
const struct big *jn_big_from_double(struct vm *m, double f); /* an integer */
/* a / b to nearest, as Python's true division. False: out of range. */
bool jn_big_quotient(struct vm *m, const struct big *a, const struct big *b, double *out);

#endif
