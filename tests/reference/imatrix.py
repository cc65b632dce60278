#!/usr/bin/env python3
"""`worker imatrix` and `worker quantize --imatrix` against float64: imatrix.py WORKER GOLDENS FOLDER

The sums of squares of what each matrix is multiplied with, of tiny models, by the forward pass of families.py; that an
encoder which knows them makes a smaller error as they weigh it; and every file that is refused, by what it is refused
for."""

import math
import os
import random
import subprocess
import sys

import bert
import families
import forward
import gguf

worker, goldens, folder = sys.argv[1:4]
FAMILIES = (
    *("llama3", "qwen2", "phi3", "gpt2", "mixtral", "mixtral-apart", "gpt-oss", "gemma2", "deepseek2", "mamba2"),
    *("glm4moe", "llama4", "granitehybrid", "falcon-h1", "qwen3next"),
)
WEIGHED = ("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "IQ3_XXS", "IQ3_S")
ALONE = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_S", "IQ1_M")  # made with importance alone
failures = []


def check(name, good, detail=""):
    print(("ok      " if good else "FAILED  ") + name + ("" if good else ": " + str(detail)[:1000]))
    if not good:
        failures.append(name)


def run(*args):
    return subprocess.run([worker, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True)


def at(name):
    return os.path.join(folder, name)


def ids(model):
    """Of two windows, the last one short."""
    r = random.Random("imatrix")
    n = gguf.read(model)[1]["token_embd.weight"][0][1]
    return [r.randrange(n) for _ in range(40)]


def seen(model, tokens, context):
    """name of a matrix, or of a slab -> [rows, sums of squares of what it was multiplied with]"""
    record, meta, tensors = {}, *gguf.read(model)
    linear, expert = forward.Network.linear, forward.Network.expert

    def add(name, x):
        rows = record.setdefault(name, [0, [0.0] * len(x)])
        rows[0] += 1
        rows[1] = [s + v * v for s, v in zip(rows[1], x, strict=True)]

    def spied(self, x, name, first=0, n=None):
        if not first:  # ranges of one matrix read the same
            add(name + ".weight", x)
        return linear(self, x, name, first, n)

    def spied_expert(self, x, name, e):
        one = name.replace("_exps", "") + ".%d.weight" % e
        if one not in tensors:  # else linear sees it
            add((name + ".weight", e), x)
        return expert(self, x, name, e)

    forward.Network.linear, forward.Network.expert = spied, spied_expert
    try:
        for window in range(0, len(tokens), context):
            one = families.model(meta, tensors, context)
            for token in tokens[window : window + context]:
                one.step(token)
    finally:
        forward.Network.linear, forward.Network.expert = linear, expert
    return record


def compare(family):
    model, made, context = os.path.join(goldens, family + ".gguf"), at(family + ".imatrix.gguf"), 24
    tokens = ids(model)
    text = " ".join(map(str, tokens))
    said = run("imatrix", "--model", model, "--ids", text, "--context", str(context), "--exact", "-o", made)
    if said.returncode:
        check(family, False, said.stderr)
        return
    meta, tensors = gguf.read(made)
    facts = {"general.type": "imatrix", "imatrix.datasets": [], "imatrix.chunk_count": 2, "imatrix.chunk_size": context}
    check(family + ": metadata", meta == facts, meta)
    worst, missing = 0.0, []
    for key, (count, sums) in seen(model, tokens, context).items():
        name, slab = key if isinstance(key, tuple) else (key, 0)
        if name + ".in_sum2" not in tensors:
            missing.append(name)
            continue
        k = len(sums)
        got = tensors[name + ".in_sum2"][1][slab * k : (slab + 1) * k]
        if tensors[name + ".counts"][1][slab] != count:
            missing.append("%s: %g rows, expected %d" % (name, tensors[name + ".counts"][1][slab], count))
        size = math.sqrt(math.fsum(s * s for s in sums) / k)
        worst = max(worst, max(abs(a - b) for a, b in zip(got, sums, strict=True)) / size)
    check("%s: sums, off by %.1e" % (family, worst), not missing and worst <= 1e-4, missing)


def error(original, quantized, matrix):
    """The squared error of all matrices, each column's weighed by the mean of its squares."""
    total, (_, sums) = 0.0, gguf.read(matrix)
    for name, (ne, values) in original.items():
        if name + ".in_sum2" not in sums:
            continue
        k, n = ne[0], ne[1]
        w, counts = sums[name + ".in_sum2"][1], sums[name + ".counts"][1]
        for j, (a, b) in enumerate(zip(values, quantized[name][1], strict=True)):
            slab = j // (k * n)
            total += w[slab * k + j % k] / max(counts[slab], 1) * (a - b) ** 2
    return total


def skewed(path, source, spread=1.5):
    """The same matrix with columns that matter more and less, as those of trained models do; with no spread all matter
    the same."""
    meta, tensors = gguf.read(source)
    r = random.Random("skewed")
    for name, (_, values) in tensors.items():
        if name.endswith(".in_sum2"):
            values[:] = [v * math.exp(r.gauss(0, spread)) if spread else 1.0 for v in values]
    gguf.write(path, meta, tensors)


def weigh():
    """One family has rows that every type cuts into blocks."""
    model, matrix = os.path.join(goldens, "formats.gguf"), at("formats.imatrix.gguf")
    text = " ".join(map(str, ids(model)))
    said = run("imatrix", "--model", model, "--ids", text, "-o", at("plain.gguf"))
    check("an importance matrix of experts", said.returncode == 0, said.stderr)
    skewed(matrix, at("plain.gguf"))
    skewed(at("alike.gguf"), at("plain.gguf"), 0)
    original = gguf.read(model)[1]
    for kind in WEIGHED + ALONE:
        errors = []
        for extra in (["--imatrix", at("alike.gguf")] if kind in ALONE else [], ["--imatrix", matrix]):
            said = run("quantize", model, at("out.gguf"), kind, *extra)
            errors.append(error(original, gguf.read(at("out.gguf"))[1], matrix) if not said.returncode else math.nan)
        check("%s: weighed error %.4g, %.4g with it" % (kind, *errors), errors[1] < 0.97 * errors[0], said.stderr)
    for kind in ALONE:
        if os.path.exists(at("out2.gguf")):
            os.remove(at("out2.gguf"))
        said = run("quantize", model, at("out2.gguf"), kind)
        good = said.returncode == 1 and " is made only with an importance matrix" in said.stderr
        check(kind + " without importance", good and not os.path.exists(at("out2.gguf")), said.stderr)


def refused(name, words, change=None, meta=None, matrix="formats.imatrix.gguf"):
    facts, tensors = gguf.read(at(matrix))
    facts.update(meta or {})
    if change:
        change(tensors)
    bad = at("bad.gguf")
    gguf.write(bad, facts, tensors)
    said = run("quantize", os.path.join(goldens, "formats.gguf"), at("out2.gguf"), "Q4_K", "--imatrix", bad)
    good = said.returncode == 1 and words in said.stderr and bad in said.stderr and not os.path.exists(at("out2.gguf"))
    check(name, good, said.stderr)


def refusals():
    q = "blk.0.attn_q.weight"

    def drop(*names):
        return lambda t: [t.pop(n) for n in names]

    def put(name, ne, values):
        return lambda t: t.update({name: (ne, values)})

    def spoil(value):
        return lambda t: t[q + ".in_sum2"][1].__setitem__(3, value)

    refused("of another kind", "no importance matrix", meta={"general.type": "adapter"})
    refused("empty", "without tensors", lambda t: t.clear())
    refused("a name", "blk.0.x: expected names", put("blk.0.x", [4], [0.0] * 4))
    refused("without counts", q + ".in_sum2 is there, its counts are not", drop(q + ".counts"))
    refused("without sums", q + ".counts is there, its sums are not", drop(q + ".in_sum2"))
    refused("a negative sum", "value 3 is -1", spoil(-1.0))
    refused("no number", "value 3 is nan", spoil(math.nan))
    refused("an infinite sum", "value 3 is inf", spoil(math.inf))
    refused("three dimensions", "expected F32 of two dimensions", put(q + ".in_sum2", [128, 1, 2], [1.0] * 256))
    refused(
        "too narrow",
        q + ": 128 sums and 1 counts, the model's tensor has 256",
        put(q + ".in_sum2", [128, 1], [1.0] * 128),
    )
    refused("too many counts", q + ": 256 sums and 2 counts", put(q + ".counts", [1, 2], [1.0] * 2))
    refused("a matrix too few", q + " is missing", drop(q + ".in_sum2", q + ".counts"))
    refused("of another model", "of another model", matrix="llama3.imatrix.gguf")
    model = os.path.join(goldens, "formats.gguf")
    said = run("quantize", model, at("out2.gguf"), "Q4_K", "--imatrix", at("nowhere.gguf"))
    check("no file", said.returncode == 1 and "nowhere.gguf" in said.stderr, said.stderr)
    # what files of others leave out, or have besides; one count for all slabs
    facts, tensors = gguf.read(at("formats.imatrix.gguf"))
    drop("output.weight.in_sum2", "output.weight.counts")(tensors)
    tensors[q + ".in_sum"] = ([256, 1], [0.5] * 256)
    gguf.write(at("other.gguf"), facts, tensors)
    said = run("quantize", model, at("out2.gguf"), "Q4_K", "--imatrix", at("other.gguf"))
    check("a file of others", said.returncode == 0, said.stderr)


def pooled():
    """A reranker's last matrices read one row a text: nothing is gathered of them, and they are quantized even so."""
    bert.FAMILIES["wide"], bert.LABELS["wide"] = (64, 64, 4, 1, bert.RANK), 2
    bert.write(at("wide.gguf"), "wide")
    made = run("imatrix", "--model", at("wide.gguf"), "--ids", "2 7 8 9 3", "-o", at("wide.imatrix.gguf"))
    said = run("quantize", at("wide.gguf"), at("wide.q.gguf"), "Q8_0", "--imatrix", at("wide.imatrix.gguf"))
    check("a reranker", said.returncode == 0, made.stderr + said.stderr)
    meta, tensors = gguf.read(os.path.join(goldens, "formats.gguf"))
    tensors["cls.weight"] = tensors["blk.0.attn_q.weight"]
    gguf.write(at("scores.gguf"), meta, tensors)
    said = run("quantize", at("scores.gguf"), at("out3.gguf"), "IQ1_S", "--imatrix", at("formats.imatrix.gguf"))
    check("a reranker of one bit", said.returncode == 0, said.stderr)


def faint():
    """Columns that count next to nothing are still encoded: of what counts so little no product comes to nothing."""
    q, model = "blk.0.attn_q.weight", os.path.join(goldens, "formats.gguf")
    facts, tensors = gguf.read(at("formats.imatrix.gguf"))
    tensors[q + ".in_sum2"][1][:64] = [1e-30] * 64
    gguf.write(at("faint.gguf"), facts, tensors)
    original = gguf.read(model)[1][q][1]
    for kind in ("Q3_K", "Q6_K", "IQ4_XS"):
        said = run("quantize", model, at("out3.gguf"), kind, "--imatrix", at("faint.gguf"))
        made = gguf.read(at("out3.gguf"))[1][q][1]
        pairs = [(a, b) for j, (a, b) in enumerate(zip(original, made, strict=True)) if j % 256 < 64]
        off = math.fsum((a - b) ** 2 for a, b in pairs) / math.fsum(a * a for a, _ in pairs)
        check("%s: faint columns, off by %.2g" % (kind, off), off < 0.2, said.stderr)


def left_out():
    """Layers that predict further tokens are read by no step: nothing is gathered of them, columns count alike."""
    for family in ("glm4moe", "qwen3next"):
        given = ["--imatrix", at(family + ".imatrix.gguf")]
        said = run("quantize", os.path.join(goldens, family + ".gguf"), at("out3.gguf"), "Q4_0", *given)
        check(family + ": layers ahead", said.returncode == 0, said.stderr)
    meta, tensors = gguf.read(os.path.join(goldens, "formats.gguf"))
    tensors.update({"blk.1" + n[5:]: t for n, t in tensors.items() if n.startswith("blk.0.")})
    meta["qwen3moe.block_count"] = 2
    for ahead in (1, 0):
        meta["qwen3moe.nextn_predict_layers"] = ahead
        gguf.write(at("ahead.gguf"), meta, tensors)
        said = run("quantize", at("ahead.gguf"), at("out3.gguf"), "IQ1_S", "--imatrix", at("formats.imatrix.gguf"))
        good = said.returncode == 0 if ahead else "blk.1.attn_q.weight is missing" in said.stderr
        check("a layer ahead of one bit" if ahead else "a layer too few", good, said.stderr)


def overflow():
    meta, tensors = gguf.read(os.path.join(goldens, "llama3.gguf"))
    last = max(name for name in tensors if name.endswith("ffn_norm.weight"))  # the device looks at keys and values
    tensors[last][1][:] = [5e18] * tensors[last][0][0]  # whose squares are finite, and so is all that is made of it
    gguf.write(at("large.gguf"), meta, tensors)
    said = run(
        "imatrix",
        "--model",
        at("large.gguf"),
        "--ids",
        " ".join(map(str, range(1, 41))),
        "-o",
        at("large.imatrix.gguf"),
    )
    good = said.returncode != 0 and last[:6] + "ffn_" in said.stderr and "infinite or NaN" in said.stderr
    check("sums that overflow", good and not os.path.exists(at("large.imatrix.gguf")), said.stderr)


os.makedirs(folder, exist_ok=True)
for family in FAMILIES:
    compare(family)
weigh()
if os.path.exists(at("out2.gguf")):
    os.remove(at("out2.gguf"))
refusals()
pooled()
faint()
left_out()
overflow()
sys.exit("%d failed" % len(failures) if failures else 0)
