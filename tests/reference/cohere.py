"""Cohere's models (Command R, R+, R7B, A): tiny models of them, and their forward pass.

One layer norm without a bias feeds both branches of a layer. cohere2: three layers of four rotate and see a window, the
fourth does neither. Logits are multiplied by logit_scale.
"""

import math

import gguf
import models
from forward import HEAD_NORMS, Model, silu_gate

# name: architecture, layers, keys
FAMILIES = {
    "command-r": ("command-r", 2, {"logit_scale": 0.25}),
    "command-r-plus": ("command-r", 2, {"logit_scale": 0.8}),  # with a norm of each head
    "cohere2": ("cohere2", 5, {"logit_scale": 0.25, "attention.sliding_window": 8, "rope.dimension_count": 16}),
}
E, F, H, G, D = 64, 96, 4, 2, 16


def write(path, family):
    arch, L, keys = FAMILIES[family]
    w = models.Weights(family)
    w.matrix("token_embd", E, models.V, 1.0)
    w.vector("output_norm.weight", E)
    for l in range(L):
        b = "blk.%d." % l
        w.vector(b + "attn_norm.weight", E)
        for name, heads in (("attn_q", H), ("attn_k", G), ("attn_v", G)):
            w.matrix(b + name, E, heads * D, 1.4 / math.sqrt(E))
        if family == "command-r-plus":
            w.vector(b + "attn_q_norm.weight", D, slabs=H)
            w.vector(b + "attn_k_norm.weight", D, slabs=G)
        w.matrix(b + "attn_output", H * D, E)
        for name, k, n in (("ffn_gate", E, F), ("ffn_up", E, F), ("ffn_down", F, E)):
            w.matrix(b + name, k, n)
    shape = {"context_length": 512, "embedding_length": E, "block_count": L, "feed_forward_length": F}
    shape.update({"attention.head_count": H, "attention.head_count_kv": G, "attention.layer_norm_epsilon": 1e-5})
    shape.update({"rope.freq_base": 50000.0, "rope.scaling.type": "none"})
    gguf.write(path, models.named(arch, family, {**shape, **keys}), w.t)


class Cohere(Model):
    def tap(self, scope, kind, value):
        if "blk.0.attn_q_norm.weight" in self.t and kind in HEAD_NORMS:
            self.taps.setdefault((scope + HEAD_NORMS[kind], kind), []).append(value)
        else:
            super().tap(scope, kind, value)

    def everything(self, layer):
        return self.arch == "cohere2" and (layer + 1) % 4 == 0

    def window(self, layer):
        return math.inf if self.everything(layer) else self.key("attention.sliding_window", math.inf)

    def rotation_of(self, layer):
        return None if self.everything(layer) else super().rotation_of(layer)

    def head_norm(self, x, name):
        """Each head's weights are its own."""
        w, out = self.t[name + ".weight"][1], []
        for h in range(0, len(x), self.D):
            part = x[h : h + self.D]
            mean = math.fsum(part) / self.D
            s = 1.0 / math.sqrt(math.fsum((v - mean) ** 2 for v in part) / self.D + self.eps)
            out += [(v - mean) * s * a for v, a in zip(part, w[h : h + self.D], strict=True)]
        return out

    def layer(self, x, l):
        b = "blk.%d." % l
        h = self.norm(x, b + "attn_norm")
        g, u = self.linear(h, b + "ffn_gate"), self.linear(h, b + "ffn_up")
        f = self.linear(list(map(silu_gate, g, u)), b + "ffn_down")
        self.tap(b, "ffn_down", f)
        o = self.attention_branch(x, l, b)
        x = [i + j + k for i, j, k in zip(x, o, f, strict=True)]
        self.tap(b, "add2", x)
        return x

    def output(self, x):
        return [v * self.key("logit_scale") for v in super().output(x)]
