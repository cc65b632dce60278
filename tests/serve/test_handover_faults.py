#!/usr/bin/env python3
"""Hand-overs that go wrong: whatever breaks, lies, is cut off, comes twice, too late or from a stranger, the answer is
that of one worker, and nothing is left behind. usage: test_handover_faults.py PROGRAM SOURCE"""

import contextlib
import json
import os
import random
import socket
import struct
import sys
import time

from handover import Proxy, became, both, params, pulls, request, said, segments, text, then, through
from service import PATIENCE, Worker, check, done

program = sys.argv[1]
KILLS = int(os.environ.get("KILLS", "10"))  # of each way
CUTS = 2 * KILLS
CUTS_OF_A_WORKER = 25  # what is not taken waits half a minute, and a prefill worker keeps 64 of them
COMPLETIONS = "/v1/completions"
PREFILL, DECODE = ("--role", "prefill", "--kv-transport"), ("--role", "decode", "--kv-transport")
draw = random.Random()
seed = draw.randrange(1 << 30)
draw.seed(seed)
print("seed %d" % seed)
numbers = iter(range(1, 1 << 30))
GOOD = ("done", "cached")


def body_of(n=100):
    return {"prompt": text(next(numbers), n), "max_tokens": 8, "seed": 1}


class Deployment:
    """A worker that does both for comparison, and one that decodes; prefill workers come and go."""

    def __init__(self, u, d):
        self.u, self.d = u, d

    def right(self, name, body, handed, *results):
        """The answer is that of one worker, and of the pull became one of these; returns which."""
        alone = self.u.post(COMPLETIONS, body)[1]
        (status, answer), was = became(self.d, lambda: then(self.d, COMPLETIONS, body, handed))
        good = status == 200 and said(answer) == said(alone) and len(was) == 1 and was[0] in results
        check(name, good, (was, answer, alone))
        return was[0] if was else ""


def cut_at(n):
    def answer(before, more):
        if len(before) >= n:
            return None
        return more[: n - len(before)]

    return answer


def flip_at(n):
    def answer(before, more):
        at = n - len(before)
        if 0 <= at < len(more):
            return more[:at] + bytes([more[at] ^ 1 << n % 8]) + more[at + 1 :]
        return more

    return answer


def broken(x, way):
    """An answer that ends anywhere, or has a wrong bit anywhere."""
    outcomes = set()
    for start in range(0, CUTS, CUTS_OF_A_WORKER):
        with Worker(program, *PREFILL, way, "--kv-cache-size-mb", "256") as p:
            body = body_of()
            with Proxy(p.port) as proxy:
                x.right(way + ": through a proxy", body, through(params(p, COMPLETIONS, body), proxy), "done")
                length = len(proxy.seen)
            for _ in range(start, min(CUTS, start + CUTS_OF_A_WORKER)):
                outcomes |= broken_once(x, way, p, length)
            p.until(lambda: not segments())
    check(way + ": breaks of several kinds", len(outcomes) > 1, outcomes)


def broken_once(x, way, p, length):
    """An answer of about `length` bytes that ends anywhere, and another one with a wrong bit; what became of them."""
    last = length - len(b"\r\n0\r\n\r\n")  # behind that nothing is missing but HTTP's end
    body = body_of()
    with Proxy(p.port, cut_at(draw.randrange(last))) as proxy:
        cut = x.right(way + ": cut off", body, through(params(p, COMPLETIONS, body), proxy), "unreachable")
    body, at = body_of(), draw.randrange(length)
    with Proxy(p.port, flip_at(at)) as proxy:
        handed = through(params(p, COMPLETIONS, body), proxy)
        wrong = ("unreachable", "refused", "unknown", "damaged", "foreign", "done")  # done: in a header's text
        return {cut, x.right("%s: bit %d" % (way, at), body, handed, *wrong)}


def crc32c(data):
    crc = 0xFFFFFFFF
    for b in data:
        crc ^= b
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def chunk(data):
    return b"%x\r\n" % len(data) + data + b"\r\n"


def recorded(p, body):
    """(what is said of it, frames [(frame, payload)]) of a hand-over."""
    handed = params(p, COMPLETIONS, body)
    status, _, data = p.ask("POST", "/worker/handover", request(p, body, handed))
    if status != 200:
        raise RuntimeError(data)
    frames = []
    while data:
        n = struct.unpack_from("<Q", data, 16)[0]
        frames.append((data[:32], data[32 : 32 + n]))
        data = data[32 + n :]
    return handed, frames


def with_sum(frame, payload):
    return frame[:16] + struct.pack("<QI", len(payload), crc32c(payload)) + frame[28:], payload


def player(frames):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(chunk(f + p) for f, p in frames) + b"0\r\n\r\n"


def later(frames):
    """A packet of the next version."""
    packet = bytearray(frames[0][1])
    packet[4] += 1
    return [with_sum(frames[0][0], bytes(packet[:-4]) + struct.pack("<I", crc32c(packet[:-4]))), *frames[1:]]


def forged(frames):
    """A packet whose sums are right and whose lengths are not."""
    packet = bytearray(frames[0][1])
    packet[192] ^= 1
    return [with_sum(frames[0][0], bytes(packet[:-4]) + struct.pack("<I", crc32c(packet[:-4]))), *frames[1:]]


def changed(f, at, value):
    """A frame with other bytes there."""
    return f[0][:at] + value + f[0][at + len(value) :], f[1]


def wrong_byte(f):
    return f[0], f[1][:-1] + bytes([f[1][-1] ^ 1])


CHANGES = (
    ("frames of a later version", lambda f: [changed(f[0], 4, b"\2"), *f[1:]], "foreign"),
    ("a packet of a later version", later, "foreign"),
    ("a packet that contradicts itself", forged, "damaged"),
    ("no packet", lambda f: f[1:], "damaged"),
    ("two packets", lambda f: [f[0], *f], "damaged"),
    ("a packet with another sum", lambda f: [wrong_byte(f[0]), *f[1:]], "damaged"),
    ("no blocks", lambda f: [f[0], f[-1]], "damaged"),
    ("no end", lambda f: f[:-1], "unreachable"),
    ("blocks twice", lambda f: [f[0], f[1], *f[1:]], "damaged"),
    ("blocks with another sum", lambda f: [f[0], wrong_byte(f[1]), *f[2:]], "damaged"),
    ("fewer bytes than blocks have", lambda f: [f[0], with_sum(f[1][0], f[1][1][:-1]), *f[2:]], "damaged"),
    ("more blocks than asked for", lambda f: [f[0], changed(f[1], 12, b"\0\0\0\4")], "damaged"),
    (
        "a segment of no worker's",
        lambda f: [f[0], with_sum(changed(f[1], 6, b"\3")[0], b"/../../etc/passwd")],
        "damaged",
    ),
    ("as it was", lambda f: f, "done"),
)


def replayed(x):
    """What another worker said once, changed here and there; ids that were used, and of others."""
    with Worker(program, *PREFILL, "channel") as p:
        body = body_of()
        handed = params(p, COMPLETIONS, body)
        x.right("pages", body, handed, "done")
        other = dict(body, prompt=body["prompt"] + " and")
        x.right("the same hand-over again", dict(body, prompt="x " + body["prompt"]), handed, "unknown")
        x.right("... when its pages are there", body, handed, "cached")
        x.right(
            "an id of nobody's", body_of(), dict(handed, remote_block_ids=["%032x" % draw.getrandbits(128)]), "unknown"
        )
        x.right("an id of another form", body_of(), dict(handed, remote_block_ids=["../x"]), "incomplete")
        x.right("an id of another engine", body_of(), dict(handed, remote_block_ids=[[1, 2, 3]]), "incomplete")
        x.right("another prompt's pages", body_of(), params(p, COMPLETIONS, body_of()), "foreign")
        x.right("a longer prompt", dict(other, prompt=other["prompt"] * 2), params(p, COMPLETIONS, other), "foreign")
        for name, change, result in CHANGES:
            body = body_of()
            handed, frames = recorded(p, body)
            with Proxy(None, lambda before, more, f=change(frames): player(f)) as proxy:
                x.right(name, body, through(handed, proxy), result)
        handed, frames = recorded(p, body_of())
        with Proxy(None, lambda before, more: player(frames)) as proxy:
            x.right("another prompt's answer", body_of(), through(handed, proxy), "foreign")


def strangers(x):
    """Hosts that may not be asked, and ports where something else is."""
    with Worker(program, *PREFILL, "channel") as p:
        handed = params(p, COMPLETIONS, body_of())
        for host in ("192.0.2.1", "10.0.0.1", "169.254.169.254", "example.org", "0.0.0.0", "127.1", "2130706433"):
            x.right("host " + host, body_of(), dict(handed, remote_host=host), "forbidden")
            named = host if host not in ("127.1", "2130706433") else "is neither a name nor an address"
            check("... is named", "remote_host %s: expected 127.0.0.1" % named in x.d.said(), x.d.said())
        with Worker(program, *PREFILL, "channel", "--model", "embedded:haiku-moe") as o:
            foreign = params(o, COMPLETIONS, body_of())
            x.right("another model", body_of(), foreign, "foreign")
            lie = dict(foreign, remote_engine_id=handed["remote_engine_id"])
            x.right("... that says it is this one", body_of(), lie, "foreign")
        for name in ("remote_engine_id", "remote_host", "remote_port", "remote_block_ids"):
            x.right("no " + name, body_of(), dict(handed, **{name: None}), "incomplete")
        talk = (
            ("a banner", b"SSH-2.0-OpenSSH_9.2\r\n"),
            ("random bytes", os.urandom(4096)),
            ("200 and random bytes", b"HTTP/1.1 200 OK\r\n\r\n" + os.urandom(4096)),
            ("200 and nothing", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
            ("a header without an end", b"HTTP/1.1 200 OK\r\n" + b"x: %s\r\n" % (b"y" * 1000) * 100),
            ("a redirect", b"HTTP/1.1 307 No\r\nLocation: http://192.0.2.1/\r\nContent-Length: 0\r\n\r\n"),
        )
        for name, bytes_said in talk:
            with Proxy(None, lambda before, more, b=bytes_said: b) as proxy:
                x.right(name, body_of(), through(handed, proxy), "unreachable", "damaged", "refused")
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            x.right("nobody", body_of(), dict(handed, remote_port=nobody.getsockname()[1]), "unreachable")
        bad_requests(p)


def bad_requests(p):
    """POST /worker/handover by whoever likes."""
    good = {
        "id": "0" * 32,
        "from": 0,
        "to": 1,
        "tokens": "0" * 64,
        "fingerprint": "fp",
        "digest": "0" * 64,
        "ways": ["channel"],
    }
    cases = (
        (good, 404),
        ({}, 400),
        (dict(good, more=1), 400),
        (dict(good, **{"from": 2}), 400),
        (dict(good, to=1 << 40), 400),
        (dict(good, ways=[]), 400),
        (dict(good, id="1" * 40), 400),
        (dict(good, place=5), 400),
    )
    for body, status in cases:
        answer = p.post("/worker/handover", body)
        check("a bad request is refused with %d" % status, answer[0] == status, (body, answer))
    check("no body is taken that is large", p.post("/worker/handover", dict(good, place="x" * 5000))[0] == 413)
    for data in (b"\0" * 100, os.urandom(1000), b"WKVF" + b"\1" * 28):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", p.port), PATIENCE) as s:
            s.sendall(data)
            s.recv(100)
    check("... and it goes on", p.get("/readyz")[0] == 200)


def shared(x):
    """Segments that are cut off, changed or taken away before they are read."""

    def with_segments(act):
        def answer(before, more):
            for name in segments() if b"/worker_kv_" in more else []:
                with contextlib.suppress(OSError):
                    act("/dev/shm/" + name)
            return more

        return answer

    def write(path):
        with open(path, "r+b") as f:
            f.seek(1000)
            f.write(b"\0\1\2\3\4\5\6\7")

    acts = (
        ("cut off", lambda path: os.truncate(path, 1000)),
        ("changed", write),
        ("taken away", os.remove),
        ("open to all", lambda path: os.chmod(path, 0o644)),
    )
    with Worker(program, *PREFILL, "shm") as p:
        for name, act in acts:
            body = body_of()
            with Proxy(p.port, with_segments(act)) as proxy:
                x.right("a segment " + name, body, through(params(p, COMPLETIONS, body), proxy), "damaged")
        body = body_of()
        with Proxy(p.port) as proxy:
            x.right("a segment as it is", body, through(params(p, COMPLETIONS, body), proxy), "done")
        p.until(lambda: not segments())


class Drip(Proxy):
    """A prefill worker's answer that begins as it should and goes on byte by byte, for ever as far as a test goes."""

    def __init__(self, frames):
        (head, packet), (run, blocks), *_ = frames
        self.begins = player([(head, packet), (run, b"")]).removesuffix(b"0\r\n\r\n")
        self.blocks = blocks
        super().__init__(None)

    def serve(self, s):
        with contextlib.suppress(OSError), s:
            s.recv(65536)
            s.sendall(self.begins)
            for byte in self.blocks:
                s.sendall(chunk(bytes([byte])))
                if self.over.wait(0.25):
                    return


def slow(x):
    """Who is silent is asked once for all prompts of a request; who gives byte after byte is given up, and at once if
    nothing was missing."""
    with Worker(program, *PREFILL, "channel") as p:
        several = dict(body_of(), prompt=[text(next(numbers), 100) for _ in range(3)])
        handed = params(p, COMPLETIONS, several)
        with Proxy(None, lambda before, more: b"") as silent:
            x.right("several prompts of a worker that says nothing", several, through(handed, silent), "unreachable")
        body = body_of()
        handed, frames = recorded(p, body)
        with Drip(frames) as drip:
            x.right("a byte now and then", body, through(handed, drip), "unreachable")
            x.right("... of what is there", body, through(handed, drip), "cached")


def kill_at(w, n):
    def answer(before, more):
        if len(before) + len(more) < n:
            return more
        w.process.kill()
        return None

    return answer


def killed(x, way):
    """Either side dies anywhere in a hand-over."""
    for i in range(KILLS):
        with Worker(program, *PREFILL, way) as p:
            body = body_of()
            handed = params(p, COMPLETIONS, body)
            at = draw.randrange(1, 100000 if way == "channel" else 400)
            with Proxy(p.port, kill_at(p, at)) as proxy:
                was = x.right(
                    "%s: killed at byte %d" % (way, at), body, through(handed, proxy), "unreachable", "damaged", "done"
                )
                check("... it was dead", p.process.wait(PATIENCE) != 0 or was == "done")
    with Worker(program, *PREFILL, way) as p:  # removes what a dead one has left
        check(way + ": nothing is left", not segments(), segments())
        for i in range(max(1, KILLS // 5)):
            body = body_of()
            handed = params(p, COMPLETIONS, body)
            with Worker(program, *DECODE, way) as d:
                with Proxy(p.port, kill_at(d, draw.randrange(1, 400))) as proxy, contextlib.suppress(Exception):
                    then(d, COMPLETIONS, body, through(handed, proxy))
            p.until(lambda: not segments())
            x.right(way + ": another worker decodes", body, handed, "done", "unknown")


def left(x):
    """Clients leave, on either side, while pages are computed or travel."""
    with Worker(program, *PREFILL, "channel") as p:
        handed = params(p, COMPLETIONS, body_of())
        with Proxy(p.port, lambda before, more: time.sleep(1) or more) as slow:
            before = pulls(x.d)["stopped"]
            for _ in range(8):  # more than may pull at once
                c = socket.create_connection(("127.0.0.1", x.d.port), PATIENCE)
                data = json.dumps(dict(body_of(), kv_transfer_params=through(handed, slow))).encode()
                head = "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                head += "Content-Length: %d\r\n\r\n"
                c.sendall((head % (COMPLETIONS, len(data))).encode() + data)
                time.sleep(0.05)
                c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                c.close()
            x.d.until(lambda: x.d.metrics()("worker_http_streams") == 0)
            check("who has left pulls no more", pulls(x.d)["stopped"] > before, pulls(x.d))
        body = body_of()
        x.right("... and others do", body, params(p, COMPLETIONS, body), "done")
        for _ in range(4):
            c = socket.create_connection(("127.0.0.1", p.port), PATIENCE)
            asked = dict(body_of(400), max_tokens=1, kv_transfer_params={"do_remote_decode": True})
            data = json.dumps(asked).encode()
            head = "POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            c.sendall((head % (COMPLETIONS, len(data))).encode() + data)
            c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            c.close()
        p.until(lambda: p.metrics()("worker_requests_running") + p.metrics()("worker_requests_queued") == 0)
        places = [params(p, COMPLETIONS, body_of())["do_remote_prefill"] for _ in range(3)]
        check("a prompt whose client left takes no place for good", all(places), places)


def expired(x, p, body, handed, offered):
    """What nobody has taken within 30 s is gone."""
    time.sleep(max(0, offered + 32 - time.monotonic()))  # as a rule the other tests have taken longer
    x.right("a hand-over that has waited too long", body, handed, "unknown")
    p.until(lambda: p.metrics()("worker_kv_transfer_waiting") == 0)
    check("... is counted", p.metrics()("worker_kv_transfer_offers_total", result="expired") == 1)


with Worker(program) as u, Worker(program, *DECODE, "peer") as d, Worker(program, *PREFILL, "channel") as old:
    x = Deployment(u, d)
    waits = body_of()
    handed, offered = params(old, COMPLETIONS, waits), time.monotonic()
    strangers(x)
    replayed(x)
    shared(x)
    slow(x)
    left(x)
    broken(x, "channel")
    broken(x, "shm")
    killed(x, "channel")
    killed(x, "shm")
    killed(x, "peer")
    expired(x, old, waits, handed, offered)
    check("the decode worker is as it was", d.get("/readyz")[0] == 200)
    body = body_of()
    with Worker(program, *PREFILL, "shm") as p:
        check("... and pulls", became(d, lambda: both(p, d, COMPLETIONS, body))[1] == ["done"])
        p.until(lambda: p.metrics()("worker_kv_transfer_waiting") == 0)
    d.until(lambda: d.metrics()("worker_kv_cache_usage_ratio") == 0)
    check("all its pages are free, or cached", d.metrics()("worker_kv_cache_pages", state="used") == 0)
check("nothing is left in shared memory", not segments(), segments())
done()
