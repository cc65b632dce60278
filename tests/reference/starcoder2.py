"""StarCoder 2 (BigCode 2024): tiny models of it, and its forward pass: layer norms, biases everywhere, GELU."""

import math

import gguf
import models
from forward import Model, gelu

FAMILIES = {"starcoder2": False, "starcoder2-untied": True}  # name: whether it has an output of its own
E, F, H, G, D, L = 64, 96, 4, 2, 16, 2


def write(path, family):
    w = models.Weights(family)
    w.matrix("token_embd", E, models.V, 1.0)
    if FAMILIES[family]:
        w.matrix("output", E, models.V)
    for name in ("output_norm", *("blk.%d.%s" % (l, norm) for l in range(L) for norm in ("attn_norm", "ffn_norm"))):
        w.vector(name + ".weight", E)
        w.vector(name + ".bias", E, 0.0)
    for l in range(L):
        b, scores = "blk.%d." % l, 2 / math.sqrt(E)
        for name, k, n, sd in (
            ("attn_q", E, H * D, scores),
            ("attn_k", E, G * D, scores),
            ("attn_v", E, G * D, scores),
            ("attn_output", H * D, E, None),
            ("ffn_up", E, F, None),
            ("ffn_down", F, E, None),
        ):
            w.matrix(b + name, k, n, sd)
            w.vector(b + name + ".bias", n, 0.0)
    shape = {"context_length": 512, "embedding_length": E, "block_count": L, "feed_forward_length": F}
    shape.update({"attention.head_count": H, "attention.head_count_kv": G, "attention.layer_norm_epsilon": 1e-5})
    gguf.write(path, models.named("starcoder2", family, {**shape, "rope.freq_base": 1e5}), w.t)


class StarCoder2(Model):
    def feed_forward(self, h, b):
        out = self.linear(list(map(gelu, self.linear(h, b + "ffn_up"))), b + "ffn_down")
        self.tap(b, "ffn_down", out)
        return out
