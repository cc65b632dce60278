/* executor.c: the CPU as a device: plan, open, step, taps, memory, close.
 *
 * Opening reserves memory and touches next to nothing of it: pages come when they are first written. A step checks what
 * the caller gave before anything is changed, then sends all threads through the stages. */
#include "device/cpu/cpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/machine.h"
#include "device/step_check.h"
#include "model/model.h"
#include "plugin/plugin.h"

/* ---- plan ---------------------------------------------------------------------------------------------- */

static wk_status check_options(const struct tape_program *p, const struct device_options *o, const struct wk_err *err)
{
    enum { MAX_ROWS = 1 << 20 };
    if (o->threads > POOL_MAX_THREADS)
        return wk_fail(err, WK_INVALID, "%u threads: expected 0 to %d", o->threads, POOL_MAX_THREADS);
    if (o->kv_type != KV_F16 && o->kv_type != KV_F32)
        return wk_fail(err, WK_INVALID, "unknown cache type %d", (int)o->kv_type);
    return device_check_options(p, o, MAX_ROWS, err);
}

static void executor_free(struct executor *x)
{
    if (!x) return;
    pool_close(x->pool);
    sampling_close(x);
    for (uint32_t i = 0; i < MEMORY_KINDS; i++)
        if (x->region[i].base) (void)munmap(x->region[i].base, x->region[i].bytes);
    if (x->shared > 0) (void)close(x->shared);
    for (uint32_t i = 0; i < x->n_lists; i++) free(x->lists[i]);
    free(x);
}

/* An executor with its lists and its plan, no region mapped. */
static wk_status executor_plan(const struct tape_program *program, const struct device_options *o,
                               struct executor **out, const struct wk_err *err)
{
    *out = NULL;
    wk_status s = check_options(program, o, err);
    if (s) return s;
    struct executor *x = calloc(1, sizeof *x);
    if (!x) return wk_fail(err, WK_NO_MEMORY, "out of memory for an executor");
    x->program = program;
    x->o = *o;
    if (!x->o.threads) x->o.threads = machine_processors() < POOL_MAX_THREADS ? machine_processors() : POOL_MAX_THREADS;
    const uint32_t here = plugin_detect_isa();
    if (x->o.isa > here) x->o.isa = here;
    x->kernels = cpu_kernels_for(x->o.isa);
    s = build_lists(x, err);
    if (!s) s = build_carve(x, err);
    if (s) {
        executor_free(x);
        return s;
    }
    *out = x;
    return WK_OK;
}

static wk_status cpu_plan(const struct tape_program *program, const struct device_options *o, struct memory_plan *out,
                          const struct wk_err *err)
{
    struct executor *x;
    wk_status s = executor_plan(program, o, &x, err);
    if (s) return s;
    *out = x->plan;
    executor_free(x);
    return WK_OK;
}

/* ---- open ---------------------------------------------------------------------------------------------- */

/* Address space is cheap and pages come late, so the machine would only object in the middle of a step: object here
 * instead. */
static wk_status check_machine(const struct memory_plan *plan, const struct wk_err *err)
{
    const uint64_t have = machine_memory();
    if (!have || plan->total <= have) return WK_OK;
    return wk_fail(err, WK_NO_MEMORY,
                   "%" PRIu64 " bytes are needed (weights %" PRIu64 ", kv %" PRIu64 ", activations %" PRIu64
                   ", workspace %" PRIu64 "), "
                   "the machine (or this process's control group) has %" PRIu64 "; lower --context or --max-sequences",
                   plan->total, plan->bytes[MEMORY_WEIGHTS], plan->bytes[MEMORY_KV], plan->bytes[MEMORY_ACTIVATIONS],
                   plan->bytes[MEMORY_WORKSPACE], have);
}

static wk_status map_regions(struct executor *x, const struct wk_err *err)
{
    for (uint32_t i = 0; i < MEMORY_KINDS; i++) {
        const uint64_t bytes = x->plan.bytes[i] - (i == MEMORY_WORKSPACE ? x->list_bytes : 0);
        if (!bytes) continue;
        const int fd = i == MEMORY_KV && x->o.hand_over ? pages_memory(x, bytes) : -1;
        const int how = fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
        void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, how | MAP_NORESERVE, fd, 0);
        if (base == MAP_FAILED)
            return wk_fail(err, WK_NO_MEMORY, "out of memory: %" PRIu64 " bytes for %s", bytes,
                           memory_kind_name((enum memory_kind)i));
        x->region[i].base = base;
        x->region[i].bytes = bytes;
        (void)madvise(base, bytes, MADV_HUGEPAGE); /* a wish: fewer page-table walks while streaming weights */
    }
    return WK_OK;
}

static wk_status cpu_open(const struct tape_program *program, const struct model_weights *weights,
                          const struct device_options *o, struct executor **out, const struct wk_err *err)
{
    *out = NULL;
    if (weights->file != program->file)
        return wk_fail(err, WK_INTERNAL, "the weights are another file's than the tape's");
    struct executor *x;
    wk_status s = executor_plan(program, o, &x, err);
    if (s) return s;
    s = check_machine(&x->plan, err);
    if (!s) s = map_regions(x, err);
    if (!s) s = build_carve(x, err);
    if (!s) s = weights_load_vectors(x, err);
    if (!s) s = build_stages(x, err);
    if (!s) s = pool_open(x->o.threads, &x->pool, err);
    if (s) {
        executor_free(x);
        return s;
    }
    for (uint32_t i = 0; i < x->o.threads; i++) x->lanes[i].index = i;
    *out = x;
    return WK_OK;
}

static void cpu_memory(const struct executor *x, struct memory_plan *used)
{
    *used = x->plan;
    used->total = 0;
    for (uint32_t i = 0; i < MEMORY_KINDS; i++) {
        used->bytes[i] = x->region[i].bytes + (i == MEMORY_WORKSPACE ? x->list_bytes : 0);
        used->total += used->bytes[i];
    }
}

/* ---- a step: checks ------------------------------------------------------------------------------------ */

static wk_status check_step(const struct executor *x, const struct step *s, const struct wk_err *err)
{
    const wk_status counts = step_check_counts(&x->o, s, err);
    if (counts) return counts;
    wk_status sequences = step_check_sequences(x->program, &x->o, x->plan.kv_pages, s, err);
    if (sequences) return sequences;
    for (uint32_t i = 0; i < s->n_rows; i++)
        if (s->tokens[i] >= x->program->n_vocab)
            return wk_fail(err, WK_INVALID, "row %u: token %u: the vocabulary has %u", i, s->tokens[i],
                           x->program->n_vocab);
    const wk_status status = step_check_logits_rows(s, err);
    if (status) return status;
    if (x->program->embedding_width && !s->pooled)
        return wk_fail(err, WK_INVALID, "the tape has an embedding output but there is no room for it");
    return WK_OK;
}

/* ---- a step: preparation and walk ---------------------------------------------------------------------- */

/* Cuts a row set into runs of at most ATTN_ROWS rows of one sequence. */
static void make_blocks(const struct executor *x, struct row_set *set, const uint32_t *rows, uint32_t n)
{
    set->n = n;
    set->n_blocks = 0;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t seq = x->seq[rows ? rows[i] : i];
        struct row_block *b = set->n_blocks ? &set->blocks[set->n_blocks - 1] : NULL;
        if (b && b->seq == seq && b->n < ATTN_ROWS)
            b->n++;
        else
            set->blocks[set->n_blocks++] = (struct row_block){ i, 1, seq };
    }
}

static void prepare_step(struct executor *x, struct step *s)
{
    x->step = s;
    x->one_row_each = s->n_rows == s->n_seqs;
    x->changes_states = false;
    for (uint32_t i = 0; i < s->n_seqs; i++) {
        s->seqs[i].failed = false;
        x->changes_states |= s->seqs[i].position % KV_PAGE != 0;
        atomic_store_explicit(&x->failed[i], 0, memory_order_relaxed);
        for (uint32_t r = 0; r < s->seqs[i].n_rows; r++) {
            x->position[s->seqs[i].row + r] = s->seqs[i].position + r;
            x->seq[s->seqs[i].row + r] = i;
        }
    }
    make_blocks(x, &x->all, NULL, s->n_rows);
    make_blocks(x, &x->logits_rows, s->logits_rows, s->n_logits_rows);
    for (uint32_t i = 0; i < 2; i++) {
        atomic_store_explicit(&x->counter[i], 0, memory_order_relaxed);
        x->stop[i] = false;
    }
    for (uint32_t i = 0; i < x->o.threads; i++) {
        x->lanes[i].phase = 0;
        for (uint32_t j = 0; j < 2; j++) atomic_store_explicit(&x->lanes[i].next[j], 0, memory_order_relaxed);
    }
    atomic_store(&x->error, WK_OK);
}

/* Memory for a tap alone; a step without taps allocates nothing. */
static void *tap_memory(struct executor *x, uint64_t bytes)
{
    void *p = malloc(bytes);
    int32_t none = WK_OK;
    if (!p && atomic_compare_exchange_strong(&x->error, &none, WK_NO_MEMORY))
        (void)snprintf(x->error_text, sizeof x->error_text, "out of memory for the %" PRIu64 " bytes of a tap", bytes);
    return p;
}

static void give_scores(struct executor *x, const struct stage *s)
{
    char name[TAPE_NAME + 8];
    const uint32_t keys = attend_keys(x);
    float *scores = tap_memory(x, (uint64_t)stage_rows(x, s->rows) * s->attend.heads * keys * sizeof *scores);
    if (!scores) return;
    attend_scores(x, s, keys, scores);
    (void)snprintf(name, sizeof name, "%s.scores", x->program->values[s->attend.op->out].name);
    x->tap(x->tap_user, name, scores, stage_rows(x, s->rows), s->attend.heads * keys);
    free(scores);
}

/* A route's rows hold ids behind the weights: the tap gets the weights, or the ids as numbers. */
static void give_route(struct executor *x, const struct tape_value *v, uint32_t rows, bool ids)
{
    char name[TAPE_NAME + 8];
    float *out = tap_memory(x, (uint64_t)rows * v->slots * sizeof *out);
    if (!out) return;
    for (uint32_t r = 0; r < rows; r++) {
        const float *row = x->buffers[v->buffer] + (uint64_t)r * 2 * v->slots;
        const uint32_t *chosen = (const uint32_t *)(const void *)(row + v->slots);
        for (uint32_t s = 0; s < v->slots; s++) out[(uint64_t)r * v->slots + s] = ids ? (float)chosen[s] : row[s];
    }
    (void)snprintf(name, sizeof name, "%s%s", v->name, ids ? ".ids" : "");
    x->tap(x->tap_user, name, out, rows, v->slots);
    free(out);
}

static void give_value(struct executor *x, const struct stage *s, const struct tape_op *op)
{
    const struct tape_value *v = &x->program->values[op->out];
    if (v->buffer == TAPE_NONE && !s->launch->logits) return; /* pooled on the way to the output */
    const uint32_t rows = stage_rows(x, v->buffer != TAPE_NONE ? v->rows : ROWS_LOGITS);
    if (op->kind == WK_OP_ROUTE)
        give_route(x, v, rows, false);
    else
        x->tap(x->tap_user, v->name, v->buffer != TAPE_NONE ? x->buffers[v->buffer] : x->step->logits, rows,
               v->width * v->slots);
}

/* Thread 0, between two barriers. */
static void give_taps(struct executor *x, const struct stage *s)
{
    const struct tape_program *p = x->program;
    for (uint32_t i = 0; i < s->launch->n_ops; i++) {
        const struct tape_op *op = &p->ops[s->launch->ops[i]];
        if (op->kind == WK_OP_ATTENTION && op->u.attn.tap_scores) give_scores(x, s);
        if (op->kind == WK_OP_ROUTE && op->u.route.tap_ids)
            give_route(x, &p->values[op->out], stage_rows(x, p->values[op->out].rows), true);
        if (op->out != TAPE_NONE && p->values[op->out].tapped) give_value(x, s, op);
    }
}

/* Whether a stage has anything to do; attention stores keys and values, and a sequence's state goes on, even if no row
 * of the result is wanted. */
static bool idle(const struct executor *x, const struct stage *s)
{
    return s->launch->kind != LAUNCH_ATTEND && s->launch->kind != LAUNCH_STATE && stage_rows(x, s->rows) == 0;
}

/* The caller's flag is a plain bool that another thread may set. A step that was cancelled can be submitted again, so
 * one that has changed a state that it began from runs to its end. */
static bool must_stop(const struct executor *x, uint32_t launch)
{
    const bool cancelled = x->step->cancel && __atomic_load_n(x->step->cancel, __ATOMIC_RELAXED) &&
                           !(x->changes_states && launch >= x->first_state);
    return cancelled || atomic_load_explicit(&x->error, memory_order_relaxed) != WK_OK;
}

static void walk(void *arg, uint32_t thread)
{
    struct executor *x = arg;
    struct lane *l = &x->lanes[thread];
    make_rope_rows(
        x, thread); /* the first launch gathers embeddings; its barrier stands between this and the first rotation */
    for (uint32_t i = 0, parity = 0; i < x->program->n_launches; i++) {
        const struct stage *s = &x->stages[i];
        if (idle(x, s)) continue;
        s->run(x, s, l);
        if (thread == 0) x->stop[parity] = must_stop(x, i);
        pool_barrier(x->pool);
        if (x->stop[parity]) return;
        parity ^= 1;
        if (!x->tap || !s->tapped) continue;
        if (thread == 0) give_taps(x, s);
        pool_barrier(x->pool);
    }
}

wk_status executor_step(struct executor *x, struct step *step, const struct wk_err *err)
{
    wk_status s = check_step(x, step, err);
    if (s) return s;
    prepare_step(x, step);
    pool_run(x->pool, walk, x);
    for (uint32_t i = 0; i < step->n_seqs; i++)
        step->seqs[i].failed = atomic_load_explicit(&x->failed[i], memory_order_relaxed);
    x->step = NULL;
    if (atomic_load(&x->error)) return wk_fail(err, atomic_load(&x->error), "%s", x->error_text);
    if (x->stop[0] || x->stop[1]) return wk_fail(err, WK_CANCELLED, "cancelled");
    return WK_OK;
}

static void cpu_taps(struct executor *x, tap_fn fn, void *user)
{
    x->tap = fn;
    x->tap_user = user;
}

const struct device_ops *device_cpu(void)
{
    static const struct device_ops ops = { .name = "cpu",
                                           .plan = cpu_plan,
                                           .open = cpu_open,
                                           .step = executor_step,
                                           .sampler_set = sampling_set,
                                           .submit = sampling_submit,
                                           .collect = sampling_collect,
                                           .mask = sampling_mask,
                                           .run_ahead = 1,
                                           .pages_read = pages_read,
                                           .pages_write = pages_write,
                                           .share = pages_share,
                                           .peer_open = pages_peer_open,
                                           .peer_read = pages_peer_read,
                                           .peer_close = pages_peer_close,
                                           .taps = cpu_taps,
                                           .memory = cpu_memory,
                                           .close = executor_free };
    return &ops;
}
