/* bench_launches.h: `worker bench --kernels`: where the time of a decode step goes, a line a kind of launch. */
#ifndef WORKER_BENCH_LAUNCHES_H
#define WORKER_BENCH_LAUNCHES_H

#include <jansson.h>

#include "model/model.h"

enum { LAUNCH_LINES = 64 };
struct launch_line {
    char name[128];
    uint32_t launches; /* of all tokens */
    double seconds;    /* of all of them */
    double bytes;      /* that they had to read */
};
struct launch_table {
    uint32_t tokens;
    uint32_t n;
    struct launch_line kind[LAUNCH_LINES]; /* [n] the longest first */
};

/* The launches of `tokens` decode steps of one sequence behind `depth` tokens [depth], on a model whose sequences are
 * all free, and whose device has `launches`. [main thread] */
wk_status launches_measure(struct launch_table *t, struct model *m, const uint32_t *prompt, uint32_t depth,
                           uint32_t tokens, const struct wk_err *err);
/* bandwidth: bytes a second that reading alone reaches. */
void launches_print(const struct launch_table *t, double bandwidth);
json_t *launches_json(const struct launch_table *t, double bandwidth); /* NULL: no memory */

#endif
