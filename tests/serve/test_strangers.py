#!/usr/bin/env python3
"""The commands that are clients, of a server that is no worker or means harm: nothing that it says is obeyed by a
terminal, and none of it ends a command other than with an error. usage: test_strangers.py PROGRAM SOURCE"""

import contextlib
import http.server
import json
import subprocess
import sys
import threading

from service import PATIENCE, check, done
from terminal import Terminal

program = sys.argv[1]
OBEYED = "\x1b]0;title\x07\x1b[2J\u009b31m\u0085\x7f\r\x08"


def event(**delta):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def calls(name):
    return event(
        tool_calls=[{"index": 0, "id": "c", "type": "function", "function": {"name": name, "arguments": "{}"}}]
    )


def stream(*events):
    return "".join("data: %s\n\n" % json.dumps(e, ensure_ascii=False) for e in events) + "data: [DONE]\n\n"


@contextlib.contextmanager
def stranger(answers):
    """A server with an answer for each path: a document, or the text of a stream. Its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            answer = answers.get(self.path)
            body = (answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as s:
        threading.Thread(target=s.serve_forever, daemon=True).start()
        yield "http://127.0.0.1:%d" % s.server_port
        s.shutdown()


def obeyed(shown):
    """What of it a terminal obeys, but for ends of lines."""
    return [c for c in shown.decode() if (c < " " and c not in "\r\n\t") or "\x7f" <= c <= "\x9f"]


def documents():
    answers = {
        "/health": {"status": OBEYED, "state": OBEYED, "version": OBEYED, "model": OBEYED, "uptime_seconds": 1e308},
        "/v1/models": {"data": [{"id": OBEYED, "device": OBEYED}, None, 3]},
        "/worker/jobs": {"jobs": [{"job_id": OBEYED, "state": OBEYED}, []]},
        "/cancel": {"job_id": OBEYED, "found": True},
    }
    with stranger(answers) as url:
        for words in (("status",), ("models",), ("jobs",), ("cancel", "x")):
            for form in ((), ("--json",)):
                r = subprocess.run(
                    [program, *words, *form, "--url", url], capture_output=True, timeout=PATIENCE, check=False
                )
                name = " ".join(words + form)
                check(name + ": nothing is obeyed", r.returncode == 0 and not obeyed(r.stdout), (r.stdout, r.stderr))
                if form:
                    good = json.loads(r.stdout) == json.loads(json.dumps(answers[PATHS[words[0]]]))
                    check(name + ": and all of it is there", good, r.stdout)


PATHS = {"status": "/health", "models": "/v1/models", "jobs": "/worker/jobs", "cancel": "/cancel"}


def names_of_calls():
    """A prompt has the name of the function whose result is wanted."""
    for name in (OBEYED, "a" + "\u00e9" * 100, "\u4e2d" * 100, "\U0001f600" * 60, ""):
        answers = {"/v1/models": {"data": [{"id": OBEYED}]}, "/v1/chat/completions": stream(calls(name))}
        with stranger(answers) as url:
            t = Terminal(program, "--url", url)
            t.type(b"x\r")
            t.until(b"/clear begins anew)")
            prompt = t.until(b"> ")
            check("a prompt with %.10r" % name, b"result of " in prompt and not obeyed(prompt), prompt)
            check("... and the program goes on", t.end() == 0, t.shown)


documents()
names_of_calls()
done()
