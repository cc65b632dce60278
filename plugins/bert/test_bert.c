/* test_bert.c: what bert.so records, and what it refuses. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* ---- toy files ----------------------------------------------------------------------------------------- */

enum { MEAN, FIRST, LAST, RANK, RANK_DENSE, ONE_TYPE, NOMIC, MODERN, MODERN_RANK, FILES };
enum { LABELS = 2 };

static const char *architecture(uint32_t file)
{
    return file >= MODERN ? "modern-bert" : file == NOMIC ? "nomic-bert" : "bert";
}

static void put_nomic(struct gguf_build *g)
{
    static const struct arch_shape layer[] = {
        { "attn_qkv.weight", 3 * T_E, T_E, 1 },   { "attn_output.weight", T_E, T_E, 1 },
        { "attn_output_norm.weight", 1, T_E, 1 }, { "attn_output_norm.bias", 1, T_E, 1 },
        { "ffn_gate.weight", T_F, T_E, 1 },       { "ffn_up.weight", T_F, T_E, 1 },
        { "ffn_down.weight", T_E, T_F, 1 },       { "layer_output_norm.weight", 1, T_E, 1 },
        { "layer_output_norm.bias", 1, T_E, 1 },
    };
    static const struct arch_shape outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "token_types.weight", 2, T_E, 1 },
                                                 { "token_embd_norm.weight", 1, T_E, 1 },
                                                 { "token_embd_norm.bias", 1, T_E, 1 } };
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    for (uint32_t l = 0; l < T_L; l++) arch_put_layer(g, l, layer, ARCH_COUNT(layer));
    gguf_build_f32(g, "nomic-bert.rope.freq_base", 1000);
}

static void put_modern(struct gguf_build *g, bool ranks)
{
    static const struct arch_shape layer[] = {
        { "attn_norm.weight", 1, T_E, 1 }, /* but of the first */
        { "attn_qkv.weight", 3 * T_E, T_E, 1 }, { "attn_output.weight", T_E, T_E, 1 }, { "ffn_norm.weight", 1, T_E, 1 },
        { "ffn_up.weight", 2 * T_F, T_E, 1 },   { "ffn_down.weight", T_E, T_F, 1 },
    };
    static const struct arch_shape outside[] = { { "token_embd.weight", T_V, T_E, 1 },
                                                 { "token_embd_norm.weight", 1, T_E, 1 },
                                                 { "output_norm.weight", 1, T_E, 1 } };
    static const struct arch_shape scores[] = { { "cls.output.weight", LABELS, T_E, 1 },
                                                { "cls.output.bias", 1, LABELS, 1 },
                                                { "cls.weight", T_E, T_E, 1 },
                                                { "cls.norm.weight", 1, T_E, 1 } };
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    for (uint32_t l = 0; l < T_L; l++) arch_put_layer(g, l, l ? layer : layer + 1, ARCH_COUNT(layer) - !l);
    if (ranks) arch_put_tensors(g, "", scores, ARCH_COUNT(scores));
    gguf_build_u32(g, "modern-bert.attention.sliding_window", 16);
    gguf_build_u32(g, "modern-bert.attention.sliding_window_pattern", 2);
    gguf_build_f32(g, "modern-bert.rope.freq_base", 160000);
    gguf_build_f32(g, "modern-bert.rope.freq_base_swa", 10000);
}

static bool unsaid; /* files say no pooling_type */

static struct gguf_build *make(uint32_t file)
{
    static const struct arch_key keys[] = {
        { "context_length", T_C, true },       { "embedding_length", T_E, true },
        { "block_count", T_L, true },          { "feed_forward_length", T_F, true },
        { "attention.head_count", T_H, true }, { "attention.layer_norm_epsilon", 1e-12, false }
    };
    static const struct arch_shape layer[] = {
        { "attn_q.weight", T_E, T_E, 1 },          { "attn_q.bias", 1, T_E, 1 },
        { "attn_k.weight", T_E, T_E, 1 },          { "attn_k.bias", 1, T_E, 1 },
        { "attn_v.weight", T_E, T_E, 1 },          { "attn_v.bias", 1, T_E, 1 },
        { "attn_output.weight", T_E, T_E, 1 },     { "attn_output.bias", 1, T_E, 1 },
        { "attn_output_norm.weight", 1, T_E, 1 },  { "attn_output_norm.bias", 1, T_E, 1 },
        { "ffn_up.weight", T_F, T_E, 1 },          { "ffn_up.bias", 1, T_F, 1 },
        { "ffn_down.weight", T_E, T_F, 1 },        { "ffn_down.bias", 1, T_E, 1 },
        { "layer_output_norm.weight", 1, T_E, 1 }, { "layer_output_norm.bias", 1, T_E, 1 },
    };
    const struct arch_shape outside[] = {
        { "token_embd.weight", T_V, T_E, 1 },    { "token_types.weight", file == ONE_TYPE ? 1 : 2, T_E, 1 },
        { "position_embd.weight", T_C, T_E, 1 }, { "token_embd_norm.weight", 1, T_E, 1 },
        { "token_embd_norm.bias", 1, T_E, 1 },
    };
    static const struct arch_shape scores[] = { { "cls.output.weight", LABELS, T_E, 1 },
                                                { "cls.output.bias", 1, LABELS, 1 } };
    static const struct arch_shape dense[] = { { "cls.weight", T_E, T_E, 1 }, { "cls.bias", 1, T_E, 1 } };
    struct gguf_build *g = gguf_build_new(architecture(file));
    char key[64];
    const uint32_t pooling = file == MODERN_RANK ? 4 : file >= ONE_TYPE ? 1 : file < RANK ? file + 1 : 4;
    arch_put_keys(g, architecture(file), keys, ARCH_COUNT(keys));
    (void)snprintf(key, sizeof key, "%s.attention.causal", architecture(file));
    gguf_build_bool(g, key, 0);
    (void)snprintf(key, sizeof key, "%s.pooling_type", architecture(file));
    if (!unsaid) gguf_build_u32(g, key, pooling);
    if (file >= MODERN)
        put_modern(g, file == MODERN_RANK);
    else if (file == NOMIC)
        put_nomic(g);
    if (file >= NOMIC) return g;
    arch_put_tensors(g, "", outside, ARCH_COUNT(outside));
    for (uint32_t l = 0; l < T_L; l++) arch_put_layer(g, l, layer, ARCH_COUNT(layer));
    if (pooling == 4) arch_put_tensors(g, "", scores, ARCH_COUNT(scores));
    if (file == RANK_DENSE) arch_put_tensors(g, "", dense, ARCH_COUNT(dense));
    return g;
}

static const char *without(uint32_t file, const char *tensor)
{
    if (strcmp(tensor, "cls.weight") == 0)
        return file == MODERN_RANK ? "cls.norm.weight is in the file, nothing reads it"
                                   : "cls.bias is in the file, nothing reads it";
    if (strcmp(tensor, "cls.norm.weight") == 0) return NULL;
    return strcmp(tensor, "cls.bias") == 0 || strcmp(tensor, "cls.output.bias") == 0 ? NULL : tensor;
}
/* Some tensors say themselves how many tokens, kinds of tokens and labels there are. */
static const char *longer(uint32_t file, const char *tensor)
{
    (void)file;
    if (strcmp(tensor, "cls.output.weight") == 0) return "cls.output.bias";
    return strcmp(tensor, "token_embd.weight") == 0 || strcmp(tensor, "token_types.weight") == 0 ? NULL : tensor;
}

static const struct arch_test test = { "bert", FILES, architecture, make, without, longer };

/* ---- recordings ---------------------------------------------------------------------------------------- */

static const struct tape_op *op_of_kind(const struct tape_program *p, uint32_t kind)
{
    const struct tape_op *found = NULL;
    for (uint32_t i = 0; i < p->n_ops; i++)
        if (p->ops[i].kind == kind) {
            assert_null(found);
            found = &p->ops[i];
        }
    assert_non_null(found);
    return found;
}

static void layers(void **state)
{
    (void)state;
    struct tape_capabilities c;
    struct arch_opened r = arch_record(&test, make(MEAN));
    for (uint32_t l = 0; l < T_L; l++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%u.attention", (unsigned)l);
        const struct tape_op *a = arch_op(r.p, name);
        assert_int_equal(a->u.attn.flags, WK_ATTENTION_BIDIRECTIONAL);
        assert_true(a->u.attn.heads == T_H && a->u.attn.kv_heads == T_H && a->u.attn.window == 0);
        arch_near((double)a->u.attn.scale, 1 / sqrt(T_D));
    }
    assert_int_equal(arch_op(r.p, "token_types")->u.embed.index, WK_EMBED_TOKEN_TYPE);
    assert_int_equal(arch_op(r.p, "token_types")->u.embed.offset, 0);
    assert_int_equal(arch_op(r.p, "blk.1.layer_output_norm")->u.norm.kind, WK_NORM_LAYER);
    assert_string_equal(arch_bias(r.p, "blk.1.ffn_up"), "blk.1.ffn_up.bias");
    assert_int_equal(r.p->embedding_width, T_E);
    tape_describe(r.p, &c);
    assert_string_equal(c.positional, "learned");
    assert_string_equal(c.attention, "mha bidirectional");
    arch_close(&r);
    r = arch_record(&test, make(ONE_TYPE)); /* as of RoBERTa: all tokens are of the only type */
    assert_int_equal(arch_op(r.p, "token_types")->u.embed.index, WK_EMBED_ROW);
    arch_close(&r);
}

/* Nomic's: positions rotate, q|k|v is one tensor, the feed-forward network has a gate. */
static void nomic(void **state)
{
    (void)state;
    struct tape_capabilities c;
    struct arch_opened r = arch_record(&test, make(NOMIC));
    tape_describe(r.p, &c);
    assert_string_equal(c.positional, "rope_neox");
    assert_string_equal(c.attention, "mha bidirectional");
    assert_int_equal(arch_op(r.p, "blk.0.attention")->u.attn.flags, WK_ATTENTION_BIDIRECTIONAL);
    assert_string_equal(arch_weight(r.p, "blk.2.attn_qkv.3"), "blk.2.attn_qkv.weight");
    assert_string_equal(arch_weight(r.p, "blk.0.ffn_gate"), "blk.0.ffn_gate.weight");
    assert_int_equal(tape_find_value(r.p, "position_embd"), TAPE_NONE);
    assert_int_equal(r.p->embedding_width, T_E);
    arch_close(&r);
}

/* ModernBERT: every second layer of these files sees half a window on either side and rotates in another way. */
static void modern(void **state)
{
    (void)state;
    struct tape_capabilities c;
    struct arch_opened r = arch_record(&test, make(MODERN));
    tape_describe(r.p, &c);
    assert_string_equal(c.positional, "rope_neox");
    assert_string_equal(c.attention, "mha swa bidirectional");
    for (uint32_t l = 0; l < T_L; l++) {
        char name[64];
        (void)snprintf(name, sizeof name, "blk.%u.attention", (unsigned)l);
        const struct tape_op *a = arch_op(r.p, name);
        assert_int_equal(a->u.attn.flags, WK_ATTENTION_BIDIRECTIONAL);
        assert_int_equal(a->u.attn.window, l % 2 ? 9 : 0); /* itself and 8 on either side */
    }
    assert_int_equal(tape_find_value(r.p, "blk.0.attn_norm"), TAPE_NONE);
    assert_int_equal(arch_op(r.p, "blk.1.attn_norm")->u.norm.kind, WK_NORM_LAYER);
    assert_int_equal(op_of_kind(r.p, WK_OP_POOL)->u.pool.how, WK_POOL_MEAN);
    assert_int_equal(tape_find_value(r.p, "token_types"), TAPE_NONE);
    arch_close(&r);
    r = arch_record(&test, make(MODERN_RANK)); /* the mean, where no key says otherwise */
    assert_int_equal(op_of_kind(r.p, WK_OP_POOL)->u.pool.how, WK_POOL_MEAN);
    assert_int_not_equal(tape_find_value(r.p, "cls.norm"), TAPE_NONE);
    assert_int_equal(r.p->embedding_width, LABELS);
    arch_close(&r);
    struct gguf_build *g = make(MODERN_RANK);
    gguf_build_u32(g, "modern-bert.classifier.pooling_type", 2);
    gguf_build_str(g, "modern-bert.hidden_activation", "silu");
    r = arch_record(&test, g);
    assert_int_equal(op_of_kind(r.p, WK_OP_POOL)->u.pool.how, WK_POOL_FIRST);
    arch_close(&r);
}

static void pooling(void **state)
{
    (void)state;
    static const uint32_t pools[FILES] = { WK_POOL_MEAN, WK_POOL_FIRST, WK_POOL_LAST, WK_POOL_FIRST, WK_POOL_FIRST };
    /* pooling_type: 1 mean, 2 the first (CLS), 3 the last, 4 a reranker */
    for (uint32_t file = 0; file < ONE_TYPE; file++) {
        struct arch_opened r = arch_record(&test, make(file));
        assert_int_equal(op_of_kind(r.p, WK_OP_POOL)->u.pool.how, pools[file]);
        assert_int_equal(op_of_kind(r.p, WK_OP_OUTPUT)->u.output.what, WK_OUTPUT_EMBEDDING);
        assert_int_equal(op_of_kind(r.p, WK_OP_OUTPUT)->u.output.flags, file < RANK ? WK_OUTPUT_L2_NORM : 0);
        assert_int_equal(r.p->embedding_width, file < RANK ? T_E : LABELS);
        if (file >= RANK) assert_string_equal(arch_bias(r.p, "embedding"), "cls.output.bias");
        assert_int_equal(tape_find_value(r.p, "cls") != TAPE_NONE, file == RANK_DENSE);
        arch_close(&r);
    }
    /* Rerankers as converters write them: what makes scores tells. */
    unsaid = true;
    struct arch_opened r = arch_record(&test, make(RANK_DENSE));
    assert_int_equal(op_of_kind(r.p, WK_OP_POOL)->u.pool.how, WK_POOL_FIRST);
    assert_int_equal(op_of_kind(r.p, WK_OP_OUTPUT)->u.output.flags, 0);
    assert_int_equal(r.p->embedding_width, LABELS);
    arch_close(&r);
    struct gguf_build *g = make(MEAN);
    arch_must_refuse(&test, g, "pooling_type is missing, and there is no cls.output.weight");
    gguf_build_free(g);
    unsaid = false;
}

/* ---- hostile files ------------------------------------------------------------------------------------- */

static void relations(void **state)
{
    (void)state;
    static const struct arch_relation rows[] = {
        { MEAN,
          { "attention.head_count", 5, true },
          "embedding_length is 32, must be a multiple of attention.head_count, 5" },
        { MEAN,
          { "attention.head_count_kv", 2, true },
          "attention.head_count_kv is 2; as many as heads, 4, are served" },
        { MEAN, { "pooling_type", 0, true }, "pooling_type is 0, rows as they are" },
        { MEAN, { "pooling_type", 4, true }, "cls.output.weight is missing" },
        { MEAN, { "pooling_type", 5, true }, "bert.pooling_type" },
        { RANK, { "pooling_type", 1, true }, "cls.output.weight is in the file, nothing reads it" },
        { MEAN,
          { "context_length", 2 * T_C, true },
          "position_embd.weight: the file has 128 rows x 32 columns, the plugin asks for 256 x 32" },
        { MEAN, { "block_count", 4, true }, "blk.3.attn_q.weight: missing in the file" },
        { MEAN, { "block_count", 2, true }, "blk.2.attn_q.weight is in the file, nothing reads it" },
        { NOMIC, { "attention.key_length", 16, true }, "attention.key_length is 16; the row's width by heads, 8" },
        { NOMIC, { "rope.dimension_count", 4, true }, "rope.dimension_count is 4; the row's width by heads, 8" },
        { NOMIC, { "attention.head_count", 32, true }, "a head of 1 values, of which pairs rotate" },
        { NOMIC, { "rope.scaling.factor", 2, false }, "nomic-bert.rope.scaling.factor: nothing reads this key" },
        { MEAN, { "attention.max_alibi_bias", 8, false }, "bert.attention.max_alibi_bias" },
        { MEAN, { "attention.sliding_window", 8, true }, "bert.attention.sliding_window" },
        { NOMIC, { "rope.freq_base_swa", 8, false }, "nomic-bert.rope.freq_base_swa" },
        { MODERN, { "attention.sliding_window_pattern", 0, true }, "modern-bert.attention.sliding_window_pattern" },
        { MODERN, { "classifier.pooling_type", 3, true }, "modern-bert.classifier.pooling_type" },
        { MODERN, { "attention.head_count", 32, true }, "a head of 1 values, of which pairs rotate" },
    };
    arch_relations(&test, rows, ARCH_COUNT(rows));
    struct gguf_build *g = make(MEAN);
    gguf_build_bool(g, "bert.attention.causal", 1);
    arch_must_refuse(&test, g, "bert.attention.causal");
    gguf_build_free(g);
    g = make(MODERN);
    gguf_build_str(g, "modern-bert.hidden_activation", "relu");
    arch_must_refuse(&test, g, "hidden_activation is relu; gelu and silu are served");
    gguf_build_free(g);
    arch_rope_scaling(&test, MODERN, "yarn");
}

static void surplus_tensors(void **state)
{
    (void)state;
    static const struct arch_surplus rows[] = {
        { MEAN, "output_norm.weight" },    { MEAN, "blk.0.attn_norm.weight" },   { MEAN, "blk.0.attn_qkv.weight" },
        { MEAN, "blk.0.ffn_gate.weight" }, { MEAN, "blk.0.attn_q_norm.weight" }, { MEAN, "output.weight" },
        { NOMIC, "position_embd.weight" }, { NOMIC, "blk.0.attn_q.weight" },     { RANK, "cls.bias" },
        { MEAN, "rope_freqs.weight" },     { MODERN, "blk.0.attn_norm.weight" }, { MODERN, "blk.1.attn_norm.bias" },
        { MODERN, "token_types.weight" }
    };
    arch_surplus_tensors(&test, rows, ARCH_COUNT(rows));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers),          cmocka_unit_test(nomic), cmocka_unit_test(modern),
        cmocka_unit_test(pooling),         ARCH_EVERY_PLUGIN(test), cmocka_unit_test(relations),
        cmocka_unit_test(surplus_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
