"""A worker that asks for keys, for the tests of this folder: its policy, its keys, and clients that show them."""

import contextlib
import http.client
import json
import os
import subprocess
import threading

from service import PATIENCE, Metrics, Worker, scratch


def stored_key(program, policy, key, *sets, options=()):
    """The secret of a key that `worker admin` puts into a policy's file which no worker has open."""
    command = [program, "admin", "api-keys", "create", key, "--policy-file", policy, *options]
    r = subprocess.run(
        command + [word for s in sets for word in ("--set", s)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
    )
    if r.returncode:
        raise RuntimeError(r.stderr)
    return json.loads(r.stdout)["secret"]


def verify(program, *files, key):
    """(exit status, what it said) of `worker audit verify`."""
    r = subprocess.run(
        [program, "audit", "verify", *files, "--key-file", key],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=PATIENCE,
    )
    return r.returncode, r.stdout + r.stderr


def bearer(secret):
    return {"Authorization": "Bearer " + secret}


class Gated(Worker):
    """worker serve with a policy file of its own, and an administrator's key in it."""

    def __init__(self, program, *arguments, **more):
        self.folder = scratch("worker-gate-")
        self.policy = os.path.join(self.folder, "policy")
        self.root = stored_key(program, self.policy, "root", "scopes=admin,inference,metrics")
        super().__init__(program, "--policy-file", self.policy, *arguments, **more)

    def manage(self, method, path, body=None):
        """(status, document) of a request of the administrator."""
        return self.document(method, path, body, headers=bearer(self.root))

    def key(self, name, **fields):
        """The secret of a new key for inference."""
        status, document = self.manage("POST", "/admin/api-keys", dict({"id": name, "scopes": ["inference"]}, **fields))
        if status != 201:
            raise RuntimeError(document)
        return document["secret"]

    def guard(self, **guardrails):
        status, document = self.manage("PUT", "/admin/guardrails", guardrails)
        if status != 200:
            raise RuntimeError(document)

    def count(self, name, **labels):
        """A sample of /metrics."""
        return Metrics(self.manage("GET", "/metrics")[1])(name, **labels)


class Client:
    """A connection that goes on, with a key; one thread's. lines: of a stream, as they come."""

    def __init__(self, w, secret=None):
        self.w, self.headers = w, bearer(secret) if secret else {}
        self.connection = None

    def open(self, method, path, body=None, headers=None):
        """The answer, its body still to be read."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        known = {"Content-Type": "application/json"} if data is not None else {}
        known.update(self.headers, **(headers or {}))
        for last in (False, True):
            if not self.connection:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.w.port, timeout=PATIENCE)
                last = True
            try:
                self.connection.request(method, path, data, known)
                return self.connection.getresponse()
            except (http.client.HTTPException, OSError):  # the worker had closed it
                self.close()
                if last:
                    raise

    def ask(self, method, path, body=None, headers=None):
        """(status, headers, text)"""
        r = self.open(method, path, body, headers)
        text = r.read().decode()
        return r.status, {k.lower(): v for k, v in r.getheaders()}, text

    def close(self):
        if self.connection:
            with contextlib.suppress(OSError):
                self.connection.close()
        self.connection = None


def at_once(n, act):
    """act(i) of n threads, all over at the end; what one of them raises is raised."""
    raised = []

    def one(i):
        try:
            act(i)
        except BaseException as e:  # noqa: B036 told to whoever waits
            raised.append(e)

    threads = [threading.Thread(target=one, args=(i,), daemon=True) for i in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if raised:
        raise raised[0]
