#!/usr/bin/env python3
"""Plan, commit, ready, execute by handle, jobs: a worker that a pool manager drives. And the device's faults, by a
device module that fails as it is told."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from service import DEVICE, PATIENCE, Worker, breaks_contract, check, done, free_port, with_fake_device

program, source = sys.argv[1], sys.argv[2]
fake = sys.argv[3] if len(sys.argv) > 3 else None
libdir = sys.argv[4] if len(sys.argv) > 4 else "lib"
HAIKU = os.path.join(source, "models/haiku/haiku-q4_k_m.gguf")
scratch = tempfile.mkdtemp(prefix="worker-control-")
models = os.path.join(scratch, "models")
os.makedirs(os.path.join(models, "org/haiku"))
shutil.copy(HAIKU, os.path.join(models, "haiku.gguf"))
shutil.copy(HAIKU, os.path.join(models, "org/haiku/haiku-q4_k_m.gguf"))
with open(os.path.join(models, "bad.gguf"), "wb") as f:
    f.write(b"GGUF\3\0\0\0" + b"\xff" * 64)
os.symlink("/etc/passwd", os.path.join(models, "link.gguf"))


def commit_by_request(w, ref):
    status, plan = w.post("/worker/plan", {"model_ref": ref})
    check(
        "plan",
        status == 200
        and plan["feasible"] is True
        and plan["reasons"] == []
        and plan["shard_plan"][0]["shard_index"] == 0,
        (status, plan),
    )
    told = subprocess.run(
        [program, "plan", "--json", "--device", DEVICE, "--max-sequences", "16", os.path.join(models, "haiku.gguf")],
        capture_output=True,
    )
    told = json.loads(told.stdout)
    check("worker plan says the same, to the byte", told["bytes"] == plan["bytes"], (told, plan))
    status, ready = w.get("/worker/ready")
    check("not ready yet", status == 200 and ready == {"ready": False, "handles": [], "nccl_group_id": None}, ready)
    status, answer = w.post("/execute", {"job_id": "a", "prompt": "x"})
    check(
        "work before a model: NOT_READY",
        status == 503
        and answer["code"] == "NOT_READY"
        and answer["retriable"] is True
        and "commit" in answer["message"],
        (status, answer),
    )
    check("readyz 503 before a model", w.get("/readyz")[0] == 503 and w.get("/livez")[0] == 200)
    status, answer = w.post("/worker/commit", {"model_ref": "bad.gguf"})
    check(
        "commit of a damaged file: MODEL_LOAD_FAILED",
        status == 500 and answer["code"] == "MODEL_LOAD_FAILED" and scratch not in str(answer),
        (status, answer),
    )
    check("... and it lives", w.process.poll() is None and w.get("/livez")[0] == 200)
    status, answer = w.post("/worker/plan", {"model_ref": "bad.gguf"})
    check(
        "plan of a damaged file: not feasible, with the reason",
        status == 200 and answer["feasible"] is False and answer["reasons"] and answer["shard_plan"] == [],
        (status, answer),
    )
    status, done_ = w.post("/worker/commit", {"model_ref": ref, "shard_id": "my shard", "shard_index": 0})
    check(
        "commit",
        status == 200
        and done_["handle"]["shard_id"] == "my shard"
        and done_["handle"]["total_shards"] == 1
        and done_["handle"]["model_ref"] == ref,
        (status, done_),
    )
    check("plan bytes = commit bytes", plan["total_bytes"] == done_["total_bytes"] > 1000000, (plan, done_))
    status, answer = w.post("/worker/commit", {"model_ref": ref})
    check(
        "a second model is refused: ALREADY_COMMITTED",
        status == 409 and answer["code"] == "ALREADY_COMMITTED",
        (status, answer),
    )
    status, ready = w.get("/worker/ready")
    wrong = [breaks_contract("handle-schema.json", h) for h in (done_["handle"], *ready["handles"])]
    check("handles are as their schema says", not any(wrong), wrong)
    check("the check of handles can say no", breaks_contract("handle-schema.json", {"shard_id": "", "more": 1}))
    check("ready", ready["ready"] is True and ready["handles"][0]["shard_id"] == "my shard", ready)
    streams = []
    for _ in range(3):
        status, text = w.post(
            "/worker/execute",
            {"handle_id": "my shard", "prompt": "Once upon a time", "params": {"seed": 42, "max_tokens": 20}},
        )
        streams.append("".join(l for l in text.split("\n") if '"i":' in l))
        check(
            "execute by handle",
            status == 200 and text.count("event: token") > 1 and text.count("event: end") == 1,
            (status, text),
        )
    check("three runs, the same ids", len(set(streams)) == 1)
    jobs = w.get("/worker/jobs")[1]["jobs"]
    check("every job's record names its model", jobs and all(j["model_ref"] == ref for j in jobs), jobs)
    return plan


def waiting(*more):
    """A worker that waits for a commit."""
    w = Worker(program, "--wait-for-commit", "--model-dir", models, *more, wait=False)
    w.until(lambda: w.get("/livez")[0] == 200)
    return w


def cache_too_large(code):
    with waiting("--kv-cache-size-mb", "16777216") as w:  # 16 TiB
        for _ in range(2):
            status, answer = w.post("/worker/commit", {"model_ref": "haiku.gguf"})
            check(
                code + ", and what to do about it",
                status == 503
                and answer["code"] == code
                and answer["retriable"] is False
                and "--kv-cache-size-mb" in answer["message"],
                (status, answer),
            )
        check(
            "... which the plan says as well",
            w.post("/worker/plan", {"model_ref": "haiku.gguf"})[1]["feasible"] is False,
        )


def sealed_as_planned(w, plan):
    """The handle of what was committed as planned."""
    handle = w.get("/worker/ready")[1]["handles"][0]
    check(
        "vram_required = what the handle holds",
        plan["vram_required"] == handle["vram_bytes"] == plan["shard_plan"][0]["vram_bytes"] > 0 and handle["sealed"],
        (plan, handle),
    )
    return handle


def another_digest(w):
    status, answer = w.post("/worker/commit", {"model_ref": "haiku.gguf", "digest": "0" * 64})
    check(
        "another digest: MODEL_LOAD_FAILED",
        status == 500 and answer["code"] == "MODEL_LOAD_FAILED" and w.get("/worker/ready")[1]["ready"] is False,
        (status, answer),
    )


def plans_beside_a_stream(w):
    results = []
    threads = [
        threading.Thread(
            target=lambda: results.append(w.post("/worker/plan", {"model_ref": "haiku.gguf"})[1]["feasible"])
        )
        for _ in range(6)
    ]
    [t.start() for t in threads]
    status, stream = w.execute(prompt="x", max_tokens=30)
    [t.join() for t in threads]
    check(
        "plans at once, and beside a stream",
        status == 200 and results == [True] * 6 and stream[-1][0] == "end",
        results,
    )


def on_cpu():
    with waiting() as w:
        for body, field in (
            ({}, "model_ref"),
            ({"model_ref": 1}, "model_ref"),
            ({"model_ref": "haiku.gguf", "x": 1}, "x"),
            ({"model_ref": "haiku.gguf", "shard_layout": "other"}, "shard_layout"),
            ({"model_ref": "haiku.gguf", "tp_degree": 0}, "tp_degree"),
            ({"model_ref": "haiku.gguf", "tp_degree": 2}, "tp_degree"),
            ({"model_ref": "haiku.gguf", "shard_layout": "tensor_parallel"}, "tp_degree"),
            ({"model_ref": "../models/haiku.gguf"}, "model_ref"),
            ({"model_ref": "/etc/passwd"}, "model_ref"),
            ({"model_ref": "link.gguf"}, "model_ref"),
            ({"model_ref": "none.gguf"}, "model_ref"),
            ({"model_ref": ""}, "model_ref"),
        ):
            status, answer = w.post("/worker/plan", body)
            check("plan %s" % body, status == 400 and answer["field"] == field, (status, answer))
        for body, field in (
            ({"model_ref": "haiku.gguf", "shard_index": 1}, "shard_index"),
            ({"model_ref": "haiku.gguf", "digest": "abc"}, "digest"),
            ({"model_ref": "haiku.gguf", "model_bytes": "../x"}, "model_bytes"),
            ({"model_ref": "x", "model_bytes": 5}, "model_bytes"),
            ({"model_ref": "haiku.gguf", "shard_id": ""}, "shard_id"),
            ({"shard_id": "x"}, "model_ref"),
        ):
            status, answer = w.post("/worker/commit", body)
            check("commit %s" % body, status == 400 and answer["field"] == field, (status, answer))
        status, answer = w.post(
            "/worker/plan", {"model_ref": "haiku.gguf", "shard_layout": "tensor_parallel", "tp_degree": 2}
        )
        check(
            "tensor parallel is not feasible here, and says so",
            status == 200 and answer["feasible"] is False and "tensor_parallel" in answer["reasons"][0],
            (status, answer),
        )
        status, answer = w.post("/worker/commit", {"model_ref": "haiku.gguf", "digest": "0" * 64})
        check(
            "another digest than the model's is refused, on the CPU too",
            status == 500 and answer["code"] == "MODEL_LOAD_FAILED" and "was demanded" in answer["message"],
            (status, answer),
        )
        commit_by_request(w, "hf:org/haiku")
        check("exit 0", w.end() == 0)
        commits = [json.loads(l) for l in w.said().splitlines()]
        commits = [l for l in commits if l["event"] == "commit"]
        good = [l for l in commits if l["outcome"] == "committed"]
        check(
            "an audit record of each commit: who, what, and what became of it",
            len(good) == 1
            and good[0]["model_ref"] == "hf:org/haiku"
            and good[0]["shard_id"].startswith("hmac:")
            and good[0]["request_id"]
            and {l["outcome"] for l in commits} >= {"INVALID_REQUEST", "MODEL_LOAD_FAILED", "ALREADY_COMMITTED"},
            commits,
        )
    cache_too_large("INSUFFICIENT_MEMORY")
    with Worker(program) as w:
        status, answer = w.post("/worker/commit", {"model_ref": "haiku.gguf"})
        check("a worker without --model-dir", status == 400 and "--model-dir" in answer["message"], (status, answer))
    with Worker(program, "--model-dir", models) as w:
        status, answer = w.post("/worker/commit", {"model_ref": "haiku.gguf"})
        check(
            "M-1001: a second model is refused",
            status == 409 and answer["code"] == "ALREADY_COMMITTED",
            (status, answer),
        )
        plans_beside_a_stream(w)


def on_gpu():
    """The same with weights in a GPU's memory, while probes and plans come in all along."""
    with waiting() as w:
        enough = threading.Event()

        def probe(*request):
            while not enough.is_set():
                w.ask(*request)

        probes = [
            threading.Thread(target=probe, args=request)
            for request in (
                ("GET", "/readyz"),
                ("GET", "/health"),
                ("POST", "/worker/plan", {"model_ref": "haiku.gguf"}),
            )
        ]
        [t.start() for t in probes]
        another_digest(w)
        plan = commit_by_request(w, "hf:org/haiku")
        enough.set()
        [t.join() for t in probes]
        handle = sealed_as_planned(w, plan)
        check(
            "all that is planned is in the GPU's memory, and the weights are write-protected",
            plan["total_bytes"] == handle["vram_bytes"] and handle["write_protected"],
            (plan, handle),
        )
        check("exit 0", w.end() == 0)
    with waiting() as w:
        status, answer = w.post("/worker/commit", {"model_ref": "haiku.gguf", "digest": handle["digest"]})
        check(
            "the digest that it has: commit",
            status == 200 and answer["handle"]["digest"] == handle["digest"],
            (status, answer),
        )
    cache_too_large("INSUFFICIENT_VRAM")
    with Worker(program, "--model-dir", models) as w:
        plans_beside_a_stream(w)


def admin_port_stays_free():
    """Whoever works through the admin port, slowly or with long texts, leaves threads to its probes."""
    with Worker(program, "--model-dir", models) as w:
        head = b"POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
        slow = [socket.create_connection(("127.0.0.1", w.admin), PATIENCE) for _ in range(10)]
        for c, path in zip(slow, 10 * (b"/tokenize", b"/detokenize", b"/worker/plan", b"/worker/commit")):
            c.sendall(head % path)
        w.until(lambda: w.metrics(w.admin)("worker_http_streams_refused_total", port="admin") == 6)
        status, headers, answer = w.ask("POST", "/tokenize", {"content": "x"}, port=w.admin)
        check(
            "the admin port refuses what takes long when four such are under way",
            status == 429 and json.loads(answer)["code"] == "QUEUE_FULL" and "retry-after" in headers,
            (status, answer),
        )
        check(
            "... and has the rest",
            all(w.get(path, w.admin)[0] == 200 for path in ("/livez", "/readyz", "/metrics", "/worker/jobs"))
            and w.post("/cancel", {"job_id": "x"}, port=w.admin)[0] == 202,
        )
        for c in slow:
            c.close()
        w.until(lambda: w.post("/tokenize", {"content": "x"}, port=w.admin)[0] == 200)
        check("... and takes them again", w.post("/worker/plan", {"model_ref": "haiku.gguf"}, port=w.admin)[0] == 200)


def on_fake(installed):
    def start(fault, *arguments, wait=True):
        return Worker(installed, "--gpu-device", "1", *arguments, wait=wait, environment={"WORKER_FAKE": fault})

    with start("", "--wait-for-commit", "--model-dir", models, wait=False) as w:
        w.until(lambda: w.get("/livez")[0] == 200)
        plan = commit_by_request(w, "haiku.gguf")
        sealed_as_planned(w, plan)
        health = w.get("/health")[1]
        check("--gpu-device alone computes there", health["device"] == "cuda" and health["sm"] == 90, health)
        check("exit 0", w.end() == 0)
    with start("full", "--wait-for-commit", "--model-dir", models, wait=False) as w:
        w.until(lambda: w.get("/livez")[0] == 200)
        status, answer = w.post("/worker/commit", {"model_ref": "haiku.gguf"})
        check(
            "INSUFFICIENT_VRAM",
            status == 503 and answer["code"] == "INSUFFICIENT_VRAM" and answer["retriable"] is False,
            (status, answer),
        )
        status, answer = w.post("/worker/plan", {"model_ref": "haiku.gguf"})
        check("... which the plan had said", answer["feasible"] is False and "memory" in answer["reasons"][0], answer)
        status, answer = w.post("/worker/commit", {"model_ref": "haiku.gguf"})
        check("... and another commit is allowed", status == 503 and w.get("/livez")[0] == 200, (status, answer))
    with start("digest", "--wait-for-commit", "--model-dir", models, wait=False) as w:
        w.until(lambda: w.get("/livez")[0] == 200)
        another_digest(w)
    with start("unsealed") as w:
        handle = w.get("/worker/ready")[1]
        check(
            "not sealed: not ready as a shard",
            handle["ready"] is False and handle["handles"][0]["sealed"] is False,
            handle,
        )
        status, answer = w.post("/worker/execute", {"handle_id": handle["handles"][0]["shard_id"], "prompt": "x"})
        check(
            "execute by a handle that is not sealed: 503",
            status == 503 and answer["code"] == "NOT_READY",
            (status, answer),
        )
    for fault in ("lost-in-step", "lost-in-collect"):
        with start(fault) as w:
            status, stream = w.execute(prompt="x", max_tokens=5)
            check(
                "%s: error CUDA_ERROR" % fault,
                status == 200
                and stream[-1][0] == "error"
                and stream[-1][1]["code"] == "CUDA_ERROR"
                and stream[-1][1]["retriable"] is True,
                stream,
            )
            check("... and the process ends with 70", w.status() == 70)
            last = w.said().strip().split("\n")[-1]
            check("... saying so last", "CUDA_ERROR" in last or "lost" in last, last)
    with start("host-page", wait=False) as w:
        check("host memory found at start: exit 1", w.status() == 1 and "VRAM_RESIDENCY_FAILED" in w.said(), w.said())
    with start("host-page-later", "--residency-sec", "1") as w:
        w.until(lambda: w.get("/readyz")[0] == 503)
        status, health = w.get("/health")
        check("host memory found later: unhealthy", status == 503 and health["status"] == "unhealthy", health)
        status, answer = w.post("/execute", {"job_id": "a", "prompt": "x"})
        check("... and no new work", status == 503 and answer["code"] == "NOT_READY", (status, answer))
        check(
            "... but a clean end",
            w.end() == 0 and "VRAM_RESIDENCY_FAILED" in w.said() or "host memory" in w.said(),
            w.said(),
        )
    for fault, code, status in (
        ("no-driver", "DEVICE_NOT_FOUND", 1),
        ("full", "INSUFFICIENT_VRAM", 1),
        ("lost-in-upload", "CUDA_ERROR", 70),
        ("no-memory", "INSUFFICIENT_VRAM", 1),
    ):
        r = subprocess.run(
            [
                installed,
                "--worker-id",
                "123e4567-e89b-42d3-a456-426614174000",
                "--model",
                HAIKU,
                "--gpu-device",
                "0",
                "--port",
                str(free_port()),
                "--log",
                "json",
            ],
            capture_output=True,
            text=True,
            env=dict(os.environ, WORKER_FAKE=fault),
            timeout=PATIENCE,
            check=False,
        )
        last = json.loads(r.stderr.strip().split("\n")[-1])
        good = (
            r.returncode == status
            and last["event"] == "error"
            and last["level"] == "error"
            and last["code"] == code
            and last["message"]
        )
        if fault == "full":
            good = (
                good
                and last["gpu_device"] == 0
                and last["model"] == "haiku"
                and last["vram_required"] > last["vram_available"] == 1000
            )
        check("start with %s: exit %d, last line an error event" % (fault, status), good, (r.returncode, last))


if DEVICE == "cuda":
    on_gpu()
else:
    on_cpu()
    admin_port_stays_free()
    if fake:
        on_fake(with_fake_device(program, fake, libdir, scratch))
shutil.rmtree(scratch)
done()
