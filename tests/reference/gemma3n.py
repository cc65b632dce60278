"""Gemma 3n (Gemma Team 2025), text: tiny models of it, and its forward pass.

Gemma 3's layers inside of AltUp: a row has four parts, of which a layer computes the first, and predicts and corrects
the others. Beside attention there is a product of low rank, behind the network an embedding of the layer's own; the
last layers read the keys of earlier ones, and some gates open only far above their mean.
"""

import math

import gguf
import models
from forward import Model, dot, gelu
from gemma2 import cap

INF = math.inf
# name: keys; in the second one every layer has keys of its own, and the file has no more tensors than are read
FAMILIES = {
    "gemma3n": {
        "attention.sliding_window": 8,
        "attention.sliding_window_pattern": [True, True, False, True, True, False, True],
        "attention.shared_kv_layers": 3,
        "activation_sparsity_scale": [1.0, 0.5, -INF, -0.25, -INF, -INF, 1.0],
        "final_logit_softcapping": 30.0,
        "rope.freq_base": 100000.0,
        "rope.freq_base_swa": 1000.0,
    },
    "gemma3n-own": {
        "attention.sliding_window": 8,
        "attention.sliding_window_pattern": [True, False, True],
        "attention.shared_kv_layers": 0,
        "activation_sparsity_scale": [-INF, -INF, -INF],
        "final_logit_softcapping": 50.0,
        "rope.freq_base": 100000.0,
    },
}
E, F, H, G, D, P, RANK, PARTS = 64, 96, 4, 2, 32, 16, 8, 4


def put_layer(w, b):
    for name in ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"):
        w.vector(b + name + ".weight", E)
    for name, heads in (("attn_q", H), ("attn_k", G), ("attn_v", G)):
        w.matrix(b + name, E, heads * D)
    for name in ("attn_q_norm", "attn_k_norm"):
        w.vector(b + name + ".weight", D, 0.4)  # scores are not scaled
    w.matrix(b + "attn_output", H * D, E)
    for name, k, n in (("ffn_gate", E, F), ("ffn_up", E, F), ("ffn_down", F, E)):
        w.matrix(b + name, k, n)
    w.matrix(b + "laurel_l", E, RANK)
    w.matrix(b + "laurel_r", RANK, E)
    w.matrix(b + "altup_router", E, PARTS, 4.0)  # its input is divided by E
    w.matrix(b + "altup_predict_coef", PARTS, PARTS * PARTS, 0.15)
    w.matrix(b + "altup_correct_coef", PARTS, PARTS, 0.3)
    w.matrix(b + "inp_gate", E, P)
    w.matrix(b + "proj", P, E)
    for name in ("laurel_post_norm", "altup_router_norm", "altup_correct_scale", "post_norm"):
        w.vector(b + name + ".weight", E)


def write(path, family):
    keys, w = FAMILIES[family], models.Weights(family)
    L = len(keys["activation_sparsity_scale"])
    w.matrix("token_embd", E, models.V, 1.0)
    w.matrix("per_layer_token_embd", L * P, models.V, 0.3)
    w.matrix("per_layer_model_proj", E, L * P, 1.0)
    w.vector("per_layer_proj_norm.weight", P)
    for name in ("altup_proj", "altup_unembd_proj"):
        w.matrix(name, E, E, slabs=PARTS - 1)
    w.vector("output_norm.weight", E)
    for l in range(L):
        put_layer(w, "blk.%d." % l)
    shape = {"context_length": 512, "embedding_length": E, "block_count": L, "feed_forward_length": [F] * L}
    shape.update({"attention.head_count": H, "attention.head_count_kv": G, "attention.layer_norm_rms_epsilon": 1e-6})
    shape.update({"attention.key_length": D, "attention.value_length": D, "embedding_length_per_layer_input": P})
    shape.update({"altup.active_idx": 0, "altup.num_inputs": PARTS})
    gguf.write(path, models.named("gemma3n", family, {**shape, **keys}), w.t)


def plus(*rows):
    return [sum(column) for column in zip(*rows, strict=True)]


def times(x, factor):
    return [v * factor for v in x]


def rms(x):
    return math.sqrt(dot(x, x) / len(x))


class Gemma3n(Model):
    def __init__(self, meta, tensors, context):
        super().__init__(meta, tensors, context)
        self.scale, self.P, n = 1.0, self.key("embedding_length_per_layer_input"), self.D // 2
        self.sliding = self.key("attention.sliding_window_pattern")
        self.own = self.L - self.key("attention.shared_kv_layers")
        self.window_freq = [self.key("rope.freq_base_swa", 10000.0) ** (-i / n) for i in range(n)]
        for l in range(self.own, self.L):
            source = max(s for s in range(self.own) if self.sliding[s] == self.sliding[l])
            self.K[l], self.V[l] = self.K[source], self.V[source]
        self.kept = self.K[: self.own] + self.V[: self.own]

    def window(self, layer):
        return self.key("attention.sliding_window") if self.sliding[layer] else INF

    def plain_norm(self, x):
        """Of each head, without weights."""
        heads = [x[i : i + self.D] for i in range(0, len(x), self.D)]
        return [v for head in heads for v in times(head, 1 / math.sqrt(dot(head, head) / self.D + self.eps))]

    def attention_branch(self, h, l, b):
        rotation = (self.window_freq if self.sliding[l] else self.freq), 1.0
        q = self.linear(h, b + "attn_q")
        self.tap(b, "attn_q", q)
        q = self.rope(self.head_norm(q, b + "attn_q_norm"), *rotation)
        self.tap(b, "attn_q.rope", q)
        if l < self.own:
            k = self.rope(self.head_norm(self.linear(h, b + "attn_k"), b + "attn_k_norm"), *rotation)
            self.tap(b, "attn_k.rope", k)
            self.K[l].append(k)
            self.V[l].append(self.plain_norm(self.linear(h, b + "attn_v")))
        a = self.attention(q, l, b)
        self.tap(b, "attention", a)
        return self.linear(a, b + "attn_output")

    def feed_forward(self, h, l, b):
        g, factor = self.linear(h, b + "ffn_gate"), self.key("activation_sparsity_scale")[l]
        if factor > -INF:
            mean = math.fsum(g) / len(g)
            least = mean + factor * math.sqrt(math.fsum((v - mean) ** 2 for v in g) / len(g))
            g = [max(v - least, 0.0) for v in g]
            self.tap(b, "above", g)
        u = self.linear(h, b + "ffn_up")
        return self.linear([gelu(x) * y for x, y in zip(g, u, strict=True)], b + "ffn_down")

    def modalities(self, x, b):
        router = self.linear(times(self.norm(x, b + "altup_router_norm"), 1 / self.E), b + "altup_router")
        return [math.tanh(v) for v in router]

    def activated(self, x, l, b):
        """The first part, as it was predicted, behind attention and the network."""
        h = self.norm(x, b + "attn_norm")
        self.tap(b, "attn_norm", h)
        low = self.linear(self.linear(h, b + "laurel_l"), b + "laurel_r")
        low = plus(h, self.norm(low, b + "laurel_post_norm"))
        a = self.norm(self.attention_branch(h, l, b), b + "post_attention_norm")
        x = times(plus(x, a, low), math.sqrt(0.5))
        f = self.feed_forward(self.norm(x, b + "ffn_norm"), l, b)
        self.tap(b, "ffn_down", f)
        return plus(x, self.norm(f, b + "post_ffw_norm"))

    def parts_layer(self, parts, own, l):
        b = "blk.%d." % l
        c = self.linear(self.modalities(parts[0], b), b + "altup_predict_coef")
        before = [
            plus(part, *(times(x, c[q * PARTS + p]) for p, x in enumerate(parts))) for q, part in enumerate(parts)
        ]
        self.tap(b, "predict", sum(before, []))
        active = self.activated(before[0], l, b)
        c = self.linear(self.modalities(active, b), b + "altup_correct_coef")
        lacked = [x - y for x, y in zip(active, before[0], strict=True)]
        after = [plus(part, times(lacked, 1 + c[q])) for q, part in enumerate(before)]
        self.tap(b, "correct", sum(after, []))
        scale = self.t[b + "altup_correct_scale.weight"][1]
        gate = self.linear([x * s for x, s in zip(after[0], scale, strict=True)], b + "inp_gate")
        more = self.linear([gelu(g) * x for g, x in zip(gate, own, strict=True)], b + "proj")
        more = self.norm(more, b + "post_norm")
        self.tap(b, "post_norm", more)
        return [after[0], *(plus(part, more) for part in after[1:])]

    def as_long(self, y, x):
        return times(y, rms(x) / math.sqrt(max(dot(y, y) / len(y), 1e-5)))

    def own_embeddings(self, x, token):
        """Of each layer, with what the row itself says of it."""
        table = times(self.rows("per_layer_token_embd")[token], math.sqrt(self.P))
        said = times(self.linear(x, "per_layer_model_proj"), 1 / math.sqrt(self.E))
        runs = [slice(l * self.P, (l + 1) * self.P) for l in range(self.L)]
        normed = [self.norm(said[run], "per_layer_proj_norm") for run in runs]
        return [times(plus(y, table[run]), math.sqrt(0.5)) for y, run in zip(normed, runs, strict=True)]

    def row(self, token):
        x = times(self.rows("token_embd")[token], math.sqrt(self.E))
        own, parts = self.own_embeddings(x, token), [x]
        parts += [self.as_long(self.slab(x, "altup_proj", p), x) for p in range(PARTS - 1)]
        for l in range(self.L):
            parts = self.parts_layer(parts, own[l], l)
        turned = [self.slab(part, "altup_unembd_proj", p) for p, part in enumerate(parts[1:])]
        self.position += 1
        return times(plus(parts[0], *(self.as_long(y, parts[0]) for y in turned)), 1 / PARTS)

    def slab(self, x, name, i):
        return [dot(row, x) for row in self.rows(name, i * self.E, self.E)]

    def output(self, x):
        return [cap(v, self.key("final_logit_softcapping")) for v in super().output(x)]
