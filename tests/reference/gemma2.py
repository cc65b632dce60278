"""Gemma 2 (Gemma Team 2024): tiny models of it, and their forward pass.

A branch is normed before and behind; scores and logits are bent by tanh; every other layer, from the first on, sees a
window; embeddings grow by the root of their width.
"""

import math

import gguf
import models
from forward import Model, dot, gelu

# name: embedding, feed-forward, heads, heads of k and v, values a head, layers, keys
FAMILIES = {
    "gemma2": (
        96, 96, 4, 2, 32, 4,
        {
            "attention.key_length": 32,
            "attention.value_length": 32,
            "attention.sliding_window": 8,
            "attn_logit_softcapping": 5.0,  # scores here have a spread of about 3
            "final_logit_softcapping": 30.0,
        },
    )
}  # fmt: skip


def write(path, family):
    E, F, H, G, D, L, keys = FAMILIES[family]
    w = models.Weights(family)
    w.matrix("token_embd", E, models.V, 1.0)
    w.vector("output_norm.weight", E)
    for l in range(L):
        b = "blk.%d." % l
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            w.vector(b + name + ".weight", E)
        for name, heads in (("attn_q", H), ("attn_k", G), ("attn_v", G)):
            w.matrix(b + name, E, heads * D, 2 / math.sqrt(E))
        w.matrix(b + "attn_output", H * D, E)
        for name, k, n in (("ffn_gate", E, F), ("ffn_up", E, F), ("ffn_down", F, E)):
            w.matrix(b + name, k, n)
    shape = {"context_length": 512, "embedding_length": E, "block_count": L, "feed_forward_length": F}
    shape.update({"attention.head_count": H, "attention.head_count_kv": G, "attention.layer_norm_rms_epsilon": 1e-6})
    gguf.write(path, models.named("gemma2", family, {**shape, **keys}), w.t)


def cap(x, most):
    return most * math.tanh(x / most)


class Gemma2(Model):
    def __init__(self, meta, tensors, context):
        super().__init__(meta, tensors, context)
        # published models have q scaled by the values a head, but for the one of 46 layers: by width / heads
        self.scale = 1 / math.sqrt(self.E // self.H if self.L == 46 else self.D)

    def window(self, layer):
        return self.key("attention.sliding_window") if layer % 2 == 0 else math.inf

    def score(self, q, k):
        return cap(dot(q, k) * self.scale, self.key("attn_logit_softcapping"))

    def layer(self, x, l):
        b = "blk.%d." % l
        x = self.normed_branch(x, self.attention_branch(x, l, b), b + "post_attention_norm")
        h = self.norm(x, b + "ffn_norm")
        self.tap(b, "ffn_norm", h)
        g, u = self.linear(h, b + "ffn_gate"), self.linear(h, b + "ffn_up")
        f = self.linear([gelu(a) * c for a, c in zip(g, u, strict=True)], b + "ffn_down")
        self.tap(b, "ffn_down", f)
        x = self.normed_branch(x, f, b + "post_ffw_norm")
        self.tap(b, "add2", x)
        return x

    def embedding(self, token):
        return [v * math.sqrt(self.E) for v in super().embedding(token)]

    def output(self, x):
        return [cap(v, self.key("final_logit_softcapping")) for v in super().output(x)]
