#!/usr/bin/env python3
"""bench/report writes what it says: every target with its percentiles and verdict. How fast this machine is decides
nothing here."""

import json
import os
import subprocess
import sys
import tempfile

from service import DEVICE, check, done

program, source = sys.argv[1], sys.argv[2]
REPORT = os.path.join(source, "bench/report/report.py")
with tempfile.TemporaryDirectory() as folder:
    r = subprocess.run(
        [sys.executable, REPORT, "--worker", program, "--out", folder, "--requests", "5", "--cancels", "2"]
        + ["--", "--device", DEVICE, "--context", "32768", "--max-tokens-out", "32000"],
        capture_output=True,
        text=True,
        check=False,
    )
    check("it measures", r.returncode in (0, 1), r.stderr)
    with open(os.path.join(folder, "timings.json"), encoding="utf-8") as f:
        timings = json.load(f)
    with open(os.path.join(folder, "metadata.json"), encoding="utf-8") as f:
        metadata = json.load(f)
    with open(os.path.join(folder, "transcript.ndjson"), encoding="utf-8") as f:
        transcript = [json.loads(line) for line in f]
    targets = {t["name"]: t for t in timings["targets"]}
    named = set(targets) | set(timings["not_measured"])
    expected = "start_ready first_token token_gap health cancel disconnect leak_vram leak_pages shutdown_idle"
    check("every target of the requirements", set(expected.split()) <= named, named)
    for name, t in targets.items():
        value = t[t["judged"]]
        good = t["value"] == value and t["pass"] == (value <= t["limit"] * (1 + t["tolerance"]))
        ordered = t["p50"] <= t["p95"] <= t["p99"] <= t["max"]
        check(name + " is judged by its percentile", good and ordered and t["tolerance"] == 0.1 and t["count"] > 0, t)
    check("the status says whether all passed", (r.returncode == 0) == all(t["pass"] for t in targets.values()))
    check("nothing leaks", targets["leak_vram"]["pass"] and targets["leak_pages"]["pass"], targets)
    check("one line a target", all(name in r.stdout for name in targets), r.stdout)
    check("metadata", metadata["device"] == DEVICE and metadata["requests"] == 5 and metadata["fingerprint"], metadata)
    seen = {e["event"] for e in transcript}
    check("transcript", {"started", "token", "end", "startup", "ready"} <= seen, seen)
done()
