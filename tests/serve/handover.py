"""Prefill and decode workers, for the tests of this folder: a router's two requests, what became of a hand-over, a
proxy between both workers that breaks what passes, and what is left in shared memory."""

import contextlib
import hashlib
import os
import random
import re
import socket
import struct
import threading

from service import PATIENCE, Metrics, check, children

PAGE = 32  # tokens
# As vllm-router sends it to a prefill worker: the client's body, and all that it writes out besides.
NEUTRAL = {
    "min_tokens": 1,
    "no_stop_trim": False,
    "ignore_eos": False,
    "continue_final_message": False,
    "skip_special_tokens": True,
    "separate_reasoning": True,
    "stream_reasoning": True,
    "return_hidden_states": False,
    "include_reasoning": True,
}
ASKS = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
WORDS = "rain snow wind moon tide leaf crow pine dust frog bell fern dew ash oak elm jay owl fox bee".split()


def text(seed, n=60):
    """A prompt of more than n tokens that no other seed has."""
    draw = random.Random(seed)
    return "%d " % seed + " ".join(draw.choice(WORDS) for _ in range(n))


def until_it_gives(w):
    """A prefill worker is ready before it knows the digest of its weights, and offers nothing until then."""
    if not getattr(w, "gives", False):
        w.until(lambda: re.search(r'"digest":"[0-9a-f]{64}"', w.said()))
        w.gives = True


def first(w, path, body, headers=None, chat=False):
    """(status, answer) of the router's request to the prefill worker."""
    asked = dict(body, **NEUTRAL, stream=False, max_tokens=1, kv_transfer_params=ASKS)
    asked.pop("stream_options", None)
    if not chat:
        asked.pop("continue_final_message")
    return w.post(path, asked, headers=headers)


def params(p, path, body, headers=None, chat=False):
    """What the prefill worker says of the hand-over, once it offers any."""
    until_it_gives(p)
    status, answer = first(p, path, body, headers, chat)
    if status != 200:
        raise RuntimeError(answer)
    return answer["kv_transfer_params"]


def then(d, path, body, handed, headers=None):
    """(status, answer) of the router's request to the decode worker."""
    return d.post(path, dict(body, kv_transfer_params=handed), headers=headers)


def both(p, d, path, body, headers=None, chat=False):
    return then(d, path, body, params(p, path, body, headers, chat), headers)


def pulls(w):
    """result -> how many."""
    name = "worker_kv_transfer_pulls_total"
    return {dict(labels)["result"]: v for (n, labels), v in w.metrics().samples.items() if n == name}


def became(w, act):
    """(what act returns, [results of the pulls that it made])"""
    before = pulls(w)
    answer = act()
    return answer, [r for r, v in pulls(w).items() for _ in range(int(v - before[r]))]


def said(answer):
    """What of an answer must not depend on where its prompt was read."""
    return [
        (c.get("text"), c.get("message", {}).get("content"), c.get("logprobs"), c["finish_reason"])
        for c in answer["choices"]
    ]


def request(p, body, handed):
    """What a decode worker asks of the prefill worker for the only prompt of a completion."""
    ids = p.post("/v1/completions/render", body)[1][0]["token_ids"]
    blocks = (len(ids) - 1) // PAGE
    tokens = hashlib.sha256(struct.pack("<%dI" % (blocks * PAGE), *ids[: blocks * PAGE])).hexdigest()
    return {
        "id": handed["remote_block_ids"][0],
        "from": 0,
        "to": blocks,
        "tokens": tokens,
        "fingerprint": handed["remote_engine_id"].partition(":")[2],
        "digest": p.get("/health")[1]["digest"],
        "ways": ["channel"],
    }


def segments():
    """Those of this test's workers, and of nobody: other tests on this machine have theirs."""
    holders, own = {}, set(children(os.getpid()))
    with open("/proc/locks", encoding="ascii") as f:
        for line in f:
            words = line.split()
            if "FLOCK" in words:
                holders[int(words[-3].rpartition(":")[2])] = int(words[-4])
    found = []
    for name in os.listdir("/dev/shm"):
        if name.startswith("worker_kv_"):
            with contextlib.suppress(OSError):  # it has just gone
                inode = os.stat("/dev/shm/" + name).st_ino
                if holders.get(inode) in own | {None}:
                    found.append(name)
    return found


class Proxy:
    """A port of this machine that passes everything on to `port`, but for what `answer` makes of the other side's
    bytes: answer(bytes so far, new ones) returns what is sent instead, or None: the connection breaks there. What
    passed is in .seen; None for port: nobody is there, and answer(b"", b"") is all that is said."""

    def __init__(self, port, answer=None):
        self.to, self.answer, self.seen = port, answer or (lambda before, more: more), b""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.over = threading.Event()
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while not self.over.is_set():
            with contextlib.suppress(OSError):
                s, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s):
        with contextlib.suppress(OSError), s:
            s.settimeout(PATIENCE)
            if self.to is None:
                s.recv(65536)
                said = self.answer(b"", b"")
                if said is not None:
                    s.sendall(said)
                    self.over.wait(PATIENCE)
                return
            with socket.create_connection(("127.0.0.1", self.to), PATIENCE) as other:
                threading.Thread(target=self.pump, args=(s, other), daemon=True).start()
                try:
                    self.relay(s, other)
                finally:  # a close alone ends nothing as long as the other thread reads
                    for end in (s, other):
                        with contextlib.suppress(OSError):
                            end.shutdown(socket.SHUT_RDWR)

    def relay(self, s, other):
        before = b""
        while more := other.recv(65536):
            passed = self.answer(before, more)
            before += more
            self.seen += more
            if passed is None:
                return
            s.sendall(passed)

    @staticmethod
    def pump(s, other):
        with contextlib.suppress(OSError):
            while more := s.recv(65536):
                other.sendall(more)
            other.shutdown(socket.SHUT_WR)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.over.set()
        self.listener.close()


def through(handed, proxy):
    return dict(handed, remote_host="127.0.0.1", remote_port=proxy.port)


def documented(source, w):
    """Are the families of hand-overs that docs/metrics.md has those that the worker tells?"""
    with open(source + "/docs/metrics.md", encoding="utf-8") as f:
        named = set(re.findall(r"^\| `(worker_kv_transfer\w+)`", f.read(), re.M))
    told = {n for n in Metrics(w.get("/metrics")[1]).types if n.startswith("worker_kv_transfer")}
    check("figures of hand-overs as docs/metrics.md has them", named == told and named, named ^ told)
