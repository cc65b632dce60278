#!/usr/bin/env python3
"""headers.py finds what breaks the promise, and nothing where it is kept: test_headers.py HEADERS.PY INCLUDE CC."""

import os
import re
import subprocess
import sys
import tempfile

tool, include, cc = sys.argv[1:]

# file, what is there, what it becomes, what is said of it; "": nothing
EDITS = [
    ("arch.h", "/* Columns [first", "/* Of the columns [first", ""),
    ("arch.h", "    double default_number;", "    double default_number;\n    uint64_t later;", ""),
    ("arch.h", "    WK_OP_END\n", "    WK_OP_LATER,\n    WK_OP_END\n", ""),
    ("abi.h", "#define WK_ABI_MINOR 1", "#define WK_ABI_MINOR 2", ""),
    (
        "arch.h",
        "    uint32_t type, flags;\n    double min, max;",
        "    double min, max;\n    uint32_t type, flags;",
        "struct wk_key",
    ),
    ("arch.h", "    const char *name; /* \"attention", "    char *name; /* \"attention", "struct wk_key"),
    ("arch.h", "    uint32_t first, n, groups, reserved;", "    uint32_t first, n;", "struct wk_op_slice"),
    ("arch.h", "    float p;\n};", "    double p;\n};", "struct wk_op_unary"),
    ("arch.h", "uint32_t need);\n    uint32_t (*width)", "uint64_t need);\n    uint32_t (*width)", "struct wk_builder"),
    ("abi.h", "    uint64_t cap; /*", "    uint64_t cap, more; /*", "struct wk_err has grown"),
    ("arch.h", "    uint32_t t[8];", "    uint32_t t[9];", "struct wk_op "),
    (
        "arch.h",
        "    WK_OP_LINEAR,\n    WK_OP_NORM,",
        "    WK_OP_NORM,\n    WK_OP_LINEAR,",
        "enum WK_OP_NORM was 3 and is 2",
    ),
    ("arch.h", "    WK_KEY_REQUIRED = 1u << 0,", "    WK_KEY_REQUIRED = 1u << 9,", "enum WK_KEY_REQUIRED"),
    ("arch.h", "    WK_UNARY_EXP,\n", "", "WK_UNARY_EXP"),
    ("quant.h", "#define WK_TILE_ROWS 16u", "#define WK_TILE_ROWS 32u", "macro WK_TILE_ROWS"),
    ("quant.h", "#define WK_ACTIVATION_BLOCK 32u\n", "", "macro WK_ACTIVATION_BLOCK is gone"),
    ("abi.h", "#define WK_ABI_MAJOR 1", "#define WK_ABI_MAJOR 2", "macro WK_ABI_MAJOR"),
    ("arch.h", "wk_value x, float cap)", "wk_value x, double cap)", "function wk_softcap"),
    (
        "rope.h",
        "static inline double wk_yarn_mscale(",
        "static inline double wk_yarn_scale(",
        "function wk_yarn_mscale is gone",
    ),
    (
        "quant.h",
        "struct wk_quant {",
        "struct wk_later {\n    uint64_t a;\n};\nstruct wk_quant {",
        "struct wk_later: say in GROWS",
    ),
    ("plugin.h", "    const void *(*extension)", "    const void *(*answers)", "struct wk_plugin"),
]


def run(*arguments):
    return subprocess.run([sys.executable, tool, *arguments], capture_output=True, text=True)


def expect(condition, text):
    if not condition:
        print(text)
        sys.exit(1)


with tempfile.TemporaryDirectory() as folder:
    frozen, again = os.path.join(folder, "frozen"), os.path.join(folder, "changed")
    expect(run("freeze", include, frozen).returncode == 0, "cannot freeze")
    said = run("freeze", include, frozen)
    expect(said.returncode != 0 and "is there already" in said.stderr, "freezes twice: " + said.stderr)
    said = run("compare", frozen, include, cc)
    expect(said.returncode == 0, "what was frozen now differs: " + said.stderr)
    grown = os.path.join(folder, "grown")
    expect(run("grow", include, grown).returncode == 0, "cannot grow")
    said = run("compare", frozen, grown, cc)
    expect(said.returncode == 0, "grown headers are said to break: " + said.stderr)
    said = run("compare", grown, frozen, cc)
    expect(len(re.findall("does not begin", said.stderr)) > 30, "shrunk headers pass: " + said.stderr)
    for file, before, after, words in EDITS:
        subprocess.run(["cp", "-rT", frozen, again], check=True)
        path = os.path.join(again, "worker", file)
        with open(path, encoding="utf-8") as f:
            text = f.read()
        expect(before in text, "%s has no %s" % (file, before))
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace(before, after, 1))
        said = run("compare", frozen, again, cc)
        if words:
            expect(said.returncode != 0 and words in said.stderr, "%s: %s\nsaid: %s" % (file, after, said.stderr))
        else:
            expect(said.returncode == 0, "%s: %s\nrefused: %s" % (file, after, said.stderr))
print("%d edits" % len(EDITS))
