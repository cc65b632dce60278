"""llama-server's interface: /completion as a document and as events, /infill with a model that has marks for it,
/apply-template, /props; and the small routes of vLLM's and SGLang's clients. usage: test_llama.py PROGRAM SOURCE"""

import json
import os
import random
import re
import struct
import sys

from service import Worker, check, done, scratch

program, source = sys.argv[1:3]
sys.path.insert(0, os.path.join(source, "tests", "reference"))
import gguf  # noqa: E402

HAIKU = os.path.join(source, "models/haiku/haiku-q4_k_m.gguf")
PROMPT = "Write a haiku about rain"
USER = [{"role": "user", "content": "Hi"}]
# The marks of the model for infills: tokens that no text of these tests has.
PRE, SUF, MID, REP, SEP, PAD = range(1, 7)
WHOLE = {
    "index", "content", "tokens", "id_slot", "stop", "model", "tokens_predicted", "tokens_evaluated",
    "generation_settings", "prompt", "has_new_line", "truncated", "stop_type", "stopping_word", "tokens_cached",
    "timings",
}  # fmt: skip
PART = {"index", "content", "tokens", "stop", "id_slot", "tokens_predicted", "tokens_evaluated"}


def error(answer):
    return answer.get("error", {}) if isinstance(answer, dict) else {}


def complete(w, path="/completion", want=200, **members):
    status, answer = w.post(path, dict({"prompt": PROMPT, "n_predict": 12}, **members))
    if status != want:
        check("%s %s -> %d" % (path, json.dumps(members)[:100], want), False, (status, answer))
    return answer


def events(w, path="/completion", **members):
    text = w.post(path, dict({"prompt": PROMPT, "n_predict": 12, "stream": True}, **members))[1]
    lines = [l for l in text.splitlines() if l and not l.startswith(":")]
    check("events are data alone", all(l.startswith("data: {") for l in lines), text[:500])
    return [json.loads(l[6:]) for l in lines]


def refused(w, field, path="/completion", **members):
    answer = complete(w, path, 400, **members)
    check("%s refuses %s" % (path, json.dumps(members)[:100]), error(answer).get("param") == field, answer)


# ---- /completion ----------------------------------------------------------------------------------------------------


def documents(w):
    a = complete(w, seed=5, return_tokens=True)
    check("members of an answer", set(a) == WHOLE, set(a) ^ WHOLE)
    status, said = w.execute(prompt=PROMPT, max_tokens=12, temperature=0.8, top_k=40, top_p=0.95, min_p=0.05, seed=5)
    ids = [e["id"] for name, e in said if name == "token"]
    check("ids are those of /execute", a["tokens"] == ids, (a["tokens"], ids))
    check("the text is theirs", w.post("/detokenize", {"tokens": ids})[1]["content"] == a["content"], a)
    settings = a["generation_settings"]
    check(
        "settings tell what was done",
        (settings["seed"], settings["n_predict"], settings["top_k"], settings["temperature"]) == (5, 12, 40, 0.8)
        and settings["samplers"] == ["penalties", "temperature", "top_k", "top_p", "min_p"],
        settings,
    )
    t = a["timings"]
    check("counts", (a["tokens_predicted"], t["predicted_n"], t["prompt_n"] + t["cache_n"]) == (12, 12, 5), a)
    check("the prompt", a["prompt"] == PROMPT and a["tokens_evaluated"] == 5, a)
    check("ended by n_predict", a["stop_type"] == "limit" and not a["truncated"] and a["has_new_line"], a)
    check("no tokens unasked", complete(w)["tokens"] == [])
    check("/completions is the same", complete(w, "/completions", seed=5)["content"] == a["content"])
    check("any seed", complete(w, seed=-1)["generation_settings"]["seed"] != 4294967295)
    nothing = complete(w, n_predict=0)
    check("nothing but the prompt", (nothing["content"], nothing["tokens_predicted"]) == ("", 0), nothing)


def streams(w):
    whole, parts = complete(w, seed=6, return_tokens=True), events(w, seed=6)
    check("parts", all(set(p) == PART and not p["stop"] for p in parts[:-1]), parts)
    check("the last one has everything", set(parts[-1]) == WHOLE and parts[-1]["stop"], parts[-1])
    check("one id each", [p["tokens"] for p in parts[:-1]] == [[i] for i in whole["tokens"]], parts)
    check("their texts", "".join(p["content"] for p in parts) == whole["content"], parts)
    check("counted", [p["tokens_predicted"] for p in parts] == [*range(1, 13), 12], parts)
    both = events(w, prompt=["Hi", [1, 2, 3]], n_predict=3)
    check("two prompts", sorted(p["index"] for p in both if p["stop"]) == [0, 1] and len(both) == 8, both)


# ---- timings and progress -------------------------------------------------------------------------------------------

LONG = "the rain falls on the old garden and the pond is still " * 10
RATES = {"cache_n"} | {
    "%s_%s" % (a, b) for a in ("prompt", "predicted") for b in ("n", "ms", "per_token_ms", "per_second")
}


def chunks(w, path, **members):
    """Data of a stream's events, of any interface."""
    lines = w.post(path, dict({"stream": True, "timings_per_token": True, "return_progress": True}, **members))[1]
    data = [l[6:] for l in lines.splitlines() if l.startswith("data: ")]
    return [json.loads(d) for d in data if d != "[DONE]"]


def telemetry(w, name, path, said, **members):
    """said: the text of a chunk; what comes before the first text is the beginning and the progress."""
    found = []
    for again in (False, True):
        got = chunks(w, path, **members)
        progress = [c["prompt_progress"] for c in got if "prompt_progress" in c]
        of_prompt = [c["timings"] for c in got if "prompt_progress" in c]
        timed = [c["timings"] for c in got if "timings" in c and "prompt_progress" not in c]
        rows = [p["processed"] for p in progress]
        total, cache = progress[0]["total"], progress[0]["cache"]
        check(
            name + ": total and cache stay", {(p["total"], p["cache"]) for p in progress} == {(total, cache)}, progress
        )
        check(name + ": from what was found to all", (rows[0], rows[-1]) == (cache, total), progress)
        check(name + ": each tells of more", all(a < b for a, b in zip(rows, rows[1:])), rows)
        check(name + ": found again", (cache >= 32) if again else (cache == 0 and len(rows) > 2), progress)
        check(
            name + ": timings of a prompt", [t["prompt_n"] for t in of_prompt] == [r - cache for r in rows], of_prompt
        )
        check(name + ": ... begin with nothing", of_prompt[0]["prompt_ms"] == 0 == progress[0]["time_ms"], of_prompt)
        where = [i for i, c in enumerate(got) if "prompt_progress" in c]
        check(name + ": before the text", not any(said(c) for c in got[: where[-1]]), got)
        check(name + ": members", all(set(t) == RATES and min(t.values()) >= 0 for t in timed + of_prompt), timed[:1])
        check(name + ": every text has them", all("timings" in c for c in got if said(c)), got)
        check(name + ": counted", [t["predicted_n"] for t in timed] == sorted(t["predicted_n"] for t in timed), timed)
        last = timed[-1]
        check(name + ": the last one", "timings" in got[-1] and last["predicted_n"] == 12, got[-1])
        check(name + ": the prompt", (last["prompt_n"], last["cache_n"]) == (total - cache, cache), last)
        rate = last["predicted_per_second"] * last["predicted_ms"]
        check(name + ": the first token costs no step", abs(rate / 1e3 - 11) < 0.01, last)
        found.append([said(c) for c in got if said(c)])
    plain = chunks(w, path, **dict(members, timings_per_token=False, return_progress=None))
    check(name + ": nothing unasked", not any("prompt_progress" in c for c in plain), plain)
    if path != "/completion":
        check(name + ": ... nor timings", not any("timings" in c for c in plain), plain)
    check(name + ": the same text", found[0] == found[1] == [said(c) for c in plain if said(c)], (found, plain))


def of_choice(c):
    choice = (c["choices"] or [{}])[0]
    return choice.get("text") or choice.get("delta", {}).get("content")


def speeds(w):
    drawn = {"seed": 3, "temperature": 0.8, "max_tokens": 12, "ignore_eos": True}
    user = [{"role": "user", "content": LONG}]
    usage = {"stream_options": {"include_usage": True}}
    telemetry(w, "a chat", "/v1/chat/completions", of_choice, messages=user, **drawn)
    telemetry(
        w,
        "with usage",
        "/chat/completions",
        of_choice,
        messages=[*USER, {"role": "assistant", "content": "Yes"}, *user],
        **drawn,
        **usage,
    )
    telemetry(w, "a completion", "/v1/completions", of_choice, prompt=LONG, **drawn)
    telemetry(
        w, "/completion", "/completion", lambda c: c["content"] if not c["stop"] else "", prompt="So " + LONG, **drawn
    )
    body = {"input": "Now " + LONG, "seed": 3, "temperature": 0.8, "max_output_tokens": 12, "ignore_eos": True}
    telemetry(
        w, "Responses", "/v1/responses", lambda c: c["type"] == "response.output_text.delta" and c["delta"], **body
    )
    types = [c["type"] for c in chunks(w, "/v1/responses", **body) if "prompt_progress" in c]
    check("their progress", set(types) == {"response.in_progress"}, types)
    first = chunks(w, "/v1/chat/completions", messages=user, **drawn)[0]
    check("the role comes alone", "timings" not in first and first["choices"][0]["delta"]["role"] == "assistant", first)
    for path, ask in (
        ("/v1/chat/completions", {"messages": USER}),
        ("/v1/completions", {"prompt": PROMPT}),
        ("/v1/responses", {"input": PROMPT}),
    ):
        a = w.post(path, dict(ask, timings_per_token=True, return_progress=True, temperature=0))[1]
        check(path + " whole", set(a["timings"]) == RATES and "prompt_progress" not in a, a)
        check(path + " whole, unasked", "timings" not in w.post(path, dict(ask, temperature=0))[1])
        status, a = w.post(path, dict(ask, return_progress="yes"))
        check(path + " takes a boolean", status == 400 and error(a)["param"] == "return_progress", a)
    both = [
        c
        for c in chunks(w, "/v1/completions", prompt=["Ten " + LONG, "Six " + LONG], **drawn)
        if "prompt_progress" in c
    ]
    check("two prompts", {c["choices"][0]["index"] for c in both} == {0, 1}, both)
    settings = complete(w, timings_per_token=True)["generation_settings"]
    check("settings tell it", settings["timings_per_token"] is True, settings)
    one = complete(w, n_predict=1)["timings"]
    check("one token has no rate", one["predicted_per_second"] == 0 == one["predicted_per_token_ms"], one)


def ends(w):
    free = complete(w, temperature=0, n_predict=40)["content"]
    word = free[5:9]
    a = complete(w, temperature=0, n_predict=40, stop=["", word, "never this"])
    check(
        "a stop string",
        (a["stop_type"], a["stopping_word"]) == ("word", word) and a["content"] == free[: free.index(word)],
        a,
    )
    a = complete(
        w,
        prompt="<|im_start|>user\nWrite a haiku about rain<|im_end|>\n<|im_start|>assistant\n",
        n_predict=200,
        temperature=0,
    )
    check("the model's own end", a["stop_type"] == "eos" and a["tokens_evaluated"] < 20, a)
    plain = complete(w, prompt="<|im_start|>user", parse_special=False)["tokens_evaluated"]
    check("control tokens are spelt on request", plain > complete(w, prompt="<|im_start|>user")["tokens_evaluated"])
    a = complete(w, n_predict=-1, ignore_eos=True)
    check("up to the context", a["stop_type"] == "limit" and a["truncated"] and a["tokens_predicted"] > 400, a)
    biases = a["generation_settings"]["logit_bias"]
    check(
        "ends that never come",
        [b["token"] for b in biases] == w.get("/health")[1]["eos_ids"] and {b["bias"] for b in biases} == {None},
        biases,
    )
    check("none otherwise", complete(w)["generation_settings"]["logit_bias"] == [])
    a = complete(w, temperature=0, n_predict=40, n_indent=4)
    lines = free.split("\n")
    begin = next(i for i, l in enumerate(lines) if i and l)
    check(
        "n_indent ends before a line",
        a["content"] == "\n".join(lines[:begin]) + "\n" and a["stop_type"] == "limit" and not a["truncated"],
        a,
    )
    check(
        "... streamed, too",
        "".join(e["content"] for e in events(w, temperature=0, n_predict=40, n_indent=4)) == a["content"],
    )
    check(
        "a time that does not come",
        complete(w, temperature=0, t_max_predict_ms=10**9)["content"]
        == free[: len(complete(w, temperature=0)["content"])],
    )
    refused(w, "n_predict", n_predict=-2)


def prompts(w):
    ids = w.post("/tokenize", {"prompt": PROMPT})[1]["tokens"]
    text = complete(w, temperature=0)["content"]
    for prompt in (ids, {"prompt_string": PROMPT}, {"prompt_string": PROMPT, "multimodal_data": []}, [PROMPT], [ids]):
        check("prompt %s" % json.dumps(prompt), complete(w, temperature=0, prompt=prompt)["content"] == text)
    mixed = complete(w, prompt=[7, PROMPT, 8, "x"])
    check("ids and texts", mixed["tokens_evaluated"] == 2 + 5 + 1, mixed["prompt"])
    two = complete(w, temperature=0, prompt=[PROMPT, ids, {"prompt_string": PROMPT}])
    check("several", [a["content"] for a in two] == [text] * 3 and [a["index"] for a in two] == [0, 1, 2], two)
    answers = complete(w, n_cmpl=3, seed=9)
    check("n_cmpl", [a["generation_settings"]["seed"] for a in answers] == [9, 10, 11], answers)
    check("... each that of its seed", answers[1]["content"] == complete(w, seed=10)["content"])
    for prompt in ([], "", 5, None, [[]], [2048], [-1, "x"], [1.5], [True, 1], {"prompt": "x"}, [["x", {}]]):
        refused(w, "prompt", prompt=prompt)
    refused(w, "prompt", prompt={"prompt_string": "x", "multimodal_data": ["aGk="]})
    refused(w, "prompt", prompt=["x"] * 257)
    status, answer = w.post("/completion", {"prompt": "word " * 600})
    check("too long", status == 400 and error(answer)["code"] == "context_length_exceeded", answer)
    status, answer = w.post("/completion", {"prompt": "x", "model": "another"})
    check("another model", status == 404 and error(answer)["code"] == "model_not_found", answer)


def probabilities(w):
    a = complete(w, temperature=0, n_probs=3, n_predict=5)
    entries = a["completion_probabilities"]
    v1 = w.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 5, "temperature": 0, "logprobs": 3})[1]
    theirs = v1["choices"][0]["logprobs"]["token_logprobs"]
    check("as many as ids", len(entries) == 5 == len(theirs), entries)
    check("those of /v1", all(abs(e["logprob"] - l) < 1e-6 for e, l in zip(entries, theirs)), (entries, theirs))
    check("the best first", all(e["top_logprobs"][0]["id"] == e["id"] and len(e["top_logprobs"]) == 3 for e in entries))
    check("their bytes", all(bytes(e["bytes"]).decode() == e["token"] for e in entries), entries)
    streamed = events(w, temperature=0, n_probs=3, n_predict=5)
    check("streamed", [p["completion_probabilities"] for p in streamed[:-1]] == [[e] for e in entries], streamed)
    a = complete(w, n_probs=4, post_sampling_probs=True, top_k=8, top_p=1, min_p=0, temperature=1.5, seed=2)
    for e in a["completion_probabilities"]:
        check("a probability", 0 < e["prob"] <= 1 and len(e["top_probs"]) == 4 and "logprob" not in e, e)
    alone = complete(w, n_probs=20, post_sampling_probs=True, top_k=5, top_p=1, min_p=0, seed=2)
    sums = [sum(p["prob"] for p in e["top_probs"]) for e in alone["completion_probabilities"]]
    check("what stays adds up to 1", all(abs(s - 1) < 1e-6 for s in sums), sums)
    raw = complete(w, n_probs=5, top_k=5, top_p=1, min_p=0, temperature=1, seed=2)["completion_probabilities"][0]
    post = complete(w, n_probs=5, post_sampling_probs=True, top_k=5, top_p=1, min_p=0, temperature=1, seed=2)
    post = post["completion_probabilities"][0]
    ratio = 2.718281828459045 ** (raw["top_logprobs"][1]["logprob"] - raw["top_logprobs"][0]["logprob"])
    check(
        "in the model's ratio", abs(post["top_probs"][1]["prob"] / post["top_probs"][0]["prob"] - ratio) < 1e-6 * ratio
    )
    greedy = complete(w, n_probs=5, post_sampling_probs=True, temperature=0)["completion_probabilities"]
    check("the best alone", all(e["prob"] == 1 and len(e["top_probs"]) == 1 for e in greedy), greedy)
    refused(w, "post_sampling_probs", n_probs=5, post_sampling_probs=True)
    refused(w, "post_sampling_probs", n_probs=5, post_sampling_probs=True, top_k=5, repeat_penalty=1.1)
    refused(w, "n_probs", n_probs=21)


def fields(w):
    names = ["content", "timings/prompt_n", "generation_settings/n_predict", "nothing", "prompt/x"]
    a = complete(w, response_fields=names)
    check("response_fields", sorted(a) == sorted(names[:3]) and a["generation_settings/n_predict"] == 12, a)
    check("none named: all", set(complete(w, response_fields=[])) == WHOLE)
    name = "generation_settings/seed"
    for seed in (2**63, 2**64 - 2):
        check("a seed of 64 bits", complete(w, seed=seed, response_fields=[name] * 2) == {name: seed})
    parts = events(w, response_fields=["stop", "stop_type"])
    check("the last event alone", parts[-1] == {"stop": True, "stop_type": "limit"} and set(parts[0]) == PART, parts)
    check("of each", complete(w, prompt=["a", "b"], response_fields=["index"]) == [{"index": 0}, {"index": 1}])
    refused(w, "response_fields", response_fields=[5])
    refused(w, "response_fields", response_fields="content")


def sampling(w):
    first = complete(w, temperature=0, n_predict=1, return_tokens=True)
    token, text = first["tokens"][0], first["content"]
    for bias in ([[token, -100]], [[token, False]], [[text, -50.5]], {str(token): -100}, {text: False}):
        a = complete(w, temperature=0, n_predict=1, return_tokens=True, logit_bias=bias)
        check("logit_bias %s" % json.dumps(bias), a["tokens"] != [token], a)
    check(
        "told", complete(w, logit_bias=[[5, 1.5]])["generation_settings"]["logit_bias"] == [{"token": 5, "bias": 1.5}]
    )
    for bias in ([[token, -101]], [[token]], [token], [[2048, 1]], [[1.5, 1]], "x", {"5": "x"}, [[5, True]]):
        refused(w, "logit_bias", logit_bias=bias)
    default = complete(w, seed=3)["content"]
    theirs = ["dry", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]
    check("llama-server's order stands for ours", complete(w, seed=3, samplers=theirs)["content"] == default)
    bare = complete(w, seed=3, samplers=["top_k", "top_p", "infill"])
    check("others are off", bare["generation_settings"]["samplers"] == ["top_k", "top_p"], bare)
    check("... all of them", bare["content"] == complete(w, seed=3, temperature=1, min_p=0)["content"], bare)
    for samplers in (["min_p", "top_k"], ["top_k", "top_k"], ["nobody"], "tk", [5]):
        refused(w, "samplers", samplers=samplers)
    check("below 0", complete(w, temperature=-1)["content"] == complete(w, temperature=0)["content"])
    check(
        "all of the vocabulary", complete(w, top_k=99999, seed=1)["content"] == complete(w, top_k=0, seed=1)["content"]
    )
    for name, value in (("temperature", 2.5), ("top_p", 1.5), ("repeat_penalty", 0), ("seed", "x"), ("n_indent", -1)):
        refused(w, name, **{name: value})
    a = complete(
        w,
        n_predict=60,
        json_schema={
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
            "additionalProperties": False,
        },
    )
    check("json_schema", isinstance(json.loads(a["content"])["a"], int) and a["stop_type"] == "eos", a)
    a = complete(w, grammar='root ::= "yes" | "no"')
    check("grammar", a["content"] in ("yes", "no") and "root" in a["generation_settings"]["grammar"], a)
    refused(w, "grammar", grammar="root ::= (")


# ---- other routes ---------------------------------------------------------------------------------------------------


def texts(w):
    rendered = w.post("/v1/chat/completions/render", {"messages": USER})[1]
    check("/apply-template", w.post("/apply-template", {"messages": USER})[1] == {"prompt": rendered["prompt"]})
    count = w.post("/v1/chat/completions/input_tokens", {"messages": USER, "tools": None})[1]
    check("input_tokens", count == {"object": "response.input_tokens", "input_tokens": rendered["count"]}, count)
    check("token_ids", rendered["token_ids"] == rendered["tokens"])
    check("... without /v1", count == w.post("/chat/completions/input_tokens", {"messages": USER})[1])
    for path in ("/v1/responses/input_tokens", "/responses/input_tokens"):
        check(path, w.post(path, {"input": USER})[1] == count)
    status, answer = w.post("/responses/input_tokens", {"input": 5})
    check("... refuses as Responses does", status == 400 and error(answer)["param"] == "input", answer)
    for path in ("/apply-template", "/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"):
        status, answer = w.post(path, {"messages": []})
        check(path + " refuses as the chat does", status == 400 and error(answer)["param"] == "messages", answer)
    asked = complete(w, prompt=rendered["prompt"])
    check("what it gives can be sent", asked["tokens_evaluated"] == rendered["count"], asked)
    list_ = w.post("/v1/completions/render", {"prompt": ["Hello there", [7, 8]]})[1]
    ids = w.post("/tokenize", {"prompt": "Hello there"})[1]["tokens"]
    check(
        "/v1/completions/render",
        [p["token_ids"] for p in list_] == [ids, [7, 8]] and list_[0]["prompt"] == "Hello there",
        list_,
    )
    status, answer = w.post("/v1/completions/render", {"prompt": "x", "lora_path": "a"})
    check("... refuses as the completion does", status == 400 and error(answer)["param"] == "lora_path", answer)


def facts(w):
    props, health = w.get("/props")[1], w.get("/health")[1]
    settings = complete(w, n_predict=-1, stop=["e"])["generation_settings"]
    told = props["default_generation_settings"]
    check(
        "defaults are what is done",
        {**told["params"], "seed": 0, "stop": []} == {**settings, "seed": 0, "stop": []},
        told,
    )
    check(
        "/props",
        told["n_ctx"] == health["context"] and props["total_slots"] == 16 and props["model_alias"] == "haiku",
        props,
    )
    check("its template", props["chat_template"] == w.get("/tokenizer_info")[1]["chat_template"])
    status, answer = w.post("/props", {"x": 1})
    check("... cannot be changed", status == 400 and error(answer)["param"] == "props", answer)
    check("/version", w.get("/version")[1] == {"version": health["version"]})
    check("/v1/health", w.get("/v1/health")[1].keys() == health.keys())
    models = w.get("/models")[1]
    check("/models", models == w.get("/v1/models")[1] and models["models"] == [], models)
    meta = models["data"][0]["meta"]
    check("meta", meta["n_vocab"] == health["vocab_size"] and meta["n_ctx"] == 512 and meta["n_params"] > 6e6, meta)
    check("no adapters", w.get("/lora-adapters") == (200, []) and health["adapters"] == [], health)
    load = w.get("/v1/loads")[1]
    check("/v1/loads", load["loads"][0]["num_running_reqs"] == 0 == load["aggregate"]["total_reqs"], load)
    for path in ("/slots", "/slots/0?action=save"):
        status, a = w.get(path)
        check(path + " is refused by name", status == 404 and error(a)["code"] == "not_found", a)


# ---- /infill --------------------------------------------------------------------------------------------------------


def with_keys(path, keys):
    """The haiku model with further keys of whole numbers."""
    with open(HAIKU, "rb") as f:
        data = f.read()
    c = gguf.Cursor(data)
    c.at = 8
    n_tensors, n_keys = c.take("Q"), c.take("Q")
    align = gguf.read(HAIKU, False)[0].get("general.alignment", 32)
    for _ in range(n_keys):
        c.text()
        c.value(c.take("I"))
    for _ in range(n_tensors):
        c.text()
        for _ in range(c.take("I")):
            c.take("Q")
        c.take("I")
        c.take("Q")
    added = b"".join(gguf.put_text(k) + gguf.put_value(v) for k, v in keys.items())
    head = data[:16] + struct.pack("<Q", n_keys + len(keys)) + added + data[24 : c.at]
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % align) + data[-(-c.at // align) * align :])
    return path


def adapter(path):
    """One for the haiku model that changes the queries of its first layer."""
    meta = gguf.read(HAIKU, False)[0]
    wide, rank, r = meta["llama.embedding_length"], 2, random.Random(5)
    head = {"general.type": "adapter", "general.architecture": "llama", "adapter.type": "lora"}
    head.update({"adapter.lora.alpha": 4.0, "adapter.lora.task_name": "rain", "adapter.lora.prompt_prefix": "drip: "})
    halves = {"a": [wide, rank], "b": [rank, wide]}
    tensors = {
        "blk.0.attn_q.weight.lora_" + half: (ne, [r.gauss(0, 0.5) for _ in range(wide * rank)])
        for half, ne in halves.items()
    }
    gguf.write(path, {**head}, tensors)
    return path


def adapters(program, folder):
    """The same prompt without one, with one, and with the same of scale 0."""
    path, said = adapter(folder + "/rain.gguf"), []
    ask = {"prompt": "Write a haiku about rain", "n_predict": 24, "temperature": 0}
    for scale in (None, ":-0.5", ":0"):
        with Worker(program, *(["--lora", path + scale] if scale else [])) as w:
            listed, health = w.get("/lora-adapters")[1], w.with_digest()
            a = complete(w, **ask)
            said.append((a["content"], health["fingerprint"], health["digest"]))
            number = float(scale[1:]) if scale else 0
            one = {"id": 0, "path": path, "scale": number, "task_name": "rain", "prompt_prefix": "drip: "}
            check("adapters are listed", listed == ([one] if scale else []), listed)
            health = health["adapters"]
            check("... by /health", health == ([{"file": "rain.gguf", "scale": number}] if scale else []), health)
            settings = a["generation_settings"]["lora"]
            check("... with each answer", settings == ([{"id": 0, "scale": number}] if scale else []), settings)
            metric = 'worker_adapter_scale{adapter="%s"} %g' % (path, number)
            check("... as a metric", (metric in w.get("/metrics", port=w.admin)[1]) == bool(scale), metric)
            status, answer = w.post("/lora-adapters", [{"id": 0, "scale": 1}])
            check("... and fixed", status == 400 and error(answer)["param"] == "lora", answer)
    plain, changed, zero = said
    check("an adapter changes answers and fingerprint", plain[0] != changed[0] and plain[1] != changed[1], said)
    check("of scale 0 it changes neither", plain == zero, said)


def marks(**ids):
    return {"tokenizer.ggml.%s_token_id" % name: i for name, i in ids.items()}


def infill(w):
    files = [{"filename": "a.txt", "text": "an old pond"}, {"text": "a frog jumps", "time": 5}]
    gap = {"input_prefix": "the rain\n", "prompt": "falls ", "input_suffix": "\nthe end", "temperature": 0}
    a = complete(w, "/infill", **gap)
    bare = "\4myproject\n\5filename\n\1the rain\nfalls \2\nthe end\3"
    check("the prompt of a gap", a["prompt"] == bare, a)
    check(
        "answers as /completion",
        set(a) == WHOLE and a["content"] == complete(w, prompt=bare, temperature=0)["content"],
        a,
    )
    a = complete(w, "/infill", input_extra=files, **gap)
    expected = "\4myproject\n\5a.txt\nan old pond\5tmp\na frog jumps" + bare[len("\4myproject\n") :]
    check("... with files", a["prompt"] == expected, a)
    many = [{"filename": "f%d" % i, "text": "stone %d " % i * 40} for i in range(20)]
    a = complete(w, "/infill", input_extra=many, **gap)
    names = [int(n) for n in re.findall("\5f([0-9]+)\n", a["prompt"])]
    check("the last files that there is room for", names and names == list(range(names[0], 20)) and names[0] > 0, names)
    check("... and for the answer", a["tokens_evaluated"] + 12 <= 512 and a["tokens_predicted"] == 12, a)
    spelt = complete(w, "/infill", **dict(gap, input_prefix="<|im_end|>"))["tokens_evaluated"]
    short = complete(w, "/infill", **dict(gap, input_prefix=""))["tokens_evaluated"]
    check("texts are never control tokens", spelt > short + 1, (spelt, short))
    biased = complete(w, "/infill", **gap, logit_bias=[[PAD, 100]])
    check("a mark ends the answer", biased["stop_type"] == "eos" and biased["content"] == "", biased)
    # what llama.vim sends
    vim = {
        "id_slot": 0, "input_prefix": "a\n", "input_suffix": "\nb\n", "input_extra": files, "prompt": "",
        "n_predict": 8, "stop": [], "n_indent": 0, "top_k": 40, "top_p": 0.9, "stream": False,
        "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True, "t_max_prompt_ms": 500,
        "t_max_predict_ms": 3000,
        "response_fields": ["content", "timings/prompt_n", "timings/prompt_ms", "timings/prompt_per_token_ms",
                            "timings/prompt_per_second", "timings/predicted_n", "timings/predicted_ms",
                            "timings/predicted_per_token_ms", "timings/predicted_per_second", "truncated",
                            "tokens_cached"],
    }  # fmt: skip
    status, a = w.post("/infill", vim)
    check("an editor's request", status == 200 and sorted(a) == sorted(vim["response_fields"]), (status, a))
    warm = {"input_prefix": "", "input_suffix": "", "input_extra": files, "prompt": "", "n_predict": 0, "samplers": []}
    check("... and the one before it", w.post("/infill", dict(warm, t_max_predict_ms=1))[0] == 200)
    parts = events(w, "/infill", **gap)
    check("streamed", "".join(p["content"] for p in parts) == complete(w, "/infill", **gap)["content"], parts)
    refused(w, "input_suffix", "/infill", input_prefix="x")
    refused(w, "input_prefix", "/infill", input_suffix="x")
    refused(w, "prompt", "/infill", **dict(gap, prompt=[1]))
    for extra in ([{}], [{"filename": "ok"}], [{"filename": 5, "text": "x"}], [{"text": 5}], "x", {"text": "x"}, [5]):
        refused(w, "input_extra", "/infill", **gap, input_extra=extra)
    refused(w, "input_extra", "/completion", input_extra=files)
    status, answer = w.post("/infill", dict(gap, input_prefix="word " * 600))
    check("too long", status == 400 and error(answer)["code"] == "context_length_exceeded", answer)


with Worker(program) as w:
    documents(w)
    streams(w)
    ends(w)
    prompts(w)
    probabilities(w)
    fields(w)
    sampling(w)
    texts(w)
    facts(w)
    with Worker(program, "--max-batch-tokens", "40") as few:
        speeds(few)
    status, answer = w.post("/infill", {"input_prefix": "a", "input_suffix": "b"})
    check("a model without marks", status == 400 and "fim_pre_token_id" in error(answer)["message"], answer)

folder = scratch("worker-llama-")
new = with_keys(
    folder + "/new.gguf", marks(fim_pre=PRE, fim_suf=SUF, fim_mid=MID, fim_rep=REP, fim_sep=SEP, fim_pad=PAD)
)
with Worker(program, "--model", new) as w:
    infill(w)
adapters(program, folder)
old = with_keys(folder + "/old.gguf", marks(prefix=PRE, suffix=SUF, middle=MID))
with Worker(program, "--model", old) as w:
    a = complete(w, "/infill", input_prefix="a", input_suffix="b", input_extra=[{"filename": "c", "text": "d"}])
    check("older keys, and files without a mark", a["prompt"] == "\n\n--- c ---\n\nd\1a" + PROMPT + "\2b\3", a)
done()
