/* ast.h: tokens, the syntax tree, and the instructions that it becomes. Private to core/jinja. */
#ifndef CORE_JINJA_AST_H
#define CORE_JINJA_AST_H

#include "internal.h"

enum token_kind {
    T_END = 0,
    T_DATA,
    T_VARIABLE_BEGIN,
    T_VARIABLE_END,
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_NAME,
    T_STRING,
    T_INTEGER,
    T_FLOAT,
    T_ADD,
    T_SUB,
    T_MUL,
    T_DIV,
    T_FLOOR_DIV,
    T_MOD,
    T_POW,
    T_TILDE,
    T_LBRACKET,
    T_RBRACKET,
    T_LPAREN,
    T_RPAREN,
    T_LBRACE,
    T_RBRACE,
    T_EQ,
    T_NE,
    T_GT,
    T_GE,
    T_LT,
    T_LE,
    T_ASSIGN,
    T_DOT,
    T_COLON,
    T_PIPE,
    T_COMMA,
    T_SEMICOLON
};

struct token {
    enum token_kind kind;
    uint32_t at; /* byte of the source */
    const char *text;
    uint32_t n;
};

/* The source with one kind of line end, cut into tokens one by one. */
struct lexer {
    struct vm *m;
    const char *source;
    uint32_t n, at;
    enum token_kind state; /* T_DATA: outside of tags; else the kind that ends the tag */
    bool line_starting;
    uint32_t n_open, cap_open;
    char *open; /* closing brackets awaited */
};

void jn_lex_open(struct lexer *l, struct vm *m, const char *source, uint32_t n);
struct token jn_lex_next(struct lexer *l);
const char *jn_token_words(struct vm *m, const struct token *t);
WK_PRINTF(3, 4)
_Noreturn void jn_fail_syntax(struct vm *m, uint32_t at, const char *format, ...);

enum node_kind {
    N_CONST,
    N_NAME,  /* name; op: enum use */
    N_NSREF, /* name.v */
    N_LIST,  /* a: items */
    N_TUPLE,
    N_DICT,   /* a: key, value, key, value, ... */
    N_ATTR,   /* a.name */
    N_ITEM,   /* a[b] */
    N_SLICE,  /* a:b:c */
    N_CALL,   /* a(b, c); b: arguments, c: keywords; a star among them is N_STAR, N_STARS */
    N_FILTER, /* a|name(b, c); a NULL: the captured text */
    N_TEST,
    N_KEYWORD, /* name = a */
    N_STAR,
    N_STARS,
    N_NOT,
    N_NEG,
    N_POS,
    N_BINARY,  /* op: enum binary */
    N_CONCAT,  /* a: items */
    N_COMPARE, /* a, then b: N_OPERAND list */
    N_OPERAND, /* op: enum comparison; a */
    N_AND,
    N_OR,
    N_COND,         /* a if b else c */
    N_DATA,         /* v */
    N_PRINT,        /* a: items */
    N_IF,           /* a: test, b: body, c: the elifs (N_IF), d: else */
    N_FOR,          /* a: target, b: iterable, c: body, d: else, e: test; op: recursive */
    N_SET,          /* a = b */
    N_SET_BLOCK,    /* a: target, b: filters, c: body */
    N_MACRO,        /* name; a: parameters, b: defaults, c: body */
    N_CALL_BLOCK,   /* the same, d: the call; NULL: a generation block */
    N_FILTER_BLOCK, /* b: filters, c: body */
    N_WITH,         /* a: targets, b: values, c: body */
    N_BLOCK,        /* name, c: body */
    N_BREAK,
    N_CONTINUE
};
enum use { USE_LOAD, USE_STORE, USE_PARAM };

struct node {
    uint8_t kind, op;
    uint16_t depth; /* of the tree below */
    uint32_t at;
    struct node *next; /* in a list */
    struct node *a, *b, *c, *d, *e;
    const struct str *name;
    uint32_t id; /* of a variable's name */
    val v;
};

/* Calls f for each child, in the order in which jinja2 visits them. */
void jn_each_child(struct node *n, void (*f)(void *, struct node *), void *context);

struct node *jn_parse(struct jinja_template *t, struct lexer *l);

/* --- Instructions --- */

enum op {
    OP_CONST,  /* push constant c */
    OP_LOAD,   /* push the variable c of the function a levels out */
    OP_STORE,  /* pop it */
    OP_EXPORT, /* variable c of this function is the context's variable b as well */
    OP_LIST,   /* c items -> list */
    OP_TUPLE,
    OP_DICT, /* 2c items -> dict */
    OP_ATTR, /* get constant c of the top */
    OP_ITEM,
    OP_SLICE,  /* three -> slice */
    OP_CALL,   /* shape c */
    OP_FILTER, /* filter b, shape c */
    OP_TEST,
    OP_NO_FILTER, /* fails: there is no filter (a: or test) of constant c */
    OP_NOT,
    OP_NEG,
    OP_POS,
    OP_BINARY,  /* a: enum binary */
    OP_CONCAT,  /* c items -> str */
    OP_COMPARE, /* a: enum comparison */
    OP_CHAIN,   /* a: enum comparison; false: push it, jump to c; else keep the right side */
    OP_JUMP,
    OP_JUMP_FALSE,      /* pop */
    OP_JUMP_FALSE_KEEP, /* keep it and jump, or pop */
    OP_JUMP_TRUE_KEEP,
    OP_UNDEFINED_ELSE, /* push what an if without else gives */
    OP_PRINT,          /* a: PRINT_STRING: fails for what is no string, as a filter block does */
    OP_DATA,           /* print constant c */
    OP_CAPTURE,        /* what is printed goes to a new buffer */
    OP_CAPTURED,       /* end of it; push the text */
    OP_DROP_CAPTURE,
    OP_FOR,           /* pop the iterable; a: enum for_flags */
    OP_NEXT,          /* push the next item, or jump to c */
    OP_KEEP,          /* the item passed the loop's test */
    OP_KEPT,          /* end of such a loop: push what was kept */
    OP_COMPLETED,     /* a pass reached its end */
    OP_END_FOR,       /* push whether no pass did */
    OP_LOOP_VARIABLE, /* store the loop into variable c */
    OP_RECURSE,       /* pop the iterable; run the loop's function c; push its text */
    OP_UNPACK,        /* the top -> c items, the first on top */
    OP_ENTER,         /* scope c */
    OP_LEAVE,
    OP_MACRO,        /* push function c with this frame */
    OP_DEFAULT,      /* variable b has a value: jump to c */
    OP_NO_PARAMETER, /* variable b is undefined: not given */
    OP_SET_ATTR,     /* pop a value; pop a namespace; attribute constant c */
    OP_BLOCK,        /* run the block's function c; push its text */
    OP_RETURN
};
enum for_flags { FOR_RECURSIVE = 1 };
enum print_flags { PRINT_STRING = 1 };

struct insn {
    uint8_t op, a;
    uint16_t b;
    uint32_t c;
};

enum load_kind { LOAD_PARAM, LOAD_RESOLVE, LOAD_ALIAS, LOAD_UNDEFINED };
struct load {
    uint8_t kind, hops;  /* of the source */
    uint32_t slot, from; /* from: a variable's slot or a name */
};
struct scope {
    const struct load *loads;
    uint32_t n;
};

struct shape { /* of a call's arguments on the stack: positional, named, *, ** */
    uint32_t n_pos, n_named;
    const val *names;
    bool star, stars;
};

struct variable {
    uint32_t level, name;
};

struct function {
    const struct str *name; /* of a macro; NULL: none */
    struct insn *code;
    uint32_t *at; /* of each instruction: byte of the source + 1 */
    uint32_t n, cap, cap_at;
    struct variable *variables;
    uint32_t n_variables, cap_variables;
    const val *parameters; /* names, without the special ones */
    const uint32_t *slots; /* of the parameters */
    uint32_t n_parameters;
    int64_t caller, kwargs, varargs; /* slots; -1: not used */
    bool explicit_caller;
    struct function *outer;
    uint32_t depth;
};

enum { MAX_NAMES = 4096 };

struct jinja_template {
    struct vm m; /* its heap holds all */
    const char *source;
    uint32_t n;
    struct str const **names; /* of variables, by id */
    bool *reads;              /* from the context */
    uint32_t *sorted;         /* ids by name */
    const char **read_names;
    uint32_t n_names, n_reads;
    val *constants;
    uint32_t n_constants, cap_constants;
    struct function **functions;
    uint32_t n_functions, cap_functions;
    struct scope *scopes;
    uint32_t n_scopes, cap_scopes;
    struct shape *shapes;
    uint32_t n_shapes, cap_shapes;
    struct dict *mentioned, *blocks; /* blocks: name -> number of its function */
};

uint32_t jn_name_id(struct jinja_template *t, const struct str *name);
void jn_compile(struct jinja_template *t, struct node *body); /* function 0 is the template */
void jn_position_of(const struct jinja_template *t, uint32_t at, uint32_t *line, uint32_t *column);

#endif
