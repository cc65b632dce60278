/* jinja.h: chat templates in the language of Python's jinja2 3.1, as transformers sets it up, interpreted in C.
 *
 * A template is parsed once and rendered many times, by any thread. What it prints equals jinja2's output byte for
 * byte; what jinja2 refuses is refused. Besides the text, a render tells for each byte whether it came from the
 * template or from the values that the caller gave (messages, tools, documents): only the first kind may become control
 * tokens. Nothing reads the clock, the environment or a file. Work is bounded by counts, never by time, so that the
 * same input has the same result everywhere.
 *
 * Set-up: the immutable sandbox, trim_blocks, lstrip_blocks, loop controls, `generation` blocks (they print their
 * body), no autoescape, `tojson` as json.dumps with ensure_ascii=False, `raise_exception`, `strftime_now`. The
 * statements include, import, from, extends, autoescape, do, trans and debug are refused by name when the template is
 * opened.
 *
 * What differs from jinja2; none of it occurs in some 1,200 published templates: scoped and required blocks are refused
 * when the template is opened; `encode`, `translate` and `maketrans` of strings and `hex`, `to_bytes`,
 * `as_integer_ratio`, `conjugate` and `bit_count` of numbers are unknown; `random` and `lipsum` fail, since a prompt is
 * to be the same each time; complex numbers fail; an object that Python prints with its address has no address; a slice
 * of a constant that cannot be sliced fails at once. Behaviour was read from jinja2 3.1, markupsafe and CPython and is
 * compared with their output: cases of our own, 146 templates of real models with 28 conversations each, random
 * expressions. */
#ifndef CORE_JINJA_JINJA_H
#define CORE_JINJA_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

enum {
    JINJA_MAX_TEMPLATE = 1 << 20,  /* bytes of a template */
    JINJA_MAX_STEPS = 2000000,     /* instructions, items, blocks of 256 bytes that are copied and of 32 that are looked
                                    * at one by one: of one render */
    JINJA_MAX_OUTPUT = 8 << 20,    /* bytes that one render may print */
    JINJA_MAX_MEMORY = 256 << 20,  /* bytes of the values that one render makes; the same for one jinja_values */
    JINJA_MAX_DEPTH = 200,         /* nesting of a template's syntax, of macro calls, and of values */
    JINJA_MAX_RANGE = 100000,      /* items of range(); jinja2's sandbox has the same limit */
    JINJA_MAX_INTEGER_BITS = 16384 /* of an integer; the language itself knows no limit */
};

struct jinja_template; /* immutable once open; any thread */

/* Parses text[0..n), UTF-8. WK_INVALID: not a template; err begins with "template line L, column C: " (both from 1, the
 * column in characters). The text is copied. */
wk_status jinja_open(struct jinja_template **out, const char *text, size_t n, const struct wk_err *err);
void jinja_close(struct jinja_template *t); /* NULL allowed */

/* The variables that a template may read from its context, each once, globals of the language (range, namespace, ...)
 * among them. A variable that the template always sets before it reads it is not among them. */
size_t jinja_n_variables(const struct jinja_template *t);
const char *jinja_variable(const struct jinja_template *t, size_t i); /* the template's, NUL-terminated */
bool jinja_reads(const struct jinja_template *t, const char *name);
/* Does the template say this name as an attribute, as in message.NAME or message['NAME'] or message.get('NAME')? */
bool jinja_mentions(const struct jinja_template *t, const char *name);

/* --- Values: what the caller gives a template. --- */

struct jinja_values; /* an arena that owns values [one thread, while values are made] */
struct jinja_value; /* lives as long as its arena. Unchanged once a render has begun, it may be read by many renders and
                     * threads at once. */

/* Where a string's bytes come from. Values from JSON are input. */
enum jinja_origin { JINJA_TEMPLATE = 0 /* control tokens allowed */, JINJA_INPUT = 1 };

struct jinja_values *jinja_values_new(void);    /* NULL: no memory */
void jinja_values_free(struct jinja_values *a); /* NULL allowed */

/* Each returns NULL where memory is exhausted or an argument is NULL, so that a caller may test the last one alone. */
struct jinja_value *jinja_none(struct jinja_values *a);
struct jinja_value *jinja_bool(struct jinja_values *a, bool b);
struct jinja_value *jinja_int(struct jinja_values *a, int64_t i);
/* Copies. text must be UTF-8 (NUL allowed); else NULL. JINJA_TEMPLATE is for texts of the model itself: bos_token. */
struct jinja_value *jinja_string(struct jinja_values *a, const char *text, size_t n, enum jinja_origin origin);
struct jinja_value *jinja_list(struct jinja_values *a);
struct jinja_value *jinja_list_add(struct jinja_values *a, struct jinja_value *list, const struct jinja_value *item);
struct jinja_value *jinja_dict(struct jinja_values *a);
/* A key that is there keeps its place and gets the new value. Returns the dict. */
struct jinja_value *jinja_dict_set(struct jinja_values *a, struct jinja_value *dict, const char *key,
                                   const struct jinja_value *value);
/* NULL: not there, or no dict. */
const struct jinja_value *jinja_dict_get(const struct jinja_value *dict, const char *key);

/* One JSON text of n bytes. Keys keep their order (of doubles the last value, at the first one's place), integers their
 * digits, floats are doubles. name is said in errors: "messages". WK_INVALID: no JSON, or beyond a limit. */
wk_status jinja_from_json(struct jinja_values *a, const char *text, size_t n, const char *name,
                          struct jinja_value **out, const struct wk_err *err);

/* --- Rendering. --- */

struct jinja_options {
    int64_t now;        /* what strftime_now prints: seconds since 1970 (UTC) ... */
    int32_t utc_offset; /* ... and the local clock's distance from UTC in seconds */
};

struct jinja_run {
    size_t begin, end;  /* bytes of the output; runs touch each other, none is empty, neighbours differ */
    bool from_template; /* else from the context */
};

enum jinja_end {
    JINJA_DONE = 0, /* the whole text is there */
    JINJA_RAISED,   /* the template called raise_exception: `message` has its words alone */
    JINJA_FAILED,   /* any other failure, such as an operation on an undefined value */
    JINJA_LIMIT,    /* a budget of this file was used up */
    JINJA_NO_MEMORY
};

struct jinja_result {
    enum jinja_end end;
    char *text; /* n bytes and a NUL; NULL unless JINJA_DONE */
    size_t n;
    struct jinja_run *runs;
    size_t n_runs;
    char *message;         /* NULL if JINJA_DONE or JINJA_NO_MEMORY */
    uint32_t line, column; /* where in the template it failed; 0: not known */
    uint64_t steps;        /* used of JINJA_MAX_STEPS */
};

/* Renders t with `context`, a dict whose keys are the template's variables. *out is always filled and the caller's to
 * give to jinja_result_free. WK_OK: JINJA_DONE. Else err has "template line L, column C: " and what happened. Needs
 * less than 128 KiB of the caller's stack. [any thread] */
wk_status jinja_render(const struct jinja_template *t, const struct jinja_value *context,
                       const struct jinja_options *options, struct jinja_result *out, const struct wk_err *err);
void jinja_result_free(struct jinja_result *r);

#endif
