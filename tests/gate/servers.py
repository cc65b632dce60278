"""What the gate's tests connect to: an authority with certificates, an HTTP server that misbehaves as it is told, an
issuer of tokens. The standard library and the command openssl alone."""

import base64
import contextlib
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "serve"))
from service import check, children, done, skip  # noqa: E402,F401 the tests take them from here

PATIENCE = 120  # seconds: what has not come by then never does
if not shutil.which("openssl"):
    skip("no openssl command here")


def openssl(*arguments, data=None):
    return subprocess.run(
        ["openssl", *arguments], input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
    ).stdout


def until(what, name):
    """Waits for what must come; whether it came in time is no result."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    check(name, False, "it never came")
    return False


class Authority:
    """A CA of the test's own; .file is what clients are told."""

    def __init__(self, folder, name="ca"):
        self.folder, self.key, self.made = folder, os.path.join(folder, name + ".key"), {}
        self.file = os.path.join(folder, name + ".pem")
        openssl(
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-keyout",
            self.key,
            "-out",
            self.file,
            "-subj",
            "/CN=" + name,
            "-days",
            "30",
        )

    def server(self, name, hosts="IP:127.0.0.1,DNS:localhost"):
        """Certificate and key of a server with these names; made once for them."""
        if hosts in self.made:
            return self.made[hosts]
        key, request, certificate = (os.path.join(self.folder, name + end) for end in (".key", ".csr", ".pem"))
        extensions = os.path.join(self.folder, name + ".ext")
        with open(extensions, "w", encoding="ascii") as f:
            f.write("subjectAltName=%s\nbasicConstraints=CA:FALSE\n" % hosts)
        openssl("req", "-new", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", "/CN=" + name)
        openssl(
            "x509",
            "-req",
            "-in",
            request,
            "-CA",
            self.file,
            "-CAkey",
            self.key,
            "-CAcreateserial",
            "-days",
            "30",
            "-extfile",
            extensions,
            "-out",
            certificate,
        )
        self.made[hosts] = certificate, key
        return certificate, key


class Request:
    def __init__(self, method, path, headers, body):
        self.method, self.path, self.headers, self.body = method, path, headers, body


class Server:
    """answer(request) gives (status, body), (status, body, headers), or a function that does what it likes with the
    connection, which is closed then. tls: certificate and key; unix: path of a socket instead of a port."""

    def __init__(self, answer, tls=None, unix=None):
        self.answer, self.requests, self.connections, self.context = answer, [], 0, None
        if tls:
            self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.context.load_cert_chain(*tls)
        if unix:
            self.listener = socket.socket(socket.AF_UNIX)
            self.listener.bind(unix)
        else:
            self.listener = socket.socket()
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.listener.bind(("127.0.0.1", 0))
            self.port = self.listener.getsockname()[1]
            self.url = "%s://127.0.0.1:%d" % ("https" if tls else "http", self.port)
        self.closing = threading.Event()
        self.start()

    def start(self):
        self.listener.listen(1024)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                c = self.listener.accept()[0]
                threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def close(self):
        self.closing.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def serve(self, c):
        with contextlib.suppress(OSError, ValueError), c:
            c.settimeout(PATIENCE)
            if self.context:
                c = self.context.wrap_socket(c, server_side=True)
            self.connections += 1
            with c, c.makefile("rb") as f:
                while self.one(c, f):
                    pass

    def one(self, c, f):
        line = f.readline().split()
        if len(line) != 3:
            return False
        headers = {}
        while (h := f.readline().strip()) != b"":
            name, value = h.decode("latin-1").split(":", 1)
            headers[name.lower()] = value.strip()
        body = f.read(int(headers.get("content-length", "0")))
        request = Request(line[0].decode(), line[1].decode(), headers, body)
        self.requests.append(request)
        answer = self.answer(request)
        if callable(answer):
            answer(c)
            return False
        status, body = answer[:2]
        more = "".join("%s: %s\r\n" % pair for pair in (answer[2] if len(answer) > 2 else {}).items())
        c.sendall(b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n%s\r\n" % (status, len(body), more.encode()) + body)
        return not self.closing.is_set()


def hang(c):
    """Says nothing until the client goes."""
    with contextlib.suppress(OSError):
        while c.recv(4096):
            pass


def raw(data):
    return lambda c: c.sendall(data)


def drip(head, piece=b" ", pause=0.05):
    """Never ends, a byte at a time."""

    def act(c):
        c.sendall(head)
        with contextlib.suppress(OSError):
            while True:
                c.sendall(piece)
                time.sleep(pause)

    return act


def flood(head, piece=b"x" * 65536):
    return drip(head, piece, 0)


# ---- tokens


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Key:
    """A private key of an issuer."""

    def __init__(self, folder, kid, alg="RS256"):
        self.kid, self.alg, self.path = kid, alg, os.path.join(folder, "%s-%s.key" % (kid, alg))
        if alg == "RS256":
            openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", self.path)
        else:
            openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", self.path)

    def jwk(self):
        common = {"kid": self.kid, "alg": self.alg, "use": "sig"}
        if self.alg == "RS256":
            modulus = openssl("rsa", "-in", self.path, "-noout", "-modulus").decode().strip().split("=")[1]
            return dict(common, kty="RSA", n=b64(bytes.fromhex(modulus)), e="AQAB")
        point = openssl("pkey", "-in", self.path, "-pubout", "-outform", "DER")[-64:]
        return dict(common, kty="EC", crv="P-256", x=b64(point[:32]), y=b64(point[32:]))

    def token(self, claims, **header):
        head = dict({"alg": self.alg, "kid": self.kid, "typ": "JWT"}, **header)
        head = {name: value for name, value in head.items() if value is not None}
        text = b64(json.dumps(head).encode()) + "." + b64(json.dumps(claims).encode())
        signature = openssl("dgst", "-sha256", "-sign", self.path, data=text.encode())
        if self.alg == "ES256":  # DER: 30 len 02 len r 02 len s
            n = signature[3]
            r, s = signature[4 : 4 + n], signature[6 + n :]
            signature = b"".join(i.lstrip(b"\0").rjust(32, b"\0") for i in (r, s))
        return text + "." + b64(signature)


class Issuer(Server):
    """Its documents may be replaced: discovery and jwks are (status, body) or a misbehaviour; None: as it should be."""

    def __init__(self, authority, keys, name="issuer", hosts="IP:127.0.0.1,DNS:localhost"):
        self.keys, self.discovery, self.jwks, self.fallback = keys, None, None, (404, b"")
        super().__init__(self.reply, tls=authority.server(name, hosts))

    def reply(self, request):
        if request.path == "/.well-known/openid-configuration":
            document = {"issuer": self.url, "jwks_uri": self.url + "/keys", "response_types_supported": ["code"]}
            return self.discovery or (200, json.dumps(document).encode())
        if request.path == "/keys":
            return self.jwks or (200, json.dumps({"keys": [k.jwk() for k in self.keys]}).encode())
        return self.fallback if request.path == "/.well-known/jwks.json" else (404, b"")

    def claims(self, **more):
        now = int(time.time())
        return dict({"iss": self.url, "aud": "worker", "sub": "alice", "iat": now, "exp": now + 600}, **more)

    def asked(self, path="/keys"):
        return sum(r.path == path for r in self.requests)


# ---- the program that is driven


class Probe:
    """The gate's parts in a process; ask() runs one command."""

    def __init__(self, program, *arguments, environment=None, **more):
        self.process = subprocess.Popen(
            [program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ, **(environment or {})),
            **more,
        )
        self.lock = threading.Lock()

    def ask(self, do, **more):
        with self.lock:
            self.process.stdin.write(json.dumps(dict(more, do=do)) + "\n")
            self.process.stdin.flush()
            return json.loads(self.process.stdout.readline())

    def later(self, do, **more):
        """Sends the command; the answer comes by calling what is returned."""
        self.lock.acquire()
        self.process.stdin.write(json.dumps(dict(more, do=do)) + "\n")
        self.process.stdin.flush()

        def answer():
            try:
                return json.loads(self.process.stdout.readline())
            finally:
                self.lock.release()

        return answer

    def helpers(self):
        """Process ids of its children that still live."""
        return children(self.process.pid)

    def end(self):
        self.process.stdin.close()
        return self.process.wait(PATIENCE)
