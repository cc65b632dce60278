#!/usr/bin/env python3
"""The tests that the requirements spell out, on the embedded model: a haiku with the minute spelled out, the same ids
twice, text of many scripts, and a model served by plan, commit, ready and execute."""

import hashlib
import json
import os
import sys

from service import Worker, check, done, events

program, source = sys.argv[1], sys.argv[2]
sys.path.insert(0, os.path.join(source, "models/haiku"))
ONES = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
ONES = [*ONES.split(), "eighteen", "nineteen"]
TENS = {2: "twenty", 3: "thirty", 4: "forty", 5: "fifty"}
SCRIPTS = ("你好世界", "Hello 👋 World 🌍", "Mixed: 日本語 English العربية")
HAIKU = {"prompt": "Write a haiku about GPU computing", "max_tokens": 50, "temperature": 0.7, "seed": 42, "chat": True}
BAR = 54  # of sixty minutes: the model's own bar, nine of ten


def spelled(minute):
    tens = TENS.get(minute // 10)
    return ONES[minute] if not tens else tens + ("-" + ONES[minute % 10] if minute % 10 else "")


def raw(w, **body):
    """The bytes of a stream, and its events."""
    status, _, data = w.ask("POST", "/execute", dict({"job_id": "raw-%d" % len(json.dumps(body))}, **body))
    check("%.20r is served" % body["prompt"], status == 200, data)
    return data, events(data.decode("utf-8"))


def valid_lines(data):
    """Is every line of a stream UTF-8 by itself?"""
    try:
        return all(line.decode("utf-8") is not None for line in data.split(b"\n"))
    except UnicodeDecodeError:
        return False


def parts(stream):
    return [d["t"] for name, d in stream if name == "token"], [d["id"] for name, d in stream if name == "token"]


def haiku(w):
    first, second = (w.execute(**HAIKU)[1] for _ in range(2))
    names = [name for name, _ in first]
    check("started, tokens, end", names == ["started", *["token"] * (len(names) - 2), "end"], names)
    check("the same ids and text again", parts(first) == parts(second), (first, second))
    check("the seed is returned", first[0][1]["seed"] == 42 and first[-1][1]["seed"] == 42, first[-1])
    good = []
    for minute in range(60):
        word = spelled(minute)
        ask = 'Write a haiku about GPU computing that includes the word "%s"' % word
        _, stream = w.execute(prompt=ask, max_tokens=64, temperature=0, chat=True)
        text = "".join(parts(stream)[0])
        if len(text.strip().split("\n")) == 3 and word in text.lower():
            good.append(minute)
    missed = [spelled(m) for m in range(60) if m not in good]
    check("three lines with the minute's word", len(good) >= BAR, "not: " + ", ".join(missed))


def reproducible(w):
    body = {"prompt": "The quick brown fox", "max_tokens": 50, "temperature": 0, "seed": 42}
    runs = [parts(w.execute(**body)[1]) for _ in range(3)]
    check("temperature 0, seed 42, 50 tokens: the same three times", runs[0] == runs[1] == runs[2], runs)
    body = {"prompt": "Once upon a time", "max_tokens": 50, "temperature": 1.5, "seed": 42}
    runs = [parts(w.execute(**body)[1]) for _ in range(3)]
    check("sampled, seed 42: the same three times", runs[0] == runs[1] == runs[2], runs)


def scripts(w):
    for text in SCRIPTS:
        for temperature in (0, 2):
            data, stream = raw(w, prompt=text, max_tokens=20, temperature=temperature, seed=42)
            pieces, ids = parts(stream)
            whole = "".join(pieces)
            lone = [c for c in whole if 0xD800 <= ord(c) < 0xE000]
            check("%s at %g: text in every event" % (text, temperature), not lone and valid_lines(data), data)
            check(
                "%s at %g: an event an id" % (text, temperature), len(ids) == stream[-1][1]["tokens_out"] <= 20, stream
            )
        ids = w.post("/tokenize", {"content": text})[1]["tokens"]
        back = w.post("/detokenize", {"tokens": ids})[1]["content"]
        check("%s comes back" % text, back == text, back)


def cut_character(w):
    """A character that the length limit cuts is dropped; bytes that nothing can complete are U+FFFD."""
    for letter in "ŘŽĂćőџ":
        ids = w.post("/tokenize", {"content": letter})[1]["tokens"]
        if len(ids) == 2:
            break
    check("a character of two tokens", len(ids) == 2, ids)
    ask = {"model": "haiku", "prompt": "x", "temperature": 0, "logit_bias": {str(ids[0]): 100}}
    for n, want in ((1, ""), (2, "\ufffd"), (3, "\ufffd\ufffd")):
        a = w.post("/v1/completions", dict(ask, max_tokens=n))[1]
        got = a["choices"][0]["text"]
        check("%d first halves, cut by length" % n, got == want and a["choices"][0]["finish_reason"] == "length", a)


def pipeline():
    """Plan, commit, ready, execute, three times the same; the weights' file is what it was after 100 requests."""
    folder, name = os.path.join(source, "models/haiku"), "haiku-q4_k_m.gguf"
    with Worker(program, "--wait-for-commit", "--model-dir", folder, wait=False) as w:
        w.until(lambda: w.get("/livez")[0] == 200)
        ask = {"model_ref": name, "shard_layout": "single", "tp_degree": 1}
        w.until(lambda: w.post("/worker/plan", ask)[0] != 503)
        status, plan = w.post("/worker/plan", ask)
        check("plan", status == 200 and plan["feasible"] and len(plan["shard_plan"]) == 1, plan)
        shard = {"model_ref": name, "shard_id": "s0", "shard_index": 0, "model_bytes": name}
        status, committed = w.post("/worker/commit", shard)
        check("commit", status == 200, committed)
        w.until(lambda: w.get("/worker/ready")[1]["ready"])
        w.until(lambda: w.get("/worker/ready")[1]["handles"][0]["digest"])  # a commit does not wait for it
        handle = w.get("/worker/ready")[1]["handles"][0]
        again = w.post("/worker/commit", shard)[0]
        check("a second load is refused", again == 409, again)
        runs = []
        for i in range(3):
            body = {
                "handle_id": "s0",
                "prompt": "Once upon a time",
                "params": {"seed": 42, "max_tokens": 50, "temperature": 0.8},
                "job_id": "story-%d" % i,
            }
            status, text = w.post("/worker/execute", body)
            check("execute %d" % i, status == 200, text)
            runs.append(parts(events(text)))
        check("three runs are equal", runs[0] == runs[1] == runs[2] and runs[0][1], runs)
        for i in range(100):
            w.execute(prompt="request %d" % i, max_tokens=4, temperature=0)
        after = w.get("/worker/ready")[1]["handles"][0]
        check("the handle is the same after 100 requests", after == handle, (handle, after))


with open(os.path.join(source, "models/haiku/haiku-q4_k_m.gguf"), "rb") as model:
    before = hashlib.sha256(model.read()).hexdigest()
with Worker(program) as worker:
    haiku(worker)
    reproducible(worker)
    scripts(worker)
    cut_character(worker)
pipeline()
with open(os.path.join(source, "models/haiku/haiku-q4_k_m.gguf"), "rb") as model:
    check("the file is as it was", hashlib.sha256(model.read()).hexdigest() == before)
done()
