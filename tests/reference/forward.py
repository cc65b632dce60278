"""An independent float64 forward pass of every architecture, from the papers.

Python's floats are doubles and the models are tiny, so this needs the standard library alone. It shares no code with
the worker: the formulas are written a second time (RMSNorm and LayerNorm, RoPE with linear, llama3, LongRoPE and YaRN
scaling, GQA, windows, sinks, SwiGLU, GELU, routed experts).

Here: what all models share (Network), and the pass of the Llama and the GPT family. Other modules have those of their
architectures (gemma2.py, mamba2.py, ...); families.py tells which class is whose.
"""

import math
from operator import mul


def dot(a, b):
    return sum(map(mul, a, b))


def silu(x):
    return x / (1.0 + math.exp(-x))


def silu_gate(g, u):
    return silu(g) * u


def clamped_gate(g, u):
    """gpt-oss's."""
    g = min(g, 7.0)
    return g / (1.0 + math.exp(-1.702 * g)) * (min(max(u, -7.0), 7.0) + 1.0)


def gelu(x):
    return 0.5 * x * (1.0 + math.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


# The tape names a value by its tensor: head norms come between projection and rotation, and fused ones are ranges of
# one tensor.
HEAD_NORMS = {"attn_q.rope": "attn_q_norm.rope", "attn_k.rope": "attn_k_norm.rope"}
FUSED = {"attn_q": "attn_qkv", "attn_k": "attn_qkv.2", "attn_v": "attn_qkv.3"}
FUSED.update({"attn_q.rope": "attn_qkv.rope", "attn_k.rope": "attn_qkv.2.rope"})
NAMES = {"qwen3": HEAD_NORMS, "qwen3moe": HEAD_NORMS, "phi3": FUSED, "gpt2": FUSED, "nomic-bert": FUSED}
NAMES.update({"gemma3": HEAD_NORMS, "gemma3n": HEAD_NORMS, "olmo2": HEAD_NORMS, "modern-bert": FUSED})
LAYER_NORMS = {"gpt2", "command-r", "cohere2", "starcoder2"}
# rotate neighbours; the others rotate halves
PAIRS = {"llama", "granite", "granitemoe", "smollm3", "command-r", "cohere2", "glm4", "llama4", "granitehybrid"}
GPT_OSS = {"gpt-oss", "gptoss"}
# the norm before the feed-forward network has the name of one behind the attention
POST_NORMS = {*GPT_OSS, "glm4moe", "qwen3next"}
OLLAMA = {"attn_out": "attn_output", "ffn_norm": "post_attention_norm", "attn_sinks": "attn_sinks.weight"}


class Network:
    """One sequence of a model: keys, weights, and what a step leaves behind."""

    layer_norms = False  # norms have a mean, and a bias where the file has one
    encoder = False  # one row of a whole text, by embed(), instead of logits behind every token, by step()

    def __init__(self, meta, tensors):
        self.arch = meta["general.architecture"]
        self.meta = meta
        self.t = {self.plain_name(name): value for name, value in tensors.items()}
        self.E, self.L = self.key("embedding_length"), self.key("block_count") - self.key("nextn_predict_layers", 0)
        self.matrices, self.position, self.taps, self.closest = {}, 0, {}, math.inf
        self.kept = []  # lists with an element a step, which undo() shortens

    def plain_name(self, name):
        """ollama's names of gpt-oss's tensors are the others', but for four."""
        if self.arch != "gptoss":
            return name
        head, _, rest = name.rpartition("blk.")
        for old, new in OLLAMA.items():
            part = rest.partition(".")[2]
            if part == old or part.startswith(old + "."):
                return head + "blk." + rest.partition(".")[0] + "." + new + part[len(old) :]
        return name

    def second(self, _n):
        """Of an encoder: where a text of n tokens has its second part in tests, if it makes a difference; 0: not."""
        return 0

    def key(self, name, default=None):
        return self.meta.get(self.arch + "." + name, default)

    # ---- weights -----------------------------------------------------------------------------------------------------
    def rows(self, name, first=0, n=None):
        """Rows [first, first + n) of a matrix, or of all slabs of one."""
        if (name, first, n) not in self.matrices:
            ne, v = self.t[name + ".weight"]
            k, total = ne[0], math.prod(ne[1:])
            self.matrices[name, first, n] = [
                v[j * k : (j + 1) * k] for j in range(first, total if n is None else first + n)
            ]
        return self.matrices[name, first, n]

    def linear(self, x, name, first=0, n=None):
        b = self.t.get(name + ".bias")
        rows = self.rows(name, first, n)
        if not b:
            return [dot(w, x) for w in rows]
        return [dot(w, x) + v for w, v in zip(rows, b[1][first : first + len(rows)], strict=True)]

    def expert(self, x, name, e):
        """One tensor for all experts, or one an expert."""
        one = name.replace("_exps", "") + ".%d" % e
        if one + ".weight" in self.t:
            return self.linear(x, one)
        n = self.t[name + ".weight"][0][1]
        out = [dot(w, x) for w in self.rows(name, e * n, n)]
        bias = self.t.get(name + ".bias")
        return out if not bias else [a + v for a, v in zip(out, bias[1][e * n : (e + 1) * n], strict=True)]

    def norm(self, x, name):
        w = self.t[name + ".weight"][1]
        if self.layer_norms:
            b, mean = self.t.get(name + ".bias", (None, [0.0] * len(x)))[1], math.fsum(x) / len(x)
            s = 1.0 / math.sqrt(math.fsum((v - mean) ** 2 for v in x) / len(x) + self.eps)
            return [(v - mean) * s * w[i] + b[i] for i, v in enumerate(x)]
        s = 1.0 / math.sqrt(math.fsum(v * v for v in x) / len(x) + self.eps)
        return [v * s * w[i] for i, v in enumerate(x)]

    def yarn(self, freq, whole):
        """Pairs that turn more than 32 times in the trained context stay, those that turn less than once are stretched.
        whole: the bounds are rounded to whole pairs."""
        base, n = self.key("rope.freq_base", 10000.0), len(freq)
        trained = self.key("rope.scaling.original_context_length", self.key("context_length"))
        stretch = self.key("rope.scaling.factor", 0.0) or 1.0

        def pair(turns):
            return n * math.log(trained / (2 * math.pi * turns)) / math.log(base)

        low = pair(self.key("rope.scaling.yarn_beta_fast", 32.0))
        high = pair(self.key("rope.scaling.yarn_beta_slow", 1.0))
        if whole:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0.0), min(high, 2 * n - 1.0)
        ramp = [min(max((i - low) / max(high - low, 0.001), 0.0), 1.0) for i in range(n)]
        return [f * (r / stretch + 1 - r) for f, r in zip(freq, ramp, strict=True)]

    def output(self, x):
        head = "output" if "output.weight" in self.t else "token_embd"
        return self.linear(self.norm(x, "output_norm"), head)

    # ---- steps -------------------------------------------------------------------------------------------------------
    def tap(self, scope, kind, value):
        name = scope + NAMES.get(self.arch, {}).get(kind, kind)
        self.taps.setdefault((name, kind), []).append(value)

    def undo(self):
        """As if the last step had not been."""
        for rows in (*self.kept, *self.taps.values()):
            if rows:  # of a layer that keeps such rows
                rows.pop()
        self.position -= 1


class Model(Network):
    """The Llama and the GPT family. context: positions allocated, by which LongRoPE chooses its factors."""

    def __init__(self, meta, tensors, context):
        super().__init__(meta, tensors)
        self.H = self.key("attention.head_count")
        self.G = self.key("attention.head_count_kv", self.H)
        self.D = self.key("attention.key_length", self.E // self.H)
        self.layer_norms = self.arch in LAYER_NORMS
        self.eps = self.key("attention.layer_norm_epsilon" if self.layer_norms else "attention.layer_norm_rms_epsilon")
        self.experts = self.key("expert_count", 0)
        self.scale = 1 / math.sqrt(self.D)
        self.freq, self.mscale = self.rotation(context)
        self.K, self.V = [[] for _ in range(self.L)], [[] for _ in range(self.L)]
        self.kept += self.K + self.V
        self.encoder = bool(self.key("pooling_type", 0))

    # ---- rotation ----------------------------------------------------------------------------------------------------
    def rotation(self, context):
        """-> frequencies, factor of both parts."""
        base, n = self.key("rope.freq_base", 10000.0), self.key("rope.dimension_count", self.D) // 2
        trained = self.key("rope.scaling.original_context_length", self.key("context_length"))
        kind, stretch = self.key("rope.scaling.type"), self.key("rope.scaling.factor", 0.0) or 1.0
        mscale = self.key("rope.scaling.attn_factor", 1.0)
        freq = [base ** (-float(i) / n) for i in range(n)]
        factors = self.t.get("rope_freqs.weight")
        if "rope_factors_long.weight" in self.t:
            factors = self.t["rope_factors_%s.weight" % ("long" if context > trained else "short")]
        if factors:
            freq = [f / d for f, d in zip(freq, factors[1], strict=True)]
        if kind == "linear":
            freq = [f / stretch for f in freq]
        if kind == "yarn" or (kind is None and self.arch == "gptoss"):
            freq = self.yarn(freq, self.key("rope.scaling.yarn_truncate", False))
            mscale *= 1 + 0.1 * math.log(stretch)  # as yarn_attn_factor says, where it stands
        return freq, mscale

    def rotation_of(self, layer):
        """The same of one layer; None: it does not rotate."""
        still = self.arch == "gpt2" or (self.arch == "smollm3" and layer % 4 == 3)
        return None if still else (self.freq, self.mscale)

    def rope(self, x, freq, mscale):
        y, n = list(x), len(freq)
        turn = [(math.cos(self.position * f) * mscale, math.sin(self.position * f) * mscale) for f in freq]
        for h in range(0, len(x), self.D):
            for i, (c, s) in enumerate(turn):
                a, b = (h + 2 * i, h + 2 * i + 1) if self.arch in PAIRS else (h + i, h + i + n)
                y[a], y[b] = x[a] * c - x[b] * s, x[a] * s + x[b] * c
        return y

    # ---- a layer -----------------------------------------------------------------------------------------------------
    def projections(self, h, b):
        q, k = self.H * self.D, self.G * self.D
        if b + "attn_qkv.weight" in self.t:
            return [self.linear(h, b + "attn_qkv", *part) for part in ((0, q), (q, k), (q + k, k))]
        return [self.linear(h, b + "attn_" + part) for part in "qkv"]

    def window(self, layer):
        if self.arch == "llama" or (self.arch in GPT_OSS and layer % 2 == 0):
            return self.key("attention.sliding_window", 0) or math.inf
        return math.inf

    def score(self, q, k):
        return dot(q, k) * self.scale

    def attention(self, q, layer, b):
        K, V, D, p = self.K[layer], self.V[layer], self.D, self.position
        sinks = self.t[b + "attn_sinks.weight"][1] if self.arch in GPT_OSS else [-math.inf] * self.H
        out, all_scores, window = [], [], self.window(layer)
        for head in range(self.H):
            g = head // (self.H // self.G) * D
            qh = q[head * D : (head + 1) * D]
            scores = [self.score(qh, k[g : g + D]) if p - j < window else -math.inf for j, k in enumerate(K)]
            all_scores.append(scores)
            most = max(max(scores), sinks[head])
            e = [math.exp(s - most) for s in scores]
            total = math.fsum(e) + math.exp(sinks[head] - most)
            out += [dot(e, [v[g + d] for v in V]) / total for d in range(D)]
        self.tap(b, "attention.scores", all_scores)
        return out

    def route(self, h, b):
        """Experts' share of a token, by expert."""
        router, n = self.linear(h, b + "ffn_gate_inp"), self.key("expert_used_count")
        order = sorted(range(self.experts), key=lambda e: (-router[e], e))
        if n < self.experts:
            spread = math.sqrt(dot(router, router) / len(router))
            self.closest = min(self.closest, (router[order[n - 1]] - router[order[n]]) / spread)
        weights = [math.exp(router[e] - router[order[0]]) for e in order[:n]]
        self.tap(b, "ffn_gate_inp", router)
        return [(e, w / math.fsum(weights)) for e, w in zip(order[:n], weights, strict=True)]

    def mixture(self, h, b):
        share, gate = self.route(h, b), clamped_gate if self.arch in GPT_OSS else silu_gate
        g, u = ([self.expert(h, b + name, e) for e, _ in share] for name in ("ffn_gate_exps", "ffn_up_exps"))
        act = [list(map(gate, *both)) for both in zip(g, u, strict=True)]
        down = [self.expert(a, b + "ffn_down_exps", e) for a, (e, _) in zip(act, share, strict=True)]
        out = [math.fsum(s * d[j] for (_, s), d in zip(share, down, strict=True)) for j in range(self.E)]
        for kind, value in (("ffn_gate_exps", g), ("ffn_up_exps", u), ("glu", act), ("ffn_down_exps", down)):
            self.tap(b, kind, sum(value, []))
        self.tap(b, "combine", out)
        return out

    def feed_forward(self, h, b):
        if self.experts:
            return self.mixture(h, b)
        if self.arch == "gpt2":
            inner = list(map(gelu, self.linear(h, b + "ffn_up")))
        elif b + "ffn_gate.weight" in self.t:
            inner = list(map(silu_gate, self.linear(h, b + "ffn_gate"), self.linear(h, b + "ffn_up")))
        else:  # phi3
            n = self.key("feed_forward_length")
            inner = list(map(silu_gate, self.linear(h, b + "ffn_up", 0, n), self.linear(h, b + "ffn_up", n, n)))
        out = self.linear(inner, b + "ffn_down")
        self.tap(b, "ffn_down", out)
        return out

    def before_attention(self, x, b):
        h = self.norm(x, b + "attn_norm")
        self.tap(b, "attn_norm", h)
        return h

    def attention_branch(self, x, l, b):
        h = self.before_attention(x, b)
        q, k, v = self.projections(h, b)
        for kind, value in (("attn_q", q), ("attn_k", k), ("attn_v", v)):
            self.tap(b, kind, value)
        if b + "attn_q_norm.weight" in self.t:
            q, k = self.head_norm(q, b + "attn_q_norm"), self.head_norm(k, b + "attn_k_norm")
        rotation = self.rotation_of(l)
        if rotation:
            q, k = self.rope(q, *rotation), self.rope(k, *rotation)
            self.tap(b, "attn_q.rope", q)
            self.tap(b, "attn_k.rope", k)
        self.K[l].append(k)
        self.V[l].append(v)
        a = self.attention(q, l, b)
        self.tap(b, "attention", a)
        o = self.linear(a, b + "attn_output")
        self.tap(b, "attn_output", o)
        return o

    def normed_branch(self, x, out, name):
        """x and a branch that is normed before it is added."""
        return [a + v for a, v in zip(x, self.norm(out, name), strict=True)]

    def layer(self, x, l):
        b = "blk.%d." % l
        x = [i + j for i, j in zip(x, self.attention_branch(x, l, b), strict=True)]
        name = "post_attention_norm" if self.arch in POST_NORMS else "ffn_norm"
        h = self.norm(x, b + name)
        self.tap(b, name, h)
        x = [i + j for i, j in zip(x, self.feed_forward(h, b), strict=True)]
        self.tap(b, "add2", x)
        return x

    def head_norm(self, x, name):
        return [v for h in range(0, len(x), self.D) for v in self.norm(x[h : h + self.D], name)]

    def embedding(self, token):
        x = self.rows("token_embd")[token]
        if self.arch == "gpt2":
            x = [a + b for a, b in zip(x, self.rows("position_embd")[self.position], strict=True)]
        return x

    def step(self, token):
        """The logits behind one token more. closest: from an expert that was chosen to one that was not, in units of
        the spread of its router's logits."""
        self.closest = math.inf
        logits = self.output(self.row(token))
        self.tap("", "logits", logits)
        return logits

    def row(self, token):
        """The token's row behind the last layer."""
        x = self.embedding(token)
        for l in range(self.L):
            x = self.layer(x, l)
        self.position += 1
        return x

    def embed(self, tokens):
        """The text's row: the mean, the first or the last one's, of length 1; or scores of the last."""
        xs, pooling = [self.norm(self.row(token), "output_norm") for token in tokens], self.key("pooling_type")
        mean = [math.fsum(column) / len(xs) for column in zip(*xs, strict=True)]
        out = mean if pooling == 1 else xs[0] if pooling == 2 else xs[-1]
        if pooling == 4:
            out = self.linear(out, "cls.output")
        else:
            length = math.sqrt(dot(out, out))
            out = [v / length for v in out]
        self.tap("", "output_embedding", out)
        return out


def checkpoints(model, tokens):
    """-> {(name of the tape's value, kind of checkpoint): [values of every token's row]}"""
    if model.encoder:
        model.embed(tokens)
    else:
        for token in tokens:
            model.step(token)
    taps = {}
    for (name, kind), rows in model.taps.items():
        if kind == "attention.scores":  # of each head as many as there are positions
            rows = [[v for s in heads for v in s + [-math.inf] * (len(tokens) - len(s))] for heads in rows]
        taps[name, kind] = [v for row in rows for v in row]
    return taps


def argmax(x):
    return max(range(len(x)), key=x.__getitem__)
