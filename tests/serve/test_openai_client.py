#!/usr/bin/env python3
"""OpenAI's own client (the package openai of PyPI): chat, answers parsed with pydantic models, functions, log
probabilities, several answers, errors; whole and streamed, from threads and from coroutines. Skipped where the package
is not installed; CI installs it. usage: test_openai_client.py PROGRAM"""

import asyncio
import enum
import sys

from service import CHAT, HAIKU, PATIENCE, Worker, check, done, skip

try:
    import openai
    import pydantic
except ImportError:
    skip("the openai package is not installed; to run this: python3 -m pip install openai")


class Kind(str, enum.Enum):
    cat = "cat"
    dog = "dog"


class Pet(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=30)
    kinds: list[Kind] = pydantic.Field(max_length=3)


def text_of(stream):
    return "".join(d["t"] for n, d in stream if n == "token")


def answers(c, text):
    """text: of /execute, with the same parameters."""
    check("client: models", [m.id for m in c.models.list()] == ["haiku"])
    a = c.chat.completions.create(model="haiku", **CHAT)
    check("client: chat", a.choices[0].message.content == text and a.usage.total_tokens > 0, a)
    s = list(c.chat.completions.create(model="haiku", stream=True, stream_options={"include_usage": True}, **CHAT))
    check(
        "client: stream",
        "".join(x.choices[0].delta.content or "" for x in s if x.choices) == text and s[-1].usage.completion_tokens > 0,
        s[-1],
    )
    check(
        "client: completions",
        c.completions.create(model="haiku", prompt="Once", max_tokens=4).usage.completion_tokens == 4,
    )


def probabilities(c, text):
    """Log probabilities, several answers, a list of prompts."""
    asked = dict(CHAT, model="haiku", n=3, logprobs=True, top_logprobs=2)
    a = c.chat.completions.create(**asked)
    check(
        "client: n and log probabilities",
        [x.index for x in a.choices] == [0, 1, 2]
        and a.choices[0].message.content == text
        and all(
            b"".join(bytes(t.bytes) for t in x.logprobs.content).decode() == x.message.content
            and all(len(t.top_logprobs) == 2 and t.logprob <= 0 for t in x.logprobs.content)
            for x in a.choices
        ),
        a,
    )
    said, probs = {}, {}
    for choice in (y for x in c.chat.completions.create(stream=True, **asked) for y in x.choices):
        said[choice.index] = said.get(choice.index, "") + (choice.delta.content or "")
        probs.setdefault(choice.index, []).extend(choice.logprobs.content if choice.logprobs else [])
    check(
        "client: the same, streamed",
        said == {x.index: x.message.content for x in a.choices}
        and probs == {x.index: x.logprobs.content for x in a.choices},
        (said, a),
    )
    asked = {"model": "haiku", "prompt": ["Once", "The rain"], "n": 2, "max_tokens": 4, "seed": 1, "logprobs": 2}
    a = c.completions.create(echo=True, **asked)
    check(
        "client: a list of prompts, with an echo",
        [x.index for x in a.choices] == [0, 1, 2, 3]
        and [x.text.startswith(p) for x, p in zip(a.choices, ("Once", "Once", "The rain", "The rain"))] == [True] * 4
        and all(x.logprobs.token_logprobs[0] is None and x.logprobs.text_offset[0] == 0 for x in a.choices),
        a,
    )
    said = {}
    for choice in (y for x in c.completions.create(stream=True, echo=True, **asked) for y in x.choices):
        said[choice.index] = said.get(choice.index, "") + choice.text
    check("client: the same, streamed", said == {x.index: x.text for x in a.choices}, (said, a))


def functions(c):
    """A function that is called, its result, and the answer with it; whole and streamed."""
    function = {"name": "current_minute", "description": "The current minute of the clock."}
    messages = [{"role": "user", "content": "Write a haiku about rivers that includes the current minute"}]
    asked = {"model": "haiku", "tools": [{"type": "function", "function": function}], "temperature": 0}
    asked["max_tokens"] = 60
    a = c.chat.completions.create(messages=messages, **asked).choices[0]
    call = a.message.tool_calls[0]
    check(
        "client: a call",
        a.finish_reason == "tool_calls" and call.function.name == "current_minute" and call.function.arguments == "{}",
        a,
    )
    messages += [a.message, {"role": "tool", "tool_call_id": call.id, "content": "forty-two"}]
    b = c.chat.completions.create(messages=messages, **asked).choices[0]
    check("client: ... and its result", b.finish_reason == "stop" and "forty-two" in b.message.content, b)
    with c.chat.completions.stream(messages=messages[:1], **asked) as stream:
        events = [e.type for e in stream]
        d = stream.get_final_completion().choices[0]
    check(
        "client: a call, streamed",
        d.finish_reason == "tool_calls"
        and d.message.tool_calls[0].function.arguments == "{}"
        and d.message.tool_calls[0].id.startswith("call_")
        and "tool_calls.function.arguments.done" in events,
        (d, events),
    )
    with c.chat.completions.stream(messages=messages, **asked) as stream:
        d = stream.get_final_completion().choices[0]
    check("client: ... and its result", d.message.content == b.message.content, d)


def parsed(c):
    """A pydantic model, which comes with the client, as the answer's form."""
    asked = {"model": "haiku", "messages": [{"role": "user", "content": "A pet"}], "max_tokens": 400, "seed": 1}
    a = c.chat.completions.parse(response_format=Pet, **asked)
    pet = a.choices[0].message.parsed
    check("client: parse", isinstance(pet, Pet) and 0 <= pet.age <= 30 and a.choices[0].finish_reason == "stop", a)
    with c.chat.completions.stream(response_format=Pet, **asked) as stream:
        for _ in stream:
            pass
        check("client: parse, streamed", stream.get_final_completion().choices[0].message.parsed == pet)
    called = dict(asked, tools=[openai.pydantic_function_tool(Pet)], parallel_tool_calls=False)
    chosen = {"type": "function", "function": {"name": "Pet"}}
    for choice in ("required", chosen):
        a = c.chat.completions.parse(tool_choice=choice, **called).choices[0]
        call = a.message.tool_calls[0].function
        check("client: a parsed call", a.finish_reason == "tool_calls" and isinstance(call.parsed_arguments, Pet), a)
    with c.chat.completions.stream(tool_choice=chosen, **called) as stream:
        for _ in stream:
            pass
        b = stream.get_final_completion().choices[0].message.tool_calls[0].function
    check("client: ... streamed", b.parsed_arguments == call.parsed_arguments, (a, b))
    a = c.chat.completions.create(response_format={"type": "json_object"}, **dict(asked, max_tokens=4)).choices[0]
    check("client: a JSON object", a.message.content.startswith("{"), a)
    try:
        c.chat.completions.parse(response_format=Pet, **dict(asked, max_tokens=4))
        check("client: parse of what is cut", False)
    except openai.LengthFinishReasonError as e:
        check("client: parse of what is cut", e.completion.usage.completion_tokens == 4, e)


def responses(c, text):
    """The Responses: whole, streamed, parsed, with a function."""
    asked = {"model": "haiku", "input": HAIKU["prompt"], "max_output_tokens": 50, "temperature": 0.7}
    more = {"extra_body": {"seed": 42}}
    a = c.responses.create(**asked, **more)
    check("client: a response", a.output_text == text and a.status == "completed" and a.usage.total_tokens > 0, a)
    with c.responses.stream(**asked, **more) as stream:
        kinds = [e.type for e in stream]
        b = stream.get_final_response()
    check("client: streamed", b.output_text == text and "response.output_text.delta" in kinds, (b, kinds))
    form = {"model": "haiku", "input": "A pet", "max_output_tokens": 400, "extra_body": {"seed": 1}}
    d = c.responses.parse(text_format=Pet, **form)
    check("client: a parsed response", isinstance(d.output_parsed, Pet), d)
    with c.responses.stream(text_format=Pet, **form) as stream:
        for _ in stream:
            pass
        check("client: ... streamed", stream.get_final_response().output_parsed == d.output_parsed)
    function = {"type": "function", "name": "current_minute", "description": "The current minute of the clock."}
    said = [{"role": "user", "content": "Write a haiku about rivers that includes the current minute"}]
    asked = {"model": "haiku", "tools": [dict(function, parameters=None, strict=None)], "temperature": 0}
    a = c.responses.create(input=said, **asked)
    call = a.output[0]
    check("client: a call", call.type == "function_call" and call.name == "current_minute", a)
    with c.responses.stream(input=said, **asked) as stream:
        kinds = [e.type for e in stream]
        check("client: ... streamed", stream.get_final_response().output[0].arguments == call.arguments, kinds)
    said += [call, {"type": "function_call_output", "call_id": call.call_id, "output": "forty-two"}]
    b = c.responses.create(input=said, **asked)
    check("client: ... and its result", "forty-two" in b.output_text, b)
    try:
        c.responses.create(model="haiku", input="x", previous_response_id="resp_1")
        check("client: nothing is stored", False)
    except openai.BadRequestError as e:
        check("client: nothing is stored", e.param == "previous_response_id", e)


def errors(c):
    for what, kind, call in (
        (
            "another model",
            openai.NotFoundError,
            lambda: c.chat.completions.create(model="gpt-4o", messages=CHAT["messages"]),
        ),
        (
            "tools",
            openai.BadRequestError,
            lambda: c.chat.completions.create(
                model="haiku", messages=CHAT["messages"], tools=[{"type": "function", "function": {"name": "f g"}}]
            ),
        ),
        (
            "context",
            openai.BadRequestError,
            lambda: c.chat.completions.create(model="haiku", messages=[{"role": "user", "content": "word " * 600}]),
        ),
    ):
        try:
            call()
            check("client: " + what, False, "no error")
        except kind as e:
            check(
                "client: %s is a %s with a message" % (what, kind.__name__), e.body and e.body["message"] and e.code, e
            )


async def together(port, text):
    """Many at once."""
    async with openai.AsyncOpenAI(base_url="http://127.0.0.1:%d/v1" % port, api_key="none", timeout=PATIENCE) as c:

        async def streamed():
            stream = await c.chat.completions.create(model="haiku", stream=True, **CHAT)
            return "".join([x.choices[0].delta.content or "" async for x in stream if x.choices])

        async def whole():
            return (await c.chat.completions.create(model="haiku", **CHAT)).choices[0].message.content

        said = await asyncio.gather(*[f() for f in (streamed, whole) * 4])
    check("client: eight at once", said == [text] * 8, said)


print("the openai package, " + openai.__version__)
with Worker(sys.argv[1]) as w:
    client = openai.OpenAI(base_url="http://127.0.0.1:%d/v1" % w.port, api_key="none", timeout=PATIENCE)
    haiku = text_of(w.execute(**HAIKU)[1])
    answers(client, haiku)
    probabilities(client, haiku)
    functions(client)
    parsed(client)
    responses(client, haiku)
    errors(client)
    asyncio.run(together(w.port, haiku))
done()
