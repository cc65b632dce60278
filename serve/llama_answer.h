/* llama_answer.h: what llama-server's /completion and /infill answer: a document each, or events without a name, the
 * last of which has "stop": true. A choice is an answer of stream.h. [the handler's thread] */
#ifndef SERVE_LLAMA_ANSWER_H
#define SERVE_LLAMA_ANSWER_H

#include "llama_request.h"
#include "stream.h"

struct llama_choice {
    struct http_text text, ids, probs; /* of a whole answer, so far; probs: the entries that wait */
    struct http_text document;         /* once it is over: its last, or only, document */
    uint32_t n_ids;                    /* told so far */
    uint32_t indent;                   /* blanks at the beginning of the line, so far */
    bool blank;                        /* the line has nothing else yet; not of the first line */
    bool new_line, cut;                /* cut: n_indent or t_max_predict_ms has ended it */
};

struct llama_completion {
    struct llama_request q;
    struct llama_choice *choices; /* [n_choices] */
    struct http_text *prompts;    /* [n_prompts]: as the model was given them, control tokens as they are spelt */
    struct http_text settings;    /* generation_settings, but for the seed */
    uint32_t n_choices, n_prompts;
    size_t reserved; /* bytes, for a whole answer */
};

/* c: q is given. False: no memory. llama_completion_free in either case, which frees q as well. */
bool llama_completion_open(struct llama_completion *c, const struct tokenizer *t);
void llama_completion_free(struct llama_completion *c);
/* The form of its answer; valid as long as c's request. */
struct stream_form llama_completion_form(const struct llama_completion *c);

#endif
