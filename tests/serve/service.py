"""The built program as a service, for the tests of this folder: started on a free port, asked over plain sockets,
ended."""

import atexit
import contextlib
import http.client
import itertools
import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

SKIPPED = 77
PORTS = random.SystemRandom()  # nobody else's seed: tests of one seed beside each other would try the same ports
STARTS = 5  # of a worker whose ports were taken
PATIENCE = 120  # seconds: what has not come by then never does; nothing else here is timed
DEVICE = os.environ.get("WORKER_DEVICE", "cpu")  # of every worker that is not told another
# Parameters of a job that does not end by itself while a test looks on, and the options of a worker that lets it run
# for minutes: what was generated once becomes ever more likely, and an end never was. Its end is a cancel. A GPU
# generates 32,000 tokens in three seconds.
CONTEXT = 32768 if DEVICE == "cpu" else 1048576
MOST = CONTEXT - 768
ENDLESS = {"prompt": "Once upon a time", "max_tokens": MOST, "temperature": 0, "repetition_penalty": 0.01}
LONG = ("--context", str(CONTEXT), "--max-tokens-out", str(MOST))
CHAT = {
    "messages": [{"role": "user", "content": "Write a haiku about GPU computing"}],
    "max_tokens": 50,
    "temperature": 0.7,
    "seed": 42,
}
HAIKU = {"prompt": "Write a haiku about GPU computing", "chat": True, "max_tokens": 50, "temperature": 0.7, "seed": 42}
failures = []


def check(name, good, detail=""):
    """One line a check; the exit status of done() is what all of them make."""
    print(
        ("ok      " if good else "FAILED  ") + name + ("" if good or detail == "" else ": " + str(detail)[:2000]),
        flush=True,
    )
    if not good:
        failures.append(name)


CONTRACTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "contracts")
TYPES = {"string": str, "integer": int, "boolean": bool, "null": type(None)}


def breaks_contract(name, value):
    """What of a flat object is not as contracts/<name> says; "": nothing. For the keywords that these schemas use."""
    with open(os.path.join(CONTRACTS, name), encoding="utf-8") as f:
        schema = json.load(f)
    wrong = ["missing " + k for k in schema["required"] if k not in value]
    for key, field in value.items():
        rule = schema["properties"].get(key)
        if rule is None:
            wrong.append("unknown " + key)
            continue
        types = rule.get("type", [])
        types = [types] if isinstance(types, str) else types
        if types and type(field) not in [TYPES[t] for t in types]:
            wrong.append("type of " + key)
        if "enum" in rule and field not in rule["enum"]:
            wrong.append("value of " + key)
        if "minimum" in rule and field is not None and field < rule["minimum"]:
            wrong.append("minimum of " + key)
        if "minLength" in rule and len(field) < rule["minLength"]:
            wrong.append("length of " + key)
    return ", ".join(wrong)


def done():
    sys.exit(1 if failures else 0)


def skip(why):
    print("skipped: " + why)
    sys.exit(SKIPPED)


if DEVICE == "cuda" and not any(os.path.exists(node) for node in ("/dev/nvidiactl", "/dev/dxg")):
    skip("no GPU here")


def scratch(prefix):
    """A folder that goes with the test."""
    folder = tempfile.mkdtemp(prefix=prefix)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def free_port():
    """A port that nobody has, from below those that the kernel gives to the connections of whatever else runs here: as
    a rule it is still free when the worker binds it."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as f:
        low = int(f.read().split()[0])
    while True:
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", PORTS.randrange(10000, low) if low > 12000 else 0))
                return s.getsockname()[1]
            except OSError:
                pass


def start_lines(process):
    """What a worker that is not quiet prints until it is ready."""
    said = []
    for line in process.stdout:
        said.append(line.strip())
        if line.startswith("Ctrl-C"):
            break
    return said


def children(pid):
    """Process ids of its children that still live."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open("/proc/%s/stat" % name, encoding="ascii", errors="replace") as f:
                state, parent = f.read().rsplit(")", 1)[1].split()[:2]
            if int(parent) == pid and state != "Z":
                found.append(int(name))
    return found


def with_fake_device(program, fake, libdir, folder):
    """The program, in `folder`, beside a device-cuda.so that computes on the CPU and fails as WORKER_FAKE says."""
    library = os.path.join(folder, "prefix", libdir, "worker")
    installed = os.path.join(folder, "prefix/bin/worker")
    os.makedirs(os.path.dirname(installed))
    os.makedirs(library)
    shutil.copy(program, installed)
    shutil.copy(fake, os.path.join(library, "device-cuda.so"))
    os.chmod(os.path.join(library, "device-cuda.so"), 0o644)
    return installed


def frees_memory(program):
    """Does freed memory go back to the system? A sanitizer keeps it."""
    with open(program, "rb") as f:
        return not re.search(b"__(asan|tsan)_init", f.read())


class Worker:
    """worker serve ARGUMENTS, ready unless wait is False; on other ports, should somebody have taken one before the
    worker could. What it said is in said()."""

    starts = 0

    def __init__(self, program, *arguments, wait=True, environment=None):
        self.program, self.arguments, self.environment = program, arguments, dict(os.environ, **(environment or {}))
        self.start()
        if wait:
            self.until(lambda: self.get("/readyz")[0] == 200)

    def start(self):
        self.starts += 1
        self.port = self.admin = free_port()
        while self.admin == self.port:
            self.admin = free_port()
        command = [self.program, "serve", "--port", str(self.port), "--admin-port", str(self.admin), *self.arguments]
        self.stderr = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.stderr, env=self.environment
        )

    def until(self, what):
        end = time.monotonic() + PATIENCE
        while True:
            try:
                if what():
                    return
            except OSError:
                pass
            if self.process.poll() is not None:
                if "LISTEN_FAILED" in self.said() and self.starts < STARTS:
                    print("again, on other ports: " + self.said(), flush=True)
                    self.start()
                    continue
                raise RuntimeError("the worker ended with %s: %s" % (self.process.returncode, self.said()))
            if time.monotonic() > end:
                raise TimeoutError("the worker does not get there: " + self.said())
            time.sleep(0.02)

    def with_digest(self):
        """/health, once the digest of the weights is known."""
        self.until(lambda: self.get("/health")[1]["digest"] != "pending")
        return self.get("/health")[1]

    def said(self):
        self.stderr.seek(0)
        return self.stderr.read()

    def connection(self, port=None):
        return http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=PATIENCE)

    def ask(self, method, path, body=None, headers=None, port=None):
        """(status, headers, bytes) of one request; body: an object, or bytes as they are."""
        c = self.connection(port)
        try:
            data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
            known = {"Content-Type": "application/json"} if data is not None else {}
            # Who is refused before all was sent finds the answer there: the service reads on for a while, not for ever.
            with contextlib.suppress(BrokenPipeError):
                c.request(method, path, data, dict(known, **(headers or {})))
            r = c.getresponse()
            return r.status, {k.lower(): v for k, v in r.getheaders()}, r.read()
        finally:
            c.close()

    def document(self, method, path, body=None, **more):
        """(status, object or text) of one request."""
        status, headers, data = self.ask(method, path, body, **more)
        is_json = headers.get("content-type", "").startswith("application/json")
        return status, json.loads(data) if is_json else data.decode()

    def get(self, path, port=None):
        return self.document("GET", path, port=port)

    def post(self, path, body, **more):
        return self.document("POST", path, body, **more)

    def execute(self, **body):
        """(status, events): [(name, data)] of a stream, or the error's JSON."""
        status, answer = self.post("/execute", dict({"job_id": "job-%d" % time.monotonic_ns()}, **body))
        return status, events(answer) if isinstance(answer, str) else answer

    def some_events(self, path, n, headers=None):
        """(status, headers, [(name, data)]) of the first n events of a stream that does not end, or of what else came;
        then the client leaves."""
        c = self.connection()
        try:
            c.request("GET", path, headers=headers or {})
            r = c.getresponse()
            stream = list(itertools.islice(each_event(r), n)) if r.status == 200 else []
            return r.status, {k.lower(): v for k, v in r.getheaders()}, stream
        finally:
            c.close()

    def metrics(self, port=None):
        return Metrics(self.get("/metrics", port)[1])

    def status(self):
        """Of the program, which ends by itself."""
        return self.process.wait(PATIENCE)

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
        return self.status()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()  # its own end is part of what a sanitizer looks at
            try:
                self.process.wait(1)  # not for streams that a test has left
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        if "Sanitizer" in self.said():
            check("no sanitizer has anything to say", False, self.said())


class Publishing(Worker):
    """worker serve with cache events at .events, and again at .replay."""

    def start(self):
        self.events, self.replay = ("tcp://127.0.0.1:%d" % free_port() for _ in range(2))
        before = getattr(self, "unpublished", self.arguments)
        self.unpublished = before
        self.arguments = (*before, "--kv-events", self.events, "--kv-events-replay", self.replay)
        super().start()


class Job(threading.Thread):
    """One POST /execute, ENDLESS unless the body says otherwise, read by a thread of its own: .status, and .events as
    they come, or the error's JSON as .answer."""

    def __init__(self, w, job_id, **body):
        super().__init__(daemon=True)
        self.w, self.job_id, self.body = w, job_id, dict(ENDLESS, job_id=job_id, **body)
        self.status, self.events, self.answer = None, [], None
        self.start()

    def run(self):
        c = http.client.HTTPConnection("127.0.0.1", self.w.port, timeout=PATIENCE)
        try:
            headers = dict({"Content-Type": "application/json"}, **getattr(self.w, "headers", {}))
            c.request("POST", "/execute", json.dumps(self.body), headers)
            r = c.getresponse()
            self.status = r.status
            if r.status == 200:
                self.events.extend(each_event(r))
            else:
                self.answer = json.loads(r.read())
        except (OSError, http.client.HTTPException):  # cut off with its worker
            pass
        finally:
            c.close()

    def until(self, *names):
        """Waits until an event of each name has come."""
        self.w.until(lambda: set(names) <= {name for name, _ in self.events})
        return self

    def over(self):
        """The events, once it is."""
        self.join(PATIENCE)
        return self.events

    def cancel(self):
        self.w.post("/cancel", {"job_id": self.job_id})
        return self.over()


def each_event(lines):
    """(name, data) of every event of a stream that is still coming."""
    name = ""
    for line in lines:
        line = line.decode().rstrip("\n")
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:])


def cancelled(stream):
    return stream[-1][0] == "error" and stream[-1][1]["code"] == "CANCELLED" and stream[-1][1]["retriable"] is False


def events(text):
    out = []
    for block in text.split("\n\n"):
        name = re.search(r"^event: (.*)$", block, re.M)
        data = re.search(r"^data: (.*)$", block, re.M)
        if data and data.group(1) != "[DONE]":  # how OpenAI ends a stream
            out.append((name.group(1) if name else "", json.loads(data.group(1))))
    return out


class Metrics:
    """One answer of /metrics: types by family, samples by name and labels."""

    def __init__(self, text):
        self.text = text
        self.types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
        self.samples = {}
        for name, labels, value in re.findall(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$", text, re.M):
            self.samples[name, tuple(sorted(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels)))] = float(value)

    def __call__(self, name, **labels):
        """The sample with these labels, whatever labels it has besides; 0: there is none."""
        found = [v for (n, has), v in self.samples.items() if n == name and set(labels.items()) <= set(has)]
        return sum(found) if labels else self.samples.get((name, ()), 0.0)
