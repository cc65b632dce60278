/* machine.h: what the parts of the machine share: machine.c, which has the stacks and the ways that read nothing, and
 * machine_json.c. Private to them. */
#ifndef CORE_GRAMMAR_MACHINE_H
#define CORE_GRAMMAR_MACHINE_H

#include "grammar/grammar_internal.h"

/* What is asked of the stacks: to read one character (first == last), whether some of a range can be read, or whether
 * the text may end (first > last). */
struct question {
    uint32_t first, last;
    struct tops *out; /* of one character */
    uint32_t base;    /* the first new one in it */
    bool yes;
    struct ahead *ahead; /* of a range that is all above ASCII: not the first answer counts, but all characters */
};
static inline bool asks_one(const struct question *q) { return q->first == q->last; }
static inline bool asks_for(const struct question *q, uint32_t c) { return q->first == c && asks_one(q); }

static inline void ahead_add(struct ahead *a, uint32_t c) { a->ascii[c / 64] |= UINT64_C(1) << c % 64; }

/* What a frame says decides about the mask that is being made. The end of the text, frame 0, is none: NULL. */
const struct frame *machine_look(struct grammar *g, uint32_t frame);
/* The character was read: the text now stands at t; or behind what is done, above `parent`. */
bool machine_emit(struct grammar *g, struct question *q, struct top t);
bool machine_emit_done(struct grammar *g, struct question *q, uint32_t parent);
/* Goes into a part; `at` is where the node goes on after it. last: nothing is left to do there then. */
bool machine_enter(struct grammar *g, const struct work *w, node_id part, uint64_t at, bool last);
/* Comes out of what is done without reading. */
bool machine_leave(struct grammar *g, struct question *q, const struct work *w);

/* Character c of a string's content. LANG_NO: it cannot follow. */
enum lang_answer machine_content(struct grammar *g, struct top *t, uint32_t c);
/* Adds the ASCII characters that may come at t, in a string, an object or an array. */
void machine_json_ahead(const struct grammar *g, const struct top *t, struct ahead *ahead);
bool machine_string(struct grammar *g, struct question *q, const struct top *t);
bool machine_object(struct grammar *g, struct question *q, const struct work *w);
bool machine_array(struct grammar *g, struct question *q, const struct work *w);

#endif
