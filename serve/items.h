/* items.h: an answer as items in the order in which the model wrote them: reasoning, texts and calls of functions. Each
 * one begins, grows and ends; then the answer ends.
 *
 * Every chat interface is an encoder of these events: the names and the order of its own, and nothing else. What is a
 * call, what is whole characters, what a limit has cut and what may not be shown before it is certain is decided here,
 * once. [the handler's thread] */
#ifndef SERVE_ITEMS_H
#define SERVE_ITEMS_H

#include "stream.h"
#include "base/utf8.h"

enum item_kind { ITEM_REASONING, ITEM_TEXT, ITEM_CALL };

struct item {
    enum item_kind kind;
    uint32_t index, nth;       /* among the answer's items; among those of its kind */
    struct http_text id, name; /* of a call */
    struct http_text text;     /* what it holds, UTF-8; of a call its arguments as JSON. Kept where the encoder keeps */
    size_t bytes;              /* how long that is, kept or not */
    struct utf8_stream partial; /* of arguments: the beginning of a character */
    bool cut;                   /* a call that a limit has ended inside */
};

/* Of one answer. */
struct item_list {
    struct item *list;
    uint32_t n, room;
    bool open;           /* the last one has not ended */
    struct item waiting; /* a call that may turn out to be none */
    const char *reason;  /* why the answer ended well: "stop", "length", "tool_calls"; NULL: it has not */
    int stop;            /* which stop string ended it; STOP_NONE */
};

/* What an interface makes of them. NULL: nothing. */
struct encoder {
    bool keeps;                                        /* the items' texts, to be told at the end */
    bool keeps_calls;                                  /* the arguments of calls alone */
    bool never_empty;                                  /* an answer with neither text nor calls has an empty text */
    void (*start)(struct stream *x, struct answer *a); /* its job has started */
    void (*progress)(struct stream *x, struct answer *a, uint32_t n_done); /* so many rows of its prompt are computed */
    void (*line)(struct stream *x, struct answer *a, const struct token_line *line); /* before its text is told */
    void (*begin)(struct stream *x, struct answer *a, struct item *i);
    void (*grow)(struct stream *x, struct answer *a, struct item *i, const char *text, size_t n);
    void (*end)(struct stream *x, struct answer *a, struct item *i);
    void (*over)(struct stream *x, struct answer *a, const struct ending *e); /* behind its last item */
    void (*done)(struct stream *x);                                           /* behind all answers */
    void (*error)(struct stream *x, const struct ending *e);
};

struct items {
    const struct encoder *encoder;
    bool reasoning;          /* it is told; else it is left out */
    bool every_line;         /* texts also grow by lines without a character */
    struct item_list *lists; /* [n], one for each answer */
    uint32_t n;
    size_t reserved; /* bytes, for what is kept */
    bool failed;     /* no memory for some of it */
    /* of all answers that are over */
    uint32_t reasoning_ids, cached, again, tokens_out; /* again: answers of the completion cache */
};

bool items_open(struct items *t, uint32_t n); /* n answers; the rest is given. False: no memory */
void items_close(struct items *t);
/* The parts of a form that follow an answer: all but encode, release and field; x->items, of encoder e, is given with
 * it. */
void items_form(const struct encoder *e, bool whole, struct stream_form *out);
/* Of all prompts: each counts once, however many answers it has. */
size_t items_prompt_tokens(const struct stream *x);
/* A whole answer, or what a stream keeps, grows by so many bytes besides: memory for it out of what requests share. */
void items_reserve(struct stream *x, size_t more);
/* The document in x->line as the whole answer; a failure if `good` is false or there was no memory for it. */
void items_send(struct stream *x, bool good);
/* The usual error of an encoder: of a stream a last event without a name; of a whole answer. */
void items_stream_error(struct stream *x, const struct ending *e);
void items_whole_error(struct stream *x, const struct ending *e);

#endif
