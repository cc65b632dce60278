/* speaker.h: who answers in `worker chat`: a worker elsewhere, or a model in this process. Functions that return an int
 * have already said what is wrong when it is not EXIT_DONE. [main thread] */
#ifndef WORKER_SPEAKER_H
#define WORKER_SPEAKER_H

#include "dialog.h"
#include "options.h"
#include "sampling.h"
#include "spoken.h"

enum speaker_end { SPEAKER_STOP = 0, SPEAKER_LENGTH /* a limit has cut the answer */, SPEAKER_INTERRUPT };

struct speaker {
    char title[512]; /* of a line that says who answers */
    /* Answers the dialog's last message into s, as it comes, to its end or to Ctrl-C (interrupted); spoken_end is the
     * caller's. */
    int (*answer)(void *self, const struct dialog *d, struct spoken *s, enum speaker_end *end);
    void (*close)(void *self); /* NULL: nothing is open */
    void *self;
};

/* sampling: of all answers; it must outlive the speaker. speaker_close in either case. */
int speaker_elsewhere(const struct options *o, const struct sampling *sampling, struct speaker *out);
int speaker_here(const struct options *o, const struct sampling *sampling, struct speaker *out);
static inline void speaker_close(struct speaker *s)
{
    if (s->close) s->close(s->self);
}

#endif
