"""Gemma 3 (Gemma Team 2025), text: a tiny model of it, and its forward pass.

Gemma 2's, but: heads of q and k are normed, nothing is bent, every sixth layer is global, the others see a window, and
the two kinds rotate by bases of their own; the global ones are stretched.
"""

import math

import gguf
import models
from forward import Model, dot
from gemma2 import Gemma2

# name: embedding, feed-forward, heads, heads of k and v, values a head, layers, keys
FAMILIES = {
    "gemma3": (
        64, 64, 4, 2, 32, 7,
        {
            "attention.key_length": 32,
            "attention.value_length": 32,
            "attention.sliding_window": 8,
            "rope.freq_base": 100000.0,
            "rope.freq_base_swa": 1000.0,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
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
        for name in ("attn_q_norm", "attn_k_norm"):
            w.vector(b + name + ".weight", D)
        for name, heads in (("attn_q", H), ("attn_k", G), ("attn_v", G)):
            w.matrix(b + name, E, heads * D)
        w.matrix(b + "attn_output", H * D, E)
        for name, k, n in (("ffn_gate", E, F), ("ffn_up", E, F), ("ffn_down", F, E)):
            w.matrix(b + name, k, n)
    shape = {"context_length": 512, "embedding_length": E, "block_count": L, "feed_forward_length": F}
    shape.update({"attention.head_count": H, "attention.head_count_kv": G, "attention.layer_norm_rms_epsilon": 1e-6})
    gguf.write(path, models.named("gemma3", family, {**shape, **keys}), w.t)


class Gemma3(Gemma2):
    def __init__(self, meta, tensors, context):
        super().__init__(meta, tensors, context)
        self.scale = 1 / math.sqrt(self.E // self.H if self.L == 62 else self.D)
        n = self.D // 2
        self.window_freq = [self.key("rope.freq_base_swa", 10000.0) ** (-i / n) for i in range(n)]

    def window(self, layer):
        return math.inf if layer % 6 == 5 else self.key("attention.sliding_window") or math.inf

    def rotation_of(self, layer):
        return (self.freq if self.window(layer) == math.inf else self.window_freq), 1.0

    def score(self, q, k):
        return dot(q, k) * self.scale

    def output(self, x):
        return Model.output(self, x)
