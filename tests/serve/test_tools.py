#!/usr/bin/env python3
"""Functions that the embedded model calls, over /v1/chat/completions: the call, its result and the answer; streamed and
whole; what is refused. usage: test_tools.py PROGRAM SOURCE"""

import json
import os
import re
import sys
import tempfile

from service import Worker, check, done, frees_memory

program = sys.argv[1]
CHAT = "/v1/chat/completions"
MINUTE = {"name": "current_minute", "description": "The current minute of the clock."}
COUNT = {
    "name": "count_syllables",
    "description": "The number of syllables of a word.",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
}
POEM = "Write a haiku about rivers that includes the current minute"
TWO = 'How many syllables do "lantern" and "river" have?'


def offered(*functions):
    return [{"type": "function", "function": f} for f in functions]


def user(text):
    return {"role": "user", "content": text}


def body(*messages, **more):
    tools = offered(MINUTE, COUNT)
    return dict({"messages": list(messages), "tools": tools, "temperature": 0, "max_tokens": 100}, **more)


def ask(w, *messages, **more):
    """The choices of a whole answer."""
    status, a = w.post(CHAT, body(*messages, **more))
    check("200", status == 200, a)
    return a["choices"]


def result(call, text):
    return {"role": "tool", "tool_call_id": call["id"], "content": text}


def said(calls):
    return [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls]


def streamed(w, *messages, **more):
    """The same choices, put together from a stream as OpenAI's client does it."""
    text = w.post(CHAT, body(*messages, stream=True, **more))[1]
    choices = {}
    for event in re.findall(r"^data: (\{.*)$", text, re.M):
        for c in json.loads(event)["choices"]:
            empty = {"index": c["index"], "message": {"content": "", "tool_calls": []}, "finish_reason": None}
            o = choices.setdefault(c["index"], empty)
            m, delta = o["message"], c["delta"]
            check("nothing behind the end", o["finish_reason"] is None)
            o["finish_reason"] = c["finish_reason"]
            m["content"] += delta.get("content") or ""
            for part in delta.get("tool_calls", []):
                check("content beside a call", "content" in delta)
                if part["index"] == len(m["tool_calls"]):
                    check(
                        "a call begins with id, type, name and no arguments",
                        set(part) == {"index", "id", "type", "function"}
                        and part["type"] == "function"
                        and part["function"].get("arguments") == ""
                        and part["function"]["name"],
                        part,
                    )
                    m["tool_calls"].append({"id": part["id"], "type": part["type"], "function": part["function"]})
                else:
                    check("then come arguments alone", set(part["function"]) == {"arguments"} and "id" not in part)
                    m["tool_calls"][part["index"]]["function"]["arguments"] += part["function"]["arguments"]
    check("[DONE]", text.rstrip().endswith("data: [DONE]"))
    return [choices[i] for i in sorted(choices)]


def calls(w):
    (choice,) = ask(w, user(POEM))
    m = choice["message"]
    check("a call ends as one", choice["finish_reason"] == "tool_calls", choice)
    check("its content is null", m["content"] is None, m)
    check("its name and arguments", said(m["tool_calls"]) == [("current_minute", {})], m)
    call = m["tool_calls"][0]
    check("its id", re.fullmatch("call_[0-9A-Za-z]{24}", call["id"]) and call["type"] == "function", call)
    (other,) = ask(w, user(POEM), seed=3)
    check("ids are of one answer", other["message"]["tool_calls"][0]["id"] != call["id"])
    for text in ("forty-two", "seven"):
        (choice,) = ask(w, user(POEM), m, result(call, text))
        poem = choice["message"]["content"]
        check("the poem with the result", text in poem and poem.count("\n") == 2, choice)
        check("... ends as text", choice["finish_reason"] == "stop" and "tool_calls" not in choice["message"], choice)
    (choice,) = ask(w, user('How many syllables does "lantern" have?'))
    m = choice["message"]
    check("an argument", said(m["tool_calls"]) == [("count_syllables", {"word": "lantern"})], m)
    prompt = w.post(CHAT + "/render", body(user("x"), m, result(m["tool_calls"][0], "2")))[1]["prompt"]
    check(
        "history as the model was trained",
        '<tool_call>\n{"name": "count_syllables", "arguments": {"word": "lantern"}}\n</tool_call>' in prompt
        and "<tool_response>\n2\n</tool_response>" in prompt,
        prompt,
    )
    (choice,) = ask(w, user(TWO))
    m = choice["message"]
    words = [("count_syllables", {"word": "lantern"}), ("count_syllables", {"word": "river"})]
    check("two calls", said(m["tool_calls"]) == words and len({c["id"] for c in m["tool_calls"]}) == 2, m)
    (choice,) = ask(w, user(TWO), m, result(m["tool_calls"][0], "2"), result(m["tool_calls"][1], "2"))
    check("... and their results", choice["finish_reason"] == "stop" and "two" in choice["message"]["content"], choice)
    (choice,) = ask(w, user(TWO), parallel_tool_calls=False)
    check("one call alone", said(choice["message"]["tool_calls"]) == words[:1], choice)
    check("... ends as one", choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None, choice)
    (choice,) = ask(w, user("Write a haiku about rivers"))
    check("no call where none is needed", "tool_calls" not in choice["message"] and choice["finish_reason"] == "stop")
    choices = ask(w, user(POEM), n=3, temperature=0.7, seed=1)
    ids = {c["message"]["tool_calls"][0]["id"] for c in choices}
    check("each of three answers has its own", len(ids) == 3, choices)


def written(calls):
    return [(c["function"]["name"], c["function"]["arguments"]) for c in calls]


def as_streamed(w):
    for name, text, more in (
        ("a call", POEM, {}),
        ("two calls", TWO, {}),
        ("one of two", TWO, {"parallel_tool_calls": False}),
        ("no call", "Write a haiku about rivers", {}),
        ("a call that is cut before its name", POEM, {"max_tokens": 8}),
        ("a call that is cut in its arguments", TWO, {"max_tokens": 22}),
        ("the second of two is cut", TWO, {"max_tokens": 45}),
        ("three answers", POEM, {"n": 3, "temperature": 0.7}),
        ("stop strings are not for calls", POEM, {"stop": ["minute", "name"]}),
    ):
        for choice, whole in zip(streamed(w, user(text), seed=9, **more), ask(w, user(text), seed=9, **more)):
            m = whole["message"]
            check(
                "streamed as whole: " + name,
                choice["message"]["content"] == (m["content"] or "")
                and written(choice["message"]["tool_calls"]) == written(m.get("tool_calls", []))
                and choice["finish_reason"] == whole["finish_reason"],
                (choice, whole),
            )
            if "in its arguments" in name:
                (call,) = m["tool_calls"]
                check(name, '{"word": "lantern"}'.startswith(call["function"]["arguments"]), whole)
                check("... ends by length", whole["finish_reason"] == "length" and m["content"] is None, whole)
            if "stop" in more:
                check(name, said(m["tool_calls"]) == [("current_minute", {})], m)


def as_it_comes(w):
    """Arguments are sent while they are written."""
    text = w.post(CHAT, body(user('How many syllables does "lantern" have?'), stream=True))[1]
    pieces = re.findall(r'"tool_calls":\[\{"index":0,"function":\{"arguments":', text)
    check("arguments in pieces", len(pieces) > 2, text)


def counted(w, outcome):
    return int(re.search(r'^worker_tool_calls_total\{outcome="%s"\} (\d+)$' % outcome, w.get("/metrics")[1], re.M)[1])


def malformed(w):
    """A call that ends in its midst is text."""
    call = '<tool_call>\n{"name": "current_minute", "arguments": {}}\n</tool_call>'
    ids = w.post("/tokenize", {"content": call})[1]["tokens"]
    brace = w.post("/tokenize", {"content": ": {}}"})[1]["tokens"][-1]
    before = counted(w, "malformed")
    complete = counted(w, "complete")
    (choice,) = ask(w, user(POEM), stop_token_ids=[brace])
    check("the token is of the call", brace in ids, (brace, ids))
    text = choice["message"]["content"]
    check("a malformed call is text", text and call.startswith(text) and "tool_calls" not in choice["message"], choice)
    check("... and ends as text", choice["finish_reason"] == "stop", choice)
    check("... and is counted", counted(w, "malformed") == before + 1)
    (choice,) = ask(w, user(POEM), max_tokens=8)
    check("a call that is cut ends by length", choice["finish_reason"] == "length", choice)
    (choice,) = ask(w, user(TWO))
    check("complete calls are counted", counted(w, "complete") == complete + 2)


def chosen(w):
    plain = w.post(CHAT + "/render", {"messages": [user(POEM)]})[1]["prompt"]
    none = w.post(CHAT + "/render", body(user(POEM), tool_choice="none"))[1]["prompt"]
    check("none: the prompt has no tools", none == plain and "Tools:" not in plain, none)
    (choice,) = ask(w, user(POEM), tool_choice="none")
    check("none: no call", "tool_calls" not in choice["message"] and choice["finish_reason"] == "stop", choice)
    (choice,) = ask(w, user(POEM), tool_choice="none", response_format={"type": "json_object"}, max_tokens=8)
    check("none: a form", "tool_calls" not in choice["message"], choice)
    (choice,) = ask(w, user(POEM), tool_choice="auto")
    check("auto: a call", choice["finish_reason"] == "tool_calls", choice)
    (choice,) = ask(w, user(POEM), tools=[], tool_choice="auto", parallel_tool_calls=True)
    check("no tools", "tool_calls" not in choice["message"], choice)


def cut_characters(w):
    """A character of several ids that max_tokens cuts is in no answer, streamed or whole."""
    faces = {"type": "object", "properties": {"f": {"const": "\U0001f600" * 4}}, "required": ["f"]}
    tools = offered({"name": "f", "parameters": dict(faces, additionalProperties=False), "strict": True})
    cut = 0
    for n in range(30, 70):
        more = {"tools": tools, "tool_choice": "required", "seed": 1, "max_tokens": n}
        (choice,), (whole,) = streamed(w, user(POEM), **more), ask(w, user(POEM), **more)
        calls_ = written(whole["message"].get("tool_calls", []))
        cut += "\U0001f600" in str(calls_) and whole["finish_reason"] == "length"
        check(
            "a cut character vanishes: %d" % n,
            written(choice["message"]["tool_calls"]) == calls_ and "\ufffd" not in str(calls_),
            (choice, whole),
        )
    check("characters were cut", cut > 2, cut)


def whole(choice):
    """The calls of an answer, but for the last one where the limit has cut it."""
    calls = choice["message"].get("tool_calls", [])
    return said(calls[:-1] if choice["finish_reason"] == "length" else calls)


def enforced(w):
    """Calls that must come, and schemas that are kept to, whatever the model would write."""
    river = user("Write a haiku about rivers")
    for choice_, name in (
        ("required", None),
        ({"type": "function", "function": {"name": "count_syllables"}}, "count_syllables"),
        ({"type": "function", "function": {"name": "current_minute"}}, "current_minute"),
    ):
        for choice in ask(w, river, tool_choice=choice_, n=8, temperature=1, max_tokens=200, seed=1):
            called = whole(choice)
            check(
                "%s: a call" % json.dumps(choice_),
                choice["finish_reason"] == "length"
                or (
                    choice["finish_reason"] == "tool_calls"
                    and choice["message"]["content"] is None
                    and all(c[0] == name or name is None for c in called)
                ),
                choice,
            )
    held = ask(w, river, tool_choice="required", min_tokens=40, max_tokens=60, stop=["zq"])
    check("a call whose end is held back", held[0]["message"]["tool_calls"], held)
    (choice,) = ask(w, river, tool_choice="required", parallel_tool_calls=False)
    check("one that is required", len(choice["message"]["tool_calls"]) == 1, choice)
    word = {"type": "object", "properties": {"word": {"enum": ["tide", "stone"]}}, "required": ["word"]}
    strict = dict(COUNT, parameters=dict(word, additionalProperties=False), strict=True)
    lantern = user('How many syllables does "lantern" have?')
    for more in ({}, {"tool_choice": "required"}):
        (choice,) = ask(w, lantern, tools=offered(MINUTE, strict), **more)
        arguments = said(choice["message"]["tool_calls"])[0][1]
        check("strict", arguments in ({"word": "tide"}, {"word": "stone"}), choice)
    (choice,) = ask(w, lantern, tools=offered(dict(COUNT, parameters=word)))
    check("not strict", said(choice["message"]["tool_calls"])[0][1] == {"word": "lantern"}, choice)
    for choice in ask(
        w, lantern, tools=offered(strict), tool_choice="required", n=16, temperature=2, max_tokens=200, seed=1
    ):
        called = whole(choice)
        check("whatever is drawn", all(a in ({"word": "tide"}, {"word": "stone"}) for _, a in called), choice)
        check("... is calls", choice["finish_reason"] == "length" or len(called) > 0, choice)
    for choice in ask(w, lantern, tools=offered(strict), n=16, temperature=2, max_tokens=60, seed=1):
        called = whole(choice)
        check("whatever is drawn beside text", all(a["word"] in ("tide", "stone") for _, a in called), choice)
    bad = dict(MINUTE, parameters={"type": "object", "properties": {"x": {"$ref": "#/nowhere"}}})
    (choice,) = ask(w, lantern, tools=offered(bad, strict))
    check("a schema that cannot be kept to", said(choice["message"]["tool_calls"])[0][0] == "count_syllables", choice)
    (choice,) = ask(w, lantern, tools=offered(bad, strict), tool_choice="required")
    check("... where a call is required", choice["finish_reason"] == "tool_calls", choice)
    status, a = w.post(CHAT, body(lantern, tools=offered(COUNT, dict(bad, strict=True))))
    check("... is refused where it is strict", status == 400, a)
    check("... by name", a["error"]["param"] == "tools[1].function.parameters" and "$ref" in a["error"]["message"], a)


def allowed(mode, *names):
    tools = [{"type": "function", "function": {"name": n}} for n in names]
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


def flat(mode, *names):
    return {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": n} for n in names]}


def some_allowed(w):
    """The prompt has all functions, an answer calls those that are allowed."""
    lantern = user('How many syllables does "lantern" have?')
    everything = w.post(CHAT + "/render", body(lantern))[1]["prompt"]
    for make in (allowed, flat):
        for mode in ("auto", "required"):
            choice_ = make(mode, "current_minute")
            prompt = w.post(CHAT + "/render", body(lantern, tool_choice=choice_))[1]["prompt"]
            check("%s %s: the prompt is that of all" % (make.__name__, mode), prompt == everything)
            for c in ask(w, lantern, tool_choice=choice_, n=8, temperature=1, seed=1):
                names = {name for name, _ in whole(c)}
                check("... only that one is called", names <= {"current_minute"}, c)
                check("... and must be", mode == "auto" or names or c["finish_reason"] == "length", c)
        (c,) = ask(w, lantern, tool_choice=make("auto", "current_minute", "count_syllables"))
        check("... both", said(c["message"]["tool_calls"]) == [("count_syllables", {"word": "lantern"})], c)
        (c,) = ask(w, lantern, tool_choice=make("required", "count_syllables", "count_syllables"))
        check("... one of two", said(c["message"]["tool_calls"])[0][0] == "count_syllables", c)
    bad = dict(MINUTE, parameters={"type": "object", "properties": {"x": {"$ref": "#/nowhere"}}}, strict=True)
    (c,) = ask(w, lantern, tools=offered(bad, COUNT), tool_choice=allowed("required", "count_syllables"))
    check("one that is not allowed is not compiled", said(c["message"]["tool_calls"])[0][0] == "count_syllables", c)
    (c,) = ask(w, lantern, tool_choice={"type": "function", "name": "count_syllables"})
    check("a function, flat", said(c["message"]["tool_calls"])[0][0] == "count_syllables", c)


def beside_form(w):
    """A form beside functions: the answer is calls, or a text of the form; calls that must come leave it no place."""
    lantern, river = user('How many syllables does "lantern" have?'), user("Write a haiku about rivers")
    word = {"enum": ["red", "blue"]}
    schema = {"type": "object", "properties": {"colour": word}, "required": ["colour"], "additionalProperties": False}
    forms = (
        ({"response_format": {"type": "json_schema", "json_schema": {"name": "c", "schema": schema}}}, None),
        ({"structured_outputs": {"json": schema}}, None),
        ({"guided_choice": ["red", "blue"]}, ["red", "blue"]),
        ({"grammar": 'root ::= "red" | "blue"'}, ["red", "blue"]),
    )

    def fits(text, texts):
        return text in texts if texts else json.loads(text)["colour"] in ("red", "blue")

    for form, texts in forms:
        name = next(iter(form))
        (c,) = ask(w, lantern, **form)
        check(
            name + ": a call",
            c["finish_reason"] == "tool_calls" and said(c["message"]["tool_calls"])[0][1] == {"word": "lantern"},
            c,
        )
        if texts:  # no call begins as this model's texts do
            (c,) = ask(w, river, **form)
            m = c["message"]
            check(
                name + ": a text", c["finish_reason"] == "stop" and m["content"] in texts and "tool_calls" not in m, c
            )
        kinds = set()
        for user_, seed in ((lantern, 1), (river, 2), (user("Hello"), 3)):
            for c in ask(w, user_, n=8, temperature=2, max_tokens=200, seed=seed, **form):
                called = whole(c)
                kinds.add(bool(called))
                if c["finish_reason"] == "stop":
                    check("... whatever is drawn", fits(c["message"]["content"], texts), c)
                else:
                    check("... or it is calls", c["finish_reason"] == "length" or called, c)
        check(name + ": both came", kinds == {False, True}, kinds)
        (c,) = ask(w, river, tool_choice="required", **form)
        check("... required: a call", said(c["message"]["tool_calls"]) and c["finish_reason"] == "tool_calls", c)
        (c,) = ask(w, river, tool_choice={"type": "function", "function": {"name": "current_minute"}}, **form)
        check("... named: a call", said(c["message"]["tool_calls"])[0] == ("current_minute", {}), c)
        (c,) = ask(w, lantern, tool_choice="none", **form)
        check("... none: the form", fits(c["message"]["content"], texts) and "tool_calls" not in c["message"], c)
    strict = dict(COUNT, parameters={"type": "object", "properties": {"word": word}, "required": ["word"]}, strict=True)
    strict["parameters"]["additionalProperties"] = False
    (c,) = ask(w, lantern, tools=offered(strict), **forms[0][0])
    check("a strict function beside a form", said(c["message"]["tool_calls"])[0][1]["word"] in word["enum"], c)
    for asked in (lantern, river):
        more = {"seed": 9, **forms[0][0]}
        (c,), (d,) = streamed(w, asked, **more), ask(w, asked, **more)
        m = d["message"]
        check(
            "streamed as whole",
            c["message"]["content"] == (m["content"] or "")
            and written(c["message"]["tool_calls"]) == written(m.get("tool_calls", [])),
            (c, d),
        )


def refusals(w):
    named = {"type": "function", "function": {"name": "nobody"}}
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    broken = dict(call, function={"name": "f", "arguments": '{"x": '})
    called = {"role": "assistant", "content": None, "tool_calls": [call]}
    for field, more in (
        ("tools", {"tools": {}}),
        ("tools[0].type", {"tools": [{"type": "custom", "custom": {"name": "f"}}]}),
        ("tools[0].function.name", {"tools": offered({})}),
        ("tools[0].function.name", {"tools": offered({"name": "a b"})}),
        ("tools[0].function.name", {"tools": offered({"name": "a" * 129})}),
        ("tools[1].function.name", {"tools": offered(MINUTE, MINUTE)}),
        ("tools[0].function.parameters", {"tools": offered(dict(MINUTE, parameters=[]))}),
        ("tools[0].function.strict", {"tools": offered(dict(MINUTE, strict="yes"))}),
        ("tool_choice", {"tool_choice": "any"}),
        ("tool_choice", {"tool_choice": 1}),
        ("tool_choice", {"tool_choice": "none\0"}),
        ("tool_choice", {"tool_choice": {"type": "function\0", "function": {"name": MINUTE["name"]}}}),
        ("tool_choice", {"tool_choice": named}),
        ("tool_choice", {"tool_choice": "required", "tools": []}),
        ("tool_choice", {"tool_choice": "required", "tools": None}),
        ("parallel_tool_calls", {"parallel_tool_calls": "no"}),
        ("ignore_eos", {"ignore_eos": True}),
        ("response_format.type", {"response_format": {"type": "xml"}}),
        ("response_format", {"response_format": {"type": "json_schema", "schema": {"type": 1}}}),
        (
            "response_format",
            {"response_format": {"type": "json_schema", "schema": {"type": 1}}, "tool_choice": "required"},
        ),
        ("ignore_eos", {"response_format": {"type": "json_object"}, "ignore_eos": True}),
        ("tool_choice", {"tool_choice": {"type": "allowed_tools"}}),
        ("tool_choice", {"tool_choice": allowed("auto")}),
        ("tool_choice", {"tool_choice": allowed("none", "current_minute")}),
        ("tool_choice", {"tool_choice": allowed(None, "current_minute")}),
        ("tool_choice", {"tool_choice": allowed("auto", "current_minute", "nobody")}),
        ("tool_choice", {"tool_choice": flat("required", "nobody")}),
        ("tool_choice", {"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": ["current_minute"]}}),
        ("tool_choice", {"tool_choice": allowed("auto", "current_minute"), "tools": []}),
        ("tool_choice", {"tool_choice": {"type": "custom", "custom": {"name": "current_minute"}}}),
        ("functions", {"functions": [MINUTE]}),
        ("function_call", {"function_call": {"name": "current_minute"}}),
        (
            "messages[1].tool_calls[0].function.arguments",
            {"messages": [user("x"), dict(called, tool_calls=[broken]), result(call, "1")]},
        ),
        ("messages[2].tool_call_id", {"messages": [user("x"), called, result({"id": "c2"}, "1")]}),
        ("messages[2].tool_call_id", {"messages": [user("x"), called, {"role": "tool", "content": "1"}]}),
        ("messages[1].tool_call_id", {"messages": [user("x"), result(call, "1"), called, user("y")]}),
    ):
        status, a = w.post(CHAT, body(user(POEM), **more) if "messages" not in more else dict(body(), **more))
        check("refused: " + field, status == 400 and a["error"]["param"] == field, (status, a))
    for field in ("tools", "tool_choice"):
        status, a = w.post("/v1/completions", {"prompt": "x", field: offered(MINUTE)})
        check("a completion refuses " + field, status == 400 and a["error"]["param"] == field, (status, a))


def peak(w):
    with open("/proc/%d/status" % w.process.pid, encoding="ascii") as f:
        return int(re.search(r"^VmHWM:\s+(\d+) kB", f.read(), re.M)[1]) << 10


def many():
    """As many functions as a request may offer: masked like few, in bounded memory; a bad one is told by name."""

    def number(i, **more):
        value = {"type": "integer", "minimum": i, "maximum": i}
        schema = {"type": "object", "properties": {"n": value}, "required": ["n"], "additionalProperties": False}
        return dict({"name": "f%d" % i, "parameters": schema}, **more)

    river = user("Write a haiku about rivers")
    with Worker(program, "--context", "16384") as w:
        before = peak(w)
        plain = offered(*({"name": "f%d" % i} for i in range(1024)))
        for more in ({}, {"tool_choice": "required"}, {"guided_choice": ["red"]}):
            for c in ask(w, river, tools=plain, n=2, temperature=1, seed=1, max_tokens=40, **more):
                names = {t["function"]["name"] for t in c["message"].get("tool_calls", [])}
                check("1,024 functions: %s" % more, names <= {"f%d" % i for i in range(1024)}, c)
                check("... are answered", c["finish_reason"] in ("stop", "length", "tool_calls"), c)
        (c,) = ask(w, river, tools=plain, tool_choice={"type": "function", "function": {"name": "f1023"}}, seed=1)
        check("one of them", said(c["message"]["tool_calls"])[0] == ("f1023", {}), c)
        strict = offered(*(number(i, strict=True) for i in range(1024)))
        one = {"tool_choice": "required", "parallel_tool_calls": False}
        for c in ask(w, river, tools=strict[:128], n=4, temperature=2, seed=1, **one):
            (call,) = said(c["message"]["tool_calls"])
            check("128 strict ones", call[1] == {"n": int(call[0][1:])}, c)
        bad = {"type": "object", "properties": {"x": {"$ref": "#/nowhere"}}}
        strict[777]["function"] = {"name": "f777", "parameters": bad, "strict": True}
        status, a = w.post(CHAT, body(river, tools=strict, **one))
        check("1,024 of which one is bad", status == 400, a)
        check("... by name", a["error"]["param"] == "tools[777].function.parameters", a)
        strict[777]["function"]["strict"] = False
        few = strict[700:800]
        for c in ask(w, river, tools=few, n=4, temperature=2, seed=3, **one):
            (call,) = said(c["message"]["tool_calls"])
            check("its neighbours work", call[0] == "f777" or call[1] == {"n": int(call[0][1:])}, c)
        status, a = w.post(CHAT, body(river, tools=plain + offered({"name": "g"})))
        check("more are refused", status == 400 and a["error"]["param"] == "tools", a)
        grown = peak(w) - before
        check("memory is bounded", grown < 512 << 20 or not frees_memory(program), grown)


PLAIN = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def plain_json():
    """A template without a form for tools: calls that are required are plain JSON, if that was asked for."""
    lantern = user('How many syllables does "lantern" have?')
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plain.jinja")
        with open(path, "w", encoding="utf-8") as f:
            f.write(PLAIN)
        with Worker(program, "--chat-template", path, "--context", "4096") as w:
            for choice_ in ("auto", "required"):
                status, a = w.post(CHAT, body(lantern, tool_choice=choice_))
                check("not asked for: refused", status == 400 and a["error"]["param"] == "tools", a)
        with Worker(program, "--chat-template", path, "--context", "4096", "--tool-format", "json") as w:
            for more in ({}, {"tool_choice": "auto"}, {"tool_choice": allowed("auto", "current_minute")}):
                status, a = w.post(CHAT, body(lantern, **more))
                check(
                    "what is not required is refused: %s" % more,
                    status == 400 and a["error"]["param"] == "tool_choice" and "required" in a["error"]["message"],
                    a,
                )
            told = w.post(CHAT + "/render", body(lantern, tool_choice="required"))[1]["prompt"]
            check(
                "the functions stand in a system message",
                told.startswith("<|im_start|>system\nYou can call functions.") and json.dumps(COUNT) in told,
                told,
            )
            one = {"tool_choice": "required", "parallel_tool_calls": False}
            (c,) = ask(w, lantern, **one)
            m = c["message"]
            check("a call", said(m["tool_calls"]) == [("count_syllables", {"word": "lantern"})], c)
            check("... is all", c["finish_reason"] == "tool_calls" and m["content"] is None, c)
            (d,) = ask(w, lantern, m, result(m["tool_calls"][0], "two"), tool_choice="none")
            check("... and its result", d["finish_reason"] == "stop" and d["message"]["content"], d)
            prompt = w.post(CHAT + "/render", body(lantern, m, result(m["tool_calls"][0], "two"), tool_choice="none"))
            check(
                "... as texts",
                "\n[{" in prompt[1]["prompt"] and "Result of count_syllables:\ntwo" in prompt[1]["prompt"],
            )
            named = {"type": "function", "function": {"name": "current_minute"}}
            strict = dict(COUNT, strict=True, parameters=dict(COUNT["parameters"], additionalProperties=False))
            end = w.post("/tokenize", {"content": "x]"})[1]["tokens"][-1]
            (c,) = ask(w, lantern, tool_choice=named, logit_bias={str(end): 100})
            check("a list that ends", said(c["message"]["tool_calls"]) == [("current_minute", {})], c)
            check("... by itself", c["finish_reason"] == "tool_calls" and c["message"]["content"] is None, c)
            for name, more in (
                ("required", {"tool_choice": "required"}),
                ("named", {"tool_choice": named}),
                ("one", one),
                ("strict", {"tool_choice": "required", "tools": offered(strict)}),
                ("allowed", {"tool_choice": allowed("required", "count_syllables")}),
                ("beside a form", {"tool_choice": "required", "guided_choice": ["red"]}),
            ):
                for seed in (1, 2):
                    more = dict(more, n=8, temperature=1, seed=seed, max_tokens=150)
                    for c, s in zip(ask(w, lantern, **more), streamed(w, lantern, **more)):
                        called, m = whole(c), c["message"]
                        check(
                            "plain JSON, %s: calls alone" % name,
                            m["content"] in (None, "")
                            and (called or c["finish_reason"] == "length")
                            and not (name == "one" and len(called) > 1)
                            and all(f == "current_minute" and not a for f, a in called if name == "named")
                            and all(f == "count_syllables" for f, a in called if name in ("strict", "allowed"))
                            and all(
                                list(a) == ["word"] and type(a["word"]) is str for f, a in called if name == "strict"
                            ),
                            c,
                        )
                        check(
                            "... streamed as whole",
                            s["message"]["content"] == (m["content"] or "")
                            and written(s["message"]["tool_calls"]) == written(m.get("tool_calls", []))
                            and s["finish_reason"] == c["finish_reason"],
                            (s, c),
                        )


with Worker(program) as worker:
    calls(worker)
    as_streamed(worker)
    as_it_comes(worker)
    malformed(worker)
    chosen(worker)
    enforced(worker)
    cut_characters(worker)
    some_allowed(worker)
    beside_form(worker)
    refusals(worker)
plain_json()
many()
done()
