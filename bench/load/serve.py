#!/usr/bin/env python3
"""Scenarios of the service, each with its own worker, as lines of a Markdown table for docs/performance.md.

    serve.py --bin build-release/bin [--scenario NAME]... [--streams N] [--json FILE] -- [arguments of worker serve]

Scenarios: throughput (32 streams of 1000 tokens in, 500 out, sampled), ttft (512 tokens in, one out, one at a time),
overhead (what is not the engine, per request), admit (16 streams decode while long prompts are admitted), stalled (16
streams beside 500 readers that never read), streams (1,000 at once, and one more). Nothing but the standard library.
Run it on a quiet machine; on small models the load generator takes one of the processors."""

import argparse
import atexit
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import client


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Worker:
    def __init__(self, o, *more):
        self.port = free_port()
        self.url = "http://127.0.0.1:%d" % self.port
        self.process = subprocess.Popen(
            [o.bin + "/worker", "serve", "--port", str(self.port), *o.serve, *more],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        atexit.register(self.process.kill)
        began = time.monotonic()
        while True:
            try:
                if self.ask("GET", "/readyz")[0] == 200:
                    break
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() - began > 300:
                sys.exit("the worker is not ready")
            time.sleep(0.05)
        self.health = json.loads(self.ask("GET", "/health")[1])

    def ask(self, method, path, body=None):
        return client.ask(self.port, 300, method, path, body)

    def metric(self, name):
        m = re.search("^" + name + r" (\S+)$", self.ask("GET", "/metrics")[1].decode(), re.M)
        return float(m.group(1)) if m else 0.0

    def mean(self, name, before):
        """Mean of a histogram since `before`, in seconds."""
        n = self.metric(name + "_count") - before[1]
        return (self.metric(name + "_sum") - before[0]) / n if n else 0.0

    def mark(self, name):
        return self.metric(name + "_sum"), self.metric(name + "_count")

    def until_idle(self):
        while self.metric("worker_requests_running") + self.metric("worker_requests_queued"):
            time.sleep(0.05)

    def memory(self, field):
        return (
            int(
                re.search(
                    field + r":\s+(\d+)", open("/proc/%d/status" % self.process.pid, encoding="ascii").read()
                ).group(1)
            )
            / 1024
        )

    def end(self):
        self.process.terminate()
        self.process.wait(60)


def load(o, w, *more):
    r = subprocess.run([o.bin + "/load", "--url", w.url, *map(str, more)], capture_output=True, text=True)
    if not r.stdout:
        sys.exit("load: " + r.stderr)
    report = json.loads(r.stdout)
    if not report["completed"]:
        sys.exit("load: nothing was completed: " + json.dumps(report["errors"]))
    o.reports.append({"arguments": list(map(str, more)), **report})
    if r.returncode:
        print("load: " + r.stderr.strip(), file=sys.stderr)
    return report


SAMPLED = '{"temperature": 0.8, "top_p": 0.95, "top_k": 40}'


def row(o, w, what, *cells):
    line = "| %s | %s | %s | %s |" % (w.health["model"], w.health["device_text"], what, "; ".join(cells))
    print(line, flush=True)


def bad(r):
    return (
        []
        if not r["violations"] and not r["failed"]
        else ["%d violations, %d failed %s" % (r["violations"], r["failed"], json.dumps(r["errors"]))]
    )


def throughput(o):
    w = Worker(o, "--max-sequences", str(o.streams))
    load(
        o,
        w,
        "--requests",
        o.streams,
        "--concurrency",
        o.streams,
        "--input-tokens",
        64,
        "--output-tokens",
        16,
        "--params",
        SAMPLED,
        "--seed",
        7,
    )  # warm
    r = load(
        o,
        w,
        "--requests",
        o.streams * o.waves,
        "--concurrency",
        o.streams,
        "--input-tokens",
        1000,
        "--output-tokens",
        500,
        "--params",
        SAMPLED,
    )
    row(
        o,
        w,
        "%d streams, 1000 in, 500 out, sampled" % o.streams,
        "%.0f output tok/s, all included" % r["output_throughput"],
        "gap median %.2f, p95 %.2f, p99 %.2f, max %.1f ms"
        % (r["median_itl_ms"], r["p95_itl_ms"], r["p99_itl_ms"], r["max_itl_ms"]),
        "first token median %.0f ms" % r["median_ttft_ms"],
        "%.0f tokens a stream" % (r["total_output_tokens"] / max(1, r["completed"])),
        *bad(r),
    )
    w.end()


def ttft(o):
    w = Worker(o)
    n = min(512, w.health["context"] - 8)
    load(o, w, "--requests", 3, "--concurrency", 1, "--input-tokens", n, "--output-tokens", 2, "--seed", 7)
    r = load(o, w, "--requests", 20, "--concurrency", 1, "--input-tokens", n, "--output-tokens", 2)
    row(
        o,
        w,
        "first token of a prompt of %d tokens" % n,
        "median %.2f ms, p95 %.2f ms" % (r["median_ttft_ms"], r["p95_ttft_ms"]),
        *bad(r),
    )
    w.end()


def overhead(o):
    w = Worker(o)
    load(o, w, "--requests", 20, "--concurrency", 1, "--input-tokens", 8, "--output-tokens", 1, "--seed", 7)
    before = w.mark("worker_prefill_duration_seconds")
    r = load(o, w, "--requests", 300, "--concurrency", 1, "--input-tokens", 8, "--output-tokens", 1)
    compute = w.mean("worker_prefill_duration_seconds", before) * 1000
    row(
        o,
        w,
        "one token, one request at a time",
        "prefill %.3f ms; connect to first token %.3f ms (overhead %.3f ms), to close %.3f ms (overhead %.3f ms)"
        % (compute, r["mean_ttft_ms"], r["mean_ttft_ms"] - compute, r["mean_e2el_ms"], r["mean_e2el_ms"] - compute),
        *bad(r),
    )
    w.end()


def admit(o):
    w = Worker(o, "--max-prompt-chars", "1048576", "--max-sequences", "32")
    n = min(o.long, w.health["context"] - 8)
    streams = (
        "--requests",
        16,
        "--concurrency",
        16,
        "--input-tokens",
        32,
        "--output-tokens",
        min(1500, w.health["context"] - 40),
        "--params",
        '{"temperature": 1}',
    )
    alone = load(o, w, *streams)
    reports = []
    prompt = threading.Thread(
        target=lambda: reports.append(
            load(o, w, "--requests", 3, "--concurrency", 1, "--input-tokens", n, "--output-tokens", 1, "--seed", 11)
        )
    )
    prompt.start()
    beside = load(o, w, *streams, "--seed", 3)
    prompt.join()
    row(
        o,
        w,
        "16 streams, 3 prompts of %d tokens admitted meanwhile" % n,
        "%.0f of %.0f output tok/s (%.0f %%)"
        % (
            beside["output_throughput"],
            alone["output_throughput"],
            100 * beside["output_throughput"] / alone["output_throughput"],
        ),
        "gap median %.2f, p99 %.2f, max %.1f ms (alone %.2f, %.2f, %.1f)"
        % (
            beside["median_itl_ms"],
            beside["p99_itl_ms"],
            beside["max_itl_ms"],
            alone["median_itl_ms"],
            alone["p99_itl_ms"],
            alone["max_itl_ms"],
        ),
        "the prompts' first token %.0f ms" % reports[0]["median_ttft_ms"],
        *bad(beside),
        *bad(reports[0]),
    )
    w.end()


def stalled(o):
    """The same 500 jobs beside the measured ones, read by their clients and not: the batches are the same. A socket
    holds 64 KiB, so outputs must be long to stall anybody."""
    w = Worker(o, "--max-streams", "1000", "--max-sequences", "64")
    run = (
        "--requests",
        32,
        "--concurrency",
        16,
        "--prompt",
        "Once upon a time",
        "--output-tokens",
        300,
        "--params",
        '{"temperature": 1, "priority": 10}',
    )
    read = load(o, w, *run, "--others", 500)
    w.until_idle()
    beside = load(o, w, *run, "--stalled-readers", 500)
    row(
        o,
        w,
        "16 streams beside %d that are never read" % beside["others"],
        "gap median %.3f, p99 %.2f ms; beside %d that are read %.3f, %.2f ms (%+.1f %%)"
        % (
            beside["median_itl_ms"],
            beside["p99_itl_ms"],
            read["others"],
            read["median_itl_ms"],
            read["p99_itl_ms"],
            100 * (beside["median_itl_ms"] / read["median_itl_ms"] - 1),
        ),
        *bad(beside),
        *bad(read),
    )
    w.end()


def streams(o):
    w = Worker(o, "--max-streams", "1000", "--max-sequences", "64")
    extra = []

    def one_more():
        while w.metric("worker_http_streams") < 1000 and w.process.poll() is None and not extra:
            time.sleep(0.01)
        for _ in range(20):
            began = time.monotonic()
            status, _ = w.ask("POST", "/execute", {"job_id": "one-more", "prompt": "x", "max_tokens": 1})
            extra.append((status, (time.monotonic() - began) * 1000))

    t = threading.Thread(target=one_more, daemon=True)
    t.start()
    r = load(
        o,
        w,
        "--requests",
        1000,
        "--concurrency",
        1000,
        "--prompt",
        "Once upon a time",
        "--output-tokens",
        200,
        "--params",
        '{"temperature": 1}',
    )
    t.join(1)
    refused = [ms for status, ms in extra if status in (429, 503)]
    row(
        o,
        w,
        "1,000 streams at once (%d open)" % r["most_streams"],
        "%d completed, %d lost or out of order" % (r["completed"], r["violations"]),
        "%.0f output tok/s" % r["output_throughput"],
        "resident at most %.0f MiB" % w.memory("VmHWM"),
        "one more: refused %d of %d, median %.1f ms, slowest %.1f ms"
        % (len(refused), len(extra), sorted(refused)[len(refused) // 2] if refused else 0, max(refused, default=0)),
        *bad(r),
    )
    w.end()


ALL = {f.__name__: f for f in (throughput, ttft, overhead, admit, stalled, streams)}


def main():
    p = argparse.ArgumentParser(description="see the top of this file")
    p.add_argument("--bin", required=True, help="folder of the programs worker and load")
    p.add_argument("--scenario", action="append", choices=list(ALL))
    p.add_argument("--streams", type=int, default=32, help="of throughput")
    p.add_argument("--waves", type=int, default=2, help="of throughput: requests a stream")
    p.add_argument("--long", type=int, default=16384, help="tokens of admit's prompts, at most the context")
    p.add_argument("--json", help="all reports, to this file")
    p.add_argument("serve", nargs="*", help="behind --: arguments of worker serve")
    o = p.parse_args()
    o.reports = []
    for name in o.scenario or ALL:
        ALL[name](o)
    if o.json:
        with open(o.json, "w", encoding="utf-8") as f:
            json.dump(o.reports, f, indent=1)


if __name__ == "__main__":
    main()
