#!/usr/bin/env python3
"""How a service stands against its targets: percentiles and a verdict for each, on a CPU or a GPU.

    report.py --worker build-release/bin/worker --out FOLDER [--requests 100] [--start-seconds 60]
              [-- ARGUMENTS OF worker serve]

Measures, from a client on the same machine: start to ready and its phases, first token, gap between tokens, /health
while streams run, cancel (detect, abort, free), disconnect, memory after all requests, and the ends. Writes

    FOLDER/metadata.json      what was measured: program, model, device, machine, command
    FOLDER/timings.json       of each target: limit, which percentile it judges, count, p50, p95, p99, max, pass
    FOLDER/transcript.ndjson  every event as it came, with seconds since the start

A value up to 10 % above its limit passes. Exit status: 0 all passed, 1 one did not, 2 nothing could be measured.
Nothing but the standard library. Run it on a quiet machine: times are all it looks at.
"""

import argparse
import datetime
import http.client
import json
import math
import os
import platform
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import client

TOLERANCE = 0.10
PATIENCE = 600  # seconds: what has not come by then never does
# name: unit, limit, percentile that it judges (100: the largest), what is measured
TARGETS = {
    "start_ready": ("s", 60, 100, "start of the process to /readyz 200"),
    "start_init": ("s", 1, 100, "start of the process to its event startup: options, plugins, port"),
    "start_http": ("s", 1, 100, "start of the process to the first answer of /livez"),
    "start_parse": ("s", 1, 100, "startup to model_load_start: file read, checked and planned"),
    "start_load": ("s", 60, 100, "model_load_start to model_load_complete: memory taken and filled"),
    "start_open": ("s", 1, 100, "model_load_complete to ready"),
    "first_token": ("ms", 100, 95, "request sent to its first token event, one request at a time"),
    "token_gap": ("ms", 50, 95, "between two token events of a stream"),
    "health": ("ms", 10, 99, "GET /health while streams run"),
    "cancel_detect": ("ms", 10, 95, "POST /cancel to its 202"),
    "cancel_abort": ("ms", 50, 95, "the 202 to the stream's error CANCELLED"),
    "cancel_free": ("ms", 40, 95, "the stream's end to its pages of the cache being free in /health"),
    "cancel": ("ms", 100, 95, "POST /cancel to the pages being free"),
    "disconnect": ("ms", 100, 95, "the client's close to nothing running and no page used in /health"),
    "leak_vram": ("bytes", 0, 100, "growth of vram_bytes_used over all requests"),
    "leak_pages": ("pages", 0, 100, "pages that jobs hold after all requests"),
    "shutdown_idle": ("s", 1, 100, "SIGTERM to the process's end, idle"),
    "shutdown_busy": ("s", 6, 100, "SIGTERM to the process's end, a stream running, --shutdown-timeout-sec 5"),
}
LONG = {"prompt": "Once upon a time", "max_tokens": 2000, "temperature": 0, "repetition_penalty": 0.01}


def percentile(sorted_values, p):
    """The smallest value that p percent of the values do not exceed."""
    return sorted_values[max(0, math.ceil(p / 100 * len(sorted_values)) - 1)]


def line_of(name, values):
    unit, limit, judged, what = TARGETS[name]
    v = sorted(values)
    value = percentile(v, judged)
    return {
        "name": name,
        "what": what,
        "unit": unit,
        "limit": limit,
        "tolerance": TOLERANCE,
        "judged": "max" if judged == 100 else "p%d" % judged,
        "count": len(v),
        "p50": percentile(v, 50),
        "p95": percentile(v, 95),
        "p99": percentile(v, 99),
        "max": v[-1],
        "value": value,
        "pass": value <= limit * (1 + TOLERANCE),
    }


class Transcript:
    def __init__(self, path):
        self.file, self.lock, self.began = open(path, "w", encoding="utf-8"), threading.Lock(), time.monotonic()

    def put(self, source, event, data):
        line = {"t": round(time.monotonic() - self.began, 6), "source": source, "event": event, "data": data}
        with self.lock:
            self.file.write(json.dumps(line, ensure_ascii=False) + "\n")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Service:
    def __init__(self, o, transcript, *more):
        self.port, self.transcript, self.stderr = free_port(), transcript, tempfile.TemporaryFile()
        self.command = [o.worker, "serve", "--port", str(self.port), "--log", "json", *o.serve, *more]
        self.began_wall, self.began = time.time(), time.monotonic()
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.stderr
        )
        self.http = self.wait("/livez") - self.began
        self.ready = self.wait("/readyz") - self.began

    def wait(self, path):
        """When the path first answered 200."""
        while True:
            try:
                if self.ask("GET", path)[0] == 200:
                    return time.monotonic()
            except OSError:
                pass
            if self.process.poll() is not None or time.monotonic() - self.began > PATIENCE:
                self.stderr.seek(0)
                sys.stderr.write(self.stderr.read().decode("utf-8", "replace"))
                self.process.kill()
                sys.exit(2)
            time.sleep(0.002)

    def connect(self):
        return client.connect(self.port, PATIENCE)

    def ask(self, method, path, body=None):
        return client.ask(self.port, PATIENCE, method, path, body)

    def health(self):
        return json.loads(self.ask("GET", "/health")[1])

    def free(self):
        """When no page is used and nothing runs."""
        while True:
            h = self.health()
            if not h["kv_cache"]["pages_used"] and not h["queue"]["running"]:
                return time.monotonic()

    def events(self):
        """{event: seconds since the start} of the narration."""
        self.stderr.seek(0)
        out = {}
        for text in self.stderr.read().decode("utf-8", "replace").splitlines():
            try:
                e = json.loads(text)
            except ValueError:
                continue
            self.transcript.put("worker", e.get("event"), e)
            at = datetime.datetime.fromisoformat(e["time"].replace("Z", "+00:00")).timestamp() - self.began_wall
            out.setdefault(e["event"], max(at, 0.0))
        return out

    def end(self):
        began = time.monotonic()
        self.process.terminate()
        self.process.wait(PATIENCE)
        return time.monotonic() - began


class Stream(threading.Thread):
    """One POST /execute; .tokens: when each token event came, .ended: when the last event did."""

    def __init__(self, service, job_id, **body):
        super().__init__(daemon=True)
        self.service, self.body = service, dict(body, job_id=job_id)
        self.tokens, self.ended, self.last = [], None, None
        self.first = threading.Event()
        self.connection, self.socket = service.connect(), None
        self.sent = time.monotonic()
        self.start()

    def run(self):
        name = ""
        try:
            self.connection.request("POST", "/execute", json.dumps(self.body), {"Content-Type": "application/json"})
            self.socket = self.connection.sock  # which the answer takes from the connection
            for line in self.connection.getresponse():
                line = line.decode().rstrip("\n")
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    now, data = time.monotonic(), json.loads(line[6:])
                    self.service.transcript.put(self.body["job_id"], name, data)
                    if name == "token":
                        self.tokens.append(now)
                        self.first.set()
                    elif name in ("end", "error"):
                        self.ended, self.last = now, data
        except (OSError, ValueError, http.client.HTTPException):
            pass  # the connection was closed
        self.first.set()

    def close(self):
        """As a client that leaves."""
        self.socket.shutdown(socket.SHUT_RDWR)


def measure_start(service):
    e = service.events()
    return {
        "start_ready": [service.ready],
        "start_http": [service.http],
        "start_init": [e["startup"]],
        "start_parse": [e["model_load_start"] - e["startup"]],
        "start_load": [e["model_load_complete"] - e["model_load_start"]],
        "start_open": [e["ready"] - e["model_load_complete"]],
    }


def measure_streams(service, n):
    first, gaps, health = [], [], []
    before = service.health()["vram_bytes_used"]
    for i in range(n):
        s = Stream(service, "one-%d" % i, prompt="Write a haiku about rain, number %d" % i, max_tokens=32, seed=i)
        s.first.wait(PATIENCE)
        began = time.monotonic()
        service.health()
        health.append(1e3 * (time.monotonic() - began))
        s.join(PATIENCE)
        if not s.tokens:
            sys.exit("no token came: %s" % (s.last,))
        first.append(1e3 * (s.tokens[0] - s.sent))
        gaps += [1e3 * (b - a) for a, b in zip(s.tokens, s.tokens[1:])]
    service.free()
    after = service.health()
    return {
        "first_token": first,
        "token_gap": gaps or [0.0],
        "health": health,
        "leak_vram": [max(0, after["vram_bytes_used"] - before)],
        "leak_pages": [after["kv_cache"]["pages_used"]],
    }


def measure_cancels(service, n):
    out = {k: [] for k in ("cancel_detect", "cancel_abort", "cancel_free", "cancel", "disconnect")}
    for i in range(n):
        s = Stream(service, "cancel-%d" % i, **LONG)
        s.first.wait(PATIENCE)
        began = time.monotonic()
        service.ask("POST", "/cancel", {"job_id": s.body["job_id"]})
        accepted = time.monotonic()
        s.join(PATIENCE)
        free = service.free()
        if not s.last or s.last.get("code") != "CANCELLED":
            continue  # it was through before
        out["cancel_detect"].append(1e3 * (accepted - began))
        out["cancel_abort"].append(1e3 * max(0.0, s.ended - accepted))
        out["cancel_free"].append(1e3 * (free - s.ended))
        out["cancel"].append(1e3 * (free - began))
        s = Stream(service, "leave-%d" % i, **LONG)
        s.first.wait(PATIENCE)
        began = time.monotonic()
        s.close()
        out["disconnect"].append(1e3 * (service.free() - began))
    return {k: v for k, v in out.items() if v}


def metadata(o, service):
    health = service.health()
    cpu = ""
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        cpu = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "")
    keep = (
        "version",
        "fingerprint",
        "model",
        "quant_kind",
        "device",
        "device_text",
        "context",
        "vram_bytes_used",
        "sm",
    )
    return {
        "time": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": service.command,
        "requests": o.requests,
        **{k: health.get(k) for k in keep},
        "machine": {"cpu": cpu, "processors": len(os.sched_getaffinity(0)), "system": platform.platform()},
        "load_average": os.getloadavg()[0],
    }


def main():
    a = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    a.add_argument("--worker", required=True)
    a.add_argument("--out", required=True)
    a.add_argument("--requests", type=int, default=100)
    a.add_argument("--cancels", type=int, default=20)
    a.add_argument("--start-seconds", type=float, default=60, help="limit of start to ready")
    a.add_argument("serve", nargs="*", help="arguments of worker serve, behind --")
    o = a.parse_args()
    os.makedirs(o.out, exist_ok=True)
    TARGETS["start_ready"] = (TARGETS["start_ready"][0], o.start_seconds, *TARGETS["start_ready"][2:])
    transcript = Transcript(os.path.join(o.out, "transcript.ndjson"))
    service = Service(o, transcript)
    values = measure_start(service)
    values.update(measure_streams(service, o.requests))
    values.update(measure_cancels(service, o.cancels))
    meta = metadata(o, service)
    values["shutdown_idle"] = [service.end()]
    busy = Service(o, transcript, "--shutdown-timeout-sec", "5")
    Stream(busy, "busy", **LONG).first.wait(PATIENCE)
    values["shutdown_busy"] = [busy.end()]
    lines = [line_of(name, values[name]) for name in TARGETS if name in values]
    missing = [name for name in TARGETS if name not in values]
    for name, data in (("metadata.json", meta), ("timings.json", {"targets": lines, "not_measured": missing})):
        with open(os.path.join(o.out, name), "w", encoding="utf-8") as f:
            json.dump(data, f, indent=2, ensure_ascii=False)
            f.write("\n")
    transcript.file.close()
    for t in lines:
        verdict = "pass" if t["pass"] else "FAIL"
        shown = tuple("%.6g" % t[k] for k in ("limit", "p50", "p95", "p99", "max"))
        print("%-14s %-5s limit %s (%s)  p50 %s  p95 %s  p99 %s  max %s  %s" % (
            t["name"], t["unit"], shown[0], t["judged"], *shown[1:], verdict))  # fmt: skip
    for name in missing:
        print("%-14s not measured: every stream was through before it could be cancelled" % name)
    sys.exit(0 if all(t["pass"] for t in lines) and not missing else 1)


if __name__ == "__main__":
    main()
