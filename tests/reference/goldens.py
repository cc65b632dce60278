#!/usr/bin/env python3
"""Makes the goldens that every clone has: goldens.py WORKER FOLDER

Tiny random models of every family (families.py), and one of them in every format by `worker quantize`; their logits and
greedy ids in float64 of the values that the files hold (gguf.py); blocks of random bits of every format
with their values; cases.txt, what tests/test_golden.c reads; vocabularies and what texts encode to (vocabularies.py).
Nothing but the standard library; a dozen seconds, and none where nothing has changed.
"""

import json
import os
import random
import struct
import subprocess
import sys

import families
import forward
import gguf
import lora
import vocabularies

# Rounding activations to 8 bits costs this much where a format has integer products; else the F16 cache does.
EIGHT_BITS, F16_CACHE = 2e-2, 3e-3
MIXTURE = 8e-2  # gpt-oss, all positions; test_golden.c bounds seven of eight closer
# Of the logits of two experts, one chosen and one not: in units of the logits' own spread, 8 bounds: no rounding may
# decide between them.
LEAST_GAP = 8
PLAIN = ("f32", "f16", "bf16")  # products in F32
# With an adapter: plain, tied, fused q|k|v and gate|up, tables of positions, experts, norms behind projections,
# products by heads, states, tables of a constant row, scaled values and a shared expert; and pooled rows, below.
ADAPTED = ("llama3", "qwen2", "phi3", "gpt2", "mixtral", "gpt-oss", "gemma2", "deepseek2", "mamba2", "bert")
ADAPTED += ("granitemoe-shared", "gemma3")
WEIGHED = ("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s")  # types that are made with an importance matrix alone
MIXTURES = ("Q4_K_M",)  # a type for each role
# Many pages of the cache, windows and chunks that have passed, states kept behind pages.
LONG = ("llama3", "mistral", "gpt-oss", "mamba2-groups", "gemma3", "olmo3", "cohere2", "deepseek2-lite", "llama4")
LONG += ("gemma3n",)
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EMBEDDED = ("models/haiku/haiku-q4_k_m.gguf", "models/haiku-moe/haiku-moe-mxfp4.gguf")


def certain_step(model, token, gap):
    """The logits, or None, and the step undone, where a rounding may decide between two experts."""
    logits = model.step(token)
    if model.closest > gap:
        return logits
    model.undo()
    return None


def rounded(row):
    return [float("%.9g" % v) for v in row]


def golden(path, adapters, context, n_prompt, n_generated, gap, r):
    """The logits of every position and the greedy ids behind a prompt of random tokens, of the model at `path` with
    adapters; of an encoder the prompt's one row."""
    meta, tensors = gguf.read(path)
    model, prompt, steps = families.model(meta, lora.merge(tensors, adapters), context), [], []
    n_vocab = model.t["token_embd.weight"][0][1]
    if model.encoder:
        prompt = [r.randrange(n_vocab) for _ in range(n_prompt)]
        second = model.second(n_prompt)
        row = model.embed(prompt, second) if second else model.embed(prompt)
        made = {"n_vocab": len(row), "prompt_tokens": prompt, "second": second, "generated": []}
        return {**made, "embedding": rounded(row)}
    while len(steps) < n_prompt:
        token = r.randrange(n_vocab)
        logits = certain_step(model, token, gap)
        if logits:
            prompt.append(token)
            steps.append(logits)
    generated = [forward.argmax(steps[-1])]
    while len(generated) < n_generated:
        logits = certain_step(model, generated[-1], gap)
        if not logits:
            break
        steps.append(logits)
        generated.append(forward.argmax(logits))
    return {
        "n_vocab": n_vocab,
        "prompt_tokens": prompt,
        "generated": generated,
        "steps": [{"logits": rounded(logits)} for logits in steps],
    }


class Folder:
    def __init__(self, worker, path):
        self.worker, self.path, self.cases = worker, path, []

    @staticmethod
    def random(name):
        """Of one case alone: a new family changes no other's tokens."""
        return random.Random("golden " + name)

    def at(self, *parts):
        return os.path.join(self.path, *parts)

    def case(self, model, loose, context=512, n_prompt=20, n_generated=6, suffix="", adapters=()):
        """adapters: (file, scale) each."""
        name = model + suffix + ".json"
        gap, r = LEAST_GAP * min(loose, EIGHT_BITS), self.random(name)
        with open(self.at(name), "w", encoding="utf-8") as f:
            placed = [(self.at(file), scale) for file, scale in adapters]
            json.dump(golden(self.at(model + ".gguf"), placed, context, n_prompt, n_generated, gap, r), f)
        given = "".join(" lora=%s:%g" % adapter for adapter in adapters)
        self.cases.append("%s.gguf %s %d %g%s" % (model, name, context, loose, given))

    def adapted(self, model, loose, scale=0.75, **more):
        """The model with an adapter of all of its matrices and tables."""
        file = model + ".lora.gguf"
        lora.write(self.at(file), self.at(model + ".gguf"), 4, 8.0)
        self.case(model, loose, suffix=".lora", adapters=[(file, scale)], **more)

    def adapted_twice(self, model, loose):
        """The same, and another one: of another rank and type, with a scale below 0."""
        lora.write(self.at(model + ".lora2.gguf"), self.at(model + ".gguf"), 24, 12.0, "f16")
        both = [(model + ".lora.gguf", 0.75), (model + ".lora2.gguf", -0.5)]
        self.case(model, loose, suffix=".lora2", adapters=both)

    def run(self, *args):
        said = subprocess.run([self.worker, *args], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if said.returncode:
            sys.exit("worker %s: %s" % (" ".join(args), said.stderr))

    def quantize(self, source, kind, target, *more):
        self.run("quantize", self.at(source + ".gguf"), self.at(target + ".gguf"), kind, *more)

    def imatrix(self, model, n=64):
        """Of random tokens; its path."""
        r, path = self.random(model + ".imatrix"), self.at(model + ".imatrix.gguf")
        n_vocab = gguf.read(self.at(model + ".gguf"))[1]["token_embd.weight"][0][1]
        ids = " ".join(str(r.randrange(n_vocab)) for _ in range(n))
        self.run("imatrix", "--model", self.at(model + ".gguf"), "--ids", ids, "--exact", "-o", path)
        return path

    def served(self):
        """The formats of the worker's plugins; all of them are known to gguf.py."""
        said = subprocess.run([self.worker, "capabilities", "--json"], check=True, capture_output=True, text=True)
        served = set(json.loads(said.stdout)["supports_quant"])
        missing = served - {kind.lower() for kind in gguf.TYPES}
        if missing:
            sys.exit("served, but not among TYPES of tests/reference/gguf.py: " + " ".join(sorted(missing)))
        return served

    def blocks(self, name, n=64):
        """Random bits whose scales are moderate, and their values as an F32 decoder rounds them."""
        _, block, size, decode = gguf.TYPES[name]
        raws, values, r = [], [], self.random(name)
        while len(raws) < n:
            raw = r.randbytes(size)
            got = decode(raw, gguf.single)
            if all(abs(v) < 1000 for v in got):  # neither an infinity nor a NaN
                raws.append(raw)
                values += got
        for suffix, data in ((".rand.raw", b"".join(raws)), (".rand.f32", struct.pack("<%df" % len(values), *values))):
            with open(self.at("quant", name + suffix), "wb") as f:
                f.write(data)


def made_from(worker):
    """What the goldens depend on: these programs, the worker and its plugins, by name, size and time."""
    here = os.path.dirname(os.path.abspath(__file__))
    plugins = os.environ.get("WORKER_PLUGIN_PATH", "").split(":")
    files = [worker, *(os.path.join(d, name) for d in (here, *plugins) if os.path.isdir(d) for name in os.listdir(d))]
    stats = ((f, os.stat(f)) for f in sorted(files) if os.path.isfile(f))
    return "".join("%s %d %d\n" % (f, s.st_size, s.st_mtime_ns) for f, s in stats)


def main(worker, path):
    folder, stamp = Folder(worker, path), made_from(worker)
    if os.path.exists(folder.at("made_from")):
        with open(folder.at("made_from"), encoding="utf-8") as f:
            if f.read() == stamp:
                print("there already: nothing that they depend on has changed")
                return
    os.makedirs(folder.at("quant"), exist_ok=True)
    for family in families.FAMILIES:
        families.write(folder.at(family + ".gguf"), family)
        if family not in ("formats", "bert-score", "bert-pair"):  # a row of one number has no spread to compare by
            folder.case(family, F16_CACHE)
    for family in ("phi3", "phi4-mini"):
        folder.case(family, F16_CACHE, context=16, n_prompt=10, suffix=".short")
    for family in LONG:
        folder.case(family, F16_CACHE, n_prompt=140, suffix=".long")
    served, weighed = folder.served(), ["--imatrix", folder.imatrix("formats")]
    for kind in [*(k for k in gguf.TYPES if k.lower() in served), *MIXTURES]:
        if kind in gguf.TYPES:
            folder.blocks(kind)
        folder.quantize("formats", kind, "formats-" + kind, *(weighed if kind in WEIGHED else []))
        folder.case("formats-" + kind, F16_CACHE if kind in PLAIN else EIGHT_BITS, n_prompt=9, n_generated=2)
    for family in ADAPTED:
        folder.adapted(family, F16_CACHE)
    folder.adapted("bert-rank", F16_CACHE, scale=-0.75)  # its three scores lie apart
    folder.adapted_twice("llama3", F16_CACHE)
    folder.adapted("formats-Q4_K_M", EIGHT_BITS, n_prompt=9, n_generated=2)
    folder.quantize("harmony", "MXFP4_MOE", "gpt-oss-mxfp4")
    folder.case("gpt-oss-mxfp4", MIXTURE)
    with open(os.path.join(ROOT, "models/haiku/heldout.txt"), encoding="utf-8") as f:
        n = vocabularies.make(folder.at, f.read(30000), [os.path.join(ROOT, name) for name in EMBEDDED])
    with open(folder.at("cases.txt"), "w", encoding="utf-8") as f:
        f.write("".join(line + "\n" for line in folder.cases))
    with open(folder.at("made_from"), "w", encoding="utf-8") as f:
        f.write(stamp)
    print("%d goldens, %d texts and their ids in %s" % (len(folder.cases), n, path))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
