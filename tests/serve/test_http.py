"""What the service takes for its own and from whom: names, origins, addresses of either kind, connections that go on,
chunked bodies, and who still gets an answer while others are slow."""

import http.client
import json
import os
import socket
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from service import PATIENCE, Worker, check, done

COMPLETION = {"prompt": "Once upon", "max_tokens": 4, "temperature": 0}
SLOW = 110  # bodies that never come
STREAMS = 8


def raw(w, *lines, body=b"", port=None, host="127.0.0.1"):
    """(status, head, body) of one request as it is written here."""
    with socket.create_connection((host, port or w.port), PATIENCE) as c:
        c.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        data = b""
        while piece := c.recv(65536):
            data += piece
    head, _, rest = data.partition(b"\r\n\r\n")
    return int(head.split()[1]) if head else 0, head.decode().lower(), rest.decode(errors="replace")


def named(w, name, **more):
    return raw(w, "GET /livez HTTP/1.1", "Host: " + name, **more)[0]


def names(program):
    with Worker(program, "--host", "0.0.0.0", "--insecure", "--allowed-host", "worker.example.org") as w:
        own = socket.gethostname()
        for name in ("localhost:%d" % w.port, "127.0.0.1", "10.1.2.3:80", "[::1]", own, "worker.example.org:8080"):
            check("Host %s" % name, named(w, name) == 200, named(w, name))
        for name in ("evil.example", "worker.example.org.evil.example", "localhost.evil.example", "2130706433"):
            check("Host %s: 421" % name, named(w, name) == 421, named(w, name))
        check("... on the admin port, too", named(w, "evil.example", port=w.admin) == 421)
        said = raw(w, "POST /v1/completions HTTP/1.1", "Host: evil.example")[2]
        check("... the flag is named, in OpenAI's form", "--allowed-host" in json.loads(said)["error"]["message"], said)
    with Worker(program, "--allowed-host", "*") as w:
        check("--allowed-host *", named(w, "evil.example") == 200)


def pages(program):
    """What a page in somebody's browser can send, and what it cannot."""
    with Worker(program, "--origin", "https://chat.example.org") as w:
        local = "Host: 127.0.0.1:%d" % w.port
        for name, headers in (
            ("another origin", ["Origin: https://evil.example"]),
            ("origin null", ["Origin: null"]),
            ("another site without an origin", ["Sec-Fetch-Site: cross-site"]),
        ):
            for path in ("/shutdown", "/cancel", "/execute", "/worker/commit", "/v1/chat/completions", "/tokenize"):
                status, head, _ = raw(w, "POST %s HTTP/1.1" % path, local, *headers)
                check("%s: POST %s" % (name, path), status == 403 and "allow-origin" not in head, (status, head))
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            status = raw(w, "POST /shutdown HTTP/1.1", local, "Content-Type: " + kind, "Content-Length: 2", body=b"{}")[
                0
            ]
            check("a body of %s" % kind, status == 415, status)
        check(
            "a body without a type", raw(w, "POST /shutdown HTTP/1.1", local, "Content-Length: 2", body=b"{}")[0] == 415
        )
        link = raw(w, "GET / HTTP/1.1", local, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate")
        check("a link to the page", link[0] == 200 and "cross-origin-resource-policy: same-origin" in link[1], link[1])
        status, head, _ = w.ask("POST", "/tokenize", {"content": "a"}, {"Origin": "https://chat.example.org"})
        check(
            "an allowed origin",
            status == 200
            and head["access-control-allow-origin"] == "https://chat.example.org"
            and "x-should-retry" in head["access-control-expose-headers"],
            head,
        )
        for method in ("TRACE", "BREW", "PUT"):
            status, head, said = raw(w, "%s /v1/completions HTTP/1.1" % method, local)
            check(
                "%s: 405, what is allowed, OpenAI's form" % method,
                status == 405 and "allow: post, options" in head and json.loads(said)["error"]["code"],
                (status, head, said),
            )
        check("PUT: the text says what is", "; it serves POST, OPTIONS" in said, said)
        check("it is still there", w.get("/readyz")[0] == 200)
        check("curl -X POST .../shutdown", raw(w, "POST /shutdown HTTP/1.1", local)[0] == 202 and w.status() == 0)
    with Worker(program, "--origin", "*") as w:
        for origin in ("https://any.example", "null"):
            status, head, _ = w.ask("POST", "/tokenize", {"content": "a"}, {"Origin": origin})
            check("--origin *: %s" % origin, status == 200 and head["access-control-allow-origin"] == "*", head)


def addresses(program):
    with socket.socket(socket.AF_INET6) as s:
        try:
            s.bind(("::1", 0))
        except OSError:
            print("this machine has no IPv6: not tried")
            return
    with Worker(program, "--host", "localhost", "--admin-host", "::1", wait=False) as w:
        w.until(lambda: named(w, "localhost") == 200)
        w.until(lambda: raw(w, "GET /readyz HTTP/1.1", "Host: [::1]", port=w.admin, host="::1")[0] == 200)
        check("localhost: 127.0.0.1 and ::1", named(w, "localhost") == named(w, "localhost", host="::1") == 200)
        try:
            named(w, "localhost", port=w.admin)
            check("the admin port is at ::1 alone", False)
        except OSError:
            check("the admin port is at ::1 alone", True)
        status, _, said = raw(
            w,
            "POST /v1/completions HTTP/1.1",
            "Host: [::1]:%d" % w.port,
            "Content-Type: application/json",
            "Content-Length: %d" % len(json.dumps(COMPLETION)),
            body=json.dumps(COMPLETION).encode(),
            host="::1",
        )
        check("a job over IPv6", status == 200 and "choices" in said, said)


def connections(program):
    """One connection for many requests, if the client asks for it."""
    with Worker(program) as w:
        c = http.client.HTTPConnection("127.0.0.1", w.port, timeout=PATIENCE)
        c.connect()
        ours = c.sock.getsockname()
        headers = {"Content-Type": "application/json", "Connection": "keep-alive"}
        answers = []
        for body in (
            json.dumps(COMPLETION),
            iter([json.dumps(COMPLETION).encode()]),
            json.dumps(dict(COMPLETION, stream=True)),
        ):
            c.request("POST", "/v1/completions", body, headers, encode_chunked=not isinstance(body, str))
            answers.append(c.getresponse().read())
            c.request("GET", "/readyz", headers={"Connection": "keep-alive"})
            check("... a probe between", c.getresponse().read() and c.sock and c.sock.getsockname() == ours)
        check(
            "three jobs over one connection",
            json.loads(answers[0])["choices"] == json.loads(answers[1])["choices"],
            answers,
        )
        check("... the stream has its end", answers[2].endswith(b"data: [DONE]\n\n"), answers[2])
        c.close()
        c.request("GET", "/readyz")
        r = c.getresponse()
        check("one request where nothing is asked", r.getheader("Connection") == "close" and r.read(), r.getheaders())
        c.close()


def chunks(program):
    with Worker(program) as w:
        text = json.dumps(COMPLETION).encode()
        head = ("POST /v1/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json")
        chunked = b"%x;a=b\r\n%s\r\n0\r\n\r\n" % (len(text), text)
        status, _, said = raw(w, *head, "Transfer-Encoding: chunked", body=chunked)
        check("a chunked body", status == 200 and json.loads(said)["choices"], said)
        for name, more, body in (
            ("a length too", ["Content-Length: %d" % len(chunked), "Transfer-Encoding: chunked"], chunked),
            ("a trailer", ["Transfer-Encoding: chunked"], chunked[:-2] + b"X: y\r\n\r\n"),
            ("LF alone", ["Transfer-Encoding: chunked"], chunked.replace(b"\r\n", b"\n")),
        ):
            status, _, said = raw(w, *head, *more, body=body)
            check("chunked, %s: 400" % name, status == 400 and "error" in json.loads(said), (status, said))
        size = 17 << 20
        status, _, said = raw(w, *head, "Transfer-Encoding: chunked", body=b"%x\r\n" % size + b" " * size)
        check("chunked, larger than any body: 413", status in (413, 0), (status, said))  # 0: cut off while we sent


def slow(program):
    """Bodies that do not come hold their own places, and nobody else's."""
    with Worker(program, "--max-streams", str(STREAMS)) as w:
        for path, most in (("/tokenize", STREAMS), ("/cancel", None)):
            held = []
            for _ in range(SLOW):
                c = socket.create_connection(("127.0.0.1", w.port), PATIENCE)
                c.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % path.encode())
                c.sendall(b"Content-Length: 1000000\r\n\r\n{" if most else b"Content-Length: 1000\r\n\r\n{")
                held.append(c)
            answers = [w.get(probe)[0] for probe in ("/livez", "/readyz", "/health", "/metrics") * 5]
            check("probes of the main port beside slow bodies of %s" % path, answers == [200] * 20, answers)
            check("... and /cancel", w.post("/cancel", {"job_id": "x"})[0] == 202)
            if most:
                check(
                    "... and no more than their share is waited for", w.metrics(w.admin)("worker_http_streams") <= most
                )
            for c in held:
                c.close()
            w.until(lambda: w.post("/tokenize", {"content": "a"})[0] == 200)


def main():
    program = sys.argv[1]
    names(program)
    pages(program)
    addresses(program)
    connections(program)
    chunks(program)
    slow(program)
    done()


main()
