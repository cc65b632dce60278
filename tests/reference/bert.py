"""BERT (Devlin et al. 2019) as an encoder of texts: tiny models of it, and their forward pass.

Nomic's has rotating positions instead of a table, q|k|v as one tensor, a gated network and no biases.

Every token sees all others; norms stand behind the additions; the result is one row of a text, the mean of its tokens'
or the first one's, of length 1. Of a reranker it is scores, made of the first one's, of two texts whose tokens may be
of two types.
"""

import math

import gguf
import models
from forward import Network, dot, silu_gate

MEAN, FIRST, RANK = 1, 2, 4  # values of pooling_type
# name: embedding, feed-forward, heads, layers, pooling
FAMILIES = {
    "bert": (48, 96, 4, 3, FIRST),
    "bert-mean": (48, 64, 2, 2, MEAN),
    "bert-rank": (48, 64, 4, 2, RANK),
    "nomic-bert": (48, 64, 4, 3, MEAN),
    # With one label and a vocabulary: tokens of one type, and of two.
    "bert-score": (48, 64, 4, 2, RANK),
    "bert-pair": (48, 64, 4, 2, RANK),
}
POSITIONS, LABELS, TYPES = 512, {"bert-rank": 3, "bert-score": 1, "bert-pair": 1}, {"bert-score": 1}
# The vocabulary as converters write it, with their spelling.
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORD_PIECE = {
    "tokenizer.ggml.model": "bert",
    "tokenizer.ggml.pre": "jina-v2-en",
    "tokenizer.ggml.tokens": SPECIAL + ["\u2581word%d" % i for i in range(models.V - len(SPECIAL))],
    "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (models.V - len(SPECIAL)),
    "tokenizer.ggml.bos_token_id": 2,
    "tokenizer.ggml.seperator_token_id": 3,
    "tokenizer.ggml.mask_token_id": 4,
    "tokenizer.ggml.normalizer.lowercase": True,
}


def products(nomic, E, F):
    """The matrices of a layer: name, columns, rows."""
    q = [("attn_qkv", E, 3 * E)] if nomic else [("attn_q", E, E), ("attn_k", E, E), ("attn_v", E, E)]
    gate = [("ffn_gate", E, F)] if nomic else []
    return [*q, ("attn_output", E, E), *gate, ("ffn_up", E, F), ("ffn_down", F, E)]


def write(path, family):
    E, F, H, L, pooling = FAMILIES[family]
    w, nomic = models.Weights(family), family == "nomic-bert"
    w.matrix("token_embd", E, models.V, 1.0)
    w.matrix("token_types", E, TYPES.get(family, 2), 0.5)
    if not nomic:
        w.matrix("position_embd", E, POSITIONS, 0.5)
    norms = ["token_embd_norm"]
    for l in range(L):
        b = "blk.%d." % l
        norms += [b + "attn_output_norm", b + "layer_output_norm"]
        for name, k, n in products(nomic, E, F):
            w.matrix(b + name, k, n, (2 if name in ("attn_q", "attn_k", "attn_qkv") else 1) / math.sqrt(k))
            if not nomic:
                w.vector(b + name + ".bias", n, 0.0)
    if pooling == RANK:
        for name, n in (("cls", E), ("cls.output", LABELS[family])):
            w.matrix(name, E, n)
            w.vector(name + ".bias", n, 0.0)
        if family == "bert-pair":  # as converters write the row of the only label
            w.t["cls.output.weight"] = ([E], w.t["cls.output.weight"][1])
    for name in norms:
        w.vector(name + ".weight", E)
        w.vector(name + ".bias", E, 0.0)
    keys = {"context_length": POSITIONS, "embedding_length": E, "block_count": L, "feed_forward_length": F}
    keys.update({"attention.head_count": H, "attention.layer_norm_epsilon": 1e-12, "attention.causal": False})
    if nomic:
        keys["rope.freq_base"] = 1000.0
    if family != "bert-pair":  # converters write none into a reranker
        keys["pooling_type"] = pooling
    meta = models.named("nomic-bert" if nomic else "bert", family, keys)
    if family in ("bert-mean", "bert-score", "bert-pair"):
        meta.update(WORD_PIECE)
        meta["tokenizer.ggml.token_type_count"] = TYPES.get(family, 2)
    gguf.write(path, meta, w.t)


def gelu(x):
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


class Bert(Network):
    layer_norms, encoder = True, True

    def __init__(self, meta, tensors, context):
        super().__init__(meta, tensors)
        self.H, self.eps = self.key("attention.head_count"), self.key("attention.layer_norm_epsilon")
        self.D = self.E // self.H
        self.pooling = self.key("pooling_type", RANK)
        self.nomic, self.types = self.arch == "nomic-bert", True

    def attention(self, xs, b, base=None, reach=math.inf):
        """base: of rotations, None: there are none; tokens that are farther away than reach are not seen."""
        if base:
            q, k, v = ([self.linear(x, b + "attn_qkv", i * self.E, self.E) for x in xs] for i in range(3))
        else:
            q, k, v = ([self.linear(x, b + "attn_" + part) for x in xs] for part in "qkv")
        for kind, rows in (("attn_q", q), ("attn_k", k), ("attn_v", v)):
            for row in rows:
                self.tap(b, kind, row)
        if base:
            q, k = ([self.rope(row, i, base) for i, row in enumerate(rows)] for rows in (q, k))
        outs = []
        for i in range(len(xs)):
            out, seen = [], [j for j in range(len(xs)) if abs(i - j) <= reach]
            for at in range(0, self.E, self.D):
                mine = q[i][at : at + self.D]
                scores = [dot(mine, k[j][at : at + self.D]) / math.sqrt(self.D) for j in seen]
                e = [math.exp(s - max(scores)) for s in scores]
                out += [dot(e, [v[j][at + d] for j in seen]) / math.fsum(e) for d in range(self.D)]
            self.tap(b, "attention", out)
            outs.append(out)
        return outs

    def rope(self, x, position, base):
        y, half = list(x), self.D // 2
        for h in range(0, self.E, self.D):
            for i in range(half):
                turn = position * base ** (-i / half)
                c, s, a, b = math.cos(turn), math.sin(turn), x[h + i], x[h + half + i]
                y[h + i], y[h + half + i] = a * c - b * s, a * s + b * c
        return y

    def feed_forward(self, x, b):
        if self.nomic:
            inner = list(map(silu_gate, self.linear(x, b + "ffn_gate"), self.linear(x, b + "ffn_up")))
        else:
            inner = list(map(gelu, self.linear(x, b + "ffn_up")))
        return self.linear(inner, b + "ffn_down")

    def second(self, n):
        return n // 3 if self.types and self.pooling == RANK and len(self.rows("token_types")) > 1 else 0

    def rows_of(self, tokens, second=0):
        """Every token's row behind the last layer; those from `second` on are of the second type, 0: none."""
        types, xs = self.rows("token_types"), []
        for i, token in enumerate(tokens):
            place = [0.0] * self.E if self.nomic else self.rows("position_embd")[i]
            kind = types[second > 0 and i >= second]
            row = zip(self.rows("token_embd")[token], kind, place, strict=True)
            xs.append(self.norm(list(map(sum, row)), "token_embd_norm"))
        for l in range(self.L):
            b = "blk.%d." % l
            added = []
            for x, a in zip(xs, self.attention(xs, b, self.key("rope.freq_base")), strict=True):
                o = self.linear(a, b + "attn_output")
                self.tap(b, "attn_output", o)
                added.append(self.norm([i + j for i, j in zip(x, o, strict=True)], b + "attn_output_norm"))
            xs = []
            for x in added:
                self.tap(b, "attn_output_norm", x)
                f = self.feed_forward(x, b)
                self.tap(b, "ffn_down", f)
                xs.append(self.norm([i + j for i, j in zip(x, f, strict=True)], b + "layer_output_norm"))
                self.tap(b, "layer_output_norm", xs[-1])
        return xs

    def head(self, xs):
        """A reranker's scores."""
        return self.linear(list(map(math.tanh, self.linear(xs[0], "cls"))), "cls.output")

    def embed(self, tokens, second=0):
        """The text's row of length 1; of a reranker the scores."""
        xs, pooling = self.rows_of(tokens, second), self.pooling
        if pooling == RANK:
            out = self.head(xs)
        else:
            pooled = xs[0] if pooling == FIRST else [math.fsum(column) / len(xs) for column in zip(*xs, strict=True)]
            length = math.sqrt(dot(pooled, pooled))
            out = [v / length for v in pooled]
        self.tap("", "output_embedding", out)
        return out
