"""bench/load is a judge: streams that break a rule are found, streams that keep them are measured. The streams are this
test's own, byte by byte. usage: test_load.py LOAD SOURCE"""

import json
import re
import socket
import subprocess
import sys
import threading

from service import check, done

load = sys.argv[1]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def event(name, **data):
    return ("event: %s\ndata: %s\n\n" % (name, json.dumps(data))).encode()


def token(i):
    return event("token", t='a "i":7 b', i=i, id=5)  # a number in the text is not the token's


def good(job, n=3):
    return (
        event("started", job_id=job)
        + b": ping\n\n"
        + b"".join(token(i) for i in range(n))
        + event("end", tokens_out=n, tokens_in=4)
    )


CASES = {
    "kept": (good, 0, ""),
    "error": (
        lambda job: event("started", job_id=job)
        + token(0)
        + event("error", code="CANCELLED", message="", retriable=False),
        0,
        "",
    ),
    "skipped": (
        lambda job: event("started", job_id=job) + token(0) + token(2) + event("end", tokens_out=2),
        1,
        "token 2 where 1 was due",
    ),
    "twice": (
        lambda job: event("started", job_id=job) + token(0) + token(0) + event("end", tokens_out=2),
        1,
        "token 0 where 1 was due",
    ),
    "another's": (lambda job: good("somebody-else"), 1, "started for job somebody-else"),
    "no start": (lambda job: token(0) + event("end", tokens_out=1), 1, "token before started"),
    "no end": (lambda job: event("started", job_id=job) + token(0), 1, "closed without a terminal event"),
    "two ends": (lambda job: good(job) + event("end", tokens_out=3), 1, "after the terminal one"),
    "late": (lambda job: good(job) + token(3), 1, "after the terminal one"),
    "wrong count": (
        lambda job: event("started", job_id=job) + token(0) + event("end", tokens_out=2),
        1,
        "1 tokens came, end says 2",
    ),
    "unknown": (
        lambda job: event("started", job_id=job) + event("surprise", x=1) + event("end", tokens_out=0),
        1,
        "unknown event surprise",
    ),
    "refused": (None, 0, ""),
    "chunked": (good, 0, ""),
    "byte by byte": (good, 0, ""),
}


def serve(listener, name, make):
    c, _ = listener.accept()
    request = b""
    while b"}" not in request:
        request += c.recv(65536)
    job = json.loads(request.split(b"\r\n\r\n", 1)[1])["job_id"]
    if make is None:
        c.sendall(
            b'HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\n'
            b'Connection: close\r\n\r\n{"code":"QUEUE_FULL","message":"","retriable":true}'
        )
    elif name == "chunked":
        body = make(job)
        parts = [body[i : i + 37] for i in range(0, len(body), 37)]
        c.sendall(
            HEAD.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
            + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in parts)
            + b"0\r\n\r\n"
        )
    elif name == "byte by byte":
        c.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for b in HEAD + make(job):
            c.sendall(bytes([b]))
    else:
        c.sendall(HEAD + make(job))
    c.close()


for name, (make, status, text) in CASES.items():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        t = threading.Thread(target=serve, args=(listener, name, make))
        t.start()
        r = subprocess.run(
            [
                load,
                "--url",
                "http://127.0.0.1:%d" % listener.getsockname()[1],
                "--requests",
                "1",
                "--concurrency",
                "1",
                "--prompt",
                "x",
                "--output-tokens",
                "8",
            ],
            capture_output=True,
            text=True,
            timeout=300,
        )
        t.join()
    report = json.loads(r.stdout)
    check(name + ": status", r.returncode == status, r.stderr + r.stdout)
    check(
        name + ": what was wrong",
        text in report.get("first_violation", "") and (report["violations"] > 0) == bool(status),
        report,
    )
    if name in ("kept", "chunked", "byte by byte"):
        check(
            name + ": measured",
            report["completed"] == 1
            and report["total_output_tokens"] == 3
            and report["total_input_tokens"] == 4
            and report["median_e2el_ms"] >= report["median_ttft_ms"] > 0,
            report,
        )
    if name == "refused":
        check("refused: counted by code", report["errors"] == {"429 QUEUE_FULL": 1} and report["failed"] == 1, report)
    if name == "error":
        check("error: counted by code", report["errors"] == {"CANCELLED": 1}, report)
for wrong in (
    ["--url", "ftp://x"],
    [],
    ["--url", "http://127.0.0.1:1", "--requests", "0"],
    ["--url", "http://127.0.0.1:1", "--params", "[]"],
    ["--url", "http://127.0.0.1:1", "more"],
):
    r = subprocess.run([load, *wrong], capture_output=True, text=True, timeout=300)
    check("usage %s" % wrong, r.returncode == 2 and re.search("^usage: load", r.stderr, re.M), r.stderr)
done()
