#!/usr/bin/env python3
"""Brings models up one after another, each within a bound of memory, and proves what was promised about them.

    bringup.py --worker build-release/bin/worker --device cuda [--context N] [--limit-gb 24] [MODEL.gguf[=GB]]...

Without models: files with the shapes of Qwen2.5-0.5B, Phi-3-mini and GPT-OSS-20B (shapes.py) are made in --folder, 15
GB in all, and GPT-OSS must stay within 19.2 GB. Of each: what plan says is what the running service holds, that is
within the bound, text comes back, twice the same, VRAM is as after the load when requests have ended, and after the
process has ended the GPU has what it had before. Exit status: 0 all held, 1 one did not.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import client
import shapes

PATIENCE = 600  # seconds
DEFAULT = (("qwen2.5-0.5b", None), ("phi-3-mini", None), ("gpt-oss-20b", 19.2))
TEXTS = ("Hello", "你好世界", "Hello 👋 World 🌍", "Mixed: 日本語 English العربية")
failures = []


def check(what, good, detail=""):
    print(("ok      " if good else "FAILED  ") + what + ("" if good else ": %s" % (detail,)), flush=True)
    if not good:
        failures.append(what)


def gpu_used():
    """Bytes that the driver reports as used; None where there is no nvidia-smi."""
    try:
        r = subprocess.run(
            ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            check=True,
        )
        return int(r.stdout.split("\n")[0]) << 20
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None


class Service:
    def __init__(self, o, model):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.stderr = tempfile.TemporaryFile()
        folder, self.name = os.path.split(os.path.abspath(model))
        command = [o.worker, "serve", "--port", str(self.port), "--wait-for-commit", "--model-dir", folder]
        command += ["--device", o.device, "--max-sequences", "1", "--context", str(o.context)]
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.stderr
        )
        self.until("/livez")

    def until(self, path):
        """Waits for a 200."""
        while not self.answers(path):
            if self.process.poll() is not None or time.monotonic() - self.began > PATIENCE:
                self.process.kill()
                sys.exit("%s: no %s: %s" % (self.name, path, self.said()[-2000:]))
            time.sleep(0.05)

    def said(self):
        self.stderr.seek(0)
        return self.stderr.read().decode("utf-8", "replace")

    def answers(self, path):
        try:
            return self.ask("GET", path)[0] == 200
        except OSError:
            return False

    def post(self, path, body):
        status, data = self.ask("POST", path, body)
        if status != 200:
            sys.exit("%s: %s: %d %s" % (self.name, path, status, data))
        return json.loads(data)

    def ask(self, method, path, body=None):
        return client.ask(self.port, PATIENCE, method, path, body)

    def health(self):
        return json.loads(self.ask("GET", "/health")[1])

    def ids(self, name, prompt):
        """Ids of a stream; every event is UTF-8 by itself."""
        body = {"job_id": name, "prompt": prompt, "max_tokens": 20, "temperature": 0, "seed": 42}
        status, data = self.ask("POST", "/execute", body)
        if status != 200:
            return status, data
        lines = [line.decode("utf-8") for line in data.split(b"\n") if line.startswith(b"data: ")]
        return [e["id"] for e in map(json.loads, (line[6:] for line in lines)) if "id" in e]

    def end(self):
        self.process.terminate()
        return self.process.wait(PATIENCE)


def bring_up(o, model, limit):
    before = gpu_used() if o.device == "cuda" else None
    service = Service(o, model)
    name = service.name
    plan = service.post("/worker/plan", {"model_ref": name, "shard_layout": "single", "tp_degree": 1})
    total = plan["total_bytes"]
    check("%s: plan: %.2f of at most %.1f GB" % (name, total / 1e9, limit), total <= limit * 1e9, plan)
    began = time.monotonic()
    committed = service.post("/worker/commit", {"model_ref": name, "shard_id": "whole", "shard_index": 0})
    service.until("/readyz")
    took = time.monotonic() - began
    check("%s: holds what was planned, ready after %.1f s" % (name, took), committed["total_bytes"] == total, committed)
    health, handle = service.health(), json.loads(service.ask("GET", "/worker/ready")[1])["handles"][0]
    held = plan["vram_required"], handle["vram_bytes"]
    check(name + ": so does its handle", held[0] == held[1] and handle["sealed"] is (o.device == "cuda"), held)
    check(name + ": only what a device holds", health["vram_only"] is (o.device == "cuda"), health)
    for i, text in enumerate(TEXTS):
        first, second = (service.ids("%d-%d" % (i, k), text) for k in range(2))
        check("%s: %s, twice the same ids" % (name, text), first == second and isinstance(first, list), (first, second))
    after = service.health()
    check(name + ": memory as after the load", after["vram_bytes_used"] == health["vram_bytes_used"], after)
    status = service.end()
    check(name + ": ends with status 0", status == 0, status)
    if before is not None:
        check(name + ": the GPU has its memory back", gpu_used() <= before + (64 << 20), (before, gpu_used()))


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("--worker", required=True)
    a.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    a.add_argument("--context", type=int, default=8192, help="positions of a sequence")
    a.add_argument("--limit-gb", type=float, default=24)
    a.add_argument("--folder", help="where files are made; kept there")
    a.add_argument("models", nargs="*", help="files, each with a bound of its own in GB behind =")
    o = a.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        models = [(m.partition("=")[0], float(m.partition("=")[2] or o.limit_gb)) for m in o.models]
        if not models:
            for name, limit in DEFAULT:
                path = os.path.join(o.folder or scratch, name + ".gguf")
                if not os.path.exists(path):
                    shapes.write(name, path)
                models.append((path, limit or o.limit_gb))
        for model, limit in models:
            bring_up(o, model, limit)
    print("%d failed" % len(failures) if failures else "all held")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
