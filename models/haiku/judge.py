"""Judges a haiku: three lines, the word in it, 5-7-5 by the generator's own table.

Owns the definition of the two figures that the trainer and evaluate.py print.
"""

import re

import lexicon as lx


def judge(text, words):
    """-> (three lines and every word present, 5-7-5 with only known words)."""
    lines = [x.strip() for x in text.strip().split('\n')]
    three = len(lines) == 3 and all(lines)
    present = all(re.search(r'(?<![A-Za-z0-9])%s(?![A-Za-z0-9])' % re.escape(w), text, re.I) for w in words)
    # A word that was asked for may be unknown to the table; every other word must be in it.
    asked = {p.lower() for w in words for p in lx.WORD.findall(w)}
    counts = []
    for line in lines:
        n = 0
        for w in lx.WORD.findall(line):
            s = lx.syllables(w, strict=w.lower() not in asked)
            n = None if s is None or n is None else n + s
        counts.append(n)
    return three and present, three and tuple(counts) == lx.TARGETS


class Tally:
    """Counts verdicts and keeps a few samples."""

    def __init__(self, name):
        self.name, self.n, self.words, self.metre, self.samples, self.failed = name, 0, 0, 0, [], []

    def add(self, prompt, text, words):
        ok, metre = judge(text, words)
        self.n += 1
        self.words += ok
        self.metre += metre
        if not (ok and metre):
            self.failed.append((prompt, text))
        elif len(self.samples) < 6:
            self.samples.append((prompt, text))
        return ok, metre

    def line(self):
        n = max(self.n, 1)
        return '%-34s %4d prompts: three lines with the word %5.1f %%, 5-7-5 %5.1f %%' % (
            self.name,
            self.n,
            100 * self.words / n,
            100 * self.metre / n,
        )

    def passed(self, words=90.0, metre=80.0):
        return self.n > 0 and 100 * self.words >= words * self.n and 100 * self.metre >= metre * self.n
