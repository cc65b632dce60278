/* lease.c: whole pages of a prompt that stay while another engine reads them; see handover.h.
 *
 * A lease holds nodes of the prefix cache as a job does, from the moment they are committed. Of a group of bounded span
 * it needs the pages that the row behind its last block sees. Its job passes them before that, so the lease begins to
 * use them when the step that computes them is in flight: after the job gave back what it needs no more, before
 * anybody can be given them. A page that a job uses too has to be paid for (pages.c); where nothing is to spare, the
 * lease waits, and is lost if the page is gone when its turn comes. A job without a next row leaves it all it has.
 *
 * Whoever has a reference may read the blocks that are ready, from any thread: they change no more. The last reference
 * leaves the lease to the engine's thread, which gives the pages back. */
#include "engine/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tape/tape.h"

/* ---- what a block is ----------------------------------------------------------------------------------- */

const char *lease_refusal(const struct engine *e)
{
    for (uint32_t g = 0; g < e->n_groups; g++)
        if (e->pool[g].span.state) return "the model has states, which are not handed over: prompts are computed anew";
    if (!e->prefix.cap) return "there is no prefix cache";
    return e->model->dev.hand_over ? NULL : "the model was not opened for it (hand_over)";
}

wk_status engine_layout(const struct engine *e, struct engine_layout *out, const struct wk_err *err)
{
    const char *refusal = lease_refusal(e);
    if (refusal) return wk_fail(err, WK_UNSUPPORTED, "pages cannot be handed over: %s", refusal);
    *out = (struct engine_layout){ .n_groups = e->n_groups,
                                   .kv_type = e->model->dev.kv_type,
                                   .version = KV_LAYOUT_VERSION };
    for (uint32_t g = 0; g < e->n_groups; g++) {
        out->group[g].window = e->pool[g].span.window;
        out->group[g].chunk = e->pool[g].span.chunk;
        out->group[g].layers = e->model->program->groups[g].n_layers;
        out->group[g].page_bytes = e->model->plan.kv_page_bytes[g];
    }
    return WK_OK;
}

uint32_t engine_first_block(const struct engine_layout *l, uint32_t g, uint32_t blocks)
{
    const struct kv_span span = { .window = l->group[g].window, .chunk = l->group[g].chunk };
    return kv_first(span, blocks * KV_PAGE) / KV_PAGE;
}

/* Blocks of [from, to) that have a page of group g. */
static uint32_t with_page(const struct engine_layout *l, uint32_t g, uint32_t blocks, uint32_t from, uint32_t to)
{
    const uint32_t first = engine_first_block(l, g, blocks), begin = from > first ? from : first;
    return to > begin ? to - begin : 0;
}

uint64_t engine_block_bytes(const struct engine_layout *l, uint32_t blocks, uint32_t from, uint32_t to)
{
    uint64_t n = 0;
    for (uint32_t g = 0; g < l->n_groups; g++) n += with_page(l, g, blocks, from, to) * l->group[g].page_bytes;
    return n;
}

uint32_t engine_block_pages(const struct engine_layout *l, uint32_t blocks, uint32_t from, uint32_t to)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < l->n_groups; g++) n += with_page(l, g, blocks, from, to);
    return n;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

struct engine_lease *lease_new(struct engine *e, const uint32_t *prompt, uint32_t n_prompt, const char *why_not)
{
    const uint32_t n = engine_blocks(n_prompt);
    const uint64_t words = (uint64_t)n * (KV_PAGE + 1 + e->n_groups);
    struct engine_lease *l = malloc(sizeof *l + words * sizeof(uint32_t));
    if (!l) return NULL;
    *l = (struct engine_lease){ .engine = e, .refs = 1, .blocks = n, .tokens = (uint32_t *)(void *)(l + 1) };
    l->nodes = l->tokens + (uint64_t)n * KV_PAGE;
    l->pages = l->nodes + n;
    memcpy(l->tokens, prompt, (uint64_t)n * KV_PAGE * sizeof *prompt);
    for (uint32_t g = 0; g < e->n_groups; g++)
        l->first[g] = l->used[g] = kv_first(e->pool[g].span, n * KV_PAGE) / KV_PAGE;
    if (atomic_fetch_add(&e->n_leases, 1) >= ENGINE_LEASES && !why_not) why_not = "there are too many leases";
    if (why_not)
        lease_set(l, LEASE_LOST, why_not);
    else if (!n)
        lease_set(l, LEASE_WHOLE, NULL);
    return l;
}

void lease_free(struct engine_lease *l)
{
    (void)atomic_fetch_sub(&l->engine->n_leases, 1);
    free(l);
}

struct engine_lease *job_lease(struct job *j)
{
    if (j->lease) engine_lease_ref(j->lease);
    return j->lease;
}

void engine_lease_ref(struct engine_lease *l) { (void)atomic_fetch_add_explicit(&l->refs, 1, memory_order_relaxed); }

void engine_lease_release(struct engine_lease *l)
{
    if (!l || atomic_fetch_sub(&l->refs, 1) != 1) return;
    struct engine *e = l->engine;
    (void)pthread_mutex_lock(&e->lock);
    l->next = e->released;
    e->released = l;
    (void)pthread_mutex_unlock(&e->lock);
    engine_attention(e, ATTEND_PAGES);
}

/* ---- what readers see ---------------------------------------------------------------------------------- */

static void wake_readers(struct engine_lease *l)
{
    atomic_fetch_add(&l->wake_word, 1);
    if (atomic_load(&l->sleepers)) futex_wake_all(&l->wake_word);
}

void lease_set(struct engine_lease *l, enum lease_state state, const char *text)
{
    if (text) (void)snprintf(l->text, sizeof l->text, "%s", text);
    atomic_store(&l->state, (uint32_t)state);
    wake_readers(l);
}

const uint32_t *engine_lease_tokens(const struct engine_lease *l, uint32_t *blocks)
{
    *blocks = l->blocks;
    return l->tokens;
}

enum lease_state engine_lease_wait(struct engine_lease *l, uint32_t have, int timeout_ms, uint32_t *ready)
{
    const uint64_t until = timeout_ms > 0 ? engine_now() + (uint64_t)timeout_ms * 1000000u : 0;
    for (;;) {
        const uint32_t word = atomic_load(&l->wake_word);
        const enum lease_state state = (enum lease_state)atomic_load(&l->state);
        *ready = state == LEASE_LOST ? 0 : atomic_load(&l->ready);
        if (state != LEASE_GROWING || *ready > have || !timeout_ms || (until && engine_now() >= until)) return state;
        atomic_fetch_add(&l->sleepers, 1);
        futex_wait_until(&l->wake_word, word, until);
        atomic_fetch_sub(&l->sleepers, 1);
    }
}

const char *engine_lease_text(const struct engine_lease *l)
{
    return atomic_load(&l->state) == LEASE_LOST ? l->text : "";
}

static wk_status check_range(const struct engine_lease *l, uint32_t from, uint32_t to, const struct wk_err *err)
{
    if (atomic_load(&l->state) == LEASE_LOST) return wk_fail(err, WK_INVALID, "the lease is lost: %s", l->text);
    const uint32_t ready = atomic_load(&l->ready);
    if (from > to || to > ready)
        return wk_fail(err, WK_INVALID, "blocks %u to %u of a lease of which %u can be read", from, to, ready);
    return WK_OK;
}

uint32_t lease_pages(const struct engine_lease *l, uint32_t *block, uint32_t to, uint32_t most, struct device_page *out)
{
    uint32_t n = 0;
    for (; *block < to && n + l->engine->n_groups <= most; ++*block)
        for (uint32_t g = 0; g < l->engine->n_groups; g++)
            if (*block >= l->first[g])
                out[n++] = (struct device_page){ g, l->pages[(uint64_t)*block * l->engine->n_groups + g] };
    return n;
}

static uint64_t bytes_of(const struct engine *e, const struct device_page *pages, uint32_t n)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) bytes += e->model->plan.kv_page_bytes[pages[i].group];
    return bytes;
}

enum direction { READ, WRITE };

/* As many pages at once as LEASE_RUN has. */
static wk_status move(struct engine_lease *l, uint32_t from, uint32_t to, uint8_t *outside, enum direction d,
                      const struct wk_err *err)
{
    const struct model *m = l->engine->model;
    wk_status s = WK_OK;
    while (!s && from < to) {
        struct device_page pages[LEASE_RUN];
        const uint32_t n = lease_pages(l, &from, to, LEASE_RUN, pages);
        s = d == READ ? m->device->pages_read(m->executor, pages, n, outside, err)
                      : m->device->pages_write(m->executor, pages, n, outside, err);
        outside += bytes_of(l->engine, pages, n);
    }
    return s;
}

wk_status engine_lease_read(struct engine_lease *l, uint32_t from, uint32_t to, void *out, const struct wk_err *err)
{
    const wk_status s = check_range(l, from, to, err);
    return s ? s : move(l, from, to, out, READ, err);
}

/* One function for both ways: `bytes` is read alone. */
wk_status lease_write(struct engine_lease *l, uint32_t from, uint32_t to, const void *bytes, const struct wk_err *err)
{
    return move(l, from, to, (uint8_t *)(uintptr_t)bytes, WRITE, err);
}

wk_status engine_lease_pages(struct engine_lease *l, uint32_t from, uint32_t to, struct device_page *out,
                             const struct wk_err *err)
{
    wk_status s = check_range(l, from, to, err);
    if (!s) (void)lease_pages(l, &from, to, UINT32_MAX, out);
    return s;
}

/* ---- the engine's thread ------------------------------------------------------------------------------- */

bool lease_count(struct engine *e, struct engine_lease *l)
{
    uint64_t there = 0;
    bool room = true;
    for (uint32_t g = 0; g < e->n_groups; g++) {
        there += e->leased[g];
        room = room && e->leased[g] + (l->blocks - l->first[g]) <= e->pool[g].n / 2;
    }
    if (there && !room) return false;
    for (uint32_t g = 0; g < e->n_groups; g++) e->leased[g] += l->blocks - l->first[g];
    return l->counted = true;
}

void lease_uncount(struct engine *e, struct engine_lease *l)
{
    for (uint32_t g = 0; l->counted && g < e->n_groups; g++) e->leased[g] -= l->blocks - l->first[g];
    l->counted = false;
}

void lease_begin(struct engine *e, struct job *j)
{
    struct engine_lease *l = j->lease;
    if (!lease_grows(j)) return;
    if (l->counted || !lease_count(e, l)) {
        lease_set(l, LEASE_LOST, l->counted ? "its job had to give way" : "other leases have half of all pages");
        return;
    }
    lease_use(e, j);
    lease_follow(e, j);
}

void lease_use(struct engine *e, struct job *j)
{
    struct engine_lease *l = j->lease;
    if (!lease_grows(j)) return;
    for (uint32_t g = 0; g < e->n_groups; g++)
        for (uint32_t *b = &l->used[g]; kv_bounded(e->pool[g].span) && *b < j->n_nodes && *b < l->blocks; ++*b) {
            if (prefix_pages(&e->prefix, j->nodes[*b])[g] == ENGINE_NONE) {
                lease_set(l, LEASE_LOST, "a page was needed for others");
                return;
            }
            if (!pages_spare(e, g)) break;
            pages_use(e, g, j->nodes[*b]);
        }
}

/* All pages of block b of j's prompt will stay. */
static bool has_all(const struct engine *e, const struct engine_lease *l, uint32_t b)
{
    for (uint32_t g = 0; g < e->n_groups; g++)
        if (kv_bounded(e->pool[g].span) && b >= l->used[g]) return false;
    return true;
}

void lease_follow(struct engine *e, struct job *j)
{
    struct engine_lease *l = j->lease;
    if (!lease_grows(j)) return;
    const uint32_t had = l->n_held;
    for (uint32_t *b = &l->n_held; *b < j->n_committed && *b < l->blocks && has_all(e, l, *b); ++*b) {
        l->nodes[*b] = j->nodes[*b];
        prefix_hold(&e->prefix, l->nodes[*b]);
        memcpy(l->pages + (uint64_t)*b * e->n_groups, prefix_pages(&e->prefix, l->nodes[*b]),
               e->n_groups * sizeof *l->pages);
    }
    if (l->n_held == had) return;
    atomic_store(&l->ready, l->n_held);
    if (l->n_held == l->blocks)
        lease_set(l, LEASE_WHOLE, NULL);
    else
        wake_readers(l);
}

/* Pages of nodes that may go with the job. */
void lease_forget(struct engine *e, struct job *j)
{
    struct engine_lease *l = j->lease;
    for (uint32_t g = 0; l && g < e->n_groups; g++) {
        const uint32_t stay = l->n_held > l->first[g] ? l->n_held : l->first[g];
        while (kv_bounded(e->pool[g].span) && l->used[g] > stay) pages_leave(e, g, j->nodes[--l->used[g]]);
    }
}

void lease_end(struct engine *e, struct job *j)
{
    (void)e;
    if (lease_grows(j)) lease_set(j->lease, LEASE_LOST, "its job ended before all pages of the prompt were kept");
}

void lease_unpin(struct engine *e, struct engine_lease *l)
{
    for (uint32_t g = 0; g < e->n_groups; g++)
        while (kv_bounded(e->pool[g].span) && l->used[g] > l->first[g]) pages_leave(e, g, l->nodes[--l->used[g]]);
    while (l->n_held) prefix_drop(&e->prefix, l->nodes[--l->n_held]);
    lease_uncount(e, l);
    e->schedule_due = true;
}
