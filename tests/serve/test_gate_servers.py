#!/usr/bin/env python3
"""The gate with servers beside it: an issuer of tokens, a policy server, a collector of traces; as they should be, as
they should not, and gone. usage: test_gate_servers.py PROGRAM SOURCE"""

import base64
import contextlib
import hashlib
import hmac
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "gate"))
from gated import Client, Gated, at_once  # noqa: E402
from servers import Authority, Issuer, Key, Server, b64, hang  # noqa: E402
from service import PATIENCE, Worker, check, children, done, events, scratch  # noqa: E402

program = sys.argv[1]
folder = scratch("worker-servers-")
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = {"traceparent": "00-%s-%s-01" % (TRACE, PARENT)}


def completion(**more):
    return dict({"prompt": "Write a haiku about rain", "max_tokens": 12, "temperature": 0}, **more)


def until(w, what, name):
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if what():
            return
        time.sleep(0.02)
    check(name, False, w.said()[-500:])


def status_of(w, token, method="GET", path="/v1/models", body=None):
    c = Client(w, token)
    status, _, text = c.ask(method, path, body)
    c.close()
    return status, text


# ---- an issuer of tokens -----------------------------------------------------------------------------------


def oidc():
    authority = Authority(folder)
    key, other = Key(folder, "one"), Key(folder, "other")
    issuer = Issuer(authority, [key])
    options = ("--oidc-issuer", issuer.url, "--oidc-audience", "worker")
    with Gated(program, *options, "--oidc-ca", authority.file) as w:
        until(w, lambda: w.count("worker_oidc_keys") == 1, "the issuer's keys come")
        alice = key.token(issuer.claims(roles=["chatters"]))
        check("a role that nobody knows has no scope", status_of(w, alice)[0] == 403)
        roles = {
            "chatters": {"scopes": ["inference"], "limits": {"requests_per_minute": 1000}},
            "operators": {"scopes": ["admin:read"], "max_priority": 4, "tenant": "ops"},
            "inference": {"scopes": ["metrics"]},
        }
        status, said = w.manage("PUT", "/admin/roles", roles)
        check("roles are replaced", status == 200 and set(said) == set(roles), said)
        check("they hold at once", status_of(w, alice)[0] == 200, status_of(w, alice))
        check("and allow nothing more", status_of(w, alice, path="/admin/api-keys")[0] == 403)
        operator = key.token(issuer.claims(sub="olga", roles=["operators", "unheard"]))
        check("another role: other scopes", status_of(w, operator, path="/admin/api-keys")[0] == 200)
        check("but not to change anything", status_of(w, operator, "PUT", "/admin/roles", {})[0] == 403)
        scoped = key.token(issuer.claims(sub="sam", scope="inference admin"))
        check("scopes of the issuer are names of roles", status_of(w, scoped, path="/metrics")[0] == 200)
        check("and no scopes of the worker", status_of(w, scoped, "POST", "/v1/completions", completion())[0] == 403)
        bob = key.token(issuer.claims(sub="bob", roles=["chatters"]))
        apart(w, alice, bob, operator, key.token(issuer.claims(roles=["chatters"], jti="another")))
        forged(w, issuer, key, other, alice)
        check("keys go on beside tokens", status_of(w, w.key("carol"))[0] == 200)
    # An issuer that is not there: nobody is let in by a token, keys go on; when it comes, tokens do.
    down = Issuer(authority, [key], "late")
    claims = down.claims(roles=["chatters"])
    down.close()
    with Gated(program, "--oidc-issuer", down.url, *options[2:], "--oidc-ca", authority.file) as w:
        w.manage("PUT", "/admin/roles", roles)
        status, text = status_of(w, key.token(claims))
        check("no issuer: 503, since it cannot be judged", status == 503, text)
        check("no issuer: garbage", status_of(w, "a.b.c")[0] in (401, 503))
        check("no issuer: keys go on", status_of(w, w.root)[0] == 200)
        check("it is counted", w.count("worker_oidc_fetches_failed_total") >= 1)
    # One whose certificate another authority has issued.
    stranger = Authority(folder, "stranger")
    with Gated(program, *options, "--oidc-ca", stranger.file) as w:
        w.manage("PUT", "/admin/roles", roles)
        check("another authority's issuer", status_of(w, alice)[0] == 503)
    issuer.close()


def apart(w, alice, bob, operator, again):
    """Two subjects are two tenants and two owners."""
    a, b, o = Client(w, alice), Client(w, bob), Client(w, operator)
    long = completion(prompt="The quick brown fox jumps over the lazy dog. " * 10, job_id="theirs")

    def cached(c):
        return events(c.ask("POST", "/execute", long)[2])[-1][1]["tokens_cached"]

    check("a subject's own prompts are cached", cached(a) == 0 and cached(a) > 0)
    check("no other's", cached(b) == 0)
    jobs = json.loads(a.ask("GET", "/worker/jobs")[2])["jobs"]
    check("a subject sees its own jobs", len(jobs) == 2, jobs)
    check("an administrator all", len(json.loads(o.ask("GET", "/worker/jobs")[2])["jobs"]) >= 3)
    # the same subject with another token
    check(
        "a subject is one, whatever its token",
        len(json.loads(Client(w, again).ask("GET", "/worker/jobs")[2])["jobs"]) == 2,
    )


def forged(w, issuer, key, other, good):
    head, claims, signature = good.split(".")
    public = json.dumps(key.jwk()).encode()
    hs = b64(b'{"alg":"HS256","kid":"one"}') + "." + claims
    everything = issuer.claims(roles=["chatters"])
    tokens = {
        "another's signature": other.token(everything, kid="one"),
        "no signature": head + "." + claims + ".",
        "alg none": b64(b'{"alg":"none"}') + "." + claims + ".",
        "HS256 of the public key": hs + "." + b64(hmac.new(public, hs.encode(), hashlib.sha256).digest()),
        "other claims": head + "." + b64(json.dumps(dict(everything, sub="root")).encode()) + "." + signature,
        "expired": key.token(dict(everything, exp=int(time.time()) - 3600)),
        "another audience": key.token(dict(everything, aud="billing")),
        "another issuer": key.token(dict(everything, iss="https://elsewhere.test")),
        "not yet": key.token(dict(everything, nbf=int(time.time()) + 3600)),
        "no end": key.token({k: v for k, v in everything.items() if k != "exp"}),
        "not base64": "a.b.c",
        "an unknown key": other.token(everything),
        "long": head + "." + claims + "A" * 20000 + "." + signature,
    }
    for name, token in tokens.items():
        status, text = status_of(w, token)
        check("forged: " + name, status in (401, 429, 431), (status, text))
    statuses = {status_of(w, tokens["another's signature"])[0] for _ in range(12)}
    check("who fails often is answered 429", 429 in statuses, statuses)
    check("valid tokens of that address are let in", status_of(w, good)[0] == 200, status_of(w, good))
    fresh = key.token(dict(everything, jti="never seen before"))
    check("one that was never seen, too", status_of(w, fresh)[0] == 200)
    check("no token is in the log", good not in w.said() and signature not in w.said())
    check("nor what it says", base64.urlsafe_b64decode(claims + "==").decode() not in w.said())


# ---- a policy server ---------------------------------------------------------------------------------------


class Policy(Server):
    """Answers what .say is: a document, or a misbehaviour."""

    def __init__(self):
        self.say = {"result": True}
        super().__init__(lambda r: self.say if callable(self.say) else (200, json.dumps(self.say).encode()))

    def input(self):
        return json.loads(self.requests[-1].body)["input"]


def opa():
    server = Policy()
    log = os.path.join(folder, "opa.log")
    with Gated(program, "--audit-log", log) as w:
        c = Client(w, w.key("alice", tenant="blue"))

        def ask(**more):
            status, _, text = c.ask("POST", "/v1/completions", completion(**more), headers=TRACEPARENT)
            return status, json.loads(text)

        at = {"url": server.url, "path": "worker/allow"}
        w.guard(opa=at)
        server.say = {"result": True, "decision_id": "decision-of-yes"}
        status, answer = ask()
        check("allowed", status == 200, answer)
        q = server.input()
        check("the rule is asked", server.requests[-1].path == "/v1/data/worker/allow", server.requests[-1].path)
        good = q["key_id"] == "alice" and q["scopes"] == ["inference"] and q["route"] == "/v1/completions"
        check("it is told who asks what", good and q["max_tokens"] == 12 and q["prompt_tokens"] > 0, q)
        check("it is not told the text", "prompt" not in q, q)
        trace = server.requests[-1].headers.get("traceparent", "")
        check("it is told the trace", trace.startswith("00-%s-" % TRACE), trace)
        w.guard(opa=dict(at, send_text=True))
        ask()
        check("it is told the text where that is wanted", "haiku about rain" in server.input()["prompt"], q)
        w.guard(opa=at)
        server.say = {"result": {"allow": False, "reason": "not on Sundays"}, "decision_id": "decision-of-no"}
        status, answer = ask()
        good = status == 403 and answer["error"]["code"] == "guardrail_blocked"
        check("denied, with the reason", good and "not on Sundays" in answer["error"]["message"], answer)
        server.say = {"result": {"allow": True, "max_tokens": 3}}
        status, answer = ask()
        good = answer["usage"]["completion_tokens"] == 3 and answer["choices"][0]["finish_reason"] == "length"
        check("fewer tokens", status == 200 and good, answer)
        status, answer = ask(n=3)
        check("fewer of several answers: each its share", answer["usage"]["completion_tokens"] == 3, answer)
        server.say = {"result": {"allow": True, "max_tokens": 500}}
        check("never more", ask()[1]["usage"]["completion_tokens"] <= 12)
        generated = w.count("worker_tokens_generated_total")
        for name, say in (
            ("obligations", {"result": {"allow": True, "obligations": [{"redact": "names"}]}}),
            ("undefined", {}),
            ("a member that nobody knows", {"result": {"allow": True, "unless": "x"}}),
            ("a text", {"result": "true"}),
            ("an error", lambda k: k.sendall(b"HTTP/1.1 500 x\r\nContent-Length: 0\r\n\r\n")),
            ("no JSON", lambda k: k.sendall(b"HTTP/1.1 200 x\r\nContent-Length: 4\r\n\r\ntrue")),
            ("silence", hang),
        ):
            server.say = say
            status, answer = ask()
            check("refused: " + name, status == 403, (status, answer))
        check("nothing was generated", w.count("worker_tokens_generated_total") == generated)
        server.say = {"result": True}
        check("and works again", ask()[0] == 200)
        helpers(w, ask)
        server.close()
        while (last := ask())[0] == 200:  # over connections that were there already
            pass
        status, answer = last
        check("a server that is gone refuses", status == 403, answer)
        w.end()
    with open(log, encoding="utf-8") as f:
        entries = [json.loads(line) for line in f]
    yes = [e for e in entries if "decision-of-yes" in json.dumps(e)]
    no = [e for e in entries if "decision-of-no" in json.dumps(e)]
    check("decisions stand in the audit log", yes and yes[0]["kind"] == "request" and yes[0]["status"] == 200, yes)
    check("those of refusals, too", no and no[0]["kind"] == "refusal" and no[0]["code"] == "GUARDRAIL_BLOCKED", no)


def helpers(w, ask):
    """What connects out is killed: what it is asked meanwhile is refused, and it comes back."""
    before = children(w.process.pid)
    check("one helper", len(before) == 1, before)
    os.kill(before[0], signal.SIGKILL)
    statuses = []
    until(w, lambda: statuses.append(ask()[0]) or statuses[-1] == 200, "the helper comes back")
    check("meanwhile nothing passes, and nothing else breaks", set(statuses) <= {200, 403}, statuses)
    now = children(w.process.pid)
    check("it is another process", len(now) == 1 and now != before, (before, now))

    def many(_):
        for _ in range(20):
            status = ask_one(w)
            if status not in (200, 403):
                raise AssertionError(status)

    secret = w.key("many")

    def ask_one(w):
        c = Client(w, secret)
        try:
            return c.ask("POST", "/v1/completions", completion(max_tokens=1))[0]
        finally:
            c.close()

    def kill(_):
        for _ in range(5):
            for pid in children(w.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.2)

    at_once(7, lambda i: kill(i) if i == 0 else many(i))
    until(w, lambda: ask()[0] == 200, "and under load")


# ---- a collector of traces ---------------------------------------------------------------------------------


def spans_of(collector):
    spans = []
    for r in list(collector.requests):
        if r.path == "/v1/traces":
            for resource in json.loads(r.body)["resourceSpans"]:
                for scope in resource["scopeSpans"]:
                    spans.extend(scope["spans"])
    return spans


def attributes(span):
    return {a["key"]: next(iter(a["value"].values())) for a in span["attributes"]}


def errors_of(collector):
    failed = [s for s in spans_of(collector) if s.get("status", {}).get("code") == 2]
    return {attributes(s)["error.type"] for s in failed}


def traced(collector):
    return sum(s["traceId"] == TRACE for s in spans_of(collector))


def traces():
    collector = Server(lambda r: (200, b"{}"))
    with Gated(program, "--otlp", collector.url, "--max-sequences", "1", "--kv-cache-size-mb", "64") as w:
        c = Client(w, w.key("alice"))
        c.ask("POST", "/execute", completion(job_id="traced"), headers=TRACEPARENT)
        c.ask("POST", "/v1/completions", completion(max_tokens=-1))
        Client(w).ask("GET", "/v1/models")
        wanted = {"INVALID_REQUEST", "UNAUTHORIZED"}
        until(w, lambda: wanted <= errors_of(collector) and traced(collector) == 4, "spans come")
        spans = {s["name"]: s for s in spans_of(collector) if s["traceId"] == TRACE}
        check("the spans of a job", set(spans) == {"POST /execute", "queue", "prefill", "decode"}, set(spans))
        request = spans["POST /execute"]
        check("the request's parent is the caller's", request["parentSpanId"] == PARENT, request)
        parts = [spans[n] for n in ("queue", "prefill", "decode")]
        check("the parts' parent is the request", all(p["parentSpanId"] == request["spanId"] for p in parts))
        check("all ids differ", len({s["spanId"] for s in spans.values()}) == 4)
        a = attributes(request)
        check("what it says", a["worker.key_id"] == "alice" and a["http.response.status_code"] == "200", a)
        check("counts", int(a["gen_ai.usage.output_tokens"]) == 12 and a["worker.job_id"] == "traced", a)
        times = [int(p[k]) for p in parts for k in ("startTimeUnixNano", "endTimeUnixNano")]
        inside = int(request["startTimeUnixNano"]) <= times[0] and times[-1] <= int(request["endTimeUnixNano"])
        check("one behind the other, inside the request", times == sorted(times) and inside, (times, request))
        check("refusals", errors_of(collector) - {"NOT_READY"} == wanted, errors_of(collector))
        check("no text", b"about rain" not in b"".join(r.body for r in collector.requests))
        c.ask("POST", "/v1/completions", completion(), headers={"traceparent": TRACEPARENT["traceparent"][:-1] + "0"})
        yields(w, collector)
        check("what is not sampled is not sent", traced(collector) == 4)
        check("sent is counted", w.count("worker_traces_sent_total") >= 5)
    collector.close()
    for name, server in (("gone", collector), ("silent", Server(lambda r: hang))):
        with Worker(program, "--otlp", server.url) as w:
            clients = [Client(w) for _ in range(4)]
            good = []
            at_once(4, lambda i, k=clients: good.extend(k[i].ask("GET", "/v1/models")[0] for _ in range(400)))
            check("a collector that is %s is waited for by nobody" % name, good == [200] * 1600, set(good))
            until(w, lambda: w.metrics()("worker_traces_dropped_total") > 0, "drops are counted")
            at_once(4, lambda i, k=clients: [k[i].ask("GET", "/v1/models") for _ in range(400)])
            before = len(server.requests)
            check("it ends in order", w.end() == 0)
            check("and does not try for each that is left", len(server.requests) <= before + 1, len(server.requests))


def yields(w, collector):
    status, said = w.manage("PUT", "/admin/scheduler", {"timeslice_tokens": 8})
    check("time slices", status == 200, said)
    secret = w.key("bob")

    def long(i):
        Client(w, secret).ask(
            "POST", "/execute", completion(job_id="long-%d" % i, max_tokens=300, repetition_penalty=0.01)
        )

    at_once(3, long)

    def turns():
        spans = [s for s in spans_of(collector) if s["name"] == "POST /execute" and s.get("events")]
        return [e["name"] for s in spans for e in s["events"]]

    until(w, lambda: {"scheduler.fairness.yield", "scheduler.fairness.resume"} <= set(turns()), "turns are events")
    check("as often as not", turns().count("scheduler.fairness.yield") > 0, turns())


oidc()
opa()
traces()
done()
