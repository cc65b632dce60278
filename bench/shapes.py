#!/usr/bin/env python3
"""Writes GGUF files with the shapes and tensor types of published models, filled with random weights.

    shapes.py NAME OUT.gguf [--layers N]
    shapes.py --list

Memory and speed depend on shapes and types alone. Names of keys and tensors are those of the ecosystem's converter, so
other programs read the files, too. The vocabulary is 256 bytes and unused tokens, so text can be sent; what comes back
is noise. Blocks are random bits below moderate scales: logits stay finite. Standard library; writes about as fast as
the disk does.
"""

import argparse
import math
import os
import random
import struct
import sys
from typing import NamedTuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/reference"))
from gguf import put_text, put_value

# type: number in the file, values a block, bytes a block, maker of a block for rows of k values
TYPES = {}


def type_of(number, block, size):
    def add(make):
        TYPES[make.__name__.upper()] = (number, block, size, make)
        return make

    return add


def halves(*values):
    return struct.pack("<%de" % len(values), *values)


@type_of(1, 1, 2)
def f16(r, k):
    return halves(r.uniform(-1, 1) * math.sqrt(3 / k))


@type_of(8, 32, 34)
def q8_0(r, k):
    return halves(1 / (74 * math.sqrt(k))) + r.randbytes(32)


@type_of(6, 32, 22)
def q5_0(r, k):
    return halves(1 / (9.2 * math.sqrt(k))) + r.randbytes(20)


@type_of(7, 32, 24)
def q5_1(r, k):
    d = 1 / (9.2 * math.sqrt(k))
    return halves(d, -15.5 * d) + r.randbytes(20)


# Eight steps and eight leasts of 32, six bits each: the first four whole, with the others' highest bits above them.
SCALES = bytes([0x80 | 32] * 8 + [0x00] * 4)


@type_of(12, 256, 144)
def q4_k(r, k):
    d = 1 / (32 * 4.6 * math.sqrt(k))
    return halves(d, 7.5 * d) + SCALES + r.randbytes(128)


@type_of(13, 256, 176)
def q5_k(r, k):
    d = 1 / (32 * 9.2 * math.sqrt(k))
    return halves(d, 15.5 * d) + SCALES + r.randbytes(160)


@type_of(14, 256, 210)
def q6_k(r, k):
    return r.randbytes(192) + bytes([32] * 16) + halves(1 / (32 * 18.5 * math.sqrt(k)))


@type_of(39, 32, 17)
def mxfp4(r, k):
    return bytes([127 + round(math.log2(1 / (2.9 * math.sqrt(k))))]) + r.randbytes(16)


class Shape(NamedTuple):
    arch: str
    E: int  # values of a row
    L: int  # layers
    F: int  # feed-forward
    H: int  # heads
    G: int  # heads of k and v
    D: int  # values of a head
    V: int  # vocabulary
    C: int  # positions
    mixture: str
    tied: bool = False
    X: int = 0  # experts; those of a token; feed-forward of one; how many such the shared one is made of
    used: int = 0
    Fx: int = 0
    shared: int = 0
    latent: int = 0  # deepseek2: the latent row; the part of a head that rotates
    R: int = 0
    window: int = 0


SHAPES = {
    "qwen2.5-0.5b": Shape("qwen2", 896, 24, 4864, 14, 2, 64, 151936, 32768, "Q4_K_M", tied=True),
    "phi-3-mini": Shape("phi3", 3072, 32, 8192, 32, 32, 96, 32064, 4096, "Q4_K_M"),
    "llama-2-7b": Shape("llama", 4096, 32, 11008, 32, 32, 128, 32000, 4096, "Q8_0"),
    "gpt-oss-20b": Shape("gpt-oss", 2880, 24, 2880, 64, 8, 64, 201088, 131072, "MXFP4", X=32, used=4, window=128),
    "gpt2-124m": Shape("gpt2", 768, 12, 3072, 12, 12, 64, 50257, 1024, "Q8_0", tied=True),
    "deepseek2-v2-lite": Shape(
        *("deepseek2", 2048, 27, 10944, 16, 1, 128, 102400, 163840, "Q4_K_M"),
        **{"X": 64, "used": 6, "Fx": 1408, "shared": 2, "latent": 512, "R": 64},
    ),
    "gemma3-4b": Shape("gemma3", 2560, 34, 10240, 8, 4, 256, 262144, 131072, "Q4_K_M", tied=True, window=1024),
    "bert-base": Shape("bert", 768, 12, 3072, 12, 12, 64, 30522, 512, "F16", tied=True),
    "bert-base-q8_0": Shape("bert", 768, 12, 3072, 12, 12, 64, 30522, 512, "Q8_0", tied=True),
    # the same forms at a size for tests
    "small-qwen2": Shape("qwen2", 64, 2, 96, 4, 2, 16, 320, 512, "Q4_K_M", tied=True),
    "small-phi-3": Shape("phi3", 256, 2, 512, 4, 4, 64, 320, 512, "Q4_K_M"),
    "small-gpt-oss": Shape("gpt-oss", 64, 2, 64, 8, 2, 16, 320, 512, "MXFP4", X=32, used=4, window=128),
    "small-llama": Shape("llama", 64, 2, 96, 4, 4, 16, 320, 512, "Q8_0"),
    "small-gpt2": Shape("gpt2", 64, 2, 96, 4, 4, 16, 320, 512, "Q8_0", tied=True),
    "small-deepseek2": Shape(
        *("deepseek2", 256, 2, 512, 4, 1, 32, 320, 512, "Q4_K_M"),
        **{"X": 8, "used": 2, "Fx": 32, "shared": 2, "latent": 64, "R": 16},
    ),
    "small-gemma3": Shape("gemma3", 256, 6, 512, 4, 2, 64, 320, 512, "Q4_K_M", tied=True, window=32),
    "small-bert": Shape("bert", 64, 2, 96, 4, 4, 16, 320, 512, "F16", tied=True),
}
FILE_TYPE = {"F16": 1, "Q8_0": 7, "Q4_K_M": 15, "MXFP4": 38}
FALLBACK = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}  # of rows that their block does not divide


def kind_of(s, name, k, layer):
    """The type that the published files give a matrix."""
    if s.mixture == "MXFP4":
        return "MXFP4" if "_exps" in name else "Q8_0"
    if s.mixture != "Q4_K_M":
        return s.mixture
    more = layer < s.L // 8 or layer >= 7 * s.L // 8 or (layer - s.L // 8) % 3 == 2
    kind = "Q4_K"
    if name == ("token_embd" if s.tied else "output"):
        kind = "Q6_K"
    elif name == "attn_qkv":
        kind = "Q5_K"
    elif more and (name == "attn_v" or name.startswith("ffn_down")):
        kind = "Q6_K"
    return FALLBACK[kind] if k % 256 else kind


class Tensors:
    """[(name, type or None for F32, ne)] in the order of the file."""

    def __init__(self, shape):
        self.s, self.list, self.prefix, self.i = shape, [], "", 0

    def layer(self, i):
        self.prefix, self.i = "blk.%d." % i, i

    def matrix(self, name, *ne, bias=False):
        self.list.append((self.prefix + name + ".weight", kind_of(self.s, name, ne[0], self.i), ne))
        if bias:
            self.vector(name + ".bias", *ne[1:])

    def vector(self, name, *ne):
        self.list.append((self.prefix + name, None, ne))

    def norm(self, name, n, bias=False):
        self.vector(name + ".weight", n)
        if bias:
            self.vector(name + ".bias", n)


def attention(t):
    s = t.s
    bias = s.arch in ("qwen2", "gpt-oss", "bert", "gpt2")
    if s.arch in ("phi3", "gpt2"):
        t.matrix("attn_qkv", s.E, (s.H + 2 * s.G) * s.D, bias=bias)
    else:
        for name, heads in (("attn_q", s.H), ("attn_k", s.G), ("attn_v", s.G)):
            t.matrix(name, s.E, heads * s.D, bias=bias)
    if s.arch == "gemma3":
        t.norm("attn_q_norm", s.D)
        t.norm("attn_k_norm", s.D)
    t.matrix("attn_output", s.H * s.D, s.E, bias=bias and s.arch != "qwen2")
    if s.arch == "gpt-oss":
        t.vector("attn_sinks.weight", s.H)


def latent_attention(t):
    s = t.s
    t.matrix("attn_q", s.E, s.H * (s.D + s.R))
    t.matrix("attn_kv_a_mqa", s.E, s.latent + s.R)
    t.norm("attn_kv_a_norm", s.latent)
    t.matrix("attn_k_b", s.D, s.latent, s.H)
    t.matrix("attn_v_b", s.latent, s.D, s.H)
    t.matrix("attn_output", s.H * s.D, s.E)


def feed_forward(t):
    s = t.s
    if s.arch in ("bert", "gpt2"):
        t.matrix("ffn_up", s.E, s.F, bias=True)
        t.matrix("ffn_down", s.F, s.E, bias=True)
        return
    if s.arch == "phi3":
        t.matrix("ffn_up", s.E, 2 * s.F)
    else:
        t.matrix("ffn_gate", s.E, s.F)
        t.matrix("ffn_up", s.E, s.F)
    t.matrix("ffn_down", s.F, s.E)


def experts(t):
    s, bias, width = t.s, t.s.arch == "gpt-oss", t.s.Fx or t.s.F
    t.vector("ffn_gate_inp.weight", s.E, s.X)
    if bias:
        t.vector("ffn_gate_inp.bias", s.X)
    for name, k, n in (("ffn_gate", s.E, width), ("ffn_up", s.E, width), ("ffn_down", width, s.E)):
        t.matrix(name + "_exps", k, n, s.X, bias=bias)
    if s.shared:
        width *= s.shared
        for name, k, n in (("ffn_gate", s.E, width), ("ffn_up", s.E, width), ("ffn_down", width, s.E)):
            t.matrix(name + "_shexp", k, n)


def layer_tensors(t, i):
    s = t.s
    t.layer(i)
    if s.arch != "bert":
        t.norm("attn_norm", s.E, s.arch == "gpt2")
    (latent_attention if s.latent else attention)(t)
    if s.arch == "bert":
        t.norm("attn_output_norm", s.E, True)
    if s.arch in ("gemma3", "gpt-oss"):
        t.norm("post_attention_norm", s.E)
    if s.arch not in ("bert", "gpt-oss"):
        t.norm("ffn_norm", s.E, s.arch == "gpt2")
    (experts if s.X and (i or s.arch != "deepseek2") else feed_forward)(t)
    if s.arch == "bert":
        t.norm("layer_output_norm", s.E, True)
    if s.arch == "gemma3":
        t.norm("post_ffw_norm", s.E)


def all_tensors(s):
    t = Tensors(s)
    t.matrix("token_embd", s.E, s.V)
    if s.arch in ("bert", "gpt2"):
        t.vector("position_embd.weight", s.E, s.C)
    if s.arch == "bert":
        t.vector("token_types.weight", s.E, 2)
        t.norm("token_embd_norm", s.E, True)
    for i in range(s.L):
        layer_tensors(t, i)
    t.prefix, t.i = "", 0
    if s.arch != "bert":
        t.norm("output_norm", s.E, s.arch == "gpt2")
    if not s.tied:
        t.matrix("output", s.E, s.V)
    return t.list


def byte_alphabet():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(256 + others.index(b)) for b in range(256)]


def rotation(s):
    """Keys of positions."""
    if s.arch in ("bert", "gpt2"):
        return {}
    base = {"gpt-oss": 150000.0, "gemma3": 1000000.0}.get(s.arch, 10000.0)
    keys = {"rope.freq_base": base, "rope.dimension_count": s.R or s.D}
    stretch = {"gpt-oss": ("yarn", 32.0), "deepseek2": ("yarn", 40.0), "gemma3": ("linear", 8.0)}.get(s.arch)
    if stretch:
        keys.update({"rope.scaling.type": stretch[0], "rope.scaling.factor": stretch[1]})
    if stretch and stretch[0] == "yarn":
        keys["rope.scaling.original_context_length"] = 4096
    if s.arch == "deepseek2":
        keys["rope.scaling.yarn_log_multiplier"] = 0.0707
    if s.arch == "gemma3":
        keys["rope.freq_base_swa"] = 10000.0
    return keys


def architecture_keys(s):
    keys = {"context_length": s.C, "embedding_length": s.E, "block_count": s.L, "feed_forward_length": s.F}
    keys.update({"attention.head_count": s.H, "vocab_size": s.V})
    keys["attention.layer_norm_%sepsilon" % ("" if s.arch in ("bert", "gpt2") else "rms_")] = 1e-5
    if s.arch == "bert":
        keys.update({"attention.causal": False, "pooling_type": 1})
    elif s.arch != "gpt2":
        keys["attention.head_count_kv"] = s.G
    if s.latent:
        keys.update({"attention.key_length": s.latent + s.R, "attention.value_length": s.latent})
        keys.update({"attention.key_length_mla": s.D + s.R, "attention.value_length_mla": s.D})
        keys["attention.kv_lora_rank"] = s.latent
    elif s.arch in ("gpt-oss", "gemma3"):
        keys.update({"attention.key_length": s.D, "attention.value_length": s.D})
    if s.window:
        keys["attention.sliding_window"] = s.window
    if s.X:
        keys.update({"expert_count": s.X, "expert_used_count": s.used, "expert_feed_forward_length": s.Fx or s.F})
    if s.shared:
        keys.update({"leading_dense_block_count": 1, "expert_shared_count": s.shared})
        keys.update({"expert_gating_func": 1, "expert_weights_scale": 1.0})
    return {**keys, **rotation(s)}


def metadata(name, s):
    meta = {
        "general.architecture": s.arch,
        # Without hyphens: llama.cpp looks for tokens by their texts in any model whose name has "phi-3" in it.
        "general.name": name.replace("-", " ") + " (shape alone)",
        "general.quantization_version": 2,
        "general.file_type": FILE_TYPE[s.mixture],
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": byte_alphabet() + ["<unused%d>" % i for i in range(s.V - 257)] + ["<|endoftext|>"],
        "tokenizer.ggml.token_type": [1] * 256 + [5] * (s.V - 257) + [3],
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": s.V - 1,
        "tokenizer.ggml.eos_token_id": s.V - 1,
    }
    if s.arch == "bert":
        meta["tokenizer.ggml.token_type_count"] = 2
    return {**meta, **{s.arch + "." + k: v for k, v in architecture_keys(s).items()}}


class Pools:
    """Blocks of each type and row length, made once and repeated."""

    BYTES = 1 << 22

    def __init__(self, seed):
        self.r, self.made = random.Random(seed), {}

    def write(self, f, kind, ne):
        if kind is None:
            n = math.prod(ne)
            most = 1.2 if len(ne) == 1 else math.sqrt(3 / ne[0])  # norms near 1, biases too; routers and positions
            least = 0.8 if len(ne) == 1 else -most
            f.write(struct.pack("<%df" % n, *(self.r.uniform(least, most) for _ in range(n))))
            return 4 * n
        _, block, size, make = TYPES[kind]
        total = math.prod(ne) // block * size
        if (kind, ne[0]) not in self.made:
            n = min(total, self.BYTES) // size
            self.made[kind, ne[0]] = b"".join(make(self.r, ne[0]) for _ in range(n))
        pool = self.made[kind, ne[0]]
        at = self.r.randrange(len(pool) // size) * size
        left = total
        while left:
            left -= f.write(pool[at : at + left])
            at = 0
        return total


def write(name, path, layers=None):
    shape = SHAPES[name]
    if layers:
        shape = shape._replace(L=layers)
    tensors, meta, offset, table = all_tensors(shape), metadata(name, shape), 0, []
    for tensor, kind, ne in tensors:
        number, block, size = TYPES[kind][:3] if kind else (0, 1, 4)
        table.append(put_text(tensor) + struct.pack("<I%dQIQ" % len(ne), len(ne), *ne, number, offset))
        offset += (math.prod(ne) // block * size + 31) // 32 * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta))
    head += b"".join(put_text(k) + put_value(v) for k, v in meta.items()) + b"".join(table)
    pools = Pools(name)
    with open(path, "wb", buffering=1 << 20) as f:
        f.write(head + b"\0" * (-len(head) % 32))
        for _, kind, ne in tensors:
            f.write(b"\0" * (-pools.write(f, kind, ne) % 32))


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("name", nargs="?", choices=SHAPES)
    a.add_argument("out", nargs="?")
    a.add_argument("--layers", type=int)
    a.add_argument("--list", action="store_true")
    o = a.parse_args()
    if o.list or not o.out:
        sys.exit("\n".join(SHAPES))
    write(o.name, o.out, o.layers)
    print("%s: %d bytes" % (o.out, os.path.getsize(o.out)))


if __name__ == "__main__":
    main()
