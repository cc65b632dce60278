"""One request to a worker on this machine, for the programs of this folder."""

import http.client
import json


def connect(port, patience):
    return http.client.HTTPConnection("127.0.0.1", port, timeout=patience)


def ask(port, patience, method, path, body=None):
    """(status, bytes) of the answer; patience: seconds for each wait on the socket; body: what becomes JSON."""
    c = connect(port, patience)
    try:
        c.request(
            method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"} if body else {}
        )
        r = c.getresponse()
        return r.status, r.read()
    finally:
        c.close()
