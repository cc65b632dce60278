#!/usr/bin/env python3
"""Cache events (--kv-events) as subscribers see them, with ZeroMQ's and msgpack's own libraries (pyzmq and msgpack of
PyPI): who follows them knows what the worker keeps, whatever is evicted, missed, asked for again or restarted. Skipped
where the packages are not installed; CI installs them. usage: test_kv_events.py PROGRAM"""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time

from gated import Gated, bearer
from service import PATIENCE, STARTS, Publishing, Worker, check, children, done, free_port, skip

try:
    import msgpack
    import zmq
except ImportError:
    skip("pyzmq and msgpack are not installed; to run this: python3 -m pip install pyzmq msgpack")

PAGE = 32
END = 2**64 - 1
CONTEXT = zmq.Context()
SMALL = ("--kv-cache-size", "4", "--max-sequences", "2", "--context", "1024")  # MiB: pages for a few prompts


class Tree:
    """What a subscriber makes of batches: {hash: (parent or None, tokens, extra keys)}."""

    def __init__(self):
        self.blocks, self.cleared, self.next, self.faults = {}, 0, 0, []

    def stored(self, e):
        hashes, tokens, parent = e["block_hashes"], e["token_ids"], e["parent_block_hash"]
        if len(tokens) != PAGE * len(hashes) or e["block_size"] != PAGE or len(e["extra_keys"]) != len(hashes):
            self.faults.append(e)
        if parent is not None and parent not in self.blocks:
            self.faults.append(("parent", e))
        for i, h in enumerate(hashes):
            if h in self.blocks:
                self.faults.append(("twice", h))
            self.blocks[h] = (parent, tuple(tokens[i * PAGE : (i + 1) * PAGE]), e["extra_keys"][i])
            parent = h

    def removed(self, e):
        for h in e["block_hashes"]:
            if self.blocks.pop(h, None) is None or any(parent == h for parent, _, _ in self.blocks.values()):
                self.faults.append(("removed", h))

    def follow(self, sequence, payload):
        if sequence < self.next:
            return  # it came again
        if sequence > self.next:
            self.faults.append(("gap", self.next, sequence))
        self.next = sequence + 1
        _, events, rank = msgpack.unpackb(payload)
        if rank != 0:
            self.faults.append(("rank", rank))
        for e in events:
            if e["type"] == "AllBlocksCleared":
                self.blocks.clear()
                self.cleared += 1
            else:
                {"BlockStored": self.stored, "BlockRemoved": self.removed}[e["type"]](e)

    def kept(self, tokens):
        """How many of these are kept from the first on, in whole pages."""
        parent, n = None, 0
        while n + PAGE <= len(tokens):
            page = tuple(tokens[n : n + PAGE])
            found = [h for h, (above, has, _) in self.blocks.items() if above == parent and has == page]
            if not found:
                break
            parent, n = found[0], n + PAGE
        return n


class Subscriber:
    """A SUB socket and the replay socket."""

    def __init__(self, w, tree=None):
        self.tree = tree or Tree()
        self.sub = CONTEXT.socket(zmq.SUB)
        self.sub.subscribe(b"")
        self.sub.setsockopt(zmq.RECONNECT_IVL, 20)
        self.sub.connect(w.events)
        self.w, self.batches, self.topics = w, {}, set()

    def replay(self, first):
        """[(sequence, payload)] as the worker still has them."""
        s = CONTEXT.socket(zmq.DEALER)
        s.connect(self.w.replay)
        s.send_multipart([b"", struct.pack(">Q", first)])
        out = []
        while s.poll(PATIENCE * 1000):
            empty, _, number, payload = s.recv_multipart()
            if empty:
                raise RuntimeError(empty)
            sequence = struct.unpack(">Q", number)[0]
            if sequence == END and not payload:
                s.close(0)
                return out
            out.append((sequence, payload))
        raise TimeoutError("no end of a replay")

    def read(self, ms):
        """A batch that comes within so long."""
        if not self.sub.poll(ms):
            return False
        topic, number, payload = self.sub.recv_multipart()
        sequence = struct.unpack(">Q", number)[0]
        self.topics.add(topic)
        self.batches[sequence] = payload
        if sequence > self.tree.next:  # what came before this one
            for missed, again in self.replay(self.tree.next):
                self.tree.follow(missed, again)
        self.tree.follow(sequence, payload)
        return True

    def catch_up(self):
        for sequence, payload in self.replay(self.tree.next):
            self.tree.follow(sequence, payload)

    def until(self, what):
        end = time.monotonic() + PATIENCE
        while not what() and time.monotonic() < end:
            self.read(20) or self.catch_up()
        return what()


class GatedPublishing(Publishing, Gated):
    """The same, asking for keys."""


def prompt(kind, words):
    return " ".join("%s%d" % ("abcdefgh"[kind % 8], (i * 7 + kind) % 90) for i in range(words))


def ids(w, text):
    return w.post("/tokenize", {"content": text, "add_special": True})[1]["tokens"]


def complete(w, text, headers=None):
    """(tokens of the prompt, of which were found)"""
    body = {"model": "haiku", "prompt": text, "max_tokens": 1}
    status, answer = w.post("/v1/completions", body, headers=headers)
    if status != 200:
        raise RuntimeError(answer)
    return answer["usage"]["prompt_tokens"], answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def helper(w):
    """The process of worker-events."""
    return [p for p in children(w.process.pid) if name_of(p) == "worker-events"]


def name_of(pid):
    with contextlib.suppress(OSError), open("/proc/%d/comm" % pid, encoding="ascii") as f:
        return f.read().strip()
    return ""


def agrees(s, w, tokens):
    """Is what was told what the worker has? It keeps as many pages, among them all of its last prompt: what that one
    pushed out was told before."""
    whole = len(tokens) // PAGE * PAGE
    cached = w.metrics()("worker_kv_cache_pages", state="cached")
    return s.until(lambda: s.tree.kept(tokens) == whole and len(s.tree.blocks) == cached)


def follow(program):
    with Publishing(program, *SMALL) as w:
        s = Subscriber(w)
        s.until(lambda: s.tree.next > 0)
        check("the first of all is that nothing is kept", s.tree.cleared == 1 and not s.tree.blocks, s.tree.blocks)
        wrong = []
        for i in range(60):
            text = prompt(i % 7, 40 + i * 37 % 150)
            tokens = ids(w, text)
            expected = s.tree.kept(tokens[:-1])  # the last one always runs
            n, cached = complete(w, text)
            if n != len(tokens) or (n > 64 and cached != expected):
                wrong.append((i, n, len(tokens), cached, expected))
            if not agrees(s, w, tokens):
                wrong.append((i, len(s.tree.blocks)))
        check("cached_tokens are what the events let expect", not wrong, wrong[:5])
        check("prompts were evicted meanwhile", w.metrics()("worker_prefix_evicted_pages_total") > 50)
        check("no page without its parent, none twice, no gap", not s.tree.faults, s.tree.faults[:3])
        check("nothing was cleared", s.tree.cleared == 1)
        check("the topic is empty, as vLLM's", s.topics == {b""}, s.topics)
        check("times", all(abs(msgpack.unpackb(p)[0] - time.time()) < PATIENCE for p in s.batches.values()))

        again = dict(s.replay(0))
        check("all of it is given again", sorted(again) == list(range(s.tree.next)), len(again))
        check("in the same bytes", all(again[k] == v for k, v in s.batches.items()))
        last = s.tree.next - 1
        check("from a number on", [k for k, _ in s.replay(last - 2)] == [last - 2, last - 1, last])
        check("from a number that has not been", s.replay(last + 1000) == [])
        late = Tree()
        for k, v in s.replay(0):
            late.follow(k, v)
        check("who comes late gets there", late.blocks == s.tree.blocks and not late.faults)

        odd_questions(w, s)
        restart(w, s)
        w.process.terminate()
        while s.tree.blocks and s.read(PATIENCE * 1000):
            pass
        check("at its end nothing is kept", not s.tree.blocks and w.status() == 0, w.said()[-500:])


def odd_questions(w, s):
    before = helper(w)
    for parts in ([b""], [b"", b"123"], [b"", b"12345678", b"x"], [b"x" * 10, b"12345678"], [b""] * 50):
        q = CONTEXT.socket(zmq.DEALER)
        q.connect(w.replay)
        q.send_multipart(parts)
        check("no answer to %d parts" % len(parts), not q.poll(100))
        q.close(0)
    big = CONTEXT.socket(zmq.DEALER)
    big.connect(w.replay)
    big.send_multipart([b"", b"x" * (1 << 20)])
    check("a long question is cut off", not big.poll(100))
    big.close(0)
    with socket.create_connection(("127.0.0.1", int(w.replay.rsplit(":", 1)[1]))) as c:
        c.sendall(b"GET / HTTP/1.1\r\n\r\n")
    check("it goes on", s.replay(0) and helper(w) == before and len(before) == 1, before)


def restart(w, s):
    pages = len(s.tree.blocks)
    os.kill(helper(w)[0], signal.SIGKILL)
    s.tree.faults.clear()
    w.until(lambda: w.metrics()("worker_kv_event_restarts_total") == 1)
    check("all is told again", s.until(lambda: s.tree.cleared == 2 and len(s.tree.blocks) == pages), len(s.tree.blocks))
    complete(w, prompt(9, 100))
    check("and goes on", agrees(s, w, ids(w, prompt(9, 100))))
    wrong = [f for f in s.tree.faults if f[0] != "gap"]  # of what was told while nobody published
    check("behind a clear", not wrong and "kv_events_restart" in w.said(), wrong[:3])


def salts(program):
    """Two keys with the same prompt: pages of their own, told apart by a digest that is not the key's id."""
    with GatedPublishing(program, *SMALL) as w:
        s = Subscriber(w)
        text = prompt(1, 100)
        for name in ("first", "second"):
            complete(w, text, bearer(w.key(name)))
        pages = len(tokens_of(w, text)) // PAGE
        s.until(lambda: len(s.tree.blocks) == 2 * pages)
        roots = [x for x in s.tree.blocks.values() if x[0] is None]
        below = [x for x in s.tree.blocks.values() if x[0] is not None]
        check("each key has its own", len(s.tree.blocks) == 2 * pages and len(roots) == 2, len(s.tree.blocks))
        check("of the same tokens", roots[0][1] == roots[1][1])
        keys = [x[2] for x in roots]
        check(
            "told apart by extra_keys", keys[0] != keys[1] and all(len(k) == 1 and len(k[0]) == 32 for k in keys), keys
        )
        check("of first pages alone", all(x[2] is None for x in below))


def tokens_of(w, text):
    return w.document("POST", "/tokenize", {"content": text, "add_special": True}, headers=bearer(w.root))[1]["tokens"]


def refused(program, *arguments):
    r = subprocess.run(
        [program, "serve", "--port", str(free_port()), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
    )
    return r.returncode, [line for line in r.stderr.splitlines() if '"level":"info"' not in line]


def bad(program):
    for name in ("--kv-events", "--kv-events-replay"):
        for _ in range(STARTS):  # should somebody take the other port
            with socket.socket() as s:
                s.bind(("127.0.0.1", 0))
                s.listen()
                taken = "tcp://127.0.0.1:%d" % s.getsockname()[1]
                others = () if name == "--kv-events" else ("--kv-events", "tcp://127.0.0.1:%d" % free_port())
                status, said = refused(program, name, taken, *others)
            if taken in said[-1]:
                break
        good = status == 1 and len(said) == 1 and "LISTEN_FAILED" in said[0] and taken + ": Address" in said[0]
        check(name + " in use", good, (status, said))
    for value in (
        "5557",
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:0",
        "tcp://127.0.0.1:65536",
        "tcp://127.0.0.1:1x",
        "tcp://:5557",
        "tcp://example.org:5557",
        "tcp://::1:5557",
        "tcp://[127.0.0.1]:5557",
        "ipc:///tmp/x",
    ):
        status, said = refused(program, "--kv-events", value)
        check("no endpoint: " + value, status == 2 and "expected tcp://HOST:PORT" in said[0], (status, said))
    endpoint = "tcp://127.0.0.1:%d" % free_port()
    status, said = refused(program, "--kv-events", endpoint, "--no-prefix-cache")
    check("without a prefix cache", status == 2 and "--no-prefix-cache" in said[0], said)
    for name in ("--kv-events-replay", "--kv-events-topic"):
        status, said = refused(program, name, endpoint)
        check(name + " alone", status == 2 and "--kv-events, which is not given" in said[0], said)


def named(program):
    """A topic; localhost; every address; the same in a file and in the environment."""
    port = free_port()
    with Worker(
        program, environment={"WORKER_KV_EVENTS": "tcp://*:%d" % port, "WORKER_KV_EVENTS_TOPIC": "kv@a:1@b"}
    ) as w:
        sub = CONTEXT.socket(zmq.SUB)
        sub.subscribe(b"kv@")
        sub.connect("tcp://127.0.0.1:%d" % port)
        end = time.monotonic() + PATIENCE
        for i in range(100):
            complete(w, prompt(i % 8, 50 + i))
            if sub.poll(100) or time.monotonic() > end:
                break
        check("a topic of one's own", sub.poll(0) and sub.recv_multipart()[0] == b"kv@a:1@b")
        check("who can be reached is told", "kv_events_exposed" in w.said())
        sub.close(0)
    with Worker(program, "--kv-events", "tcp://LocalHost:%d" % free_port()) as w:
        check("localhost, in whatever case, is this machine's alone", "kv_events_exposed" not in w.said(), w.said())


def off(program):
    with Worker(program) as w:
        complete(w, prompt(1, 100))
        with open("/proc/%d/maps" % w.process.pid, encoding="ascii", errors="replace") as f:
            check("without --kv-events there is no ZeroMQ", "libzmq" not in f.read() and not helper(w))
    with Publishing(program) as w, open("/proc/%d/maps" % w.process.pid, encoding="ascii", errors="replace") as f:
        check("nor is it in the process that has the model", "libzmq" not in f.read() and len(helper(w)) == 1)


def batch_frame(sequence, payload):
    return struct.pack("=QII", sequence, 0, len(payload)) + payload


def publisher(program):
    """worker-events by itself: what it keeps for who asks again has an end, and then the worker hears of it."""
    most, more = 10000, 50
    ours, its = socket.socketpair()
    replay = "tcp://127.0.0.1:%d" % free_port()
    command = [os.path.join(os.path.dirname(program), "worker-events"), "tcp://127.0.0.1:%d" % free_port(), replay]
    p = subprocess.Popen(command, stdin=its)
    its.close()
    hello = ours.recv(512, socket.MSG_WAITALL)
    check("it says that it is ready", struct.unpack("=I", hello[:4])[0] == 0, hello[4:].rstrip(b"\0"))
    ours.sendall(b"".join(batch_frame(i, b"%d" % i) for i in range(most + more)))
    s = Subscriber.__new__(Subscriber)
    s.w = type("Place", (), {"replay": replay})
    end = time.monotonic() + PATIENCE
    while (kept := s.replay(0))[-1:] != [(most + more - 1, b"%d" % (most + more - 1))] and time.monotonic() < end:
        pass
    check("the last %d are kept" % most, [k for k, _ in kept] == list(range(more, most + more)), len(kept))
    ours.settimeout(PATIENCE)
    check("the worker hears that somebody lacks some", ours.recv(1) == b"\0")
    ours.sendall(batch_frame(1, b"")[:16])
    check("a frame that cannot be ends it", p.wait(PATIENCE) == 0 and not ours.recv(1000).strip(b"\0"))
    ours.close()


if __name__ == "__main__":
    follow(sys.argv[1])
    salts(sys.argv[1])
    bad(sys.argv[1])
    named(sys.argv[1])
    off(sys.argv[1])
    publisher(sys.argv[1])
    done()
