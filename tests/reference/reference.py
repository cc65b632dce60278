#!/usr/bin/env python3
"""Every checkpoint of `worker debug tap` against the float64 forward pass of families.py.

reference.py make DIR                 write a tiny random F32 model of each family
reference.py compare MODEL TAPDIR     compare a folder written by `worker debug tap --tap all` with the reference
"""

import json
import math
import os
import struct
import sys

import families
import forward
import gguf


def read_npy(path):
    """float32, C order -> (shape, [values])"""
    with open(path, "rb") as f:
        data = f.read()
    assert data[:6] == b"\x93NUMPY", path
    n = struct.unpack_from("<H", data, 8)[0]
    head = eval(data[10 : 10 + n], {"__builtins__": {}}, {"True": True, "False": False})
    assert head["descr"] == "<f4" and not head["fortran_order"], path
    count = math.prod(head["shape"])
    return head["shape"], list(struct.unpack_from("<%df" % count, data, 10 + n))


# checkpoint, and the error that F32 arithmetic may have in any one of its values, as a share of their rms
NORMS = dict.fromkeys(("attn_norm", "ffn_norm", "post_attention_norm", "attn_q.rope", "attn_k.rope"), 1e-5)
BOUND = {"logits": 1e-3, **NORMS}
OTHERS = 1e-4


def made_of_logits(folder, files, last):
    """What is made of the last row: the selected logits are that row, bit for bit, the probabilities its softmax: to
    1e-6 of the tapped row's, and of the reference's as far as the logits' own bound lets them."""
    tapped = {}
    for name in ("logits", "selected_logits", "probabilities"):
        if name not in files:
            sys.exit("%s: not among the taps in %s" % (name, folder))
        tapped[name] = read_npy(os.path.join(folder, files[name]["file"]))[1]
    row = tapped["logits"][-len(last) :]
    if tapped["selected_logits"] != row:
        sys.exit("selected_logits: not the last row of logits")
    bad = 0
    for name, logits, bound in (("tapped", row, 1e-6), ("reference", last, BOUND["logits"])):
        most = max(logits)
        total = math.fsum(math.exp(v - most) for v in logits)
        error = max(abs(p - math.exp(v - most) / total) for p, v in zip(tapped["probabilities"], logits, strict=True))
        print(
            "%-20s %.2e  (bound %.0e)" % ("probabilities", error, bound) + ("" if name == "tapped" else "  reference")
        )
        bad += not error <= bound
    return bad


def compare(model, folder):
    with open(os.path.join(folder, "index.json"), encoding="utf-8") as f:
        index = json.load(f)
    meta, tensors = gguf.read(model)
    expected = forward.checkpoints(families.model(meta, tensors, index["context"]), index["ids"])
    files = {e["name"]: e for e in index["taps"]}
    worst, bad = {}, 0
    for (name, kind), want in expected.items():
        if name not in files:
            sys.exit("%s: not among the taps in %s" % (name, folder))
        shape, got = read_npy(os.path.join(folder, files[name]["file"]))
        if len(got) != len(want):
            sys.exit("%s: %d values, expected %d (shape %s)" % (name, len(got), len(want), shape))
        # but for scores of keys that a row does not see
        pairs = [(a, b) for a, b in zip(got, want, strict=True) if not (a == b == -math.inf)]
        size = math.sqrt(math.fsum(b * b for _, b in pairs) / len(pairs))
        error = max((abs(a - b) if a == a else math.inf) for a, b in pairs) / size
        worst[kind] = max(worst.get(kind, 0.0), error)
        bad += not error <= BOUND.get(kind, OTHERS)
    for kind, error in worst.items():
        print("%-20s %.2e  (bound %.0e)" % (kind, error, BOUND.get(kind, OTHERS)))
    if ("logits", "logits") in expected:
        last = expected["logits", "logits"][-tensors["token_embd.weight"][0][1] :]
        bad += made_of_logits(folder, files, last)
        if forward.argmax(last) != index["argmax"]:
            sys.exit("argmax of the last row: expected %d, found %d" % (forward.argmax(last), index["argmax"]))
    sys.exit("%d checkpoints out of bounds" % bad if bad else 0)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "make":
        for family in families.FAMILIES:
            families.write(os.path.join(sys.argv[2], family + ".gguf"), family)
    elif len(sys.argv) == 4 and sys.argv[1] == "compare":
        compare(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)
