#!/usr/bin/env python3
"""Anthropic's own client (the package anthropic of PyPI): messages, answers parsed with pydantic models, tools, counts,
models, errors; whole and streamed, from threads and from coroutines. Skipped where the package is not installed; CI
installs it. usage: test_anthropic_client.py PROGRAM"""

import asyncio
import sys
import typing

from gated import Gated
from service import CHAT, HAIKU, PATIENCE, Worker, check, done, skip

try:
    import anthropic
    import pydantic
except ImportError:
    skip("the anthropic package is not installed; to run this: python3 -m pip install anthropic")

MINUTE = {"name": "current_minute", "description": "The current minute of the clock."}
MINUTE["input_schema"] = {"type": "object", "properties": {}}
POEM = {"role": "user", "content": "Write a haiku about rivers that includes the current minute"}
# The client of today has no member for sampling.
ASK = {"model": "haiku", "messages": CHAT["messages"], "max_tokens": CHAT["max_tokens"]}
ASK["extra_body"] = {k: CHAT[k] for k in ("temperature", "seed")}


class Pet(pydantic.BaseModel):
    kind: typing.Literal["cat", "dog"]
    old: bool


def client(w, key="none", kind=anthropic.Anthropic):
    return kind(base_url="http://127.0.0.1:%d" % w.port, api_key=key, timeout=PATIENCE)


def answers(c, text):
    """text: of /execute, with the same parameters."""
    (m,) = c.models.list().data
    check("client: models", m.id == m.display_name == "haiku" and m.type == "model" and m.created_at.year > 2000, m)
    check("client: a model", c.models.retrieve("haiku").id == "haiku")
    a = c.messages.create(**ASK)
    check("client: a message", a.content[0].text == text and a.stop_reason == "end_turn", a)
    check("client: usage", a.usage.input_tokens > 0 and a.usage.output_tokens > 0 and a._request_id, a)
    with c.messages.stream(**ASK) as stream:
        pieces = list(stream.text_stream)
        b = stream.get_final_message()
    check("client: streamed", "".join(pieces) == text and len(pieces) > 5 and b.content[0].text == text, b)
    check("... its end", (b.stop_reason, b.usage.output_tokens) == (a.stop_reason, a.usage.output_tokens), b)
    kinds = [e.type for e in c.messages.create(stream=True, **ASK)]
    check("client: events", kinds[0] == "message_start" and kinds[-1] == "message_stop", kinds)
    counted = c.messages.count_tokens(model="haiku", messages=CHAT["messages"]).input_tokens
    check("client: a count", counted == a.usage.input_tokens, (counted, a))
    a = c.messages.create(**dict(ASK, stop_sequences=["\n"]))
    check("client: stop sequences", (a.stop_reason, a.stop_sequence) == ("stop_sequence", "\n"), a)
    a = c.messages.create(**dict(ASK, thinking={"type": "enabled", "budget_tokens": 1024}, system="Be brief."))
    check("client: a wish to think, a system prompt", a.type == "message", a)
    a = c.beta.messages.create(**dict(ASK, betas=["context-management-2025-06-27"], context_management={"edits": []}))
    check("client: beta", a.context_management.applied_edits == [], a)


def tools(c):
    """A tool that is called, its result, and the answer with it; whole and streamed."""
    more = {"model": "haiku", "tools": [MINUTE], "max_tokens": 60, "extra_body": {"temperature": 0}}
    a = c.messages.create(messages=[POEM], **more)
    use = a.content[0]
    check(
        "client: a call", (a.stop_reason, use.type, use.name, use.input) == ("tool_use", "tool_use", MINUTE["name"], {})
    )
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "forty-two"}
    history = [POEM, {"role": "assistant", "content": a.content}, {"role": "user", "content": [result]}]
    b = c.messages.create(messages=history, **more)
    check("client: ... and its result", b.stop_reason == "end_turn" and "forty-two" in b.content[0].text, b)
    for messages, whole in (([POEM], a), (history, b)):
        with c.messages.stream(messages=messages, **more) as stream:
            for _ in stream:
                pass
            s = stream.get_final_message()
        same = [x.to_dict() | {"id": 0} for x in s.content] == [x.to_dict() | {"id": 0} for x in whole.content]
        check("client: ... streamed", same and s.stop_reason == whole.stop_reason, (s, whole))

    @anthropic.beta_tool
    def current_minute() -> str:
        """The current minute of the clock."""
        return "forty-two"

    runner = c.beta.messages.tool_runner(messages=[POEM], **dict(more, tools=[current_minute]))
    last = runner.until_done()
    check("client: its runner of tools", "forty-two" in last.content[0].text, last)


def parsed(c):
    """A pydantic model, which comes with the client, as the answer's form."""
    more = {"model": "haiku", "messages": [{"role": "user", "content": "A pet"}], "max_tokens": 400}
    more["extra_body"] = {"seed": 1}
    a = c.messages.parse(output_format=Pet, **more)
    check("client: parse", isinstance(a.parsed_output, Pet), a)
    with c.messages.stream(output_format=Pet, **more) as stream:
        for _ in stream:
            pass
        b = stream.get_final_message()
    check("client: parse, streamed", b.parsed_output == a.parsed_output, (a, b))


def errors(c):
    long = [{"role": "user", "content": "word " * 600}]
    for what, kind, call in (
        ("another model", anthropic.NotFoundError, lambda: c.messages.create(**dict(ASK, model="claude-x"))),
        ("a long prompt", anthropic.BadRequestError, lambda: c.messages.create(**dict(ASK, messages=long))),
        ("a hot one", anthropic.BadRequestError, lambda: c.messages.create(**dict(ASK, extra_body={"temperature": 3}))),
        ("no such model", anthropic.NotFoundError, lambda: c.models.retrieve("nobody")),
    ):
        try:
            call()
            check("client: " + what, False, "no error")
        except kind as e:
            check("client: %s is a %s with a message" % (what, kind.__name__), e.body["error"]["message"], e.body)


def keys():
    with Gated(sys.argv[1]) as w:
        secret = w.key("me")
        for more in ({"api_key": secret}, {"api_key": None, "auth_token": secret}):
            with anthropic.Anthropic(base_url="http://127.0.0.1:%d" % w.port, timeout=PATIENCE, **more) as c:
                check("client: a key", c.messages.create(**ASK).type == "message")
        try:
            with client(w, "wk_nothing") as c:
                c.messages.create(**ASK)
            check("client: a wrong key", False, "no error")
        except anthropic.AuthenticationError as e:
            check("client: a wrong key", e.body["error"]["type"] == "authentication_error" and e.request_id, e.body)


async def together(w, text):
    """Many at once."""
    async with client(w, kind=anthropic.AsyncAnthropic) as c:

        async def streamed():
            async with c.messages.stream(**ASK) as stream:
                return "".join([t async for t in stream.text_stream])

        async def whole():
            return (await c.messages.create(**ASK)).content[0].text

        said = await asyncio.gather(*[f() for f in (streamed, whole) * 4])
    check("client: eight at once", said == [text] * 8, said)


print("the anthropic package, " + anthropic.__version__)
with Worker(sys.argv[1]) as worker:
    haiku = "".join(d["t"] for n, d in worker.execute(**HAIKU)[1] if n == "token")
    with client(worker) as one:
        answers(one, haiku)
        tools(one)
        parsed(one)
        errors(one)
    asyncio.run(together(worker, haiku))
keys()
done()
