"""GLM-4-0414: tiny models of it, and its forward pass.

A branch is normed before and behind; half of a head rotates, neighbours together; gate and up are one tensor.
"""

import math

import gguf
import models
from forward import Model, silu_gate

FAMILIES = {"glm4": True, "glm4-plain": False}  # name: whether q, k and v have biases
E, F, H, G, D, L = 64, 96, 4, 2, 16, 3


def write(path, family):
    w = models.Weights(family)
    w.matrix("token_embd", E, models.V, 1.0)
    w.vector("output_norm.weight", E)
    w.matrix("output", E, models.V)
    for l in range(L):
        b = "blk.%d." % l
        for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
            w.vector(b + name + ".weight", E)
        for name, heads in (("attn_q", H), ("attn_k", G), ("attn_v", G)):
            w.matrix(b + name, E, heads * D, 2 / math.sqrt(E))
            if FAMILIES[family]:
                w.vector(b + name + ".bias", heads * D, 0.0)
        w.matrix(b + "attn_output", H * D, E)
        w.matrix(b + "ffn_up", E, 2 * F)
        w.matrix(b + "ffn_down", F, E)
    shape = {"context_length": 512, "embedding_length": E, "block_count": L, "feed_forward_length": F}
    shape.update({"attention.head_count": H, "attention.head_count_kv": G, "rope.dimension_count": D // 2})
    shape.update({"attention.layer_norm_rms_epsilon": 1.5625e-7, "rope.freq_base": 10000.0})
    gguf.write(path, models.named("glm4", family, shape), w.t)


class Glm4(Model):
    def layer(self, x, l):
        b, n = "blk.%d." % l, self.key("feed_forward_length")
        x = self.normed_branch(x, self.attention_branch(x, l, b), b + "post_attention_norm")
        h = self.norm(x, b + "ffn_norm")
        self.tap(b, "ffn_norm", h)
        g, u = self.linear(h, b + "ffn_up", 0, n), self.linear(h, b + "ffn_up", n, n)
        f = self.linear(list(map(silu_gate, g, u)), b + "ffn_down")
        self.tap(b, "ffn_down", f)
        x = self.normed_branch(x, f, b + "post_ffw_norm")
        self.tap(b, "add2", x)
        return x
