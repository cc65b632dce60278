#!/usr/bin/env python3
"""OpenAI's Responses: the whole answer and the stream's events, tools, custom tools and those of namespaces, reasoning
that comes back, forms, what is refused and by which name. usage: test_responses.py PROGRAM SOURCE"""

import json
import os
import sys
import tempfile

from service import HAIKU, Worker, check, done, events
from thinking import thinker

program = sys.argv[1]
PATH = "/v1/responses"
ASK = {"input": HAIKU["prompt"], "max_output_tokens": 50, "temperature": 0.7, "seed": 42}
COUNT = {
    "type": "function",
    "name": "count_syllables",
    "description": "The number of syllables of a word.",
    "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
}
TWO = 'How many syllables do "lantern" and "river" have?'


def whole(w, **body):
    status, a = w.post(PATH, body)
    check("200", status == 200, a)
    return a


def streamed(w, **body):
    """[(name, event)] of a stream, whose names and numbers are checked."""
    status, text = w.post(PATH, dict(body, stream=True))
    check("200", status == 200, text)
    stream = events(text)
    check("every event says its type", all(name == e["type"] for name, e in stream), stream)
    check("numbers", [e["sequence_number"] for _, e in stream] == list(range(len(stream))))
    check("one id", len({e["response"]["id"] for _, e in stream if "response" in e}) == 1)
    return stream


def same(a, b):
    """Two items but for their ids, and those of calls."""
    strip = lambda i: {k: v for k, v in i.items() if k not in ("id", "call_id")}
    return [strip(i) for i in a] == [strip(i) for i in b]


def texts(w):
    text = "".join(d["t"] for n, d in events(w.post("/execute", dict(HAIKU, job_id="x"))[1]) if n == "token")
    a = whole(w, **ASK)
    check("the text of /execute", a["output"][0]["content"][0]["text"] == text, a)
    check("a message alone", [i["type"] for i in a["output"]] == ["message"] and a["status"] == "completed", a)
    check("usage", a["usage"]["total_tokens"] == a["usage"]["input_tokens"] + a["usage"]["output_tokens"], a["usage"])
    check("stored: no", a["store"] is False and a["previous_response_id"] is None)
    s = streamed(w, **ASK)
    names = [n for n, _ in s]
    deltas = names.count("response.output_text.delta")
    check(
        "the order of events",
        names
        == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added"]
        + ["response.output_text.delta"] * deltas
        + ["response.output_text.done", "response.content_part.done", "response.output_item.done"]
        + ["response.completed"]
        and deltas > 5,
        names,
    )
    check("deltas are the text", "".join(e["delta"] for _, e in s if "delta" in e) == text)
    check("done has it", [e["text"] for n, e in s if n == "response.output_text.done"] == [text])
    check("so has the end", same(s[-1][1]["response"]["output"], a["output"]), s[-1])
    check("created has no output yet", s[0][1]["response"]["output"] == [] and s[0][1]["response"]["usage"] is None)
    ids = {e.get("item_id") or e.get("item", {}).get("id") for n, e in s if "output_index" in e}
    check("an item keeps its id", len(ids) == 1 and s[-1][1]["response"]["output"][0]["id"] in ids, ids)
    cut = whole(w, **dict(ASK, max_output_tokens=3))
    check(
        "a limit",
        cut["status"] == "incomplete"
        and cut["incomplete_details"] == {"reason": "max_output_tokens"}
        and cut["output"][0]["status"] == "incomplete",
        cut,
    )
    check("of a stream", streamed(w, **dict(ASK, max_output_tokens=3))[-1][0] == "response.incomplete")
    repeated = whole(w, **dict(ASK, instructions="Be short.", metadata={"a": "b"}, top_p=0.9, user="u"))
    check(
        "what is repeated",
        (repeated["instructions"], repeated["metadata"], repeated["top_p"], repeated["user"], repeated["temperature"])
        == ("Be short.", {"a": "b"}, 0.9, "u", 0.7),
        repeated,
    )
    lines = json.dumps(dict(ASK, stream=True, metadata={"a": "b\n"}, tools=[{"type": "web_search"}]), indent=1)
    status, text = w.post(PATH, lines.replace("\n", "\r\n").encode())
    parts = [line.split(":")[0] for line in text.replace("\r", "\n").split("\n")]
    check("a body of many lines: events of two", status == 200 and set(parts) == {"event", "data", ""}, text)
    first, last = events(text)[0][1]["response"], events(text)[-1][1]["response"]
    check(
        "... which repeat it", first["metadata"] == last["metadata"] == {"a": "b\n"} and len(last["tools"]) == 1, last
    )
    nothing = whole(w, input="x", max_output_tokens=0)
    check("no token: an empty message", nothing["output"][0]["content"][0]["text"] == "", nothing)


def prompts(w):
    """Inputs become the chat that they are: its prompt is as long as that of the chat's own interface."""

    def tokens(path, **body):
        status, a = w.post(path, dict(body, **{"max_tokens" if "chat" in path else "max_output_tokens": 1}))
        check("200", status == 200, a)
        return a["usage"].get("prompt_tokens") or a["usage"]["input_tokens"]

    parts = lambda kind, text: [{"type": kind, "text": text}]
    inputs = {
        "a text": "Say yes.",
        "a message": [{"role": "user", "content": "Say yes."}],
        "parts": [{"type": "message", "role": "user", "content": parts("input_text", "Say yes.")}],
    }
    for name, value in inputs.items():
        check(
            name,
            tokens(PATH, input=value)
            == tokens("/v1/chat/completions", messages=[{"role": "user", "content": "Say yes."}]),
        )
    turns = [
        {"role": "system", "content": "Short."},
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "Two."},
        {"role": "user", "content": "Three?"},
    ]
    items = [
        {"type": "message", "role": "user", "content": parts("input_text", "One?")},
        {"type": "message", "role": "assistant", "content": parts("output_text", "Two.")},  # without id and status
        {"type": "message", "role": "user", "content": parts("input_text", "Three?"), "id": "msg_1", "status": "x"},
    ]
    want = tokens("/v1/chat/completions", messages=turns)
    check("a conversation", tokens(PATH, instructions="Short.", input=items) == want)
    foreign = items[:2] + [{"type": "web_search_call", "id": "ws_1", "status": "completed"}] + items[2:]
    status, a = w.post(PATH + "/input_tokens", {"instructions": "Short.", "input": items})
    check("its tokens alone", (status, a) == (200, {"object": "response.input_tokens", "input_tokens": want}), a)
    a = whole(w, instructions="Short.", input=foreign, max_output_tokens=1)
    check(
        "what is no part of a prompt is left out, and told",
        a["usage"]["input_tokens"] == want and "web_search_call" in a["warnings"][0],
        a,
    )


def tools(w):
    body = {"input": TWO, "tools": [COUNT], "temperature": 0, "max_output_tokens": 100}
    a = whole(w, **body)
    calls = a["output"]
    check(
        "calls",
        [(c["type"], c["name"], json.loads(c["arguments"])) for c in calls]
        == [("function_call", "count_syllables", {"word": x}) for x in ("lantern", "river")],
        a,
    )
    check("ids of calls", all(c["call_id"] and c["id"].startswith("fc_") for c in calls), calls)
    check("tools are repeated as they came", a["tools"] == [COUNT])
    s = streamed(w, **body)
    check("streamed", same(s[-1][1]["response"]["output"], calls), s[-1])
    for place in range(2):
        of = [(n, e) for n, e in s if e.get("output_index") == place]
        text = "".join(e["delta"] for n, e in of if n == "response.function_call_arguments.delta")
        check("deltas of arguments", text == calls[place]["arguments"], of)
        check("done has them", [e["arguments"] for n, e in of if n.endswith("arguments.done")] == [text], of)
        check("the first event has none", of[0][1]["item"]["arguments"] == "" and of[0][1]["item"]["name"], of[0])
    outputs = [
        {"type": "function_call_output", "call_id": c["call_id"], "output": n} for c, n in zip(calls, ("2", "2"))
    ]
    say = {"role": "user", "content": TWO}
    b = whole(w, **dict(body, input=[say] + calls + outputs))
    c = whole(w, **dict(body, input=[say, calls[0], outputs[0], calls[1], outputs[1]]))
    check("an answer to the results", "two syllables" in b["output"][0]["content"][0]["text"], b)
    check("calls one after the other", c["output"][0]["type"] == "message", c)
    parts = [dict(o, output=[{"type": "input_text", "text": o["output"]}]) for o in outputs]
    check("results in parts", same(whole(w, **dict(body, input=[say] + calls + parts))["output"], b["output"]))
    named = whole(w, **dict(body, tool_choice={"type": "function", "name": "count_syllables"}, input="Hello"))
    check("a function that must be called", named["output"][0]["type"] == "function_call", named)
    none = whole(w, **dict(body, tool_choice="none"))
    check("none", [i["type"] for i in none["output"]] == ["message"], none)
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "count_syllables"}]}
    check("allowed tools", whole(w, **dict(body, tool_choice=allowed))["output"][0]["type"] == "function_call")
    hosted = whole(w, input="Hello", tools=[{"type": "web_search"}, {"type": "image_generation"}], tool_choice="auto")
    check("hosted tools are left out by name", len(hosted["warnings"]) == 2 and "web_search" in hosted["warnings"][0])


def names_of_its_own(w):
    """Tools of namespaces, and custom ones."""
    inner = dict(COUNT, name="count")
    group = {"type": "namespace", "name": "mcp__poems", "description": "Poems", "tools": [inner]}
    body = {"tools": [group], "tool_choice": "required", "input": "Hello", "temperature": 0, "max_output_tokens": 60}
    a = whole(w, **body)["output"][0]
    check("a tool of a namespace", (a["name"], a["namespace"]) == ("count", "mcp__poems"), a)
    result = {"type": "function_call_output", "call_id": a["call_id"], "output": "3"}
    again = whole(w, **dict(body, tool_choice="auto", input=[{"role": "user", "content": "Hello"}, a, result]))
    check("and its result", again["status"] in ("completed", "incomplete"), again)
    custom = {"type": "custom", "name": "run", "description": "Runs a program.", "format": {"type": "text"}}
    asked = dict(body, tools=[custom], input="Say \"hi\"\n", seed=3)
    b = whole(w, **asked)["output"][0]
    check("a custom tool", b["type"] == "custom_tool_call" and isinstance(b["input"], str) and b["name"] == "run", b)
    s = streamed(w, **asked)
    inputs = [e.get("delta", e.get("input")) for n, e in s if "custom_tool_call_input" in n]
    check("its input, streamed", inputs == [b["input"]] * 2, s)
    check("no JSON of it", not any("function_call_arguments" in n for n, _ in s))
    answer = [
        {"role": "user", "content": "x"},
        b,
        {"type": "custom_tool_call_output", "call_id": b["call_id"], "output": "ok"},
    ]
    check("and its result", whole(w, **dict(asked, tool_choice="none", input=answer))["object"] == "response")


def forms(w):
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    text = {"format": {"type": "json_schema", "name": "n", "schema": schema, "strict": True}, "verbosity": "low"}
    a = whole(w, input="A number", text=text, max_output_tokens=60, seed=1)
    n = json.loads(a["output"][0]["content"][0]["text"])["n"]
    check("a form", n == int(n), a)
    probable = dict(ASK, max_output_tokens=4, include=["message.output_text.logprobs"], top_logprobs=2)
    a, s = whole(w, **probable), streamed(w, **probable)
    part = a["output"][0]["content"][0]
    check("log probabilities", len(part["logprobs"]) == 4 and len(part["logprobs"][0]["top_logprobs"]) == 2, part)
    check("streamed", sum((e["logprobs"] for n, e in s if n.endswith("text.delta")), []) == part["logprobs"], s)
    check("none unless they are asked for", whole(w, **ASK)["output"][0]["content"][0]["logprobs"] == [])


def reasoning():
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "thinks.gguf")
        ends = thinker(model)
        with Worker(program, "--model", model) as w:
            # the bias ends the reasoning: the model is random
            body = {"input": "Why?", "temperature": 1, "seed": 5, "max_output_tokens": 40, "logit_bias": {ends: 6}}
            a = whole(w, **body)
            kinds = [i["type"] for i in a["output"]]
            check("reasoning comes first", kinds == ["reasoning", "message"], a)
            s = streamed(w, **body)
            check("streamed", same(s[-1][1]["response"]["output"], a["output"]))
            told = "".join(e["delta"] for n, e in s if n == "response.reasoning_text.delta")
            check("its deltas", told == a["output"][0]["content"][0]["text"] and told, told)
            check("its tokens are counted", a["usage"]["output_tokens_details"]["reasoning_tokens"] > 0, a["usage"])
            check("not sealed unless that is asked for", a["output"][0]["encrypted_content"] is None)
            sealed = whole(w, include=["reasoning.encrypted_content"], **body)["output"]
            say = {"role": "user", "content": "Why?"}
            more = {"role": "user", "content": "And then?"}
            plain = whole(w, input=[say] + a["output"] + [more], max_output_tokens=1)
            bare = dict(sealed[0], content=None)
            opaque = whole(w, input=[say, bare, sealed[1], more], max_output_tokens=1)
            check(
                "what came back sealed is the same reasoning",
                plain["usage"]["input_tokens"] == opaque["usage"]["input_tokens"],
                (plain["usage"], opaque["usage"]),
            )


def refusals(w):
    user = {"role": "user", "content": "x"}
    image = {"type": "input_image", "image_url": "data:,"}
    wrong = {
        "input": [{}, {"input": 3}, {"input": []}, {"input": {}}],
        "input[0]": [{"input": [3]}],
        "input[0].type": [{"input": [{"type": "unheard"}]}, {"input": [{"type": "item_reference", "id": "x"}]}],
        "input[0].role": [{"input": [{"role": "robot", "content": "x"}]}, {"input": [{"content": "x"}]}],
        "input[0].content": [{"input": [{"role": "user", "content": v}]} for v in (None, 3, [3], [image], [{}])],
        "input[1].call_id": [{"input": [user, {"type": "function_call", "name": "f", "arguments": "{}"}]}],
        "input[1].arguments": [{"input": [user, {"type": "function_call", "name": "f", "call_id": "c"}]}],
        "input[1].output": [{"input": [user, {"type": "function_call_output", "call_id": "c", "output": 3}]}],
        "instructions": [{"input": "x", "instructions": ["y"]}],
        "max_output_tokens": [{"input": "x", "max_output_tokens": v} for v in (-1, "x", 1.5, 2**40)],
        "max_tokens": [{"input": "x", "max_tokens": 3}],
        "messages": [{"input": "x", "messages": [user]}],
        "previous_response_id": [{"input": "x", "previous_response_id": "resp_1"}],
        "background": [{"input": "x", "background": True}],
        "conversation": [{"input": "x", "conversation": {"id": "c"}}],
        "prompt": [{"input": "x", "prompt": {"id": "p"}}],
        "n": [{"input": "x", "n": 2}],
        "include": [{"input": "x", "include": ["everything"]}, {"input": "x", "include": "x"}],
        "text": [{"input": "x", "text": "x"}],
        "text.format": [{"input": "x", "text": {"format": "x"}}],
        "text.format.type": [{"input": "x", "text": {"format": {"type": "x"}}}],
        "reasoning": [{"input": "x", "reasoning": True}],
        "reasoning.effort": [{"input": "x", "reasoning": {"effort": v}} for v in ("huge", 3)],
        "truncation": [{"input": "x", "truncation": "all"}],
        "tools": [{"input": "x", "tools": {}}],
        "tools[0]": [{"input": "x", "tools": [v]} for v in (3, {}, {"type": "function"}, {"type": "namespace"})],
        "tool_choice": [
            {"input": "x", "tools": [COUNT], "tool_choice": v}
            for v in ("x", 3, {"type": "function", "name": "none"}, {"type": "web_search"}, {"type": "allowed_tools"})
        ],
        "temperature": [{"input": "x", "temperature": 9}],
        "top_logprobs": [{"input": "x", "include": ["message.output_text.logprobs"], "top_logprobs": 99}],
        "model": [{"input": "x", "model": 3}],
    }
    many = [{"type": "custom", "name": "t%d" % i} for i in range(1025)]
    long = {"type": "function", "name": "t" * 129}
    inside = {"type": "namespace", "name": "n" * 1000000, "tools": many[:1000]}  # its name is in 1,000 names
    wrong["tools"] += [{"input": "x", "tools": many}]
    wrong["tools[1]"] = [{"input": "x", "tools": [COUNT, t]} for t in (long, dict(long, type="custom"))]
    wrong["tools[1].tools[0]"] = [{"input": "x", "tools": [COUNT, inside]}]
    left_out, odd = {"type": "web_search"}, {"type": "function", "name": "a b"}
    group = {"type": "namespace", "name": "n", "tools": [left_out, COUNT, dict(odd, type="custom")]}
    wrong["tools[1].name"] = [{"input": "x", "tools": [left_out, odd]}]
    wrong["tools[2].tools[2].name"] = [{"input": "x", "tools": [left_out, COUNT, group]}]
    wrong["tools[1].parameters"] = [{"input": "x", "tools": [left_out, dict(COUNT, parameters=5)]}]
    for field, bodies in wrong.items():
        for body in bodies:
            status, a = w.post(PATH, body)
            error = a["error"]
            check(
                "refused: %s" % field,
                status == 400 and error["param"] == field and error["message"].startswith(field) and error["code"],
                (body, status, a),
            )
    status, a = w.post(PATH, {"input": "x", "tools": [left_out, COUNT, COUNT]})
    good = a["error"]["message"] == "tools[2].name: count_syllables is the name of tools[1] already"
    check("two of one name", status == 400 and good, a)
    status, a = w.post(PATH, {"input": "x", "model": "another"})
    check("another model", status == 404 and a["error"]["code"] == "model_not_found", a)
    call = {"type": "function_call_output", "call_id": "nobody", "output": "x"}
    status, a = w.post(PATH, {"input": [user, call], "tools": [COUNT]})
    check("a result of no call", status == 400 and a["error"]["param"] == "input", a)
    long = {"input": "word " * 60000}
    status, a = w.post(PATH, long)
    check(
        "too long", status == 400 and a["error"]["code"] == "context_length_exceeded" and a["error"]["param"] == "input"
    )
    deep = "[" * 100 + "]" * 100
    status, text = w.post(PATH, {"input": json.loads(deep)})
    check("too deep", status == 400, text)
    for nothing in ({"store": True}, {"previous_response_id": None}, {"background": False}, {"conversation": None}):
        check("asks for nothing: %s" % nothing, whole(w, input="x", max_output_tokens=1, **nothing)["store"] is False)
    status, a = w.document("GET", "/v1/responses/resp_1")
    check("nothing is stored", status == 404 and "stores no responses" in a["error"]["message"], a)


with Worker(program) as worker:
    texts(worker)
    prompts(worker)
    tools(worker)
    names_of_its_own(worker)
    forms(worker)
    refusals(worker)
reasoning()
done()
