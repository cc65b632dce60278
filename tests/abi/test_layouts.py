#!/usr/bin/env python3
"""The hash of layouts changes with a kind's structs and with nothing else: test_layouts.py CMAKE SDK."""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

cmake, sdk = sys.argv[1:]
# Which hashes the structs of a header are in.
KINDS = {
    "abi.h": {"ARCH", "QUANT"},
    "plugin.h": {"ARCH", "QUANT"},
    "arch.h": {"ARCH"},
    "quant.h": {"QUANT"},
    "quant_cuda.h": {"CUDA"},
}


def hashes(include):
    out = os.path.join(include, "worker", "layout.h")
    script = os.path.join(sdk, "hash_layouts.cmake")
    subprocess.run([cmake, "-D", "INCLUDE_DIR=" + include, "-D", "OUT=" + out, "-P", script], check=True)
    with open(out, encoding="utf-8") as f:
        return dict(re.findall(r"#define WK_LAYOUT_(\w+) (0x\w+)", f.read()))


def body_end(text, start):
    depth = 0
    for i in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if text[i] == "}" and depth == 0:
            return i
    raise ValueError("no end")


with tempfile.TemporaryDirectory() as folder:
    include = os.path.join(folder, "include")
    shutil.copytree(os.path.join(sdk, "include"), include)
    before = hashes(include)
    problems, tried = [], 0

    def changed(path, text):
        """The kinds whose hash another text of the file changes."""
        with open(path, encoding="utf-8") as f:
            old = f.read()
        with open(path, "w", encoding="utf-8") as f:
            f.write(text(old))
        now = hashes(include)
        with open(path, "w", encoding="utf-8") as f:
            f.write(old)
        return {kind for kind in before if before[kind] != now[kind]}

    def expect(what, is_now, wanted):
        global tried
        tried += 1
        if is_now != wanted:
            problems.append("%s changes %s, expected %s" % (what, sorted(is_now), sorted(wanted)))

    expect("nothing", {k for k in before if hashes(include)[k] != before[k]}, set())
    paths = glob.glob(os.path.join(include, "worker", "**", "*"), recursive=True)
    for path in sorted(p for p in paths if p.endswith((".h", ".cuh")) and not p.endswith("layout.h")):
        name = os.path.relpath(path, os.path.join(include, "worker"))
        remark = "/* struct wk_remark { uint32_t %s; }; */\n" % name.replace("/", "_").replace(".", "_")
        expect(
            "a comment in " + name,
            changed(path, lambda t: remark + t.replace("*/", "changed */") + "void f(void) {}\n"),
            set(),
        )
    for header, kinds in KINDS.items():
        path = os.path.join(include, "worker", header)
        with open(path, encoding="utf-8") as f:
            text = f.read()
        code = re.sub(r"/\*.*?\*/", lambda m: " " * len(m[0]), text, flags=re.S)
        for m in re.finditer(r"^(?:typedef )?struct (wk_\w+ )?\{", code, flags=re.M):
            end = body_end(code, m.start())
            name = "%s of %s" % (m[1] or "the struct without a name", header)
            expect("a field at the end of " + name, changed(path, lambda t: t[:end] + "uint64_t n;" + t[end:]), kinds)
if problems:
    print("\n".join(problems))
    sys.exit(1)
print("%d edits" % tried)
