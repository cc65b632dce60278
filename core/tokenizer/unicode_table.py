#!/usr/bin/env python3
"""Writes unicode_table.h from Python's copy of the Unicode Character Database: python3 unicode_table.py >
unicode_table.h

Any version of Unicode will do: canonical decompositions, once published, never change, and characters younger than the
table pass as they are."""

import sys
import unicodedata as u

LAST = 0x110000
points = [c for c in range(LAST) if not 0xD800 <= c <= 0xDFFF]


def rows(values, per_line):
    for i in range(0, len(values), per_line):
        yield "    " + " ".join(v + "," for v in values[i : i + per_line])


def table(comment, declaration, values, per_line):
    print(f"\n/* {comment} */\nstatic const {declaration}[] = {{")
    print("\n".join(rows(values, per_line)))
    print("};")


def ranges(chosen):
    out = []
    for c in points:
        value = chosen(c)
        if not value:
            continue
        if out and out[-1][1] == c - 1 and out[-1][2] == value:
            out[-1][1] = c
        else:
            out.append([c, c, value])
    return out


def pair(c):
    """The canonical decomposition, one step: two characters, or one and 0."""
    d = u.decomposition(chr(c))
    if not d or d.startswith("<"):
        return None
    parts = [int(x, 16) for x in d.split()]
    return parts[0], parts[1] if len(parts) > 1 else 0


decompositions = [(c, *pair(c)) for c in points if not 0xAC00 <= c <= 0xD7A3 and pair(c)]
# A pair composes unless the standard excludes it, and that shows in what NFC makes of it.
compositions = sorted((a, b, c) for c, a, b in decompositions if b and u.normalize("NFC", chr(c)) == chr(c))


# What Unicode's \w has: Alphabetic, marks, decimal digits, connectors, joiners. Alphabetic beyond letters, letter
# numbers and marks are the enclosed letters.
def is_word(c):
    enclosed = 0x24B6 <= c <= 0x24E9 or 0x1F130 <= c <= 0x1F149 or 0x1F150 <= c <= 0x1F169 or 0x1F170 <= c <= 0x1F189
    return (
        u.category(chr(c)) in ("Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "Pc")
        or c in (0x200C, 0x200D)
        or enclosed
    )


# What BERT's tokenizer asks of a character: 1 what is left out (controls, formats, private use), 2 punctuation, 3 a
# mark that has no width.
def kind(c):
    category = u.category(chr(c))
    return 1 if category in ("Cc", "Cf", "Co") else 2 if category[0] == "P" else 3 if category == "Mn" else 0


# U+0130 is the one that becomes two.
lower = [(c, ord(chr(c).lower())) for c in points if len(chr(c).lower()) == 1 and chr(c).lower() != chr(c)]

print(
    f"/* unicode_table.h: made by unicode_table.py "
    f"from the Unicode Character Database {u.unidata_version}; not to be edited. */"
)
print(
    "#ifndef CORE_TOKENIZER_UNICODE_TABLE_H\n"
    "#define CORE_TOKENIZER_UNICODE_TABLE_H\n/* clang-format off */\n\n#include <stdint.h>"
)
table(
    "character, and the one or two that it is canonically; without Hangul; ascending",
    "struct { uint32_t c, first, second; } decompositions",
    [f"{{0x{c:X},0x{a:X},0x{b:X}}}" for c, a, b in decompositions],
    4,
)
table(
    "two characters and the one that they make; ascending",
    "struct { uint32_t first, second, c; } compositions",
    [f"{{0x{a:X},0x{b:X},0x{c:X}}}" for a, b, c in compositions],
    4,
)
table(
    "canonical combining classes other than 0",
    "struct { uint32_t begin, end; uint8_t combining; } combining_classes",
    [f"{{0x{a:X},0x{b:X},{v}}}" for a, b, v in ranges(lambda c: u.combining(chr(c)))],
    5,
)
table(
    "characters of words",
    "struct { uint32_t begin, end; } word_characters",
    [f"{{0x{a:X},0x{b:X}}}" for a, b, _ in ranges(is_word)],
    5,
)
table(
    "kinds: 1 controls, formats and private use, 2 punctuation, 3 marks without a width",
    "struct { uint32_t begin, end; uint8_t kind; } character_kinds",
    [f"{{0x{a:X},0x{b:X},{v}}}" for a, b, v in ranges(kind)],
    5,
)
table(
    "characters whose lower case is another one; ascending",
    "struct { uint32_t c, lower; } lower_cases",
    [f"{{0x{c:X},0x{to:X}}}" for c, to in lower],
    6,
)
print("\n#endif")
sys.stdout.flush()
