/* test_jobs.c: models, jobs and readers of the engine's tests. */
#include "test_jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "model/generator.h"

char test_text[2048];
const struct wk_err test_err = { test_text, sizeof test_text };

static struct plugin_registry *registry;

void ok(wk_status status)
{
    if (status) fail_msg("%s", test_text);
}

int test_open_plugins(void)
{
    const struct plugin_options o = { .dirs = NULL };
    if (!plugin_registry_open(&o, &registry, &test_err)) return 0;
    printf("%s\n", test_text);
    return 1;
}

const struct plugin_registry *test_plugins(void) { return registry; }
void test_close_plugins(void) { plugin_registry_close(registry); }

uint64_t test_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- models -------------------------------------------------------------------------------------------- */

enum { E = 64, F = 96, H = 4 };

static struct gguf_build *llama_file(float head)
{
    struct gguf_build *g = gguf_build_new("llama");
    gguf_build_u32(g, "llama.context_length", TEST_CONTEXT);
    gguf_build_u32(g, "llama.embedding_length", E);
    gguf_build_u32(g, "llama.block_count", 1);
    gguf_build_u32(g, "llama.feed_forward_length", F);
    gguf_build_u32(g, "llama.attention.head_count", H);
    gguf_build_f32(g, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    static const struct {
        const char *name;
        uint32_t rows, cols;
        float scale;
    } tensors[] = {
        { "token_embd.weight", TEST_VOCAB, E, 0.2f }, { "output_norm.weight", 1, E, 1 },
        { "blk.0.attn_norm.weight", 1, E, 1 },        { "blk.0.attn_q.weight", E, E, 0.2f },
        { "blk.0.attn_k.weight", E, E, 0.2f },        { "blk.0.attn_v.weight", E, E, 0.2f },
        { "blk.0.attn_output.weight", E, E, 0.2f },   { "blk.0.ffn_norm.weight", 1, E, 1 },
        { "blk.0.ffn_gate.weight", F, E, 0.2f },      { "blk.0.ffn_up.weight", F, E, 0.2f },
        { "blk.0.ffn_down.weight", E, F, 0.2f },
    };
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        gguf_build_noise(g, (uint32_t)i + 3, tensors[i].name, tensors[i].rows, tensors[i].cols, tensors[i].scale);
    gguf_build_noise(g, 100, "output.weight", TEST_VOCAB, E, head);
    return g;
}

static wk_status find_cuda(void *user, uint32_t type, const struct wk_quant_cuda **out, const struct wk_err *err)
{
    return plugin_find_cuda(user, type, out, err);
}

static struct model *load(struct gguf *file, const struct device_ops *device, struct device_options dev)
{
    struct model *m;
    dev.threads = dev.threads ? dev.threads : 2;
    dev.isa = WK_ISA_AVX512;
    dev.find_cuda = find_cuda;
    dev.find_user = registry;
    dev.max_sequences = dev.max_sequences ? dev.max_sequences : 8;
    dev.max_rows = dev.max_rows ? dev.max_rows : 64;
    const struct model_options o = { .device = device, .fuse = FUSE_ALL, .dev = dev };
    ok(model_plan(file, registry, &o, &m, &test_err));
    ok(model_load(m, &test_err));
    return m;
}

struct test_model test_llama(const struct device_ops *device, struct device_options dev, float head)
{
    struct test_model t = { .file = llama_file(head) };
    t.m = load(gguf_build_open(t.file), device, dev);
    return t;
}

struct test_model test_file(const struct device_ops *device, const char *path, struct device_options dev)
{
    struct gguf *file;
    ok(gguf_open(path, &file, &test_err));
    return (struct test_model){ .m = load(file, device, dev) };
}

void test_unload(struct test_model *t)
{
    model_close(t->m);
    gguf_build_free(t->file);
}

/* ---- jobs ---------------------------------------------------------------------------------------------- */

struct test_job test_make(uint32_t i)
{
    static const struct sampler_bias bias[] = { { 3, 1.0f }, { 7, -100.0f } };
    static const uint32_t lengths[] = { 9, 1, 64, 65, 31, 150, 2, 100, 230, 33 };
    struct test_job t = { .n = lengths[i % 10], .most = 5 + i * 7 % 36 };
    t.params = (struct sampler_params){ .temperature = i % 3 ? 1.2f : 0.0f,
                                        .top_k = i % 2 ? 20 : 0,
                                        .top_p = i % 4 ? 1.0f : 0.9f,
                                        .repetition_penalty = i % 3 == 2 ? 1.3f : 1.0f,
                                        .presence_penalty = i % 7 == 4 ? 0.5f : 0.0f,
                                        .logit_bias = bias,
                                        .n_logit_bias = i % 5 == 4 ? 2 : 0,
                                        .seed = i + 1 };
    for (uint32_t k = 0; k < t.n; k++) t.tokens[k] = (k * 7 + i * 3 + k * k % 11) % TEST_VOCAB;
    if (i % 4 == 1) t.n_ends = 2, t.ends[0] = 11, t.ends[1] = i % TEST_VOCAB, t.params.min_ids = i % 3;
    return t;
}

uint32_t test_alone(struct model *m, const struct test_job *t, uint32_t *ids, enum job_end *end)
{
    struct generator *g;
    uint32_t n = 0, id;
    *end = JOB_LENGTH;
    ok(generator_open(m, 1, &g, &test_err));
    ok(generator_start(g, 0,
                       &(struct generator_job){ .params = &t->params,
                                                .ends = t->ends,
                                                .n_ends = t->n_ends,
                                                .prompt = t->tokens,
                                                .n_prompt = t->n,
                                                .most = t->most },
                       &test_err));
    while (ok(generator_next(g, &id, &test_err)), id != GENERATOR_NONE) {
        if (id == GENERATOR_FAILED) *end = JOB_FAILED;
        for (uint32_t i = 0; i < t->n_ends; i++)
            if (id == t->ends[i]) *end = JOB_STOP;
        if (*end != JOB_LENGTH) break;
        ids[n++] = id;
        if (t->n + n == m->dev.context) break;
    }
    generator_close(g);
    return n;
}

struct engine *test_engine(struct model *m, struct engine_options o)
{
    struct engine *e;
    if (!o.max_sequences) o.max_sequences = m->dev.max_sequences;
    if (!o.max_batch_tokens) o.max_batch_tokens = m->dev.max_rows;
    if (!o.max_queue) o.max_queue = 64;
    if (!o.high_priority) o.high_priority = 5;
    ok(engine_open(m, &o, &e, &test_err));
    return e;
}

struct engine_job test_spec(const struct test_job *t, const char *id)
{
    return (struct engine_job){ .id = id,
                                .prompt = t->tokens,
                                .n_prompt = t->n,
                                .max_tokens = t->most,
                                .ends = t->ends,
                                .n_ends = t->n_ends,
                                .params = &t->params,
                                .owner = t->owner,
                                .salt = t->salt };
}

struct job *test_submit_spec(struct engine *e, const struct engine_job *spec)
{
    struct job *j;
    const enum submit_refusal refusal = engine_submit(e, spec, &j, &test_err);
    if (refusal) fail_msg("%s: refused (%d): %s", spec->id, (int)refusal, test_text);
    return j;
}

struct job *test_submit(struct engine *e, const char *id, const struct test_job *t, int32_t priority,
                        uint64_t deadline_ns)
{
    struct engine_job spec = test_spec(t, id);
    spec.priority = priority;
    spec.deadline_ns = deadline_ns;
    return test_submit_spec(e, &spec);
}

uint32_t test_read(struct job *j, uint32_t *ids, uint32_t cap, enum job_end *end)
{
    struct job_event event;
    uint32_t n = 0;
    bool started = false;
    for (;;) {
        assert_true(job_next(j, &event, -1));
        if (event.kind == EVENT_END) break;
        if (event.kind == EVENT_STARTED) {
            assert_false(started);
            started = true;
            continue;
        }
        assert_true(started);
        assert_int_equal(event.index, n);
        assert_in_range(n, 0, cap - 1);
        ids[n++] = event.id;
    }
    *end = event.end;
    assert_false(job_next(j, &event, 0));
    assert_false(job_next(j, &event, -1));
    return n;
}

void test_nap(void) { (void)nanosleep(&(struct timespec){ .tv_nsec = 200000 }, NULL); }

void test_wait_idle(struct engine *e)
{
    struct engine_stats s;
    while (!engine_idle(e)) test_nap();
    engine_stats(e, &s);
    assert_int_equal(s.pages_used, 0);
    assert_int_equal(s.queued, 0);
    assert_int_equal(s.running, 0);
    assert_int_equal(engine_jobs(e, NULL, 0), 0);
}

static bool unused(struct engine *e)
{
    struct engine_stats s;
    engine_stats(e, &s);
    return !s.pages_used && engine_idle(e);
}

void test_wait_unused(struct engine *e) { test_wait_for(unused(e)); }

void test_wait_generated(struct job *j, uint32_t n)
{
    struct job_figures f;
    while (job_figures(j, &f), f.n_generated < n && !f.ended_ns) test_nap();
    assert_true(f.n_generated >= n);
}

uint64_t test_started(const struct job *j)
{
    struct job_figures f;
    job_figures(j, &f);
    return f.started_ns;
}

void test_answers(struct model *m, struct test_answer *out, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct test_job t = test_make(i);
        out[i].n = test_alone(m, &t, out[i].ids, &out[i].end);
    }
}

void test_llama_answers(struct test_answer *out, uint32_t n)
{
    struct test_model t = test_llama(device_cpu(), (struct device_options){ .max_sequences = 1 }, 2);
    test_answers(t.m, out, n);
    test_unload(&t);
}

void test_check(struct job *j, const char *name, const struct test_answer *want, bool cut)
{
    uint32_t ids[TEST_CONTEXT];
    enum job_end end;
    const uint32_t n = test_read(j, ids, TEST_CONTEXT, &end);
    const bool whole = end == want->end && n == want->n,
               early = cut && n <= want->n && (end == JOB_CANCELLED || end == JOB_TIMEOUT || end == JOB_STOP);
    struct job_figures f;
    job_figures(j, &f);
    if (!whole && !early)
        fail_msg("%s: %u ids and %s (%s), alone %u and %s", name, n, job_end_name(end), f.text, want->n,
                 job_end_name(want->end));
    for (uint32_t k = 0; k < n; k++)
        if (ids[k] != want->ids[k])
            fail_msg("%s: id %u is %u, alone %u (%u preemptions, %u yields, %u cached)", name, k, ids[k], want->ids[k],
                     f.preemptions, f.yields, f.n_cached);
    assert_int_equal(f.n_generated, n);
    assert_true(f.ended_ns && f.queued_ns && f.ended_ns >= f.queued_ns);
    job_release(j);
}

/* ---- the device ---------------------------------------------------------------------------------------- */

struct test_control test_control = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void pause_at_gate(struct test_control *c)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 1000000;
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    (void)pthread_cond_timedwait(&c->changed, &c->lock, &until);
}

/* Begins the step, or says why not. */
static wk_status pass_gate(const struct step *step, const struct wk_err *err)
{
    struct test_control *c = &test_control;
    wk_status s = WK_OK;
    (void)pthread_mutex_lock(&c->lock);
    c->waiting++;
    (void)pthread_cond_broadcast(&c->changed);
    while (!c->permits && !s) {
        pause_at_gate(c);
        if (step->cancel && __atomic_load_n(step->cancel, __ATOMIC_RELAXED)) s = WK_CANCELLED;
    }
    c->waiting--;
    if (s)
        c->cancelled++;
    else {
        c->begun++;
        if (c->permits != UINT64_MAX) c->permits--;
        const bool fails = c->begun == c->fail_at || (c->begun > c->fail_at && c->begun <= c->fail_to);
        if (fails && !c->fail_in_collect) s = c->fail_with;
    }
    (void)pthread_cond_broadcast(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
    return s ? wk_fail(err, s, "step %u fails as it was told", (unsigned)c->begun) : WK_OK;
}

static struct {
    uint32_t n;
    uint32_t slot[64];
} spoiled[STEP_QUEUE];
static uint32_t spoil_first, spoil_n;

static wk_status gated_submit(struct executor *x, const struct step *step, const struct wk_err *err)
{
    wk_status s = pass_gate(step, err);
    if (!s) s = device_cpu()->submit(x, step, err);
    if (s) return s;
    const uint32_t at = (spoil_first + spoil_n++) % STEP_QUEUE;
    spoiled[at].n = step->n_seqs;
    for (uint32_t i = 0; i < step->n_seqs; i++) spoiled[at].slot[i] = step->seqs[i].slot;
    return WK_OK;
}

/* A step of texts. */
static wk_status gated_step(struct executor *x, struct step *step, const struct wk_err *err)
{
    const wk_status s = pass_gate(step, err);
    return s ? s : device_cpu()->step(x, step, err);
}

static wk_status spoiling_collect(struct executor *x, struct step_ids *out, const struct wk_err *err)
{
    if (test_control.fail_in_collect && test_control.begun >= test_control.fail_at)
        return wk_fail(err, test_control.fail_with, "collect fails as it was told");
    wk_status s = device_cpu()->collect(x, out, err);
    for (uint32_t i = 0; !s && i < spoiled[spoil_first].n; i++)
        if (spoiled[spoil_first].slot[i] == test_control.spoil_slot) out->failed[i] = true;
    spoil_first = (spoil_first + 1) % STEP_QUEUE;
    spoil_n--;
    return s;
}

static wk_status told_sampler(struct executor *x, uint32_t slot, const struct sampler_params *p, const uint32_t *ends,
                              uint32_t n_ends, const struct wk_err *err)
{
    return test_control.refuse_samplers ? wk_fail(err, WK_NO_MEMORY, "no memory for a sampler, as told")
                                        : device_cpu()->sampler_set(x, slot, p, ends, n_ends, err);
}

static bool told_dead(void) { return test_control.die && test_control.begun >= test_control.fail_at; }

const struct device_ops *test_device(uint32_t run_ahead, uint64_t permits)
{
    static struct device_ops ops;
    struct test_control *c = &test_control;
    ops = *device_cpu();
    ops.run_ahead = run_ahead;
    ops.submit = gated_submit;
    ops.step = gated_step;
    ops.collect = spoiling_collect;
    ops.sampler_set = told_sampler;
    ops.dead = told_dead;
    c->permits = permits;
    c->waiting = c->begun = c->cancelled = c->fail_at = c->fail_to = 0;
    c->fail_with = WK_INTERNAL;
    c->fail_in_collect = c->die = c->refuse_samplers = false;
    c->spoil_slot = UINT32_MAX;
    spoil_first = spoil_n = 0;
    return &ops;
}

void test_permit(uint64_t n)
{
    struct test_control *c = &test_control;
    (void)pthread_mutex_lock(&c->lock);
    c->permits = n == UINT64_MAX ? n : c->permits + n;
    (void)pthread_cond_broadcast(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
}

void test_await_gate(uint64_t begun)
{
    struct test_control *c = &test_control;
    (void)pthread_mutex_lock(&c->lock);
    while (c->begun < begun || !c->waiting) (void)pthread_cond_wait(&c->changed, &c->lock);
    (void)pthread_mutex_unlock(&c->lock);
}
