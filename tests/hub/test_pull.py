#!/usr/bin/env python3
"""test_pull.py WORKER SOURCE: `worker pull` against a hub of the test's own, which breaks off, lies and refuses."""

import concurrent.futures
import contextlib
import hashlib
import itertools
import json
import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import tempfile

from hubserver import PATIENCE, Authority, Hub, Store, check, children, done, until

program, source = sys.argv[1:3]
folder = tempfile.mkdtemp(prefix="worker-pull-")
TOKEN = "hf_secret0123456789"
maker = random.Random(31)
places = itertools.count()


class Place:
    """A hub with its store, and a model folder: new for every test."""

    def __init__(self, tls=None, store_tls=None):
        self.models = os.path.join(folder, "models%d" % next(places))
        self.store = Store(tls=store_tls)
        self.hub = Hub(self.store, tls=tls)

    def add(self, path="m-Q4_K_M.gguf", size=2000000, repository="org/name", content=None):
        content = maker.randbytes(size) if content is None else content
        self.hub.add(repository, path, content)
        return content

    def command(self, *words):
        return [program, "pull", "--model-dir", self.models, *words]

    def environment(self, **more):
        keep = {n: v for n, v in os.environ.items() if not n.startswith(("HF_", "WORKER_MODEL"))}
        return dict(keep, HF_ENDPOINT=self.hub.url, HOME=folder, **more)

    def pull(self, *words, limit=None, **environment):
        """limit: of a file's size, in blocks of 512 bytes."""
        limited = ["sh", "-c", 'ulimit -f %d && exec "$@"' % limit, "sh"] if limit else []
        return subprocess.run(
            [*limited, *self.command(*words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=PATIENCE,
            env=self.environment(**environment),
        )

    def start(self, *words):
        return subprocess.Popen(
            self.command(*words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment()
        )

    def path(self, file="m-Q4_K_M.gguf", repository="org/name"):
        return os.path.join(self.models, repository, file)

    def holds(self, content, file="m-Q4_K_M.gguf", repository="org/name"):
        """The file is right, and nothing but it lies in its folder."""
        path = self.path(file, repository)
        if not os.path.exists(path):
            return False
        with open(path, "rb") as f:
            return f.read() == content and not [n for n in os.listdir(os.path.dirname(path)) if ".part" in n]

    def part(self, file="m-Q4_K_M.gguf"):
        with contextlib.suppress(OSError):
            return os.path.getsize(self.path(file) + ".part")
        return 0

    def ranges(self):
        return [r.headers.get("range") for r in self.store.requests]

    def close(self):
        self.hub.close()
        self.store.close()


def fails(name, r, text, status=1):
    last = (r.stderr.strip().splitlines() or [""])[-1]
    good = r.returncode == status and text in last and (status != 1 or "worker: error: PULL_FAILED: " in last)
    check(name, good and r.stdout == "" and TOKEN not in r.stderr, (r.returncode, r.stderr))


def whole():
    p = Place()
    content = p.add(content=open(os.path.join(source, "models/haiku/haiku-q4_k_m.gguf"), "rb").read())
    p.add("README.md", 100)
    r = p.pull("hf:org/name")
    sha256 = hashlib.sha256(content).hexdigest()
    check("the one model of a repository", r.returncode == 0 and p.holds(content), (r.returncode, r.stderr))
    check("where it is, and its SHA-256", p.path() in r.stdout and sha256 in r.stdout, r.stdout)
    check("lines say how far it is", "fetches, 50 %" in r.stderr and "\r" not in r.stderr, r.stderr)
    check("nothing else was asked for", len(p.store.requests) == 1 and p.ranges() == [None], p.ranges())
    again = p.pull("hf:org/name:q4_k_m", "--json")
    document = json.loads(again.stdout)
    file = {"file": "m-Q4_K_M.gguf", "path": p.path(), "bytes": len(content), "sha256": sha256, "bytes_fetched": 0}
    model = "hf:org/name/m-Q4_K_M.gguf"
    expected = {"model": model, "path": p.path(), "bytes": len(content), "files": [file]}
    check("what is there is checked and not fetched", document == expected and len(p.store.requests) == 1, document)
    for name in ("hf:org/name", "hf:org/name:Q4_K_M", model, "m-Q4_K_M"):
        words = [
            program,
            "run",
            "--model-dir",
            p.models,
            "--model",
            name,
            "-p",
            "rain",
            "-n",
            "3",
            "--temperature",
            "0",
        ]
        run = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=p.environment())
        check("it runs as " + name, run.returncode == 0 and run.stdout, run.stderr)
    with open("/dev/full", "wb") as full:
        w = subprocess.run(p.command("hf:org/name"), stdout=full, stderr=subprocess.PIPE, env=p.environment())
    check("standard output is full", w.returncode == 1 and b"OUTPUT_FAILED" in w.stderr, w.stderr)
    with open(p.path(), "r+b") as f:
        f.write(b"XXXX")
    r = p.pull("hf:org/name")
    check("a damaged file is fetched again", r.returncode == 0 and p.holds(content), r.stderr)
    events = p.pull("hf:org/name", "--log", "json").stderr.splitlines()
    names = {json.loads(line)["event"] for line in events}
    check("events", names == {"pull_checks", "pull_present"}, names)
    p.close()


def choices():
    p = Place()
    small = p.add("m-Q2_K.gguf", 5000)
    p.add("m-Q8_0.gguf", 5000)
    p.add("mmproj-F16.gguf", 5000)
    parts = [p.add("BF16/m-BF16-%05d-of-00003.gguf" % i, 300000) for i in (1, 2, 3)]
    r = p.pull("hf:org/name")
    fails("several models", r, "3 GGUF models are there: name one of those above, or its quantization")
    check("they are listed", "hf:org/name/m-Q2_K.gguf" in r.stderr and "mmproj" not in r.stderr, r.stderr)
    r = p.pull("hf:org/name:q2_k")
    check("a quantization", r.returncode == 0 and p.holds(small, "m-Q2_K.gguf"), r.stderr)
    fails("a quantization that is not there", p.pull("hf:org/name:Q5_K_M"), "no GGUF model in Q5_K_M is there")
    fails("a file that is not there", p.pull("hf:org/name/other.gguf"), "no GGUF model called other.gguf is there")
    fails("a file that is none", p.pull("hf:org/name/README.md"), "no GGUF model called README.md is there")
    r = p.pull("hf:org/name:BF16", "--json")
    good = all(p.holds(c, "BF16/m-BF16-%05d-of-00003.gguf" % (i + 1)) for i, c in enumerate(parts))
    check(
        "all files of a split model", r.returncode == 0 and good and len(json.loads(r.stdout)["files"]) == 3, r.stderr
    )
    del p.hub.repositories["org/name"]["BF16/m-BF16-00002-of-00003.gguf"]
    fails("a part is missing", p.pull("hf:org/name:BF16"), "00002-of-00003.gguf is not there, which is file 2 of 3")
    for bad in ("org/name", "hf:org", "hf:org/../x", "hf:org/name/../../x.gguf"):
        fails("usage: " + bad, p.pull(bad), "expected hf:ORG/NAME", status=2)
    p.add("../../escape.gguf", 100, "evil/paths")
    p.add("/tmp/escape.gguf", 100, "evil/paths")
    p.add("a/\x1b[2J.gguf", 100, "evil/paths")
    p.add(".hidden.gguf", 100, "evil/paths")
    r = p.pull("hf:evil/paths")
    check("names that lead elsewhere", r.returncode == 1 and "\x1b" not in r.stderr, r.stderr)
    check("nothing was made for them", not os.path.exists(os.path.join(p.models, "evil")), os.listdir(p.models))
    p.hub.page = 2
    content = p.add("z-Q6_K.gguf", 5000)
    check("a list of several pages", p.pull("hf:org/name:Q6_K").returncode == 0 and p.holds(content, "z-Q6_K.gguf"))
    p.hub.tree = False
    content = p.add("z-Q3_K.gguf", 5000)
    check("a mirror without a tree", p.pull("hf:org/name:Q3_K").returncode == 0 and p.holds(content, "z-Q3_K.gguf"))
    content = p.add("with space+%41.gguf", 5000, "org/odd")
    r = p.pull("hf:org/odd/with space+%41.gguf")
    check("a name with odd characters", r.returncode == 0 and p.holds(content, "with space+%41.gguf", "org/odd"), r)
    p.close()


def killed():
    p = Place()
    content = p.add(size=4000000)
    p.store.pause = 0.02
    w = p.start("hf:org/name")
    until(lambda: p.part() > 500000, "bytes before the kill")
    w.kill()
    w.communicate()
    had = p.part()
    check("no file of its name after a kill", not os.path.exists(p.path()) and had > 500000)
    p.store.pause = 0
    r = p.pull("hf:org/name", "--json")
    asked = p.store.requests[-1].headers
    check("goes on after a kill", r.returncode == 0 and p.holds(content), r.stderr)
    check("from where it was", asked.get("range") == "bytes=%d-" % had and asked.get("if-range"), asked)
    check("and fetches the rest alone", json.loads(r.stdout)["files"][0]["bytes_fetched"] == len(content) - had)
    p.close()


def helper_killed():
    p = Place()
    content = p.add(size=4000000)
    p.store.pause = 0.02
    w = p.start("hf:org/name")
    until(lambda: p.part() > 500000, "bytes before the helper's end")
    for pid in children(w.pid):
        os.kill(pid, signal.SIGKILL)
    p.store.pause = 0
    _, err = w.communicate()
    check("goes on without its helper", w.returncode == 0 and p.holds(content) and "helper process" in err, err)
    check("from where it was", p.ranges()[-1] and p.ranges()[0] is None and len(p.ranges()) == 2, p.ranges())
    p.close()


def broken():
    p = Place()
    content = p.add()
    p.store.fault = p.store.cut(700000)
    r = p.pull("hf:org/name")
    check("goes on after a broken connection", r.returncode == 0 and p.holds(content), r.stderr)
    check("with a range", p.ranges() == [None, "bytes=700000-"], p.ranges())
    p.close()

    p = Place()
    content = p.add()
    p.store.fault, p.store.ranges = p.store.cut(700000), False
    r = p.pull("hf:org/name")
    check("a server that ignores ranges", r.returncode == 0 and p.holds(content), r.stderr)
    p.close()

    p = Place()
    content = p.add()
    cut = p.store.cut(700000)

    def other_etag(request, whole):
        p.store.etags[hashlib.sha256(whole).hexdigest()] = '"second"' if request.headers.get("range") else '"first"'
        return cut(request, whole)

    p.store.fault = other_etag
    r = p.pull("hf:org/name")
    check("another ETag in the middle", r.returncode == 0 and p.holds(content), r.stderr)
    check("was asked for with the first one", p.store.requests[1].headers.get("if-range") == '"first"')
    p.close()

    p = Place()
    p.add()
    cut = p.store.cut(700000)
    new = []

    def other_file(request, whole):
        if not new:
            new.append(p.add(size=1500000))
        return cut(request, whole)

    p.store.fault = other_file
    r = p.pull("hf:org/name")
    check("another file in the middle", r.returncode == 0 and p.holds(new[0]), r.stderr)
    p.close()

    p = Place()
    content = p.add(size=500000)
    p.store.fault = lambda q, c: p.store.send(
        b"HTTP/1.1 206 x\r\nContent-Range: bytes 7-499999/500000\r\n", c[7:], '"e"'
    )
    fails("a range that nobody asked for", p.pull("hf:org/name"), "where all of the file was asked for")
    check("leaves nothing", not os.path.exists(p.path()) and not p.part())
    p.store.fault = None
    os.makedirs(os.path.dirname(p.path()), exist_ok=True)
    with open(p.path() + ".part", "wb") as f:
        f.write(content[:100000] + b"wrong")
    with open(p.path() + ".part.from", "w", encoding="ascii") as f:
        f.write("%s \n" % hashlib.sha256(content).hexdigest())
    r = p.pull("hf:org/name")
    check("a wrong part costs a download", r.returncode == 0 and p.holds(content), r.stderr)
    check("and no more", p.ranges()[-2:] == ["bytes=100005-", None], p.ranges())
    p.close()


def wrong():
    p = Place()
    content = p.add(size=300000)
    p.store.fault = lambda q, c: p.store.send(b"HTTP/1.1 200 x\r\n", b"X" + c[1:], '"e"')
    fails("a wrong byte", p.pull("hf:org/name"), "what came is wrong and was dropped")
    check("is never under the name", not os.path.exists(p.path()) and not p.part())
    p.store.fault = lambda q, c: p.store.send(b"HTTP/1.1 200 x\r\n", c[: len(c) // 2], '"e"')
    fails("half of a body", p.pull("hf:org/name"), "then the answer ended; given up after")
    check("is kept for the next time", p.part() == 150000 and not os.path.exists(p.path()))
    chunked = b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n"
    p.store.fault = lambda q, c: lambda s: s.sendall(chunked + b"%x\r\n%s\r\n5\r\nmore!\r\n0\r\n\r\n" % (len(c), c))
    fails("more than was said", p.pull("hf:org/name"), "more than the 300000 bytes come that the hub says it has")
    check("leaves nothing", not os.path.exists(p.path()) and not p.part())
    p.store.fault = lambda q, c: lambda s: s.sendall(chunked + b"%x\r\n%s\r\n0\r\n\r\n" % (len(c), c))
    check("chunks", p.pull("hf:org/name").returncode == 0 and p.holds(content))
    p.close()

    p = Place()
    p.add(size=1000)
    p.hub.lists_sha256 = p.hub.links = False
    fails("no SHA-256", p.pull("hf:org/name"), "the hub does not say its SHA-256")
    p.hub.links = True
    check("a SHA-256 with the file alone", p.pull("hf:org/name").returncode == 0)
    again = json.loads(p.pull("hf:org/name", "--json").stdout)
    check("is compared, too", again["files"][0]["bytes_fetched"] == 0 and again["bytes"] == 1000, again)
    p.close()

    p = Place()
    content = p.add(size=300000)
    p.hub.fault = lambda q: (200, b"[{]") if "/tree/" in q.path else None
    fails("a list that is no JSON", p.pull("hf:org/name"), "answers what is no JSON")
    p.hub.fault = lambda q: (200, b'{"a": 1}') if "/tree/" in q.path else None
    fails("a list that is none", p.pull("hf:org/name"), "the hub's list of files is none")
    p.hub.fault = lambda q: (200, b'[{"path": 1}, {"path": "a.gguf", "size": -5}, 7]') if "/tree/" in q.path else None
    r = p.pull("hf:org/name/a.gguf")
    fails("a list of odd members", r, "the hub answers 404")
    huge = json.dumps([{"path": "m-Q4_K_M.gguf", "size": 2**62, "lfs": {"oid": "0" * 64, "size": 2**62}}]).encode()
    p.hub.fault = lambda q: (200, huge) if "/tree/" in q.path else None
    fails("more than there is room for", p.pull("hf:org/name"), "bytes are to come and there is room for")
    p.close()


def refusals():
    p = Place()
    content = p.add(size=300000)
    p.hub.token = TOKEN
    fails("401 without a token", p.pull("hf:org/name"), "put a token into HF_TOKEN")
    fails("401 with another", p.pull("hf:org/name", HF_TOKEN="hf_x"), "the token in HF_TOKEN is not valid")
    r = p.pull("hf:org/name", HF_TOKEN=TOKEN)
    check("with the token", r.returncode == 0 and p.holds(content) and TOKEN not in r.stdout + r.stderr, r.stderr)
    check("which the other host never sees", not any("authorization" in q.headers for q in p.store.requests))
    for bad in ("a b", "a\r\nX-Y: z"):
        fails("a token that is none", p.pull("hf:org/name", HF_TOKEN=bad), "HF_TOKEN: expected a token")
    p.hub.token = None
    fails("404", p.pull("hf:org/other"), "the hub answers 404")
    p.hub.fault = lambda q: (403, b"") if "/resolve/" in q.path else None
    os.remove(p.path())
    fails("403", p.pull("hf:org/name", HF_TOKEN=TOKEN), "accept its terms at %s/org/name" % p.hub.url)
    answers = [(429, b"", {"Retry-After": "1"}), (500, b"x"), (503, b"")]
    p.hub.fault = lambda q: answers.pop() if answers and "/resolve/" in q.path else None
    r = p.pull("hf:org/name")
    check("429, 500 and 503 are tried again", r.returncode == 0 and p.holds(content) and not answers, r.stderr)
    os.remove(p.path())
    p.hub.fault = lambda q: (500, b"") if "/tree/" in q.path else None
    before = len(p.hub.requests)
    fails("500 for ever", p.pull("hf:org/name"), "answers 500; given up after 5 tries")
    check("a bounded number of times", len(p.hub.requests) - before == 5, len(p.hub.requests) - before)
    p.hub.fault = None
    expired = [(403, b"expired")]
    p.store.fault = lambda q, c: expired.pop() if expired else None
    r = p.pull("hf:org/name")
    check("403 of the other host is tried again", r.returncode == 0 and p.holds(content), r.stderr)
    check("no signature in messages", "Signature" not in r.stderr, r.stderr)
    p.close()

    p = Place()
    content = p.add(size=300000)
    os.makedirs(os.path.dirname(p.path()))
    with open(p.path() + ".part", "wb") as f:
        f.write(content[:1000])
    with open(p.path() + ".part.from", "w", encoding="ascii") as f:
        f.write('%s "e"\n' % hashlib.sha256(content).hexdigest())
    p.store.fault = lambda q, c: (416, b"") if "range" in q.headers else None
    r = p.pull("hf:org/name")
    check("416", r.returncode == 0 and p.holds(content) and p.ranges() == ["bytes=1000-", None], r.stderr)
    p.close()


def redirects():
    p = Place()
    content = p.add(size=300000)
    steps = {"/org/name/resolve/main/m-Q4_K_M.gguf": "/one/two", "/one/two": "three?x=1", "/one/three?x=1": "//%s/four"}
    direct = Store()
    direct.blobs["four"] = content

    def lead(request):
        to = steps.get(request.path)
        return (307, b"away", {"Location": to % direct.url[7:] if "%s" in to else to}) if to else None

    p.hub.fault, p.hub.token = lead, TOKEN
    r = p.pull("hf:org/name", HF_TOKEN=TOKEN)
    check("relative redirects", r.returncode == 0 and p.holds(content), r.stderr)
    seen = [q.headers.get("authorization") for q in p.hub.requests if q.path.startswith("/one")]
    check("the hub has the token", seen == ["Bearer " + TOKEN] * 2, seen)
    check("another port has not", "authorization" not in direct.requests[0].headers)
    os.remove(p.path())
    p.hub.fault = lambda q: (302, b"", {"Location": q.path}) if "/resolve/" in q.path else None
    fails("a circle", p.pull("hf:org/name", HF_TOKEN=TOKEN), "leads to more than 8 other addresses")
    for name, location in (("a file", "file:///etc/passwd"), ("a user", "http://u:p@127.0.0.1/"), ("nothing", "")):
        p.hub.fault = lambda q, to=location: (302, b"", {"Location": to}) if "/resolve/" in q.path else None
        r = p.pull("hf:org/name", HF_TOKEN=TOKEN)
        check("a redirect to " + name, r.returncode == 1 and not os.path.exists(p.path()), r.stderr)
    p.hub.fault = lambda q: (302, b"") if "/resolve/" in q.path else None
    fails("a redirect to nowhere", p.pull("hf:org/name", HF_TOKEN=TOKEN), "does not say where to go")
    direct.close()
    p.close()


def https():
    authority, other = Authority(folder, "pull-ca"), Authority(folder, "pull-other")
    tls = authority.server("hub")
    p = Place(tls=tls, store_tls=tls)
    content = p.add(size=300000)
    r = p.pull("hf:org/name", "--ca", authority.file)
    check("https with the test's CA", r.returncode == 0 and p.holds(content), r.stderr)
    os.remove(p.path())
    r = p.pull("hf:org/name", "--ca", other.file)
    check("https with another CA", r.returncode == 1 and "certificate" in r.stderr.lower(), r.stderr)
    check("nobody was asked", len(p.store.requests) == 1)
    p.close()
    p = Place(tls=tls)
    p.add(size=300000)
    fails("from https to http", p.pull("hf:org/name", "--ca", authority.file), "leads from https to an address without")
    p.close()


def two_at_once():
    p = Place()
    content = p.add(size=3000000)
    p.store.pause = 0.01
    both = [p.start("hf:org/name"), p.start("hf:org/name"), p.start("hf:org/name")]
    ended = [(w, *w.communicate()) for w in both]
    check("three at once", all(w.returncode == 0 for w, _, _ in ended) and p.holds(content), ended)
    check("fetch it once", len(p.store.requests) == 1, p.ranges())
    check("and say that they wait", sum("another process fetches it" in e for _, _, e in ended) == 2, ended)
    p.close()


def stopped():
    p = Place()
    content = p.add(size=4000000)
    p.store.pause = 0.02
    w = p.start("hf:org/name")
    until(lambda: p.part() > 300000, "bytes before Ctrl-C")
    w.send_signal(signal.SIGINT)
    _, err = w.communicate()
    check("Ctrl-C", w.returncode == 130 and "goes on from there" in err and p.part() > 300000, (w.returncode, err))
    p.store.pause = 0
    check("and on", p.pull("hf:org/name").returncode == 0 and p.holds(content))
    p.close()

    p = Place()
    content = p.add(size=3000000)
    fails("a full disk", p.pull("hf:org/name", limit=1953), "m-Q4_K_M.gguf.part: cannot be written: File too large")
    had = p.part()
    check("keeps what fits", 900000 < had <= 1000000 and not os.path.exists(p.path()), had)
    r = p.pull("hf:org/name")
    check("and goes on", r.returncode == 0 and p.holds(content) and p.ranges()[-1] == "bytes=%d-" % had, r.stderr)
    p.close()

    p = Place()
    p.add(size=1000)
    with open(p.models, "w", encoding="ascii"):
        pass
    fails("a model folder that is a file", p.pull("hf:org/name"), "Not a directory")
    p.hub.close()
    r = p.pull("hf:org/name")
    fails("no hub", r, "given up after 5 tries")
    for bad in ("ftp://x", "hub", "http://", "http://u@h"):
        fails("HF_ENDPOINT " + bad, subprocess_with(p, bad), "HF_ENDPOINT: expected an address")
    p.store.close()


def subprocess_with(p, endpoint):
    e = dict(p.environment(), HF_ENDPOINT=endpoint)
    return subprocess.run(p.command("hf:a/b"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=e)


def bar():
    p = Place()
    content = p.add(size=3000000)
    mine, terminal = pty.openpty()
    w = subprocess.Popen(p.command("hf:org/name"), stdout=subprocess.PIPE, stderr=terminal, env=p.environment())
    os.close(terminal)
    seen = b""
    with contextlib.suppress(OSError):
        while piece := os.read(mine, 65536):
            seen += piece
    w.communicate()
    check("a bar on a terminal", w.returncode == 0 and p.holds(content) and b"\r\x1b[Kfetches [" in seen, seen[-500:])
    check("which is gone at the end", seen.rstrip().splitlines()[-1].endswith(b"right SHA-256"), seen[-300:])
    os.close(mine)
    p.close()


parts = (wrong, broken, refusals, stopped, https, whole, choices, killed, helper_killed, redirects, two_at_once, bar)
with concurrent.futures.ThreadPoolExecutor(4) as pool:  # most of their time is waiting
    for ended in [pool.submit(part) for part in parts]:
        ended.result()
shutil.rmtree(folder, ignore_errors=True)
done()
