#!/usr/bin/env python3
"""Models that reason, under a form of the answer: the reasoning is free, the answer is of the form, over every
interface and on the command line; and a model whose vocabulary cannot be masked, which refuses forms and serves all
else. The models are small and random, made of a golden one. usage: test_reasoning.py PROGRAM SOURCE"""

import json
import os
import re
import subprocess
import sys
import tempfile

from service import Worker, check, done
from thinking import HARMONY, made, thinker

program = sys.argv[1]
USER = [{"role": "user", "content": "Yes or no?"}]
CHOICES = ["yes", "no"]
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"enum": CHOICES}, "sure": {"type": "boolean"}},
    "required": ["answer", "sure"],
    "additionalProperties": False,
}
SOON = 2  # of the id that ends the reasoning, by which a random model comes to it


def is_pet(text):
    value = json.loads(text)
    return sorted(value) == ["answer", "sure"] and value["answer"] in CHOICES and value["sure"] in (True, False)


FORMS = [
    ({"guided_choice": CHOICES}, lambda t: t in CHOICES),
    ({"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, is_pet),
    ({"grammar": 'root ::= "yes" | "no" "!"{3}'}, lambda t: t in ("yes", "no!!!")),
]


def chat(w, **members):
    return w.post("/v1/chat/completions", dict({"messages": USER, "max_tokens": 450, "temperature": 1}, **members))


def joined(stream):
    """(reasoning, content) of a stream."""
    parts = [d["choices"][0]["delta"] for d in map(json.loads, re.findall(r"^data: (\{.*)$", stream, re.M))]
    return tuple("".join(p.get(k) or "" for p in parts) for k in ("reasoning_content", "content"))


def thinks(w, bias, name):
    """The reasoning of a model that ends it soon, then the form."""
    reasoned = 0
    for form, (members, fits) in enumerate(FORMS):
        for seed in range(4 * form, 4 * form + 4):
            status, a = chat(w, seed=seed, logit_bias=bias, **members)
            choice = a["choices"][0] if status == 200 else {"message": {}}
            reasoning, text = (choice["message"].get(k) or "" for k in ("reasoning_content", "content"))
            fine = status == 200 and choice["finish_reason"] == "stop" and fits(text)
            check("%s: %s, seed %d" % (name, list(members)[0], seed), fine, (status, a))
            counted = fine and a["usage"]["completion_tokens_details"]["reasoning_tokens"]
            reasoned += bool(reasoning) and 0 < counted < a["usage"]["completion_tokens"]
            status, stream = chat(w, seed=seed, logit_bias=bias, stream=True, **members)
            check("... streamed", joined(stream)[1] == text and joined(stream)[0].strip() == reasoning.strip(), stream)
    check("%s: reasoning is free" % name, reasoned > 0, reasoned)
    status, a = chat(w, n=4, seed=9, logit_bias=bias, **FORMS[1][0])
    check("%s: several answers" % name, status == 200 and all(is_pet(c["message"]["content"]) for c in a["choices"]), a)
    status, a = chat(w, logprobs=True, seed=1, logit_bias=bias, **FORMS[0][0])
    said = status == 200 and len(a["choices"][0]["logprobs"]["content"])
    check("%s: log probabilities of all" % name, said and said >= a["usage"]["completion_tokens"] - 1, a)


def executes(w, name):
    """/execute knows no bias: reasoning of a random model ends somewhere, or is cut. Its text is the answer alone."""
    whole = 0
    for seed in range(8):
        status, events = w.execute(
            prompt="Yes or no?",
            chat=True,
            max_tokens=450,
            temperature=1,
            seed=seed,
            structured_outputs={"choice": CHOICES},
        )
        tokens, end = [d for n, d in events if n == "token"], events[-1][1]
        text = "".join(t["t"] for t in tokens)
        cut = end["finish_reason"] == "length" and any(c.startswith(text) for c in CHOICES)
        check("%s: /execute, seed %d" % (name, seed), status == 200 and (text in CHOICES or cut), events[-3:])
        check("... every id is told", [t["i"] for t in tokens] == list(range(end["tokens_out"])), end)
        whole += text in CHOICES and len(tokens) > len(text)
    check("%s: reasoning is no text" % name, whole > 0, whole)


def runs(model, bias, name):
    """worker run: the answer on standard output, the reasoning beside it."""
    aside = 0
    with tempfile.TemporaryDirectory() as folder:
        schema = os.path.join(folder, "schema.json")
        with open(schema, "w", encoding="utf-8") as f:
            json.dump(SCHEMA, f)
        for form, fits in ((["--regex", "yes|no"], lambda t: t in CHOICES), (["--json-schema", schema], is_pet)):
            for seed in range(4):
                command = [program, "run", "--model", model, "--chat", "--reasoning", "--prompt", "Yes or no?", *form]
                command += ["--seed", str(seed), "--max-tokens", "450"]
                command += [x for i, b in bias.items() for x in ("--logit-bias", "%s=%s" % (i, b))]
                r = subprocess.run(command, capture_output=True, timeout=300)
                text = r.stdout.decode(errors="replace").strip()
                check("%s: worker run %s" % (name, form[0]), r.returncode == 0 and fits(text), r)
                aside += len(r.stderr.strip().splitlines()) > 1
    check("%s: worker run tells the reasoning" % name, aside > 0, aside)


def waited(w):
    m = w.metrics()
    return m("worker_mask_wait_seconds_count"), m("worker_mask_wait_seconds_sum")


def masks_are_counted(w):
    before = waited(w)
    chat(w, max_tokens=3, temperature=0)
    check("without a form no mask is waited for", waited(w) == before, before)
    status, a = chat(w, guided_regex="[a-z]{20}", enable_thinking=False)
    after = waited(w)
    check(
        "worker_mask_wait_seconds: one for each id",
        status == 200 and after[0] - before[0] >= a["usage"]["completion_tokens"] >= 10 and after[1] > before[1],
        (before, after, a),
    )


def unmaskable():
    """No token of its vocabulary ends generation."""
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "endless.gguf")
        names = {"<|%s|>" % t: "<|%s|>" % t.upper() for t in ("start", "end", "return", "call", "endoftext")}
        turns = "{% for m in messages %}{{ m.role + ':' + m.content + '\n' }}{% endfor %}{{ 'assistant:' }}"
        made(model, names, chat_template=turns)
        with Worker(program, "--model", model) as w:
            card = w.get("/v1/models")[1]["data"][0]
            check("the model's card says so", card["structured_output"] is False, card)
            for members, _ in FORMS:
                status, a = chat(w, **members)
                check(
                    "%s is refused by name" % list(members)[0],
                    status == 400
                    and a["error"]["param"] == list(members)[0]
                    and "cannot be constrained" in a["error"]["message"],
                    (status, a),
                )
            for ask in (
                lambda: w.post("/v1/completions", {"prompt": "x", "max_tokens": 2, "guided_regex": "a"}),
                lambda: w.execute(prompt="x", max_tokens=2, grammar='root ::= "a"'),
            ):
                status, a = ask()
                check("... by each interface", status == 400 and "cannot be constrained" in json.dumps(a), (status, a))
            check("... before it is a job", w.get("/worker/jobs")[1]["jobs"] == [], w.get("/worker/jobs")[1])
            status, a = chat(w, max_tokens=5, response_format={"type": "text"})
            check("all else is served", status == 200 and a["usage"]["completion_tokens"] == 5, (status, a))
        r = subprocess.run([program, "run", "--model", model, "--prompt", "x", "--regex", "a"], capture_output=True)
        check("worker run refuses as well", r.returncode == 1 and b"cannot be constrained" in r.stderr, r)


with tempfile.TemporaryDirectory() as folder_:
    model_ = os.path.join(folder_, "thinker.gguf")
    ends = {str(thinker(model_)): SOON}
    with Worker(program, "--model", model_) as w_:
        thinks(w_, ends, "<think>")
        executes(w_, "<think>")
        masks_are_counted(w_)
    runs(model_, ends, "<think>")
with Worker(program, "--model", HARMONY) as w_:
    ends = {str(w_.post("/tokenize", {"content": "<|end|>", "parse_special": True})[1]["tokens"][0]): SOON}
    thinks(w_, ends, "harmony")
    executes(w_, "harmony")
runs(HARMONY, ends, "harmony")
unmaskable()
done()
