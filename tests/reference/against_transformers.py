#!/usr/bin/env python3
"""against_transformers.py [FAMILY...]: forward passes of families.py against the transformers library, in float64.

By hand: pip install torch transformers. Each tiny model, or those named, is put into the library's own class, weight by
weight, and both compute the same tokens; the largest difference of a value is told, in units of the values' spread, and
must be below 1e-9 (roundings of doubles, and frequencies that the library keeps as 32-bit floats would show).
"""

import math
import os
import random
import sys
import tempfile

import torch
import transformers

import families
import gguf

N = 140  # tokens: past every window, and past the positions that YaRN's and LongRoPE's models were first trained on
BOUND = 1e-9


def no_singles():
    """The library rounds to 32 bits inside some passes: here these stay doubles."""
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double


class Weights:
    def __init__(self, tensors):
        self.tensors, self.used = tensors, set()

    def __call__(self, name):
        self.used.add(name)
        ne, values = self.tensors[name]
        return torch.tensor(values, dtype=torch.float64).reshape(*reversed(ne))

    def has(self, name):
        return name in self.tensors


def fill(model, names):
    """names: {name in the library's model: tensor}"""
    missing, surplus = model.load_state_dict(names, strict=False)
    missing = [name for name in missing if "rotary_emb" not in name and "position_ids" not in name]
    if missing or surplus:
        sys.exit("missing %s, surplus %s" % (missing, surplus))
    return model.eval()


def common(key):
    return dict(
        hidden_size=key("embedding_length"),
        num_hidden_layers=key("block_count"),
        num_attention_heads=key("attention.head_count"),
        intermediate_size=key("feed_forward_length"),
        attn_implementation="eager",
    )


GEMMA_NORMS = (
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
)
GEMMA3N_PARTS = (
    ("altup.correction_coefs", "altup_correct_coef"),
    ("altup.prediction_coefs", "altup_predict_coef"),
    ("altup.modality_router", "altup_router"),
    ("altup.router_norm", "altup_router_norm"),
    ("laurel.linear_left", "laurel_l"),
    ("laurel.linear_right", "laurel_r"),
    ("laurel.post_laurel_norm", "laurel_post_norm"),
    ("per_layer_input_gate", "inp_gate"),
    ("per_layer_projection", "proj"),
    ("post_per_layer_input_norm", "post_norm"),
)


def sizes(key):
    return dict(
        **common(key),
        num_key_value_heads=key("attention.head_count_kv"),
        rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=key("context_length"),
        bos_token_id=0,
        eos_token_id=0,
        pad_token_id=0,
    )


def projections(t, a, b, w):
    """What all decoders call the same."""
    for theirs, ours in (("q", "attn_q"), ("k", "attn_k"), ("v", "attn_v"), ("o", "attn_output")):
        t[a + "self_attn.%s_proj.weight" % theirs] = w(b + ours + ".weight")
    if w.has(b + "ffn_gate.weight"):
        for name in ("gate", "up", "down"):
            t[a + "mlp.%s_proj.weight" % name] = w(b + "ffn_%s.weight" % name)


def gemma(key, w, model):
    """Norms are stored with the 1 that the library adds."""
    t = {"model.embed_tokens.weight": w("token_embd.weight"), "lm_head.weight": w("token_embd.weight")}
    t["model.norm.weight"] = w("output_norm.weight") - 1
    for l in range(key("block_count")):
        a, b = "model.layers.%d." % l, "blk.%d." % l
        for theirs, ours in GEMMA_NORMS:
            t[a + theirs + ".weight"] = w(b + ours + ".weight") - 1
        projections(t, a, b, w)
        for name in "qk":
            if w.has(b + "attn_%s_norm.weight" % name):
                t[a + "self_attn.%s_norm.weight" % name] = w(b + "attn_%s_norm.weight" % name) - 1
    return fill(model, t)


def gemma2(key, w):
    config = transformers.Gemma2Config(
        **sizes(key),
        vocab_size=len(w("token_embd.weight")),
        head_dim=key("attention.key_length"),
        query_pre_attn_scalar=key("attention.key_length"),
        sliding_window=key("attention.sliding_window"),
        attn_logit_softcapping=key("attn_logit_softcapping"),
        final_logit_softcapping=key("final_logit_softcapping"),
    )
    return gemma(key, w, transformers.Gemma2ForCausalLM(config))


def gemma3(key, w):
    config = transformers.Gemma3TextConfig(
        **sizes(key),
        vocab_size=len(w("token_embd.weight")),
        head_dim=key("attention.key_length"),
        query_pre_attn_scalar=key("attention.key_length"),
        sliding_window=key("attention.sliding_window"),
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": key("rope.freq_base_swa")},
            "full_attention": {
                "rope_type": key("rope.scaling.type"),
                "factor": key("rope.scaling.factor"),
                "rope_theta": key("rope.freq_base"),
            },
        },
    )
    return gemma(key, w, transformers.Gemma3ForCausalLM(config))


def gemma3n(key, w):
    """Keys and values of layers that read others' are left out; the library is told shares instead of factors."""
    kinds = {True: "sliding_attention", False: "full_attention"}
    own = key("block_count") - key("attention.shared_kv_layers")
    config = transformers.Gemma3nTextConfig(
        **sizes(key),
        vocab_size=len(w("token_embd.weight")),
        vocab_size_per_layer_input=len(w("per_layer_token_embd.weight")),
        hidden_size_per_layer_input=key("embedding_length_per_layer_input"),
        head_dim=key("attention.key_length"),
        sliding_window=key("attention.sliding_window"),
        layer_types=[kinds[sliding] for sliding in key("attention.sliding_window_pattern")],
        num_kv_shared_layers=key("attention.shared_kv_layers"),
        laurel_rank=len(w("blk.0.laurel_l.weight")),
        activation_sparsity_pattern=[(1 + math.erf(s / math.sqrt(2))) / 2 for s in key("activation_sparsity_scale")],
        final_logit_softcapping=key("final_logit_softcapping"),
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": key("rope.freq_base_swa", 10000.0)},
            "full_attention": {"rope_type": "default", "rope_theta": key("rope.freq_base")},
        },
    )
    t = {"model.embed_tokens.weight": w("token_embd.weight"), "lm_head.weight": w("token_embd.weight")}
    t["model.embed_tokens_per_layer.weight"] = w("per_layer_token_embd.weight")
    t["model.per_layer_model_projection.weight"] = w("per_layer_model_proj.weight")
    t["model.per_layer_projection_norm.weight"] = w("per_layer_proj_norm.weight")
    t["model.norm.weight"] = w("output_norm.weight")
    for theirs, ours in (("altup_projections", "altup_proj"), ("altup_unembed_projections", "altup_unembd_proj")):
        t.update({"model.%s.%d.weight" % (theirs, i): slab for i, slab in enumerate(w(ours + ".weight"))})
    for l in range(key("block_count")):
        a, b = "model.layers.%d." % l, "blk.%d." % l
        projections(t, a, b, w)
        for name in "qk":
            t[a + "self_attn.%s_norm.weight" % name] = w(b + "attn_%s_norm.weight" % name)
        for name in ("k_proj", "v_proj", "k_norm") if l >= own else ():
            del t[a + "self_attn.%s.weight" % name]
        for theirs, ours in (*GEMMA_NORMS, *GEMMA3N_PARTS):
            t[a + theirs + ".weight"] = w(b + ours + ".weight")
        t[a + "altup.correct_output_scale"] = w(b + "altup_correct_scale.weight")
    return fill(transformers.Gemma3nForCausalLM(config), t)


def llama_like(key, w, model, norms, more=()):
    """norms: {name in the library's layer: tensor}; more: what else the library's model has."""
    head = "output.weight" if w.has("output.weight") else "token_embd.weight"
    t = {"model.embed_tokens.weight": w("token_embd.weight"), "lm_head.weight": w(head)}
    t["model.norm.weight"] = w("output_norm.weight")
    t.update(more)
    for l in range(key("block_count")):
        a, b = "model.layers.%d." % l, "blk.%d." % l
        projections(t, a, b, w)
        for theirs, ours in norms.items():
            t[a + theirs + ".weight"] = w(b + ours + ".weight")
    return fill(model, t)


def neighbours(w, head):
    """The library rotates halves of a head: the rows of one are put in its order."""

    def halves(name):
        t = w(name)
        if not name.endswith(("attn_q.weight", "attn_k.weight")):
            return t
        return t.reshape(-1, head // 2, 2, t.shape[-1]).transpose(1, 2).reshape(t.shape)

    halves.has = w.has
    return halves


def granite(key, w):
    head, X = key("embedding_length") // key("attention.head_count"), key("expert_count")
    settings = dict(
        **sizes(key),
        vocab_size=len(w("token_embd.weight")),
        rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base", 10000.0)},
        embedding_multiplier=key("embedding_scale"),
        attention_multiplier=key("attention.scale"),
        residual_multiplier=key("residual_scale"),
        logits_scaling=key("logit_scale"),
    )
    norms = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    if not X:
        model = transformers.GraniteForCausalLM(transformers.GraniteConfig(**settings))
        return llama_like(key, neighbours(w, head), model, norms)
    config = transformers.GraniteMoeSharedConfig(
        **settings,
        num_local_experts=X,
        num_experts_per_tok=key("expert_used_count"),
        shared_intermediate_size=key("expert_shared_feed_forward_length", 0),
        experts_implementation="eager",
    )
    more = {}
    for l in range(key("block_count")):
        a, b = "model.layers.%d." % l, "blk.%d." % l
        more[a + "block_sparse_moe.router.weight"] = w(b + "ffn_gate_inp.weight")
        both = [w(b + "ffn_%s_exps.weight" % name) for name in ("gate", "up")]
        more[a + "block_sparse_moe.experts.gate_up_proj"] = torch.cat(both, 1)
        more[a + "block_sparse_moe.experts.down_proj"] = w(b + "ffn_down_exps.weight")
        if w.has(b + "ffn_up_shexp.weight"):
            both = [w(b + "ffn_%s_shexp.weight" % name) for name in ("gate", "up")]
            more[a + "shared_mlp.input_linear.weight"] = torch.cat(both, 0)
            more[a + "shared_mlp.output_linear.weight"] = w(b + "ffn_down_shexp.weight")
    model = transformers.GraniteMoeSharedForCausalLM(config)
    return llama_like(key, neighbours(w, head), model, norms, more)


def delta_net(t, a, b, w, key):
    """The library has q, k, v and z of one head of keys behind those of another."""
    G, N, share = key("ssm.group_count"), key("ssm.state_size"), key("ssm.time_step_rank") // key("ssm.group_count")
    P, qkv = key("ssm.inner_size") // key("ssm.time_step_rank"), w(b + "attn_qkv.weight")
    q, k, v = qkv.split([G * N, G * N, key("ssm.inner_size")])
    parts = [x.reshape(G, n, -1) for x, n in ((q, N), (k, N), (v, share * P), (w(b + "attn_gate.weight"), share * P))]
    t[a + "in_proj_qkvz.weight"] = torch.cat(parts, 1).reshape(-1, qkv.shape[1])
    t[a + "in_proj_ba.weight"] = w(b + "ssm_ba.weight")
    t[a + "conv1d.weight"] = w(b + "ssm_conv1d.weight").unsqueeze(1)
    t[a + "dt_bias"] = w(b + "ssm_dt.bias").reshape(-1)
    t[a + "A_log"] = torch.log(-w(b + "ssm_a").reshape(-1))
    t[a + "norm.weight"] = w(b + "ssm_norm.weight").reshape(-1)
    t[a + "out_proj.weight"] = w(b + "ssm_out.weight")


def qwen3next(key, w):
    """Norms are stored with the 1 that the library adds, but for the one within a delta net."""
    layers = key("block_count") - key("nextn_predict_layers", 0)
    w.used.update(name for name in w.tensors if name.startswith("blk.%d." % layers))  # predicts further tokens
    linear = [w.has("blk.%d.ssm_out.weight" % l) for l in range(layers)]
    config = transformers.Qwen3NextConfig(
        **{**sizes(key), "num_hidden_layers": layers},
        vocab_size=len(w("token_embd.weight")),
        head_dim=key("attention.key_length"),
        rope_parameters={
            "rope_type": "default",
            "rope_theta": key("rope.freq_base"),
            "partial_rotary_factor": key("rope.dimension_count") / key("attention.key_length"),
        },
        linear_conv_kernel_dim=key("ssm.conv_kernel"),
        linear_key_head_dim=key("ssm.state_size"),
        linear_value_head_dim=key("ssm.inner_size") // key("ssm.time_step_rank"),
        linear_num_key_heads=key("ssm.group_count"),
        linear_num_value_heads=key("ssm.time_step_rank"),
        moe_intermediate_size=key("expert_feed_forward_length"),
        shared_expert_intermediate_size=key("expert_shared_feed_forward_length"),
        num_experts_per_tok=key("expert_used_count"),
        num_experts=key("expert_count"),
        layer_types=["linear_attention" if is_linear else "full_attention" for is_linear in linear],
        experts_implementation="eager",
    )
    t = {"model.embed_tokens.weight": w("token_embd.weight"), "lm_head.weight": w("output.weight")}
    t["model.norm.weight"] = w("output_norm.weight") - 1
    for l, is_linear in enumerate(linear):
        a, b = "model.layers.%d." % l, "blk.%d." % l
        t[a + "input_layernorm.weight"] = w(b + "attn_norm.weight") - 1
        t[a + "post_attention_layernorm.weight"] = w(b + "post_attention_norm.weight") - 1
        if is_linear:
            delta_net(t, a + "linear_attn.", b, w, key)
        else:
            for theirs, ours in (("q", "attn_q"), ("k", "attn_k"), ("v", "attn_v"), ("o", "attn_output")):
                t[a + "self_attn.%s_proj.weight" % theirs] = w(b + ours + ".weight")
            for name in "qk":
                t[a + "self_attn.%s_norm.weight" % name] = w(b + "attn_%s_norm.weight" % name) - 1
        t[a + "mlp.gate.weight"] = w(b + "ffn_gate_inp.weight")
        t[a + "mlp.experts.gate_up_proj"] = torch.cat([w(b + "ffn_%s_exps.weight" % n) for n in ("gate", "up")], 1)
        t[a + "mlp.experts.down_proj"] = w(b + "ffn_down_exps.weight")
        for name in ("gate", "up", "down"):
            t[a + "mlp.shared_expert.%s_proj.weight" % name] = w(b + "ffn_%s_shexp.weight" % name)
        t[a + "mlp.shared_expert_gate.weight"] = w(b + "ffn_gate_inp_shexp.weight")
    return fill(transformers.Qwen3NextForCausalLM(config), t)


def smollm3(key, w):
    config = transformers.SmolLM3Config(
        **sizes(key),
        vocab_size=len(w("token_embd.weight")),
        rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base")},
    )
    norms = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    head = key("embedding_length") // key("attention.head_count")
    return llama_like(key, neighbours(w, head), transformers.SmolLM3ForCausalLM(config), norms)


def olmo2(key, w):
    """The file's yarn_attn_factor is the library's own, rounded to 32 bits: left out."""
    theta, pattern = key("rope.freq_base"), key("attention.sliding_window_pattern")
    both = dict(**sizes(key), vocab_size=len(w("token_embd.weight")), tie_word_embeddings=False)
    if pattern:
        config = transformers.Olmo3Config(
            **both,
            sliding_window=key("attention.sliding_window"),
            layer_types=["sliding_attention" if windowed else "full_attention" for windowed in pattern],
            rope_parameters={
                "sliding_attention": {"rope_type": "default", "rope_theta": theta},
                "full_attention": {
                    "rope_type": key("rope.scaling.type"),
                    "rope_theta": theta,
                    "factor": key("rope.scaling.factor"),
                    "original_max_position_embeddings": key("rope.scaling.original_context_length"),
                    "beta_fast": key("rope.scaling.yarn_beta_fast"),
                    "beta_slow": key("rope.scaling.yarn_beta_slow"),
                },
            },
        )
        model = transformers.Olmo3ForCausalLM(config)
    else:
        config = transformers.Olmo2Config(**both, rope_parameters={"rope_type": "default", "rope_theta": theta})
        model = transformers.Olmo2ForCausalLM(config)
    norms = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
    norms.update({"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"})
    return llama_like(key, w, model, norms)


def decoder(key, w, names):
    """names: {name in the library's layer: tensor}, of what the file has, with its biases."""
    embedding = w("token_embd.weight")
    head = w("output.weight") if w.has("output.weight") else embedding
    t = {"model.embed_tokens.weight": embedding, "lm_head.weight": head, "model.norm.weight": w("output_norm.weight")}
    names = {"self_attn.%s_proj" % end: "attn_" + end for end in "qkv"} | {"self_attn.o_proj": "attn_output"} | names
    for l in range(key("block_count")):
        for theirs, ours in names.items():
            for end in (".weight", ".bias"):
                if w.has("blk.%d.%s" % (l, ours) + end):
                    t["model.layers.%d.%s" % (l, theirs) + end] = w("blk.%d.%s" % (l, ours) + end)
    return t


GATED = {"mlp.%s_proj" % name: "ffn_" + name for name in ("gate", "up", "down")}


def cohere(key, w):
    second = key("attention.sliding_window") is not None
    settings = dict(
        **common(key),
        vocab_size=w.tensors["token_embd.weight"][0][1],
        num_key_value_heads=key("attention.head_count_kv"),
        layer_norm_eps=key("attention.layer_norm_epsilon"),
        logit_scale=key("logit_scale"),
        max_position_embeddings=key("context_length"),
        rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base")},
        eos_token_id=0,
    )
    if second:
        config = transformers.Cohere2Config(**settings, sliding_window=key("attention.sliding_window"))
        model = transformers.Cohere2ForCausalLM(config)
    else:
        config = transformers.CohereConfig(**settings, use_qk_norm=w.has("blk.0.attn_q_norm.weight"))
        model = transformers.CohereForCausalLM(config)
    norms = {"input_layernorm": "attn_norm", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
    return fill(model, decoder(key, w, {**norms, **GATED}))


def yarn(key):
    """DeepSeek's."""
    if key("rope.scaling.type") != "yarn":
        return {"rope_type": "default", "rope_theta": key("rope.freq_base")}
    return {
        "rope_type": "yarn",
        "rope_theta": key("rope.freq_base"),
        "factor": key("rope.scaling.factor"),
        "original_max_position_embeddings": key("rope.scaling.original_context_length"),
        "mscale": 10 * key("rope.scaling.yarn_log_multiplier"),
        "mscale_all_dim": 10 * key("rope.scaling.yarn_log_multiplier"),
        "beta_fast": 32,
        "beta_slow": 1,
    }


def deepseek2(key, w):
    v3, H, rope = key("expert_gating_func", 1) == 2, key("attention.head_count"), key("rope.dimension_count")
    head = key("attention.key_length_mla", key("attention.key_length"))
    more = dict(topk_method="noaux_tc" if v3 else "group_limited_greedy" if key("expert_group_count") else "greedy")
    if v3:
        more = dict(norm_topk_prob=key("expert_weights_norm", False), num_local_experts=key("expert_count"))
    kind = "V3" if v3 else "V2"
    config = getattr(transformers, "Deepseek%sConfig" % kind)(
        **common(key),
        **more,
        vocab_size=len(w("token_embd.weight")),
        num_key_value_heads=H,
        q_lora_rank=key("attention.q_lora_rank"),
        kv_lora_rank=key("attention.kv_lora_rank"),
        qk_nope_head_dim=head - rope,
        qk_rope_head_dim=rope,
        head_dim=rope,
        v_head_dim=key("attention.value_length_mla", key("attention.value_length")),
        moe_intermediate_size=key("expert_feed_forward_length"),
        n_routed_experts=key("expert_count"),
        n_shared_experts=key("expert_shared_count"),
        num_experts_per_tok=key("expert_used_count"),
        routed_scaling_factor=key("expert_weights_scale"),
        first_k_dense_replace=key("leading_dense_block_count"),
        n_group=key("expert_group_count", 1),
        topk_group=key("expert_group_used_count", 1),
        rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=key("context_length"),
        rope_parameters=yarn(key),
        experts_implementation="eager",
        tie_word_embeddings=False,
    )
    t = {"model.embed_tokens.weight": w("token_embd.weight"), "lm_head.weight": w("output.weight")}
    t["model.norm.weight"] = w("output_norm.weight")
    for l in range(key("block_count")):
        a, b = "model.layers.%d." % l, "blk.%d." % l
        attention = {"kv_a_proj_with_mqa": "attn_kv_a_mqa", "kv_a_layernorm": "attn_kv_a_norm", "o_proj": "attn_output"}
        if key("attention.q_lora_rank"):
            attention.update({"q_a_proj": "attn_q_a", "q_a_layernorm": "attn_q_a_norm", "q_b_proj": "attn_q_b"})
        else:
            attention["q_proj"] = "attn_q"
        for theirs, ours in attention.items():
            t[a + "self_attn." + theirs + ".weight"] = w(b + ours + ".weight")
        if w.has(b + "attn_kv_b.weight"):
            both = w(b + "attn_kv_b.weight")
        else:
            both = torch.cat([w(b + "attn_k_b.weight").transpose(1, 2), w(b + "attn_v_b.weight")], 1)
        t[a + "self_attn.kv_b_proj.weight"] = both.reshape(-1, key("attention.kv_lora_rank"))
        t[a + "input_layernorm.weight"] = w(b + "attn_norm.weight")
        t[a + "post_attention_layernorm.weight"] = w(b + "ffn_norm.weight")
        dense = l < key("leading_dense_block_count")
        for name in ("gate", "up", "down"):
            end = "%s_proj.weight" % name
            if dense:
                t[a + "mlp." + end] = w(b + "ffn_%s.weight" % name)
            else:
                t[a + "mlp.shared_experts." + end] = w(b + "ffn_%s_shexp.weight" % name)
        if dense:
            continue
        t[a + "mlp.gate.weight"] = w(b + "ffn_gate_inp.weight")
        if v3:
            bias = b + "exp_probs_b"
            t[a + "mlp.gate.e_score_correction_bias"] = w(bias if w.has(bias) else bias + ".bias")
        gate_up = [w(b + "ffn_%s_exps.weight" % name) for name in ("gate", "up")]
        t[a + "mlp.experts.gate_up_proj"] = torch.cat(gate_up, 1)
        t[a + "mlp.experts.down_proj"] = w(b + "ffn_down_exps.weight")
    return fill(getattr(transformers, "Deepseek%sForCausalLM" % kind)(config), t)


def glm4(key, w):
    config = transformers.Glm4Config(
        **sizes(key),
        vocab_size=w.tensors["token_embd.weight"][0][1],
        head_dim=key("embedding_length") // key("attention.head_count"),
        attention_bias=w.has("blk.0.attn_q.bias"),
        rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base"), "partial_rotary_factor": 0.5},
    )
    names = {
        "input_layernorm": "attn_norm",
        "post_self_attn_layernorm": "post_attention_norm",
        "post_attention_layernorm": "ffn_norm",
        "post_mlp_layernorm": "post_ffw_norm",
        "mlp.gate_up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    return fill(transformers.Glm4ForCausalLM(config), decoder(key, w, names))


def glm4moe(key, w):
    layers = key("block_count") - key("nextn_predict_layers", 0)
    w.used.update(name for name in w.tensors if name.startswith("blk.%d." % layers))  # predicts further tokens
    config = transformers.Glm4MoeConfig(
        **{**sizes(key), "num_hidden_layers": layers},
        vocab_size=len(w("token_embd.weight")),
        head_dim=key("attention.key_length"),
        attention_bias=w.has("blk.0.attn_q.bias"),
        use_qk_norm=w.has("blk.0.attn_q_norm.weight"),
        rope_parameters={
            "rope_type": "default",
            "rope_theta": key("rope.freq_base"),
            "partial_rotary_factor": key("rope.dimension_count") / key("attention.key_length"),
        },
        moe_intermediate_size=key("expert_feed_forward_length"),
        num_experts_per_tok=key("expert_used_count"),
        n_shared_experts=key("expert_shared_count"),
        n_routed_experts=key("expert_count"),
        routed_scaling_factor=key("expert_weights_scale"),
        first_k_dense_replace=key("leading_dense_block_count"),
        norm_topk_prob=key("expert_weights_norm"),
        experts_implementation="eager",
    )
    names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm", **GATED}
    names.update({"self_attn.%s_norm" % end: "attn_%s_norm" % end for end in "qk"})
    names.update({"mlp.gate": "ffn_gate_inp"})
    names.update({"mlp.shared_experts.%s_proj" % name: "ffn_%s_shexp" % name for name in ("gate", "up", "down")})
    t = decoder(lambda name: layers if name == "block_count" else key(name), w, names)
    for l in range(key("leading_dense_block_count"), layers):
        a, b = "model.layers.%d.mlp." % l, "blk.%d." % l
        t[a + "gate.e_score_correction_bias"] = w(b + "exp_probs_b.bias")
        t[a + "experts.gate_up_proj"] = torch.cat([w(b + "ffn_%s_exps.weight" % name) for name in ("gate", "up")], 1)
        t[a + "experts.down_proj"] = w(b + "ffn_down_exps.weight")
    return fill(transformers.Glm4MoeForCausalLM(config), t)


def llama4(key, w):
    """The library makes factors of frequencies by Llama 3's rule: here they are the file's."""
    step = key("interleave_moe_layer_step")
    config = transformers.Llama4TextConfig(
        **{**sizes(key), "intermediate_size": key("expert_feed_forward_length")},
        vocab_size=len(w("token_embd.weight")),
        intermediate_size_mlp=key("feed_forward_length"),
        head_dim=key("attention.key_length"),
        num_experts_per_tok=key("expert_used_count"),
        num_local_experts=key("expert_count"),
        interleave_moe_layer_step=step,
        attention_chunk_size=key("attention.sliding_window"),
        floor_scale=key("attention.temperature_length"),
        attn_scale=key("attention.temperature_scale"),
        rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base")},
        tie_word_embeddings=False,
    )
    names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    names.update({"feed_forward.%s_proj" % name: "ffn_" + name for name in ("gate", "up", "down")})
    names.update(
        {"feed_forward.shared_expert.%s_proj" % name: "ffn_%s_shexp" % name for name in ("gate", "up", "down")}
    )
    names["feed_forward.router"] = "ffn_gate_inp"
    t = decoder(key, w, names)
    for l in range(step - 1, key("block_count"), step):
        a, b = "model.layers.%d.feed_forward.experts." % l, "blk.%d." % l
        gate_up = torch.cat([w(b + "ffn_%s_exps.weight" % name) for name in ("gate", "up")], 1)
        t[a + "gate_up_proj"] = gate_up.transpose(1, 2)
        t[a + "down_proj"] = w(b + "ffn_down_exps.weight").transpose(1, 2)
    model = fill(transformers.Llama4ForCausalLM(config), t)
    if w.has("rope_freqs.weight"):
        model.model.rotary_emb.inv_freq /= w("rope_freqs.weight")
    return model


def starcoder2(key, w):
    config = transformers.Starcoder2Config(
        **common(key),
        vocab_size=w.tensors["token_embd.weight"][0][1],
        num_key_value_heads=key("attention.head_count_kv"),
        norm_epsilon=key("attention.layer_norm_epsilon"),
        max_position_embeddings=key("context_length"),
        rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base")},
        sliding_window=None,
        use_bias=True,
        tie_word_embeddings=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    names.update({"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"})
    t = decoder(key, w, names)
    t["model.norm.bias"] = w("output_norm.bias")
    return fill(transformers.Starcoder2ForCausalLM(config), t)


def phi3(key, w):
    """The library takes the long factors by the length of the text, which is past the first range here."""
    trained = key("rope.scaling.original_context_length")
    config = transformers.Phi3Config(
        **sizes(key),
        vocab_size=w.tensors["token_embd.weight"][0][1],
        original_max_position_embeddings=trained,
        rope_parameters={
            "rope_type": "longrope",
            "rope_theta": key("rope.freq_base", 10000.0),
            "partial_rotary_factor": key("rope.dimension_count")
            * key("attention.head_count")
            / key("embedding_length"),
            "original_max_position_embeddings": trained,
            "long_factor": w("rope_factors_long.weight").tolist(),
            "short_factor": w("rope_factors_short.weight").tolist(),
            "attention_factor": key("rope.scaling.attn_factor"),
        },
        tie_word_embeddings=False,
    )
    names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
    names.update({"self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down"})
    return fill(transformers.Phi3ForCausalLM(config), decoder(key, w, names))


def mixer(t, a, b, w):
    """Mamba-2's, at `a` in the library's model."""
    t[a + "in_proj.weight"] = w(b + "ssm_in.weight")
    t[a + "conv1d.weight"] = w(b + "ssm_conv1d.weight").unsqueeze(1)
    t[a + "conv1d.bias"] = w(b + "ssm_conv1d.bias")
    t[a + "dt_bias"] = w(b + "ssm_dt.bias").reshape(-1)
    t[a + "A_log"] = torch.log(-w(b + "ssm_a").reshape(-1))
    t[a + "D"] = w(b + "ssm_d").reshape(-1)
    if w.has(b + "ssm_norm.weight"):
        t[a + "norm.weight"] = w(b + "ssm_norm.weight").reshape(-1)
    t[a + "out_proj.weight"] = w(b + "ssm_out.weight")


def mixer_sizes(key):
    inner, H = key("ssm.inner_size"), key("ssm.time_step_rank")
    return dict(
        mamba_n_heads=H,
        mamba_d_head=inner // H,
        mamba_n_groups=key("ssm.group_count"),
        mamba_d_state=key("ssm.state_size"),
        mamba_d_conv=key("ssm.conv_kernel"),
        mamba_expand=inner // key("embedding_length"),
        mamba_chunk_size=16,
        mamba_conv_bias=True,
        mamba_proj_bias=False,
    )


def falcon_h1(key, w):
    """The multipliers are in the weights; the norm stands behind the gate, as files have it."""
    config = transformers.FalconH1Config(
        **sizes(key),
        **mixer_sizes(key),
        vocab_size=len(w("token_embd.weight")),
        head_dim=key("attention.key_length"),
        mamba_d_ssm=key("ssm.inner_size"),
        mamba_rms_norm=w.has("blk.0.ssm_norm.weight"),
        mamba_norm_before_gate=False,
        rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base")},
    )
    t = {"model.embed_tokens.weight": w("token_embd.weight"), "lm_head.weight": w("output.weight")}
    t["model.final_layernorm.weight"] = w("output_norm.weight")
    for l in range(key("block_count")):
        a, b = "model.layers.%d." % l, "blk.%d." % l
        t[a + "input_layernorm.weight"] = w(b + "attn_norm.weight")
        t[a + "pre_ff_layernorm.weight"] = w(b + "ffn_norm")
        for theirs, ours in (("q", "attn_q"), ("k", "attn_k"), ("v", "attn_v"), ("o", "attn_output")):
            t[a + "self_attn.%s_proj.weight" % theirs] = w(b + ours + ".weight")
        for name in ("gate", "up", "down"):
            t[a + "feed_forward.%s_proj.weight" % name] = w(b + "ffn_%s.weight" % name)
        mixer(t, a + "mamba.", b, w)
    return fill(transformers.FalconH1ForCausalLM(config), t)


def granitehybrid(key, w):
    by_layer, X = key("attention.head_count_kv"), key("expert_count", 0)
    head = key("embedding_length") // key("attention.head_count")
    config = transformers.GraniteMoeHybridConfig(
        **{**sizes(key), "num_key_value_heads": max(by_layer)},
        **mixer_sizes(key),
        vocab_size=len(w("token_embd.weight")),
        rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base", 10000.0)},
        position_embedding_type="rope" if key("rope.scaling.finetuned") else None,
        layer_types=["full_attention" if kv_heads else "linear_attention" for kv_heads in by_layer],
        embedding_multiplier=key("embedding_scale"),
        attention_multiplier=key("attention.scale"),
        residual_multiplier=key("residual_scale"),
        logits_scaling=key("logit_scale"),
        num_local_experts=X,
        num_experts_per_tok=key("expert_used_count", 0),
        shared_intermediate_size=key("expert_shared_feed_forward_length"),
        experts_implementation="eager",
    )
    t, w = {}, neighbours(w, head)
    t["model.embed_tokens.weight"] = t["lm_head.weight"] = w("token_embd.weight")
    t["model.norm.weight"] = w("output_norm.weight")
    for l, kv_heads in enumerate(by_layer):
        a, b = "model.layers.%d." % l, "blk.%d." % l
        t[a + "input_layernorm.weight"] = w(b + "attn_norm.weight")
        t[a + "post_attention_layernorm.weight"] = w(b + "ffn_norm.weight")
        if kv_heads:
            for theirs, ours in (("q", "attn_q"), ("k", "attn_k"), ("v", "attn_v"), ("o", "attn_output")):
                t[a + "self_attn.%s_proj.weight" % theirs] = w(b + ours + ".weight")
        else:
            mixer(t, a + "mamba.", b, w)
        both = [w(b + "ffn_%s%s.weight" % (name, "_shexp" if X else "")) for name in ("gate", "up")]
        t[a + "shared_mlp.input_linear.weight"] = torch.cat(both, 0)
        t[a + "shared_mlp.output_linear.weight"] = w(b + "ffn_down%s.weight" % ("_shexp" if X else ""))
        if not X:
            continue
        t[a + "block_sparse_moe.router.weight"] = w(b + "ffn_gate_inp.weight")
        both = [w(b + "ffn_%s_exps.weight" % name) for name in ("gate", "up")]
        t[a + "block_sparse_moe.experts.gate_up_proj"] = torch.cat(both, 1)
        t[a + "block_sparse_moe.experts.down_proj"] = w(b + "ffn_down_exps.weight")
    return fill(transformers.GraniteMoeHybridForCausalLM(config), t)


def mamba2(key, w):
    inner, H = key("ssm.inner_size"), key("ssm.time_step_rank")
    config = transformers.Mamba2Config(
        vocab_size=len(w("token_embd.weight")),
        hidden_size=key("embedding_length"),
        num_hidden_layers=key("block_count"),
        expand=inner // key("embedding_length"),
        num_heads=H,
        head_dim=inner // H,
        state_size=key("ssm.state_size"),
        n_groups=key("ssm.group_count"),
        conv_kernel=key("ssm.conv_kernel"),
        chunk_size=16,
        layer_norm_epsilon=key("attention.layer_norm_rms_epsilon"),
        rms_norm=True,
        use_bias=False,
        use_conv_bias=True,
        residual_in_fp32=False,
        tie_word_embeddings=False,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
    )
    t = {"backbone.embeddings.weight": w("token_embd.weight"), "lm_head.weight": w("token_embd.weight")}
    t["backbone.norm_f.weight"] = w("output_norm.weight")
    for l in range(key("block_count")):
        a, b = "backbone.layers.%d." % l, "blk.%d." % l
        t[a + "norm.weight"] = w(b + "attn_norm.weight")
        mixer(t, a + "mixer.", b, w)
    return fill(transformers.Mamba2ForCausalLM(config), t)


def bert(key, w):
    config = transformers.BertConfig(
        **common(key),
        vocab_size=len(w("token_embd.weight")),
        max_position_embeddings=key("context_length"),
        type_vocab_size=len(w("token_types.weight")),
        layer_norm_eps=key("attention.layer_norm_epsilon"),
        hidden_act="gelu",
    )
    t = {
        "embeddings.word_embeddings.weight": w("token_embd.weight"),
        "embeddings.position_embeddings.weight": w("position_embd.weight"),
        "embeddings.token_type_embeddings.weight": w("token_types.weight"),
    }
    pairs = {"embeddings.LayerNorm": "token_embd_norm"}
    for l in range(key("block_count")):
        a, b = "encoder.layer.%d." % l, "blk.%d." % l
        pairs.update({a + "attention.self." + n: b + "attn_" + n[0] for n in ("query", "key", "value")})
        pairs.update({a + "attention.output.dense": b + "attn_output"})
        pairs.update({a + "attention.output.LayerNorm": b + "attn_output_norm"})
        pairs.update({a + "intermediate.dense": b + "ffn_up", a + "output.dense": b + "ffn_down"})
        pairs.update({a + "output.LayerNorm": b + "layer_output_norm"})
    for theirs, ours in pairs.items():
        t[theirs + ".weight"], t[theirs + ".bias"] = w(ours + ".weight"), w(ours + ".bias")
    if not w.has("cls.weight"):
        return fill(transformers.BertModel(config, add_pooling_layer=False), t)
    config.num_labels = len(w("cls.output.bias"))
    t = {"bert." + name: value for name, value in t.items()}
    for theirs, ours in (("bert.pooler.dense", "cls"), ("classifier", "cls.output")):
        t[theirs + ".bias"] = w(ours + ".bias")
        t[theirs + ".weight"] = w(ours + ".weight").reshape(len(t[theirs + ".bias"]), -1)
    return fill(transformers.BertForSequenceClassification(config), t)


def nomic_bert(key, w):
    config = transformers.NomicBertConfig(
        **common(key),
        vocab_size=len(w("token_embd.weight")),
        max_position_embeddings=key("context_length"),
        type_vocab_size=len(w("token_types.weight")),
        layer_norm_eps=key("attention.layer_norm_epsilon"),
        hidden_act="silu",
        rope_parameters={"rope_type": "default", "rope_theta": key("rope.freq_base")},
    )
    t = {
        "embeddings.word_embeddings.weight": w("token_embd.weight"),
        "embeddings.token_type_embeddings.weight": w("token_types.weight"),
    }
    norms = {"embeddings.LayerNorm": "token_embd_norm"}
    for l in range(key("block_count")):
        a, b, E = "layers.%d." % l, "blk.%d." % l, key("embedding_length")
        qkv = w(b + "attn_qkv.weight")
        for i, name in enumerate("qkv"):
            t[a + "self_attn.%s_proj.weight" % name] = qkv[i * E : (i + 1) * E]
        t[a + "self_attn.o_proj.weight"] = w(b + "attn_output.weight")
        for name in ("gate", "up", "down"):
            t[a + "mlp.%s_proj.weight" % name] = w(b + "ffn_%s.weight" % name)
        norms.update({a + "post_attention_layernorm": b + "attn_output_norm"})
        norms.update({a + "post_mlp_layernorm": b + "layer_output_norm"})
    for theirs, ours in norms.items():
        t[theirs + ".weight"], t[theirs + ".bias"] = w(ours + ".weight"), w(ours + ".bias")
    return fill(transformers.NomicBertModel(config, add_pooling_layer=False), t)


def modern_bert(key, w):
    ranks = w.has("cls.output.weight")
    settings = dict(
        **common(key),
        vocab_size=len(w("token_embd.weight")),
        max_position_embeddings=key("context_length"),
        norm_eps=key("attention.layer_norm_epsilon"),
        hidden_activation=key("hidden_activation", "gelu"),
        local_attention=key("attention.sliding_window"),
        layer_types=[
            "sliding_attention" if l % key("attention.sliding_window_pattern") else "full_attention"
            for l in range(key("block_count"))
        ],
        rope_parameters={
            "full_attention": {"rope_type": "default", "rope_theta": key("rope.freq_base")},
            "sliding_attention": {"rope_type": "default", "rope_theta": key("rope.freq_base_swa")},
        },
        classifier_pooling="cls" if key("classifier.pooling_type") == 2 else "mean",
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
        cls_token_id=0,
        sep_token_id=0,
    )
    config = transformers.ModernBertConfig(**settings)
    config.num_labels = len(w("cls.output.bias")) if ranks else 2
    t = {"embeddings.tok_embeddings.weight": w("token_embd.weight")}
    pairs = {"embeddings.norm": "token_embd_norm", "final_norm": "output_norm"}
    for l in range(key("block_count")):
        a, b = "layers.%d." % l, "blk.%d." % l
        pairs.update({a + "attn_norm": b + "attn_norm"} if l else {})
        pairs.update(
            {a + "attn.Wqkv": b + "attn_qkv", a + "attn.Wo": b + "attn_output", a + "mlp_norm": b + "ffn_norm"}
        )
        pairs.update({a + "mlp.Wi": b + "ffn_up", a + "mlp.Wo": b + "ffn_down"})
    t.update({theirs + ".weight": w(ours + ".weight") for theirs, ours in pairs.items()})
    if not ranks:
        return fill(transformers.ModernBertModel(config), t)
    t = {"model." + name: value for name, value in t.items()}
    for theirs, ours in (("head.dense", "cls"), ("head.norm", "cls.norm"), ("classifier", "cls.output")):
        t[theirs + ".weight"] = w(ours + ".weight")
    t["classifier.bias"] = w("cls.output.bias")
    return fill(transformers.ModernBertForSequenceClassification(config), t)


MODELS = {
    "bert": bert,
    "cohere2": cohere,
    "command-r": cohere,
    "deepseek2": deepseek2,
    "falcon-h1": falcon_h1,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "gemma3n": gemma3n,
    "glm4": glm4,
    "glm4moe": glm4moe,
    "granite": granite,
    "granitehybrid": granitehybrid,
    "granitemoe": granite,
    "llama4": llama4,
    "mamba2": mamba2,
    "modern-bert": modern_bert,
    "nomic-bert": nomic_bert,
    "olmo2": olmo2,
    "phi3": phi3,
    "qwen3next": qwen3next,
    "smollm3": smollm3,
    "starcoder2": starcoder2,
}


def difference(ours, theirs):
    flat = [v for row in theirs for v in row]
    mean = math.fsum(flat) / len(flat)
    spread = math.sqrt(math.fsum((v - mean) ** 2 for v in flat) / len(flat)) or 1.0  # of one score there is none
    return max(abs(a - b) for x, y in zip(ours, theirs, strict=True) for a, b in zip(x, y, strict=True)) / spread


def compare(path, family):
    meta, tensors = gguf.read(path)
    arch = meta["general.architecture"]
    w = Weights(tensors)
    model = MODELS[arch](lambda name, other=None: meta.get(arch + "." + name, other), w)
    unread = set(tensors) - w.used
    if unread:
        sys.exit("%s: unread: %s" % (family, " ".join(sorted(unread))))
    n_vocab = tensors["token_embd.weight"][0][1]
    r = random.Random(family)
    tokens = [r.randrange(n_vocab) for _ in range(N)]
    sequence = families.model(meta, tensors, meta[arch + ".context_length"])
    second = sequence.second(N) if sequence.encoder else 0
    types = {"token_type_ids": torch.tensor([[0] * second + [1] * (N - second)])} if second else {}
    with torch.no_grad():
        theirs = model(torch.tensor([tokens]), **types)
    if "cls.weight" in tensors:
        rows = [sequence.embed(tokens, second) if second else sequence.embed(tokens)]
        theirs = theirs.logits.tolist()
    elif sequence.encoder:
        rows = sequence.rows_of(tokens)
        theirs = theirs.last_hidden_state[0].tolist()
    else:
        rows = [sequence.step(token) for token in tokens]
        theirs = theirs.logits[0].tolist()
    return difference(rows, theirs)


def main():
    no_singles()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for family in sys.argv[1:] or families.FAMILIES:
            path = os.path.join(folder, family + ".gguf")
            families.write(path, family)
            arch = gguf.read(path)[0]["general.architecture"]
            if arch not in MODELS:
                continue
            error = compare(path, family)
            print("%-20s %.1e" % (family, error))
            failed |= not error <= BOUND
    sys.exit(failed)


if __name__ == "__main__":
    main()
