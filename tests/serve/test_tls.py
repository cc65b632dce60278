#!/usr/bin/env python3
"""The service over TLS: what refuses to start, versions and ciphers, clients' certificates, reloads by SIGHUP, clients
that stall, lie and leave. Certificates are made here, by openssl."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading

from service import LONG, PATIENCE, Worker, check, done, each_event, free_port, skip, start_lines

program = sys.argv[1]
folder = tempfile.mkdtemp(prefix="worker-tls-")
STALLED = 100
KEYS = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")

if not shutil.which("openssl"):
    skip("openssl is not installed")


def path(name):
    return os.path.join(folder, name)


def openssl(*words, text=""):
    """(status, what it said) of a command of openssl."""
    r = subprocess.run(
        ["openssl", *words], input=text, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=folder
    )
    return r.returncode, r.stdout + r.stderr


def make(name, subject, issuer=None, days="30", names=None, ca=False):
    """name.pem and name.key; signed by itself without an issuer."""
    with open(path(name + ".cnf"), "w", encoding="ascii") as f:
        f.write("basicConstraints=CA:%s\n" % ("TRUE" if ca else "FALSE"))
        if names:
            f.write("subjectAltName=%s\n" % names)
    status, said = openssl("req", "-new", *KEYS, "-keyout", name + ".key", "-out", name + ".csr", "-subj", subject)
    signer = ("-CA", issuer + ".pem", "-CAkey", issuer + ".key") if issuer else ("-signkey", name + ".key")
    if not status:
        words = ("-in", name + ".csr", "-out", name + ".pem", "-days", days, "-extfile", name + ".cnf")
        status, said = openssl("x509", "-req", *words, *signer)
    if status:
        raise RuntimeError(said)
    os.chmod(path(name + ".key"), 0o600)


def options(cert="server", client_ca=None):
    words = ["--tls-cert", path(cert + ".pem"), "--tls-key", path(cert + ".key")]
    return words + (["--tls-client-ca", path(client_ca + ".pem")] if client_ca else [])


def context(who=None, version=None, ciphers=None):
    c = ssl.create_default_context(cafile=path("ca.pem"))
    if version:
        c.minimum_version = c.maximum_version = version
    if ciphers:
        c.set_ciphers(ciphers)
    if who:
        c.load_cert_chain(path(who + ".pem"), path(who + ".key"))
    return c


class Secure(Worker):
    """A worker that is asked over TLS."""

    who = None

    def connection(self, port=None):
        return http.client.HTTPSConnection("127.0.0.1", port or self.port, timeout=PATIENCE, context=context(self.who))

    def link(self, c=None):
        """A connection after its handshake."""
        s = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        try:
            return (c or context(self.who)).wrap_socket(s, server_hostname="127.0.0.1")
        except OSError:
            s.close()
            raise


class Trusted(Secure):
    """The same, of a worker that asks for certificates."""

    who = "client"


def run(*words):
    r = subprocess.run([program, "serve", *words], capture_output=True, text=True, timeout=PATIENCE, check=False)
    return r.returncode, r.stderr


def everything(s):
    """All that comes until the end; None: a reset, or an alert."""
    got = b""
    try:
        while part := s.recv(65536):
            got += part
    except OSError:
        return got or None
    return got


def refused_starts():
    port = str(free_port())
    cert, key = path("server.pem"), path("server.key")
    openssl("genrsa", "-out", "weak.key", "1024")
    openssl("req", "-x509", "-key", "weak.key", "-out", "weak.pem", "-subj", "/CN=x", "-days", "3")
    openssl("pkey", "-in", "server.key", "-aes128", "-passout", "pass:secret", "-out", "locked.key")
    for name, status, said, words in (
        ("a certificate alone", 2, "--tls-key is missing", ("--tls-cert", cert)),
        ("a key alone", 2, "--tls-cert is missing", ("--tls-key", key)),
        ("a client CA alone", 2, "--tls-client-ca", ("--tls-client-ca", cert)),
        ("no certificate there", 1, "No such file", ("--tls-cert", path("none.pem"), "--tls-key", key)),
        ("no key there", 1, "No such file", ("--tls-cert", cert, "--tls-key", path("none.key"))),
        ("a folder", 1, "not a regular file", ("--tls-cert", folder, "--tls-key", key)),
        ("another's key", 1, "not that of the certificate", ("--tls-cert", cert, "--tls-key", path("next.key"))),
        ("a key with a passphrase", 1, "passphrase", ("--tls-cert", cert, "--tls-key", path("locked.key"))),
        ("a weak key", 1, "2048", ("--tls-cert", path("weak.pem"), "--tls-key", path("weak.key"))),
        ("no client CA there", 1, "No such file", (*options(), "--tls-client-ca", path("none.pem"))),
        ("a client CA that is a key", 1, "certificates in PEM", (*options(), "--tls-client-ca", key)),
    ):
        got, err = run("--port", port, *words)
        last = err.strip().split("\n")[-1]
        check("refused: " + name, got == status and said in last, (got, err))
        check("... by its code", got == 2 or "TLS_FAILED" in last, last)


def warnings():
    os.chmod(path("server.key"), 0o644)
    with Secure(program, *options()) as w:
        check("a key that everybody may read: a warning", "everybody" in w.said() and '"warning"' in w.said(), w.said())
    os.chmod(path("server.key"), 0o600)
    with Secure(program, *options("expired"), wait=False) as w:
        w.until(lambda: "expired" in w.said())
        check("an expired certificate: a warning", "has expired at" in w.said(), w.said())
        check("... and no end", w.process.poll() is None)
    with Secure(program, *options()) as w:
        check("otherwise none", "tls_odd" not in w.said(), w.said())
    with open(path("tls.ini"), "w", encoding="utf-8") as f:
        f.write("[server.tls]\ncert = %s\nkey = %s\n" % (path("server.pem"), path("server.key")))
    with Secure(program, "--config", path("tls.ini")) as w:
        check("keys of a file", w.get("/readyz")[0] == 200)
    variables = {"WORKER_TLS_CERT": path("server.pem"), "WORKER_TLS_KEY": path("server.key")}
    with Secure(program, environment=variables) as w:
        check("variables", w.get("/readyz")[0] == 200)
        check("the second port speaks it, too", w.get("/readyz", port=w.admin)[0] == 200)


def s_client(w, *words, text=""):
    return openssl("s_client", "-connect", "127.0.0.1:%d" % w.port, "-CAfile", "ca.pem", *words, text=text)


def versions(w):
    for flag, good in (("-tls1", False), ("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)):
        status, said = s_client(w, flag, "-cipher", "DEFAULT:@SECLEVEL=0")
        made = status == 0 and "Verify return code: 0 (ok)" in said
        check("%s is %s" % (flag[1:], "served" if good else "refused"), made == good, said)
    for cipher in ("AES128-SHA", "AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-SHA", "ECDHE-ECDSA-AES256-SHA384", "aNULL"):
        status, said = s_client(w, "-tls1_2", "-cipher", cipher + ":@SECLEVEL=0")
        check(cipher + " is refused", status != 0 and "(NONE)" in said, said)
    for cipher in ("ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"):
        status, said = s_client(w, "-tls1_2", "-cipher", cipher)
        check(cipher + " is served", status == 0 and "Cipher is " + cipher in said, said)
        check("... with Secure Renegotiation, uncompressed", "Compression: NONE" in said, said)
    status, said = s_client(w, "-tls1_3", "-alpn", "h2,http/1.1")
    check("HTTP/1.1 is chosen", "ALPN protocol: http/1.1" in said, said)
    check("no early data, no tickets", "Max Early Data" not in said and "TLS session ticket:" not in said, said)
    # "R" on a line of its own asks for new keys in the middle of a connection
    status, said = s_client(w, "-tls1_2", text="R\n")
    check("a renegotiation by the client is refused", "RENEGOTIATING" in said and "no renegotiation" in said, said)
    check("... and the next client served", w.get("/readyz")[0] == 200)


def strangers(w):
    """What comes to the port and is no TLS, or not all of it."""
    for name, data, said in (
        ("plain HTTP", b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", b'"message":"this port speaks https"'),
        ("plain HTTP of /v1", b"GET /v1/models HTTP/1.1\r\n", b'{"error":{"message":"this port speaks https"'),
        ("garbage", bytes(range(200)), None),
        ("a record of garbage", b"\x16\x03\x01\x00\xc8" + bytes(200), None),
        ("the end at once", b"", None),
    ):
        with socket.create_connection(("127.0.0.1", w.port), PATIENCE) as s:
            s.sendall(data)
            if not data:
                s.shutdown(socket.SHUT_WR)
            got = everything(s)
        if said:
            check(name + ": told so", (got or b"").startswith(b"HTTP/1.1 400 ") and said in got, got)
        else:
            check(name + ": no HTTP", b"HTTP/" not in (got or b""), got)
    with contextlib.closing(Worker.connection(w)) as c:
        c.request("GET", "/readyz")
        answer = c.getresponse()
        body = answer.read()
    check("http.client is told, too", answer.status == 400 and b"https" in body, (answer.status, body))
    idle = [socket.create_connection(("127.0.0.1", w.port), PATIENCE) for _ in range(STALLED)]
    for n, s in enumerate(idle):
        s.sendall((b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")[n % 3])
    check(
        "%d handshakes that stall: others are served" % STALLED,
        all(w.get("/readyz")[0] == 200 and w.get("/readyz", port=w.admin)[0] == 200 for _ in range(20)),
    )
    slow = idle[2]
    check("... and they have an end", everything(slow) in (b"", None))
    for s in idle:
        s.close()
    with w.link() as s:
        check("a handshake and then nothing has an end", everything(s) == b"")


def requests(w):
    c = w.connection()
    for n in range(50):
        c.request("GET", "/livez", headers={"Connection": "keep-alive"})
        r = c.getresponse()
        if r.read() == b"" or r.status != 200 or r.getheader("Connection") != "keep-alive":
            check("keep-alive, request %d" % n, False, r.status)
    c.close()
    text = "a haiku " * 100000
    status, whole = w.post("/tokenize", {"content": text})
    check("a body of 800 kB", status == 200, whole)
    pieces = (json.dumps({"content": text}).encode()[n : n + 10000] for n in range(0, 900000, 10000))
    c = w.connection()
    c.request("POST", "/tokenize", pieces, {"Content-Type": "application/json"}, encode_chunked=True)
    r = c.getresponse()
    check("... in chunks", r.status == 200 and json.loads(r.read()) == whole, r.status)
    c.close()
    with w.link() as s:
        s.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        socket.socket.shutdown(s, socket.SHUT_WR)  # below TLS, which has not ended
        got = everything(s)
        check("a half-closed connection is answered", (got or b"").startswith(b"HTTP/1.1 200 "), got)
    with w.link() as s:
        s.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        got = everything(s)
        check("the end is said in order", (got or b"").startswith(b"HTTP/1.1 200 "), got)


BODY = {"job_id": "same", "prompt": "Once upon a time", "max_tokens": 60, "temperature": 0, "seed": 1}


def events_of(w):
    """Every event of a stream, without what is the moment's."""
    c = w.connection() if isinstance(w, Secure) else http.client.HTTPConnection("127.0.0.1", w.port, timeout=PATIENCE)
    c.request("POST", "/execute", json.dumps(BODY), {"Content-Type": "application/json"})
    r = c.getresponse()
    out = [(name, json.dumps(data)) for name, data in each_event(r) if name == "token"]
    c.close()
    return r.status, sorted(k.lower() for k in r.headers), out


def same_stream(secure):
    with Worker(program, *LONG) as w:
        plain = events_of(w)
    over = events_of(secure)
    check("a stream over TLS is the plain one", plain == over and len(over[2]) > 10, (plain, over))


def leavers(w):
    """A client that goes in the middle is seen to go, in order or not."""
    for name in ("in order", "in silence", "by a reset"):
        s = w.link()
        job = "left-" + name.replace(" ", "-")
        body = json.dumps(
            {"job_id": job, "prompt": "x", "max_tokens": 30000, "temperature": 0, "repetition_penalty": 0.01}
        ).encode()
        s.sendall(
            b"POST /execute HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % len(body)
            + body
        )
        got = b""
        while b"event: token" not in got:
            got += s.recv(65536)
        if name == "in order":
            with contextlib.suppress(OSError):
                s.setblocking(False)
                s.unwrap()
        if name == "by a reset":
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        s.close()
        ends = lambda job=job: [line for line in w.said().splitlines() if '"execute_end"' in line and job in line]
        w.until(ends)
        told = [json.loads(line) for line in ends()]
        check("a client that leaves " + name + " is seen", told and told[-1]["client_gone"] is True, told)


def certificates():
    with Trusted(program, *options(client_ca="ca")) as w:
        check("the right certificate", w.get("/readyz")[0] == 200)
        for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
            for name, who in (("none", None), ("a stranger's", "stranger"), ("an expired one", "late")):
                got = None
                with contextlib.suppress(OSError), w.link(context(who, version)) as s:
                    s.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                    got = everything(s)
                check("%s, certificate: %s: refused" % (version.name, name), not got, got)
            with w.link(context("client", version)) as s:
                s.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                check("%s: the right one after them" % version.name, b"200 OK" in (everything(s) or b""))


def shown(w):
    with w.link() as s:
        return s.getpeercert()["serialNumber"]


def reloads():
    for name in ("pem", "key"):
        shutil.copy(path("server." + name), path("now." + name))
    with Secure(program, *options("now")) as w:
        first = shown(w)
        kept = w.connection()
        kept.request("GET", "/livez", headers={"Connection": "keep-alive"})
        kept.getresponse().read()
        shutil.copy(path("next.pem"), path("now.pem"))
        w.process.send_signal(signal.SIGHUP)
        w.until(lambda: "TLS_FAILED" in w.said())
        check("a reload that fails is an error event", "not that of the certificate" in w.said(), w.said())
        check("... and keeps what there was", shown(w) == first)
        shutil.copy(path("next.key"), path("now.key"))
        w.process.send_signal(signal.SIGHUP)
        w.until(lambda: "tls_reloaded" in w.said())
        check("new connections see the new one", shown(w) != first)
        kept.request("GET", "/livez")
        check("an old connection goes on", kept.getresponse().status == 200)
        for _ in range(20):
            w.process.send_signal(signal.SIGHUP)
        check("many signals do no harm", w.get("/readyz")[0] == 200)
        check("ends with 0", w.end() == 0)
    with Worker(program) as w:
        w.process.send_signal(signal.SIGHUP)
        check("without TLS SIGHUP ends the process, as ever", w.status() == -signal.SIGHUP)


def first_minutes():
    port = free_port()
    p = subprocess.Popen(
        [program, "serve", "--port", str(port), *options()], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        said = start_lines(p)
        check("it says https", any("https://127.0.0.1:%d" % port in line for line in said), said)
        check("... everywhere", not any("http://" in line for line in said), said)
    finally:
        threading.Thread(target=p.stdout.read, daemon=True).start()
        p.terminate()
        p.stderr.read()
        p.wait(PATIENCE)


make("ca", "/CN=test CA", ca=True)
make("other", "/CN=another CA", ca=True)
NAMES = "DNS:localhost,IP:127.0.0.1"
make("server", "/CN=server", "ca", names=NAMES)
make("next", "/CN=server", "ca", names=NAMES)
make("expired", "/CN=server", "ca", names=NAMES, days="-1")
make("client", "/CN=client", "ca")
make("stranger", "/CN=client", "other")
make("late", "/CN=client", "ca", days="-1")
try:
    refused_starts()
    warnings()
    with Secure(program, *LONG, *options()) as running:
        versions(running)
        strangers(running)
        requests(running)
        same_stream(running)
        leavers(running)
    certificates()
    reloads()
    first_minutes()
finally:
    shutil.rmtree(folder, ignore_errors=True)
done()
