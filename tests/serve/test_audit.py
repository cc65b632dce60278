#!/usr/bin/env python3
"""The audit log of a running service: a disk that is full and has room again, texts where they are asked for, a file
that is moved away under load, a worker that is killed under load."""

import contextlib
import http.client
import json
import os
import resource
import signal
import socket
import sys
import threading
import time

from gated import Client, Gated, at_once, bearer, verify
from service import ENDLESS, LONG, Worker, check, done, events

program = sys.argv[1]
THREADS = 8


def lines(path):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    return [json.loads(line) for line in text.split("\n")[:-1]]


class Logged(Gated):
    """A worker with keys and a log in its folder."""

    def __init__(self, *more):
        super().__init__(program, "--max-sequences", "8", "--audit-log", "audit.log", *more)

    def start(self):
        self.log = os.path.join(self.folder, "audit.log")
        self.arguments = [self.log if a == "audit.log" else a for a in self.arguments]
        super().start()

    def limit(self, bytes_):
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (bytes_, resource.RLIM_INFINITY))

    def fill(self):
        """The disk has no room for a further byte of the log; nor have the worker's events."""
        self.limit(os.stat(self.log).st_size)


def completion(**more):
    return dict({"prompt": "Write a haiku about rain", "max_tokens": 4, "temperature": 0}, **more)


def full_disk_required():
    with Logged("--audit-required") as w:
        c = Client(w, w.key("alice"))
        check("required: served", c.ask("POST", "/v1/completions", completion())[0] == 200)
        before = w.count("worker_tokens_generated_total")
        w.fill()
        for route, body in (
            ("/v1/completions", completion()),
            ("/v1/completions", completion(stream=True)),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}),
            ("/execute", completion(job_id="full")),
        ):
            status, headers, text = c.ask("POST", route, body)
            good = status == 503 and "audit" in text and "retry-after" in headers
            check("a full disk refuses %s%s" % (route, " streamed" if "stream" in body else ""), good, (status, text))
        check("it says AUDIT_FAILED", '"AUDIT_FAILED"' in text, text)
        check("nothing was generated", w.count("worker_tokens_generated_total") == before, before)
        check("it is counted", w.count("worker_audit_failing") == 1 and w.count("worker_audit_dropped_total") >= 4)
        w.limit(resource.RLIM_INFINITY)
        check("room again: served", c.ask("POST", "/v1/completions", completion())[0] == 200)
        check("and not failing", w.count("worker_audit_failing") == 0)
        w.end()
        status, said = verify(program, w.log, key=w.log + ".key")
        check("the log is whole", status == 0, said)
        entries = lines(w.log)
        check("it tells of what is missing", any(e["kind"] == "dropped" for e in entries))
        admitted = [e["request_id"] for e in entries if e["kind"] == "admission"]
        ended = [e["request_id"] for e in entries if e["kind"] == "request" and "tokens_in" in e]
        check("an admission stands before its end", sorted(admitted) == sorted(ended) and len(ended) == 2, entries)


def full_disk():
    with Logged() as w:
        c = Client(w, w.key("alice"))
        w.fill()
        for _ in range(3):
            check("not required: served all the same", c.ask("POST", "/v1/completions", completion())[0] == 200)
        _, _, text = w.ask("GET", "/admin/audit", headers=bearer(w.root))
        figures = json.loads(text)
        check("drops are counted", figures["dropped"] >= 3 and figures["failing"], figures)
        w.limit(resource.RLIM_INFINITY)
        check("and go on", c.ask("POST", "/v1/completions", completion())[0] == 200)
        w.end()
        dropped = [e for e in lines(w.log) if e["kind"] == "dropped"]
        check("the log says how many", len(dropped) == 1, dropped)
        status, said = verify(program, w.log, key=w.log + ".key")
        check("and is whole", status == 0 and "could not be written" in said, said)


def texts():
    prompt = "Write a haiku about a \u201clantern\u201d and a kettle"
    bodies = (
        ("/v1/completions", completion(prompt=prompt, max_tokens=20)),
        ("/v1/completions", completion(prompt=prompt, max_tokens=20, stream=True)),
        ("/execute", completion(prompt=prompt, max_tokens=20, job_id="raw")),
    )
    with Logged("--audit-raw") as w:
        c = Client(w, w.key("alice", tenant="blue"))
        answers = []
        for route, body in bodies:
            _, _, text = c.ask("POST", route, body)
            if route == "/execute":
                answers.append("".join(e["t"] for name, e in events(text) if name == "token"))
            elif "stream" in body:
                answers.append("".join(x["text"] for _, d in events(text) for x in d["choices"]))
            else:
                answers.append(json.loads(text)["choices"][0]["text"])
        w.end()
        entries = [e for e in lines(w.log) if e["kind"] == "request" and "tokens_in" in e]
        check("raw: prompts", [e.get("prompt") for e in entries] == [prompt] * 3, entries)
        check("raw: answers", [e.get("response") for e in entries] == answers, (answers, entries))
        check("whose they were", all(e["key_id"] == "alice" and e["tenant"] == "blue" for e in entries), entries)
    with Logged() as w:
        c = Client(w, w.key("alice"))
        for route, body in bodies:
            c.ask("POST", route, body)
        w.end()
        with open(w.log, encoding="utf-8") as f:
            whole = f.read()
        check("not raw: no text", "kettle" not in whole and "lantern" not in whole)
        entries = [e for e in lines(w.log) if e["kind"] == "request" and "tokens_in" in e]
        check("equal texts have equal digests", len({(e["prompt_hmac"], e["response_hmac"]) for e in entries}) == 1)


def load(w, secret, answered, stop, bodies):
    """Asks until stop; ids of requests whose answers came whole."""

    def one(i):
        c, n = Client(w, secret), 0
        while not stop.is_set():
            name = "%d-%d" % (i, n)
            n += 1
            route, body = bodies[n % len(bodies)]
            if body and "job_id" in body:
                body = dict(body, job_id=name)
            with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
                method = "POST" if body else "GET"
                status, _, text = c.ask(method, route, body, headers={"X-Request-Id": name})
                streamed = status == 200 and body and ("job_id" in body or "stream" in body)
                if not streamed or "[DONE]" in text or "event: end" in text:
                    answered.append(name)
                continue
            c.close()
            if w.process.poll() is not None:
                return

    thread = threading.Thread(target=at_once, args=(THREADS, one), daemon=True)
    thread.start()
    return thread


BODIES = (
    ("/v1/completions", completion()),
    ("/v1/completions", completion(stream=True)),
    ("/execute", completion(job_id="")),
    ("/v1/models", None),
    ("/v1/completions", completion(max_tokens=-5)),
)


def rotation():
    with Logged() as w:
        answered, stop = [], threading.Event()
        thread = load(w, w.key("alice"), answered, stop, BODIES)
        files = []
        for i in range(3):
            w.until(lambda n=i: len(answered) > 40 * (n + 1))
            files.append(w.log + ".old-%d" % i)
            os.rename(w.log, files[-1])
            w.process.send_signal(signal.SIGHUP)
            w.until(lambda: os.path.exists(w.log))
        w.until(lambda: len(answered) > 160)
        stop.set()
        thread.join()
        w.end()
        files.append(w.log)
        status, said = verify(program, *files, key=w.log + ".key")
        check("SIGHUP: all files are one chain", status == 0, said)
        noted = {e.get("request_id") for f in files for e in lines(f)}
        check("no request is missing", set(answered) <= noted, sorted(set(answered) - noted)[:5])
        check("each file has some", all(len(lines(f)) > 10 for f in files))


def killed():
    with Logged() as w:
        secret = w.key("alice")
        for _ in range(3):
            answered, stop = [], threading.Event()
            thread = load(w, secret, answered, stop, BODIES)
            w.until(lambda a=answered: len(a) > 100)
            w.process.kill()
            w.process.wait()
            thread.join()
            with open(w.log, encoding="utf-8") as f:
                text = f.read()
            noted = {e.get("request_id") for e in lines(w.log)}
            missing = set(answered) - noted
            check("killed: what was answered was written before", not missing, (len(answered), sorted(missing)[:5]))
            status, said = verify(program, w.log, key=w.log + ".key")
            check("killed: the log is whole", status == 0, (said, text[-300:]))
            w.start()
            w.until(lambda: w.get("/readyz")[0] == 200)
        w.end()
        status, said = verify(program, w.log, key=w.log + ".key")
        check("and goes on with the next start", status == 0, said)
        check("which is written down", sum(e["kind"] == "start" for e in lines(w.log)) == 4)


def unread():
    """Who never reads his answer does not keep his own entry, nor the log's end, from being written."""
    with Logged("--shutdown-timeout-sec", "1") as w:
        secret = w.key("mute")
        body = json.dumps(completion(stream=True, n=8, max_tokens=480, logprobs=5, ignore_eos=True)).encode()
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.connect(("127.0.0.1", w.port))
            head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n" % secret
            head += "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            s.sendall(head.encode() + body)
            w.until(lambda: w.count("worker_http_streams") == 1)
            time.sleep(1)  # all jobs run, and no more of their text fits into the sockets
            check("unread: the worker ends", w.end() == 0, w.said()[-300:])
        kinds = [x["kind"] for x in lines(w.log)]
        check("unread: its entry is there", any(x.get("key_id") == "mute" for x in lines(w.log)), kinds)
        check("unread: the log ends in order", "stop" in kinds[-2:], kinds)
        check("unread: verify", verify(program, w.log, key=w.log + ".key")[0] == 0)


def failed_whole():
    """Of a whole answer that fails, all jobs' tokens are written down, however many had not ended by then."""
    with Logged(*LONG) as w:
        secret, answered = w.key("several"), []
        asking = threading.Thread(
            target=lambda: answered.append(Client(w, secret).ask("POST", "/v1/completions", dict(ENDLESS, n=6)))
        )
        asking.start()
        decoding = lambda: [j for j in w.manage("GET", "/worker/jobs")[1]["jobs"] if j["tokens_out"] > 0]
        w.until(lambda: len(decoding()) == 6)
        w.manage("POST", "/cancel", {"job_id": decoding()[3]["job_id"]})
        asking.join()
        check("failed: it was cancelled", answered[0][0] == 499 and '"cancelled"' in answered[0][2], answered)
        w.end()
        entry = [e for e in lines(w.log) if e.get("key_id") == "several"][0]
        ends = [json.loads(line) for line in w.said().splitlines() if '"execute_end"' in line]
        check("failed: six jobs", len(ends) == 6 and all(e["tokens_out"] > 0 for e in ends), ends)
        check("failed: all are counted", entry["tokens_out"] == sum(e["tokens_out"] for e in ends), (entry, ends))


def alone():
    """A log without keys: everybody is let in, everything is written down."""
    with Logged() as keyed:
        log = os.path.join(keyed.folder, "alone.log")
    with Worker(program, "--audit-log", log) as w:
        check("without keys: served", w.post("/v1/completions", completion())[0] == 200)
        w.end()
    entries = [e for e in lines(log) if e["kind"] == "request"]
    check("without keys: written down", len(entries) == 1 and "key_id" not in entries[0], entries)


full_disk_required()
full_disk()
texts()
rotation()
killed()
unread()
failed_whole()
alone()
done()
