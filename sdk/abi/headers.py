#!/usr/bin/env python3
"""The headers that are the ABI, as text: frozen once a minor version, compared with today's, and grown for tests.

    headers.py freeze INCLUDE DIR           copies them to DIR, which must not be there
    headers.py compare OLD NEW CC           what OLD has, NEW has in the same places and with the same values
    headers.py grow INCLUDE DIR             INCLUDE's headers, all of them, with fields more in every struct that grows

OLD, NEW, INCLUDE: folders with worker/*.h, layout.h (which the build makes) among them. Comments do not count.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

HEADERS = ["abi.h", "arch.h", "layout.h", "plugin.h", "quant.h", "rope.h"]
# Structs that grow at their end. wk_op_*: operations, all of them.
GROWS = """wk_host wk_note_desc wk_plugin wk_rope_freqs wk_custom_call wk_custom_def wk_builder wk_key wk_key_value
    wk_meta wk_alias wk_arch wk_tensor_params wk_dequantize wk_quantize wk_pack wk_unpack wk_cpu_product wk_isa_product
    wk_type_cpu wk_quant""".split()
# Structs that never do: without a size, in arrays of a fixed stride, ahead of other fields; or of the inlines alone.
FIXED = ["wk_err", "wk_op", "wk_activation_q8", "wk_rows", "wk_custom_tensor", "wk_yarn"]
HEADS = ["wk_note"]  # grow by their last field alone
# Words of macros that a newer minor says otherwise.
MACROS_THAT_MOVE = re.compile(r"WK_ABI_MINOR$|WK_LAYOUT_|WORKER_\w+_H$")


def fail(text):
    print("headers.py: " + text, file=sys.stderr)
    sys.exit(1)


def blank_comments(text):
    """The same length and lines, spaces in the place of comments."""
    return re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)


def read(include, header):
    with open(os.path.join(include, "worker", header), encoding="utf-8") as f:
        return f.read()


def words(text):
    return " ".join(text.split())


def structs(code):
    """name -> (body, place of its closing brace). code: without comments."""
    found = {}
    for m in re.finditer(r"^struct (wk_\w+) \{", code, flags=re.M):
        end = code.index("}", m.end())
        body = code[m.end() : end]
        if "{" in body:
            fail("struct %s has a part in braces, which these tests do not read" % m[1])
        found[m[1]] = (body, end)
    return found


def declarations(body):
    return [words(d) for d in body.split(";") if d.strip()]


def fields(body):
    names = []
    for d in declarations(body):
        function = re.search(r"\(\*(\w+)\)\(", d)
        names += [function[1]] if function else [re.search(r"(\w+)(\[\w+\])*$", p.strip())[1] for p in d.split(",")]
    return names


def enumerators(code):
    return [
        re.match(r"\w+", part.strip())[0]
        for m in re.finditer(r"^enum (?:\w+ )?\{([^}]*)\}", code, flags=re.M)
        for part in m[1].split(",")
        if part.strip()
    ]


def macros(code):
    """Those without parameters: name -> words."""
    code = code.replace("\\\n", " ")
    return {m[1]: words(m[2]) for m in re.finditer(r"^#define (\w+)(?!\()[ \t]*(.*)$", code, flags=re.M)}


def inlines(code):
    """Signatures of functions: name -> words."""
    return {
        m[2]: words(m[0])
        for m in re.finditer(r"^static inline ([\w *]+?)(\bwk_\w+)\([^{]*\)(?=\s*\{)", code, flags=re.M)
    }


def all_code(include):
    return {h: blank_comments(read(include, h)) for h in HEADERS}


def check_known(code):
    for name in structs(code):
        operation = name.startswith("wk_op_")
        if (name in GROWS) + (name in FIXED) + (name in HEADS) + operation != 1:
            fail("struct %s: say in GROWS or FIXED of headers.py whether it grows, and where it crosses test it" % name)


# ---- freeze


def freeze(include, target):
    if os.path.exists(target):
        fail("%s is there already: what is frozen stays as it is" % target)
    folder = os.path.join(target, "worker")
    for header in HEADERS:
        check_known(blank_comments(read(include, header)))
    os.makedirs(folder)
    for header in HEADERS:
        shutil.copyfile(os.path.join(include, "worker", header), os.path.join(folder, header))


# ---- compare


def ask_compiler(include, cc, code):
    """Places, sizes and values as the compiler has them: one line each, by name. code: the headers without comments."""
    lines = ["#include <stdio.h>", "#include <worker/plugin.h>", "#include <worker/rope.h>", "int main(void) {"]
    for text in code.values():
        for name, (body, _) in structs(text).items():
            lines.append('printf("struct %s %%zu\\n", sizeof(struct %s));' % (name, name))
            for field in fields(body):
                where = "offsetof(struct %s, %s), sizeof(((struct %s *)0)->%s)" % (name, field, name, field)
                lines.append('printf("field %s.%s %%zu %%zu\\n", %s);' % (name, field, where))
        for name in enumerators(text):
            lines.append('printf("enum %s %%lld\\n", (long long)%s);' % (name, name))
        for name in macros(text):
            if re.search(r"_SIZE_1_0$", name):
                lines.append('printf("size %s %%zu\\n", (size_t)%s);' % (name, name))
    lines.append("return 0; }")
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "ask.c"), os.path.join(folder, "ask")
        with open(source, "w", encoding="utf-8") as f:
            f.write("\n".join(lines) + "\n")
        newest = "-DWORKER_ABI_MINOR=WK_ABI_MINOR"  # of all names, whichever minor brought them
        subprocess.run([cc, "-std=c11", newest, "-I" + include, "-o", program, source, "-lm"], check=True)
        said = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    return {tuple(line.split()[:2]): line.split()[2:] for line in said.splitlines()}


def compare_text(header, old, new, say):
    old_structs, new_structs = structs(old), structs(new)
    for name, (body, _) in old_structs.items():
        if name not in new_structs:
            say("%s: struct %s is gone" % (header, name))
            continue
        before, now = declarations(body), declarations(new_structs[name][0])
        if now[: len(before)] != before:
            say("%s: struct %s does not begin as it did" % (header, name))
        if name in FIXED and now != before:
            say("%s: struct %s has grown, which it must not" % (header, name))
    for what, read_names in (("macro", macros), ("function", inlines)):
        before, now = read_names(old), read_names(new)
        for name, text in before.items():
            if what == "macro" and MACROS_THAT_MOVE.match(name):
                continue
            if name not in now:
                say("%s: %s %s is gone" % (header, what, name))
            elif now[name] != text:
                say("%s: %s %s was \"%s\" and is \"%s\"" % (header, what, name, text, now[name]))


def compare_values(old, new, say):
    for (kind, name), value in old.items():
        now = new.get((kind, name))
        if now is None:
            say("%s %s is gone" % (kind, name))
        elif name == "wk_note" or name == "wk_note.desc":
            if now[:-1] != value[:-1] or int(now[-1]) < int(value[-1]):
                say("%s was %s and is %s" % (name, " ".join(value), " ".join(now)))
        elif kind == "struct" and name not in FIXED:
            if int(now[0]) < int(value[0]) or int(now[0]) % 8:
                say("struct %s had %s bytes and has %s" % (name, value[0], now[0]))
        elif kind == "enum" and name.endswith("_END"):
            if int(now[0]) < int(value[0]):
                say("%s was %s and is %s" % (name, value[0], now[0]))
        elif now != value:
            say("%s %s was %s and is %s" % (kind, name, " ".join(value), " ".join(now)))
    for (kind, name), value in new.items():
        if kind != "field" or (kind, name) in old:
            continue
        struct = old.get(("struct", name.split(".")[0]))
        if struct and int(value[0]) < int(struct[0]):
            say("field %s stands at %s, within what the struct had" % (name, value[0]))


def compare(old_include, new_include, cc):
    problems = []
    old, new = all_code(old_include), all_code(new_include)
    for header in HEADERS:
        check_known(new[header])
        compare_text(header, old[header], new[header], problems.append)
    if not problems:  # else there may be nothing to compile
        compare_values(ask_compiler(old_include, cc, old), ask_compiler(new_include, cc, new), problems.append)
    if problems:
        fail("\n".join(problems))
    print("%d structs, %d enumerators" % tuple(sum(len(f(c)) for c in old.values()) for f in (structs, enumerators)))


# ---- grow


def grown_field(name):
    """A note is aligned to 4 bytes, everything else to 8."""
    return "    uint32_t grown_[4];\n" if name == "wk_note_desc" else "    uint64_t grown_[2];\n"


def grow(include, target):
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(os.path.join(include, "worker"), os.path.join(target, "worker"))
    for header in HEADERS:
        text = read(include, header)
        code = blank_comments(text)
        check_known(code)
        ends = [(end, name) for name, (_, end) in structs(code).items() if name not in FIXED + HEADS]
        for end, name in sorted(ends, reverse=True):
            text = text[:end] + grown_field(name) + text[end:]
        with open(os.path.join(target, "worker", header), "w", encoding="utf-8") as f:
            f.write(text)


COMMANDS = {"freeze": (freeze, 2), "compare": (compare, 3), "grow": (grow, 2)}

if __name__ == "__main__":
    command, n = COMMANDS.get(sys.argv[1] if len(sys.argv) > 1 else "", (None, 0))
    if not command or len(sys.argv) != 2 + n:
        fail(__doc__)
    command(*sys.argv[2:])
