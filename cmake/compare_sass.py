#!/usr/bin/env python3
"""compare_sass.py OLD NEW: do two builds of a module have the same machine code?

OLD and NEW: shared objects, or folders with shared objects of the same names. Kernels are compared by what they
execute, not by their names: so a change that only moves and renames code has to show no difference. Prints the kernels
of each side that have no equal on the other one, and how many instructions they have. Exit status 1: there are some.
Needs cuobjdump in PATH."""

import collections
import hashlib
import os
import re
import subprocess
import sys


def kernels(path):
    """[(architecture, name, digest of the instructions, instructions)]"""
    found, arch, name, code = [], None, None, []

    def end():
        if name:
            found.append((arch, name, hashlib.sha256("\n".join(code).encode()).hexdigest(), len(code)))

    with subprocess.Popen(["cuobjdump", "-sass", path], stdout=subprocess.PIPE, text=True) as p:
        for line in p.stdout:
            m = re.match(r"code for (\S+)", line.strip())
            if m:
                end()
                arch, name = m[1], None
                continue
            m = re.search(r"Function : (\S+)", line)
            if m:
                end()
                name, code = m[1], []
                continue
            m = re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?);", line)
            if m:
                code.append(re.sub(r"\s+", " ", re.sub(r"\b_Z\w+|\$\w+", "symbol", m[1])))
    end()
    if p.returncode:
        sys.exit("cuobjdump -sass %s ended with %d" % (path, p.returncode))
    return found


def pairs(old, new):
    if not os.path.isdir(old):
        return [(old, new)]
    names = [sorted(n for n in os.listdir(d) if n.endswith(".so")) for d in (old, new)]
    if names[0] != names[1]:
        sys.exit("%s has %s, %s has %s" % (old, names[0], new, names[1]))
    return [(os.path.join(old, n), os.path.join(new, n)) for n in names[0]]


def compare(old, new):
    a, b = kernels(old), kernels(new)
    count_a, count_b = (collections.Counter((arch, digest) for arch, _, digest, _ in side) for side in (a, b))
    differ = 0
    for label, side, mine, other in (("only old", a, count_a, count_b), ("only new", b, count_b, count_a)):
        for arch, name, digest, n in side:
            if mine[arch, digest] > other[arch, digest]:
                differ += 1
                print("%s: %s %s, %d instructions: %s" % (label, os.path.basename(new), arch, n, name[:200]))
    print("%s: %d and %d kernels, %d without an equal" % (os.path.basename(new), len(a), len(b), differ))
    if not a:
        sys.exit("%s has no kernels" % old)
    return differ


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(sum(compare(old, new) for old, new in pairs(sys.argv[1], sys.argv[2])) != 0)


main()
