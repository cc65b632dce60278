/* json_reader.h: JSON (RFC 8259) from strangers, read in order and never built into a tree. Private to the core.
 *
 * A caller pulls what it expects: jr_object, then jr_member and a value again and again; nothing is allocated but one
 * buffer for the longest string that has escapes, so memory does not grow with what a file claims to hold. Strict:
 * UTF-8 alone, no lone surrogates, no trailing commas or bytes, at most JR_MAX_DEPTH levels. The first failure sticks,
 * with the path of where it happened ("tokenizer.json: model.merges[17]: expected ..."); all later calls return false,
 * so that a caller may test once. Why not a library: a tree of a 27 MB tokenizer.json takes 157 MB and most of the time
 * that opening may take, and an array of empty arrays forty times its size. [one thread] */
#ifndef CORE_TOKENIZER_JSON_READER_H
#define CORE_TOKENIZER_JSON_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

enum { JR_MAX_DEPTH = 64 };
enum jr_kind {
    JR_NOTHING = 0 /* the end, or no value's beginning */,
    JR_OBJECT,
    JR_ARRAY,
    JR_STRING,
    JR_NUMBER,
    JR_BOOL,
    JR_NULL
};

struct json_text {
    const char *data;
    size_t len;
};

struct json_level {
    struct json_text key; /* of the member being read, as the text spells it; NULL: an array */
    uint64_t count;       /* members or elements begun */
};

struct json_reader {
    const char *begin, *at, *end;
    const char *name, *path; /* said before every failure's own path; path "" or "model" */
    const struct wk_err *err;
    wk_status status;
    uint32_t depth;
    struct json_level level[JR_MAX_DEPTH];
    char *scratch; /* a string without its escapes */
    size_t scratch_cap;
};

/* text, name, path and err stay the caller's and must outlive the reader. */
void jr_open(struct json_reader *r, const char *text, size_t len, const char *name, const char *path,
             const struct wk_err *err);
void jr_close(struct json_reader *r);

enum jr_kind jr_peek(struct json_reader *r);

bool jr_object(struct json_reader *r); /* false: it is none, and that is said; so for all that follow */
/* The next member: its key (valid until the next string is read; NULL: not wanted); the reader stands before the value,
 * which must be read or skipped. False: the object has ended, or reading has failed (status). */
bool jr_member(struct json_reader *r, struct json_text *key);
bool jr_array(struct json_reader *r);
bool jr_element(struct json_reader *r);

bool jr_string(struct json_reader *r, struct json_text *out); /* valid until the next string is read; may hold NUL */
bool jr_u64(struct json_reader *r, uint64_t *out);            /* digits alone */
bool jr_bool(struct json_reader *r, bool *out);
bool jr_null(struct json_reader *r);                       /* true: it is null, and taken; false says nothing */
bool jr_skip(struct json_reader *r);                       /* any value, checked as if it were read */
bool jr_raw(struct json_reader *r, struct json_text *out); /* the same; out: the bytes that it has, part of the text */
bool jr_finish(struct json_reader *r);                     /* nothing but white space follows */
bool jr_is_object(const char *text, size_t n);             /* is all of it one JSON object? */

bool jr_is(struct json_text t, const char *text);
/* Fails at the current place. Always false. */
WK_PRINTF(3, 4)
bool jr_fail(struct json_reader *r, wk_status status, const char *format, ...);

#endif
