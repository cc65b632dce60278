/* log_names.h: which of a caller's words events may show: names of fields and paths that this service has. The rest is
 * told by digest and length (log/words.h). [any thread] */
#ifndef SERVE_LOG_NAMES_H
#define SERVE_LOG_NAMES_H

#include "log/words.h"

/* A refusal's field: "params.top_k", or hidden. NULL and "" are NULL. */
const char *serve_log_field(const char *field, char out[LOG_WORD]);
/* A request's path: as it is if it is a route's, "/worker/jobs/{job_id}" for those below it; else hidden. */
const char *serve_log_path(const char *path, char out[LOG_WORD]);

#endif
