/* grammar_internal.h: a grammar as its parts see it: the nodes (node.c, seal.c), the machine that follows them
 * (machine.c), positions (match.c) and masks (mask.c). Private to core/grammar. */
#ifndef CORE_GRAMMAR_GRAMMAR_INTERNAL_H
#define CORE_GRAMMAR_GRAMMAR_INTERNAL_H

#include <stdatomic.h>

#include "grammar/grammar.h"
#include "grammar/lang_internal.h"
#include "grammar/node.h"

/* ---- nodes ------------------------------------------------------------------------------------------------- */

enum node_kind {
    OF_NOTHING = 0,
    OF_EMPTY,
    OF_LITERAL,  /* b bytes from a in `text` */
    OF_TEXT,     /* a: language */
    OF_SEQUENCE, /* b parts from a in `parts` */
    OF_ANY_OF,   /* the same */
    OF_REPEAT,   /* a, from b to c times */
    OF_TOKEN,    /* b ids from a in `parts`, ascending; c: all others */
    OF_RULE,     /* a: body; its name: b bytes from c in `text` */
    OF_STRING,   /* a: language of the content, from b to c characters */
    OF_OBJECT,   /* a: which of `objects` */
    OF_NAMES,    /* a: which of `objects`: the declared names as strings; part of its object alone */
    OF_ARRAY,    /* a: which of `arrays` */
    OF_SEEN      /* in frames alone: below an object or array, the hash of a text that came (in `at`) */
};
enum { SEEN_NODE = NODE_EMPTY + 1, BUILT_IN_NODES };
enum {
    NODE_NULLABLE = 1,   /* the empty text is in it */
    NODE_PRODUCTIVE = 2, /* some text is */
    NODE_UNIQUE = 4      /* a family's name or an array's string that must not come twice; `at`: its hash so far */
};
struct node {
    uint8_t kind, flags;
    uint32_t a, b, c;
};

struct property {
    node_id value;
    bool required, enabled;
    uint32_t required_from, enabled_from; /* how many, from this one on */
};
struct family {
    node_id name, value; /* name: a string node */
};
struct object {
    struct property *properties; /* [n + 1]: the last one is none */
    uint32_t n;
    uint32_t names;  /* table of words; word i is the name of property order[i] */
    uint32_t *order; /* [n] */
    node_id names_node;
    struct family *families;
    uint32_t n_families, min, max;
};
struct array {
    node_id *prefix;
    uint32_t n_prefix, min, max;
    node_id rest;
};

/* ---- stacks ------------------------------------------------------------------------------------------------- */

/* What goes on when something is done: node's position, in the frame below it. Frame 0 is the end of the text. Equal
 * frames are one. */
struct frame {
    uint32_t node, parent;
    uint64_t at;
    uint32_t chain;
    bool used, marked;
    uint8_t depth; /* below the stacks that a mask is made for, from 1, when `walk` is that mask's */
    uint32_t walk;
};

/* The top of a stack: where in a node the text stands. Frames below it are shared, tops are values, so that reading
 * inside a string or a number allocates nothing. */
struct top {
    uint32_t node, parent;
    uint32_t state; /* of an automaton; of white space in an object or an array: bytes, newlines in bits 16..31 */
    uint32_t escape;
    uint64_t at;
};

/* A set of stacks, and the beginning of a character that is not complete: `need` more bytes. */
struct position {
    uint32_t refs, n;
    uint32_t value;
    uint8_t need, length;
    bool ended;                       /* a token that ends generation was accepted */
    struct position *previous, *next; /* all positions of a grammar */
    struct top tops[];
};

struct work {
    struct top top;
    uint32_t fresh; /* frames at the top of the stack that were pushed since the last character */
};

enum { MAX_VISITED = 1 << 14, MAX_FRAMES = 1 << 18 };

struct grammar {
    atomic_uint owners;
    _Atomic uint64_t held; /* grammar_held */
    atomic_bool failed;    /* grammar_failed */
    bool sealed;
    struct langs *langs;
    struct grammar_space space;
    bool space_fixed;

    struct node *nodes;
    uint32_t n_nodes, cap_nodes;
    struct numbers parts;
    char *text;
    size_t n_text, cap_text;
    struct object *objects;
    uint32_t n_objects, cap_objects;
    struct array *arrays;
    uint32_t n_arrays, cap_arrays;
    node_id root, json, json_object;
    uint64_t lists_bytes;
    struct numbers token_ids; /* all ids that TOKEN nodes name, ascending; made by grammar_seal */
    bool any_token;           /* a TOKEN node excludes ids instead */
    wk_status status;
    char why[200];

    struct frame *frames;
    uint32_t n_frames, cap_frames, free_frame, live_frames, collect_at;
    uint32_t *frame_buckets;
    uint32_t n_frame_buckets;
    struct position *positions;

    struct work *work;
    uint32_t n_work, cap_work;
    struct visited {
        struct top top;
        uint32_t fresh, stamp;
    } *visited; /* a power of two, at most MAX_VISITED; half full at most */
    uint32_t stamp, n_visited, cap_visited;
    bool over_limit; /* some stacks were left out, since there were too many */

    /* How far down the stacks a mask was decided by: what it is a function of. */
    uint32_t walk, deepest, bottom;

    struct masks *masks; /* of mask.c; NULL: no index yet */
};

/* Remembers the first failure while building. Always NODE_NONE. */
node_id grammar_fail(struct grammar *g, wk_status status, const char *format, ...) WK_PRINTF(3, 4);
uint64_t grammar_bytes(const struct grammar *g);

/* ---- the machine (machine.c) ---------------------------------------------------------------------------------- */

/* Where an object or an array stands (the low 4 bits of `at`); which: bits 8..31, how many: bits 32..63. */
enum phase {
    AT_OPEN = 0,
    AT_FIRST, /* behind the bracket */
    AT_NEXT,  /* behind a comma */
    AT_COLON, /* behind a name */
    AT_VALUE,
    AT_AFTER /* behind a value */
};
static inline uint64_t at_phase(enum phase phase, uint32_t which, uint32_t count)
{
    return (uint64_t)phase | (uint64_t)which << 8 | (uint64_t)count << 32;
}

/* Where a string stands: the low 3 bits of `escape`. */
enum string_phase {
    STRING_OPEN = 0,
    STRING_BODY,
    STRING_ESCAPE,    /* behind a backslash */
    STRING_HEX,       /* behind \u and some digits */
    STRING_HIGH,      /* behind a high surrogate: a backslash follows */
    STRING_HIGH_SLASH /* then u */
};
static inline enum string_phase string_phase_of(const struct top *t) { return (enum string_phase)(t->escape & 7); }

/* White space between JSON's tokens with one character more; 0: it cannot come. */
static inline uint32_t space_next(const struct grammar *g, uint32_t state, uint32_t c)
{
    const uint32_t bytes = state & 0xFFFF, lines = state >> 16;
    if ((c != ' ' && c != '\t' && c != '\r' && c != '\n') || bytes >= g->space.max_bytes) return 0;
    if (c == '\n') return lines < g->space.max_newlines ? state + 0x10001 : 0;
    return state + 1;
}

/* Characters above Unicode's stand for tokens by id; CONTROL_SYMBOL is added for those that have no bytes. */
enum { TOKEN_SYMBOL = 0x200000, TOKEN_ID_BITS = 0x1FFFFF, CONTROL_SYMBOL = 0x800000 };

/* Tops that a step leads to. */
struct tops {
    struct top *list;
    uint32_t n, cap;
};

/* The stacks in[0..n) read character c (or TOKEN_SYMBOL + id): new tops are put behind out->n. False: a failure, in
 * g->status and g->why; no new top: c cannot follow. */
bool machine_step(struct grammar *g, const struct top *in, uint32_t n, uint32_t c, struct tops *out);
/* Can a character of first..last (above 0x7F) follow, of any of the stacks? LANG_UNKNOWN: a failure. */
enum lang_answer machine_can(struct grammar *g, const struct top *in, uint32_t n, uint32_t first, uint32_t last);
enum lang_answer machine_complete(struct grammar *g, const struct top *in, uint32_t n);
/* What characters may follow some of the stacks: none other can, and perhaps not all of these. */
struct ahead {
    uint64_t ascii[2];
    bool above; /* ASCII */
};
bool machine_ahead(struct grammar *g, const struct top *in, uint32_t n, struct ahead *out);
bool machine_same(const struct top *a, const struct top *b);
/* Where the text stands when something above frame `parent` is done. */
struct top machine_resume(struct grammar *g, uint32_t parent);
struct top machine_start(const struct grammar *g, node_id node, uint32_t parent);

/* Bytes of UTF-8 after stacks and a partial character. */
struct reading {
    uint32_t first, n; /* tops in a list */
    uint32_t end;      /* where the next ones go */
    uint32_t value;    /* of the partial character */
    uint8_t need, length;
};
/* Begins with copies of a position's tops, in an empty list. False: no memory. */
bool machine_load(struct grammar *g, const struct position *p, struct tops *list, struct reading *r);
/* One more byte of a character above ASCII, the first (from->need is 0) or a later one: false: it cannot be. */
bool machine_partial(const struct reading *from, unsigned char byte, struct reading *to);
/* The characters that the missing bytes can make of a partial one; false: none. */
bool machine_range(const struct reading *r, uint32_t *first, uint32_t *last);
/* LANG_YES: `to` is what follows (its tops perhaps those of `from`); LANG_NO: the byte cannot follow. */
enum lang_answer machine_byte(struct grammar *g, struct tops *list, const struct reading *from, unsigned char byte,
                              struct reading *to);

/* The frame's id; 0: failed (no frame is pushed on failure). */
uint32_t frame_push(struct grammar *g, uint32_t node, uint64_t at, uint32_t parent);

/* A failure of an automaton becomes the grammar's. Always false. */
bool machine_failed(struct grammar *g);
/* Puts a frame back into the table of equal frames. */
void frame_relink(struct grammar *g, uint32_t id);

/* Refuses a grammar, which is all but sealed, if a text is found that needs too many stacks (stack_limit.c). */
void stack_limit_check(struct grammar *g);

void masks_close(struct masks *m);
void masks_figures(const struct masks *m, struct grammar_figures *out);

#endif
