/* think.h: an answer's reasoning told apart from its text, as the ids come.
 *
 * A model that thinks begins its answer with a mark (<think>), or its prompt has ended with one, and ends the reasoning
 * with another. Marks may be one token or many, and token boundaries may lie anywhere in them. Reasoning stands at the
 * beginning of an answer or nowhere: the words of a mark further on are text. Blanks around either are dropped.
 * Allocates nothing. [one thread] */
#ifndef CORE_CHAT_THINK_H
#define CORE_CHAT_THINK_H

#include "chat/chat.h"

enum { THINK_HELD = 256 /* bytes that may be held back until more is known */, THINK_IDS = 8 };

/* Bytes of the answer in order, perhaps a part of a character only. Valid during the call. */
typedef void think_sink(void *user, bool reasoning, const char *bytes, size_t n);

struct think {
    const struct tokenizer *tokenizer;
    const char *open, *close;
    uint32_t ids[2][THINK_IDS]; /* control tokens that the marks are made of: opening, closing */
    size_t n_ids[2];
    enum { THINK_BEFORE, THINK_INSIDE, THINK_BEHIND, THINK_TEXT } state;
    bool fresh; /* INSIDE: nothing has been said yet */
    char held[THINK_HELD];
    size_t n;
};

/* marks: with both texts; the chat's, which must outlive this. */
void think_begin(struct think *t, const struct tokenizer *tokenizer, const struct chat_marks *marks);
/* Takes the next id. True: it belongs to the reasoning, or to its marks. */
bool think_push(struct think *t, uint32_t id, think_sink *sink, void *user);
/* Is text held back that may turn out to be a mark? */
bool think_holds(const struct think *t);
/* The output is over. */
void think_finish(struct think *t, think_sink *sink, void *user);

#endif
