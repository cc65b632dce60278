#!/usr/bin/env python3
"""A worker's life: arguments, the port, the file of --config, the ready callback, its events, and every way to end."""
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

from service import Worker, check, done, free_port

program, source = sys.argv[1], sys.argv[2]
HAIKU = os.path.join(source, "models/haiku/haiku-q4_k_m.gguf")
ENDLESS = {"prompt": "x", "temperature": 0, "repetition_penalty": 0.01}
UUID = "123e4567-e89b-42d3-a456-426614174000"
scratch = tempfile.mkdtemp(prefix="worker-life-")


def run(*arguments, environment=None):
    r = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, env=dict(os.environ, **(environment or {})), check=False)
    return r.returncode, r.stderr.strip().split("\n")[-1]


def put(name, text):
    path = os.path.join(scratch, name)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def arguments():
    port = str(free_port())
    for name, status, said, words in (
            ("bad UUID", 2, "--worker-id", ["--worker-id", "123e4567-e89b-42d3-a456-42661417400x"]), ("short UUID", 2, "--worker-id", ["serve", "--worker-id", "x"]),
            ("no such model", 1, "MODEL_LOAD_FAILED", ["--model", "/no/such.gguf", "--port", port]), ("a folder as model", 1, "MODEL_LOAD_FAILED", ["serve", "--model", scratch, "--port", port]),
            ("not a model", 1, "MODEL_LOAD_FAILED", ["serve", "--model", put("x.gguf", "hello"), "--port", port]), ("low port", 2, "--port", ["serve", "--port", "80"]), ("no port", 2, "--port", ["serve", "--port", "http"]),
            ("IPv6", 2, "--host", ["serve", "--host", "::1"]), ("a name", 2, "--host", ["serve", "--host", "localhost"]), ("an address that is not ours", 1, "LISTEN_FAILED", ["serve", "--host", "192.0.2.1", "--port", port]),
            ("two ports alike", 2, "--admin-port", ["serve", "--port", port, "--admin-port", port]), ("--gpu-device and --device cpu", 2, "--gpu-device", ["serve", "--gpu-device", "0", "--device", "cpu"]),
            ("https callback", 2, "https", ["serve", "--callback-url", "https://example.org/"]), ("odd callback", 2, "--callback-url", ["serve", "--callback-url", "http://a b/"]),
            ("role", 2, "--role", ["serve", "--role", "decode"]), ("wait and a model", 2, "exclude", ["serve", "--wait-for-commit", "--model", HAIKU]), ("wait without a folder", 2, "--model-dir", ["serve", "--wait-for-commit"]),
            ("no such folder", 2, "--model-dir", ["serve", "--model-dir", "/no/such"]), ("--max-sequences 0", 2, "--max-sequences", ["serve", "--max-sequences", "0"]), ("an operand", 2, "operand", ["serve", "model.gguf"]),
            ("unknown option of the bare form", 2, "did you mean --model", ["--modle", "x"])):
        got, last = run(*words)
        check(name, got == status and said in last, (got, last))
    got, last = run("serve", environment={"WORKER_ROLE": "decode"})
    check("WORKER_ROLE=decode is refused", got == 2 and "WORKER_ROLE" in last, last)
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        begun = time.monotonic()
        got, last = run("serve", "--port", str(s.getsockname()[1]))
        check("port in use: exit 1, one line", got == 1 and "LISTEN_FAILED" in last and "in use" in last.lower() and time.monotonic() - begun < 20, (got, last))


def configuration():
    for text, line, said in (("port = 1\n", 1, "expected a whole number"), ("# c\n\nprot = 8000\n", 3, "unknown key prot"), ("[scheduler.fairness]\nmax_timeslice_tokens = many\n", 2, "scheduler.fairness.max_timeslice_tokens"),
                             ("port = 8000\nport = 8001\n", 2, "given twice"), ("[server.tls]\ncert = x\n", 2, "unknown key server.tls.cert"), ("just words\n", 1, "expected key = value"), ("host = \"127.0.0.1\n", 1, "quotes"),
                             ("[open\n", 1, "section"), ("config = x\n", 1, "unknown key config"), ("max_queue = 5 5\n", 1, "max_queue"), ("model_id = " + "x" * 300 + "\n", 1, "1 to 255 bytes")):
        got, last = run("serve", "--config", put("bad.ini", text))
        check("config %r" % text[:30], got == 2 and "bad.ini:%d:" % line in last and said in last, (got, last))
    got, last = run("serve", "--config", "/no/such.ini")
    check("no such config", got == 2 and "/no/such.ini" in last, last)
    path = put("good.ini", "# a worker\nport = 1024 ; replaced by the flag\nmodel_id = \"from file\"\nmax_tokens_out = 7\nmax_prompt_chars=99\nno_prefix_cache = yes\n"
               "worker_id = '%s'\n[scheduler.fairness]\nenable_preemption = true\nhigh_priority_threshold = 3\n" % UUID)
    with Worker(program, "--config", path, environment={"WORKER_MAX_PROMPT_CHARS": "5"}) as w:
        health = w.get("/health")[1]
        check("config: values of the file", health["model"] == "from file" and health["worker_id"] == UUID, health)
        status, answer = w.post("/execute", {"job_id": "a", "prompt": "123456"})
        check("config: the environment goes before the file", status == 400 and "1 to 5 characters" in answer["message"], answer)
        status, answer = w.post("/execute", {"job_id": "a", "prompt": "1", "max_tokens": 8})
        check("config: the file goes before the default", status == 400 and "from 1 to 7" in answer["message"], answer)
    with Worker(program, environment={"WORKER_CONFIG": path}) as w:
        check("WORKER_CONFIG", w.get("/health")[1]["model"] == "from file")


class Callback(http.server.BaseHTTPRequestHandler):
    seen, fail_first = [], 0

    def do_POST(self):
        Callback.seen.append((time.monotonic(), self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
        self.send_response(500 if len(Callback.seen) <= Callback.fail_first else 204)
        self.end_headers()

    def log_message(self, *_):
        pass


def callback():
    server = http.server.HTTPServer(("127.0.0.1", 0), Callback)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Callback.fail_first = 1
    with Worker(program, "--worker-id", UUID, "--callback-url", "http://127.0.0.1:%d/ready?x=1" % server.server_port) as w:
        w.until(lambda: len(Callback.seen) >= 2, 10)
        _, path, body = Callback.seen[1]
        check("ready callback, tried again", path == "/ready?x=1" and set(body) == {"worker_id", "model_ref", "url", "vram_bytes_used", "digest", "ecp"} and body["worker_id"] == UUID and body["url"].endswith(str(w.port))
              and "supports_architecture" in body["ecp"], body)
        check("... a second later", 0.9 < Callback.seen[1][0] - Callback.seen[0][0] < 10)
        time.sleep(0.3)
        check("... and no more after 2xx", len(Callback.seen) == 2)
    server.shutdown()
    with Worker(program, "--callback-url", "http://127.0.0.1:%d/" % free_port()) as w:
        check("nobody listens: it serves", w.execute(prompt="x", max_tokens=3)[1][-1][0] == "end")
        begun = time.monotonic()
        check("... and ends at once between two tries", w.end() == 0 and time.monotonic() - begun < 5)


def endless(w, name, out, **more):
    out[name] = w.execute(**dict(ENDLESS, job_id=name, **more))


def runs(w, *names):
    w.until(lambda: all(w.get("/worker/jobs/" + n)[1].get("state") in ("decode", "prefill") for n in names), 20)


def shutdown():
    with Worker(program) as w:
        begun = time.monotonic()
        check("idle: SIGTERM, exit 0", w.end() == 0 and time.monotonic() - begun < 5)
    with Worker(program) as w:
        for body, status in ((b"[]", 400), (b'{"now":true}', 400), (b"{}", 202)):
            got, answer = w.post("/shutdown", body)
            check("/shutdown %s" % body, got == status, (got, answer))
        check("/shutdown: exit 0", w.process.wait(10) == 0)
    with Worker(program) as w:
        check("/shutdown without a body", w.post("/shutdown", None)[0] == 202 and w.process.wait(10) == 0)
    with Worker(program) as w:
        w.process.send_signal(signal.SIGINT)
        check("SIGINT: exit 0", w.process.wait(10) == 0)
    long = ("--context", "16384", "--max-tokens-out", "16000", "--max-sequences", "2")
    with Worker(program, *long) as w:
        out = {}
        threads = [threading.Thread(target=endless, args=(w, n, out), kwargs={"max_tokens": 800}) for n in ("a", "b")]
        [t.start() for t in threads]
        runs(w, "a", "b")
        threads.append(threading.Thread(target=endless, args=(w, "queued", out), kwargs={"max_tokens": 5}))
        threads[-1].start()
        w.until(lambda: w.get("/worker/jobs/queued")[0] == 200, 10)
        w.process.send_signal(signal.SIGTERM)
        w.until(lambda: w.get("/readyz", port=w.admin)[0] == 503, 5)
        check("draining: alive, not ready", w.get("/livez")[0] == 200 and w.get("/readyz")[1].get("reason") == "draining", w.get("/readyz"))
        status, answer = w.post("/execute", dict(ENDLESS, job_id="late"))
        check("draining: new work NOT_READY", status == 503 and answer["code"] == "NOT_READY" and answer["retriable"] is True, (status, answer))
        [t.join() for t in threads]
        check("draining: running streams finish", all(out[n][1][-1][0] == "end" and out[n][1][-1][1]["tokens_out"] == 800 for n in "ab"), {n: out[n][1][-1] for n in "ab"})
        check("draining: a queued one ends NOT_READY", out["queued"][1][-1] == ("error", {"code": "NOT_READY", "message": "the worker is shutting down", "retriable": True, "job_id": "queued"}), out["queued"])
        check("draining: exit 0", w.process.wait(20) == 0)
    with Worker(program, *long, "--shutdown-timeout-sec", "1") as w:
        out = {}
        t = threading.Thread(target=endless, args=(w, "a", out), kwargs={"max_tokens": 16000})
        t.start()
        runs(w, "a")
        begun = time.monotonic()
        w.process.send_signal(signal.SIGTERM)
        status = w.process.wait(20)
        t.join()
        last = out["a"][1][-1]
        check("after --shutdown-timeout-sec: CANCELLED, exit 0", status == 0 and (last[0] == "error" and last[1]["code"] == "CANCELLED" or time.monotonic() - begun < 1), last)
    with Worker(program, *long) as w:
        out = {}
        t = threading.Thread(target=lambda: swallow(w, out))
        t.start()
        runs(w, "a")
        w.process.send_signal(signal.SIGTERM)
        w.until(lambda: w.get("/readyz")[0] == 503, 5)
        w.process.send_signal(signal.SIGTERM)
        check("a second signal: at once, not 0", w.process.wait(5) == 1)
        t.join()


def swallow(w, out):
    try:
        endless(w, "a", out, max_tokens=16000)
    except Exception: # cut off, as it should be
        pass


def killed():
    with Worker(program) as w:
        out = {}
        t = threading.Thread(target=lambda: swallow(w, out))
        t.start()
        time.sleep(0.2)
        w.process.kill()
        w.process.wait()
        t.join()
        process = subprocess.Popen([program, "serve", "--port", str(w.port), "--admin-port", str(w.admin)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            w.process = process
            w.until(lambda: w.get("/readyz")[0] == 200, 20)
            status, stream = w.execute(prompt="Write a haiku about GPU computing", chat=True, max_tokens=50, temperature=0.7, seed=42)
            check("kill -9, the same port again, the first answer right", status == 200 and stream[-1][0] == "end" and len(stream) > 10)
        finally:
            process.terminate()
            process.wait(20)


def first_minutes():
    """What a start prints is enough to go on with: the line to try works as it stands."""
    port = free_port()
    p = subprocess.Popen([program, "serve", "--port", str(port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said = []
        for line in p.stdout:
            said.append(line.strip())
            if line.startswith("Ctrl-C"):
                break
        text = "\n".join(said)
        check("start prints where, what, on what, how much", all(w in text for w in ("http://127.0.0.1:%d" % port, "haiku", "Q4_K_M", "org.worker.llama", "cpu (", " bytes")), text)
        line = next((l for l in said if l.startswith("curl ")), "")
        if shutil.which("curl"):
            r = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60, check=False)
            check("the line to try works as it stands", r.returncode == 0 and "event: started" in r.stdout and "event: end" in r.stdout, (line, r.stdout[-300:], r.stderr))
    finally:
        p.send_signal(signal.SIGINT)
        check("Ctrl-C: exit 0, and nothing said that is not wanted", p.wait(20) == 0 and p.stderr.read() == "")


def narration():
    """Every line is an event; the ones of REQUIREMENTS 6.10 are there with their fields, and no text is in any."""
    prompt = "a secret prompt that no log may hold"
    with Worker(program, "--log", "json", "--worker-id", UUID) as w:
        _, stream = w.execute(job_id="narrated", prompt=prompt, max_tokens=8, seed=18446744073709551615)
        w.post("/execute", {"job_id": "bad", "prompt": prompt, "top_p": 7})
        w.post("/cancel", {"job_id": "x"})
        check("ends", w.end() == 0)
        lines = [json.loads(l) for l in w.said().strip().split("\n")]
        by = {}
        for l in lines:
            by.setdefault(l["event"], []).append(l)
            check("%s has time and level" % l["event"], l["level"] in ("info", "warning", "error") and l["time"].endswith("Z"), l)
        common = {"worker_id": str, "gpu_device": int}
        schema = {
            "startup": dict(common, host=str, port=int, admin_port=int, device=str, role=str, model_ref=str), "model_load_start": {"model": str, "device": str, "bytes": int}, "progress": {"percent": int, "activity": str},
            "model_load_complete": {"model": str, "seconds": (int, float)}, "ready": dict(common, model=str, model_ref=str, device=str, port=int, startup_seconds=float, bytes=int, fingerprint=str),
            "execute_start": dict(common, job_id=str, model_ref=str, tokens_in=int, prompt_sha256=str, prompt_chars=int, seed=int),
            "execute_end": dict(common, job_id=str, model_ref=str, outcome=str, finish_reason=str, tokens_in=int, tokens_out=int, decode_time_ms=(int, float), first_token_ms=(int, float), queue_ms=(int, float), vram_bytes=int,
                                prompt_sha256=str, prompt_chars=int, client_gone=bool),
            "refused": {"worker_id": str, "path": str, "code": str, "status": int, "field": str}, "cancel": {"worker_id": str, "job_id": str, "found": bool}, "shutdown": dict(common, reason=str, streams=int),
            "stopped": {"worker_id": str, "uptime_seconds": (int, float)},
        }
        for event, fields in schema.items():
            good = event in by and all(isinstance(by[event][-1].get(k), t) for k, t in fields.items())
            check("event %s" % event, good, by.get(event))
        check("events in order", [l["event"] for l in lines if l["event"] in ("startup", "ready", "execute_start", "execute_end", "shutdown", "stopped")] ==
              ["startup", "ready", "execute_start", "execute_end", "shutdown", "stopped"])
        check("no text, but its digest", prompt not in w.said() and by["execute_end"][0]["prompt_chars"] == len(prompt) and len(by["execute_end"][0]["prompt_sha256"]) == 64)
        check("counts agree with the stream", by["execute_end"][0]["tokens_out"] == stream[-1][1]["tokens_out"] and by["execute_end"][0]["seed"] == 18446744073709551615)


arguments()
configuration()
callback()
shutdown()
killed()
first_minutes()
narration()
done()
