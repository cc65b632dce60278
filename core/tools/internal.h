/* internal.h: what the files of core/tools share: layouts as steps over units, values that are written while they are
 * read, and what a schema says of a parameter. */
#ifndef CORE_TOOLS_INTERNAL_H
#define CORE_TOOLS_INTERNAL_H

#include <stdlib.h>

#include "tools/tools.h"

/* ---- layouts ------------------------------------------------------------------------------------------- */

/* A byte, or a control token among the format's marks: UNIT_MARK + its place in tools_model.mark. */
typedef uint16_t unit;
enum { UNIT_MARK = 256, UNIT_SPACE_BEFORE = 0x8000 /* in a literal: white space may stand before */ };

enum step_kind {
    STEP_LITERAL,
    STEP_NAME,
    STEP_ID,
    STEP_INDEX,
    STEP_PLACE,
    STEP_ARGS,
    STEP_OBJECT,
    STEP_PARAMS,
    STEP_NESTED,
    STEP_PYTHON,
    STEP_GEMMA,
    STEP_KEY,
    STEP_VALUE,
    STEP_TYPE,
    STEP_IS
};
struct step {
    enum step_kind kind;
    const unit *units; /* LITERAL: without white space */
    uint16_t n;
    bool line_first, line_last; /* LITERAL: its text begins, ends with a newline */
};
enum { MODEL_UNITS = 2048, MODEL_STEPS = 16, MODEL_MARKS = 16, MODEL_TRIGGERS = 4 };
enum { NESTED_DEPTH = 32 /* elements within each other */ };
enum { TRIGGER_SPACE = 4 /* bytes of white space inside a trigger, where its text has some */ };

struct trigger {
    const unit *units;
    uint16_t n;
    uint16_t skip; /* units of the call's first literal that were left out */
    bool section;  /* it is begin's, else a call's */
};
/* Keys of $OBJECT. */
struct object_keys {
    char first[32], name[32], arguments[32]; /* name "": the name itself is the key */
};
struct tools_model {
    struct tools_format format;
    struct step begin, end; /* n = 0: none */
    struct step again;      /* between and the call's first literal */
    struct step call[MODEL_STEPS], parameter[MODEL_STEPS];
    uint16_t n_call, n_parameter;
    struct trigger trigger[MODEL_TRIGGERS];
    uint16_t n_triggers;
    struct object_keys keys;
    uint32_t mark[MODEL_MARKS];
    struct token_bytes mark_text[MODEL_MARKS]; /* in texts */
    char mark_texts[MODEL_MARKS][64];
    uint16_t n_marks;
    unit units[MODEL_UNITS];
    uint16_t n_units;
};

/* The next part of a layout: a placeholder (its kind) or a literal text. False: the layout has ended. */
bool layout_next(const char **at, enum step_kind *kind, struct token_bytes *literal);

static inline bool unit_is_space(unit u) { return u == ' ' || u == '\n' || u == '\t' || u == '\r'; }
static inline bool unit_is_word(unit u)
{
    return (u >= '0' && u <= '9') || (u >= 'A' && u <= 'Z') || (u >= 'a' && u <= 'z') || u == '_';
}
/* What names of functions and ids of calls are made of. */
static inline bool unit_is_name(unit u) { return unit_is_word(u) || u == '-' || u == '.' || u == ':' || u == '/'; }

extern const char cdata_open[10], cdata_close[4];
/* The layout of $OBJECT. */
const char *format_object(const struct tools_format *f);
/* Do calls begin without a mark, as the first JSON of an answer? */
bool format_is_bare(const struct tools_format *f);

bool tools_put(struct byte_buffer *b, const char *bytes, size_t n); /* false: no memory */

/* ---- values -------------------------------------------------------------------------------------------- */

/* A value that comes unit by unit and leaves as JSON. Read are JSON, which leaves as it came, Python's literals, and
 * Gemma's. */
enum { VALUE_DEPTH = 62 /* one more around parameters: what readers of JSON take */, VALUE_WORD = 8 };
enum value_result {
    VALUE_MORE,   /* taken, goes on */
    VALUE_DONE,   /* taken, and the last */
    VALUE_BEFORE, /* not taken: the value was complete before it (numbers) */
    VALUE_BAD,
    VALUE_NO_MEMORY
};
struct value {
    unsigned char state, level[VALUE_DEPTH];
    uint8_t depth, n_word, n_hex, utf8_left, utf8_low, utf8_high, number;
    unit quote;        /* of the string that is open: a quote, or Gemma's mark (its first unit) */
    bool key, loose;   /* the string is a key; quotes inside are not escaped */
    const unit *gemma; /* Gemma's quote, gemma_n units; NULL: not Gemma */
    uint16_t gemma_n, gemma_at;
    char word[VALUE_WORD];
};
enum value_style { VALUE_JSON /* and Python's */, VALUE_PYTHON_CALL /* (a=1) */, VALUE_GEMMA };
void value_begin(struct value *v, enum value_style style, const struct step *gemma_quote);
enum value_result value_push(struct value *v, unit u, struct byte_buffer *out);
/* May it end here? A number does. */
bool value_complete(const struct value *v);

/* Bytes of a raw text as the inside of a JSON string, a character at a time. False: no memory. What is not UTF-8
 * becomes U+FFFD. */
struct raw_text {
    unsigned char held[4];
    uint8_t n;
};
bool raw_put(struct raw_text *r, unsigned char byte, struct byte_buffer *out);
bool raw_end(struct raw_text *r, struct byte_buffer *out);

/* ---- functions ----------------------------------------------------------------------------------------- */

enum {
    KIND_STRING = 1,
    KIND_NUMBER = 2,
    KIND_BOOLEAN = 4,
    KIND_NULL = 8,
    KIND_ARRAY = 16,
    KIND_OBJECT = 32,
    KIND_ALL = 63
};
struct tools_set {
    struct tools_function *list;
    size_t n;
    char *texts;
};
const struct tools_function *set_find(const struct tools_set *s, struct token_bytes name);
/* Which kinds of JSON values a parameter may have, by the schema; KIND_ALL where it does not say. */
unsigned set_kinds(const struct tools_function *f, struct token_bytes key);
/* The same of a value within: by names of members, and of items for arrays (data NULL). */
unsigned set_kinds_at(const struct tools_function *f, const struct token_bytes *path, size_t n);
unsigned set_root_kinds(const struct tools_function *f); /* the parameters' own */

#endif
