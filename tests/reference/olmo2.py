"""OLMo 2 and 3 (OLMo Team 2024, 2025): tiny models of them, and their forward pass.

Branches are normed before they are added, and not before; queries and keys are normed over all heads at once. OLMo 3's
windows are listed; the layers without one are stretched by YaRN.
"""

import math

import gguf
import models
from forward import Model

# name: embedding, feed-forward, heads, heads of k and v, layers, keys
FAMILIES = {
    "olmo2": (64, 96, 4, 2, 2, {"rope.freq_base": 1000.0}),
    "olmo3": (
        64, 96, 4, 4, 4,
        {
            "attention.sliding_window": 8,
            "attention.sliding_window_pattern": [True, True, False, True],
            "rope.freq_base": 1000.0,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 8.0,
            "rope.scaling.original_context_length": 16,
            "rope.scaling.yarn_attn_factor": 1.2079441541679836,
            "rope.scaling.yarn_beta_fast": 32.0,
            "rope.scaling.yarn_beta_slow": 1.0,
        },
    ),
}  # fmt: skip


def write(path, family):
    E, F, H, G, L, keys = FAMILIES[family]
    w, D = models.Weights(family), E // H
    w.matrix("token_embd", E, models.V, 1.0)
    w.matrix("output", E, models.V)
    w.vector("output_norm.weight", E)
    for l in range(L):
        b = "blk.%d." % l
        for name, n in (("attn_q_norm", H * D), ("attn_k_norm", G * D)):
            w.vector(b + name + ".weight", n)
        for name in ("post_attention_norm", "post_ffw_norm"):
            w.vector(b + name + ".weight", E)
        for name, heads in (("attn_q", H), ("attn_k", G), ("attn_v", G)):
            w.matrix(b + name, E, heads * D)
        w.matrix(b + "attn_output", H * D, E)
        for name, k, n in (("ffn_gate", E, F), ("ffn_up", E, F), ("ffn_down", F, E)):
            w.matrix(b + name, k, n)
    shape = {"context_length": 512, "embedding_length": E, "block_count": L, "feed_forward_length": F}
    shape.update({"attention.head_count": H, "attention.head_count_kv": G, "attention.layer_norm_rms_epsilon": 1e-6})
    gguf.write(path, models.named("olmo2", family, {**shape, **keys}), w.t)


class Olmo2(Model):
    def rotation(self, context):
        n = self.D // 2
        self.plain = [self.key("rope.freq_base") ** (-i / n) for i in range(n)]
        if self.key("rope.scaling.type") != "yarn":
            return self.plain, 1.0
        return self.yarn(self.plain, True), 1 + 0.1 * math.log(self.key("rope.scaling.factor"))

    def window(self, layer):
        pattern = self.key("attention.sliding_window_pattern")
        return self.key("attention.sliding_window") if pattern and pattern[layer] else math.inf

    def rotation_of(self, layer):
        return (self.freq, self.mscale) if self.window(layer) == math.inf else (self.plain, 1.0)

    def before_attention(self, x, b):
        return x

    def head_norm(self, x, name):
        return self.norm(x, name)

    def layer(self, x, l):
        b = "blk.%d." % l
        x = self.normed_branch(x, self.attention_branch(x, l, b), b + "post_attention_norm")
        x = self.normed_branch(x, self.feed_forward(x, b), b + "post_ffw_norm")
        self.tap(b, "add2", x)
        return x
