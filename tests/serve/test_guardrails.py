#!/usr/bin/env python3
"""The blocklist on answers: wherever a phrase stands in what a model says, no byte of it leaves, and what is safe
leaves at once."""

import json
import os
import re
import sys

from gated import Client, Gated
from service import LONG, check, done, events, scratch
from thinking import HARMONY, thinker

program = sys.argv[1]
CHAT = "/v1/chat/completions"
SNOW = "Write a haiku about snow"
UNFIT = "Write about snow text haiku size this that phrase answer worker"  # words that stand in answers of all kinds


def body(content, **more):
    return dict({"messages": [{"role": "user", "content": content}], "temperature": 0.8, "max_tokens": 60}, **more)


def whole(c, request, route=CHAT):
    """(status, texts of the choices, raw)"""
    status, _, text = c.ask("POST", route, request)
    texts = []
    if status == 200:
        texts = [x.get("text") or x.get("message", {}).get("content") or "" for x in json.loads(text)["choices"]]
    return status, texts, text


def streamed(c, request, route=CHAT):
    """(texts by choice, the error's code or None, raw)"""
    _, _, text = c.ask("POST", route, dict(request, stream=True))
    texts, code = {}, None
    for _, d in events(text):
        code = d.get("error", {}).get("code", code)
        for x in d.get("choices", []):
            said = x.get("text") or (x.get("delta") or {}).get("content") or ""
            texts[x["index"]] = texts.get(x["index"], "") + said
    return texts, code, text


def stands(phrase, text):
    """Where the phrase stands as words of their own; None."""
    m = re.search(r"(?<![^\W_])%s(?![^\W_])" % re.escape(phrase), text, re.I)
    return m and m.start()


def phrases_of(text):
    """Words and pairs of them that stand in it, each with where it stands first."""
    words = [m for m in re.finditer(r"[A-Za-z]{4,}", text)]
    pairs = [text[a.start() : b.end()] for a, b in zip(words, words[1:])]
    for phrase in [m.group() for m in words] + pairs:
        yield " ".join(phrase.split()), phrase


def everywhere(w, c):
    blocked = at_beginning = at_end = 0
    for seed in range(3):
        request = body("Write a haiku about GPU computing", seed=seed)
        _, (text,), _ = whole(c, request)
        for phrase, raw in phrases_of(text):
            at = stands(raw, text)
            if stands(phrase, request["messages"][0]["content"]) is not None:
                continue
            w.guard(blocklist=["never said", phrase.upper()], block_output=True)
            status, _, said = whole(c, request)
            good = status == 403 and "guardrail_blocked" in said and raw not in said
            check("whole: blocked: %s" % phrase, good, (status, said))
            texts, code, said = streamed(c, request)
            before = texts.get(0, "")
            good = code == "guardrail_blocked" and text[:at].startswith(before) and at - len(before) < 16
            check("streamed: %r is said up to %s" % (before[-12:], phrase), good, (before, code, text))
            blocked += 1
            at_beginning += at == 0
            at_end += at + len(raw) == len(text)
    check("phrases of all places were blocked", blocked > 40 and at_beginning and at_end, (blocked, at_beginning))


def cut(w, c):
    """An answer that is cut short anywhere in what may become a match is what it would be without the list; one that
    has the phrase is blocked."""
    request = body("Write a haiku about GPU computing", seed=1)
    answers = {}
    w.guard()
    for n in range(1, 40):
        answers[n] = whole(c, dict(request, max_tokens=n))[1][0]
    words = re.findall(r"[A-Za-z]{3,}", answers[39])
    phrase = " ".join(words[4:7])
    raw = re.search(r"\W+".join(words[4:7]), answers[39]).group()
    w.guard(blocklist=[phrase], block_output=True)
    blocked = passed = 0
    for n in range(1, 40):
        status, texts, said = whole(c, dict(request, max_tokens=n))
        has = stands(raw, answers[n]) is not None
        good = status == 403 if has else (status, texts) == (200, [answers[n]])
        texts, code, _ = streamed(c, dict(request, max_tokens=n))
        same = raw not in texts.get(0, "") if has else (texts[0], code) == (answers[n], None)
        check("cut after %d: %s" % (n, "blocked" if has else "as it is"), good and same, (answers[n], said, texts))
        blocked, passed = blocked + has, passed + (not has)
    check("both were met", blocked and passed, (blocked, passed))


def stops(w, c):
    request = body("Write a haiku about GPU computing", seed=1)
    w.guard()
    _, (text,), _ = whole(c, request)
    words = [x for x in re.findall(r"[A-Za-z]{4,}", text)]
    first, second = words[2], words[3]
    w.guard(blocklist=[second], block_output=True)
    status, texts, said = whole(c, dict(request, stop=[first]))
    check("a stop before the phrase ends the answer", (status, texts) == (200, [text[: text.index(first)]]), said)
    texts, code, said = streamed(c, dict(request, stop=[first]))
    check("... streamed", (texts[0], code) == (text[: text.index(first)], None), said)
    w.guard(blocklist=[first], block_output=True)
    check("one behind it does not help", whole(c, dict(request, stop=[second]))[0] == 403)
    texts, code, said = streamed(c, dict(request, stop=[second]))
    check("... streamed", code == "guardrail_blocked" and first not in said, said)
    pair = re.search(first + r"\W+" + second, text).group()
    w.guard(blocklist=[" ".join(pair.split())], block_output=True)
    for stop in (second, second[1:3], first[2:]):
        _, _, said = whole(c, dict(request, stop=[stop]))
        texts, _, more = streamed(c, dict(request, stop=[stop]))
        check("a stop within the phrase: nothing of it", pair not in said + more + texts.get(0, ""), said)


def several(w, c):
    request = body("Write a haiku about GPU computing", seed=5, n=3)
    w.guard()
    _, texts, _ = whole(c, request)
    only = [x for x in re.findall(r"[A-Za-z]{4,}", texts[1]) if x not in texts[0] + texts[2]]
    check("the answers differ", only, texts)
    w.guard(blocklist=only[-1:], block_output=True)
    status, _, said = whole(c, request)
    check("n = 3: one is blocked, and none is given", status == 403 and only[-1] not in said, said)
    parts, code, said = streamed(c, request)
    fine = all(texts[i].startswith(parts[i]) for i in parts) and only[-1] not in said
    check("n = 3, streamed: no byte of it", fine and code == "guardrail_blocked", said)
    prompts = {"prompt": ["Hello", SNOW], "max_tokens": 30, "temperature": 0}
    w.guard()
    _, texts, _ = whole(c, prompts, "/v1/completions")
    word = next(x for x in re.findall(r"[A-Za-z]{4,}", texts[1]) if x not in texts[0] + UNFIT)
    w.guard(blocklist=[word], block_output=True)
    status, _, said = whole(c, prompts, "/v1/completions")
    check("several prompts", status == 403 and word not in said, (word, said))
    _, code, said = streamed(c, dict(prompts, logprobs=0), "/v1/completions")
    check("... streamed, with log probabilities", code == "guardrail_blocked" and word not in said, said)
    _, _, said = c.ask("POST", "/execute", dict(prompts, prompt=SNOW, job_id="blocked"))
    said = [d for _, d in events(said)]
    text = "".join(d.get("t", "") for d in said)
    fine = said[-1].get("error", said[-1]).get("code") == "GUARDRAIL_BLOCKED" and word not in text
    check("/execute", fine and texts[1].startswith(text), said)


def calls(w, c):
    """The argument of a call, whole and streamed."""
    function = {
        "name": "count_syllables",
        "description": "The number of syllables of a word.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    }
    request = body(
        'How many syllables does "lantern" have?',
        tools=[{"type": "function", "function": function}],
        temperature=0,
        max_tokens=100,
    )
    w.guard()
    _, _, said = whole(c, request)
    made = json.loads(said)["choices"][0]["message"].get("tool_calls")
    check("a function is called", made and "lantern" in made[0]["function"]["arguments"], said)
    w.guard(blocklist=['"word": "lantern'], block_output=True)
    status, _, said = whole(c, request)
    check("a phrase in a call's arguments", status == 403 and "tool_calls" not in said, said)
    _, code, said = streamed(c, request)
    check("... streamed", code == "guardrail_blocked" and "lantern" not in said, said)


def reasoning():
    path = os.path.join(scratch("worker-thinks-"), "thinks.gguf")
    end = thinker(path)
    with Gated(program, "--model", path) as w:
        c = Client(w, w.key("alice"))
        request = body("Yes or no?", max_tokens=120, temperature=1, logit_bias={str(end): 2})
        found = 0
        for seed in range(12):
            w.guard()
            _, _, said = c.ask("POST", CHAT, dict(request, seed=seed))
            message = json.loads(said)["choices"][0]["message"]
            thought = message.get("reasoning_content") or ""
            words = [x for x in re.findall(r"(?<![^\W_])[A-Za-z]{2,}(?![^\W_])", thought) if x.isascii()]
            words = [x for x in words if stands(x, "assistant think user system im_start im_end yes or no") is None]
            if not words:
                continue
            word = words[-1]
            w.guard(blocklist=[word], block_output=True)
            status, _, said = c.ask("POST", CHAT, dict(request, seed=seed))
            check("reasoning is held to it: %s" % word, status == 403, said)
            _, _, said = c.ask("POST", CHAT, dict(request, seed=seed, stream=True))
            parts = [x["delta"] for _, d in events(said) for x in d.get("choices", [])]
            text = "".join(p.get("reasoning_content") or "" for p in parts)
            good = stands(word, text) is None and "guardrail_blocked" in said
            check("... streamed", good, said[-400:])
            found += 1
        check("reasoning had words", found > 2, found)


def beside_marks():
    """A prompt whose turns no white space parts from the words beside them."""
    with Gated(program, "--model", HARMONY) as w:
        c = Client(w, w.key("alice"))
        w.guard(blocklist=["forbidden fruit"])
        for content, status in (("forbidden fruit", 403), ("eat forbidden fruit", 403), ("forbidden fruits", 200)):
            got, _, said = c.ask("POST", CHAT, body(content, max_tokens=1))
            check("beside a control token: %s" % content, got == status, (got, said))


def at_once(w):
    """What is safe is not kept until the end."""
    phrases = ["phrase number %d of many that nobody says" % i for i in range(10000)]
    w.guard(blocklist=phrases, block_output=True)
    c, other = Client(w, w.key("patient")), Client(w, w.root)
    request = {"prompt": "Once upon a time", "max_tokens": 30000, "temperature": 0, "repetition_penalty": 0.01}
    r = c.open("POST", "/execute", dict(request, job_id="long"))
    seen = 0
    while seen < 20:
        seen += r.readline().startswith(b"event: token")
    job = json.loads(other.ask("GET", "/worker/jobs/long")[2])
    check("text comes while the answer is made", job["state"] == "decode", job)
    other.ask("POST", "/cancel", {"job_id": "long"})
    r.read()
    w.guard(blocklist=phrases[:5000], block_output=True)
    check("a list may be replaced by a shorter one", len(w.manage("GET", "/admin/guardrails")[1]["blocklist"]) == 5000)


with Gated(program) as worker:
    client = Client(worker, worker.key("alice"))
    everywhere(worker, client)
    cut(worker, client)
    stops(worker, client)
    several(worker, client)
    calls(worker, client)
with Gated(program, *LONG) as worker:
    at_once(worker)
reasoning()
beside_marks()
done()
