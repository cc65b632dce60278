"""Mamba-2 (Dao and Gu 2024): tiny models of it, and their forward pass, as the recurrence is first stated.

A layer has no attention: a short causal convolution, then a state a head that decays by a factor of the token's own
and takes up the outer product of x and B; C reads it. The result is gated and normed by groups.
"""

import math

import gguf
import models
from forward import Network, dot, silu, silu_gate

# name: embedding, layers, heads, values a head, groups, state, kernel
FAMILIES = {"mamba2": (64, 3, 8, 16, 1, 16, 4), "mamba2-groups": (48, 2, 6, 16, 2, 24, 3)}


def write(path, family):
    E, L, H, P, G, N, K = FAMILIES[family]
    w, inner = models.Weights(family), H * P
    channels = inner + 2 * G * N
    w.matrix("token_embd", E, models.V, 1.0)
    w.vector("output_norm.weight", E)
    for l in range(L):
        b = "blk.%d." % l
        w.vector(b + "attn_norm.weight", E)
        w.matrix(b + "ssm_in", E, inner + channels + H)
        w.matrix(b + "ssm_conv1d", K, channels)
        w.vector(b + "ssm_conv1d.bias", channels, 0.0)
        w.vector(b + "ssm_dt.bias", H, -1.0, 1.0)
        w.t[b + "ssm_a"] = ([1, H], [-math.exp(v) for v in w.gauss(H, 0.7)])
        w.t[b + "ssm_d"] = ([1, H], [1 + v for v in w.gauss(H, 0.3)])
        w.t[b + "ssm_norm.weight"] = ([inner // G, G], [1 + v for v in w.gauss(inner, 0.2)])
        w.matrix(b + "ssm_out", inner, E)
    keys = {"context_length": 512, "embedding_length": E, "block_count": L, "feed_forward_length": 0}
    keys.update({"attention.head_count": 0, "attention.layer_norm_rms_epsilon": 1e-5, "ssm.conv_kernel": K})
    keys.update({"ssm.state_size": N, "ssm.group_count": G, "ssm.inner_size": inner, "ssm.time_step_rank": H})
    gguf.write(path, models.named("mamba2", family, keys), w.t)


class Mamba2(Network):
    def __init__(self, meta, tensors, context):
        super().__init__(meta, tensors)
        self.eps = self.key("attention.layer_norm_rms_epsilon")
        self.inner, self.H = self.key("ssm.inner_size"), self.key("ssm.time_step_rank")
        self.G, self.N, self.P = self.key("ssm.group_count"), self.key("ssm.state_size"), self.inner // self.H
        # of every step: the convolution's inputs, and the states behind it, so that a step can be undone
        self.inputs, self.states = [[] for _ in range(self.L)], [[] for _ in range(self.L)]
        self.kept += self.inputs + self.states

    def convolve(self, now, l, b):
        self.inputs[l].append(now)
        bias, out = self.t[b + "ssm_conv1d.bias"][1], []
        for c, w in enumerate(self.rows(b + "ssm_conv1d")):
            past = [row[c] for row in self.inputs[l][-len(w) :]]
            out.append(silu(dot(w[len(w) - len(past) :], past) + bias[c]))
        return out

    def scan(self, x, B, C, dt, l, b):
        a, d, N = self.t[b + "ssm_a"][1], self.t[b + "ssm_d"][1], self.N
        before = self.states[l][-1] if self.states[l] else [[0.0] * N for _ in range(self.inner)]
        after, out = [], []
        for h in range(self.H):
            step = math.log1p(math.exp(dt[h] + self.t[b + "ssm_dt.bias"][1][h]))
            g = h // (self.H // self.G) * N
            keep, take, read = math.exp(a[h] * step), [step * v for v in B[g : g + N]], C[g : g + N]
            for p in range(h * self.P, (h + 1) * self.P):
                row = [keep * s + t * x[p] for s, t in zip(before[p], take, strict=True)]
                after.append(row)
                out.append(dot(row, read) + d[h] * x[p])
        self.states[l].append(after)
        return out

    def layer(self, x, l):
        b, inner, GN = "blk.%d." % l, self.inner, self.G * self.N
        h = self.norm(x, b + "attn_norm")
        self.tap(b, "attn_norm", h)
        all_of = self.linear(h, b + "ssm_in")
        z, dt = all_of[:inner], all_of[2 * inner + 2 * GN :]
        mixed = self.convolve(all_of[inner : 2 * inner + 2 * GN], l, b)
        y = self.scan(mixed[:inner], mixed[inner : inner + GN], mixed[inner + GN :], dt, l, b)
        y = list(map(silu_gate, z, y))
        w, size, normed = self.t[b + "ssm_norm.weight"][1], inner // self.G, []
        for g in range(0, inner, size):
            s = 1 / math.sqrt(math.fsum(v * v for v in y[g : g + size]) / size + self.eps)
            normed += [v * s * k for v, k in zip(y[g : g + size], w[g : g + size], strict=True)]
        out = self.linear(normed, b + "ssm_out")
        self.tap(b, "ssm_out", out)
        return [i + j for i, j in zip(x, out, strict=True)]

    def step(self, token):
        x = self.rows("token_embd")[token]
        for l in range(self.L):
            x = self.layer(x, l)
        self.position += 1
        logits = self.output(x)
        self.tap("", "logits", logits)
        return logits
