"""GLM-4.5: tiny models of it, and its forward pass.

Llama's layers with experts, some for every token, the others chosen by sigmoids and a bias; a part of a head rotates,
by halves. The last layer of a file predicts further tokens and belongs to no pass.
"""

import math

import gguf
import models
from deepseek2 import DeepSeek2, put_net
from forward import HEAD_NORMS, Model

KEYS = {
    "attention.key_length": 32,
    "attention.value_length": 32,
    "rope.dimension_count": 16,
    "rope.freq_base": 1000.0,
    "leading_dense_block_count": 1,
    "expert_feed_forward_length": 32,
    "expert_count": 8,
    "expert_used_count": 3,
    "expert_shared_count": 1,
    "expert_group_count": 1,
    "expert_group_used_count": 1,
    "expert_gating_func": 2,
    "expert_weights_norm": True,
}

# name: heads of q and k are normed, keys; 355B has these norms, Air has none
FAMILIES = {
    "glm4moe": (True, {**KEYS, "expert_weights_scale": 2.5, "nextn_predict_layers": 1}),
    "glm4moe-air": (False, {**KEYS, "expert_weights_scale": 1.0}),
}
E, F, H, G, D, L = 64, 96, 4, 2, 32, 3


def put_layer(w, b, normed, keys, dense):
    for name in ("attn_norm", "post_attention_norm"):
        w.vector(b + name + ".weight", E)
    for name, heads in (("attn_q", H), ("attn_k", G), ("attn_v", G)):
        w.matrix(b + name, E, heads * D, 1.5 / math.sqrt(E))
        w.vector(b + name + ".bias", heads * D, 0.0)
    if normed:
        w.vector(b + "attn_q_norm.weight", D)
        w.vector(b + "attn_k_norm.weight", D)
    w.matrix(b + "attn_output", H * D, E)
    if dense:
        put_net(w, b, E, F, "")
        return
    w.matrix(b + "ffn_gate_inp", E, keys["expert_count"], 2 / math.sqrt(E))
    w.vector(b + "exp_probs_b.bias", keys["expert_count"], 0.0, 0.3)
    put_net(w, b, E, keys["expert_feed_forward_length"], "_exps", keys["expert_count"])
    put_net(w, b, E, keys["expert_feed_forward_length"] * keys["expert_shared_count"], "_shexp")


def write(path, family):
    normed, keys = FAMILIES[family]
    w, more = models.Weights(family), keys.get("nextn_predict_layers", 0)
    w.matrix("token_embd", E, models.V, 1.0)
    w.vector("output_norm.weight", E)
    w.matrix("output", E, models.V)
    for l in range(L + more):
        put_layer(w, "blk.%d." % l, normed, keys, l < keys["leading_dense_block_count"])
    for l in range(L, L + more):
        w.matrix("blk.%d.nextn.eh_proj" % l, 2 * E, E)
        for name in ("enorm", "hnorm", "shared_head_norm"):
            w.vector("blk.%d.nextn.%s.weight" % (l, name), E)
    shape = {"context_length": 512, "embedding_length": E, "block_count": L + more, "feed_forward_length": F}
    shape.update({"attention.head_count": H, "attention.head_count_kv": G, "attention.layer_norm_rms_epsilon": 1e-5})
    gguf.write(path, models.named("glm4moe", family, {**shape, **keys}), w.t)


class Glm4Moe(Model):
    route, net = DeepSeek2.route, DeepSeek2.net
    feed_forward = DeepSeek2.feed_forward

    def tap(self, scope, kind, value):
        name = kind
        if scope + "attn_q_norm.weight" in self.t:
            name = HEAD_NORMS.get(kind, kind)
        if kind == "add2" and scope + "ffn_up_shexp.weight" in self.t:  # added third
            name = "add3"
        self.taps.setdefault((scope + name, kind), []).append(value)
