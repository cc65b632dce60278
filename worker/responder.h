/* responder.h: who answers in `worker chat`: a worker elsewhere, or a model in this process. Functions that return an
 * int have already said what is wrong when it is not EXIT_DONE. [main thread] */
#ifndef WORKER_RESPONDER_H
#define WORKER_RESPONDER_H

#include "dialog.h"
#include "options.h"
#include "sampling.h"
#include "spoken.h"

enum responder_end { RESPONDER_STOP = 0, RESPONDER_LENGTH /* a limit has cut the answer */, RESPONDER_INTERRUPT };

struct responder {
    char title[512]; /* of a line that says who answers */
    /* Answers the dialog's last message into s, as it comes, to its end or to Ctrl-C (interrupted); spoken_end is the
     * caller's. */
    int (*answer)(void *self, const struct dialog *d, struct spoken *s, enum responder_end *end);
    void (*close)(void *self); /* NULL: nothing is open */
    void *self;
};

/* sampling: of all answers; it must outlive the responder. responder_close in either case. */
int responder_elsewhere(const struct options *o, const struct sampling *sampling, struct responder *out);
int responder_here(const struct options *o, const struct sampling *sampling, struct responder *out);
static inline void responder_close(struct responder *s)
{
    if (s->close) s->close(s->self);
}

#endif
