#!/usr/bin/env python3
"""The commands that are clients of a running worker: status, jobs, cancel, models, metrics, complete; keys, https, what
the worker refuses, Ctrl-C."""

import json
import os
import signal
import socketserver
import subprocess
import sys
import threading

from gated import Gated
from service import LONG, PATIENCE, Job, Worker, cancelled, check, done, scratch

program = sys.argv[1]
folder = scratch("worker-remote-")
TEXT = "Once upon a time"


def worker(*words, text="", environment=None):
    """(exit status, standard output, standard error) of a command."""
    r = subprocess.run(
        [program, *words],
        input=text,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        env=dict(os.environ, **(environment or {})),
    )
    return r.returncode, r.stdout, r.stderr


def at(w):
    return "--url", "http://127.0.0.1:%d" % w.port


def states(w):
    status, out, err = worker("status", *at(w))
    check("status", status == 0 and err == "" and "healthy, ready" in out and "haiku" in out, (status, out, err))
    status, out, err = worker("status", *at(w), "--json")
    check("status --json", status == 0 and json.loads(out)["model"] == "haiku", err)
    status, out, _ = worker("models", *at(w))
    check("models", status == 0 and out.splitlines()[0].startswith("MODEL ") and "haiku " in out, out)
    status, out, _ = worker("models", *at(w), "--json")
    check("models --json", status == 0 and json.loads(out) == w.get("/v1/models")[1], out)
    status, out, _ = worker("metrics", *at(w))
    check("metrics", status == 0 and "# TYPE worker_build_info gauge" in out, out)
    for words in (("status",), ("jobs",), ("models", "--json"), ("metrics",), ("complete", TEXT, "-n", "2")):
        with open("/dev/full", "w", encoding="utf-8") as full:
            r = subprocess.run([program, *words, *at(w)], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        good = r.returncode == 1 and r.stderr.splitlines()[-1].startswith("worker: error: OUTPUT_FAILED: ")
        check("%s: a disk that is full" % words[0], good, r.stderr)
    status, out, _ = worker("status", environment={"WORKER_URL": at(w)[1] + "/"})
    check("the address from the environment", status == 0 and at(w)[1] in out, out)


def jobs(w):
    job = Job(w, "job-1").until("started")
    status, out, _ = worker("jobs", *at(w))
    rows = [line.split() for line in out.splitlines()]
    good = status == 0 and rows[0][0] == "JOB" and rows[1][0] == "job-1" and rows[1][1] in ("prefill", "decode")
    check("jobs", good, out)
    status, out, _ = worker("jobs", *at(w), "--json")
    check("jobs --json", status == 0 and json.loads(out)["jobs"][0]["job_id"] == "job-1", out)
    status, out, err = worker("cancel", "job-1", *at(w))
    check("cancel", status == 0 and out == "job-1: cancelled\n" and cancelled(job.over()), (out, err))
    status, out, err = worker("cancel", "job-1", *at(w))
    check("cancel what is over", status == 1 and out == "" and "INVALID_REQUEST: job-1: no such job" in err, err)
    status, out, err = worker("cancel", "job-1", *at(w), "--json")
    check("cancel --json", status == 1 and json.loads(out) == {"job_id": "job-1", "found": False}, out)
    status, out, err = worker("cancel", "\x1b[2J\n", *at(w))
    check("a job's name is shown and not obeyed", status == 1 and "\x1b" not in err and err.count("\n") == 1, err)


SAMPLED = ("-n", "24", "--seed", "42", "--temperature", "0.8", "--top-p", "0.95", "--min-p", "0.01", "--stop", "zzz")
SAMPLED += ("--logit-bias", "300=-2", "--repetition-penalty", "1.1", "--frequency-penalty", "0.1", "--top-k", "500")


def completes(w):
    status, here, err = worker("complete", TEXT, *SAMPLED)
    check("complete, a model here", status == 0 and here.strip() and "seed 42" in err and "raw" in err, (here, err))
    status, there, err = worker("complete", TEXT, *SAMPLED, *at(w))
    check("complete, a worker: the same text", status == 0 and there == here, (here, there, err))
    counts = "prompt tokens, 24 tokens, seed 42, finish length, model haiku"
    check("complete: one line of figures", counts in err and err.count("\n") == 1, err)
    status, out, _ = worker("complete", *SAMPLED, *at(w), text=TEXT)
    check("complete, standard input", status == 0 and out == here, out)
    path = os.path.join(folder, "prompt")
    with open(path, "w", encoding="utf-8") as f:
        f.write(TEXT)
    status, out, _ = worker("complete", "--file", path, *SAMPLED, *at(w))
    check("complete --file", status == 0 and out == here, out)
    status, out, _ = worker("run", "--raw", "--prompt", TEXT, *SAMPLED)
    check("complete is run --raw", status == 0 and out == here, out)
    big = str(2**64 - 1)
    status, out, err = worker("complete", TEXT, "-n", "8", "--seed", big, *at(w))
    status, same, _ = worker("complete", TEXT, "-n", "8", "--seed", big)
    check("complete: every seed", status == 0 and out == same and "seed " + big in err, (out, same, err))
    schema = os.path.join(folder, "schema")
    with open(schema, "w", encoding="utf-8") as f:
        json.dump({"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 2}, f)
    for name, words, fits in (
        ("--regex", ("--regex", "cat|dog"), lambda t: t in ("cat\n", "dog\n")),
        ("--json-schema", ("--json-schema", schema), lambda t: set(json.loads(t)) <= {1, 2}),
    ):
        status, out, err = worker("complete", "Pick:", *words, *at(w))
        check("complete " + name, status == 0 and fits(out), (out, err))
    status, out, err = worker("complete", TEXT, "-n", "4", "--log", "json", *at(w))
    event = json.loads(err)
    good = event["event"] == "complete_end" and event["tokens_out"] == 4 and TEXT not in err
    check("complete --log json", status == 0 and good, err)


class Stranger(socketserver.BaseRequestHandler):
    """Another program's server."""

    def handle(self):
        self.request.recv(65536)
        self.request.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\nConnection: close\r\n\r\nno\n")


def refused(w):
    status, out, err = worker("complete", TEXT, "--logit-bias", "999999=1", *at(w))
    good = status == 1 and "INVALID_REQUEST: the worker answers 400 invalid_request: logit_bias: expected" in err
    check("the worker's refusal is its own text", good and out == "", (out, err))
    status, _, err = worker("complete", "a " * 40000, *at(w))
    check("... of a prompt that does not fit", status == 1 and "context_length_exceeded" in err, err)
    status, _, err = worker("complete", TEXT, "--log", "json", "--temperature", "0", "--model", "nowhere.gguf")
    check("no event of a failure has the prompt", status == 1 and TEXT not in err and "nowhere.gguf" in err, err)
    status, _, err = worker("complete", TEXT, "--log", "json", "--digest", "0" * 64)
    check("... nor in the place of a model", status == 1 and TEXT not in err and "MODEL_LOAD_FAILED" in err, err)
    status, _, err = worker("status", "--url", "http://127.0.0.1:1")
    said = err.startswith("worker: error: NOT_READY: http://127.0.0.1:1/health: ") and "; worker serve starts" in err
    check("nobody listens", status == 1 and said and err.count("\n") == 1, err)
    status, _, err = worker("status", "--url", at(w)[1].replace("http", "https"))
    check("no TLS there", status == 1 and "is at http://, not at https://" in err, err)
    for words, where in ((at(w), "--url"), ((), "WORKER_URL")):
        status, _, err = worker(
            "jobs", *words[:1], *(u + "/v1/" for u in words[1:]), environment={"WORKER_URL": at(w)[1] + "/v1"}
        )
        check(
            "an address of OpenAI's clients", status == 2 and where + ": expected the worker's own address" in err, err
        )
    status, _, err = worker("models", "--url", at(w)[1] + "/elsewhere")
    check("another path", status == 1 and "answers 404 NOT_FOUND" in err, err)
    with socketserver.TCPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.handle_request).start()
        status, _, err = worker("models", "--url", "http://127.0.0.1:%d" % server.server_address[1])
    check("something else answers", status == 1 and "answers 404, and not as a worker does: is this a" in err, err)


def interrupted(w):
    """Ctrl-C: the command ends by itself, and the worker has cancelled."""
    words = [program, "complete", TEXT, *at(w), "-n", "20000", "--temperature", "0", "--repetition-penalty", "0.01"]
    p = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    first = p.stdout.read(1)
    p.send_signal(signal.SIGINT)
    out, err = p.communicate(timeout=PATIENCE)
    good = first and p.returncode == 130 and b"finish interrupt" in err and out.endswith(b"\n")
    check("Ctrl-C ends complete", good, (p.returncode, err))
    w.until(lambda: w.get("/worker/jobs")[1]["jobs"][0]["state"] not in ("decode", "over"))
    newest = w.get("/worker/jobs")[1]["jobs"][0]
    check("and cancels the job", newest["state"] == "cancelled" and newest["job_id"].startswith("cmpl-"), newest)


def waits():
    with Worker(program, "--wait-for-commit", "--model-dir", folder, wait=False) as w:
        w.until(lambda: w.get("/livez")[0] == 200)
        status, out, err = worker("status", *at(w))
        good = status == 1 and "model_not_loaded" in err and "NOT_READY: the worker does no work now" in err
        check("status of a worker without a model", good and "worker " in out, (out, err))
        status, out, err = worker("complete", TEXT, *at(w))
        check("complete by it", status == 1 and "answers 503 not_ready" in err and out == "", err)


def keys():
    with Gated(program) as w:
        for name, words in (
            ("jobs", ("jobs",)),
            ("cancel", ("cancel", "x")),
            ("models", ("models",)),
            ("metrics", ("metrics",)),
            ("complete", ("complete", TEXT)),
        ):
            status, out, err = worker(*words, *at(w))
            good = status == 1 and "WORKER_API_KEY" in err
            check(name + " without a key", good and out == "" and err.count("\n") == 1, err)
        status, out, _ = worker("status", *at(w))
        check("status without a key says little", status == 0 and "haiku" not in out and "version" in out, out)
        alice = w.key("alice")
        given = {"WORKER_API_KEY": alice}
        status, out, _ = worker("status", *at(w), environment=given)
        check("a key from the environment", status == 0 and "haiku" in out, out)
        status, out, err = worker("complete", TEXT, "-n", "4", *at(w), environment=given)
        check("complete with it", status == 0 and out.strip(), err)
        status, out, err = worker("metrics", *at(w), environment=given)
        check("a scope that is missing", status == 1 and "403 FORBIDDEN: this needs the scope metrics" in err, err)
        path = os.path.join(folder, "key")
        with open(path, "w", encoding="ascii") as f:
            os.chmod(path, 0o600)
            f.write(w.root + "\n")
        status, out, err = worker("metrics", *at(w), "--api-key-file", path)
        check("a key from a file", status == 0 and "worker_build_info" in out, err)
        os.chmod(path, 0o644)
        status, out, err = worker("jobs", *at(w), "--api-key-file", path)
        check("which others can read is refused", status == 2 and "chmod 600" in err, err)
        check("no key stands in what was said", alice not in err and w.root not in err)


def secure():
    key, pem, other = (os.path.join(folder, n) for n in ("tls.key", "tls.pem", "other.pem"))
    for out, to in ((key, pem), (os.path.join(folder, "other.key"), other)):
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
            + ["-subj", "/CN=w", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", out, "-out", to],
            check=True,
            capture_output=True,
        )
        os.chmod(out, 0o600)
    with Worker(program, "--tls-cert", pem, "--tls-key", key, wait=False) as w:
        url = ("--url", "https://127.0.0.1:%d" % w.port)
        w.until(lambda: worker("status", *url, "--ca", pem)[0] == 0)
        status, out, err = worker("complete", TEXT, *SAMPLED, *url, "--ca", pem)
        check("https", status == 0 and "finish length" in err, err)
        for name, words in (("the system's certificates", ()), ("other certificates", ("--ca", other))):
            status, out, err = worker("complete", TEXT, *url, *words)
            check("https refuses by " + name, status == 1 and "certificate" in err.lower() and out == "", err)


with Worker(program, *LONG) as long_worker:
    states(long_worker)
    jobs(long_worker)
    refused(long_worker)
    interrupted(long_worker)
with Worker(program) as plain:
    completes(plain)
waits()
keys()
secure()
done()
