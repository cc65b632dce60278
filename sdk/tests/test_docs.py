#!/usr/bin/env python3
"""The SDK's pages, word for word, as a newcomer copies them.

Every block of code on them is fenced, and the word behind the fence says what happens to it here:

    sh          run, all of a page in one shell, in a folder that README.md's come first in; all commands succeed
    output      what the commands before it print, line by line; ... stands for anything, a line of it for any
                lines, and any number of spaces for any other
    c, cuda     compiled: the blocks of one page are one file, in their order; cuda where there is nvcc
    text        is read by people alone
    c file=PATH, cmake file=PATH, make file=PATH    written into that folder, for commands that follow

    sh needs=PROGRAM    not run where there is no such program; needs=gpu: not run here at all

Besides, every wk_ and WK_ name on a page is in the headers, and every link leads to a file.
usage: test_docs.py BUILD SDK COMPILER [NVCC]"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

build, sdk, compiler = map(os.path.abspath, sys.argv[1:4])
nvcc = sys.argv[4] if len(sys.argv) > 4 and sys.argv[4] != "NOTFOUND" else None
MARK = "\x01"
failed = 0


def check(what, ok, why=""):
    global failed
    failed += not ok
    print("%s %s%s" % ("ok  " if ok else "FAIL", what, "" if ok else ": %s" % why))


class Block:
    def __init__(self, info, line):
        words = info.split()
        self.language = words[0] if words else ""
        self.options = dict(w.partition("=")[::2] for w in words[1:])
        self.line, self.text = line, ""


def blocks_of(page):
    """The fenced blocks of a page; what only looks like code fails."""
    blocks, block, last = [], None, ""
    for number, line in enumerate(page.text.splitlines(), 1):
        if block is None and line.startswith("```"):
            block = Block(line[3:], number)
        elif line.startswith("```"):
            blocks.append(block)
            block = None
        elif block is not None:
            block.text += line + "\n"
        elif line.startswith("    ") and not last:
            check("%s:%d: code is fenced" % (page.name, number), False, line)
        last = line if block is None else ""
    check("%s: every fence is closed" % page.name, block is None)
    return blocks


class Page:
    def __init__(self, name):
        self.name = name
        with open(os.path.join(sdk, name), encoding="utf-8") as f:
            self.text = f.read()
        self.blocks = blocks_of(self)

    def at(self, block):
        return "%s:%d" % (self.name, block.line)


# ---- what is compiled ------------------------------------------------------------------------------------------------


def compile_blocks(page, language, command, suffix, folder):
    parts = [b for b in page.blocks if b.language == language and "file" not in b.options]
    if not parts:
        return
    if not command:
        print("not compiled, for there is no nvcc: %s" % ", ".join(map(page.at, parts)))
        return
    source = os.path.join(folder, page.name + suffix)
    with open(source, "w", encoding="utf-8") as f:
        for b in parts:
            f.write('#line %d "%s"\n%s' % (b.line + 1, page.name, b.text))
    r = subprocess.run(command + [source], capture_output=True, text=True)
    check("%s: %d blocks of %s compile" % (page.name, len(parts), language), r.returncode == 0, r.stderr)


def write_files(page, folder):
    for b in page.blocks:
        if "file" not in b.options:
            continue
        path = os.path.join(folder, b.options["file"])
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(b.text)


# ---- what is run -----------------------------------------------------------------------------------------------------


def runs(page, block):
    needs = block.options.get("needs")
    if needs == "gpu" or (needs and not shutil.which(needs)):
        print("not run, for it needs %s: %s" % (needs, page.at(block)))
        return False
    return True


def matches(shown, said):
    """Do the lines come in this order, and nothing beside them where no line of ... allows it?"""
    if not shown:
        return not said
    if shown[0].strip() == "...":
        return any(matches(shown[1:], said[n:]) for n in range(len(said) + 1))
    pattern = ".*".join(map(re.escape, re.split(r" *\.\.\. *", " ".join(shown[0].split()))))
    return bool(said) and bool(re.fullmatch(pattern, " ".join(said[0].split()))) and matches(shown[1:], said[1:])


def run_commands(page, folder, environment):
    commands = [b for b in page.blocks if b.language == "sh" and runs(page, b)]
    script = "set -e\n" + "".join("printf '\\001%d\\n'\n%s" % (b.line, b.text) for b in commands)
    r = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    said = dict(part.split("\n", 1) for part in r.stdout.split(MARK)[1:])
    for b in commands:
        printed = said.get(str(b.line))
        last = printed is not None and str(b.line) == list(said)[-1]
        check(
            "%s: %s" % (page.at(b), b.text.split("\n")[0]), printed is not None and not (last and r.returncode), printed
        )
    for before, b in zip(page.blocks, page.blocks[1:]):
        if b.language == "output" and str(before.line) in said:
            printed = said[str(before.line)].splitlines()
            check("%s: prints what is shown" % page.at(b), matches(b.text.splitlines(), printed), "\n".join(printed))


# ---- names and links -------------------------------------------------------------------------------------------------


def commas(arguments):
    """How many arguments a list has, its outermost commas counted."""
    depth = count = 0
    for c in arguments:
        depth += (c == "(") - (c == ")")
        count += c == "," and depth == 0
    return count + bool(arguments.strip())


def header_functions():
    """name -> number of parameters, of the inline functions that plugins call."""
    found = {}
    for root, _, files in os.walk(os.path.join(sdk, "include")):
        for name in (n for n in files if n.endswith(".h")):
            with open(os.path.join(root, name), encoding="utf-8") as f:
                for m in re.finditer(r"^static inline [\w ]+[ *](wk_\w+)\(([^)]*)\)", f.read(), re.M):
                    found[m[1]] = commas(m[2])
    return found


def header_names():
    names = set()
    for root, _, files in os.walk(os.path.join(sdk, "include")):
        for name in files:
            with open(os.path.join(root, name), encoding="utf-8") as f:
                names |= set(re.findall(r"\bw[kK]_\w+|\bWK_\w+|\bWORKER_\w+", f.read()))
    return names


def check_names(page, names, functions):
    prose = re.sub(r"```.*?```", "", page.text, flags=re.S)
    if page.name == "CHANGES.md":  # names that are no more stand in the first column
        prose = re.sub(r"^\|[^|]*\|", "|", prose, flags=re.M)
    known = lambda n: n in names or (n.endswith("_") and any(k.startswith(n) for k in names))  # noqa: E731
    unknown = sorted({n for n in re.findall(r"\b(?:wk|WK)_\w*", prose) if not known(n)})
    check("%s: every name is in the headers" % page.name, not unknown, unknown)
    calls = re.findall(r"`(wk_\w+)\(((?:[^()`]|\([^()`]*\))*)\)", prose)
    wrong = sorted({n for n, a in calls if n in functions and a and commas(a) != functions[n]})
    check("%s: every call has its function's number of arguments" % page.name, not wrong, wrong)
    targets = [t for t in re.findall(r"\]\(([^)#]+)\)", page.text) if "://" not in t]
    missing = [t for t in targets if not os.path.exists(os.path.join(sdk, t))]
    check("%s: every link leads to a file" % page.name, not missing, missing)


def main():
    names, functions = header_names(), header_functions()
    pages = sorted((n for n in os.listdir(sdk) if n.endswith(".md")), key=lambda n: (n != "README.md", n))
    include = ["-I", os.path.join(sdk, "include"), "-I", os.path.join(build, "include")]
    c = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-fsyntax-only", *include]
    cuda = nvcc and [
        nvcc,
        "-std=c++17",
        "-arch=sm_80",
        "--expt-relaxed-constexpr",
        "-cubin",
        "-o",
        os.devnull,
        *include,
    ]
    with tempfile.TemporaryDirectory() as folder:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("WORKER_", "PKG_CONFIG", "CFLAGS"))}
        environment.update(HOME=folder, CC=compiler, CTEST_OUTPUT_ON_FAILURE="")
        os.symlink(build, os.path.join(folder, "build-release"))
        for page in map(Page, pages):
            bad = [
                page.at(b)
                for b in page.blocks
                if b.language not in ("sh", "output", "text", "c", "cuda", "cmake", "make")
            ]
            bad += [page.at(b) for b in page.blocks if b.language in ("cmake", "make") and "file" not in b.options]
            check("%s: every block says what it is" % page.name, not bad, bad)
            compile_blocks(page, "c", c, ".c", folder)
            compile_blocks(page, "cuda", cuda, ".cu", folder)
            write_files(page, folder)
            run_commands(page, folder, environment)
            environment["PATH"] = "%s/worker/bin:%s" % (folder, os.environ["PATH"])
            check_names(page, names, functions)
    sys.exit(failed != 0)


main()
