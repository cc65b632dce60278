"""What a request costs before it is a job: it is refused before its prompt is encoded where that can be told, ends with
its deadline, its client and the service, and gives back its memory before its stream begins."""

import http.client
import json
import os
import re
import signal
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from service import ENDLESS, LONG, PATIENCE, Worker, check, done, frees_memory

LARGE = {"content": "the " * (2 << 20)}  # 8 MiB, as much as is taken: it takes longer than a client needs to leave
WAITERS = 6
STREAMS, PADDING = 24, 10 << 20  # bytes of a member that nobody knows, in each of the bodies
HELD = STREAMS * PADDING  # if bodies were held, and as much again if their documents were


def begin(w, path, body, *headers):
    """A request that is sent, and not read from."""
    data = json.dumps(body).encode()
    c = socket.create_connection(("127.0.0.1", w.port), PATIENCE)
    head = ["POST %s HTTP/1.1" % path, "Host: localhost", "Content-Type: application/json", *headers]
    c.sendall("\r\n".join([*head, "Content-Length: %d" % len(data), "", ""]).encode() + data)
    return c


def status_of(c):
    data = b""
    while piece := c.recv(65536):
        data += piece
    c.close()
    return int(data.split()[1]) if data else 0, data.partition(b"\r\n\r\n")[2]


def early(program):
    with Worker(program) as w:
        words = "word " * 200000
        for path, body in (
            ("/v1/completions", {"prompt": words}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": words}]}),
        ):
            status, answer = w.post(path, body)
            e = answer.get("error", answer)
            n = int(re.search(r"got at least (\d+)", e["message"]).group(1))
            check(
                "%s: a prompt that can never fit" % path,
                status == 400 and e["code"] == "context_length_exceeded" and e["n_prompt_tokens"] == n > 512,
                (status, answer),
            )
            exact = w.post("/tokenize", {"content": words})[1]["count"]
            check("... what is told is no more than it has", n <= exact, (n, exact))


def ends(program):
    with Worker(program) as w:
        past = ("X-Deadline: 1",)
        status, answer = status_of(begin(w, "/tokenize", LARGE, *past))
        check("a text whose deadline has passed", status == 504 and b"INFERENCE_TIMEOUT" in answer, (status, answer))
        waiting = [begin(w, "/tokenize", LARGE) for _ in range(WAITERS)]
        w.until(lambda: w.metrics(w.admin)("worker_http_streams") == WAITERS)
        for c in waiting:
            c.close()
        w.until(lambda: w.metrics(w.admin)("worker_http_streams") == 0)
        left = w.said().count("CANCELLED") + w.said().count('"code":"CANCELLED"')
        check("clients that have left are not worked for", left > 0, w.said()[-500:])
        status, answer = w.post("/tokenize", LARGE)
        check("... and the next is", status == 200 and answer["count"] > 1, status)
    with Worker(program) as w:
        waiting = [begin(w, "/tokenize", LARGE) for _ in range(WAITERS)]
        w.until(lambda: w.metrics(w.admin)("worker_http_streams") > 0)
        w.process.send_signal(signal.SIGTERM)
        answers = [status_of(c)[0] for c in waiting]
        check(
            "a service that ends works for nobody any more", 503 in answers and set(answers) <= {0, 200, 503}, answers
        )
        check("... and ends", w.status() == 0, w.said()[-500:])


def half_closed(program):
    """A client that has only shut down its sending side is served, after an interim answer."""
    with Worker(program, *LONG) as w:
        c = begin(w, "/execute", {"job_id": "half", "prompt": "Once", "max_tokens": 3, "temperature": 0})
        c.shutdown(socket.SHUT_WR)
        data = b""
        while piece := c.recv(65536):
            data += piece
        c.close()
        check("half-closed: served to the end", b"event: end" in data, data[-300:])


def memory(program):
    """Bodies are not held for their jobs' lives."""
    with Worker(program, *LONG) as w:
        body = json.dumps(dict(ENDLESS, stream=True, padding="x" * PADDING)).encode()
        before = w.metrics(w.admin)("process_resident_memory_bytes")
        streams = []
        for _ in range(STREAMS):
            c = http.client.HTTPConnection("127.0.0.1", w.port, timeout=PATIENCE)
            c.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
            r = c.getresponse()
            check("a stream with a large body begins", r.status == 200, r.status)
            streams.append((c, r))
        if not frees_memory(program):
            print("not checked: a sanitizer keeps what was freed")
            return
        # What one request frees goes back to the system when its arena's next piece is freed: not at once.
        w.until(lambda: w.metrics(w.admin)("process_resident_memory_bytes") - before < HELD)
        check("... and their bodies are not held", True)
        for c, r in streams:
            r.close()
            c.close()
        w.until(lambda: w.metrics(w.admin)("worker_http_streams") == 0)


def main():
    program = sys.argv[1]
    begun = time.monotonic()
    for part in (early, ends, half_closed, memory):
        part(program)
        print("%s: %.1f s so far" % (part.__name__, time.monotonic() - begun))
    done()


main()
