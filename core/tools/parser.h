/* parser.h: a parser's state, shared by parse.c (what is a call) and parse_call.c (what stands in it). Private to
 * core/tools. */
#ifndef CORE_TOOLS_PARSER_H
#define CORE_TOOLS_PARSER_H

#include "tools/internal.h"

enum { PARSER_NAME = TOOLS_MAX_NAME + 16 /* and what stands around a name */, PARSER_KEY = 256, PARSER_TAIL = 64 };

/* Elements within each other. */
struct nested {
    enum { NESTED_TEXT, NESTED_MARK /* the mark was read */, NESTED_FIRST, NESTED_NAME } state;
    bool closing; /* the tag is the end of an element */
    size_t mark_at;
    struct {
        size_t key, len; /* in keys */
        enum { ELEMENT_LEAF, ELEMENT_OBJECT, ELEMENT_ARRAY } kind;
        bool more; /* something was told in it */
    } level[NESTED_DEPTH];
    uint32_t depth;
    struct byte_buffer keys;
};

/* An event whose texts are places in tools_parser.out. */
struct told {
    enum tools_kind kind;
    uint32_t index;
    size_t at, len, id_at, id_len;
};

struct tools_parser {
    const struct tools_model *model;
    const struct tools_set *set;
    uint64_t seed;
    wk_status status;
    bool single, ending;

    unit *in; /* from cand on not yet told */
    size_t n_in, cap_in;
    size_t at, cand;
    enum { MODE_TEXT, MODE_BEGIN, MODE_NEXT, MODE_CALL } mode;
    bool started;    /* something other than white space has come */
    bool after_call; /* text begins behind a call: white space may be a part of what is between calls */
    bool section;    /* the section's beginning was read */
    bool bare;       /* the candidate has no mark */
    bool first;      /* NEXT: no call of the section was read yet */
    uint32_t calls, malformed;
    uint32_t next_index; /* of Kimi's ids: behind the last one that was given */

    /* the call that is read */
    uint16_t step;
    uint16_t a, b; /* units matched of one or two literals */
    bool a_lives, b_lives;
    size_t lit_at;     /* where the step began */
    size_t end_at;     /* where the last value's end began */
    bool ending_value; /* it ends if a parameter or the call's end follows; else what looked like its end is its text */
    bool begun, closed; /* it was told; its arguments are complete */
    const struct tools_function *function;
    struct tools_function any; /* without a set: the function that was named */
    char any_name[TOOLS_MAX_NAME];
    char name[PARSER_NAME], id[PARSER_NAME];
    size_t n_name, n_id;
    struct value value;
    struct byte_buffer sink; /* arguments that were not told yet */

    enum {
        OBJECT_OPEN,
        OBJECT_FIRST, /* a key or } */
        OBJECT_KEY_OR_END,
        OBJECT_KEY,
        OBJECT_COLON,
        OBJECT_VALUE,
        OBJECT_NAME,
        OBJECT_ARGUMENTS,
        OBJECT_TEXT, /* arguments as a string with JSON in it */
        OBJECT_SKIPPED,
        OBJECT_AFTER
    } object;
    bool object_arguments; /* they were read */
    bool nested;           /* name and arguments stand in a member of the object */

    bool in_parameter;
    uint16_t parameter_step;
    char key[PARSER_KEY];
    size_t n_key;
    bool more_keys; /* a key was told */
    unsigned kinds;
    bool typed, streams, value_begins;
    char type[16];
    size_t n_type;
    unit tail[PARSER_TAIL]; /* may be the value's end */
    size_t n_tail;
    enum { CDATA_NONE, CDATA_MAY_OPEN, CDATA_INSIDE } cdata;
    uint8_t n_cdata; /* units matched of what opens, or closes */
    struct raw_text text;
    struct byte_buffer raw; /* a value that must be complete before it is known what it is */

    struct nested nest;

    struct told *told;
    size_t n_told, cap_told;
    struct byte_buffer out;
    struct tools_event *events;
    size_t cap_events;
};

/* For parse_call.c. Failures for lack of memory stick in status. */
bool parser_tell(struct tools_parser *p, enum tools_kind kind, const char *bytes, size_t n);
void parser_begin_call(struct tools_parser *p);
void parser_arguments(struct tools_parser *p, const char *bytes, size_t n);
enum name { NAME_MORE, NAME_END /* the unit is behind it */, NAME_BAD };
enum name parser_name(unit u, char *out, size_t *n);
bool parser_resolve(struct tools_parser *p, const char *name, size_t n);
enum lit { LIT_MORE, LIT_DONE, LIT_DEAD };
enum lit parser_match(const struct step *s, uint16_t *at, unit u);

/* A unit of $OBJECT. */
enum object { OBJECT_MORE, OBJECT_CLOSED, OBJECT_LOST };
enum object parser_object(struct tools_parser *p, unit u);
/* A unit of a parameter; it has ended: in_parameter is false. False: it is none. */
void parser_enter_parameter(struct tools_parser *p, uint16_t step);
bool parser_parameter(struct tools_parser *p, unit u);
/* A value's text, complete, as JSON: where the schema's kinds take such a value; otherwise as a string. */
void parser_tell_text(struct tools_parser *p, const char *text, size_t n, unsigned kinds);
/* A unit of $NESTED. */
void parser_begin_nested(struct tools_parser *p);
enum nested_result { NESTED_MORE, NESTED_CLOSED /* what follows begins at mark_at */, NESTED_LOST };
enum nested_result parser_nested(struct tools_parser *p, unit u);
/* A parameter or the call's end follows what looked like a value's end; something else does: it is read again, as a
 * part of the value. False: there was none, or no memory. */
void parser_value_ended(struct tools_parser *p);
bool parser_value_goes_on(struct tools_parser *p);

#endif
