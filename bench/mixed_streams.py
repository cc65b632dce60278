#!/usr/bin/env python3
"""Many streams at once over all interfaces of chats: each must come whole, to its own end, with the text that the same
conversation has alone. usage: mixed_streams.py PROGRAM [STREAMS]"""

import asyncio
import collections
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "serve"))
from service import HAIKU, Worker, events  # noqa: E402

program, streams = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000
POEM, SAMPLING = HAIKU["prompt"], {"temperature": 0.7, "seed": 42}
MESSAGES = [{"role": "user", "content": POEM}]
OPTIONS = dict(SAMPLING, num_predict=50)


def openai(text):
    parts = [c["delta"].get("content") or "" for _, d in events(text) for c in d["choices"]]
    return "".join(parts), text.rstrip().endswith("data: [DONE]")


def responses(text):
    e = events(text)
    return "".join(d.get("delta", "") for _, d in e), e[-1][0] == "response.completed"


def messages(text):
    e = events(text)
    parts = [d["delta"]["text"] for n, d in e if n == "content_block_delta"]
    return "".join(parts), e[-1][0] == "message_stop"


def ollama(text):
    lines = [json.loads(line) for line in text.splitlines()]
    return "".join(d["message"]["content"] for d in lines), lines[-1]["done"] is True


def execute(text):
    e = events(text)
    return "".join(d["t"] for n, d in e if n == "token"), e[-1][0] == "end"


# path: body, and what a stream says: (its text, has it ended well?)
INTERFACES = {
    "/execute": (lambda i: dict(HAIKU, job_id="mixed-%d" % i), execute),
    "/v1/chat/completions": (lambda i: dict(SAMPLING, messages=MESSAGES, max_tokens=50, stream=True), openai),
    "/v1/responses": (lambda i: dict(SAMPLING, input=POEM, max_output_tokens=50, stream=True), responses),
    "/v1/messages": (lambda i: dict(SAMPLING, model="haiku", messages=MESSAGES, max_tokens=50, stream=True), messages),
    "/api/chat": (lambda i: {"model": "haiku", "messages": MESSAGES, "options": OPTIONS}, ollama),
}


def unchunked(data):
    out = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        n = int(size, 16)
        out, data = out + data[:n], data[n + 2 :]
        if not n:
            return out.decode()
    raise ValueError("the stream was cut")


async def one(port, path, body, begin):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    data = json.dumps(body).encode()
    head = "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    await begin.wait()
    writer.write((head % (path, len(data))).encode() + data)
    answer = await reader.read(-1)
    writer.close()
    head, _, data = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    return status, unchunked(data) if status == 200 else data.decode()


async def all_at_once(port):
    begin, kinds = asyncio.Event(), list(INTERFACES)
    paths = [kinds[i % len(kinds)] for i in range(streams)]
    asked = [asyncio.create_task(one(port, p, INTERFACES[p][0](i), begin)) for i, p in enumerate(paths)]
    await asyncio.sleep(0.5)
    begin.set()
    return list(zip(paths, await asyncio.gather(*asked, return_exceptions=True)))


with Worker(program, "--max-streams", str(streams), "--max-sequences", "64", "--max-queue", str(streams)) as w:
    want = execute(w.post("/execute", dict(HAIKU, job_id="alone"))[1])[0]
    started = time.monotonic()
    answers = asyncio.run(all_at_once(w.port))
    took = time.monotonic() - started
    good, bad = collections.Counter(), []
    for path, answer in answers:
        fine = isinstance(answer, tuple) and answer[0] == 200 and INTERFACES[path][1](answer[1]) == (want, True)
        good[path] += fine
        if not fine:
            bad.append((path, str(answer)[:300]))
    for path in INTERFACES:
        print("%-22s %d whole" % (path, good[path]))
    print("%d streams at once, %d lost, %.1f s" % (streams, len(bad), took))
    for path, answer in bad[:5]:
        print(path, answer)
sys.exit(bool(bad))
