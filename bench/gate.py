#!/usr/bin/env python3
"""What the gate costs a request: workers of four kinds beside each other (without a gate, twice; with keys; with keys,
rates and the audit log; with a blocklist of 10,000 phrases besides), asked by turns over one connection each, with
requests that cost little themselves. For each: the median time of a request as the client sees it, the processor time
that the worker takes for one, and what both are above those of the worker without a gate.

usage: gate.py PROGRAM [TURNS]; on a quiet machine."""

import contextlib
import json
import os
import socket
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "serve"))
from gated import Gated  # noqa: E402
from service import Worker  # noqa: E402

program, turns = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 60
BATCH = 100  # requests of a turn
REQUESTS = {
    "GET /v1/models": ("GET", "/v1/models", None),
    "POST /tokenize": ("POST", "/tokenize", {"content": "a kettle and a heron"}),
    "POST /execute, 1 token": (
        "POST",
        "/execute",
        {"job_id": "j", "prompt": "a kettle and a heron", "max_tokens": 1, "temperature": 0},
    ),
}
MOST = 1000000000


class Side:
    """A worker and a connection to it."""

    def __init__(self, name, worker, secret=None):
        self.name, self.w, self.secret = name, worker, secret
        self.socket = socket.create_connection(("127.0.0.1", worker.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.times, self.processor = {}, {}

    def bytes_of(self, method, path, body):
        data = b"" if body is None else json.dumps(body).encode()
        head = "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n" % (method, path)
        if self.secret:
            head += "Authorization: Bearer %s\r\n" % self.secret
        if data:
            head += "Content-Type: application/json\r\nContent-Length: %d\r\n" % len(data)
        return head.encode() + b"\r\n" + data

    def one(self, request):
        self.socket.sendall(request)
        got = self.socket.recv(65536)
        head, _, rest = got.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(got.decode())
        if b"Content-Length: " in head:
            left = int(head.partition(b"Content-Length: ")[2].split()[0]) - len(rest)
            while left > 0:
                left -= len(self.socket.recv(65536))
        else:
            while not rest.endswith(b"0\r\n\r\n"):
                rest += self.socket.recv(65536)

    def used(self):
        """Processor time of all of the worker's threads, seconds."""
        total = 0
        with contextlib.suppress(OSError):
            for thread in os.listdir("/proc/%d/task" % self.w.process.pid):
                with open("/proc/%d/task/%s/schedstat" % (self.w.process.pid, thread), encoding="ascii") as f:
                    total += int(f.read().split()[0])
        return total * 1e-9

    def turn(self, name, request):
        before = self.used()
        times = []
        for _ in range(BATCH):
            begin = time.perf_counter()
            self.one(request)
            times.append(time.perf_counter() - begin)
        self.times.setdefault(name, []).append(statistics.median(times))
        self.processor.setdefault(name, []).append((self.used() - before) / BATCH)


def gated(stack, name, *arguments, blocklist=0):
    w = stack.enter_context(Gated(program, *arguments))
    limits = {"requests_per_minute": MOST, "tokens_per_minute": MOST} if arguments else {}
    secret = w.key("bench", limits=limits)
    if blocklist:
        w.guard(
            blocklist=["phrase number %d of many that nobody says" % i for i in range(blocklist)], block_output=True
        )
    return Side(name, w, secret)


with contextlib.ExitStack() as stack:
    log = os.path.join(os.environ.get("TMPDIR", "/tmp"), "bench-gate-%d.log" % os.getpid())
    sides = [
        Side("without a gate", stack.enter_context(Worker(program))),
        Side("without a gate, again", stack.enter_context(Worker(program))),
        gated(stack, "keys"),
        gated(stack, "keys, rates, audit log", "--audit-log", log),
        gated(stack, "... and 10,000 phrases", "--audit-log", log + "2", blocklist=10000),
    ]
    for turn in range(turns):
        for name, request in REQUESTS.items():
            for side in sides if turn % 2 else reversed(sides):
                side.turn(name, side.bytes_of(*request))
    for name in REQUESTS:
        print(name)
        base = [statistics.median(of[name]) * 1e6 for of in (sides[0].times, sides[0].processor)]
        for side in sides:
            latency, processor = (statistics.median(of[name]) * 1e6 for of in (side.times, side.processor))
            row = (side.name, latency, latency - base[0], processor, processor - base[1])
            print("  %-24s %8.1f us (%+6.1f)   processor %8.1f us (%+6.1f)" % row)
    for name in (log, log + "2"):
        for end in ("", ".key", ".head"):
            with contextlib.suppress(OSError):
                os.unlink(name + end)
