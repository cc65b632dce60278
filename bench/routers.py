#!/usr/bin/env python3
"""Two workers behind a router: many streams at once, of which each must come whole, with the text that a worker gives
alone; and what a request costs without the router, without a step of the engine: answers of the completion cache, in
processor time of the worker and in time of a client that waits. usage: routers.py PROGRAM [STREAMS [ROUTER]]; ROUTER:
vllm-router, smg or none, which asks both workers by turns"""

import asyncio
import contextlib
import http.client
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "serve"))
from routers import Router  # noqa: E402
from service import CHAT, Worker, free_port  # noqa: E402

program, streams = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000
name = sys.argv[3] if len(sys.argv) > 3 else "vllm-router"
BAR = 0.2  # ms
POEM = dict(CHAT, model="haiku")
MANY = ("--max-streams", str(min(streams, 4096)), "--max-sequences", "64", "--max-queue", str(streams))


async def one(port, body, begin):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    await begin.wait()
    writer.write((head + "Connection: close\r\nContent-Length: %d\r\n\r\n" % len(data)).encode() + data)
    answer = await reader.read(-1)
    writer.close()
    status = int(answer.split(b" ", 2)[1])
    chunks = [json.loads(line[6:]) for line in answer.decode().splitlines() if line.startswith("data: {")]
    return status, "".join(x["choices"][0]["delta"].get("content") or "" for x in chunks), b"[DONE]" in answer


async def all_at_once(ports):
    begin = asyncio.Event()
    asked = [asyncio.create_task(one(ports[i % len(ports)], dict(POEM, stream=True), begin)) for i in range(streams)]
    await asyncio.sleep(1)
    begin.set()
    return await asyncio.gather(*asked, return_exceptions=True)


def text_of(at):
    return at.post("/v1/chat/completions", POEM)[1]["choices"][0]["message"]["content"]


def many():
    with Worker(program, *MANY) as a, Worker(program, *MANY) as b, contextlib.ExitStack() as stack:
        want, ports = text_of(a), (a.port, b.port)
        if name != "none":
            more = ("--policy", "round_robin") + (("--max-concurrent-requests", str(streams)) if name != "smg" else ())
            ports = (stack.enter_context(Router(name, (a, b), *more).answers(POEM)).port,)
        started = time.monotonic()
        answers = asyncio.run(all_at_once(ports))
        took = time.monotonic() - started
        bad = [x for x in answers if x != (200, want, True)]
        done = [int(w.metrics()("worker_requests_total", outcome="stop")) for w in (a, b)]
        print("%s: %d streams at once over two workers, %d lost, %.1f s; answers of each worker: %s"
              % (name, streams, len(bad), took, done))  # fmt: skip
        for x in bad[:3]:
            print(str(x)[:300])
        return len(bad)


def cpu(w):
    with open("/proc/%d/stat" % w.process.pid, encoding="ascii") as f:
        user, system = f.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def overhead(what, *arguments):
    requests = 3000
    with Worker(program, "--completion-cache", "16", *arguments) as w:
        c = http.client.HTTPConnection("127.0.0.1", w.port)
        data, times = json.dumps(dict(POEM, max_tokens=1)), []
        known = {"Content-Type": "application/json", "Connection": "keep-alive"}
        for i in range(requests + 100):
            if i == 100:
                before = cpu(w)
            begun = time.monotonic()
            c.request("POST", "/v1/chat/completions", data, known)
            r = c.getresponse()
            r.read()
            times.append(time.monotonic() - begun)
        used = (cpu(w) - before) / requests
        hits = w.metrics()("worker_completion_cache_hits_total")
        times = sorted(times[100:])
        print("%-20s %d requests, %d without a step: %.3f ms of processor time each (bar %.1f); waits %.3f (best %.3f)"
              % (what, requests, hits, used * 1e3, BAR, times[len(times) // 2] * 1e3, times[0] * 1e3))  # fmt: skip


lost = many()
overhead("a request")
overhead("with cache events", "--kv-events", "tcp://127.0.0.1:%d" % free_port())
sys.exit(bool(lost))
