#!/usr/bin/env python3
"""How late cache events are: from the step that stored a page, whose time a batch has, to a subscriber in Python over
TCP; the bar is 5 ms. Several clients ask with prompts that the worker has not seen. Needs pyzmq and msgpack. usage:
kv_events.py PROGRAM [BATCHES [CLIENTS]]"""

import contextlib
import multiprocessing
import os
import random
import sys
import time

import msgpack
import zmq

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "serve"))
from service import Publishing  # noqa: E402

BAR, SILENCE_S = 5, 60
WORDS = "rain snow wind moon tide leaf crow pine dust frog bell fern dew ash oak elm jay owl fox bee".split()


def ask(w, seed):
    """One client, in a process of its own, so that the subscriber waits for no lock of Python's."""
    draw = random.Random(seed)
    with contextlib.suppress(KeyboardInterrupt, OSError):
        while True:
            text = " ".join(draw.choice(WORDS) for _ in range(100))
            w.post("/v1/completions", {"prompt": "%d %s" % (seed, text), "max_tokens": 40, "ignore_eos": True})


def main(program, batches=2000, clients=2):
    late, events = [], 0
    with Publishing(program, "--max-sequences", str(max(clients, 4))) as w:
        fork = multiprocessing.get_context("fork")
        asking = [fork.Process(target=ask, args=(w, i), daemon=True) for i in range(clients)]
        for client in asking:
            client.start()
        sub = zmq.Context().socket(zmq.SUB)
        sub.subscribe(b"")
        sub.connect(w.events)
        while len(late) < batches:
            if not sub.poll(SILENCE_S * 1000):
                sys.exit("no cache event for %d s" % SILENCE_S)
            payload = sub.recv_multipart()[-1]
            now = time.time()
            at, some, _ = msgpack.unpackb(payload)
            late.append((now - at) * 1e3)
            events += len(some)
        for client in asking:
            client.kill()
    late.sort()
    print("%d batches, %d events, %d clients: median %.2f ms, p90 %.2f ms, p99 %.2f ms, most %.2f ms (bar %d ms)"
          % (batches, events, clients, *(late[batches * x // 100] for x in (50, 90, 99)), late[-1], BAR))  # fmt: skip


main(sys.argv[1], *map(int, sys.argv[2:]))
