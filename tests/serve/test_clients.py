#!/usr/bin/env python3
"""What clients of OpenAI's interface send, as they send it: members of other servers, each served, harmless or refused
by name as the table of serve/openai_names.c says; seeds, limits and stops in the forms that occur; and paths of other
interfaces, which answer what to use instead."""

import json
import os
import re
import sys

from service import LONG, Job, Worker, check, done

program, source = sys.argv[1], sys.argv[2]
USER = [{"role": "user", "content": "Write a haiku about rain"}]
GREEDY = {"messages": USER, "max_tokens": 12, "temperature": 0}
RAW = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}


def chat(w, **members):
    return w.post("/v1/chat/completions", dict(GREEDY, **members))


def raw(w, **members):
    return w.post("/v1/completions", dict(RAW, **members))


def error(answer):
    return answer.get("error", {}) if isinstance(answer, dict) else {}


def table():
    """(name, kind, routes, exact, values that ask for nothing) of every row."""
    with open(os.path.join(source, "serve/openai_names.c"), encoding="utf-8") as f:
        text = f.read()
    rows = re.findall(
        r'\{ "(\w+)",\s+(SERVED|IDLE|REFUSED),\s+([A-Z_ |]+),\s+(true|false),\s+(NULL|"(?:\\.|[^"\\])*")', text
    )
    return [(n, k, routes(r), e == "true", [] if v == "NULL" else json.loads(json.loads(v))) for n, k, r, e, v in rows]


def routes(names):
    """The functions that ask the routes of a row: one of OpenAI's, and llama-server's."""
    of = {"BOTH": "CHAT", "ALL": "CHAT LLAMA", "RAW": "COMPLETION LLAMA", "OPENAI_LLAMA": "LLAMA", "OPENAI_INFILL": ""}
    found = {r for name in names.split(" | ") for r in of.get(name, name).split()}
    return [{"CHAT": chat, "COMPLETION": raw, "LLAMA": llama}[r] for r in sorted(found)]


def llama(w, **members):
    if "max_tokens" in members:
        members.setdefault("n_predict", members.pop("max_tokens"))
    return w.post("/completion", dict({"prompt": "Once upon a time"}, **members))


def known_name(w, ask, name, kind, exact, nothing):
    who = " (%s)" % ask.__name__
    if kind == "IDLE":
        status, answer = ask(w, max_tokens=1, **{name: "x"})
        check("%s asks for nothing" % name + who, status == 200, (status, answer))
    if kind != "REFUSED":
        return
    for value in nothing + ([] if exact else [False, 0, "", [], {}]) + [None]:
        status, answer = ask(w, max_tokens=1, **{name: value})
        check("%s: %s asks for nothing" % (name, json.dumps(value)) + who, status == 200, (status, answer))
    for value in ["some", 7, {"x": 1}] + [v for v in (False, 0, "", [], {}) if exact and v not in nothing]:
        status, answer = ask(w, **{name: value})
        check(
            "%s: %s is refused by name" % (name, json.dumps(value)) + who,
            status == 400 and error(answer).get("param") == name and name in error(answer)["message"],
            (status, answer),
        )


def known_names(w):
    rows = table()
    check("the table was read", len(rows) > 100, len(rows))
    for name, kind, asks, exact, nothing in rows:
        for ask in asks:
            known_name(w, ask, name, kind, exact, nothing)
    with open(os.path.join(source, "docs/http.md"), encoding="utf-8") as f:
        manual = f.read()
    missing = [r[0] for r in rows if "`%s`" % r[0] not in manual]
    check("docs/http.md has every known name", not missing, missing)


def chunks(text):
    lines = [l[6:] for l in text.splitlines() if l.startswith("data: ")]
    return [json.loads(l) for l in lines if l != "[DONE]"]


def benchmarks(w):
    """Requests of guidellm and of `vllm bench serve`: exactly so many tokens, counted by the last usage; the first
    token is the first chunk with a text."""
    each = {"include_usage": True, "continuous_usage_stats": True}
    last = {"include_usage": True}
    fixed = {"stop": None, "ignore_eos": True, "stream": True, "model": "haiku"}
    vllm = {"temperature": 0.0, "repetition_penalty": 1.0, "logprobs": None, "ignore_eos": True, "stream": True}
    parts = [{"type": "text", "text": "Write a haiku about rain"}]
    said = [{"role": "user", "content": parts}]
    for name, path, body in (
        ("guidellm, chat", "/v1/chat/completions",
         dict(fixed, max_completion_tokens=20, messages=said, stream_options=each)),
        ("guidellm, completion", "/v1/completions", dict(fixed, max_tokens=20, prompt="the rain", stream_options=each)),
        ("vllm bench, chat", "/v1/chat/completions",
         dict(vllm, model="haiku", max_completion_tokens=20, messages=said, stream_options=last)),
        ("vllm bench, completion", "/v1/completions",
         dict(vllm, model="haiku", max_tokens=20, prompt="the rain", stream_options=last)),
    ):  # fmt: skip
        status, text = w.post(path, body)
        got = chunks(text) if status == 200 else []
        texts = [
            c
            for c in got
            if c["choices"] and (c["choices"][0].get("text") or c["choices"][0].get("delta", {}).get("content"))
        ]
        check(name + ": so many tokens", status == 200 and got[-1]["usage"]["completion_tokens"] == 20, text[-500:])
        check(name + ": a text for about each", 10 < len(texts) <= 20, texts)
        check(name + ": a prompt", got and got[-1]["usage"]["prompt_tokens"] > 1 and got[0]["id"], got[-1:])
    items = [{"role": "user", "content": [{"type": "input_text", "text": "Write a haiku about rain"}]}]
    status, text = w.post("/v1/responses", dict(fixed, max_output_tokens=20, instructions="Be brief", input=items))
    events = chunks(text) if status == 200 else [{}]
    deltas = [e for e in events if e.get("type") == "response.output_text.delta" and e["delta"]]
    check("guidellm, responses", status == 200 and events[-1]["response"]["usage"]["output_tokens"] == 20, text[-800:])
    check("guidellm, responses: texts", 10 < len(deltas) <= 20, deltas)
    check("guidellm looks at /health and /v1/models", w.get("/health")[0] == 200 == w.get("/v1/models")[0])


def routers(w):
    """Defaults that routers and benchmark clients write out."""
    text = chat(w)[1]["choices"][0]["message"]["content"]
    status, answer = chat(
        w,
        min_tokens=1,
        ignore_eos=False,
        skip_special_tokens=True,
        continue_final_message=False,
        add_generation_prompt=True,
        no_stop_trim=False,
        separate_reasoning=True,
        stream_reasoning=True,
        include_reasoning=True,
        return_hidden_states=False,
        stop_token_ids=[],
        n=1.0,
        top_k=-1.0,
        spaces_between_special_tokens=True,
        logit_bias={},
        user="x",
    )
    check(
        "defaults written out", status == 200 and answer["choices"][0]["message"]["content"] == text, (status, answer)
    )


def seeds(w):
    def text(seed):
        status, answer = raw(w, temperature=1.5, max_tokens=20, seed=seed)
        return answer["choices"][0]["text"] if status == 200 else (status, answer)

    for one, other in ((-2, 2**64 - 2), (-(2**63), 2**63), (-7.0, str(2**64 - 7)), (5.0, 5)):
        check("seed %s is seed %s" % (one, other), text(one) == text(other), (text(one), text(other)))
    for seed in (-1, -1.0, None):
        first = text(seed)
        check("seed %s is any" % seed, any(text(seed) != first for _ in range(100)))
    status, answer = w.post("/execute", {"job_id": "s", "prompt": "x", "seed": -1})
    check("... but for /execute", status == 400 and answer["field"] == "seed", (status, answer))


def limits(w):
    for n in (4.0, 4):
        status, answer = raw(w, max_tokens=n)
        check("max_tokens %r" % n, status == 200 and answer["usage"]["completion_tokens"] == 4, (status, answer))
    ids = w.post("/tokenize", {"prompt": RAW["prompt"]})[1]["tokens"]
    said = [
        raw(w, **members)[1]["choices"][0]["text"]
        for members in (
            {},
            {"prompt": ids},
            {"prompt": [float(i) for i in ids], "stop_token_ids": [7.0]},
            {"prompt": [[float(i) for i in ids]]},
        )
    ]
    check("ids that came as reals", len(set(said)) == 1, said)
    for prompt in ([1.5], [-1.0], [1e300]):
        status, answer = raw(w, prompt=prompt)
        check("prompt %s" % prompt, status == 400 and error(answer)["param"] == "prompt", (status, answer))
    for ask, path in ((chat, "chat"), (raw, "completions")):
        status, answer = ask(w, max_tokens=0)
        choice = answer["choices"][0]
        check(
            "%s: max_tokens 0 computes the prompt" % path,
            status == 200
            and answer["usage"]["completion_tokens"] == 0 < answer["usage"]["prompt_tokens"]
            and choice["finish_reason"] == "length"
            and not choice.get("text", choice.get("message", {}).get("content")),
            (status, answer),
        )
        status, stream = ask(w, max_tokens=0, stream=True)
        check("... streamed", status == 200 and '"length"' in stream and stream.endswith("[DONE]\n\n"), stream)
    long = "a story of rain and wind " * 10
    first, again = (raw(w, prompt=long, max_tokens=n)[1]["usage"] for n in (0, 1))
    cached = again["prompt_tokens_details"]["cached_tokens"]
    check("... and keeps it for the next request", cached > 0, (first, again))

    end = w.get("/health")[1]["eos_ids"]
    natural = chat(w, max_tokens=200)[1]
    check("the model ends by itself", natural["choices"][0]["finish_reason"] == "stop", natural)
    n = natural["usage"]["completion_tokens"]
    text = natural["choices"][0]["message"]["content"]
    for members in ({"temperature": 0}, {"temperature": 1, "seed": 3}):
        status, answer = chat(w, **dict(members, max_tokens=n + 40, ignore_eos=True))
        check(
            "ignore_eos %s: every token that was asked for" % members,
            status == 200
            and answer["usage"]["completion_tokens"] == n + 40
            and answer["choices"][0]["finish_reason"] == "length",
            (status, answer),
        )
        status, answer = chat(w, **dict(members, max_tokens=n + 200, min_tokens=n + 25))
        check(
            "min_tokens %s" % members,
            status == 200 and answer["usage"]["completion_tokens"] >= n + 25,
            (status, answer),
        )
    same = chat(w, max_tokens=200, min_tokens=2)[1]["choices"][0]["message"]["content"]
    check("... that the answer has anyway", same == text, (same, text))
    ids = w.post("/tokenize", {"content": text})[1]["tokens"]
    for members, least in (({}, 0), ({"min_tokens": 8}, 8)):
        status, answer = chat(w, max_tokens=200, stop_token_ids=[ids[3]], **members)
        usage = answer["usage"]["completion_tokens"]
        check(
            "stop_token_ids %s" % members,
            status == 200
            and answer["choices"][0]["finish_reason"] in ("stop", "length")
            and (usage == ids.index(ids[3]) if not least else usage >= least),
            (status, answer, ids),
        )
    check("the ids that end an answer are known", len(end) > 0, end)
    stop = text[4:8]
    held = chat(w, max_tokens=200, min_tokens=n, stop=stop)[1]["choices"][0]["message"]["content"]
    check("a stop string waits for min_tokens, too", held.startswith(text), (held, text))
    few = chat(w, max_tokens=200, stop=["%d!" % i for i in range(40)] + [stop])[1]
    check("more than 16 stop strings", few["choices"][0]["message"]["content"] == text[: text.find(stop)], few)
    status, answer = w.post("/execute", {"job_id": "s", "prompt": "x", "stop": ["1", "2", "3", "4", "5"]})
    check("... and four of /execute", status == 400 and answer["field"] == "stop", (status, answer))


def names(w):
    for name, expected in (
        ("haiku", 200),
        ("haiku:latest", 200),
        ("haiku:Latest", 404),
        ("haiku:", 404),
        ("haik", 404),
    ):
        status, answer = chat(w, model=name, max_tokens=1)
        check("model %s: %d" % (name, expected), status == expected, (status, answer))
        check("... by its path", w.get("/v1/models/" + name)[0] == expected)
    for effort, expected in (("minimal", 200), ("none", 200), ("high", 400)):
        check("reasoning_effort %s" % effort, chat(w, reasoning_effort=effort, max_tokens=1)[0] == expected)
    card = w.get("/v1/models")[1]["data"][0]
    health = w.get("/health")[1]
    for key, value in (
        ("id", "haiku"),
        ("object", "model"),
        ("owned_by", "worker"),
        ("root", "haiku"),
        ("parent", None),
        ("max_model_len", health["context"]),
        ("context_length", health["context"]),
        ("device", health["device_text"]),
        ("health", "healthy"),
        ("is_moe", False),
        ("n_experts", 0),
        ("n_active_experts", 0),
        ("structured_output", True),
    ):
        check("/v1/models: %s" % key, card.get(key, "absent") == value, card)
    cache = health["kv_cache"]
    plan = w.post("/worker/plan", {"model_ref": "haiku-q4_k_m.gguf"})[1]["bytes"]
    check(
        "/v1/models: KV bytes of a token",
        card["kv_bytes_per_token"] * cache["pages"] * cache["page_tokens"] == plan["kv"],
        (card, cache),
    )
    check("/v1/models: ready since", card["created"] == card["ready_at"] > 1700000000 and card["startup_seconds"] > 0)


def streams(w):
    """stream_options that ask for nothing, and counts with every chunk."""
    for options in ({}, {"include_usage": False}, {"include_obfuscation": False}, {"continuous_usage_stats": False}):
        status, answer = chat(w, max_tokens=1, stream_options=options)
        check("stream_options %s without a stream" % options, status == 200, (status, answer))
    each = {"include_usage": True, "continuous_usage_stats": True}
    whole = chat(w)[1]["usage"]
    usages = [c["usage"] for c in chunks(chat(w, stream=True, stream_options=each)[1])]
    counts = [u["completion_tokens"] for u in usages]
    check("every chunk has the counts so far", counts == sorted(counts) and counts[0] == 0, usages)
    check("... the last those of all", usages[-1] == usages[-2] == whole and counts[-1] == 12, (usages, whole))
    check("... added up", all(u["total_tokens"] == u["prompt_tokens"] + u["completion_tokens"] for u in usages), usages)
    two = {"prompt": ["Once upon", "Once upon a time in a garden"], "stream": True, "stream_options": each}
    got = [(c["choices"][0]["index"], c["usage"]) for c in chunks(raw(w, **two)[1]) if c["choices"]]
    prompts = [{u["prompt_tokens"] for i, u in got if i == k} for k in (0, 1)]
    check(
        "of two prompts each choice has its own",
        len(prompts[0]) == len(prompts[1]) == 1 and prompts[0] != prompts[1],
        got,
    )
    got = chunks(chat(w, stream=True, stream_options={"continuous_usage_stats": True})[1])
    check("without include_usage it asks for nothing", not any("usage" in c for c in got), got)
    status, answer = w.get("/worker/jobs/nobody")
    check("a refusal names its job", status == 404 and answer["job_id"] == "nobody", answer)


def depth(w):
    for levels, expected in ((190, 200), (193, 400)):
        for member in ('{"a":' * levels + "1" + "}" * levels, "[" * levels + "]" * levels):
            body = '{"prompt":"x","max_tokens":1,"nobody_knows":%s}' % member
            status, answer = w.post("/v1/completions", body.encode())
            check(
                "%d levels below an unknown member: %d" % (levels, expected),
                status == expected
                and (status == 200 or (error(answer)["param"] == "nobody_knows" and "192" in error(answer)["message"])),
                (status, answer),
            )


def context(w):
    status, answer = chat(w, messages=[{"role": "user", "content": "word " * 600}])
    message = error(answer).get("message", "")
    check(
        "the context's words",
        status == 400
        and "This model's maximum context length is 512 tokens" in message
        and "(context_length_exceeded)" in message
        and error(answer)["code"] == "context_length_exceeded",
        (status, answer),
    )


def raised(program):
    """A context that is smaller than the model's: who was refused hears how to raise it."""
    with Worker(program, "--context", "128") as w:
        message = error(chat(w, messages=[{"role": "user", "content": "word " * 300}])[1]).get("message", "")
        check("a context that can be raised", "--context N, up to 512 of this model (context_" in message, message)
    with Worker(program, "--max-tokens-in", "100") as w:
        message = error(chat(w, messages=[{"role": "user", "content": "word " * 300}])[1]).get("message", "")
        check(
            "... and one that is not the limit",
            "Expected at most 100" in message and "--context" not in message,
            message,
        )


def special(w):
    spelt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    texts = w.post("/tokenize", {"prompt": spelt})[1]["count"]
    controls = w.post("/tokenize", {"prompt": spelt, "parse_special": True})[1]["count"]
    check("the marks are control tokens", controls < texts, (controls, texts))
    for members, expected in (({}, texts), ({"parse_special": False}, texts), ({"parse_special": True}, controls)):
        answer = raw(w, prompt=spelt, max_tokens=1, **members)[1]
        check("/v1/completions %s" % members, answer["usage"]["prompt_tokens"] == expected, answer)
        status, events = w.execute(prompt=spelt, max_tokens=1, **members)
        check("/execute %s" % members, events[-1][1]["tokens_in"] == expected, events)
    status, answer = w.post("/execute", {"job_id": "p", "prompt": "x", "chat": True, "parse_special": True})
    check("not with a template", status == 400 and answer["field"] == "parse_special", (status, answer))
    status, answer = w.post("/execute", {"job_id": "p", "prompt": "x", "parse_special": 1})
    check("true or false", status == 400 and answer["field"] == "parse_special", (status, answer))
    plain, bare = (raw(w, max_tokens=1, add_special_tokens=v)[1]["usage"]["prompt_tokens"] for v in (True, False))
    with_bos = w.get("/tokenizer_info")[1]["add_bos_token"]
    check("add_special_tokens", plain - bare == (1 if with_bos else 0), (plain, bare, with_bos))


def text_routes(w):
    said = w.post("/tokenize", {"model": "haiku", "messages": USER, "return_token_strs": True})[1]
    answer = chat(w, max_tokens=1)[1]
    check(
        "/tokenize of messages counts as the chat does",
        said["count"] == len(said["tokens"]) == len(said["token_strs"]) == answer["usage"]["prompt_tokens"],
        (said, answer),
    )
    for body, field in (
        ({"messages": []}, "messages"),
        ({"messages": USER, "prompt": "x"}, "messages"),
        ({"messages": USER, "add_generation_prompt": 1}, "add_generation_prompt"),
        ({"messages": USER, "continue_final_message": True}, "messages[0].role"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ):
        status, said = w.post("/tokenize", body)
        check("/tokenize %s" % json.dumps(body), status == 400 and said["field"] == field, (status, said))
    said = w.post("/detokenize", {"model": "haiku", "tokens": w.post("/tokenize", {"content": "rain"})[1]["tokens"]})[1]
    check("/detokenize", said["prompt"] == said["content"] == "rain", said)
    said, health = w.get("/tokenizer_info")[1], w.get("/health")[1]
    check(
        "/tokenizer_info",
        said["tokenizer_class"] == health["tokenizer_kind"]
        and said["vocab_size"] == health["vocab_size"]
        and said["eos_token_ids"] == health["eos_ids"]
        and "im_start" in said["chat_template"]
        and said["model_max_length"] == health["context"],
        said,
    )


def paths(w):
    with open(os.path.join(source, "serve/other_paths.c"), encoding="utf-8") as f:
        others = re.findall(r'^    \{ "(/[^"]*)"', f.read(), re.M)
    check("the table of other paths was read", len(others) > 60, others)
    for path in others:
        for method in ("GET", "POST"):
            status, _, data = w.ask(
                method, path + ("x" if path.endswith("/") else ""), {} if method == "POST" else None
            )
            answer = json.loads(data)
            ollama = (path + "/").startswith("/api/")
            message = answer.get("error") if ollama else (error(answer) or answer).get("message")
            check(
                "%s %s: what to use instead" % (method, path),
                status == 404 and message and "no such path; GET /openapi.json" not in message,
                (status, data),
            )
    status, answer = w.post("/v1/v1/messages", {})
    check("/v1/v1/messages", status == 404 and "without /v1" in error(answer)["message"], answer)
    check("/v1/nothing", "openapi.json" in error(w.get("/v1/nothing")[1])["message"])


def traces(w):
    good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for value, expected in (
        (good, good),
        ("01" + good[2:] + "-more", "01" + good[2:]),
        (good + "-more", None),
        ("ff" + good[2:], None),
        (good.upper(), None),
        (good[:-1], None),
        ("00-" + "0" * 32 + good[35:], None),
        (good[:36] + "0" * 16 + "-01", None),
        ("x", None),
    ):
        status, head, _ = w.ask("POST", "/v1/completions", dict(RAW, max_tokens=1), {"traceparent": value})
        check("traceparent %s" % value, status == 200 and head.get("traceparent") == expected, head)
    w.ask("POST", "/v1/completions", {"prompt": 5}, {"traceparent": good})
    w.until(lambda: w.said().count(good) >= 3)
    lines = [json.loads(l) for l in w.said().splitlines() if good in l]
    events = {l["event"] for l in lines if l.get("traceparent") == good}
    check("... in the log", {"execute_start", "execute_end", "refused"} <= events, events)


def configured():
    """Limits of the command line, and a queue that is full says which they are."""
    with Worker(program, "--max-prompt-chars", "30", "--max-priority", "3") as w:
        for ask, field, members in (
            (chat, "messages", {"messages": [{"role": "user", "content": "é" * 31}]}),
            (raw, "prompt", {"prompt": "é" * 31}),
        ):
            status, answer = ask(w, **members)
            check(
                "--max-prompt-chars holds for %s" % field,
                status == 400 and error(answer)["param"] == field and "30" in error(answer)["message"],
                (status, answer),
            )
        check("... and 30 are none too many", raw(w, prompt="é" * 30, max_tokens=1)[0] == 200)
        for priority, expected in ((3, 200), (4, 400), (-1000, 200), (-1001, 400)):
            status, answer = raw(w, max_tokens=1, priority=priority)
            check("--max-priority 3: %d" % priority, status == expected, (status, answer))
            status, answer = w.execute(prompt="x", max_tokens=1, priority=priority)
            check("... of /execute", status == expected, (status, answer))
    with Worker(program, "--max-streams", "1", *LONG) as w:
        job = Job(w, "endless").until("token")
        status, answer = raw(w)
        check(
            "a 429 says the number and the flag",
            status == 429 and "1 requests" in error(answer)["message"] and "--max-streams" in error(answer)["message"],
            (status, answer),
        )
        job.cancel()
    with Worker(program) as w:
        for priority, expected in ((10, 200), (11, 400)):
            status, answer = w.execute(prompt="x", max_tokens=1, priority=priority)
            check("priority %d without a flag" % priority, status == expected, (status, answer))
        check("a long prompt without a flag", error(raw(w, prompt="x" * 40000)[1])["code"] == "context_length_exceeded")


with Worker(program, "--log", "json", "--model-dir", os.path.join(source, "models/haiku")) as w:
    known_names(w)
    routers(w)
    benchmarks(w)
    seeds(w)
    limits(w)
    names(w)
    streams(w)
    depth(w)
    context(w)
    special(w)
    text_routes(w)
    paths(w)
    traces(w)
configured()
raised(program)
done()
