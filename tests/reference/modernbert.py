"""ModernBERT (Warner et al. 2024) as an encoder of texts: tiny models of it, and their forward pass.

Norms stand before the branches and have no biases, but for the first layer's attention, whose input the embedding's
norm has made. Positions rotate. Two of three layers see tokens up to half a window away on either side, and rotate by
another base. The network is gated, by GELU's exact form or by SiLU.
"""

import math

import gguf
import models
from bert import FIRST, MEAN, RANK, Bert, gelu
from forward import silu_gate

# name: embedding, feed-forward, heads, layers, pooling, keys
FAMILIES = {
    "modern-bert": (48, 64, 4, 5, MEAN, {"hidden_activation": "gelu", "pooling_type": MEAN}),
    "modern-bert-silu": (48, 40, 2, 4, FIRST, {"hidden_activation": "silu", "pooling_type": FIRST}),
    # As converters write rerankers: without pooling_type.
    "modern-bert-rank": (48, 64, 4, 3, RANK, {"classifier.pooling_type": MEAN}),
    "modern-bert-rank-first": (48, 64, 4, 2, RANK, {"classifier.pooling_type": FIRST}),
}
POSITIONS, LABELS, WINDOW, PATTERN = 512, 8, 16, 3


def write(path, family):
    E, F, H, L, pooling, more = FAMILIES[family]
    w, norms = models.Weights(family), ["token_embd_norm", "output_norm"]
    w.matrix("token_embd", E, models.V, 1.0)
    for l in range(L):
        b = "blk.%d." % l
        norms += [b + "ffn_norm"] + ([b + "attn_norm"] if l else [])
        w.matrix(b + "attn_qkv", E, 3 * E)
        w.matrix(b + "attn_output", E, E)
        w.matrix(b + "ffn_up", E, 2 * F)
        w.matrix(b + "ffn_down", F, E)
    if pooling == RANK:
        norms.append("cls.norm")
        w.matrix("cls", E, E)
        w.matrix("cls.output", E, LABELS)
        w.vector("cls.output.bias", LABELS, 0.0)
    for name in norms:
        w.vector(name + ".weight", E)
    keys = {"context_length": POSITIONS, "embedding_length": E, "block_count": L, "feed_forward_length": F}
    keys.update({"attention.head_count": H, "attention.layer_norm_epsilon": 1e-5, "attention.causal": False})
    keys.update({"attention.layer_norm_rms_epsilon": 1e-5, "rope.scaling.type": "none", "vocab_size": models.V})
    keys.update({"attention.sliding_window": WINDOW, "attention.sliding_window_pattern": PATTERN})
    keys.update({"rope.freq_base": 160000.0, "rope.freq_base_swa": 10000.0})
    gguf.write(path, models.named("modern-bert", family, {**keys, **more}), w.t)


class ModernBert(Bert):
    def __init__(self, meta, tensors, context):
        super().__init__(meta, tensors, context)
        self.types = False
        for name in [name for name in self.t if name.endswith("norm.weight")]:  # norms have no biases
            self.t.setdefault(name[: -len("weight")] + "bias", ([self.E], [0.0] * self.E))

    def feed_forward(self, x, b):
        both, F = self.linear(x, b + "ffn_up"), self.key("feed_forward_length")
        if self.key("hidden_activation") == "silu":
            inner = list(map(silu_gate, both[:F], both[F:]))
        else:
            inner = [gelu(g) * u for g, u in zip(both[:F], both[F:], strict=True)]
        return self.linear(inner, b + "ffn_down")

    def rows_of(self, tokens, _second=0):
        xs = [self.norm(self.rows("token_embd")[token], "token_embd_norm") for token in tokens]
        for l in range(self.L):
            b, window = "blk.%d." % l, self.key("attention.sliding_window") if l % PATTERN else 0
            base = self.key("rope.freq_base_swa" if window else "rope.freq_base")
            hs = [self.norm(x, b + "attn_norm") for x in xs] if l else xs
            outs = self.attention(hs, b, base, window // 2 if window else len(tokens))
            added = [[i + j for i, j in zip(x, self.linear(a, b + "attn_output"), strict=True)]
                     for x, a in zip(xs, outs, strict=True)]  # fmt: skip
            xs = []
            for x in added:
                f = self.feed_forward(self.norm(x, b + "ffn_norm"), b)
                xs.append([i + j for i, j in zip(x, f, strict=True)])
        return [self.norm(x, "output_norm") for x in xs]

    def head(self, xs):
        first = self.key("classifier.pooling_type") == FIRST
        x = xs[0] if first else [math.fsum(column) / len(xs) for column in zip(*xs, strict=True)]
        return self.linear(self.norm(list(map(gelu, self.linear(x, "cls"))), "cls.norm"), "cls.output")
