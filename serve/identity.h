/* identity.h: what a served model is known by: the digest of its weights and the fingerprint of everything that decides
 * ids. Nobody waits for the digest, which reads all of the weights, unless it was demanded. The fingerprint is the same
 * from the first answer to the last, so it is made of an identity of the model's file that is known by then
 * (model_identity), never of the digest. */
#ifndef SERVE_IDENTITY_H
#define SERVE_IDENTITY_H

#include "serve.h"

struct identity;

/* m->fingerprint and m->digest, of a loaded model. False: no memory, or the program has no build id. [the loader's
 * thread] */
bool identity_make(const struct serve *s, struct serve_model *m);
/* Waits, in a thread of its own, for a digest that is not known yet: computes it where the weights stay in the file,
 * else the device's module does. Then m->digest is renewed and `known` called, once, on that thread. NULL: there is
 * nothing to wait for, or no thread. [the loader's thread] */
struct identity *identity_start(struct serve *s, struct serve_model *m,
                                void (*known)(struct serve *s, const struct serve_model *m));
void identity_stop(struct identity *i); /* NULL allowed [main thread] */

#endif
