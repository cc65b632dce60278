#!/usr/bin/env python3
"""The policy while it is used: a hundred administrators change it and a hundred clients ask; guardrails are replaced
under load; keys go while their streams run; what cannot be stored is refused and does not hold."""

import json
import os
import random
import resource
import sys
import threading

from gated import Client, Gated, at_once
from service import LONG, check, done, events

program = sys.argv[1]
MANY, CHANGES, REQUESTS = 100, 5, 12
PROMPT = {"prompt": "Write a haiku about rain", "temperature": 0, "max_tokens": 2}


def many(w):
    users = [w.key("user-%d" % i) for i in range(MANY)]
    wrong, kept, lock = [], {}, threading.Lock()

    def expect(name, got, *statuses):
        if got[0] not in statuses:
            with lock:
                wrong.append((name, got[0], got[2][:200]))

    def administrator(i):
        c = Client(w, w.root)
        for n in range(CHANGES):
            name = "made-%d-%d" % (i, n)
            got = c.ask("POST", "/admin/api-keys", {"id": name, "scopes": ["inference"]})
            expect("create", got, 201)
            secret = json.loads(got[2])["secret"]
            fresh = Client(w, secret)
            expect("a new key works at once", fresh.ask("GET", "/v1/models"), 200)
            kind = (i + n) % 4
            if kind == 0:
                expect("delete", c.ask("DELETE", "/admin/api-keys/" + name), 200)
                expect("a deleted key is over at once", fresh.ask("GET", "/v1/models"), 401, 429)
            elif kind == 1:
                expect("change", c.ask("PATCH", "/admin/api-keys/" + name, {"scopes": ["metrics"]}), 200)
                expect("a scope that was taken is gone at once", fresh.ask("GET", "/v1/models"), 403)
                kept[name] = ["metrics"]
            elif kind == 2:
                words = ["phrase %d %d" % (i, n), "never said"]
                expect("guardrails", c.ask("PUT", "/admin/guardrails", {"blocklist": words}), 200)
                kept[name] = ["inference"]
            else:
                got = c.ask("POST", "/admin/api-keys/%s/rotate" % name, {"grace_seconds": 0})
                expect("rotate", got, 200)
                expect("the old secret is over at once", fresh.ask("GET", "/v1/models"), 401, 429)
                again = Client(w, json.loads(got[2])["secret"])
                expect("the new one works", again.ask("GET", "/v1/models"), 200)
                again.close()
                kept[name] = ["inference"]
            fresh.close()
        c.close()

    def client(i):
        c, random_ = Client(w, users[i]), random.Random(i)
        for _ in range(REQUESTS):
            kind = random_.randrange(3)
            if kind == 0:
                expect("models", c.ask("GET", "/v1/models"), 200)
            elif kind == 1:
                expect("blocked", c.ask("POST", "/v1/completions", dict(PROMPT, prompt="is never said")), 403, 200)
            else:
                expect("completion", c.ask("POST", "/v1/completions", PROMPT), 200)
        c.close()

    w.guard(blocklist=["never said"])
    at_once(2 * MANY, lambda i: administrator(i // 2) if i % 2 else client(i // 2))
    check("%d changes beside %d requests" % (MANY * CHANGES, MANY * REQUESTS), not wrong, (len(wrong), wrong[:3]))

    def keys():
        return {k["id"]: k["scopes"] for k in w.manage("GET", "/admin/api-keys")[1]["keys"]}

    now = keys()
    check("the policy is what was asked for", {k: v for k, v in now.items() if k.startswith("made-")} == kept)
    guardrails = w.manage("GET", "/admin/guardrails")[1]
    w.end()
    w.start()
    w.until(lambda: w.get("/readyz")[0] == 200)
    check(
        "and is still there after the next start",
        keys() == now and w.manage("GET", "/admin/guardrails")[1] == guardrails,
    )
    w.guard()


def guardrails(w):
    """One of two words is always blocked, and never both: no answer of another list than one that was in force."""
    c, stop, wrong, statuses = Client(w, w.root), threading.Event(), [], set()
    secrets = [w.key("under-load-%d" % i) for i in range(8)]
    filler = ["filler number %d" % i for i in range(2000)]
    w.guard(blocklist=[*filler, "always so", "first word"], block_output=True)

    def ask(i):
        k = Client(w, secrets[i])
        while not stop.is_set():
            status, _, text = k.ask("POST", "/v1/completions", dict(PROMPT, prompt="it is always so"))
            if status != 403:
                wrong.append(("always", status, text))
            status, _, text = k.ask("POST", "/v1/completions", dict(PROMPT, prompt="the first word", stream=i % 2 == 0))
            statuses.add(status)
            if status not in (200, 403):
                wrong.append(("first", status, text))
        k.close()

    def replace():
        for n in range(30):
            word = "first word" if n % 2 else "second word"
            body = {"blocklist": [*filler[: 2000 - n], "always so", word], "block_output": n % 3 == 0}
            status, _, text = c.ask("PUT", "/admin/guardrails", body)
            if status != 200:
                wrong.append(("put", status, text))
            status, _, _ = c.ask("POST", "/v1/completions", dict(PROMPT, prompt="the first word"))
            if status != (403 if n % 2 else 200):
                wrong.append(("a list holds once it is answered", n, status))
        stop.set()

    def one(i):
        try:
            replace() if i == 8 else ask(i)
        finally:
            if i == 8:
                stop.set()

    at_once(9, one)
    check("guardrails are replaced under load", not wrong and statuses == {200, 403}, (wrong[:3], statuses))
    w.guard()


def key_goes(w):
    """A stream that was let in goes on to its end; the next request is not let in."""
    for act in ("delete", "disable"):
        c = Client(w, w.key("goes-" + act))
        body = {"prompt": "Once upon a time", "max_tokens": 2000, "temperature": 0, "repetition_penalty": 0.01}
        r = c.open("POST", "/execute", dict(body, job_id="goes-on"))
        while not r.readline().startswith(b"event: token"):
            pass
        if act == "delete":
            status, _ = w.manage("DELETE", "/admin/api-keys/goes-delete")
        else:
            status, _ = w.manage("PATCH", "/admin/api-keys/goes-disable", {"disabled": True})
        check("%s: done while it runs" % act, status == 200, status)
        told = events(r.read().decode())[-1]
        check("%s: its stream goes on to its end" % act, told[0] == "end" and told[1]["tokens_out"] == 2000, told)
        status, _, text = c.ask("GET", "/v1/models")
        check("%s: its next request does not begin" % act, status == 401, text)


def not_stored(w):
    c = Client(w, w.root)

    def refused(name):
        status, _, text = c.ask("POST", "/admin/api-keys", {"id": "lost", "scopes": ["inference"]})
        check("%s: a key is not made" % name, status == 500 and "secret" not in text, (status, text))
        status, _, text = c.ask("PUT", "/admin/guardrails", {"blocklist": ["rain"]})
        check("%s: guardrails stay" % name, status == 500, (status, text))
        check("%s: nothing of it holds" % name, c.ask("GET", "/admin/api-keys/lost")[0] == 404)
        check("%s: what there was goes on" % name, c.ask("POST", "/v1/completions", PROMPT)[0] == 200)

    def stored(name):
        status, _, text = c.ask("POST", "/admin/api-keys", {"id": name, "scopes": ["inference"]})
        check("then it is stored: %s" % name, status == 201, text)

    resource.prlimit(w.process.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    refused("a full disk")
    resource.prlimit(w.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    stored("after-a-full-disk")
    if os.getuid() != 0:  # whom no mode stops
        os.chmod(w.folder, 0o500)
        refused("a folder that is read-only")
        os.chmod(w.folder, 0o700)
        stored("after-a-read-only-folder")
    os.rename(w.folder, w.folder + ".away")
    refused("a folder that is gone")
    os.rename(w.folder + ".away", w.folder)
    stored("after-a-folder-that-was-gone")


with Gated(program, *LONG, "--max-sequences", "16") as worker:
    many(worker)
    guardrails(worker)
    key_goes(worker)
    not_stored(worker)
done()
