#!/usr/bin/env python3
"""Are the reference's values of blocks those of gguf-py, bit for bit? against_gguf_py.py [NAME...]

Blocks of random bits of every type that gguf-py (PyPI: gguf) decodes, so the points of the grids, too, each of them;
ends with 77, a skipped test, where gguf-py is not installed. The worker's plugins are compared with the same reference
(goldens.py, tests/quant/quant_test.c).
"""

import random
import sys

import gguf as reference

# `gguf` is this folder's own: the package of that name is looked for without it.
del sys.modules["gguf"]
here = sys.path.pop(0)
try:
    import numpy
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize
except ImportError as e:
    print("skipped: gguf-py is not here (%s): pip install gguf" % e)
    sys.exit(77)
finally:
    sys.path.insert(0, here)


def edges(size):
    """Blocks of which every byte has every value somewhere, and those of equal bytes."""
    for start in range(256):
        yield bytes((start + 7 * i) % 256 for i in range(size))
        yield bytes([start]) * size


def compare(name):
    number, block, size, decode = reference.TYPES[name]
    try:
        kind = GGMLQuantizationType(number)
        dequantize(numpy.zeros((1, size), numpy.uint8), kind)
    except (ValueError, NotImplementedError):
        print("%-8s not known to gguf-py" % name)
        return 0
    r = random.Random("gguf-py " + name)
    raws = [*edges(size), *(r.randbytes(size) for _ in range(400))]
    with numpy.errstate(all="ignore"):
        theirs = dequantize(numpy.frombuffer(b"".join(raws), numpy.uint8).reshape(len(raws), size), kind)
    wrong = 0
    for raw, row in zip(raws, theirs.astype(numpy.float32), strict=True):
        ours = numpy.array(decode(raw, reference.single), numpy.float64).astype(numpy.float32)
        same = (ours.view(numpy.uint32) == row.view(numpy.uint32)) | (numpy.isnan(ours) & numpy.isnan(row))
        wrong += not same.all()
    print("%-8s %d of %d blocks differ" % (name, wrong, len(raws)))
    return wrong


def compare_grids():
    """Every point, which random bits need not reach."""
    from gguf import quants

    wrong = 0
    for name, points in reference.GRIDS.items():
        theirs = getattr(quants, "IQ1_S" if name == "iq1" else name.upper())
        theirs.init_grid()
        levels = [[theirs.grid_map.index(int(v)) for v in point] for point in theirs.grid.reshape(theirs.grid_shape)]
        wrong += levels != points
        print("grid of %-8s %s, %d points" % (name, "equal" if levels == points else "differs", len(points)))
    return wrong


if __name__ == "__main__":
    failed = sum(compare(name) for name in sys.argv[1:] or reference.TYPES) + compare_grids()
    sys.exit(1 if failed else 0)
