#!/usr/bin/env python3
"""Writes char_table.h, what Python's str knows of each character: python3 char_table.py > char_table.h

Every property is asked of Python's own str methods, so that the table has Python's answers and not a reading of the
standard. A table in two stages: a block's number for each 128 characters, and in a block each character's record."""

import unicodedata

BLOCK = 128
FLAGS = "ALPHA DECIMAL DIGIT NUMERIC UPPER LOWER TITLE CASED IGNORABLE PRINTABLE SPACE START CONTINUE".split()


def flags(c):
    s = chr(c)
    answers = (
        s.isalpha(),
        s.isdecimal(),
        s.isdigit(),
        s.isnumeric(),
        s.isupper(),
        s.islower(),
        unicodedata.category(s) == "Lt",
        (s + "a").title()[-1] == "a",  # what follows a cased character is no word's beginning
        # a final sigma looks past what case ignores
        ("A\u03a3" + s + "a").lower()[1] == "\u03c3" and ("A\u03a3" + s).lower()[1] == "\u03c2",
        s.isprintable(),
        s.isspace(),
        s.isidentifier(),
        ("a" + s).isidentifier(),
    )
    return sum(1 << i for i, answer in enumerate(answers) if answer)


longer = [(0, 0, 0)]  # mappings to several characters


def mapped(c, s):
    if len(s) == 1:
        return ord(s) - c
    points = tuple(ord(x) for x in s) + (0,) * (3 - len(s))
    if points not in longer:
        longer.append(points)
    return 0x200000 + longer.index(points)


def record(c):
    if 0xD800 <= c <= 0xDFFF:
        return (0, 15, 0, 0, 0, 0)
    s = chr(c)
    digit = unicodedata.decimal(s, 15)
    return (flags(c), digit, mapped(c, s.upper()), mapped(c, s.lower()), mapped(c, s.title()), mapped(c, s.casefold()))


def table(comment, declaration, values):
    print(f"\n/* {comment} */\nstatic const {declaration} = {{")
    line = "   "
    for v in values:
        if len(line) + len(v) > 115:
            print(line)
            line = "   "
        line += " " + v + ","
    print(line + "\n};")


records, blocks, order = {}, {}, []
for first in range(0, 0x110000, BLOCK):
    row = tuple(records.setdefault(record(c), len(records)) for c in range(first, first + BLOCK))
    order.append(blocks.setdefault(row, len(blocks)))

print(
    f"/* char_table.h: made by char_table.py from Unicode {unicodedata.unidata_version}; not to be edited. */\n"
    "#ifndef CORE_JINJA_CHAR_TABLE_H\n#define CORE_JINJA_CHAR_TABLE_H\n/* clang-format off */\n\n#include <stdint.h>\n"
)
print("enum {\n" + "".join(f"    CHAR_{name} = 1 << {i},\n" for i, name in enumerate(FLAGS)) + "};")
print(f"enum {{ CHAR_BLOCK = {BLOCK}, CHAR_LONGER = 0x200000 }};")
table(
    "digit: 15, none. upper, lower, title, fold: the distance to the one character, or CHAR_LONGER and a place",
    "struct { uint16_t flags; uint16_t digit; int32_t upper, lower, title, fold; } char_record[]",
    ["{" + ",".join(str(x) for x in r) + "}" for r in records],
)
table(
    "up to three characters, 0 behind the last", "uint32_t char_longer[][3]", [f"{{{a},{b},{c}}}" for a, b, c in longer]
)
table("for each block its number", "uint16_t char_block[]", [str(x) for x in order])
table("the records of each block", "uint16_t char_index[]", [str(x) for row in blocks for x in row])
print("\n#endif")
