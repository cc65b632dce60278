#!/usr/bin/env python3
"""POST /execute as clients meet it: the same ids as worker run, texts whole, every refusal with its code, cancels and
disconnects in every phase."""

import json
import http.client
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from service import CONTEXT, DEVICE, ENDLESS, LONG, PATIENCE, Job, Worker, cancelled, check, done, each_event

program, source = sys.argv[1:3]
HAIKU = {"prompt": "Write a haiku about GPU computing", "chat": True, "max_tokens": 50, "temperature": 0.7, "seed": 42}


def text_of(stream):
    return "".join(d["t"] for n, d in stream if n == "token")


def ids_of(stream):
    return [d["id"] for n, d in stream if n == "token"]


def run(*arguments):
    return subprocess.run([program, "run", *arguments], capture_output=True, text=True, check=True).stdout


def well_formed(stream):
    """started, tokens 0, 1, 2, ..., perhaps metrics, one end."""
    names = [n for n, _ in stream if n != "metrics"]
    tokens = [d for n, d in stream if n == "token"]
    return (
        names[:1] == ["started"]
        and names[-1:] == ["end"]
        and names[1:-1] == ["token"] * len(tokens)
        and [d["i"] for d in tokens] == list(range(len(tokens)))
        and stream[-1][1]["tokens_out"] == len(tokens)
    )


class Stream:
    """One /execute whose events are read as they come."""

    def __init__(self, w, body, headers=None, port=None):
        self.c = http.client.HTTPConnection("127.0.0.1", port or w.port, timeout=PATIENCE)
        self.c.request(
            "POST", "/execute", json.dumps(body), dict({"Content-Type": "application/json"}, **(headers or {}))
        )
        self.sock = self.c.sock
        self.r = self.c.getresponse()
        self.status = self.r.status

    def __iter__(self):
        return each_event(self.r)

    def leave(self, how):
        if how == "half":  # it only says that nothing more comes from it
            self.sock.shutdown(socket.SHUT_WR)
            return
        if how == "rst":
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.r.close()
        self.sock.close()


def same_ids(w):
    status, first = w.execute(**HAIKU)
    _, second = w.execute(**HAIKU)
    check("haiku: 200 and a well-formed stream", status == 200 and well_formed(first), first)
    check("haiku: the same ids twice", ids_of(first) == ids_of(second) and len(ids_of(first)) > 5)
    arguments = ["--prompt", HAIKU["prompt"], "--chat", "--seed", "42", "--temperature", "0.7", "--max-tokens", "50"]
    check("haiku: the ids of worker run", " ".join(map(str, ids_of(first))) == run(*arguments, "--ids").strip())
    check("haiku: the text of worker run", text_of(first) == run(*arguments)[:-1])
    check("haiku: three lines", len(text_of(first).strip().split("\n")) == 3, text_of(first))
    started, end = first[0][1], first[-1][1]
    check(
        "started has its fields",
        set(started) == {"job_id", "model", "started_at", "seed", "tokens_in", "fingerprint"}
        and started["seed"] == 42
        and started["model"] == "haiku",
        started,
    )
    check(
        "end has its fields",
        end["finish_reason"] == "stop"
        and end["stop_string"] is None
        and end["tokens_in"] == started["tokens_in"]
        and end["first_token_ms"] > 0,
        end,
    )
    _, greedy = w.execute(prompt="Once", max_tokens=50, temperature=0, seed=42)
    _, again = w.execute(prompt="Once", max_tokens=50, temperature=0, seed=42)
    check("temperature 0, 50 tokens: twice the same", ids_of(greedy) == ids_of(again) and well_formed(greedy))
    for seed, sent in (
        (18446744073709551615, 18446744073709551615),
        (9223372036854775808, "9223372036854775808"),
        (9007199254740993, 9007199254740993),
    ):
        _, s = w.execute(prompt="Once", max_tokens=12, seed=sent)
        check(
            "seed %d is exact" % seed,
            s[0][1]["seed"] == seed
            and ids_of(s)
            == list(map(int, run("--raw", "--prompt", "Once", "-n", "12", "--seed", str(seed), "--ids").split())),
            s[0],
        )
    _, a = w.execute(prompt="Once", max_tokens=30)
    _, b = w.execute(prompt="Once", max_tokens=30)
    _, c = w.execute(prompt="Once", max_tokens=30, seed=a[0][1]["seed"])
    check(
        "no seed: another each time, given back, and good for a repeat",
        a[0][1]["seed"] != b[0][1]["seed"] and ids_of(a) == ids_of(c),
    )


def by_the_minute(w):
    """M-1800: the haiku with a word that nobody could know before: any of the sixty minutes, spelled out."""
    ones = "zero one two three four five six seven eight nine ten".split()
    ones += "eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
    tens = "twenty thirty forty fifty".split()
    words = ones + [t + (("-" + o) if o != "zero" else "") for t in tens for o in ones[:10]]
    right, wrong = 0, []
    for word in words:
        status, s = w.execute(**dict(HAIKU, prompt='%s that includes the word "%s"' % (HAIKU["prompt"], word)))
        text = text_of(s) if status == 200 and well_formed(s) else ""
        good = len(text.strip().split("\n")) == 3 and word in text
        right += good
        wrong += [] if good else [(word, text)]
    check(
        "haiku: three lines and the minute in them, for %d of %d minutes" % (right, len(words)),
        len(words) == 60 and right >= 57,
        wrong,
    )  # all, here; ids may differ on another processor


def tensors_of(data):
    """{name: (where its values begin, its first dimension)} of a GGUF file whose first tensor is token_embd.weight."""
    count = struct.unpack_from("<Q", data, 8)[0]
    at = data.index(struct.pack("<Q", 17) + b"token_embd.weight")
    found = {}
    for _ in range(count):
        length = struct.unpack_from("<Q", data, at)[0]
        name = data[at + 8 : at + 8 + length].decode()
        n_dims, first = struct.unpack_from("<IQ", data, at + 8 + length)
        at += 8 + length + 4 + 8 * n_dims
        found[name] = (struct.unpack_from("<IQ", data, at)[1], first)
        at += 12
    return {name: ((at + 31) // 32 * 32 + offset, first) for name, (offset, first) in found.items()}


def damaged(program_, source_):
    """Models some of whose weights are no numbers, a router's too: their jobs fail by name, the worker and its pages do
    not."""
    for name, tensor in (
        ("haiku/haiku-q4_k_m.gguf", "output_norm.weight"),
        ("haiku-moe/haiku-moe-mxfp4.gguf", "blk.0.ffn_gate_inp.bias"),
    ):
        with open(os.path.join(source_, "models", name), "rb") as f:
            data = f.read()
        at, n = tensors_of(data)[tensor]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "damaged.gguf")
            with open(path, "wb") as f:
                f.write(data[:at] + struct.pack("<f", float("nan")) * n + data[at + 4 * n :])
            with Worker(program_, "--model", path) as w:
                for _ in range(2):
                    status, s = w.execute(prompt="Once", max_tokens=5)
                    check(
                        tensor + " of NaN: INTERNAL",
                        status == 200
                        and s[-1][0] == "error"
                        and s[-1][1]["code"] == "INTERNAL"
                        and s[-1][1]["retriable"] is False
                        and "NaN" in s[-1][1]["message"],
                        s,
                    )
                status, answer = w.post("/v1/completions", {"prompt": "Once"})
                check("... of /v1", status == 500 and answer["error"]["code"] == "internal", (status, answer))
                w.until(lambda: quiet(w))
                check("... and the worker ends as it should", w.end() == 0)


def texts(w):
    for prompt in ("你好世界", "Hello 👋 World 🌍", "Mixed: 日本語 English العربية", "a\u0000b", "é" * 100):
        for seed in range(4):
            status, s = w.execute(prompt=prompt, max_tokens=20, temperature=2, seed=seed)
            good = status == 200 and well_formed(s)
            if good and "\0" not in prompt:  # an argument cannot hold one
                good = (
                    text_of(s)
                    == run("--raw", "--prompt", prompt, "-n", "20", "--temperature", "2", "--seed", str(seed))[:-1]
                )
            check("text of %r, seed %d" % (prompt[:12], seed), good, s)
    whole = text_of(w.execute(**HAIKU)[1])
    for stop in (["\n"], ["wakes up"], ["ke up\nn"], [whole[10:14], "zzz"], ["zzz"], [whole[-3:]], [whole[:1]]):
        _, s = w.execute(**dict(HAIKU, stop=stop))
        at = min((whole.find(x) for x in stop if x in whole), default=-1)
        expected = whole[:at] if at >= 0 else whole
        end = s[-1][1]
        good = (
            text_of(s) == expected
            and well_formed(s)
            and (end["stop_string"] in stop) == (at >= 0)
            and end["finish_reason"] == "stop"
        )
        check("stop %r" % stop, good, s)
    _, s = w.execute(**dict(HAIKU, stop=["zzz"], max_tokens=4))
    check(
        "length",
        s[-1][1]["finish_reason"] == "length"
        and s[-1][1]["tokens_out"] == 4
        and text_of(s)
        == run("--prompt", HAIKU["prompt"], "--chat", "--seed", "42", "--temperature", "0.7", "-n", "4")[:-1],
        s,
    )


def refused(w):
    """Every field with every kind of wrong value: 400, the field's name, and a server that goes on."""
    values = [
        "null",
        "true",
        "{}",
        "[]",
        "[1]",
        '"text"',
        "-1",
        "1.5",
        "1e400",
        "NaN",
        "-Infinity",
        "9223372036854775808",
        "18446744073709551616",
        "99999999999999999999999999",
        "\"\\ud800\"",
        "\"\xff\"",
        "",
    ]
    accepts = {
        "job_id": {'"text"'},
        "prompt": {'"text"'},
        "max_tokens": set(),
        "temperature": {"1.5"},
        "top_p": set(),
        "top_k": set(),
        "min_p": set(),
        "repetition_penalty": {"1.5"},
        "stop": {"[]"},
        "seed": {"9223372036854775808"},
        "priority": {"-1"},
        "chat": {"true"},
        "metrics": {"true"},
        "unknown": set(),
    }
    bad = named = 0
    for field, good in accepts.items():
        for value in values:
            if value in good:
                continue
            members = ['"%s":%s' % (field, value)] + ['"%s":"x"' % f for f in ("job_id", "prompt") if f != field]
            random.Random(bad).shuffle(members)
            status, answer = w.post("/execute", ("{" + ",".join(members) + "}").encode("latin-1"))
            bad += 1
            named += answer.get("job_id") == "x"
            if (
                status != 400
                or answer.get("code") != "INVALID_REQUEST"
                or answer.get("field") != field
                or answer.get("job_id") not in ((None,) if field == "job_id" else ("x", None))
                or answer.get("retriable") is not False
                or not answer.get("message")
            ):
                check("%s: %s" % (field, value), False, (status, answer))
    check("%d wrong values, each refused by name" % bad, bad > 100)
    check("and with the job's id, unless the body is no JSON", named > 60, (named, bad))
    for name, body, field in (
        ("no body", b"", None),
        ("not JSON", b"{", None),
        ("a list", b"[]", None),
        ("trailing bytes", b'{"job_id":"a","prompt":"b"}x', None),
        ("duplicate", b'{"job_id":"a","job_id":"a","prompt":"x"}', "job_id"),
        ("no job_id", b'{"prompt":"x"}', "job_id"),
        ("long job_id", json.dumps({"job_id": "x" * 129, "prompt": "x"}).encode(), "job_id"),
        ("no prompt", b'{"job_id":"a"}', "prompt"),
        ("long prompt", json.dumps({"job_id": "a", "prompt": "é" * 32769}).encode(), "prompt"),
        ("top_k above the vocabulary", b'{"job_id":"a","prompt":"x","top_k":2049}', "top_k"),
        ("stop of 33 tokens", json.dumps({"job_id": "a", "prompt": "x", "stop": ["\x01" * 33]}).encode(), "stop"),
    ):
        status, answer = w.post("/execute", body)
        check(
            name,
            status == 400 and answer["code"] == "INVALID_REQUEST" and answer.get("field") == field,
            (status, answer),
        )
    status, answer = w.post("/execute", {"job_id": "c", "prompt": "word " * 600})
    check(
        "CONTEXT_LENGTH_EXCEEDED",
        status == 400
        and answer["code"] == "CONTEXT_LENGTH_EXCEEDED"
        and answer["n_ctx"] == 512
        and answer["n_prompt_tokens"] > 512
        and answer["job_id"] == "c",
        (status, answer),
    )
    status, _, _ = w.ask("POST", "/execute", b"x" * 2000000)
    check("PAYLOAD_TOO_LARGE", status == 413, status)
    status, _, _ = w.ask("POST", "/execute", b"{}", {"Content-Type": "text/plain"})
    check("another Content-Type", status == 415, status)
    for header in ("soon", "", "2026-11-21", "-5"):
        status, answer = w.post("/execute", {"job_id": "d", "prompt": "x"}, headers={"X-Deadline": header})
        check("X-Deadline %r" % header, status == 400 and answer["field"] == "X-Deadline", (status, answer))
    status, answer = w.post("/execute", {"job_id": "d", "prompt": "x"}, headers={"X-Deadline": "2020-01-01T00:00:00Z"})
    check(
        "X-Deadline of the past: 504",
        status == 504 and answer["code"] == "INFERENCE_TIMEOUT" and answer["retriable"] is False,
        (status, answer),
    )
    status, answer = w.post("/worker/execute", {"handle_id": "no such", "prompt": "x"})
    check(
        "unknown handle: 404",
        status == 404 and answer["code"] == "NOT_FOUND" and answer["field"] == "handle_id",
        (status, answer),
    )
    check("the server lives", well_formed(w.execute(**HAIKU)[1]))


def quiet(w):
    """All jobs over, all pages back."""
    health = w.get("/health")[1]
    return health["queue"]["running"] == 0 and health["queue"]["queued"] == 0 and health["kv_cache"]["pages_used"] == 0


def state_of(w, job_id):
    return w.get("/worker/jobs/" + job_id)[1].get("state")


def with_deadline(w, ms, body):
    """The events of a job that has so long, or longer where that had passed when the request arrived."""
    while True:
        s = Stream(w, body, {"X-Deadline": str(int(time.time() * 1000) + ms)})
        if s.status == 200:
            return list(s)
        ms *= 4


def cancels(w):
    a = Job(w, "a").until("token")
    status, answer = w.post("/execute", dict(ENDLESS, job_id="a"))
    check(
        "JOB_EXISTS",
        status == 409 and answer["code"] == "JOB_EXISTS" and answer["job_id"] == "a" and answer["retriable"] is False,
        (status, answer),
    )
    b, c = Job(w, "b"), Job(w, "c", max_tokens=5)
    w.until(lambda: {j["job_id"] for j in w.get("/worker/jobs")[1]["jobs"]} >= set("abc"))
    states = {j["job_id"]: j["state"] for j in w.get("/worker/jobs")[1]["jobs"] if j["job_id"] in "abc"}
    check("one decodes, two wait", states == {"a": "decode", "b": "queued", "c": "queued"}, states)
    status, headers, answer = w.ask("POST", "/execute", dict(ENDLESS, job_id="d"))
    check(
        "QUEUE_FULL",
        status == 429
        and json.loads(answer)["code"] == "QUEUE_FULL"
        and json.loads(answer)["retriable"] is True
        and "retry-after" in headers,
        (status, answer),
    )
    status, answer = w.post("/cancel", {"job_id": "b"})
    check("cancel a queued job: 202", status == 202 and answer["found"] is True, (status, answer))
    check(
        "it ends with CANCELLED", b.over() and b.status == 200 and cancelled(b.events) and len(b.events) == 1, b.events
    )
    status, answer = w.post("/cancel", {"job_id": "a"})
    check(
        "cancel in decode: error CANCELLED",
        status == 202 and cancelled(a.over()) and a.events[-1][1]["job_id"] == "a",
        a.events[-1:],
    )
    check("the other one ran", well_formed(c.over()), c.events)
    for again in ("a", "b", "never"):
        status, answer = w.post("/cancel", {"job_id": again})
        check("cancel again, or nothing: 202", status == 202 and answer["found"] is False, (status, answer))
    for bad, field in ((b"{}", "job_id"), (b'{"job_id":1}', "job_id"), (b'{"job_id":"a","x":1}', "x"), (b"", "job_id")):
        status, answer = w.post("/cancel", bad)
        check("cancel %s" % bad, status == 400 and answer["field"] == field, (status, answer))
    # A job's last state is there a moment after its last event.
    w.until(lambda: state_of(w, "a") == "cancelled" and state_of(w, "c") == "finished")
    check("jobs that are over are listed, others are not", w.get("/worker/jobs/none")[0] == 404)
    w.until(lambda: quiet(w))
    check("cancel in prefill", cancelled(Job(w, "prefill", prompt="word " * 2000).until("started").cancel()))


def read_late(w, job):
    """The states that a job was listed in while its client lagged behind, and the end of what the client read. The
    socket holds less than the job writes. The client takes what the socket holds once a second, until the job is over:
    who reads nothing for 10 s is given up."""
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(PATIENCE)
        slow.connect(("127.0.0.1", w.port))
        body = json.dumps(dict(ENDLESS, job_id=job, max_tokens=4000))
        slow.sendall(
            (
                "POST /execute HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            ).encode()
        )
        seen, got, more, read = [], b"", slow.recv(1024), time.monotonic()
        while more and not {"over", "finished"} & set(seen):
            status, answer = w.get("/worker/jobs/" + job)
            seen.append(answer.get("state", status))
            if time.monotonic() > read + 1:
                got, more, read = (got + more)[-4096:], slow.recv(65536), time.monotonic()
        while more:
            got, more = (got + more)[-4096:], slow.recv(65536)
        w.until(lambda: state_of(w, job) in ("finished", "cancelled"))
    return set(seen), got


def listed_to_the_end(w):
    """A job is listed from before it runs until its last event is sent: a reader that lags behind does not make it
    vanish."""
    for attempt in range(8):  # who was stopped for 10 s between two reads was given up: then once more
        job = "slow-%d" % attempt
        seen, got = read_late(w, job)
        if state_of(w, job) == "finished":
            break
    check("a slow reader gets all of it", b"event: end" in got, got)
    check(
        "a job is listed until its last event is sent",
        seen <= {"queued", "prefill", "decode", "over", "finished"},
        seen,
    )
    check("... once", [j["state"] for j in w.get("/worker/jobs")[1]["jobs"] if j["job_id"] == job] == ["finished"])


def raw(w, text):
    c = socket.create_connection(("127.0.0.1", w.port), PATIENCE)
    c.sendall(text)
    return c


def leave_early(w, how):
    """Before the whole request is there: no job comes of it, and no connection stays."""
    before = w.metrics()("worker_requests_accepted_total")
    head = b"POST /execute HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    for text in (head[:30], head, head + b'Content-Length: 100\r\n\r\n{"job_id"'):
        c = raw(w, text)
        if how == "half":
            c.shutdown(socket.SHUT_WR)
            check("half a request, and its end: 400", c.recv(12) == b"HTTP/1.1 400", text)
        elif how == "rst":
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        c.close()
    w.until(lambda: w.metrics(w.admin)("worker_http_connections", port="main") == 0)
    check(
        "leaving (%s) within the request: no job, no connection" % how,
        w.metrics()("worker_requests_accepted_total") == before,
    )


def disconnects(w):
    """In each phase, in both ways; and with half of the connection, which is no leaving."""
    prompts = {"decode": "Once upon a time", "queued": "Once upon a time", "prefill": "word " * 2000}
    for how in ("fin", "rst", "half"):
        leave_early(w, how)
        for phase, prompt in prompts.items():
            front = Job(w, "front-" + how).until("token") if phase == "queued" else None
            job = "%s-%s" % (phase, how)
            s = Stream(
                w, dict(ENDLESS, job_id=job, prompt=prompt + how, **({"max_tokens": 40} if how == "half" else {}))
            )
            seen = [next(iter(s))] if phase == "decode" else []
            s.leave(how)
            if how != "half":
                w.until(lambda: state_of(w, job) == "cancelled")
            if front:
                front.cancel()
            if how == "half":
                seen += list(s)
                check(
                    "half-closed, %s: served to the end" % phase,
                    well_formed(seen) and seen[-1][1]["tokens_out"] == 40,
                    seen[-1:],
                )
            w.until(lambda: quiet(w))
        s = Stream(w, dict(ENDLESS, job_id="last-" + how, max_tokens=3))
        next(e for e in s if e[0] == "token" and e[1]["i"] == 2)
        s.leave(how)
        w.until(lambda: state_of(w, "last-" + how) in ("finished", "cancelled") and quiet(w))
        check(
            "disconnect (%s) while queued, in prefill, in decode, at the last token: jobs over, pages back" % how, True
        )


def freezes(program_):
    """Clients that stay and read nothing: they fill their own buffers, others have every token, and after a while the
    jobs are over. One whose answer fits is not even noticed."""
    with Worker(program_, *LONG, "--max-sequences", "4") as w:

        def frozen(job, **more):
            body = json.dumps(dict(ENDLESS, job_id=job, **more)).encode()
            c = socket.socket()
            c.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            c.connect(("127.0.0.1", w.port))
            c.sendall(
                b"POST /execute HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            )
            return c

        stays = [
            frozen("from-the-start"),
            frozen("in-prefill", prompt="word " * 2000),
            frozen("at-the-end", max_tokens=20),
        ]
        w.until(lambda: state_of(w, "at-the-end") == "finished")
        _, s = w.execute(prompt="Once", max_tokens=60, seed=3)
        check("beside readers that are frozen", well_formed(s), s[-1:])
        ends = (
            {"cancelled"} if DEVICE == "cpu" else {"cancelled", "finished"}
        )  # a GPU may have made all of their tokens before their time is up
        w.until(lambda: {state_of(w, "from-the-start"), state_of(w, "in-prefill")} <= ends)
        w.until(lambda: quiet(w))
        check("frozen readers cost their own jobs, and pages come back", w.metrics()("worker_http_streams") == 0)
        for c in stays:
            c.close()


def deadlines(w):
    s = with_deadline(w, 300, dict(ENDLESS, job_id="late"))
    check(
        "X-Deadline while running: error INFERENCE_TIMEOUT",
        s[-1][0] == "error" and s[-1][1]["code"] == "INFERENCE_TIMEOUT",
        s[-1:],
    )
    front = Job(w, "front").until("token")
    s = with_deadline(w, 50, dict(ENDLESS, job_id="late-queued"))
    check("X-Deadline while queued", len(s) == 1 and s[0][1]["code"] == "INFERENCE_TIMEOUT", s[-1:])
    front.cancel()
    w.until(lambda: quiet(w))


def phases(program_):
    with Worker(program_, *LONG, "--max-sequences", "1", "--max-queue", "2") as w:
        cancels(w)
        listed_to_the_end(w)
        disconnects(w)
        deadlines(w)
        s = Job(w, "metrics", metrics=True).until("metrics").cancel()
        m = next(data for name, data in s if name == "metrics")
        check(
            "metrics events",
            set(m) == {"tokens_out", "tokens_per_second", "queue_depth", "vram_bytes_used", "kv_used"}
            and m["tokens_out"] > 0
            and 0 < m["kv_used"] <= 1,
            m,
        )
        again = {"prompt": "word " * 2000, "max_tokens": 8, "seed": 5}
        check(
            "a long prefix was kept or not, the ids are the same",
            ids_of(w.execute(**again)[1]) == ids_of(w.execute(**again)[1]),
        )


def timeout(program_):
    with Worker(program_, *LONG, "--max-sequences", "1", "--inference-timeout-sec", "1", "--max-tokens-in", "20") as w:
        _, s = w.execute(**ENDLESS)
        check("--inference-timeout-sec", s[-1][0] == "error" and s[-1][1]["code"] == "INFERENCE_TIMEOUT", s[-1])
        status, answer = w.post("/execute", {"job_id": "c", "prompt": "word " * 30})
        check(
            "--max-tokens-in",
            status == 400 and answer["code"] == "CONTEXT_LENGTH_EXCEEDED" and "at most 20" in answer["message"],
            (status, answer),
        )


def small_cache(program_):
    """M-1825: a cache that one job outgrows: that job ends with VRAM_OOM, its pages come back, the next is served."""
    with Worker(program_, *LONG, "--kv-cache-size-mb", "1") as w:
        pages = w.get("/health")[1]["kv_cache"]["pages"]
        check("a cache of 1 MiB is smaller than one job", 1 <= pages < CONTEXT // 32, pages)
        for turn in range(2):
            status, s = w.execute(**ENDLESS)
            check(
                "VRAM_OOM while running",
                status == 200
                and s[0][0] == "started"
                and s[-1][0] == "error"
                and s[-1][1]["code"] == "VRAM_OOM"
                and s[-1][1]["retriable"] is False,
                s[-1],
            )
            w.until(lambda: quiet(w))
            _, s = w.execute(prompt="Once", max_tokens=20, seed=3)
            check("... and the next is served", well_formed(s), s)
        status, answer = w.post("/execute", {"job_id": "never", "prompt": "word " * 32 * pages})
        check(
            "a prompt that never fits",
            (status, answer["code"]) in ((500, "VRAM_OOM"), (400, "CONTEXT_LENGTH_EXCEEDED"), (400, "INVALID_REQUEST")),
            (status, answer),
        )


def many_at_once(w):
    alone = {s: ids_of(w.execute(prompt="Once %d" % s, max_tokens=60, seed=s, temperature=1.5)[1]) for s in range(24)}
    together = {}

    def one(s):
        together[s] = ids_of(
            w.execute(prompt="Once %d" % s, max_tokens=60, seed=s, temperature=1.5, priority=s % 7 - 3)[1]
        )

    threads = [threading.Thread(target=one, args=(s,)) for s in range(24)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check("24 at once: the ids of each alone", alone == together)


with Worker(program) as w:
    same_ids(w)
    by_the_minute(w)
    texts(w)
    refused(w)
    many_at_once(w)
phases(program)
timeout(program)
small_cache(program)
freezes(program)
damaged(program, source)
done()
