/* llama_prompt.h: prompts of llama-server's routes as ids: texts and ids mixed, and the two sides of a gap that the
 * model fills by the marks that its file has for it. [the handler's thread] */
#ifndef SERVE_LLAMA_PROMPT_H
#define SERVE_LLAMA_PROMPT_H

#include "llama_request.h"
#include "stream.h"

/* The marks for filling in the middle; TOKEN_NONE: the model has none such. */
struct llama_marks {
    uint32_t pre, suf, mid, rep, sep, pad;
};
/* By the file's keys, else by the texts that well-known models have. */
struct llama_marks llama_marks_of(const struct serve_model *m);
/* Those that an infill cannot do without; NULL: all are there, else the first one that is missing. */
const char *llama_marks_missing(const struct llama_marks *marks);
/* Marks that end the answer to an infill, as stop ids of the request. */
void llama_marks_end(const struct llama_marks *marks, struct job_request *q);

/* For stream_form.encode: prompt number `index` of the request. */
wk_status llama_encode(struct stream *x, const struct llama_request *q, uint32_t index, struct stream_prompt *p,
                       const struct wk_err *err);

#endif
