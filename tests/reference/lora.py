"""LoRA adapters of random values for the tiny models, and models with such adapters merged into their weights.

W + s B A is formed here in float64, once and in full, where the worker adds s B (A x) to every product. Of a table
whose rows are looked up the file has A [rows][rank] and B [columns][rank]; where such a table is the head, too, the
head stays as it is.
"""

import math
import random

import gguf
from forward import dot

TABLES = ("token_embd", "position_embd", "token_types")
NOT_MATRICES = ("ssm_conv1d", "ssm_norm")


def changeable(name, ne):
    stem = name.removesuffix(".weight")
    return stem != name and len(ne) > 1 and not stem.endswith(NOT_MATRICES)


def write(path, model, rank, alpha, kind="f32"):
    """An adapter that changes every matrix and table of the model at `model`."""
    meta, tensors = gguf.read(model)
    r, out = random.Random("lora " + path.rpartition("/")[2]), {}

    def gauss(ne, sd):
        return ne, [r.gauss(0.0, sd) for _ in range(math.prod(ne))]

    for name, (ne, _) in tensors.items():
        if not changeable(name, ne):
            continue
        k, n, slabs = ne[0], ne[1], ne[2:]
        if name.removesuffix(".weight") in TABLES:
            out[name + ".lora_a"] = gauss([rank, n], 0.5)
            out[name + ".lora_b"] = gauss([rank, k], 0.5 / math.sqrt(rank))
        else:
            out[name + ".lora_a"] = gauss([k, rank, *slabs], 1 / math.sqrt(k))
            out[name + ".lora_b"] = gauss([rank, n, *slabs], 0.5 / math.sqrt(rank))
    head = {"general.type": "adapter", "general.architecture": meta["general.architecture"], "adapter.type": "lora"}
    gguf.write(path, {**head, "adapter.lora.alpha": alpha}, out, kind)


def add(w, ne, a, b, factor):
    """w [slabs][n][k] += factor * B [slabs][n][rank] A [slabs][rank][k], in place."""
    k, n, rank = ne[0], ne[1], a[0][1]
    for j in range(math.prod(ne[1:])):
        row, first = w[j * k : (j + 1) * k], j // n * rank * k
        for m in range(rank):
            c = factor * b[1][j * rank + m]
            row = [x + c * y for x, y in zip(row, a[1][first + m * k : first + (m + 1) * k], strict=True)]
        w[j * k : (j + 1) * k] = row


def add_to_table(w, ne, a, b, factor):
    """Row t of w [n][k] += factor * B [k][rank] A[t]."""
    k, n, rank = ne[0], ne[1], a[0][0]
    rows = [b[1][i * rank : (i + 1) * rank] for i in range(k)]
    for t in range(n):
        x = a[1][t * rank : (t + 1) * rank]
        change = [factor * dot(row, x) for row in rows]
        w[t * k : (t + 1) * k] = [v + c for v, c in zip(w[t * k : (t + 1) * k], change, strict=True)]


def merge(tensors, adapters):
    """The tensors with adapters, (path, scale) each, in their order."""
    out = {name: (ne, list(values)) for name, (ne, values) in tensors.items()}
    for path, scale in adapters:
        meta, halves = gguf.read(path)
        if "token_embd.weight.lora_a" in halves and "output.weight" not in out:
            out["output.weight"] = tensors["token_embd.weight"]
        for name, b in halves.items():
            if not name.endswith(".lora_b"):
                continue
            name = name.removesuffix(".lora_b")
            a, (ne, w) = halves[name + ".lora_a"], out[name]
            change = add_to_table if name.removesuffix(".weight") in TABLES else add
            change(w, ne, a, b, scale * meta["adapter.lora.alpha"] / b[0][0])
    return out
