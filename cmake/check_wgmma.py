#!/usr/bin/env python3
"""check_wgmma.py FILE...: no instruction writes a register that a wgmma under way still reads, or touches one that it
adds to.

A wgmma goes on when it has been issued, until wgmma.wait_group says that it is over, and reads its A from registers
meanwhile. Compiler and assembler take it for over when it is issued, so only the machine code shows whether they
have given such a register to something else (wk_wgmma_replace). FILE: objects or shared objects with code for
sm_90a. Each kernel's code is followed along all branches. Exit status 1: something is in a product's way. Needs
cuobjdump and nvdisasm in PATH. An instruction that is not known here counts as one that writes its first operand."""

import re
import subprocess
import sys

NO_RESULT = (
    "BAR",
    "BRX",
    "CALL",
    "NANOSLEEP",
    "RET",
    "WARPSYNC",
)  # opcodes whose first operand may be a register that they only read


def kernels(path):
    """(name, [(address, predicated, opcode, operands)]) of each kernel in the file."""
    name, code = None, []
    with subprocess.Popen(["cuobjdump", "-sass", "-arch", "sm_90a", path], stdout=subprocess.PIPE, text=True) as p:
        for line in p.stdout:
            begin = re.search(r"Function : (\S+)", line)
            if begin:
                if name:
                    yield name, code
                name, code = begin.group(1), []
                continue
            m = re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(@\S+ )?(\S+?)(?: (.*?))? ?;", line)
            if m:
                code.append((int(m.group(1), 16), m.group(2) is not None, m.group(3), m.group(4) or ""))
    if p.returncode:
        sys.exit("cuobjdump -sass %s ended with %d" % (path, p.returncode))
    if name:
        yield name, code


def width(opcode):
    """Registers that one operand of a memory access, or the result of anything, spans."""
    if ".128" in opcode or "MMA" in opcode or re.match(r"LDSM.*\.4", opcode):
        return 4
    return 2 if ".64" in opcode or "WIDE" in opcode or opcode.startswith(("CS2R", "D", "I2F.F64", "LDSM")) else 1


def written(opcode, operands):
    m = re.match(r"(?:U?P\w+, )?R(\d+)\b", operands)
    if not m or opcode.startswith(NO_RESULT):
        return set()
    return set(range(int(m.group(1)), int(m.group(1)) + width(opcode)))


def named(opcode, operands):
    span = width(opcode) if opcode.startswith("ST") else 1
    return {int(m) + i for m in re.findall(r"\bR(\d+)\b", operands) for i in range(span)}


def product(opcode, operands):
    """Registers of A, of the sums."""
    operand = [o.strip() for o in operands.split(",")]
    columns = int(re.match(r"HGMMA\.64x(\d+)x", opcode).group(1))
    first = int(re.match(r"R(\d+)", operand[0]).group(1))
    a = re.match(r"R(\d+)", operand[1])
    return set(range(int(a.group(1)), int(a.group(1)) + 4)) if a else set(), set(range(first, first + columns // 2))


OLDEST = 15  # committed groups that can still be told apart


def after(state, i, op, operands):
    """What is under way after instruction i: {product: groups committed since its own, -1 while its own is not}."""
    if op.startswith("HGMMA"):
        state = {**state, i: -1}
        return {p: min(n + 1, OLDEST) for p, n in state.items()} if "gsb0" in operands else state
    if op.startswith("WARPGROUP.DEPBAR"):
        left = int(operands.split(",")[1], 16)
        return {p: n for p, n in state.items() if n < left}
    return state


def successors(code, at, i):
    _, predicated, op, operands = code[i]
    target = re.search(r"(?:^|, )0x([0-9a-f]+)$", operands) if op.startswith(("BRA", "CALL")) else None
    if target and int(target.group(1), 16) in at:
        yield at[int(target.group(1), 16)]
    if predicated or not (op in ("EXIT", "BRX") or op.startswith("RET") or (op == "BRA" and "," not in operands)):
        yield i + 1


def under_way(code):
    """For each instruction what may be under way before it, by the shortest way that leads there: a wait is believed to
    end only what it ends on all ways."""
    at = {address: i for i, (address, _, _, _) in enumerate(code)}
    states, work = [None] * (len(code) + 1), [0]
    states[0] = {}
    while work:
        i = work.pop()
        if i == len(code):
            continue
        new = after(states[i], i, *code[i][2:])
        for j in successors(code, at, i):
            old = states[j]
            joined = dict(old or {})
            for p, n in new.items():
                joined[p] = min(n, joined.get(p, OLDEST))
            if old is None or joined != old:
                states[j] = joined
                work.append(j)
    return states


def check(code):
    """(products with A in registers, [(address of a product, address, text of what is in its way)])."""
    products = {i: product(op, operands) for i, (_, _, op, operands) in enumerate(code) if op.startswith("HGMMA")}
    bad = []
    for (address, _, op, operands), state in zip(code, under_way(code)):
        if not state or op.startswith("HGMMA"):
            continue
        result, all_named = written(op, operands), named(op, operands)
        bad += [
            (code[p][0], address, op + " " + operands)
            for p in state
            if products[p][0] & result or products[p][1] & (result | all_named)
        ]
    return sum(bool(a) for a, _ in products.values()), sorted(bad)


def main():
    n_kernels = n_products = 0
    failed = False
    for path in sys.argv[1:]:
        for name, code in kernels(path):
            if not any(op.startswith("HGMMA") for _, _, op, _ in code):
                continue
            n, bad = check(code)
            n_kernels, n_products, failed = n_kernels + 1, n_products + n, failed or bool(bad)
            for p, address, text in bad:
                print("%s: %s: the wgmma at %x is under way at %x: %s" % (path, name, p, address, text))
    print(
        "wgmma: %u kernels, %u products with A in registers%s"
        % (n_kernels, n_products, "" if failed else ": nothing in their way")
    )
    if not n_products:
        sys.exit("no wgmma found: is there code for sm_90a in these files?")
    sys.exit(failed)


main()
