/* body.h: JSON bodies of requests: strict, exact, and every refusal (INVALID_REQUEST) with the field that it is about.
 *
 * Jansson parses; what it cannot say is found before by a walk over the tokens: how deep the document is, and numbers
 * that its types do not hold. Duplicate names, invalid UTF-8, lone surrogates, NaN and anything after the document are
 * refused by Jansson itself. Pure functions. [any thread] */
#ifndef SERVE_BODY_H
#define SERVE_BODY_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "refusal.h"

enum { BODY_MAX_DEPTH = 192 };

/* The document in bytes, an object; the caller's. Whole numbers of names `seed` may be any uint64: what is above 2^63 -
 * 1 comes as a string of its digits; of other names what an int64 does not hold comes as a real number. */
bool body_parse(const char *bytes, size_t n, json_t **out, struct refusal *why);

/* The text of a member of a document that body_parse has taken: bytes of it. Numbers are as the client wrote them.
 * False: there is none of this name, or the name is spelt with escapes. */
bool body_member(const char *bytes, size_t n, const char *name, const char **value, size_t *len);

/* Bytes of memory that parsing these takes at most, for the caller to have room for it: a document of empty objects is
 * 80 times its text. */
size_t body_memory(const char *bytes, size_t n);

/* One member of an object as it was checked; prefix stands before its name in errors ("params." or ""). */
struct body_object {
    const json_t *object;
    const char *prefix;
};

/* Fails with "FIELD: expected ..., got VALUE". */
__attribute__((format(printf, 4, 5))) bool body_fail(const struct body_object *o, const char *name, struct refusal *why,
                                                     const char *expected, ...);
/* Every name of the object is one of `names` [n]. */
bool body_knows(const struct body_object *o, const char *const *names, size_t n, struct refusal *why);

/* Where null is the same as absent: members that are null go. */
void body_drop_nulls(json_t *object);

/* Members that are absent leave *out alone; a wrong type or a value out of range fails. */
bool body_integer(const struct body_object *o, const char *name, int64_t min, int64_t max, int64_t *out,
                  struct refusal *why);
bool body_real(const struct body_object *o, const char *name, double min, double max, double *out, struct refusal *why);
bool body_flag(const struct body_object *o, const char *name, bool *out, struct refusal *why);
bool body_uint64(const struct body_object *o, const char *name, uint64_t *out, bool *given,
                 struct refusal *why); /* also a string of digits */
/* most: bytes. The string may hold NUL; it is the document's. */
bool body_string(const struct body_object *o, const char *name, size_t least, size_t most, const char **out, size_t *n,
                 struct refusal *why);
/* A string to show or to look up: no control characters. */
bool body_name(const struct body_object *o, const char *name, size_t most, const char **out, struct refusal *why);
/* Is it a string that says `word`, to its last byte? */
bool body_says(const json_t *value, const char *word);
bool body_required(const struct body_object *o, const char *name, struct refusal *why);

#endif
