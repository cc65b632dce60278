#!/usr/bin/env python3
"""Writes GGUF files with the shapes and tensor types of published models, filled with random weights.

    shapes.py NAME OUT.gguf [--layers N]
    shapes.py --list

Memory and speed depend on shapes and types alone. The vocabulary is 256 bytes and unused tokens, so text can be sent;
what comes back is noise. Blocks are random bits below moderate scales: logits stay finite. Standard library; writes
about as fast as the disk does.
"""

import argparse
import math
import os
import random
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/reference"))
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


# name: architecture, embedding, layers, feed-forward, heads, heads of k and v, values a head, vocabulary, context,
# mixture
SHAPES = {
    "qwen2.5-0.5b": ("qwen2", 896, 24, 4864, 14, 2, 64, 151936, 32768, "Q4_K_M"),
    "phi-3-mini": ("phi3", 3072, 32, 8192, 32, 32, 96, 32064, 4096, "Q4_K_M"),
    "gpt-oss-20b": ("gpt-oss", 2880, 24, 2880, 64, 8, 64, 201088, 131072, "MXFP4"),
    # the same forms at a size for tests
    "small-qwen2": ("qwen2", 64, 2, 96, 4, 2, 16, 320, 512, "Q4_K_M"),
    "small-phi-3": ("phi3", 256, 2, 512, 4, 4, 64, 320, 512, "Q4_K_M"),
    "small-gpt-oss": ("gpt-oss", 64, 2, 64, 8, 2, 16, 320, 512, "MXFP4"),
}
FALLBACK = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}  # of rows that 256 does not divide
EXPERTS, USED = 32, 4


def kind_of(shape, name, k, layer):
    """The type that the published files give a matrix."""
    arch, _, layers, *_, mixture = shape
    if mixture == "MXFP4":
        return "MXFP4" if "_exps" in name else "Q8_0"
    more = layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
    kind = "Q4_K"
    if name == "output" or (name == "token_embd" and arch == "qwen2"):
        kind = "Q6_K"
    elif name == "attn_qkv":
        kind = "Q5_K"
    elif name in ("attn_v", "ffn_down") and more:
        kind = "Q6_K"
    return FALLBACK[kind] if k % 256 else kind


def layer_tensors(shape, layer):
    """[(name, type or None for F32, ne)]"""
    arch, E, _, F, H, G, D, _, _, _ = shape
    out, b = [], "blk.%d." % layer

    def matrix(name, *ne):
        out.append((b + name + ".weight", kind_of(shape, name, ne[0], layer), ne))

    def vector(name, *ne):
        out.append((b + name, None, ne))

    vector("attn_norm.weight", E)
    if arch == "phi3":
        matrix("attn_qkv", E, (H + 2 * G) * D)
    else:
        for name, n in (("attn_q", H * D), ("attn_k", G * D), ("attn_v", G * D)):
            matrix(name, E, n)
            vector(name + ".bias", n)
    matrix("attn_output", H * D, E)
    if arch == "gpt-oss":
        vector("attn_output.bias", E)
        vector("attn_sinks.weight", H)
        vector("post_attention_norm.weight", E)
        vector("ffn_gate_inp.weight", E, EXPERTS)
        vector("ffn_gate_inp.bias", EXPERTS)
        for name, k, n in (("ffn_gate_exps", E, F), ("ffn_up_exps", E, F), ("ffn_down_exps", F, E)):
            matrix(name, k, n, EXPERTS)
            vector(name + ".bias", n, EXPERTS)
        return out
    vector("ffn_norm.weight", E)
    if arch == "phi3":
        matrix("ffn_up", E, 2 * F)
    else:
        matrix("ffn_gate", E, F)
        matrix("ffn_up", E, F)
    matrix("ffn_down", F, E)
    return out


def all_tensors(shape):
    arch, E, layers, *_, V, _, _ = shape
    out = [("token_embd.weight", kind_of(shape, "token_embd", E, 0), (E, V))]
    for layer in range(layers):
        out += layer_tensors(shape, layer)
    out.append(("output_norm.weight", None, (E,)))
    if arch != "qwen2":  # tied
        out.append(("output.weight", kind_of(shape, "output", E, 0), (E, V)))
    return out


def byte_alphabet():
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return [chr(b) if b in plain else chr(256 + others.index(b)) for b in range(256)]


def metadata(name, shape):
    arch, E, layers, F, H, G, D, V, context, mixture = shape
    tokens = byte_alphabet() + ["<unused%d>" % i for i in range(V - 257)] + ["<|endoftext|>"]
    meta = {
        "general.architecture": arch,
        "general.name": name + " (shape alone)",
        "general.quantization_version": 2,
        "general.file_type": 15 if mixture == "Q4_K_M" else 38,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * 256 + [5] * (V - 257) + [3],
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.bos_token_id": V - 1,
        "tokenizer.ggml.eos_token_id": V - 1,
    }
    keys = {"context_length": context, "embedding_length": E, "block_count": layers, "feed_forward_length": F}
    keys.update({"attention.head_count": H, "attention.head_count_kv": G, "attention.layer_norm_rms_epsilon": 1e-5})
    keys.update({"rope.freq_base": 150000.0 if arch == "gpt-oss" else 10000.0, "rope.dimension_count": D})
    if arch == "gpt-oss":
        keys.update({"attention.key_length": D, "attention.value_length": D, "attention.sliding_window": 128})
        keys.update({"expert_count": EXPERTS, "expert_used_count": USED, "expert_feed_forward_length": F})
        keys.update({"rope.scaling.type": "yarn", "rope.scaling.factor": 32.0})
        keys["rope.scaling.original_context_length"] = 4096
    return {**meta, **{arch + "." + k: v for k, v in keys.items()}}


class Pools:
    """Blocks of each type and row length, made once and repeated."""

    BYTES = 1 << 22

    def __init__(self, seed):
        self.r, self.made = random.Random(seed), {}

    def write(self, f, kind, ne):
        if kind is None:  # norms near 1, biases, sinks and routers: small
            n = math.prod(ne)
            value = 1.0 if len(ne) == 1 else 0.02
            f.write(struct.pack("<%df" % n, *(value * (0.9 + 0.2 * self.r.random()) for _ in range(n))))
            return 4 * n
        _, block, size, make = TYPES[kind]
        if (kind, ne[0]) not in self.made:
            self.made[kind, ne[0]] = b"".join(make(self.r, ne[0]) for _ in range(self.BYTES // size))
        pool, total = self.made[kind, ne[0]], math.prod(ne) // block * size
        at = self.r.randrange(len(pool) // size) * size
        left = total
        while left:
            left -= f.write(pool[at : at + left])
            at = 0
        return total


def write(name, path, layers=None):
    shape = SHAPES[name]
    if layers:
        shape = (*shape[:2], layers, *shape[3:])
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
