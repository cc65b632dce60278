#!/usr/bin/env python3
"""Two workers behind routers that others made (vllm-router and smg of PyPI): answers are those of a worker asked
directly, requests go where their prompt is kept, a worker that is killed or that ends takes nothing with it. Skipped
where the routers are not installed; CI installs them. usage: test_routers.py PROGRAM"""

import contextlib
import json
import re
import signal
import sys
import time

from handover import pulls, until_it_gives
from routers import Load, Router, is_installed, url
from service import CHAT, Publishing, Worker, check, done, skip

POEM = dict(CHAT, model="haiku")
PREFIXES, TAILS = 6, 4
# A worker that is behind by a few requests gets no more, wherever a prompt is kept.
CACHE_AWARE = ("--policy", "cache_aware", "--balance-abs-threshold", "2", "--balance-rel-threshold", "1.2")


def text_of(chunks):
    return "".join(x["choices"][0]["delta"].get("content") or "" for x in chunks if x.get("choices"))


def ask(at, **more):
    status, answer = at.post("/v1/chat/completions", dict(POEM, **more))
    if status != 200:
        raise RuntimeError((status, answer))
    return answer


def stream(at, **more):
    _, _, data = at.ask("POST", "/v1/chat/completions", dict(POEM, stream=True, **more))
    return [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: {")]


def same(name, router, w):
    """Every answer is the worker's own: text, tokens, their probabilities, why it ended."""
    for what, more in (
        ("seeded", {}),
        ("greedy", {"temperature": 0}),
        ("with log probabilities", {"logprobs": True, "top_logprobs": 2}),
        ("cut off", {"max_tokens": 5}),
        ("with a stop string", {"stop": ["\n"]}),
    ):
        a, b = ask(router, **more), ask(w, **more)
        mine, direct = a["choices"][0], b["choices"][0]
        good = mine["message"]["content"] == direct["message"]["content"] and a["usage"]["completion_tokens"] > 0
        good = good and mine["finish_reason"] == direct["finish_reason"]
        if "logprobs" in more:
            good = good and mine["logprobs"]["content"] == direct["logprobs"]["content"]
        check("%s: %s as direct" % (name, what), good, (mine, direct))
        check("%s: %s, streamed" % (name, what), text_of(stream(router, **more)) == direct["message"]["content"])
    body = {"model": "haiku", "prompt": "Once upon a time", "max_tokens": 20, "seed": 7}
    mine, direct = (x.post("/v1/completions", body)[1]["choices"][0]["text"] for x in (router, w))
    check("%s: a completion as direct" % name, mine == direct and mine, (mine, direct))
    if name != "smg":  # which takes texts alone
        ids = w.post("/tokenize", {"content": "Once upon a time", "add_special": True})[1]["tokens"]
        mine = router.post("/v1/completions", dict(body, prompt=ids))[1]["choices"][0]["text"]
        check("%s: of token ids" % name, mine == direct, mine)
    status, answer = router.post("/v1/chat/completions", dict(POEM, temperature=7))
    check("%s: a refusal is the worker's" % name, status == 400 and "temperature" in json.dumps(answer), answer)


def named(name, router, workers):
    """A request's id goes through, comes back, and is in the worker's events."""
    theirs = "router-test_1.2"
    _, headers, _ = router.ask("POST", "/v1/chat/completions", POEM, {"X-Request-Id": theirs})
    check("%s: x-request-id comes back" % name, headers.get("x-request-id") == theirs, headers)
    logged = ['"request_id":"%s"' % theirs in w.said() for w in workers]
    check("%s: and is in one worker's log" % name, logged.count(True) == 1, logged)


def prefix(kind, tail, most=1):
    words = " ".join("%s%d" % ("abcdefgh"[kind], i * 3 % 70) for i in range(90))
    return {"messages": [{"role": "user", "content": "%s %d" % (words, tail)}], "max_tokens": most}


def cached(name, router):
    """Prompts of a few beginnings: all but the first of each find it. At random half of them would not."""
    found = []
    for tail in range(TAILS):
        for kind in range(PREFIXES):
            usage = ask(router, **prefix(kind, tail))["usage"]
            found.append(usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"])
            time.sleep(0.05)  # for events to arrive, where the router reads them
    first, later = found[:PREFIXES], found[PREFIXES:]
    share = sum(later) / len(later)
    print("        %s: of %d prompts that begin as another did %.0f %% of the tokens were found"
          % (name, len(later), 100 * share))  # fmt: skip
    check("%s: what begins alike goes where that is kept" % name, share > 0.9, found)
    check("%s: what is new is found nowhere" % name, max(first) < 0.5, first)


def contract(name, router, workers, text):
    """The gauges that routers read, while requests run."""
    before = [w.metrics()("worker_requests_total", outcome="stop") for w in workers]
    load = Load(router, 8, POEM, text)
    load.until(16)
    seen = {}
    names = ("worker_requests_queued", "worker_requests_running", "worker_kv_cache_usage_ratio")
    for _ in range(30):
        for w in workers:
            m = w.metrics()
            for gauge in names:
                seen.setdefault(gauge, []).append(m(gauge))
            info = m("worker_kv_cache_info", block_size="32")
        time.sleep(0.01)
    load.stop()
    n = [w.metrics()("worker_requests_total", outcome="stop") - b for w, b in zip(workers, before)]
    check("%s: both workers work" % name, min(n) > 0, n)
    check("%s: running requests are seen" % name, max(seen["worker_requests_running"]) >= 1)
    check("%s: use of the cache is a share" % name, 0 < max(seen["worker_kv_cache_usage_ratio"]) <= 1)
    check("%s: pages are told" % name, info == 1)
    check("%s: nothing is lost under load" % name, not load.bad and len(load.good) > 8, load.bad[:2])


def killed(name, router, workers, text):
    """kill -9 under load: what was with that worker breaks; all that comes later is answered by the other."""
    load = Load(router, 6, POEM, text)
    load.until(12)
    workers[0].process.kill()
    workers[0].process.wait()
    at = time.monotonic()
    went_on = load.until(40)
    load.stop()
    late = [x for x in sorted(load.good + load.bad, key=lambda x: x[0])[-20:] if x[2]]
    print("        %s: a worker killed under load: %d answers, %d broken, the last of them %.1f s later"
          % (name, len(load.good), len(load.bad), max([x[1] for x in load.bad], default=at) - at))  # fmt: skip
    check("%s: the other worker answers" % name, went_on, (load.bad[:3], router.said()[-1000:]))
    check("%s: soon everything" % name, not late, late[:3])


def drained(name, workers, text, *arguments):
    """SIGTERM under load: nothing is lost at all by a router that looks at /readyz, or that asks another worker where
    one refuses."""
    with Router(name, workers, *arguments).answers(POEM) as router:
        load = Load(router, 6, POEM, text)
        load.until(12)
        before = workers[0].metrics()("worker_requests_total", outcome="stop")
        workers[0].process.send_signal(signal.SIGTERM)
        status = workers[0].status()
        went_on = load.until(20)
        load.stop()
        check("%s: both had work" % name, before > 0, before)
        check("%s: the worker ends with 0" % name, status == 0, workers[0].said()[-500:])
        check("%s: a worker that ends loses nothing" % name, went_on and not load.bad, load.bad[:3])


def vllm(program):
    name = "vllm-router"
    with Worker(program) as a, Worker(program) as b:
        text = ask(a)["choices"][0]["message"]["content"]
        with Router(name, (a, b), *CACHE_AWARE).answers(POEM) as router:
            same(name, router, b)
            named(name, router, (a, b))
            cached(name, router)
            contract(name, router, (a, b), text)
            killed(name, router, (a, b), text)
    looks = ("--policy", "round_robin", "--health-check-endpoint", "/readyz", "--health-check-interval-secs", "1")
    with Worker(program, "--drain-grace-sec", "8") as a, Worker(program) as b:
        drained(name, (a, b), text, *looks, "--health-failure-threshold", "1")


def vllm_with_events(program):
    """The policy that reads cache events: it knows how much of a prompt each worker has."""
    name = "vllm-router, kv_aware"
    with Publishing(program) as a, Publishing(program) as b:
        ask(b, **prefix(7, 0))  # before there is a router: it asks for what it has missed
        sources = ["--kv-event-block-size", "32", "--kv-event-model", "haiku", "--log-level", "debug"]
        for w in (a, b):
            sources += ["--kv-event-source", "%s=%s" % (url(w), w.events)]
            sources += ["--kv-event-replay-source", "%s=%s" % (url(w), w.replay)]
        with Router("vllm-router", (a, b), "--policy", "kv_aware", *sources).answers(POEM) as router:
            for kind in range(PREFIXES):
                ask((a, b)[kind % 2], **prefix(kind, 0))  # directly: the router hears of it by events alone
            for w in (a, b):
                last = "source=%s rank=0 seq=%d\n" % (url(w), w.metrics()("worker_kv_event_batches_total") - 1)
                router.until(lambda line=last: line in router.said())
            found = []
            for kind in range(PREFIXES):
                usage = ask(router, **prefix(kind, 1))["usage"]
                found.append(usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"])
                time.sleep(0.05)
            check(name + ": what it never sent itself", min(found) > 0.9, found)
            usage = ask(router, **prefix(7, 1))["usage"]
            share = usage["prompt_tokens_details"]["cached_tokens"] / usage["prompt_tokens"]
            check(name + ": and what was there before it", share > 0.9, share)
            credited = [int(n) for n in re.findall(r"credited_prefix_tokens=(\d+)", router.said())]
            check(name + ": it knows how much", sum(n > 100 for n in credited) >= PREFIXES, credited)
            check(name + ": and understood all", "decode batch" not in router.said(), router.said()[-1000:])


def matched(workers):
    return sum(w.metrics()("worker_prefix_matched_tokens_total") for w in workers)


def apart(program):
    """Prefill and decode workers: vllm-router asks one of each for every request, and hands on what the first says of
    its pages, unread. Ids are those of one worker that does both."""
    name = "vllm-router, apart"
    roles = [Worker(program, "--role", role) for role in ("prefill", "prefill", "decode", "decode")]
    with contextlib.ExitStack() as stack:
        for w in roles:
            stack.enter_context(w)
        until_it_gives(roles[0])
        until_it_gives(roles[1])
        one = stack.enter_context(Worker(program))
        text = ask(one)["choices"][0]["message"]["content"]
        places = [x for i, w in enumerate(roles) for x in ("--prefill" if i < 2 else "--decode", url(w))]
        more = ("--vllm-pd-disaggregation", "--policy", "round_robin", *places)
        router = stack.enter_context(Router("vllm-router", (), *more).answers(POEM))
        same(name, router, one)
        before, tokens, wrong = matched(roles[2:]), 0, []
        for kind in range(PREFIXES):  # what no worker has seen: all whole pages are pulled
            mine, direct = ask(router, **prefix(kind, 0, 20)), ask(one, **prefix(kind, 0, 20))
            tokens += mine["usage"]["prompt_tokens"]  # its cached_tokens are the prefill worker's
            if mine["choices"][0]["message"] != direct["choices"][0]["message"]:
                wrong.append((mine, direct))
        share = (matched(roles[2:]) - before) / tokens
        check(name + ": prompts are read by one and gone on with by another", not wrong and share > 0.9, (share, wrong))
        ids = re.findall(r'"request_id":"(___prefill_addr_[^"]+)"', roles[2].said())
        check(name + ": its long ids are in the log", len(ids) > 0 and len(max(ids, key=len)) > 64, ids[:2])
        done = [pulls(w).get("done", 0) for w in roles[2:]]
        check(name + ": by hand-overs", sum(done) >= PREFIXES and min(done) > 0, done)
        failed = {k: v for w in roles[2:] for k, v in pulls(w).items() if v and k not in ("done", "cached", "short")}
        check(name + ": none of them failed", not failed, failed)
        load = Load(router, 6, POEM, text)
        load.until(12)
        roles[0].process.kill()
        roles[0].process.wait()
        at = time.monotonic()
        went_on = load.until(30)
        load.stop()
        wrong = [x for x in load.bad if x[2][0] == "cut" and x[0] > at]
        check(name + ": a prefill worker that is killed", went_on and not wrong, (load.bad[:3], router.said()[-800:]))


def smg(program):
    name = "smg"
    with Worker(program) as a, Worker(program) as b:
        text = ask(a)["choices"][0]["message"]["content"]
        with Router(name, (a, b), *CACHE_AWARE).answers(POEM) as router:
            same(name, router, b)
            named(name, router, (a, b))
            cached(name, router)
            contract(name, router, (a, b), text)
            status, known = router.get("/workers")
            good = status == 200 and len(known["workers"]) == 2 and all(x["is_healthy"] for x in known["workers"])
            check("smg: knows both", good and known["workers"][0]["model_id"] == "haiku", known)
            killed(name, router, (a, b), text)
    with Worker(program) as a, Worker(program) as b:  # which is refused by one asks the other
        drained(name, (a, b), text, "--policy", "round_robin")


if __name__ == "__main__":
    if not all(map(is_installed, ("vllm-router", "smg"))):
        skip("the routers are not installed; to run this: python3 -m pip install vllm-router smg")
    vllm(sys.argv[1])
    vllm_with_events(sys.argv[1])
    apart(sys.argv[1])
    smg(sys.argv[1])
    done()
