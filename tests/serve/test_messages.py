#!/usr/bin/env python3
"""Anthropic's Messages: the events of a stream in their order, the whole answer, tools, thinking, histories as the
prompts that they are, Claude Code's requests, and what is refused, in Anthropic's form. usage: test_messages.py PROGRAM
SOURCE"""

import json
import os
import re
import sys
import tempfile
import threading

from gated import Gated
from service import CHAT, HAIKU, LONG, Worker, check, done, each_event, events
from thinking import HARMONY, thinker

program = sys.argv[1]
PATH = "/v1/messages"
RENDER = "/v1/chat/completions/render"
ASK = dict(CHAT, model="haiku")
MINUTE = {
    "name": "current_minute",
    "description": "The current minute of the clock.",
    "input_schema": {"type": "object"},
}
WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
COUNT = {"name": "count_syllables", "description": "The number of syllables of a word.", "input_schema": WORD}
POEM = "Write a haiku about rivers that includes the current minute"
ONE = 'How many syllables does "lantern" have?'
TWO = 'How many syllables do "lantern" and "river" have?'


def user(content):
    return {"role": "user", "content": content}


def said(content):
    return {"role": "assistant", "content": content}


def use(name, call_id="toolu_1", **arguments):
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(content, call_id="toolu_1", **more):
    return dict({"type": "tool_result", "tool_use_id": call_id, "content": content}, **more)


def text(t, **more):
    return dict({"type": "text", "text": t}, **more)


def with_tools(*messages, **more):
    return dict({"messages": list(messages), "tools": [MINUTE, COUNT], "temperature": 0, "max_tokens": 100}, **more)


def ask(w, **body):
    status, a = w.post(PATH, body)
    check("200", status == 200, a)
    return a


def streamed(w, **body):
    """The events of a stream: (name, event)."""
    status, s = w.post(PATH, dict(body, stream=True))
    check("200", status == 200, s)
    s = events(s)
    check("every event says its name", all(name == e["type"] for name, e in s), s)
    return s


def put_together(s):
    """The message that a client makes of a stream, with the JSON of calls as it came."""
    m, inputs = dict(s[0][1]["message"]), {}
    m["content"] = []
    for name, e in s[1:]:
        if name == "content_block_start":
            check("blocks count from 0", e["index"] == len(m["content"]), e)
            m["content"].append(dict(e["content_block"]))
        elif name == "content_block_delta":
            kind, block = e["delta"]["type"], m["content"][e["index"]]
            check("deltas are of the last block", e["index"] == len(m["content"]) - 1, e)
            if kind == "input_json_delta":
                inputs[e["index"]] = inputs.get(e["index"], "") + e["delta"]["partial_json"]
            else:
                member = kind.split("_")[0]
                block[member] += e["delta"][member]
        elif name == "message_delta":
            m.update(e["delta"], usage=e["usage"])
    for i, json_text in inputs.items():
        m["content"][i]["input"] = json_text
    return m


def bare(m):
    """A message without what is another one's by chance; calls with their input as an object."""
    content = []
    for b in m["content"]:
        b = {k: v for k, v in b.items() if k != "id"}
        if isinstance(b.get("input"), str):
            b["input"] = json.loads(b["input"])
        content.append(b)
    return content, m["stop_reason"], m["stop_sequence"], m["usage"]["output_tokens"]


# ---- texts ----------------------------------------------------------------------------------------------------------


def transcript(w):
    """Every event of a stream, to the last member; its texts are those of /execute with the same prompt and seed."""
    lines = [d for n, d in events(w.post("/execute", dict(HAIKU, job_id="x"))[1]) if n in ("token", "end")]
    pieces, end = [d["t"] for d in lines[:-1] if d["t"]], lines[-1]
    s = streamed(w, **ASK)
    message_id = s[0][1]["message"]["id"]
    usage = {
        "input_tokens": end["tokens_in"],
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 0,
        "output_tokens_details": {"thinking_tokens": 0},
        "service_tier": "standard",
    }
    message = {"id": message_id, "type": "message", "role": "assistant", "model": "haiku", "content": []}
    message.update(stop_reason=None, stop_sequence=None, usage=usage)
    final = dict(usage, output_tokens=end["tokens_out"])
    golden = [
        {"type": "message_start", "message": message},
        {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": p}} for p in pieces),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": final},
        {"type": "message_stop"},
    ]
    check("the transcript of a text", [e for _, e in s] == golden, (s, golden))
    check("the id", re.fullmatch("msg_[0-9a-f-]{36}", message_id), message_id)
    whole = dict(message, content=[text("".join(pieces))], stop_reason="end_turn", usage=final)
    a = ask(w, **ASK)
    check("a whole answer", dict(a, id=message_id) == whole, (a, whole))
    status, head, _ = w.ask("POST", PATH, ASK)
    check("request-id", status == 200 and head["request-id"] == head["x-request-id"], head)
    check("the member model may be absent", bare(ask(w, **CHAT)) == bare(a))
    check("a block is a text", bare(ask(w, **dict(ASK, messages=[user([text(HAIKU["prompt"])])]))) == bare(a))


def ends(w):
    a = ask(w, **dict(ASK, max_tokens=3))
    check("max_tokens", a["stop_reason"] == "max_tokens" and a["usage"]["output_tokens"] == 3, a)
    words = ask(w, **ASK)["content"][0]["text"].split()
    stop = words[2]
    for more in ({"stop_sequences": ["zq", stop]}, {"stop_sequences": [stop], "stream": True}):
        status, s = w.post(PATH, dict(ASK, **more))
        m = put_together(events(s)) if "stream" in more else s
        check("stop_sequence", status == 200 and m["stop_reason"] == "stop_sequence", m)
        check("... which one", m["stop_sequence"] == stop and stop not in m["content"][0]["text"], m)
    a = ask(w, **dict(ASK, max_tokens=0))
    check("no token: the prompt alone", a["content"] == [] and a["stop_reason"] == "max_tokens", a)
    s = streamed(w, **dict(ASK, max_tokens=0))
    names = [n for n, _ in s]
    check("... streamed", names == ["message_start", "ping", "message_delta", "message_stop"], names)
    a = ask(w, **dict(ASK, messages=[user("Write a haiku about rain"), said("the gutter")]))
    b = w.post(
        "/v1/chat/completions",
        dict(ASK, messages=[user("Write a haiku about rain"), said("the gutter")], continue_final_message=True),
    )[1]
    check("prefill", a["content"][0]["text"] == b["choices"][0]["message"]["content"], (a, b))
    for empty in ("", [], [text("")]):
        c = ask(w, **dict(ASK, messages=[*ASK["messages"], said(empty)]))
        check("an empty prefill is none: %r" % empty, bare(c) == bare(ask(w, **ASK)), c)


def forms(w):
    schema = {"type": "object", "properties": {"kind": {"enum": ["cat", "dog"]}}, "required": ["kind"]}
    schema["additionalProperties"] = False
    form = {"type": "json_schema", "schema": schema}
    for more in ({"output_config": {"format": form, "effort": "high"}}, {"output_format": form}):
        a = ask(w, messages=[user("A pet")], max_tokens=60, seed=1, **more)
        check("a form: %s" % list(more)[0], json.loads(a["content"][0]["text"])["kind"] in ("cat", "dog"), a)
        a = ask(w, **with_tools(user(ONE), **more))
        check("... beside tools", a["content"][0]["type"] == "tool_use", a)


def cached(w):
    """What the cache had of the prompt is told apart; a bill that changes does not disturb it."""
    system = "You write short poems about the sea, the rain and the lamps of the harbour. " * 4

    def request(nonce, **more):
        bill = text("x-anthropic-billing-header: cc_version=2.1; cch=%s;" % nonce)
        blocks = [bill, text(system, cache_control={"type": "ephemeral"})]
        return dict({"max_tokens": 4, "system": blocks, "messages": [user("Hello")]}, **more)

    counted = w.post(PATH + "/count_tokens", request("a"))[1]["input_tokens"]
    first, second = ask(w, **request("1"))["usage"], ask(w, **request("2"))["usage"]
    for u in (first, second):
        check("input and cached are the prompt", u["input_tokens"] + u["cache_read_input_tokens"] == counted, u)
    check("cached", first["cache_read_input_tokens"] == 0 and second["cache_read_input_tokens"] >= 32, (first, second))
    s = streamed(w, **request("3"))
    began, ended = s[0][1]["message"]["usage"], s[-2][1]["usage"]
    check("a stream tells it at its beginning", began["cache_read_input_tokens"] >= 32, began)
    check("... and at its end", ended["input_tokens"] == began["input_tokens"], (began, ended))
    plain = w.post(PATH + "/count_tokens", {"messages": [user("Hello")], "system": system})[1]["input_tokens"]
    check("a bill is no part of the prompt", plain == counted, (plain, counted))


# ---- histories ------------------------------------------------------------------------------------------------------


def histories(w):
    """Each is the prompt of a chat: as many tokens, and the same answer."""

    def call(call_id="toolu_1", word="lantern"):
        function = {"name": "count_syllables", "arguments": json.dumps({"word": word})}
        return {"id": call_id, "type": "function", "function": function}

    def tool(content, call_id="toolu_1"):
        return {"role": "tool", "tool_call_id": call_id, "content": content}

    lantern, river = use("count_syllables", word="lantern"), use("count_syllables", "toolu_2", word="river")
    asked = user(ONE)
    called = {"role": "assistant", "content": None, "tool_calls": [call()]}
    both = {"role": "assistant", "content": "Let me see", "tool_calls": [call(), call("toolu_2", "river")]}
    for name, body, chat in (
        ("a system prompt", {"system": "S", "messages": [asked]}, [{"role": "system", "content": "S"}, asked]),
        ("an empty one", {"system": "", "messages": [asked]}, [asked]),
        (
            "one of blocks",
            {"system": [text("S"), text(""), text("T")], "messages": [asked]},
            [{"role": "system", "content": [text("S"), text("T")]}, asked],
        ),
        (
            "a system message in mid-conversation",
            {"messages": [asked, said("two"), {"role": "system", "content": "Be brief"}, asked]},
            [asked, said("two"), {"role": "system", "content": "Be brief"}, asked],
        ),
        ("empty blocks", {"messages": [user([text(""), text(ONE), text("")])]}, [asked]),
        ("nothing else", {"messages": [user([])]}, [user("")]),
        ("several blocks", {"messages": [user([text("a"), text("b")])]}, [user([text("a"), text("b")])]),
        ("a result", {"messages": [asked, said([lantern]), user([result("2")])]}, [asked, called, tool("2")]),
        (
            "a result of blocks",
            {"messages": [asked, said([lantern]), user([result([text("2"), text("or 3")])])]},
            [asked, called, tool([text("2"), text("or 3")])],
        ),
        ("one of nothing", {"messages": [asked, said([lantern]), user([result(None)])]}, [asked, called, tool("")]),
        (
            "an error",
            {"messages": [asked, said([lantern]), user([result("no", is_error=True)])]},
            [asked, called, tool([text("Error:"), text("no")])],
        ),
        (
            "no error",
            {"messages": [asked, said([lantern]), user([result("no", is_error=False)])]},
            [asked, called, tool("no")],
        ),
        (
            "results and a text",
            {
                "messages": [
                    asked,
                    said([text("Let me see"), lantern, river]),
                    user([text("Here"), result("2"), result("3", "toolu_2"), text("there")]),
                ]
            },
            [asked, both, tool("2"), tool("3", "toolu_2"), user([text("Here"), text("there")])],
        ),
        (
            "thoughts are left out of a prompt whose template has none",
            {
                "messages": [
                    asked,
                    said([{"type": "thinking", "thinking": "Hm", "signature": "x"}, text("two")]),
                    said([{"type": "redacted_thinking", "data": "AAAA"}, text("or three")]),
                    asked,
                ]
            },
            [asked, said("two"), said("or three"), asked],
        ),
    ):
        functions = [
            {
                "type": "function",
                "function": {"name": t["name"], "description": t["description"], "parameters": t["input_schema"]},
            }
            for t in (MINUTE, COUNT)
        ]
        tools = "toolu" in json.dumps(body)
        rendered = w.post(RENDER, dict({"messages": chat}, **({"tools": functions} if tools else {})))
        check("%s: the chat" % name, rendered[0] == 200, rendered)
        mine = dict(body, **({"tools": [MINUTE, COUNT]} if tools else {}))
        status, counted = w.post(PATH + "/count_tokens", mine)
        check(name, status == 200 and counted == {"input_tokens": rendered[1]["count"]}, (counted, rendered))
        more = {"max_tokens": 8, "seed": 5}
        other = dict({"messages": chat}, **({"tools": functions} if tools else {}), **more)
        a, b = ask(w, **mine, **more), w.post("/v1/chat/completions", other)[1]["choices"][0]["message"]
        texts = "".join(x["text"] for x in a["content"] if x["type"] == "text")
        check("... its answer", texts == (b["content"] or ""), (a, b))


# ---- tools ----------------------------------------------------------------------------------------------------------


def tools(w):
    a = ask(w, **with_tools(user(ONE)))
    (block,) = a["content"]
    check("a call", a["stop_reason"] == "tool_use" and block["type"] == "tool_use", a)
    check("... its name and input", (block["name"], block["input"]) == ("count_syllables", {"word": "lantern"}), a)
    b = ask(w, **with_tools(user(POEM)))
    check("no input", b["content"][0]["input"] == {} and b["content"][0]["id"] != block["id"], b)
    c = ask(w, **with_tools(user(POEM), said(b["content"]), user([result("forty-two", b["content"][0]["id"])])))
    check("... and its result", "forty-two" in c["content"][0]["text"] and c["stop_reason"] == "end_turn", c)
    s = streamed(w, **with_tools(user(ONE)))
    names = [n for n, _ in s]
    deltas = names.count("content_block_delta")
    order = ["message_start", "ping", "content_block_start", *["content_block_delta"] * deltas]
    order += ["content_block_stop", "message_delta", "message_stop"]
    check("the order of a call's events", names == order and deltas > 2, names)
    start = s[2][1]["content_block"]
    check("... its beginning", start == dict(block, id=start["id"], input={}), start)
    check("... its end", s[-2][1]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}, s[-2])
    for name, question, more in (
        ("a call", ONE, {}),
        ("two", TWO, {}),
        ("one of two", TWO, {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
        ("none", "Write a haiku about rivers", {}),
        ("any", "Write a haiku about rivers", {"tool_choice": {"type": "any", "disable_parallel_tool_use": True}}),
        ("one by name", "Hello", {"tool_choice": {"type": "tool", "name": "current_minute"}, "temperature": 1}),
        ("no choice", POEM, {"tool_choice": {"type": "none"}}),
    ):
        body = with_tools(user(question), seed=9, **more)
        whole = bare(ask(w, **body))
        check("streamed as whole: " + name, bare(put_together(streamed(w, **body))) == whole, whole)
        used = [x["name"] for x in whole[0] if x["type"] == "tool_use"]
        want = {"a call": 1, "two": 2, "one of two": 1, "none": 0, "any": 1, "no choice": 0}.get(name, len(used))
        check("... as many calls", len(used) == want, used)
        check("... of that name", name != "one by name" or set(used) == {"current_minute"}, used)
    cut = with_tools(user(TWO), max_tokens=22)
    a, m = ask(w, **cut), put_together(streamed(w, **cut))
    check("a call that is cut is in no whole answer", a["content"] == [] and a["stop_reason"] == "max_tokens", a)
    (block,) = m["content"]
    check(
        "... a stream has it as far as it came", '{"word": "lantern"}'.startswith(block["input"]) and block["input"], m
    )
    strict = dict(COUNT, input_schema=dict(WORD, properties={"word": {"enum": ["tide"]}}, additionalProperties=False))
    a = ask(w, **with_tools(user(ONE), tools=[dict(strict, strict=True)]))
    check("strict", a["content"][0]["input"] == {"word": "tide"}, a)
    plain = w.post(PATH + "/count_tokens", {"messages": [user(POEM)]})[1]
    none = w.post(PATH + "/count_tokens", with_tools(user(POEM), tool_choice={"type": "none"}))[1]
    check("none: the prompt has no tools", plain == none, (plain, none))


# ---- thinking -------------------------------------------------------------------------------------------------------


def thinking():
    """A model whose template has a switch, and one that always thinks."""
    choice = {"type": "object", "properties": {"sure": {"enum": ["yes", "no"]}}, "required": ["sure"]}
    form = {"type": "json_schema", "schema": dict(choice, additionalProperties=False)}
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "thinker.gguf")
        end = thinker(model)
        for path, name in ((model, "thinker"), (HARMONY, "harmony")):
            with Worker(program, "--model", path) as w:
                if name == "harmony":
                    end = w.post("/tokenize", {"content": "<|end|>", "parse_special": True})[1]["tokens"][0]
                body = {"messages": [user("Yes or no?")], "max_tokens": 450, "temperature": 1}
                thoughts(w, dict(body, logit_bias={str(end): 2}), form, name)


def thoughts(w, body, form, name):
    on, off = {"type": "enabled", "budget_tokens": 1024}, {"type": "disabled"}
    found = None
    for seed in range(12):
        a = ask(w, **dict(body, seed=seed, thinking=on, output_format=form))
        kinds = [b["type"] for b in a["content"]]
        if "thinking" in kinds and a["usage"]["output_tokens_details"]["thinking_tokens"]:
            found = dict(body, seed=seed, output_format=form)
            break
    check("%s: thinks" % name, found is not None)
    if not found:
        return
    chat = w.post("/v1/chat/completions", dict(body, seed=found["seed"], enable_thinking=True, response_format=form))
    chat = chat[1]["choices"][0]["message"]
    thought = "".join(b["thinking"] for b in a["content"] if b["type"] == "thinking")
    check("%s: its thoughts" % name, thought == chat["reasoning_content"], (a, chat))
    check("... signed", all(b["signature"].startswith("fp_") for b in a["content"] if b["type"] == "thinking"), a)
    s = streamed(w, **dict(found, thinking={"type": "adaptive"}))
    check("%s: streamed" % name, bare(put_together(s)) == bare(a), (s, a))
    kinds = [e["delta"]["type"] for _, e in s if e["type"] == "content_block_delta" and e["index"] == 0]
    check("... one signature, at the end", kinds == ["thinking_delta"] * (len(kinds) - 1) + ["signature_delta"], kinds)
    hidden = dict(on, display="omitted")
    b = ask(w, **dict(found, thinking=hidden))
    check("%s: omitted" % name, b["content"][0]["thinking"] == "" and b["content"][0]["signature"], b)
    m = put_together(streamed(w, **dict(found, thinking=hidden)))
    check("... streamed", bare(m) == bare(b), (m, b))
    c = ask(w, **dict(found, thinking=off))
    check("%s: disabled" % name, all(x["type"] == "text" for x in c["content"]), c)
    d = ask(w, **dict(found, output_config={"effort": "max"}))
    check("%s: an effort" % name, "thinking" in str(d) or name == "thinker", d)
    again = [*found["messages"], said(a["content"]), user("Why?")]
    check("%s: thoughts come back" % name, ask(w, **dict(found, messages=again))["type"] == "message")
    if name == "thinker":
        counts = [
            w.post(PATH + "/count_tokens", {"messages": found["messages"], "thinking": t})[1]["input_tokens"]
            for t in (on, off, None)
        ]
        check("the switch is in the prompt", counts[1] > counts[0] == counts[2], counts)


# ---- Claude Code ----------------------------------------------------------------------------------------------------


def claude_code(w):
    """Its requests, as they are documented and were seen: system blocks with a bill that changes, tools with wide
    schemas, a system message behind results, members that are wishes."""
    wide = {"type": "string", "maxLength": 65536, "description": "Anything"}
    read = {
        "name": "Read",
        "description": "Reads a file.",
        "input_schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {"file_path": wide, "limit": {"type": "integer", "exclusiveMinimum": 0}},
            "required": ["file_path"],
            "additionalProperties": False,
        },
        "eager_input_streaming": True,
    }
    empty = {"name": "ListTasks", "description": "", "input_schema": {"type": "object", "properties": {}}}
    brief = {"type": "ephemeral", "ttl": "1h"}

    def turn(nonce, messages, **more):
        system = [
            text("x-anthropic-billing-header: cc_version=2.1.30.2f1; cc_entrypoint=cli; cch=%s;" % nonce),
            text("You are Claude Code, Anthropic's official CLI for Claude.", cache_control=brief),
            text("\nYou are an interactive agent that helps users. " * 8, cache_control=brief),
        ]
        body = {
            "model": "haiku",
            "system": system,
            "messages": messages,
            "tools": [read, dict(MINUTE, cache_control=brief), empty],
            "metadata": {"user_id": "user_0_account__session_1"},
            "max_tokens": 24,
            "temperature": 1,
            "thinking": {"type": "adaptive"},
            "output_config": {"effort": "high"},
            "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            "stream": True,
        }
        return dict(body, **more)

    headers = {
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,effort-2025-11-24",
        "x-app": "cli",
        "User-Agent": "claude-cli/2.1.30 (external, cli)",
        "Authorization": "Bearer none",
        "x-stainless-retry-count": "0",
    }
    first = [user([text("<system-reminder>\nBe brief.\n</system-reminder>\n"), text("Hello", cache_control=brief)])]
    called = [
        said([text("I look."), use("Read", file_path="/tmp/a")]),
        user([result("File does not exist.", is_error=True)]),
        {"role": "system", "content": [text("The file was removed.")]},
    ]
    read_from_cache = []
    for nonce, messages in (
        ("0a1", first),
        ("9f7", first + called),
        ("c44", first + called + [said("Hm"), user("Go")]),
    ):
        status, head, data = w.ask("POST", PATH + "?beta=true", turn(nonce, messages), headers)
        s = events(data.decode())
        check("Claude Code: a turn", status == 200 and s[-1][0] == "message_stop", (status, data))
        check("... its answer to edits", s[-2][1]["context_management"] == {"applied_edits": []}, s[-2])
        read_from_cache.append(s[0][1]["message"]["usage"]["cache_read_input_tokens"])
        counting = {k: v for k, v in turn(nonce, messages).items() if k not in ("max_tokens", "stream", "temperature")}
        status, counted = w.document("POST", PATH + "/count_tokens?beta=true", counting, headers=headers)
        u = s[0][1]["message"]["usage"]
        whole = u["input_tokens"] + u["cache_read_input_tokens"]
        check("... is counted", status == 200 and counted["input_tokens"] == whole, (counted, u))
    check("Claude Code: later turns find the earlier", read_from_cache[1] > 96 < read_from_cache[2], read_from_cache)
    title = {"model": "haiku", "max_tokens": 16, "system": [text("Name this talk.")], "messages": [user("Hello")]}
    schema = {"type": "object", "properties": {"title": {"type": "string", "maxLength": 9}}, "required": ["title"]}
    form = {"type": "json_schema", "schema": dict(schema, additionalProperties=False)}
    status, a = w.document(
        "POST",
        PATH + "?beta=true",
        dict(title, output_config={"format": form}, thinking={"type": "disabled"}),
        headers=headers,
    )
    check("Claude Code: a title", status == 200 and a["content"][0]["text"].startswith("{"), a)
    status, a = w.document("POST", PATH + "?beta=true", dict(title, model="claude-haiku-4-5"), headers=headers)
    check("another model", status == 404 and a["error"]["type"] == "not_found_error", a)


# ---- refusals -------------------------------------------------------------------------------------------------------


def is_error(name, status, a, kind="invalid_request_error"):
    check(
        name,
        isinstance(a, dict)
        and set(a) == {"type", "error", "request_id"}
        and a["type"] == "error"
        and set(a["error"]) - {"details"} == {"type", "message"}
        and a["error"]["type"] == kind,
        (status, a),
    )


def refusals(w):
    def deep(n):
        return json.loads("[" * n + "]" * n)

    call = said([use("f")])
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    for field, more in (
        ("messages", {"messages": None}),
        ("messages", {"messages": []}),
        ("messages", {"messages": {}}),
        ("messages[0]", {"messages": ["x"]}),
        ("messages[0].role", {"messages": [{"content": "x"}]}),
        ("messages[1].role", {"messages": [user("x"), {"role": "tool", "content": "x"}]}),
        ("messages[0].content", {"messages": [{"role": "user"}]}),
        ("messages[0].content", {"messages": [user(5)]}),
        ("messages[0].content", {"messages": [user(["x"])]}),
        ("messages[0].content", {"messages": [user([{}])]}),
        ("messages[0].content", {"messages": [user([{"type": "text"}])]}),
        ("messages[0].content", {"messages": [user([{"type": "text", "text": {}}])]}),
        ("messages[0].content", {"messages": [user([image])]}),
        ("messages[0].content", {"messages": [user([dict(image, type="document")])]}),
        ("messages[0].content", {"messages": [user([{"type": "search_result"}])]}),
        ("messages[0].content", {"messages": [user([{"type": "thinking", "thinking": "x"}])]}),
        ("messages[0].content", {"messages": [user([use("f")])]}),
        ("messages[0].content", {"messages": [user([{"type": "a\u0000b" * 99}])]}),
        ("messages[0].content", {"messages": [{"role": "system", "content": [result("x")]}]}),
        ("messages[1].content", {"messages": [user("x"), said([result("x")]), user("y")]}),
        ("messages[1].content", {"messages": [user("x"), said([{"type": "server_tool_use"}]), user("y")]}),
        ("messages[1].content", {"messages": [user("x"), said([{"type": "tool_use", "name": "f"}]), user("y")]}),
        ("messages[1].content", {"messages": [user("x"), said([dict(use("f"), input=[])]), user("y")]}),
        ("messages[1].content", {"messages": [user("x"), said([dict(use("f"), name="f" * 200)]), user("y")]}),
        ("messages[1].content", {"messages": [user("x"), said([{"type": "thinking"}]), user("y")]}),
        ("messages[1].content", {"messages": [user("x"), call]}),
        ("messages[2].content", {"messages": [user("x"), call, user([result("x", "toolu_9")])]}),
        ("messages[2].content", {"system": "S", "messages": [user("x"), call, user([result("x", "toolu_9")])]}),
        ("messages[2].content", {"messages": [user("x"), call, user([{"type": "tool_result"}])]}),
        ("messages[2].content", {"messages": [user("x"), call, user([result([image])])]}),
        ("messages[2].content", {"messages": [user("x"), call, user([result("x", is_error="yes")])]}),
        ("messages[2].content", {"messages": [user("x"), call, user([result(5)])]}),
        ("system", {"system": 5}),
        ("system", {"system": [image]}),
        ("system", {"system": [text(5)]}),
        ("max_tokens", {"max_tokens": None}),
        ("max_tokens", {"max_tokens": "9"}),
        ("max_tokens", {"max_tokens": -1}),
        ("max_tokens", {"max_tokens": 1.5}),
        ("temperature", {"temperature": "hot"}),
        ("temperature", {"temperature": 3}),
        ("top_p", {"top_p": 2}),
        ("top_k", {"top_k": -7}),
        ("stream", {"stream": "yes"}),
        ("stop_sequences", {"stop_sequences": "x"}),
        ("stop_sequences", {"stop_sequences": [""]}),
        ("stop_sequences", {"stop_sequences": [5]}),
        ("stop_sequences", {"stop_sequences": ["x"] * 65}),
        ("tools", {"tools": {}}),
        ("tools[0]", {"tools": ["f"]}),
        ("tools[0].name", {"tools": [{"input_schema": {}}]}),
        ("tools[0].name", {"tools": [dict(MINUTE, name="a b")]}),
        ("tools[1].name", {"tools": [MINUTE, MINUTE]}),
        ("tools[0].input_schema", {"tools": [{"name": "f"}]}),
        ("tools[0].input_schema", {"tools": [dict(MINUTE, input_schema=[])]}),
        ("tools[0].description", {"tools": [dict(MINUTE, description=5)]}),
        ("tools[0].strict", {"tools": [dict(MINUTE, strict="yes")]}),
        (
            "tools[1].input_schema",
            {"tools": [MINUTE, dict(COUNT, strict=True, input_schema={"type": "object", "$ref": "#/nowhere"})]},
        ),
        ("tools[0].type", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        ("tools[0].type", {"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]}),
        ("tools[1].type", {"tools": [MINUTE, {"type": "bash_20250124", "name": "bash"}]}),
        ("tool_choice", {"tools": [MINUTE], "tool_choice": "any"}),
        ("tool_choice", {"tools": [MINUTE], "tool_choice": {"type": "some"}}),
        ("tool_choice", {"tools": [MINUTE], "tool_choice": {"type": "tool"}}),
        ("tool_choice", {"tools": [MINUTE], "tool_choice": {"type": "tool", "name": "nobody"}}),
        ("tool_choice", {"tool_choice": {"type": "any"}}),
        ("tool_choice.disable_parallel_tool_use", {"tool_choice": {"type": "any", "disable_parallel_tool_use": 1}}),
        ("thinking", {"thinking": "enabled"}),
        ("thinking.type", {"thinking": {"type": "deep"}}),
        ("thinking.budget_tokens", {"thinking": {"type": "enabled", "budget_tokens": "9"}}),
        ("thinking.display", {"thinking": {"type": "enabled", "display": "loud"}}),
        ("output_config", {"output_config": []}),
        ("output_config.effort", {"output_config": {"effort": "huge"}}),
        ("output_config.format", {"output_config": {"format": {"type": "json"}}}),
        ("output_config.format", {"output_config": {"format": {"type": "json_schema", "schema": {"type": 1}}}}),
        ("output_format", {"output_format": {"type": "json_schema", "schema": {"type": 1}}}),
        (
            "output_format",
            {"output_format": {"type": "json_schema"}, "output_config": {"format": {"type": "json_schema"}}},
        ),
        ("context_management", {"context_management": 5}),
        ("container", {"container": "c_1"}),
        ("mcp_servers", {"mcp_servers": [{"type": "url", "url": "https://example.org"}]}),
        ("stop", {"stop": ["x"]}),
        ("n", {"n": 2}),
        ("logprobs", {"logprobs": True}),
        ("response_format", {"response_format": {"type": "json_object"}}),
        ("parallel_tool_calls", {"parallel_tool_calls": False}),
        ("reasoning_budget", {"reasoning_budget": 5}),
        ("prompt", {"prompt": "x"}),
    ):
        body = dict({"messages": [user("x")], "max_tokens": 4}, **more)
        status, a = w.post(PATH, body)
        is_error("refused: " + field, status, a)
        check("... by name", status == 400 and a["error"]["message"].startswith(field + ":"), (more, a))
    status, a = w.post(PATH, {"messages": [user("x")], "max_tokens": 4, "thread": {"type": "create"}})
    is_error("refused: thread", status, a)
    check("... so that clients go on without", a["error"]["details"]["error_code"] == "thread_unsupported_request", a)
    for more in ({"container": None}, {"mcp_servers": []}, {"anything": 5}, {"service_tier": "auto"}, {"betas": ["x"]}):
        check("taken: %s" % more, ask(w, messages=[user("x")], max_tokens=1, **more)["type"] == "message")
    for name, body, kind, want in (
        ("no JSON", b"{", "invalid_request_error", 400),
        ("no object", b"[]", "invalid_request_error", 400),
        ("twice", b'{"max_tokens":1,"max_tokens":2}', "invalid_request_error", 400),
        ("a lone surrogate", b'{"messages":[{"role":"user","content":"\\ud800"}]}', "invalid_request_error", 400),
        ("deep", {"messages": [user("x")], "max_tokens": 1, "metadata": deep(100)}, "invalid_request_error", 400),
        ("too deep", {"messages": [user("x")], "max_tokens": 1, "metadata": deep(250)}, "invalid_request_error", 400),
        ("a deep schema", {"tools": [dict(MINUTE, input_schema={"x": deep(70)})]}, "invalid_request_error", 400),
        ("many messages", {"messages": [0] * 500000, "max_tokens": 1}, "invalid_request_error", 400),
        ("many blocks", {"messages": [user([{}] * 300000)], "max_tokens": 1}, "invalid_request_error", 400),
        (
            "many tools",
            {"messages": [user("x")], "max_tokens": 1, "tools": [dict(MINUTE, name="f%d" % i) for i in range(2000)]},
            "invalid_request_error",
            400,
        ),
        ("a long prompt", {"messages": [user("word " * 40000)], "max_tokens": 1}, "invalid_request_error", 400),
        ("too much", b"17 MiB", "request_too_large", 413),
    ):
        announced = {"Content-Length": str(17 << 20)} if want == 413 else None
        status, head, data = w.ask("POST", PATH, body, announced)
        a = json.loads(data)
        is_error(name, status, a, kind)
        check("... %d" % want, status == want, (status, a))
        check("... its id", head["request-id"] == a["request_id"] == head["x-request-id"], (head, a))
        if name == "a long prompt":
            words = re.match(r"prompt is too long: \d+ tokens > \d+ maximum", a["error"]["message"])
            check("... in the words that clients look for", words, a)
    for status, method, path, headers in (
        (405, "GET", PATH, {}),
        (404, "GET", PATH + "/nothing", {}),
        (404, "POST", PATH + "/batches?beta=true", {}),
        (415, "POST", PATH, {"Content-Type": "text/plain"}),
    ):
        got, a = w.document(method, path, b"{}" if method == "POST" else None, headers=headers)
        is_error(
            "%s %s: %d" % (method, path, status),
            got,
            a,
            "not_found_error" if status == 404 else "invalid_request_error",
        )
        check("... status", got == status, (got, a))
    status, a = w.post(PATH + "/count_tokens", {"messages": []})
    is_error("count_tokens: no messages", status, a)
    counted = w.post(PATH + "/count_tokens", {"messages": [user("word " * 40000)]})
    check("count_tokens: longer than the context", counted[0] == 200 and counted[1]["input_tokens"] > 40000, counted)


def broken_off():
    """A stream that fails says so as an event; one whose client leaves ends."""
    with Worker(program, *LONG) as w:
        body = {"messages": [user("Hello")], "max_tokens": 30000, "temperature": 0, "repetition_penalty": 0.01}
        stream, ready = [], threading.Event()

        def read():
            c = w.connection()
            c.request("POST", PATH, json.dumps(dict(body, stream=True)), {"Content-Type": "application/json"})
            for e in each_event(c.getresponse()):
                stream.append(e)
                if e[0] == "content_block_delta":
                    ready.set()
            c.close()

        reader = threading.Thread(target=read)
        reader.start()
        ready.wait(60)
        message_id = stream[0][1]["message"]["id"]
        w.post("/cancel", {"job_id": message_id})
        reader.join(60)
        name, e = stream[-1]
        check("a failure is an event", name == "error", stream[-3:])
        is_error("... in Anthropic's form", 200, e, "api_error")
        c = w.connection()
        c.request("POST", PATH, json.dumps(dict(body, stream=True)), {"Content-Type": "application/json"})
        c.getresponse().readline()
        c.close()
        w.until(lambda: w.metrics()("worker_requests_running") == 0)
        check("who leaves ends it", True)


def keys():
    """The gate knows x-api-key, and its refusals have the same form."""
    with Gated(program) as w:
        secret = w.key("me")
        body = {"messages": [user("Hello")], "max_tokens": 2}
        for headers, want, kind in (
            ({}, 401, "authentication_error"),
            ({"x-api-key": "wk_nothing"}, 401, "authentication_error"),
            ({"x-api-key": secret}, 200, None),
            ({"Authorization": "Bearer " + secret}, 200, None),
        ):
            for path in (PATH, PATH + "/count_tokens?beta=true"):
                status, a = w.document("POST", path, body, headers=headers)
                check("%s with %s" % (path, list(headers)), status == want, a)
                if kind:
                    is_error("... as Anthropic has it", status, a, kind)


def models(w):
    status, a = w.document("GET", "/v1/models?limit=20", headers={"anthropic-version": "2023-06-01"})
    (m,) = a["data"]
    check("models: a page", (a["has_more"], a["first_id"], a["last_id"]) == (False, "haiku", "haiku"), a)
    stamped = re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", m["created_at"])
    check("models: one", (m["type"], m["display_name"]) == ("model", "haiku") and stamped, m)


with Worker(program) as worker:
    transcript(worker)
    ends(worker)
    forms(worker)
    models(worker)
with Worker(program, "--context", "4096") as worker:
    cached(worker)
    histories(worker)
    tools(worker)
    claude_code(worker)
    refusals(worker)
thinking()
broken_off()
keys()
done()
