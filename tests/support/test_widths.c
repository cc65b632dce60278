/* test_widths.c: see test_widths.h. */
#include "test_widths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <worker/rope.h>

#include "device/kv_pages.h"
#include "model/generator.h"
#include "tape/tape.h"

enum { E = 32, H = 2, G = 1, D = 16, V = TEST_VOCAB };

/* ---- models -------------------------------------------------------------------------------------------- */

static const struct widths *recorded;
uint32_t recorded_flags;

static void record(const struct wk_builder *b, const void *model)
{
    (void)model;
    double freq[D / 2];
    wk_rope_frequencies(freq, D / 2, 100);
    const struct wk_rope_freqs rope = wk_rope_freqs_of(freq, D / 2, WK_ROPE_HALF, 1);
    struct wk_op_attention att = { .heads = H, .kv_heads = G, .scale = 0.5f };
    wk_value x = wk_embed(b, "token_embd", V, E);
    for (uint32_t l = 0; l < recorded->n; l++) {
        wk_layer(b, l);
        att.flags = recorded_flags;
        att.window = (uint32_t)recorded->of[l];
        att.chunk = (uint32_t)(recorded->of[l] >> 32);
        wk_value h = wk_rms_norm(b, x, "norm", 1e-5f);
        wk_value q = wk_linear(b, h, "q", H * D, 0), k = wk_linear(b, h, "k", G * D, 0),
                 v = wk_linear(b, h, "v", G * D, 0), y;
        if (recorded->of[l] == STATE)
            y = wk_scan(b, k, v, q, wk_scale(b, wk_unary(b, wk_slice(b, h, 0, H), WK_UNARY_SIGMOID, 0), -0.2f), H, G);
        else
            y = wk_attention(b, wk_rope(b, q, D, &rope), wk_rope(b, k, D, &rope), v, NULL, &att);
        x = wk_add(b, x, wk_linear(b, y, "o", E, 0));
    }
    wk_end_layers(b);
    wk_logits(b, wk_linear(b, wk_rms_norm(b, x, "output_norm", 1e-5f), "output", V, 0));
}

static wk_status open_nothing(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    (void)meta, (void)err;
    *model = NULL;
    return WK_OK;
}
static void close_nothing(void *model) { (void)model; }
static const char *const names[] = { "windows" };
static const struct wk_arch arch = { .struct_size = sizeof arch,
                                     .n_names = 1,
                                     .names = names,
                                     .open = open_nothing,
                                     .record = record,
                                     .close = close_nothing };

bool has_states(const struct widths *w)
{
    for (uint32_t l = 0; l < w->n; l++)
        if (w->of[l] == STATE) return true;
    return false;
}

static struct gguf_build *build(uint32_t layers)
{
    static const struct {
        const char *name;
        uint32_t rows, cols;
    } tensors[] = { { "norm", 1, E }, { "q", H * D, E }, { "k", G * D, E }, { "v", G * D, E }, { "o", E, H * D } };
    struct gguf_build *g = gguf_build_new("windows");
    char name[64];
    gguf_build_noise(g, 1, "token_embd.weight", V, E, 1);
    gguf_build_noise(g, 2, "output_norm.weight", 1, E, 1);
    gguf_build_noise(g, 3, "output.weight", V, E, 1);
    for (uint32_t l = 0; l < layers; l++)
        for (uint32_t i = 0; i < 5; i++) {
            (void)snprintf(name, sizeof name, "blk.%u.%s.weight", l, tensors[i].name);
            gguf_build_noise(g, 10 + 5 * l + i, name, tensors[i].rows, tensors[i].cols,
                             tensors[i].rows == 1 ? 1 : 0.6f);
        }
    return g;
}

static const struct wk_type_cpu *find_type(void *user, uint32_t type) { return plugin_find_type(user, type, NULL); }
static void describe_types(void *user, char *text, size_t cap)
{
    (void)plugin_describe(user, WK_KIND_QUANT, text, cap);
}

struct test_model open_model(const struct widths *w, const struct device_ops *device, struct device_options dev)
{
    struct test_model t = { .m = calloc(1, sizeof *t.m), .file = build(w->n) };
    assert_non_null(t.m);
    dev.threads = 1;
    dev.isa = WK_ISA_AVX512;
    dev.context = TEST_CONTEXT;
    dev.hand_over = true;
    dev.max_sequences = dev.max_sequences ? dev.max_sequences : 8;
    dev.max_rows = dev.max_logits_rows = dev.max_rows ? dev.max_rows : 64;
    const struct tape_options o = { .context = TEST_CONTEXT,
                                    .fuse = FUSE_ALL,
                                    .find_type = find_type,
                                    .describe_types = describe_types,
                                    .user = (void *)(uintptr_t)test_plugins() };
    recorded = w;
    *t.m = (struct model){
        .file = gguf_build_open(t.file), .plugins = test_plugins(), .device = device, .dev = dev, .name = "windows"
    };
    ok(tape_record(&arch, t.m->file, &o, &t.m->program, &test_err));
    ok(device->plan(t.m->program, &t.m->dev, &t.m->plan, &test_err));
    ok(model_load(t.m, &test_err));
    return t;
}

/* ---- jobs ---------------------------------------------------------------------------------------------- */

struct test_job make(uint32_t i)
{
    static const uint32_t lengths[] = { 230, 1, 64, 65, 32, 150, 33, 97, 300, 129 };
    struct test_job t = { .n = lengths[i % 10], .most = i % 4 == 3 ? 90 : 3 + i * 11 % 30 };
    t.params = (struct sampler_params){
        .temperature = i % 3 ? 1.1f : 0.0f, .top_p = 1, .repetition_penalty = i % 4 == 1 ? 1.2f : 1.0f, .seed = i + 1
    };
    for (uint32_t k = 0; k < t.n; k++)
        t.tokens[k] = (k * 7 + k * k % 13 + i % 2 * 3 + (k >= 40 + i * 29 % 200 ? i : 0)) % V;
    return t;
}

/* One step of one sequence whose pages lie one after the other; the id, if the last row is sampled. States lie in pages
 * 0 and 1 in turn, and blocks between have none. */
static uint32_t step_alone(struct model *m, const uint32_t *tokens, uint32_t position, uint32_t n, enum row_role role)
{
    static uint32_t state;
    uint32_t pages[TEST_CONTEXT / KV_PAGE + 1], states[TEST_CONTEXT / KV_PAGE + 1], id, logits_row = n - 1;
    const uint32_t *tables[TAPE_MAX_GROUPS], last = (position + n - 1) / KV_PAGE;
    for (uint32_t i = 0; i < TEST_CONTEXT / KV_PAGE + 1; i++) pages[i] = i;
    memset(states, 0xff, sizeof states);
    if (position) states[(position - 1) / KV_PAGE] = state;
    if (states[last] == KV_NO_PAGE) states[last] = state = !state;
    for (uint32_t g = 0; g < m->program->n_groups; g++) tables[g] = m->program->groups[g].state ? states : pages;
    struct step_seq seq = { .n_rows = n, .position = position, .role = role, .pages = tables };
    bool failed;
    ok(m->device->submit(
        m->executor,
        &(struct step){
            .n_rows = n, .n_seqs = 1, .n_logits_rows = 1, .tokens = tokens, .seqs = &seq, .logits_rows = &logits_row },
        &test_err));
    ok(m->device->collect(m->executor, &(struct step_ids){ .ids = &id, .failed = &failed }, &test_err));
    assert_false(failed);
    return id;
}

void answer(struct model *m, const struct test_job *t, struct test_answer *out)
{
    const uint32_t last = TOKEN_LAST;
    out->end = JOB_LENGTH;
    ok(m->device->sampler_set(m->executor, 0, &t->params, NULL, 0, &test_err));
    out->ids[0] = step_alone(m, t->tokens, 0, t->n, t->n <= GENERATOR_FEW ? ROW_GENERATED : ROW_PROMPT);
    for (out->n = 1; out->n < t->most && t->n + out->n < TEST_CONTEXT; out->n++)
        out->ids[out->n] = step_alone(m, &last, t->n + out->n - 1, 1, ROW_GENERATED);
}

struct test_answer answers[KINDS];

void answer_all(const struct widths *w)
{
    struct test_model t =
        open_model(w, device_cpu(), (struct device_options){ .max_sequences = 1, .max_rows = TEST_CONTEXT });
    for (uint32_t g = 0; g < t.m->program->n_groups; g++)
        assert_int_equal(t.m->plan.kv_pages[g],
                         t.m->program->groups[g].state ? 3 : (TEST_CONTEXT + KV_PAGE - 1) / KV_PAGE);
    for (uint32_t i = 0; i < KINDS; i++) {
        const struct test_job job = make(i);
        answer(t.m, &job, &answers[i]);
    }
    test_unload(&t);
}

/* ---- the accounts -------------------------------------------------------------------------------------- */

struct engine_lease *test_leases[MOST_TEST_LEASES];
uint32_t n_test_leases;

struct accounts {
    uint8_t *seen;
    uint32_t *users, *holders, kept;
};

static void see(struct accounts *a, uint32_t page, uint32_t n, const char *whose)
{
    if (page >= n || a->seen[page]++) fail_msg("page %u of %u is %s, and something else", page, n, whose);
}

static void account_nodes(const struct engine *e, uint32_t g, struct accounts *a)
{
    const struct prefix *p = &e->prefix;
    for (uint32_t i = 0; p->cap && i < p->n_buckets; i++)
        for (uint32_t node = p->buckets[i]; node != ENGINE_NONE; node = p->nodes[node].next) {
            const uint32_t page = prefix_pages(p, node)[g];
            assert_true(page != ENGINE_NONE || kv_bounded(e->pool[g].span));
            if (page == ENGINE_NONE) continue;
            a->kept++;
            see(a, page, e->pool[g].n, "kept");
        }
}

/* What a lease holds; what it uses besides are nodes of its job. */
static void account_lease(const struct engine *e, const struct engine_lease *l, uint32_t g, struct accounts *a)
{
    for (uint32_t b = 0; b < l->n_held; b++) a->holders[l->nodes[b]]++;
    for (uint32_t b = l->first[g]; kv_bounded(e->pool[g].span) && b < l->used[g] && b < l->n_held; b++)
        a->users[l->nodes[b]]++;
}

/* Returns what the job was promised. */
static uint32_t account_job(const struct engine *e, const struct job *j, uint32_t g, struct accounts *a)
{
    const struct job_pages *q = &j->pages[g];
    const uint32_t all = pages_needed(&e->pool[g], job_positions(j)), need = all < e->pool[g].n ? all : e->pool[g].n,
                   held = q->end - q->first;
    assert_int_equal(q->first, kv_first(e->pool[g].span, j->submitted) / KV_PAGE);
    if (kv_bounded(e->pool[g].span)) assert_int_equal(q->end, kv_pages_of(j->submitted));
    if (held + q->promise < need || (q->promise && held + q->promise > need))
        fail_msg("a job holds %u pages and was promised %u: expected %u", held, q->promise, need);
    assert_true(j->n_committed == j->n_nodes && j->submitted == j->computed);
    for (uint32_t b = 0; b < j->n_nodes; b++) a->holders[j->nodes[b]]++;
    for (uint32_t b = q->first; b < q->end; b++) {
        if (b < j->n_nodes && prefix_pages(&e->prefix, j->nodes[b])[g] == q->table[b])
            a->users[j->nodes[b]]++;
        else
            see(a, q->table[b], e->pool[g].n, "a job's");
    }
    return q->promise;
}

void take_accounts(void *user)
{
    const struct engine *e = user;
    const struct prefix *p = &e->prefix;
    for (uint32_t g = 0; g < e->n_groups; g++) {
        const struct page_pool *pool = &e->pool[g];
        struct accounts a = { calloc(pool->n, 1), calloc(p->cap + 1, sizeof *a.users),
                              calloc(p->cap + 1, sizeof *a.holders), 0 };
        uint32_t promised = 0, used = 0, held = 0;
        assert_true(a.seen && a.users && a.holders);
        for (uint32_t i = 0; i < pool->n_free; i++) see(&a, pool->free[i], pool->n, "free");
        account_nodes(e, g, &a);
        for (uint32_t i = 0; i < e->n_running + e->n_waiting; i++) {
            const struct job *j = i < e->n_running ? e->running[i] : e->waiting[i - e->n_running];
            if (j->has_pages) promised += account_job(e, j, g, &a);
            const struct engine_lease *l = j->lease;
            const uint32_t from = l && l->n_held > l->first[g] ? l->n_held : l ? l->first[g] : 0;
            for (uint32_t b = from; l && kv_bounded(pool->span) && b < l->used[g]; b++) a.users[j->nodes[b]]++;
        }
        for (uint32_t i = 0; i < n_test_leases; i++)
            if (test_leases[i]->engine == e) account_lease(e, test_leases[i], g, &a);
        for (uint32_t i = 0; i < pool->n; i++)
            if (!a.seen[i]) fail_msg("group %u: page %u is lost", g, i);
        for (uint32_t i = 0; i < p->cap; i++) {
            assert_int_equal(p->held.link[i].users, a.holders[i]);
            held += a.holders[i] > 0;
            used += a.users[i] > 0;
            if (!kv_bounded(pool->span)) continue;
            assert_int_equal(p->group[g].used.link[i].users, a.users[i]);
            promised += a.users[i] ? a.users[i] - 1 : 0;
        }
        assert_int_equal(pool->promised, promised);
        if (p->cap) assert_int_equal(prefix_evictable(p, g), a.kept - (kv_bounded(pool->span) ? used : held));
        assert_true(pool->n_free + prefix_evictable(p, g) >= promised);
        free(a.seen);
        free(a.users);
        free(a.holders);
    }
}
