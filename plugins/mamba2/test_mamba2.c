/* test_mamba2.c: what mamba2.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

/* An inner width of 64 in 4 heads; groups of B and C, of 8 values. UNTIED: with an output of its own. */
enum { ONE_GROUP, TWO_GROUPS, UNTIED, FILES };
enum { D = 64, HEADS = 4, N = 8, KERNEL = 4 };

static uint32_t groups(uint32_t file) { return file == TWO_GROUPS ? 2 : 1; }

static struct gguf_build *make(uint32_t file)
{
    const uint32_t G = groups(file), mixed = D + 2 * G * N;
    const struct arch_key keys[] = {
        { "context_length", T_C, true },      { "embedding_length", T_E, true },
        { "block_count", T_L, true },         { "feed_forward_length", 0, true },
        { "attention.head_count", 0, true },  { "attention.layer_norm_rms_epsilon", 1e-5, false },
        { "ssm.conv_kernel", KERNEL, true },  { "ssm.state_size", N, true },
        { "ssm.group_count", G, true },       { "ssm.inner_size", D, true },
        { "ssm.time_step_rank", HEADS, true }
    };
    const struct arch_shape layer[] = {
        { "attn_norm.weight", 1, T_E, 1 },
        { "ssm_in.weight", D + mixed + HEADS, T_E, 1 },
        { "ssm_conv1d.weight", mixed, KERNEL, 1 },
        { "ssm_conv1d.bias", 1, mixed, 1 },
        { "ssm_dt.bias", 1, HEADS, 1 },
        { "ssm_a", HEADS, 1, 1 },
        { "ssm_d", HEADS, 1, 1 },
        { "ssm_norm.weight", G, D / G, 1 },
        { "ssm_out.weight", T_E, D, 1 },
    };
    static const struct arch_shape outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "output_norm.weight", 1, T_E, 1 } };
    struct gguf_build *g = gguf_build_new("mamba2");
    arch_put_keys(g, "mamba2", keys, ARCH_COUNT(keys));
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    if (file == UNTIED) gguf_build_floats(g, "output.weight", T_V, T_E, 1, NULL);
    for (uint32_t l = 0; l < T_L; l++) arch_put_layer(g, l, layer, ARCH_COUNT(layer));
    return g;
}

static const char *without(uint32_t file, const char *tensor)
{
    (void)file;
    return strcmp(tensor, "output.weight") == 0 ? NULL : tensor;
}
/* The embedding says itself how many tokens there are. */
static const char *longer(uint32_t file, const char *tensor)
{
    if (strcmp(tensor, "token_embd.weight") != 0) return tensor;
    return file == UNTIED ? "output.weight" : NULL;
}

static const struct arch_test test = { "mamba2", FILES, NULL, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

static const struct tape_op *state_of(const struct tape_program *p, uint32_t layer, uint32_t kind)
{
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == WK_OP_STATE && p->ops[i].layer == layer && p->ops[i].u.state.kind == kind)
            return &p->ops[i];
    fail_msg("layer %u has no state of kind %u", (unsigned)layer, (unsigned)kind);
    return NULL;
}

static void layers(void **state)
{
    (void)state;
    for (uint32_t file = 0; file < FILES; file++) {
        struct tape_capabilities c;
        struct arch_opened r = arch_record(&test, make(file));
        for (uint32_t l = 0; l < T_L; l++) {
            const struct tape_op *conv = state_of(r.p, l, WK_STATE_CONV), *scan = state_of(r.p, l, WK_STATE_SCAN);
            assert_int_equal(conv->u.state.kernel, KERNEL);
            assert_int_equal(r.p->values[conv->out].width, D + 2 * groups(file) * N);
            assert_int_not_equal(conv->t[1], TAPE_NONE);
            assert_true(scan->u.state.heads == HEADS && scan->u.state.groups == groups(file));
            assert_int_equal(r.p->values[scan->in[0]].width, groups(file) * N); /* C */
            assert_int_equal(r.p->values[scan->in[1]].width, groups(file) * N); /* B */
            assert_int_equal(r.p->values[scan->in[2]].width, D);
            assert_int_equal(r.p->values[scan->in[3]].width, HEADS);
            /* C lies behind B */
            assert_int_equal(r.p->ops[r.p->values[scan->in[1]].op].u.slice.first, D);
            assert_int_equal(r.p->ops[r.p->values[scan->in[0]].op].u.slice.first, D + groups(file) * N);
        }
        assert_int_equal(r.p->n_kv_layers, 2 * T_L); /* both states are kept */
        assert_string_equal(arch_weight(r.p, file == UNTIED ? "logits" : "token_embd"),
                            file == UNTIED ? "output.weight" : "token_embd.weight");
        tape_describe(r.p, &c);
        assert_string_equal(c.positional, "none");
        assert_string_equal(c.attention, "state");
        assert_int_equal(c.n_vocab, T_V);
        arch_close(&r);
    }
}

/* One group's norm has its weights in the row; of several each value has its own. */
static void norms(void **state)
{
    (void)state;
    struct arch_opened r = arch_record(&test, make(ONE_GROUP));
    assert_string_equal(arch_weight(r.p, "blk.0.ssm_norm"), "blk.0.ssm_norm.weight");
    assert_int_equal(arch_op(r.p, "blk.0.ssm_norm")->u.norm.group, 0);
    arch_close(&r);
    r = arch_record(&test, make(TWO_GROUPS));
    assert_int_equal(tape_find_value(r.p, "blk.0.ssm_norm"), TAPE_NONE);
    arch_close(&r);
}

/* ---- hostile files ------------------------------------------------------------------------------------- */

static void relations(void **state)
{
    (void)state;
    static const struct arch_relation rows[] = {
        { ONE_GROUP,
          { "ssm.time_step_rank", 3, true },
          "ssm.inner_size is 64, must be a multiple of ssm.time_step_rank, 3 heads" },
        { ONE_GROUP,
          { "ssm.group_count", 3, true },
          "ssm.time_step_rank is 4 heads, must be a multiple of ssm.group_count, 3" },
        { TWO_GROUPS,
          { "ssm.group_count", 1, true },
          "blk.0.ssm_in.weight: the file has 164 rows x 32 columns, the plugin asks for 148 x 32" },
        { ONE_GROUP,
          { "ssm.inner_size", 128, true },
          "blk.0.ssm_in.weight: the file has 148 rows x 32 columns, the plugin asks for 276 x 32" },
        { ONE_GROUP,
          { "ssm.state_size", 16, true },
          "blk.0.ssm_in.weight: the file has 148 rows x 32 columns, the plugin asks for 164 x 32" },
        { ONE_GROUP,
          { "ssm.conv_kernel", 3, true },
          "blk.0.ssm_conv1d.weight: the file has 80 rows x 4 columns, the plugin asks for 80 x 3" },
        { ONE_GROUP, { "attention.head_count", 4, true }, "mamba2.attention.head_count" },
        { ONE_GROUP, { "feed_forward_length", 64, true }, "mamba2.feed_forward_length" },
        { ONE_GROUP, { "block_count", 4, true }, "blk.3.attn_norm.weight: missing in the file" },
        { ONE_GROUP, { "block_count", 2, true }, "blk.2.attn_norm.weight is in the file, nothing reads it" },
    };
    arch_relations(&test, rows, ARCH_COUNT(rows));
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = {
        { ONE_GROUP, "blk.0.ssm_a.weight" },  { ONE_GROUP, "blk.0.ssm_x.weight" }, { ONE_GROUP, "blk.0.ssm_dt.weight" },
        { ONE_GROUP, "blk.0.ffn_up.weight" }, { ONE_GROUP, "blk.0.ssm_in.bias" },  { ONE_GROUP, "blk.3.ssm_d" },
        { TWO_GROUPS, "blk.0.ssm_norm.bias" }
    };
    arch_surplus_tensors(&test, rows, ARCH_COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers),    cmocka_unit_test(norms),           ARCH_EVERY_PLUGIN(test),
        cmocka_unit_test(relations), cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
