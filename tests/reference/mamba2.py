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
    E, L, *sizes = FAMILIES[family]
    w = models.Weights(family)
    w.matrix("token_embd", E, models.V, 1.0)
    w.vector("output_norm.weight", E)
    for l in range(L):
        b = "blk.%d." % l
        w.vector(b + "attn_norm.weight", E)
        put_mixer(w, b, E, sizes)
    keys = {"context_length": 512, "embedding_length": E, "block_count": L, "feed_forward_length": 0}
    keys.update({"attention.head_count": 0, "attention.layer_norm_rms_epsilon": 1e-5, **ssm_keys(sizes)})
    gguf.write(path, models.named("mamba2", family, keys), w.t)


def put_mixer(w, b, E, sizes, normed=True):
    """sizes: heads, values a head, groups, state, kernel."""
    H, P, G, N, K = sizes
    inner, channels = H * P, H * P + 2 * G * N
    w.matrix(b + "ssm_in", E, inner + channels + H)
    w.matrix(b + "ssm_conv1d", K, channels)
    w.vector(b + "ssm_conv1d.bias", channels, 0.0)
    w.vector(b + "ssm_dt.bias", H, -1.0, 1.0)
    w.t[b + "ssm_a"] = ([1, H], [-math.exp(v) for v in w.gauss(H, 0.7)])
    w.t[b + "ssm_d"] = ([1, H], [1 + v for v in w.gauss(H, 0.3)])
    if normed:
        w.t[b + "ssm_norm.weight"] = ([inner // G, G], [1 + v for v in w.gauss(inner, 0.2)])
    w.matrix(b + "ssm_out", inner, E)


def ssm_keys(sizes):
    H, P, G, N, K = sizes
    keys = {"ssm.conv_kernel": K, "ssm.state_size": N, "ssm.group_count": G}
    return {**keys, "ssm.inner_size": H * P, "ssm.time_step_rank": H}


class Mixer:
    """Mamba-2's, of those layers of a network that have one."""

    def __init__(self, net, layers):
        self.net = net
        self.inner, self.H = net.key("ssm.inner_size"), net.key("ssm.time_step_rank")
        self.G, self.N, self.P = net.key("ssm.group_count"), net.key("ssm.state_size"), self.inner // self.H
        # of every step: the convolution's inputs, and the states behind it, so that a step can be undone
        self.inputs, self.states = {l: [] for l in layers}, {l: [] for l in layers}
        net.kept += [*self.inputs.values(), *self.states.values()]

    def convolve(self, now, l, b):
        self.inputs[l].append(now)
        bias, out = self.net.t[b + "ssm_conv1d.bias"][1], []
        for c, w in enumerate(self.net.rows(b + "ssm_conv1d")):
            past = [row[c] for row in self.inputs[l][-len(w) :]]
            out.append(silu(dot(w[len(w) - len(past) :], past) + bias[c]))
        return out

    def scan(self, x, B, C, dt, l, b):
        a, d, add = (self.net.t[b + name][1] for name in ("ssm_a", "ssm_d", "ssm_dt.bias"))
        N = self.N
        before = self.states[l][-1] if self.states[l] else [[0.0] * N for _ in range(self.inner)]
        after, out = [], []
        for h in range(self.H):
            step = math.log1p(math.exp(dt[h] + add[h]))
            g = h // (self.H // self.G) * N
            keep, take, read = math.exp(a[h] * step), [step * v for v in B[g : g + N]], C[g : g + N]
            for p in range(h * self.P, (h + 1) * self.P):
                row = [keep * s + t * x[p] for s, t in zip(before[p], take, strict=True)]
                after.append(row)
                out.append(dot(row, read) + d[h] * x[p])
        self.states[l].append(after)
        return out

    def norm(self, y, b):
        if b + "ssm_norm.weight" not in self.net.t:
            return y
        w, size, normed = self.net.t[b + "ssm_norm.weight"][1], self.inner // self.G, []
        for g in range(0, self.inner, size):
            s = 1 / math.sqrt(math.fsum(v * v for v in y[g : g + size]) / size + self.net.eps)
            normed += [v * s * k for v, k in zip(y[g : g + size], w[g : g + size], strict=True)]
        return normed

    def __call__(self, h, l, b):
        """h: the layer's normed row."""
        inner, GN = self.inner, self.G * self.N
        all_of = self.net.linear(h, b + "ssm_in")
        z, dt = all_of[:inner], all_of[2 * inner + 2 * GN :]
        mixed = self.convolve(all_of[inner : 2 * inner + 2 * GN], l, b)
        y = self.scan(mixed[:inner], mixed[inner : inner + GN], mixed[inner + GN :], dt, l, b)
        out = self.net.linear(self.norm(list(map(silu_gate, z, y)), b), b + "ssm_out")
        self.net.tap(b, "ssm_out", out)
        return out


class Mamba2(Network):
    def __init__(self, meta, tensors, context):
        super().__init__(meta, tensors)
        self.eps = self.key("attention.layer_norm_rms_epsilon")
        self.mixer = Mixer(self, range(self.L))

    def layer(self, x, l):
        b = "blk.%d." % l
        h = self.norm(x, b + "attn_norm")
        self.tap(b, "attn_norm", h)
        return [i + j for i, j in zip(x, self.mixer(h, l, b), strict=True)]

    def step(self, token):
        x = self.rows("token_embd")[token]
        for l in range(self.L):
            x = self.layer(x, l)
        self.position += 1
        logits = self.output(x)
        self.tap("", "logits", logits)
        return logits
