/* internal.h: what the files of the tape room share: messages, names, the builder while a plugin records, and the
 * passes.
 *
 * Order: keys.c checks the file's metadata and opens the model; builder.c and ops.c record; then canonical, roles,
 * demand, fuse and plan each walk the finished array once. Everything they make is in the program's arena; `scratch`
 * lives as long as tape_record. */
#ifndef CORE_TAPE_INTERNAL_H
#define CORE_TAPE_INTERNAL_H

#include "tape/arena.h"
#include "tape/tape.h"

/* ---- messages ------------------------------------------------------------------------------------------ */

enum { MESSAGE_BYTES = 320 };
struct messages {
    uint32_t n; /* kept: at most TAPE_MAX_MESSAGES; `lost` more were said */
    uint32_t lost;
    wk_status status; /* WK_OK: nothing said. WK_NO_MEMORY before WK_INVALID before WK_UNSUPPORTED */
    char text[TAPE_MAX_MESSAGES][MESSAGE_BYTES];
};
void messages_say(struct messages *m, wk_status status, const char *format, ...) WK_PRINTF(3, 4);
void messages_no_memory(struct messages *m);
wk_status messages_report(const struct messages *m, const struct wk_err *err);

/* ---- names of values ----------------------------------------------------------------------------------- */

struct labels;                              /* a set of strings; finding and adding take constant time */
struct labels *labels_new(struct arena *a); /* NULL: out of memory */
/* The first of base, base.2, base.3, ... (numbered: base1, base2, ...) that nobody has. WK_INVALID: longer than
 * TAPE_NAME - 1. */
wk_status labels_free(struct labels *n, const char *base, bool numbered, char out[TAPE_NAME]);
bool labels_has(const struct labels *n, const char *name);
bool labels_take(struct labels *n, const char *name); /* false: out of memory */

/* ---- tensors of the file ------------------------------------------------------------------------------- */

/* The file's tensor <scope><name><suffix>, else the one whose last part an alias of the plugin makes mean the same;
 * NULL: none. */
const struct gguf_tensor *builder_find_tensor(const struct gguf *file, const struct wk_arch *arch, const char *scope,
                                              const char *name, const char *suffix);
/* As rows x cols x slabs; false: more than three dimensions, or one of 2^32 or more. */
bool builder_tensor_shape(const struct gguf_tensor *t, uint32_t *rows, uint32_t *cols, uint32_t *slabs);

/* ---- the builder --------------------------------------------------------------------------------------- */

struct adapting;
union any_op;

struct builder {
    struct tape_program *p;
    struct arena *arena, *scratch;
    struct messages *messages;
    const struct wk_arch *arch;
    const struct tape_options *options;
    struct labels *labels;
    char scope[32];
    uint32_t layer;
    uint32_t cap_tensors, cap_values, cap_ops, cap_kv_layers;
    char (*asked)[TAPE_NAME]; /* [n_tensors] the plugin's name of the tensor, without ".weight": an alias's values bear
                                 it */
    uint32_t cap_asked;
    uint32_t *tensor_of_file;   /* [tensors of the file] index + 1 in p->tensors; UINT32_MAX: read as numbers, or
                                   left out on purpose; 0: nobody used it yet */
    uint8_t *type_refused;      /* [256] a ggml type that nobody serves is said once */
    uint32_t logits, embedding; /* OUTPUT operations; TAPE_NONE: not recorded */
    uint32_t pooling;           /* enum tape_pooling, or scores, where the architecture leaves it to the host; else 0 */
    struct adapting *adapting;  /* [adapters]; NULL: there are none */
    const char *given_name;     /* of the next value, whatever it is made from; NULL: it is named after that */
};
void builder_table(struct builder *b, struct wk_builder *out);
uint32_t builder_op(void *self, const struct wk_op *op); /* ops.c */
uint32_t builder_supports(void *self, const struct wk_op *op);
const char *op_kind_name(uint32_t kind);
/* Id of a tensor of adapter i's file, of this shape; 0: it is refused, and that was said. */
uint32_t builder_adapter_tensor(struct builder *b, uint32_t i, const struct gguf_tensor *file, uint32_t rows,
                                uint32_t cols, uint32_t slabs);

/* ---- adapters (adapt.c) -------------------------------------------------------------------------------- */

bool adapt_begin(struct builder *b); /* false: refused, and said */
/* What the plugin is given for `value`, the result of the operation that it just recorded; 0: refused. */
uint32_t adapt_op(struct builder *b, const union any_op *o, uint32_t value);
void adapt_end(const struct builder *b); /* refuses tensors of adapters that changed nothing */

/* pooling.c. Reads the file's pooling_type, against what the caller asks for, into b->pooling; and puts pooled rows in
 * the place of the logits that were recorded. They say what is wrong. */
bool pooling_read(struct builder *b);
void pooling_record(struct builder *b, const struct wk_builder *table);

/* ---- keys ---------------------------------------------------------------------------------------------- */

/* Is the name one of the list, or does it begin with one of its prefixes, which end in '*'? */
bool name_listed(const char *const *list, uint32_t n, struct gguf_str name);
/* Checks arch->keys against the file, and that it has no others below the architecture's name. On success meta is ready
 * for open(); its strings are in `scratch`. host: NULL, or the plugin's. pooled: the host
 * reads pooling_type itself, and what belongs to it. */
bool keys_check(const struct wk_arch *arch, const struct gguf *file, struct gguf_accepted *accepted,
                const struct wk_host *host, bool pooled, struct arena *scratch, struct wk_meta *meta,
                struct messages *m);
/* The file's <architecture>.context_length where the caller asks for no other. */
bool keys_context(const struct gguf *file, const char *architecture, uint32_t asked, uint32_t *out, struct messages *m);

/* ---- passes -------------------------------------------------------------------------------------------- */

/* Readers of every value: operations op[first[v]] .. op[first[v + 1] - 1], ascending; an operation that reads v twice
 * is there twice. */
struct uses {
    uint32_t *first, *op;
};
bool uses_make(const struct tape_program *p, struct arena *scratch, struct uses *out);

void canonical_pass(struct tape_program *p);
bool taps_pass(struct tape_program *p, const struct tape_options *o, struct messages *m);
void roles_pass(struct tape_program *p, const struct uses *u);
void demand_pass(struct tape_program *p); /* sets values[].rows */
bool fuse_pass(struct tape_program *p, const struct uses *u, uint32_t fuse, struct arena *arena, struct arena *scratch);
bool plan_pass(struct tape_program *p, struct arena *arena, struct arena *scratch);

#endif
