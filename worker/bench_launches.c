/* bench_launches.c: see bench_launches.h.
 *
 * Every launch is timed by itself, a token at a time; what the launches of one kind take is added up, as is what they
 * had to read. Their sum is more than a step takes, in which a launch begins before the one before it has ended. */
#include "bench_launches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(void *user, const char *name, double seconds, uint64_t bytes)
{
    struct launch_table *t = user;
    uint32_t i = 0;
    while (i < t->n && strncmp(t->kind[i].name, name, sizeof t->kind[i].name - 1) != 0) i++;
    if (i == LAUNCH_LINES) i = LAUNCH_LINES - 1; /* the last line has the rest */
    if (i == t->n) {
        t->kind[t->n] = (struct launch_line){ .launches = 0 };
        (void)snprintf(t->kind[t->n].name, sizeof t->kind[t->n].name, "%s", t->n + 1 < LAUNCH_LINES ? name : "others");
        t->n++;
    }
    t->kind[i].launches++;
    t->kind[i].seconds += seconds;
    t->kind[i].bytes += (double)bytes;
}

static int longest_first(const void *a, const void *b)
{
    const struct launch_line *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

wk_status launches_measure(struct launch_table *t, struct model *m, const uint32_t *prompt, uint32_t depth,
                           uint32_t tokens, const struct wk_err *err)
{
    struct session *s;
    *t = (struct launch_table){ .tokens = tokens };
    float *logits = malloc(m->program->n_vocab * sizeof *logits);
    if (!logits) return wk_fail(err, WK_NO_MEMORY, "no memory for %u logits", m->program->n_vocab);
    wk_status status = session_open(m, &s, err);
    if (!status) status = session_feed(s, prompt, depth, ROW_PROMPT, 0, NULL, err);
    if (!status) m->device->launches(m->executor, add, t);
    for (uint32_t i = 0; i <= tokens && !status; i++) {
        if (i == 1) t->n = 0; /* the first is not counted: it wakes the clocks */
        status = session_feed(s, prompt, 1, ROW_GENERATED, 1, logits, err);
    }
    m->device->launches(m->executor, NULL, NULL);
    session_close(s);
    free(logits);
    qsort(t->kind, t->n, sizeof *t->kind, longest_first);
    return status;
}

static double rate_of(const struct launch_line *k) { return k->seconds > 0 ? k->bytes / k->seconds : 0; }

void launches_print(const struct launch_table *t, double bandwidth)
{
    (void)printf("launches   each by itself, %u tokens: a token's launches, us each, MB read each, GB/s, share\n",
                 t->tokens);
    for (uint32_t i = 0; i < t->n; i++) {
        const struct launch_line *k = &t->kind[i];
        (void)printf("  %-24s %6.1f %9.2f us", k->name, (double)k->launches / t->tokens,
                     1e6 * k->seconds / k->launches);
        if (k->bytes > 0)
            (void)printf(" %9.3f MB %8.1f GB/s %5.1f %%", k->bytes / k->launches / 1e6, rate_of(k) / 1e9,
                         100 * rate_of(k) / bandwidth);
        (void)printf("\n");
    }
}

json_t *launches_json(const struct launch_table *t, double bandwidth)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < t->n; i++) {
        const struct launch_line *k = &t->kind[i];
        (void)json_array_append_new(list, json_pack("{s:s, s:f, s:f, s:f, s:f}", "name", k->name, "launches_per_token",
                                                    (double)k->launches / t->tokens, "seconds",
                                                    k->seconds / k->launches, "bytes", k->bytes / k->launches,
                                                    "bandwidth_share", rate_of(k) / bandwidth));
    }
    return list;
}
