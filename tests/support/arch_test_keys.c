/* arch_test_keys.c: what every architecture plugin's table of keys must hold: a key of the ecosystem's converter is
 * read, changes nothing, or refuses the file by name; an array has an element for each layer, or is refused. */
#include "arch_test.h" /* before cmocka.h, whose macro fail() would change the SDK */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Below the architecture's name: package gguf 0.19.0, constants.py, but for pooling_type, which is the host's where a
 * plugin does not read it (core/tape/test_pooling.c); and some that no version has. */
static const char *const converter_keys[] = {
    "activation_sparsity_scale",
    "altup.active_idx",
    "altup.num_inputs",
    "attention.causal",
    "attention.clamp_kqv",
    "attention.decay_lora_rank",
    "attention.gate_lora_rank",
    "attention.group_norm_epsilon",
    "attention.group_norm_groups",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.iclr_lora_rank",
    "attention.indexer.head_count",
    "attention.indexer.key_length",
    "attention.indexer.top_k",
    "attention.key_length",
    "attention.key_length_mla",
    "attention.key_length_swa",
    "attention.kv_lora_rank",
    "attention.layer_norm_epsilon",
    "attention.layer_norm_rms_epsilon",
    "attention.max_alibi_bias",
    "attention.output_scale",
    "attention.q_lora_rank",
    "attention.relative_buckets_count",
    "attention.scale",
    "attention.shared_kv_layers",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.temperature_length",
    "attention.temperature_scale",
    "attention.value_length",
    "attention.value_length_mla",
    "attention.value_length_swa",
    "attention.value_residual_mix_lora_rank",
    "attn_logit_softcapping",
    "block_count",
    "classifier.output_labels",
    "context_length",
    "convnext.block_count",
    "convnext.embedding_length",
    "decoder_block_count",
    "decoder_start_token_id",
    "embedding_length",
    "embedding_length_out",
    "embedding_length_per_layer_input",
    "embedding_scale",
    "expert_chunk_feed_forward_length",
    "expert_count",
    "expert_feed_forward_length",
    "expert_gating_func",
    "expert_group_count",
    "expert_group_scale",
    "expert_group_used_count",
    "expert_shared_count",
    "expert_shared_feed_forward_length",
    "expert_used_count",
    "expert_weights_norm",
    "expert_weights_scale",
    "experts_per_group",
    "features_length",
    "feed_forward_length",
    "final_logit_softcapping",
    "full_attention_interval",
    "interleave_moe_layer_step",
    "kda.head_dim",
    "leading_dense_block_count",
    "logit_scale",
    "moe_every_n_layers",
    "moe_latent_size",
    "n_deepstack_layers",
    "nextn_predict_layers",
    "posnet.block_count",
    "posnet.embedding_length",
    "rescale_every_n_layers",
    "residual_scale",
    "rope.dimension_count",
    "rope.dimension_count_swa",
    "rope.dimension_sections",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scaling.alpha",
    "rope.scaling.attn_factor",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_log_multiplier",
    "router_logit_softcapping",
    "shortconv.l_cache",
    "ssm.conv_kernel",
    "ssm.dt_b_c_rms",
    "ssm.group_count",
    "ssm.inner_size",
    "ssm.state_size",
    "ssm.time_step_rank",
    "swiglu_clamp_exp",
    "swiglu_clamp_shexp",
    "swin_norm",
    "tensor_data_layout",
    "time_decay_extra_dim",
    "time_mix_extra_dim",
    "token_shift_count",
    "use_parallel_residual",
    "vocab_size",
    "wkv.head_size",
    "attention.layer_indices",
    "rope.freq_scale",
    "no_such_key",
};

/* The key of the table, NULL: none. which: the architecture's index in the plugin's names. */
static const struct wk_key *find_key(const struct wk_arch *arch, uint32_t which, const char *name)
{
    for (uint32_t i = 0; i < arch->n_keys; i++)
        if (strcmp(arch->keys[i].name, name) == 0 && !(arch->keys[i].flags & WK_KEY_NOT_FOR(which)))
            return &arch->keys[i];
    return NULL;
}

static bool is_ignored(const struct wk_arch *arch, const char *name)
{
    for (uint32_t i = 0; i < arch->n_ignored_keys; i++)
        if (strcmp(arch->ignored_keys[i], name) == 0) return true;
    return false;
}

/* With a value that is not the one that changes nothing the file is refused with the key's name, and taken where the
 * key is accepted; then the key is noted as used. */
static void try_converter_key(const struct arch_test *t, uint32_t file, uint32_t which, const char *name)
{
    const struct wk_arch *arch = arch_of(t);
    const struct wk_key *k = find_key(arch, which, name);
    const bool one_value = k && k->type != WK_KEY_TEXT && !(k->min < k->max);
    char full[128];
    const char *names[1] = { full };
    struct gguf_accepted accepted = { .names = names, .n = 1 };
    if (k && !one_value) return; /* read: other tests have its values */
    (void)snprintf(full, sizeof full, "%s.%s", arch->names[which], name);
    struct gguf_build *g = t->make(file);
    if (one_value && k->type == WK_KEY_BOOL)
        gguf_build_bool(g, full, !(k->min > 0));
    else if (one_value && k->type == WK_KEY_F32)
        gguf_build_f32(g, full, (float)k->min + 0.5f);
    else
        gguf_build_u32(g, full, one_value ? (uint32_t)k->min + 1 : 7);
    if (is_ignored(arch, name)) {
        if (arch_attempt(t, g, NULL)) fail_msg("%s: %s", full, arch_text);
    } else {
        arch_must_refuse(t, g, full);
        if (arch_attempt(t, g, &accepted)) fail_msg("%s accepted: %s", full, arch_text);
        if (accepted.used != 1) fail_msg("%s: not noted as used", full);
    }
    gguf_build_free(g);
    if (!one_value) return;
    g = t->make(file);
    if (k->type == WK_KEY_BOOL)
        gguf_build_bool(g, full, k->min > 0);
    else
        gguf_build_i64(g, full, (int64_t)k->min);
    accepted.used = 0;
    if (arch_attempt(t, g, &accepted)) fail_msg("%s with its one value: %s", full, arch_text);
    if (accepted.used) fail_msg("%s: used without need", full);
    gguf_build_free(g);
}

void arch_converter_keys(void **state)
{
    const struct arch_test *t = *state;
    const struct wk_arch *arch = arch_of(t);
    for (uint32_t file = 0; file < t->n_files; file++) {
        uint32_t which = 0; /* the architecture's index in the plugin's names */
        while (strcmp(arch->names[which], arch_name(t, file)) != 0) which++;
        for (size_t i = 0; i < ARCH_COUNT(converter_keys); i++) try_converter_key(t, file, which, converter_keys[i]);
    }
}

void arch_arrays(const struct arch_test *t, uint32_t file)
{
    const uint32_t equal[4] = { T_G, T_G, T_G, T_G }, one[1] = { 1 };
    static const char *const scalars[] = { "context_length", "embedding_length", "block_count", "expert_used_count" };
    char key[128];
    for (uint64_t n = 0; n <= 4; n++) {
        struct gguf_build *g = t->make(file);
        (void)snprintf(key, sizeof key, "%s.attention.head_count_kv", arch_name(t, file));
        gguf_build_array(g, key, GGUF_U32, n, equal);
        if (n == T_L)
            assert_int_equal(arch_attempt(t, g, NULL), WK_OK);
        else
            arch_must_refuse(t, g, key);
        gguf_build_free(g);
    }
    for (size_t i = 0; i < ARCH_COUNT(scalars); i++) {
        struct gguf_build *g = t->make(file);
        (void)snprintf(key, sizeof key, "%s.%s", arch_name(t, file), scalars[i]);
        gguf_build_array(g, key, GGUF_U32, 1, one);
        arch_must_refuse(t, g, key);
        gguf_build_free(g);
    }
}
