/* stop.c: one Knuth-Morris-Pratt automaton a stop string, stepped together. See stop.h.
 *
 * An automaton's state is the length of the longest beginning of its string that ends at the current byte; so the bytes
 * to hold back are as many as the largest state, and they are themselves that beginning: nothing
 * needs to be buffered. */
#include "tokenizer/stop.h"

#include <stdlib.h>
#include <string.h>

struct pattern {
    unsigned char *text; /* [len] */
    uint32_t *border;    /* [len]: of text[0..i], the longest proper prefix that is also a suffix */
    uint32_t len, state;
};

struct stop_matcher {
    struct pattern pattern[STOP_MAX];
    size_t n;
    int matched; /* index, or STOP_NONE */
};

static uint32_t step(const struct pattern *p, uint32_t state, unsigned char byte)
{
    while (state && p->text[state] != byte) state = p->border[state - 1];
    return state + (p->text[state] == byte);
}

static wk_status pattern_open(struct pattern *p, const char *text, size_t len, size_t index, const struct wk_err *err)
{
    if (len < 1 || len > STOP_MAX_BYTES)
        return wk_fail(err, WK_INVALID, "stop string %zu has %zu bytes; it may have 1 to %d", index, len,
                       STOP_MAX_BYTES);
    p->text = malloc(len);
    p->border = malloc(len * sizeof *p->border);
    if (!p->text || !p->border) return wk_fail(err, WK_NO_MEMORY, "no memory for a stop string of %zu bytes", len);
    memcpy(p->text, text, len);
    p->len = (uint32_t)len;
    p->border[0] = 0;
    for (uint32_t i = 1; i < p->len; i++) p->border[i] = step(p, p->border[i - 1], p->text[i]);
    return WK_OK;
}

const char *stop_string(const struct stop_matcher *m, int index, size_t *len)
{
    *len = m->pattern[index].len;
    return (const char *)m->pattern[index].text;
}

wk_status stop_open(const char *const *strings, const size_t *lens, size_t n, struct stop_matcher **out,
                    const struct wk_err *err)
{
    *out = NULL;
    if (n > STOP_MAX) return wk_fail(err, WK_INVALID, "%zu stop strings given; at most %d are allowed", n, STOP_MAX);
    struct stop_matcher *m = calloc(1, sizeof *m);
    if (!m) return wk_fail(err, WK_NO_MEMORY, "no memory for the stop matcher");
    m->matched = STOP_NONE;
    for (; m->n < n; m->n++) {
        const wk_status status = pattern_open(&m->pattern[m->n], strings[m->n], lens[m->n], m->n, err);
        if (status) {
            m->n++; /* the half-made one is freed too */
            stop_close(m);
            return status;
        }
    }
    *out = m;
    return WK_OK;
}

void stop_close(struct stop_matcher *m)
{
    if (!m) return;
    for (size_t i = 0; i < m->n; i++) {
        free(m->pattern[i].text);
        free(m->pattern[i].border);
    }
    free(m);
}

/* The automaton in the largest state; its first `state` bytes are what is held back. NULL: no stop strings. */
static const struct pattern *deepest(const struct stop_matcher *m)
{
    const struct pattern *best = NULL;
    for (size_t i = 0; i < m->n; i++)
        if (!best || m->pattern[i].state > best->state) best = &m->pattern[i];
    return best;
}

/* Steps all automata; the index of the longest string that this byte completes, or STOP_NONE. */
static int step_all(struct stop_matcher *m, unsigned char byte)
{
    int hit = STOP_NONE;
    for (size_t i = 0; i < m->n; i++) {
        struct pattern *p = &m->pattern[i];
        p->state = step(p, p->state, byte);
        if (p->state == p->len && (hit == STOP_NONE || p->len > m->pattern[hit].len)) hit = (int)i;
    }
    return hit;
}

int stop_push(struct stop_matcher *m, const void *bytes, size_t n, char *out, size_t *written)
{
    const unsigned char *in = bytes;
    *written = 0;
    if (m->matched != STOP_NONE) return m->matched;
    for (size_t i = 0; i < n; i++) {
        const struct pattern *before = deepest(m);
        const uint32_t held_before = before ? before->state : 0;
        const int hit = step_all(m, in[i]);
        const struct pattern *after = hit == STOP_NONE ? deepest(m) : &m->pattern[hit];
        const uint32_t held_after = hit == STOP_NONE ? (after ? after->state : 0) : after->len;
        /* held bytes + this one, less what stays held or belongs to the match, are text */
        const uint32_t release = held_before + 1 - held_after;
        const uint32_t from_held = release < held_before ? release : held_before;
        if (from_held) memcpy(out + *written, before->text, from_held);
        *written += from_held;
        if (release > held_before) out[(*written)++] = (char)in[i];
        if (hit != STOP_NONE) return m->matched = hit;
    }
    return STOP_NONE;
}

size_t stop_flush(struct stop_matcher *m, char *out)
{
    const struct pattern *p = deepest(m);
    if (!p || m->matched != STOP_NONE) return 0;
    const uint32_t n = p->state;
    if (n) memcpy(out, p->text, n);
    for (size_t i = 0; i < m->n; i++) m->pattern[i].state = 0;
    return n;
}
