/* answer_grammar.h: what an answer must be: the form that the request asks for, the calls of functions that may come,
 * and what may stand before either. [the handler's thread] */
#ifndef SERVE_ANSWER_GRAMMAR_H
#define SERVE_ANSWER_GRAMMAR_H

#include "stream.h"

/* The request's member that an answer is held to; NULL: it is free. */
const char *answer_held_by(const struct stream *x);
/* x->formed and x->header, of the request's form, if it has one. False: *why. */
bool answer_make_grammar(struct stream *x, struct refusal *why);
/* A constraint of its own for each answer; out->mask stays NULL where it is free. False: *why. */
bool answer_constrain(const struct stream *x, struct sampler_constraint *out, struct refusal *why);
/* A digest of all that the answer's masks follow from, besides the model: its form, and what may stand before it.
 * False: none is made, as where calls of functions may come: such an answer is never given again. */
bool answer_digest(const struct stream *x, uint8_t out[ENGINE_DIGEST]);

#endif
