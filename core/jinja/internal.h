/* internal.h: values, strings with provenance, memory and errors of the template language. Private to core/jinja.
 *
 * Everything that a render makes lives in the heap of its `vm` and is given back at once. A failure, memory included,
 * leaves by longjmp to the render's entry (or to a filter that holds it back, gen_collect): no value needs cleaning up,
 * and functions return values instead of statuses. Values are immutable but for namespaces, cyclers, joiners and the
 * position of an iterator. */
#ifndef CORE_JINJA_INTERNAL_H
#define CORE_JINJA_INTERNAL_H

#include <setjmp.h>
#include <string.h>

#include "jinja.h"

enum kind {
    V_MISSING = 0, /* no value at all: an argument that was not given, a variable without a value */
    V_UNDEFINED,
    V_NONE,
    V_BOOL,
    V_INT,
    V_BIG,
    V_FLOAT,
    V_STRING,
    V_LIST,
    V_TUPLE,
    V_DICT,
    V_VIEW,     /* keys(), values() or items() of a dict; aux: enum view */
    V_RANGE,    /* aux unused */
    V_ITERATOR, /* what map, select, batch, ... return: it can be read once and has no length */
    V_NAMESPACE,
    V_MACRO,
    V_LOOP,
    V_METHOD,   /* a method and its object */
    V_FUNCTION, /* of the language: range, dict, ...; aux: enum global */
    V_CYCLER,
    V_JOINER,
    V_SELF, /* the template's blocks */
    V_SLICE /* a:b:c between brackets */
};

typedef struct jinja_value val;
struct jinja_value {
    uint8_t kind;
    uint8_t input; /* a number that was made from input: its digits are input */
    uint16_t spare;
    uint32_t aux;
    union {
        bool b;
        int64_t i;
        double f;
        const struct big *big;
        const struct str *s;
        struct list *list; /* lists and tuples */
        struct dict *dict; /* dicts, views and namespaces */
        const struct range *range;
        struct iterator *it;
        const struct macro *macro;
        struct loop *loop;
        const struct method *method;
        const struct undefined *undefined; /* NULL: no words */
        struct cycler *cycler;
        struct joiner *joiner;
        const val *slice; /* three */
    } u;
};

/* The bytes up to `end` have this origin. */
struct run {
    uint32_t end, origin;
};

struct str {
    const char *data; /* UTF-8, not terminated */
    uint32_t n, chars;
    const struct run *runs; /* NULL: all of `origin` */
    uint32_t n_runs;
    uint8_t origin;
    bool markup; /* marked as safe HTML */
};

struct list {
    val *items;
    uint32_t n, cap;
    bool input; /* made by the caller, so that its brackets are input, too */
    bool group; /* a tuple of groupby: .grouper and .list */
};

struct pair {
    val key, value;
};
struct dict {
    struct pair *pairs;
    uint32_t n, cap;
    uint32_t *sorted; /* places of the pairs by key; NULL: few enough to look at each */
    uint32_t n_sorted;
    bool input;
};
enum view { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };

struct range {
    int64_t start, stop, step;
    uint32_t n;
    uint8_t input;
};

struct failure {
    enum jinja_end end;
    const char *message; /* the heap's, or constant */
    uint32_t at;         /* byte of the source + 1; 0: not known */
};

struct iterator {
    val *items;
    uint32_t n, at;
    const struct failure *failure; /* met when the items are used up */
    const char *name;              /* of its type */
};

struct macro {
    const struct function *f;
    struct frame *outer;
};

struct method {
    val self;
    const struct str *name;
    uint16_t id;
};

struct undefined {
    const char *words;      /* what a use of it is answered with; NULL: made of the others */
    const char *type;       /* of the object that lacks it; NULL: a variable */
    const struct str *name; /* of what is missing */
};

struct cycler {
    const val *items;
    uint32_t n, at;
};
struct joiner {
    val separator;
    bool used;
};

/* --- Memory and errors: memory.c --- */

struct block;
struct heap {
    struct block *last;
    char *at, *end;
    size_t total;
};

/* The room behind the text that was made by the last concatenation: what is appended to that text goes there. */
struct tail {
    char *end, *limit;
    struct run *runs;
    uint32_t n_runs, cap_runs;
};

struct vm {
    struct heap heap;
    struct tail tail;
    jmp_buf *trap;
    struct failure failure;
    char limit[96];                    /* the text of a used-up budget */
    const struct str *ascii[2][128];   /* texts of one character by origin, made once each */
    const struct undefined *undefined; /* the last one that was made of a name */
    uint64_t steps;
    uint32_t depth; /* of recursion over values */
    uint32_t at;    /* what runs: byte of the source + 1 */
    const struct jinja_template *t;
    const struct jinja_options *options;
    struct machine *machine;
};

/* Zeroed room, aligned to 16. */
void *jn_heap_take(struct vm *m, size_t n);
void *jn_heap_array(struct vm *m, size_t n, size_t size);
/* Room for `want` items: the same pointer where the heap's end can move, else a copy. */
void *jn_heap_grow(struct vm *m, void *items, size_t used, uint32_t *cap, size_t want, size_t size);
void jn_heap_free(struct heap *h);

WK_PRINTF(2, 3)
_Noreturn void jn_fail(struct vm *m, const char *format, ...); /* JINJA_FAILED */
WK_PRINTF(2, 3)
_Noreturn void jn_fail_limit(struct vm *m, const char *format, ...);
_Noreturn void jn_fail_again(struct vm *m, const struct failure *f);
WK_PRINTF(2, 3)
const char *jn_words(struct vm *m, const char *format, ...);

/* One step and one for each 256 bytes. */
static inline void jn_spend(struct vm *m, size_t bytes)
{
    m->steps += 1 + (bytes >> 8);
    if (m->steps > JINJA_MAX_STEPS) jn_fail_limit(m, "more than %d steps", JINJA_MAX_STEPS);
}
void jn_spend_items(struct vm *m, size_t n);
/* A text that is looked at character by character takes as long as a larger one that is copied. */
static inline void jn_spend_chars(struct vm *m, size_t bytes) { jn_spend(m, bytes * 8); }
/* Around each recursion over values. */
static inline void jn_deeper(struct vm *m)
{
    if (++m->depth > JINJA_MAX_DEPTH) jn_fail_limit(m, "values are nested deeper than %d levels", JINJA_MAX_DEPTH);
}
static inline void jn_shallower(struct vm *m) { m->depth--; }

/* --- Strings: text.c --- */

struct buf {
    struct vm *m;
    char *data;
    struct run *runs;
    uint32_t n, cap, n_runs, cap_runs;
};

void jn_buf_open(struct buf *b, struct vm *m);
void jn_buf_add(struct buf *b, const char *text, size_t n, unsigned origin);
void jn_buf_char(struct buf *b, uint32_t c, unsigned origin);
void jn_buf_fill(struct buf *b, const struct str *s, int64_t n); /* s, n times */
void jn_buf_slice(struct buf *b, const struct str *s, uint32_t begin, uint32_t end);
static inline void jn_buf_str(struct buf *b, const struct str *s) { jn_buf_slice(b, s, 0, s->n); }
static inline void jn_buf_text(struct buf *b, const char *text, unsigned origin)
{
    jn_buf_add(b, text, strlen(text), origin);
}
val jn_buf_value(struct buf *b, bool markup); /* the buffer's bytes become the string's */

val jn_str_new(struct vm *m, const char *text, size_t n, unsigned origin);      /* copies */
val jn_str_constant(struct vm *m, const char *text, size_t n, unsigned origin); /* text outlives the heap */
val jn_str_slice(struct vm *m, const struct str *s, uint32_t begin, uint32_t end, bool markup);
val jn_str_marked(struct vm *m, const struct str *s, bool markup);
val jn_str_repeat(struct vm *m, const struct str *s, int64_t n);
unsigned jn_str_origin(const struct str *s, uint32_t at);  /* of the byte at `at`; of an empty text: template */
uint32_t jn_str_run_end(const struct str *s, uint32_t at); /* where bytes of that origin end; of a text with runs */
uint32_t jn_str_chars(const struct str *s);
uint32_t jn_str_byte(const struct str *s, uint32_t character); /* where it begins */
bool jn_str_is(const struct str *s, const char *text);
bool jn_str_same(const struct str *a, const struct str *b);
int jn_str_order(const struct str *a, const struct str *b);
/* The first (last) place of `part` in s[from..to), or UINT32_MAX. */
uint32_t jn_str_find(const struct str *s, const struct str *part, uint32_t from, uint32_t to);
uint32_t jn_str_rfind(struct vm *m, const struct str *s, const struct str *part, uint32_t from, uint32_t to);
val jn_str_concat(struct vm *m, const struct str *a, const struct str *b, bool markup);
val jn_str_escape(struct vm *m, const struct str *s); /* &<>'" as HTML, marked */
uint32_t jn_char_at(const struct str *s, uint32_t byte, uint32_t *len);

/* --- What a character is: chars.c --- */

unsigned jn_char_flags(uint32_t c);
unsigned jn_char_digit(uint32_t c); /* 15: none */
enum char_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_FOLD, CASE_SWAP };
/* What str.upper(), lower(), title() (of each word), casefold() and swapcase() make of s[begin..end). */
void jn_buf_case(struct buf *b, const struct str *s, uint32_t begin, uint32_t end, enum char_case how);
/* One character with title case, as capitalize() begins. */
void jn_buf_title_char(struct buf *b, uint32_t c, unsigned origin);
bool jn_char_is_space(uint32_t c);
bool jn_char_is_line_end(uint32_t c); /* what splitlines() ends a line at */
bool jn_char_is_word(uint32_t c);     /* \w of Python's re */

/* --- Numbers: number.c --- */

bool jn_is_number(val v); /* bool, integer, float */
bool jn_is_integer(val v);
val jn_number_from_digits(struct vm *m, const char *digits, size_t n,
                          unsigned base); /* digits alone; '-' allowed first */
val jn_number_add(struct vm *m, val a, val b);
val jn_number_sub(struct vm *m, val a, val b);
val jn_number_mul(struct vm *m, val a, val b);
val jn_number_div(struct vm *m, val a, val b);
val jn_number_floor_div(struct vm *m, val a, val b);
val jn_number_mod(struct vm *m, val a, val b);
val jn_number_pow(struct vm *m, val a, val b);
val jn_number_neg(struct vm *m, val a);
int jn_number_order(struct vm *m, val a, val b);   /* <0, 0, >0; 2: one is NaN */
double jn_number_double(struct vm *m, val v);      /* fails beyond a double's range */
val jn_number_from_double(struct vm *m, double f); /* truncated to an integer */
val jn_number_round(struct vm *m, val v, int64_t digits, bool to_integer);
bool jn_number_int64(val v, int64_t *out); /* of an integer or bool; false: does not fit */
bool jn_number_negative(val v);
const char *jn_number_text(struct vm *m, val v, unsigned base);         /* of an integer, without prefix */
void jn_float_text(double f, char out[32]);                             /* as Python's repr */
val jn_float_parse(struct vm *m, const struct str *s);                  /* as float(); V_MISSING: it is none */
val jn_integer_parse(struct vm *m, const struct str *s, unsigned base); /* as int(); V_MISSING: it is none */

/* --- Values: value.c, print.c --- */

static inline val jn_v_bool(bool b) { return (val){ .kind = V_BOOL, .u.b = b }; }
static inline val jn_v_int(int64_t i) { return (val){ .kind = V_INT, .u.i = i }; }
static inline val jn_v_float(double f) { return (val){ .kind = V_FLOAT, .u.f = f }; }
static inline val jn_v_none(void) { return (val){ .kind = V_NONE }; }
static inline val jn_v_missing(void) { return (val){ .kind = V_MISSING }; }
val jn_v_text(struct vm *m, const char *text);                                   /* a constant of this program */
val jn_v_undefined(struct vm *m, const char *text);                              /* what is said is this constant */
val jn_v_undefined_name(struct vm *m, const char *type, const struct str *name); /* of an object's type, or NULL */
_Noreturn void jn_fail_undefined(struct vm *m, val v);
static inline bool jn_is_undefined(val v) { return v.kind == V_UNDEFINED; }

struct list *jn_list_new(struct vm *m, uint32_t cap);
void jn_list_push(struct vm *m, struct list *l, val v);
val jn_list_value(struct list *l, enum kind kind);
val jn_tuple2(struct vm *m, val a, val b);
struct dict *jn_dict_new(struct vm *m, uint32_t cap);
void jn_dict_put(struct vm *m, struct dict *d, val key, val value);   /* sets or replaces */
const val *jn_dict_find(struct vm *m, const struct dict *d, val key); /* fails for a key that cannot be one */
const val *jn_dict_find_str(const struct dict *d, const struct str *key);
void jn_check_key(struct vm *m, val key); /* fails for one that is not hashable */
/* Makes d's pairs[0..n), which may hold a key twice, a dict: the first place and the last value stay. */
void jn_dict_settle(struct vm *m, struct dict *d);
/* Sorts places stably; order gives <0, 0, >0 and may fail. */
void jn_sort_places(struct vm *m, uint32_t *places, uint32_t n, int (*order)(void *, uint32_t, uint32_t),
                    void *context);

bool jn_truth(struct vm *m, val v);
bool jn_equal(struct vm *m, val a, val b);
int jn_key_order(val a, val b); /* a total order in which equal keys are equal */
enum comparison { CMP_EQ, CMP_NE, CMP_LT, CMP_LE, CMP_GT, CMP_GE, CMP_IN, CMP_NOT_IN };
bool jn_compare(struct vm *m, enum comparison op, val a, val b);
bool jn_contains(struct vm *m, val container, val item);
bool jn_has_length(val v);
uint32_t jn_length(struct vm *m, val v);
const char *jn_type_name(val v);

/* Goes through a value; next returns false at the end. */
struct iter {
    val v;
    uint32_t at;
};
bool jn_is_iterable(val v);
void jn_iter_open(struct vm *m, struct iter *i, val v); /* fails for what cannot be gone through */
bool jn_iter_next(struct vm *m, struct iter *i, val *out);
struct list *jn_to_list(struct vm *m, val v); /* a new list of all items */
val jn_iterator_of(struct vm *m, struct list *l, const char *name);

void jn_print_str(struct buf *b, val v);  /* str(v) */
void jn_print_repr(struct buf *b, val v); /* repr(v) */
const struct str *jn_to_str(struct vm *m, val v);
void jn_print_json(struct buf *b, val v, bool ascii, const struct str *indent, const struct str *item_separator,
                   const struct str *key_separator, bool sort_keys);

/* --- Operations: ops.c --- */

enum binary { BIN_ADD, BIN_SUB, BIN_MUL, BIN_DIV, BIN_FLOOR_DIV, BIN_MOD, BIN_POW };
val jn_binary(struct vm *m, enum binary op, val a, val b);
val jn_unary_minus(struct vm *m, val v);
val jn_unary_plus(struct vm *m, val v);
val jn_get_attr(struct vm *m, val v, const struct str *name);
val jn_get_item(struct vm *m, val v, val key);

/* --- Calls: call.c, methods.c, filters*.c, tests.c, format.c, strftime.c --- */

struct args {
    const val *pos;
    uint32_t n_pos;
    const val *names; /* of the keyword arguments: strings */
    const val *named;
    uint32_t n_named;
};

/* Sorts arguments into out by a list of parameters: "old new count"; the first `required` must be given, others may
 * stay V_MISSING. A list that begins with '/' takes no keywords. `what` is said in errors. */
void jn_bind(struct vm *m, const char *what, const struct args *a, const char *parameters, uint32_t required, val *out);
int64_t jn_need_int(struct vm *m, val v, const char *what);
const struct str *jn_need_str(struct vm *m, val v, const char *what);
const struct str *jn_soft_str(struct vm *m, val v); /* itself if it is a string, else str(v) */

int jn_method_find(val self, const struct str *name); /* its id; -1: the object has none of that name */
val jn_method_call(struct vm *m, const struct method *f, const struct args *a);
val jn_str_method(struct vm *m, unsigned id, const struct str *self, const struct args *a);
int jn_str_method_find(const struct str *name);
int jn_filter_find(const struct str *name);
val jn_filter_call(struct vm *m, unsigned id, val v, const struct args *a);
int jn_test_find(const struct str *name);
bool jn_test_call(struct vm *m, unsigned id, val v, const struct args *a);
int jn_global_find(const struct str *name);
const char *jn_global_name(unsigned id);
/* Python's dict[x] is a type that makes dicts as well, so that dict.anything is one. V_MISSING: there is nothing. */
val jn_global_item(struct vm *m, unsigned id, const struct str *name);
val jn_global_call(struct vm *m, unsigned id, const struct args *a);
val jn_format_percent(struct vm *m, const struct str *s, val arguments);
val jn_format_braces(struct vm *m, const struct str *s, const struct args *a, const val *map);
void jn_format_time(struct buf *b, const struct str *format, int64_t now, int32_t utc_offset);
val jn_block_of(struct vm *m, const struct str *name);                  /* of self; V_MISSING: none */
val jn_macro_attr(struct vm *m, val macro, const struct str *name);     /* V_MISSING: none */
val jn_loop_attr(struct vm *m, struct loop *l, const struct str *name); /* V_MISSING: none */
val jn_loop_method(struct vm *m, struct loop *l, const struct str *name, const struct args *a);

#endif
