"""Routers of PyPI in front of workers, for the tests of this folder: vllm-router and smg, as their own programs."""

import http.client
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import threading
import time

from gated import Client
from service import PATIENCE, STARTS, Worker, free_port

MODULES = {"vllm-router": "vllm_router.launch_router", "smg": "smg.cli"}
HAS = {"vllm-router": "vllm_router", "smg": "smg"}


def is_installed(name):
    return importlib.util.find_spec(HAS[name]) is not None


def url(w):
    return "http://127.0.0.1:%d" % w.port


class Router:
    """name: of MODULES. In front of these workers, ready; asked as a Worker is."""

    starts = 0

    def __init__(self, name, workers, *arguments):
        self.name, self.workers, self.arguments = name, workers, arguments
        self.start()

    def start(self):
        name, workers, arguments = self.name, self.workers, self.arguments
        self.starts += 1
        self.port = free_port()
        program = "import sys; sys.argv[0] = %r; from %s import main; sys.exit(main())" % (name, MODULES[name])
        command = [sys.executable, "-c", program] + (["launch"] if name == "smg" else [])
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--prometheus-port", str(free_port())]
        command += ["--worker-startup-check-interval", "1"]
        command += (["--worker-urls", *map(url, workers)] if workers else []) + list(arguments)
        self.out = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.out)

    def said(self):
        """Without colours."""
        self.out.seek(0)
        return re.sub(r"\x1b\[[0-9;]*m", "", self.out.read())

    def until(self, what):
        end = time.monotonic() + PATIENCE
        while True:
            try:
                if what():
                    return
            except (OSError, http.client.HTTPException):
                pass
            if self.process.poll() is not None and self.starts < STARTS and "in use" in self.said():
                self.start()  # on other ports
                continue
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the router does not get there: " + self.said()[-3000:])
            time.sleep(0.05)

    def answers(self, body):
        """Until it has a worker."""
        self.until(lambda: self.document("POST", "/v1/chat/completions", body)[0] == 200)
        return self

    connection, ask, document, get, post = (Worker.connection, Worker.ask, Worker.document, Worker.get, Worker.post)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Load:
    """Threads that ask one request after the other, each as a stream, until stop(): .good and .bad, [(begun, ended,
    what)]."""

    def __init__(self, at, threads, body, text):
        self.at, self.body, self.text, self.over = at, body, text, threading.Event()
        self.good, self.bad, self.lock = [], [], threading.Lock()
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(threads)]
        for t in self.threads:
            t.start()

    def once(self, c):
        """What became of a request; None: all of it came."""
        try:
            r = c.open("POST", "/v1/chat/completions", dict(self.body, stream=True))
            text = r.read().decode()
        except (OSError, http.client.HTTPException) as e:
            c.close()
            return repr(e)
        if r.status != 200:
            return (r.status, text)
        chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        whole = "".join(x["choices"][0]["delta"].get("content") or "" for x in chunks if x.get("choices"))
        return None if whole == self.text and "[DONE]" in text else ("cut", text[-300:])

    def run(self):
        c = Client(self.at)
        while not self.over.is_set():
            begun = time.monotonic()
            why = self.once(c)
            with self.lock:
                (self.bad if why else self.good).append((begun, time.monotonic(), why))
        c.close()

    def until(self, n):
        """n more good ones have come."""
        n += len(self.good)
        end = time.monotonic() + PATIENCE
        while len(self.good) < n and time.monotonic() < end:
            time.sleep(0.02)
        return len(self.good) >= n

    def stop(self):
        self.over.set()
        for t in self.threads:
            t.join(PATIENCE)
        return self
