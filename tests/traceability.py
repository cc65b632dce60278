#!/usr/bin/env python3
"""docs/traceability.md names every requirement once, with tests and paths that exist, or a reason for none;
docs/security.md names a test that exists for every promise: traceability.py CTEST BUILD SOURCE"""

import json
import os
import re
import subprocess
import sys

ctest, build, source = sys.argv[1:]
LAST = {1: 13, 2: 11, 3: 6, 4: 13, 5: 6, 6: 22, 7: 34, 8: 2, 9: 7}  # of each chapter, the requirements' numbers
problems = []

said = subprocess.run([ctest, "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True)
tests = {t["name"] for t in json.loads(said.stdout)["tests"]}
seen = {}


def look_up(what, named):
    for name in named:
        if "/" in name:
            if not os.path.exists(os.path.join(source, name)):
                problems.append("%s: no file %s" % (what, name))
        elif name not in tests:
            problems.append("%s: no test %s" % (what, name))


with open(os.path.join(source, "docs/traceability.md"), encoding="utf-8") as f:
    for line in f:
        m = re.match(r"\| (\d+\.\d+) \|(.*)\|(.*)\|$", line)
        if not m:
            continue
        number, named, reason = m[1], re.findall("`([^`]+)`", m[2]), m[3].strip()
        seen[number] = seen.get(number, 0) + 1
        if not named and not reason:
            problems.append(number + ": neither a test nor a reason")
        look_up(number, named)
with open(os.path.join(source, "docs/security.md"), encoding="utf-8") as f:
    promised = f.read().partition("\n## What is promised\n")[2].partition("\n## ")[0]
promises = re.findall(r"^\| (?!promise |---)(.*) \| ([^|]*) \|$", promised, re.M)
for promise, named in promises:
    look_up(promise[:60], re.findall("`([^`]+)`", named))
    if "`" not in named:
        problems.append(promise[:60] + ": no test")
if len(promises) < 20:
    problems.append("docs/security.md: its promises are not found")
for number in ("%d.%d" % (c, i) for c, n in LAST.items() for i in range(1, n + 1)):
    if seen.pop(number, 0) != 1:
        problems.append(number + ": must stand on the page once")
problems += [number + ": no such requirement" for number in seen]
print("\n".join(problems))
sys.exit(bool(problems))
