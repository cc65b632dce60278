#!/usr/bin/env python3
"""Ollama's interface: transcripts of streams and whole answers, the same ids as /execute's, options, forms, reasoning,
calls and their results, what editors ask, refusals in Ollama's form, and clients that leave. usage: test_ollama.py
PROGRAM SOURCE"""

import http.client
import json
import os
import re
import socket
import struct
import sys
import tempfile

from service import HAIKU, LONG, MOST, PATIENCE, Worker, check, done, events
from thinking import HARMONY, thinker

FORM = "application/x-www-form-urlencoded"

program = sys.argv[1]
USER = [{"role": "user", "content": HAIKU["prompt"]}]
DRAWN = {"temperature": 0.7, "seed": 42}
ASK = {"model": "haiku", "messages": USER, "options": dict(DRAWN, num_predict=50)}
TIME = re.compile(r'"created_at":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z"')
TOOLS = [
    {"type": "function", "function": {"name": "current_minute", "description": "The current minute of the clock."}},
    {
        "type": "function",
        "function": {
            "name": "count_syllables",
            "description": "The number of syllables of a word.",
            "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
        },
    },
]
TWO = [{"role": "user", "content": 'How many syllables do "lantern" and "river" have?'}]


def lines(w, path, **body):
    """The objects of a stream's lines."""
    status, head, data = w.ask("POST", path, body)
    kind = head.get("content-type")
    check("a stream of lines", status == 200 and kind == "application/x-ndjson", (status, kind, data[:500]))
    check("each ends", data.endswith(b"\n") and b"\n\n" not in data, data[-200:])
    return [json.loads(l) for l in data.decode().splitlines()]


def whole(w, path, **body):
    status, head, data = w.ask("POST", path, dict(body, stream=False))
    check("a whole answer", status == 200 and head["content-type"] == "application/json", (status, head, data[:500]))
    return json.loads(data)


def joined(stream, member="content"):
    return "".join((l["message"] if "message" in l else l).get(member) or "" for l in stream)


def settled(text):
    """A transcript without what differs from one run to the next."""
    text = TIME.sub('"created_at":T', text)
    return re.sub(r'"id":"call_\w{24}"', '"id":I', re.sub(r'(_duration)":\d+', r'\1":N', text))


def has_counts(end, prompt, answer):
    names = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")
    return (end["prompt_eval_count"], end["eval_count"]) == (prompt, answer) and all(
        isinstance(end[n], int) and 0 <= end[n] < 3600 * 10**9 for n in names
    )


# ---- transcripts ---------------------------------------------------------------------------------------------------


END = (
    '"done":true,"done_reason":"%s","total_duration":N,"load_duration":N,"prompt_eval_count":%d,'
    '"prompt_eval_duration":N,"eval_count":%d,"eval_duration":N}\n'
)
CHAT_LINE = '{"model":"%s","created_at":T,"message":{"role":"assistant","content":%s},'
TEXT_LINE = '{"model":"%s","created_at":T,"response":%s,'


def transcripts(w):
    """Byte for byte, with the texts of /execute's tokens: the ids are the same."""
    told = events(w.post("/execute", dict(HAIKU, job_id="x"))[1])
    tokens, end = [d["t"] for n, d in told if n == "token"], told[-1][1]
    raw = dict(HAIKU, job_id="y", chat=False, parse_special=True)
    told = events(w.post("/execute", raw)[1])
    raw_tokens, raw_end = [d["t"] for n, d in told if n == "token"], told[-1][1]
    generate = {"prompt": HAIKU["prompt"], "options": ASK["options"]}
    for name, path, body, line, said, last in (
        ("haiku", "/api/chat", ASK, CHAT_LINE, tokens, end),
        ("haiku:latest", "/api/chat", ASK, CHAT_LINE, tokens, end),
        ("haiku", "/api/generate", generate, TEXT_LINE, tokens, end),
        ("haiku", "/api/generate", dict(generate, raw=True), TEXT_LINE, raw_tokens, raw_end),
    ):
        ended = END % (last["finish_reason"], last["tokens_in"], last["tokens_out"])
        shown = lambda text: line % (name, json.dumps(text, ensure_ascii=False))
        data = w.ask("POST", path, dict(body, model=name))[2].decode()
        expected = "".join(shown(t) + '"done":false}\n' for t in said if t) + shown("") + ended
        check("%s, streamed" % path, settled(data) == expected, (data, expected))
        data = w.ask("POST", path, dict(body, model=name, stream=False))[2].decode()
        check("%s, whole" % path, settled(data) == shown("".join(said)) + ended, data)
    data = w.ask("POST", "/api/chat", {k: v for k, v in ASK.items() if k != "model"})[2].decode()
    check("a request that names no model", joined(map(json.loads, data.splitlines())) == "".join(tokens), data)
    cut = lines(w, "/api/chat", **dict(ASK, options=dict(DRAWN, num_predict=3)))
    check("a limit", cut[-1]["done_reason"] == "length" and has_counts(cut[-1], end["tokens_in"], 3), cut[-1])


def call_transcript(w):
    call = '{"id":I,"function":{"index":%d,"name":"count_syllables","arguments":{"word": "%s"}}}'
    data = w.ask("POST", "/api/chat", {"messages": TWO, "tools": TOOLS, "options": {"temperature": 0}})[2].decode()
    render = w.post("/v1/chat/completions/render", {"messages": TWO, "tools": TOOLS})[1]
    one = '{"model":"haiku","created_at":T,"message":{"role":"assistant","content":""'
    ids = json.loads(data.splitlines()[-1])["eval_count"]
    expected = "".join(
        one + ',"tool_calls":[' + call % c + ']},"done":false}\n' for c in ((0, "lantern"), (1, "river"))
    )
    expected += one + "}," + END % ("stop", render["count"], ids)
    check("calls, streamed", settled(data) == expected, (data, expected))
    body = {"messages": TWO, "tools": TOOLS, "options": {"temperature": 0}, "stream": False}
    data = w.ask("POST", "/api/chat", body)[2].decode()
    both = ',"tool_calls":[' + call % (0, "lantern") + "," + call % (1, "river") + "]},"
    check("calls, whole", settled(data) == one + both + END % ("stop", render["count"], ids), data)


# ---- options -------------------------------------------------------------------------------------------------------


def options(w):
    """Each as /v1 has it, whose text must come."""
    for mine, theirs in (
        ({"num_predict": 7}, {"max_tokens": 7}),
        ({"num_predict": 0}, {"max_tokens": 0}),
        ({"temperature": 1.5, "top_k": 3}, {"temperature": 1.5, "top_k": 3}),
        ({"top_p": 0.4, "temperature": 2}, {"top_p": 0.4, "temperature": 2}),
        ({"min_p": 0.2, "temperature": 2}, {"min_p": 0.2, "temperature": 2}),
        ({"top_k": -1}, {}),
        ({"seed": 18446744073709551615}, {"seed": 18446744073709551615}),
        ({"stop": ["e", "u"]}, {"stop": ["e", "u"]}),
        ({"stop": "e"}, {"stop": "e"}),
        ({"repeat_penalty": 1.7}, {"repetition_penalty": 1.7}),
        ({"repeat_penalty": 1.7, "repeat_last_n": 64}, {"repetition_penalty": 1.7}),
        ({"repeat_penalty": 1.7, "presence_penalty": 2, "repeat_last_n": 0}, {}),
        ({"presence_penalty": 1.5}, {"presence_penalty": 1.5}),
        ({"frequency_penalty": -1.5}, {"frequency_penalty": -1.5}),
        ({"num_ctx": 512, "num_gpu": 99, "num_thread": 2, "num_batch": 512, "use_mmap": True, "use_mlock": False}, {}),
        ({"numa": False, "main_gpu": 0, "low_vram": False, "f16_kv": True, "num_keep": 24}, {}),
        ({"mirostat": 0, "tfs_z": 1, "typical_p": 1.0, "mirostat_tau": 5, "penalize_newline": True}, {}),
        ({"nobody_knows_this": 1, "temperature": None}, {"temperature": None}),
    ):
        a = whole(w, "/api/chat", messages=USER, options=dict(DRAWN, num_predict=30, **{}) | mine)
        b = w.post("/v1/chat/completions", {"messages": USER, "max_tokens": 30, **DRAWN, **theirs})[1]
        if mine.get("temperature", 1) is None:  # drawn with another temperature than 0.7, by both
            b = w.post("/v1/chat/completions", {"messages": USER, "max_tokens": 30, "seed": 42})[1]
        check(
            "options %s" % mine,
            a["message"]["content"] == b["choices"][0]["message"]["content"]
            and a["eval_count"] == b["usage"]["completion_tokens"],
            (a, b),
        )
    b = w.post("/v1/chat/completions", {"messages": USER, "max_tokens": 1000000, **DRAWN})[1]["choices"][0]["message"]
    for most in (-1, -2, -1.0):
        a = whole(w, "/api/chat", messages=USER, options=dict(DRAWN, num_predict=most))
        check("num_predict %s" % most, a["message"]["content"] == b["content"], (a, b))
    probs = {"logprobs": True, "top_logprobs": 2}
    a = whole(w, "/api/chat", **dict(ASK, **probs))
    s = lines(w, "/api/chat", **dict(ASK, **probs))
    b = w.post("/v1/chat/completions", {"messages": USER, "max_tokens": 50, **DRAWN, **probs})[1]["choices"][0]
    check("log probabilities", a["logprobs"] == b["logprobs"]["content"], a)
    check("... of a stream", [p for l in s for p in l.get("logprobs", [])] == a["logprobs"], s)
    a = whole(w, "/api/generate", prompt="Once", raw=True, options=dict(DRAWN, num_predict=4), **probs)
    check("... of a prompt as it is", len(a["logprobs"]) == 4 and len(a["logprobs"][0]["top_logprobs"]) == 2, a)
    a = whole(w, "/api/generate", prompt="Hello", system="You are a poet.", options=dict(DRAWN, num_predict=1))
    messages = [{"role": "system", "content": "You are a poet."}, {"role": "user", "content": "Hello"}]
    count = w.post("/v1/chat/completions/render", {"messages": messages})[1]["count"]
    check("system", a["prompt_eval_count"] == count, (a, count))
    marked = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    a = whole(w, "/api/generate", prompt=marked, raw=True, options=dict(DRAWN, num_predict=20))
    b = whole(w, "/api/generate", prompt="Hello", options=dict(DRAWN, num_predict=20))
    check("raw: marks are marks", a["response"] == b["response"], (a, b))
    check("... and nothing more", a["prompt_eval_count"] == b["prompt_eval_count"], (a, b))


def forms(w):
    schema = {
        "type": "object",
        "properties": {"b": {"enum": ["red", "blue"]}, "a": {"type": "integer", "maximum": 9, "minimum": 3}},
        "required": ["b", "a"],
        "additionalProperties": False,
    }
    for path, body in (("/api/chat", {"messages": USER}), ("/api/generate", {"prompt": "A colour"})):
        for more in ({}, {"raw": True}):
            if more and "messages" in body:
                continue
            asked = dict(body, options=dict(DRAWN, num_predict=200), **more)
            a = whole(w, path, format=schema, **asked)
            value = json.loads(joined([a], "response" if "prompt" in body else "content"))
            check("a schema", list(value) == ["b", "a"] and value["b"] in ("red", "blue") and 3 <= value["a"] <= 9, a)
            asked["options"]["num_predict"] = 3
            a = whole(w, path, format="json", **asked)
            check("json", joined([a], "response" if "prompt" in body else "content").startswith("{"), a)
            for nothing in ("", None):
                a, b = whole(w, path, format=nothing, **asked), whole(w, path, **asked)
                check("no form", joined([a]) == joined([b]) and a.get("response") == b.get("response"), a)


# ---- calls ---------------------------------------------------------------------------------------------------------


def round_trip(w):
    """Calls go back as they came, and results in each of the ways in which clients name the calls: the prompt is that
    of OpenAI's conversation."""
    body = {"messages": TWO, "tools": TOOLS, "options": {"temperature": 0}}
    first = whole(w, "/api/chat", **body)["message"]
    bare = [{"function": {k: c["function"][k] for k in ("name", "arguments")}} for c in first["tool_calls"]]
    ids = [c["id"] for c in first["tool_calls"]]
    theirs = [
        {"id": i, "type": "function", "function": dict(c["function"], arguments=json.dumps(c["function"]["arguments"]))}
        for i, c in zip(ids, bare)
    ]
    history = TWO + [{"role": "assistant", "content": None, "tool_calls": theirs}]
    history += [{"role": "tool", "tool_call_id": i, "content": t} for i, t in zip(ids, "23")]
    prompt = w.post("/v1/chat/completions/render", {"messages": history, "tools": TOOLS})[1]
    text = w.post("/v1/chat/completions", {"messages": history, "tools": TOOLS, "temperature": 0})[1]
    result = lambda content, **more: dict({"role": "tool", "content": content}, **more)
    name = "count_syllables"
    for what, calls, results in (
        ("by id", first["tool_calls"], [result("2", tool_call_id=ids[0]), result("3", tool_call_id=ids[1])]),
        ("by name", bare, [result("2", tool_name=name), result("3", tool_name=name)]),
        ("by an old name", bare, [result("2", name=name), result("3", name=name)]),
        ("in order", bare, [result("2"), result("3")]),
        ("by empty names", bare, [result("2", tool_call_id="", tool_name=""), result("3", tool_name="")]),
        ("by name beside ids", first["tool_calls"], [result("2", tool_name=name), result("3", tool_name=name)]),
    ):
        messages = TWO + [{"role": "assistant", "tool_calls": calls}] + results
        a = whole(w, "/api/chat", **dict(body, messages=messages))
        check(
            "results " + what,
            a["prompt_eval_count"] == prompt["count"]
            and a["message"]["content"] == (text["choices"][0]["message"]["content"] or ""),
            (a, text),
        )
    # two calls of two functions, answered in the other order
    other = {"function": {"name": "current_minute", "arguments": {}}}
    messages = TWO + [{"role": "assistant", "content": "", "tool_calls": [bare[0], other]}]
    swapped = messages + [result("17", tool_name="current_minute"), result("2", tool_name=name)]
    a = whole(w, "/api/chat", **dict(body, messages=swapped))
    check("results in another order", a["done"], a)
    for results, field in (
        ([result("2", tool_name="nobody")], "messages[2].tool_name"),
        ([result("2")] * 3, "messages[4].tool_call_id"),
        ([result("2", tool_call_id="nobody")], "messages[2].tool_call_id"),
    ):
        refused(w, "/api/chat", dict(body, messages=messages + results), field)
    numbers = {"function": {"name": name, "arguments": {"word": 12345678901234567890, "z": 1, "a": 2}}}
    messages = TWO + [{"role": "assistant", "tool_calls": [numbers]}, result("2")]
    a = whole(w, "/api/chat", **dict(body, messages=messages))
    said = dict(theirs[0], function={"name": name, "arguments": '{"word":12345678901234567890,"z":1,"a":2}'})
    history = TWO + [{"role": "assistant", "content": None, "tool_calls": [said]}]
    history.append({"role": "tool", "tool_call_id": ids[0], "content": "2"})
    count = w.post("/v1/chat/completions/render", {"messages": history, "tools": TOOLS})[1]["count"]
    check("numbers keep their digits", a["prompt_eval_count"] == count, (a, count))
    cut = lines(w, "/api/chat", **dict(body, options={"temperature": 0, "num_predict": 20}))
    check(
        "a call that a limit cuts is none",
        cut[-1]["done_reason"] == "length" and not any("tool_calls" in l["message"] for l in cut),
        cut,
    )
    for nothing in ([], None):
        a = whole(w, "/api/chat", **dict(ASK, tools=nothing))
        check("no tools", a["prompt_eval_count"] == whole(w, "/api/chat", **ASK)["prompt_eval_count"], a)


# ---- reasoning -----------------------------------------------------------------------------------------------------


def reasoning(model, name, can_stop, form=None):
    """form: what makes a random model keep to harmony's messages."""
    theirs_form = {"response_format": {"type": "json_schema", "json_schema": {"schema": form}}} if form else {}
    with Worker(program, "--model", model, "--model-id", name) as w:
        show = w.post("/api/show", {"model": name})[1]
        check("%s thinks" % name, "thinking" in show["capabilities"], show["capabilities"])
        asked = {"messages": [{"role": "user", "content": "Yes or no?"}], "max_tokens": 60, **theirs_form}
        for seed in range(100):  # the models are random: one that thinks here
            asked["seed"] = seed
            theirs = w.post("/v1/chat/completions", asked)[1]
            message = theirs["choices"][0]["message"]
            thought = message.get("reasoning_content", "")
            if thought:
                break
        body = {"messages": asked["messages"], "options": {"num_predict": 60, "seed": seed}, "format": form}
        for more in ({}, {"think": None}, {"think": True}):
            a, s = whole(w, "/api/chat", **body, **more), lines(w, "/api/chat", **body, **more)
            check(
                "%s: %s" % (name, more),
                thought
                and a["message"]["thinking"] == thought
                and a["message"]["content"] == (message["content"] or "")
                and a["eval_count"] == theirs["usage"]["completion_tokens"],
                (a, theirs),
            )
            check("... streamed", joined(s, "thinking") == thought and joined(s) == a["message"]["content"], s)
            check("... either, or a text", all(l["message"]["content"] == "" for l in s if "thinking" in l["message"]))
            g = whole(w, "/api/generate", prompt="Yes or no?", options=body["options"], format=form, **more)
            check("... generated", (g["thinking"], g["response"]) == (thought, a["message"]["content"]), g)
        for level in ("low", "high"):
            a = whole(w, "/api/chat", think=level, **body)
            b = w.post("/v1/chat/completions", dict(asked, reasoning_effort=level))[1]["choices"][0]["message"]
            same = a["message"].get("thinking") == b.get("reasoning_content")
            check("%s: %s" % (name, level), same and a["message"]["content"] == (b["content"] or ""), (a, b))
        a = whole(w, "/api/chat", think=False, **body)
        check("%s: not told" % name, "thinking" not in a["message"], a)
        if can_stop:
            b = w.post("/v1/chat/completions", dict(asked, enable_thinking=False))[1]["choices"][0]["message"]
            check("... and not done", a["message"]["content"] == b["content"], (a, b))
        told = [dict(body["messages"][0]), {"role": "assistant", "content": "No.", "thinking": "Hm."}]
        a = whole(w, "/api/chat", **dict(body, messages=told + body["messages"]))
        check("thinking of the past", a["done"], a)


# ---- what clients ask of the model ---------------------------------------------------------------------------------


def facts(w):
    """As VS Code's Copilot, Continue and Open WebUI look at it."""
    status, version = w.get("/api/version")
    numbers = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version["version"])
    check("a plain version", status == 200 and numbers and tuple(map(int, numbers.groups())) >= (0, 6, 4), version)
    (tag,) = w.get("/api/tags")[1]["models"]
    check("tags: its name", tag["name"] == tag["model"] == "haiku:latest", tag)
    check("tags: a digest", re.fullmatch("[0-9a-f]{64}", tag["digest"]) and tag["size"] > 4000000, tag)
    check("tags: a time", re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", tag["modified_at"]), tag)
    details = tag["details"]
    check(
        "tags: details",
        (details["format"], details["family"], details["families"], details["quantization_level"])
        == ("gguf", "llama", ["llama"], "Q4_K_M")
        and re.fullmatch(r"\d+\.\d\dM", details["parameter_size"]),
        details,
    )
    (now,) = w.get("/api/ps")[1]["models"]
    check(
        "ps",
        now["details"] == details
        and now["context_length"] == 512
        and now["size"] > 0
        and 0 <= now["size_vram"] <= now["size"]
        and now["expires_at"] > "2100",
        now,
    )
    for body in ({"model": "haiku"}, {"model": tag["model"]}, {"name": "haiku"}, {"model": "haiku", "verbose": False}):
        status, show = w.post("/api/show", body)
        info = show["model_info"]
        check(
            "show %s" % body,
            status == 200
            and info["%s.context_length" % info["general.architecture"]] == 512
            and info["general.parameter_count"] > 6000000
            and show["capabilities"] == ["completion", "tools"]
            and show["details"] == details
            and "message" in show["template"]
            and re.search(r"^num_ctx\s+512$", show["parameters"], re.M),
            show,
        )
    check("no list of the file's", info["tokenizer.ggml.tokens"] is None and "tokenizer.chat_template" not in info)
    # Copilot then asks OpenAI's interface by the name of the tag
    chat = {"model": tag["model"], "messages": USER, "max_tokens": 2, "stream": True, "tools": TOOLS}
    check("and chats", w.post("/v1/chat/completions", chat)[0] == 200)
    for path, headers in (("/api/tags", {}), ("/api/version", {}), ("/", {})):
        check("HEAD " + path, w.ask("HEAD", path, None, headers)[0] == 200)
    # Open WebUI: a chat with what its settings write out
    body = {
        "model": "haiku:latest",
        "messages": [{"role": "system", "content": "Be kind."}] + USER,
        "stream": True,
        "options": {"temperature": 0.8, "num_ctx": 512, "num_keep": None, "stop": [], "think": None},
        "format": None,
        "keep_alive": "5m",
        "think": None,
        "metadata": {"chat_id": "1"},
    }
    s = lines(w, "/api/chat", **body)
    check("a chat of a browser", s[-1]["done"] and joined(s), s)
    # Continue: a prompt as it is, and the options of its models
    body = {
        "model": "haiku",
        "prompt": "Once",
        "raw": True,
        "options": {"num_predict": 5, "num_ctx": 512, "stop": ["\n"], "num_thread": None, "mirostat": None},
        "keep_alive": 1800,
    }
    s = lines(w, "/api/generate", **body)
    check("a completion of an editor", s[-1]["done"], s)
    # LangChain: every option written out
    names = "mirostat mirostat_eta mirostat_tau num_ctx num_gpu num_thread num_predict repeat_last_n repeat_penalty"
    body = dict(ASK, options={n: None for n in names.split()}, tools=[], keep_alive=None, think=None, logprobs=None)
    check("options that are null", lines(w, "/api/chat", **body)[-1]["done"])


def loading(w):
    for path, empties in (
        ("/api/chat", ({}, {"messages": []}, {"messages": None})),
        ("/api/generate", ({}, {"prompt": ""}, {"prompt": None, "system": "x"})),
    ):
        for empty in empties:
            for alive, reason in ((None, "load"), ("5m", "load"), (-1, "load"), (300, "load"), ("1h30m", "load")) + (
                (0, "unload"),
                ("0", "unload"),
                ("0s", "unload"),
            ):
                status, a = w.post(path, dict(empty, model="haiku", keep_alive=alive))
                said = a.get("message", {"role": "assistant", "content": a.get("response")})
                check(
                    "%s %s" % (path, alive),
                    status == 200
                    and (a["done"], a["done_reason"], a["model"]) == (True, reason, "haiku")
                    and said == {"role": "assistant", "content": ""},
                    (status, a),
                )
    check("it is there all the same", len(w.get("/api/ps")[1]["models"]) == 1)
    for path in ("/api/chat", "/api/generate"):
        refused(w, path, {"model": "another"}, "model", 404)
    with Worker(program, "--wait-for-commit", "--model-dir", sys.argv[2], wait=False) as empty:
        empty.until(lambda: empty.get("/livez")[0] == 200)
        check("no model: none is listed", empty.get("/api/tags")[1] == {"models": []})
        check("... nor runs", empty.get("/api/ps")[1] == {"models": []})
        for path, body in (("/api/show", {"model": "x"}), ("/api/chat", ASK), ("/api/generate", {"prompt": "x"})):
            status, a = empty.post(path, body)
            check("... %s waits" % path, status == 503 and list(a) == ["error"], (status, a))


# ---- refusals ------------------------------------------------------------------------------------------------------


def begun(w):
    """An answer that the last message begins is gone on with; one without a text has not begun."""
    asked, said = (
        {"role": "user", "content": "Write a haiku about rain"},
        {"role": "assistant", "content": "the gutter"},
    )
    body = {"messages": [asked, said], "temperature": 0, "max_tokens": 20, "continue_final_message": True}
    theirs = w.post("/v1/chat/completions", body)[1]["choices"][0]["message"]["content"]
    few = {"temperature": 0, "num_predict": 20}
    a = whole(w, "/api/chat", messages=[asked, said], options=few)
    check("a begun answer", a["message"]["content"] == theirs, (a, theirs))
    alone, empty = (whole(w, "/api/chat", messages=[asked] + m, options=few) for m in ([], [dict(said, content="")]))
    check(
        "not begun", alone["message"] == empty["message"] and theirs not in alone["message"]["content"], (alone, empty)
    )
    calls = [{"function": {"name": "f"}}]
    body = {"messages": [asked, dict(said, tool_calls=calls)]}
    refused(w, "/api/chat", body, "messages[1].tool_calls", more="their results must follow")


def refused(w, path, body, field, status=400, more=""):
    """{"error": text}, and nothing else; the text begins with the field."""
    got, head, data = w.ask("POST", path, body)
    try:
        a = json.loads(data)
    except ValueError:
        a = {}
    check(
        "%s refuses %s" % (path, field or str(body)[:60]),
        got == status
        and head["content-type"] == "application/json"
        and list(a) == ["error"]
        and isinstance(a["error"], str)
        and a["error"].startswith(field + (": " if field else ""))
        and more in a["error"],
        (got, data[:500], str(body)[:200]),
    )


def refusals(w):
    both = [
        ("options", {"options": [1]}),
        ("options.num_predict", {"options": {"num_predict": "many"}}),
        ("options.num_predict", {"options": {"num_predict": -3}}),
        ("options.num_ctx", {"options": {"num_ctx": 513}}),
        ("options.num_ctx", {"options": {"num_ctx": 0}}),
        ("options.num_ctx", {"options": {"num_ctx": "512"}}),
        ("options.temperature", {"options": {"temperature": 3}}),
        ("options.temperature", {"options": {"temperature": "hot"}}),
        ("options.top_k", {"options": {"top_k": -2}}),
        ("options.top_p", {"options": {"top_p": 1.5}}),
        ("options.min_p", {"options": {"min_p": -1}}),
        ("options.seed", {"options": {"seed": 1.5}}),
        ("options.stop", {"options": {"stop": 5}}),
        ("options.stop", {"options": {"stop": [""]}}),
        ("options.stop", {"options": {"stop": ["word " * 40]}}),
        ("options.repeat_penalty", {"options": {"repeat_penalty": 5}}),
        ("options.presence_penalty", {"options": {"presence_penalty": 5}}),
        ("options.frequency_penalty", {"options": {"frequency_penalty": "x"}}),
        ("options.mirostat", {"options": {"mirostat": 2}}),
        ("options.tfs_z", {"options": {"tfs_z": 0.5}}),
        ("options.typical_p", {"options": {"typical_p": 0.5}}),
        ("format", {"format": "xml"}),
        ("format", {"format": 5}),
        ("format", {"format": {"type": 1}}),
        ("format", {"format": {"$ref": "#/nowhere"}}),
        ("think", {"think": "very much"}),
        ("think", {"think": 1}),
        ("think", {"think": True}),
        ("think", {"think": "high"}),
        ("stream", {"stream": "yes"}),
        ("truncate", {"truncate": 1}),
        ("shift", {"shift": "no"}),
        ("model", {"model": 5}),
        ("model", {"model": "x" * 256}),
        ("logprobs", {"logprobs": 3}),
        ("top_logprobs", {"logprobs": True, "top_logprobs": 21}),
        ("top_logprobs", {"top_logprobs": 2}),
    ]
    message = lambda **m: {"messages": [dict({"role": "user", "content": "x"}, **m)]}
    call = lambda **c: {"messages": TWO + [{"role": "assistant", "tool_calls": [c]}]}
    chats = [
        ("messages", {"messages": "x"}),
        ("messages[0]", {"messages": ["x"]}),
        ("messages[0].role", {"messages": [{"content": "x"}]}),
        ("messages[0].role", message(role="robot")),
        ("messages[0].role", message(role=1)),
        ("messages[0].content", message(content=[{"type": "text", "text": "x"}])),
        ("messages[0].content", message(content=5)),
        ("messages[0].images", message(images=["aGVsbG8="])),
        ("messages[0].images", message(images="aGVsbG8=")),
        ("messages[0].thinking", message(thinking=5)),
        ("messages[0].tool_calls", message(tool_calls=[{"function": {"name": "f", "arguments": {}}}])),
        ("messages[1].tool_calls", {"messages": TWO + [{"role": "assistant", "tool_calls": {}}]}),
        ("messages[1].tool_calls[0]", {"messages": TWO + [{"role": "assistant", "tool_calls": [1]}]}),
        ("messages[1].tool_calls[0].function", call(function={"arguments": {}})),
        ("messages[1].tool_calls[0].function", call(function=5)),
        ("messages[1].tool_calls[0].function.name", call(function={"name": 1})),
        ("messages[1].tool_calls[0].function.arguments", call(function={"name": "f", "arguments": "{}"})),
        ("messages[1].tool_calls[0].id", call(id=1, function={"name": "f"})),
        ("messages[0].tool_call_id", {"messages": [{"role": "tool", "content": "x"}]}),
        ("messages[0].tool_name", {"messages": [{"role": "tool", "content": "x", "tool_name": 5}]}),
        (
            "messages[0].tool_calls",
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}] * 257}]},
        ),
        ("tools", {"tools": {}}),
        ("tools[0].type", {"tools": [{"type": "web_search"}]}),
        ("tools[0].function.name", {"tools": [{"type": "function", "function": {"name": "a b"}}]}),
        ("messages", {"messages": [{"role": "user", "content": "word " * 600}]}),
    ]
    generated = [
        ("prompt", {"prompt": 5}),
        ("prompt", {"prompt": ["x"]}),
        ("prompt", {"prompt": "word " * 600}),
        ("prompt", {"prompt": "word " * 600, "raw": True}),
        ("prompt", {"prompt": "word " * 600, "system": "x"}),
        ("system", {"system": 5}),
        ("raw", {"raw": "yes"}),
        ("suffix", {"suffix": "x"}),
        ("template", {"template": "{{ .Prompt }}"}),
        ("context", {"context": [1, 2]}),
        ("images", {"images": ["aGVsbG8="]}),
        ("width", {"width": 512}),
        ("system", {"raw": True, "system": "x"}),
        ("think", {"raw": True, "think": True}),
    ]
    for field, more in both + chats:
        refused(w, "/api/chat", dict({"model": "haiku", "messages": USER}, **more), field)
    for field, more in both + generated:
        refused(w, "/api/generate", dict({"model": "haiku", "prompt": "x"}, **more), field)
    for field, more in both[:23]:
        refused(w, "/api/generate", dict({"model": "haiku", "prompt": "x", "raw": True}, **more), field)
    for nothing in ({"suffix": "", "template": "", "context": [], "images": [], "width": 0}, {"raw": False}):
        check("what asks for nothing", whole(w, "/api/generate", prompt="x", options={"num_predict": 1}, **nothing))
    for path in ("/api/chat", "/api/generate"):
        refused(w, path, dict(ASK, prompt="x", model="another"), "model", 404, "another")
        for bad in (b"", b"{", b"[]", b"null", b'{"model":"haiku","model":"haiku"}', b"\xff", b'{"options":' * 100):
            refused(w, path, bad, "")
        deep = b"[" * 100 + b"]" * 100
        refused(w, path, b'{"prompt":"x","messages":[{"role":"user","content":"x"}],"x":' + deep + b"}", "")
    check("another", "--model-alias" in w.post("/api/chat", dict(ASK, model="another"))[1]["error"])
    check("text/plain", w.ask("POST", "/api/chat", b"{}", {"Content-Type": "text/plain"})[0] == 415)
    for path in ("/api/chat", "/api/generate", "/api/show"):
        for headers, status in (
            ({}, 200),  # litellm sends none
            ({"Sec-Fetch-Site": "same-origin"}, 415),
            ({"Origin": "http://127.0.0.1:%d" % w.port}, 415),
            ({"Origin": "https://elsewhere.example"}, 403),
            ({"Content-Type": ""}, 415),
            ({"Content-Type": FORM}, 200),  # of curl -d
            ({"Content-Type": FORM, "Sec-Fetch-Site": "none"}, 415),
            ({"Content-Type": FORM, "Origin": "null"}, 403),
            ({"Content-Type": FORM, "Origin": "http://127.0.0.1:%d" % w.port}, 415),
        ):
            c = w.connection()
            c.request("POST", path, b'{"model":"haiku"}', headers)
            got = c.getresponse().status
            c.close()
            check("%s without a type: %s" % (path, headers), got == status, got)
    for body in ({"model": "another"}, {"name": "another"}):
        refused(w, "/api/show", body, next(iter(body)), 404)
    refused(w, "/api/show", {"model": "haiku", "verbose": True}, "verbose")
    refused(w, "/api/show", {"model": 5}, "model")
    for path, word in (("pull", "pulls"), ("push", "pushes"), ("create", "creates"), ("copy", "copies")):
        status, a = w.post("/api/" + path, {"model": "x"})
        check("%s, by name" % path, status == 404 and word in a["error"] and list(a) == ["error"], (status, a))
    for method, path, word in (
        ("DELETE", "/api/delete", "deletes"),
        ("GET", "/api/blobs/sha256:00", "pushes"),
        ("GET", "/api/nothing", "/api/version"),
    ):
        status, a = w.document(method, path, {} if method == "POST" else None)
        check("%s %s" % (method, path), status == 404 and list(a) == ["error"] and word in a["error"], (status, a))
    status, a = w.get("/api/chat")
    check("another method", status == 405 and list(a) == ["error"], (status, a))


def wrong_values(w):
    """Every member with every kind of value: an answer, or a refusal in Ollama's form; never a failure."""
    values = [None, True, 0, -1, 1.5, 1e300, "", "x", [], [1], [[]], {}, {"a": {}}, "\u0000", "0"]
    tops = (
        "model stream format options keep_alive think tools messages prompt system raw suffix template context images"
    )
    tops += " logprobs top_logprobs truncate shift"
    inner = "num_predict num_ctx temperature top_k top_p min_p seed stop repeat_penalty repeat_last_n presence_penalty"
    bodies = [{name: v} for name in tops.split() for v in values]
    bodies += [{"options": {name: v}} for name in (inner + " mirostat frequency_penalty").split() for v in values]
    bodies += [
        {"messages": [dict(USER[0], **{n: v})]}
        for n in "role content thinking images tool_calls".split()
        for v in values
    ]
    bodies += [
        {"messages": [{"role": "tool", "content": "x", n: v}]} for n in ("tool_name", "tool_call_id") for v in values
    ]
    bad = 0
    for body in bodies:
        for path, rest in (("/api/chat", {"messages": USER}), ("/api/generate", {"prompt": "x"})):
            full = dict(rest, **{"options": {"num_predict": 1}}) | body
            full["options"] = (
                full["options"]
                if not isinstance(full["options"], dict)
                else dict({"num_predict": 1}, **full["options"])
            )
            status, head, data = w.ask("POST", path, full)
            try:
                said = [json.loads(l) for l in data.decode().splitlines()]
            except ValueError:
                said = []
            fine = said and (
                (status == 200 and said[-1].get("done") is True)
                or (status in (400, 404) and list(said[0]) == ["error"] and said[0]["error"])
            )
            bad += not fine
            if not fine:
                check("wrong values", False, (path, full, status, data[:300]))
    check("%d bodies of wrong values" % (2 * len(bodies)), not bad, bad)


# ---- leaving -------------------------------------------------------------------------------------------------------


def leaving():
    """Who leaves cancels; a cancelled job is an error in the form of its answer."""
    options_ = {"num_predict": MOST, "temperature": 0, "repeat_penalty": 0.01}
    chat = {"messages": [{"role": "user", "content": "Once"}], "options": options_}
    bodies = (("/api/chat", chat), ("/api/generate", {"prompt": "Once", "raw": True, "options": options_}))
    with Worker(program, *LONG, "--max-sequences", "1", "--max-queue", "2") as w:
        live = lambda: [j for j in w.get("/worker/jobs")[1]["jobs"] if j["state"] in ("queued", "prefill", "decode")]

        def begun(path, body):
            c = http.client.HTTPConnection("127.0.0.1", w.port, timeout=PATIENCE)
            c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            w.until(lambda: live() and live()[0]["state"] == "decode")
            return c, live()[0]["job_id"]

        for path, body in bodies:
            for stream in (True, False):
                for how in ("fin", "rst", "half"):
                    c, job = begun(path, dict(body, stream=stream))
                    if stream:
                        c.sock.recv(1000)
                    if how == "rst":
                        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    if how == "half":  # nothing can be written between lines that would tell whether it still reads
                        c.sock.shutdown(socket.SHUT_WR)
                    else:
                        c.sock.close()
                    w.until(lambda: w.get("/worker/jobs/" + job)[1]["state"] == "cancelled")
                    c.close()
                    check("leaving cancels (%s, %s, %s)" % (path, stream, how), job.startswith("ollama-"), job)
                c, job = begun(path, dict(body, stream=stream))
                w.post("/cancel", {"job_id": job})
                r = c.getresponse()
                data = r.read().decode()
                last = json.loads(data.splitlines()[-1])
                check(
                    "cancelled (%s, %s)" % (path, stream),
                    r.status == (200 if stream else 499) and list(last) == ["error"] and "cancelled" in last["error"],
                    (r.status, data[-300:]),
                )
        refused(w, "/api/chat", dict(chat, options={"num_predict": MOST + 1}), "options.num_predict", more=str(MOST))
        a = whole(w, "/api/chat", messages=USER, options=dict(DRAWN, num_predict=-1))
        check("... where it is given, and no limit is asked for", a["done"], a)
        # one that waits, and has been told nothing yet, leaves as well
        c, job = begun("/api/chat", chat)
        waiting = http.client.HTTPConnection("127.0.0.1", w.port, timeout=PATIENCE)
        waiting.request("POST", "/api/chat", json.dumps(chat), {"Content-Type": "application/json"})
        w.until(lambda: w.get("/health")[1]["queue"]["queued"] == 1)
        waiting.sock.close()
        w.until(lambda: w.get("/health")[1]["queue"]["queued"] == 0)
        check("leaving the queue", w.get("/worker/jobs/" + job)[1]["state"] == "decode")
        soon = {"X-Deadline": "2001-01-01T00:00:00Z"}
        status, a = w.document("POST", "/api/chat", chat, headers=soon)
        check("a deadline", status == 504 and list(a) == ["error"], (status, a))
        c.close()
        w.post("/cancel", {"job_id": job})


with Worker(program) as w_:
    transcripts(w_)
    call_transcript(w_)
    options(w_)
    forms(w_)
    round_trip(w_)
    begun(w_)
    facts(w_)
    loading(w_)
    refusals(w_)
    wrong_values(w_)
with tempfile.TemporaryDirectory() as folder_:
    model_ = os.path.join(folder_, "thinker.gguf")
    thinker(model_)
    reasoning(model_, "thinker", True)
reasoning(HARMONY, "harmony", False, {"enum": ["yes", "no"]})
leaving()
done()
