/* test_adapter.c: LoRA adapters: what a file of one is refused for, and what opening a model with some makes of it.
 * What they compute is compared by tests/test_golden.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gguf_build.h"
#include "model/model.h"
#include "model/session.h"

#include <cmocka.h>

enum { E = 64, F = 96, V = 50, H = 4, X = 3, RANK = 4, CONTEXT = 64 };

static struct plugin_registry *registry;
static char text[4096], folder[] = "/tmp/worker-adapter-XXXXXX";
static const struct wk_err err = { text, sizeof text };

/* ---- a model, an adapter of it ------------------------------------------------------------------------- */

static void put_layer(struct gguf_build *g)
{
    static const struct {
        const char *name;
        uint32_t rows, cols;
    } tensors[] = {
        { "blk.0.attn_norm.weight", 1, E },    { "blk.0.attn_q.weight", E, E },      { "blk.0.attn_k.weight", E, E },
        { "blk.0.attn_v.weight", E, E },       { "blk.0.attn_output.weight", E, E }, { "blk.0.ffn_norm.weight", 1, E },
        { "blk.0.ffn_gate_inp.weight", X, E },
    };
    for (uint32_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        gguf_build_noise(g, 20 + i, tensors[i].name, tensors[i].rows, tensors[i].cols, tensors[i].rows == 1 ? 1 : 0.2f);
}

/* Of one layer with experts; the head is the table of tokens. apart: one tensor an expert, as older files have it. */
static struct gguf_build *model_file(bool apart)
{
    struct gguf_build *g = gguf_build_new("llama");
    char name[64];
    gguf_build_u32(g, "llama.context_length", CONTEXT);
    gguf_build_u32(g, "llama.embedding_length", E);
    gguf_build_u32(g, "llama.block_count", 1);
    gguf_build_u32(g, "llama.feed_forward_length", F);
    gguf_build_u32(g, "llama.attention.head_count", H);
    gguf_build_u32(g, "llama.expert_count", X);
    gguf_build_u32(g, "llama.expert_used_count", 2);
    gguf_build_f32(g, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_build_noise(g, 1, "token_embd.weight", V, E, 0.5f);
    gguf_build_noise(g, 2, "output_norm.weight", 1, E, 1);
    put_layer(g);
    static const char *const experts[] = { "gate", "up", "down" };
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t rows = i == 2 ? E : F, cols = i == 2 ? F : E;
        (void)snprintf(name, sizeof name, "blk.0.ffn_%s_exps.weight", experts[i]);
        if (!apart) gguf_build_floats(g, name, rows, cols, X, NULL);
        for (uint32_t e = 0; apart && e < X; e++) {
            (void)snprintf(name, sizeof name, "blk.0.ffn_%s.%u.weight", experts[i], e);
            gguf_build_noise(g, 40 + 3 * i + e, name, rows, cols, 0.2f);
        }
    }
    return g;
}

static void put_pair(struct gguf_build *g, const char *name, uint32_t rows, uint32_t cols, uint32_t rank)
{
    char half[96];
    (void)snprintf(half, sizeof half, "%s.lora_a", name);
    gguf_build_noise(g, (uint32_t)name[11], half, rank, cols, 0.3f); /* 11: "q" of blk.0.attn_q */
    (void)snprintf(half, sizeof half, "%s.lora_b", name);
    gguf_build_noise(g, 200u + (uint32_t)name[11], half, rows, rank, 0.3f);
}

static struct gguf_build *adapter_file(void)
{
    struct gguf_build *g = gguf_build_new("llama");
    gguf_build_str(g, "general.type", "adapter");
    gguf_build_str(g, "adapter.type", "lora");
    gguf_build_f32(g, "adapter.lora.alpha", 8);
    put_pair(g, "blk.0.attn_q.weight", E, E, RANK);
    return g;
}

/* The file's path, until the next call. */
static const char *save(struct gguf_build *g, const char *name)
{
    static char path[2][256];
    static uint32_t turn;
    char *out = path[turn++ % 2];
    size_t size;
    const void *bytes = gguf_build_bytes(g, &size);
    (void)snprintf(out, sizeof path[0], "%s/%s", folder, name);
    FILE *f = fopen(out, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    gguf_build_free(g);
    return out;
}

/* Plans a model with adapters; m NULL: it was refused, and text says why. */
static wk_status plan_with(struct gguf_build *base, const struct adapter_source *adapters, uint32_t n, struct model **m)
{
    const struct model_options o = { .device = device_cpu(),
                                     .fuse = FUSE_ALL,
                                     .dev = { .threads = 1, .max_rows = 16 },
                                     .adapters = adapters,
                                     .n_adapters = n };
    text[0] = '\0';
    return model_plan(gguf_build_open(base), registry, &o, m, &err);
}

static void refused(struct gguf_build *base, struct gguf_build *adapter, wk_status status, const char *words)
{
    const char *path = save(adapter, "bad.gguf");
    struct model *m = NULL;
    for (int scaled = 0; scaled < 2; scaled++) { /* of scale 0, too: it is checked all the same */
        const struct adapter_source one = { path, scaled };
        const wk_status got = plan_with(base, &one, 1, &m);
        if (got != status || m || !strstr(text, words) || !strstr(text, path))
            fail_msg("status %d, expected %d and \"%s\": %s", got, status, words, text);
    }
}

/* ---- refusals ------------------------------------------------------------------------------------------ */

static void bad_metadata(void **state)
{
    (void)state;
    static const float two[2] = { 8, 8 };
    static const uint32_t tokens[2] = { 5, 6 };
    struct gguf_build *base = model_file(false), *g = adapter_file();
    gguf_build_drop(g, "general.type");
    refused(base, g, WK_INVALID, "general.type is not there");
    gguf_build_str(g = adapter_file(), "general.type", "model");
    refused(base, g, WK_INVALID, "general.type is \"model\", expected \"adapter\"");
    gguf_build_str(g = adapter_file(), "adapter.type", "control_vector");
    refused(base, g, WK_INVALID, "adapter.type is \"control_vector\"");
    gguf_build_drop(g = adapter_file(), "adapter.lora.alpha");
    refused(base, g, WK_INVALID, "adapter.lora.alpha is missing");
    gguf_build_f32(g = adapter_file(), "adapter.lora.alpha", (float)(1e30 * 1e30));
    refused(base, g, WK_INVALID, "expected a finite number");
    gguf_build_array(g = adapter_file(), "adapter.lora.alpha", GGUF_F32, 2, two);
    refused(base, g, WK_INVALID, "expected a finite number");
    gguf_build_str(g = adapter_file(), "adapter.lora.alpha", "8");
    refused(base, g, WK_INVALID, "expected a finite number");
    gguf_build_array(g = adapter_file(), "adapter.alora.invocation_tokens", GGUF_U32, 2, tokens);
    refused(base, g, WK_UNSUPPORTED, "aLoRA");
    gguf_build_u32(g = adapter_file(), "adapter.lora.use_dora", 1);
    refused(base, g, WK_UNSUPPORTED, "adapter.lora.use_dora: no such key");
    gguf_build_str(g = adapter_file(), "general.architecture", "qwen2");
    refused(base, g, WK_INVALID, "an adapter for qwen2, the model's architecture is llama");
    gguf_build_u32(g = adapter_file(), "general.architecture", 7);
    refused(base, g, WK_INVALID, "general.architecture");
    gguf_build_u32(g = adapter_file(), "adapter.lora.task_name", 7);
    refused(base, g, WK_INVALID, "adapter.lora.task_name");
    gguf_build_free(base);
}

static void bad_tensors(void **state)
{
    (void)state;
    struct gguf_build *base = model_file(false), *g = adapter_file();
    gguf_build_drop(g, "blk.0.attn_q.weight.lora_a");
    gguf_build_drop(g, "blk.0.attn_q.weight.lora_b");
    refused(base, g, WK_INVALID, "without tensors");
    gguf_build_drop(g = adapter_file(), "blk.0.attn_q.weight.lora_b");
    refused(base, g, WK_INVALID, "blk.0.attn_q.weight.lora_a is there, blk.0.attn_q.weight.lora_b is not");
    gguf_build_drop(g = adapter_file(), "blk.0.attn_q.weight.lora_a");
    refused(base, g, WK_INVALID, "blk.0.attn_q.weight.lora_a is not");
    gguf_build_noise(g = adapter_file(), 1, "blk.0.attn_norm.weight", 1, E, 1);
    refused(base, g, WK_UNSUPPORTED, "blk.0.attn_norm.weight: expected names that end in .lora_a or .lora_b");
    gguf_build_noise(g = adapter_file(), 1, ".lora_a", 1, E, 1);
    refused(base, g, WK_UNSUPPORTED, "expected names");
    put_pair(g = adapter_file(), "blk.1.attn_q.weight", E, E, RANK);
    refused(base, g, WK_INVALID, "blk.1.attn_q.weight: the model has no such tensor");
    put_pair(g = adapter_file(), "output.weight", V, E, RANK);
    refused(base, g, WK_INVALID, "output.weight: the model has no such tensor");
    put_pair(g = adapter_file(), "blk.0.attn_norm.weight", 1, E, RANK);
    refused(base, g, WK_UNSUPPORTED, "blk.0.attn_norm.weight: an adapter can change matrices and tables");
    put_pair(g = adapter_file(), "blk.0.attn_q.weight", E, E + 1, RANK);
    refused(base, g, WK_INVALID, "lora_a is 4 x 65 x 1 and lora_b 64 x 4 x 1, the model's matrix of 64 x 64 x 1");
    gguf_build_noise(g = adapter_file(), 1, "blk.0.attn_q.weight.lora_b", E, RANK + 1, 1);
    refused(base, g, WK_INVALID, "blk.0.attn_q.weight: the rank is 4 in lora_a and 5 in lora_b");
    put_pair(g = adapter_file(), "token_embd.weight", V, E, RANK);
    refused(base, g, WK_INVALID, "the model's table of 50 x 64 x 1 takes rows x rank and columns x rank");
    put_pair(g = adapter_file(), "blk.0.ffn_up_exps.weight", F, E, RANK);
    refused(base, g, WK_INVALID, "the model's matrix of 96 x 64 x 3");
    gguf_build_dims(g = adapter_file(), "blk.0.attn_q.weight.lora_b", 0, 4, (const uint64_t[]){ RANK, E, 1, 2 },
                    (size_t)2 * E * RANK * 4);
    refused(base, g, WK_INVALID, "four dimensions");
    gguf_build_free(base);
    base = model_file(true);
    put_pair(g = adapter_file(), "blk.0.ffn_up.0.weight", F, E, RANK);
    refused(base, g, WK_UNSUPPORTED, "blk.0.ffn_up.0.weight: an adapter can change matrices and tables");
    gguf_build_free(base);
}

static void bad_lists(void **state)
{
    (void)state;
    struct gguf_build *base = model_file(false);
    const char *path = save(adapter_file(), "one.gguf"), *other = save(adapter_file(), "two.gguf");
    struct adapter_source list[ADAPTERS_MAX + 1] = { { path, 1 }, { path, 0.5 } };
    struct model *m = NULL;
    assert_int_equal(plan_with(base, list, 2, &m), WK_INVALID);
    assert_non_null(strstr(text, "one.gguf: an adapter that is given twice"));
    assert_int_equal(unlink(other), 0);
    assert_int_equal(link(path, other), 0);
    list[1].path = other;
    assert_int_equal(plan_with(base, list, 2, &m), WK_INVALID);
    assert_non_null(strstr(text, "two.gguf: an adapter that is given twice"));
    assert_int_equal(unlink(other), 0);
    list[1] = (struct adapter_source){ "/nowhere/three.gguf", 1 };
    assert_int_not_equal(plan_with(base, list, 2, &m), WK_OK);
    assert_non_null(strstr(text, "/nowhere/three.gguf"));
    assert_int_equal(plan_with(base, list, ADAPTERS_MAX + 1, &m), WK_INVALID);
    assert_non_null(strstr(text, "at most 16"));
    list[0].scale = 1e308 * 10;
    assert_int_equal(plan_with(base, list, 1, &m), WK_INVALID);
    assert_non_null(strstr(text, "expected a finite number"));
    list[0].scale = 1e300;
    assert_int_equal(plan_with(base, list, 1, &m), WK_INVALID);
    assert_non_null(strstr(text, "make no finite factor"));
    gguf_build_free(base);
    /* An adapter is no model, and neither is an importance matrix. */
    base = adapter_file();
    assert_int_equal(plan_with(base, NULL, 0, &m), WK_INVALID);
    assert_non_null(strstr(text, "an adapter, not a model"));
    gguf_build_str(base, "general.type", "imatrix");
    assert_int_equal(plan_with(base, NULL, 0, &m), WK_INVALID);
    assert_non_null(strstr(text, "an importance matrix, not a model"));
    gguf_build_free(base);
}

/* ---- what it makes of a model -------------------------------------------------------------------------- */

struct seen {
    float logits[V];
    char digest[65], identity[65], pass[65];
    uint64_t weights;
    uint32_t n_ops;
};

static void look(struct gguf_build *base, const struct adapter_source *adapters, uint32_t n, struct seen *out)
{
    static const uint32_t tokens[] = { 3, 17, 8, 40, 8 };
    struct model *m;
    struct session *s = NULL;
    if (plan_with(base, adapters, n, &m) || model_load(m, &err) || session_open(m, &s, &err)) fail_msg("%s", text);
    if (session_feed(s, tokens, 5, ROW_PROMPT, 1, out->logits, &err)) fail_msg("%s", text);
    assert_int_equal(model_digest(m, NULL, out->digest, &err), WK_OK);
    assert_int_equal(model_identity(m, out->identity, &err), WK_OK);
    tape_digest(m->program, out->pass);
    out->weights = m->plan.bytes[MEMORY_WEIGHTS];
    out->n_ops = m->program->n_ops;
    session_close(s);
    model_close(m);
}

static void of_scale_zero_nothing_changes(void **state)
{
    (void)state;
    struct gguf_build *base = model_file(false);
    const struct adapter_source one = { save(adapter_file(), "one.gguf"), 0 };
    struct seen plain, zero;
    look(base, NULL, 0, &plain);
    look(base, &one, 1, &zero);
    assert_memory_equal(plain.logits, zero.logits, sizeof plain.logits);
    assert_string_equal(plain.digest, zero.digest);
    assert_string_equal(plain.identity, zero.identity);
    assert_string_equal(plain.pass, zero.pass);
    assert_int_equal(plain.weights, zero.weights);
    gguf_build_free(base);
}

/* All that a fingerprint is made of tells adapters, their scales and their order apart. */
static void adapters_are_told_apart(void **state)
{
    (void)state;
    struct gguf_build *base = model_file(false), *g = adapter_file();
    put_pair(g, "blk.0.attn_v.weight", E, E, RANK);
    const char *path = save(adapter_file(), "one.gguf"), *other = save(g, "two.gguf");
    const struct adapter_source a[] = { { path, 1 }, { other, 1 } }, b[] = { { other, 1 }, { path, 1 } },
                                half[] = { { path, 0.5 } };
    struct seen plain, one, halved, both, turned;
    look(base, NULL, 0, &plain);
    look(base, a, 1, &one);
    look(base, half, 1, &halved);
    look(base, a, 2, &both);
    look(base, b, 2, &turned);
    assert_memory_not_equal(plain.logits, one.logits, sizeof plain.logits);
    assert_memory_not_equal(one.logits, halved.logits, sizeof plain.logits);
    assert_memory_not_equal(one.logits, both.logits, sizeof plain.logits);
    assert_string_not_equal(plain.digest, one.digest);
    assert_string_not_equal(plain.identity, one.identity);
    assert_string_equal(one.digest, halved.digest); /* the bytes are the same, */
    assert_string_equal(one.identity, halved.identity);
    assert_string_not_equal(one.pass, halved.pass); /* the pass is not */
    assert_string_not_equal(both.digest, turned.digest);
    assert_true(one.weights > plain.weights && both.weights > one.weights);
    assert_int_equal(one.n_ops, plain.n_ops + 4); /* A, B, scale, sum */
    gguf_build_free(base);
}

/* The model's products of one input stay together, and so do an adapter's; sums are made where its second product ends.
 */
static void products_stay_together(void **state)
{
    (void)state;
    struct gguf_build *base = model_file(false), *g = adapter_file();
    put_pair(g, "blk.0.attn_k.weight", E, E, RANK);
    const struct adapter_source one = { save(g, "one.gguf"), 2 };
    struct model *m;
    assert_int_equal(plan_with(base, &one, 1, &m), WK_OK);
    const struct tape_program *p = m->program;
    const uint32_t q = tape_find_value(p, "blk.0.attn_q"), sum = tape_find_value(p, "blk.0.attn_q.lora"),
                   a = tape_find_value(p, "blk.0.attn_k.lora_a");
    assert_true(q != TAPE_NONE && sum != TAPE_NONE && a != TAPE_NONE);
    const struct tape_launch *l = &p->launches[p->ops[p->values[q].op].launch],
                             *last = &p->launches[p->ops[p->values[sum].op].launch];
    assert_int_equal(l->n_seg, 3); /* q, k, v, as without an adapter */
    assert_int_equal(p->launches[p->ops[p->values[a].op].launch].n_seg, 2);
    assert_int_equal(last->residual, q);
    assert_int_equal(last->n_map, 1);
    assert_true(p->ops[last->map[0]].u.unary.p == 4.0f); /* 2 * 8 / 4 */
    model_close(m);
    gguf_build_free(base);
}

/* Of a model whose rows are pooled the head goes, and with it what an adapter adds to it. */
static void pooled_without_head(void **state)
{
    (void)state;
    struct gguf_build *base = model_file(false), *g = adapter_file();
    gguf_build_noise(base, 3, "output.weight", V, E, 0.5f);
    const char *path = save(adapter_file(), "one.gguf");
    put_pair(g, "output.weight", V, E, RANK);
    const char *with_head = save(g, "two.gguf");
    char pass[2][65];
    for (int i = 0; i < 2; i++) {
        const struct adapter_source one = { i ? with_head : path, 1 };
        const struct model_options o = { .device = device_cpu(),
                                         .fuse = FUSE_ALL,
                                         .dev = { .threads = 1, .max_rows = 16 },
                                         .pooling = TAPE_POOL_LAST,
                                         .adapters = &one,
                                         .n_adapters = 1 };
        struct model *m;
        text[0] = '\0';
        if (model_plan(gguf_build_open(base), registry, &o, &m, &err)) fail_msg("%s", text);
        assert_int_equal(m->program->embedding_width, E);
        tape_digest(m->program, pass[i]);
        model_close(m);
    }
    assert_string_equal(pass[0], pass[1]);
    gguf_build_free(base);
}

static int set_up(void **state)
{
    (void)state;
    const struct plugin_options o = { .dirs = NULL };
    if (plugin_registry_open(&o, &registry, &err)) fail_msg("%s", text);
    return mkdtemp(folder) ? 0 : -1;
}
static int tear_down(void **state)
{
    (void)state;
    static const char *const names[] = { "bad.gguf", "one.gguf", "two.gguf" };
    char path[256];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    plugin_registry_close(registry);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(bad_metadata),
                                        cmocka_unit_test(bad_tensors),
                                        cmocka_unit_test(bad_lists),
                                        cmocka_unit_test(of_scale_zero_nothing_changes),
                                        cmocka_unit_test(adapters_are_told_apart),
                                        cmocka_unit_test(products_stay_together),
                                        cmocka_unit_test(pooled_without_head) };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
