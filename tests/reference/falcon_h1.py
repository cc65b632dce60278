"""Falcon-H1 (TII 2025): tiny models of it, and its forward pass.

A layer has attention and Mamba-2's mixer, which read the same normed row; both are added. Not every size has a norm
within the mixer. Heads rotate by halves.
"""

import gguf
import models
from forward import Model, silu_gate
from mamba2 import Mixer, put_mixer, ssm_keys

# name: the mixer's heads, values a head, groups, state, kernel; with a norm
FAMILIES = {"falcon-h1": ((6, 16, 1, 16, 4), False), "falcon-h1-normed": ((8, 16, 2, 16, 4), True)}
E, F, H, G, D, L = 64, 96, 4, 2, 32, 2


def write(path, family):
    sizes, normed = FAMILIES[family]
    w = models.Weights(family)
    w.matrix("token_embd", E, models.V, 1.0)
    w.vector("output_norm.weight", E)
    w.matrix("output", E, models.V)
    for l in range(L):
        b = "blk.%d." % l
        w.vector(b + "attn_norm.weight", E)
        w.vector(b + "ffn_norm", E)
        for name, heads in (("attn_q", H), ("attn_k", G), ("attn_v", G)):
            w.matrix(b + name, E, heads * D)
        w.matrix(b + "attn_output", H * D, E)
        put_mixer(w, b, E, sizes, normed)
        for name, k, n in (("ffn_gate", E, F), ("ffn_up", E, F), ("ffn_down", F, E)):
            w.matrix(b + name, k, n)
    shape = {"context_length": 512, "embedding_length": E, "block_count": L, "feed_forward_length": F}
    shape.update({"attention.head_count": H, "attention.head_count_kv": G, "attention.layer_norm_rms_epsilon": 1e-5})
    shape.update({"attention.key_length": D, "attention.value_length": D, "rope.freq_base": 1e11})
    gguf.write(path, models.named("falcon-h1", family, {**shape, **ssm_keys(sizes)}), w.t)


class FalconH1(Model):
    def __init__(self, meta, tensors, context):
        super().__init__(meta, tensors, context)
        self.mixer = Mixer(self, range(self.L))

    def plain_name(self, name):
        return name + ".weight" if name.endswith(".ffn_norm") else name

    def layer(self, x, l):
        b = "blk.%d." % l
        mixed = self.mixer(self.norm(x, b + "attn_norm"), l, b)
        both = zip(x, self.attention_branch(x, l, b), mixed, strict=True)
        x = [i + j + k for i, j, k in both]
        h = self.norm(x, b + "ffn_norm")
        self.tap(b, "ffn_norm", h)
        g, u = self.linear(h, b + "ffn_gate"), self.linear(h, b + "ffn_up")
        f = self.linear(list(map(silu_gate, g, u)), b + "ffn_down")
        self.tap(b, "ffn_down", f)
        return [i + j for i, j in zip(x, f, strict=True)]
