/* completions.c: whole answers that are given again to who asks the same: no device, no place, no turn.
 *
 * The same is: owner and salt; prompt, ids that end the job and number of ids; every parameter of the sampler, with the
 * seed where one is drawn from; which log probabilities are asked for; the digest of the constraint, if there is one. A
 * job's ids depend on nothing else, and the model is the engine's. All of it is compared, not its hash alone.
 *
 * Kept are answers that ended by themselves: by an id of `ends`, or for their length. Where the reader stopped a job is
 * the reader's to know, and how many ids came until the engine heard of it is chance: such an answer is not kept. An
 * answer that is found is whole, so a reader with stop strings reads of it what it needs and leaves the rest.
 *
 * It is all done by the threads of those who submit and read: looked for in the submit, kept when the end is read, that
 * is, before anybody else can know of it. The engine's thread has nothing to do with it. The oldest in use goes first.
 */
#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    HEAD_WORDS = 36,
    PARTS = 4,
    BYTES_A_BUCKET = 4096, /* of the cache: as large as short answers are */
    BUCKETS_LEAST = 64,
    BUCKETS_MOST = 1 << 20
};

struct completion {
    struct completion *older, *newer, *next; /* next: in its bucket */
    uint64_t hash, bytes;                    /* bytes: of all of it, one block */
    uint32_t n_ids, n_probs, n_scored;       /* rows of log probabilities: of ids, of the prompt's tokens */
    enum job_end end;
    bool by_id;
    uint32_t *key, n_key, *ids;
    struct sampler_prob *probs, *prompt_probs;
};

wk_status completions_open(struct completions *c, uint64_t cap, const struct wk_err *err)
{
    uint64_t n = BUCKETS_LEAST;
    (void)pthread_mutex_init(&c->lock, NULL);
    c->ready = true;
    c->cap = cap;
    if (!cap) return WK_OK;
    if (getentropy(&c->seed, sizeof c->seed))
        return wk_fail(err, WK_IO, "no random bytes for the completion cache's hashes");
    while (n < BUCKETS_MOST && n < cap / BYTES_A_BUCKET) n *= 2;
    c->n_buckets = (uint32_t)n;
    c->buckets = calloc(n, sizeof(struct completion *));
    return c->buckets ? WK_OK : wk_fail(err, WK_NO_MEMORY, "out of memory for the completion cache's table");
}

void completions_close(struct completions *c)
{
    for (struct completion *x = c->oldest, *next; x; x = next) {
        next = x->newer;
        free(x);
    }
    free((void *)c->buckets);
    if (c->ready) (void)pthread_mutex_destroy(&c->lock);
}

/* ---- the key ------------------------------------------------------------------------------------------- */

/* What a job is known by: words that are made for it, and three lists that the job has. */
struct key {
    uint32_t head[HEAD_WORDS], n_head;
    struct {
        const void *words;
        uint32_t n;
    } part[PARTS];
    uint32_t n;
    uint64_t hash;
};

static void put(struct key *k, uint64_t word)
{
    k->head[k->n_head++] = (uint32_t)word;
    k->head[k->n_head++] = (uint32_t)(word >> 32);
}

static void put_real(struct key *k, float value) { memcpy(&k->head[k->n_head++], &value, sizeof value); }

static void put_sampler(struct key *k, const struct sampler_params *p)
{
    put(k, (uint64_t)p->top_k << 32 | p->min_ids);
    put_real(k, p->presence_penalty);
    put_real(k, p->frequency_penalty);
    put_real(k, p->temperature);
    put_real(k, p->repetition_penalty);
    put_real(k, p->top_p);
    put_real(k, p->min_p);
    put(k, p->temperature < SAMPLER_GREEDY ? 0 : p->seed); /* nothing is drawn by who takes the best */
}

static void make_key(const struct completions *c, const struct job *j, struct key *k)
{
    k->n_head = k->n = 0;
    put(k, j->owner_key);
    put(k, j->salt.word[0]);
    put(k, j->salt.word[1]);
    put(k, (uint64_t)j->n_prompt << 32 | j->most);
    put(k, (uint64_t)j->n_ends << 32 | j->params.n_logit_bias);
    put(k, (uint64_t)j->top << 32 | j->prompt_top); /* STEP_NO_TOP: not asked for */
    put_sampler(k, &j->params);
    put(k, j->mask != NULL);
    for (uint32_t i = 0; i < ENGINE_DIGEST / 8; i++) put(k, j->constraint_digest[i]);
    k->part[0].words = k->head, k->part[0].n = k->n_head;
    k->part[1].words = j->ends, k->part[1].n = j->n_ends;
    k->part[2].words = j->bias, k->part[2].n = 2 * j->params.n_logit_bias;
    k->part[3].words = j->prompt, k->part[3].n = j->n_prompt;
    k->hash = c->seed;
    for (uint32_t i = 0; i < PARTS; i++) {
        const uint8_t *at = k->part[i].words;
        k->n += k->part[i].n;
        for (uint32_t w = 0, word; w < k->part[i].n; w++, at += sizeof word) {
            memcpy(&word, at, sizeof word);
            k->hash = engine_mix(k->hash, word);
        }
    }
}

static bool is_key(const struct completion *x, const struct key *k)
{
    const uint32_t *at = x->key;
    if (x->hash != k->hash || x->n_key != k->n) return false;
    for (uint32_t i = 0; i < PARTS; at += k->part[i++].n)
        if (k->part[i].n && memcmp(at, k->part[i].words, k->part[i].n * sizeof *at) != 0) return false;
    return true;
}

/* ---- the table; under the lock ------------------------------------------------------------------------- */

static struct completion **bucket(struct completions *c, uint64_t hash)
{
    return &c->buckets[hash & (c->n_buckets - 1)];
}

static struct completion *look(struct completions *c, const struct key *k)
{
    struct completion *x = *bucket(c, k->hash);
    while (x && !is_key(x, k)) x = x->next;
    return x;
}

static void list_unlink(struct completions *c, const struct completion *x)
{
    *(x->older ? &x->older->newer : &c->oldest) = x->newer;
    *(x->newer ? &x->newer->older : &c->newest) = x->older;
}

static void list_append(struct completions *c, struct completion *x)
{
    x->older = c->newest;
    x->newer = NULL;
    *(c->newest ? &c->newest->newer : &c->oldest) = x;
    c->newest = x;
}

static void evict(struct completions *c)
{
    struct completion *x = c->oldest, **at = bucket(c, x->hash);
    while (*at != x) at = &(*at)->next;
    *at = x->next;
    list_unlink(c, x);
    c->bytes -= x->bytes;
    c->n--;
    c->evicted++;
    free(x);
}

/* ---- in and out ---------------------------------------------------------------------------------------- */

static void copy(void *to, const void *from, uint64_t bytes)
{
    if (bytes) memcpy(to, from, bytes);
}

static uint64_t row_bytes(uint32_t top, uint64_t rows)
{
    return rows ? rows * (1 + (uint64_t)top) * sizeof(struct sampler_prob) : 0;
}

bool completions_find(struct completions *c, struct job *j)
{
    struct key k;
    if (!c->cap || !j->completion) return false;
    make_key(c, j, &k);
    (void)pthread_mutex_lock(&c->lock);
    struct completion *x = look(c, &k);
    if (x) {
        list_unlink(c, x);
        list_append(c, x);
        copy(j->ids, x->ids, x->n_ids * sizeof *x->ids);
        copy(j->probs, x->probs, row_bytes(j->top, x->n_probs));
        copy(j->prompt_probs, x->prompt_probs, row_bytes(j->prompt_top, x->n_scored));
        atomic_store(&j->n_scored, x->n_scored);
        j->n_ids = x->n_ids;
        j->end = x->end;
        j->by_id = x->by_id;
    }
    (void)pthread_mutex_unlock(&c->lock);
    return x != NULL;
}

void completions_count(struct completions *c, const struct job *j, bool hit)
{
    if (!c->cap || !j->completion) return;
    (void)pthread_mutex_lock(&c->lock);
    *(hit ? &c->hits : &c->misses) += 1;
    if (hit) c->ended[j->end == JOB_LENGTH]++;
    (void)pthread_mutex_unlock(&c->lock);
}

/* One block: log probabilities, which have words of 8, then key and ids. NULL: no memory, or it is larger than all. */
static struct completion *make(const struct completions *c, const struct job *j, const struct key *k, enum job_end end)
{
    const uint32_t n_ids = job_generated(j), n_probs = j->probs ? n_ids + j->by_id : 0,
                   n_scored = atomic_load(&j->n_scored);
    const uint64_t probs = row_bytes(j->top, n_probs), scored = row_bytes(j->prompt_top, n_scored),
                   bytes = sizeof(struct completion) + probs + scored + 4 * ((uint64_t)k->n + n_ids);
    struct completion *x = bytes <= c->cap ? malloc(bytes) : NULL;
    if (!x) return NULL;
    uint8_t *at = (uint8_t *)(x + 1);
    *x = (struct completion){ .hash = k->hash,
                              .bytes = bytes,
                              .n_ids = n_ids,
                              .n_probs = n_probs,
                              .n_scored = n_scored,
                              .end = end,
                              .by_id = j->by_id,
                              .n_key = k->n,
                              .probs = (struct sampler_prob *)(void *)at,
                              .prompt_probs = (struct sampler_prob *)(void *)(at + probs),
                              .key = (uint32_t *)(void *)(at + probs + scored) };
    x->ids = x->key + k->n;
    copy(x->probs, j->probs, probs);
    copy(x->prompt_probs, j->prompt_probs, scored);
    copy(x->ids, j->ids, n_ids * sizeof *x->ids);
    uint32_t *word = x->key;
    for (uint32_t i = 0; i < PARTS; word += k->part[i++].n) copy(word, k->part[i].words, k->part[i].n * sizeof *word);
    return x;
}

void completions_keep(struct completions *c, const struct job *j, enum job_end end)
{
    struct key k;
    if (!c->cap || !j->completion || j->completion_hit || !(end == JOB_LENGTH || (end == JOB_STOP && j->by_id))) return;
    make_key(c, j, &k);
    struct completion *x = make(c, j, &k, end);
    if (!x) return;
    (void)pthread_mutex_lock(&c->lock);
    if (look(c, &k)) { /* two that asked at once */
        (void)pthread_mutex_unlock(&c->lock);
        free(x);
        return;
    }
    while (c->bytes + x->bytes > c->cap) evict(c);
    struct completion **first = bucket(c, k.hash);
    x->next = *first;
    *first = x;
    list_append(c, x);
    c->bytes += x->bytes;
    c->n++;
    (void)pthread_mutex_unlock(&c->lock);
}

void completions_stats(struct completions *c, struct engine_stats *out)
{
    (void)pthread_mutex_lock(&c->lock);
    out->completion_hits = c->hits;
    out->completion_misses = c->misses;
    out->completion_evicted = c->evicted;
    out->completion_bytes = c->bytes;
    out->completions = c->n;
    out->ended[JOB_STOP] += c->ended[0];
    out->ended[JOB_LENGTH] += c->ended[1];
    (void)pthread_mutex_unlock(&c->lock);
}
