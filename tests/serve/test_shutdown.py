#!/usr/bin/env python3
"""The end of `worker serve`, whatever else is under way: python3 test_shutdown.py PROGRAM SOURCES FAKE_DEVICE LIBDIR

An end is bounded by --shutdown-timeout-sec, a second signal ends the process in every phase, and no handler meets what
was freed: the last is for builds with sanitizers to say, which run this test too.
"""

import http.client
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading

from service import LONG, PATIENCE, Job, Worker, check, done, with_fake_device

program, sources, fake, libdir = sys.argv[1:5]
scratch = tempfile.mkdtemp()
models = os.path.join(sources, "models/haiku")
ROUNDS = 6  # of a race


class Asker(threading.Thread):
    """Asks the same again and again until its worker is gone; every answer is one that is allowed."""

    def __init__(self, w, port, method, path, body, allowed):
        super().__init__(daemon=True)
        self.w, self.port, self.method, self.path, self.body, self.allowed = w, port, method, path, body, allowed
        self.asked, self.wrong = 0, []
        self.start()

    def run(self):
        while True:
            try:
                status, _, answer = self.w.ask(self.method, self.path, self.body, port=self.port)
            except (http.client.HTTPException, ConnectionResetError, BrokenPipeError):
                continue  # cut off: the next one shows whether the worker is gone
            except OSError:
                return
            self.asked += 1
            if status not in self.allowed:
                self.wrong.append((status, answer))


def race(end, *arguments):
    """Everything is asked for on both ports while the worker ends."""
    with Worker(program, "--wait-for-commit", "--model-dir", models, *arguments, wait=False) as w:
        w.until(lambda: w.get("/livez", w.admin)[0] == 200)
        commit = {"model_ref": "haiku-q4_k_m.gguf"}
        askers = []
        for port in (w.port, w.admin):
            askers += [
                Asker(w, port, "GET", "/metrics", None, (200, 503)),
                Asker(w, port, "GET", "/health", None, (200, 503)),
                Asker(w, port, "GET", "/worker/jobs", None, (200, 503)),
                Asker(w, port, "POST", "/worker/plan", commit, (200, 429, 503)),
                Asker(w, port, "POST", "/worker/commit", commit, (200, 409, 429, 503)),
                Asker(w, port, "POST", "/cancel", {"job_id": "job"}, (202, 503)),
                Asker(w, port, "POST", "/tokenize", {"content": "Once upon a time"}, (200, 429, 503)),
            ]
        execute = {"job_id": "job", "prompt": "Once", "max_tokens": 4}
        askers.append(Asker(w, w.port, "POST", "/execute", execute, (200, 409, 429, 503)))
        several = {"prompt": ["Once", "upon"], "n": 3, "max_tokens": 4, "logprobs": 2, "echo": True}
        askers.append(Asker(w, w.port, "POST", "/v1/completions", several, (200, 429, 499, 503)))
        w.until(lambda: all(a.asked > 2 for a in askers))
        end(w)
        status = w.status()
        for a in askers:
            a.join(PATIENCE)
        check("ends with 0 while everything is asked for", status == 0, (status, w.said()[-2000:]))
        wrong = [(a.path, a.wrong[:2]) for a in askers if a.wrong]
        check("... and every answer was a good one", not wrong, wrong)


def held(w, path):
    """A request whose body does not come."""
    c = socket.create_connection(("127.0.0.1", w.port), PATIENCE)
    c.sendall(
        b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n\r\n{" % path
    )
    return c


def bounded():
    with Worker(program, *LONG, "--max-sequences", "1", "--shutdown-timeout-sec", "1") as w:
        # One stream whose client does not read, and requests whose bodies do not come.
        deaf = socket.socket()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        deaf.connect(("127.0.0.1", w.port))
        body = b'{"job_id":"deaf","prompt":"Once upon a time","max_tokens":32000,"repetition_penalty":0.01}'
        deaf.sendall(
            b"POST /execute HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
        )
        w.until(lambda: w.get("/worker/jobs/deaf")[0] == 200)
        slow = [held(w, path) for path in (b"/tokenize", b"/worker/plan", b"/execute", b"/v1/completions")]
        w.process.send_signal(signal.SIGTERM)
        check("clients that neither read nor send do not hold the end up: exit 0", w.status() == 0, w.said()[-2000:])
        for c in [deaf, *slow]:
            c.close()


def second_signal():
    """The first asks for an end, which never comes; the second is one."""
    installed = with_fake_device(program, fake, libdir, scratch)
    for fault, ready in (("hangs-in-probe", False), ("hangs-in-open", False), ("hangs-in-close", True)):
        with Worker(
            installed,
            "--gpu-device",
            "0",
            "--log",
            "json",
            "--shutdown-timeout-sec",
            "600",
            wait=ready,
            environment={"WORKER_FAKE": fault},
        ) as w:
            if fault == "hangs-in-open":
                w.until(lambda: w.get("/livez")[0] == 200)
            elif fault == "hangs-in-probe":
                w.until(lambda: signals_blocked(w.process.pid))
            w.process.send_signal(signal.SIGTERM)
            w.until(lambda: not pending(w.process.pid))
            w.process.send_signal(signal.SIGTERM)
            status = w.status()
            check(
                "%s: a second signal ends it at once, with 1" % fault,
                status == 1 and "shutdown_now" in w.said(),
                (status, w.said()[-2000:]),
            )
    with Worker(
        installed,
        "--gpu-device",
        "0",
        "--log",
        "json",
        "--shutdown-timeout-sec",
        "1",
        environment={"WORKER_FAKE": "hangs-in-close"},
    ) as w:
        w.process.send_signal(signal.SIGTERM)
        check(
            "a device that hangs while it is closed: the time to end ends it",
            w.status() == 0 and "shutdown_now" in w.said(),
            w.said()[-2000:],
        )
    with Worker(program, *LONG, "--max-sequences", "1", "--shutdown-timeout-sec", "600") as w:
        job = Job(w, "a", max_tokens=100).until("token")
        w.post("/shutdown", {})
        w.process.send_signal(signal.SIGTERM)
        check(
            "SIGTERM after /shutdown is the first signal: running jobs finish",
            job.over()[-1][0] == "end" and w.status() == 0,
            job.events[-1:],
        )


def signal_mask(pid, name):
    with open("/proc/%d/status" % pid, encoding="ascii") as f:
        return next(int(line.split()[1], 16) for line in f if line.startswith(name + ":"))


def signals_blocked(pid):
    """Those that the service waits for: while a thread is made, all are blocked for a moment."""
    blocked = signal_mask(pid, "SigBlk")
    return blocked >> (signal.SIGTERM - 1) & 1 and not blocked >> (signal.SIGWINCH - 1) & 1


def pending(pid):
    return signal_mask(pid, "ShdPnd") >> (signal.SIGTERM - 1) & 1


for turn in range(ROUNDS):
    if turn % 2:
        race(lambda w: w.post("/shutdown", {}))
    else:
        race(lambda w: w.process.send_signal(signal.SIGTERM))
bounded()
second_signal()
shutil.rmtree(scratch)
done()
