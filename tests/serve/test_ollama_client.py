#!/usr/bin/env python3
"""Ollama's own client (the package ollama of PyPI): chat and generate, whole and streamed, functions of Python that the
model calls, forms of pydantic models, log probabilities, what it lists and shows, errors; from threads and from
coroutines. Skipped where the package is not installed; CI installs it. usage: test_ollama_client.py PROGRAM"""

import asyncio
import importlib.metadata
import sys

from service import HAIKU, PATIENCE, Worker, check, done, events, skip

try:
    import ollama
    import pydantic
except ImportError:
    skip("the ollama package is not installed; to run this: python3 -m pip install ollama")

USER = [{"role": "user", "content": HAIKU["prompt"]}]
ASK = {"model": "haiku", "messages": USER, "options": {"num_predict": 50, "temperature": 0.7, "seed": 42}}


class Pet(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    age: int = pydantic.Field(ge=0, le=30)


def count_syllables(word: str) -> int:
    """The number of syllables of a word.

    Args:
        word: the word
    """
    return max(1, sum(c in "aeiou" for c in word.lower()))


def answers(c, text):
    """text: of /execute, with the same parameters."""
    a = c.chat(**ASK)
    check("client: chat", a.message.content == text and a.message.role == "assistant" and a.done, a)
    check("client: counts", a.eval_count > 5 and a.prompt_eval_count > 5 and a.total_duration > 0, a)
    s = list(c.chat(stream=True, **ASK))
    check("client: a stream", "".join(x.message.content for x in s) == text and s[-1].done_reason == a.done_reason, s)
    options = ollama.Options(num_predict=50, temperature=0.7, seed=42, num_ctx=512, num_gpu=1)
    g = c.generate("haiku", HAIKU["prompt"], options=options)
    check("client: generate", g.response == text and g["done"], g)
    s = list(c.generate("haiku", HAIKU["prompt"], options=options, stream=True, keep_alive="5m"))
    check("client: ... a stream", "".join(x.response for x in s) == text and [x.done for x in s].count(True) == 1, s)
    a = c.chat(logprobs=True, top_logprobs=2, **ASK)
    check(
        "client: log probabilities",
        "".join(p.token for p in a.logprobs) == text and all(len(p.top_logprobs) == 2 for p in a.logprobs),
        a,
    )
    check("client: it is loaded", c.generate("haiku").done_reason == "load" and c.chat("haiku").done_reason == "load")
    check("client: ... and stays", c.generate("haiku", keep_alive=0).done_reason == "unload" and c.ps().models)


def functions(c):
    """A function of Python, its calls, their results and the answer."""
    messages = [{"role": "user", "content": 'How many syllables do "lantern" and "river" have?'}]
    options = {"temperature": 0, "num_predict": 100}
    a = c.chat("haiku", messages, tools=[count_syllables], options=options)
    calls = [(t.function.name, dict(t.function.arguments)) for t in a.message.tool_calls]
    both = [("count_syllables", {"word": w}) for w in ("lantern", "river")]
    check("client: calls", calls == both, a)
    s = list(c.chat("haiku", messages, tools=[count_syllables], options=options, stream=True))
    told = [(t.function.name, dict(t.function.arguments)) for x in s for t in x.message.tool_calls or []]
    check("client: ... of a stream", told == both, s)
    messages.append(a.message)
    for name, arguments in calls:
        messages.append({"role": "tool", "tool_name": name, "content": str(count_syllables(**arguments))})
    a = c.chat("haiku", messages, tools=[count_syllables], options=options)
    check("client: ... and the answer", a.message.content and not a.message.tool_calls, a)


def forms(c):
    asked = dict(ASK, options=dict(ASK["options"], num_predict=200), messages=[{"role": "user", "content": "A pet"}])
    a = c.chat(format=Pet.model_json_schema(), **asked)
    pet = Pet.model_validate_json(a.message.content)
    check("client: a form", a.done_reason == "stop" and 0 <= pet.age <= 30, a)
    s = "".join(x.message.content for x in c.chat(format=Pet.model_json_schema(), stream=True, **asked))
    check("client: ... of a stream", Pet.model_validate_json(s) == pet, s)
    check("client: json", c.chat(format="json", **asked).message.content.startswith("{"))


def facts(c):
    (m,) = c.list().models
    check("client: list", m.model == "haiku:latest" and m.size > 4000000 and m.details.family == "llama", m)
    (p,) = c.ps().models
    check("client: ps", p.name == m.model and p.context_length == 512 and p.expires_at.year > 2100, p)
    s = c.show(m.model)
    check(
        "client: show",
        s.modelinfo["llama.context_length"] == 512
        and s.capabilities == ["completion", "tools"]
        and s.template
        and s.modified_at == m.modified_at,
        s,
    )


def errors(c):
    for what, status, call in (
        ("another model", 404, lambda: c.chat("llama3", USER)),
        ("... of a stream", 404, lambda: list(c.chat("llama3", USER, stream=True))),
        ("an option", 400, lambda: c.chat("haiku", USER, options={"temperature": 9})),
        ("the context", 400, lambda: c.generate("haiku", "word " * 600)),
        ("an image", 400, lambda: c.generate("haiku", "x", images=[b"x"])),
        ("pull", 404, lambda: c.pull("llama3")),
        ("... of a stream", 404, lambda: list(c.pull("llama3", stream=True))),
        ("delete", 404, lambda: c.delete("haiku")),
        ("embed", 400, lambda: c.embed("haiku", "x")),
    ):
        try:
            call()
            check("client: " + what, False, "no error")
        except ollama.ResponseError as e:
            check("client: %s is refused with a text" % what, e.status_code == status and len(e.error) > 10, e)


async def together(port, text):
    """Many at once."""
    c = ollama.AsyncClient("http://127.0.0.1:%d" % port, timeout=PATIENCE)

    async def streamed():
        return "".join([x.message.content async for x in await c.chat(stream=True, **ASK)])

    async def whole():
        return (await c.chat(**ASK)).message.content

    said = await asyncio.gather(*[f() for f in (streamed, whole) * 4])
    check("client: eight at once", said == [text] * 8, said)


print("the ollama package, " + importlib.metadata.version("ollama"))
with Worker(sys.argv[1]) as w:
    client = ollama.Client("http://127.0.0.1:%d" % w.port, timeout=PATIENCE)
    haiku = "".join(d["t"] for n, d in events(w.post("/execute", dict(HAIKU, job_id="x"))[1]) if n == "token")
    answers(client, haiku)
    functions(client)
    forms(client)
    facts(client)
    errors(client)
    asyncio.run(together(w.port, haiku))
done()
