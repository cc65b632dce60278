#!/usr/bin/env python3
"""Rates of many keys at once: none gets more than its limit, each is told exactly how long to wait, and what a request
did not use is given back. RATE_KEYS says how many keys; 500 as it is."""

import json
import math
import os
import random
import sys
import threading
import time

from gated import Client, Gated, at_once
from service import check, done

program = sys.argv[1]
KEYS, THREADS = int(os.environ.get("RATE_KEYS", "500")), 12
PROMPT = {"prompt": "Write a haiku about rain", "temperature": 0}


class Count:
    """What one key was given."""

    def __init__(self, w, number):
        # a request or a token every few seconds: what time gives back meanwhile is little, and is counted below
        self.requests, self.tokens = 3 + number % 5, 60 + 20 * (number % 4)
        limits = {"requests_per_minute": self.requests, "tokens_per_minute": self.tokens}
        self.secret = w.key("key-%d" % number, limits=limits)
        self.lock = threading.Lock()
        self.admitted = self.used = self.waits = 0
        self.begun = None

    def ask(self, c, **more):
        with self.lock:
            self.begun = self.begun or time.monotonic()
        status, headers, text = c.ask("POST", "/v1/completions", dict(PROMPT, **more))
        with self.lock:
            if status == 200:
                self.admitted += 1
                self.used += json.loads(text)["usage"]["total_tokens"]
        return status, headers, text


def flood(w, counts):
    """All keys at once, each over its limit many times."""
    wrong = []

    def one(i):
        random_ = random.Random(i)
        for _ in range(KEYS * 14 // THREADS):
            k = random_.choice(counts)
            c = Client(w, k.secret)
            status, headers, text = k.ask(c, max_tokens=random_.choice((1, 4, 9)))
            c.close()
            if status not in (200, 429) or (status == 429 and not 1 <= int(headers["retry-after"]) <= 60):
                wrong.append((status, headers, text))

    at_once(THREADS, one)
    check("200 or 429 with a time", not wrong, wrong[:3])
    over, full = [], 0
    for k in counts:
        seconds = time.monotonic() - k.begun if k.begun else 0
        # the burst, and what was paid off since
        requests, tokens = (limit + math.ceil(limit * seconds / 60) for limit in (k.requests, k.tokens))
        if k.admitted > requests or k.used > tokens:
            over.append((k.admitted, requests, k.used, tokens))
        full += k.admitted >= k.requests
    check("no key has more than its limit", not over, over[:5])
    check("keys came to their limits", full > KEYS / 4, full)
    print("%d keys, %d requests admitted" % (len(counts), sum(k.admitted for k in counts)))


def exact(w):
    """Who waits as long as it was told is admitted; who comes a second before is not."""
    keys = [
        (w.key("exact-%d" % i, limits={"requests_per_minute": limit}), limit) for i, limit in enumerate((20, 30, 60))
    ]
    results = []

    def one(i):
        secret, limit = keys[i]
        c = Client(w, secret)
        admitted = sum(c.ask("POST", "/v1/completions", dict(PROMPT, max_tokens=1))[0] == 200 for _ in range(limit))
        while (answer := c.ask("POST", "/v1/completions", dict(PROMPT, max_tokens=1)))[0] == 200:
            admitted += 1
        told = int(answer[1]["retry-after"])
        reset = answer[1]["x-ratelimit-remaining-requests"]
        time.sleep(told)
        after = c.ask("POST", "/v1/completions", dict(PROMPT, max_tokens=1))[0]
        results.append((limit, admitted, told, reset, after))

    at_once(len(keys), one)
    for limit, admitted, told, remaining, after in sorted(results):
        good = admitted >= limit and told <= math.ceil(60 / limit) and remaining == "0" and after == 200
        check("%d a minute: waits %d s and is admitted" % (limit, told), good, results)


def given_back(w):
    """A stream that is left early, a refusal and a short answer hold nothing."""
    c = Client(w, w.key("back", limits={"tokens_per_minute": 10000}))
    other = Client(w, w.root)

    def remaining():
        _, headers, text = c.ask("POST", "/v1/completions", dict(PROMPT, max_tokens=1))
        return int(headers["x-ratelimit-remaining-tokens"])

    remaining()
    first = remaining()
    body = dict(PROMPT, max_tokens=400, repetition_penalty=0.01, job_id="left")
    r = c.open("POST", "/execute", body)
    while not r.readline().startswith(b"event: token"):
        pass
    other.ask("POST", "/cancel", {"job_id": "left"})
    used = r.read().count(b"event: token")
    second = remaining()
    check("a cancelled stream costs what it used", first - second <= used + 40, (first, second, used))
    w.guard(blocklist=["forbidden"])
    status, _, _ = c.ask("POST", "/v1/completions", {"prompt": "forbidden", "max_tokens": 300})
    third = remaining()
    check("what was refused costs no tokens", status == 403 and second - third < 60, (second, third))
    w.guard()
    status, _, text = c.ask("POST", "/v1/completions", dict(PROMPT, max_tokens=300, n=3))
    fourth = remaining()
    used = json.loads(text)["usage"]["total_tokens"]
    check("answers to one prompt cost what they used", status == 200 and third - fourth < used + 100, (third, fourth))


def changed(w):
    """A limit that is changed holds for the next request."""
    name, secret = "changed", w.key("changed", limits={"requests_per_minute": 2})
    c = Client(w, secret)
    statuses = [c.ask("POST", "/v1/completions", dict(PROMPT, max_tokens=1))[0] for _ in range(3)]
    check("two a minute", statuses == [200, 200, 429], statuses)
    status, _ = w.manage("PATCH", "/admin/api-keys/" + name, {"limits": {"requests_per_minute": 1000}})
    time.sleep(0.2)
    statuses = [c.ask("POST", "/v1/completions", dict(PROMPT, max_tokens=1))[0] for _ in range(2)]
    check("more from now on", status == 200 and statuses == [200, 200], statuses)
    status, said = w.manage("PUT", "/admin/rate-limits", {"requests_per_minute": 1})
    c = Client(w, w.key("plain"))
    statuses = [c.ask("POST", "/v1/completions", dict(PROMPT, max_tokens=1))[0] for _ in range(2)]
    check("the limit of all who have none", status == 200 and statuses == [200, 429], (said, statuses))


with Gated(program, "--max-sequences", "16") as worker:
    flood(worker, [Count(worker, i) for i in range(KEYS)])
    exact(worker)
    given_back(worker)
    changed(worker)
done()
