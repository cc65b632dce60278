/* session.h: the inside of a session, for the files of this room that build steps of several. */
#ifndef CORE_MODEL_SESSION_H
#define CORE_MODEL_SESSION_H

#include "model/model.h"

struct session {
    struct model *model;
    uint32_t slot, length;
    uint32_t reach;                            /* positions that its share of the cache holds, at most the context */
    uint32_t *ids;                             /* of all groups, one after the other */
    const uint32_t *pages[TAPE_MAX_GROUPS];    /* [n_groups] into ids */
    uint32_t *wanted;                          /* [max_wanted] */
    float *pooled;                             /* [embedding_width]; NULL: the tape has no embedding output */
};

/* Rows of the next n tokens in a step, from row `row` on. */
static inline struct step_seq session_rows(const struct session *s, uint32_t row, uint32_t n, enum row_role role)
{
    return (struct step_seq){ .row = row, .n_rows = n, .position = s->length, .role = role, .pages = s->pages, .slot = s->slot };
}

#endif
