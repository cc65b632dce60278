#!/usr/bin/env python3
"""A worker's life: arguments, the port, the file of --config, the ready callback, its events, and every way to end."""

import hashlib
import hmac
import http.client
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reference"))

import gguf
import vocabularies
from service import DEVICE, LONG, PATIENCE, Job, Worker, cancelled, check, done, free_port, start_lines

program, source = sys.argv[1], sys.argv[2]
HAIKU = os.path.join(source, "models/haiku/haiku-q4_k_m.gguf")
UUID = "123e4567-e89b-42d3-a456-426614174000"
scratch = tempfile.mkdtemp(prefix="worker-life-")


def run(*arguments, environment=None):
    r = subprocess.run(
        [program, *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env=dict(os.environ, **(environment or {})),
        check=False,
    )
    return r.returncode, r.stderr.strip().split("\n")[-1]


def put(name, text, mode=0o644):
    path = os.path.join(scratch, name)
    with open(path, "w", encoding="utf-8") as f:
        os.chmod(path, mode)
        f.write(text)
    return path


def arguments():
    port = str(free_port())
    for name, status, said, words in (
        ("bad UUID", 2, "--worker-id", ["--worker-id", "123e4567-e89b-42d3-a456-42661417400x"]),
        ("short UUID", 2, "--worker-id", ["serve", "--worker-id", "x"]),
        ("no such model", 1, "MODEL_LOAD_FAILED", ["--model", "/no/such.gguf", "--port", port]),
        ("a folder as model", 1, "MODEL_LOAD_FAILED", ["serve", "--model", scratch, "--port", port]),
        ("not a model", 1, "MODEL_LOAD_FAILED", ["serve", "--model", put("x.gguf", "hello"), "--port", port]),
        ("low port", 2, "--port", ["serve", "--port", "80"]),
        ("no port", 2, "--port", ["serve", "--port", "http"]),
        ("an address in brackets", 2, "--host", ["serve", "--host", "[::1]"]),
        ("a name", 2, "--host", ["serve", "--host", "example.org"]),
        ("an admin host that is a name", 2, "--admin-host", ["serve", "--admin-host", "x", "--admin-port", port]),
        ("an admin host without its port", 2, "--admin-port", ["serve", "--admin-host", "::1"]),
        ("an origin with a path", 2, "--origin", ["serve", "--origin", "https://chat.example.org/"]),
        ("an origin without a scheme", 2, "--origin", ["serve", "--origin", "chat.example.org"]),
        ("an origin with its scheme's port", 2, "--origin", ["serve", "--origin", "https://chat.example.org:443"]),
        ("an allowed host with a port", 2, "--allowed-host", ["serve", "--allowed-host", "worker.example.org:80"]),
        (
            "an address that is not ours",
            1,
            "LISTEN_FAILED",
            ["serve", "--insecure", "--host", "192.0.2.1", "--port", port],
        ),
        ("two ports alike", 2, "--admin-port", ["serve", "--port", port, "--admin-port", port]),
        ("--gpu-device and --device cpu", 2, "--gpu-device", ["serve", "--gpu-device", "0", "--device", "cpu"]),
        ("https callback", 2, "https", ["serve", "--callback-url", "https://example.org/"]),
        ("odd callback", 2, "--callback-url", ["serve", "--callback-url", "http://a b/"]),
        ("role", 2, "--role", ["serve", "--role", "both"]),
        ("wait and a model", 2, "exclude", ["serve", "--wait-for-commit", "--model", HAIKU]),
        ("wait without a folder", 2, "--model-dir", ["serve", "--wait-for-commit"]),
        ("no such folder", 2, "--model-dir", ["serve", "--model-dir", "/no/such"]),
        ("--max-sequences 0", 2, "--max-sequences", ["serve", "--max-sequences", "0"]),
        ("--max-queue 0", 2, "--max-queue", ["serve", "--max-queue", "0"]),
        ("steps too short for all", 2, "--max-sequences (16)", ["serve", "--max-batch-tokens", "15"]),
        ("an operand", 2, "operand", ["serve", "model.gguf"]),
        ("unknown option of the bare form", 2, "did you mean --model", ["--modle", "x"]),
    ):
        got, last = run(*words)
        check(name, got == status and said in last, (got, last))
    got, last = run("serve", environment={"WORKER_ROLE": "both"})
    check("WORKER_ROLE=both is refused", got == 2 and "WORKER_ROLE" in last, last)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        got, last = run("serve", "--port", str(s.getsockname()[1]))
        check(
            "port in use: exit 1, one line",
            got == 1
            and "LISTEN_FAILED" in last
            and "in use" in last
            and "--port N" in last
            and "worker status" in last,
            (got, last),
        )


def configuration():
    for text, line, said in (
        ("port = 1\n", 1, "expected a whole number"),
        ("# c\n\nprot = 8000\n", 3, "unknown key prot"),
        ("[scheduler.fairness]\nmax_timeslice_tokens = many\n", 2, "scheduler.fairness.max_timeslice_tokens"),
        ("port = 8000\nport = 8001\n", 2, "given twice"),
        ("[server.tls]\ncertificate = x\n", 2, "unknown key server.tls.certificate"),
        ("just words\n", 1, "expected key = value"),
        ("host = \"127.0.0.1\n", 1, "quotes"),
        ("[open\n", 1, "section"),
        ("config = x\n", 1, "unknown key config"),
        ("max_queue = 5 5\n", 1, "max_queue"),
        ("model_id = " + "x" * 300 + "\n", 1, "1 to 255 bytes"),
    ):
        got, last = run("serve", "--config", put("bad.ini", text))
        check("config %r" % text[:30], got == 2 and "bad.ini:%d:" % line in last and said in last, (got, last))
    for text, said in (
        ("policy_passphrase = hunter2\n", "8 to 4096 bytes, got 7"),
        ("policy_passphrase hunter2\n", "expected key = value"),
        ("policy_passphrase: hunter2hunter2=\n", "unknown key policy_passphrase;"),
        ("policy_passphrase: hunter2" + "x" * 99 + "=\n", "unknown key policy_passphrase;"),
        ("api_key = hunter2" + "x" * 16384 + "\n", "1 to 16384 bytes, got 16391"),
    ):
        got, last = run("serve", "--config", put("secret.ini", text, 0o600))
        check("a secret is not said: %r" % text[:30], got == 2 and said in last and "hunter" not in last, last)
    got, last = run("serve", environment={"WORKER_POLICY_PASSPHRASE": "hunter2"})
    check("nor that of a variable", got == 2 and "got 7" in last and "hunter" not in last, last)
    got, last = run("serve", "--config", put("secret.ini", "policy_passphrase = hunter2hunter2\n", 0o644))
    check("a file with a secret is private", got == 2 and "secret.ini:1: others than its owner" in last, last)
    got, last = run("serve", "--policy-passphrase-file", put("short", "hunter2\n", 0o600))
    check("a file's passphrase is as long as others", got == 2 and "8 to" in last and "hunter" not in last, last)
    got, last = run("serve", "--config", "/no/such.ini")
    check("no such config", got == 2 and "/no/such.ini" in last, last)
    path = put(
        "good.ini",
        "# a worker\nport = 1024 ; replaced by the flag\n"
        "model_id = \"from file\"\nmax_tokens_out = 7\nmax_prompt_chars=99\nno_prefix_cache = yes\n"
        "worker_id = '%s'\n[scheduler.fairness]\nenable_preemption = true\nhigh_priority_threshold = 3\n" % UUID,
    )
    with Worker(program, "--config", path, environment={"WORKER_MAX_PROMPT_CHARS": "5"}) as w:
        health = w.get("/health")[1]
        check("config: values of the file", health["model"] == "from file" and health["worker_id"] == UUID, health)
        status, answer = w.post("/execute", {"job_id": "a", "prompt": "123456"})
        check(
            "config: the environment goes before the file",
            status == 400 and "1 to 5 characters" in answer["message"],
            answer,
        )
        status, answer = w.post("/execute", {"job_id": "a", "prompt": "1", "max_tokens": 8})
        check("config: the file goes before the default", status == 400 and "from 1 to 7" in answer["message"], answer)
    with Worker(program, environment={"WORKER_CONFIG": path}) as w:
        check("WORKER_CONFIG", w.get("/health")[1]["model"] == "from file")
    gpu = DEVICE == "cuda"
    path = put(
        "flash.ini",
        "\ufeff[runtime.cuda.flash_attention]\nenabled = %s\ntile_size = %d\n" % (("on", 128) if gpu else ("off", 64)),
    )
    with Worker(program, "--config", path) as w:
        asked = {"enabled": gpu, "requested": gpu, "tile_size": 128 if gpu else 64}
        check("keys of attention are reported", w.get("/health")[1]["flash_attention"] == asked, w.get("/health")[1])


class Callback(http.server.BaseHTTPRequestHandler):
    seen, fail_first = [], 0

    def do_POST(self):
        Callback.seen.append(
            (time.monotonic(), self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        )
        self.send_response(500 if len(Callback.seen) <= Callback.fail_first else 204)
        self.end_headers()

    def log_message(self, *_):
        pass


def digest_of(model):
    r = subprocess.run([program, "verify", "--json", "--model", model], capture_output=True, check=True)
    return json.loads(r.stdout)["digest"]


def known(*arguments):
    """Digest and fingerprint of a service, once it knows them."""
    with Worker(program, *arguments) as w:
        first = w.execute(prompt="x", max_tokens=1)[1][0][1]["fingerprint"]
        health = w.with_digest()
        _, stream = w.execute(prompt="x", max_tokens=1)
        check("the stream has the same fingerprint", stream[0][1]["fingerprint"] == health["fingerprint"], stream[0])
        check("... and so had the first one", first == health["fingerprint"], (first, health))
        labels = [dict(labels) for name, labels in w.metrics().samples if name == "worker_model_info"]
        check("... and the metrics", [l["fingerprint"] for l in labels] == [health["fingerprint"]], labels)
        check("ends", w.end() == 0)
        told = [json.loads(line) for line in w.said().splitlines()]
        told = [line for line in told if line["event"] in ("ready", "digest")]
        check("all of them tell one fingerprint", {line["fingerprint"] for line in told} == {first}, told)
        check("the last of ready and digest has both", told[-1]["digest"] == health["digest"], told)
        return health["digest"], health["fingerprint"]


def identity():
    """What a model is known by: all bytes of its weights, what runs it, and neither its name nor its place."""
    with open(HAIKU, "rb") as f:
        data = bytearray(f.read())
    copy, other = os.path.join(scratch, "copy.gguf"), os.path.join(scratch, "other.gguf")
    with open(copy, "wb") as f:
        f.write(data)
    data[len(data) * 2 // 3] ^= 1
    with open(other, "wb") as f:
        f.write(data)
    digest, fingerprint = known("--model", HAIKU)
    if DEVICE == "cpu":
        check("the digest is that of verify", digest == digest_of(HAIKU), digest)
    check("a copy is the same model", known("--model", copy) == (digest, fingerprint))
    check("... also with its digest demanded", known("--model", copy, "--digest", digest) == (digest, fingerprint))
    flipped = known("--model", other)
    check("a bit of the weights is another model", flipped[0] != digest and flipped[1] != fingerprint, flipped)
    if DEVICE == "cpu":  # a GPU has one arithmetic
        exact = known("--model", HAIKU, "--exact")
        check("other arithmetic: another fingerprint", exact[0] == digest and exact[1] != fingerprint, exact)
    meta, _ = gguf.read(HAIKU, values=False)
    made, fingerprints = vocabularies.tokenizer_json(meta, vocabularies.PATTERNS["gpt-2"]), {fingerprint}
    for name, spaces in (("plain.json", None), ("spaced.json", 1)):
        with open(os.path.join(scratch, name), "w", encoding="utf-8") as f:
            json.dump(made, f, indent=spaces)
        fingerprints.add(known("--model", HAIKU, "--tokenizer", f.name)[1])
    check("another tokenizer.json, in any byte: another fingerprint", len(fingerprints) == 3, fingerprints)
    data[len(data) * 2 // 3] ^= 1  # as it was
    at = data.index(b"<|endoftext|>")
    data[at + 4] ^= 1
    with open(other, "wb") as f:
        f.write(data)
    renamed = known("--model", other)
    check("another vocabulary, the same weights", renamed[0] == digest and renamed[1] not in fingerprints, renamed)
    fingerprints.add(renamed[1])
    template = os.path.join(scratch, "chat.jinja")
    for text in ("{{ messages[0].content }}", "{{ messages[0].content }}\n\n{{ '' }}"):
        with open(template, "w", encoding="utf-8") as f:
            f.write(text)
        fingerprints.add(known("--model", HAIKU, "--chat-template", template)[1])
    check("another template: another fingerprint", len(fingerprints) == 6, fingerprints)
    with open(other, "wb") as f:
        data[at + 4] ^= 1
        data[len(data) * 2 // 3] ^= 1
        f.write(data)
    got, last = run("serve", "--port", str(free_port()), "--model", other, "--digest", digest)
    check("another digest than demanded: exit 1", got == 1 and "was demanded" in last, (got, last))


def hundred_requests():
    """M-1002: the model is the same afterwards: the digest of the weights, and what they answer."""
    with Worker(program, "--model", HAIKU) as w:
        before = w.with_digest()
        ask = lambda: [e for _, e in w.execute(prompt="Once upon a time", max_tokens=8, temperature=0)[1][1:-1]]
        first = ask()
        ended = [w.execute(prompt="request %d" % i, max_tokens=2, seed=i)[1][-1][0] for i in range(98)]
        check("a hundred requests", ended == 98 * ["end"] and ask() == first and first, ended)
        after = w.get("/health")[1]
        same = all(before[k] == after[k] for k in ("digest", "fingerprint", "sealed", "vram_bytes_used"))
        check("... and the model is what it was", same, (before, after))
    if DEVICE == "cpu":
        check("... as the file has it", digest_of(HAIKU) == before["digest"])


def callback():
    server = http.server.HTTPServer(("127.0.0.1", 0), Callback)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Callback.fail_first = 1
    url = "http://127.0.0.1:%d/ready?x=1" % server.server_port
    digest = digest_of(HAIKU)
    with Worker(program, "--worker-id", UUID, "--model", HAIKU, "--digest", digest, "--callback-url", url) as w:
        w.until(lambda: len(Callback.seen) >= 2)
        _, path, body = Callback.seen[1]
        check(
            "ready callback, tried again",
            path == "/ready?x=1"
            and set(body) == {"worker_id", "model_ref", "url", "vram_bytes_used", "digest", "ecp"}
            and body["worker_id"] == UUID
            and body["url"].endswith(str(w.port))
            and "supports_architecture" in body["ecp"]
            and body["digest"] == digest,
            body,
        )
        check("... no sooner than a second later", Callback.seen[1][0] - Callback.seen[0][0] > 0.9)
        time.sleep(0.3)
        check("... and no more after 2xx", len(Callback.seen) == 2)
    for fail_first in 0, 1:
        Callback.fail_first, Callback.seen = fail_first, []
        with Worker(program, "--model", HAIKU, "--callback-url", url) as w:
            # A GPU is told the digest while its weights are sent: it is known at ready.
            least = 1 + max(fail_first, DEVICE == "cpu")
            w.until(lambda n=least: len(Callback.seen) >= n and Callback.seen[-1][2]["digest"] == digest)
            said = [body["digest"] for _, _, body in Callback.seen]
            check("told again when the digest is known, whether or not it was heard", "pending" not in said[1:], said)
            check(
                "... and first without it, where it reads all weights", said[0] == "pending" or DEVICE == "cuda", said
            )
    Callback.fail_first, Callback.seen = 0, []
    url = "http://127.0.0.1:%d/" % server.server_port
    with Worker(program, "--host", "0.0.0.0", "--insecure", "--callback-url", url) as w:
        w.until(lambda: Callback.seen)
        check(
            "at every address: told by the one that is seen",
            Callback.seen[0][2]["url"] == "http://127.0.0.1:%d" % w.port,
            Callback.seen,
        )
    server.shutdown()
    with Worker(program, "--callback-url", "http://127.0.0.1:%d/" % free_port()) as w:
        check("nobody listens: it serves", w.execute(prompt="x", max_tokens=3)[1][-1][0] == "end")
        tried = w.said().count("CALLBACK_FAILED")
        check(
            "... and ends between two tries", w.end() == 0 and w.said().count("CALLBACK_FAILED") <= tried + 1, w.said()
        )


def shutdown():
    with Worker(program) as w:
        check("idle: SIGTERM, exit 0", w.end() == 0)
    with Worker(program) as w:
        for body, status in ((b"[]", 400), (b'{"now":true}', 400), (b"{}", 202)):
            got, answer = w.post("/shutdown", body)
            check("/shutdown %s" % body, got == status, (got, answer))
        check("/shutdown: exit 0", w.status() == 0)
    with Worker(program) as w:
        check("/shutdown without a body", w.post("/shutdown", None)[0] == 202 and w.status() == 0)
    with Worker(program) as w:
        w.process.send_signal(signal.SIGINT)
        check("SIGINT: exit 0", w.status() == 0)
    with Worker(program, *LONG, "--max-sequences", "2", "--shutdown-timeout-sec", "600") as w:
        running = [Job(w, n).until("token") for n in "ab"]
        waits = Job(w, "waits")
        w.until(lambda: waits.status == 200)  # its stream has begun
        queued = Job(w, "queued")
        w.until(lambda: w.get("/worker/jobs/queued")[0] == 200)
        w.process.send_signal(signal.SIGTERM)
        w.until(lambda: w.get("/readyz", port=w.admin)[0] == 503)
        check(
            "draining: alive, not ready",
            w.get("/livez")[0] == 200 and w.get("/readyz")[1].get("reason") == "draining",
            w.get("/readyz"),
        )
        status, answer = w.post("/execute", {"job_id": "late", "prompt": "x"})
        check(
            "draining: new work NOT_READY",
            status == 503 and answer["code"] == "NOT_READY" and answer["retriable"] is True,
            (status, answer),
        )
        ends = {"code": "NOT_READY", "message": "the worker is shutting down", "retriable": True}
        check(
            "draining: a queued one ends NOT_READY",
            waits.over() == [("error", dict(ends, job_id="waits"))],
            waits.events,
        )
        ends["job_id"] = "queued"
        check(
            "draining: one that has just come is refused with a status, or, if its stream has begun, as that one",
            queued.over() == [("error", ends)] or (queued.status, queued.answer) == (503, ends),
            (queued.status, queued.answer, queued.events),
        )
        check(
            "draining: running ones go on until they are cancelled",
            all(cancelled(j.cancel()) for j in running),
            [j.events[-1:] for j in running],
        )
        check("draining: exit 0", w.status() == 0)
    with Worker(program, *LONG, "--max-sequences", "1", "--shutdown-timeout-sec", "600") as w:
        running = Job(w, "a", max_tokens=100).until("token")
        w.process.send_signal(signal.SIGTERM)
        check(
            "draining: a running stream finishes, exit 0",
            running.over()[-1][0] == "end" and running.events[-1][1]["tokens_out"] == 100 and w.status() == 0,
            running.events[-1:],
        )
    with Worker(program, *LONG, "--max-sequences", "1", "--shutdown-timeout-sec", "1") as w:
        long = Job(w, "long").until("token")
        w.process.send_signal(signal.SIGTERM)
        check(
            "after --shutdown-timeout-sec: CANCELLED, exit 0",
            cancelled(long.over()) and w.status() == 0,
            long.events[-1:],
        )
    with Worker(program, *LONG, "--max-sequences", "1", "--shutdown-timeout-sec", "600") as w:
        long = Job(w, "long").until("token")
        w.process.send_signal(signal.SIGTERM)
        w.until(lambda: w.get("/readyz")[0] == 503)
        w.process.send_signal(signal.SIGTERM)
        check("a second signal: at once, not 0", w.status() == 1)
        check("... whatever runs", long.over()[-1][0] == "token", long.events[-1:])


def grace():
    """--drain-grace-sec: first not ready, and only then refused; idle meanwhile or not, a second signal ends it."""
    with Worker(program, "--drain-grace-sec", "3600") as w:
        w.process.send_signal(signal.SIGTERM)
        w.until(lambda: w.get("/readyz")[0] == 503)
        check("grace: draining, for probes", w.get("/readyz")[1]["reason"] == "draining", w.get("/readyz"))
        check("grace: and healthy", w.get("/health")[0] == 200 and w.get("/livez")[0] == 200)
        check("grace: work is taken", w.execute(prompt="Once", max_tokens=4)[1][-1][0] == "end")
        check("grace: it is said", '"event":"leaving"' in w.said())
        w.process.send_signal(signal.SIGTERM)
        check("grace: a second signal ends it", w.status() == 1)
    with Worker(program, "--drain-grace-sec", "1") as w:
        check("grace: /shutdown has it too", w.post("/shutdown", {})[0] == 202)
        check("grace: and then it ends", w.status() == 0 and '"event":"leaving"' in w.said())


def killed():
    with Worker(program, *LONG, "--max-sequences", "1") as w:
        long = Job(w, "long").until("token")
        w.process.kill()
        w.status()
        long.over()
        process = subprocess.Popen(
            [program, "serve", "--port", str(w.port), "--admin-port", str(w.admin)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            w.process = process
            w.until(lambda: w.get("/readyz")[0] == 200)
            status, stream = w.execute(
                prompt="Write a haiku about GPU computing", chat=True, max_tokens=50, temperature=0.7, seed=42
            )
            check(
                "kill -9, the same port again, the first answer right",
                status == 200 and stream[-1][0] == "end" and len(stream) > 10,
            )
        finally:
            process.terminate()
            process.wait(PATIENCE)


def first_minutes():
    """What a start prints is enough to go on with: the line to try works as it stands."""
    port = free_port()
    p = subprocess.Popen(
        [program, "serve", "--port", str(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        said = start_lines(p)
        text = "\n".join(said)
        check(
            "start prints where, what, on what, how much",
            all(
                w in text
                for w in ("http://127.0.0.1:%d" % port, "haiku", "Q4_K_M", "org.worker.llama", DEVICE + " (", " bytes")
            ),
            text,
        )
        base = "http://127.0.0.1:%d" % port
        for clients in (
            "OpenAI's clients: base URL %s/v1, model haiku",
            "a page to chat: %s in a browser",
            "clients: %s",
        ):
            check(
                "start prints " + clients, clients % base in said or any(l.endswith(clients % base) for l in said), text
            )
        line = next((l for l in said if l.startswith("curl ")), "")
        if shutil.which("curl"):
            r = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=PATIENCE, check=False)
            check(
                "the line to try works as it stands",
                r.returncode == 0 and "event: started" in r.stdout and "event: end" in r.stdout,
                (line, r.stdout[-300:], r.stderr),
            )
    finally:
        p.send_signal(signal.SIGINT)
        left = p.wait(PATIENCE), [json.loads(l) for l in p.stderr]
        check(
            "Ctrl-C: exit 0, events where standard error is no terminal, nothing wrong among them",
            left[0] == 0 and left[1][-1]["event"] == "stopped" and all(l["level"] == "info" for l in left[1]),
            left,
        )


def stopped_log():
    """Nobody reads what it says: it works as ever."""
    port = free_port()
    p = subprocess.Popen(
        [program, "serve", "--port", str(port), "--log", "json"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        w = Worker.__new__(Worker)
        w.port, w.process, w.said = port, p, lambda: ""
        w.until(lambda: w.get("/readyz")[0] == 200)
        while not w.metrics()("worker_log_lost_lines_total"):
            w.post("/cancel", {"job_id": "x" * 128})
        status, stream = w.execute(prompt="Once", max_tokens=5)
        check("a log that nobody reads stops nothing", status == 200 and stream[-1][0] == "end", stream)
    finally:
        p.terminate()
        check("... nor the end", p.wait(PATIENCE) == 0)
        p.stderr.close()


def closed_streams():
    """Started as some supervisors do, without standard streams: nothing else gets their numbers, and what is said goes
    nowhere."""
    port = free_port()
    p = subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", program, "serve", "--port", str(port)])
    try:
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            try:
                c = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
                c.request("GET", "/readyz")
                if c.getresponse().status == 200:
                    break
            except OSError:
                pass
            time.sleep(0.02)
        streams = [os.readlink("/proc/%d/fd/%d" % (p.pid, fd)) for fd in range(3)]
        check("closed standard streams stay free of files and sockets", streams == ["/dev/null"] * 3, streams)
    finally:
        p.terminate()
        check("... and the end is a good one", p.wait(PATIENCE) == 0)


def narration():
    """Every line is an event; the ones of REQUIREMENTS 6.10 are there with their fields, and no text is in any."""
    prompt = "a secret prompt that no log may hold"
    with Worker(program, "--log", "json", "--worker-id", UUID) as w:
        _, stream = w.execute(job_id="narrated", prompt=prompt, max_tokens=8, seed=18446744073709551615)
        w.post("/execute", {"job_id": "bad", "prompt": prompt, "top_p": 7})
        w.post("/execute", {"job_id": "long", "prompt": prompt * 100})
        w.post("/cancel", {"job_id": "x"})
        check("ends", w.end() == 0)
        lines = [json.loads(l) for l in w.said().strip().split("\n")]
        by = {}
        for l in lines:
            by.setdefault(l["event"], []).append(l)
            check(
                "%s has time and level" % l["event"],
                l["level"] in ("info", "warning", "error") and l["time"].endswith("Z"),
                l,
            )
        common = {"worker_id": str, "gpu_device": int}
        schema = {
            "startup": dict(common, host=str, port=int, admin_port=int, device=str, role=str, model_ref=str),
            "model_load_start": dict(common, model=str, device=str, bytes=int, model_ref=str),
            "model_load_progress": dict(common, percent=int, activity=str, model_ref=str),
            "model_load_complete": dict(common, model=str, seconds=(int, float), model_ref=str),
            "ready": dict(
                common,
                model=str,
                model_ref=str,
                device=str,
                port=int,
                startup_seconds=float,
                bytes=int,
                fingerprint=str,
            ),
            "execute_start": dict(
                common, job_id=str, model_ref=str, tokens_in=int, prompt_hmac=str, prompt_chars=int, seed=int
            ),
            "job_state": dict(common, job_id=str, model_ref=str, state=str),
            "execute_end": dict(
                common,
                job_id=str,
                model_ref=str,
                outcome=str,
                finish_reason=str,
                tokens_in=int,
                tokens_out=int,
                decode_time_ms=(int, float),
                first_token_ms=(int, float),
                queue_ms=(int, float),
                vram_bytes=int,
                prompt_hmac=str,
                prompt_chars=int,
                client_gone=bool,
            ),
            "refused": {"worker_id": str, "path": str, "code": str, "status": int, "field": str},
            "cancel": {"worker_id": str, "job_id": str, "found": bool},
            "shutdown": dict(common, reason=str, streams=int),
            "stopped": {"worker_id": str, "uptime_seconds": (int, float)},
        }
        for event, fields in schema.items():
            good = event in by and all(isinstance(by[event][-1].get(k), t) for k, t in fields.items())
            check("event %s" % event, good, by.get(event))
        order = [
            l["event"] for l in lines if l["event"] in ("startup", "ready", "execute_start", "execute_end", "stopped")
        ]
        check("events in order", order == ["startup", "ready", "execute_start", "execute_end", "stopped"], order)
        check(
            "no text, but its digest",
            prompt not in w.said()
            and by["execute_end"][0]["prompt_chars"] == len(prompt)
            and len(by["execute_end"][0]["prompt_hmac"]) == 64
            and "sha256" not in w.said(),
            by["execute_end"],
        )
        loading = [l["event"] for l in lines if l["event"].startswith("model_load")]
        check(
            "the load: its start, five quarters, its end",
            loading == ["model_load_start"] + 5 * ["model_load_progress"] + ["model_load_complete"]
            and [l["percent"] for l in by["model_load_progress"]] == [0, 25, 50, 75, 100],
            loading,
        )
        states = [l["state"] for l in lines if l.get("job_id") == "narrated" and "state" in l]
        check("states of a job", states == ["queued", "prefill", "decode", "finished"], states)
        check("a refusal names the job that it knows", by["refused"][0]["job_id"] == "bad", by["refused"])
        check(
            "every refusal is told, with its code",
            [l["code"] for l in by["refused"]] == ["INVALID_REQUEST", "CONTEXT_LENGTH_EXCEEDED"],
            by["refused"],
        )
        check(
            "counts agree with the stream",
            by["execute_end"][0]["tokens_out"] == stream[-1][1]["tokens_out"]
            and by["execute_end"][0]["seed"] == 18446744073709551615,
        )


def audit_key():
    """Digests of prompts are keyed: with a key of one's own two workers give the same, without one none is guessed."""
    key, prompt = "0123456789abcdef0123456789", "Hi"
    plain = hashlib.sha256(prompt.encode()).hexdigest()
    keyed = hmac.new(key.encode(), prompt.encode(), hashlib.sha256).hexdigest()
    random = set()
    for arguments_, want in (
        ((), None),
        ((), None),
        (("--audit-key", key), keyed),
        (("--audit-key", "@" + put("key", key + "\n"), "--plain-sha256"), keyed),
    ):
        with Worker(program, *arguments_) as w:
            w.execute(prompt=prompt, max_tokens=2)
            w.end()
            told = [json.loads(l) for l in w.said().splitlines()]
            told = [l for l in told if l["event"] in ("execute_start", "execute_end")]
            given = {l["prompt_hmac"] for l in told}
            check("prompt_hmac of %s" % (arguments_,), len(told) == 2 and len(given) == 1, told)
            check("... is of the key", want is None or given == {want}, (given, want))
            check("... and not the plain digest", plain not in given)
            asked = "--plain-sha256" in arguments_
            check(
                "prompt_sha256 only where asked for",
                [l.get("prompt_sha256") for l in told] == 2 * [plain if asked else None],
            )
            random |= given if want is None else set()
    check("each process has a key of its own", len(random) == 2, random)
    got, last = run("serve", "--audit-key", "too short")
    check("a short key is refused, and not shown", got == 2 and "16 to 4096" in last and "too short" not in last, last)


SECRET = "xyzzyplugh"


def no_words_in_logs():
    """Whatever of a request a caller fills with words, none of them comes to a log."""
    said = SECRET + " and more"
    posts = [
        ("/execute", {"job_id": said, "prompt": said, "max_tokens": 2}),
        ("/execute", {"job_id": "a", "prompt": said, SECRET: 1}),
        ("/execute", {"job_id": said, "prompt": "x", "stop": [said, said, said, said, said]}),
        ("/execute", {"job_id": "b", "prompt": said, "temperature": said}),
        ("/execute", {"job_id": "c", "prompt": "x" + said * 9000}),
        ("/execute", [said]),
        ("/execute", said.encode()),
        ("/execute", ('{"job_id": "d", "%s": 1, "%s": 2}' % (SECRET, SECRET)).encode()),
        ("/worker/execute", {"handle_id": said, "prompt": said}),
        ("/worker/execute", {"handle_id": "x", "prompt": said, "params": {SECRET: said}}),
        ("/cancel", {"job_id": said}),
        ("/cancel", {"job_id": "e", SECRET: said}),
        ("/shutdown", {SECRET: said}),
        ("/worker/plan", {"model_ref": said}),
        ("/worker/plan", {"model_ref": "x", "shard_layout": said}),
        ("/worker/commit", {"model_ref": said, "shard_id": said, "model_bytes": said}),
        ("/worker/commit", {"model_ref": "x", "digest": SECRET}),
        ("/worker/commit", {SECRET: said}),
        ("/tokenize", {"content": said, SECRET: said}),
        ("/detokenize", {"tokens": said}),
        ("/v1/chat/completions", {"model": said, "messages": [{"role": "user", "content": said}]}),
        ("/v1/chat/completions", {"messages": [{"role": said, "content": said}]}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": said}]}], "max_tokens": 1}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": said}], "tools": [said], "max_tokens": 1}),
        ("/v1/completions", {"prompt": said, "max_tokens": 1, SECRET: said, "user": said}),
        ("/v1/completions", {"prompt": said, "max_tokens": said}),
        ("/v1/" + SECRET, {}),
        ("/" + SECRET, {}),
        ("/worker/jobs/" + SECRET, {}),
        ("/execute?" + SECRET, {"job_id": "f", "prompt": "x", "temperature": 9}),
    ]
    for more in ((), ("--wait-for-commit",)):
        with Worker(program, "--log", "json", "--model-dir", scratch, *more, wait=not more) as w:
            w.until(lambda: w.get("/livez")[0] == 200)
            for path, body in posts:
                w.ask(
                    "POST",
                    path,
                    body,
                    {"X-Request-Id": said, "X-Deadline": said if "plan" in path else "2100-01-01T00:00:00Z"},
                )
            w.ask("POST", "/execute", {"job_id": "g", "prompt": "x"}, {"X-Deadline": said, "Traceparent": said})
            w.ask("GET", "/worker/jobs/" + SECRET)
            w.ask("GET", "/" + SECRET + "?" + SECRET)
            check("ends", w.end() == 0)
            lines = [line for line in w.said().splitlines() if SECRET in line]
            check("no word of a request in %s" % (more or "a log",), not lines, lines)
            check("... but each refusal", w.said().count('"event":"refused"') > 15, w.said())
            told = [json.loads(l) for l in w.said().splitlines()]
            fields = {l["field"] for l in told if l["event"] == "refused" and l["field"]}
            check("known fields by name, others by digest and length", "temperature" in fields or more, fields)
            check("...", any(f.endswith(":%d" % len(SECRET)) and f.startswith("hmac:") for f in fields), fields)


def cut_short():
    """A model's file that is cut short while it is mapped: each job ends for itself, then the worker is not ready any
    more; when the bytes are back, a job that gets an id makes it ready again."""
    if DEVICE != "cpu":
        return  # a GPU has all of it
    path = os.path.join(scratch, "cut.gguf")
    shutil.copy(os.path.join(source, "models/haiku/haiku-q4_k_m.gguf"), path)
    with open(path, "rb") as f:
        whole = f.read()
    with Worker(program, "-m", path, "--no-prefix-cache") as w:
        check("ready before", w.get("/readyz")[0] == 200)
        w.with_digest()  # who reads it for the digest would see it first
        os.truncate(path, 4096)
        codes = []
        for _ in range(3):
            status, got = w.execute(prompt="Once upon a time there was", max_tokens=4)
            codes.append((status, got[-1][1].get("code") if isinstance(got, list) else got))
        check("each job ends with INTERNAL", codes == [(200, "INTERNAL")] * 3, codes)
        check("... and is counted", w.metrics()("worker_requests_total", outcome="failed") == 3)
        status, health = w.get("/health")
        check(
            "then the worker is not healthy, and says why",
            status == 503 and health["reason"] == "engine_failing" and health["detail"],
            health,
        )
        check("and not ready", w.get("/readyz")[0] == 503 and w.get("/healthz")[0] == 503)
        check("but alive", w.get("/livez")[0] == 200)
        with open(path, "r+b") as f:
            f.write(whole)
        status, got = w.execute(prompt="Once upon a time there was", max_tokens=4)
        check("a job that gets ids", status == 200 and got[-1][0] == "end", got)
        check("makes it ready again", w.get("/readyz")[0] == 200 and w.get("/health")[0] == 200)


arguments()
cut_short()
configuration()
identity()
hundred_requests()
callback()
shutdown()
grace()
killed()
first_minutes()
stopped_log()
closed_streams()
narration()
audit_key()
no_words_in_logs()
done()
