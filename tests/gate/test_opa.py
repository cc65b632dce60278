#!/usr/bin/env python3
"""test_opa.py PROBE: decisions of a policy server that speaks OPA's protocol, and every wrong form of it: all but a
clear yes in time is a no that says why."""

import json
import os
import signal
import sys
import tempfile

from servers import Authority, Probe, Server, check, done, drip, flood, hang, raw

YES = b'{"decision_id":"4ca636c1","result":true}'
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
QUESTION = {
    "request_id": "r-1",
    "key_id": "k-1",
    "scopes": 3,
    "route": "/v1/chat/completions",
    "model": "haiku",
    "parameters": {"temperature": 0.5, "stop": ["x"]},
    "prompt_tokens": 12,
    "prompt_chars": 50,
    "max_tokens": 64,
    "prompt_hmac": "ab" * 32,
}


def policy(document):
    return 200, json.dumps(document).encode(), {"Content-Type": "application/json"}


# case: (answer, kind, a part of the reason)
CASES = {
    "yes": ((200, YES), "allowed", ""),
    "an object": (policy({"result": {"allow": True, "max_tokens": 32, "obligations": ["a"]}}), "allowed", ""),
    "in plain text": ((200, YES, {"Content-Type": "text/plain"}), "allowed", ""),
    "no": (policy({"result": False}), "denied", "says no"),
    "no, and why": (policy({"result": {"allow": False, "reason": "too late"}}), "denied", "too late"),
    "undefined": (policy({}), "undefined", "undefined"),
    "status 400": ((400, YES), "status", "400"),
    "status 404": ((404, YES), "status", "404"),
    "status 500": ((500, YES), "status", "500"),
    "status 503": ((503, b"busy"), "status", "503"),
    "a redirect to a yes": ((307, YES, {"Location": "/v1/data/cases/yes"}), "status", "307"),
    "not JSON": ((200, b"<html>yes</html>"), "wrong", "not JSON"),
    "nothing": ((200, b""), "wrong", "not JSON"),
    "null": (policy({"result": None}), "wrong", "neither a boolean"),
    "a text": (policy({"result": "true"}), "wrong", "neither a boolean"),
    "a number": (policy({"result": 1}), "wrong", "neither a boolean"),
    "a list": (policy({"result": [True]}), "wrong", "neither a boolean"),
    "allow is a text": (policy({"result": {"allow": "true"}}), "wrong", "allow"),
    "no allow": (policy({"result": {"reason": "x"}}), "wrong", "allow"),
    "an unknown member": (policy({"result": {"allow": True, "deny": ["x"]}}), "wrong", "not known"),
    "no and yes": ((200, b'{"result":false,"result":true}'), "wrong", "not JSON"),
    "large": ((200, b'{"x":"%s","result":true}' % (b"x" * 66000)), "unreachable", "longer than allowed"),
    "large, in pieces": (flood(HEAD + b"\r\n" + YES, b" " * 4096), "unreachable", "longer than allowed"),
    "hangs": (hang, "unreachable", "no complete answer"),
    "drips": (drip(HEAD + b"Content-Length: 1000\r\n\r\n" + YES), "unreachable", "no complete answer"),
    "drips its head": (drip(HEAD, b"X: y\r\n"), "unreachable", "no complete answer"),
    "closed": (raw(b""), "unreachable", "no answer"),
    "cut": (raw(HEAD + b"Content-Length: 1000\r\n\r\n" + YES), "unreachable", "no answer"),
    "no HTTP": (raw(YES), "unreachable", "no answer"),
    "unknown compression": (
        raw(HEAD + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00"),
        "wrong",
        "not JSON",
    ),
}


def answers(request):
    name = request.path.removeprefix("/v1/data/cases/").replace("_", " ").replace("-", ",")
    return CASES[name][0]


def all_cases(probe, server):
    for name, (_, kind, reason) in CASES.items():
        opened = probe.ask("policy", url=server.url, path="cases/" + name.replace(" ", "_").replace(",", "-"))
        check("policy of " + name, opened["status"] == "ok", opened)
        d = probe.ask("ask", **QUESTION)
        good = d["kind"] == kind and d["allowed"] == (kind == "allowed") and reason in d["reason"]
        check("%s: %s" % (name, kind), good and (d["allowed"] or d["reason"] != ""), d)


def question(probe, server):
    probe.ask("policy", url=server.url + "/", path="cases/yes")
    d = probe.ask("ask", **QUESTION)
    check("the decision's id, for the audit", d["decision_id"] == "4ca636c1" and d["max_tokens"] == -1, d)
    r = server.requests[-1]
    check("the request", r.method == "POST" and r.path == "/v1/data/cases/yes", r.path)
    check("is JSON", r.headers.get("content-type") == "application/json", r.headers)
    check("has the input", json.loads(r.body) == {"input": dict(QUESTION, scopes=["inference", "embed"])}, r.body)
    check("and no text", b"prompt_hmac" in r.body and b'"prompt":' not in r.body)
    probe.ask("ask", prompt='a "prompt" \u00e4')
    sent = json.loads(server.requests[-1].body)
    check("the text where it is wanted", sent == {"input": {"scopes": [], "prompt": 'a "prompt" \u00e4'}}, sent)
    probe.ask("ask", bad_text=True)
    sent = json.loads(server.requests[-1].body)["input"]["prompt"]
    check("text that is not UTF-8", sent == "a\ufffdb", sent)
    before = server.connections
    for _ in range(10):
        probe.ask("ask", **QUESTION)
    check("one connection for many", server.connections <= before + 1)
    probe.ask("policy", url=server.url, path="cases/an_object")
    d = probe.ask("ask", **QUESTION)
    check("what an object says", d["max_tokens"] == 32 and d["obligations"] == ["a"], d)


def main():
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(folder)
        server, secure = Server(answers), Server(answers, tls=authority.server("server"))
        local = os.path.join(folder, "opa.sock")
        by_socket = Server(answers, unix=local)
        probe = Probe(sys.argv[1])
        all_cases(probe, server)
        question(probe, server)
        probe.ask("policy", url=server.url, path="cases/yes")
        check("200 at one time", all(d["allowed"] for d in probe.ask("ask", times=200, **QUESTION)["all"]))
        probe.ask("policy", url="unix:" + local, path="cases/yes")
        check(
            "by a socket of this machine",
            probe.ask("ask", **QUESTION)["allowed"] and by_socket.requests[0].path == "/v1/data/cases/yes",
        )
        probe.ask("policy", url="unix:" + local + "-none", path="cases/yes")
        check("which is not there", probe.ask("ask", **QUESTION)["kind"] == "unreachable")
        probe.ask("policy", url=secure.url, path="cases/yes", ca=authority.file)
        check("by https", probe.ask("ask", **QUESTION)["allowed"])
        probe.ask("policy", url=secure.url, path="cases/yes")
        d = probe.ask("ask", **QUESTION)
        check("with a certificate of nobody", d["kind"] == "unreachable" and "certificate" in d["reason"].lower(), d)
        probe.ask("policy", url=server.url, path="cases/yes")
        server.close()
        for _ in range(64):  # connections that are open serve once more each
            d = probe.ask("ask", **QUESTION)
        check("it is gone", d["kind"] == "unreachable" and not d["allowed"], d)
        probe.ask("policy", url="unix:" + local, path="cases/yes")
        (helper,) = probe.helpers()
        os.kill(helper, signal.SIGSTOP)
        d = probe.ask("ask", **QUESTION)
        check("nobody connects out", d["kind"] == "unreachable" and "no complete answer" in d["reason"], d)
        os.kill(helper, signal.SIGCONT)
        check("and it goes on", probe.ask("ask", **QUESTION)["allowed"])
        check("the end", probe.end() == 0)
    done()


main()
