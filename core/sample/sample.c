/* sample.c: the definition in sample.h, step by step. Nothing is ever sorted: "best first" only matters for where to
 * cut, and a cut is found by counting into the buckets of a radix tree. */
#include "sample/sample.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clones.h"
#include "sample/exp.h"
#include "sample/philox.h"

__extension__ typedef unsigned __int128 u128;

struct count {
    uint32_t id, times;
};

struct sampler {
    struct sampler_params p;
    struct sampler_bias *bias; /* [p.n_logit_bias] */
    uint32_t n_vocab;
    struct count *counts; /* [n_counts], ascending ids: what has been generated */
    uint32_t n_counts, capacity;
    uint64_t n_generated;
};

enum { CHUNKS = SAMPLER_MAX_VOCAB / SAMPLER_CHUNK };
struct chunk {
    uint32_t first;
    uint64_t sum;
}; /* first: position of its first id; sum: S */

struct sampler_scratch {
    uint32_t n_vocab;
    float *l;      /* [n_vocab] */
    uint32_t *key; /* [n_vocab] order of l as integers */
    uint32_t *id;  /* [n_vocab] after top-k: whose they are */
    uint64_t *w;   /* [n_vocab] weights */
    struct chunk chunk[CHUNKS];
    uint64_t of_chunk[CHUNKS]; /* W */
};

/* ---- parameters ---------------------------------------------------------------------------------------- */

static wk_status check_range(const char *field, float value, float low, float high, bool above_low,
                             const struct wk_err *err)
{
    if ((above_low ? value > low : value >= low) && value <= high) return WK_OK; /* false for NaN */
    return wk_fail(err, WK_INVALID, "%s is %g; %s %g and at most %g expected", field, (double)value,
                   above_low ? "above" : "at least", (double)low, (double)high);
}

wk_status sampler_check(const struct sampler_params *p, uint32_t n_vocab, const struct wk_err *err)
{
    if (n_vocab == 0 || n_vocab > SAMPLER_MAX_VOCAB)
        return wk_fail(err, WK_INVALID, "vocabulary of %u ids; 1 to %d expected", n_vocab, SAMPLER_MAX_VOCAB);
    wk_status status = check_range("temperature", p->temperature, 0, 2, false, err);
    if (status == WK_OK) status = check_range("presence_penalty", p->presence_penalty, -2, 2, false, err);
    if (status == WK_OK) status = check_range("frequency_penalty", p->frequency_penalty, -2, 2, false, err);
    if (status == WK_OK) status = check_range("repetition_penalty", p->repetition_penalty, 0, 2, true, err);
    if (status == WK_OK) status = check_range("top_p", p->top_p, 0, 1, false, err);
    if (status == WK_OK) status = check_range("min_p", p->min_p, 0, 1, false, err);
    if (status != WK_OK) return status;
    if (p->top_k > n_vocab)
        return wk_fail(err, WK_INVALID, "top_k is %u; at most the vocabulary, %u, expected", p->top_k, n_vocab);
    if (p->n_logit_bias > SAMPLER_MAX_BIAS)
        return wk_fail(err, WK_INVALID, "logit_bias has %u entries; at most %d expected", p->n_logit_bias,
                       SAMPLER_MAX_BIAS);
    for (uint32_t i = 0; i < p->n_logit_bias && status == WK_OK; i++) {
        const struct sampler_bias *b = &p->logit_bias[i];
        if (b->id >= n_vocab)
            status =
                wk_fail(err, WK_INVALID, "logit_bias names id %u; below the vocabulary, %u, expected", b->id, n_vocab);
        else
            status = check_range("logit_bias", b->bias, -100, 100, false, err);
    }
    return status;
}

/* ---- objects ------------------------------------------------------------------------------------------- */

wk_status sampler_scratch_open(uint32_t n_vocab, struct sampler_scratch **out, const struct wk_err *err)
{
    *out = NULL;
    if (n_vocab == 0 || n_vocab > SAMPLER_MAX_VOCAB)
        return wk_fail(err, WK_INVALID, "vocabulary of %u ids; 1 to %d expected", n_vocab, SAMPLER_MAX_VOCAB);
    struct sampler_scratch *x = calloc(1, sizeof *x);
    if (!x) return wk_fail(err, WK_NO_MEMORY, "out of memory");
    x->n_vocab = n_vocab;
    x->l = malloc(n_vocab * sizeof *x->l);
    x->key = malloc(n_vocab * sizeof *x->key);
    x->id = malloc(n_vocab * sizeof *x->id);
    x->w = malloc(n_vocab * sizeof *x->w);
    if (!x->l || !x->key || !x->id || !x->w) {
        sampler_scratch_close(x);
        return wk_fail(err, WK_NO_MEMORY, "out of memory for rows of %u logits", n_vocab);
    }
    *out = x;
    return WK_OK;
}

void sampler_scratch_close(struct sampler_scratch *x)
{
    if (!x) return;
    free(x->l);
    free(x->key);
    free(x->id);
    free(x->w);
    free(x);
}

wk_status sampler_open(const struct sampler_params *p, uint32_t n_vocab, struct sampler **out, const struct wk_err *err)
{
    *out = NULL;
    wk_status status = sampler_check(p, n_vocab, err);
    if (status != WK_OK) return status;
    struct sampler *s = calloc(1, sizeof *s);
    if (s) s->bias = malloc((p->n_logit_bias ? p->n_logit_bias : 1) * sizeof *s->bias);
    if (!s || !s->bias) {
        free(s);
        return wk_fail(err, WK_NO_MEMORY, "out of memory");
    }
    if (p->n_logit_bias) memcpy(s->bias, p->logit_bias, p->n_logit_bias * sizeof *s->bias);
    s->p = *p;
    s->p.logit_bias = s->bias;
    s->n_vocab = n_vocab;
    *out = s;
    return WK_OK;
}

void sampler_close(struct sampler *s)
{
    if (!s) return;
    free(s->bias);
    free(s->counts);
    free(s);
}

wk_status sampler_accept(struct sampler *s, uint32_t id, const struct wk_err *err)
{
    if (id >= s->n_vocab) return wk_fail(err, WK_INVALID, "id %u is not below the vocabulary, %u", id, s->n_vocab);
    uint32_t low = 0, high = s->n_counts; /* first entry with an id that is not below */
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (s->counts[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == s->n_counts || s->counts[low].id != id) {
        if (s->n_counts == s->capacity) {
            const uint32_t capacity = s->capacity ? 2 * s->capacity : 64; /* at most twice the vocabulary */
            struct count *grown = realloc(s->counts, capacity * sizeof *grown);
            if (!grown) return wk_fail(err, WK_NO_MEMORY, "out of memory for %u generated ids", capacity);
            s->counts = grown;
            s->capacity = capacity;
        }
        memmove(&s->counts[low + 1], &s->counts[low], (s->n_counts - low) * sizeof *s->counts);
        s->counts[low] = (struct count){ id, 0 };
        s->n_counts++;
    }
    s->counts[low].times++;
    s->n_generated++;
    return WK_OK;
}

/* ---- order --------------------------------------------------------------------------------------------- */

static uint32_t float_bits(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

/* Integers in the order of the floats; -0 and 0 are one. */
static uint32_t order_key(float x)
{
    const uint32_t b = float_bits(x + 0.0f);
    return b ^ ((uint32_t) - (int32_t)(b >> 31) | 0x80000000u);
}

static float key_float(uint32_t key)
{
    const uint32_t b = key & 0x80000000u ? key ^ 0x80000000u : ~key;
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

/* NaN of either sign, or +inf */
static uint32_t unusable(float x)
{
    const uint32_t b = float_bits(x);
    return (uint32_t)((b & 0x7fffffffu) > 0x7f800000u) | (uint32_t)(b == 0x7f800000u);
}

static wk_status fail_unusable(const float *l, uint32_t n, const char *when, const struct wk_err *err)
{
    uint32_t i = 0;
    while (i + 1 < n && !unusable(l[i])) i++;
    return wk_fail(err, WK_INVALID, "the logit of id %u is %s%s; no id can be picked", i,
                   l[i] > 0 ? "infinite" : "not a number", when);
}

/* Where the shortest run, best first, ends whose mass reaches `need`: the ids of larger keys belong to it, and those of
 * this key up to position `last`. */
struct cut {
    uint32_t key, last;
};

static bool within(struct cut c, uint32_t key, uint32_t position)
{
    return key > c.key || (key == c.key && position <= c.last);
}

/* mass of position i: w[i], or 1 if w is NULL; all of it together is at least need >= 1. Three levels of a radix tree
 * over the keys. */
static struct cut find_cut(const uint32_t *key, const uint64_t *w, uint32_t n, uint64_t need)
{
    static const struct {
        uint32_t shift, bits;
    } levels[] = { { 21, 11 }, { 10, 11 }, { 0, 10 } };
    uint64_t mass[1 << 11];
    uint32_t prefix = 0;
    for (int level = 0; level < 3; level++) {
        const uint32_t shift = levels[level].shift, buckets = 1u << levels[level].bits;
        memset(mass, 0, sizeof mass);
        for (uint32_t i = 0; i < n; i++)
            if ((uint64_t)key[i] >> (shift + levels[level].bits) == prefix)
                mass[key[i] >> shift & (buckets - 1)] += w ? w[i] : 1;
        uint32_t b = buckets - 1;
        while (mass[b] < need) need -= mass[b--];
        prefix = prefix << levels[level].bits | b;
    }
    struct cut c = { prefix, 0 };
    for (uint32_t i = 0; need > 0; i++) {
        if (key[i] != prefix) continue;
        const uint64_t m = w ? w[i] : 1;
        need -= m < need ? m : need;
        c.last = i;
    }
    return c;
}

/* ---- steps --------------------------------------------------------------------------------------------- */

/* Steps 1 to 5, into x->l and x->key. */
CLONES static wk_status penalise(const struct sampler *s, struct sampler_scratch *x, const float *logits,
                                 const uint64_t *mask, bool greedy, const struct wk_err *err)
{
    const struct sampler_params *p = &s->p;
    float *l = x->l;
    const uint32_t n = s->n_vocab;
    uint32_t bad = 0;
    for (uint32_t i = 0; i < n; i++) bad |= unusable(logits[i]);
    if (bad) return fail_unusable(logits, n, "", err);
    memcpy(l, logits, n * sizeof *l);
    for (uint32_t i = 0; i < p->n_logit_bias; i++) l[p->logit_bias[i].id] += p->logit_bias[i].bias;
    for (uint32_t i = 0; i < s->n_counts; i++) {
        float *generated = &l[s->counts[i].id];
        *generated -= p->presence_penalty;
        *generated -= p->frequency_penalty * (float)s->counts[i].times;
    }
    for (uint32_t i = 0; mask && i < n; i++)
        if (!(mask[i / 64] >> i % 64 & 1)) l[i] = -INFINITY;
    const float by = greedy ? 1 : 1 / p->temperature;
    for (uint32_t i = 0; !greedy && i < n; i++) l[i] *= by;
    for (uint32_t i = 0; i < s->n_counts; i++) {
        float *generated = &l[s->counts[i].id];
        if (*generated > 0)
            *generated /= p->repetition_penalty;
        else
            *generated *= p->repetition_penalty;
    }
    bad = 0;
    for (uint32_t i = 0; i < n; i++) {
        bad |= unusable(l[i]);
        x->key[i] = order_key(l[i]);
    }
    return bad ? fail_unusable(l, n, " after penalties and temperature", err) : WK_OK;
}

CLONES static uint32_t best_key(const uint32_t *key, uint32_t n)
{
    uint32_t best = 0;
    for (uint32_t i = 0; i < n; i++) best = key[i] > best ? key[i] : best;
    return best;
}

/* Step 6: how many stay; they are moved to the front, in order of ids. */
static uint32_t keep_top_k(struct sampler_scratch *x, uint32_t n, uint32_t k)
{
    const struct cut c = find_cut(x->key, NULL, n, k);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (!within(c, x->key[i], i)) continue;
        x->id[kept] = i;
        x->l[kept] = x->l[i];
        x->key[kept++] = x->key[i];
    }
    return kept;
}

/* Step 7, of n ids. best: the largest l. */
CLONES static void weigh(const float *l, uint64_t *w, uint32_t n, float best)
{
    for (uint32_t i = 0; i < n; i++) w[i] = sampler_weight(l[i] - best);
}

CLONES static uint64_t sum(const uint64_t *w, uint32_t n)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++) total += w[i];
    return total;
}

/* Step 8. What does not stay weighs nothing from now on. */
static void keep_top_p(struct sampler_scratch *x, uint32_t n, uint64_t share)
{
    const uint64_t need = (uint64_t)(((u128)share * sum(x->w, n) + UINT32_MAX) >> 32);
    const struct cut c = find_cut(x->key, x->w, n, need ? need : 1);
    for (uint32_t i = 0; i < n; i++) x->w[i] = within(c, x->key[i], i) ? x->w[i] : 0;
}

/* Steps 7 to 9. What does not stay has a logit of -inf from now on, and its key. */
static void keep_likely(const struct sampler_params *p, struct sampler_scratch *x, uint32_t n, float best)
{
    const uint64_t all = UINT64_C(1) << 32, share = (uint64_t)rint((double)p->top_p * 0x1p32),
                   least = (uint64_t)ceil((double)p->min_p * 0x1p44);
    if (share == all && !least) return;
    weigh(x->l, x->w, n, best);
    if (share < all) keep_top_p(x, n, share);
    for (uint32_t i = 0; i < n; i++) {
        const bool stays = x->w[i] >= (least ? least : 1);
        x->l[i] = stays ? x->l[i] : -INFINITY;
        x->key[i] = stays ? x->key[i] : order_key(-INFINITY);
    }
}

/* The first position at which the running sum of w, `total` in all, exceeds its share random / 2^64. */
static uint32_t reach(const uint64_t *w, uint64_t total, uint64_t random)
{
    uint64_t target = (uint64_t)((u128)random * total >> 64);
    uint32_t i = 0;
    while (w[i] <= target) target -= w[i++];
    return i;
}

/* Step 10, with n logits, those of `ids` (NULL: of all): a position. */
static uint32_t draw(struct sampler_scratch *x, uint32_t n, const uint32_t *ids, float best, uint64_t seed,
                     uint64_t index)
{
    const struct philox_block counter = { { (uint32_t)index, (uint32_t)(index >> 32), 0, 0 } };
    const struct philox_block r = philox4x32_10(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
    uint32_t n_chunks = 0;
    uint64_t total = 0;
    for (uint32_t first = 0, end; first < n; first = end) {
        end = first + SAMPLER_CHUNK < n ? first + SAMPLER_CHUNK : n;
        while (ids && ids[end - 1] / SAMPLER_CHUNK != ids[first] / SAMPLER_CHUNK) end--;
        const uint32_t key = best_key(x->key + first, end - first);
        struct chunk *c = &x->chunk[n_chunks];
        *c = (struct chunk){ first, 0 };
        x->of_chunk[n_chunks] = 0;
        if (key > order_key(-INFINITY)) {
            weigh(x->l + first, x->w + first, end - first, key_float(key));
            c->sum = sum(x->w + first, end - first);
            x->of_chunk[n_chunks] =
                (uint64_t)((u128)c->sum * sampler_weight(key_float(key) - best) >> SAMPLER_WEIGHT_BITS);
        }
        total += x->of_chunk[n_chunks++];
    }
    const struct chunk *c = &x->chunk[reach(x->of_chunk, total, (uint64_t)r.word[1] << 32 | r.word[0])];
    return c->first + reach(x->w + c->first, c->sum, (uint64_t)r.word[3] << 32 | r.word[2]);
}

wk_status sampler_pick(const struct sampler *s, struct sampler_scratch *x, const float *logits, const uint64_t *mask,
                       uint32_t *id, const struct wk_err *err)
{
    const struct sampler_params *p = &s->p;
    uint32_t n = s->n_vocab;
    if (x->n_vocab < n) return wk_fail(err, WK_INTERNAL, "scratch is for %u logits, the row has %u", x->n_vocab, n);
    const bool greedy = p->temperature < SAMPLER_GREEDY;
    wk_status status = penalise(s, x, logits, mask, greedy, err);
    if (status != WK_OK) return status;
    const uint32_t best = best_key(x->key, n);
    if (best <= order_key(-INFINITY))
        return wk_fail(err, WK_INVALID, "every logit is -infinity or forbidden by the mask; no id can be picked");

    const bool cut = !greedy && p->top_k > 0 && p->top_k < n;
    if (cut) n = keep_top_k(x, n, p->top_k);
    uint32_t position = 0;
    while (x->key[position] != best) position++;
    if (!greedy) {
        const float most = x->l[position];
        keep_likely(p, x, n, most);
        position = draw(x, n, cut ? x->id : NULL, most, p->seed, s->n_generated);
    }
    *id = cut ? x->id[position] : position;
    return WK_OK;
}

bool sampler_mask_allows(uint64_t *mask, uint32_t n_vocab, const uint32_t *ends, uint32_t n_ends)
{
    for (uint32_t i = 0; i < n_ends; i++)
        if (ends[i] < n_vocab) mask[ends[i] / 64] &= ~(UINT64_C(1) << ends[i] % 64);
    for (uint32_t i = 0; i < n_vocab / 64; i++)
        if (mask[i]) return true;
    return n_vocab % 64 && mask[n_vocab / 64] << (64 - n_vocab % 64);
}

/* ---- log probabilities --------------------------------------------------------------------------------- */

/* id goes where it belongs among the best so far, if it does. Ids come in ascending order, so among equals it is last.
 */
static void rank(struct sampler_top *t, uint32_t most, uint32_t id, float logit)
{
    if (t->n == most && !(logit > t->top_logit[most - 1])) return;
    uint32_t at = t->n < most ? t->n++ : most - 1;
    for (; at > 0 && t->top_logit[at - 1] < logit; at--) {
        t->top_logit[at] = t->top_logit[at - 1];
        t->top_id[at] = t->top_id[at - 1];
    }
    t->top_logit[at] = logit;
    t->top_id[at] = id;
}

wk_status sampler_top(const float *logits, uint32_t n_vocab, uint32_t id, uint32_t top, struct sampler_top *out,
                      const struct wk_err *err)
{
    uint32_t bad = 0;
    float best = -INFINITY;
    if (id >= n_vocab || top > SAMPLER_MAX_TOP)
        return wk_fail(err, WK_INVALID, "id %u and the best %u of %u: expected an id of the vocabulary and at most %d",
                       id, top, n_vocab, SAMPLER_MAX_TOP);
    for (uint32_t i = 0; i < n_vocab; i++) {
        bad |= unusable(logits[i]);
        best = logits[i] > best ? logits[i] : best;
    }
    if (bad) return fail_unusable(logits, n_vocab, "", err);
    if (best == -INFINITY) return wk_fail(err, WK_INVALID, "every logit is -infinity; there are no probabilities");
    *out = (struct sampler_top){ .best = best, .logit = logits[id], .id = id };
    for (uint32_t i = 0; i < n_vocab; i++) {
        out->sum += sampler_weight(logits[i] - best);
        out->rank += logits[i] > logits[id] || (logits[i] == logits[id] && i <= id);
    }
    for (uint32_t i = 0; top && i < n_vocab; i++) rank(out, top, i, logits[i]);
    return WK_OK;
}

void sampler_probs(const struct sampler_top *t, struct sampler_prob *of)
{
    const double log_sum = (double)t->best + log((double)t->sum * 0x1p-44);
    of[0] = (struct sampler_prob){ .logprob = (double)t->logit - log_sum, .id = t->id, .rank = t->rank };
    for (uint32_t i = 0; i < t->n; i++)
        of[i + 1] =
            (struct sampler_prob){ .logprob = (double)t->top_logit[i] - log_sum, .id = t->top_id[i], .rank = i + 1 };
}
