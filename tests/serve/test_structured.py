#!/usr/bin/env python3
"""Answers of a form: JSON, a schema, a grammar, an expression, a choice, in the words of each interface, streamed and
whole; what is refused and where; beside others, and cut off."""

import json
import os
import re
import sys
import threading

from service import LONG, Job, Worker, check, done

program, source = sys.argv[1], sys.argv[2]
USER = [{"role": "user", "content": "Tell me about a cat as JSON"}]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 30},
        "kind": {"enum": ["cat", "dog"]},
    },
    "required": ["name", "age", "kind"],
    "additionalProperties": False,
}
NESTED = {"type": "json_schema", "json_schema": {"name": "pet", "schema": SCHEMA, "strict": True}}
try:
    import jsonschema
except ImportError:
    jsonschema = None


def fits(text):
    value = json.loads(text)
    if jsonschema:
        jsonschema.validate(value, SCHEMA)
    return sorted(value) == ["age", "kind", "name"] and 0 <= value["age"] <= 30 and 2 <= len(value["name"]) <= 12


def chat(w, **members):
    return w.post("/v1/chat/completions", dict({"messages": USER, "max_tokens": 200, "temperature": 1}, **members))


def raw(w, **members):
    return w.post("/v1/completions", dict({"prompt": "A cat:", "max_tokens": 200, "temperature": 1}, **members))


def text_of(answer):
    choice = answer["choices"][0]
    return choice["message"]["content"] if "message" in choice else choice["text"]


def good(name, got, test):
    status, answer = got
    try:
        fine = status == 200 and answer["choices"][0]["finish_reason"] == "stop" and test(text_of(answer))
    except Exception as e:  # noqa: BLE001 (whatever a wrong answer raises is a failed check)
        fine, answer = False, (answer, e)
    check(name, fine, answer)


def forms(w):
    """Every member of every interface; an answer ends by itself and is of the form."""
    is_date = re.compile(r"20\d\d-\d\d").fullmatch
    gbnf = 'root ::= "yes" | "no" " never"'
    ways = [
        ({"response_format": NESTED}, fits),
        ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, fits),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, fits),
        ({"response_format": {"type": "json_object", "json_schema": {"schema": SCHEMA}}}, fits),
        ({"json_schema": SCHEMA}, fits),
        ({"guided_json": SCHEMA}, fits),
        ({"guided_json": json.dumps(SCHEMA)}, fits),
        ({"structured_outputs": {"json": SCHEMA}}, fits),
        ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, fits),
        ({"guided_regex": r"20\d\d-\d\d"}, is_date),
        ({"structured_outputs": {"regex": r"20\d\d-\d\d"}}, is_date),
        ({"guided_choice": ["red", "blue and green"]}, lambda t: t in ("red", "blue and green")),
        ({"structured_outputs": {"choice": ["red", "blue"], "regex": None}}, lambda t: t in ("red", "blue")),
        ({"grammar": gbnf}, lambda t: t in ("yes", "no never")),
        ({"guided_grammar": gbnf}, lambda t: t in ("yes", "no never")),
        ({"structured_outputs": {"grammar": gbnf}}, lambda t: t in ("yes", "no never")),
    ]
    for ask in (chat, raw):
        for members, test in ways:
            for seed in (1, 2):
                good("%s %s" % (ask.__name__, json.dumps(members)[:60]), ask(w, seed=seed, **members), test)
    for members in ({"response_format": {"type": "json_object"}}, {"structured_outputs": {"json_object": True}}):
        status, answer = chat(w, max_tokens=400, seed=3, **members)
        reason, text = answer["choices"][0]["finish_reason"], text_of(answer)
        fine = text.startswith("{") and (
            reason == "length" or (reason == "stop" and isinstance(json.loads(text), dict))
        )
        check("an object, or cut by length: %s" % members, status == 200 and fine, answer)
    for members in (
        {
            "response_format": {"type": "text", "json_schema": None},
            "guided_json": None,
            "grammar": "",
            "structured_outputs": None,
        },
        {"response_format": None, "guided_choice": None, "json_schema": None},
    ):
        status, answer = chat(w, temperature=0, max_tokens=12, **members)
        plain = chat(w, temperature=0, max_tokens=12)[1]
        check("no form: %s" % members, status == 200 and text_of(answer) == text_of(plain), answer)


def refusals(w):
    bad = [
        ({"response_format": {"type": "json_schema"}}, "response_format", "schema"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "json_object"),
        (
            {"response_format": {"type": "regex", "pattern": "a"}},
            "response_format.type",
            "structured_outputs has regex",
        ),
        ({"response_format": {"type": "json_object", "value": SCHEMA}}, "response_format", "got value"),
        ({"response_format": {"type": "text", "schema": SCHEMA}}, "response_format.type", "json_schema"),
        ({"response_format": "json"}, "response_format", "an object"),
        ({"response_format": {"type": "json_schema", "schema": {"type": "blue"}}}, "response_format", '"type" at #'),
        (
            {"response_format": {"type": "json_schema", "schema": {"properties": {"a": {"$ref": "https://x.y/z"}}}}},
            "response_format",
            '"$ref" at #/properties/a',
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"format": "shoe"}, "strict": True}}},
            "response_format",
            "format",
        ),
        ({"grammar": "root ::= ("}, "grammar", "line 1"),
        ({"grammar": 7}, "grammar", "GBNF"),
        ({"guided_regex": "("}, "guided_regex", ""),
        ({"guided_choice": [1]}, "guided_choice", "texts"),
        ({"guided_json": "{"}, "guided_json", ""),
        ({"structured_outputs": {"whitespace_pattern": " "}}, "structured_outputs", "whitespace_pattern"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs", "structural_tag"),
        ({"structured_outputs": {"json": SCHEMA, "regex": "a"}}, "structured_outputs.regex", "structured_outputs.json"),
        ({"response_format": NESTED, "grammar": 'root ::= "a"'}, "grammar", "response_format"),
        ({"guided_json": SCHEMA, "guided_choice": ["a"]}, "guided_choice", "guided_json"),
        ({"response_format": NESTED, "ignore_eos": True}, "ignore_eos", "response_format"),
        ({"extra_body": {"guided_json": SCHEMA}}, "extra_body", "members of the request"),
    ]
    # Words hold to their last byte, and strictness for a schema's text, too.
    bad += [
        ({"response_format": {"type": t}}, "response_format.type", "json_object") for t in ("json_object\0", "text\0x")
    ]
    text = {"type": "json_schema", "schema": '{"format": "shoe"}', "strict": True}
    bad.append(({"response_format": text}, "response_format", "format"))
    # A schema that accepts nothing is no missing one, and a value of another type asks for something, too.
    for name in ("json_schema", "guided_json"):
        bad += [({name: v}, name, "expected a JSON Schema") for v in (False, 0, 1, "", [])]
        bad += [({name: {"not": {}}}, name, "no text fits"), ({name: "false"}, name, "no text fits")]
    for v in (False, 0, "", [], "text"):
        bad.append(({"response_format": v}, "response_format", "expected an object"))
        bad.append(({"structured_outputs": v}, "structured_outputs", "expected an object"))
    bad += [
        ({"response_format": {}}, "response_format.type", "text, json_object or json_schema"),
        ({"response_format": {"type": None}}, "response_format.type", "text, json_object or json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": None}}, "response_format", "expected a schema"),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format", "expected a schema"),
        ({"response_format": {"type": "json_schema", "schema": False}}, "response_format.schema", "accepts something"),
        ({"response_format": {"type": "json_object", "schema": False}}, "response_format.schema", "accepts something"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": False}}},
            "response_format.json_schema.schema",
            "accepts something",
        ),
        ({"structured_outputs": {}}, "structured_outputs", "json, regex, choice"),
        ({"structured_outputs": {"regex": None, "json_object": False}}, "structured_outputs", "json, regex, choice"),
        ({"structured_outputs": {"json": False}}, "structured_outputs.json", "accepts something"),
        ({"structured_outputs": {"json_object": "yes"}}, "structured_outputs.json_object", "true or false"),
        ({"grammar": 'root ::= a{0,500} "z"\na ::= c{1,100}\nc ::= "x"'}, "grammar", "too ambiguous"),
    ]
    for name in ("guided_regex", "guided_grammar", "structured_outputs.regex", "structured_outputs.grammar"):
        inner, of = name.partition(".")[::2]
        bad += [({inner: {of: v} if of else v}, name, "expected") for v in (False, 0, "", [])]
    for name in ("guided_choice", "structured_outputs.choice"):
        inner, of = name.partition(".")[::2]
        bad += [({inner: {of: v} if of else v}, name, "expected") for v in (False, 0, "", [], {}, [""], [None])]
    bad += [({"grammar": v}, "grammar", "GBNF") for v in (False, 0, [])]
    for ask in (chat, raw):
        for members, param, words in bad:
            status, answer = ask(w, **members)
            error = answer.get("error", {}) if isinstance(answer, dict) else {}
            check(
                "%s refused: %s" % (ask.__name__, json.dumps(members)[:80]),
                status == 400 and error.get("param") == param and words in error["message"],
                (status, answer),
            )
    tools = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}]
    good("a form, no tool chosen", chat(w, response_format=NESTED, tools=tools, tool_choice="none"), fits)
    status, answer = raw(w, grammar='root ::= "ab"', min_tokens=50)
    check("a form that ends before min_tokens", status == 400 and "min_tokens" in str(answer), (status, answer))


def ends(w):
    status, answer = chat(w, response_format=NESTED, max_tokens=3)
    check("cut by length", status == 200 and answer["choices"][0]["finish_reason"] == "length", answer)
    status, answer = chat(w, guided_regex="abc*", stop=["cc"], temperature=0, logit_bias={}, seed=1, max_tokens=50)
    check("a stop string", status == 200 and "cc" not in text_of(answer), answer)
    status, answer = chat(w, response_format=NESTED, n=4, seed=5)
    texts = [c["message"]["content"] for c in answer["choices"]] if status == 200 else []
    check("several answers", len(texts) == 4 and all(fits(t) for t in texts) and len(set(texts)) > 1, answer)
    status, answer = chat(w, response_format=NESTED, logprobs=True, top_logprobs=2, seed=5)
    entries = answer["choices"][0]["logprobs"]["content"] if status == 200 else []
    check("log probabilities", "".join(e["token"] for e in entries) == text_of(answer), answer)


def streamed(w):
    whole = text_of(chat(w, response_format=NESTED, seed=9)[1])
    stream = chat(w, response_format=NESTED, seed=9, stream=True)[1]
    data = [json.loads(d) for d in re.findall(r"^data: (\{.*)$", stream, re.M)]
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in data if c["choices"])
    check("a stream is the whole answer", text == whole and fits(text), (text, whole))
    for members in (
        {"response_format": {"type": "json_schema", "schema": SCHEMA}},
        {"json_schema": SCHEMA},
        {"structured_outputs": {"json": SCHEMA}},
    ):
        status, events = w.execute(prompt="A cat", chat=True, max_tokens=200, temperature=1, seed=1, **members)
        text = "".join(d["t"] for n, d in events if n == "token") if status == 200 else ""
        check("/execute %s" % list(members), status == 200 and fits(text), events)
    status, events = w.execute(prompt="A cat", max_tokens=20, grammar='root ::= "ab" "c"?')
    text = "".join(d["t"] for n, d in events if n == "token") if status == 200 else ""
    check("/execute grammar", text in ("ab", "abc") and events[-1][1]["finish_reason"] == "stop", events)
    status, answer = w.execute(prompt="A cat", max_tokens=20, response_format={"type": "xml"})
    check("/execute refuses by name", status == 400 and "response_format.type" in str(answer), answer)
    for members, test in (
        ({"guided_json": {"enum": ["a", "b"]}}, lambda t: t in ('"a"', '"b"')),
        ({"guided_regex": "[ab]c"}, lambda t: t in ("ac", "bc")),
        ({"guided_choice": ["x", "yy"]}, lambda t: t in ("x", "yy")),
        ({"guided_grammar": 'root ::= "z"'}, lambda t: t == "z"),
    ):
        status, events = w.execute(prompt="A cat", max_tokens=20, **members)
        text = "".join(d["t"] for n, d in events if n == "token") if status == 200 else ""
        check("/execute %s" % list(members), status == 200 and test(text), events)
        handle = w.get("/worker/ready")[1]["handles"][0]["shard_id"]
        status, answer = w.post("/worker/execute", {"handle_id": handle, "prompt": "A cat", "params": members})
        check("/worker/execute %s" % list(members), status == 200 and '"finish_reason":"stop"' in answer, answer)


def together(w):
    """Constrained and plain requests at once: those without a form are what they are alone."""
    plain = {"messages": USER, "max_tokens": 40, "temperature": 0.8, "seed": 11}
    alone = text_of(w.post("/v1/chat/completions", plain)[1])
    got, formed = [], []

    def ask_plain():
        got.append(text_of(w.post("/v1/chat/completions", plain)[1]))

    def ask_formed(seed):
        formed.append(text_of(chat(w, response_format=NESTED, seed=seed)[1]))

    threads = [threading.Thread(target=ask_plain) for _ in range(4)]
    threads += [threading.Thread(target=ask_formed, args=(s,)) for s in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    check("plain answers do not change", got == [alone] * 4, (alone, got))
    check("each has its own place in the grammar", len(formed) == 6 and all(fits(t) for t in formed), formed)


def cancelled(w):
    over = Job(w, "formed", grammar="root ::= [a-z ]*").until("token").cancel()
    check("a cancelled job of a form", over[-1][1].get("code") == "CANCELLED", over[-1])
    good("after a cancel the same grammar works", raw(w, grammar='root ::= "ok"'), lambda t: t == "ok")
    check("masks were waited for", "worker_mask_wait_seconds" in w.get("/metrics")[1])
    check("the model card says so", w.get("/v1/models")[1]["data"][0]["structured_output"] is True)


def harmony(w):
    """A model that reasons in channels, of random weights: reasoning, then one of the choices, or a cut."""
    answered = 0
    for seed in range(12):
        status, answer = chat(w, guided_choice=["yes", "no"], max_tokens=60, seed=seed)
        choice = answer["choices"][0] if status == 200 else {}
        said = choice["message"]["content"] if choice else None
        whole = said in ("yes", "no") and choice["finish_reason"] == "stop"
        answered += whole
        cut = choice and choice["finish_reason"] == "length" and any(c.startswith(said) for c in ("yes", "no"))
        check("harmony: seed %d" % seed, whole or cut, (status, answer))
    check("harmony: some answers are whole", answered > 0, answered)


with Worker(program, "--model", os.path.join(os.environ["WORKER_GOLDENS"], "harmony.gguf")) as w:
    harmony(w)
with Worker(program, *LONG) as w:
    forms(w)
    refusals(w)
    ends(w)
    streamed(w)
    together(w)
    cancelled(w)
    check("the worker drains", w.end() == 0, w.said()[-2000:])
done()
