/* session.h: the inside of a session, for the files of this room that build steps of several. */
#ifndef CORE_MODEL_SESSION_H
#define CORE_MODEL_SESSION_H

#include "model/model.h"

struct session {
    struct model *model;
    uint32_t slot, length;
    uint32_t second;                        /* of the next step's rows; 0 but while a pair is fed */
    uint32_t reach;                         /* positions that its share of the cache holds, at most the context */
    uint32_t *ids;                          /* of all groups, one after the other */
    const uint32_t *pages[TAPE_MAX_GROUPS]; /* [n_groups] into ids: the table of the group */
    /* A group whose layers see all: pages of its own, all of them. Else: those of blocks [first, end) of positions, out
     * of model->session_pages. */
    struct {
        uint32_t *table;
        uint32_t first, end;
    } held[TAPE_MAX_GROUPS];
    uint32_t *logits_rows; /* [max_logits_rows] */
    float *pooled;         /* [embedding_width]; NULL: the tape has no embedding output */
};

/* Takes pages for a step of as many of the next n rows as there are pages for, and says how many: 1 at least within its
 * reach, as long as only one session at a time has more than one row. */
uint32_t session_grow(struct session *s, uint32_t n);
/* n more rows are in a submitted step; 0: they were refused. Gives back the pages that the next row does not see. */
void session_advance(struct session *s, uint32_t n);

/* Rows of the next n tokens in a step, from row `row` on; after session_grow. */
static inline struct step_seq session_rows(const struct session *s, uint32_t row, uint32_t n, enum row_role role)
{
    return (struct step_seq){ .row = row,
                              .n_rows = n,
                              .position = s->length,
                              .role = role,
                              .pages = s->pages,
                              .slot = s->slot,
                              .second = s->second };
}

#endif
