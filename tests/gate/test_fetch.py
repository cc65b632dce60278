#!/usr/bin/env python3
"""test_fetch.py PROBE LIBEXECDIR: what connects out for the gate: what it may, what it refuses, that it is
in nobody's way."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from servers import Authority, Probe, Server, check, done, drip, flood, hang, raw, until

PLAIN = {
    "/": (200, b"hello"),
    "/404": (404, b"no"),
    "/empty": (200, b""),
    "/cookie": (200, b"c", {"Set-Cookie": "a=b"}),
}
HEAD = b"HTTP/1.1 200 OK\r\n"


def answers(request):
    path = request.path.split("?")[0]
    if path in PLAIN:
        return PLAIN[path]
    if path == "/echo":
        return 200, request.body
    if path.startswith("/bytes/"):
        return 200, b"b" * int(path.split("/")[2])
    return {
        "/redirect": (302, b"", {"Location": "http://127.0.0.1:1/"}),
        "/hang": hang,
        "/drip": drip(HEAD + b"Content-Length: 100000\r\n\r\n"),
        "/dripped-head": drip(HEAD, b"X: y\r\n"),
        "/dripped-body": drip(HEAD + b"\r\n"),
        "/head-flood": flood(HEAD, b"X: " + b"y" * 1000 + b"\r\n"),
        "/body-flood": flood(HEAD + b"\r\n"),
        "/chunks": flood(HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"400\r\n" + b"z" * 1024 + b"\r\n"),
        "/garbage": raw(b"\0\xff\xfe not HTTP at all\r\n\r\n"),
        "/http09": raw(b"just text"),
        "/nothing": raw(b""),
        "/cut": raw(HEAD + b"Content-Length: 100\r\n\r\nshort"),
        "/long": raw(HEAD + b"Content-Length: 99999999999\r\n\r\n"),
        "/status": raw(b"HTTP/1.1 0 x\r\n\r\n"),
    }[path]


def certificates(probe, authority, folder, good):
    other = Authority(folder, "other-ca")
    ok = probe.ask("fetch", url=good.url + "/", ca=authority.file)
    check("https with the test's CA", ok["status"] == "ok" and ok["code"] == 200 and ok["body"] == "hello", ok)
    stranger = Server(answers, tls=other.server("stranger"))
    misnamed = Server(answers, tls=authority.server("misnamed", "DNS:other.test"))
    for name, url, ca in (
        ("the system's CAs do not know the test's", good.url, None),
        ("a server of another CA", stranger.url, authority.file),
        ("another CA", good.url, other.file),
        ("a certificate for another host", misnamed.url, authority.file),
        ("a CA file that is not there", good.url, folder + "/nowhere.pem"),
        ("a CA file that is none", good.url, os.path.join(folder, "none.pem")),
    ):
        no = probe.ask("fetch", url=url + "/", ca=ca)
        text = no["text"].lower()
        check(name, no["status"] == "io" and ("certificate" in text or "ssl" in text) and url in no["text"], no)
    check("none of them was asked", not stranger.requests and not misnamed.requests)
    plain = probe.ask("fetch", url=good.url.replace("https", "http") + "/", https_only=True)
    check("https only", plain["status"] == "invalid", plain)


def rules(probe, server):
    for name, more in (
        ("a file", {"url": "file:///etc/passwd"}),
        ("ftp", {"url": "ftp://127.0.0.1/"}),
        ("a user", {"url": "http://user:word@127.0.0.1/"}),
        ("a space", {"url": "http://127.0.0.1/a b"}),
        ("a line's end", {"url": "http://127.0.0.1/\r\nX: y"}),
        ("no host", {"url": "http:///x"}),
        ("no URL", {"url": ""}),
        ("a long URL", {"url": "http://127.0.0.1/" + "x" * 4096}),
        ("another method", {"url": server.url, "method": "TRACE"}),
        ("DELETE with a body", {"url": server.url, "method": "DELETE", "body": "x"}),
        ("GET with a body", {"url": server.url, "body": "x"}),
        ("a header of two lines", {"url": server.url, "headers": ["A: b\r\nC: d"]}),
        ("a header without a colon", {"url": server.url, "headers": ["abc"]}),
        ("nine headers", {"url": server.url, "headers": ["A: b"] * 9}),
        ("no time", {"url": server.url, "timeout": 0}),
        ("too much", {"url": server.url, "most": (1 << 24) + 1}),
    ):
        no = probe.ask("fetch", **more)
        check("refused: " + name, no["status"] == "invalid" and no["text"], no)
    before = len(server.requests)
    moved = probe.ask("fetch", url=server.url + "/redirect")
    check("a redirect is an answer", moved["status"] == "ok" and moved["code"] == 302, moved)
    check("and is not followed", len(server.requests) == before + 1)
    probe.ask("fetch", url=server.url + "/cookie")
    probe.ask("fetch", url=server.url + "/")
    last = server.requests[-1].headers
    check("no cookies, no compression", "cookie" not in last and "accept-encoding" not in last, last)
    body = "x" * 70000
    posted = probe.ask(
        "fetch",
        method="POST",
        url=server.url + "/echo?a=b",
        body=body,
        type="text/plain",
        headers=["X-One: 1", "X-Two: 2"],
    )
    r = server.requests[-1]
    check(
        "POST",
        posted["status"] == "ok" and posted["bytes"] == 70000 and r.body == body.encode() and r.path == "/echo?a=b",
    )
    sent = [r.headers.get(k) for k in ("content-type", "x-one", "x-two", "expect")]
    check("its headers", sent == ["text/plain", "1", "2", None], sent)
    check("POST without a body", probe.ask("fetch", method="POST", url=server.url + "/echo")["bytes"] == 0)
    check("404 is an answer", probe.ask("fetch", url=server.url + "/404")["code"] == 404)
    before = server.connections
    for _ in range(20):
        probe.ask("fetch", url=server.url + "/")
    check("connections go on", server.connections <= before + 1, server.connections - before)
    check("nothing at all", probe.ask("fetch", url=server.url + "/empty", most=0)["bytes"] == 0)


def limits(probe, server):
    exact = probe.ask("fetch", url=server.url + "/bytes/1000", most=1000)
    check("the largest answer", exact["status"] == "ok" and exact["bytes"] == 1000, exact)
    for name, path, text, most in (
        ("one byte more", "/bytes/1001", "longer than allowed", 1000),
        ("a length of 99 GB", "/long", "longer than allowed", 1000),
        ("a body without end", "/body-flood", "longer than allowed", 1 << 20),
        ("chunks without end", "/chunks", "longer than allowed", 1 << 20),
        ("header lines without end", "/head-flood", "longer than 64 KiB", 1 << 20),
        ("no HTTP", "/garbage", "", 1000),
        ("HTTP 0.9", "/http09", "", 1000),
        ("closed without an answer", "/nothing", "", 1000),
        ("a body that is cut", "/cut", "", 1000),
        ("no status", "/status", "", 1000),
    ):
        no = probe.ask("fetch", url=server.url + path, most=most)
        check("fails: " + name, no["status"] == "io" and text in no["text"] and path in no["text"], no)
    for path in ("/hang", "/drip", "/dripped-head"):
        no = probe.ask("fetch", url=server.url + path + "?secret", timeout=400)
        good = no["status"] == "io" and "no complete answer within" in no["text"] and "secret" not in no["text"]
        check("in time: " + path, good, no)
    closed = Server(answers)
    closed.close()
    no = probe.ask("fetch", url=closed.url)
    check("nobody listens", no["status"] == "io" and "connect" in no["text"].lower(), no)
    no = probe.ask("fetch", url="http://name.invalid/", timeout=5000)
    check("no such name", no["status"] == "io" and no["text"], no)


def streams(probe, server):
    """Bodies that are handed on while they come."""
    s = probe.ask("stream", url=server.url + "/bytes/200000")
    good = s["status"] == "ok" and s["code"] == 200 and s["bytes"] == 200000 and s["parts"] > 1
    check("a body in parts", good and not s["whole"], s)
    s = probe.ask("stream", method="POST", url=server.url + "/echo", body="a" * 3000)
    check("all of it in order", s["body"] == "a" * 3000, s)
    s = probe.ask("stream", url=server.url + "/404")
    check("another status comes with the parts", s["status"] == "ok" and s["code"] == 404 and s["body"] == "no", s)
    s = probe.ask("stream", url=server.url + "/empty")
    check("no part at all", s["status"] == "ok" and s["code"] == 200 and s["parts"] == 0, s)
    s = probe.ask("stream", url=server.url + "/dripped-body", most=20)
    good = s["status"] == "io" and "longer than allowed" in s["text"]
    check("parts come before the end, and are counted", good and 1 < s["parts"] and s["bytes"] == 20, s)
    s = probe.ask("stream", url=server.url + "/hang", timeout=2000)
    check("silence has an end", s["status"] == "io" and "nothing came for" in s["text"] and s["parts"] == 0, s)
    s = probe.ask("stream", url=server.url + "/cut")
    check("a body that is cut fails behind its parts", s["status"] == "io" and s["body"] == "short", s)
    s = probe.ask("stream", url=server.url + "/", timeout=1999)
    check("less than 2 s are refused", s["status"] == "invalid", s)
    all_ = probe.ask("stream", url=server.url + "/bytes/3000", most=4000, times=50)["all"]
    check("50 at one time", all(a["status"] == "ok" and a["bytes"] == 3000 for a in all_))


def many(probe, server):
    all_ = probe.ask("fetch", url=server.url + "/bytes/3000", most=4000, times=300)["all"]
    check("300 at one time", all(a["status"] == "ok" and a["bytes"] == 3000 for a in all_))
    waiting = probe.later("fetch", url=server.url + "/hang", timeout=3000, most=1000, times=100)
    all_ = waiting()["all"]
    check("100 that hang, each to its end", all("no complete answer" in a["text"] for a in all_))
    over = probe.ask("fetch", url=server.url + "/hang", timeout=2000, most=1 << 24, times=30)["all"]
    refused = [a for a in over if "too many requests" in a["text"]]
    check("answers of 480 MiB are not promised", len(refused) >= 26 and len(refused) < 30, len(refused))
    taken = probe.ask("start", url=server.url + "/hang", timeout=3000, most=1000, count=500)
    check("posts that nobody waits for are bounded", taken["taken"] == 128 and "too many" in taken["text"], taken)
    check("and are in nobody's way", probe.ask("fetch", url=server.url + "/")["status"] == "ok")
    until(lambda: probe.ask("ended")["failed"] == 128, "each of them ends")
    probe.ask("start", url=server.url + "/", most=1000, count=50)
    until(lambda: probe.ask("ended")["answered"] == 50, "others are answered")


def helper(probe, server):
    first = probe.helpers()
    check("one process", len(first) == 1, first)
    os.kill(first[0], signal.SIGTERM)
    os.kill(first[0], signal.SIGINT)
    check("signals for the worker do not end it", probe.ask("fetch", url=server.url + "/")["status"] == "ok")
    check("it is still the same", probe.helpers() == first)
    waiting = probe.later("fetch", url=server.url + "/hang", times=3)
    until(lambda: sum(r.path == "/hang" for r in server.requests[-3:]) == 3, "three wait")
    os.kill(first[0], signal.SIGKILL)
    lost = waiting()["all"]
    check("killed: who waited hears it", all("signal 9" in a["text"] and a["status"] == "io" for a in lost), lost)
    gone = first
    for i in range(5):
        until(lambda: probe.helpers() not in ([], gone), "it is started again")  # noqa: B023
        gone = probe.helpers()
        ok = probe.ask("fetch", url=server.url + "/")
        check("and serves", ok["status"] == "ok", ok)
        if i < 4:
            os.kill(gone[0], signal.SIGKILL)
    starts = probe.ask("ended")["starts"]
    check("as often as it ended", starts == 6, starts)
    (now,) = probe.helpers()
    os.kill(now, signal.SIGSTOP)
    no = probe.ask("fetch", url=server.url + "/", timeout=300, times=50)["all"]
    check("stopped: requests end in time", all("no complete answer" in a["text"] for a in no), no[0])
    os.kill(now, signal.SIGCONT)
    check("and go on with it", probe.ask("fetch", url=server.url + "/")["status"] == "ok")


def inheritance(program, folder):
    with open(os.path.join(folder, "private"), "w", encoding="ascii") as f:
        os.set_inheritable(f.fileno(), True)
        probe = Probe(
            program, environment={"SECRET_VARIABLE": "x", "http_proxy": "http://127.0.0.1:1"}, pass_fds=(f.fileno(),)
        )
        probe.ask("ended")
        (pid,) = probe.helpers()
        with open("/proc/%d/environ" % pid, "rb") as e:
            check("no environment", e.read() == b"")
        open_files = [os.readlink("/proc/%d/fd/%s" % (pid, n)) for n in os.listdir("/proc/%d/fd" % pid)]
        check("no descriptor", not any("private" in name for name in open_files), open_files)
        with (
            open("/proc/%d/maps" % pid, encoding="ascii") as m,
            open("/proc/%d/maps" % probe.process.pid, encoding="ascii") as w,
        ):
            check("libcurl is in the helper alone", "libcurl" in m.read() and "libcurl" not in w.read())
        os.kill(probe.process.pid, signal.SIGKILL)
        probe.process.wait()
        until(
            lambda: not os.path.exists("/proc/%d" % pid)
            or b"Z" in open("/proc/%d/stat" % pid, "rb").read().split()[2:3],
            "it ends with its owner",
        )


def installed(program, folder, libexec):
    """PREFIX/bin/... finds PREFIX/libexec/worker/worker-fetch, and says where it looked."""
    prefix = os.path.join(folder, "prefix")
    own, helpers = os.path.join(prefix, "bin"), os.path.join(prefix, libexec, "worker")
    os.makedirs(own)
    os.makedirs(helpers)
    copy = shutil.copy(program, own)
    said = subprocess.run([copy], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    text = said.stdout.decode()
    check("not installed", said.returncode == 1 and "worker/worker-fetch: No such file" in text, text)
    shutil.copy(os.path.join(os.path.dirname(program), "worker-fetch"), helpers)
    probe = Probe(copy)
    check("installed", probe.ask("ended")["starts"] == 1 and probe.end() == 0)


def start_failures(program, folder):
    script = os.path.join(folder, "wrong")
    with open(script, "w", encoding="ascii") as f:
        f.write("#!/bin/sh\nprintf '%s' 'this is not what is expected here' >&0\nexec sleep 60\n")
    os.chmod(script, 0o755)
    for name, helper_program, text in (
        ("is not there", "/nowhere/worker-fetch", "No such file"),
        ("ends at once", "/bin/true", "ended with status 0"),
        ("is something else", script, "what cannot be"),
        ("is no program", os.path.join(folder, "none.pem"), "Permission denied"),
    ):
        said = subprocess.run([program, helper_program], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
        check("a helper that " + name, said.returncode == 1 and text in said.stdout.decode(), said.stdout)


def stop(probe, server):
    begun = time.monotonic()
    probe.ask("start", url=server.url + "/hang", timeout=600000, count=20)
    before = probe.ask("ended")["failed"]
    probe.ask("stop")
    check("stopped: all end", probe.ask("ended")["failed"] == before + 20 and time.monotonic() - begun < 600)
    no = probe.ask("fetch", url=server.url + "/")
    check("and later ones fail", no["status"] == "io" and "the worker ends" in no["text"], no)


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "none.pem"), "w", encoding="ascii") as f:
            f.write("no certificate\n")
        authority = Authority(folder)
        secure, server = Server(answers, tls=authority.server("server")), Server(answers)
        local = os.path.join(folder, "socket")
        Server(answers, unix=local)
        dead = "http://127.0.0.1:1"
        probe = Probe(program, environment={"http_proxy": dead, "https_proxy": dead, "ALL_PROXY": dead})
        certificates(probe, authority, folder, secure)
        rules(probe, server)
        by_socket = probe.ask("fetch", url="http://localhost/", socket=local)
        check("by a socket of this machine", by_socket.get("body") == "hello", by_socket)
        no = probe.ask("fetch", url="http://localhost/", socket=local + "-none")
        check("which is not there", no["status"] == "io", no)
        limits(probe, server)
        streams(probe, server)
        helper(probe, server)
        many(probe, server)
        stop(probe, server)
        check("the end", probe.end() == 0)
        inheritance(program, folder)
        installed(program, folder, sys.argv[2])
        start_failures(program, folder)
    done()


main()
