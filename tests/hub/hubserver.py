"""A hub for the tests of `worker pull`: one server with the interface and one, on a port of its own, with the bytes, as
the real one has them. Both do what they are told instead: a fault is tried before anything else."""

import contextlib
import hashlib
import json
import os
import re
import sys
import time
from urllib.parse import unquote

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gate"))
from servers import PATIENCE, Authority, Server, check, children, done, until  # noqa: E402,F401 the tests take them from here

CHUNK = 65536


class Store(Server):
    """The bytes: /blobs/NAME?signature, with ranges. fault(request, content) as of Server's answer; None: none."""

    def __init__(self, tls=None):
        self.blobs, self.etags, self.fault, self.ranges = {}, {}, None, True
        self.pause = 0  # seconds between pieces
        super().__init__(self.reply, tls=tls)

    def reply(self, request):
        name = request.path.split("?")[0].rpartition("/")[2]
        if name not in self.blobs:
            return 404, b""
        content = self.blobs[name]
        fault = self.fault and self.fault(request, content)
        return fault or self.whole(request, content, self.etags.get(name, '"%s"' % name[:32]))

    def whole(self, request, content, etag):
        wanted = re.fullmatch(r"bytes=(\d+)-", request.headers.get("range", "")) if self.ranges else None
        if wanted and request.headers.get("if-range", etag) == etag:
            first = int(wanted[1])
            if first >= len(content):
                return 416, b"", {"Content-Range": "bytes */%d" % len(content)}
            span = "Content-Range: bytes %d-%d/%d\r\n" % (first, len(content) - 1, len(content))
            head = b"HTTP/1.1 206 x\r\n" + span.encode()
            content = content[first:]
        else:
            head = b"HTTP/1.1 200 x\r\n"
        return self.send(head, content, etag)

    def send(self, head, content, etag, length=None):
        """Content in pieces, with the length that is said."""
        said = len(content) if length is None else length

        def act(c):
            with contextlib.suppress(OSError):
                c.sendall(head + b"ETag: %s\r\nContent-Length: %d\r\n\r\n" % (etag.encode(), said))
                for i in range(0, len(content), CHUNK):
                    c.sendall(content[i : i + CHUNK])
                    if self.pause:
                        time.sleep(self.pause)

        return act

    def cut(self, after):
        """A fault: the first answer breaks off after so many bytes; the next ones are whole."""
        broken = []

        def fault(request, content):
            if broken:
                return None
            broken.append(request)
            return self.send(b"HTTP/1.1 200 x\r\n", content[:after], self.etag_of(content), len(content))

        return fault

    def etag_of(self, content):
        name = next(n for n, c in self.blobs.items() if c is content)
        return self.etags.get(name, '"%s"' % name[:32])


class Hub(Server):
    """The interface. repositories: {"org/name": {path: bytes}}; fault(request): an answer, or None."""

    def __init__(self, store, tls=None):
        self.store, self.repositories, self.fault = store, {}, None
        self.tree, self.page = True, 1000  # has it the tree, and how many files a page of it
        self.lists_sha256 = self.links = True
        self.token = None  # that is needed
        super().__init__(self.reply, tls=tls)

    def add(self, repository, path, content):
        self.repositories.setdefault(repository, {})[path] = content
        self.store.blobs[hashlib.sha256(content).hexdigest()] = content

    def entry(self, path, content):
        lfs = {"size": len(content), "pointerSize": 134}
        if self.lists_sha256:
            lfs["oid"] = hashlib.sha256(content).hexdigest()
        return {"type": "file", "oid": "0" * 40, "size": len(content), "path": path, "lfs": lfs}

    def reply(self, request):
        fault = self.fault and self.fault(request)
        if fault:
            return fault
        if self.token and request.headers.get("authorization") != "Bearer " + self.token:
            return 401, b"{}"
        tree = re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/main\?recursive=true(?:&cursor=(\d+))?", request.path)
        if tree and self.tree and tree[1] in self.repositories:
            return self.list(tree[1], int(tree[2] or 0))
        model = re.fullmatch(r"/api/models/([^/]+/[^/?]+)", request.path)
        if model and model[1] in self.repositories:
            return self.siblings(model[1])
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/main/(.+)", request.path)
        content = self.repositories.get(file[1], {}).get(unquote(file[2])) if file else None
        return (404, b"{}") if content is None else self.resolve(content)

    def list(self, repository, first):
        files = list(self.repositories[repository].items())
        entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "sub"}] if not first else []
        entries += [self.entry(*f) for f in files[first : first + self.page]]
        more = {}
        if first + self.page < len(files):
            next_page = "%s/api/models/%s/tree/main?recursive=true&cursor=%d"
            more = {"Link": '<%s>; rel="next"' % (next_page % (self.url, repository, first + self.page))}
        return 200, json.dumps(entries).encode(), more

    def siblings(self, repository):
        files = [{"rfilename": path} for path in self.repositories[repository]]
        return 200, json.dumps({"id": repository, "sha": "1" * 40, "siblings": files}).encode()

    def resolve(self, content):
        sha256 = hashlib.sha256(content).hexdigest()
        headers = {"Location": "%s/blobs/%s?Signature=secret" % (self.store.url, sha256), "X-Repo-Commit": "1" * 40}
        if self.links:
            headers.update({"X-Linked-Size": str(len(content)), "X-Linked-ETag": '"%s"' % sha256})
        return 302, b"", headers
