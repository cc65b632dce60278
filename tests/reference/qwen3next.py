"""Qwen3-Next (Qwen 2025): a tiny model of it, and its forward pass.

Three of four layers are gated delta nets, as the recurrence is first stated; the fourth has attention with a gate on
its result. Every layer has experts, and a shared one with a gate.
"""

import math

import gguf
import models
from deepseek2 import put_net
from forward import Model, dot, silu, silu_gate

KEYS = {
    "attention.key_length": 32,
    "attention.value_length": 32,
    "rope.dimension_count": 8,
    "rope.freq_base": 1000.0,
    "expert_count": 8,
    "expert_used_count": 3,
    "expert_feed_forward_length": 32,
    "expert_shared_feed_forward_length": 48,
    "ssm.conv_kernel": 4,
    "ssm.state_size": 16,
    "ssm.group_count": 2,
    "ssm.time_step_rank": 4,
    "ssm.inner_size": 96,
}
# name: keys; older files have no list of layers
FAMILIES = {
    "qwen3next": {
        **KEYS,
        "attention.recurrent_layers": [True, True, True, False, False],
        "full_attention_interval": 4,
        "nextn_predict_layers": 1,
    },
    "qwen3next-interval": {**KEYS, "full_attention_interval": 2},
}
E, H, G, D, L = 64, 4, 2, 32, 4
SEED = 12  # of weights with which no norm within a delta net magnifies roundings


def recurrent(keys, l):
    listed = keys.get("attention.recurrent_layers")
    return listed[l] if listed else (l + 1) % keys.get("full_attention_interval", 4) != 0


def put_delta_net(w, b, keys):
    inner, heads = keys["ssm.inner_size"], keys["ssm.time_step_rank"]
    channels = 2 * keys["ssm.state_size"] * keys["ssm.group_count"] + inner
    # wide: what SiLU leaves is above 0, so no key is at right angles to a query, where a norm magnifies roundings
    w.matrix(b + "attn_qkv", E, channels, 3 / math.sqrt(E))
    w.matrix(b + "attn_gate", E, inner)
    w.matrix(b + "ssm_ba", E, 2 * heads)
    w.matrix(b + "ssm_conv1d", keys["ssm.conv_kernel"], channels)
    w.vector(b + "ssm_dt.bias", heads, -1.0, 1.0)
    w.t[b + "ssm_a"] = ([heads], [-math.exp(v) for v in w.gauss(heads, 0.7)])
    w.vector(b + "ssm_norm.weight", inner // heads)
    w.matrix(b + "ssm_out", inner, E)


def put_layer(w, b, keys, linear):
    for name in ("attn_norm", "post_attention_norm"):
        w.vector(b + name + ".weight", E)
    if linear:
        put_delta_net(w, b, keys)
    else:
        for name, n in (("attn_q", 2 * H * D), ("attn_k", G * D), ("attn_v", G * D)):
            w.matrix(b + name, E, n)
        for name in ("attn_q_norm", "attn_k_norm"):
            w.vector(b + name + ".weight", D)
        w.matrix(b + "attn_output", H * D, E)
    w.matrix(b + "ffn_gate_inp", E, keys["expert_count"], 2.0)  # far apart: a rounding does not choose other experts
    put_net(w, b, E, keys["expert_feed_forward_length"], "_exps", keys["expert_count"])
    put_net(w, b, E, keys["expert_shared_feed_forward_length"], "_shexp")
    w.matrix(b + "ffn_gate_inp_shexp", E, 1)


def write(path, family):
    keys = FAMILIES[family]
    w, more = models.Weights(family, SEED), keys.get("nextn_predict_layers", 0)
    w.matrix("token_embd", E, models.V, 1.0)
    w.vector("output_norm.weight", E)
    w.matrix("output", E, models.V)
    for l in range(L + more):
        put_layer(w, "blk.%d." % l, keys, l < L and recurrent(keys, l))
    for l in range(L, L + more):
        w.matrix("blk.%d.nextn.eh_proj" % l, 2 * E, E)
        for name in ("enorm", "hnorm", "shared_head_norm"):
            w.vector("blk.%d.nextn.%s.weight" % (l, name), E)
    shape = {"context_length": 512, "embedding_length": E, "block_count": L + more, "feed_forward_length": 96}
    shape.update({"attention.head_count": H, "attention.head_count_kv": G, "attention.layer_norm_rms_epsilon": 1e-6})
    gguf.write(path, models.named("qwen3next", family, {**shape, **keys}), w.t)


class Qwen3Next(Model):
    def __init__(self, meta, tensors, context):
        super().__init__(meta, tensors, context)
        self.linear_layers = [l for l in range(self.L) if "blk.%d.ssm_out.weight" % l in self.t]
        self.inner, self.heads = self.key("ssm.inner_size"), self.key("ssm.time_step_rank")
        self.groups, self.N = self.key("ssm.group_count"), self.key("ssm.state_size")
        self.inputs, self.states = {l: [] for l in self.linear_layers}, {l: [] for l in self.linear_layers}
        self.kept += [*self.inputs.values(), *self.states.values()]

    def tap(self, scope, kind, value):
        named = {"attn_q.rope": "attn_q_norm.rope", "attn_k.rope": "attn_k_norm.rope"}
        if kind not in ("add2", "glu", "attn_q", "attention"):  # of these the tape has other parts and numbers
            self.taps.setdefault((scope + named.get(kind, kind), kind), []).append(value)

    def projections(self, h, b):
        both = self.linear(h, b + "attn_q")
        heads = [both[i : i + 2 * self.D] for i in range(0, len(both), 2 * self.D)]
        self.gate = sum((head[self.D :] for head in heads), [])
        return [sum((head[: self.D] for head in heads), []), *(self.linear(h, b + "attn_" + part) for part in "kv")]

    def attention(self, q, layer, b):
        a = super().attention(q, layer, b)
        return [v / (1 + math.exp(-g)) for v, g in zip(a, self.gate, strict=True)]

    def unit(self, x, scale):
        s = scale / math.sqrt(dot(x, x) + self.eps)
        return [v * s for v in x]

    def delta(self, q, k, v, beta, decay, l):
        """One row of all heads of values."""
        P, share = self.inner // self.heads, self.heads // self.groups
        before = self.states[l][-1] if self.states[l] else [[0.0] * self.N for _ in range(self.inner)]
        after, out = [], []
        for h in range(self.heads):
            key, query, keep = k[h // share], q[h // share], math.exp(decay[h])
            for p in range(h * P, (h + 1) * P):
                row = [keep * s for s in before[p]]
                new = beta[h] * (v[p] - dot(row, key))
                row = [s + new * x for s, x in zip(row, key, strict=True)]
                after.append(row)
                out.append(dot(row, query))
        self.states[l].append(after)
        return out

    def delta_net(self, h, l, b):
        width, share = self.groups * self.N, self.heads // self.groups
        self.inputs[l].append(self.linear(h, b + "attn_qkv"))
        mixed = []
        for c, w in enumerate(self.rows(b + "ssm_conv1d")):
            past = [row[c] for row in self.inputs[l][-len(w) :]]
            mixed.append(silu(dot(w[len(w) - len(past) :], past)))
        q, k = ([mixed[i : i + self.N] for i in range(f, f + width, self.N)] for f in (0, width))
        q, k = [self.unit(x, self.N**-0.5) for x in q], [self.unit(x, 1.0) for x in k]
        ba = self.linear(h, b + "ssm_ba")
        groups = [ba[i : i + 2 * share] for i in range(0, len(ba), 2 * share)]
        beta = [1 / (1 + math.exp(-v)) for group in groups for v in group[:share]]
        a, add = sum((group[share:] for group in groups), []), self.t[b + "ssm_dt.bias"][1]
        dt = [math.log1p(math.exp(x + y)) for x, y in zip(a, add, strict=True)]
        decay = [x * y for x, y in zip(dt, self.t[b + "ssm_a"][1], strict=True)]
        y, P, normed = self.delta(q, k, mixed[2 * width :], beta, decay, l), self.inner // self.heads, []
        for i in range(0, self.inner, P):
            normed += self.norm(y[i : i + P], b + "ssm_norm")
        out = self.linear(list(map(silu_gate, self.linear(h, b + "attn_gate"), normed)), b + "ssm_out")
        self.tap(b, "ssm_out", out)
        return out

    def attention_branch(self, x, l, b):
        if l not in self.linear_layers:
            return super().attention_branch(x, l, b)
        return self.delta_net(self.before_attention(x, b), l, b)

    def feed_forward(self, h, b):
        out = super().feed_forward(h, b)
        g, u = self.linear(h, b + "ffn_gate_shexp"), self.linear(h, b + "ffn_up_shexp")
        shared = self.linear(list(map(silu_gate, g, u)), b + "ffn_down_shexp")
        self.tap(b, "ffn_down_shexp", shared)
        share = 1 / (1 + math.exp(-self.linear(h, b + "ffn_gate_inp_shexp")[0]))
        return [a + share * v for a, v in zip(out, shared, strict=True)]
