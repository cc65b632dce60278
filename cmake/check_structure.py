#!/usr/bin/env python3
"""check_structure.py [--list]: does the C and CUDA code have the structure that CONTRIBUTING.md promises?

It checks six things:
- calls: in the folders of ONE_WAY no C file calls itself through others;
- includes: no file includes itself through others, and a file includes folders below its own alone (LEVELS);
- functions: none is longer than FUNCTION_LINES lines, from the first line of its head to its closing brace;
- equal blocks: fewer than BLOCKS blocks of BLOCK_LINES or more equal lines stand in the product's code again;
- kernels: no file of a kernel includes the file of another kernel of its family (KERNELS);
- order: no call in a forward pass has two arguments that record something: compilers differ in which comes first.

--list prints every equal block. The script reads what git tracks and compiles nothing; a second is enough. Exit status
1: something is wrong."""

import fnmatch
import os
import re
import subprocess
import sys

FUNCTION_LINES = 80
BLOCK_LINES = 6
BLOCKS = 20

# Folders from the bottom to the top. A file includes files of its own folder and of levels below its folder's; two
# folders of one level do not know each other. A header that stands here by its name is below the rest of its folder.
LEVELS = (
    ("sdk/include/worker",),
    (
        "sdk/include/worker/cuda/image.cuh",
        "sdk/include/worker/cuda/kernel_set.cuh",
        "sdk/include/worker/cuda/format.cuh",
        "sdk/include/worker/cuda/product.h",
    ),
    ("sdk/include/worker/cuda/part",),
    ("sdk/include/worker/cuda/kernel",),
    ("sdk/include/worker/cuda/select",),
    ("sdk/include/worker/cuda", "sdk/include/worker/cpu", "core/base", "cmake"),
    ("core/log", "core/gguf", "core/sample", "http"),
    ("core/plugin", "core/tokenizer"),
    ("core/tape", "core/jinja", "core/harmony"),
    ("core/device", "core/grammar"),
    ("core/model", "core/tools", "core/capability"),
    ("core/check", "core/device/cpu", "core/device/cuda", "core/engine", "core/chat", "gate"),
    ("handover", "hub"),
    ("serve",),
    ("worker",),
)
# Folders of plugins: their files include the SDK's headers and files of their own folder.
PLUGINS = ("plugins/*", "sdk/example-*", "sdk/template-*")
SDK = "sdk/include/worker"

# Tests and programs that measure. They may include everything; no file of the product includes them, and what they
# repeat is not counted.
TESTS = ("*/test_*", "*/fuzz_*", "tests/*", "bench/*", "sdk/tests/*", "core/plugin/zoo/*")
# Tables that a program wrote.
MADE = ("core/jinja/char_table.h", "core/tokenizer/unicode_table.h")
# Headers as they were at earlier versions: they never change.
FROZEN = "sdk/abi/"

# Families of kernels, each by its files' pattern, and the files of such a name that are none: what chooses between
# kernels, and what several use.
KERNELS = ("sdk/include/worker/cuda/kernel/*.cuh", "core/device/cuda/attend_*.cuh", "core/device/cuda/*.cu")
NO_KERNELS = ("*/attend_part_*.cuh",)

# Folders whose C files call each other in one direction: what a file does can then be read without those above it.
ONE_WAY = ("core/device/cuda",)


def matches(path, patterns):
    return any(fnmatch.fnmatch(path, p) for p in patterns)


class Tree:
    """The files that git tracks, their text, and which of them each includes."""

    def __init__(self):
        command = ["git", "ls-files", "*.c", "*.h", "*.cu", "*.cuh"]
        listed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
        self.text = {}
        for path in listed:
            if os.path.exists(path) and not path.startswith(FROZEN):
                with open(path, encoding="utf-8") as f:
                    self.text[path] = f.read()
        self.includes = {path: self.included(path) for path in self.text}

    def included(self, path):
        """<...> is the SDK's; "..." lies beside the file or below a folder that the build searches."""
        found = set()
        for bracket, name in re.findall(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]', self.text[path], re.M):
            beside = [os.path.dirname(path), "core", "", "tests/support", "worker"] if bracket == '"' else []
            for root in [*beside, "sdk/include"]:
                candidate = os.path.normpath(os.path.join(root, name))
                if candidate in self.text:
                    found.add(candidate)
                    break
        return sorted(found)


def cycles(graph):
    """Groups of nodes of which each reaches all others of the group (Tarjan's algorithm)."""
    index, low, stack, groups = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            at = stack.index(node)
            if len(stack) - at > 1 or node in graph.get(node, ()):
                groups.append(sorted(stack[at:]))
            del stack[at:]

    for node in sorted(graph):
        if node not in index:
            visit(node)
    return groups


def check_includes(tree):
    for group in cycles(tree.includes):
        yield "%s: include each other in a circle" % ", ".join(group)
    level = {folder: n for n, folders in enumerate(LEVELS) for folder in folders}

    def level_of(path):
        return level.get(path, level.get(os.path.dirname(path), len(LEVELS)))

    for path, others in tree.includes.items():
        folder = os.path.dirname(path)
        if matches(path, TESTS):
            continue
        plugin = matches(folder, PLUGINS)
        if not plugin and folder not in level:
            yield "%s: its folder is not in LEVELS" % path
            continue
        for other in others:
            to = os.path.dirname(other)
            if matches(other, TESTS):
                yield "%s: includes %s, which is of tests" % (path, other)
            elif to == folder and other not in level and path not in level:
                continue
            elif plugin and not to.startswith(SDK) and to != os.path.dirname(folder):
                yield "%s: includes %s; a plugin includes <worker/...> and its own files alone" % (path, other)
            elif not plugin and level_of(other) >= level_of(path):
                yield "%s: includes %s, which is not below it in LEVELS" % (path, other)


def check_calls(tree):
    for folder in ONE_WAY:
        code = {
            path: re.sub(r'/\*.*?\*/|"(\\.|[^"\\])*"', "", text, flags=re.S)
            for path, text in tree.text.items()
            if os.path.dirname(path) == folder and path.endswith(".c") and not matches(path, TESTS)
        }
        defined = {}
        for path, text in code.items():
            for head in re.findall(r"^(?!static\b)[a-z][^;{}#=]*\)(?=\s*\{)", text, re.M):
                defined[re.search(r"(\w+)\(", head).group(1)] = path
        calls = {
            path: sorted({defined[name] for name in re.findall(r"\b(\w+)\(", text) if name in defined} - {path})
            for path, text in code.items()
        }
        for group in cycles(calls):
            yield "%s: call each other in a circle" % ", ".join(group)


def functions(text):
    """(name, first line, lines) of each. clang-format leaves a brace alone in the first column to functions."""
    lines = text.split("\n")
    for begin, line in enumerate(lines):
        if line != "{":
            continue
        first = begin
        while first and lines[first - 1] and not re.search(r"[;}]$|^#|\*/$", lines[first - 1]):
            first -= 1
        end = lines.index("}", begin)
        head = re.sub(r"__\w+__(\([^()]*\))?", "", " ".join(lines[first:begin]))
        name = re.search(r"(\w+)\(", head)
        yield name.group(1) if name else head, first + 1, end - first + 1


def check_functions(tree):
    for path, text in tree.text.items():
        for name, line, lines in functions(text):
            if lines > FUNCTION_LINES:
                yield "%s:%d: %s has %d lines, more than %d" % (path, line, name, lines, FUNCTION_LINES)


def code_lines(text):
    """(number, text) of the lines that say something: no comments, includes, brackets alone, names of an enum alone."""
    text = re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.S)
    for number, line in enumerate(text.split("\n"), 1):
        line = " ".join(re.sub(r"(^|\s)//.*", "", line).split())
        if re.search(r"\w", line) and not re.fullmatch(r"\w+,?", line) and not line.startswith("#include"):
            yield number, line


def blocks(tree):
    """Runs of BLOCK_LINES or more equal lines, as long as they go: (lines, path, line, first path, its line)."""
    code = {
        path: list(code_lines(text)) for path, text in sorted(tree.text.items()) if not matches(path, (*TESTS, *MADE))
    }
    first, again = {}, {}
    for path, lines in code.items():
        for i in range(len(lines) - BLOCK_LINES + 1):
            window = tuple(line for _, line in lines[i : i + BLOCK_LINES])
            if first.setdefault(window, (path, i)) != (path, i):
                again[path, i] = first[window]
    for (path, i), (other, j) in again.items():
        if again.get((path, i - 1)) == (other, j - 1):
            continue
        n = 1
        while again.get((path, i + n)) == (other, j + n):
            n += 1
        yield n + BLOCK_LINES - 1, path, code[path][i][0], other, code[other][j][0]


def check_blocks(tree):
    found = list(blocks(tree))
    if "--list" in sys.argv:
        for lines, path, line, other, at in sorted(found, reverse=True):
            print("%d lines: %s:%d as %s:%d" % (lines, path, line, other, at))
    if len(found) >= BLOCKS:
        yield "%d equal blocks of %d or more lines (--list shows them); at most %d" % (
            len(found),
            BLOCK_LINES,
            BLOCKS - 1,
        )


def check_kernels(tree):
    found = set()
    for pattern in KERNELS:
        for path, others in tree.includes.items():
            if matches(path, (pattern,)) and not matches(path, (*TESTS, *NO_KERNELS)):
                found |= {(path, o) for o in others if matches(o, (pattern,)) and not matches(o, NO_KERNELS)}
    for path, other in sorted(found):
        yield "%s: includes %s, another kernel: what both use is a part of its own" % (path, other)


RECORDS = re.compile(r"\bwk_(?!none\b)\w+\(b\b")


def arguments(text, at):
    """Of the call whose parenthesis opens at text[at]."""
    depth, begin, parts = 0, at + 1, []
    for i in range(at, len(text)):
        depth += {"(": 1, "{": 1, "[": 1, ")": -1, "}": -1, "]": -1}.get(text[i], 0)
        if depth == 0 or (depth == 1 and text[i] == ","):
            parts.append(text[begin:i])
            begin = i + 1
        if depth == 0:
            return parts
    return parts


def check_order(tree):
    """Names of forward passes' files: the builder is b in all of them."""
    for path in sorted(tree.text):
        if matches(path, (*(folder + "/*.c" for folder in PLUGINS), SDK + "/*.h")) and not matches(path, TESTS):
            text = tree.text[path]
            for call in re.finditer(r"\bwk_\w+(\()b\b", text):
                if sum(bool(RECORDS.search(part)) for part in arguments(text, call.start(1))) > 1:
                    yield "%s:%d: two arguments of one call record something: which comes first is the compiler's" % (
                        path,
                        text.count("\n", 0, call.start()) + 1,
                    )


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    tree = Tree()
    wrong = [
        text
        for check in (check_includes, check_calls, check_functions, check_blocks, check_kernels, check_order)
        for text in check(tree)
    ]
    for text in wrong:
        print(text)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
