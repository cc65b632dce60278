/* tools.h: calls of functions as models write them: the table of formats, and a parser that takes an answer's ids as
 * they come.
 *
 * A format is a row of a table (formats.c): the marks around a call, where the name stands, how arguments are written.
 * A model's row is found by marks in its template and then checked: a call that the model's own template has rendered
 * must be what the row writes. A model without a row is refused by name. The parser is driven by the row alone; it
 * knows control tokens by their ids, so no text forges a mark that the vocabulary has as one.
 *
 * The parser never fails on what a model writes: what turns out to be no call is given back as text, every byte of it,
 * and counted. */
#ifndef CORE_TOOLS_TOOLS_H
#define CORE_TOOLS_TOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <worker/abi.h>

#include "tokenizer/tokenizer.h"
#include "tokenizer/unicode.h"

enum {
    TOOLS_MAX = 1024,              /* functions of one request */
    TOOLS_MAX_NAME = 128,          /* bytes of a function's name, of a call's id */
    TOOLS_MAX_SCHEMA = 1 << 20,    /* bytes of a function's parameters */
    TOOLS_MAX_ANSWER = 16 << 20,   /* bytes that are held until it is known what they are */
    TOOLS_ID = TOOLS_MAX_NAME + 32 /* room for a call's id and its 0 */
};

/* ---- formats ------------------------------------------------------------------------------------------- */

/* How a call's id looks in the history that the model was trained with. */
enum tools_id_rule {
    TOOLS_ID_OPENAI = 0, /* call_ and 24 letters or digits */
    TOOLS_ID_NINE,       /* 9 letters or digits: Mistral */
    TOOLS_ID_KIMI        /* functions.NAME:INDEX */
};

/* A row. Texts are layouts: what the model writes, with $NAME, $ID, $INDEX and $PLACE (of the call in the answer, from
 * 1 and from 0), $ARGS (a JSON object), $OBJECT (a JSON object with name and arguments, by the layout `object`),
 * $PARAMS (each argument by the layout `parameter`, with $KEY, $VALUE, $TYPE (the JSON type), $IS (true: a string)),
 * $PYTHON (arguments of a Python call, in brackets) and $GEMMA (an object with bare keys). White space in layouts is
 * written, and optional where answers are read. */
struct tools_format {
    const char *name;
    const char *marks[2];              /* both stand in the template; NULL: none */
    const char *begin, *between, *end; /* around all calls; between two */
    const char *call, *parameter;
    const char *object;  /* NULL: {"name": "$NAME", "arguments": $ARGS}. Read with further members, in any order */
    const char *shown;   /* `object` as the template shows calls, where it tells the model to write others; or NULL */
    const char *quote;   /* of $GEMMA's strings */
    const char *trigger; /* how begin, or a call without it, is noticed; NULL: by its first word */
    const char *misspelt[2]; /* a mark, and what the template writes in its place by mistake; NULL: none */
    const char *opened;      /* with what of the first call the prompt ends; NULL: nothing */
    const char *said;        /* before text, where a call could begin; NULL: nothing */
    enum tools_id_rule ids;
    bool single;               /* one call in an answer */
    bool cdata;                /* strings with <, & or a newline stand in <![CDATA[ ]]> */
    bool spaced;               /* the template writes more white space into JSON */
    bool double_quotes, tight; /* $PYTHON writes "text", not 'text'; no space behind a comma */
};
const struct tools_format *tools_formats(size_t *n);

/* An id by a rule that no name is needed for: of the call of that number, made of a seed. Returns its bytes. */
size_t tools_call_id(enum tools_id_rule rule, uint64_t seed, uint32_t index, char out[TOOLS_ID]);

/* functions.NAME:INDEX; the index counts all calls of a conversation. */
struct token_bytes tools_kimi_id(struct token_bytes name, uint32_t index, char out[TOOLS_ID]);

struct tools_written {
    struct token_bytes name, arguments /* JSON, as it is to be written */, id;
};
/* Calls in the form of a row, as its model's template writes them, appended to out. What a layout cannot hold is
 * refused: WK_INVALID: arguments that are no JSON object. */
wk_status tools_write(const struct tools_format *f, const struct tools_written *calls, size_t n,
                      struct byte_buffer *out, const struct wk_err *err);

/* The calls that a template is to render, so that its row can be checked: the assistant's message of a conversation
 * user, assistant with these calls, tool. */
enum { TOOLS_PROBES = 2 };
extern const struct tools_written tools_probes[TOOLS_PROBES];
struct tools_rendered {
    struct token_bytes template; /* its text */
    struct token_bytes one, two; /* the conversation with the first call, and with both; data NULL: it renders none */
    struct token_bytes prompt;   /* the user's message alone, as it ends where an answer begins; data NULL: not known */
};
/* *out: the row, with what the template writes between calls. WK_UNSUPPORTED: no row writes what the template writes;
 * the text says what is known. A row of several calls is taken for `single` if the template refuses two: *single. */
wk_status tools_find(const struct tools_rendered *r, struct tools_format *out, bool *single, const struct wk_err *err);

/* A row made ready for a vocabulary. Immutable; shared by any number of parsers. [any thread] */
struct tools_model;
/* t: where marks are looked up; NULL: all marks are text. Neither t nor f is needed afterwards, but f's texts are. */
wk_status tools_model_open(const struct tools_format *f, const struct tokenizer *t, struct tools_model **out,
                           const struct wk_err *err);
void tools_model_close(struct tools_model *m); /* NULL allowed */
/* The control tokens among its marks: a stop rule must let them pass. */
const uint32_t *tools_model_marks(const struct tools_model *m, size_t *n);

enum tools_id_rule tools_model_ids(const struct tools_model *m);

/* May a call with a mark be in this text? For a model without a vocabulary. False: there is none. */
bool tools_model_notices(const struct tools_model *m, struct token_bytes text);

/* ---- a request's functions ----------------------------------------------------------------------------- */

struct tools_function {
    struct token_bytes name;       /* letters, digits and _ . - : / alone */
    struct token_bytes parameters; /* a JSON Schema; data NULL: any */
    bool strict;                   /* tools_grammar keeps to the schema; otherwise to an object's form */
};
struct tools_set; /* immutable; any thread */
/* Copies. WK_INVALID names the function: no name, a name twice, parameters that are no JSON object. */
wk_status tools_set_open(const struct tools_function *functions, size_t n, struct tools_set **out,
                         const struct wk_err *err);
void tools_set_close(struct tools_set *s); /* NULL allowed */
bool tools_set_has(const struct tools_set *s, struct token_bytes name);

/* ---- parsing ------------------------------------------------------------------------------------------- */

enum tools_kind {
    TOOLS_TEXT,      /* content: bytes, perhaps a part of a character */
    TOOLS_CALL,      /* a call begins: index, name and id are known */
    TOOLS_ARGUMENTS, /* bytes of its arguments; all of a call's make one JSON object */
    TOOLS_END,       /* the call is complete */
    TOOLS_BROKEN     /* it is none after all: forget it; what the model wrote follows as TOOLS_TEXT */
};
struct tools_event {
    enum tools_kind kind;
    uint32_t index;          /* of the call, from 0; a broken one's is used again */
    struct token_bytes text; /* TEXT, ARGUMENTS: the bytes; CALL: the name. Valid until the next push */
    struct token_bytes id;   /* CALL */
};

struct tools_parser; /* one answer; one thread at a time */
/* s: the functions that can be called; NULL: a text of the past is read, whose calls are of functions of any name,
 * always have a mark, and have strings where the form tells no type, so that a template writes them as they were.
 * seed: makes the ids that the model does not write; one job's is not another's. single: what follows the first call is
 * text. m and s must outlive it. */
wk_status tools_parser_open(const struct tools_model *m, const struct tools_set *s, uint64_t seed, bool single,
                            struct tools_parser **out, const struct wk_err *err);
void tools_parser_close(struct tools_parser *p); /* NULL allowed */
/* An id and its bytes (tokenizer_piece, control tokens not shown); TOKEN_NONE: bytes alone. */
wk_status tools_parser_push(struct tools_parser *p, uint32_t id, struct token_bytes piece,
                            const struct tools_event **events, size_t *n);
/* The answer is over. Calls whose arguments are complete count, whatever is missing behind them. */
wk_status tools_parser_finish(struct tools_parser *p, const struct tools_event **events, size_t *n);
/* Is something held back until it is known whether it is a call? */
bool tools_parser_holds(const struct tools_parser *p);
/* Complete calls, and what began like one and was none. */
uint32_t tools_parser_calls(const struct tools_parser *p);
uint32_t tools_parser_malformed(const struct tools_parser *p);

/* ---- what may be written ------------------------------------------------------------------------------- */

struct grammar;
struct tools_rule {
    bool required;                  /* calls alone; otherwise text, then perhaps calls */
    bool single;                    /* one call */
    struct token_bytes named;       /* required, of this function; data NULL: of any */
    const struct lang_watch *watch; /* asked while the grammar is compiled; NULL: nobody */
};
/* Why a strict function cannot be held to its schema. */
struct tools_refusal {
    bool refused;
    char text[256];
};
/* The answers in which every call is one of the set's functions, in the row's form, and of strict functions fits the
 * schema; as a grammar that is sealed. What it takes the parser reads as calls whose arguments fit. refusals: [set], or
 * NULL. A function that cannot be held to its schema is left out of the grammar and told there; NULL: it refuses all,
 * by name. WK_INVALID: no function is left, or none of that name. */
wk_status tools_grammar(const struct tools_model *m, const struct tools_set *s, const struct tools_rule *rule,
                        struct tools_refusal *refusals, struct grammar **out, const struct wk_err *err);

struct harmony_ids;
/* The same for gpt-oss, whose answers harmony.h reads: messages of reasoning and of what is said before calls, then one
 * call or, unless calls are required, the final message. Headers are constrained, too: channels, recipients and types
 * of content are those that the models were trained with. The answer begins behind <|start|>assistant. */
wk_status tools_harmony_grammar(const struct harmony_ids *ids, const struct tools_set *s, const struct tools_rule *rule,
                                struct tools_refusal *refusals, struct grammar **out, const struct wk_err *err);

#endif
