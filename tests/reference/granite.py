"""Granite 3 and 4 (IBM 2024, 2025), dense and with experts: tiny models of it, and their forward pass.

Llama's, with a scale of the embedding, of the scores, and of each branch before it is added; one divides the logits.
The experts' weights are a softmax over the chosen ones; a shared expert has no gate. Most layers of a hybrid have
Mamba-2's mixer in the place of attention; the others rotate where the file says so.
"""

import gguf
import models
from forward import Model, silu_gate
from mamba2 import Mixer, put_mixer, ssm_keys

SCALES = {"embedding_scale": 6.0, "attention.scale": 0.2, "residual_scale": 0.4, "logit_scale": 3.0}
EXPERTS = {"expert_count": 8, "expert_used_count": 3}

# name: architecture, feed-forward, keys
FAMILIES = {
    "granite": ("granite", 96, SCALES),
    "granitemoe": ("granitemoe", 32, {**SCALES, **EXPERTS}),
    "granitemoe-shared": ("granitemoe", 32, {**SCALES, **EXPERTS, "expert_shared_feed_forward_length": 48}),
    "granitehybrid": (
        "granitehybrid", 32,
        {
            **SCALES, **EXPERTS,
            "expert_shared_feed_forward_length": 48,
            "attention.head_count_kv": [0, 2, 0],
            "rope.scaling.finetuned": False,
        },
    ),
    "granitehybrid-dense": (
        "granitehybrid", 96,
        {
            **SCALES,
            "expert_shared_feed_forward_length": 96,
            "attention.head_count_kv": [2, 0],
            "rope.scaling.finetuned": True,
        },
    ),
}  # fmt: skip
E, H, G, D = 64, 4, 2, 16
# heads, values a head, groups, state, kernel
MIXERS = {"granitehybrid": (8, 16, 1, 16, 4), "granitehybrid-dense": (8, 16, 2, 16, 4)}


def write(path, family):
    arch, F, keys = FAMILIES[family]
    w, X, by_layer = models.Weights(family), keys.get("expert_count"), keys.get("attention.head_count_kv", [G, G])
    shared = keys.get("expert_shared_feed_forward_length") if X else None
    w.matrix("token_embd", E, models.V, 1.0)
    w.vector("output_norm.weight", E)
    for l, kv_heads in enumerate(by_layer):
        b = "blk.%d." % l
        for name in ("attn_norm", "ffn_norm"):
            w.vector(b + name + ".weight", E)
        if kv_heads:
            for name, heads in (("attn_q", H), ("attn_k", G), ("attn_v", G)):
                w.matrix(b + name, E, heads * D)
            w.matrix(b + "attn_output", H * D, E)
        else:
            put_mixer(w, b, E, MIXERS[family])
        if X:  # far apart: a rounding does not choose other experts
            w.matrix(b + "ffn_gate_inp", E, X, 2.0)
        kinds = [("_exps" if X else "", F, X)] + ([("_shexp", shared, None)] if shared else [])
        for end, n, slabs in kinds:
            w.matrix(b + "ffn_gate" + end, E, n, slabs=slabs)
            w.matrix(b + "ffn_up" + end, E, n, slabs=slabs)
            w.matrix(b + "ffn_down" + end, n, E, slabs=slabs)
    shape = {"context_length": 512, "embedding_length": E, "block_count": len(by_layer), "feed_forward_length": F}
    shape.update({"attention.head_count": H, "attention.head_count_kv": G, "attention.layer_norm_rms_epsilon": 1e-5})
    if family in MIXERS:
        shape.update(ssm_keys(MIXERS[family]))
    gguf.write(path, models.named(arch, family, {**shape, "rope.dimension_count": D, **keys}), w.t)


class Granite(Model):
    def __init__(self, meta, tensors, context):
        super().__init__(meta, tensors, context)
        self.scale, self.share = self.key("attention.scale"), self.key("residual_scale")

    def tap(self, scope, kind, value):
        shared = scope + "ffn_up_shexp.weight" in self.t  # added third
        super().tap(scope, "add3" if kind == "add2" and shared else kind, value)

    def attention_branch(self, x, l, b):
        return [self.share * v for v in super().attention_branch(x, l, b)]

    def route(self, h, b):
        return [(e, self.share * weight) for e, weight in super().route(h, b)]

    def feed_forward(self, h, b):
        out = super().feed_forward(h, b)
        if not self.experts:
            return [self.share * v for v in out]
        if b + "ffn_up_shexp.weight" not in self.t:
            return out
        g, u = self.linear(h, b + "ffn_gate_shexp"), self.linear(h, b + "ffn_up_shexp")
        shared = self.linear(list(map(silu_gate, g, u)), b + "ffn_down_shexp")
        self.tap(b, "ffn_down_shexp", shared)
        return [a + self.share * v for a, v in zip(out, shared, strict=True)]

    def embedding(self, token):
        return [v * self.key("embedding_scale") for v in super().embedding(token)]

    def output(self, x):
        return [v / self.key("logit_scale") for v in super().output(x)]


class Hybrid(Granite):
    def __init__(self, meta, tensors, context):
        super().__init__(meta, tensors, context)
        by_layer = self.key("attention.head_count_kv")
        self.G = max(by_layer)
        self.mixer = Mixer(self, [l for l, kv_heads in enumerate(by_layer) if not kv_heads])

    def tap(self, scope, kind, value):
        mixes, shared = scope + "ssm_in.weight" in self.t, scope + "ffn_up_shexp.weight" in self.t
        if not mixes:
            return super().tap(scope, kind, value)
        names = {"add2": "add5" if shared else "add4", "glu": "glu.2"}  # the mixer has two sums and a gate of its own
        self.taps.setdefault((scope + names.get(kind, kind), kind), []).append(value)

    def rotation_of(self, layer):
        return super().rotation_of(layer) if self.key("rope.scaling.finetuned") else None

    def attention_branch(self, x, l, b):
        if l not in self.mixer.states:
            return super().attention_branch(x, l, b)
        return [self.share * v for v in self.mixer(self.before_attention(x, b), l, b)]
