"""Llama 4 (Meta 2025), text: tiny models of it, and their forward pass.

Three of four layers rotate, norm heads of q and k without weights and see one chunk of positions; the fourth knows no
positions, and its queries grow with the logarithm of theirs. A token's experts read it times the sigmoid of their
logit; one more expert is there for every token.
"""

import math

import gguf
import models
from deepseek2 import DeepSeek2, put_net
from forward import Model, dot, silu_gate

KEYS = {
    "attention.key_length": 16,
    "attention.value_length": 16,
    "attention.sliding_window": 32,
    "attention.temperature_length": 12,
    "attention.temperature_scale": 0.5,
    "rope.dimension_count": 16,
    "rope.freq_base": 1000.0,
    "expert_feed_forward_length": 32,
    "expert_count": 4,
}

# name: a table of factors of frequencies, keys
FAMILIES = {
    "llama4": (True, {**KEYS, "interleave_moe_layer_step": 1, "expert_used_count": 1}),
    "llama4-interleaved": (False, {**KEYS, "interleave_moe_layer_step": 2, "expert_used_count": 2}),
}
E, F, H, G, D, L = 64, 96, 4, 2, 16, 5


def write(path, family):
    factors, keys = FAMILIES[family]
    w, X, Fx = models.Weights(family), keys["expert_count"], keys["expert_feed_forward_length"]
    w.matrix("token_embd", E, models.V, 1.0)
    w.vector("output_norm.weight", E)
    w.matrix("output", E, models.V)
    if factors:
        w.t["rope_freqs.weight"] = ([D // 2], [1.0, 1.0, 1.0, 1.5, 2.0, 3.0, 6.0, 8.0])
    for l in range(L):
        b = "blk.%d." % l
        for name in ("attn_norm", "ffn_norm"):
            w.vector(b + name + ".weight", E)
        for name, heads in (("attn_q", H), ("attn_k", G), ("attn_v", G)):
            w.matrix(b + name, E, heads * D)
        w.matrix(b + "attn_output", H * D, E)
        if (l + 1) % keys["interleave_moe_layer_step"]:
            put_net(w, b, E, F, "")
            continue
        w.matrix(b + "ffn_gate_inp", E, X, 2 / math.sqrt(E))
        put_net(w, b, E, Fx, "_exps", X)
        put_net(w, b, E, Fx, "_shexp")
    shape = {"context_length": 512, "embedding_length": E, "block_count": L, "feed_forward_length": F}
    shape.update({"attention.head_count": H, "attention.head_count_kv": G, "attention.layer_norm_rms_epsilon": 1e-5})
    gguf.write(path, models.named("llama4", family, {**shape, **keys}), w.t)


class Llama4(Model):
    net = DeepSeek2.net

    def tap(self, scope, kind, value):
        name = {"attn_q.rope": "norm.rope", "attn_k.rope": "norm.2.rope"}.get(kind, kind)
        if kind == "add2" and scope + "ffn_up_shexp.weight" in self.t:  # added third
            name = "add3"
        self.taps.setdefault((scope + name, kind), []).append(value)

    def rotation_of(self, layer):
        return None if layer % 4 == 3 else (self.freq, self.mscale)

    def window(self, layer):
        chunk = self.key("attention.sliding_window", 8192)
        return math.inf if layer % 4 == 3 else self.position % chunk + 1

    def rope(self, x, freq, mscale):
        y, out = super().rope(x, freq, mscale), []
        for h in range(0, len(y), self.D):
            head = y[h : h + self.D]
            s = 1 / math.sqrt(math.fsum(v * v for v in head) / self.D + self.eps)
            out += [v * s for v in head]
        return out

    def attention(self, q, layer, b):
        if layer % 4 == 3:
            steps = (self.position + 1) // self.key("attention.temperature_length", 8192)
            warm = 1 + self.key("attention.temperature_scale", 0.1) * math.log(1 + steps)
            q = [v * warm for v in q]
        return super().attention(q, layer, b)

    def feed_forward(self, h, b):
        if b + "ffn_gate_inp.weight" not in self.t:
            return self.net(h, b, "")
        logits, n = self.linear(h, b + "ffn_gate_inp"), self.key("expert_used_count")
        self.tap(b, "ffn_gate_inp", logits)
        order = sorted(range(self.experts), key=lambda e: (-logits[e], e))
        spread = math.sqrt(dot(logits, logits) / len(logits))
        self.closest = min(self.closest, (logits[order[n - 1]] - logits[order[n]]) / spread)
        out = self.net(h, b, "_shexp")
        for e in order[:n]:
            x = [v / (1 + math.exp(-logits[e])) for v in h]
            g, u = self.expert(x, b + "ffn_gate_exps", e), self.expert(x, b + "ffn_up_exps", e)
            down = self.expert(list(map(silu_gate, g, u)), b + "ffn_down_exps", e)
            out = [a + d for a, d in zip(out, down, strict=True)]
        return out
