/* timings.h: two members of llama-server's that other interfaces of this service tell on request as well: how fast an
 * answer comes (`timings`), and how much of its prompt is read (`prompt_progress`). [the handler's thread] */
#ifndef SERVE_TIMINGS_H
#define SERVE_TIMINGS_H

#include "http/http.h"
#include "stream.h"

/* ,"timings":{...}: of the answer's first n_ids ids, which all were told by until_ns (CLOCK_MONOTONIC). f: its job's
 * figures. A rate of one id is 0: that one comes with the prompt. */
void timings_put(struct http_text *out, const struct job_figures *f, uint32_t n_ids, uint64_t until_ns);
/* The same of an answer that is being told: the ids that have come, until now. over: it has ended. */
void timings_put_now(struct http_text *out, const struct answer *a, bool over);
/* ,"prompt_progress":{...}, and, with `timings`, ,"timings":{...} of a prompt of which n_done rows are computed. */
void timings_put_progress(struct http_text *out, const struct answer *a, uint32_t n_done, bool timings);

#endif
