/* stream.h: one request for tokens from its prompts to the end of its last job, whatever form the answer has:
 * /execute's events, OpenAI's chunks, or one document.
 *
 * A request has one prompt or several and as many answers to each as it asks for; each answer is a job. Of a model that
 * gives embeddings all prompts are one job, of which nothing but the end is told. The handler's
 * thread is the reader of them all. It never blocks the engine: what it is slow to send waits in a job's ring. A client
 * that is gone cancels its own jobs at once; a job that ends badly ends the request, and so the others. No text goes
 * into the log: a digest, lengths and counts. */
#ifndef SERVE_STREAM_H
#define SERVE_STREAM_H

#include "caller.h"
#include "chat/chat.h"
#include "output_filter.h"
#include "inside.h"
#include "job_request.h"
#include "jobs.h"
#include "log/words.h"
#include "token_text.h"
#include "transfer.h"
#include "work.h"

struct stream;
struct items;
struct sampler_prob;

struct stream_prompt {
    const char *text; /* what the log's digests are of; the request's, until it is released */
    size_t len;
    uint32_t chars;
    bool as_sent; /* text is what the client sent, of which the ids may have lost something, not ids' bytes or a form's
                   */
    uint32_t second;   /* of a pair of texts, the tokens before those of type 1 (engine_job.text_seconds) */
    struct tokens ids; /* until its jobs are there, or to the end with stream_form.keeps_ids */
    char prompt_hmac[65], prompt_sha256[65]; /* the latter only with --plain-sha256 */
};

struct answer {
    uint32_t index, prompt; /* number among the request's answers; of its prompt */
    uint64_t seed;          /* the request's, and one more for each further answer to a prompt */
    char job_id[ENGINE_JOB_ID_MAX + 1], log_id[LOG_WORD]; /* the first one's is the request's; as events may show it */
    struct job *job;
    struct job_place place; /* among the jobs that are listed */
    struct token_text *text;
    struct output_filter
        *filter; /* its ids wait there until the blocklist is sure of them; NULL: there is none for answers */
    const struct sampler_prob *probs[2];  /* of the last ids, by the lowest bit of their number */
    const struct sampler_prob *end_probs; /* of the id that ended it, if one did */
    uint32_t tokens_out;
    uint32_t turns; /* of the job's: those that were narrated */
    bool started, over;
    bool blocked; /* the blocklist has found a phrase: the job is cancelled */
    bool cut;     /* stream_cut */
};

/* A job's end, as answer, log and list of jobs tell it. */
struct ending {
    bool good;          /* JOB_STOP or JOB_LENGTH */
    const char *reason; /* of a good one: "stop", "length", "tool_calls" */
    struct refusal why; /* of another */
    struct job_figures f;
    double first_ms, decode_ms;
};

/* What a route makes of the jobs' events. [the handler's thread] */
struct stream_form {
    wk_status (*encode)(struct stream *x, struct stream_prompt *p,
                        const struct wk_err *err); /* the prompt: text, len, chars and ids */
    void (*release)(struct stream *x); /* the request is jobs: its JSON is not needed any more, nor what lies in it */
    void (*refused)(struct stream *x, struct refusal *why); /* before it is told, or a job's failure; NULL: nothing */
    void (*started)(struct stream *x, struct answer *a);
    void (*progress)(struct stream *x, struct answer *a, uint32_t n_done); /* of a stream that asks: EVENT_PROGRESS */
    void (*token)(struct stream *x, struct answer *a); /* a->text was given the next id; NULL: nothing */
    void (*line)(struct stream *x, struct answer *a, const struct token_line *line);
    void (*calls)(struct stream *x, struct answer *a); /* events of a->text's calls have come; NULL: nothing */
    void (*turn)(struct stream *x, uint64_t now);      /* between events, at least every 50 ms; NULL: nothing */
    void (*end)(struct stream *x, struct answer *a, const struct ending *e); /* a good one */
    void (*done)(struct stream *x);                          /* all have come to a good end; NULL: nothing */
    void (*error)(struct stream *x, const struct ending *e); /* the first bad one: nothing else is called after it;
                                                                whole: when all jobs are over */
    const char *field;                                       /* of the request that holds the prompt */
    bool whole;                                              /* one answer at the end: no stream of events */
    bool keeps_ids;
    enum http_stream_kind kind; /* of a stream */
};

struct stream {
    const struct stream_form *form;
    struct serve *s;
    const struct serve_model *m;
    struct http_request *r;
    struct work *work;
    size_t fewest;        /* not 0: a prompt has at least so many ids, more than the context: it was not encoded */
    void *own;            /* the form's */
    struct items *items;  /* of a form that items.h follows; else NULL */
    struct job_request q; /* of each job; but for the prompt, which the form has, and seed and id, which answers have */
    bool probs, prompt_probs;        /* log probabilities of the answers' ids, of the prompts' */
    uint32_t top, prompt_top;        /* and of so many of the best */
    bool progress;                   /* how much of each prompt is read is told */
    const struct transfer *transfer; /* what is asked for the prompts' pages, until form->release; NULL: nothing is */
    struct transfer_prompt *handed;  /* [n_prompts]; NULL: nothing */
    bool keeps;                      /* pages were to be kept: the answer says where they are */
    bool embeds;                     /* the prompts are texts of one job, whose rows the form takes at its end */
    struct token_bytes query; /* with embeds: what is read with each of them, as it was sent; data NULL: nothing */
    uint32_t n_prompts, each; /* answers to each; with embeds 1 */
    struct stream_prompt *prompts;
    struct answer *answers; /* [n_prompts * each], those of one prompt behind each other */
    struct job **jobs;      /* theirs */
    uint32_t n_answers, n_over;
    const struct tools_set *functions; /* of a chat: that may be called; the form's, to the end; NULL: none */
    const struct tools_model *calls;   /* how they are written; NULL: as harmony's messages */
    bool one_call, must_call;          /* an answer has one at most; it has nothing else */
    struct grammar *grammar; /* of answers with calls, or, with a form, of calls; the form's, to the end; NULL: free */
    struct blocklist *list;  /* that answers are held to; NULL: none */
    struct grammar *formed, *header; /* of the form that is asked for, NULL: none; of harmony's headers before it */
    struct chat_marks marks;         /* of a chat: as its template says */
    struct chat_problem problem;     /* why encode has failed, where the conversation is to blame; else empty */
    uint64_t arrived_ns, deadline_ns, look_ns, head_ns; /* head_ns: a stream begins at the latest */
    struct http_text line;                              /* of the event that is being sent */
    bool begun;                                         /* the first job has started */
    bool headed;                                        /* the stream has begun */
    bool gone, told;                                    /* gone: nobody reads any more; told: that the request failed */
    bool failed;                                        /* a whole answer: told when all its jobs are over; why: */
    struct ending failure;
};

/* x->q is the request; what it leaves open is chosen here: the id, behind `prefix`, and the seed. Answered, streamed
 * and logged when it returns; the caller frees what is its own. x: form, s, r, work, arrived_ns, q, own, n_prompts,
 * each and what log probabilities are asked for are given; s->streams counts the caller since before it read the
 * service's state. */
void stream_run(struct stream *x, const char *prefix);
/* p->ids of these parts, for forms; nothing is encoded if it can be told that the context does not hold it. */
wk_status stream_encode(struct stream *x, struct stream_prompt *p, const struct tokenizer_part *parts, size_t n,
                        bool add_special, const struct wk_err *err);
/* The same of what a chat makes of a request, whose clock is set here. */
wk_status stream_chat(struct stream *x, struct stream_prompt *p, struct chat_request *q, const struct wk_err *err);
/* x->line as an event, or without a name; what it held is forgotten. False: nobody reads any more. */
bool stream_event(struct stream *x, const char *event);
/* A whole answer cannot be given, and that was answered: its jobs end. */
void stream_told(struct stream *x);
/* The form wants no more of an answer: it ends well, as by a stop string. */
void stream_cut(struct answer *a);
/* Tokens of the prompts that the answer reads. */
size_t stream_tokens_in(const struct stream *x, const struct answer *a);
/* Does the model do what is asked, to generate or, with embeds, to give rows? */
bool stream_suits(const struct serve_model *m, bool embeds, struct refusal *why);
/* Ids that a prompt may have. */
uint32_t stream_prompt_limit(const struct stream *x);
/* Log probabilities of a line's id, [1 + n_top] as of job_event; with stream.probs. */
static inline const struct sampler_prob *answer_probs(const struct answer *a, const struct token_line *line)
{
    return a->probs[line->index & 1];
}

#endif
