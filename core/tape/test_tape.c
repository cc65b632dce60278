/* test_tape.c: what recording, demand, fusion and planning make of whole models. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "test_models.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <cmocka.h>

static const struct tape_launch *launch_of(const struct tape_program *p, const char *value)
{
    uint32_t v = tape_find_value(p, value);
    if (v == TAPE_NONE) fail_msg("no value %s", value);
    return &p->launches[p->ops[p->values[v].op].launch];
}
static const struct tape_value *value_of(const struct tape_program *p, const char *name)
{
    uint32_t v = tape_find_value(p, name);
    if (v == TAPE_NONE) fail_msg("no value %s", name);
    return &p->values[v];
}
static const struct test_model *model(const char *name)
{
    for (uint32_t i = 0; i < n_test_models; i++)
        if (strcmp(test_models[i].name, name) == 0) return &test_models[i];
    fail_msg("no model %s", name);
    return NULL;
}

struct opened {
    struct gguf_build *build;
    struct gguf *file;
    struct tape_program *p;
};
static struct opened record_model(const char *name, const struct tape_options *o)
{
    const struct test_model *m = model(name);
    struct opened r = { .build = m->file() };
    r.file = gguf_build_open(r.build);
    r.p = test_record(m->arch, r.file, o);
    test_check_program(r.p);
    return r;
}
static void close_model(struct opened *r)
{
    tape_free(r->p);
    gguf_close(r->file);
    gguf_build_free(r->build);
}

/* ---- two at once ----------------------------------------------------------------------------------------------- */

static struct {
    wk_status (*open)(const struct wk_meta *meta, void **model, const struct wk_err *err);
    void (*close)(void *model);
    atomic_int started, inside, most;
} calls;

/* Waits for the other thread to be on its way, and then some: were it let in, it would be seen. */
static wk_status slow_open(const struct wk_meta *meta, void **model, const struct wk_err *err)
{
    const int inside = atomic_fetch_add(&calls.inside, 1) + 1;
    if (inside > atomic_load(&calls.most)) atomic_store(&calls.most, inside);
    while (atomic_load(&calls.started) < 2) (void)sched_yield();
    (void)nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    return calls.open(meta, model, err);
}
static void slow_close(void *model)
{
    (void)atomic_fetch_sub(&calls.inside, 1);
    calls.close(model);
}
static void *record_one(void *arch)
{
    const struct tape_options o = test_options();
    struct gguf_build *build = test_models[0].file();
    struct gguf *file = gguf_build_open(build);
    (void)atomic_fetch_add(&calls.started, 1);
    tape_free(test_record(arch, file, &o));
    gguf_close(file);
    gguf_build_free(build);
    return NULL;
}

/* A plugin's open, record and close are never run by two threads at one time. */
static void recordings_are_serialised(void **state)
{
    (void)state;
    struct wk_arch arch = *test_models[0].arch;
    calls.open = arch.open;
    calls.close = arch.close;
    arch.open = slow_open;
    arch.close = slow_close;
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&thread[i], NULL, record_one, &arch), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(calls.most, 1);
    assert_int_equal(calls.inside, 0);
}

static void launches_a_layer(void **state)
{
    (void)state;
    const struct tape_options o = test_options();
    for (uint32_t i = 0; i < n_test_models; i++) {
        struct opened r = record_model(test_models[i].name, &o);
        for (uint32_t l = 0; l < T_L; l++)
            assert_int_equal(test_launches_of_layer(r.p, l), test_models[i].launches_a_layer);
        assert_int_equal(test_launches_of_layer(r.p, TAPE_NONE), 2); /* embed and head */
        for (uint32_t k = 0; k < r.p->n_launches; k++) assert_string_equal(r.p->launches[k].alone, "");
        uint32_t all_rows = 0;
        for (uint32_t k = 0; k < r.p->n_buffers; k++) all_rows += r.p->buffers[k].rows == ROWS_ALL;
        assert_true(all_rows <= 5 && r.p->n_buffers - all_rows <= 5);
        close_model(&r);
    }
}

/* gpt-oss has everything: what stands in the launches of a layer? */
static void launches_hold_their_parts(void **state)
{
    (void)state;
    const struct tape_options o = test_options();
    struct opened r = record_model("gpt-oss", &o);
    const struct tape_program *p = r.p;

    const struct tape_launch *qkv = launch_of(p, "blk.1.attn_q");
    assert_int_equal(qkv->kind, LAUNCH_PRODUCT);
    assert_int_equal(qkv->n_seg, 3);
    assert_int_equal(p->ops[qkv->norm].out, tape_find_value(p, "blk.1.attn_norm"));
    assert_int_equal(qkv->x, p->ops[qkv->norm].in[0]);
    assert_true(qkv->out == TAPE_NONE && qkv->seg[1].out == tape_find_value(p, "blk.1.attn_k") &&
                qkv->seg[1].bias != TAPE_NONE);

    const struct tape_launch *attend = launch_of(p, "blk.1.attention");
    assert_int_equal(attend->kind, LAUNCH_ATTEND);
    assert_true(attend->q == tape_find_value(p, "blk.1.attn_q") && attend->k_rope != TAPE_NONE &&
                attend->q_norm == TAPE_NONE);

    const struct tape_launch *o_proj = launch_of(p, "blk.1.attn_output");
    assert_int_equal(o_proj->residual, tape_find_value(p, "blk.0.add2"));
    assert_true(o_proj->out == tape_find_value(p, "blk.1.add1") && o_proj->seg[0].out == TAPE_NONE);

    const struct tape_launch *route = launch_of(p, "blk.1.route");
    assert_int_equal(route->kind, LAUNCH_ROUTE);
    assert_true(route->norm != TAPE_NONE && route->n_seg == 1);

    const struct tape_launch *up = launch_of(p, "blk.1.ffn_up_exps");
    assert_true(up->n_seg == 2 && up->glu != TAPE_NONE && up->norm == route->norm && up->route == route->out);
    assert_int_equal(up->seg[0].op, p->values[p->ops[up->glu].in[0]].op);

    const struct tape_launch *down = launch_of(p, "blk.1.ffn_down_exps"), *combine = launch_of(p, "blk.1.combine");
    assert_true(down->n_seg == 1 && down->seg[0].out == combine->x && combine->kind == LAUNCH_COMBINE);
    assert_int_equal(combine->out, tape_find_value(p, "blk.1.add2"));

    const struct tape_launch *head = &p->launches[p->n_launches - 1];
    assert_true(head->logits && head->kind == LAUNCH_PRODUCT && head->rows == ROWS_LOGITS);
    assert_string_equal(p->values[head->out].name, "logits");
    close_model(&r);
}

static void softcapped_logits_are_one_product(void **state)
{
    (void)state;
    const struct tape_options o = test_options();
    struct opened r = record_model("gemma2", &o);
    const struct tape_launch *head = &r.p->launches[r.p->n_launches - 1];
    assert_true(head->logits && head->n_map == 1 && head->norm != TAPE_NONE);
    assert_int_equal(launch_of(r.p, "blk.0.post_ffw_norm")->kind, LAUNCH_NORM_ADD);
    assert_int_equal(r.p->launches[0].kind, LAUNCH_EMBED);
    assert_int_equal(r.p->launches[0].n_ops, 2);
    close_model(&r);
}

static void order_of_recording_does_not_matter(void **state)
{
    (void)state;
    const struct tape_options o = test_options();
    struct opened r = record_model("mixtral", &o); /* records v before k before q, and x on the right of sums */
    const struct tape_op *add = &r.p->ops[value_of(r.p, "blk.1.add1")->op];
    assert_true(add->in[0] < add->in[1]);
    const struct tape_launch *attend = launch_of(r.p, "blk.2.attention");
    assert_true(attend->q_norm != TAPE_NONE && attend->k_norm != TAPE_NONE && attend->v_norm == TAPE_NONE &&
                attend->q_rope != TAPE_NONE);
    const struct tape_launch *up = launch_of(r.p, "blk.1.glu");
    assert_int_equal(up->seg[0].out, TAPE_NONE);
    assert_int_equal(r.p->ops[up->seg[0].op].out, r.p->ops[up->glu].in[0]); /* gate first, though recorded second */
    close_model(&r);

    r = record_model("gpt2", &o);
    const struct tape_launch *qkv = launch_of(r.p, "blk.0.attn_qkv.2");
    for (uint32_t s = 0; s < 3; s++)
        assert_int_equal(qkv->seg[s].first, s * T_E); /* ranges of one tensor as neighbours */
    close_model(&r);
}

static void tail_of_the_last_layer_is_for_logits_rows(void **state)
{
    (void)state;
    const struct tape_options o = test_options();
    struct opened r = record_model("gpt2", &o);
    assert_int_equal(value_of(r.p, "blk.1.add2")->rows, ROWS_ALL);
    assert_int_equal(value_of(r.p, "blk.2.attn_qkv.2")->rows, ROWS_ALL);
    assert_int_equal(value_of(r.p, "blk.2.attention")->rows, ROWS_LOGITS);
    assert_int_equal(value_of(r.p, "blk.2.add2")->rows, ROWS_LOGITS);
    assert_int_equal(value_of(r.p, "logits")->rows, ROWS_LOGITS);
    close_model(&r);
}

static void taps_keep_values(void **state)
{
    (void)state;
    static const char *const names[] = { "blk.2.attn_output", "blk.0.attn_norm", "blk.1.attention.scores",
                                         "blk.1.attn_q.rope" };
    struct tape_options o = test_options();
    o.taps = names;
    o.n_taps = 4;
    struct opened r = record_model("gpt-oss", &o);
    const struct tape_value *v = value_of(r.p, "blk.2.attn_output");
    assert_true(v->tapped && v->rows == ROWS_ALL && v->buffer != TAPE_NONE && v->n_readers == 2);
    assert_int_equal(launch_of(r.p, "blk.2.add1")->kind, LAUNCH_ALONE);
    assert_string_equal(launch_of(r.p, "blk.2.add1")->alone, "blk.2.attn_output is tapped");
    assert_int_equal(value_of(r.p, "blk.2.attention")->rows, ROWS_ALL); /* what a tap needs is needed for all rows */
    assert_int_equal(value_of(r.p, "blk.2.add1")->rows, ROWS_LOGITS);
    assert_string_equal(launch_of(r.p, "blk.0.attn_norm")->alone, "blk.0.attn_norm is tapped");
    assert_true(r.p->ops[value_of(r.p, "blk.1.attention")->op].u.attn.tap_scores);
    assert_int_equal(launch_of(r.p, "blk.1.attn_q.rope")->kind, LAUNCH_ALONE);
    assert_int_equal(launch_of(r.p, "blk.1.attention")->q, tape_find_value(r.p, "blk.1.attn_q.rope"));
    close_model(&r);

    static const char *const all[] = { "*" };
    o.taps = all;
    o.n_taps = 1;
    r = record_model("gemma2", &o);
    for (uint32_t i = 0; i < r.p->n_values; i++)
        assert_true(r.p->values[i].tapped && r.p->values[i].buffer != TAPE_NONE && r.p->values[i].rows == ROWS_ALL);
    assert_int_equal(r.p->launches[r.p->n_launches - 1].kind, LAUNCH_OUTPUT);
    close_model(&r);
}

/* A route's ids are shown for all rows, beside its weights or without them. */
static void taps_of_ids(void **state)
{
    (void)state;
    static const char *const names[] = { "blk.2.route.ids" };
    struct tape_options o = test_options();
    o.taps = names;
    o.n_taps = 1;
    struct opened r = record_model("mixtral", &o);
    const struct tape_value *v = value_of(r.p, "blk.2.route");
    assert_true(r.p->ops[v->op].u.route.tap_ids && !v->tapped && v->rows == ROWS_ALL);
    assert_true(tape_launch_tapped(r.p, launch_of(r.p, "blk.2.route")));
    assert_false(tape_launch_tapped(r.p, launch_of(r.p, "blk.1.route")));
    close_model(&r);
}

static void unknown_tap_is_refused(void **state)
{
    (void)state;
    static const char *const names[] = { "blk.9.attention" };
    struct tape_options o = test_options();
    o.taps = names;
    o.n_taps = 1;
    struct gguf_build *g = model("gpt2")->file();
    struct gguf *file = gguf_build_open(g);
    char text[400];
    const struct wk_err err = { text, sizeof text };
    struct tape_program *p;
    assert_int_equal(tape_record(model("gpt2")->arch, file, &o, &p, &err), WK_INVALID);
    assert_null(p);
    assert_non_null(strstr(text, "tap blk.9.attention: no value has this name"));
    gguf_close(file);
    gguf_build_free(g);
}

static void each_fusion_off(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_test_models; i++) {
        struct tape_options o = test_options();
        struct opened all = record_model(test_models[i].name, &o);
        char digest[65], other[65];
        tape_digest(all.p, digest);
        assert_int_equal(strlen(digest), 64);
        for (uint32_t bit = 1; bit <= FUSE_ALL + 1u; bit <<= 1) {
            o.fuse = bit > FUSE_ALL ? 0 : FUSE_ALL & ~bit;
            struct opened r = record_model(test_models[i].name, &o);
            assert_true(r.p->n_launches >= all.p->n_launches);
            if (!o.fuse) assert_true(r.p->n_launches + 1 >= r.p->n_ops); /* one each, apart from nothing at all */
            tape_digest(r.p, other);
            assert_string_equal(digest, other); /* fusion is no part of what a model computes */
            close_model(&r);
        }
        close_model(&all);
    }
}

static void a_fusion_that_is_off_changes_launches(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        uint32_t bit, more;
    } rows[] = {
        /* launches more in all of T_L layers and outside */
        { "gpt2", FUSE_EMBED, 2 },        { "gpt2", FUSE_NORM, 2 * T_L + 1 },   { "gpt2", FUSE_SIBLINGS, 2 * T_L },
        { "gemma2", FUSE_GLU, T_L },      { "gpt-oss", FUSE_ATTEND, 2 * T_L },  { "gpt-oss", FUSE_ROUTE, T_L },
        { "gpt-oss", FUSE_COMBINE, T_L }, { "gemma2", FUSE_NORM_ADD, 2 * T_L }, { "gpt2", FUSE_EPILOGUE, 3 * T_L + 1 }
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tape_options o = test_options();
        struct opened all = record_model(rows[i].model, &o);
        o.fuse &= ~rows[i].bit;
        struct opened less = record_model(rows[i].model, &o);
        assert_int_equal(less.p->n_launches - all.p->n_launches, rows[i].more);
        close_model(&less);
        close_model(&all);
    }
}

static void windows_make_groups(void **state)
{
    (void)state;
    struct tape_options o = test_options();
    o.context = 4096;
    struct opened r = record_model("gpt-oss", &o);
    assert_int_equal(r.p->context, 4096);
    assert_int_equal(r.p->n_groups, 2);
    assert_int_equal(r.p->groups[0].window, 40);
    assert_int_equal(r.p->groups[0].n_layers, 2);
    assert_int_equal(r.p->groups[1].window, 0);
    assert_int_equal(r.p->groups[1].n_layers, T_L - 2);
    assert_int_equal(r.p->n_kv_layers, T_L);
    assert_int_equal(r.p->kv_layers[1].group, 1);
    assert_true(r.p->kv_layers[2].kv_heads == T_G && r.p->kv_layers[2].head_k == T_D &&
                r.p->kv_layers[2].head_v == T_D);
    close_model(&r);
}

static void equal_ropes_share_a_table(void **state)
{
    (void)state;
    const struct tape_options o = test_options();
    struct opened r = record_model("gemma2", &o);
    const double *freq = r.p->ops[value_of(r.p, "blk.0.attn_q.rope")->op].u.rope.freq;
    assert_ptr_equal(freq, r.p->ops[value_of(r.p, "blk.2.attn_k.rope")->op].u.rope.freq);
    assert_true(freq[0] > 0.999 && freq[0] < 1.001);
    close_model(&r);
}

static void roles_follow_data(void **state)
{
    (void)state;
    static const struct {
        const char *model, *tensor;
        enum tape_role role;
    } rows[] = { { "gpt-oss", "token_embd.weight", ROLE_EMBED },
                 { "gpt-oss", "output.weight", ROLE_HEAD },
                 { "gpt-oss", "blk.0.attn_q.weight", ROLE_Q },
                 { "gpt-oss", "blk.0.attn_k.weight", ROLE_K },
                 { "gpt-oss", "blk.0.attn_v.weight", ROLE_V },
                 { "gpt-oss", "blk.0.attn_output.weight", ROLE_O },
                 { "gpt-oss", "blk.0.ffn_gate_inp.weight", ROLE_ROUTER },
                 { "gpt-oss", "blk.0.ffn_up_exps.weight", ROLE_EXPERT },
                 { "gpt-oss", "blk.0.attn_sinks.weight", ROLE_SINKS },
                 { "gpt-oss", "blk.0.attn_q.bias", ROLE_BIAS },
                 { "gemma2", "blk.0.ffn_gate.weight", ROLE_GATE },
                 { "gemma2", "blk.0.ffn_up.weight", ROLE_UP },
                 { "gemma2", "blk.0.ffn_down.weight", ROLE_DOWN },
                 { "gpt2", "blk.0.ffn_up.weight", ROLE_UP },
                 { "gpt2", "blk.0.ffn_down.weight", ROLE_DOWN },
                 { "gpt2", "blk.1.attn_norm.weight", ROLE_NORM },
                 { "mixtral", "blk.1.attn_q.weight", ROLE_Q } };
    const struct tape_options o = test_options();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct opened r = record_model(rows[i].model, &o);
        bool found = false;
        for (uint32_t t = 0; t < r.p->n_tensors; t++) {
            if (strcmp(r.p->tensors[t].name, rows[i].tensor) != 0) continue;
            found = true;
            assert_string_equal(tape_role_name(r.p->tensors[t].role), tape_role_name(rows[i].role));
        }
        assert_true(found);
        close_model(&r);
    }
}

static void capabilities(void **state)
{
    (void)state;
    static const struct {
        const char *model, *positional, *attention;
    } rows[] = { { "gpt2", "learned", "mha" },
                 { "gpt-oss", "rope_neox", "gqa swa sinks" },
                 { "gemma2", "rope_neox", "gqa swa" },
                 { "mixtral", "rope_neox", "gqa" } };
    const struct tape_options o = test_options();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct opened r = record_model(rows[i].model, &o);
        struct tape_capabilities c;
        tape_describe(r.p, &c);
        assert_string_equal(c.positional, rows[i].positional);
        assert_string_equal(c.attention, rows[i].attention);
        assert_true(c.context_max == T_C && c.n_vocab == T_V && c.n_types == 1 && c.types[0] == 0);
        uint64_t bytes = 0;
        for (uint32_t t = 0; t < r.p->n_tensors; t++)
            bytes += (uint64_t)r.p->tensors[t].rows * r.p->tensors[t].cols * r.p->tensors[t].slabs * 4;
        assert_int_equal(c.type_bytes[0], bytes);
        close_model(&r);
    }
}

static void print_says_all(void **state)
{
    (void)state;
    const struct tape_options o = test_options();
    for (uint32_t i = 0; i < n_test_models; i++) {
        struct opened r = record_model(test_models[i].name, &o);
        char *text = NULL, line[64];
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        assert_non_null(out);
        tape_print(r.p, out);
        (void)fclose(out);
        (void)snprintf(line, sizeof line, "launches a layer: %u %u %u, outside: 2\n", test_models[i].launches_a_layer,
                       test_models[i].launches_a_layer, test_models[i].launches_a_layer);
        assert_non_null(strstr(text, line));
        for (uint32_t v = 0; v < r.p->n_values; v++) assert_non_null(strstr(text, r.p->values[v].name));
        free(text);
        close_model(&r);
    }
}

static void digests_differ_with_the_numbers(void **state)
{
    (void)state;
    struct tape_options o = test_options();
    char digests[8][65];
    for (uint32_t i = 0; i < n_test_models; i++) {
        struct opened r = record_model(test_models[i].name, &o);
        tape_digest(r.p, digests[i]);
        for (uint32_t k = 0; k < i; k++) assert_string_not_equal(digests[i], digests[k]);
        struct tape_op *norm = &r.p->ops[r.p->values[tape_find_value(r.p, "blk.1.attn_norm")].op];
        char other[65];
        norm->u.norm.eps *= 2;
        tape_digest(r.p, other);
        assert_string_not_equal(digests[i], other);
        close_model(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(recordings_are_serialised),
        cmocka_unit_test(launches_a_layer),
        cmocka_unit_test(launches_hold_their_parts),
        cmocka_unit_test(softcapped_logits_are_one_product),
        cmocka_unit_test(order_of_recording_does_not_matter),
        cmocka_unit_test(tail_of_the_last_layer_is_for_logits_rows),
        cmocka_unit_test(taps_keep_values),
        cmocka_unit_test(taps_of_ids),
        cmocka_unit_test(unknown_tap_is_refused),
        cmocka_unit_test(each_fusion_off),
        cmocka_unit_test(a_fusion_that_is_off_changes_launches),
        cmocka_unit_test(windows_make_groups),
        cmocka_unit_test(equal_ropes_share_a_table),
        cmocka_unit_test(roles_follow_data),
        cmocka_unit_test(capabilities),
        cmocka_unit_test(print_says_all),
        cmocka_unit_test(digests_differ_with_the_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
