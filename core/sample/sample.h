/* sample.h: from one row of logits to one token id, defined so exactly that every device picks the same one.
 *
 * Definition. All arithmetic is IEEE 754, rounded to nearest, in the order written, nothing fused. F32 unless said
 * otherwise.
 *
 *   1 bias          l[i] += bias, for every entry of logit_bias, in its order
 *   2 penalties     for every id that this job has generated c > 0 times: l -= presence; l -= frequency * c
 *   3 mask          l[i] = -inf where the mask's bit is 0 (what a grammar forbids; the ids that end a job while it has
 *                   generated fewer than min_ids)
 *   4 temperature   l[i] *= 1 / temperature; not if temperature < SAMPLER_GREEDY
 *   5 repetition    for every generated id: l > 0 ? l /= repetition_penalty : (l *= repetition_penalty)
 *     From here on, "best first" means larger l first (-0 equals 0), among equals the lower id.
 *     If temperature < SAMPLER_GREEDY: the best id is the result.
 *   6 top-k         only the best top_k ids stay; 0: all
 *   7 weights       weight(x) = e^x * 2^44, rounded to an integer: 2^44 of 0, 0 below -31.2; sampler_weight of exp.h,
 *                   a fixed polynomial. m = largest l, w[i] = weight(l[i] - m).
 *   8 top-p         P = top_p * 2^32, rounded to an integer. The shortest run, best first, whose weights w' satisfy
 *                   sum w' * 2^32 >= P * sum w stays, but for ids with w = 0; not if P = 2^32
 *   9 min-p         only ids with w >= ceil(min_p * 2^44) stay
 *  10 draw          u, v: the first and the last two words of Philox4x32-10 (low word first), key = seed (low word
 *                   first), counter = {n mod 2^32, n / 2^32, 0, 0}, n = number of ids generated before this one. Ids
 * are cut into chunks of 128. Of the ids of a chunk that stay, b = largest l, w[i] = weight(l[i] - b), S = sum w, and W
 * = floor(S * weight(b - m) / 2^44); none stays: W = 0. The chunk is the first at which the running sum of W exceeds
 * floor(u * sum W / 2^64), the result the first id in it at which the running sum of its w exceeds floor(v * S / 2^64).
 *
 * Weights are integers so that sums do not depend on their order: a GPU may add them in any. 2^18 ids of 2^44 fit into
 * 64 bits. The draw has two stages because a chunk can be weighed before anybody knows the largest logit of all: so a
 * GPU reads logits once.
 *
 * A logit that is NaN or +inf, before step 1 or after step 5, is an error, and so is a row without any finite l:
 * never an id. */
#ifndef CORE_SAMPLE_SAMPLE_H
#define CORE_SAMPLE_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include <worker/abi.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SAMPLER_GREEDY 1e-5f /* below it, a temperature is 0: the weights of all but the best would be 0 anyway */
enum {
    SAMPLER_MAX_VOCAB = 1 << 18,
    SAMPLER_MAX_BIAS = 1024,
    SAMPLER_MAX_ENDS = 64 /* ids after which a job is over */,
    SAMPLER_CHUNK = 128
};

struct sampler_bias {
    uint32_t id;
    float bias;
};

struct sampler_params {                    /* "off": the value that changes nothing */
    const struct sampler_bias *logit_bias; /* [n_logit_bias], ids < n_vocab, -100..100; copied by sampler_open */
    uint32_t n_logit_bias;                 /* 0..SAMPLER_MAX_BIAS, off 0 */
    uint32_t top_k;                        /* 0..n_vocab, off 0 */
    uint32_t min_ids;                      /* generated before one that ends the job may be; off 0. Who knows those ids
                                              (a device's sampler_set) makes the mask: sampler_pick looks at none */
    float presence_penalty;                /* -2..2, off 0 */
    float frequency_penalty;               /* -2..2, off 0 */
    float temperature;                     /* 0..2; 0: greedy */
    float repetition_penalty;              /* above 0, at most 2; off 1 */
    float top_p;                           /* 0..1, off 1 */
    float min_p;                           /* 0..1, off 0 */
    uint64_t seed;
};

/* Every field in its range? WK_INVALID with a text that names field, value and range. [any thread] */
wk_status sampler_check(const struct sampler_params *p, uint32_t n_vocab, const struct wk_err *err);

/* Memory to work in, for rows of n_vocab logits; shared by any number of samplers that are used one after the other. */
struct sampler_scratch;
wk_status sampler_scratch_open(uint32_t n_vocab, struct sampler_scratch **out,
                               const struct wk_err *err); /* 20 n_vocab bytes and 48 KiB */
void sampler_scratch_close(struct sampler_scratch *x);    /* NULL allowed */

/* One job's parameters and the ids that it has generated. [one thread at a time] */
struct sampler;
wk_status sampler_open(const struct sampler_params *p, uint32_t n_vocab, struct sampler **out,
                       const struct wk_err *err);
void sampler_close(struct sampler *s); /* NULL allowed */

/* The next id from logits [n_vocab]. mask: [ceil(n_vocab / 64)], bit i % 64 of word i / 64 allows id i; NULL: all
 * allowed. Changes nothing but x: the same call gives the same id until sampler_accept. WK_INVALID: no id can be picked
 * from these logits; *id is unchanged. */
wk_status sampler_pick(const struct sampler *s, struct sampler_scratch *x, const float *logits, const uint64_t *mask,
                       uint32_t *id, const struct wk_err *err);

/* Tells that id was generated: it counts for the penalties, and the next draw is number n + 1. WK_NO_MEMORY: not
 * counted. */
wk_status sampler_accept(struct sampler *s, uint32_t id, const struct wk_err *err);

/* ---- log probabilities ---------------------------------------------------------------------------------
 *
 * Of the logits as they come, before step 1: with m the largest of them and S the sum of weight(l[k] - m) over all ids,
 * an integer, log p(i) = l[i] - (m + log(S / 2^44)): natural logarithm, F64 behind the sum. So it is within 1e-6 of the
 * exact value, and the same on every device. -inf has the log probability -inf. The rank of an id is its place among
 * all, best first, from 1. */

enum { SAMPLER_MAX_TOP = 20 };

/* What a device finds in a row of logits; sampler_probs makes log probabilities of it. */
struct sampler_top {
    uint64_t sum;                     /* S */
    float best, logit;                /* m; the logit of `id` */
    uint32_t id, rank;                /* whose log probability was asked for; its place, best first, from 1 */
    uint32_t n;                       /* ids of top: as many as were asked for, or all that there are */
    uint32_t top_id[SAMPLER_MAX_TOP]; /* best first, equal ones by lower id */
    float top_logit[SAMPLER_MAX_TOP];
};
/* id < n_vocab, top <= SAMPLER_MAX_TOP. WK_INVALID: a logit is NaN or +inf, or all are -inf. [any thread] */
wk_status sampler_top(const float *logits, uint32_t n_vocab, uint32_t id, uint32_t top, struct sampler_top *out,
                      const struct wk_err *err);

struct sampler_prob {
    double logprob;
    uint32_t id, rank;
};
/* of [1 + t->n]: of t->id first, then of the best. [any thread] */
void sampler_probs(const struct sampler_top *t, struct sampler_prob *of);

/* ---- constraints --------------------------------------------------------------------------------------- */

/* What a job may generate, told token by token: the mask of step 3. All calls of one constraint come from one thread
 * at a time. A mask depends on the ids accepted before and on nothing else. */
struct sampler_constraint {
    void *user;
    /* The ids that may come next: bits [ceil(n_vocab / 64)], as sampler_pick takes them, all of which it writes; bits
     * from n_vocab on are ignored. An id that ends the job is allowed exactly when its bit is set. WK_INVALID,
     * WK_UNSUPPORTED: the grammar has a dead end here, or comes to a limit; any other: a failure. */
    wk_status (*mask)(void *user, uint64_t *bits, const struct wk_err *err);
    /* id, which the last mask allowed, was generated. Not called for an id that ends the job. */
    wk_status (*accept)(void *user, uint32_t id, const struct wk_err *err);
    void (*close)(void *user); /* once, the last call; NULL: nothing to free */
};

/* Does a mask allow any id? The bits of `ends` are cleared first where a job has too few ids to end (min_ids). */
bool sampler_mask_allows(uint64_t *mask, uint32_t n_vocab, const uint32_t *ends, uint32_t n_ends);

#ifdef __cplusplus
}
#endif
#endif
