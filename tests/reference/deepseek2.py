"""DeepSeek V2 and V3 (DeepSeek-AI 2024): tiny models of them, and their forward pass.

Keys and values of all heads are made of one latent row (multi-head latent attention), beside which every position has
one rotated key that the heads share. Computed here as the papers first state it: each head's keys and values out of the
latent row. Experts are chosen from the best groups; some are there for every token.
"""

import math

import gguf
import models
from forward import Network, dot, silu_gate

PLAIN = {
    "expert_feed_forward_length": 32,
    "expert_count": 8,
    "expert_used_count": 3,
    "expert_shared_count": 2,
    "expert_weights_scale": 1.0,
    "leading_dense_block_count": 1,
    "rope.freq_base": 1000.0,
}
LITE = {
    **PLAIN,
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 4.0,
    "rope.scaling.original_context_length": 128,
    "rope.scaling.yarn_log_multiplier": 0.0707,
}
SIGMOID = {"expert_gating_func": 2, "expert_weights_scale": 2.5}
GROUPS = {"attention.q_lora_rank": 48, "expert_group_count": 4, "expert_group_used_count": 2}
KV_LORA, NOPE, ROPE, VALUE = 32, 16, 8, 24  # of the latent row; of a head: what does not rotate, what does, its value

# name: embedding, feed-forward, heads, layers, keys
FAMILIES = {
    "deepseek2-lite": (64, 96, 4, 3, LITE),
    "deepseek2-whole": (64, 96, 4, 2, LITE),  # keys and values of all heads by one matrix, as older files have it
    "deepseek2": (64, 96, 4, 3, {**LITE, **GROUPS, "expert_gating_func": 1, "expert_weights_scale": 2.0}),
    "deepseek3": (64, 96, 4, 3, {**LITE, **GROUPS, **SIGMOID, "expert_weights_norm": True}),
    # V3's first files: that matrix whole, and the bias by a name without an end
    "deepseek3-whole": (64, 96, 4, 2, {**LITE, **GROUPS, **SIGMOID, "expert_weights_norm": True}),
    # positions not stretched, one group, weights that do not add up to 1
    "deepseek3-plain": (64, 96, 4, 2, {**PLAIN, **SIGMOID, "expert_group_count": 1, "expert_group_used_count": 1}),
    "deepseek2-dense": (64, 96, 4, 2, {**LITE, "expert_count": 0, "leading_dense_block_count": 2}),
}  # fmt: skip


def put_attention(w, b, E, H, q_lora, whole):
    if q_lora:
        w.matrix(b + "attn_q_a", E, q_lora)
        w.vector(b + "attn_q_a_norm.weight", q_lora)
    w.matrix(b + ("attn_q_b" if q_lora else "attn_q"), q_lora or E, H * (NOPE + ROPE), 1.5 / math.sqrt(q_lora or E))
    w.matrix(b + "attn_kv_a_mqa", E, KV_LORA + ROPE)
    w.vector(b + "attn_kv_a_norm.weight", KV_LORA)
    if whole:
        w.matrix(b + "attn_kv_b", KV_LORA, H * (NOPE + VALUE))
    else:
        w.matrix(b + "attn_k_b", NOPE, KV_LORA, 1.5 / math.sqrt(KV_LORA), H)
        w.matrix(b + "attn_v_b", KV_LORA, VALUE, None, H)
    w.matrix(b + "attn_output", H * VALUE, E)


def put_net(w, b, E, F, end, slabs=None):
    for name, k, n in (("ffn_gate", E, F), ("ffn_up", E, F), ("ffn_down", F, E)):
        w.matrix(b + name + end, k, n, None, slabs)


def write(path, family):
    E, F, H, L, keys = FAMILIES[family]
    w, expert, whole = models.Weights(family), keys["expert_feed_forward_length"], family.endswith("-whole")
    w.matrix("token_embd", E, models.V, 1.0)
    w.vector("output_norm.weight", E)
    w.matrix("output", E, models.V)
    for l in range(L):
        b = "blk.%d." % l
        w.vector(b + "attn_norm.weight", E)
        w.vector(b + "ffn_norm.weight", E)
        put_attention(w, b, E, H, keys.get("attention.q_lora_rank", 0), whole)
        if l < keys["leading_dense_block_count"]:
            put_net(w, b, E, F, "")
            continue
        w.matrix(b + "ffn_gate_inp", E, keys["expert_count"], 2 / math.sqrt(E))
        if keys.get("expert_gating_func") == 2:
            w.vector(b + "exp_probs_b" + ("" if whole else ".bias"), keys["expert_count"], 0.0, 0.3)
        put_net(w, b, E, expert, "_exps", keys["expert_count"])
        put_net(w, b, E, expert * keys["expert_shared_count"], "_shexp")
    shape = {"context_length": 512, "embedding_length": E, "block_count": L, "feed_forward_length": F}
    shape.update({"attention.head_count": H, "attention.head_count_kv": H if whole else 1})
    shape.update({"attention.kv_lora_rank": KV_LORA, "attention.layer_norm_rms_epsilon": 1e-6})
    shape.update({"rope.dimension_count": ROPE})
    if whole:
        shape.update({"attention.key_length": NOPE + ROPE, "attention.value_length": VALUE})
    else:
        shape.update({"attention.key_length": KV_LORA + ROPE, "attention.value_length": KV_LORA})
        shape.update({"attention.key_length_mla": NOPE + ROPE, "attention.value_length_mla": VALUE})
    gguf.write(path, models.named("deepseek2", family, {**shape, **keys}), w.t)


def best(scores, n):
    """The n largest, largest first, and how far the last is from the next."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    return order[:n], scores[order[n - 1]] - scores[order[n]] if n < len(order) else math.inf


class DeepSeek2(Network):
    def __init__(self, meta, tensors, context):
        super().__init__(meta, tensors)
        self.H = self.key("attention.head_count")
        self.eps = self.key("attention.layer_norm_rms_epsilon")
        self.latent, self.n_rope = self.key("attention.kv_lora_rank"), self.key("rope.dimension_count")
        self.head = self.key("attention.key_length_mla", self.key("attention.key_length"))
        self.value = self.key("attention.value_length_mla", self.key("attention.value_length"))
        self.nope = self.head - self.n_rope
        freq = [self.key("rope.freq_base") ** (-2.0 * i / self.n_rope) for i in range(self.n_rope // 2)]
        self.freq, self.scale = freq, 1 / math.sqrt(self.head)
        if self.key("rope.scaling.type") == "yarn":
            stretch = 1 + self.key("rope.scaling.yarn_log_multiplier") * math.log(self.key("rope.scaling.factor"))
            self.freq, self.scale = self.yarn(freq, True), stretch**2 / math.sqrt(self.head)
        self.K, self.V = [[] for _ in range(self.L)], [[] for _ in range(self.L)]
        self.kept += self.K + self.V

    def plain_name(self, name):
        return name + ".bias" if name.endswith("exp_probs_b") else name

    def rope(self, x):
        y = []
        for i, f in enumerate(self.freq):
            c, s = math.cos(self.position * f), math.sin(self.position * f)
            y += [x[2 * i] * c - x[2 * i + 1] * s, x[2 * i] * s + x[2 * i + 1] * c]
        return y

    def heads_of(self, latent, b):
        """-> each head's key without rotation, each head's value."""
        if b + "attn_kv_b.weight" in self.t:  # [head][nope, then value][latent]
            both, n = self.linear(latent, b + "attn_kv_b"), self.nope + self.value
            heads = [both[h * n : (h + 1) * n] for h in range(self.H)]
            return [head[: self.nope] for head in heads], [head[self.nope :] for head in heads]
        down, up = self.rows(b + "attn_k_b"), self.rows(b + "attn_v_b")  # [head][latent][nope], [head][value][latent]
        keys, values = [], []
        for h in range(self.H):
            part = down[h * self.latent : (h + 1) * self.latent]
            keys.append([math.fsum(c * row[n] for c, row in zip(latent, part, strict=True)) for n in range(self.nope)])
            values.append([dot(row, latent) for row in up[h * self.value : (h + 1) * self.value]])
        return keys, values

    def attention(self, x, l, b):
        if b + "attn_q_a.weight" in self.t:
            a = self.linear(x, b + "attn_q_a")
            self.tap(b, "attn_q_a", a)
            q = self.linear(self.norm(a, b + "attn_q_a_norm"), b + "attn_q_b")
            self.tap(b, "attn_q_b", q)
        else:
            q = self.linear(x, b + "attn_q")
            self.tap(b, "attn_q", q)
        both = self.linear(x, b + "attn_kv_a_mqa")
        self.tap(b, "attn_kv_a_mqa", both)
        keys, values = self.heads_of(self.norm(both[: self.latent], b + "attn_kv_a_norm"), b)
        shared = self.rope(both[self.latent :])
        self.K[l].append([key + shared for key in keys])
        self.V[l].append(values)
        out = []
        for h in range(self.H):
            mine = q[h * self.head : (h + 1) * self.head]
            mine = mine[: self.nope] + self.rope(mine[self.nope :])
            scores = [dot(mine, k[h]) * self.scale for k in self.K[l]]
            e = [math.exp(s - max(scores)) for s in scores]
            out += [dot(e, [v[h][d] for v in self.V[l]]) / math.fsum(e) for d in range(self.value)]
        self.tap(b, "attention" if b + "attn_kv_b.weight" in self.t else "attn_v_b", out)
        return out

    def route(self, x, b):
        """Experts' share of a token."""
        logits, n = self.linear(x, b + "ffn_gate_inp"), self.key("expert_used_count")
        self.tap(b, "ffn_gate_inp", logits)
        if self.key("expert_gating_func", 1) == 2:
            p = [1 / (1 + math.exp(-v)) for v in logits]
        else:
            e = [math.exp(v - max(logits)) for v in logits]
            p = [v / math.fsum(e) for v in e]
        bias = self.t.get(b + "exp_probs_b.bias", ([len(p)], [0.0] * len(p)))[1]
        score = [a + c for a, c in zip(p, bias, strict=True)]
        spread = math.sqrt(dot(score, score) / len(score))
        groups, size = self.key("expert_group_count", 1), len(p) // self.key("expert_group_count", 1)
        if groups > 1:  # V2 takes the groups of the best experts, V3 those of the best pairs
            counted = 2 if self.key("expert_gating_func", 1) == 2 else 1
            worth = [sum(sorted(score[g * size : (g + 1) * size])[-counted:]) for g in range(groups)]
            taken, gap = best(worth, self.key("expert_group_used_count"))
            self.closest = min(self.closest, gap / spread)
            score = [s if i // size in taken else -math.inf for i, s in enumerate(score)]
        chosen, gap = best(score, n)
        self.closest = min(self.closest, gap / spread)
        total = math.fsum(p[e] for e in chosen) if self.key("expert_weights_norm", False) else 1.0
        return [(e, p[e] / total * self.key("expert_weights_scale", 1.0)) for e in chosen]

    def net(self, x, b, end):
        g, u = self.linear(x, b + "ffn_gate" + end), self.linear(x, b + "ffn_up" + end)
        out = self.linear(list(map(silu_gate, g, u)), b + "ffn_down" + end)
        self.tap(b, "ffn_down" + end, out)
        return out

    def feed_forward(self, x, b):
        if b + "ffn_gate_inp.weight" not in self.t:
            return self.net(x, b, "")
        share, out = self.route(x, b), self.net(x, b, "_shexp")
        for e, weight in share:
            g, u = self.expert(x, b + "ffn_gate_exps", e), self.expert(x, b + "ffn_up_exps", e)
            down = self.expert(list(map(silu_gate, g, u)), b + "ffn_down_exps", e)
            out = [a + weight * d for a, d in zip(out, down, strict=True)]
        return out

    def step(self, token):
        self.closest = math.inf
        x = self.rows("token_embd")[token]
        for l in range(self.L):
            b = "blk.%d." % l
            h = self.norm(x, b + "attn_norm")
            self.tap(b, "attn_norm", h)
            o = self.linear(self.attention(h, l, b), b + "attn_output")
            self.tap(b, "attn_output", o)
            x = [i + j for i, j in zip(x, o, strict=True)]
            h = self.norm(x, b + "ffn_norm")
            self.tap(b, "ffn_norm", h)
            x = [i + j for i, j in zip(x, self.feed_forward(h, b), strict=True)]
        self.position += 1
        logits = self.output(x)
        self.tap("", "logits", logits)
        return logits
