#!/usr/bin/env python3
"""Several answers to a prompt, several prompts in a request, and log probabilities, over /v1: each choice is what it is
alone, a scored prompt is what `worker score` says, and all jobs of a request live and end together.
usage: test_answers.py PROGRAM SOURCE"""

import http.client
import json
import math
import os
import re
import subprocess
import sys
import time

from service import DEVICE, LONG, MOST, PATIENCE, Job, Worker, check, done

program, source = sys.argv[1:3]
USER = [{"role": "user", "content": "Write a haiku about rain"}]
CHAT = {"messages": USER, "max_tokens": 12, "temperature": 2, "seed": 7}
RAW = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 2, "seed": 7}
LINES = "The rain is a story of wind and water, and the river keeps it.\n" * 8


def chat(w, **members):
    return w.post("/v1/chat/completions", dict(CHAT, **members))


def raw(w, **members):
    return w.post("/v1/completions", dict(RAW, **members))


def error(answer):
    return answer.get("error", {}) if isinstance(answer, dict) else {}


def chunks(text):
    return [json.loads(d) for d in re.findall(r"^data: (.*)$", text, re.M) if d != "[DONE]"]


def text_of(choice):
    return choice["text"] if "text" in choice else choice["message"]["content"]


def joined(stream):
    """index -> what its chunks said: text, log probabilities, the reason."""
    out = {}
    for choice in (c for chunk in chunks(stream) for c in chunk["choices"]):
        o = out.setdefault(choice["index"], {"text": "", "probs": [], "reason": None})
        o["text"] += choice["text"] if "text" in choice else choice["delta"].get("content", "")
        o["probs"] += [choice["logprobs"]] if choice["logprobs"] else []
        o["reason"] = choice["finish_reason"] or o["reason"]
    return out


def idle(w):
    m = w.metrics()
    return not any(m(name) for name in ("worker_requests_running", "worker_requests_queued"))


# ---- several answers ----------------------------------------------------------------------------------------------


def several(w):
    for name, ask in (("chat", chat), ("completions", raw)):
        alone = [ask(w, seed=7 + i)[1] for i in range(4)]
        status, answer = ask(w, n=4, best_of=4)
        choices = answer.get("choices", [])
        check(
            "%s: choice i has the seed + i" % name,
            status == 200
            and [c["index"] for c in choices] == [0, 1, 2, 3]
            and [(text_of(c), c["finish_reason"]) for c in choices]
            == [(text_of(a["choices"][0]), a["choices"][0]["finish_reason"]) for a in alone],
            (answer, alone),
        )
        check("... and they differ", len({text_of(c) for c in choices}) > 1, choices)
        usage = answer["usage"]
        check(
            "... the prompt counts once",
            usage["prompt_tokens"] == alone[0]["usage"]["prompt_tokens"]
            and usage["completion_tokens"] == sum(a["usage"]["completion_tokens"] for a in alone)
            and usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"],
            (usage, alone),
        )
        status, stream = ask(w, n=4, stream=True, stream_options={"include_usage": True})
        told = joined(stream)
        check(
            "... and streamed",
            {i: (o["text"], o["reason"]) for i, o in told.items()}
            == {c["index"]: (text_of(c), c["finish_reason"]) for c in choices}
            and chunks(stream)[-1]["choices"] == []
            and chunks(stream)[-1]["usage"]["total_tokens"] == usage["total_tokens"]
            and stream.endswith("data: [DONE]\n\n"),
            stream,
        )
        reasons = [c["finish_reason"] for c in chunks(stream)[-1]["choices"]]
        check("... every choice ends once", not reasons and stream.count('"finish_reason":"') == 4, stream)
        status, answer = ask(w, n=16, max_tokens=1)
        check("... 16 of them", status == 200 and len(answer["choices"]) == 16, (status, answer))
        for n in (0, 17, 1.5, "2", True):
            status, answer = ask(w, n=n)
            check("%s: n %s" % (name, n), status == 400 and error(answer)["param"] == "n", (status, answer))
        for n, best in ((1, 2), (3, 4), (3, 1)):
            status, answer = ask(w, n=n, best_of=best)
            check(
                "%s: best_of %d of n %d is refused by name" % (name, best, n),
                status == 400 and error(answer)["param"] == "best_of" and "as many as n" in error(answer)["message"],
                (status, answer),
            )
        texts = {tuple(text_of(c) for c in ask(w, n=16, seed=None)[1]["choices"]) for _ in range(2)}
        check("%s: without a seed, others each time" % name, len(texts) == 2, texts)


def one_prefill(w):
    """Pages of the prompt are computed once, and shared."""
    seen = lambda: w.metrics()("worker_prefix_matched_tokens_total")
    w.until(lambda: idle(w))
    before = seen()
    status, answer = raw(w, prompt="One prefill. " + LINES, n=5, max_tokens=2)
    whole = (answer["usage"]["prompt_tokens"] - 1) // 32 * 32
    check("a long prompt", status == 200 and whole >= 96, answer)
    check("four of five find its pages", seen() - before == 4 * whole, (before, seen(), whole))
    check("usage tells what was found before", answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0, answer)


def prompts(w):
    texts = ["Once upon a time", "The rain", "x"]
    ids = [w.post("/tokenize", {"prompt": t})[1]["tokens"] for t in texts]
    alone = [[text_of(raw(w, prompt=t, seed=7 + i)[1]["choices"][0]) for i in range(2)] for t in texts]
    tokens = [raw(w, prompt=t, max_tokens=1)[1]["usage"]["prompt_tokens"] for t in texts]
    for name, given in (("texts", texts), ("lists of ids", ids), ("both", [texts[0], ids[1], texts[2]])):
        status, answer = raw(w, prompt=given)
        check(
            "a list of %s" % name,
            status == 200
            and [(c["index"], text_of(c)) for c in answer["choices"]] == [(i, a[0]) for i, a in enumerate(alone)],
            (status, answer, alone),
        )
        check("... usage", answer["usage"]["prompt_tokens"] == sum(tokens), (answer, tokens))
        status, answer = raw(w, prompt=given, n=2)
        expected = [text for pair in alone for text in pair]
        check(
            "... with n: index = prompt * n + i",
            status == 200
            and [text_of(c) for c in answer["choices"]] == expected
            and answer["choices"][5]["index"] == 5,
            (status, answer, expected),
        )
        told = joined(raw(w, prompt=given, n=2, stream=True)[1])
        check("... and streamed", [told[i]["text"] for i in range(6)] == expected, told)
    for given, words in (
        (["a", ""], "not empty"),
        (["a", 5], "not empty"),
        ([[1], []], "not empty"),
        ([[1], [-1]], "ids of the vocabulary"),
        ([[1], ["a"]], "ids of the vocabulary"),
        ([[[1]]], "ids of the vocabulary"),
        (["a"] * 257, "at most 256"),
    ):
        status, answer = raw(w, prompt=given)
        check(
            "prompt %s" % json.dumps(given)[:40],
            status == 400 and error(answer)["param"] == "prompt" and words in error(answer)["message"],
            (status, answer),
        )
    status, answer = raw(w, prompt=["a"] * 17, n=16)
    check("answers of all prompts together", status == 400 and "256" in error(answer)["message"], (status, answer))
    status, answer = raw(w, prompt=["fine", "word " * 600])
    check(
        "one that is too long refuses all",
        status == 400 and error(answer)["code"] == "context_length_exceeded",
        (status, answer),
    )
    w.until(lambda: idle(w))


# ---- log probabilities --------------------------------------------------------------------------------------------


def good_entry(e, top):
    values = [t["logprob"] for t in e["top_logprobs"]]
    return (
        set(e) == {"token", "logprob", "bytes", "top_logprobs"}
        and len(values) == top
        and values == sorted(values, reverse=True)
        and all(bytes(t["bytes"]).decode("utf-8", "replace") == t["token"] for t in [e, *e["top_logprobs"]])
        and e["logprob"] <= 0
        and sum(map(math.exp, values)) <= 1.000001
        and (top == 0 or e["logprob"] <= values[0])
    )


def of_chats(w):
    status, answer = chat(w, logprobs=True, top_logprobs=5)
    choice = answer["choices"][0]
    entries = choice["logprobs"]["content"]
    check(
        "chat: an entry a token",
        status == 200
        and len(entries) == answer["usage"]["completion_tokens"]
        and b"".join(bytes(e["bytes"]) for e in entries).decode() == choice["message"]["content"]
        and choice["logprobs"]["refusal"] is None
        and all(good_entry(e, 5) for e in entries),
        choice,
    )
    told = joined(chat(w, logprobs=True, top_logprobs=5, stream=True)[1])[0]
    streamed = [e for p in told["probs"] for e in p["content"]]
    check("... streamed", streamed == entries and told["text"] == choice["message"]["content"], told)
    for top in (0, 1, 20):
        found = chat(w, logprobs=True, top_logprobs=top)[1]["choices"][0]["logprobs"]["content"]
        check("... and %d of the best" % top, all(good_entry(e, top) for e in found), found)
        check("... which change nothing else", [e["logprob"] for e in found] == [e["logprob"] for e in entries], found)
    check("none unless asked for", chat(w)[1]["choices"][0]["logprobs"] is None)
    check("... nor with false", chat(w, logprobs=False, top_logprobs=0)[1]["choices"][0]["logprobs"] is None)
    several_ = chat(w, n=3, logprobs=True)[1]["choices"]
    alone = [chat(w, seed=7 + i, logprobs=True)[1]["choices"][0]["logprobs"] for i in range(3)]
    check("each choice has its own", [c["logprobs"] for c in several_] == alone, (several_, alone))
    for members, field in (
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": "5"}, "top_logprobs"),
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 5}, "top_logprobs"),
        ({"logprobs": 5}, "logprobs"),
        ({"echo": True}, "echo"),
    ):
        status, answer = chat(w, **members)
        check("chat: %s" % members, status == 400 and error(answer)["param"] == field, (status, answer))


def raw_values(w):
    """They are of the logits as they come: neither temperature, bias nor penalties move them."""
    greedy = raw(w, temperature=0, max_tokens=1, logprobs=20)[1]["choices"][0]["logprobs"]
    values = dict(greedy["top_logprobs"][0])
    least = min(values, key=values.get)
    of_least = next(
        i
        for i in range(w.get("/health")[1]["vocab_size"])
        if w.post("/detokenize", {"tokens": [i]})[1]["content"] == least
    )
    for members in (
        {"temperature": 2, "seed": 3},
        {"logit_bias": {str(of_least): 100}},
        {"presence_penalty": 2, "frequency_penalty": 2, "repetition_penalty": 1.9, "temperature": 0},
        {"top_k": 1, "top_p": 0.1, "min_p": 0.9},
    ):
        found = raw(w, max_tokens=1, logprobs=20, **members)[1]["choices"][0]["logprobs"]
        known = found["tokens"][0] not in values or found["token_logprobs"][0] == values[found["tokens"][0]]
        best = {k: v for k, v in found["top_logprobs"][0].items() if k in values}
        check("raw values with %s" % members, known and best == values, (found, values))


def of_completions(w):
    status, answer = raw(w, logprobs=3)
    choice = answer["choices"][0]
    p = choice["logprobs"]
    n = answer["usage"]["completion_tokens"]
    check(
        "completions: four lists",
        status == 200
        and set(p) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
        and all(len(v) == n for v in p.values())
        and "".join(p["tokens"]) == choice["text"],
        choice,
    )
    check(
        "... offsets are places in the text",
        all(choice["text"][at : at + len(t)] == t for t, at in zip(p["tokens"], p["text_offset"])),
        choice,
    )
    check(
        "... the best three, and the one that is there",
        all(
            t[token] == value and 3 <= len(t) <= 4 and sorted(t.values())[-1] >= value
            for token, value, t in zip(p["tokens"], p["token_logprobs"], p["top_logprobs"])
        ),
        p,
    )
    told = joined(raw(w, logprobs=3, stream=True)[1])[0]
    lists = {k: [v for q in told["probs"] for v in q[k]] for k in p}
    check("... streamed", lists == p, (lists, p))
    zero = raw(w, logprobs=0)[1]["choices"][0]["logprobs"]
    check(
        "logprobs 0: of the ids that are there",
        zero["token_logprobs"] == p["token_logprobs"] and all(len(t) == 1 for t in zero["top_logprobs"]),
        zero,
    )
    check("logprobs false", raw(w, logprobs=False)[1]["choices"][0]["logprobs"] is None)
    for members, field in (
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"top_logprobs": 5}, "top_logprobs"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"echo": 1}, "echo"),
        ({"n_probs": 5}, "n_probs"),
    ):
        status, answer = raw(w, **members)
        check("completions: %s" % members, status == 400 and error(answer)["param"] == field, (status, answer))


def partial_characters(w):
    """A token that is a part of a character: its bytes are exact."""
    first = w.post("/tokenize", {"content": "\u20ac"})[1]["tokens"][0]
    piece = w.post("/tokenize", {"content": "\u20ac", "with_pieces": True})[1]["tokens"][0]["piece"]
    check("the vocabulary has parts of it", piece == "\ufffd", piece)
    forced = {"max_tokens": 2, "temperature": 0, "logit_bias": {str(first): 100}}
    choice = chat(w, logprobs=True, top_logprobs=1, **forced)[1]["choices"][0]
    entries = choice["logprobs"]["content"]
    check(
        "chat: replaced as text, exact as bytes",
        [(e["token"], e["bytes"]) for e in entries] == [("\ufffd", [0xE2])] * 2,
        choice,
    )
    p = raw(w, logprobs=1, **forced)[1]["choices"][0]["logprobs"]
    check(
        "completions: spelt by its bytes",
        p["tokens"] == ["bytes:\\xe2"] * 2 and all("bytes:\\xe2" in t for t in p["top_logprobs"]),
        p,
    )


# ---- prompts that are scored --------------------------------------------------------------------------------------


def score(*arguments):
    r = subprocess.run([program, "score", "--device", DEVICE, *arguments], capture_output=True, check=True)
    return json.loads(r.stdout)


def as_lm_eval_does(w, ids):
    """The request of lm-eval's local-completions for several prompts, and how it reads the answer: behind the first
    token up to the last but one place, which is the id that it did not want. -> [(sum, is greedy)]"""
    status, answer = w.post(
        "/v1/completions",
        {"model": "haiku", "prompt": ids, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True},
    )
    check("lm-eval's request", status == 200, (status, answer))
    out = []
    for choice in sorted(answer["choices"], key=lambda c: c["index"]):
        values = choice["logprobs"]["token_logprobs"][1:-1]
        tops = choice["logprobs"]["top_logprobs"][1:-1]
        out.append((sum(values), all(v == max(t.values()) for v, t in zip(values, tops)), len(values)))
    return out


def scored(w):
    texts = ["Once upon a time there was rain", LINES, "x y", LINES[:200] + "é€"]
    ended = w.post("/tokenize", {"messages": USER})[1]["tokens"]
    natural = chat(w, temperature=0, max_tokens=60)[1]["choices"][0]
    check("an answer that ends by itself", natural["finish_reason"] == "stop", natural)
    ids = [w.post("/tokenize", {"prompt": t})[1]["tokens"] for t in texts]
    ids.append(ended + w.post("/tokenize", {"content": natural["message"]["content"]})[1]["tokens"])
    for got, prompt in zip(as_lm_eval_does(w, ids), ids):
        want = score("--ids", " ".join(map(str, prompt)))
        perplexity = math.exp(-got[0] / got[2])
        check(
            "%d tokens have the perplexity of worker score" % len(prompt),
            got[2] == want["scored"] == len(prompt) - 1
            and abs(perplexity - want["perplexity"]) <= 1e-6 * want["perplexity"],
            (got, perplexity, want),
        )
    start = ids[4][: len(ended)]
    greedy = raw(w, prompt=start, temperature=0, max_tokens=8, logprobs=0, echo=True)[1]["choices"][0]["logprobs"]
    tail = greedy["token_logprobs"][len(start) :]
    again = raw(w, prompt=ids[4], temperature=0, max_tokens=0, logprobs=1, echo=True)[1]["choices"][0]["logprobs"]
    places = again["token_logprobs"][len(start) : len(start) + len(tail)]
    apart = max(abs(a - b) for a, b in zip(places, tail))
    check("a prompt's values are those of its generation", apart < 0.05, (places, tail))  # rows of two kernel classes


def echoes(w):
    for prompt, text in (("Once upon a time", "Once upon a time"), ([1, 2, 3], None)):
        status, answer = raw(w, prompt=prompt, echo=True, max_tokens=3, logprobs=1)
        choice = answer["choices"][0]
        p = choice["logprobs"]
        n = answer["usage"]["prompt_tokens"]
        text = text or w.post("/detokenize", {"tokens": prompt})[1]["content"]
        plain = raw(w, prompt=prompt, max_tokens=3, logprobs=1)[1]["choices"][0]
        check(
            "echo of %s" % prompt,
            status == 200
            and choice["text"] == text + plain["text"]
            and len(p["tokens"]) == n + 3
            and p["token_logprobs"][0] is None is p["top_logprobs"][0]
            and all(v is not None for v in p["token_logprobs"][1:])
            and p["tokens"][n:] == plain["logprobs"]["tokens"]
            and p["token_logprobs"][n:] == plain["logprobs"]["token_logprobs"]
            and p["text_offset"][n:] == [len(text) + at for at in plain["logprobs"]["text_offset"]],
            (choice, plain),
        )
        told = joined(raw(w, prompt=prompt, echo=True, max_tokens=3, logprobs=1, stream=True)[1])[0]
        lists = {k: [v for q in told["probs"] for v in q[k]] for k in p}
        check("... streamed", told["text"] == choice["text"] and lists == p, (told, choice))
        status, answer = raw(w, prompt=prompt, echo=True, max_tokens=0, logprobs=1)
        zero = answer["choices"][0]
        check(
            "... and nothing else with max_tokens 0",
            zero["text"] == text
            and zero["finish_reason"] == "length"
            and zero["logprobs"] == {k: v[:n] for k, v in p.items()}
            and answer["usage"]["completion_tokens"] == 0,
            zero,
        )
        both = raw(
            w,
            prompt=[prompt, "x"] if isinstance(prompt, str) else [prompt, [4]],
            n=2,
            echo=True,
            max_tokens=0,
            logprobs=1,
        )
        check("... of every choice", [c["logprobs"] for c in both[1]["choices"]][:2] == [zero["logprobs"]] * 2, both)
    silent = raw(w, echo=True, max_tokens=2)[1]["choices"][0]
    check("echo without logprobs", silent["text"].startswith(RAW["prompt"]) and silent["logprobs"] is None, silent)
    told = joined(raw(w, echo=True, max_tokens=0, stream=True)[1])[0]
    check("... streamed, of no id", told["text"] == RAW["prompt"] and told["reason"] == "length", told)
    offsets = raw(w, prompt="é€x", echo=True, max_tokens=0, logprobs=0)[1]["choices"][0]
    check("offsets count characters", max(offsets["logprobs"]["text_offset"]) <= 3, offsets)


def ranked(w, n):
    return raw(w, max_tokens=1, prompt_logprobs=n)[1]["choices"][0]["prompt_logprobs"]


def prompt_probs(w):
    p = raw(w, echo=True, max_tokens=0, logprobs=2)[1]["choices"][0]["logprobs"]
    ids = w.post("/tokenize", {"prompt": RAW["prompt"]})[1]["tokens"]
    for n in (0, 2):
        status, answer = raw(w, max_tokens=1, prompt_logprobs=n)
        found = answer["choices"][0]["prompt_logprobs"]
        check(
            "prompt_logprobs %d" % n,
            status == 200
            and found[0] is None
            and len(found) == len(ids)
            and all(
                e[str(i)]["logprob"] == v and e[str(i)]["decoded_token"] == t and n <= len(e) <= n + 1
                for e, i, v, t in list(zip(found, ids, p["token_logprobs"], p["tokens"]))[1:]
            )
            and all(
                {r["rank"] for r in e.values()} == set(range(1, n + 1)) | {e[str(i)]["rank"]}
                for e, i in list(zip(found, ids))[1:]
            ),
            (found, p),
        )
    own, best = ([e and e[str(i)]["rank"] for e, i in zip(ranked(w, n), ids)] for n in (0, 20))
    check("a rank is the same, whatever else is asked for", own == best and max(own[1:]) > 2, (own, best))
    status, answer = chat(w, max_tokens=1, prompt_logprobs=1)
    check(
        "... of a chat",
        status == 200 and len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"],
        (status, answer),
    )
    answer = raw(w, prompt=["a b", "c d e"], n=2, max_tokens=1, prompt_logprobs=0)[1]
    found = [c["prompt_logprobs"] for c in answer["choices"]]
    check("... of each prompt", found[0] == found[1] != found[2] == found[3], found)
    check("false asks for nothing", "prompt_logprobs" not in raw(w, prompt_logprobs=False)[1]["choices"][0])


def reasoning():
    """A model that thinks: an entry for each id that was generated, also of what is not for the user."""
    model = os.path.join(os.environ["WORKER_GOLDENS"], "harmony.gguf")
    with Worker(program, "--model", model) as w:
        ids = [w.post("/tokenize", {"content": t, "parse_special": True})[1]["tokens"][0] for t in ("a", "<|channel|>")]
        ask = {"messages": USER, "max_tokens": 6, "temperature": 0, "logprobs": True, "top_logprobs": 2}
        for i, name in zip(ids, ("a", "<|channel|>")):
            status, answer = w.post("/v1/chat/completions", dict(ask, logit_bias={str(i): 100}))
            entries = answer["choices"][0]["logprobs"]["content"]
            check(
                "harmony: %s" % name,
                status == 200
                and len(entries) == answer["usage"]["completion_tokens"] == 6
                and {e["token"] for e in entries} == {name},
                (status, answer),
            )


# ---- life ---------------------------------------------------------------------------------------------------------


class Open:
    """A request whose answer is read later, or never."""

    def __init__(self, w, path, body, headers=None):
        self.c = http.client.HTTPConnection("127.0.0.1", w.port, timeout=PATIENCE)
        self.c.request("POST", path, json.dumps(body), dict({"Content-Type": "application/json"}, **(headers or {})))

    def answer(self):
        r = self.c.getresponse()
        return r.status, r.read().decode()


def together():
    endless = {"prompt": "Once upon a time", "max_tokens": MOST, "temperature": 0, "repetition_penalty": 0.01, "n": 3}
    endless["ignore_eos"] = True
    with Worker(program, *LONG, "--max-sequences", "4", "--max-queue", "4") as w:
        jobs = lambda: [
            j["job_id"]
            for j in w.get("/worker/jobs")[1]["jobs"]
            if j["state"] not in ("finished", "failed", "cancelled")
        ]
        running = lambda n: w.until(lambda: w.metrics()("worker_requests_running") == n)
        ended = lambda outcome: w.metrics()("worker_requests_total", outcome=outcome)
        for stream in (False, True):
            for victim in (0, 2):
                o = Open(w, "/v1/completions", dict(endless, stream=stream))
                running(3)
                w.post("/cancel", {"job_id": sorted(jobs())[victim]})
                status, text = o.answer()
                check(
                    "cancelling one of a request's jobs ends them all",
                    '"cancelled"' in text and status == (200 if stream else 499),
                    (status, text[-500:]),
                )
                w.until(lambda: idle(w))
            before = ended("cancelled")
            o = Open(w, "/v1/completions", dict(endless, stream=stream))
            running(3)
            o.c.close()
            w.until(lambda: idle(w))
            check("a client that leaves takes all of them along", ended("cancelled") == before + 3, w.metrics().text)
            soon = {"X-Deadline": str(int(time.time() * 1000) + 1500)}
            status, text = Open(w, "/v1/completions", dict(endless, stream=stream), soon).answer()
            check("a deadline ends all", "inference_timeout" in text, (status, text[-500:]))
            w.until(lambda: idle(w))
        natural = raw(w, n=8, temperature=2, max_tokens=60, stop=["e"])[1]["choices"]
        check(
            "a stop string holds for each choice",
            all("e" not in c["text"] for c in natural) and len({c["text"] for c in natural}) > 1,
            natural,
        )
        status, answer = raw(w, prompt=["a"] * 3, n=3)
        check(
            "more answers than can ever run or wait: 400",
            status == 400 and "--max-queue" in error(answer)["message"] and "at most 8" in error(answer)["message"],
            (status, answer),
        )
        front = [Job(w, "front-%d" % i).until("token") for i in range(4)]
        before = ended("cancelled")
        status, answer = raw(w, n=6)
        check(
            "one that the queue refuses refuses all: 429",
            status == 429 and error(answer)["code"] == "queue_full",
            (status, answer),
        )
        w.until(lambda: w.metrics()("worker_requests_queued") == 0)
        check("... and leaves nothing behind", ended("cancelled") == before + 4, w.metrics().text)
        check("... and none is listed", sorted(jobs()) == ["front-%d" % i for i in range(4)], jobs())
        waiting = Open(w, "/v1/completions", dict(endless, n=4, max_tokens=2))
        w.until(lambda: w.metrics()("worker_requests_queued") == 4)
        check("as many as there is room for wait", len(jobs()) == 8, jobs())
        for job in front:
            job.cancel()
        status, text = waiting.answer()
        check("... and are answered", status == 200 and len(json.loads(text)["choices"]) == 4, (status, text))
        w.until(lambda: idle(w))
        check("the worker ends", w.end() == 0, w.said()[-2000:])


def memory():
    """What log probabilities would take is asked for before the first is computed."""
    with Worker(program, *LONG) as w:
        large = {"prompt": ["a"] * 16, "n": 16, "max_tokens": 30000, "logprobs": 20, "ignore_eos": True}
        for stream in (False, True):
            status, answer = w.post("/v1/completions", dict(large, stream=stream))
            check(
                "more than there is memory for: 413",
                status == 413 and "MiB" in error(answer)["message"],
                (status, answer),
            )
            w.until(lambda: idle(w))
        status, answer = w.post("/v1/completions", dict(large, max_tokens=2))
        check("less is no matter", status == 200 and len(answer["choices"]) == 256, status)


with Worker(program) as w:
    several(w)
    one_prefill(w)
    prompts(w)
    of_chats(w)
    of_completions(w)
    raw_values(w)
    partial_characters(w)
    scored(w)
    echoes(w)
    prompt_probs(w)
    w.until(lambda: idle(w))
reasoning()
together()
memory()
done()
